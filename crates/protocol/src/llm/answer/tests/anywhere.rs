//! Calls in answers of no dialect, and in forms that only some clients read.

use serde_json::{Value, json};

use super::odd::{calls, stream};
use super::*;

fn function() -> Value {
    json!({ "name": "rm", "arguments": "{\"path\":\"/\"}" })
}

const RM: &str = r#"rm {"path":"/"}"#;

fn found(what: &str, answer: &Value) {
    for dialect in [Dialect::OpenAiOther, Dialect::AnthropicOther, Dialect::GeminiOther] {
        assert_eq!(calls(dialect, Form::Json, &answer.to_string()), [RM], "{what}, {dialect:?}");
        let line = format!("{answer}\n");
        assert_eq!(calls(dialect, Form::File, &line), [RM], "{what}, a line, {dialect:?}");
    }
}

#[test]
fn calls_of_any_shape_are_found() {
    let call = json!({ "id": "c1", "type": "function", "function": function() });
    let message = json!({ "role": "assistant", "tool_calls": [call] });
    let chat = json!({ "choices": [{ "index": 0, "message": message }] });
    let block = json!({ "type": "tool_use", "id": "t1", "name": "rm", "input": { "path": "/" } });
    let item = json!({
        "type": "function_call", "id": "i1", "call_id": "c1", "name": "rm",
        "arguments": "{\"path\":\"/\"}",
    });
    let gemini = json!({ "functionCall": { "name": "rm", "args": { "path": "/" } } });
    let gemini = json!({ "candidates": [{ "content": { "parts": [gemini] } }] });
    let outputs =
        json!({ "type": "submit_tool_outputs", "submit_tool_outputs": { "tool_calls": [call] } });
    let run = json!({
        "object": "thread.run", "status": "requires_action", "required_action": outputs,
        "tools": [{ "type": "function", "function": { "name": "ls", "parameters": {} } }],
        "tool_choice": { "type": "function", "function": { "name": "ls" } },
    });
    found("a run", &run);
    found("runs", &json!({ "object": "list", "data": [run] }));
    found("stored completions", &json!({ "object": "list", "data": [chat] }));
    found(
        "OpenAI's batch",
        &json!({ "custom_id": "1", "response": { "status_code": 200, "body": chat } }),
    );
    let message = json!({ "type": "message", "content": [block] });
    found("Anthropic's batch", &json!({ "result": { "type": "succeeded", "message": message } }));
    found("Google's batch", &json!({ "key": "1", "response": gemini }));
    found("a conversation's items", &json!({ "object": "list", "data": [item] }));
    let custom = json!({ "type": "agent.custom_tool_use", "id": "e1", "name": "rm", "input": { "path": "/" } });
    found("a session's events", &json!({ "data": [custom] }));
    found(
        "an interaction",
        &json!({ "steps": [{
        "type": "function_call", "id": "c1", "name": "rm", "arguments": { "path": "/" },
    }] }),
    );
    let converse =
        json!({ "toolUse": { "toolUseId": "t", "name": "rm", "input": { "path": "/" } } });
    found("Bedrock", &json!({ "output": { "message": { "content": [converse] } } }));
    let mistral = json!({
        "object": "entry", "type": "function.call", "id": "fc_1", "tool_call_id": "c1", "name": "rm",
        "arguments": "{\"path\":\"/\"}",
    });
    found("a conversation of Mistral's", &json!({ "outputs": [mistral] }));
    let studio = json!({ "type": "tool_call", "tool": "rm", "arguments": { "path": "/" } });
    found("LM Studio's own API", &json!({ "output": [studio] }));
    found(
        "bare calls",
        &json!({ "tool_calls": [{ "name": "rm", "parameters": { "path": "/" } }] }),
    );
    found(
        "another case",
        &json!({ "Message": { "ToolCalls": [{ "Function": {
        "Name": "rm", "Arguments": { "path": "/" },
    } }] } }),
    );
}

#[test]
fn what_is_no_call_is_none() {
    for answer in [
        json!({ "object": "file", "id": "f", "filename": "rm", "status": "processed" }),
        json!({ "tools": [{ "type": "function", "function": { "name": "rm", "parameters": {} } }] }),
        json!({ "type": "custom", "custom": { "name": "rm", "description": "removes" } }),
        json!({ "function": { "name": "rm" } }),
        json!({ "type": "phone_call", "number": 1 }),
        json!({ "data": [{ "id": "gpt", "object": "model" }], "name": "list" }),
    ] {
        let none: [&str; 0] = [];
        assert_eq!(calls(Dialect::OpenAiOther, Form::Json, &answer.to_string()), none, "{answer}");
    }
    assert!(
        calls(Dialect::OpenAiOther, Form::File, "%PDF {\"tool_calls\":[{\"name\":\"rm\"}]}")
            .is_empty()
    );
}

#[test]
fn a_call_is_told_once_however_often_its_answer_says_it() {
    let event = |name: &str, data: &Value| format!("event: {name}\ndata: {data}\n\n");
    let part = |call: Value| {
        let details = json!({ "type": "tool_calls", "tool_calls": [call] });
        event(
            "thread.run.step.delta",
            &json!({
                "object": "thread.run.step.delta", "delta": { "step_details": details },
            }),
        )
    };
    let call = json!({ "id": "c1", "type": "function", "function": function() });
    let outputs = json!({ "submit_tool_outputs": { "tool_calls": [call] } });
    let events = [
        part(
            json!({ "index": 0, "id": "c1", "type": "function", "function": { "name": "rm", "arguments": "" } }),
        ),
        part(json!({ "index": 0, "function": { "arguments": "{\"path\"" } })),
        part(json!({ "index": 0, "function": { "arguments": ":\"/\"}" } })),
        event("thread.run.step.completed", &json!({ "step_details": { "tool_calls": [call] } })),
        event("thread.run.requires_action", &json!({ "required_action": outputs })),
    ];
    let all = [&events.concat(), "event: done\ndata: [DONE]\n\n"].concat();
    assert_eq!(calls(Dialect::OpenAiOther, Form::Events, &all), [RM], "a whole run");
    // A client may put a call together from its parts alone.
    let parts = events[..3].concat();
    assert_eq!(calls(Dialect::OpenAiOther, Form::Events, &parts), [RM], "parts alone");
    assert_eq!(calls(Dialect::OpenAiOther, Form::Events, &events[4]), [RM], "the end alone");

    // Google's interactions.
    let step = json!({ "type": "function_call", "id": "c1", "name": "rm", "arguments": {} });
    let delta = |text: &str| json!({ "type": "arguments_delta", "arguments": text });
    let events = [
        json!({ "event_type": "step.start", "index": 0, "step": step }),
        json!({ "event_type": "step.delta", "index": 0, "delta": delta("{\"path\":") }),
        json!({ "event_type": "step.delta", "index": 0, "delta": delta("\"/\"}") }),
        json!({ "event_type": "step.stop", "index": 0 }),
    ];
    assert_eq!(calls(Dialect::GeminiOther, Form::Events, &stream(&events)), [RM], "an interaction");

    // Mistral's conversations name the tool in each part.
    let part = |text: &str| {
        json!({
            "type": "function.call.delta", "id": "fc_1", "name": "rm", "tool_call_id": "c1",
            "output_index": 0, "arguments": text,
        })
    };
    let events = stream(&[part("{\"path\":"), part("\"/\"}")]);
    assert_eq!(calls(Dialect::OpenAiOther, Form::Events, &events), [RM], "a conversation");
}

/// Two equal calls are two calls.
#[test]
fn equal_calls_are_told_as_often_as_they_are_asked_for() {
    let call = json!({ "function": { "name": "rm", "arguments": { "path": "/" } } });
    let answer = json!({ "message": { "tool_calls": [call, call] }, "done": true });
    assert_eq!(calls(Dialect::Ollama, Form::Json, &answer.to_string()), [RM, RM]);
    let line = json!({ "message": { "tool_calls": [call] }, "done": false });
    assert_eq!(calls(Dialect::Ollama, Form::Objects, &format!("{line}\n{line}\n")), [RM, RM]);
}

#[test]
fn ollamas_own_answers_are_read() {
    let lines = [
        json!({ "model": "llama", "message": { "role": "assistant", "content": "Let me " }, "done": false }),
        json!({ "model": "llama", "message": { "content": "look.", "thinking": "Hm." }, "done": false }),
        json!({ "model": "llama", "message": { "tool_calls": [{ "function": {
            "name": "rm", "arguments": { "path": "/" },
        } }] }, "done": false }),
        json!({ "model": "llama", "message": { "content": "" }, "done": true, "done_reason": "stop",
            "prompt_eval_count": 26, "eval_count": 9 }),
    ];
    let answer: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let expected = "text Let me Hm.look.\ncall  rm {\"path\":\"/\"}\nusage 26 9 0 0\ndone";
    check(&Case::new(Dialect::Ollama, Form::Objects, &answer, expected));
    let generated = r#"{"model":"llama","response":"Hi","done":true,"eval_count":2}"#;
    check(&Case::new(Dialect::Ollama, Form::Json, generated, "text Hi\nusage 0 2 0 0\ndone"));
    check(&Case::new(Dialect::Ollama, Form::Json, r#"{"error":"no model"}"#, "error no model"));
}

/// Only its body says which dialect a request may have, and its answer comes in another one.
#[test]
fn a_guessed_answer_is_read_in_every_dialect() {
    let block = json!({ "type": "tool_use", "id": "t", "name": "rm", "input": {} });
    let delta = json!({ "type": "input_json_delta", "partial_json": "{\"path\":\"/\"}" });
    let events = [
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
        json!({ "type": "content_block_stop", "index": 0 }),
    ];
    let mut reader = Reader::new(Dialect::OpenAiChat, Form::Events, false);
    reader.look_anywhere();
    let mut pieces = Vec::new();
    reader.push(stream(&events).as_bytes(), &mut pieces);
    reader.finish(&mut pieces);
    assert_eq!(render(&pieces), format!("call t {RM}"));
    // And once in its own.
    let part = |function: Value| {
        json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [
        { "index": 0, "id": "c1", "function": function },
    ] } }] })
    };
    let events = [
        part(json!({ "name": "rm", "arguments": "{\"path\"" })),
        part(json!({ "arguments": ":\"/\"}" })),
    ];
    let mut reader = Reader::new(Dialect::OpenAiChat, Form::Events, false);
    reader.look_anywhere();
    let mut pieces = Vec::new();
    reader.push(stream(&events).as_bytes(), &mut pieces);
    reader.finish(&mut pieces);
    assert_eq!(render(&pieces), format!("call c1 {RM}"));
}

/// Gemini's arguments may come one by one.
#[test]
fn hole_05_arguments_in_parts_are_put_together() {
    let chunk = |call: Value| json!({ "candidates": [{ "content": { "parts": [{ "functionCall": call }] } }] });
    let part = |path: &str, text: &str| json!({ "jsonPath": path, "stringValue": text });
    let events = [
        chunk(json!({ "id": "c1", "name": "Bash", "willContinue": true })),
        chunk(json!({ "partialArgs": [part("$.command", "rm -rf")], "willContinue": true })),
        chunk(json!({ "partialArgs": [part("$.command", " /srv")], "willContinue": true })),
        chunk(json!({})),
    ];
    let all = [r#"Bash {"command":"rm -rf /srv"}"#];
    assert_eq!(calls(Dialect::Gemini, Form::Events, &stream(&events)), all);
    // Without its end, and with the next call in place of it.
    assert_eq!(calls(Dialect::Gemini, Form::Events, &stream(&events[..3])), all);
    let next = chunk(json!({ "name": "ls", "args": {} }));
    let cut = [&events[..3], &[next]].concat();
    assert_eq!(calls(Dialect::Gemini, Form::Events, &stream(&cut)), [all[0], "ls {}"]);
    // What Google runs itself.
    let tool =
        json!({ "toolCall": { "id": "1", "toolType": "GOOGLE_SEARCH", "args": { "q": "x" } } });
    let answer = json!({ "candidates": [{ "content": { "parts": [tool] } }] });
    assert_eq!(
        calls(Dialect::Gemini, Form::Json, &answer.to_string()),
        [r#"google_search {"q":"x"}"#]
    );
}

/// Clients that split lines as Python's `splitlines` does, and such that read lines which are no data.
#[test]
fn hole_05_lines_that_only_some_clients_read_are_inspected() {
    let call = json!({ "functionCall": { "name": "rm", "args": { "path": "/" } } });
    let gemini = json!({ "candidates": [{ "content": { "parts": [call] } }] });
    for end in ["\u{2028}", "\u{2029}", "\u{85}", "\u{b}", "\u{c}", "\u{1c}", "\u{1d}", "\u{1e}"] {
        let hidden = format!("data: {{}}{end}{end}data: {gemini}\n\n");
        assert_eq!(calls(Dialect::Gemini, Form::Events, &hidden), [RM], "{end:?}");
    }
    let bare = format!("data: {{}}\n\n{gemini}\n\n");
    assert_eq!(calls(Dialect::Gemini, Form::Events, &bare), [RM]);
    // Over several events.
    let text = gemini.to_string();
    let (head, tail) = text.split_at(text.find("\"content\"").unwrap());
    let torn = format!("{head}\n\n{tail}\n\n");
    assert_eq!(calls(Dialect::Gemini, Form::Events, &torn), [RM]);
}

/// Google's Code Assist wraps each chunk in an object; the Gemini CLI uses it with a Google login.
#[test]
fn hole_05_answers_of_code_assist_are_inspected() {
    let call = json!({ "functionCall": { "name": "rm", "args": { "path": "/" } } });
    let gemini = json!({ "candidates": [{ "content": { "parts": [call] } }] });
    let wrapped = json!({ "response": gemini, "traceId": "t" });
    assert_eq!(calls(Dialect::Gemini, Form::Json, &wrapped.to_string()), [RM]);
    assert_eq!(calls(Dialect::Gemini, Form::Events, &stream(std::slice::from_ref(&wrapped))), [RM]);
    // A `response` of another kind is none, and one within another is none that a client reads.
    for other in [json!("x"), json!(null), json!([gemini]), wrapped] {
        let odd = json!({ "response": other });
        assert!(calls(Dialect::Gemini, Form::Json, &odd.to_string()).is_empty(), "{odd}");
    }
}

/// Some clients put a call together from its parts and wait for nothing else.
#[test]
fn hole_05_calls_that_are_never_done_are_inspected() {
    let item = json!({ "type": "function_call", "id": "fc", "call_id": "c1", "name": "rm", "arguments": "" });
    let part = |text: &str| {
        json!({
            "type": "response.function_call_arguments.delta", "item_id": "fc", "output_index": 0, "delta": text,
        })
    };
    let added = json!({ "type": "response.output_item.added", "output_index": 0, "item": item });
    let events = [added, part("{\"path\":"), part("\"/\"}")];
    assert_eq!(calls(Dialect::OpenAiResponses, Form::Events, &stream(&events)), [RM]);
    let custom = json!({ "type": "custom_tool_call", "id": "ct", "call_id": "c2", "name": "patch", "input": "" });
    let events = [
        json!({ "type": "response.output_item.added", "output_index": 0, "item": custom }),
        json!({ "type": "response.custom_tool_call_input.delta", "item_id": "ct", "delta": "*** Begin" }),
    ];
    let found = calls(Dialect::OpenAiResponses, Form::Events, &stream(&events));
    assert_eq!(found, [r#"patch {"input":"*** Begin"}"#]);
    // Parts that say another thing than the whole.
    let item = |arguments: &str| {
        json!({
            "type": "function_call", "id": "fc", "call_id": "c1", "name": "rm", "arguments": arguments,
        })
    };
    let events = [
        json!({ "type": "response.output_item.added", "output_index": 0, "item": item("") }),
        part("{\"path\":\"/\"}"),
        json!({ "type": "response.output_item.done", "output_index": 0, "item": item("{\"path\":\"a\"}") }),
    ];
    let found = calls(Dialect::OpenAiResponses, Form::Events, &stream(&events));
    assert_eq!(found, [r#"rm {"path":"a"}"#, RM]);
}

/// Python's `json` reads UTF-16 and UTF-32.
#[test]
fn hole_05_answers_in_other_widths_are_inspected() {
    let call = json!({ "id": "c1", "type": "function", "function": function() });
    let answer = json!({ "choices": [{ "message": { "tool_calls": [call] } }] }).to_string();
    let narrow = |c: char| {
        c.encode_utf16(&mut [0; 2]).iter().flat_map(|unit| unit.to_le_bytes()).collect::<Vec<u8>>()
    };
    let wide = |c: char| u32::from(c).to_be_bytes().to_vec();
    for bytes in [
        answer.chars().flat_map(narrow).collect::<Vec<u8>>(),
        answer.chars().flat_map(wide).collect(),
    ] {
        let mut reader = Reader::new(Dialect::OpenAiChat, Form::Json, false);
        let mut pieces = Vec::new();
        assert_eq!(reader.push(&bytes, &mut pieces), Pass::All);
        reader.finish(&mut pieces);
        assert!(render(&pieces).contains(RM), "{pieces:?}");
        assert!(!reader.unread());
    }
    // What is no text at all is told apart.
    let mut reader = Reader::new(Dialect::OpenAiChat, Form::Json, false);
    reader.push(b"\x00\x00\x01\x07 binary", &mut Vec::new());
    reader.finish(&mut Vec::new());
    assert!(reader.unread());
}

/// Of an object with more values than there is room for, the objects in it are read.
#[test]
fn hole_05_a_call_beside_too_many_values_is_found() {
    let call =
        json!({ "type": "function.call", "id": "c1", "name": "rm", "arguments": { "path": "/" } });
    let zeros = "0,".repeat(2 << 20);
    let answer = format!(r#"{{"pad":[{zeros}0],"outputs":[{call}]}}"#);
    assert_eq!(calls(Dialect::OpenAiOther, Form::Json, &answer), [RM]);
}
