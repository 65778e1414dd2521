//! What is forbidden in one session is not done in many.

use serde_json::{Value, json};

use crate::support::{Ask, Gate, Reply};

/// Proposes one deletion in each of forty sessions; gives how many were allowed.
async fn deletions(policy: Value) -> usize {
    let gate = Gate::start(policy, |_| Reply::json(200, &json!({}))).await;
    let mut allowed = 0;
    for number in 0..40 {
        let arguments = json!({ "name": format!("fact_sales_{number}") });
        let call = json!({ "id": "1", "tool": "delete_asset", "arguments": arguments });
        let path = format!("/api/sessions/janitor/s{number}/proposal");
        let got = gate.ask(&Ask::post(&path, &json!({ "calls": [call] }))).await;
        allowed += usize::from(got.json()["calls"][0]["allowed"] == json!(true));
    }
    allowed
}

/// Issue 19, number 12: under `balanced`, deletions in session after session passed without end. The
/// limit is generous, because the sessions of an agent may be those of many people.
#[tokio::test]
async fn hole_12_deletions_spread_over_sessions_are_counted_at_the_agent() {
    assert_eq!(deletions(json!({ "preset": "balanced" })).await, 29);
    // What each session may do is not refused to the agent, and what is typed holds.
    assert_eq!(deletions(json!({ "destructive": { "max_deletes": 50 } })).await, 40);
    assert_eq!(deletions(json!({ "destructive": { "enabled": false } })).await, 40);
    assert_eq!(deletions(json!({ "destructive": { "action": "warn" } })).await, 40);
    let blind = json!({ "agent": { "destructive": { "enabled": false } } });
    assert_eq!(deletions(blind).await, 40, "so it was before");
    let agent = json!({ "agent": { "destructive": { "max_deletes": 3 } } });
    assert_eq!(deletions(agent).await, 2);
}
