//! Refusals and last words, dialect by dialect.

use deadstop_core::{Context, Ends, GuardId, Millis, NanoUsd, ScopeKind, Tokens, Verdict};

use super::*;

const DIALECTS: [Dialect; 8] = [
    Dialect::OpenAiChat,
    Dialect::OpenAiResponses,
    Dialect::OpenAiEmbeddings,
    Dialect::OpenAiOther,
    Dialect::Anthropic,
    Dialect::AnthropicOther,
    Dialect::Gemini,
    Dialect::GeminiOther,
];

fn trip(guard: GuardId, verdict: Verdict) -> Trip {
    Trip {
        advice: None,
        streak: None,
        guard,
        reason: "repetition".into(),
        verdict,
        ends: Ends::Session,
        drains: false,
        measured: Measure::Count(3),
        limit: Measure::Count(3),
        evidence: vec![1, 2],
        signals: Vec::new(),
        window: None,
        waits: None,
        because: "read_file \"a\" 3 times\nin 12 s".into(),
        context: Context {
            who: "s1".into(),
            kind: ScopeKind::Session,
            depth: 2,
            input: Tokens(0),
            output: Tokens(0),
            elapsed: Millis(0),
            accumulated_input: Tokens(0),
            accumulated_output: Tokens(0),
        },
    }
}

fn header<'r>(refusal: &'r Refusal, name: &str) -> Option<&'r str> {
    refusal.headers.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_str())
}

#[test]
fn an_end_is_never_a_status_that_is_retried() {
    use GuardId::*;
    for (guard, verdict, status) in [
        (Killed, Verdict::Kill, 403),
        (Paused, Verdict::Block, 403),
        (Access, Verdict::Block, 403),
        (Steps, Verdict::Kill, 402),
        (Tokens, Verdict::Block, 402),
        (Budget, Verdict::Kill, 402),
        (Time, Verdict::Kill, 402),
        (Velocity, Verdict::Block, 429),
        (Velocity, Verdict::Kill, 403),
        (Breaker, Verdict::Block, 429),
        (Breaker, Verdict::Kill, 403),
        (Destructive, Verdict::Block, 403),
        (Loop, Verdict::Kill, 403),
        (Similarity, Verdict::Kill, 403),
        (TextLoop, Verdict::Kill, 403),
        (Strikes, Verdict::Kill, 403),
    ] {
        for dialect in DIALECTS {
            let refusal = refuse(dialect, Client::Other, &trip(guard, verdict), Some("inc_1"));
            assert_eq!(refusal.status, status, "{guard}");
            let throttled = status == 429;
            let no_retry = (!throttled).then_some("false");
            assert_eq!(header(&refusal, "x-should-retry"), no_retry, "{guard}");
            assert_eq!(header(&refusal, "retry-after").is_some(), throttled, "{guard}");
            assert_eq!(header(&refusal, "x-deadstop-guard"), Some(guard.name()));
        }
    }
    let mut later = trip(Killed, Verdict::Kill);
    for limit in [Steps, Tokens, Budget, Time] {
        later.reason = limit.refusal().into();
        assert_eq!(refuse(Dialect::OpenAiChat, Client::Other, &later, None).status, 402, "{limit}");
    }
}

/// Claude Code and Copilot CLI asked to log in after a 403, Codex retried it, and programs around
/// LiteLLM backed off for minutes.
#[test]
fn a_client_is_refused_in_a_way_that_it_does_not_retry() {
    for (client, ends, used_up, held_back, words) in [
        (Client::Other, 403, 402, 429, None),
        (Client::ClaudeCode, 451, 402, 429, None),
        (Client::Copilot, 451, 402, 429, None),
        (Client::Codex, 400, 400, 429, None),
        (Client::GenAiNode, 403, 402, 429, None),
        (Client::RawPython, 403, 402, 429, Some("invalid_request_error, model_not_found")),
    ] {
        let refused = |guard| {
            refuse(Dialect::OpenAiChat, client, &trip(guard, Verdict::Block), Some("inc_1"))
        };
        let all = [GuardId::Loop, GuardId::Budget, GuardId::Velocity].map(refused);
        let status = all.each_ref().map(|refusal| refusal.status);
        assert_eq!(status, [ends, used_up, held_back], "{client:?}");
        for (refusal, words) in all.iter().zip([words, words, None]) {
            let body: Value = serde_json::from_slice(&refusal.body).unwrap();
            assert_eq!(body["error"]["final"].as_str(), words, "{client:?}");
        }
    }
}

#[test]
fn bodies_have_the_providers_shape() {
    let trip = trip(GuardId::Loop, Verdict::Kill);
    let message = "Deadstop stopped this session: read_file \"a\" 3 times\nin 12 s. Do not retry.";
    for dialect in DIALECTS {
        let refusal = refuse(dialect, Client::Other, &trip, Some("inc_1"));
        assert_eq!(refusal.content_type, "application/json");
        let body: Value = serde_json::from_slice(&refusal.body).unwrap();
        let error = &body["error"];
        assert_eq!(error["message"], message);
        assert_eq!(
            error["deadstop"],
            json!({
                "guard": "loop", "reason": "repetition", "verdict": "kill", "incident": "inc_1",
                "measured": { "unit": "count", "value": 3 },
                "limit": { "unit": "count", "value": 3 },
                "scope": { "kind": "session", "name": "s1" },
            })
        );
        match family(dialect) {
            Family::OpenAi => {
                assert_eq!(error["type"], "permission_error");
                assert_eq!(error["code"], "repetition");
                assert!(error["param"].is_null());
            }
            Family::Anthropic => {
                assert_eq!(
                    (&body["type"], &error["type"]),
                    (&json!("error"), &json!("permission_error"))
                );
            }
            Family::Gemini => {
                assert_eq!(error["code"], 403);
                assert_eq!(error["status"], "PERMISSION_DENIED");
                assert_eq!(error["details"][0]["reason"], "repetition");
            }
            Family::Ollama => unreachable!("its errors are texts"),
        }
    }
}

/// Its clients read a text.
#[test]
fn ollamas_errors_are_texts() {
    let trip = trip(GuardId::Loop, Verdict::Kill);
    let message = "Deadstop stopped this session: read_file \"a\" 3 times\nin 12 s. Do not retry.";
    let body: Value =
        serde_json::from_slice(&refuse(Dialect::Ollama, Client::Other, &trip, Some("inc_1")).body)
            .unwrap();
    assert_eq!((&body["error"], &body["deadstop"]["guard"]), (&json!(message), &json!("loop")));
    let line = stream_error(Dialect::Ollama, Client::Other, &trip, None);
    assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1, "one line");
    let line = stream_failed(Dialect::Ollama, 503, "away");
    assert_eq!(line, b"{\"error\":\"away\"}\n");
    for stream in [false, true] {
        let said = message_of(&trip, stream);
        assert_eq!((&said["message"]["content"], &said["done"]), (&json!(message), &json!(true)));
    }
}

fn message_of(trip: &Trip, stream: bool) -> Value {
    let refusal = super::message(Dialect::Ollama, stream, "m", trip);
    assert_eq!(refusal.status, 200);
    serde_json::from_slice(&refusal.body).unwrap()
}

#[test]
fn waiting_takes_as_long_as_it_must() {
    let at = |guard, measured, limit| {
        let trip = Trip { measured, limit, ..trip(guard, Verdict::Block) };
        let refusal = refuse(Dialect::Anthropic, Client::Other, &trip, None);
        header(&refusal, "retry-after").unwrap().parse::<u64>().unwrap()
    };
    let time = |ms| Measure::Time(Millis(ms));
    let money = |nano| Measure::Money(NanoUsd(nano));
    assert_eq!(at(GuardId::Breaker, time(10_001), time(30_000)), 20);
    assert_eq!(at(GuardId::Breaker, time(31_000), time(30_000)), 1);
    assert_eq!(at(GuardId::Velocity, money(200), money(100)), 30);
    assert_eq!(at(GuardId::Velocity, money(101), money(100)), 5);
    assert_eq!(at(GuardId::Velocity, money(u64::MAX), money(0)), 60);
    let tokens = |n| Measure::Tokens(Tokens(n));
    assert_eq!(at(GuardId::Velocity, tokens(400), tokens(100)), 45);
}

#[test]
fn headers_are_safe_to_send() {
    let mut odd = trip(GuardId::Loop, Verdict::Kill);
    odd.reason = "a\r\nx-evil: 1".into();
    let refusal = refuse(Dialect::OpenAiChat, Client::Other, &odd, Some("ü"));
    assert_eq!(header(&refusal, "x-deadstop-reason"), None);
    assert_eq!(header(&refusal, "x-deadstop-incident"), None);
}

/// The events of a stream: name and data.
fn events(body: &[u8]) -> Vec<(Option<String>, String)> {
    let text = String::from_utf8(body.to_vec()).unwrap().replace("\r\n", "\n");
    assert!(text.ends_with("\n\n"));
    let event = |block: &str| {
        let line =
            |field: &str| block.lines().find_map(|l| Some(l.strip_prefix(field)?.to_owned()));
        assert!(block.lines().all(|l| l.starts_with("event: ") || l.starts_with("data: ")));
        (line("event: "), line("data: ").unwrap())
    };
    text.trim_end().split("\n\n").map(event).collect()
}

#[test]
fn a_running_stream_ends_with_an_error_and_nothing_else() {
    for dialect in DIALECTS {
        let bytes =
            stream_error(dialect, Client::Other, &trip(GuardId::Budget, Verdict::Kill), Some("i"));
        let all = events(&bytes);
        assert_eq!(all.len(), 1);
        let (name, data) = &all[0];
        assert!(!data.contains("finish_reason") && !data.contains("[DONE]"));
        let value: Value = serde_json::from_str(data).unwrap();
        assert_eq!(value["error"]["deadstop"]["guard"], "budget");
        match dialect {
            Dialect::Anthropic | Dialect::AnthropicOther => {
                assert_eq!(name.as_deref(), Some("error"));
                assert_eq!(value["type"], "error");
                assert_eq!(value["error"]["type"], "billing_error");
            }
            Dialect::OpenAiResponses => {
                assert_eq!(name.as_deref(), Some("error"));
                assert_eq!(value["type"], "error");
                assert!(value["message"].is_string() && value["sequence_number"].is_number());
            }
            // Google's Python SDK looks for exactly this beginning.
            Dialect::Gemini | Dialect::GeminiOther => {
                assert!(name.is_none() && data.starts_with(r#"{"error":"#));
            }
            _ => assert!(name.is_none()),
        }
    }
}

/// Codex and Copilot CLI asked their provider three times more when they were told as others are.
#[test]
fn clients_that_retry_errors_in_streams_are_told_with_a_code_that_they_give_up_on() {
    let told = |dialect, client, guard| {
        let trip = trip(guard, Verdict::Block);
        let mut all = events(&stream_error(dialect, client, &trip, Some("i")));
        let (name, data) = all.remove(0);
        assert!(all.is_empty());
        let value: Value = serde_json::from_str(&data).unwrap();
        let error = value.pointer("/response/error").unwrap_or(&value["error"]).clone();
        assert!(error["message"].as_str().unwrap().starts_with("Deadstop "));
        assert_eq!(error["deadstop"]["reason"], "repetition");
        (name, error["code"].clone())
    };
    let (responses, chat) = (Dialect::OpenAiResponses, Dialect::OpenAiChat);
    let (failed, plain) = (Some("response.failed".to_owned()), Some("error".to_owned()));
    for (dialect, client, guard, name, code) in [
        (responses, Client::Codex, GuardId::Loop, &failed, "invalid_prompt"),
        (responses, Client::Copilot, GuardId::Budget, &failed, "invalid_prompt"),
        (chat, Client::Copilot, GuardId::Loop, &None, "invalid_prompt"),
        (chat, Client::Other, GuardId::Loop, &None, "repetition"),
        // A limit that only holds back may be asked again.
        (responses, Client::Codex, GuardId::Velocity, &plain, "repetition"),
        (chat, Client::Copilot, GuardId::Velocity, &None, "repetition"),
    ] {
        let told = told(dialect, client, guard);
        assert_eq!((&told.0, told.1), (name, json!(code)), "{dialect:?} {client:?} {guard}");
    }
}

/// Gemini CLI took a stream that was cut for a whole answer, and exited with 0.
#[test]
fn googles_sdk_on_node_reads_an_error_that_is_no_event() {
    let trip = trip(GuardId::Loop, Verdict::Block);
    let bytes = stream_error(Dialect::Gemini, Client::GenAiNode, &trip, None);
    let value: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(value["error"]["code"], 403);
    let others = stream_error(Dialect::Gemini, Client::Other, &trip, None);
    assert!(others.starts_with(b"data: "));
}

#[test]
fn a_last_word_is_a_whole_answer() {
    let trip = trip(GuardId::Loop, Verdict::Kill);
    let text = "Deadstop stopped this session: read_file \"a\" 3 times\nin 12 s. Do not retry.";
    let path = |dialect| match dialect {
        Dialect::OpenAiChat => "/choices/0/message/content",
        Dialect::OpenAiResponses => "/output/0/content/0/text",
        Dialect::Anthropic => "/content/0/text",
        _ => "/candidates/0/content/parts/0/text",
    };
    for dialect in
        [Dialect::OpenAiChat, Dialect::OpenAiResponses, Dialect::Anthropic, Dialect::Gemini]
    {
        let whole = message(dialect, false, "m-1", &trip);
        assert_eq!((whole.status, whole.content_type), (200, "application/json"));
        let body: Value = serde_json::from_slice(&whole.body).unwrap();
        assert_eq!(body.pointer(path(dialect)).unwrap(), text, "{dialect:?}");
        let stream = message(dialect, true, "m-1", &trip);
        assert_eq!(stream.content_type, "text/event-stream; charset=utf-8");
        let said: String = events(&stream.body)
            .iter()
            .filter_map(|(_, data)| serde_json::from_str::<Value>(data).ok())
            .filter_map(|event| {
                let places = ["/choices/0/delta/content", "/delta/text", "/delta", path(dialect)];
                places.iter().find_map(|p| event.pointer(p)?.as_str().map(str::to_owned))
            })
            .collect();
        assert_eq!(said, text, "{dialect:?}");
    }
    assert_eq!(message(Dialect::OpenAiEmbeddings, false, "m", &trip).status, 403);
}

#[test]
fn streams_have_all_their_events_in_order() {
    let trip = trip(GuardId::Loop, Verdict::Kill);
    let names = |dialect| -> Vec<String> {
        let all = events(&message(dialect, true, "m", &trip).body);
        all.into_iter()
            .map(|(name, data)| {
                let value: Value = serde_json::from_str(&data).unwrap_or_default();
                assert!(name.is_none() || name.as_deref() == value["type"].as_str());
                name.unwrap_or(data)
            })
            .collect()
    };
    assert_eq!(
        names(Dialect::OpenAiResponses),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    assert_eq!(
        names(Dialect::Anthropic),
        [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
    );
    let chat = names(Dialect::OpenAiChat);
    assert_eq!(chat.last().unwrap(), "[DONE]");
    assert!(chat[2].contains(r#""finish_reason":"stop""#) && chat[2].contains("usage"));
}
