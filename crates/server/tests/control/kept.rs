//! Rows as a busy server would have written them, put straight into its database.

use deadstop_core::{
    Action, Call, GuardId, Harm, Link, Millis, NanoUsd, Policy, ScopeKind, ScopeState, Signal,
    Status, Time, Tokens, ToolCall, Trip, Usage, Verdict, admit,
};
use deadstop_store::{
    Batch, Body, CallKind, Counters, Evidence, Exchange, SessionState, StoredAgent, StoredCall,
    StoredIncident, StoredSession,
};

use crate::support::Gate;

/// What was put there.
pub(crate) struct Kept {
    pub(crate) incident: String,
    pub(crate) call: String,
}

/// The agent of all rows; nothing of it may ever be seen in another project.
pub(crate) const AGENT: &str = "wall-agent";
/// Its session.
pub(crate) const SESSION: &str = "wall-session";

/// A trip as the kill switch gives it, on the seed page's numbers.
pub(crate) fn trip() -> Trip {
    let mut policy = Policy::none();
    policy.destructive.enabled = true;
    policy.destructive.max_deletes = 1;
    policy.destructive.action = Action::Terminate;
    let mut state = ScopeState::new(ScopeKind::Session, Time(0));
    let harms = vec![Harm::destroys("rm", "x")];
    let call = Call::Tool(ToolCall { harms, ..ToolCall::default() });
    let mut chain = [Link { name: SESSION, state: &mut state, policy: &policy }];
    let mut trip = admit(&mut chain, &call, Time(2)).trips.remove(0);
    let signal = |name: &str, count, weight| Signal { name: name.into(), count, weight };
    trip.guard = GuardId::Similarity;
    trip.reason = "kill_switch".into();
    trip.verdict = Verdict::Kill;
    trip.measured = deadstop_core::Measure::Score(7.0);
    trip.limit = deadstop_core::Measure::Score(5.0);
    trip.window = Some(10);
    trip.signals = vec![
        signal("similar_prompts", 3, 1.0),
        signal("similar_responses", 2, 2.0),
        signal("repeated_tool_calls", 0, 1.5),
    ];
    trip
}

/// A model call of an agent and a session, by their numbers, in the default project.
pub(crate) fn call(id: i64, at: Time, owner: (i64, i64)) -> StoredCall {
    StoredCall {
        id,
        project: "default".into(),
        agent_number: owner.0,
        session_number: owner.1,
        nested: None,
        position: 1,
        kind: CallKind::Model,
        name: "gpt-4o".into(),
        server: Some("openai".into()),
        at,
        duration: Some(Millis(100)),
        first: None,
        verdict: Verdict::Allow,
        guard: None,
        reason: None,
        status: Some(Status::Ok),
        cause: None,
        usage: Usage { input: Tokens(60), output: Tokens(40), ..Usage::default() },
        cost: NanoUsd::DOLLAR,
        incident: None,
        facts: None,
    }
}

/// Puts an agent with a session, four calls and an incident into a project of a server's database.
pub(crate) async fn keep(gate: &Gate, project: &str) -> Kept {
    let store = gate.store().await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = u64::try_from(now.as_millis()).unwrap();
    let started = Time(now - 600_000);
    let agent_number = store.number(started);
    let session_number = store.number(started);
    let counters = Counters {
        calls: 4,
        loops: 1,
        incidents: 1,
        tokens: Tokens(400),
        cost: NanoUsd(4 * NanoUsd::DOLLAR.0),
        version: 0,
    };
    let call = |at: Time, position| StoredCall {
        project: project.to_owned(),
        position,
        ..call(store.number(at), at, (agent_number, session_number))
    };
    let calls: Vec<_> = (0..4).map(|n| call(Time(started.0 + n * 20_000), n + 1)).collect();
    let incident = StoredIncident {
        id: format!("wall-incident-{project}"),
        project: project.to_owned(),
        at: Time(started.0 + 60_000),
        last: Time(started.0 + 60_000),
        agent: AGENT.into(),
        session: SESSION.into(),
        session_number: Some(session_number),
        call: Some(calls[3].id),
        provider: Some("openai".into()),
        trip: trip(),
        rungs: Vec::new(),
        acknowledged: None,
        about: "repetition".into(),
        assignee: None,
        resolved: None,
        calls: 0,
    };
    let evidence = Evidence {
        project: project.to_owned(),
        incident: incident.id.clone(),
        position: 0,
        at: incident.at,
        call: Some(calls[2].id),
        exchange: Exchange {
            request: Some("wall-request".into()),
            response: Some("wall-response".into()),
            request_chars: 12,
            response_chars: 13,
            ..Exchange::default()
        },
        body: Some(Body { text: "{\"wall-body\":1}".into(), chars: 15, cut: false }),
    };
    let kept = Kept { incident: incident.id.clone(), call: calls[0].id.to_string() };
    store.ensure_project(project, started).await.unwrap();
    store
        .write(&Batch {
            agents: vec![StoredAgent {
                number: agent_number,
                project: project.to_owned(),
                name: AGENT.into(),
                opened: started,
                used: Time(now),
                tags: Vec::new(),
                active: true,
                deactivated_by: None,
                deactivated: None,
                removed: None,
                counters,
            }],
            sessions: vec![StoredSession {
                number: session_number,
                project: project.to_owned(),
                agent_number,
                agent: AGENT.into(),
                name: SESSION.into(),
                opened: started,
                used: Time(now),
                state: SessionState::Running,
                why: None,
                tags: vec!["loop_detected".into()],
                provider: Some("openai".into()),
                model: Some("gpt-4o".into()),
                counters,
            }],
            calls,
            incidents: vec![incident],
            evidence: vec![evidence],
            ..Batch::default()
        })
        .await
        .unwrap();
    store.close().await;
    kept
}
