//! The edges: text that wants to be SQL, text that no database likes, numbers without end, batches of
//! every size, and many who write at once.

use deadstop_core::{NanoUsd, Time, Tokens};
use deadstop_store::{
    AgentFilter, Batch, CallFilter, CostBy, CostFilter, Counters, Paging, SessionFilter,
    StoredAgent, StoredCall, StoredScope,
};

use crate::place::{TestDatabase, on_both};
use crate::sample::{agent, at, call, event, incident, number, scope, session};

on_both![
    text_stays_text,
    numbers_without_end,
    absurd_figures_and_names_of_others_do_no_harm,
    batches_of_every_size,
    many_write_at_once,
    all_or_nothing,
    every_start_makes_other_numbers,
];

const TEXTS: [&str; 9] = [
    "'; DROP TABLE agents; --",
    "\" OR 1=1 --",
    "$1 ? ?1 :name @name",
    "back\\slash 'quote' \"double\" `tick`",
    "漢字 ünïcödé e\u{301} 👩‍👩‍👧 \u{202e}right to left",
    "line\nbreak\r\n\ttab \u{1f} \u{7f}",
    "%_%",
    " leading and trailing ",
    "\u{10ffff}\u{feff}",
];

async fn text_stays_text(place: &TestDatabase) {
    let store = place.open().await;
    for (text, n) in TEXTS.into_iter().zip(0u64..) {
        let ada = StoredAgent { tags: vec![text.into()], ..agent(text, number(n)) };
        let run = session(&ada, number(n));
        let run = deadstop_store::StoredSession {
            name: text.into(),
            why: Some(text.into()),
            tags: vec![text.into()],
            ..run
        };
        let made = StoredCall {
            name: text.into(),
            nested: Some(text.into()),
            reason: Some(text.into()),
            ..call(&run, number(n))
        };
        let one = StoredScope { name: text.into(), agent: text.into(), ..scope(text) };
        let batch = Batch {
            scopes: vec![one.clone()],
            agents: vec![ada.clone()],
            sessions: vec![run.clone()],
            calls: vec![made.clone()],
            incidents: vec![incident(text, text, n)],
            ..Batch::default()
        };
        store.write(&batch).await.unwrap();
        assert_eq!(store.scope(text).await.unwrap(), Some(one));
        assert_eq!(store.agent("default", text).await.unwrap(), Some(ada.clone()));
        let tagged = AgentFilter { tag: Some(text.into()), active: None };
        let found = store.agents("default", &tagged, &Paging::default()).await.unwrap();
        assert_eq!(found.items, [ada], "{text}");
        let found = store.session_named("default", text, text).await.unwrap();
        assert_eq!(found, Some(run.clone()));
        let filter = SessionFilter {
            agent: Some(text.into()),
            name: Some(text.into()),
            tag: Some(text.into()),
            ..SessionFilter::default()
        };
        let found = store.sessions("default", &filter, &Paging::default()).await.unwrap();
        assert_eq!(found.items, [run]);
        let filter = CallFilter { agent: Some(text.into()), ..CallFilter::default() };
        let found = store.calls("default", &filter, &Paging::default()).await.unwrap();
        assert_eq!((found.items.len(), &found.items[0].call), (1, &made));
        assert!(store.incident("default", text).await.unwrap().is_some());
    }
    let all = store.agents("default", &AgentFilter::default(), &Paging::first(100)).await.unwrap();
    assert_eq!(all.items.len(), TEXTS.len());
    // PostgreSQL has no NUL in a text. One must not make a whole batch fail, and both do the same.
    let agents = vec![agent("nul\0nul", number(99))];
    store.write(&Batch { agents, ..Batch::default() }).await.unwrap();
    assert!(store.agent("default", "nul\0nul").await.unwrap().is_some());
    let found = store.agent("default", "nul\u{fffd}nul").await.unwrap().unwrap();
    assert_eq!(found.name, "nul\u{fffd}nul");
    // A name as long as a page.
    let long = "x".repeat(2000);
    let agents = vec![agent(&long, number(100))];
    store.write(&Batch { agents, ..Batch::default() }).await.unwrap();
    assert!(store.agent("default", &long).await.unwrap().is_some());
}

async fn numbers_without_end(place: &TestDatabase) {
    let store = place.open().await;
    let vast = Counters {
        calls: u64::MAX,
        loops: 0,
        incidents: i64::MAX as u64,
        tokens: Tokens(u64::MAX),
        cost: NanoUsd(u64::MAX),
        version: 0,
    };
    let ada = StoredAgent { used: Time(u64::MAX), counters: vast, ..agent("ada", i64::MAX) };
    store.write(&Batch { agents: vec![ada], ..Batch::default() }).await.unwrap();
    let found = store.agent("default", "ada").await.unwrap().unwrap();
    assert_eq!(found.number, i64::MAX);
    assert_eq!(found.counters.cost, NanoUsd(i64::MAX as u64), "as much as can be kept");
    assert_eq!(found.used, Time(i64::MAX as u64));
}

/// A provider's figures and a client's names are not ours: whatever they are, the batch that they are
/// in is written, and the sums can still be read.
async fn absurd_figures_and_names_of_others_do_no_harm(place: &TestDatabase) {
    let store = place.open().await;
    let ada = agent("ada", number(0));
    let run = session(&ada, number(1));
    // Long, and not to be compressed into something short.
    let mut name = String::from("é");
    for n in 0..5_000u64 {
        name.push_str(&format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    }
    let all = Tokens(u64::MAX);
    let usage = deadstop_core::Usage { input: all, output: all, cache_read: all, cache_write: all };
    for round in 0..3 {
        let calls = (0..10u64)
            .map(|n| StoredCall {
                name: name.clone(),
                server: Some(name.clone()),
                nested: Some(name.clone()),
                reason: Some(name.clone()),
                position: u64::MAX,
                usage,
                cost: NanoUsd(u64::MAX),
                ..call(&run, number(round * 10 + n))
            })
            .collect();
        store.write(&Batch { calls, ..Batch::default() }).await.unwrap();
    }
    for by in [CostBy::Agent, CostBy::Model, CostBy::Day, CostBy::Hour] {
        let lines = store.costs("default", by, &CostFilter::default()).await.unwrap();
        assert_eq!((lines.len(), lines[0].calls), (1, 30));
        assert!(lines[0].cost > NanoUsd(1_000_000_000_000_000));
    }
    let found = store.call("default", number(0)).await.unwrap().unwrap();
    assert_eq!(found.call.name, name);
}

async fn batches_of_every_size(place: &TestDatabase) {
    let store = place.open().await;
    let ada = agent("ada", number(0));
    let run = session(&ada, number(0));
    let mut next = 0;
    for size in [1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 81, 128, 149, 1000] {
        let mut calls: Vec<_> = (next..next + size).map(|n| call(&run, number(n))).collect();
        // Out of order, and the first one twice.
        calls.reverse();
        calls.push(call(&run, number(next)));
        store.write(&Batch { calls, ..Batch::default() }).await.unwrap();
        next += size;
        let lines = store.costs("default", CostBy::Model, &CostFilter::default()).await.unwrap();
        assert_eq!(lines[0].calls, next, "after {size} more");
    }
    store.write(&Batch::default()).await.unwrap();
    let filter = CallFilter::default();
    let mut paging = Paging::first(1000);
    let mut found = 0;
    loop {
        let page = store.calls("default", &filter, &paging).await.unwrap();
        found += page.items.len() as u64;
        paging.cursor = page.next;
        if paging.cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, next);
}

async fn many_write_at_once(place: &TestDatabase) {
    let (here, there) = (place.open().await, place.open().await);
    let tasks: Vec<_> = (0..20u64)
        .map(|task| {
            let store = if task % 2 == 0 { here.clone() } else { there.clone() };
            tokio::spawn(async move {
                for round in 0..5 {
                    // All of them write the same agents and scopes, each in an order of its own.
                    let mut agents: Vec<_> =
                        (0..10).map(|n| agent(&format!("agent-{n}"), number(n))).collect();
                    let mut scopes: Vec<_> = (0..10).map(|n| scope(&format!("k{n}"))).collect();
                    agents.rotate_left(task as usize % 10);
                    scopes.rotate_left((task as usize + round) % 10);
                    let run = session(&agents[0], number(task));
                    let first = (task * 5 + round as u64) * 10;
                    let calls = (first..first + 10).map(|n| call(&run, number(n))).collect();
                    let batch = Batch {
                        scopes,
                        agents,
                        sessions: vec![run],
                        calls,
                        audit: vec![event(first as i64)],
                        ..Batch::default()
                    };
                    store.write(&batch).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let lines = here.costs("default", CostBy::Model, &CostFilter::default()).await.unwrap();
    assert_eq!(lines[0].calls, 1000);
    let verified = here.verify_audit("default").await.unwrap();
    assert!(matches!(verified, deadstop_store::Verified::Whole { entries: 100, .. }));
}

async fn all_or_nothing(place: &TestDatabase) {
    let store = place.open().await;
    place.tamper("DROP TABLE alert_deliveries").await;
    let batch = Batch {
        scopes: vec![scope("k")],
        agents: vec![agent("ada", number(0))],
        incidents: vec![incident("i1", "ada", 1)],
        audit: vec![event(1)],
        deliveries: vec![crate::sample::delivery(number(1), 1)],
        ..Batch::default()
    };
    let error = store.write(&batch).await.unwrap_err();
    assert_eq!(error.trouble(), None, "{error}");
    assert_eq!(store.scope("k").await.unwrap(), None);
    assert_eq!(store.agent("default", "ada").await.unwrap(), None);
    assert_eq!(store.incident("default", "i1").await.unwrap(), None);
    assert_eq!(store.audit_after("default", 0, 10).await.unwrap(), []);
    let batch = Batch { deliveries: vec![], ..batch };
    store.write(&batch).await.unwrap();
    assert!(store.scope("k").await.unwrap().is_some());
}

async fn every_start_makes_other_numbers(place: &TestDatabase) {
    let (one, two) = (place.open().await, place.open().await);
    assert_ne!(one.number(at(0)), two.number(at(0)));
}
