//! Log records: the events of Claude Code and Gemini CLI.

use deadstop_core::{Tokens, Usage};
use serde_json::Value;

use super::{Batch, Observed, millis};
use crate::attributes::{Attributes, value_text};
use crate::call::What;
use crate::model::{LogRecord, Logs};
use crate::names;

pub(super) fn read(request: &Logs<'_>) -> Batch {
    let mut batch = Batch::default();
    for resource in &request.resource_logs {
        let about = resource.resource.as_ref().map_or(&[][..], |r| &r.attributes);
        for record in resource.scope_logs.iter().flat_map(|scope| &scope.log_records) {
            match call(record, Attributes(about)) {
                Some(call) => batch.calls.push(call),
                None => batch.others += 1,
            }
        }
    }
    batch.calls.sort_by_key(|call| call.ended_ms);
    batch
}

/// An event's name with its program: `claude_code.api_request`.
fn name(record: &LogRecord<'_>, about: Attributes<'_>) -> Option<String> {
    if record.event_name.contains('.') {
        return Some(record.event_name.to_string());
    }
    if let Some(body) = value_text(record.body.as_ref())
        .filter(|body| names::PROGRAMS.iter().any(|program| body.starts_with(program)))
    {
        return Some(body);
    }
    let event = Attributes(&record.attributes).text("event.name")?;
    if event.contains('.') {
        return Some(event);
    }
    let service = about.text(names::SERVICE)?.replace('-', "_");
    Some(format!("{service}.{event}"))
}

fn call(record: &LogRecord<'_>, about: Attributes<'_>) -> Option<Observed> {
    let own = Attributes(&record.attributes);
    let (claude_asked, claude_ran) = names::CLAUDE_CODE;
    let (gemini_asked, gemini_ran) = names::GEMINI_CLI;
    let name = name(record, about)?;
    let (what, arguments, answer) = match name.as_str() {
        asked if asked == claude_asked => (claude(own)?, Value::Null, None),
        asked if asked == gemini_asked => (gemini(own)?, Value::Null, own.text("response_text")),
        ran if ran == claude_ran => tool(own, "tool_name", TOOL_PARAMETERS)?,
        ran if ran == gemini_ran => tool(own, "function_name", &["function_args"])?,
        _ => return None,
    };
    let ended = if record.time_unix_nano == 0 {
        record.observed_time_unix_nano
    } else {
        record.time_unix_nano
    };
    let took = own.number(&["duration_ms"]).unwrap_or_default();
    let ended_ms = millis(ended);
    let failed = match own.truth(&["success"]) {
        Some(false) => Some(own.first(names::ERROR).unwrap_or_else(|| "it failed".to_owned())),
        _ => None,
    };
    let text = |names| own.first(names).or_else(|| about.first(names));
    let session = text(names::SESSION);
    Some(Observed {
        id: id(record, session.as_deref()),
        agent: text(names::AGENT).or_else(|| about.text(names::SERVICE)),
        session,
        began_ms: ended_ms.saturating_sub(took),
        ended_ms,
        failed,
        what,
        prompt: None,
        arguments,
        answer,
        cost: own.dollars(names::COST),
    })
}

/// A record has no id of its own: the same text at the same nanosecond is the same record.
fn id(record: &LogRecord<'_>, session: Option<&str>) -> String {
    let own = Attributes(&record.attributes);
    let sequence = own.number(&["event.sequence"]).unwrap_or_default();
    let call =
        own.first(names::CALL_ID).or_else(|| own.first(&["request_id", "prompt.id", "prompt_id"]));
    let (session, call) = (session.unwrap_or_default(), call.unwrap_or_default());
    let what = name(record, Attributes(&[])).unwrap_or_default();
    format!("{session} {} {sequence} {what} {call}", record.time_unix_nano)
}

/// Where Claude Code writes a tool's arguments.
const TOOL_PARAMETERS: &[&str] = &["tool_input", "tool_parameters"];

/// Claude Code counts the tokens of the cache apart from the prompt, as Anthropic does.
fn claude(own: Attributes<'_>) -> Option<What> {
    let count = |name| Tokens(own.number(&[name]).unwrap_or_default());
    let usage = Usage {
        input: count("input_tokens"),
        output: count("output_tokens"),
        cache_read: count("cache_read_tokens"),
        cache_write: count("cache_creation_tokens"),
    };
    Some(What::Model { provider: Some("anthropic".to_owned()), model: own.text("model")?, usage })
}

/// Gemini counts what came from the cache among the prompt, and thoughts apart from the answer.
fn gemini(own: Attributes<'_>) -> Option<What> {
    let count = |names: &[&str]| Tokens(own.number(names).unwrap_or_default());
    let cache_read = count(&["cached_content_token_count"]);
    let usage = Usage {
        input: count(&["input_token_count"]) - cache_read,
        output: count(&["output_token_count"]) + count(&["thoughts_token_count"]),
        cache_read,
        ..Usage::default()
    };
    Some(What::Model { provider: Some("gemini".to_owned()), model: own.text("model")?, usage })
}

fn tool(
    own: Attributes<'_>,
    name: &str,
    arguments: &[&str],
) -> Option<(What, Value, Option<String>)> {
    let what =
        What::Tool { name: own.text(name)?, server: None, call_id: own.first(names::CALL_ID) };
    Some((what, own.json(arguments).unwrap_or(Value::Null), None))
}
