//! Claude Code's transcripts.

use super::*;

#[test]
fn an_answer_over_several_events_is_one_answer_and_one_usage() {
    check(
        r#"{"type":"summary","summary":"A session","leafUuid":"u9"}
{"type":"file-history-snapshot","messageId":"m","snapshot":{}}
{"type":"user","sessionId":"s1","uuid":"u1","parentUuid":null,"isSidechain":false,"timestamp":"2026-02-12T14:01:05.000Z","message":{"role":"user","content":"Fix it"}}
{"type":"assistant","sessionId":"s1","uuid":"u2","requestId":"r","timestamp":"2026-02-12T14:01:06.000Z","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-opus-4-5","content":[{"type":"text","text":"I read."}],"usage":{"input_tokens":5,"output_tokens":1,"cache_read_input_tokens":70,"cache_creation_input_tokens":8}}}
{"type":"assistant","sessionId":"s1","uuid":"u3","requestId":"r","timestamp":"2026-02-12T14:01:07.000Z","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-opus-4-5","content":[{"type":"tool_use","id":"t1","name":"Read","input":{"file":"a"}}],"usage":{"input_tokens":5,"output_tokens":1,"cache_read_input_tokens":70,"cache_creation_input_tokens":8}}}
{"type":"user","sessionId":"s1","uuid":"u4","timestamp":"2026-02-12T14:01:08.000Z","toolUseResult":{"file":{"content":"long"}},"message":{"role":"user","content":[{"tool_use_id":"t1","type":"tool_result","content":"text of a"}]}}
{"type":"assistant","sessionId":"s1","uuid":"u5","requestId":"r","timestamp":"2026-02-12T14:01:09.000Z","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-opus-4-5","content":[{"type":"tool_use","id":"t2","name":"Bash","input":{"command":"make"}}],"stop_reason":"tool_use","usage":{"input_tokens":5,"output_tokens":93,"cache_read_input_tokens":70,"cache_creation_input_tokens":8}}}
{"type":"progress","sessionId":"s1","uuid":"u6","data":{}}
{"type":"user","sessionId":"s1","uuid":"u7","timestamp":"2026-02-12T14:01:10.000Z","message":{"role":"user","content":[{"tool_use_id":"t2","type":"tool_result","is_error":true,"content":[{"type":"text","text":"Error 2"}]}]}}
{"type":"assistant","sessionId":"s1","uuid":"u8","timestamp":"2026-02-12T14:01:11.000Z","message":{"id":"msg_2","role":"assistant","model":"claude-opus-4-5","content":[{"type":"thinking","thinking":"…"}],"usage":{"input_tokens":1,"output_tokens":2}}}
{"type":"assistant","sessionId":"s1","uuid":"u9","timestamp":"2026-02-12T14:01:12.000Z","message":{"id":"msg_2","role":"assistant","model":"claude-opus-4-5","content":[{"type":"text","text":"Done."}],"usage":{"input_tokens":1,"output_tokens":2}}}
"#,
        r#"s1 (5 messages) model=claude-opus-4-5
1 person: "Fix it" @1770904865000
2 answer: "I read." @1770904866000 in=5 out=93 read=70 write=8 by claude-opus-4-5
  2 Read{"file":"a"} = "text of a" in 3 @1770904868000
  2 Bash{"command":"make"} ! "Error 2" in 4 @1770904870000
5 answer: "Done." @1770904871000 in=1 out=2 read=0 write=0 by claude-opus-4-5"#,
    );
}

#[test]
fn who_speaks_in_a_transcript() {
    for (field, person) in [
        (json!({}), "person"),
        (json!({"isMeta": true}), "system"),
        (json!({"isMeta": false, "isSidechain": false}), "person"),
        (json!({"isSidechain": true}), "system"),
        (json!({"isCompactSummary": true, "isVisibleInTranscriptOnly": true}), "system"),
    ] {
        let mut event = json!({"type": "user", "sessionId": "s", "message": {"content": "x"}});
        event.as_object_mut().unwrap().extend(field.as_object().unwrap().clone());
        check(&event.to_string(), &format!("s (1 messages)\n1 {person}: \"x\""));
    }
}

#[test]
fn sessions_are_told_apart_and_sub_agents_are_not() {
    let file = [
        r#"{"type":"user","sessionId":"one","message":{"role":"user","content":"1"}}"#,
        r#"{"type":"user","sessionId":"two","message":{"role":"user","content":"2"}}"#,
        r#"{"type":"assistant","sessionId":"one","message":{"id":"m1","role":"assistant","content":[{"type":"tool_use","id":"t","name":"Task","input":{}}]}}"#,
        r#"{"type":"user","sessionId":"one","isSidechain":true,"agentId":"x","message":{"role":"user","content":"look"}}"#,
        r#"{"type":"assistant","sessionId":"one","isSidechain":true,"message":{"id":"m2","role":"assistant","model":"haiku","content":[{"type":"tool_use","id":"t1","name":"Grep","input":{}}]}}"#,
        r#"{"type":"assistant","sessionId":"two","message":{"id":"m1","role":"assistant","model":"opus","content":"ok"}}"#,
        r#"{"type":"user","sessionId":"one","isSidechain":true,"message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"none"}]}}"#,
        r#"{"type":"user","sessionId":"one","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"nothing found"}]}}"#,
    ];
    check(
        &file.join("\n"),
        r#"one (6 messages) model=haiku
1 person: "1"
2 answer: ""
  2 Task{} = "nothing found" in 6
3 system: "look"
4 answer: "" by haiku
  4 Grep{} = "none" in 5
two (2 messages) model=opus
1 person: "2"
2 answer: "ok" by opus"#,
    );
}

#[test]
fn what_is_written_twice_counts_once() {
    let event = |uuid: &str, content: Value, out: u64| {
        let usage = json!({"input_tokens": 1, "output_tokens": out});
        let message = json!({"id": "m", "role": "assistant", "content": content, "usage": usage});
        json!({"type": "assistant", "sessionId": "s", "uuid": uuid, "message": message}).to_string()
    };
    let text = |text: &str| json!({"type": "text", "text": text});
    let call = json!({"type": "tool_use", "id": "t", "name": "f", "input": {}});
    let file = [
        // The same event, as when a session is streamed in and out.
        event("1", json!([text("I")]), 1),
        event("1", json!([text("I")]), 1),
        // Snapshots that grow.
        event("2", json!([text("I am")]), 3),
        event("3", json!([text("I am"), call]), 9),
        event("4", json!([call]), 9),
        event("5", json!([text("here.")]), 9),
        event("6", json!([text("here.")]), 9),
    ];
    check(
        &file.join("\n"),
        "s (1 messages)\n1 answer: \"I am\\nhere.\" in=1 out=9 read=0 write=0\n  1 f{}",
    );
}

#[test]
fn what_no_model_said_is_left_out() {
    let file = [
        r#"{"type":"user","sessionId":"s","message":{"role":"user","content":"x"}}"#,
        r#"{"type":"assistant","sessionId":"s","isApiErrorMessage":true,"message":{"id":"e","role":"assistant","model":"<synthetic>","content":[{"type":"text","text":"API Error: 529"}],"usage":{"input_tokens":0,"output_tokens":0}}}"#,
        r#"{"type":"system","sessionId":"s","subtype":"compact_boundary","content":"compacted"}"#,
        r#"{"type":"a-type-of-next-year","payload":1}"#,
        r#"{"type":"assistant","sessionId":"s","message":{"role":"assistant","model":"opus","content":"y"}}"#,
    ];
    check(&file.join("\n"), "s (2 messages) model=opus\n1 person: \"x\"\n2 answer: \"y\" by opus");
}

#[test]
fn streamed_events_are_a_transcript_too() {
    let file = [
        r#"{"type":"system","subtype":"init","session_id":"s","model":"opus"}"#,
        r#"{"type":"assistant","session_id":"s","uuid":"1","message":{"id":"m","role":"assistant","model":"opus","content":[{"type":"text","text":"y"}]}}"#,
        r#"{"type":"result","session_id":"s","result":"y","usage":{"input_tokens":1}}"#,
    ];
    check(&file.join("\n"), "s (1 messages) model=opus\n1 answer: \"y\" by opus");
}
