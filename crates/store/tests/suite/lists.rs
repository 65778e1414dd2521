//! Lists: what each filter lets through, how pages follow each other, and the walls of a project.

use deadstop_core::{GuardId, Time, Verdict};
use deadstop_store::{
    Acknowledged, Act, AgentFilter, AuditFilter, Batch, CallFilter, CallKind, DeliveryFilter,
    IncidentFilter, IncidentState, Mute, Order, Page, Paging, Period, Resolution, Resolved,
    SessionFilter, SessionState, StatesWanted, Store, StoreError, StoredAgent, StoredCall,
    StoredIncident, StoredSession, Strip,
};

use crate::place::{TestDatabase, on_both};
use crate::sample::{agent, at, call, delivery, event, incident, number, session, target};

on_both![
    calls_are_found_by_everything,
    sessions_are_found_by_everything,
    incidents_are_found_and_grouped,
    incidents_are_resolved_muted_and_counted_by_time,
    agents_are_found_by_tag_and_state,
    removed_agents_are_left_out_until_they_are_used,
    pages_follow_each_other,
    cursors_of_others_are_refused,
    another_project_is_not_there,
];

fn span(from: u64, to: u64) -> Period {
    Period { from: Some(at(from)), to: Some(at(to)) }
}

async fn calls_are_found_by_everything(place: &TestDatabase) {
    let store = place.open().await;
    let (ada, bob) = (agent("ada", number(0)), agent("bob", number(1)));
    let runs = [session(&ada, number(2)), session(&ada, number(3)), session(&bob, number(4))];
    let tripped = |call: StoredCall, guard| StoredCall {
        guard: Some(guard),
        verdict: Verdict::Block,
        status: None,
        ..call
    };
    let calls = vec![
        call(&runs[0], number(10)),
        tripped(call(&runs[0], number(11)), GuardId::Loop),
        call(&runs[1], number(12)),
        tripped(call(&runs[2], number(13)), GuardId::Loop),
        StoredCall {
            kind: CallKind::Tool,
            name: "ls".into(),
            ..tripped(call(&runs[2], number(14)), GuardId::Budget)
        },
    ];
    let sonnet = || Some((CallKind::Model, "sonnet".to_owned()));
    let (agents, sessions) = (vec![ada, bob], runs.to_vec());
    store.write(&Batch { agents, sessions, calls, ..Batch::default() }).await.unwrap();

    let none = CallFilter::default;
    let cases = [
        ("all", none(), vec![14, 13, 12, 11, 10]),
        ("oldest", CallFilter { order: Order::Oldest, ..none() }, vec![10, 11, 12, 13, 14]),
        ("agent", CallFilter { agent: Some("ada".into()), ..none() }, vec![12, 11, 10]),
        ("unknown agent", CallFilter { agent: Some("eve".into()), ..none() }, vec![]),
        ("session", CallFilter { session: Some(number(2)), ..none() }, vec![11, 10]),
        (
            "not that agent's session",
            CallFilter { session: Some(number(2)), agent: Some("bob".into()), ..none() },
            vec![],
        ),
        ("guard", CallFilter { guard: Some(GuardId::Loop), ..none() }, vec![13, 11]),
        (
            "agent and guard",
            CallFilter { agent: Some("bob".into()), guard: Some(GuardId::Loop), ..none() },
            vec![13],
        ),
        (
            "session and guard",
            CallFilter { session: Some(number(4)), guard: Some(GuardId::Budget), ..none() },
            vec![14],
        ),
        ("tool", CallFilter { name: Some((CallKind::Tool, "ls".into())), ..none() }, vec![14]),
        (
            "no such model",
            CallFilter { name: Some((CallKind::Model, "ls".into())), ..none() },
            vec![],
        ),
        (
            "model of an agent",
            CallFilter { agent: Some("bob".into()), name: sonnet(), ..none() },
            vec![13],
        ),
        ("blocked", CallFilter { verdict: Some(Verdict::Block), ..none() }, vec![14, 13, 11]),
        ("allowed", CallFilter { verdict: Some(Verdict::Allow), ..none() }, vec![12, 10]),
        (
            "blocked of an agent and a model",
            CallFilter {
                agent: Some("ada".into()),
                name: sonnet(),
                verdict: Some(Verdict::Block),
                ..none()
            },
            vec![11],
        ),
        ("span", CallFilter { period: span(11, 13), ..none() }, vec![12, 11]),
        (
            "span of an agent",
            CallFilter { agent: Some("ada".into()), period: span(11, 14), ..none() },
            vec![12, 11],
        ),
    ];
    for (what, filter, expected) in cases {
        let ids: Vec<i64> = expected.into_iter().map(number).collect();
        let found = store.calls("default", &filter, &Paging::default()).await.unwrap();
        let found: Vec<i64> = found.items.iter().map(|listed| listed.call.id).collect();
        assert_eq!(found, ids, "{what}");
        let found = store.calls_with_facts("default", &filter, &Paging::default()).await.unwrap();
        assert_eq!(found.items.len(), ids.len(), "{what}, with facts");
    }
    let found = store.calls("default", &none(), &Paging::first(1)).await.unwrap();
    let names = (found.items[0].agent.as_str(), found.items[0].session.as_str());
    assert_eq!(names, ("bob", runs[2].name.as_str()));
}

async fn sessions_are_found_by_everything(place: &TestDatabase) {
    let store = place.open().await;
    let (ada, bob) = (agent("ada", number(0)), agent("bob", number(1)));
    let one = StoredSession { used: at(50), ..session(&ada, number(10)) };
    let two = StoredSession { state: SessionState::Killed, ..session(&ada, number(20)) };
    let three = StoredSession { tags: vec!["budget_warning".into()], ..session(&bob, number(30)) };
    let again = StoredSession { name: one.name.clone(), ..session(&ada, number(40)) };
    let sessions = vec![one.clone(), two, three, again.clone()];
    store.write(&Batch { agents: vec![ada, bob], sessions, ..Batch::default() }).await.unwrap();

    let none = SessionFilter::default;
    let cases = [
        ("all", none(), vec![40, 30, 20, 10]),
        ("agent", SessionFilter { agent: Some("ada".into()), ..none() }, vec![40, 20, 10]),
        ("name", SessionFilter { name: Some(one.name.clone()), ..none() }, vec![40, 10]),
        (
            "agent and name",
            SessionFilter { agent: Some("bob".into()), name: Some(one.name.clone()), ..none() },
            vec![],
        ),
        ("state", SessionFilter { state: Some(SessionState::Killed), ..none() }, vec![20]),
        ("tag", SessionFilter { tag: Some("budget_warning".into()), ..none() }, vec![30]),
        ("part of a tag", SessionFilter { tag: Some("budget".into()), ..none() }, vec![]),
        ("open then", SessionFilter { period: span(25, 40), ..none() }, vec![30, 10]),
        (
            "of an agent then",
            SessionFilter { agent: Some("ada".into()), period: span(15, 41), ..none() },
            vec![40, 20, 10],
        ),
    ];
    for (what, filter, expected) in cases {
        let numbers: Vec<i64> = expected.into_iter().map(number).collect();
        let found = store.sessions("default", &filter, &Paging::default()).await.unwrap();
        let found: Vec<i64> = found.items.iter().map(|session| session.number).collect();
        assert_eq!(found, numbers, "{what}");
    }
    let found = store.session_named("default", "ada", &one.name).await.unwrap();
    assert_eq!(found, Some(again));
    assert_eq!(store.session_named("default", "bob", &one.name).await.unwrap(), None);
}

async fn incidents_are_found_and_grouped(place: &TestDatabase) {
    let store = place.open().await;
    let other = |incident: StoredIncident| {
        let mut other = incident;
        other.trip.guard = GuardId::Loop;
        other.trip.reason = "repetition".into();
        other.session_number = Some(9);
        other
    };
    let incidents = vec![
        incident("i1", "ada", 10),
        incident("i2", "ada", 20),
        other(incident("i3", "ada", 20)),
        incident("i4", "bob", 30),
    ];
    let guard = incidents[0].trip.guard;
    store.write(&Batch { incidents, ..Batch::default() }).await.unwrap();
    let seen = Acknowledged { by: "eve".into(), at: at(99), note: "known".into() };
    let both = [("i1".to_owned(), event(1)), ("i9".to_owned(), event(2))];
    let act = Act::Acknowledge(seen.clone());
    assert_eq!(store.act("default", &both, &act).await.unwrap(), ["i1"]);
    assert_eq!(store.audit_after("default", 0, 9).await.unwrap().len(), 1, "only what was done");
    let found = store.incident("default", "i1").await.unwrap().unwrap();
    assert_eq!(found.acknowledged, Some(seen));

    let none = IncidentFilter::default;
    let cases = [
        ("all", none(), "i4 i3 i2 i1"),
        ("agent", IncidentFilter { agent: Some("ada".into()), ..none() }, "i3 i2 i1"),
        ("session", IncidentFilter { session: Some(9), ..none() }, "i3"),
        ("guard", IncidentFilter { guard: Some(guard), ..none() }, "i4 i2 i1"),
        ("reason", IncidentFilter { reason: Some("repetition".into()), ..none() }, "i3"),
        ("seen", IncidentFilter { acknowledged: Some(true), ..none() }, "i1"),
        ("open", IncidentFilter { acknowledged: Some(false), ..none() }, "i4 i3 i2"),
        ("span", IncidentFilter { period: span(10, 30), ..none() }, "i3 i2 i1"),
    ];
    for (what, filter, expected) in cases {
        let page = store.incidents("default", &filter, &Paging::default()).await.unwrap();
        let ids: Vec<_> = page.items.iter().map(|incident| incident.id.as_str()).collect();
        assert_eq!(ids.join(" "), expected, "{what}");
    }
    let groups = store.incident_groups("default", &none(), &Paging::first(50)).await.unwrap().items;
    let shown: Vec<_> = groups
        .iter()
        .map(|g| {
            (
                g.fingerprint.agent.as_str(),
                g.fingerprint.guard.as_str(),
                g.count,
                g.open,
                g.first,
                g.last,
            )
        })
        .collect();
    let killed = guard.name();
    assert_eq!(
        shown,
        [
            ("bob", killed, 1, 1, at(30), at(30)),
            ("ada", killed, 2, 1, at(10), at(20)),
            ("ada", "loop", 1, 1, at(20), at(20)),
        ]
    );
    let mut paging = Paging::first(2);
    let first = store.incident_groups("default", &none(), &paging).await.unwrap();
    assert_eq!(first.items, groups[..2]);
    paging.cursor = first.next;
    let last = store.incident_groups("default", &none(), &paging).await.unwrap();
    assert_eq!((last.items.as_slice(), last.next), (&groups[2..], None));
    let bad = Paging { cursor: Some("-1".into()), ..paging };
    assert!(store.incident_groups("default", &none(), &bad).await.is_err());
    let open = IncidentFilter { acknowledged: Some(false), agent: Some("ada".into()), ..none() };
    let groups = store.incident_groups("default", &open, &Paging::first(50)).await.unwrap().items;
    assert_eq!(groups.iter().map(|group| group.count).collect::<Vec<_>>(), [1, 1]);
}

async fn incidents_are_resolved_muted_and_counted_by_time(place: &TestDatabase) {
    let store = place.open().await;
    let about = |id: &str, ms, about: &str| StoredIncident {
        about: about.into(),
        ..incident(id, "ada", ms)
    };
    let incidents = vec![about("i1", 10, "x"), about("i2", 25, "x"), about("i3", 31, "y")];
    let batch = Batch { incidents, ..Batch::default() };
    store.write(&batch).await.unwrap();
    let now = at(100);
    let listed = async |wanted: StatesWanted| {
        let filter = IncidentFilter { state: Some((wanted, now)), ..IncidentFilter::default() };
        let page = store.incidents("default", &filter, &Paging::default()).await.unwrap();
        let ids: Vec<_> = page.items.iter().map(|one| one.id.clone()).collect();
        ids.join(" ")
    };
    let one = StatesWanted::One;
    assert_eq!(listed(one(IncidentState::Open)).await, "i3 i2 i1");

    let resolved =
        Resolved { by: "eve".into(), at: at(50), note: "n".into(), how: Resolution::FalseAlarm };
    let first = [("i1".to_owned(), event(1))];
    store.act("default", &first, &Act::Resolve(resolved.clone())).await.unwrap();
    let found = store.incident("default", "i1").await.unwrap().unwrap();
    assert_eq!(found.resolved, Some(resolved));
    let mute = |until| Mute {
        project: "default".into(),
        fingerprint: found.fingerprint(),
        at: at(60),
        until,
        by: "eve".into(),
        reason: "known".into(),
    };
    store.mute(&mute(None), &event(2)).await.unwrap();
    assert_eq!(listed(one(IncidentState::Muted)).await, "i2");
    assert_eq!(listed(one(IncidentState::Resolved)).await, "i1");
    assert_eq!(listed(StatesWanted::Unresolved).await, "i3");
    store.mute(&mute(Some(at(99))), &event(3)).await.unwrap();
    assert_eq!(listed(StatesWanted::Unresolved).await, "i3 i2", "the mute is over");
    assert_eq!(store.mutes("default").await.unwrap(), [mute(Some(at(99)))]);

    // Written again it stays resolved; a later trip opens it.
    store.write(&batch).await.unwrap();
    assert_eq!(listed(one(IncidentState::Resolved)).await, "i1");
    let later = StoredIncident { last: at(51), ..about("i1", 10, "x") };
    store.write(&Batch { incidents: vec![later], ..Batch::default() }).await.unwrap();
    assert_eq!(listed(one(IncidentState::Open)).await, "i3 i2 i1");

    let seen = Acknowledged { by: "eve".into(), at: at(70), note: String::new() };
    let assign = Act::Assign(Some("bob".into()), seen);
    store.act("default", &first, &assign).await.unwrap();
    let found = store.incident("default", "i1").await.unwrap().unwrap();
    assert_eq!((found.assignee.as_deref(), found.acknowledged.is_some()), (Some("bob"), true));
    assert_eq!(listed(one(IncidentState::Acknowledged)).await, "i1");
    store.act("default", &first, &Act::Reopen).await.unwrap();
    assert_eq!(listed(one(IncidentState::Open)).await, "i3 i2 i1");

    let strip = Strip { from: at(10), step: 10, pieces: 3 };
    let none = IncidentFilter::default();
    let strips = store.incident_strips("default", &none, &strip).await.unwrap();
    let of = |about: &str| strips.iter().find(|(one, _)| one.about == about).unwrap().1.clone();
    assert_eq!((of("x"), of("y")), (vec![1, 1, 0], vec![0, 0, 1]));
    assert!(store.unmute("default", &mute(None).fingerprint, &event(4)).await.unwrap());
    assert!(!store.unmute("default", &mute(None).fingerprint, &event(5)).await.unwrap());
    assert_eq!(store.mutes("default").await.unwrap(), []);
}

async fn agents_are_found_by_tag_and_state(place: &TestDatabase) {
    let store = place.open().await;
    let plain = StoredAgent { tags: vec!["production".into()], ..agent("ada", number(0)) };
    let off = StoredAgent { active: false, ..agent("Zoe", number(1)) };
    store.write(&Batch { agents: vec![plain, off], ..Batch::default() }).await.unwrap();
    let none = AgentFilter::default;
    let tagged = |tag: &str| AgentFilter { tag: Some(tag.into()), ..none() };
    // Names sort by their bytes on both.
    let cases = [
        (none(), "Zoe ada"),
        (AgentFilter { active: Some(true), ..none() }, "ada"),
        (AgentFilter { active: Some(false), ..none() }, "Zoe"),
        (tagged("prod"), "Zoe"),
        (tagged("it's \"quoted\""), "Zoe"),
        (tagged("PROD"), ""),
        (tagged("%"), ""),
    ];
    for (filter, expected) in cases {
        let page = store.agents("default", &filter, &Paging::default()).await.unwrap();
        let names: Vec<_> = page.items.iter().map(|agent| agent.name.as_str()).collect();
        assert_eq!(names.join(" "), expected, "{filter:?}");
    }
}

/// A removed agent is left out of lists until it is used later. A row that is written with an older
/// last use does not hide it again.
async fn removed_agents_are_left_out_until_they_are_used(place: &TestDatabase) {
    let store = place.open().await;
    let ada = agent("ada", number(0));
    let write = async |agents| {
        store.write(&Batch { agents, ..Batch::default() }).await.unwrap();
    };
    write(vec![ada.clone(), agent("bob", number(1))]).await;
    let listed = async || {
        let page = store.agents("default", &AgentFilter::default(), &Paging::default()).await;
        let names: Vec<_> = page.unwrap().items.into_iter().map(|agent| agent.name).collect();
        names.join(" ")
    };
    assert!(!store.remove_agent("default", "zoe", at(20), None).await.unwrap());
    assert!(!store.remove_agent("other", "ada", at(20), None).await.unwrap());
    assert!(store.remove_agent("default", "ada", at(20), Some(&event(1))).await.unwrap());
    assert_eq!(listed().await, "bob");
    let removed = store.removed_agents().await.unwrap();
    let removed: Vec<_> = removed.iter().map(|r| (r.project.as_str(), &*r.name, r.at)).collect();
    assert_eq!(removed, [("default", "ada", at(20))]);
    let kept = store.agent("default", "ada").await.unwrap().unwrap();
    assert_eq!((kept.removed, kept.is_removed()), (Some(at(20)), true));
    // The end of a call from before the removal is written late.
    write(vec![StoredAgent { used: at(20), ..ada.clone() }]).await;
    assert_eq!(listed().await, "bob");
    write(vec![StoredAgent { used: at(21), ..ada.clone() }]).await;
    assert_eq!(listed().await, "ada bob");
    // Another node, which has not heard of the later use, writes what it knows.
    write(vec![ada]).await;
    assert_eq!(listed().await, "ada bob");
    assert!(store.removed_agents().await.unwrap().is_empty());
}

/// Reads a list to its end in pages of three, while rows are added before its beginning.
async fn walk<T>(read: impl AsyncFn(Paging) -> Page<T>) -> Vec<T> {
    let mut all = Vec::new();
    let mut cursor = None;
    for _ in 0..20 {
        let page = read(Paging { limit: 3, cursor }).await;
        assert!(page.items.len() == 3 || page.next.is_none());
        all.extend(page.items);
        cursor = page.next;
        if cursor.is_none() {
            return all;
        }
    }
    panic!("the list has no end");
}

async fn pages_follow_each_other(place: &TestDatabase) {
    let store = place.open().await;
    // A page that ends exactly at the list's end has no next one: nine and ten of each.
    for most in [9u64, 10] {
        let name = |n: u64| format!("agent-{n}");
        let agents: Vec<_> = (0..most).map(|n| agent(&name(n), number(n))).collect();
        let sessions: Vec<_> = (0..most).map(|n| session(&agents[0], number(n))).collect();
        store
            .write(&Batch {
                calls: sessions.iter().map(|run| call(run, run.number)).collect(),
                // All at the same time, so that the id has to decide.
                incidents: (0..most).map(|n| incident(&format!("i{n}"), "ada", 0)).collect(),
                audit: (0..most as i64).map(event).collect(),
                deliveries: (0..most).map(|n| delivery(number(n), 1)).collect(),
                agents,
                sessions,
                ..Batch::default()
            })
            .await
            .unwrap();
        let newest: Vec<i64> = (0..most).rev().map(number).collect();
        let read = async |paging| store.calls("default", &Default::default(), &paging).await;
        let calls = walk(async |paging| read(paging).await.unwrap()).await;
        assert_eq!(calls.iter().map(|c| c.call.id).collect::<Vec<_>>(), newest);
        let timeline = CallFilter { order: Order::Oldest, ..CallFilter::default() };
        let read = async |paging| store.calls("default", &timeline, &paging).await;
        let calls = walk(async |paging| read(paging).await.unwrap()).await;
        assert!(calls.iter().rev().map(|c| c.call.id).eq(newest.iter().copied()));
        let read = async |paging| store.sessions("default", &Default::default(), &paging).await;
        let sessions = walk(async |paging| read(paging).await.unwrap()).await;
        assert_eq!(sessions.iter().map(|s| s.number).collect::<Vec<_>>(), newest);
        let read = async |paging| store.agents("default", &Default::default(), &paging).await;
        let agents = walk(async |paging| read(paging).await.unwrap()).await;
        assert!(agents.iter().map(|a| a.name.clone()).eq((0..most).map(name)));
        let read = async |paging| store.incidents("default", &Default::default(), &paging).await;
        let incidents = walk(async |paging| read(paging).await.unwrap()).await;
        let ids: Vec<_> = (0..most).rev().map(|n| format!("i{n}")).collect();
        assert_eq!(incidents.iter().map(|i| i.id.clone()).collect::<Vec<_>>(), ids);
        let read =
            async |paging| store.audit_entries("default", &Default::default(), &paging).await;
        let entries = walk(async |paging| read(paging).await.unwrap()).await;
        assert!(entries.iter().map(|e| e.seq).eq((1..=most as i64).rev()));
        let read = async |paging| store.deliveries("default", &Default::default(), &paging).await;
        let log = walk(async |paging| read(paging).await.unwrap()).await;
        assert_eq!(log.iter().map(|d| d.delivery.id).collect::<Vec<_>>(), newest);
    }
}

async fn cursors_of_others_are_refused(place: &TestDatabase) {
    let store = place.open().await;
    for cursor in ["", "x", "1; DROP TABLE calls", "9999999999999999999999", "1.", ".x", "é"] {
        let paging = Paging { limit: 10, cursor: Some(cursor.into()) };
        let calls = store.calls("default", &CallFilter::default(), &paging).await;
        assert!(matches!(calls, Err(StoreError::Cursor)), "{cursor}: {calls:?}");
        let incidents = store.incidents("default", &IncidentFilter::default(), &paging).await;
        let fine = cursor == "1.";
        assert_eq!(matches!(incidents, Err(StoreError::Cursor)), !fine, "{cursor}");
    }
    for limit in [0, u32::MAX] {
        let page = store.calls("default", &CallFilter::default(), &Paging::first(limit)).await;
        assert_eq!(page.unwrap().items.len(), 0);
    }
}

async fn another_project_is_not_there(place: &TestDatabase) {
    let store = place.open().await;
    let ada = agent("ada", number(0));
    let run = session(&ada, number(1));
    let made = call(&run, number(2));
    let batch = Batch {
        agents: vec![ada.clone()],
        sessions: vec![run.clone()],
        calls: vec![made.clone()],
        incidents: vec![incident("i1", "ada", 2)],
        audit: vec![event(1)],
        deliveries: vec![delivery(number(3), 1)],
        ..Batch::default()
    };
    store.write(&batch).await.unwrap();
    store.create_target(&target(1), None).await.unwrap();
    assert_eq!(everything(&store, "default", &run, &made).await, [1; 14]);
    for project in ["other", "", "Default", "default ", "defaul_", "%"] {
        assert_eq!(everything(&store, project, &run, &made).await, [0; 14], "{project}");
    }
}

/// How much each way of asking finds.
async fn everything(
    store: &Store,
    project: &str,
    run: &StoredSession,
    made: &StoredCall,
) -> [usize; 14] {
    let all = Paging::default();
    let of_session = CallFilter { session: Some(run.number), ..CallFilter::default() };
    let of_agent = CallFilter { agent: Some("ada".into()), ..CallFilter::default() };
    let sessions_of = SessionFilter { agent: Some("ada".into()), ..SessionFilter::default() };
    let some = |found: bool| usize::from(found);
    [
        store.agents(project, &AgentFilter::default(), &all).await.unwrap().items.len(),
        some(store.agent(project, "ada").await.unwrap().is_some()),
        some(store.agent_by_number(project, run.agent_number).await.unwrap().is_some()),
        store.sessions(project, &sessions_of, &all).await.unwrap().items.len(),
        some(store.session(project, run.number).await.unwrap().is_some()),
        some(store.session_named(project, "ada", &run.name).await.unwrap().is_some()),
        store.calls(project, &of_session, &all).await.unwrap().items.len(),
        store.calls(project, &of_agent, &all).await.unwrap().items.len(),
        some(store.call(project, made.id).await.unwrap().is_some()),
        store.incidents(project, &IncidentFilter::default(), &all).await.unwrap().items.len(),
        some(store.incident(project, "i1").await.unwrap().is_some()),
        store.audit_entries(project, &AuditFilter::default(), &all).await.unwrap().items.len(),
        store.deliveries(project, &DeliveryFilter::default(), &all).await.unwrap().items.len(),
        some(store.target(project, 1).await.unwrap().is_some())
            .min(some(!store.targets(project).await.unwrap().is_empty()))
            .max(some(store.delete_target(project, 2, Time(0), None).await.unwrap())),
    ]
}
