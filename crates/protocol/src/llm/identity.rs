//! Who is calling: agent, session and nested scopes, from URL, headers and body.
//!
//! A session's name comes from the first of these that is there:
//! 1. `x-deadstop-session`
//! 2. `x-litellm-trace-id`, `x-litellm-session-id`
//! 3. Claude Code: `x-claude-code-session-id`
//! 4. Codex: `session-id`, `thread-id`
//! 5. `x-session-id`, `session_id`, `x-conversation-id`, `conversation_id`, `helicone-session-id`, or
//!    any `x-…-session-id` that looks like an id
//! 6. `session_id` or `conversation_id` in the body or in its `metadata`, OpenAI's `conversation`
//! 7. Anthropic's `metadata.user_id`, and the session inside it if there is one
//! 8. OpenAI's `previous_response_id`; `prompt_cache_key`, if it looks like the id of one
//!    conversation; `safety_identifier`
//! 9. `baggage` with a session in it
//! 10. the conversation itself: see [`super::conversation`]
//! 11. `traceparent`, only where there is no conversation: a trace is no session
//!
//! All of them are the client's word: look them up under the credential, never across credentials.
//! An agent's name comes from the URL, then from `x-deadstop-agent`: what an operator wrote into a
//! client's base URL must not be undone by a header.
//! Sub-agents are nested scopes whatever named the session: those of `x-deadstop-scope` first, then
//! Claude Code's or Codex's.

use serde_json::Value;

use super::BodyHints;

/// Longest name that is taken.
const LONGEST: usize = 200;
/// Most scopes that a path may nest.
const DEEPEST: usize = 8;

/// Who is calling, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Identity {
    /// The agent's name, if the URL or a header gives one.
    pub agent: Option<String>,
    /// The session's name.
    pub session: Option<String>,
    /// Scopes below the session, outermost first.
    pub nested: Vec<String>,
    /// What named the session.
    pub source: Source,
}

/// What named a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Source {
    /// The request names none.
    #[default]
    Unnamed,
    /// `x-deadstop-session`.
    Deadstop,
    /// LiteLLM's headers.
    LiteLlm,
    /// Claude Code's headers.
    ClaudeCode,
    /// Codex's headers.
    Codex,
    /// Another header for sessions.
    SessionHeader,
    /// Anthropic's `metadata.user_id`.
    Metadata,
    /// A session or a conversation that the body names.
    Body,
    /// OpenAI's `prompt_cache_key`.
    PromptCacheKey,
    /// OpenAI's `previous_response_id`. It changes with each request, so the caller must know which
    /// session the earlier answer belonged to. If it does not, it clears the hint and asks again.
    PreviousResponse,
    /// OpenAI's `safety_identifier` or `user`.
    SafetyIdentifier,
    /// A trace.
    Trace,
    /// The conversation itself, which has no name; see [`super::conversation`].
    Conversation,
}

impl Source {
    /// Whether the session is found by what was said in it: by the answers that a request repeats, or by
    /// the one that it refers to.
    pub fn is_recognised(self) -> bool {
        matches!(self, Source::Conversation | Source::PreviousResponse)
    }
}

/// Works out who is calling. `path_agent` is the name in `/agent/{name}/…`, decoded; the headers'
/// names may be in any case.
///
/// ```
/// use deadstop_protocol::llm::{BodyHints, identity::identify};
/// let headers = [("X-Claude-Code-Session-Id", "s-1"), ("x-claude-code-agent-id", "helper")];
/// let who = identify(Some("coder"), &headers, &BodyHints::default());
/// assert_eq!(who.agent.as_deref(), Some("coder"));
/// assert_eq!(who.session.as_deref(), Some("s-1"));
/// assert_eq!(who.nested, ["helper"]);
/// ```
pub fn identify(path_agent: Option<&str>, headers: &[(&str, &str)], hints: &BodyHints) -> Identity {
    let headers = Headers(headers);
    let agent = path_agent.and_then(name).or_else(|| headers.name("x-deadstop-agent"));
    let codex = codex(&headers);
    let (session, source) = session(&headers, codex.session, hints).unzip();

    let mut nested: Vec<String> = headers
        .get("x-deadstop-scope")
        .map(|path| path.split('/').filter_map(name).collect())
        .unwrap_or_default();
    let claude = ["x-claude-code-parent-agent-id", "x-claude-code-agent-id"];
    for scope in claude.into_iter().filter_map(|header| headers.name(header)).chain(codex.threads) {
        // The main agent may be named as a parent: it is the session itself.
        if session.as_ref() != Some(&scope) && !nested.contains(&scope) {
            nested.push(scope);
        }
    }
    nested.truncate(DEEPEST);
    Identity { agent, session, nested, source: source.unwrap_or_default() }
}

struct Headers<'h>(&'h [(&'h str, &'h str)]);

impl Headers<'_> {
    fn get(&self, wanted: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted))?;
        Some(value)
    }

    /// A header's value, if it will do as a name.
    fn name(&self, wanted: &str) -> Option<String> {
        self.get(wanted).and_then(name)
    }
}

fn session(
    headers: &Headers<'_>,
    codex: Option<String>,
    hints: &BodyHints,
) -> Option<(String, Source)> {
    let hint = |hint: &Option<String>| hint.as_deref().and_then(name);
    let conversation = || hints.conversation.map(|digest| format!("c-{:016x}", digest.0));
    None.or_else(|| headers.name("x-deadstop-session").zip(Some(Source::Deadstop)))
        .or_else(|| headers.name("x-litellm-trace-id").zip(Some(Source::LiteLlm)))
        .or_else(|| headers.name("x-litellm-session-id").zip(Some(Source::LiteLlm)))
        .or_else(|| headers.name("x-claude-code-session-id").zip(Some(Source::ClaudeCode)))
        .or_else(|| codex.zip(Some(Source::Codex)))
        .or_else(|| plain_session_header(headers).zip(Some(Source::SessionHeader)))
        .or_else(|| any_session_header(headers).zip(Some(Source::SessionHeader)))
        .or_else(|| hint(&hints.session).zip(Some(Source::Body)))
        .or_else(|| in_metadata(hints).zip(Some(Source::Metadata)))
        .or_else(|| hint(&hints.previous_response_id).zip(Some(Source::PreviousResponse)))
        .or_else(|| {
            let key = hint(&hints.prompt_cache_key).filter(|key| of_one_conversation(key));
            key.zip(Some(Source::PromptCacheKey))
        })
        .or_else(|| hint(&hints.safety_identifier).zip(Some(Source::SafetyIdentifier)))
        .or_else(|| in_baggage(headers).zip(Some(Source::Trace)))
        .or_else(|| conversation().zip(Some(Source::Conversation)))
        .or_else(|| in_traceparent(headers).zip(Some(Source::Trace)))
}

/// What Codex's headers say.
struct Codex {
    session: Option<String>,
    threads: Vec<String>,
}

/// A thread with a parent is a sub-agent. Its session is the parent's; where it claims one of its
/// own, under its own id, the parent is taken instead, so that a sub-agent's work counts above it.
fn codex(headers: &Headers<'_>) -> Codex {
    let session = headers.name("session-id");
    let thread = headers.name("thread-id");
    let parent = headers.name("x-codex-parent-thread-id");
    let session = match (session, &thread, &parent) {
        (Some(session), Some(thread), Some(parent)) if session == *thread => Some(parent.clone()),
        (Some(session), _, _) => Some(session),
        (None, thread, parent) => parent.clone().or_else(|| thread.clone()),
    };
    Codex { session, threads: parent.into_iter().chain(thread).collect() }
}

/// Headers whose whole purpose is to name a session.
fn plain_session_header(headers: &Headers<'_>) -> Option<String> {
    let known = [
        "x-session-id",
        "session_id",
        "x-conversation-id",
        "conversation_id",
        "conversation-id",
        "helicone-session-id",
    ];
    known.into_iter().find_map(|known| headers.name(known))
}

/// Whether a cache key is one conversation's (an id, as Codex sends it) and not a whole program's,
/// which all its users share.
fn of_one_conversation(key: &str) -> bool {
    let digits = key.bytes().filter(u8::is_ascii_hexdigit).count();
    key.len() >= 20 && digits * 4 >= key.len() * 3
}

/// `^x-.+-session-id$` with a value of `[A-Za-z0-9_-]{8,}`; the first by name, if there are several.
fn any_session_header(headers: &Headers<'_>) -> Option<String> {
    let is_session = |name: &str| {
        name.strip_prefix("x-").and_then(|rest| rest.strip_suffix("-session-id")).is_some_and(
            // LiteLLM's and Claude Code's have had their turn.
            |middle| !middle.is_empty(),
        )
    };
    let is_id = |value: &str| {
        value.len() >= 8
            && value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    let found = headers.0.iter().filter(|(_, value)| is_id(value));
    let found = found.map(|(name, value)| (name.to_ascii_lowercase(), *value));
    let (_, value) = found.filter(|(name, _)| is_session(name)).min()?;
    name(value)
}

/// The session inside `metadata.user_id`, in Claude Code's old and new form, or all of it.
fn in_metadata(hints: &BodyHints) -> Option<String> {
    let user_id = hints.metadata_user_id.as_deref()?;
    if user_id.trim_start().starts_with('{') {
        let value: Value = serde_json::from_str(user_id).ok()?;
        return value.get("session_id")?.as_str().and_then(name);
    }
    let session = user_id.rsplit_once("_session_").map(|(_, session)| session);
    session.and_then(name).or_else(|| name(user_id))
}

fn in_baggage(headers: &Headers<'_>) -> Option<String> {
    let baggage = headers.get("baggage")?;
    let mut members = baggage.split(',').filter_map(|member| {
        let (key, value) = member.split(';').next()?.split_once('=')?;
        Some((key.trim(), value.trim()))
    });
    let is_session = |key: &str| {
        matches!(key, "session.id" | "session_id" | "session-id" | "gen_ai.conversation.id")
    };
    members.find_map(|(key, value)| name(value).filter(|_| is_session(key)))
}

/// The trace's id in `00-{trace}-{span}-{flags}`; one of zeros only is none.
fn in_traceparent(headers: &Headers<'_>) -> Option<String> {
    let trace = headers.get("traceparent")?.split('-').nth(1)?;
    let valid = trace.len() == 32
        && trace.bytes().all(|b| b.is_ascii_hexdigit())
        && trace.bytes().any(|b| b != b'0');
    valid.then(|| trace.to_ascii_lowercase())
}

/// A name of an agent, a session or a project, if it will do as one: short, printable, and not
/// empty.
pub fn name(text: &str) -> Option<String> {
    let text = text.trim();
    let fine = !text.is_empty() && text.len() <= LONGEST && !text.chars().any(unprintable);
    fine.then(|| text.to_owned())
}

/// Control characters, and those that turn or hide the text around them.
fn unprintable(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}')
        || matches!(char, '\u{feff}' | '\u{fffd}')
}

#[cfg(test)]
mod tests;
