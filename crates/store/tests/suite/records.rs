//! What was written is there, all of it, also after opening the database again.

use deadstop_core::{GuardId, NanoUsd, ScopeKind, Status, Tokens, Usage, Verdict};
use deadstop_store::{
    Acknowledged, AgentFilter, Batch, CallFilter, CostBy, CostFilter, Evidence, Exchange,
    IncidentFilter, ListedCall, Order, Paging, Payload, Period, SessionFilter, SessionState,
    StoredCall, StoredScope,
};

use crate::place::{Place, on_both};
use crate::sample::{agent, at, call, delivery, event, incident, number, scope, session, target};

on_both![everything_of_a_batch, scopes_and_kills];

async fn scopes_and_kills(place: &Place) {
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
    // Old, but dead: a kill is remembered however long ago it was.
    assert_eq!(store.scopes(ScopeKind::Session, at(100)).await.unwrap(), [dead.clone()]);
    assert_eq!(store.scopes(ScopeKind::Agent, at(0)).await.unwrap(), []);
    assert_eq!(store.scopes_of_agent("default", "a", at(6)).await.unwrap(), [dead]);
    assert_eq!(store.scopes_of_agent("default", "a", at(7)).await.unwrap(), []);
    assert_eq!(store.scopes_of_agent("other", "a", at(0)).await.unwrap(), []);
}

async fn everything_of_a_batch(place: &Place) {
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
    // Nobody knows whether the first time has worked: the second must change nothing.
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
    assert_eq!(found, Some(incident("i1", "ada", 2)));
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
