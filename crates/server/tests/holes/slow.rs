//! Clients that are too slow do not hold a connection, and models that are slow are not cut.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::dialect::chat_chunk;
use crate::support::{Gate, Reply, Seen, Speech, Step, soon, until};

/// 64 MiB of answer, or five events with pauses that are longer than a client may be silent.
fn answer(seen: &Seen) -> Reply {
    let mut reply = Reply::stream();
    if seen.header("x-slow") == Some("model") {
        for _ in 0..5 {
            let chunk = chat_chunk(&json!({ "content": "slowly " }), None);
            reply = reply.then(Step::Sleep(Duration::from_millis(500))).then(Step::Chunk(chunk));
        }
        let end = chat_chunk(&json!({}), Some("stop"));
        let done = b"data: [DONE]\n\n".to_vec();
        return reply.then(Step::Chunk(end)).then(Step::Chunk(done)).then(Step::End);
    }
    let comment = [b": ".as_slice(), &[b'x'; 65_530], b"\n\n"].concat();
    for _ in 0..1024 {
        reply = reply.then(Step::Chunk(comment.clone()));
    }
    reply.then(Step::End)
}

/// Number 14 of the attack table: both held a connection forever.
#[tokio::test]
async fn hole_14_slow_clients_do_not_hold_a_connection() {
    let gate = Gate::with(json!({}), answer, |config| {
        config.body_timeout = Duration::from_secs(1);
        config.client_timeout = Duration::from_secs(1);
    })
    .await;
    // A body that trickles in, at the gateway and at the API.
    for path in ["/openai/v1/chat/completions", "/api/kill"] {
        let begun = Instant::now();
        let mut wire = TcpStream::connect(gate.address).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
             content-length: 5000\r\n\r\n{{",
            gate.address
        );
        wire.write_all(head.as_bytes()).await.unwrap();
        let (mut from, mut to) = wire.into_split();
        let trickle = tokio::spawn(async move {
            while to.write_all(b" ").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        let mut said = Vec::new();
        let _ = soon("an end", from.read_to_end(&mut said)).await;
        trickle.abort();
        let said = String::from_utf8_lossy(&said);
        assert!(said.starts_with("HTTP/1.1 4"), "{path}: {said}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{path}");
    }

    // An answer that is not read: the call ends, and so does the upstream's work.
    let ask = Speech::Chat.says(true, "Tell me everything").by("reader", "s");
    let wire = ask.send(gate.address).await;
    until("a call in flight", || async { gate.scope("s").await["in_flight"] == 1 }).await;
    until("its end", || async { gate.scope("s").await["in_flight"] == 0 }).await;
    drop(wire);

    // A model that takes its time is not cut.
    let ask = Speech::Chat.says(true, "Think").by("thinker", "t").with("x-slow", "model");
    let got = gate.ask(&ask).await;
    assert!(got.complete && got.text().matches("slowly").count() == 5, "{}", got.text());
}
