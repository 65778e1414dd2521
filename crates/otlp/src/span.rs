//! Our calls and the runs around them as spans, by the GenAI conventions, with what was decided about
//! each as `deadstop.*`.
//!
//! A span's place in its trace is given: the caller that keeps calls knows which trace they belong to.

use deadstop_core::Usage;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use prost::Message;
use serde_json::json;

use crate::call::What;
use crate::names::{self, deadstop};
use crate::write::{Sender, attribute, nanos, text};

/// A call that has ended or was refused, or a run of an agent that is over.
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
    pub work: Work,
    /// When it began, in milliseconds since 1970.
    pub began_ms: u64,
    /// When it ended.
    pub ended_ms: u64,
    /// Why it failed or was refused, if it was.
    pub failed: Option<Failed>,
    /// What was decided about it: names and values of `deadstop.*`.
    pub decided: Vec<(&'static str, String)>,
}

/// What a span is about.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// One call.
    Call {
        /// The call.
        what: What,
        /// The model that answered, where the answer says so.
        answered_by: Option<String>,
        /// What it cost, in dollars.
        cost_usd: f64,
        /// What was asked and answered.
        texts: Texts,
    },
    /// The calls of a session, as one run of its agent.
    Run {
        /// The provider of its first model call.
        provider: Option<String>,
        /// The model that this one asked for.
        model: Option<String>,
        /// What all its model calls used.
        usage: Usage,
    },
}

/// What was asked and answered in a call, where that may be told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Texts {
    /// What is new in the prompt, or the arguments of a tool.
    pub asked: Option<String>,
    /// The answer, or the result.
    pub answered: Option<String>,
}

/// Why something failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// Its class, one of few.
    pub class: String,
    /// The sentence.
    pub said: String,
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

fn span(told: &Finished) -> Span {
    let mut attributes = vec![
        text(names::AGENT[0], &told.agent),
        text(names::SESSION[0], &told.session),
        text(deadstop::PROJECT, &told.project),
    ];
    let (name, kind) = match &told.work {
        Work::Call { what, answered_by, cost_usd, texts } => {
            attributes.push(attribute(deadstop::COST, Any::DoubleValue(*cost_usd)));
            attributes.extend(answered_by.as_ref().map(|model| text(names::MODEL[0], model)));
            said(what, texts, &mut attributes);
            call(what, &mut attributes)
        }
        Work::Run { provider, model, usage } => {
            attributes.push(text(names::OPERATION, names::RUN));
            attributes.extend(provider.as_ref().map(|name| provider_of(name)));
            attributes.extend(model.as_ref().map(|name| text(names::REQUEST_MODEL, name)));
            used(usage, &mut attributes);
            (format!("{} {}", names::RUN, told.agent), INTERNAL)
        }
    };
    if let Some(Failed { class, .. }) = &told.failed {
        attributes.push(text(names::ERROR[0], class));
    }
    attributes.extend(told.decided.iter().map(|(key, value)| text(key, value)));
    let status = told.failed.as_ref().map(|why| Status { message: why.said.clone(), code: FAILED });
    Span {
        trace_id: told.trace.to_vec(),
        span_id: told.span.to_vec(),
        parent_span_id: told.parent.map(Vec::from).unwrap_or_default(),
        name,
        kind,
        start_time_unix_nano: nanos(told.began_ms),
        end_time_unix_nano: nanos(told.ended_ms.max(told.began_ms)),
        attributes,
        status,
        ..Span::default()
    }
}

/// The name and the kind of a call's span.
fn call(what: &What, attributes: &mut Vec<KeyValue>) -> (String, i32) {
    match what {
        What::Model { provider, model, usage } => {
            attributes.push(text(names::OPERATION, names::CHAT));
            attributes.push(text(names::REQUEST_MODEL, model));
            attributes.extend(provider.as_ref().map(|name| provider_of(name)));
            used(usage, attributes);
            (format!("{} {model}", names::CHAT), CLIENT)
        }
        What::Tool { name, server, call_id } => {
            attributes.push(text(names::OPERATION, names::TOOL_OPERATION));
            attributes.push(text(names::TOOL[0], name));
            attributes.extend(call_id.as_ref().map(|id| text(names::CALL_ID[0], id)));
            // By the conventions an MCP call that is told of as a tool call has its name and kind.
            if let Some(server) = server {
                attributes.push(text(names::MCP_METHOD, names::MCP_CALL));
                attributes.push(text(names::SERVER[0], server));
            }
            (format!("{} {name}", names::TOOL_OPERATION), INTERNAL)
        }
    }
}

/// Texts as the conventions write them: messages with their parts, or a tool's own.
fn said(what: &What, texts: &Texts, attributes: &mut Vec<KeyValue>) {
    let messages = |role: &str, said: &String| {
        let parts = json!([{ "type": "text", "content": said }]);
        json!([{ "role": role, "parts": parts }]).to_string()
    };
    let (asked, answered) = (texts.asked.as_ref(), texts.answered.as_ref());
    match what {
        What::Model { .. } => {
            let asked = asked.map(|said| text(names::PROMPT[0], &messages("user", said)));
            let answered =
                answered.map(|said| text(names::ANSWER[0], &messages("assistant", said)));
            attributes.extend(asked.into_iter().chain(answered));
        }
        What::Tool { .. } => {
            let asked = asked.map(|said| text(names::ARGUMENTS[0], said));
            let answered = answered.map(|said| text(names::RESULT[0], said));
            attributes.extend(asked.into_iter().chain(answered));
        }
    }
}

fn provider_of(name: &str) -> KeyValue {
    text(names::PROVIDER[0], names::conventional(name))
}

fn used(usage: &Usage, attributes: &mut Vec<KeyValue>) {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, traces};
    use deadstop_core::Tokens;

    fn finished(call: u8, what: What) -> Finished {
        Finished {
            project: "default".into(),
            agent: "coder".into(),
            session: "s1".into(),
            trace: [7; 16],
            span: [call; 8],
            parent: Some([9; 8]),
            work: Work::Call { what, answered_by: None, cost_usd: 0.01, texts: Texts::default() },
            began_ms: 1000,
            ended_ms: 1500,
            failed: Some(Failed {
                class: "exact_repeat".into(),
                said: "blocked: the same call 5 times (limit 5)".into(),
            }),
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
        let calls = [finished(1, model), finished(2, tool.clone())];
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
        assert_eq!(read.calls[1].what, tool);
        let request = ExportTraceServiceRequest::decode(&*bytes).unwrap();
        let spans = &request.resource_spans[0].scope_spans[0].spans;
        assert_eq!((&*spans[0].trace_id, &*spans[0].span_id), (&[7; 16][..], &[1; 8][..]));
        assert_eq!(spans[0].parent_span_id, [9; 8]);
        let has = |key: &str| spans[0].attributes.iter().any(|pair| pair.key == key);
        assert!(has("deadstop.verdict") && has("deadstop.guard") && has("deadstop.cost_usd"));
        assert_eq!(encode(&calls, sender), bytes);
    }

    fn attributes(told: &Finished) -> Vec<(String, Any)> {
        let pairs = span(told).attributes.into_iter();
        pairs.filter_map(|pair| Some((pair.key, pair.value?.value?))).collect()
    }

    /// The model that answered is told beside the one that was asked, and a reader takes it for the call's.
    #[test]
    fn the_model_that_answered_is_told() {
        let what = What::Model {
            provider: Some("gemini".into()),
            model: "gpt-4o".into(),
            usage: Usage::default(),
        };
        let mut told = finished(1, what.clone());
        let answered_by = Some("gpt-4o-2024-08-06".to_owned());
        told.work = Work::Call { what, answered_by, cost_usd: 0.0, texts: Texts::default() };
        let bytes = encode(&[told.clone()], Sender { resource: &[], version: "1" });
        let read = traces(&bytes, Format::Protobuf).unwrap();
        let What::Model { model, .. } = &read.calls[0].what else { panic!() };
        assert_eq!(model, "gpt-4o-2024-08-06");
        let said = |key: &str, value: &str| {
            let value = Any::StringValue(value.to_owned());
            assert!(attributes(&told).contains(&(key.to_owned(), value)), "{key}");
        };
        said("gen_ai.request.model", "gpt-4o");
        said("gen_ai.response.model", "gpt-4o-2024-08-06");
        said("gen_ai.provider.name", "gcp.gemini");
        said("error.type", "exact_repeat");
    }

    /// A run repeats what its calls used: a reader of spans must not charge it again.
    #[test]
    fn a_run_is_no_call() {
        let usage = Usage { input: Tokens(10), output: Tokens(5), ..Usage::default() };
        let what = What::Tool { name: "query".into(), server: None, call_id: None };
        let mut run = finished(9, what);
        run.work =
            Work::Run { provider: Some("openai".into()), model: Some("gpt-4o".into()), usage };
        let bytes = encode(&[run.clone()], Sender { resource: &[], version: "1" });
        let read = traces(&bytes, Format::Protobuf).unwrap();
        assert_eq!((read.calls.len(), read.others), (0, 1));
        let written = span(&run);
        assert_eq!((&*written.name, written.kind), ("invoke_agent coder", INTERNAL));
        let input = ("gen_ai.usage.input_tokens".to_owned(), Any::IntValue(10));
        assert!(attributes(&run).contains(&input));
    }

    #[test]
    fn texts_are_told_where_they_are_given() {
        let told = |what: What| {
            let texts = Texts { asked: Some("{\"id\":7}".into()), answered: Some("done".into()) };
            let mut told = finished(1, what.clone());
            assert!(attributes(&told).iter().all(|(key, _)| !key.ends_with("messages")));
            told.work = Work::Call { what, answered_by: None, cost_usd: 0.0, texts };
            let bytes = encode(&[told], Sender { resource: &[], version: "1" });
            traces(&bytes, Format::Protobuf).unwrap().calls.remove(0)
        };
        let tool =
            told(What::Tool { name: "query".into(), server: None, call_id: Some("c".into()) });
        assert_eq!((tool.arguments, tool.answer), (json!({ "id": 7 }), Some("done".into())));
        let usage = Usage::default();
        let model = told(What::Model { provider: None, model: "gpt-4o".into(), usage });
        assert_eq!(
            model.answer.as_deref(),
            Some(r#"[{"parts":[{"content":"done","type":"text"}],"role":"assistant"}]"#)
        );
        assert!(model.prompt.unwrap().contains(r#""role":"user""#));
    }
}
