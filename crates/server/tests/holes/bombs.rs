//! Small bodies that unpack to large ones: refused, in little memory.

use std::io::Write;

use serde_json::{Value, json};

use crate::mcp;
use crate::support::{Ask, Gate, Got, Reply, Speech, Step};

/// What 815 kB of gzip unpack to.
const LARGE: usize = 840 << 20;

/// Spaces, packed: the parts of a bomb that need no memory of our own.
fn bomb() -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let spaces = vec![b' '; 1 << 20];
    for _ in 0..LARGE >> 20 {
        packed.write_all(&spaces).unwrap();
    }
    packed.finish().unwrap()
}

fn packed(kind: &str, body: &[u8]) -> Reply {
    let length = body.len().to_string();
    let headers =
        [("Content-Type", kind), ("Content-Encoding", "gzip"), ("Content-Length", &length)];
    Reply::head(200, &headers).then(Step::Raw(body.to_vec()))
}

/// A figure of this process's memory, in MiB.
fn memory(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<usize>().ok());
    kib.unwrap_or_default() >> 10
}

/// Sends a request, and tells how much memory it took at most.
async fn measured(gate: &Gate, ask: &Ask) -> (Got, usize) {
    // Forgets the peak so far.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let before = memory("VmRSS");
    let got = gate.ask(ask).await;
    let more = memory("VmHWM").saturating_sub(before);
    println!("{} {}: {more} MiB", ask.path, got.status);
    // Other tests of this program may run meanwhile; without the limit it is 900 MiB and more.
    assert!(more < 512, "{more} MiB");
    (got, more)
}

async fn gate(kind: &'static str, bomb: Vec<u8>) -> Gate {
    let answer = move |_: &_| packed(kind, &bomb);
    let change = |config: &mut _| mcp::servers(config, std::time::Duration::from_secs(60));
    Gate::with(json!({}), answer, change).await
}

#[tokio::test]
async fn hole_04_decompression_bombs_are_refused() {
    let bomb = bomb();
    println!("{} kB unpack to {} MiB", bomb.len() >> 10, LARGE >> 20);
    let mut most = 0;
    for kind in ["application/json", "text/event-stream"] {
        let gate = gate(kind, bomb.clone()).await;
        let stream = kind != "application/json";
        for speech in [Speech::Chat, Speech::Anthropic] {
            let ask = speech.says(stream, "hello").by("a", "s");
            let (got, more) = measured(&gate, &ask).await;
            most = most.max(more);
            // A stream has begun already: it breaks off. A document becomes the provider's error.
            match stream {
                true => assert!(!got.complete, "{}", got.text()),
                false => {
                    assert_eq!(got.status, 502, "{}", got.text());
                    assert!(got.text().contains("unpacks to more than"), "{}", got.text());
                }
            }
        }
        let call = mcp::call(1, "read", json!({}));
        let (got, more) = measured(&gate, &mcp::post("files", &call).by("a", "s")).await;
        most = most.max(more);
        match stream {
            true => assert!(!got.complete, "{}", got.text()),
            false => assert_eq!(mcp::error(&got)["data"]["reason"], "answer_too_large"),
        }
    }
    // A request is refused before it is sent on.
    let gate = Gate::start(json!({}), |_| Reply::json(200, &json!({}))).await;
    let mut ask = Ask::post("/openai/v1/chat/completions", &Value::Null);
    ask.body = bomb;
    let (got, more) = measured(&gate, &ask.with("content-encoding", "gzip")).await;
    assert_eq!(got.status, 413, "{}", got.text());
    assert_eq!(gate.upstream.requests(), 0);
    println!("a bomb took {} MiB at most", most.max(more));
}
