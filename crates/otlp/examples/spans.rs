//! A load generator for `/v1/traces`: runs of agents as the GenAI conventions write them.
//!
//! ```text
//! spans ADDRESS protobuf|json CONNECTIONS SECONDS [HEADER: VALUE]…
//! ```
//!
//! With `-` for the address nothing is sent: the requests are read here, CONNECTIONS rounds of all of them
//! (`valgrind --tool=callgrind` counts the instructions).
//!
//! A request has 512 spans, as the batch processors of OpenTelemetry's SDKs send them: 8 runs of 64. Half of
//! the spans are model and tool calls, the others are what lies around them (HTTP, SQL, the agent itself).
//! Each run is a session of its own, and no request is sent twice. Prints a line of JSON.

use std::io::{Error, Read, Result, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use deadstop_otlp::Format;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;
use serde_json::{Map, Value, json};

const RUNS: usize = 8;
const TURNS: usize = 16;
/// Spans of a turn.
const TURN: usize = 4;
const SPANS: u64 = (RUNS * TURNS * TURN) as u64;
/// Different requests; each is used again with other ids.
const TEMPLATES: u64 = 16;
const AGENTS: u64 = 20;
/// Stands in a template where the request's number is written, as text and as bytes.
const TEXT: &[u8; 16] = b"d5d5d5d5d5d5d5d5";
const BYTES: [u8; 8] = [0xd5; 8];

/// Numbers that look as if thrown.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn words(&mut self, words: usize) -> String {
        let mut text = String::new();
        for _ in 0..words {
            let dice = self.next();
            text.extend(
                (0..3 + dice % 6).map(|i| char::from(b'a' + ((dice >> (8 + i * 5)) % 26) as u8)),
            );
            text.push(' ');
        }
        text
    }
}

fn attributes(pairs: &Value) -> Value {
    let empty = Map::new();
    let pairs = pairs.as_object().unwrap_or(&empty).iter().map(|(key, value)| {
        let value = match value {
            Value::Number(number) => json!({ "intValue": number.to_string() }),
            other => json!({ "stringValue": other }),
        };
        json!({ "key": key, "value": value })
    });
    Value::Array(pairs.collect())
}

fn span(run: usize, at: usize, parent: usize, name: &str, own: &Value) -> Value {
    let id = |n: usize| format!("{:016x}", run * 1000 + n + 1);
    let began = 1_790_000_000_000_000_000 + (run * 1000 + at) as u64 * 1_000_000;
    json!({
        "traceId": format!("d5d5d5d5d5d5d5d5{run:016x}"), "spanId": id(at), "name": name,
        "parentSpanId": if at == parent { String::new() } else { id(parent) },
        "kind": 3, "startTimeUnixNano": began.to_string(),
        "endTimeUnixNano": (began + 40_000_000).to_string(), "attributes": attributes(own),
        "status": {},
    })
}

/// A turn: a model call over HTTP, and a tool call that asks a database.
fn turn(dice: &mut Dice, run: usize, number: usize, agent: &str) -> [Value; TURN] {
    let session = format!("conv-d5d5d5d5d5d5d5d5-{run}");
    let first = number * TURN;
    let chat = json!({
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o", "gen_ai.response.model": "gpt-4o-2024-08-06",
        "gen_ai.response.id": format!("chatcmpl-{:016x}", dice.next()),
        "gen_ai.request.max_tokens": 1024, "gen_ai.usage.input_tokens": 900 + dice.next() % 4000,
        "gen_ai.usage.output_tokens": 20 + dice.next() % 400,
        "gen_ai.usage.cache_read.input_tokens": 512, "gen_ai.agent.name": agent,
        "gen_ai.conversation.id": session, "server.address": "api.openai.com",
        "gen_ai.output.messages": json!([{
            "role": "assistant", "finish_reason": "tool_call",
            "parts": [{ "type": "text", "content": dice.words(25) }],
        }]).to_string(),
    });
    let http = json!({
        "http.request.method": "POST", "http.response.status_code": 200,
        "url.full": "https://api.openai.com/v1/chat/completions", "server.address": "api.openai.com",
        "network.protocol.version": "1.1", "user_agent.original": "OpenAI/Python 2.4.0",
    });
    let tool = json!({
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "query",
        "gen_ai.tool.type": "function", "gen_ai.agent.name": agent, "gen_ai.conversation.id": session,
        "gen_ai.tool.call.id": format!("call_{:024x}", dice.next()),
        "gen_ai.tool.call.arguments":
            json!({ "sql": format!("select {}from orders", dice.words(6)) }).to_string(),
        "gen_ai.tool.call.result": dice.words(30),
    });
    let sql = json!({
        "db.system.name": "postgresql", "db.namespace": "shop", "db.operation.name": "SELECT",
        "db.query.text": format!("select {}from orders", dice.words(6)),
        "server.address": "10.0.0.7", "server.port": 5432,
    });
    [
        span(run, first, first, "chat gpt-4o", &chat),
        span(run, first + 1, first, "POST", &http),
        span(run, first + 2, first, "execute_tool query", &tool),
        span(run, first + 3, first + 2, "SELECT orders", &sql),
    ]
}

/// A request, and where numbers are written into it.
#[derive(Clone)]
struct Template {
    body: Vec<u8>,
    texts: Vec<usize>,
    bytes: Vec<usize>,
}

impl Template {
    fn new(number: u64, json: bool) -> Result<Template> {
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(number + 1) | 1);
        let mut spans = Vec::new();
        for run in 0..RUNS {
            let agent = format!("agent-{}", (number * RUNS as u64 + run as u64) % AGENTS);
            for number in 0..TURNS {
                spans.extend(turn(&mut dice, run, number, &agent));
            }
        }
        let about = attributes(&json!({
            "service.name": "shop", "service.version": "4.2.0", "host.name": "worker-7",
            "telemetry.sdk.name": "opentelemetry", "telemetry.sdk.language": "python",
        }));
        let request = json!({ "resourceSpans": [{
            "resource": { "attributes": about },
            "scopeSpans": [{ "scope": { "name": "opentelemetry.instrumentation.openai" }, "spans": spans }],
        }] });
        let body = match json {
            true => request.to_string().into_bytes(),
            false => serde_json::from_value::<ExportTraceServiceRequest>(request)
                .map_err(Error::other)?
                .encode_to_vec(),
        };
        let (texts, bytes) = (places(&body, TEXT), places(&body, &BYTES));
        Ok(Template { body, texts, bytes })
    }

    /// Writes the request's number into its ids.
    fn number(&mut self, number: u64) {
        let text = format!("{number:016x}");
        for at in &self.texts {
            self.body[*at..at + 16].copy_from_slice(text.as_bytes());
        }
        for at in &self.bytes {
            self.body[*at..at + 8].copy_from_slice(&number.to_be_bytes());
        }
    }
}

fn places(body: &[u8], wanted: &[u8]) -> Vec<usize> {
    let all = body.windows(wanted.len()).enumerate();
    all.filter(|(_, part)| *part == wanted).map(|(at, _)| at).collect()
}

/// One connection: requests until the time is over. Gives requests, failures and bytes.
fn send(
    address: &str,
    head: &str,
    mut templates: Vec<Template>,
    numbers: &AtomicU64,
    until: Instant,
) -> Result<(u64, u64, u64)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let (mut requests, mut failures, mut bytes) = (0, 0, 0);
    let mut answer = vec![0; 64 << 10];
    let many = templates.len() as u64;
    while Instant::now() < until {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let template = &mut templates[(number % many) as usize];
        template.number(number);
        stream.write_all(
            format!("{head}content-length: {}\r\n\r\n", template.body.len()).as_bytes(),
        )?;
        stream.write_all(&template.body)?;
        let mut have = 0;
        let (end, length) = loop {
            let read = stream.read(&mut answer[have..])?;
            if read == 0 {
                return Err(Error::other("the server closed the connection"));
            }
            have += read;
            let text = String::from_utf8_lossy(&answer[..have]).to_lowercase();
            let Some(end) = text.find("\r\n\r\n") else { continue };
            let length =
                text.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
            break (
                end + 4,
                length.and_then(|length| length.parse::<usize>().ok()).unwrap_or_default(),
            );
        };
        while have < end + length {
            have += stream.read(&mut answer[have..])?;
        }
        requests += 1;
        bytes += template.body.len() as u64;
        // An answer with a body tells of spans that were not taken.
        let empty = length == 0 || &answer[end..end + length] == b"{}";
        if !answer.starts_with(b"HTTP/1.1 200") || !empty {
            failures += 1;
            if failures == 1 {
                eprintln!("{}", String::from_utf8_lossy(&answer[..have]));
            }
        }
    }
    Ok((requests, failures, bytes))
}

/// Reads each request so often, without a server.
fn read(templates: &[Template], json: bool, rounds: u64) -> Result<()> {
    let format = if json { Format::Json } else { Format::Protobuf };
    let (began, mut calls) = (Instant::now(), 0);
    for _ in 0..rounds {
        for template in templates {
            calls +=
                deadstop_otlp::traces(&template.body, format).map_err(Error::other)?.calls.len();
        }
    }
    let spans = rounds * TEMPLATES * SPANS;
    let each = began.elapsed().as_secs_f64() * 1e6 / spans as f64;
    println!("{{\"spans\":{spans},\"calls\":{calls},\"us_each\":{each:.3}}}");
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, format, connections, seconds, headers @ ..] = &arguments[..] else {
        return Err(Error::other(
            "spans ADDRESS protobuf|json CONNECTIONS SECONDS [HEADER: VALUE]…",
        ));
    };
    let json = format == "json";
    let connections: u64 = connections.parse().map_err(Error::other)?;
    let seconds: u64 = seconds.parse().map_err(Error::other)?;
    let kind = if json { "json" } else { "x-protobuf" };
    let mut head = format!(
        "POST /v1/traces HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/{kind}\r\n"
    );
    for header in headers {
        head = head + header + "\r\n";
    }
    let templates: Result<Vec<Template>> = (0..TEMPLATES).map(|n| Template::new(n, json)).collect();
    let templates = templates?;
    if address == "-" {
        return read(&templates, json, connections);
    }
    // From run to run other numbers, so that a server that was told before takes these as new.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let numbers = AtomicU64::new(now.map_err(Error::other)?.as_micros() as u64);
    let began = Instant::now();
    let until = began + Duration::from_secs(seconds);
    let (mut requests, mut failures, mut bytes) = (0, 0, 0);
    std::thread::scope(|scope| -> Result<()> {
        let one = || send(address, &head, templates.clone(), &numbers, until);
        let threads: Vec<_> = (0..connections).map(|_| scope.spawn(one)).collect();
        for thread in threads {
            let (r, f, b) = thread.join().map_err(|_| Error::other("a thread panicked"))??;
            (requests, failures, bytes) = (requests + r, failures + f, bytes + b);
        }
        Ok(())
    })?;
    let took = began.elapsed().as_secs_f64();
    println!(
        "{{\"spans\":{},\"calls\":{},\"seconds\":{took:.3},\"requests\":{requests},\"failures\":{failures},\"bytes\":{bytes}}}",
        requests * SPANS,
        requests * SPANS / 2
    );
    Ok(())
}
