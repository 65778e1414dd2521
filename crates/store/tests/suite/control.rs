//! Policies, keys, logins, settings and targets: what people change, one at a time.

use deadstop_core::NanoUsd;
use deadstop_store::{
    AlertTarget, KeyCount, Paging, PolicyChange, PreventionConfig, Role, Setting, StoreError,
    StoredKey, StoredLogin,
};

use crate::place::{TestDatabase, on_both};
use crate::sample::{at, event, target};

on_both![
    policies_have_versions,
    of_many_who_change_a_policy_one_wins,
    changes_without_a_version_all_count,
    prevention_configs_follow_the_policy,
    keys_live_and_are_revoked,
    logins_end,
    settings_are_set,
    targets_come_and_go,
];

fn change(agent: Option<&str>, expected: Option<i64>, document: Option<&str>) -> PolicyChange {
    PolicyChange {
        project: "default".into(),
        agent: agent.map(str::to_owned),
        expected,
        at: at(1),
        who: "ada".into(),
        note: "stricter".into(),
        document: document.map(str::to_owned),
        prevention: None,
    }
}

async fn policies_have_versions(place: &TestDatabase) {
    let store = place.open().await;
    assert_eq!(store.policy("default", None).await.unwrap(), None);
    let put = async |change: PolicyChange| store.put_policy(&change, None).await;
    assert_eq!(put(change(None, Some(0), Some("{\"a\":1}"))).await.unwrap(), 1);
    assert_eq!(put(change(None, Some(1), Some("{\"a\":2}"))).await.unwrap(), 2);
    assert_eq!(put(change(Some("ada"), None, Some("{\"b\":1}"))).await.unwrap(), 1);
    assert_eq!(put(change(Some("ada"), None, None)).await.unwrap(), 2);
    for stale in [0, 1, 3, -1] {
        let refused = put(change(None, Some(stale), Some("{}"))).await;
        assert!(matches!(refused, Err(StoreError::Conflict { current: 2 })), "{refused:?}");
    }
    let current = store.policy("default", None).await.unwrap().unwrap();
    assert_eq!((current.version, current.document.as_deref()), (2, Some("{\"a\":2}")));
    assert_eq!((current.who.as_str(), current.note.as_str()), ("ada", "stricter"));
    let back = store.policy("default", Some("ada")).await.unwrap().unwrap();
    assert_eq!((back.agent.as_deref(), back.version, back.document), (Some("ada"), 2, None));

    let versions = store.policy_versions("default", None, &Paging::first(1)).await.unwrap();
    assert_eq!((versions.items[0].version, versions.next.as_deref()), (2, Some("2")));
    let paging = Paging { limit: 1, cursor: versions.next };
    let versions = store.policy_versions("default", None, &paging).await.unwrap();
    assert_eq!((versions.items[0].version, versions.next), (1, None));
    let first = store.policy_version("default", None, 1).await.unwrap().unwrap();
    assert_eq!(first.document.as_deref(), Some("{\"a\":1}"));
    assert_eq!(store.policy_version("default", None, 3).await.unwrap(), None);
    assert_eq!(store.policy_version("other", None, 1).await.unwrap(), None);

    let all = store.policies().await.unwrap();
    let shown: Vec<_> = all.iter().map(|p| (p.agent.as_deref(), p.version)).collect();
    assert_eq!(shown, [(None, 2), (Some("ada"), 2)]);
}

async fn of_many_who_change_a_policy_one_wins(place: &TestDatabase) {
    let (here, there) = (place.open().await, place.open().await);
    let tasks: Vec<_> = (0..10)
        .map(|n| {
            let store = if n % 2 == 0 { here.clone() } else { there.clone() };
            tokio::spawn(async move {
                let document = format!("{{\"n\":{n}}}");
                let change = change(None, Some(0), Some(&document));
                store.put_policy(&change, Some(&event(n))).await
            })
        })
        .collect();
    let mut won = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(version) => {
                assert_eq!(version, 1);
                won += 1;
            }
            Err(StoreError::Conflict { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(won, 1);
    assert_eq!(here.audit_after("default", 0, 100).await.unwrap().len(), 1);
}

async fn changes_without_a_version_all_count(place: &TestDatabase) {
    let (here, there) = (place.open().await, place.open().await);
    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let store = if n % 2 == 0 { here.clone() } else { there.clone() };
            tokio::spawn(async move {
                store.put_policy(&change(Some("a"), None, Some("{}")), Some(&event(n))).await
            })
        })
        .collect();
    let mut versions = Vec::new();
    for task in tasks {
        versions.push(task.await.unwrap().unwrap());
    }
    versions.sort_unstable();
    assert_eq!(versions, (1..=8).collect::<Vec<_>>());
}

fn prevention() -> PreventionConfig {
    PreventionConfig {
        loop_enabled: true,
        loop_threshold: 3,
        loop_action: "terminate".into(),
        loop_max_steps: Some(50),
        budget_max_cost: NanoUsd::from_dollars(0.5),
        budget_soft_alert: NanoUsd::from_dollars(0.123_457),
        budget_max_wall_time_secs: Some(120),
        cb_enabled: false,
        cb_open_after_failures: 5,
        cb_cooldown_seconds: 30,
        cb_half_open_max_calls: 3,
    }
}

async fn prevention_configs_follow_the_policy(place: &TestDatabase) {
    let store = place.open().await;
    let put = async |agent: Option<&str>, prevention: Option<PreventionConfig>| {
        let change = PolicyChange { prevention, ..change(agent, None, Some("{}")) };
        store.put_policy(&change, None).await.unwrap();
        store.prevention_configs("default").await.unwrap()
    };
    let plain = PreventionConfig {
        loop_max_steps: None,
        budget_max_cost: None,
        budget_soft_alert: None,
        budget_max_wall_time_secs: None,
        ..prevention()
    };
    assert_eq!(put(None, Some(prevention())).await, [(None, prevention())]);
    assert_eq!(put(None, Some(plain.clone())).await, [(None, plain.clone())]);
    let both = [(None, plain.clone()), (Some("ada".into()), prevention())];
    assert_eq!(put(Some("ada"), Some(prevention())).await, both);
    assert_eq!(store.prevention_configs("other").await.unwrap(), []);
    // What a column cannot hold is kept as the most that it can.
    let vast = PreventionConfig {
        loop_threshold: u64::MAX,
        budget_max_cost: Some(NanoUsd(u64::MAX)),
        budget_soft_alert: Some(NanoUsd(1)),
        ..plain.clone()
    };
    let kept = PreventionConfig {
        loop_threshold: i32::MAX as u64,
        budget_max_cost: Some(NanoUsd(9_999_999_999_000)),
        budget_soft_alert: Some(NanoUsd(0)),
        ..plain.clone()
    };
    assert_eq!(put(Some("ada"), Some(vast)).await[1].1, kept);
    assert_eq!(put(Some("ada"), None).await, [(None, plain)]);
    // The seed's own statement about the table holds: one default, readable as it was described.
    let touched = place
        .tamper(
            "UPDATE prevention_configs SET loop_threshold = 4 WHERE agent_name IS NULL \
             AND project_id = 'default' AND id IS NOT NULL AND created_at IS NOT NULL \
             AND updated_at IS NOT NULL AND cb_enabled = FALSE",
        )
        .await;
    assert_eq!(touched, 1);
}

fn key(id: &str, role: Role) -> StoredKey {
    StoredKey {
        id: id.into(),
        project: "default".into(),
        role,
        agent: None,
        name: "laptop".into(),
        digest: (0..32).collect(),
        made: at(1),
        made_by: "ada".into(),
        used: None,
        revoked: None,
        revoked_by: None,
    }
}

fn login(id: &str, key: &str) -> StoredLogin {
    StoredLogin {
        id: id.into(),
        project: "default".into(),
        key: key.into(),
        csrf: "token".into(),
        made: at(0),
        used: at(0),
        expires: at(1000),
    }
}

async fn keys_live_and_are_revoked(place: &TestDatabase) {
    let store = place.open().await;
    assert_eq!(store.count_keys().await.unwrap(), KeyCount::default());
    let bound = StoredKey { agent: Some("ada".into()), made: at(2), ..key("k2", Role::Agent) };
    store.create_key(&key("k1", Role::Admin), Some(&event(1))).await.unwrap();
    store.create_key(&bound, Some(&event(2))).await.unwrap();
    let again = store.create_key(&key("k1", Role::Viewer), Some(&event(3))).await;
    assert!(matches!(again, Err(StoreError::Exists(_))));
    assert_eq!(store.keys("default").await.unwrap(), [key("k1", Role::Admin), bound.clone()]);
    assert_eq!(store.keys("other").await.unwrap(), []);
    assert_eq!(store.key("k2").await.unwrap(), Some(bound));
    assert_eq!(store.key("k3").await.unwrap(), None);
    assert_eq!(store.count_keys().await.unwrap(), KeyCount { ever: 2, live: 2 });

    let used = async || store.key("k1").await.unwrap().unwrap().used;
    store.touch_key("k1", at(5)).await.unwrap();
    assert_eq!(used().await, Some(at(5)));
    store.touch_key("k1", at(60_000)).await.unwrap();
    assert_eq!(used().await, Some(at(5)), "at most once a minute");
    store.touch_key("k1", at(60_005)).await.unwrap();
    assert_eq!(used().await, Some(at(60_005)));

    store.create_login(&login("l1", "k1"), None).await.unwrap();
    store.create_login(&login("l2", "k2"), None).await.unwrap();
    let revoke =
        async |project| store.revoke_key(project, "k1", "eve", at(9), Some(&event(4))).await;
    assert!(!revoke("other").await.unwrap());
    assert!(revoke("default").await.unwrap());
    assert!(!revoke("default").await.unwrap(), "once is enough");
    let dead = store.key("k1").await.unwrap().unwrap();
    assert_eq!((dead.revoked, dead.revoked_by.as_deref()), (Some(at(9)), Some("eve")));
    assert_eq!(store.count_keys().await.unwrap(), KeyCount { ever: 2, live: 1 });
    assert_eq!(store.login("l1", at(1)).await.unwrap(), None, "its logins end with it");
    assert!(store.login("l2", at(1)).await.unwrap().is_some());
    let entries = store.audit_after("default", 0, 10).await.unwrap();
    assert_eq!(entries.iter().map(|e| e.event.number).collect::<Vec<_>>(), [1, 2, 4]);
    for role in Role::ALL {
        assert_eq!(Role::named(role.name()), Some(role));
    }
    assert!(Role::Agent < Role::Viewer && Role::Operator < Role::Admin);
}

async fn logins_end(place: &TestDatabase) {
    let store = place.open().await;
    store.create_login(&login("l1", "k1"), Some(&event(1))).await.unwrap();
    assert_eq!(store.login("l1", at(999)).await.unwrap(), Some(login("l1", "k1")));
    assert_eq!(store.login("l1", at(1000)).await.unwrap(), None);
    assert_eq!(store.login("L1", at(0)).await.unwrap(), None);
    store.touch_login("l1", at(60_000)).await.unwrap();
    assert_eq!(store.login("l1", at(1)).await.unwrap().unwrap().used, at(60_000));
    assert!(store.end_login("l1", None).await.unwrap());
    assert!(!store.end_login("l1", None).await.unwrap());
    assert_eq!(store.login("l1", at(1)).await.unwrap(), None);
}

async fn settings_are_set(place: &TestDatabase) {
    let store = place.open().await;
    let one = Setting {
        project: "default".into(),
        name: "capture".into(),
        value: "\"all\"".into(),
        changed: at(1),
        who: "ada".into(),
    };
    assert_eq!(store.setting("default", "capture").await.unwrap(), None);
    store.put_setting(&one, Some(&event(1))).await.unwrap();
    let two =
        Setting { value: "\"none\"".into(), changed: at(2), who: "eve".into(), ..one.clone() };
    store.put_setting(&two, Some(&event(2))).await.unwrap();
    let other = Setting { project: "other".into(), ..one.clone() };
    store.put_setting(&other, None).await.unwrap();
    assert_eq!(store.setting("default", "capture").await.unwrap(), Some(two.clone()));
    assert_eq!(store.settings().await.unwrap(), [two, other]);
    assert_eq!(store.audit_after("default", 0, 10).await.unwrap().len(), 2);
}

async fn targets_come_and_go(place: &TestDatabase) {
    let store = place.open().await;
    store.create_target(&target(1), Some(&event(1))).await.unwrap();
    let exists = store.create_target(&target(1), Some(&event(2))).await;
    assert!(matches!(exists, Err(StoreError::Exists(_))));
    let theirs = AlertTarget { project: "other".into(), ..target(2) };
    store.create_target(&theirs, None).await.unwrap();
    let changed = AlertTarget {
        agent: Some("ada".into()),
        name: "night shift".into(),
        active: false,
        events: vec!["kill".into(), "trip".into()],
        changed: at(5),
        ..target(1)
    };
    assert!(store.update_target(&changed, None).await.unwrap());
    let foreign = AlertTarget { project: "other".into(), ..target(1) };
    assert!(!store.update_target(&foreign, None).await.unwrap());
    assert_eq!(store.targets("default").await.unwrap(), std::slice::from_ref(&changed));
    assert_eq!(store.all_targets().await.unwrap(), [changed, theirs]);
    assert!(!store.delete_target("other", 1, at(6), None).await.unwrap());
    assert!(store.delete_target("default", 1, at(6), None).await.unwrap());
    assert_eq!(store.target("default", 1).await.unwrap(), None);
}
