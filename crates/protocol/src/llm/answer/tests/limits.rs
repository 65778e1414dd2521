//! Estimates, caps, and bytes that no provider would send.

use proptest::prelude::*;

use super::*;

const DIALECTS: [Dialect; 5] = [
    Dialect::OpenAiChat,
    Dialect::OpenAiResponses,
    Dialect::Anthropic,
    Dialect::Gemini,
    Dialect::OpenAiOther,
];
const FORMS: [Form; 3] = [Form::Events, Form::Json, Form::Objects];

/// Output tokens after each of some events.
fn outputs(dialect: Dialect, events: &[&str]) -> Vec<u64> {
    let mut reader = Reader::new(dialect, Form::Events, false);
    let mut push = |data: &&str| {
        reader.push(format!("data: {data}\n\n").as_bytes(), &mut Vec::new());
        reader.output_so_far().0
    };
    events.iter().map(&mut push).collect()
}

#[test]
fn output_is_estimated_until_the_provider_counts() {
    let text = r#"{"choices":[{"delta":{"content":"héllo"}}]}"#;
    let call = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"a\":1}"}}]}}]}"#;
    let zero = r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":0}}"#;
    let five = r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":5}}"#;
    assert_eq!(
        outputs(Dialect::OpenAiChat, &[text, text, call, zero, five, text]),
        [2, 3, 5, 5, 5, 7]
    );

    let start =
        r#"{"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":2}}}"#;
    let delta = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"12345678"}}"#;
    let end = r#"{"type":"message_delta","usage":{"output_tokens":3}}"#;
    assert_eq!(outputs(Dialect::Anthropic, &[start, delta, delta, end]), [2, 4, 6, 3]);

    let early = r#"{"candidates":[{"content":{"parts":[{"text":"12345678"}]}}],"usageMetadata":{"promptTokenCount":7}}"#;
    let late = r#"{"candidates":[{"content":{"parts":[{"text":"12345678"}]}}],"usageMetadata":{"candidatesTokenCount":9}}"#;
    assert_eq!(outputs(Dialect::Gemini, &[early, late, early]), [2, 9, 11]);

    let delta =
        r#"{"type":"response.function_call_arguments.delta","output_index":0,"delta":"12345678"}"#;
    let item = r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":1}"}}"#;
    assert_eq!(outputs(Dialect::OpenAiResponses, &[delta, item]), [2, 4]);
}

#[test]
fn an_event_too_large_passes_unread_and_the_next_is_read() {
    let large = format!(
        "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n",
        "x".repeat(sse::LARGEST_EVENT)
    );
    let small = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";
    let answer = format!("{small}{large}{small}");
    for hide_usage in [false, true] {
        let case = Case { hide_usage, ..Case::new(Dialect::OpenAiChat, Form::Events, &answer, "") };
        for size in [answer.len(), 1 << 20, 3 << 20, (8 << 20) + 1] {
            let found = run(&case, answer.as_bytes().chunks(size));
            assert_eq!(render(&found.pieces), "text hihi");
            assert!(found.forwarded == answer.as_bytes(), "in parts of {size}");
        }
    }
}

#[test]
fn calls_without_end_do_not_grow_without_end() {
    let mut reader = Reader::new(Dialect::OpenAiChat, Form::Events, false);
    let mut pieces = Vec::new();
    for index in 0..2000 {
        let event = format!(
            "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":{index},\"id\":\"{index}\",\"function\":{{\"name\":\"f\",\"arguments\":\"{{\"}}}}]}}}}]}}\n\n"
        );
        reader.push(event.as_bytes(), &mut pieces);
    }
    assert_eq!(pieces.len(), 2000 - 256);
    reader.finish(&mut pieces);
    assert_eq!(pieces.len(), 2000);
}

#[test]
fn no_nesting_hides_a_call() {
    let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
    let answer = format!(
        "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"functionCall\":{{\"name\":\"rm\",\"args\":{{\"path\":\"/\",\"deep\":{deep}}}}}}}]}}}}]}}\n\n"
    );
    let found = run(&Case::new(Dialect::Gemini, Form::Events, &answer, ""), [answer.as_bytes()]);
    let Some(Piece::ToolCall { name, arguments, .. }) = found.pieces.first() else { panic!() };
    assert_eq!((name.as_str(), &arguments["path"]), ("rm", &Value::from("/")));
}

#[test]
fn the_client_has_a_part_of_an_event() {
    let check = |form, hide_usage, bytes: &str, expected| {
        let mut reader = Reader::new(Dialect::OpenAiChat, form, hide_usage);
        reader.push(bytes.as_bytes(), &mut Vec::new());
        assert_eq!(reader.between_events(), expected, "{bytes:?}");
    };
    check(Form::Events, false, "", true);
    check(Form::Events, false, "data: x\n\n", true);
    check(Form::Events, false, "data: x\r\n\r", true);
    check(Form::Events, false, "data: x\n", false);
    check(Form::Events, true, "data: x\n", true);
    check(Form::Objects, false, "[{}", true);
    check(Form::Objects, false, "[{", false);
}

/// Bytes that come close to being an answer.
fn odd_bytes() -> impl Strategy<Value = Vec<u8>> {
    let tokens = prop::sample::select(vec![
        "data: ",
        "data:",
        "data",
        "\n",
        "\r",
        "\r\n",
        "\n\n",
        ": c",
        "event: x",
        "\u{feff}",
        "{",
        "}",
        "[",
        "]",
        "\"",
        "\\",
        ",",
        ":",
        "null",
        "1",
        "é",
        "[DONE]",
        "{\"choices\":[],\"usage\":{}}",
        "{\"choices\":[],\"usage\":{\"prompt_tokens\":1}}",
        "{\"choices\":[{\"delta\":{\"content\":\"x\"}}]}",
        "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}}]}",
        "{\"type\":\"content_block_start\",\"content_block\":{\"type\":\"tool_use\"}}",
        "{\"type\":\"content_block_stop\"}",
        "{\"type\":\"response.output_item.done\",\"item\":{\"type\":\"function_call\"}}",
        "{\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"f\"}}]}}]}",
    ]);
    let token = prop_oneof![
        8 => tokens.prop_map(|token| token.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..8),
    ];
    prop::collection::vec(token, 0..40).prop_map(|tokens| tokens.concat())
}

/// Events of chat and Anthropic streams, most of them like the one before, in forms that differ in
/// what matters and in what does not.
fn alike() -> impl Strategy<Value = Vec<(bool, String)>> {
    let word = prop::sample::select(vec![
        " word",
        "a",
        "",
        "ü",
        "\\n",
        "\\\"",
        "\",\"x\":\"y",
        "stop",
        "null",
        "\u{1F600}",
        "\\u00e9",
    ]);
    let form = prop::sample::select(vec![
        (false, r#"{"choices":[{"index":0,"delta":{"content":"@"},"finish_reason":null}]}"#),
        (false, r#"{"choices":[{"index":1,"delta":{"content":"@"},"finish_reason":null}]}"#),
        (false, r#"{"choices":[{"index":0,"delta":{"content":"@"},"finish_reason":"@"}]}"#),
        (false, r#"{"choices":[{"delta":{"content":"@","reasoning":"@"}}]}"#),
        (false, r#"{"choices":[{"delta":{"content":"@"}}],"obfuscation":"@"}"#),
        (false, r#"{"choices":[{"delta":{"content":"@"}}],"error":"@"}"#),
        (false, r#"{"choices":[{"delta":{"content":"@","content":"@"}}]}"#),
        (
            false,
            r#"{"choices":[{"delta":{"content":"x","tool_calls":[{"index":0,"function":{"name":"f","arguments":"@"}}]}}]}"#,
        ),
        (
            true,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"@"}}"#,
        ),
        (
            true,
            r#"{"type":"content_block_delta","index":0,"delta":{"partial_json":"@","text":"@"}}"#,
        ),
        (true, r#"{"type":"content_block_delta","index":0,"delta":{"text":"@"},"error":"@"}"#),
    ]);
    let event = (form, word.clone(), word).prop_map(|((anthropic, form), first, second)| {
        let event = form.replacen('@', first, 1).replace('@', second);
        (anthropic, format!("data: {event}\n\n"))
    });
    prop::collection::vec(event, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn an_event_means_the_same_whatever_came_before(events in alike()) {
        for dialect in [Dialect::OpenAiChat, Dialect::Anthropic] {
            let mut remembers = Reader::new(dialect, Form::Events, false);
            let mut forgets = Reader::new(dialect, Form::Events, false);
            for (anthropic, event) in &events {
                if *anthropic != (dialect == Dialect::Anthropic) {
                    continue;
                }
                if let Frame::Events { mould, .. } = &mut forgets.frame {
                    *mould = Mould::default();
                }
                let (mut told, mut expected) = (Vec::new(), Vec::new());
                remembers.push(event.as_bytes(), &mut told);
                forgets.push(event.as_bytes(), &mut expected);
                prop_assert_eq!(told, expected, "{}", event);
                prop_assert_eq!(remembers.output_so_far(), forgets.output_so_far());
            }
        }
    }

    #[test]
    fn any_bytes_in_any_parts(
        bytes in odd_bytes(),
        sizes in prop::collection::vec(1usize..30, 1..20),
    ) {
        let mut parts = Vec::new();
        let (mut rest, mut sizes) = (bytes.as_slice(), sizes.iter().cycle());
        while !rest.is_empty() {
            let size = sizes.next().copied().unwrap_or(1).min(rest.len());
            let (part, after) = rest.split_at(size);
            parts.push(part);
            rest = after;
        }
        for dialect in DIALECTS {
            for form in FORMS {
                for hide_usage in [false, true] {
                    let mut case = Case::new(dialect, form, "", "");
                    case.hide_usage = hide_usage;
                    let at_once = run(&case, [bytes.as_slice()]);
                    let in_parts = run(&case, parts.iter().copied());
                    prop_assert_eq!(render(&at_once.pieces), render(&in_parts.pieces));
                    prop_assert_eq!(&at_once.forwarded, &in_parts.forwarded);
                    prop_assert_eq!(at_once.usage, in_parts.usage);
                    prop_assert_eq!(at_once.output, in_parts.output);
                    if !hide_usage || form != Form::Events || dialect != Dialect::OpenAiChat {
                        prop_assert_eq!(&at_once.forwarded, &bytes);
                    }
                }
            }
        }
    }
}

/// Found by counting sizes: of 16 MiB of empty choices the reader built more than a gigabyte, and of numbers in the
/// arguments of a call 256 MiB.
#[test]
fn hole_04_what_is_built_is_bounded() {
    let check = |dialect: Dialect, before: &str, each: &str, after: &str| {
        for (times, expected) in [(1_000, false), (1 << 20, true)] {
            let document = format!("{before}{}{after}", each.repeat(times));
            let mut reader = Reader::new(dialect, Form::Json, false);
            let mut pieces = Vec::new();
            reader.push(document.as_bytes(), &mut pieces);
            reader.finish(&mut pieces);
            assert_eq!(reader.lost(), expected, "{times} times {each} in {before}");
        }
    };
    check(Dialect::OpenAiChat, r#"{"choices":["#, "{},", "{}]}");
    let call =
        r#"{"choices":[{"message":{"tool_calls":[{"id":"c","function":{"name":"a","arguments":"#;
    check(Dialect::OpenAiChat, &format!("{call}{{\"a\":["), "0,", "0]}}}]}}]}");
    check(Dialect::OpenAiChat, &format!("{call}\"{{\\\"a\\\":["), "0,", "0]}\"}}]}}]}");
    check(Dialect::OpenAiChat, r#"{"usage":{"prompt_tokens_details":{"a":["#, "{\"\":0},", "0]}}}");
    check(Dialect::OpenAiResponses, r#"{"output":["#, "{},", "{}]}");
    check(Dialect::Anthropic, r#"{"content":["#, "{},", "{}]}");
    let call = r#"{"content":[{"type":"tool_use","name":"a","input":{"a":["#;
    check(Dialect::Anthropic, call, "[],", "[]]}}]}");
    check(Dialect::Gemini, r#"{"candidates":["#, "{},", "{}]}");
    let call = r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"a","args":{"a":["#;
    check(Dialect::Gemini, call, "0,", "0]}}}]}}]}");
}
