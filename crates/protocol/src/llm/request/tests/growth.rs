//! A history that grows, and one that is rewritten: only what is new is read.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::*;

#[test]
fn a_request_sent_again_repeats_its_words_and_brings_no_results() {
    let body = json!({ "messages": [
        { "role": "user", "content": "go and look" },
        { "role": "assistant", "content": "", "tool_calls": [] },
        { "role": "tool", "tool_call_id": "c1", "content": "three words here" },
    ] });
    let mut seen = Seen::default();
    let first = ask(Dialect::OpenAiChat, &body, &mut seen);
    let again = ask(Dialect::OpenAiChat, &body, &mut seen);
    assert_eq!((first.results.len(), again.results.len()), (1, 0));
    assert_eq!(first.prompt, again.prompt);
}

#[test]
fn a_rewritten_history_is_new_after_the_models_last_word() {
    let message = |role: &str, text: String| json!({ "role": role, "content": text });
    let mut history = Vec::new();
    let mut seen = Seen::default();
    for turn in 0..20 {
        history.push(message("user", format!("question number {turn} of many")));
        ask(Dialect::Anthropic, &json!({ "messages": history }), &mut seen);
        history.push(message("assistant", format!("answer {turn}")));
    }
    // Compaction: one summary instead of all that was said.
    let compact = [
        message("user", "a summary of it all".into()),
        message("assistant", "understood".into()),
        message("user", "now the next thing".into()),
    ];
    let request = ask(Dialect::Anthropic, &json!({ "messages": compact }), &mut seen);
    assert_eq!(request.prompt, Some(TextFacts::of("now the next thing")));
    // An old message was edited in place: what came between is not told again.
    history[3] = message("assistant", "[cleared]".into());
    history.push(message("user", "and one more question".into()));
    let request = ask(Dialect::Anthropic, &json!({ "messages": history }), &mut seen);
    assert_eq!(request.prompt, Some(TextFacts::of("and one more question")));
}

#[test]
fn results_between_calls_are_all_new() {
    // Codex writes each result behind its call, so a turn is not only what follows the last one.
    let call = |id: &str| json!({ "type": "function_call", "call_id": id, "name": "f" });
    let result = |id: &str| json!({ "type": "function_call_output", "call_id": id, "output": id });
    let user = json!({ "role": "user", "content": "go" });
    let mut seen = Seen::default();
    ask(Dialect::OpenAiResponses, &json!({ "input": [user] }), &mut seen);
    let body = json!({ "input": [user, call("a"), result("a"), call("b"), result("b")] });
    let request = ask(Dialect::OpenAiResponses, &body, &mut seen);
    assert_eq!(request.results.iter().map(show).collect::<Vec<_>>(), ["a=a", "b=b"]);
}

#[test]
fn two_conversations_in_one_session_do_not_disturb_each_other() {
    let mut seen = Seen::default();
    let mut histories = [Vec::new(), Vec::new(), Vec::new()];
    for step in 0..50 {
        for (who, history) in histories.iter_mut().enumerate() {
            let id = format!("{who}-{step}");
            history.push(json!({ "role": "assistant", "content": [] }));
            history.push(json!({ "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": id, "content": "fine" }] }));
            let request = ask(Dialect::Anthropic, &json!({ "messages": history }), &mut seen);
            assert_eq!(
                request.results.iter().map(show).collect::<Vec<_>>(),
                [format!("{id}=fine")]
            );
        }
    }
}

/// A tool agent's history after some steps, and the words that the last one brought.
pub(super) fn history(dialect: Dialect, steps: usize, filler: &str) -> Value {
    let text = |step: usize| format!("result of step {step} {filler}");
    let list: Vec<Value> = (0..steps)
        .flat_map(|step| match dialect {
            Dialect::OpenAiChat => [
                json!({ "role": "assistant", "content": null, "tool_calls": [{ "id": step }] }),
                json!({ "role": "tool", "tool_call_id": format!("c{step}"), "content": text(step) }),
            ],
            Dialect::OpenAiResponses => [
                json!({ "type": "function_call", "call_id": format!("c{step}"), "arguments": "{}" }),
                json!({ "type": "function_call_output", "call_id": format!("c{step}"),
                    "output": text(step) }),
            ],
            Dialect::Anthropic => [
                json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": step }] }),
                json!({ "role": "user", "content": [{ "type": "tool_result",
                    "tool_use_id": format!("c{step}"), "content": text(step) }] }),
            ],
            _ => [
                json!({ "role": "model", "parts": [{ "functionCall": { "name": "f" } }] }),
                json!({ "role": "user", "parts": [{ "functionResponse": {
                    "id": format!("c{step}"), "response": { "output": text(step) } } }] }),
            ],
        })
        .collect();
    match dialect {
        Dialect::OpenAiResponses => json!({ "input": list }),
        Dialect::Gemini => json!({ "contents": list }),
        _ => json!({ "messages": list }),
    }
}

#[test]
fn a_growing_history_costs_what_is_new_in_it() {
    let filler = "words that fill a page ".repeat(40);
    for dialect in
        [Dialect::OpenAiChat, Dialect::OpenAiResponses, Dialect::Anthropic, Dialect::Gemini]
    {
        let mut seen = Seen::default();
        for step in 1..=200 {
            let request = ask(dialect, &history(dialect, step, &filler), &mut seen);
            let ids: Vec<_> = request.results.iter().map(|result| result.id.as_str()).collect();
            assert_eq!(ids, [format!("c{}", step - 1)], "{dialect:?}");
            // Words are only counted where they are normalised and hashed.
            assert_eq!(request.prompt.unwrap().words, 204, "{dialect:?}");
            assert!(!request.from_person);
        }
    }
}

#[test]
fn a_large_history_is_read_in_no_time() {
    let filler = "words that fill a page ".repeat(85);
    let dialect = Dialect::Anthropic;
    let bodies: Vec<String> =
        (180..200).map(|steps| history(dialect, steps, &filler).to_string()).collect();
    let mut seen = Seen::default();
    read(dialect, "", bodies[0].as_bytes(), &mut seen).unwrap();
    let start = Instant::now();
    for body in &bodies[1..] {
        read(dialect, "", body.as_bytes(), &mut seen).unwrap();
    }
    let each = start.elapsed() / (bodies.len() as u32 - 1);
    println!("{} KB: {each:?}", bodies[19].len() / 1000);
    // Without optimisation and on a busy machine; with it, it is a hundred times less.
    assert!(each < Duration::from_millis(200), "{each:?}");
}
