//! OpenAI responses, Anthropic and Gemini.

use serde_json::json;

use super::*;

fn events(dialect: Dialect, events: &[&str]) -> String {
    let named = |data: &&str| {
        let kind = data.split('"').nth(3).unwrap_or_default();
        match dialect {
            Dialect::Gemini => format!("data: {data}\r\n\r\n"),
            _ => format!("event: {kind}\ndata: {data}\n\n"),
        }
    };
    events.iter().map(named).collect()
}

fn check_events(dialect: Dialect, data: &[&str], expected: &'static str) {
    check(&Case::new(dialect, Form::Events, &events(dialect, data), expected));
}

const RESPONSES: &[&str] = &[
    r#"{"type":"response.created","sequence_number":0,"response":{"id":"r","status":"in_progress","output":[],"usage":null,"error":null}}"#,
    r#"{"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}"#,
    r#"{"type":"response.reasoning_summary_text.delta","item_id":"rs_1","output_index":0,"summary_index":0,"delta":"Look."}"#,
    r#"{"type":"response.reasoning_summary_text.done","item_id":"rs_1","output_index":0,"summary_index":0,"text":"Look."}"#,
    r#"{"type":"response.output_item.added","output_index":1,"item":{"id":"msg_1","type":"message","status":"in_progress","content":[],"role":"assistant"}}"#,
    r#"{"type":"response.content_part.added","item_id":"msg_1","output_index":1,"content_index":0,"part":{"type":"output_text","text":"","annotations":[]}}"#,
    r#"{"type":"response.output_text.delta","item_id":"msg_1","output_index":1,"content_index":0,"delta":" Hé","logprobs":[],"obfuscation":"ab"}"#,
    r#"{"type":"response.output_text.done","item_id":"msg_1","output_index":1,"content_index":0,"text":" Hé"}"#,
    r#"{"type":"response.output_item.done","output_index":1,"item":{"id":"msg_1","type":"message","content":[{"type":"output_text","text":" Hé"}]}}"#,
    r#"{"type":"response.output_item.added","output_index":2,"item":{"id":"fc_1","type":"function_call","status":"in_progress","arguments":"","call_id":"call_1","name":"rm"}}"#,
    r#"{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":2,"delta":"{\"path\":\"/\"}"}"#,
    r#"{"type":"response.function_call_arguments.done","item_id":"fc_1","output_index":2,"arguments":"{\"path\":\"/\"}"}"#,
    r#"{"type":"response.output_item.done","output_index":2,"item":{"id":"fc_1","type":"function_call","status":"completed","arguments":"{\"path\":\"/\"}","call_id":"call_1","name":"rm"}}"#,
    r#"{"type":"response.output_item.added","output_index":3,"item":{"id":"ctc_1","type":"custom_tool_call","status":"in_progress","call_id":"call_2","input":"","name":"apply_patch"}}"#,
    r#"{"type":"response.custom_tool_call_input.delta","item_id":"ctc_1","output_index":3,"delta":"*** Begin"}"#,
    r#"{"type":"response.custom_tool_call_input.done","item_id":"ctc_1","output_index":3,"input":"*** Begin"}"#,
    r#"{"type":"response.output_item.done","output_index":3,"item":{"id":"ctc_1","type":"custom_tool_call","status":"completed","call_id":"call_2","input":"*** Begin","name":"apply_patch"}}"#,
    r#"{"type":"response.output_item.done","output_index":4,"item":{"id":"lsh_1","type":"local_shell_call","status":"completed","call_id":"call_3","action":{"type":"exec","command":["ls","-l"],"env":{}}}}"#,
    r#"{"type":"response.output_item.added","output_index":5,"item":{"id":"mcp_1","type":"mcp_call","status":"in_progress","arguments":"","name":"roll","server_label":"dice"}}"#,
    r#"{"type":"response.mcp_call_arguments.done","item_id":"mcp_1","output_index":5,"arguments":"{\"n\":2}"}"#,
    r#"{"type":"response.output_item.done","output_index":5,"item":{"id":"mcp_1","type":"mcp_call","status":"completed","arguments":"{\"n\":2}","name":"roll","server_label":"dice","output":"7"}}"#,
    r#"{"type":"response.completed","response":{"id":"r","status":"completed","error":null,"output":[{"id":"rs_1","type":"reasoning","summary":[]},{"id":"msg_1","type":"message","content":[{"type":"output_text","text":" Hé"}]},{"id":"fc_other","type":"function_call","arguments":"{\"path\":\"/\"}","call_id":"call_1","name":"rm"},{"id":"ctc_1","type":"custom_tool_call","call_id":"call_2","input":"*** Begin","name":"apply_patch"},{"id":"lsh_1","type":"local_shell_call","call_id":"call_3","action":{"type":"exec"}},{"id":"mcp_1","type":"mcp_call","arguments":"{\"n\":2}","name":"roll"},{"id":"ws_1","type":"web_search_call","action":{"type":"search","query":"q"}}],"usage":{"input_tokens":75,"input_tokens_details":{"cached_tokens":32},"output_tokens":123,"output_tokens_details":{"reasoning_tokens":64},"total_tokens":198}}}"#,
];

#[test]
fn responses_in_events() {
    let expected = r#"text Look. Hé
        call call_1 rm {"path":"/"}
        call call_2 apply_patch {"input":"*** Begin"}
        call call_3 local_shell {"command":["ls","-l"],"env":{},"type":"exec"}
        call mcp_1 roll {"n":2}
        call ws_1 web_search {"query":"q","type":"search"}
        usage 43 123 32 0
        done"#;
    check_events(Dialect::OpenAiResponses, RESPONSES, expected);

    let answer = events(Dialect::OpenAiResponses, RESPONSES);
    let held = held_events(&Case::new(Dialect::OpenAiResponses, Form::Events, &answer, ""));
    let names: Vec<&str> = held.iter().filter_map(|rest| rest.lines().next()).collect();
    assert_eq!(
        names,
        [
            "event: response.function_call_arguments.done",
            "event: response.output_item.done",
            "event: response.output_item.done",
            "event: response.mcp_call_arguments.done",
            "event: response.completed",
        ]
    );
}

#[test]
fn responses_of_proxies() {
    // Item ids that change between events, the type not first, the same index for all.
    let data = [
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"x1","type":"function_call","arguments":"","call_id":"c1","name":"f"}}"#,
        r#"{"type":"response.function_call_arguments.done","item_id":"x2","output_index":0,"arguments":"{}"}"#,
        r#"{"output_index":0,"item":{"id":"x3","type":"function_call","arguments":"{}","call_id":"c1","name":"f"},"type":"response.output_item.done"}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"x4","type":"function_call","arguments":"{}","call_id":"c2","name":"f"}}"#,
        r#"{"type":"response.function_call_arguments.done","item_id":"unknown","output_index":9,"arguments":"{}"}"#,
    ];
    check_events(Dialect::OpenAiResponses, &data, "call c1 f {}\ncall c2 f {}");
}

#[test]
fn responses_that_end_otherwise() {
    let check = |data: &str, expected| check_events(Dialect::OpenAiResponses, &[data], expected);
    check(
        r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"usage":{"input_tokens":3,"output_tokens":4}}}"#,
        "usage 3 4 0 0\ndone",
    );
    check(
        r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"It broke"},"usage":null}}"#,
        "error It broke\ndone",
    );
    check(r#"{"type":"error","code":"ERR","message":"Gone","param":null}"#, "error Gone");
    check(r#"{"type":"error","error":{"type":"x","message":"Gone"}}"#, "error Gone");
    check(r#"{"error":{"message":"Bare"}}"#, "error Bare");
}

#[test]
fn whole_responses() {
    let check = |body: &str, expected| {
        check(&Case::new(Dialect::OpenAiResponses, Form::Json, body, expected));
    };
    check(
        r#"{"id":"r","object":"response","status":"completed","error":null,"output":[
            {"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"Hm. "}]},
            {"type":"message","id":"m","content":[{"type":"output_text","text":"Hi"},{"type":"refusal","refusal":" no"}]},
            {"type":"function_call","id":"fc","call_id":"c","name":"f","arguments":"{\"a\":1}"},
            {"type":"code_interpreter_call","id":"ci","code":"1+1"}],
            "usage":{"input_tokens":36,"output_tokens":87,"total_tokens":123}}"#,
        "text Hm. Hi no\ncall c f {\"a\":1}\ncall ci code_interpreter {\"code\":\"1+1\"}\nusage 36 87 0 0\ndone",
    );
    check(r#"{"error":{"message":"Bad key","type":"invalid_request_error"}}"#, "error Bad key");
    check(r#"{"id":"r","status":"queued","output":[],"usage":null,"error":null}"#, "");
}

const ANTHROPIC: &[&str] = &[
    r#"{"type":"message_start","message":{"id":"msg","type":"message","role":"assistant","model":"claude","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":25,"cache_creation_input_tokens":10,"cache_read_input_tokens":1000,"cache_creation":{"ephemeral_5m_input_tokens":10},"output_tokens":1,"service_tier":"standard"}}}"#,
    r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
    r#"{"type":"ping"}"#,
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Let me"}}"#,
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQB"}}"#,
    r#"{"type":"content_block_stop","index":0}"#,
    r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}"#,
    r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":" see ☃"}}"#,
    r#"{"type":"content_block_stop","index":1}"#,
    r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"rm","input":{}}}"#,
    r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}"#,
    r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"path\":"}}"#,
    r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":" \"/\"}"}}"#,
    r#"{"type":"content_block_stop","index":2}"#,
    r#"{"type":"content_block_start","index":3,"content_block":{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}}"#,
    r#"{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"query\":\"x\"}"}}"#,
    r#"{"type":"content_block_stop","index":3}"#,
    r#"{"type":"content_block_start","index":4,"content_block":{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","title":"X","url":"https://x"}]}}"#,
    r#"{"type":"content_block_stop","index":4}"#,
    r#"{"type":"content_block_start","index":5,"content_block":{"type":"tool_use","id":"toolu_2","name":"now","input":{}}}"#,
    r#"{"type":"content_block_stop","index":5}"#,
    r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":30,"output_tokens":89,"server_tool_use":{"web_search_requests":1}}}"#,
    r#"{"type":"message_stop"}"#,
];

#[test]
fn anthropic_in_events() {
    let expected = r#"usage 25 1 1000 10
        text Let me see ☃
        call toolu_1 rm {"path":"/"}
        call srvtoolu_1 web_search {"query":"x"}
        call toolu_2 now {}
        usage 30 89 1000 10
        done"#;
    check_events(Dialect::Anthropic, ANTHROPIC, expected);

    let answer = events(Dialect::Anthropic, ANTHROPIC);
    let held = held_events(&Case::new(Dialect::Anthropic, Form::Events, &answer, ""));
    let stop = |index| {
        format!(
            "event: content_block_stop\ndata: {{\"type\":\"content_block_stop\",\"index\":{index}}}"
        )
    };
    assert!(held.iter().zip([2, 3, 5]).all(|(rest, index)| rest.starts_with(&stop(index))));
    assert_eq!(held.len(), 3);
}

#[test]
fn anthropic_that_goes_wrong() {
    let overloaded =
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    check_events(
        Dialect::Anthropic,
        &[ANTHROPIC[0], overloaded],
        "usage 25 1 1000 10\nerror Overloaded",
    );
    // A call that was cut off is one: clients have it, with as much of its input as came.
    check_events(Dialect::Anthropic, &ANTHROPIC[9..12], "call toolu_1 rm {}");
    // A compatible server: the input comes whole, and the block never stops.
    let whole = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f","input":{"a":1}}}"#;
    check_events(
        Dialect::Anthropic,
        &[whole, r#"{"type":"message_stop"}"#],
        "call t f {\"a\":1}\ndone",
    );
}

#[test]
fn whole_anthropic() {
    let check = |dialect, body: &str, expected| {
        check(&Case::new(dialect, Form::Json, body, expected));
    };
    check(
        Dialect::Anthropic,
        r#"{"id":"msg","type":"message","role":"assistant","content":[
            {"type":"thinking","thinking":"Hm. ","signature":"x"},{"type":"text","text":"Hi"},
            {"type":"tool_use","id":"toolu","name":"f","input":{"a":[1,2]}}],
            "stop_reason":"tool_use","usage":{"input_tokens":12,"cache_creation_input_tokens":0,"cache_read_input_tokens":7,"output_tokens":6}}"#,
        "text Hm. Hi\ncall toolu f {\"a\":[1,2]}\nusage 12 6 7 0\ndone",
    );
    check(
        Dialect::Anthropic,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"Too long"},"request_id":"q"}"#,
        "error Too long",
    );
    check(Dialect::AnthropicOther, r#"{"input_tokens":14}"#, "done");
}

const GEMINI: &[&str] = &[
    r#"{"candidates":[{"content":{"parts":[{"text":"Thinking.","thought":true}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":50,"totalTokenCount":60,"cachedContentTokenCount":20,"promptTokensDetails":[{"modality":"TEXT","tokenCount":50}],"thoughtsTokenCount":10},"modelVersion":"gemini-2.5-flash","responseId":"r"}"#,
    r#"{"candidates":[{"content":{"parts":[{"text":" Grüß }"},{"functionCall":{"name":"rm","args":{"path":"/","n":1.5}},"thoughtSignature":"CtQB"}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":50,"candidatesTokenCount":7,"totalTokenCount":67,"cachedContentTokenCount":20,"thoughtsTokenCount":10}}"#,
    r#"{"candidates":[{"content":{"parts":[{"functionCall":{"id":"f2","name":"now","args":{}}},{"executableCode":{"language":"PYTHON","code":"1"}}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":50,"candidatesTokenCount":9,"totalTokenCount":72,"cachedContentTokenCount":20,"toolUsePromptTokenCount":3,"thoughtsTokenCount":10}}"#,
];
const GEMINI_PIECES: &str = r#"text Thinking.
    usage 30 10 20 0
    text  Grüß }
    call  rm {"n":1.5,"path":"/"}
    usage 30 17 20 0
    call f2 now {}
    call  code_execution {"code":"1","language":"PYTHON"}
    usage 33 19 20 0
    done"#;

#[test]
fn gemini_in_events_and_lists() {
    check_events(Dialect::Gemini, GEMINI, GEMINI_PIECES);
    let list = format!("[{}\n]", GEMINI.join("\n,\r\n"));
    check(&Case::new(Dialect::Gemini, Form::Objects, &list, GEMINI_PIECES));

    let held = held_events(&Case::new(Dialect::Gemini, Form::Objects, &list, ""));
    assert!(held.iter().zip([1, 2, 2]).all(|(rest, at)| rest.starts_with(GEMINI[at])));
    assert_eq!(held.len(), 3);
}

#[test]
fn whole_gemini_and_errors() {
    let check = |dialect, form, body: &str, expected| {
        check(&Case::new(dialect, form, body, expected));
    };
    check(
        Dialect::Gemini,
        Form::Json,
        r#"{"candidates":[{"content":{"parts":[{"text":"Hi"}]},"finishReason":"STOP"},{"content":{"parts":[{"text":" Ho"}]}}],"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":2}}"#,
        "text Hi Ho\nusage 4 2 0 0\ndone",
    );
    let error = r#"{"error":{"code":429,"message":"Quota","status":"RESOURCE_EXHAUSTED"}}"#;
    check(Dialect::Gemini, Form::Json, error, "error Quota");
    check(Dialect::Gemini, Form::Json, &format!("[{error}]"), "error Quota");
    check(Dialect::Gemini, Form::Objects, error, "error Quota");
    check(Dialect::Gemini, Form::Events, &format!("data: {error}\n\n"), "error Quota");
    check(Dialect::GeminiOther, Form::Json, r#"{"totalTokens":31}"#, "done");
    let blocked =
        r#"{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":4}}"#;
    check(Dialect::Gemini, Form::Objects, blocked, "usage 4 0 0 0\ndone");
    check(Dialect::Gemini, Form::Json, r#"{"candidates":[{"content""#, "");
}

/// A tool call's input used to reach the agent before the call was judged.
#[test]
fn anthropic_holds_a_call_until_it_is_complete() {
    let event = |name: &str, data: serde_json::Value| format!("event: {name}\ndata: {data}\n\n");
    let events = [
        event("message_start", json!({ "type": "message_start", "message": { "usage": {} } })),
        event(
            "content_block_start",
            json!({ "type": "content_block_start", "index": 0,
            "content_block": { "type": "text", "text": "" } }),
        ),
        event(
            "content_block_delta",
            json!({ "type": "content_block_delta", "index": 0,
            "delta": { "type": "text_delta", "text": "I will delete it." } }),
        ),
        event("content_block_stop", json!({ "type": "content_block_stop", "index": 0 })),
        event(
            "content_block_start",
            json!({ "type": "content_block_start", "index": 1,
            "content_block": { "type": "tool_use", "id": "t1", "name": "rm", "input": {} } }),
        ),
        event(
            "content_block_delta",
            json!({ "type": "content_block_delta", "index": 1,
            "delta": { "type": "input_json_delta", "partial_json": "{\"path\":\"/secret" } }),
        ),
        event(
            "content_block_delta",
            json!({ "type": "content_block_delta", "index": 1,
            "delta": { "type": "input_json_delta", "partial_json": "\"}" } }),
        ),
        event("content_block_stop", json!({ "type": "content_block_stop", "index": 1 })),
        event("message_stop", json!({ "type": "message_stop" })),
    ];
    let all = events.concat();
    for size in [1, 7, 64, 300, all.len()] {
        let mut reader = Reader::new(Dialect::Anthropic, Form::Events, false);
        reader.hold_calls();
        let (mut passed, mut called) = (Vec::new(), false);
        for chunk in all.as_bytes().chunks(size) {
            let mut pieces = Vec::new();
            let pass = reader.push(chunk, &mut pieces);
            let bytes = match pass {
                Pass::All => chunk.to_vec(),
                Pass::Bytes(bytes) => bytes,
            };
            for piece in &pieces {
                if let Piece::ToolCall { held_from, arguments, .. } = piece {
                    called = true;
                    assert_eq!(arguments["path"], "/secret");
                    let before = [&passed[..], &bytes[..*held_from]].concat();
                    let before = String::from_utf8(before).unwrap();
                    assert!(!before.contains("/secret"), "in chunks of {size}: {before}");
                    assert!(before.contains("I will delete it."), "{before}");
                }
            }
            passed.extend(bytes);
            assert!(called || !String::from_utf8_lossy(&passed).contains("/secret"));
        }
        let mut pieces = Vec::new();
        if let Pass::Bytes(rest) = reader.finish(&mut pieces) {
            passed.extend(rest);
        }
        assert!(called, "in chunks of {size}");
        assert_eq!(String::from_utf8(passed).unwrap(), all, "in chunks of {size}");
    }
}
