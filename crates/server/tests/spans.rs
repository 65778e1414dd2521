//! The trace that a call belongs to, on its way to an MCP server: our span is between the client's and the
//! server's own, and without telemetry everything passes as it came.

use std::time::Duration;

use deadstop_core::RawPolicy;
use deadstop_otlp::Format;
use deadstop_server::RawConfig;
use serde_json::{Value, json};

use crate::mcp::{self, call, post, said, servers};
use crate::packing::pack;
use crate::support::{Ask, Gate, Reply, Seen, Upstream};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

fn named(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

/// A gate that exports calls, with its collector.
async fn exporting(sampler: Option<&'static str>) -> (Gate, Upstream) {
    let collector = Upstream::start(|_| Reply::of(200, "application/x-protobuf", b"")).await;
    let endpoint = format!("http://{}", collector.address);
    let raw = json!({ "telemetry": { "otlp_endpoint": endpoint } });
    let raw: RawConfig = serde_json::from_value(raw).unwrap();
    let set = |name: &str| sampler.filter(|_| name == "OTEL_TRACES_SAMPLER").map(str::to_owned);
    let policies = RawPolicy::default().resolve().unwrap();
    let telemetry = raw.resolve(policies, set).unwrap().telemetry;
    let gate = Gate::with(json!({}), answer, |config| {
        servers(config, Duration::from_secs(60));
        config.telemetry = telemetry;
    });
    (gate.await, collector)
}

fn answer(seen: &Seen) -> Reply {
    match seen.json() {
        Value::Array(batch) => {
            let one = |asked: &Value| json!({ "jsonrpc": "2.0", "id": asked["id"], "result": {} });
            Reply::json(200, &batch.iter().map(one).collect())
        }
        _ => Reply::json(200, &said(seen, "there")),
    }
}

/// The ids of the spans that were exported: of the trace, of the span, and of the one around it.
async fn exported(gate: Gate, collector: &Upstream) -> Vec<(String, String)> {
    gate.stop().await;
    let traces = collector.all().into_iter().filter(|seen| seen.target == "/v1/traces");
    let calls = traces.flat_map(|seen| {
        let batch = deadstop_otlp::traces(&seen.body, Format::Protobuf).unwrap();
        batch.calls.into_iter().map(|call| call.id)
    });
    calls.map(|id| (id[..32].to_owned(), id[32..].to_owned())).collect()
}

/// The trace and the span of a `traceparent`.
fn ids(parent: &str) -> (String, String) {
    let parts: Vec<&str> = parent.split('-').collect();
    assert_eq!((parts.len(), parts[0], parts[3]), (4, "00", "01"), "{parent}");
    (parts[1].to_owned(), parts[2].to_owned())
}

fn reads(meta: Value) -> Value {
    let mut message = call(1, "read", json!({ "path": "a" }));
    if !meta.is_null() {
        message["params"]["_meta"] = meta;
    }
    message
}

/// What the server got of one request.
async fn sent(gate: &Gate, ask: Ask) -> Seen {
    let got = gate.ask(&ask.by("reader", "s1")).await;
    assert_eq!(got.status, 200, "{}", got.text());
    gate.upstream.last()
}

#[tokio::test]
async fn a_server_hears_of_our_span_in_the_header() {
    let (gate, collector) = exporting(None).await;
    let message = reads(Value::Null);
    let alone = sent(&gate, post("files", &message).with("tracestate", "x=1")).await;
    assert_eq!(alone.body, message.to_string().into_bytes(), "no body changes");
    assert_eq!(alone.header("tracestate"), None, "it is about no span that we know");
    let alone = ids(alone.header("traceparent").unwrap());
    assert_ne!(alone.0, TRACE);

    let ask = post("files", &message).with("traceparent", &named("01")).with("tracestate", "x=1");
    let inside = sent(&gate, ask).await;
    assert_eq!(inside.body, message.to_string().into_bytes());
    assert_eq!(inside.header("tracestate"), Some("x=1"));
    let inside = ids(inside.header("traceparent").unwrap());
    assert_eq!(inside.0, TRACE);
    assert_ne!(inside.1, PARENT);

    // Below a span that its caller does not record, none of ours is exported.
    let ask = post("files", &message).with("traceparent", &named("00"));
    assert_eq!(sent(&gate, ask).await.header("traceparent"), Some(&*named("00")));
    assert_eq!(exported(gate, &collector).await, [alone, inside]);
}

#[tokio::test]
async fn a_span_that_a_message_names_is_replaced_in_the_message() {
    let (gate, collector) = exporting(None).await;
    let other = format!("00-{}-{PARENT}-01", "7".repeat(32));
    let message = reads(json!({ "a": 1, "traceparent": named("01"), "tracestate": "y=2" }));
    let ask = post("files", &message).with("traceparent", &other).with("tracestate", "x=1");
    let seen = sent(&gate, ask).await;
    let parent = seen.json()["params"]["_meta"]["traceparent"].as_str().unwrap().to_owned();
    let expected = message.to_string().replace(&named("01"), &parent);
    assert_eq!(String::from_utf8(seen.body.clone()).unwrap(), expected, "nothing else changes");
    assert_eq!(seen.header("content-length"), Some(&*expected.len().to_string()));
    assert_eq!(seen.header("traceparent"), Some(&*parent));
    assert_eq!(seen.header("tracestate"), Some("y=2"), "what belongs to this trace");
    assert_eq!(ids(&parent).0, TRACE);

    // A later version of the format is longer than what we write.
    let later = format!("cc-{TRACE}-{PARENT}-01-more");
    let second = sent(&gate, post("files", &reads(json!({ "traceparent": later })))).await;
    let second = second.json()["params"]["_meta"]["traceparent"].as_str().unwrap().to_owned();

    let unrecorded = reads(json!({ "traceparent": named("00") }));
    let seen = sent(&gate, post("files", &unrecorded)).await;
    assert_eq!(seen.body, unrecorded.to_string().into_bytes());
    assert_eq!(exported(gate, &collector).await, [ids(&parent), ids(&second)]);
}

#[tokio::test]
async fn each_call_of_a_batch_has_its_own_span() {
    let (gate, collector) = exporting(None).await;
    let mut batch: Vec<Value> =
        (1..=2).map(|_| reads(json!({ "traceparent": named("01") }))).collect();
    batch[1]["id"] = json!(2);
    batch.insert(1, json!({ "jsonrpc": "2.0", "id": 3, "method": "ping" }));
    let ask = post("files", &json!(batch)).with("traceparent", &named("01"));
    let seen = sent(&gate, ask).await;
    assert_eq!(seen.header("traceparent"), Some(&*named("01")), "a header cannot name two");
    let parents: Vec<_> = [0, 2]
        .map(|at| seen.json()[at]["params"]["_meta"]["traceparent"].as_str().unwrap().to_owned())
        .iter()
        .map(|parent| ids(parent))
        .collect();
    assert_ne!(parents[0], parents[1]);
    assert_eq!(exported(gate, &collector).await, parents);
}

/// What is packed passes as it is: only the header tells of our span.
#[tokio::test]
async fn a_packed_body_stays_as_it_is() {
    let (gate, collector) = exporting(None).await;
    let message = reads(json!({ "traceparent": named("01") }));
    let packed = pack("gzip", &[message.to_string().into_bytes()]).concat();
    let ask = Ask { body: packed.clone(), ..post("files", &message) };
    let seen = sent(&gate, ask.with("content-encoding", "gzip")).await;
    assert_eq!(seen.body, packed);
    let inside = ids(seen.header("traceparent").unwrap());
    assert_eq!(exported(gate, &collector).await, [inside]);
}

/// Where our span is not exported, a server that looked for it would find nothing.
#[tokio::test]
async fn what_is_not_exported_is_not_named() {
    let off = mcp::gate(json!({}), answer).await;
    let (unsampled, _collector) = exporting(Some("always_off")).await;
    for gate in [off, unsampled] {
        let message = reads(json!({ "traceparent": named("01") }));
        let bare = sent(&gate, post("files", &message)).await;
        assert_eq!(bare.header("traceparent"), None);
        let ask =
            post("files", &message).with("traceparent", &named("01")).with("tracestate", "x=1");
        let seen = sent(&gate, ask).await;
        assert_eq!(seen.body, message.to_string().into_bytes());
        assert_eq!(seen.header("traceparent"), Some(&*named("01")));
        assert_eq!(seen.header("tracestate"), Some("x=1"));
        gate.stop().await;
    }
}

/// Only tool calls have spans.
#[tokio::test]
async fn other_messages_pass_as_they_are() {
    let (gate, _collector) = exporting(None).await;
    for method in ["tools/list", "ping", "resources/read"] {
        let params = json!({ "_meta": { "traceparent": named("01") } });
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let seen = sent(&gate, post("files", &message).with("traceparent", &named("01"))).await;
        assert_eq!(seen.body, message.to_string().into_bytes(), "{method}");
        assert_eq!(seen.header("traceparent"), Some(&*named("01")), "{method}");
    }
    gate.stop().await;
}
