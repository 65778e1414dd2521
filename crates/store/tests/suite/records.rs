//! What was written is there, all of it, also after opening the database again.

use deadstop_core::{Digest, GuardId, Millis, NanoUsd, ScopeKind, Status, Time, Tokens, Verdict};
use deadstop_store::{
    Acknowledged, Act, AgentFilter, Batch, Body, CostBy, CostFilter, Counters, Evidence, Exchange,
    Kept, ListedCall, Paging, Payload, Period, SessionState, StoredAgent, StoredCall,
    StoredIncident, StoredRung, StoredScope, StoredSession, StoredTool,
};

use crate::place::{TestDatabase, on_both};
use crate::sample::{agent, at, call, delivery, event, incident, number, scope, session, target};

on_both![
    everything_of_a_batch,
    listings_come_one_after_the_other,
    scopes_and_kills,
    a_call_runs_then_ends,
    rows_are_kept_up_to_date,
    who_knows_less_of_a_session_takes_nothing_away,
    costs_add_up,
    old_rows_go_in_small_pieces,
    tools_as_they_were_seen,
    the_steps_of_a_loop_grow_one_incident,
];

fn rung(ms: u64, verdict: Verdict, count: u64) -> StoredRung {
    StoredRung {
        verdict,
        at: at(ms),
        last: at(ms),
        count,
        last_count: count,
        limit: 3,
        sentence: format!("{verdict} at {count}"),
        advice: (verdict == Verdict::Steer).then(|| format!("told at {count}")),
        call: Some(number(ms)),
        last_call: Some(number(ms)),
    }
}

/// Two nodes write the steps of one loop, not in their order, and one of them twice.
async fn the_steps_of_a_loop_grow_one_incident(place: &TestDatabase) {
    let store = place.open().await;
    let step = |ms: u64, verdict: Verdict, count: u64| {
        let mut grown = incident("loop", "a", ms);
        grown.trip.verdict = verdict;
        grown.call = Some(number(ms));
        grown.rungs.push(rung(ms, verdict, count));
        grown
    };
    let write = async |incidents: &[StoredIncident]| {
        let batch = Batch { incidents: incidents.to_vec(), ..Batch::default() };
        store.write(&batch).await.unwrap();
    };
    let later = [step(6, Verdict::Steer, 4), step(7, Verdict::Block, 5)];
    write(&later).await;
    write(&[step(5, Verdict::Steer, 3)]).await;
    write(&later).await;
    let shown = store.incident("default", "loop").await.unwrap().unwrap();
    assert_eq!((shown.at, shown.last, shown.trip.verdict), (at(5), at(7), Verdict::Block));
    assert_eq!(shown.call, Some(number(7)));
    let rungs = store.rungs("default", "loop").await.unwrap();
    let counts: Vec<_> = rungs.iter().map(|r| (r.verdict, r.count, r.last_count)).collect();
    assert_eq!(counts, [(Verdict::Steer, 3, 4), (Verdict::Block, 5, 5)]);
    assert_eq!(rungs[0].advice.as_deref(), Some("told at 4"));
    assert_eq!((rungs[0].call, rungs[0].last_call), (Some(number(5)), Some(number(6))));
    assert!(store.rungs("other", "loop").await.unwrap().is_empty());

    // A person has seen it. It stays seen until it grows stricter.
    let seen = Acknowledged { by: "ada".into(), at: at(8), note: "fine".into() };
    let one = [("loop".to_owned(), event(1))];
    let act = Act::Acknowledge(seen.clone());
    assert_eq!(store.act("default", &one, &act).await.unwrap(), ["loop"]);
    write(&[step(9, Verdict::Block, 6)]).await;
    let shown = store.incident("default", "loop").await.unwrap().unwrap();
    assert_eq!(shown.acknowledged, Some(seen));
    write(&[step(10, Verdict::Kill, 10)]).await;
    let shown = store.incident("default", "loop").await.unwrap().unwrap();
    assert_eq!((shown.acknowledged, shown.trip.verdict), (None, Verdict::Kill));
    assert_eq!(store.rungs("default", "loop").await.unwrap().len(), 3);
    assert_eq!(store.prune("default", Kept::Rungs, at(8), 10).await.unwrap(), 1);
}

async fn tools_as_they_were_seen(place: &TestDatabase) {
    let store = place.open().await;
    let one = StoredTool {
        project: "default".into(),
        server: "files".into(),
        tool: "write".into(),
        known: Digest(7),
        seen: Digest(u64::MAX),
        destructive: true,
        first: at(1),
        changed: Some(at(2)),
        accepted_by: None,
        known_text: "Writes".into(),
        seen_text: "Sends".into(),
        notes: "odd".into(),
    };
    let other = StoredTool { tool: "read".into(), changed: None, ..one.clone() };
    let listing = store.listing("default", "files").await.unwrap();
    assert!(listing.tools.is_empty() && listing.complete.is_none());
    listing.keep(&[one.clone(), other.clone()], None).await.unwrap();
    store.close().await;
    let store = place.open().await;
    assert_eq!(store.tools().await.unwrap(), [other.clone(), one.clone()]);
    let accepted = StoredTool { known: one.seen, accepted_by: Some("ada".into()), ..one };
    store.accept_tool(&accepted, &event(number(9))).await.unwrap();
    assert_eq!(store.tools().await.unwrap(), [other, accepted]);
}

/// Of two listings at once, one is the first: the other waits and sees what it left.
async fn listings_come_one_after_the_other(place: &TestDatabase) {
    let store = place.open().await;
    let tool = |tool: &str| StoredTool {
        project: "default".into(),
        server: "files".into(),
        tool: tool.into(),
        known: Digest(1),
        seen: Digest(1),
        destructive: false,
        first: at(1),
        changed: None,
        accepted_by: None,
        known_text: String::new(),
        seen_text: String::new(),
        notes: String::new(),
    };
    // One that is dropped leaves nothing behind.
    drop(store.listing("default", "files").await.unwrap());
    assert!(store.complete_servers().await.unwrap().is_empty());
    let first = store.listing("default", "files").await.unwrap();
    let other = store.clone();
    let second = tokio::spawn(async move { other.listing("default", "files").await.unwrap() });
    tokio::task::yield_now().await;
    first.keep(&[tool("read")], Some(at(3))).await.unwrap();
    let second = second.await.unwrap();
    assert_eq!((second.tools.as_slice(), second.complete), (&[tool("read")][..], Some(at(3))));
    // The first end of the list stays.
    second.keep(&[tool("write")], Some(at(9))).await.unwrap();
    let third = store.listing("default", "files").await.unwrap();
    assert_eq!((third.tools.len(), third.complete), (2, Some(at(3))));
    drop(third);
    let whole = [("default".to_owned(), "files".to_owned())];
    assert_eq!(store.complete_servers().await.unwrap(), whole);
}

async fn scopes_and_kills(place: &TestDatabase) {
    let store = place.open().await;
    let one = scope("default/a/s");
    let batch = Batch { scopes: vec![one.clone()], ..Batch::default() };
    store.write(&batch).await.unwrap();
    store.close().await;

    let store = place.open().await;
    assert_eq!(store.scope(&one.key).await.unwrap(), Some(one.clone()));
    assert_eq!(store.scope("default/a/other").await.unwrap(), None);
    let dead = StoredScope { killed: true, state: vec![9], updated: at(6), ..one.clone() };
    store.write(&Batch { scopes: vec![one.clone(), dead.clone()], ..batch }).await.unwrap();
    assert_eq!(store.scope(&one.key).await.unwrap(), Some(dead.clone()));
    // A writer with an older standing overwrites nothing, however high its version is.
    let turned = StoredScope { turns: 1, ..dead.clone() };
    let late = StoredScope { version: 9, ..one.clone() };
    store.write(&Batch { scopes: vec![turned.clone()], ..Batch::default() }).await.unwrap();
    store.write(&Batch { scopes: vec![late], ..Batch::default() }).await.unwrap();
    assert_eq!(store.scope(&one.key).await.unwrap(), Some(turned.clone()));
    let dead = turned;
    // Old, but dead: a kill is remembered however long ago it was.
    assert_eq!(
        store.scopes(ScopeKind::Session, at(100)).await.unwrap(),
        std::slice::from_ref(&dead)
    );
    assert_eq!(store.scopes(ScopeKind::Agent, at(0)).await.unwrap(), []);
    assert_eq!(store.scopes_of_agent("default", "a", at(6)).await.unwrap(), [dead]);
    assert_eq!(store.scopes_of_agent("default", "a", at(7)).await.unwrap(), []);
    assert_eq!(store.scopes_of_agent("other", "a", at(0)).await.unwrap(), []);
}

/// A node that has only heard of a session knows neither its model nor its agent's number.
async fn who_knows_less_of_a_session_takes_nothing_away(place: &TestDatabase) {
    let store = place.open().await;
    let ada = agent("ada", number(0));
    let mut run = session(&ada, number(1));
    let write = async |session: &StoredSession| {
        let sessions = vec![session.clone()];
        store.write(&Batch { sessions, ..Batch::default() }).await.unwrap();
    };
    write(&run).await;
    run.counters.calls = 2;
    let (provider, model) = (None, None);
    write(&StoredSession { agent_number: 0, provider, model, ..run.clone() }).await;
    let found = store.session_named(&run.project, "ada", &run.name).await.unwrap();
    assert_eq!(found, Some(run.clone()));
    // A later write that has more values fills them in.
    run.agent_number = number(9);
    run.model = Some("opus".into());
    write(&run).await;
    let found = store.session_named(&run.project, "ada", &run.name).await.unwrap();
    assert_eq!(found, Some(run));
}

async fn everything_of_a_batch(place: &TestDatabase) {
    let store = place.open().await;
    let ada = agent("ada", number(0));
    let run = session(&ada, number(1));
    let made = StoredCall {
        guard: Some(GuardId::TextLoop),
        reason: Some("repetition".into()),
        verdict: Verdict::Kill,
        status: Some(Status::Cancelled),
        incident: Some("i1".into()),
        facts: Some(vec![1, 0, 255]),
        ..call(&run, number(2))
    };
    let exchange = Exchange {
        request: Some("hello".into()),
        response: None,
        request_chars: 70_000,
        response_chars: 0,
        request_cut: true,
        response_cut: false,
    };
    let payload = Payload { project: "default".into(), call: made.id, exchange: exchange.clone() };
    let evidence = Evidence {
        project: "default".into(),
        incident: "i1".into(),
        position: 0,
        at: at(2),
        call: Some(made.id),
        exchange,
        body: Some(Body { text: "{\"model\":\"m\"}".into(), chars: 90_000, cut: true }),
    };
    let batch = Batch {
        scopes: vec![scope("k")],
        agents: vec![ada.clone()],
        sessions: vec![run.clone()],
        calls: vec![made.clone()],
        payloads: vec![payload.clone()],
        incidents: vec![incident("i1", "ada", 2)],
        evidence: vec![evidence.clone()],
        audit: vec![event(1)],
        deliveries: vec![delivery(number(3), 1)],
    };
    assert_eq!(batch.rows(), 9);
    store.create_target(&target(1), None).await.unwrap();
    // A batch may be retried after an unclear failure: the second write must change nothing.
    store.write(&batch).await.unwrap();
    store.write(&batch).await.unwrap();
    store.close().await;

    let store = place.open().await;
    let all = Paging::default();
    assert_eq!(store.agent("default", "ada").await.unwrap(), Some(ada.clone()));
    let found = store.agents("default", &AgentFilter::default(), &all).await.unwrap();
    assert_eq!(found.items, [ada]);
    assert_eq!(store.session("default", run.number).await.unwrap(), Some(run.clone()));
    let listed = ListedCall { call: made.clone(), agent: "ada".into(), session: run.name.clone() };
    assert_eq!(store.call("default", made.id).await.unwrap(), Some(listed.clone()));
    assert_eq!(store.payload("default", made.id).await.unwrap(), Some(payload));
    assert_eq!(store.evidence("default", "i1").await.unwrap(), [evidence]);
    let found = store.incident("default", "i1").await.unwrap();
    // Its calls are counted where it is read: the batch has one.
    assert_eq!(found, Some(StoredIncident { calls: 1, ..incident("i1", "ada", 2) }));
    let entries = store.audit_after("default", 0, 10).await.unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].event, event(1));
    let log = store.deliveries("default", &Default::default(), &all).await.unwrap();
    assert_eq!((log.items.len(), log.items[0].times), (1, 1));
    let lines = store.costs("default", CostBy::Agent, &CostFilter::default()).await.unwrap();
    assert_eq!((lines[0].calls, lines[0].cost), (1, NanoUsd(1_000_000)));
    assert!(store.size().await.unwrap() > 10_000);
    store.health().await.unwrap();
}

async fn a_call_runs_then_ends(place: &TestDatabase) {
    let store = place.open().await;
    let ada = agent("ada", number(0));
    let run = session(&ada, number(1));
    let ended = call(&run, number(2));
    let running = StoredCall {
        status: None,
        duration: None,
        cost: NanoUsd(0),
        facts: Some(vec![1]),
        ..ended.clone()
    };
    let write = async |calls: Vec<StoredCall>| {
        store.write(&Batch { calls, ..Batch::default() }).await.unwrap();
        store.call("default", ended.id).await.unwrap().unwrap().call
    };
    assert_eq!(write(vec![running.clone()]).await, running);
    // Its end does not say the facts again, and does not lose them either.
    let whole = StoredCall { facts: Some(vec![1]), ..ended.clone() };
    assert_eq!(write(vec![running.clone(), ended.clone()]).await, whole);
    // Late news of its beginning does not bring it back, and it is counted once.
    assert_eq!(write(vec![running]).await, whole);
    let dearer = StoredCall { cost: NanoUsd(7), duration: Some(Millis(1)), ..ended.clone() };
    let fresh = call(&run, number(3));
    assert_eq!(write(vec![dearer, fresh]).await, whole);
    let lines = store.costs("default", CostBy::Model, &CostFilter::default()).await.unwrap();
    assert_eq!((lines.len(), lines[0].calls, lines[0].cost), (1, 2, NanoUsd(2_000_000)));
}

async fn rows_are_kept_up_to_date(place: &TestDatabase) {
    let store = place.open().await;
    let ada = agent("ada", number(0));
    let run = session(&ada, number(1));
    let write = async |agents: Vec<StoredAgent>, sessions: Vec<StoredSession>| {
        store.write(&Batch { agents, sessions, ..Batch::default() }).await.unwrap();
    };
    write(vec![ada.clone()], vec![run.clone()]).await;
    assert!(store.set_agent_tags("default", "ada", &["mine".into()], None).await.unwrap());
    assert!(!store.set_agent_tags("default", "bob", &[], None).await.unwrap());
    let off = StoredAgent {
        active: false,
        deactivated_by: Some("loop".into()),
        deactivated: Some(at(50)),
        used: at(60),
        counters: Counters { calls: 9, ..ada.counters },
        ..ada.clone()
    };
    let dead = StoredSession {
        state: SessionState::Killed,
        why: Some("it ran away".into()),
        tags: vec![],
        used: at(70),
        ..run.clone()
    };
    write(vec![off.clone()], vec![dead.clone()]).await;
    let kept = StoredAgent { tags: vec!["mine".into()], ..off };
    assert_eq!(store.agent("default", "ada").await.unwrap(), Some(kept.clone()));
    assert_eq!(store.agent_by_number("default", ada.number).await.unwrap(), Some(kept.clone()));
    assert_eq!(store.session("default", run.number).await.unwrap(), Some(dead));

    // Another node has heard of the same agent: the number of the first one stands.
    let found = store.ensure_agent("default", "ada", number(5), at(80)).await.unwrap();
    assert_eq!(found, kept);
    let found = store.ensure_agent("default", "new", number(5), at(80)).await.unwrap();
    assert_eq!((found.number, found.active, found.opened), (number(5), true, at(80)));
    let found = store.ensure_agent("other", "ada", number(6), at(80)).await.unwrap();
    assert_eq!(found.number, number(6));

    store.ensure_project("default", at(0)).await.unwrap();
    store.ensure_project("b", at(1)).await.unwrap();
    store.ensure_project("b", at(2)).await.unwrap();
    let projects = store.projects().await.unwrap();
    let named: Vec<_> = projects.iter().map(|p| (p.name.as_str(), p.opened)).collect();
    assert_eq!(named, [("b", at(1)), ("default", at(0))]);
}

async fn costs_add_up(place: &TestDatabase) {
    const DAY: u64 = 86_400_000;
    let store = place.open().await;
    let (ada, bob) = (agent("ada", number(0)), agent("bob", number(1)));
    let (first, second) = (session(&ada, number(2)), session(&bob, number(3)));
    let cheap = |call: StoredCall| StoredCall { name: "haiku".into(), cost: NanoUsd(10), ..call };
    let calls = vec![
        call(&first, number(10)),
        call(&first, number(11)),
        cheap(call(&second, number(12))),
        cheap(call(&second, number(DAY))),
        // Not over yet, and a tool that costs nothing: neither counts.
        StoredCall { status: None, ..call(&first, number(13)) },
        StoredCall {
            kind: deadstop_store::CallKind::Tool,
            cost: NanoUsd(0),
            ..call(&first, number(14))
        },
    ];
    let agents = vec![ada, bob];
    store.write(&Batch { agents, calls, ..Batch::default() }).await.unwrap();
    let lines = async |by, filter: CostFilter| {
        let lines = store.costs("default", by, &filter).await.unwrap();
        lines.into_iter().map(|l| (l.of, l.calls, l.cost.0, l.usage.output)).collect::<Vec<_>>()
    };
    let line = |of: &str, calls: u64, cost| (of.to_owned(), calls, cost, Tokens(2 * calls));
    let all = CostFilter::default();
    assert_eq!(
        lines(CostBy::Agent, all.clone()).await,
        [line("ada", 2, 2_000_000), line("bob", 2, 20)]
    );
    assert_eq!(
        lines(CostBy::Model, all.clone()).await,
        [line("sonnet", 2, 2_000_000), line("haiku", 2, 20)]
    );
    let midnight = at(0).0 / DAY * DAY;
    let (today, tomorrow) = (midnight.to_string(), (midnight + DAY).to_string());
    assert_eq!(
        lines(CostBy::Day, all.clone()).await,
        [line(&today, 3, 2_000_010), line(&tomorrow, 1, 10)]
    );
    let bob = CostFilter { agent: Some("bob".into()), ..all.clone() };
    assert_eq!(lines(CostBy::Day, bob).await, [line(&today, 1, 10), line(&tomorrow, 1, 10)]);
    let later = Period { from: Some(at(DAY)), to: None };
    let later = CostFilter { period: later, model: Some("haiku".into()), ..all.clone() };
    assert_eq!(lines(CostBy::Day, later).await, [line(&tomorrow, 1, 10)]);
    assert_eq!(store.costs("other", CostBy::Day, &all).await.unwrap(), []);
    const HOUR: u64 = 3_600_000;
    let hour = at(0).0 / HOUR * HOUR;
    let (now, later) = (hour.to_string(), (hour + DAY).to_string());
    assert_eq!(
        lines(CostBy::Hour, all.clone()).await,
        [line(&now, 3, 2_000_010), line(&later, 1, 10)]
    );
    let first = Period { from: None, to: Some(Time(hour + HOUR)) };
    let first = CostFilter { period: first, ..all };
    assert_eq!(lines(CostBy::Hour, first).await, [line(&now, 3, 2_000_010)]);
}

async fn old_rows_go_in_small_pieces(place: &TestDatabase) {
    let store = place.open().await;
    let ada = agent("ada", number(0));
    let runs: Vec<_> = (0..10).map(|n| session(&ada, number(n))).collect();
    let numbers = 0..10u64;
    let exchange = Exchange::default();
    let evidence = |n: u64| Evidence {
        project: "default".into(),
        incident: format!("i{n}"),
        position: 0,
        at: at(n),
        call: None,
        exchange: exchange.clone(),
        body: None,
    };
    let payload =
        |n: u64| Payload { project: "default".into(), call: number(n), exchange: exchange.clone() };
    let grown = |n: u64| {
        let mut grown = incident(&format!("i{n}"), "ada", n);
        grown.rungs.push(rung(n, Verdict::Warn, 5));
        grown
    };
    let aged = |n: u64| StoredScope {
        updated: at(n),
        killed: n == 0,
        ..scope(&format!("default/ada/{n}"))
    };
    store
        .write(&Batch {
            scopes: numbers.clone().map(aged).collect(),
            agents: vec![ada],
            calls: runs.iter().map(|run| call(run, run.number)).collect(),
            sessions: runs,
            payloads: numbers.clone().map(payload).collect(),
            incidents: numbers.clone().map(grown).collect(),
            evidence: numbers.clone().map(evidence).collect(),
            audit: vec![event(1)],
            deliveries: numbers.clone().map(|n| delivery(number(n), 1)).collect(),
        })
        .await
        .unwrap();
    for delivery in store.claim_deliveries(at(10), at(20), 9).await.unwrap() {
        let id = delivery.delivery.id;
        let attempt = deadstop_store::Attempt::Delivered;
        assert!(store.finish_delivery(id, attempt, "200", at(11)).await.unwrap());
    }
    for n in numbers {
        let login = deadstop_store::StoredLogin {
            id: format!("l{n}"),
            project: "default".into(),
            key: "k".into(),
            csrf: "c".into(),
            made: at(0),
            used: at(0),
            expires: at(n),
        };
        store.create_login(&login, None).await.unwrap();
    }
    // All calls were made in one hour.
    let hours = async |ms| store.prune("default", Kept::Hours, at(ms), 100).await.unwrap();
    assert_eq!((hours(5).await, hours(7_200_000).await, hours(7_200_000).await), (0, 1, 0));
    for kept in Kept::ALL.into_iter().filter(|kept| *kept != Kept::Hours) {
        let prune = async |project, ms, most| store.prune(project, kept, at(ms), most).await;
        assert_eq!(prune("other", 100, 100).await.unwrap(), 0, "{kept:?}");
        // A killed scope stays, and so does a message that was not delivered.
        let all = if kept == Kept::Scopes || kept == Kept::Deliveries { 9 } else { 10 };
        let young = if kept == Kept::Scopes { 4 } else { 5 };
        assert_eq!(prune("default", 5, 3).await.unwrap(), 3, "{kept:?}");
        assert_eq!(prune("default", 5, 3).await.unwrap(), young - 3, "{kept:?}");
        assert_eq!(prune("default", 5, 3).await.unwrap(), 0, "{kept:?}");
        assert_eq!(prune("default", 100, 100).await.unwrap(), all - young, "{kept:?}");
    }
    assert_eq!(store.audit_after("default", 0, 10).await.unwrap().len(), 1);
    assert!(store.scope("default/ada/0").await.unwrap().unwrap().killed);
}
