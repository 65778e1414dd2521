//! Our calls as spans, by the GenAI conventions, with what was decided about each as `deadstop.*`.
//!
//! A span's place in its trace is given: the caller that keeps calls knows which trace they belong to.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use prost::Message;

use crate::call::What;
use crate::names::{self, deadstop};
use crate::write::{Sender, attribute, nanos, text};

/// A call that has ended or was refused.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// The project.
    pub project: String,
    /// The agent.
    pub agent: String,
    /// The session's name.
    pub session: String,
    /// The trace that it belongs to.
    pub trace: [u8; 16],
    /// Its own id.
    pub span: [u8; 8],
    /// The span around it, if there is one.
    pub parent: Option<[u8; 8]>,
    /// What it was.
    pub what: What,
    /// When it began, in milliseconds since 1970.
    pub began_ms: u64,
    /// When it ended.
    pub ended_ms: u64,
    /// Why it failed or was refused, if it was.
    pub failed: Option<String>,
    /// What it cost, in dollars.
    pub cost_usd: f64,
    /// What was decided about it: names and values of `deadstop.*`.
    pub decided: Vec<(&'static str, String)>,
}

/// A span of the client kind, and one inside a process.
const CLIENT: i32 = 3;
const INTERNAL: i32 = 1;

/// The code of a span that failed.
const FAILED: i32 = 2;

/// Calls as one request of an exporter.
pub fn encode(calls: &[Finished], sender: Sender<'_>) -> Vec<u8> {
    let spans = calls.iter().map(span).collect();
    let (resource, scope) = (sender.resource(), sender.scope());
    let scope_spans = vec![ScopeSpans { scope, spans, schema_url: String::new() }];
    let spans = ResourceSpans { resource, scope_spans, schema_url: String::new() };
    ExportTraceServiceRequest { resource_spans: vec![spans] }.encode_to_vec()
}

fn span(call: &Finished) -> Span {
    let mut attributes = vec![
        text(names::AGENT[0], &call.agent),
        text(names::SESSION[0], &call.session),
        text(deadstop::PROJECT, &call.project),
        attribute(deadstop::COST, Any::DoubleValue(call.cost_usd)),
    ];
    let (name, kind) = match &call.what {
        What::Model { provider, model, usage } => {
            attributes.push(text(names::OPERATION, names::CHAT));
            attributes.push(text(names::REQUEST_MODEL, model));
            attributes.extend(provider.as_ref().map(|name| text(names::PROVIDER[0], name)));
            // By the conventions the tokens of the cache are among those of the prompt.
            let prompt = usage.input + usage.cache_read + usage.cache_write;
            for (key, tokens) in [
                (names::INPUT[0], prompt),
                (names::OUTPUT[0], usage.output),
                (names::CACHE_READ[0], usage.cache_read),
                (names::CACHE_WRITE[0], usage.cache_write),
            ] {
                let tokens = i64::try_from(tokens.0).unwrap_or(i64::MAX);
                attributes.push(attribute(key, Any::IntValue(tokens)));
            }
            (format!("{} {model}", names::CHAT), CLIENT)
        }
        What::Tool { name, server, call_id } => {
            attributes.push(text(names::OPERATION, names::TOOL_OPERATION));
            attributes.push(text(names::TOOL[0], name));
            attributes.extend(call_id.as_ref().map(|id| text(names::CALL_ID[0], id)));
            if let Some(server) = server {
                attributes.push(text(names::MCP_METHOD, names::MCP_CALL));
                attributes.push(text(names::SERVER, server));
            }
            (format!("{} {name}", names::TOOL_OPERATION), INTERNAL)
        }
    };
    attributes.extend(call.decided.iter().map(|(key, value)| text(key, value)));
    let status = call.failed.as_ref().map(|why| Status { message: why.clone(), code: FAILED });
    Span {
        trace_id: call.trace.to_vec(),
        span_id: call.span.to_vec(),
        parent_span_id: call.parent.map(Vec::from).unwrap_or_default(),
        name,
        kind,
        start_time_unix_nano: nanos(call.began_ms),
        end_time_unix_nano: nanos(call.ended_ms.max(call.began_ms)),
        attributes,
        status,
        ..Span::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, traces};
    use deadstop_core::{Tokens, Usage};

    fn finished(call: u8, what: What) -> Finished {
        Finished {
            project: "default".into(),
            agent: "coder".into(),
            session: "s1".into(),
            trace: [7; 16],
            span: [call; 8],
            parent: Some([9; 8]),
            what,
            began_ms: 1000,
            ended_ms: 1500,
            failed: Some("blocked: the same call 5 times (limit 5)".into()),
            cost_usd: 0.01,
            decided: vec![(deadstop::VERDICT, "block".into()), (deadstop::GUARD, "loop".into())],
        }
    }

    /// What we write, we read: each fact arrives as it was.
    #[test]
    fn our_spans_are_calls_to_a_reader_of_spans() {
        let usage = Usage {
            input: Tokens(10),
            output: Tokens(5),
            cache_read: Tokens(90),
            ..Usage::default()
        };
        let model = What::Model { provider: Some("openai".into()), model: "gpt-4o".into(), usage };
        let tool = What::Tool {
            name: "query".into(),
            server: Some("db".into()),
            call_id: Some("call_1".into()),
        };
        let calls = [finished(1, model), finished(2, tool)];
        let resource = [("service.name".into(), "deadstop".into())];
        let sender = Sender { resource: &resource, version: "1" };
        let bytes = encode(&calls, sender);
        let read = traces(&bytes, Format::Protobuf).unwrap();
        assert_eq!((read.calls.len(), read.others, read.rejected.len()), (2, 0, 0));
        for call in &read.calls {
            assert_eq!(call.agent.as_deref(), Some("coder"));
            assert_eq!(call.session.as_deref(), Some("s1"));
            assert_eq!((call.began_ms, call.ended_ms), (1000, 1500));
            assert_eq!(call.failed.as_deref(), Some("blocked: the same call 5 times (limit 5)"));
        }
        let What::Model { provider, model, usage: said } = &read.calls[0].what else { panic!() };
        assert_eq!((provider.as_deref(), model.as_str(), *said), (Some("openai"), "gpt-4o", usage));
        assert_eq!(read.calls[1].what, calls[1].what);
        let request = ExportTraceServiceRequest::decode(&*bytes).unwrap();
        let spans = &request.resource_spans[0].scope_spans[0].spans;
        assert_eq!((&*spans[0].trace_id, &*spans[0].span_id), (&[7; 16][..], &[1; 8][..]));
        assert_eq!(spans[0].parent_span_id, [9; 8]);
        let has = |key: &str| spans[0].attributes.iter().any(|pair| pair.key == key);
        assert!(has("deadstop.verdict") && has("deadstop.guard") && has("deadstop.cost_usd"));
        assert_eq!(encode(&calls, sender), bytes);
    }
}
