//! The audit's end cannot be cut off without notice.

use std::sync::Arc;

use deadstop_server::Anchor;
use serde_json::{Value, json};

use crate::support::{Ask, Gate, PATIENCE, Reply, Speech};

async fn verify(gate: &Gate, since: &str) -> Value {
    gate.ask(&Ask::get(&format!("/api/audit/verify{since}"))).await.json()
}

/// Issue 19, number 13: the head lay beside the chain. With the last entry removed and the head moved
/// back, the chain verified as whole.
#[tokio::test]
async fn hole_13_an_audit_that_was_cut_does_not_verify() {
    let outside = tempfile::tempdir().unwrap();
    let anchor = Arc::new(Anchor::open(outside.path(), "a database").unwrap());
    let anchored = Arc::clone(&anchor);
    let answer = |_: &_| Reply::json(200, &json!({}));
    let gate = Gate::with(json!({}), answer, |config| config.anchor = Some(anchored)).await;
    gate.ask(&Speech::Chat.says(false, "hello").by("a", "s")).await;
    for order in ["pause", "resume", "kill"] {
        gate.order(order, json!({ "agent": "a", "reason": "enough" })).await;
    }
    let whole = verify(&gate, "").await;
    assert_eq!((&whole["whole"], &whole["entries"]), (&json!(true), &json!(3)), "{whole}");
    let head = format!("3:{}", whole["head"].as_str().unwrap());
    assert_eq!(verify(&gate, &format!("?since={head}")).await["whole"], json!(true));
    let bad = gate.ask(&Ask::get("/api/audit/verify?since=nonsense")).await;
    assert_eq!(bad.status, 422, "{}", bad.text());
    // It is noted outside the database within a second or two.
    let until = std::time::Instant::now() + PATIENCE;
    let noted = || {
        let files = std::fs::read_dir(outside.path()).unwrap().map(|file| file.unwrap().path());
        let texts = files.map(|file| std::fs::read_to_string(file).unwrap_or_default());
        texts.into_iter().any(|text| text.contains(whole["head"].as_str().unwrap()))
    };
    while !noted() {
        assert!(std::time::Instant::now() < until, "the head is not noted");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }

    let file = gate.folder.path().join("deadstop.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
    let mut database = sqlx::ConnectOptions::connect(&options).await.unwrap();
    for cut in [
        "DELETE FROM audit WHERE seq = 3",
        "UPDATE audit_heads SET seq = 2, hash = (SELECT hash FROM audit WHERE seq = 2)",
    ] {
        sqlx::query(cut).execute(&mut database).await.unwrap();
    }
    // Alone, the chain looks whole: what lies outside the database is what shows it.
    let alone = gate.store().await.verify_audit("default").await.unwrap();
    assert!(matches!(alone, deadstop_store::Verified::Whole { entries: 2, .. }), "{alone:?}");
    let cut = verify(&gate, "").await;
    assert_eq!((&cut["whole"], &cut["broken_at"]), (&json!(false), &json!(3)), "{cut}");
    assert!(cut["why"].as_str().unwrap().contains("outside the database"), "{cut}");
    let since = verify(&gate, &format!("?since={head}")).await;
    assert!(since["why"].as_str().unwrap().contains("noted elsewhere"), "{since}");
    // A server that starts on what is left finds it, too, and does not note the shorter chain.
    let again = Anchor::open(outside.path(), "a database").unwrap();
    let gate = gate.restart_with(json!({}), |config| config.anchor = Some(Arc::new(again))).await;
    assert_eq!(verify(&gate, "").await["whole"], json!(false));
}
