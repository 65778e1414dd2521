//! Requests, dialect by dialect.

mod growth;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::llm::Api;
use crate::llm::{BodyHints, ToolResult};

const PATH: &str = "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse";

fn ask(dialect: Dialect, body: &Value, seen: &mut Seen) -> Request {
    read(dialect, PATH, body.to_string().as_bytes(), seen).unwrap()
}

/// What a first request brings: the words, whether a person said them, and the results as
/// `id=text`, with a `!` for errors.
fn check(
    dialect: Dialect,
    body: impl Into<Value>,
    words: Option<&str>,
    from_person: bool,
    results: &[&str],
) {
    let body = body.into();
    let request = ask(dialect, &body, &mut Seen::default());
    let shown: Vec<String> = request.results.iter().map(show).collect();
    assert_eq!(shown, results, "{body}");
    assert_eq!(request.from_person, from_person, "{body}");
    assert_eq!(request.prompt, words.map(TextFacts::of), "{body}");
}

fn show(result: &ToolResult) -> String {
    let name = result.name.as_deref().unwrap_or_default();
    format!("{}{name}{}={}", result.id, if result.is_error { "!" } else { "" }, result.text)
}

#[test]
fn bodies_tell_the_dialect_where_paths_do_not() {
    use Dialect::{Anthropic, AnthropicOther, Gemini, GeminiOther};
    use Dialect::{OpenAiChat, OpenAiOther, OpenAiResponses};
    let messages = r#"{"messages":[{"role":"user","content":"hi"}]}"#;
    let input = r#"{"model":"m","input":"hi"}"#;
    for (named, path, body, expected) in [
        (OpenAiOther, "/v2/talk", messages, OpenAiChat),
        (OpenAiOther, "/v2/talk", "\u{feff}{\"messages\":[]}", OpenAiChat),
        (OpenAiOther, "/v1/completions", r#"{"model":"m","prompt":"hi"}"#, OpenAiChat),
        (OpenAiOther, "/v2/talk", input, OpenAiResponses),
        // What only some servers read.
        (OpenAiOther, "/v2/talk", r#"{"odd":NaN,"messages":[]}"#, OpenAiChat),
        (OpenAiOther, "/v2/talk", r#"{"odd":"\ud800","messages":[]}"#, OpenAiChat),
        (OpenAiOther, "/v2/talk", r#"{"contents":[]}"#, Gemini),
        (AnthropicOther, "/v2/talk", messages, Anthropic),
        (GeminiOther, "/v2/talk", r#"{"contents":[]}"#, Gemini),
        (GeminiOther, "/v2/talk", messages, OpenAiChat),
        // What the path says stands, and so does what is known to be something else.
        (OpenAiResponses, "/v1/responses", messages, OpenAiResponses),
        (OpenAiOther, "/v1/moderations", input, OpenAiOther),
        (OpenAiOther, "/v1/audio/speech", input, OpenAiOther),
        (OpenAiOther, "/v2/talk", r#"{"input":"hi"}"#, OpenAiOther),
        (OpenAiOther, "/v2/talk", "no JSON", OpenAiOther),
        (AnthropicOther, "/v1/messages/count_tokens", messages, AnthropicOther),
    ] {
        let found = dialect_by_body(named, path, body.as_bytes());
        assert_eq!(found, expected, "{path} {body}");
    }
}

/// What a thread remembers of standing orders changes nothing, also where two have the same place.
#[test]
fn remembered_orders_are_masked_like_new_ones() {
    let orders = |n: usize| format!("You are {n}, it is 2026-11-20T00:{:02}:00Z, be nice", n % 60);
    let many: Vec<String> = (0..3 * REMEMBERED).map(orders).chain([String::new()]).collect();
    for _ in 0..2 {
        for orders in &many {
            assert_eq!(masked(orders), TextFacts::of(orders).digest, "{orders}");
            assert_eq!(masked(orders), TextFacts::of(orders).digest, "{orders}");
        }
    }
    assert_eq!(masked(&many[1]), masked(&many[61]), "only values differ");
    assert_ne!(masked(&many[1]), masked("You are someone else"));
}

#[test]
fn paths_that_climb_are_recognised() {
    for path in ["/..", "/v1/../x", "/%2e%2e/x", "/.%2E/x", "/%252e%252e/x", "/a/..;b/x", "/..%5cx"]
    {
        assert!(climbs(path), "{path}");
    }
    for path in ["/", "/v1/a..b", "/v1/...", "/./x", "/v1?next=../x"] {
        assert!(!climbs(path), "{path}");
    }
}

#[test]
fn paths_tell_the_dialect() {
    use Api::{Anthropic, Gemini, OpenAi};
    for (api, method, path, expected) in [
        (OpenAi, "POST", "/v1/chat/completions", Dialect::OpenAiChat),
        (OpenAi, "POST", "/chat/completions?api-version=1", Dialect::OpenAiChat),
        (OpenAi, "post", "//api/v1/chat/completions/", Dialect::OpenAiChat),
        (OpenAi, "POST", "/openai/deployments/gpt-4o/chat/completions", Dialect::OpenAiChat),
        (OpenAi, "POST", "/v1/responses", Dialect::OpenAiResponses),
        (OpenAi, "POST", "/v1/responses/resp_1/cancel", Dialect::OpenAiOther),
        (OpenAi, "GET", "/v1/responses", Dialect::OpenAiOther),
        (OpenAi, "POST", "/v1/embeddings", Dialect::OpenAiEmbeddings),
        (OpenAi, "POST", "/v1/completions", Dialect::OpenAiOther),
        (OpenAi, "POST", "/api/chat", Dialect::Ollama),
        (OpenAi, "POST", "/api/%67enerate/", Dialect::Ollama),
        (OpenAi, "POST", "/api/chat/completions", Dialect::OpenAiChat),
        (OpenAi, "GET", "/api/tags", Dialect::OpenAiOther),
        (OpenAi, "POST", "/v1/messages", Dialect::Anthropic),
        (OpenAi, "POST", "/v1/threads/t1/messages", Dialect::OpenAiOther),
        (OpenAi, "GET", "/v1/models", Dialect::OpenAiOther),
        (OpenAi, "POST", "", Dialect::OpenAiOther),
        (Anthropic, "POST", "/v1/messages", Dialect::Anthropic),
        (Anthropic, "POST", "/messages?beta=true", Dialect::Anthropic),
        (Anthropic, "POST", "/v1/messages/count_tokens", Dialect::AnthropicOther),
        (Anthropic, "POST", "/v1/messages/batches", Dialect::AnthropicOther),
        (Anthropic, "POST", "/v1/chat/completions", Dialect::OpenAiChat),
        (Gemini, "POST", "/v1beta/models/g:generateContent", Dialect::Gemini),
        (Gemini, "POST", "/models/g:streamGenerateContent?alt=sse", Dialect::Gemini),
        (Gemini, "POST", "/v1beta/models/g%3AgenerateContent", Dialect::Gemini),
        (Gemini, "POST", "/v1beta/models/g:countTokens", Dialect::GeminiOther),
        (Gemini, "POST", "/v1beta/openai/chat/completions", Dialect::OpenAiChat),
        (Gemini, "GET", "/v1beta/models", Dialect::GeminiOther),
        // Spellings that servers route all the same.
        (OpenAi, "POST", "/v1/%63hat/completions", Dialect::OpenAiChat),
        (OpenAi, "POST", "/v1/chat%2Fcompletions", Dialect::OpenAiChat),
        (OpenAi, "POST", "/v1/chat%2fcompletions%2f", Dialect::OpenAiChat),
        (OpenAi, "POST", "/v1/%2563hat/./completions//", Dialect::OpenAiChat),
        (OpenAi, "POST", "/v1/chat\\completions", Dialect::OpenAiChat),
        (OpenAi, "POST", "/v1/respons%65s", Dialect::OpenAiResponses),
        (Anthropic, "POST", "/v1/m%65ssages", Dialect::Anthropic),
        (Gemini, "POST", "/v1beta/models/g:generate%43ontent", Dialect::Gemini),
        (Gemini, "POST", "/v1beta%2Fmodels%2Fg%3AgenerateContent", Dialect::Gemini),
    ] {
        assert_eq!(dialect(api, method, path), expected, "{path}");
    }
    for (path, expected) in [
        ("/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse", Some("gemini-2.5-pro")),
        ("/v1beta/tunedModels/mine%3AgenerateContent", Some("mine")),
        ("/v1/projects/p/locations/l/publishers/google/models/g:x", Some("g")),
        ("/openai/deployments/my-gpt/chat/completions", Some("my-gpt")),
        ("/v1/chat/completions", None),
        ("/v1/models", None),
        ("/v1/models/:x", None),
    ] {
        assert_eq!(model_in_path(path).as_deref(), expected, "{path}");
    }
}

#[test]
fn what_stands_around_the_conversation() {
    let request = ask(
        Dialect::OpenAiChat,
        &json!({
            "model": "gpt-5", "stream": true, "max_completion_tokens": 100, "n": 3, "user": "ada",
            "stream_options": { "include_usage": true }, "prompt_cache_key": "k",
            "messages": [],
        }),
        &mut Seen::default(),
    );
    assert_eq!(
        (request.model.as_str(), request.stream, request.wants_usage),
        ("gpt-5", true, true)
    );
    assert_eq!(request.max_output, Some(Tokens(300)));
    assert_eq!(request.hints.safety_identifier.as_deref(), Some("ada"));
    assert_eq!(request.hints.prompt_cache_key.as_deref(), Some("k"));

    let request = ask(
        Dialect::OpenAiResponses,
        &json!({
            "model": "gpt-5", "max_output_tokens": 7, "previous_response_id": "resp_1",
            "safety_identifier": "s", "user": "u", "input": "go on please now",
        }),
        &mut Seen::default(),
    );
    assert_eq!((request.stream, request.max_output), (false, Some(Tokens(7))));
    assert_eq!(request.hints.previous_response_id.as_deref(), Some("resp_1"));
    assert_eq!(request.hints.safety_identifier.as_deref(), Some("s"));
    assert_eq!(request.hints.conversation, None);

    for (user_id, expected) in [
        (json!("user_1_session_2"), Some("user_1_session_2")),
        (json!({ "session_id": "x" }), Some(r#"{"session_id":"x"}"#)),
        (json!(7), None),
    ] {
        let body =
            json!({ "model": "claude", "max_tokens": 9, "metadata": { "user_id": user_id } });
        let request = ask(Dialect::Anthropic, &body, &mut Seen::default());
        assert_eq!(request.hints.metadata_user_id.as_deref(), expected);
        assert_eq!(request.max_output, Some(Tokens(9)));
    }

    let config = json!({ "maxOutputTokens": 5, "candidateCount": 2 });
    let snake = json!({ "max_output_tokens": 10 });
    for body in [json!({ "generationConfig": config }), json!({ "generation_config": snake })] {
        let request = ask(Dialect::Gemini, &body, &mut Seen::default());
        assert_eq!((request.model.as_str(), request.stream), ("gemini-2.5-pro", true));
        assert_eq!(request.max_output, Some(Tokens(10)));
    }
}

#[test]
fn openai_chat() {
    let chat = Dialect::OpenAiChat;
    let system = json!({ "role": "system", "content": "be brief" });
    let user = json!({ "role": "user", "content": "list the files" });
    let call = json!({ "role": "assistant", "content": null, "tool_calls": [{
        "id": "c1", "type": "function", "function": { "name": "ls", "arguments": "{}" } }] });
    let result = json!({ "role": "tool", "tool_call_id": "c1", "content": "a.txt\nb.txt" });
    check(chat, json!({ "messages": [system, user] }), Some("list the files"), true, &[]);
    check(
        chat,
        json!({ "messages": [system, user, call, result, { "role": "tool", "tool_call_id": "c2",
            "content": [{ "type": "text", "text": "x" }, { "type": "text", "text": "y" }] }] }),
        Some("a.txt b.txt x y"),
        false,
        &["c1=a.txt\nb.txt", "c2=x\ny"],
    );
    check(
        chat,
        json!({ "messages": [user, call, { "role": "function", "name": "ls", "content": "old" }] }),
        Some("old"),
        false,
        &["ls=old"],
    );
    // An answer that was begun for the model is no turn of its own.
    let begun = json!({ "role": "assistant", "content": "Sure:" });
    check(chat, json!({ "messages": [user, begun] }), Some("list the files"), true, &[]);
    check(chat, json!({ "messages": [begun] }), None, false, &[]);
    check(chat, json!({ "messages": "what?" }), Some("what?"), true, &[]);
    check(chat, json!({ "model": 7, "messages": [1, null, "x", {}] }), None, false, &[]);
    check(chat, json!({}), None, false, &[]);
    let image = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,AA" } });
    let marker = attachment::marker("image_url", &image.to_string());
    check(
        chat,
        json!({ "messages": [{ "role": "user",
            "content": [{ "type": "text", "text": "what is this" }, image] }] }),
        Some(&format!("what is this {marker}")),
        true,
        &[],
    );
}

#[test]
fn openai_responses() {
    let responses = Dialect::OpenAiResponses;
    check(responses, json!({ "input": "hello out there" }), Some("hello out there"), true, &[]);
    let user =
        json!({ "role": "user", "content": [{ "type": "input_text", "text": "do it now" }] });
    let call = json!({ "type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}" });
    let thought = json!({ "type": "reasoning", "id": "r", "summary": [] });
    let result = json!({ "type": "function_call_output", "call_id": "c1", "output": "done" });
    check(
        responses,
        json!({ "instructions": "be brief", "input": [user, thought, call, result] }),
        Some("done"),
        false,
        &["c1=done"],
    );
    let parts = json!([{ "type": "input_text", "text": "p" }]);
    check(
        responses,
        json!({ "previous_response_id": "resp_1", "input": [
            { "type": "custom_tool_call_output", "call_id": "c2", "output": parts },
            call, result,
            { "type": "message", "role": "developer", "content": "psst" },
            { "type": "message", "role": "user", "content": "and now this" },
        ] }),
        Some("p done and now this"),
        true,
        &["c2=p", "c1=done"],
    );
    let shot = json!({ "type": "computer_screenshot", "image_url": "data:…" });
    let marker = attachment::marker("computer_screenshot", &shot.to_string());
    check(
        responses,
        json!({ "input": [{ "type": "computer_call_output", "call_id": "c", "output": shot }] }),
        Some(&marker),
        false,
        &[&format!("c={marker}")],
    );
}

#[test]
fn anthropic_messages() {
    let user = json!({ "role": "user", "content": "fix the bug" });
    let call = json!({ "role": "assistant", "content": [
        { "type": "tool_use", "id": "t1", "name": "Bash", "input": { "command": "make" } }] });
    let result =
        |blocks: Value| json!({ "messages": [user, call, { "role": "user", "content": blocks }] });
    check(Dialect::Anthropic, json!({ "messages": [user] }), Some("fix the bug"), true, &[]);
    let failed = json!({ "type": "tool_result", "tool_use_id": "t1", "is_error": true,
        "content": [{ "type": "text", "text": "no rule" }] });
    check(
        Dialect::Anthropic,
        result(json!([failed, { "type": "tool_result", "tool_use_id": "t2" }])),
        Some("no rule"),
        false,
        &["t1!=no rule", "t2="],
    );
    let reminder = json!({ "type": "text", "text": "<system-reminder>x y z</system-reminder>" });
    check(
        Dialect::Anthropic,
        result(json!([failed, reminder])),
        Some("no rule"),
        false,
        &["t1!=no rule"],
    );
    check(
        Dialect::Anthropic,
        result(json!([failed, { "type": "text", "text": "try again please" }])),
        Some("no rule try again please"),
        true,
        &["t1!=no rule"],
    );
}

#[test]
fn gemini_contents() {
    let user = json!({ "role": "user", "parts": [{ "text": "book a table" }] });
    let call =
        json!({ "role": "model", "parts": [{ "functionCall": { "name": "book", "args": {} } }] });
    check(Dialect::Gemini, json!({ "contents": [user] }), Some("book a table"), true, &[]);
    // As Google's Code Assist wraps it.
    let wrapped = json!({ "model": "g", "request": { "contents": [user] } });
    check(Dialect::Gemini, wrapped, Some("book a table"), true, &[]);
    check(
        Dialect::Gemini,
        json!({ "contents": [{ "parts": [{ "text": "no role" }] }] }),
        Some("no role"),
        true,
        &[],
    );
    let answer = |response: Value| {
        json!({ "contents": [user, call, { "role": "user", "parts": [
            { "functionResponse": { "id": "f1", "name": "book", "response": response } }] }] })
    };
    check(Dialect::Gemini, answer(json!({ "result": "ok" })), Some("ok"), false, &["f1book=ok"]);
    check(
        Dialect::Gemini,
        answer(json!({ "error": "full" })),
        Some("full"),
        false,
        &["f1book!=full"],
    );
    let data = json!({ "table": 7 });
    check(Dialect::Gemini, answer(data), Some(r#"{"table":7}"#), false, &[r#"f1book={"table":7}"#]);
    check(
        Dialect::Gemini,
        json!({ "contents": [user, call, { "role": "function", "parts": [
            { "function_response": { "name": "book", "response": { "output": "x" } } }] }] }),
        Some("x"),
        false,
        &["book=x"],
    );
}

#[test]
fn pictures_are_not_counted_by_their_size() {
    let picture = json!({ "type": "image", "source": { "type": "base64",
        "data": format!("iVBORw0KGgo{}", "A1b2".repeat(100_000)) } });
    let mut list = vec![json!({ "role": "user", "content": [picture] })];
    let mut seen = Seen::default();
    for turn in 0..5 {
        let request = ask(Dialect::Anthropic, &json!({ "messages": list }), &mut seen);
        assert!((2000..2300).contains(&request.input.0), "turn {turn}: {:?}", request.input);
        list.push(json!({ "role": "assistant", "content": "nice" }));
        list.push(json!({ "role": "user", "content": "thank you" }));
    }
    let plain = br#"{"model":"m"}"#;
    let open = read(Dialect::OpenAiEmbeddings, "/v1/embeddings", plain, &mut Seen::default());
    assert_eq!(open.unwrap().input, Tokens(5));
}

#[test]
fn conversations_are_told_apart_by_how_they_begin() {
    let hint = |system: &str, first: &str, more: usize| {
        let mut list = vec![json!({ "role": "user", "content": first })];
        list.extend((0..more).map(|i| json!({ "role": "assistant", "content": i.to_string() })));
        let body = json!({ "system": system, "messages": list }).to_string();
        let opened = open(Dialect::Anthropic, "/v1/messages", body.as_bytes()).unwrap();
        opened.request().hints.conversation.unwrap()
    };
    let orders = "You are kind. It is 2026-01-01T10:00:00Z.";
    assert_eq!(hint(orders, "fix issue 12", 0), hint(orders, "fix issue 12", 5));
    assert_eq!(
        hint(orders, "fix issue 12", 0),
        hint("You are kind. It is 2026-01-01T10:05:09Z.", "fix issue 12", 1)
    );
    assert_ne!(hint(orders, "fix issue 12", 0), hint(orders, "fix issue 13", 0));
    assert_ne!(hint(orders, "fix issue 12", 0), hint("You are a cat.", "fix issue 12", 0));
}

#[test]
fn bodies_that_cannot_be_read() {
    let bad = |body: &[u8]| read(Dialect::OpenAiChat, "", body, &mut Seen::default()).unwrap_err();
    assert!(matches!(bad(&[0xff, 0xfe]), BadRequest::NotText(_)));
    assert!(matches!(bad(b"[]"), BadRequest::NotJson(_)));
    assert!(matches!(bad(b""), BadRequest::NotJson(_)));
    assert!(bad(b"{").to_string().starts_with("the body is not a JSON object"));
    for (dialect, path, body, input) in [
        (Dialect::OpenAiOther, "/v1/models", &b""[..], 0),
        (Dialect::OpenAiOther, "/v1/audio", b"--boundary\xff", 0),
        (Dialect::OpenAiOther, "/v1/completions", br#"{"model":"m","prompt":"hi"}"#, 9),
        (Dialect::AnthropicOther, "/v1/messages/count_tokens", br#"{"model":"m"}"#, 0),
        (Dialect::GeminiOther, "/v1beta/models/g:countTokens", br#"{"contents":[]}"#, 0),
    ] {
        let request = read(dialect, path, body, &mut Seen::default()).unwrap();
        assert_eq!((request.input, request.hints), (Tokens(input), BodyHints::default()), "{path}");
    }
    // Deeper than serde_json would build a tree.
    let deep = format!(r#"{{"messages":[{}{}]}}"#, "[".repeat(50_000), "]".repeat(50_000));
    assert!(read(Dialect::OpenAiChat, "", deep.as_bytes(), &mut Seen::default()).is_ok());
}

#[test]
fn usage_is_asked_for_in_chat_only() {
    let body = br#"{"stream":true}"#;
    let asked = |dialect| open(dialect, "", body).unwrap().with_usage();
    assert_eq!(asked(Dialect::OpenAiChat), with_usage(body));
    assert!(asked(Dialect::OpenAiChat).is_some());
    assert!(asked(Dialect::Anthropic).is_none());
}

const ALL: [Dialect; 8] = [
    Dialect::OpenAiChat,
    Dialect::OpenAiResponses,
    Dialect::OpenAiEmbeddings,
    Dialect::OpenAiOther,
    Dialect::Anthropic,
    Dialect::AnthropicOther,
    Dialect::Gemini,
    Dialect::GeminiOther,
];

/// Something like a request: the right keys with anything in them.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
        prop::sample::select(&["user", "tool", "assistant", "tool_result", "text", "model"][..])
            .prop_map(Value::from),
    ];
    let keys = [
        "messages",
        "input",
        "contents",
        "parts",
        "role",
        "type",
        "content",
        "text",
        "output",
        "functionResponse",
        "response",
        "system",
        "metadata",
        "user_id",
        "stream",
        "stream_options",
        "max_tokens",
        "n",
        "tool_use_id",
        "call_id",
    ];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        let key = prop::sample::select(keys.to_vec()).prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::hash_map(key, inner, 0..6).prop_map(Value::from_iter),
        ]
    })
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300), path in ".{0,60}") {
        for dialect in ALL {
            let _ = read(dialect, &path, &bytes, &mut Seen::default());
        }
        let _ = (super::dialect(Api::OpenAi, "POST", &path), model_in_path(&path));
    }

    #[test]
    fn any_json_is_survived(value in anything(), other in anything()) {
        for dialect in ALL {
            let mut seen = Seen::default();
            for value in [&value, &other, &value] {
                let _ = read(dialect, PATH, value.to_string().as_bytes(), &mut seen);
            }
        }
        let _ = with_usage(value.to_string().as_bytes());
    }

    #[test]
    fn a_body_cut_anywhere_is_survived(cut in 0usize..2000) {
        let body = growth::history(Dialect::Anthropic, 12, "fill").to_string();
        let cut = body.floor_char_boundary(cut.min(body.len()));
        let _ = read(Dialect::Anthropic, "", &body.as_bytes()[..cut], &mut Seen::default());
    }
}
