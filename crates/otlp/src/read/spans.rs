//! Spans: GenAI, OpenInference, OpenLLMetry, the AI SDK and MCP.

use std::collections::HashMap;

use deadstop_core::{Tokens, Usage};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span};
use serde_json::Value;

use super::{Batch, Kind, Observed, millis};
use crate::attributes::Attributes;
use crate::names;

/// A parent's parent's parent: spans that name each other in a circle must not hold us.
const DEEPEST: usize = 64;

/// The code of a span that failed.
const FAILED: i32 = 2;

/// What a span is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    Model,
    Tool,
    Other,
}

/// The spans of one request, to find a span's parents.
struct Spans<'a>(HashMap<&'a [u8], &'a Span>);

pub(super) fn read(resources: &[ResourceSpans]) -> Batch {
    let each = || resources.iter().flat_map(|r| r.scope_spans.iter().flat_map(|s| &s.spans));
    let spans = Spans(each().map(|span| (span.span_id.as_slice(), span)).collect());
    let mut batch = Batch::default();
    for resource in resources {
        let about = resource.resource.as_ref().map_or(&[][..], |r| &r.attributes);
        for span in resource.scope_spans.iter().flat_map(|scope| &scope.spans) {
            match spans.call(span, Attributes(about)) {
                Ok(Some(call)) => batch.calls.push(call),
                Ok(None) => batch.others += 1,
                Err(why) => batch.rejected.push(why),
            }
        }
    }
    batch.calls.sort_by_key(|call| call.ended_ms);
    batch
}

impl<'a> Spans<'a> {
    /// A span's parents in this request, the nearest first.
    fn above(&self, span: &'a Span) -> impl Iterator<Item = &'a Span> {
        let parent = |span: &&'a Span| self.0.get(span.parent_span_id.as_slice()).copied();
        std::iter::successors(parent(&span), move |span| parent(span)).take(DEEPEST)
    }

    fn call(&self, span: &'a Span, about: Attributes<'_>) -> Result<Option<Observed>, String> {
        let own = Attributes(&span.attributes);
        let is = is(span);
        if is == Is::Other || self.is_inside_itself(span, is) {
            return Ok(None);
        }
        if span.span_id.len() != 8 || span.trace_id.len() != 16 {
            return Err(format!("span {:?} has no valid span id and trace id", span.name));
        }
        if span.end_time_unix_nano < span.start_time_unix_nano {
            return Err(format!("span {:?} ends before it begins", span.name));
        }
        let kind = match is {
            Is::Model => {
                model(own).ok_or_else(|| format!("span {:?} names no model", span.name))?
            }
            Is::Tool | Is::Other => tool(own, &span.name),
        };
        let inherited = |names: &[&str]| {
            let above = self.above(span).find_map(|span| Attributes(&span.attributes).first(names));
            own.first(names).or(above).or_else(|| about.first(names))
        };
        Ok(Some(Observed {
            id: hex(&span.trace_id) + &hex(&span.span_id),
            agent: inherited(names::AGENT).or_else(|| about.text(names::SERVICE)),
            session: inherited(names::SESSION).or_else(|| Some(hex(&span.trace_id))),
            began_ms: millis(span.start_time_unix_nano),
            ended_ms: millis(span.end_time_unix_nano),
            failed: failed(span),
            kind,
        }))
    }

    /// Whether two instrumentations tell of one call, the other one around it.
    fn is_inside_itself(&self, span: &'a Span, is_now: Is) -> bool {
        let name = |span: &Span| Attributes(&span.attributes).first(names::TOOL);
        self.above(span)
            .any(|above| is(above) == is_now && (is_now == Is::Model || name(above) == name(span)))
    }
}

fn is(span: &Span) -> Is {
    let own = Attributes(&span.attributes);
    // The AI SDK has a span around each call that repeats its figures.
    if let Some(operation) = own.text(names::AI_SDK_OPERATION) {
        return match operation.as_str() {
            "ai.toolCall" => Is::Tool,
            inner if inner.contains(".do") => Is::Model,
            _ => Is::Other,
        };
    }
    if let Some(operation) = own.text(names::OPERATION) {
        return match operation.as_str() {
            names::TOOL_OPERATION => Is::Tool,
            known if names::MODEL_OPERATIONS.contains(&known) => Is::Model,
            _ => Is::Other,
        };
    }
    match own.text(names::OPENINFERENCE_KIND).as_deref() {
        Some("LLM" | "EMBEDDING") => return Is::Model,
        Some("TOOL") => return Is::Tool,
        Some(_) => return Is::Other,
        None => {}
    }
    match own.text(names::OPENLLMETRY_KIND).as_deref() {
        Some("tool") => return Is::Tool,
        Some(_) => return Is::Other,
        None => {}
    }
    if own.text(names::MCP_METHOD).as_deref() == Some("tools/call") {
        return Is::Tool;
    }
    let asks = own.first(names::OPENLLMETRY_REQUEST).is_some();
    let used = own.number(names::INPUT).is_some() && own.first(names::MODEL).is_some();
    if asks || used { Is::Model } else { Is::Other }
}

fn model(own: Attributes<'_>) -> Option<Kind> {
    let count = |names| Tokens(own.number(names).unwrap_or_default());
    let (cache_read, cache_write) = (count(names::CACHE_READ), count(names::CACHE_WRITE));
    // By the conventions the tokens of the cache are among those of the prompt.
    let input = count(names::INPUT) - cache_read - cache_write;
    Some(Kind::Model {
        provider: own.first(names::PROVIDER),
        model: own.first(names::MODEL)?,
        usage: Usage { input, output: count(names::OUTPUT), cache_read, cache_write },
        prompt: own.first(names::PROMPT),
        answer: own.first(names::ANSWER),
    })
}

fn tool(own: Attributes<'_>, span: &str) -> Kind {
    // "execute_tool search" and "tools/call search" name the tool in the span's own name.
    let named = span.rsplit(' ').next().unwrap_or(span);
    let named = named.strip_suffix(".tool").unwrap_or(named);
    Kind::Tool {
        name: own.first(names::TOOL).unwrap_or_else(|| named.to_owned()),
        call_id: own.first(names::CALL_ID),
        arguments: own.json(names::ARGUMENTS).unwrap_or(Value::Null),
        result: own.first(names::RESULT),
    }
}

/// Why a span failed, if it did.
fn failed(span: &Span) -> Option<String> {
    let status = span.status.as_ref().filter(|status| status.code == FAILED)?;
    let thrown = span.events.iter().find_map(|event| {
        Attributes(&event.attributes).first(&["exception.message", "exception.type"])
    });
    let said = Some(status.message.clone()).filter(|said| !said.is_empty());
    let own = Attributes(&span.attributes).first(names::ERROR);
    Some(said.or(thrown).or(own).unwrap_or_else(|| "it failed".to_owned()))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a text does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
