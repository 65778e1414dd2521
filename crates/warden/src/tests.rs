//! What the warden keeps in memory, and what it lets go.

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
