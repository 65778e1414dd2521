//! Spoilt answers: whatever an official client makes of one must be among what is judged.

use serde_json::{Value, json};

use super::*;

/// The calls that are read in a stream or a whole answer, as `name arguments`.
pub(super) fn calls(dialect: Dialect, form: Form, answer: &str) -> Vec<String> {
    let mut reader = Reader::new(dialect, form, false);
    let mut pieces = Vec::new();
    reader.push(answer.as_bytes(), &mut pieces);
    reader.finish(&mut pieces);
    let call = |piece: Piece| match piece {
        Piece::ToolCall { name, arguments, .. } => Some(format!("{name} {arguments}")),
        _ => None,
    };
    pieces.into_iter().filter_map(call).collect()
}

/// A stream of these data, with the names that Anthropic gives its events.
pub(super) fn stream(events: &[Value]) -> String {
    let event = |data: &Value| match data["type"].as_str() {
        Some(kind) => format!("event: {kind}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    };
    events.iter().map(event).collect()
}

fn chat(parts: &[Value]) -> Vec<String> {
    let chunk =
        |part: &Value| json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [part] } }] });
    let events: Vec<Value> = parts.iter().map(chunk).collect();
    calls(Dialect::OpenAiChat, Form::Events, &stream(&events))
}

fn part(index: &Value, name: &str, arguments: &str) -> Value {
    json!({ "index": index, "function": { "name": name, "arguments": arguments } })
}

#[test]
fn a_field_of_an_odd_type_does_not_hide_a_call_beside_it() {
    let call = json!({ "index": 0, "function": { "name": "rm", "arguments": "{}" } });
    for odd in [json!(7), json!("x"), json!(true), json!([1]), json!({ "a": 1 }), json!(null)] {
        let delta = json!({ "tool_calls": [odd, call], "function_call": odd, "content": odd });
        let choice = json!({ "index": 0, "delta": delta, "message": odd, "text": odd });
        let chunk = json!({ "choices": [odd, choice], "usage": odd, "model": odd });
        let found = calls(Dialect::OpenAiChat, Form::Events, &stream(&[chunk]));
        assert!(found.contains(&"rm {}".to_owned()), "chat {odd}: {found:?}");

        let block =
            json!({ "type": "tool_use", "id": "c", "name": "rm", "input": {}, "text": odd });
        let start = json!({
            "type": "content_block_start", "index": 0, "content_block": block,
            "message": odd, "delta": odd, "usage": odd,
        });
        let found = calls(Dialect::Anthropic, Form::Events, &stream(&[start]));
        assert_eq!(found, ["rm {}"], "anthropic {odd}");

        let item =
            json!({ "type": "function_call", "name": "rm", "arguments": "{}", "content": odd });
        let output = json!({ "output": [odd, item], "usage": odd });
        let found = calls(Dialect::OpenAiResponses, Form::Json, &output.to_string());
        assert!(found.contains(&"rm {}".to_owned()), "responses {odd}: {found:?}");

        let parts =
            json!([odd, { "functionCall": { "name": "rm", "args": {} }, "executableCode": odd }]);
        let candidate = json!({ "content": { "parts": parts } });
        let answer =
            json!({ "candidates": [odd, candidate], "usageMetadata": odd, "promptFeedback": odd });
        let found = calls(Dialect::Gemini, Form::Json, &answer.to_string());
        assert!(found.contains(&"rm {}".to_owned()), "gemini {odd}: {found:?}");
    }
}

/// A call that clients take for complete as soon as a part of another one comes.
#[test]
fn a_name_that_is_complete_before_it_grows_is_judged() {
    let parts = [part(&json!(0), "ls", ""), part(&json!(1), "rm", ""), part(&json!(0), "", "{}")];
    // Each gets its arguments later, and is told with them.
    let late = [&parts[..], &[part(&json!(1), "", "{\"a\":1}")]].concat();
    let found = chat(&late);
    assert!(found.contains(&r#"rm {"a":1}"#.to_owned()), "{found:?}");
    assert!(!found.contains(&"rm {}".to_owned()), "{found:?}");
    let mut other = part(&json!(1), "_dry", "{}");
    other["id"] = json!("c2");
    assert!(chat(&[&parts[..], &[other]].concat()).contains(&"rm {}".to_owned()));
    // Behind a finish reason, any further part will do.
    let chunk = |delta: Value, finish: &str| json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] });
    let of = |part: Value| chunk(json!({ "tool_calls": [part] }), "");
    let events = [
        chunk(json!({}), "stop"),
        of(part(&json!(0), "rm", "")),
        of(part(&json!(0), "", "")),
        of(part(&json!(0), "_dry", "{}")),
    ];
    let found = calls(Dialect::OpenAiChat, Form::Events, &stream(&events));
    assert!(found.contains(&"rm {}".to_owned()), "{found:?}");
}

/// Clients that go by the standard leave an event out that lacks its empty line.
#[test]
fn the_last_event_may_count_or_not() {
    let of = |function: Value| json!({ "choices": [{ "index": 0, "delta": { "function_call": function } }] });
    let events = [
        of(json!({ "name": "rm", "arguments": "" })),
        of(json!({ "arguments": "{\"a\":" })),
        of(json!({ "arguments": "1}" })),
        of(json!({ "name": "_x", "arguments": "" })),
        of(json!({ "arguments": "{}" })),
    ];
    let whole = stream(&events);
    let cut = whole.trim_end();
    let found = calls(Dialect::OpenAiChat, Form::Events, cut);
    assert!(found.contains(&r#"rm_x {"a":1}"#.to_owned()), "{found:?}");
    // What both readings see is told once.
    let call = json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [part(&json!(0), "rm", "{}")] } }] });
    let found =
        calls(Dialect::OpenAiChat, Form::Events, &format!("{}data: [DONE]", stream(&[call])));
    assert_eq!(found, ["rm {}"]);
}

/// Some clients take a byte order mark for a part of the first line, and lose that event.
#[test]
fn a_mark_may_hide_the_first_event() {
    let chunk =
        |part: Value| json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [part] } }] });
    let events = [chunk(part(&json!(0), "safe_", "x")), chunk(part(&json!(0), "rm", "{\"a\":1}"))];
    let marked = format!("\u{feff}{}", stream(&events));
    let found = calls(Dialect::OpenAiChat, Form::Events, &marked);
    assert!(found.contains(&r#"rm {"a":1}"#.to_owned()), "{found:?}");
}

/// OpenAI's clients find a call by its place alone.
#[test]
fn calls_are_also_read_as_the_official_clients_join_them() {
    // A second id starts another call for many servers, and not for these clients.
    let mut second = part(&json!(0), "", "sv\"}");
    second["id"] = json!("other");
    let mut first = part(&json!(0), "Bash", "{\"command\":\"rm -rf /");
    first["id"] = json!("one");
    let found = chat(&[first, second]);
    assert!(found.contains(&r#"Bash {"command":"rm -rf /sv"}"#.to_owned()), "{found:?}");
    // From the end, and `true` as one.
    let bash = part(&json!(0), "Bash", "{\"command\":");
    let end = part(&json!(-1), "", "\"ls\"}");
    let found = chat(&[bash, end]);
    assert!(found.contains(&r#"Bash {"command":"ls"}"#.to_owned()), "{found:?}");
    let parts =
        [part(&json!(0), "a", "{}"), part(&json!(1), "b", "{\"x\":"), part(&json!(true), "", "1}")];
    let found = chat(&parts);
    assert!(found.contains(&r#"b {"x":1}"#.to_owned()), "{found:?}");
    // What a client takes for complete, because another call began.
    let parts =
        [part(&json!(0), "del", ""), part(&json!(1), "x", "{}"), part(&json!(0), "ete", "{}")];
    let found = chat(&parts);
    assert!(found.contains(&"del {}".to_owned()), "{found:?}");
    // Parallel calls that come in turns are two calls, and no more.
    let parts = [
        part(&json!(0), "a", "{\"x\":"),
        part(&json!(1), "b", "{\"y\":"),
        part(&json!(0), "", "1}"),
        part(&json!(1), "", "2}"),
    ];
    assert_eq!(chat(&parts), [r#"a {"x":1}"#, r#"b {"y":2}"#]);
}

/// Anthropic's clients leave out events without a name.
#[test]
fn events_without_a_name_are_read_both_ways() {
    let block = json!({ "type": "tool_use", "id": "c", "name": "Bash", "input": {} });
    let start = json!({ "type": "content_block_start", "index": 0, "content_block": block });
    let delta = |text: &str| {
        let delta = json!({ "type": "input_json_delta", "partial_json": text });
        json!({ "type": "content_block_delta", "index": 0, "delta": delta })
    };
    let stop = json!({ "type": "content_block_stop", "index": 0 });
    let unnamed = format!("data: {}\n\n", delta("echo "));
    for unnamed in
        [unnamed.clone(), format!("event: ping\n{unnamed}"), format!("event:\n{unnamed}")]
    {
        let (before, after) = (stream(&[start.clone(), delta("{\"command\":\"")]), delta("rm\"}"));
        let spoilt = format!("{before}{unnamed}{}", stream(&[after, stop.clone()]));
        let found = calls(Dialect::Anthropic, Form::Events, &spoilt);
        assert_eq!(
            found,
            [r#"Bash {"command":"echo rm"}"#, r#"Bash {"command":"rm"}"#],
            "{unnamed}"
        );
    }
    // A server that names none of its events is read once.
    let plain = stream(&[start, delta("{}"), stop]).replace("event: ", ": ");
    assert_eq!(calls(Dialect::Anthropic, Form::Events, &plain), ["Bash {}"]);
}

#[test]
fn a_message_may_begin_with_a_call() {
    let block = json!({ "type": "tool_use", "id": "c", "name": "rm", "input": { "a": 1 } });
    let start = json!({ "type": "message_start", "message": { "content": [block] } });
    let found = calls(Dialect::Anthropic, Form::Events, &stream(&[start]));
    assert_eq!(found, [r#"rm {"a":1}"#]);
}

#[test]
fn a_call_that_gets_its_name_or_its_arguments_later_is_another_one() {
    let item = |name: Value, arguments: Value| {
        let item = json!({
            "type": "function_call", "id": "f", "call_id": "c", "name": name, "arguments": arguments,
        });
        json!({ "type": "response.output_item.done", "output_index": 0, "item": item })
    };
    let events = [item(json!(null), json!("{}")), item(json!("send"), json!("{}"))];
    let found = calls(Dialect::OpenAiResponses, Form::Events, &stream(&events));
    assert_eq!(found, ["function {}", "send {}"]);
    let events = [item(json!("x"), json!([])), item(json!("x"), json!("{}"))];
    let found = calls(Dialect::OpenAiResponses, Form::Events, &stream(&events));
    assert_eq!(found, ["x {}"]);
}

/// Of a member that comes twice the last one counts, also where the first one says that there is nothing to
/// read.
#[test]
fn a_type_that_comes_twice_hides_nothing() {
    let item = r#"{"type":"function_call","call_id":"c","name":"rm","arguments":"{}"}"#;
    for (first, second) in
        [("ping", "type"), ("response.in_progress", "type"), ("ping", "t\\u0079pe")]
    {
        let data = format!(
            r#"{{"type":"{first}","x":[{{"a":","}}],"{second}":"response.output_item.done","item":{item}}}"#
        );
        let found = calls(Dialect::OpenAiResponses, Form::Events, &format!("data: {data}\n\n"));
        assert_eq!(found, ["rm {}"], "{data}");
    }
}

#[test]
fn a_stream_in_a_document_is_read() {
    let events = format!(
        "{}data: [DONE]\n\n",
        stream(&[json!({
            "choices": [{ "index": 0, "delta": { "tool_calls": [part(&json!(0), "rm", "{}")] } }],
        })])
    );
    assert_eq!(calls(Dialect::OpenAiChat, Form::Json, &events), ["rm {}"]);
}

#[test]
fn what_was_not_read_is_said() {
    let long = "x".repeat(1 << 20);
    let mut reader = Reader::new(Dialect::OpenAiChat, Form::Events, false);
    let mut pieces = Vec::new();
    let chunk = |part: &Value| {
        let chunk = json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [part] } }] });
        stream(&[chunk])
    };
    reader.push(chunk(&part(&json!(0), "f", "{\"a\":\"")).as_bytes(), &mut pieces);
    assert!(!reader.lost());
    for _ in 0..20 {
        reader.push(chunk(&part(&json!(0), "", &long)).as_bytes(), &mut pieces);
    }
    assert!(reader.lost());
}
