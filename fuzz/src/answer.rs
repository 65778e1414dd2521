//! Answers of models: the calls, words and bytes that come out do not depend on where they were cut.

use deadstop_core::Usage;
use deadstop_protocol::llm::answer::{Form, Pass, Reader};
use deadstop_protocol::llm::{Dialect, Piece};
use serde_json::Value;

/// What a reader made of an answer.
#[derive(Debug, PartialEq, Default)]
struct Seen {
    calls: Vec<(String, String, Value)>,
    text: String,
    errors: Vec<String>,
    done: usize,
    usage: Option<Usage>,
    passed: Vec<u8>,
}

/// An answer that is one JSON document.
pub fn whole(dialect: Dialect, data: &[u8]) {
    let seen = read(dialect, Form::Json, &[data], Hold::No);
    // It is put together first, so one way to cut it is enough.
    let [cut, _, _, _] = crate::ways(data);
    if cut {
        assert_eq!(seen, read(dialect, Form::Json, &crate::parts(data), Hold::No), "cut");
    }
    assert_eq!(seen.passed, data, "a whole answer passes as it is");
    let Ok(document) = serde_json::from_slice::<Value>(data) else { return };
    for name in named(dialect, &document) {
        let found = seen.calls.iter().any(|(_, seen, _)| *seen == name);
        assert!(found, "a client sees a call of {name:?}, and the reader saw {:?}", seen.calls);
    }
}

/// An answer that is a stream: events, or the list that Gemini sends without `alt=sse`.
pub fn stream(dialect: Dialect, data: &[u8]) {
    let form = match (dialect, data.first()) {
        (Dialect::Gemini, Some(b'[')) => Form::Objects,
        _ => Form::Events,
    };
    let [parts, bytes, held_parts, held_bytes] = crate::ways(data);
    for (hold, parts, bytes) in [(Hold::No, parts, bytes), (Hold::Calls, held_parts, held_bytes)] {
        if !parts && !bytes {
            continue;
        }
        let seen = read(dialect, form, &[data], hold);
        if parts {
            assert_eq!(seen, read(dialect, form, &crate::parts(data), hold), "cut");
        }
        if bytes {
            let bytes: Vec<&[u8]> = data.chunks(1).collect();
            assert_eq!(seen, read(dialect, form, &bytes, hold), "a byte at a time");
        }
        assert_eq!(seen.passed, data, "every byte passes once, in order");
    }
}

/// Whether events of a call wait until it is complete.
#[derive(Debug, Clone, Copy)]
enum Hold {
    No,
    Calls,
}

fn read(dialect: Dialect, form: Form, parts: &[&[u8]], hold: Hold) -> Seen {
    let mut reader = Reader::new(dialect, form, false);
    if matches!(hold, Hold::Calls) {
        reader.hold_calls();
    }
    let mut seen = Seen::default();
    for part in parts {
        let mut pieces = Vec::new();
        let passed = match reader.push(part, &mut pieces) {
            Pass::All => part.to_vec(),
            Pass::Bytes(bytes) => bytes,
        };
        seen.take(pieces, passed.len());
        seen.passed.extend(passed);
    }
    let mut pieces = Vec::new();
    let passed = match reader.finish(&mut pieces) {
        Pass::All => Vec::new(),
        Pass::Bytes(bytes) => bytes,
    };
    seen.take(pieces, passed.len());
    seen.passed.extend(passed);
    seen.usage = reader.usage();
    seen
}

impl Seen {
    fn take(&mut self, pieces: Vec<Piece>, passed: usize) {
        for piece in pieces {
            match piece {
                Piece::Text(text) => self.text += &text,
                Piece::ToolCall { id, name, arguments, held_from } => {
                    assert!(held_from <= passed, "held from {held_from} of {passed} bytes");
                    self.calls.push((id, name, arguments));
                }
                Piece::Usage(_) => {}
                Piece::Error(error) => self.errors.push(error),
                Piece::Done => self.done += 1,
            }
        }
    }
}

/// Names of the calls that a client finds in a document, read in the plainest way.
fn named(dialect: Dialect, document: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let found: Vec<Value> = match dialect {
        Dialect::Anthropic => list(&document["content"])
            .into_iter()
            .filter(|block| block["type"] == "tool_use")
            .map(|block| block["name"].clone())
            .collect(),
        Dialect::Gemini => list(&document["candidates"])
            .iter()
            .flat_map(|candidate| list(&candidate["content"]["parts"]))
            .map(|part| part["functionCall"]["name"].clone())
            .collect(),
        Dialect::OpenAiResponses => list(&document["output"])
            .into_iter()
            .filter(|item| item["type"] == "function_call")
            .map(|item| item["name"].clone())
            .collect(),
        _ => list(&document["choices"])
            .iter()
            .flat_map(|choice| list(&choice["message"]["tool_calls"]))
            .map(|call| call["function"]["name"].clone())
            .collect(),
    };
    let name = |value: Value| value.as_str().filter(|name| !name.is_empty()).map(str::to_owned);
    found.into_iter().filter_map(name).collect()
}
