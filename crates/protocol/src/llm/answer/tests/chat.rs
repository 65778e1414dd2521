//! OpenAI chat completions, and what others make of them.

use super::*;

const PLAIN: &str = concat!(
    r#"data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"gpt-4o","service_tier":"default","system_fingerprint":"fp","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"x9"}"#,
    "\n\n",
    r#"data: {"id":"c1","choices":[{"index":0,"delta":{"content":"Grüße, \"wo\" 🌍"},"finish_reason":null}],"usage":null}"#,
    "\n\n",
    r#"data: {"id":"c1","choices":[{"index":0,"delta":{"content":" \u00e9\n!"},"finish_reason":null}],"usage":null}"#,
    "\n\n",
    r#"data: {"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}"#,
    "\n\n",
);
const USAGE: &str = concat!(
    r#"data: {"id":"c1","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":9,"total_tokens":109,"prompt_tokens_details":{"cached_tokens":64,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}"#,
    "\n\n",
);
const DONE: &str = "data: [DONE]\n\n";

fn chat(answer: &str, expected: &'static str) -> Case {
    Case::new(Dialect::OpenAiChat, Form::Events, answer, expected)
}

/// Renders pieces of a stream of chunks, given as JSON.
fn check_chunks(chunks: &[&str], expected: &'static str) {
    let answer: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    check(&chat(&answer, expected));
}

#[test]
fn text_and_usage() {
    let expected = "text Grüße, \"wo\" 🌍 é\n!\nusage 36 9 64 0\ndone";
    check(&chat(&format!("{PLAIN}{USAGE}{DONE}"), expected));
    check(&chat(&format!("\u{feff}{PLAIN}{USAGE}{DONE}"), expected));
    check(&chat(&format!("{PLAIN}{USAGE}data: [DONE]"), expected));
    // Without `[DONE]` the finish reason says that the answer is complete.
    check(&chat(&format!("{PLAIN}{USAGE}"), expected));
    check(&chat(&PLAIN.replace("stop", ""), "text Grüße, \"wo\" 🌍 é\n!"));
}

#[test]
fn the_usage_chunk_that_nobody_asked_for_is_hidden() {
    let expected = "text Grüße, \"wo\" 🌍 é\n!\nusage 36 9 64 0\ndone";
    for ends in ["\n", "\r\n", "\r"] {
        let with = |text: &str| text.replace('\n', ends);
        let answer = with(&format!(": hi\n\n{PLAIN}{USAGE}{DONE}"));
        let forwarded = with(&format!(": hi\n\n{PLAIN}{DONE}"));
        check(&chat(&answer, expected).hiding(&forwarded));
        check(&chat(&answer, expected));
    }
    // The last event may lack its empty line.
    let answer = format!("{PLAIN}{}", USAGE.trim_end());
    check(&chat(&answer, expected).hiding(PLAIN));
    // A cut stream is released as far as it came.
    let answer = format!("{PLAIN}data: {{\"choices\":[],\"usa");
    check(&chat(&answer, "text Grüße, \"wo\" 🌍 é\n!\ndone").hiding(&answer));
}

#[test]
fn only_the_extra_chunk_is_hidden() {
    // Azure's first chunk has no choices, and no usage either.
    let azure = r#"data: {"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}}}],"usage":null}"#;
    let azure = format!("{azure}\r\n\r\n{PLAIN}{USAGE}{DONE}");
    let expected = "text Grüße, \"wo\" 🌍 é\n!\nusage 36 9 64 0\ndone";
    check(&chat(&azure, expected).hiding(&azure.replace(USAGE, "")));

    // Mistral and vLLM put usage beside choices: those chunks belong to the client.
    let vllm = concat!(
        r#"data: {"choices":[{"index":0,"delta":{"content":"one"}}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}"#,
        "\n\n",
        r#"data: {"choices":[{"index":0,"delta":{"content":" two"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}"#,
        "\n\n",
    );
    let extra = r#"data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}"#;
    let expected = "text one\nusage 5 1 0 0\ntext  two\nusage 5 2 0 0\ndone";
    let answer = format!("{vllm}{extra}\n\n{DONE}");
    check(&chat(&answer, expected).hiding(&format!("{vllm}{DONE}")));

    // An error is never hidden.
    let failed = "data: {\"choices\":[],\"usage\":{},\"error\":{\"message\":\"no\"}}\n\n";
    check(&chat(failed, "usage 0 0 0 0\nerror no").hiding(failed));
}

#[test]
fn tool_calls_side_by_side() {
    let chunks = [
        r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"rm","arguments":""}}]},"finish_reason":null}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"path\": "}}]},"finish_reason":null}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"/tmp/é}\"}"}}]},"finish_reason":null}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_2","type":"function","function":{"name":"now","arguments":""}}]},"finish_reason":null}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":2,"id":"call_3","type":"custom","custom":{"name":"patch","input":"*** Be"}}]},"finish_reason":null}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":2,"custom":{"input":"gin {}"}}]},"finish_reason":null}]}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
        "[DONE]",
    ];
    let expected = r#"call call_1 rm {"path":"/tmp/é}"}
                      call call_2 now {}
                      call call_3 patch {"input":"*** Begin {}"}
                      done"#;
    check_chunks(&chunks, expected);

    let answer: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    for case in [chat(&answer, expected), chat(&answer, expected).hiding(&answer)] {
        let held = held_events(&case);
        // The first by its last brace, the second by the next call, the third by the finish.
        let completing =
            [chunks[2], chunks[4], chunks[6]].map(|chunk| format!("data: {chunk}\n\n"));
        for (held, completing) in held.iter().zip(&completing) {
            assert!(held.starts_with(completing), "{held}");
        }
        assert_eq!(held.len(), 3);
    }
}

#[test]
fn tool_calls_of_compatible_servers() {
    // Gemini's compatible API: every call is whole, under index 0, with an id of its own.
    check_chunks(
        &[
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"ls","arguments":"{}"}}]},"index":0}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"b","function":{"name":"ls","arguments":"{}"}}]},"finish_reason":"stop","index":0}]}"#,
        ],
        "call a ls {}\ncall b ls {}\ndone",
    );
    // No index, no id, the object itself.
    check_chunks(
        &[
            r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"ls","arguments":{"p":1}}},{"function":{"name":"cat","arguments":null}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{\"q\":2}"}}]}}]}"#,
            "[DONE]",
        ],
        "call  ls {\"p\":1}\ncall  cat {\"q\":2}\ndone",
    );
    // Interleaved, in two choices; one is cut off in the middle of its arguments.
    check_chunks(
        &[
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":"}}]}},{"index":1,"delta":{"content":"hm","tool_calls":[{"index":0,"id":"c","function":{"name":"h","arguments":"{\"z"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"{\"y\":"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"2}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
            r#"{"choices":[{"index":1,"delta":{},"finish_reason":"length"}]}"#,
        ],
        r#"text hm
           call a f {"x":1}
           call b g {"y":2}
           call c h "{\"z"
           done"#,
    );
    // The old way of calling a function.
    check_chunks(
        &[
            r#"{"choices":[{"delta":{"function_call":{"name":"f","arguments":""}}}]}"#,
            r#"{"choices":[{"delta":{"function_call":{"arguments":"{\"x\":1}"}}}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"function_call"}]}"#,
        ],
        "call  f {\"x\":1}\ndone",
    );
    // A call that goes on after its object was whole is judged again, as the client sees it.
    check_chunks(
        &[
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\":1}"}}]}}]}"#,
            "[DONE]",
        ],
        "call a f {}\ncall a f \"{}{\\\"x\\\":1}\"\ndone",
    );
}

#[test]
fn reasoning_refusals_and_lists_are_text() {
    check_chunks(
        &[
            r#"{"choices":[{"delta":{"reasoning_content":"deep"}}]}"#,
            r#"{"choices":[{"delta":{"reasoning":" seek","reasoning_content":" seek"}}]}"#,
            r#"{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":" hm"}]}]}}]}"#,
            r#"{"choices":[{"delta":{"content":null,"refusal":" no"}}]}"#,
            r#"{"choices":[{"index":0,"text":" old"}]}"#,
        ],
        "text deep seek hm no old",
    );
}

#[test]
fn comments_and_several_data_lines() {
    let answer = concat!(
        ": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n",
        "event: message\nid: 7\ndata: {\"choices\":\ndata: [{\"delta\":\ndata:{\"content\":\"hi\"}}]}\n\n",
        "data: not json\n\ndata:\n\ndata: []\n\ndata: 5\n\n",
        "data: {\"id\":\"gen\",\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":\"error\"}],",
        "\"error\":{\"code\":502,\"message\":\"Provider disconnected\"}}\n\n",
        "data: [DONE]\n\n",
    );
    for ends in ["\n", "\r\n", "\r"] {
        let expected = "text hi\nerror Provider disconnected\ndone";
        check(&chat(&answer.replace('\n', ends), expected));
    }
}

#[test]
fn errors() {
    let check = |body: &str, expected| {
        check(&chat(&format!("data: {body}\n\n"), expected));
        check(&Case::new(Dialect::OpenAiChat, Form::Json, body, expected));
    };
    let openai = r#"{"error":{"message":"Rate limit","type":"tokens","param":null,"code":"x"}}"#;
    check(openai, "error Rate limit");
    check(r#"{"error":"model 'x' not found"}"#, "error model 'x' not found");
    check(r#"{"object":"error","message":"too long","code":400}"#, "error too long");
}

#[test]
fn whole_answers() {
    let check = |dialect, body: &str, expected| {
        check(&Case::new(dialect, Form::Json, body, expected));
    };
    check(
        Dialect::OpenAiChat,
        r#"{"id":"c","object":"chat.completion","choices":[
            {"index":0,"message":{"role":"assistant","content":"Hi","refusal":null,"tool_calls":[
                {"id":"a","type":"function","function":{"name":"ls","arguments":"{\"p\":\"/\"}"}},
                {"id":"b","type":"function","function":{"name":"ls","arguments":""}}]},
             "logprobs":null,"finish_reason":"tool_calls"},
            {"index":1,"message":{"role":"assistant","content":" Ho"},"finish_reason":"stop"}],
            "usage":{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14}}"#,
        "text Hi\ncall a ls {\"p\":\"/\"}\ncall b ls {}\ntext  Ho\nusage 10 4 0 0\ndone",
    );
    check(
        Dialect::OpenAiEmbeddings,
        r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1,-2e-3]}],
            "model":"e","usage":{"prompt_tokens":8,"total_tokens":8}}"#,
        "usage 8 0 0 0\ndone",
    );
    check(Dialect::OpenAiOther, r#"{"object":"list","data":[]}"#, "done");
    check(Dialect::OpenAiChat, r#"{"choices":[{"message":{"content":"cut"#, "");
    check(Dialect::OpenAiChat, "<html>Bad gateway</html>", "");
}
