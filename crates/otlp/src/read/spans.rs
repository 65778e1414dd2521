//! Spans: GenAI, OpenInference, OpenLLMetry, the AI SDK and MCP.

use std::collections::HashMap;

use deadstop_core::{Tokens, Usage, hex};
use serde_json::Value;

use super::{Batch, Observed, langchain, millis};
use crate::attributes::Attributes;
use crate::call::What;
use crate::model::{Id, Span, Traces};
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

/// A span, and what it is.
#[derive(Clone, Copy)]
struct Known<'a> {
    span: &'a Span<'a>,
    is: Is,
}

/// The spans of one request, to find a span's parents.
struct Spans<'a>(HashMap<Id, Known<'a>>);

pub(super) fn read(request: &Traces<'_>) -> Batch {
    let mut all = Vec::new();
    for resource in &request.resource_spans {
        let about = resource.resource.as_ref().map_or(&[][..], |r| &r.attributes);
        let each = resource.scope_spans.iter().flat_map(|scope| &scope.spans);
        all.extend(each.map(|span| (Known { span, is: is(span) }, Attributes(about))));
    }
    let by_id = all.iter().map(|(known, _)| (known.span.span_id, *known));
    let spans = Spans(by_id.collect());
    let mut batch = Batch::default();
    for (known, about) in all.iter().copied() {
        match spans.call(known, about) {
            Ok(Some(call)) => batch.calls.push(call),
            Ok(None) => batch.others += 1,
            Err(why) => batch.rejected.push(why),
        }
    }
    batch.calls.sort_by_key(|call| call.ended_ms);
    batch
}

impl<'a> Known<'a> {
    fn own(self) -> Attributes<'a> {
        Attributes(&self.span.attributes)
    }
}

impl<'a> Spans<'a> {
    /// A span's parents in this request, the nearest first.
    fn above(&self, span: &'a Span<'a>) -> impl Iterator<Item = Known<'a>> {
        let parent = |span: &'a Span<'a>| self.0.get(&span.parent_span_id).copied();
        std::iter::successors(parent(span), move |known| parent(known.span)).take(DEEPEST)
    }

    fn call(&self, known: Known<'a>, about: Attributes<'_>) -> Result<Option<Observed>, String> {
        let Known { span, is } = known;
        if is == Is::Other || self.is_inside_itself(known) {
            return Ok(None);
        }
        let (own_id, trace) = (span.span_id.bytes(), span.trace_id.bytes());
        if own_id.len() != 8 || trace.len() != 16 {
            return Err(format!("span {:?} has no valid span id and trace id", span.name));
        }
        if span.end_time_unix_nano < span.start_time_unix_nano {
            return Err(format!("span {:?} ends before it begins", span.name));
        }
        let own = known.own();
        let inherited = |names: &[&str]| {
            let above = || self.above(span).find_map(|above| above.own().first(names));
            own.first(names).or_else(above).or_else(|| about.first(names))
        };
        let agent = || {
            let named = langchain::named(own.str(names::METADATA)?, names::METADATA_AGENT);
            named.filter(|_| own.str(names::OPENINFERENCE_KIND).is_some())
        };
        let call = Observed {
            id: hex(trace) + &hex(own_id),
            agent: inherited(names::AGENT)
                .or_else(agent)
                .or_else(|| about.str(names::SERVICE).map(str::to_owned)),
            session: inherited(names::SESSION).or_else(|| Some(hex(trace))),
            began_ms: millis(span.start_time_unix_nano),
            ended_ms: millis(span.end_time_unix_nano),
            failed: failed(span),
            what: What::Tool { name: String::new(), server: None, call_id: None },
            prompt: None,
            arguments: Value::Null,
            answer: None,
            cost: own.dollars(names::COST),
        };
        match is {
            Is::Model => model(own, call)
                .map(Some)
                .ok_or_else(|| format!("span {:?} names no model", span.name)),
            Is::Tool | Is::Other => Ok(Some(tool(own, &span.name, call))),
        }
    }

    /// Whether two instrumentations tell of one call, the other one around it.
    fn is_inside_itself(&self, known: Known<'a>) -> bool {
        let name = |known: Known<'a>| known.own().first(names::TOOL);
        self.above(known.span).any(|above| {
            above.is == known.is && (known.is == Is::Model || name(above) == name(known))
        })
    }
}

fn is(span: &Span<'_>) -> Is {
    let own = Attributes(&span.attributes);
    // The AI SDK has a span around each call that repeats its figures.
    if let Some(operation) = own.str(names::AI_SDK_OPERATION) {
        return match operation {
            names::AI_SDK_TOOL => Is::Tool,
            inner if inner.contains(names::AI_SDK_MODEL) => Is::Model,
            _ => Is::Other,
        };
    }
    if let Some(operation) = own.str(names::OPERATION) {
        return match operation {
            names::TOOL_OPERATION => Is::Tool,
            known if names::MODEL_OPERATIONS.contains(&known) => Is::Model,
            _ => Is::Other,
        };
    }
    match own.str(names::OPENINFERENCE_KIND) {
        Some("LLM" | "EMBEDDING") => return Is::Model,
        Some("TOOL") => return Is::Tool,
        Some(_) => return Is::Other,
        None => {}
    }
    match own.str(names::OPENLLMETRY_KIND) {
        Some("tool") => return Is::Tool,
        Some(_) => return Is::Other,
        None => {}
    }
    if own.str(names::MCP_METHOD) == Some(names::MCP_CALL) {
        return Is::Tool;
    }
    let asks = own.has(names::OPENLLMETRY_REQUEST);
    let used = own.number(names::INPUT).is_some() && own.has(names::MODEL);
    if asks || used { Is::Model } else { Is::Other }
}

fn model(own: Attributes<'_>, call: Observed) -> Option<Observed> {
    let count = |names| Tokens(own.number(names).unwrap_or_default());
    let (cache_read, cache_write) = (count(names::CACHE_READ), count(names::CACHE_WRITE));
    // By the conventions the tokens of the cache are among those of the prompt.
    let input = count(names::INPUT) - cache_read - cache_write;
    let what = What::Model {
        provider: own.first(names::PROVIDER),
        model: own.first(names::MODEL)?,
        usage: Usage { input, output: count(names::OUTPUT), cache_read, cache_write },
    };
    Some(Observed {
        what,
        prompt: own.first(names::PROMPT),
        answer: own.first(names::ANSWER),
        ..call
    })
}

fn tool(own: Attributes<'_>, span: &str, call: Observed) -> Observed {
    // The name of a span is its operation and then the tool: "execute_tool search".
    let named = || {
        let named = span.rsplit(' ').next().unwrap_or(span);
        named.strip_suffix(".tool").unwrap_or(named).to_owned()
    };
    let arguments = langchain::arguments(own.json(names::ARGUMENTS).unwrap_or(Value::Null));
    let said = own.first(names::RESULT);
    let (answer, id) = match said.as_deref().and_then(langchain::message) {
        Some((content, id)) => (Some(content), id),
        None => (said, None),
    };
    let on_server = own.str(names::MCP_METHOD).is_some();
    let what = What::Tool {
        name: own.first(names::TOOL).unwrap_or_else(named),
        server: own.first(names::SERVER).filter(|_| on_server),
        call_id: own.first(names::CALL_ID).or(id),
    };
    Observed { what, arguments, answer, ..call }
}

/// Why a span failed, if it did.
fn failed(span: &Span<'_>) -> Option<String> {
    let status = span.status.as_ref().filter(|status| status.code == FAILED)?;
    let thrown =
        || span.events.iter().find_map(|event| Attributes(&event.attributes).first(names::THROWN));
    let said = Some(status.message.to_string()).filter(|said| !said.is_empty());
    let own = || Attributes(&span.attributes).first(names::ERROR);
    Some(said.or_else(thrown).or_else(own).unwrap_or_else(|| "it failed".to_owned()))
}
