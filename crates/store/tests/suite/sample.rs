//! Rows to write, as plain as they can be; a case changes what it is about.

use deadstop_core::{
    Call, Harm, Link, Millis, NanoUsd, Policy, ScopeKind, ScopeState, Status, Time, Tokens,
    ToolCall, Trip, Usage, Verdict, admit,
};
use deadstop_store::{
    AlertTarget, AuditEvent, CallKind, Counters, Delivery, Numbers, SessionState, StoredAgent,
    StoredCall, StoredIncident, StoredScope, StoredSession,
};

/// A day in 2026.
pub(crate) const NOON: u64 = 1_790_000_000_000;

pub(crate) fn at(ms: u64) -> Time {
    Time(NOON + ms)
}

/// The number of something that happened so many milliseconds after noon.
pub(crate) fn number(ms: u64) -> i64 {
    Numbers::first(at(ms))
}

pub(crate) fn trip() -> Trip {
    let mut state = ScopeState::new(ScopeKind::Session, Time(0));
    state.kill("ada", "enough", Time(1));
    let policy = Policy::none();
    let mut chain = [Link { name: "s", state: &mut state, policy: &policy }];
    let harms = vec![Harm::destroys("rm", "x")];
    let call = Call::Tool(ToolCall { harms, ..ToolCall::default() });
    admit(&mut chain, &call, Time(2)).trips.remove(0)
}

pub(crate) fn scope(key: &str) -> StoredScope {
    StoredScope {
        key: key.into(),
        project: "default".into(),
        number: 7,
        kind: ScopeKind::Session,
        agent: "a".into(),
        name: "s".into(),
        killed: false,
        updated: at(5),
        version: 0,
        turns: 0,
        state: vec![0, 1, 2, 255],
    }
}

pub(crate) fn agent(name: &str, number: i64) -> StoredAgent {
    StoredAgent {
        number,
        project: "default".into(),
        name: name.into(),
        opened: at(0),
        used: at(9),
        tags: vec!["prod".into(), "it's \"quoted\"".into()],
        active: true,
        deactivated_by: None,
        deactivated: None,
        removed: None,
        counters: Counters {
            calls: 3,
            loops: 1,
            incidents: 2,
            tokens: Tokens(100),
            cost: NanoUsd(42),
            version: 0,
        },
    }
}

pub(crate) fn session(agent: &StoredAgent, number: i64) -> StoredSession {
    StoredSession {
        number,
        project: agent.project.clone(),
        agent_number: agent.number,
        agent: agent.name.clone(),
        name: format!("s-{number}"),
        opened: Numbers::time(number),
        used: Numbers::time(number),
        state: SessionState::Running,
        why: None,
        tags: vec!["loop_detected".into()],
        provider: Some("anthropic".into()),
        model: Some("sonnet".into()),
        counters: Counters { calls: 1, ..Counters::default() },
    }
}

pub(crate) fn call(session: &StoredSession, id: i64) -> StoredCall {
    StoredCall {
        id,
        project: session.project.clone(),
        agent_number: session.agent_number,
        session_number: session.number,
        nested: Some("crew/writer".into()),
        position: 1,
        kind: CallKind::Model,
        name: "sonnet".into(),
        server: Some("anthropic".into()),
        at: Numbers::time(id),
        duration: Some(Millis(1200)),
        verdict: Verdict::Allow,
        guard: None,
        reason: None,
        status: Some(Status::Ok),
        usage: Usage {
            input: Tokens(1),
            output: Tokens(2),
            cache_read: Tokens(3),
            cache_write: Tokens(4),
        },
        cost: NanoUsd(1_000_000),
        incident: None,
        facts: None,
        first: None,
        cause: None,
    }
}

pub(crate) fn incident(id: &str, agent: &str, ms: u64) -> StoredIncident {
    StoredIncident {
        id: id.into(),
        project: "default".into(),
        at: at(ms),
        last: at(ms),
        agent: agent.into(),
        session: "s".into(),
        session_number: Some(1),
        call: Some(2),
        provider: Some("openai".into()),
        trip: trip(),
        rungs: Vec::new(),
        acknowledged: None,
        about: "repetition".into(),
        assignee: None,
        resolved: None,
        calls: 0,
    }
}

pub(crate) fn event(number: i64) -> AuditEvent {
    AuditEvent {
        number,
        project: "default".into(),
        at: at(3),
        who: "ada".into(),
        action: "agent.kill".into(),
        subject: "researcher".into(),
        reason: "it ran away".into(),
        detail: "{\"calls\":7}".into(),
    }
}

pub(crate) fn target(id: i64) -> AlertTarget {
    AlertTarget {
        id,
        project: "default".into(),
        agent: None,
        kind: "webhook".into(),
        name: "ops".into(),
        active: true,
        events: vec!["kill".into()],
        settings: "{\"url\":\"https://example.com\"}".into(),
        made: at(0),
        changed: at(0),
    }
}

pub(crate) fn delivery(id: i64, target: i64) -> Delivery {
    Delivery {
        id,
        project: "default".into(),
        target,
        event: "kill".into(),
        agent: Some("a".into()),
        session: Some("s".into()),
        incident: Some("i1".into()),
        bunch: String::new(),
        once: false,
        body: "{}".into(),
        at: at(0),
        due: at(10),
    }
}
