//! What the warden keeps in memory, and what it lets go.

use std::sync::atomic::Ordering;

use deadstop_core::{ScopeKind, ScopeState};

use super::lookup::MOST_SCOPES;
use super::*;

async fn warden() -> Arc<Warden> {
    let policies = deadstop_core::RawPolicy::default().resolve().unwrap();
    Warden::new(policies, None, None, Arc::default()).await.unwrap()
}

/// The dead were let go with the idle once: while the store was away they were alive again.
#[tokio::test]
async fn the_idle_are_let_go_but_the_dead_are_not() {
    let warden = warden().await;
    let project = warden.project(DEFAULT_PROJECT).await.unwrap();
    for agent in ["idle", "dead", "busy", "held"] {
        let scope = warden.agent(&project, agent).await.unwrap();
        if agent != "busy" {
            scope.touch(Time(1));
        }
        if agent == "dead" {
            scope.state.lock().kill("ada", "enough", now());
        }
    }
    let held = warden.live_agent(DEFAULT_PROJECT, "held");
    warden.sweep(&mut warden.scopes.lock());
    assert!(held.is_some() && warden.live_agent(DEFAULT_PROJECT, "held").is_some());
    assert!(warden.live_agent(DEFAULT_PROJECT, "busy").is_some());
    assert!(warden.live_agent(DEFAULT_PROJECT, "idle").is_none());
    let dead = warden.live_agent(DEFAULT_PROJECT, "dead").unwrap();
    assert!(dead.state.lock().killed().is_some());
}

/// Telemetry of many short runs brings hundreds of sessions a second, and none of them comes back. Where the
/// database has them they need not stay for an hour. Without a database the memory is all there is.
#[tokio::test]
async fn sessions_that_are_too_many_are_let_go_sooner() {
    for stored in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("d.db")).await.unwrap();
        let policies = deadstop_core::RawPolicy::default().resolve().unwrap();
        let store = stored.then_some(store);
        let warden = Warden::new(policies, store, None, Arc::default()).await.unwrap();
        let fill = |few_minutes_ago: usize, count: usize| {
            for n in 0..count {
                let key = format!("p/a/{few_minutes_ago}-{n}");
                let place = ScopeId {
                    key: key.clone(),
                    project: "p".into(),
                    kind: ScopeKind::Session,
                    agent: "a".into(),
                    name: key.clone(),
                };
                let state = ScopeState::new(ScopeKind::Session, now());
                let scope = Scope::new(place, n as i64, state, Tally::default());
                scope.touch(Time(now().0 - few_minutes_ago as u64 * 60_000));
                warden.scopes.lock().insert(key, Arc::new(scope));
            }
        };
        fill(20, 10);
        fill(2, MOST_SCOPES);
        fill(0, 10);
        warden.sweep(&mut warden.scopes.lock());
        let left = warden.scopes.lock().len();
        assert_eq!(left, if stored { 10 } else { MOST_SCOPES + 20 }, "stored: {stored}");
        warden.swept.store(0, Ordering::Relaxed);
        fill(20, 10);
        warden.sweep(&mut warden.scopes.lock());
        let kept = warden.scopes.lock().len();
        assert_eq!(kept, if stored { 20 } else { MOST_SCOPES + 20 }, "there is room");
    }
}
