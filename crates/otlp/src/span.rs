//! Our calls as spans, by the GenAI conventions, with what was decided about each as `deadstop.*`.
//!
//! All calls of one session are one trace. Its id comes from the session, and a span's id from its
//! call: every node of a fleet writes the same ones, and a span that is sent again is the same.

use deadstop_core::{Digest, Usage};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use prost::Message;

use crate::names::{self, deadstop};

/// A call that has ended or was refused.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// The project.
    pub project: String,
    /// The agent.
    pub agent: String,
    /// The session's name.
    pub session: String,
    /// The session's number: a name may be used again.
    pub session_number: i64,
    /// The call's number.
    pub call: i64,
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

/// What a call was.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// A model call.
    Model {
        /// The provider.
        provider: Option<String>,
        /// The model.
        model: String,
        /// The tokens that it used.
        usage: Usage,
    },
    /// A tool call.
    Tool {
        /// The tool.
        name: String,
        /// The MCP server that it runs on.
        server: Option<String>,
    },
}

/// A span of the client kind, and one inside a process.
const CLIENT: i32 = 3;
const INTERNAL: i32 = 1;

/// The code of a span that failed.
const FAILED: i32 = 2;

/// Calls as one request of an exporter.
pub fn encode(calls: &[Finished], resource: &[(String, String)], version: &str) -> Vec<u8> {
    let attributes = resource.iter().map(|(key, value)| text(key, value)).collect();
    let scope = InstrumentationScope {
        name: "deadstop".to_owned(),
        version: version.to_owned(),
        ..InstrumentationScope::default()
    };
    let spans = calls.iter().map(span).collect();
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, schema_url: String::new() }];
    let resource = Some(Resource { attributes, ..Resource::default() });
    let spans = ResourceSpans { resource, scope_spans, schema_url: String::new() };
    ExportTraceServiceRequest { resource_spans: vec![spans] }.encode_to_vec()
}

fn span(call: &Finished) -> Span {
    let place = format!("{}/{}", call.project, call.session_number);
    let half = |part: &str| Digest::of(format!("{part}{place}").as_bytes()).0.to_be_bytes();
    let number = format!("{place}/{}", call.call);
    let mut attributes = vec![
        text(names::AGENT[0], &call.agent),
        text(names::SESSION[0], &call.session),
        text(deadstop::PROJECT, &call.project),
        number_of(deadstop::COST, Any::DoubleValue(call.cost_usd)),
    ];
    let (name, kind) = match &call.what {
        What::Model { provider, model, usage } => {
            attributes.push(text(names::OPERATION, "chat"));
            attributes.push(text("gen_ai.request.model", model));
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
                attributes.push(number_of(key, Any::IntValue(tokens)));
            }
            (format!("chat {model}"), CLIENT)
        }
        What::Tool { name, server } => {
            attributes.push(text(names::OPERATION, names::TOOL_OPERATION));
            attributes.push(text(names::TOOL[0], name));
            if let Some(server) = server {
                attributes.push(text(names::MCP_METHOD, "tools/call"));
                attributes.push(text("server.address", server));
            }
            (format!("{} {name}", names::TOOL_OPERATION), INTERNAL)
        }
    };
    attributes.extend(call.decided.iter().map(|(key, value)| text(key, value)));
    let status = call.failed.as_ref().map(|why| Status { message: why.clone(), code: FAILED });
    let nanos = |millis: u64| millis.saturating_mul(1_000_000);
    Span {
        trace_id: [half("a"), half("b")].concat(),
        span_id: Digest::of(number.as_bytes()).0.to_be_bytes().to_vec(),
        name,
        kind,
        start_time_unix_nano: nanos(call.began_ms),
        end_time_unix_nano: nanos(call.ended_ms.max(call.began_ms)),
        attributes,
        status,
        ..Span::default()
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    number_of(key, Any::StringValue(value.to_owned()))
}

fn number_of(key: &str, value: Any) -> KeyValue {
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Kind, traces};
    use deadstop_core::Tokens;

    fn finished(call: i64, what: What) -> Finished {
        Finished {
            project: "default".into(),
            agent: "coder".into(),
            session: "s1".into(),
            session_number: 7,
            call,
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
        let tool = What::Tool { name: "query".into(), server: Some("db".into()) };
        let calls = [finished(1, model), finished(2, tool)];
        let bytes = encode(&calls, &[("service.name".into(), "deadstop".into())], "1");
        let read = traces(&bytes, Format::Protobuf).unwrap();
        assert_eq!((read.calls.len(), read.others, read.rejected.len()), (2, 0, 0));
        for call in &read.calls {
            assert_eq!(call.agent.as_deref(), Some("coder"));
            assert_eq!(call.session.as_deref(), Some("s1"));
            assert_eq!((call.began_ms, call.ended_ms), (1000, 1500));
            assert_eq!(call.failed.as_deref(), Some("blocked: the same call 5 times (limit 5)"));
        }
        let Kind::Model { provider, model, usage: said, .. } = &read.calls[0].kind else {
            panic!()
        };
        assert_eq!((provider.as_deref(), model.as_str(), *said), (Some("openai"), "gpt-4o", usage));
        assert!(matches!(&read.calls[1].kind, Kind::Tool { name, .. } if name == "query"));
        let request = ExportTraceServiceRequest::decode(&*bytes).unwrap();
        let spans = &request.resource_spans[0].scope_spans[0].spans;
        assert_eq!(spans[0].trace_id, spans[1].trace_id, "one session is one trace");
        assert_ne!(spans[0].span_id, spans[1].span_id);
        let has = |key: &str| spans[0].attributes.iter().any(|pair| pair.key == key);
        assert!(has("deadstop.verdict") && has("deadstop.guard") && has("deadstop.cost_usd"));
        assert_eq!(encode(&calls, &[("service.name".into(), "deadstop".into())], "1"), bytes);
    }
}
