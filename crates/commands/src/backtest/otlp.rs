//! Telemetry as recorded runs: OTLP JSON, and what the OpenTelemetry Collector's file exporter writes.
//!
//! A session's spans lie in any order and on any line, so its trace is complete only at the end.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};

use deadstop_core::{Time, Usage};
use deadstop_otlp::{Observed, What};
use deadstop_protocol::trace::{
    BadLine, MAX_LINE, MAX_TRANSCRIPT, RecordedCall, RecordedResult, Trace, Turn,
};
use serde_json::{Value, json};

/// An agent and its conversation.
type Session = (String, String);

/// Reads all of a source; the traces of what could be read, and what could not.
pub(super) fn read(mut input: impl BufRead) -> Vec<Result<Trace, BadLine>> {
    let mut sessions: BTreeMap<Session, Vec<Observed>> = BTreeMap::new();
    let (mut bad, mut bytes, mut number) = (Vec::new(), 0, 0);
    let mut line = Vec::new();
    loop {
        line.clear();
        number += 1;
        let problem = |problem: String| Err(BadLine { line: number, problem });
        match (&mut input).take(MAX_LINE as u64).read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => {
                bad.push(problem(error.to_string()));
                break;
            }
        }
        // One document over many lines: its first line alone is no JSON.
        if number == 1 && !is_whole(&line) {
            let room = (MAX_LINE - line.len()) as u64;
            if let Err(error) = (&mut input).take(room).read_to_end(&mut line) {
                bad.push(problem(error.to_string()));
            }
        }
        bytes += line.len();
        if bytes > MAX_TRANSCRIPT {
            bad.push(problem("the file is larger than 1 GiB; the rest is left out".to_owned()));
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match deadstop_otlp::document(&line) {
            Ok(batch) => {
                bad.extend(batch.rejected.into_iter().map(problem));
                for call in batch.calls {
                    sessions.entry(session(&call)).or_default().push(call);
                }
            }
            Err(error) => bad.push(problem(error.to_string())),
        }
    }
    let mut traces: Vec<Trace> = sessions.into_iter().map(trace).collect();
    // In the order in which they began, as in other recordings.
    traces.sort_by_key(|trace| trace.turns.first().map(began));
    traces.into_iter().map(Ok).chain(bad).collect()
}

fn is_whole(line: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok()
}

fn session(call: &Observed) -> Session {
    let or_default = |name: &Option<String>| name.clone().unwrap_or_else(|| "default".to_owned());
    (or_default(&call.agent), or_default(&call.session))
}

fn began(turn: &Turn) -> Option<Time> {
    match turn {
        Turn::Prompt { at, .. } | Turn::Answer { at, .. } => *at,
    }
}

/// One conversation: each model call is an answer, and the tool calls after it are those it asked for.
fn trace(((agent, session), mut calls): (Session, Vec<Observed>)) -> Trace {
    calls.sort_by_key(|call| (call.ended_ms, call.began_ms));
    // A report that was sent again is one report.
    let mut seen = std::collections::HashSet::new();
    calls.retain(|call| seen.insert(call.id.clone()));
    let messages = calls.len();
    let mut turns: Vec<Turn> = Vec::new();
    for (number, call) in calls.into_iter().enumerate() {
        let at = Some(Time(call.ended_ms));
        let message = number + 1;
        match call.what {
            What::Model { model, usage, .. } => turns.push(Turn::Answer {
                text: call.answer.unwrap_or_default(),
                calls: Vec::new(),
                usage: Some(usage),
                model: Some(model),
                at,
                message,
            }),
            What::Tool { name, .. } => {
                // Arguments that were not told are others each time: no call is known to be repeated.
                let arguments = match call.arguments {
                    Value::Null => json!({ "not told": call.id }),
                    told => told,
                };
                let is_error = call.failed.is_some();
                let text = call.answer.or(call.failed).unwrap_or_default();
                let result = Some(RecordedResult { text, is_error, at, message });
                let recorded = RecordedCall { name, arguments, message, result };
                match turns.last_mut() {
                    Some(Turn::Answer { calls, .. }) => calls.push(recorded),
                    // The model call was not told of; it is taken to be free.
                    _ => turns.push(Turn::Answer {
                        text: String::new(),
                        calls: vec![recorded],
                        usage: Some(Usage::default()),
                        model: None,
                        at: Some(Time(call.began_ms)),
                        message,
                    }),
                }
            }
        }
    }
    let model = turns.iter().find_map(|turn| match turn {
        Turn::Answer { model, .. } => model.clone(),
        Turn::Prompt { .. } => None,
    });
    Trace { id: session, dataset: Some(agent), model, messages, turns, ..Trace::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(id: u8, ended: u64, attributes: &Value) -> Value {
        let attributes: Vec<Value> = attributes
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, value)| match value.as_str() {
                Some(text) => json!({ "key": key, "value": { "stringValue": text } }),
                None => json!({ "key": key, "value": { "intValue": value.to_string() } }),
            })
            .collect();
        json!({
            "traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": format!("{id:016x}"),
            "name": "x", "startTimeUnixNano": format!("{}", (ended - 1) * 1_000_000),
            "endTimeUnixNano": format!("{}", ended * 1_000_000), "attributes": attributes,
        })
    }

    fn export(spans: &[Value]) -> Value {
        let service = json!({ "key": "service.name", "value": { "stringValue": "shop" } });
        json!({ "resourceSpans": [{
            "resource": { "attributes": [service] }, "scopeSpans": [{ "spans": spans }],
        }] })
    }

    fn run() -> [Value; 3] {
        let session = "gen_ai.conversation.id";
        let model = json!({
            "gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o", session: "s1",
            "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 5,
        });
        let tool = json!({
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "query", session: "s1",
            "gen_ai.tool.call.arguments": "{\"a\":1}", "gen_ai.tool.call.result": "none",
        });
        [span(1, 1000, &model), span(2, 2000, &tool), span(3, 3000, &model)]
    }

    /// On lines in any order, sent twice, or as one printed document: the same run.
    #[test]
    fn spans_are_put_together_by_session() {
        let [first, tool, last] = run();
        let back = [last.clone(), first.clone()];
        let lines = [&back[..], std::slice::from_ref(&tool), std::slice::from_ref(&first)];
        let lines: Vec<String> = lines.map(|spans| export(spans).to_string()).into();
        let printed = serde_json::to_string_pretty(&export(&[first, tool, last])).unwrap();
        for text in [lines.join("\n"), printed] {
            let mut found = read(text.as_bytes());
            assert_eq!(found.len(), 1, "{found:?}");
            let trace = found.remove(0).unwrap();
            assert_eq!((&*trace.id, trace.dataset.as_deref()), ("s1", Some("shop")));
            assert_eq!((trace.messages, trace.model.as_deref()), (3, Some("gpt-4o")));
            let Turn::Answer { calls, usage, .. } = &trace.turns[0] else { panic!() };
            assert_eq!(usage.unwrap().output.0, 5);
            assert_eq!((calls.len(), &*calls[0].name), (1, "query"));
            assert_eq!(calls[0].arguments, json!({ "a": 1 }));
            assert_eq!(calls[0].result.as_ref().unwrap().text, "none");
        }
    }

    #[test]
    fn a_broken_line_is_named_and_the_rest_is_read() {
        let [first, tool, _] = run();
        let text = format!("{}\n{{\"resourceSpans\": 7}}\n\n{}", export(&[first]), export(&[tool]));
        let found = read(text.as_bytes());
        assert_eq!(found.len(), 2);
        assert!(found[0].is_ok());
        assert_eq!(found[1].as_ref().unwrap_err().line, 2);
    }
}
