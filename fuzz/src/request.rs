//! Requests to models: a body that is changed for the provider stays readable and means the same.

use deadstop_protocol::llm::request::{
    Notes, Seen, climbs, dialect, dialect_by_body, model_in_path, open, read, versioned, with_usage,
};
use deadstop_protocol::llm::{Api, Dialect};

const DIALECTS: [Dialect; 8] = [
    Dialect::OpenAiChat,
    Dialect::OpenAiResponses,
    Dialect::Anthropic,
    Dialect::Gemini,
    Dialect::OpenAiEmbeddings,
    Dialect::OpenAiOther,
    Dialect::AnthropicOther,
    Dialect::GeminiOther,
];

/// The first byte chooses the dialect; a line with the path follows, then the body.
pub fn check(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let spoken = DIALECTS[usize::from(*first) % DIALECTS.len()];
    let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(0);
    let path = String::from_utf8_lossy(&rest[..end]).into_owned();
    let body = rest.get(end + 1..).unwrap_or_default();
    paths(&path, body);

    let mut seen = Seen::default();
    let Ok(request) = read(spoken, &path, body, &mut seen) else { return };
    let mut fresh = Seen::default();
    assert_eq!(read(spoken, &path, body, &mut fresh).ok().as_ref(), Some(&request), "read again");
    let Ok(again) = read(spoken, &path, body, &mut seen) else { panic!("read once only") };
    assert_eq!(again.model, request.model);
    if request.hints.previous_response_id.is_none() && request.hints.session.is_none() {
        assert!(again.results.is_empty(), "sent again word for word: no new results");
    }
    changed(spoken, &path, body);
}

fn changed(spoken: Dialect, path: &str, body: &[u8]) {
    let Ok(opened) = open(spoken, path, body) else { return };
    let _ = opened.turns();
    if let Some(asked) = opened.with_usage() {
        let reread = open(spoken, path, &asked);
        assert!(reread.is_ok_and(|reread| reread.with_usage().is_none()), "asked for usage");
        assert_eq!(with_usage(&asked), None, "asked once");
    }
    let mut notes = Notes::default();
    notes.add("c1", "Stop \"this\"\nnow.");
    notes.add("", "You repeat yourself.");
    if let Some(noted) = opened.with_notes(&mut notes) {
        let Ok(reread) = open(spoken, path, &noted) else { panic!("a note spoils the body") };
        assert_eq!(reread.request().model, opened.request().model, "notes change no more");
        assert_eq!(reread.request().stream, opened.request().stream, "notes change no more");
    }
}

fn paths(path: &str, body: &[u8]) {
    for api in [Api::OpenAi, Api::Anthropic, Api::Gemini] {
        let by_path = dialect(api, "POST", path);
        let _ = dialect_by_body(by_path, path, body);
        let once = versioned(api, ("api.anthropic.com", "/v1"), path);
        assert!(climbs(path) || !climbs(&once), "a version makes no path climb");
    }
    let _ = model_in_path(path);
}
