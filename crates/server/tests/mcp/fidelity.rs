//! Through the gateway and directly: the same bytes, in both directions.

use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;

use super::gate;
use crate::support::{Ask, Dice, Got, Reply, Seen, Step, rounds};

/// A JSON value of some depth, with needless spaces.
fn value(dice: &mut Dice, depth: usize) -> String {
    let space = |dice: &mut Dice| dice.pick(&["", "", " ", "  ", "\t"]);
    match dice.to(if depth == 0 { 4 } else { 6 }) {
        0 => dice.pick(&["null", "true", "false"]).to_owned(),
        1 => dice.pick(&["0", "-0", "1e3", "1.50", "12345678901234567890", "-7"]).to_owned(),
        2..=4 => {
            let text =
                ["", "a", "\\u00e9", "é", "\\n", "\\\"", "\\/", "日本", "x y", "\\ud83d\\ude00"];
            format!("\"{}{}\"", dice.pick(&text), dice.pick(&text))
        }
        5 => {
            let items: Vec<String> = (0..dice.to(3)).map(|_| value(dice, depth - 1)).collect();
            format!("[{}{}]", space(dice), items.join(&format!(",{}", space(dice))))
        }
        _ => {
            let items: Vec<String> = (0..dice.to(3))
                .map(|n| format!("\"k{n}\"{}:{}", space(dice), value(dice, depth - 1)))
                .collect();
            format!("{{{}{}}}", items.join(","), space(dice))
        }
    }
}

const METHODS: [&str; 9] = [
    "initialize",
    "ping",
    "tools/list",
    "tools/call",
    "resources/read",
    "prompts/get",
    "notifications/initialized",
    "notifications/progress",
    "completion/complete",
];

/// One message of a client, in the members' order that chance gives it.
fn message(dice: &mut Dice) -> String {
    let method = dice.pick(&METHODS);
    let params = match method {
        "tools/call" => {
            let name = dice.pick(&["read", "search", "l\\u0073", "fetch page"]);
            format!(r#"{{"name":"{name}","arguments":{}}}"#, value(dice, 3))
        }
        _ => value(dice, 3),
    };
    let mut members = vec![
        r#""jsonrpc": "2.0""#.to_owned(),
        format!(r#""method":"{method}""#),
        format!(r#""params" :{params}"#),
    ];
    if !method.starts_with("notifications") {
        members.push(format!(r#""id":{}"#, dice.pick(&["1", "\"x\"", "77", "\"\\u0061b\"", "-3"])));
    }
    if dice.one_in(5) {
        members.push(format!(r#""_meta":{}"#, value(dice, 2)));
    }
    let at = dice.to(members.len() - 1);
    members.swap(0, at);
    let gap = dice.pick(&["", " ", "\n"]);
    format!("{{{gap}{}{gap}}}", members.join(","))
}

fn response(dice: &mut Dice, asked: &Value) -> Vec<u8> {
    let id = &asked["id"];
    let body = match (asked["method"].as_str(), dice.to(4)) {
        (_, 0) => format!(r#""error":{{"code":-32000,"message":{}}}"#, value(dice, 0)),
        (Some("tools/call"), 1) => format!(
            r#""result":{{"content":[{{"type":"text","text":"x"}},{}],"isError":true}}"#,
            value(dice, 2)
        ),
        (Some("tools/list"), _) => {
            format!(r#""result":{{"tools":[{{"name":"read","inputSchema":{}}}]}}"#, value(dice, 3))
        }
        _ => format!(r#""result": {}"#, value(dice, 3)),
    };
    format!(r#"{{"jsonrpc":"2.0","id":{id},{body}}}"#).into_bytes()
}

fn reply(dice: &mut Dice, asked: &Value) -> Reply {
    let answer = response(dice, asked);
    if asked["id"].is_null() {
        return Reply::head(202, &[("Content-Length", "0")]);
    }
    match dice.to(5) {
        0 => Reply::of(dice.pick(&[400, 404, 500]), "application/json", &answer),
        1 | 2 => Reply::of(200, "application/json; charset=utf-8", &answer),
        _ => {
            let mut stream = Vec::new();
            for _ in 0..dice.to(3) {
                let method = dice.pick(&[
                    "notifications/progress",
                    "sampling/createMessage",
                    "elicitation/create",
                ]);
                let params = value(dice, 2);
                let note = format!(
                    r#"{{"jsonrpc":"2.0","id":"s","method":"{method}","params":{params}}}"#
                );
                stream.extend(
                    format!(
                        "{}data: {note}\n\n",
                        dice.pick(&["", ": ping\n\n", "event: message\nid: 7\n"])
                    )
                    .bytes(),
                );
            }
            stream.extend_from_slice(b"event: message\ndata: ");
            stream.extend(&answer);
            stream.extend_from_slice(dice.pick(&[b"\n\n".as_slice(), b"\r\n\r\n"]));
            Reply::events(&dice.cut(&stream, 40))
        }
    }
}

/// What a client gets to see, without what belongs to a connection.
fn shown(got: &Got) -> (u16, Vec<(String, String)>, String, bool) {
    let hop = ["date", "connection", "transfer-encoding", "x-deadstop-warning"];
    let mut headers: Vec<_> = got
        .headers
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
        .filter(|(name, _)| !hop.contains(&name.as_str()))
        .collect();
    headers.sort();
    (got.status, headers, got.text(), got.complete)
}

#[tokio::test]
async fn thousands_of_exchanges_are_the_same_in_bytes() {
    let seeds = Arc::new(Mutex::new(0u64));
    let theirs = Arc::clone(&seeds);
    let answer = move |seen: &Seen| {
        if seen.method != "POST" {
            return Reply::events(&[b"id: 1\ndata: {\"jsonrpc\":\"2.0\"}\n\n".to_vec()]);
        }
        reply(&mut Dice::new(*theirs.lock()), &seen.json())
    };
    let policy = json!({
        "strikes": { "enabled": false },
        "loop": { "enabled": false },
        "agent": { "breaker": { "enabled": false } },
    });
    let gate = gate(policy, answer).await;
    for seed in 0..rounds(400, 5000) as u64 {
        let mut dice = Dice::new(seed);
        *seeds.lock() = seed;
        let ask = match dice.one_in(20) {
            true => Ask::of(dice.pick(&["GET", "DELETE"]), "", None).with("last-event-id", "3"),
            false => Ask { body: message(&mut dice).into_bytes(), ..Ask::post("", &Value::Null) },
        };
        let ask = ask
            .with("Accept", "application/json, text/event-stream")
            .with("MCP-Protocol-Version", "2025-06-18")
            .with("Mcp-Session-Id", "m-1");
        let direct = Ask { path: "/files/mcp".into(), ..ask.clone() };
        let through = Ask { path: "/mcp/files".into(), ..ask };
        let direct = direct.send_to(gate.upstream.address).await;
        let there = gate.upstream.last();
        let through = through.send_to(gate.address).await;
        let here = gate.upstream.last();
        assert_eq!(shown(&through), shown(&direct), "seed {seed}");
        assert_eq!(String::from_utf8_lossy(&here.body), String::from_utf8_lossy(&there.body));
        let sorted = |seen: &Seen| {
            let mut headers = seen.headers.clone();
            headers.iter_mut().for_each(|(name, _)| name.make_ascii_lowercase());
            headers.sort();
            (seen.method.clone(), seen.target.clone(), headers)
        };
        assert_eq!(sorted(&here), sorted(&there), "seed {seed}");
    }
}

/// A chunk is not held back. Where a tool's result may get a note, an event passes once it is whole.
#[tokio::test]
async fn chunks_pass_as_they_come() {
    let begun = b"data: {\"jsonrpc\"".to_vec();
    let whole = super::event(&json!({ "jsonrpc": "2.0", "method": "notifications/progress" }));
    let call = super::call(1, "slow", json!({}));
    let read = json!({ "jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {} });
    for (asked, chunk) in [(read, begun), (call, whole)] {
        let gate = gate(json!({}), move |_| {
            Reply::stream().then(Step::Chunk(chunk.clone())).then(Step::Hang)
        })
        .await;
        let mut answering = super::post("files", &asked).open(gate.address).await.unwrap();
        answering.until("jsonrpc").await;
    }
}
