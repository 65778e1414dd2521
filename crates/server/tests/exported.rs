//! Telemetry out: what a collector gets, also of a server that stops.

use std::net::SocketAddr;

use deadstop_core::RawPolicy;
use deadstop_otlp::{Format, What};
use deadstop_server::{Config, RawConfig};
use serde_json::json;

use crate::support::{Gate, Reply, Said, Seen, Speech, Step, Turn, Upstream, until};

fn export_to(config: &mut Config, collector: SocketAddr) {
    export(config, collector, false);
}

fn export(config: &mut Config, collector: SocketAddr, texts: bool) {
    let telemetry = json!({ "otlp_endpoint": format!("http://{collector}"), "texts": texts });
    let raw: RawConfig = serde_json::from_value(json!({ "telemetry": telemetry })).unwrap();
    let policies = RawPolicy::default().resolve().unwrap();
    config.telemetry = raw.resolve(policies, |_| None).unwrap().telemetry;
}

fn arguments() -> serde_json::Value {
    json!({ "path": "a.txt" })
}

/// A model that wants one file read, and then says so.
fn model(seen: &Seen) -> Reply {
    let asked = String::from_utf8_lossy(&seen.body).contains("call_1");
    let said = match asked {
        true => Said::text("it is read"),
        false => Said::call("call_1", "read_file", arguments()),
    };
    Speech::Chat.reply(false, &said)
}

/// Two model calls with a tool call between them.
async fn turn(gate: &Gate) {
    let words = || Turn::User("read it".into());
    let (id, name) = ("call_1".to_owned(), "read_file".to_owned());
    let call = Turn::Call { id: id.clone(), name: name.clone(), arguments: arguments() };
    let result = Turn::Result { id, name, text: "what stands in the file".into() };
    for turns in [vec![words()], vec![words(), call, result]] {
        let ask = Speech::Chat.ask(false, &turns).by("reader", "s1");
        assert_eq!(gate.ask(&ask).await.status, 200);
    }
}

/// Spans wait for others for a second. A server that stops sends them at once.
#[tokio::test]
async fn what_waits_is_sent_when_the_server_stops() {
    let collector = Upstream::start(|_| Reply::of(200, "application/x-protobuf", b"")).await;
    let to = collector.address;
    let gate = Gate::with(json!({}), model, |config| export_to(config, to)).await;
    turn(&gate).await;
    gate.stop().await;

    let traces: Vec<Seen> =
        collector.all().into_iter().filter(|seen| seen.target == "/v1/traces").collect();
    let read = traces.iter().map(|seen| deadstop_otlp::traces(&seen.body, Format::Protobuf));
    let (mut calls, mut others) = (Vec::new(), 0);
    for batch in read {
        let batch = batch.unwrap();
        calls.extend(batch.calls.into_iter().map(|call| call.what));
        others += batch.others;
    }
    assert_eq!((calls.len(), others), (3, 1), "two model calls, a tool call, and their run");
    let tool =
        What::Tool { name: "read_file".into(), server: None, call_id: Some("call_1".into()) };
    assert!(calls.contains(&tool), "{calls:?}");
    let bytes: Vec<u8> = traces.into_iter().flat_map(|seen| seen.body).collect();
    let text = String::from_utf8_lossy(&bytes);
    for name in ["invoke_agent reader", "gen_ai.response.model", "gen_ai.tool.call.id"] {
        assert!(text.contains(name), "{name}");
    }
    for secret in ["what stands in the file", "read it", "it is read", "a.txt"] {
        assert!(!text.contains(secret), "{secret} was exported");
    }
    let last = collector.all().into_iter().rfind(|seen| seen.target == "/v1/metrics");
    let text = String::from_utf8_lossy(&last.unwrap().body).into_owned();
    assert!(text.contains("deadstop.calls"), "the last metrics");
}

/// A server that stops does not wait for a collector that hangs, nor for its own further attempts.
#[tokio::test]
async fn a_collector_that_hangs_does_not_keep_a_server_from_stopping() {
    let collector = Upstream::start(|_| Reply(vec![Step::Hang])).await;
    let to = collector.address;
    let gate = Gate::with(json!({}), model, |config| export_to(config, to)).await;
    turn(&gate).await;
    gate.stop().await;
    let asked = |target: &str| collector.all().iter().filter(|seen| seen.target == target).count();
    assert_eq!((asked("/v1/traces"), asked("/v1/metrics")), (1, 1));
}

/// Texts go along where that was asked for, without the secrets in them.
#[tokio::test]
async fn texts_are_exported_where_that_is_enabled() {
    let collector = Upstream::start(|_| Reply::of(200, "application/x-protobuf", b"")).await;
    let to = collector.address;
    let gate = Gate::with(json!({}), model, |config| export(config, to, true)).await;
    turn(&gate).await;
    let secret = format!("sk-proj-{}", "a1B2c3D4e5F6g7H8".repeat(3));
    let ask = Speech::Chat.says(false, &format!("call_1: my key is {secret}")).by("reader", "s2");
    assert_eq!(gate.ask(&ask).await.status, 200);
    gate.stop().await;
    let traces = collector.all().into_iter().filter(|seen| seen.target == "/v1/traces");
    let bytes: Vec<u8> = traces.flat_map(|seen| seen.body).collect();
    let text = String::from_utf8_lossy(&bytes);
    for said in ["what stands in the file", "read it", "it is read", "a.txt", "my key is"] {
        assert!(text.contains(said), "{said}");
    }
    assert!(!text.contains(&secret), "a secret was exported");
}

/// A collector that hangs, refuses, fails or is gone: each call is answered, before and after the first request
/// to it is under way.
#[tokio::test]
async fn calls_do_not_notice_what_becomes_of_a_collector() {
    type Answer = fn() -> Reply;
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let moods: [(&str, Option<Answer>); 4] = [
        ("hangs", Some(|| Reply(vec![Step::Hang]))),
        ("refuses", Some(|| Reply::of(400, "text/plain", b"no"))),
        ("fails", Some(|| Reply::of(503, "text/plain", b"later"))),
        ("is gone", None),
    ];
    for (mood, answer) in moods {
        let collector =
            Upstream::start(move |_| answer.map_or(Reply(vec![]), |answer| answer())).await;
        let to = answer.map_or(gone, |_| collector.address);
        let gate = Gate::with(json!({}), model, |config| export_to(config, to)).await;
        turn(&gate).await;
        // Spans wait for others for a second.
        until("a request to it", async || answer.is_none() || collector.requests() > 0).await;
        for n in 0..20 {
            let ask =
                Speech::Chat.says(false, &format!("call_1 {n}")).by("reader", &format!("t{n}"));
            assert_eq!(gate.ask(&ask).await.status, 200, "while it {mood}");
        }
        gate.stop().await;
    }
}
