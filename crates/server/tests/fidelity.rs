//! Bytes in, bytes out: what passes is what would have passed without a gateway, and what is read
//! from it does not depend on where it was cut.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::packing::{ENCODINGS, pack, unpack};
use crate::support::{ALL, Ask, Dice, Gate, Got, Reply, Said, Seen, Speech, Step, heavy, rounds};

/// Nothing that could stop anything.
fn watching() -> Value {
    let off = json!({ "enabled": false });
    json!({
        "loop": off, "text_loop": off, "destructive": off, "strikes": off, "breaker": off,
        "similarity": off,
    })
}

/// Headers that belong to a connection, or that each server says for itself.
const HOP: [&str; 8] =
    ["connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "date", "x-hop"];

type Headers = Vec<(String, String)>;

fn end_to_end(headers: &[(String, String)], but: &[&str]) -> Headers {
    let named = |name: &str, list: &[&str]| list.iter().any(|n| n.eq_ignore_ascii_case(name));
    let kept = headers.iter().filter(|(name, _)| {
        !named(name, &HOP) && !named(name, but) && !name.to_lowercase().starts_with("x-deadstop-")
    });
    kept.cloned().collect()
}

/// Requests and replies by the number that a header gives them.
#[derive(Clone, Default)]
struct Script(Arc<Mutex<HashMap<String, Reply>>>);

impl Script {
    fn answer(&self) -> impl Fn(&Seen) -> Reply + Send + Sync + 'static {
        let script = self.clone();
        move |seen| {
            let asked = seen.json()["stream_options"]["include_usage"] == true;
            let number = seen.header("x-case").unwrap_or_default();
            let replies = script.0.lock();
            let hidden = asked.then(|| replies.get(&format!("{number} with usage"))).flatten();
            hidden.or_else(|| replies.get(number)).unwrap().clone()
        }
    }

    fn put(&self, number: &str, reply: Reply) {
        self.0.lock().insert(number.to_owned(), reply);
    }
}

/// One thing to compare.
struct Case {
    ask: Ask,
    /// The provider's name, in front of the path.
    provider: &'static str,
    reply: Reply,
    /// What comes if the usage chunk is asked for as well.
    with_usage: Option<Reply>,
}

fn header_name(dice: &mut Dice) -> String {
    let names = [
        "X-Request-ID",
        "x-stainless-lang",
        "OpenAI-Beta",
        "anthropic-version",
        "X-CamelCase",
        "accept",
        "User-Agent",
        "Cookie",
        "x-empty",
        "ETAG",
        "x-Goog-Something",
        "Authorization",
        "Set-Cookie",
        "vary",
        "x-ratelimit-remaining-requests",
        "server",
        "Cache-Control",
    ];
    if dice.one_in(3) { format!("X-{:X}", dice.next()) } else { dice.pick(&names).to_owned() }
}

fn header_value(dice: &mut Dice) -> String {
    let length = dice.to(40);
    let text: String = match dice.to(3) {
        // Bytes beyond ASCII are allowed, if strange.
        0 => (0..length).map(|_| char::from(0xa1 + dice.to(0x5e) as u8)).collect(),
        _ => (0..length).map(|_| char::from(b'!' + dice.to(93) as u8)).collect(),
    };
    text
}

/// Some headers; values of the same name stand together, as their order is all that counts.
fn headers(dice: &mut Dice) -> Headers {
    let mut headers: Headers = Vec::new();
    for _ in 0..dice.to(8) {
        let name = header_name(dice);
        if headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(&name)) {
            continue;
        }
        for _ in 0..=usize::from(dice.one_in(5)) {
            headers.push((name.clone(), header_value(dice)));
        }
    }
    headers
}

fn case(number: usize) -> Case {
    let mut dice = Dice::new(number as u64);
    let dice = &mut dice;
    let speech = dice.pick(&ALL);
    let stream = dice.one_in(2);
    let spoken = dice.one_in(2);
    let (provider, path) = if spoken {
        let (_, rest) = speech.path(stream).split_at(1);
        let (provider, path) = rest.split_once('/').unwrap();
        let known = ["openai", "anthropic", "gemini"];
        (*known.iter().find(|known| **known == provider).unwrap(), format!("/{path}"))
    } else {
        let path = dice.pick(&[
            "/v1/models",
            "/v1/files/a%20b%2Fc",
            "/",
            "/v1//double",
            "/v1/embeddings",
            "/x?",
            "/v1/models?limit=2&after=%C3%A9",
            "/v1/messages/count_tokens",
            "/~a/(b)/c;d=e?f=g?h",
        ]);
        (dice.pick(&["openai", "anthropic", "gemini", "own"]), path.to_owned())
    };
    let method = match spoken {
        true => "POST",
        false => dice.pick(&["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"]),
    };
    let wants_usage = dice.one_in(3);
    let mut body = match spoken {
        true => {
            let mut request = speech.request(stream, &[]);
            request["x"] = json!(header_value(dice));
            if wants_usage && speech == Speech::Chat && stream {
                request["stream_options"] = json!({ "include_usage": true });
            }
            request.to_string().into_bytes()
        }
        false if ["GET", "HEAD", "OPTIONS"].contains(&method) => Vec::new(),
        false => {
            let length = dice.to(20_000);
            dice.bytes(length)
        }
    };
    let mut ask = Ask::get(&path);
    ask.method = method.to_owned();
    ask.headers = headers(dice);
    if spoken && !stream && dice.one_in(4) {
        let encoding = dice.pick(&ENCODINGS[1..]);
        body = pack(encoding, &[body]).concat();
        ask = ask.with("Content-Encoding", encoding);
    }
    if dice.one_in(2) {
        ask = ask.with("Accept-Encoding", "gzip, deflate, br, zstd");
    }
    if dice.one_in(4) {
        ask = ask.with("Connection", "x-hop").with("X-Hop", "1");
    }
    ask = ask.by("a", "s");
    dice.shuffle(&mut ask.headers);
    ask.chunked = (!body.is_empty() && dice.one_in(3)).then(|| 1 + dice.to(3000));
    ask.body = body;
    let statuses = [200, 200, 200, 201, 202, 204, 206, 301, 304, 400, 401, 404, 422, 429, 500, 529];
    let status = if spoken { 200 } else { dice.pick(&statuses) };
    let hides = spoken && stream && speech == Speech::Chat && !wants_usage;
    let events = speech.events(&said(dice));
    let seed = dice.next();
    let reply = |pieces: &[Vec<u8>]| reply(&mut Dice::new(seed), status, spoken, stream, pieces);
    if hides {
        let usual: Vec<_> = events.iter().filter(|event| !is_usage_chunk(event)).cloned().collect();
        return Case { ask, provider, reply: reply(&usual), with_usage: Some(reply(&events)) };
    }
    let pieces = match (spoken, stream) {
        (true, true) => events,
        (true, false) => vec![speech.whole(&said(dice)).to_string().into_bytes()],
        (false, _) => {
            let length = dice.to(40_000);
            vec![dice.bytes(length)]
        }
    };
    Case { ask, provider, reply: reply(&pieces), with_usage: None }
}

fn is_usage_chunk(event: &[u8]) -> bool {
    String::from_utf8_lossy(event).contains("\"choices\":[]")
}

fn said(dice: &mut Dice) -> Said {
    let words =
        ["plain", "with \"quotes\" and \\", "ünï©ødé ✂ 👩‍💻", "two\nlines\r\n", "data: [DONE]"];
    let mut said = Said::text(&format!("{} {}", dice.pick(&words), dice.next()));
    for number in 0..dice.to(2) {
        let arguments = json!({ "path": dice.pick(&words), "n": dice.next() });
        said.calls.push((format!("call_{number}"), "read_file".into(), arguments));
    }
    said
}

/// A reply with these pieces as its body, packed, framed and cut at random.
fn reply(dice: &mut Dice, status: u16, spoken: bool, stream: bool, pieces: &[Vec<u8>]) -> Reply {
    let mut head = headers(dice);
    let kind = match (spoken, stream) {
        (true, true) => "text/event-stream; charset=utf-8",
        (true, false) => "application/json",
        _ => "application/octet-stream",
    };
    head.push(("Content-Type".into(), kind.into()));
    // A stream of which a part may be hidden is not packed by those who heed Accept-Encoding.
    let encoding = if stream { "identity" } else { dice.pick(&ENCODINGS) };
    if encoding != "identity" {
        head.push(("content-Encoding".into(), encoding.into()));
    }
    let body = pack(encoding, pieces).concat();
    let bare = status == 204 || status == 304;
    let framing = if stream { 1 } else { dice.to(2) };
    match framing {
        _ if bare => {}
        0 => head.push(("Content-length".into(), body.len().to_string())),
        1 => head.push(("Transfer-Encoding".into(), "chunked".into())),
        _ => head.push(("Connection".into(), "close".into())),
    }
    dice.shuffle(&mut head);
    let borrowed: Vec<_> = head.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let mut reply = Reply::head(status, &borrowed);
    if bare {
        return reply;
    }
    let longest = 1 + dice.to(4000);
    let pieces = dice.cut(&body, longest);
    match framing {
        0 => reply.0.extend(pieces.into_iter().map(Step::Raw)),
        1 => {
            reply.0.extend(pieces.into_iter().map(Step::Chunk));
            reply = reply.then(Step::End);
        }
        _ => {
            reply.0.extend(pieces.into_iter().map(Step::Raw));
            reply = reply.then(Step::Close);
        }
    }
    reply
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_the_gateway_is_as_without_it() {
    let _turn = heavy().await;
    let script = Script::default();
    let gate = Gate::start(watching(), script.answer()).await;
    let cases = rounds(300, 5000);
    for number in 0..cases {
        let Case { mut ask, provider, reply, with_usage } = case(number);
        if ask.method == "HEAD" {
            // No body comes after the head, so none is sent.
            script.put(&number.to_string(), Reply(reply.0[..1].to_vec()));
        } else {
            script.put(&number.to_string(), reply);
        }
        if let Some(reply) = with_usage.clone() {
            script.put(&format!("{number} with usage"), reply);
        }
        ask.headers.insert(0, ("x-case".into(), number.to_string()));
        let below = if provider == "own" { "/below/here" } else { "" };
        let direct = Ask { path: format!("{below}{}", ask.path), ..ask.clone() };
        let expected = direct.send_to(gate.upstream.address).await;
        let wanted = gate.upstream.last();
        let through = Ask { path: format!("/{provider}{}", ask.path), ..ask.clone() };
        let got = gate.ask(&through).await;
        let seen = gate.upstream.last();
        same_request(number, &ask, &wanted, &seen, with_usage.is_some());
        same_answer(number, &expected, &got);
    }
    println!("{cases} random exchanges are the same with and without the gateway");
}

fn same_request(number: usize, ask: &Ask, wanted: &Seen, seen: &Seen, usage: bool) {
    assert_eq!((&seen.method, &seen.target), (&wanted.method, &wanted.target), "case {number}");
    let mut but = vec!["host"];
    if ask.chunked.is_some() || usage || ask.body.is_empty() {
        // A length is said where none was, a longer one, or none for no body.
        but.push("content-length");
    }
    if usage {
        but.push("accept-encoding");
    }
    let (left, right) = (end_to_end(&seen.headers, &but), end_to_end(&wanted.headers, &but));
    assert_eq!(left, right, "case {number}: headers at the upstream");
    if !usage {
        assert!(seen.body == wanted.body, "case {number}: the body at the upstream");
        return;
    }
    let mut with = seen.json();
    assert_eq!(with["stream_options"]["include_usage"], true, "case {number}");
    with.as_object_mut().unwrap().remove("stream_options");
    assert_eq!(with, wanted.json(), "case {number}");
}

fn same_answer(number: usize, expected: &Got, got: &Got) {
    assert_eq!(got.start, expected.start, "case {number}: {}", got.text());
    let mut but = Vec::new();
    if expected.header("content-length").is_none() {
        // Said where it was not, as it has become known.
        but.push("content-length");
    }
    let (left, right) = (end_to_end(&got.headers, &but), end_to_end(&expected.headers, &but));
    assert_eq!(left, right, "case {number}: headers at the client");
    assert_eq!(got.complete, expected.complete, "case {number}");
    assert!(
        got.body == expected.body,
        "case {number}: the body at the client\n{}\n{}",
        got.text(),
        expected.text()
    );
}

/// An answer as it was recorded: words beyond ASCII, two calls, figures.
fn recorded() -> Said {
    let mut said = Said::text("Ich räume auf — ✂ \"alles\".");
    said.calls.push(("call_a".into(), "read_file".into(), json!({ "path": "ä\"b\\c" })));
    said.calls.push(("call_b".into(), "delete_asset".into(), json!({ "path": "x", "why": "old" })));
    Said { input: 321, output: 123, ..said }
}

/// All ways to cut bytes in two, and into single bytes.
fn cuts(bytes: &[u8], step: usize) -> impl Iterator<Item = Vec<Vec<u8>>> {
    let twice = (1..bytes.len()).step_by(step).map(|at| {
        let (left, right) = bytes.split_at(at);
        vec![left.to_vec(), right.to_vec()]
    });
    twice.chain([bytes.chunks(1).map(<[u8]>::to_vec).collect()])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_cut_at_every_byte_cost_the_same() {
    let _turn = heavy().await;
    let script = Script::default();
    let gate = Gate::start(watching(), script.answer()).await;
    for speech in ALL {
        let events = speech.events(&recorded());
        let bytes = events.concat();
        let usual: Vec<_> = events.iter().filter(|event| !is_usage_chunk(event)).cloned().collect();
        let mut made = 0;
        for pieces in cuts(&bytes, rounds(5, 1)) {
            script.put("1", Reply::events(&pieces));
            let session = format!("{speech:?}");
            let ask = speech.says(true, "Clean up").by("a", &session).with("x-case", "1");
            let got = gate.ask(&ask).await;
            let at = pieces[0].len();
            assert!(got.status == 200 && got.complete, "{speech:?} cut at {at}: {}", got.text());
            assert!(got.body == usual.concat(), "{speech:?} cut at {at}: {}", got.text());
            made += 1;
        }
        let scope = gate.scope(&format!("{speech:?}")).await;
        println!("{speech:?}: {made} cuts of {} bytes, all with the same usage", bytes.len());
        assert_eq!(scope["model_calls"], made, "{scope}");
        assert_eq!(scope["input_tokens"], 321 * made, "{speech:?}: {scope}");
        assert_eq!(scope["output_tokens"], 123 * made, "{speech:?}: {scope}");
        assert_eq!(scope["steps"], 2 * made, "{speech:?}: {scope}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_cut_at_every_byte_are_judged_the_same() {
    let _turn = heavy().await;
    let script = Script::default();
    let mut policy = watching();
    policy["access"] = json!({ "deny": ["delete_*"] });
    let gate = Gate::start(policy, script.answer()).await;
    for speech in ALL {
        let bytes = speech.events(&recorded()).concat();
        // With the usage chunk hidden and without: a client that asks for it sees all bytes.
        for wants_usage in [false, true] {
            let mut request = speech.request(true, &[]);
            if wants_usage {
                request["stream_options"] = json!({ "include_usage": true });
            }
            let ask = Ask::post(speech.path(true), &request).by("a", "s").with("x-case", "1");
            for pieces in cuts(&bytes, rounds(5, 1)) {
                script.put("1", Reply::events(&pieces));
                let got = gate.ask(&ask).await;
                judged(speech, &format!("{speech:?} cut at {}", pieces[0].len()), &got.body);
                assert!(got.status == 200 && got.complete);
            }
        }
    }
}

/// A stream may end without the empty line that ends its last event; some clients read it all the
/// same, and so must the guards.
#[tokio::test]
async fn a_call_in_an_event_that_was_not_ended_is_judged() {
    let script = Script::default();
    let mut policy = watching();
    policy["access"] = json!({ "deny": ["delete_*"] });
    let gate = Gate::start(policy, script.answer()).await;
    for (speech, wants_usage) in ALL.into_iter().flat_map(|s| [(s, false), (s, true)]) {
        let events = speech.events(&recorded());
        let asks = |event: &Vec<u8>| {
            let parsed: Vec<Value> = dispatched(&String::from_utf8_lossy(event))
                .iter()
                .filter_map(|data| serde_json::from_str(data).ok())
                .collect();
            parsed
        };
        let complete = |upto: usize| {
            let read: Vec<Value> = events[..upto].iter().flat_map(asks).collect();
            calls(speech, &read).iter().any(|name| name == "delete_asset")
        };
        let upto = (1..=events.len()).find(|upto| complete(*upto)).unwrap();
        let whole = events[..upto].concat();
        for missing in [1, 2] {
            let ended = if speech == Speech::Gemini { 2 * missing } else { missing };
            script.put("1", Reply::events(&[whole[..whole.len() - ended].to_vec()]));
            let mut request = speech.request(true, &[]);
            if wants_usage {
                request["stream_options"] = json!({ "include_usage": true });
            }
            let ask = Ask::post(speech.path(true), &request).by("a", "s").with("x-case", "1");
            let got = gate.ask(&ask).await;
            judged(speech, &format!("{speech:?} without {missing} line ends"), &got.body);
        }
    }
}

/// A client got the first call, an error, and not the second call.
fn judged(speech: Speech, what: &str, body: &[u8]) {
    let text = String::from_utf8_lossy(body);
    let events = dispatched(&text);
    let last: Value = serde_json::from_str(events.last().unwrap()).unwrap_or_default();
    assert_eq!(last["error"]["deadstop"]["reason"], "tool_denied", "{what}: {text}");
    // What a client can read, and so act on.
    let read: Vec<Value> =
        events[..events.len() - 1].iter().filter_map(|e| serde_json::from_str(e).ok()).collect();
    let calls = calls(speech, &read);
    assert!(calls.iter().any(|name| name == "read_file"), "{what}: {calls:?} in {text}");
    assert!(!calls.iter().any(|name| name == "delete_asset"), "{what}: {calls:?} in {text}");
}

/// The data of the events that a client dispatches, by the rules of the standard.
fn dispatched(text: &str) -> Vec<String> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut events = Vec::new();
    let mut data: Vec<&str> = Vec::new();
    // What follows the last line end is no line yet.
    let lines = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
    for line in lines.split('\n') {
        if line.is_empty() && !data.is_empty() {
            events.push(data.join("\n"));
            data.clear();
        } else if let Some(value) = line.strip_prefix("data:") {
            data.push(value.strip_prefix(' ').unwrap_or(value));
        }
    }
    events
}

/// The tools whose calls are complete in these events.
fn calls(speech: Speech, events: &[Value]) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut open: Vec<(u64, String, String)> = Vec::new();
    let mut complete = Vec::new();
    for event in events {
        match speech {
            Speech::Chat => {
                let call = &event["choices"][0]["delta"]["tool_calls"][0];
                let Some(index) = call["index"].as_u64() else { continue };
                if call["function"]["name"].is_string() {
                    open.push((index, text(&call["function"]["name"]), String::new()));
                }
                let found = open.iter_mut().find(|(at, _, _)| *at == index).unwrap();
                found.2 += &text(&call["function"]["arguments"]);
                if serde_json::from_str::<Value>(&found.2).is_ok() {
                    complete.push(found.1.clone());
                }
            }
            Speech::Responses => {
                let index = event["output_index"].as_u64().unwrap_or_default();
                match event["type"].as_str().unwrap_or_default() {
                    "response.output_item.added" => {
                        open.push((index, text(&event["item"]["name"]), String::new()));
                    }
                    "response.function_call_arguments.done" => {
                        let found = open.iter().find(|(at, _, _)| *at == index).unwrap();
                        complete.push(found.1.clone());
                    }
                    "response.output_item.done" => complete.push(text(&event["item"]["name"])),
                    _ => {}
                }
            }
            Speech::Anthropic => {
                let index = event["index"].as_u64().unwrap_or_default();
                match event["type"].as_str().unwrap_or_default() {
                    "content_block_start" => {
                        open.push((index, text(&event["content_block"]["name"]), String::new()));
                    }
                    "content_block_stop" => {
                        let found = open.iter().find(|(at, _, _)| *at == index).unwrap();
                        complete.push(found.1.clone());
                    }
                    _ => {}
                }
            }
            Speech::Gemini => {
                let parts = event["candidates"][0]["content"]["parts"].as_array().cloned();
                let calls = parts.unwrap_or_default();
                let named = |part: &Value| part["functionCall"]["name"].as_str().map(str::to_owned);
                complete.extend(calls.iter().filter_map(named));
            }
        }
    }
    complete
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packed_answers_are_read_and_pass_as_they_are() {
    let _turn = heavy().await;
    let script = Script::default();
    let gate = Gate::start(watching(), script.answer()).await;
    for (speech, encoding) in ALL.into_iter().flat_map(|s| ENCODINGS.map(|e| (s, e))) {
        for stream in [true, false] {
            let pieces = match stream {
                true => speech.events(&recorded()),
                false => vec![speech.whole(&recorded()).to_string().into_bytes()],
            };
            let kind = if stream { "text/event-stream" } else { "application/json" };
            let pieces = pack(encoding, &pieces);
            let mut reply = Reply::head(
                200,
                &[
                    ("Content-Type", kind),
                    ("Content-Encoding", encoding),
                    ("Transfer-Encoding", "chunked"),
                ],
            );
            let pieces = pieces.iter().filter(|piece| !piece.is_empty());
            reply.0.extend(pieces.clone().map(|piece| Step::Chunk(piece.clone())));
            script.put("1", reply.then(Step::End));
            let session = format!("{speech:?} {encoding} {stream}");
            let mut request = speech.request(stream, &[]);
            request["stream_options"] = json!({ "include_usage": true });
            let ask = Ask::post(speech.path(stream), &request).by("a", &session);
            let got = gate.ask(&ask.with("x-case", "1")).await;
            assert!(got.status == 200 && got.complete, "{session}: {}", got.text());
            assert!(got.body == pieces.clone().cloned().collect::<Vec<_>>().concat(), "{session}");
            let scope = gate.scope(&session).await;
            let counted = (&scope["input_tokens"], &scope["output_tokens"], &scope["steps"]);
            assert_eq!(counted, (&json!(321), &json!(123), &json!(2)), "{session}");

            // An upstream that packs although the gateway asked it not to.
            let ask = speech.says(stream, "Clean up").by("a", "t").with("Accept-Encoding", "gzip");
            let got = gate.ask(&ask.with("x-case", "1")).await;
            // Nothing can be taken out of what is packed: then it passes whole, usage chunk and all.
            let expected: Vec<Vec<u8>> = pieces
                .filter(|piece| encoding != "identity" || !is_usage_chunk(piece))
                .cloned()
                .collect();
            assert!(got.complete && got.body == expected.concat(), "{session}: {}", got.text());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_call_in_a_packed_stream_never_arrives() {
    let _turn = heavy().await;
    let script = Script::default();
    let mut policy = watching();
    policy["access"] = json!({ "deny": ["delete_*"] });
    let gate = Gate::start(policy, script.answer()).await;
    for (speech, encoding) in ALL.into_iter().flat_map(|s| ENCODINGS.map(|e| (s, e))) {
        let bytes = pack(encoding, &speech.events(&recorded())).concat();
        let mut request = speech.request(true, &[]);
        request["stream_options"] = json!({ "include_usage": true });
        let ask = Ask::post(speech.path(true), &request).by("a", "s").with("x-case", "1");
        for pieces in cuts(&bytes, rounds(23, 1)) {
            let mut reply = Reply::head(
                200,
                &[
                    ("Content-Type", "text/event-stream"),
                    ("Content-Encoding", encoding),
                    ("Transfer-Encoding", "chunked"),
                ],
            );
            reply.0.extend(pieces.iter().map(|piece| Step::Chunk(piece.clone())));
            script.put("1", reply.then(Step::End));
            let got = gate.ask(&ask).await;
            let clear = unpack(encoding, &got.body);
            let text = String::from_utf8_lossy(&clear);
            let read: Vec<Value> =
                dispatched(&text).iter().filter_map(|e| serde_json::from_str(e).ok()).collect();
            let calls = calls(speech, &read);
            let at = pieces[0].len();
            // It breaks off unless an error can be said in it: a clean end would pass for an answer.
            let told = text.contains("Do not retry.");
            assert_eq!(got.complete, told, "{speech:?} {encoding} at {at}");
            assert!(told || encoding != "identity", "{speech:?} {encoding} at {at}");
            assert!(!calls.contains(&"delete_asset".to_owned()), "{speech:?} {encoding} at {at}");
        }
    }
}
