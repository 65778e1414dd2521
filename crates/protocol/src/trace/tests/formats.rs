//! The formats that are lists of messages.

use super::*;

#[test]
fn traces_on_lines() {
    check(
        r#"
{"dataset":"demo","id":"a/1","model":"gpt-4o","task":"list","outcome":true,"labels":{"futile_run":2},"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"List /tmp"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"ls","arguments":"{\"path\":\"/tmp\"}"}}],"ts":"2026-02-12T14:01:05.531Z","usage":{"in":2,"cache_r":46777,"cache_w":1010,"out":7}},{"role":"tool","tool_call_id":"c1","content":"denied","is_error":true,"ts":"2026-02-12T14:01:06Z"},{"role":"assistant","content":"It is closed."}]}

{"dataset":"demo","id":2,"model":null,"task":null,"outcome":null,"labels":null,"messages":[]}
"#,
        r#"
a/1 (5 messages) dataset=demo model=gpt-4o task=list outcome=true labels={"futile_run":2}
1 system: "Be brief."
2 person: "List /tmp"
3 answer: "" @1770904865531 in=2 out=7 read=46777 write=1010
  3 ls{"path":"/tmp"} ! "denied" in 4 @1770904866000
5 answer: "It is closed."
2 (0 messages) dataset=demo"#
            .trim_start(),
    );
}

#[test]
fn openai_messages_in_any_wrapping() {
    let list = r#"[{"role":"developer","content":[{"type":"text","text":"a"},"b"]},
      {"role":"user","content":"hi"},
      {"role":"assistant","content":"yes"}]"#;
    let one_line = list.replace('\n', " ");
    let turns = "1 system: \"a\\nb\"\n2 person: \"hi\"\n3 answer: \"yes\"\n";
    let named = format!("m (3 messages) model=gpt\n{turns}");
    let object = |list: &str| format!(r#"{{"id": "m", "model": "gpt", "messages": {list}}}"#);
    for (file, expected) in [
        (one_line.clone(), format!("line-1 (3 messages)\n{turns}")),
        (list.to_owned(), format!("line-1 (3 messages)\n{turns}")),
        (format!("\u{feff}{list}"), format!("line-1 (3 messages)\n{turns}")),
        (format!("\n\n{list}\n\n"), format!("line-3 (3 messages)\n{turns}")),
        (object(&one_line), named.clone()),
        (object(list), named.clone()),
        (object(&one_line).replace(", \"", ",\n\"").replace('{', "{\n"), named.clone()),
        (
            format!("{one_line}\n{}\r\n{one_line}", object(&one_line)),
            format!("line-1 (3 messages)\n{turns}{named}line-3 (3 messages)\n{turns}"),
        ),
        // Several documents after each other.
        (format!("{list}\n{}", object(list)), format!("line-1 (3 messages)\n{turns}{named}")),
        (format!("{list}\n\n{list}"), {
            format!("line-1 (3 messages)\n{turns}line-5 (3 messages)\n{turns}")
        }),
        // A list of traces.
        (
            format!("[{},\n{{\"messages\":{list}}}]", object(list)),
            format!("{named}line-1-2 (3 messages)\n{turns}"),
        ),
        // A message a line.
        (
            one_line[1..one_line.len() - 1].replace("},       {", "}\n{"),
            format!("line-1 (3 messages)\n{turns}"),
        ),
        ("[]".to_owned(), String::new()),
    ] {
        check(&file, &expected);
    }
}

#[test]
fn arguments_are_read_as_far_as_they_are_json() {
    for (arguments, expected) in [
        (json!("{\"a\": [1, 2.50]}"), r#"{"a":[1,2.5]}"#),
        (json!("ls -l"), r#""ls -l""#),
        (json!("7"), "7"),
        (json!(""), "{}"),
        (json!(" "), "{}"),
        (json!(null), "{}"),
        (json!({"a": 1}), r#"{"a":1}"#),
        (json!("{\"cut\": "), r#""{\"cut\": ""#),
    ] {
        for call in [
            json!({"id": "c", "function": {"name": "f", "arguments": arguments}}),
            json!({"id": "c", "name": "f", "arguments": arguments}),
            json!({"id": "c", "type": "custom", "custom": {"name": "f", "input": arguments}}),
        ] {
            let file = json!([{"role": "assistant", "tool_calls": [call]}]);
            let expected = format!("line-1 (1 messages)\n1 answer: \"\"\n  1 f{expected}");
            check(&file.to_string(), &expected);
        }
    }
}

#[test]
fn results_find_their_calls() {
    let ask = |ids: &[&str]| {
        let calls = ids.iter().enumerate();
        let call = |(n, id): (usize, &&str)| json!({"id": id, "function": {"name": n.to_string()}});
        json!({"role": "assistant", "tool_calls": calls.map(call).collect::<Vec<_>>()})
    };
    let tell = |id: &str, text: &str| json!({"role": "tool", "tool_call_id": id, "content": text});
    for (messages, expected) in [
        // Out of order.
        (
            json!([ask(&["a", "b"]), tell("b", "B"), tell("a", "A")]),
            "1 answer: \"\"\n  1 0{} = \"A\" in 3\n  1 1{} = \"B\" in 2",
        ),
        // The same id again: the latest answer that waits for it.
        (
            json!([ask(&["a"]), ask(&["a"]), tell("a", "2"), tell("a", "1"), tell("a", "?")]),
            "1 answer: \"\"\n  1 0{} = \"1\" in 4\n2 answer: \"\"\n  2 0{} = \"2\" in 3",
        ),
        // The same id twice in one answer: in order.
        (
            json!([ask(&["a", "a"]), tell("a", "1"), tell("a", "2")]),
            "1 answer: \"\"\n  1 0{} = \"1\" in 2\n  1 1{} = \"2\" in 3",
        ),
        // No ids at all.
        (
            json!([ask(&["", ""]), tell("", "1"), {"role": "tool", "content": "2"}]),
            "1 answer: \"\"\n  1 0{} = \"1\" in 2\n  1 1{} = \"2\" in 3",
        ),
        // No such call, no result.
        (json!([tell("x", "1"), ask(&["a"])]), "2 answer: \"\"\n  2 0{}"),
    ] {
        let count = messages.as_array().unwrap().len();
        check(&messages.to_string(), &format!("line-1 ({count} messages)\n{expected}"));
    }
}

#[test]
fn content_of_every_kind() {
    for (content, expected) in [
        (json!("words"), "words"),
        (json!(null), ""),
        (json!([]), ""),
        (json!([null, "a", {"type": "text", "text": "b"}]), "a\nb"),
        (json!([{"type": "output_text", "text": "a"}]), "a"),
        (json!([{"type": "refusal", "refusal": "no"}]), "no"),
        (json!([{"type": "thinking", "thinking": "hm", "signature": "x"}]), ""),
        (json!([{"type": "redacted_thinking", "data": "x"}]), ""),
        (json!({"degrees": 5}), "{\"degrees\":5}"),
        (json!(5), "5"),
        (json!(-5), "-5"),
        (json!(true), "true"),
    ] {
        let file = json!([
            {"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": content},
        ]);
        let expected =
            format!("line-1 (2 messages)\n1 answer: \"\"\n  1 f{{}} = {expected:?} in 2");
        check(&file.to_string(), &expected);
    }
}

#[test]
fn two_different_images_stay_different() {
    let text = |media: Value| {
        let file = json!([{"role": "user", "content": [media, "Look"]}]).to_string();
        let trace = Reader::new(file.as_bytes()).next().unwrap().unwrap();
        let Some(Turn::Prompt { text, .. }) = trace.turns.into_iter().next() else { panic!() };
        text
    };
    let images: [fn(&str) -> Value; 3] = [
        |data| json!({"type": "image", "source": {"data": data}}),
        |url| json!({"type": "image_url", "image_url": {"url": url}}),
        |data| json!({"type": "image", "data": data, "mimeType": "image/png"}),
    ];
    for image in images {
        let [one, again, two] = ["one", "one", "two"].map(|data| text(image(data)));
        assert_eq!(one, again);
        assert_ne!(one, two);
        assert!(one.starts_with("[image") && one.ends_with("]\nLook"), "{one}");
    }
}

#[test]
fn anthropic_messages() {
    check(
        r#"{"model":"claude-sonnet-4","system":[{"type":"text","text":"Be brief."}],"messages":[
          {"role":"user","content":"Go"},
          {"role":"assistant","content":[{"type":"thinking","thinking":"…"},{"type":"text","text":"I look."},
            {"type":"tool_use","id":"t1","name":"Read","input":{"path":"a"}},
            {"type":"tool_use","id":"t2","name":"Bash","input":{"command":"false"}}],
            "usage":{"input_tokens":10,"output_tokens":5,"cache_read_input_tokens":100,"cache_creation_input_tokens":20}},
          {"role":"user","content":[
            {"type":"tool_result","tool_use_id":"t2","is_error":true,"content":[{"type":"text","text":"exit 1"}]},
            {"type":"tool_result","tool_use_id":"t1","content":"text of a"}]},
          {"role":"assistant","content":[{"type":"server_tool_use","id":"s1","name":"web_search","input":{"query":"q"}},
            {"type":"web_search_tool_result","tool_use_id":"s1","content":[{"type":"text","text":"found"}]}]},
          {"role":"user","content":[{"type":"text","text":"Stop"}]}]}"#,
        r#"line-1 (5 messages) model=claude-sonnet-4
0 system: "Be brief."
1 person: "Go"
2 answer: "I look." in=10 out=5 read=100 write=20
  2 Read{"path":"a"} = "text of a" in 3
  2 Bash{"command":"false"} ! "exit 1" in 3
4 answer: ""
  4 web_search{"query":"q"} = "found" in 4
5 person: "Stop""#,
    );
}

#[test]
fn openai_response_items() {
    check(
        r#"[{"type":"message","role":"user","content":[{"type":"input_text","text":"Go"}]},
          {"type":"reasoning","summary":[]},
          {"type":"message","role":"assistant","content":[{"type":"output_text","text":"I look."}]},
          {"type":"function_call","call_id":"a","name":"ls","arguments":"{\"d\":1}"},
          {"type":"custom_tool_call","call_id":"b","name":"sh","input":"ls"},
          {"type":"function_call_output","call_id":"a","output":"x"},
          {"type":"custom_tool_call_output","call_id":"b","output":[{"type":"input_text","text":"y"}]},
          {"type":"function_call","call_id":"c","name":"ls","arguments":"{}"}]"#,
        r#"line-1 (8 messages)
1 person: "Go"
3 answer: "I look."
  4 ls{"d":1} = "x" in 6
  5 sh"ls" = "y" in 7
8 answer: ""
  8 ls{}"#,
    );
}

#[test]
fn usage_is_in_disjoint_parts() {
    let usage = |[input, output, cache_read, cache_write]: [u64; 4]| {
        let [input, output] = [input, output].map(Tokens);
        let [cache_read, cache_write] = [cache_read, cache_write].map(Tokens);
        Some(Usage { input, output, cache_read, cache_write })
    };
    for (written, expected) in [
        (json!({"prompt_tokens": 100, "completion_tokens": 7}), usage([100, 7, 0, 0])),
        (
            json!({"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107,
                   "prompt_tokens_details": {"cached_tokens": 60}}),
            usage([40, 7, 60, 0]),
        ),
        (
            json!({"input_tokens": 100, "output_tokens": 7,
                   "input_tokens_details": {"cached_tokens": 60}}),
            usage([40, 7, 60, 0]),
        ),
        (
            json!({"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 3,
                   "cache_creation_input_tokens": 4, "service_tier": "standard"}),
            usage([1, 2, 3, 4]),
        ),
        (json!({"in": 1, "out": 2, "cache_r": 3, "cache_w": 4}), usage([1, 2, 3, 4])),
        (json!({"input_tokens": null, "output_tokens": 2.0}), usage([0, 2, 0, 0])),
        (json!({"prompt_tokens": -5, "completion_tokens": "many"}), usage([0, 0, 0, 0])),
        (
            json!({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}}),
            usage([0, 0, 9, 0]),
        ),
        (json!({"prompt_tokens_details": null}), None),
        (json!({}), None),
        (json!(null), None),
    ] {
        let file = json!([{"role": "assistant", "content": "x", "usage": written}]).to_string();
        let trace = Reader::new(file.as_bytes()).next().unwrap().unwrap();
        let Turn::Answer { usage, .. } = &trace.turns[0] else { panic!() };
        assert_eq!(*usage, expected, "{written}");
    }
}

#[test]
fn odd_fields_do_not_cost_a_trace() {
    for (field, value, expected) in [
        ("ts", json!("2026-02-12T14:01:05.531+01:00"), " @1770901265531"),
        ("ts", json!(1_770_904_865), " @1770904865000"),
        ("ts", json!(1_770_904_865.5), " @1770904865500"),
        ("ts", json!(1_770_904_865_531_u64), " @1770904865531"),
        ("timestamp", json!("2026-02-12T14:01:05Z"), " @1770904865000"),
        ("ts", json!("yesterday"), ""),
        ("ts", json!("1950-01-01T00:00:00Z"), ""),
        ("ts", json!({"seconds": 1}), ""),
        ("model", json!(["m"]), ""),
        ("tool_calls", json!(null), ""),
        ("tool_calls", json!([]), ""),
        ("function_call", json!(null), ""),
        ("uuid", json!({"a": [1, {"b": null}]}), ""),
    ] {
        let mut message = json!({"role": "assistant", "content": "x"});
        message[field] = value;
        let file = json!([message]).to_string();
        check(&file, &format!("line-1 (1 messages)\n1 answer: \"x\"{expected}"));
    }
    let answer = r#"{"role": "assistant", "model": "m", "content": "x"}"#;
    let shown = "1 answer: \"x\" by m";
    check(&format!("[{answer}]"), &format!("line-1 (1 messages) model=m\n{shown}"));
    let named = format!(r#"{{"model": "n", "messages": [{answer}]}}"#);
    check(&named, &format!("line-1 (1 messages) model=n\n{shown}"));
    for (outcome, expected) in [
        (json!(true), " outcome=true"),
        (json!(0), " outcome=false"),
        (json!(1.0), " outcome=true"),
        (json!(0.0), " outcome=false"),
        (json!(0.5), ""),
        (json!("maybe"), ""),
    ] {
        let file = json!({"id": "i", "outcome": outcome, "messages": [{"content": "no role"}]});
        check(&file.to_string(), &format!("i (1 messages){expected}"));
    }
}
