//! Notes to the model: advice that is put behind a tool's result, or behind the newest turn.
//!
//! Every other byte of the body stays as it is, and the standing orders are never touched. Clients
//! send the whole history with each request and know nothing of the notes, so a note is put in the
//! same place again for as long as that place is in the history: what the provider has cached stays
//! valid. A place is known by the id of a tool's call, or else by the chain of messages up to it.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::json::{self, elements, owned};
use super::news::Speaker;
use super::{Open, seen};
use crate::llm::Dialect;

/// Notes that a session remembers; of more the oldest are forgotten.
const MOST: usize = 16;
/// Characters of a note.
const LONGEST: usize = 600;

/// The notes that a model was given in a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Notes(VecDeque<Note>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    place: NotePosition,
    text: String,
}

/// Where a note stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum NotePosition {
    /// Behind the result of this call.
    Result(String),
    /// Behind the message at the end of this chain.
    Turn(u64),
    /// Behind the newest turn, whatever that is; becomes one of the others.
    Newest,
}

impl Notes {
    /// A note behind the result of the call with this id; behind the newest turn, if it has none.
    pub fn add(&mut self, call_id: &str, advice: &str) {
        let place = match call_id {
            "" => NotePosition::Newest,
            id => NotePosition::Result(id.to_owned()),
        };
        if self.0.iter().any(|note| note.place == place) {
            return;
        }
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        let end = advice.char_indices().nth(LONGEST).map_or(advice.len(), |(at, _)| at);
        self.0.push_back(Note { place, text: format!("[Deadstop] {}", &advice[..end]) });
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Open<'_> {
    /// The body with the notes in their places; `None` if none of these is in it. A note without a
    /// place gets one.
    pub fn with_notes(&self, notes: &mut Notes) -> Option<Vec<u8>> {
        if notes.is_empty() {
            return None;
        }
        let messages = self.envelope.items.list.as_slice();
        let chain = seen::chain(messages);
        let newest = messages.iter().rposition(|message| self.speaker(message) == Speaker::Other);
        let mut inserts = Vec::new();
        for note in &mut notes.0 {
            if note.place == NotePosition::Newest {
                let Some(at) = newest else { continue };
                note.place = NotePosition::Turn(chain[at]);
            }
            let slot = match &note.place {
                NotePosition::Result(id) => {
                    messages.iter().rev().find_map(|message| self.result_slot(message, id))
                }
                NotePosition::Turn(link) => {
                    let at = chain.iter().position(|found| found == link);
                    at.and_then(|at| self.turn_slot(messages[at]))
                }
                NotePosition::Newest => None,
            };
            inserts.extend(slot.and_then(|slot| self.insert(&slot, &note.text)));
        }
        inserts.sort_by_key(|(at, _)| *at);
        (!inserts.is_empty()).then(|| spliced(self.body, &inserts))
    }

    /// Where a note behind the result of a call goes, if the result is in this message.
    fn result_slot<'m>(&self, message: &'m RawValue, id: &str) -> Option<Slot<'m>> {
        let is = |found: Option<&RawValue>| owned(found).as_deref() == Some(id);
        match self.dialect {
            Dialect::OpenAiChat => {
                let [found, content] = json::fields(message, ["tool_call_id", "content"]);
                is(found).then(|| content.map(|content| Slot { content, kind: "text" }))?
            }
            Dialect::OpenAiResponses => {
                let [kind, found, output] = json::fields(message, ["type", "call_id", "output"]);
                let result = owned(kind).is_some_and(|kind| kind.ends_with("_output"));
                (result && is(found))
                    .then(|| output.map(|content| Slot { content, kind: "input_text" }))?
            }
            Dialect::Anthropic => {
                let [content] = json::fields(message, ["content"]);
                elements(content?).into_iter().find_map(|block| {
                    let [found, content] = json::fields(block, ["tool_use_id", "content"]);
                    is(found).then(|| content.map(|content| Slot { content, kind: "text" }))?
                })
            }
            Dialect::Gemini => {
                let [parts] = json::fields(message, ["parts"]);
                elements(parts?).into_iter().find_map(|part| {
                    let response = gemini_response(part)?;
                    let [found, content] = json::fields(response, ["id", "response"]);
                    is(found).then(|| content.map(|content| Slot { content, kind: "" }))?
                })
            }
            _ => None,
        }
    }

    /// Where a note behind a whole message goes: behind its last result, or else its words.
    fn turn_slot<'m>(&self, message: &'m RawValue) -> Option<Slot<'m>> {
        match self.dialect {
            Dialect::OpenAiChat => {
                let [content] = json::fields(message, ["content"]);
                content.map(|content| Slot { content, kind: "text" })
            }
            Dialect::OpenAiResponses => {
                let [content, output] = json::fields(message, ["content", "output"]);
                output.or(content).map(|content| Slot { content, kind: "input_text" })
            }
            Dialect::Anthropic => {
                let [content] = json::fields(message, ["content"]);
                let result = elements(content?).into_iter().rev().find_map(|block| {
                    let [id, content] = json::fields(block, ["tool_use_id", "content"]);
                    id.and(content)
                });
                Some(Slot { content: result.or(content)?, kind: "text" })
            }
            Dialect::Gemini => {
                let [parts] = json::fields(message, ["parts"]);
                let response = elements(parts?).into_iter().rev().find_map(gemini_response);
                let answer = response.and_then(|found| json::fields(found, ["response"])[0]);
                Some(Slot { content: answer.or(parts)?, kind: "" })
            }
            _ => None,
        }
    }

    /// What is put where in the body.
    fn insert(&self, slot: &Slot<'_>, note: &str) -> Option<(usize, String)> {
        let content = slot.content.get();
        let at = (content.as_ptr() as usize).checked_sub(self.body.as_ptr() as usize)?;
        let last = at + content.len().checked_sub(1)?;
        let quoted = serde_json::to_string(note).ok()?;
        let inside = content.get(1..content.len() - 1)?;
        let comma = if inside.trim().is_empty() { "" } else { "," };
        let text = match content.as_bytes().first()? {
            b'"' => format!("\\n\\n{}", quoted.trim_matches('"')),
            b'[' if slot.kind.is_empty() => format!("{comma}{{\"text\":{quoted}}}"),
            b'[' => format!("{comma}{{\"type\":\"{}\",\"text\":{quoted}}}", slot.kind),
            b'{' => format!("{comma}\"deadstop_note\":{quoted}"),
            _ => return None,
        };
        (last < self.body.len()).then_some((last, text))
    }
}

/// A value that a note can be put at the end of.
struct Slot<'a> {
    content: &'a RawValue,
    /// What the dialect calls a part that is text; Gemini's parts have no type.
    kind: &'static str,
}

fn gemini_response(part: &RawValue) -> Option<&RawValue> {
    let [camel, snake] = json::fields(part, ["functionResponse", "function_response"]);
    camel.or(snake)
}

fn spliced(body: &[u8], inserts: &[(usize, String)]) -> Vec<u8> {
    let more: usize = inserts.iter().map(|(_, text)| text.len()).sum();
    let mut edited = Vec::with_capacity(body.len() + more);
    let mut from = 0;
    for (at, text) in inserts {
        edited.extend_from_slice(body.get(from..*at).unwrap_or_default());
        edited.extend_from_slice(text.as_bytes());
        from = *at;
    }
    edited.extend_from_slice(body.get(from..).unwrap_or_default());
    edited
}

#[cfg(test)]
mod tests {
    use super::super::open;
    use super::*;
    use serde_json::{Value, json};

    const PATHS: [(Dialect, &str); 4] = [
        (Dialect::OpenAiChat, "/v1/chat/completions"),
        (Dialect::OpenAiResponses, "/v1/responses"),
        (Dialect::Anthropic, "/v1/messages"),
        (Dialect::Gemini, "/v1beta/models/gemini-2.5-flash:generateContent"),
    ];

    /// A conversation of so many turns, each with a call and its result, spaced as no serialiser
    /// would do it.
    fn body(dialect: Dialect, turns: usize) -> String {
        let turn = |n: usize| match dialect {
            Dialect::OpenAiChat => format!(
                r#"{{"role":"assistant", "tool_calls":[{{"id":"c{n}"}}]}} , {{"role":"tool","content":"no \"x\" {n}","tool_call_id":"c{n}"}}"#
            ),
            Dialect::OpenAiResponses => format!(
                r#"{{"type":"function_call","call_id":"c{n}"}},{{"type":"function_call_output", "call_id":"c{n}","output":"no {n}"}}"#
            ),
            Dialect::Anthropic => format!(
                r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"c{n}"}}]}},{{"role":"user","content":[ {{"type":"tool_result","tool_use_id":"c{n}","content":[ {{"type":"text","text":"no {n}"}} ]}} ]}}"#
            ),
            _ => format!(
                r#"{{"role":"model","parts":[{{"functionCall":{{"name":"f"}}}}]}},{{"role":"user","parts":[{{"functionResponse":{{"name":"f","id":"c{n}","response":{{"output":"no {n}"}}}}}}]}}"#
            ),
        };
        let turns: Vec<String> = (0..turns).map(turn).collect();
        let list = match dialect {
            Dialect::OpenAiResponses => "input",
            Dialect::Gemini => "contents",
            _ => "messages",
        };
        let first = match dialect {
            Dialect::Gemini => r#"{"role":"user","parts":[{"text":"go"}]}"#,
            _ => r#"{"role":"user","content":"go"}"#,
        };
        let rest = [vec![first.to_owned()], turns].concat().join(",");
        format!(r#"{{ "model":"m","system":"be nice",  "{list}":[{rest}], "z":1.0 }}"#)
    }

    fn noted((dialect, path): (Dialect, &str), body: &str, notes: &mut Notes) -> Option<String> {
        let open = open(dialect, path, body.as_bytes()).unwrap();
        open.with_notes(notes).map(|body| String::from_utf8(body).unwrap())
    }

    #[test]
    fn a_note_stands_behind_its_result_and_nothing_else_changes() {
        for at in PATHS {
            let plain = body(at.0, 3);
            let mut notes = Notes::default();
            assert_eq!(noted(at, &plain, &mut notes), None);
            notes.add("c1", "Try \"another\" way.");
            let edited = noted(at, &plain, &mut notes).unwrap();
            let note = r#"[Deadstop] Try \"another\" way."#;
            assert_eq!(edited.matches(note).count(), 1, "{edited}");
            assert!(serde_json::from_str::<Value>(&edited).is_ok(), "{edited}");
            let (before, after) = edited.split_once(note).unwrap();
            let same =
                |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
            let head = same(before, &plain);
            assert!(before.len() - head < 40, "{edited}");
            assert!(plain.ends_with(after.trim_start_matches(['"', '}'])), "{edited}");
            assert!(before.contains("no 1") || before.contains("no \\\"x\\\" 1"), "{edited}");
            assert!(!before.contains("no 2") && !before.contains("no \\\"x\\\" 2"), "{edited}");
        }
    }

    /// What a provider has cached is the beginning of the last request.
    #[test]
    fn the_prefix_stays_the_same_over_ten_turns() {
        for at in PATHS {
            let mut notes = Notes::default();
            let mut before = String::new();
            for turns in 3..13 {
                match turns {
                    3 => notes.add("c2", "First."),
                    5 => notes.add("", "Second."),
                    _ => {}
                }
                let sent = noted(at, &body(at.0, turns), &mut notes).unwrap();
                // All but the end of the list and of the object.
                let stable = before.strip_suffix("], \"z\":1.0 }").unwrap_or_default();
                assert!(sent.starts_with(stable), "{turns}: {sent}\n{before}");
                assert_eq!(sent.matches("First.").count(), 1);
                assert_eq!(sent.matches("Second.").count(), usize::from(turns >= 5));
                before = sent;
            }
        }
    }

    #[test]
    fn a_note_without_a_result_stands_behind_the_newest_words() {
        for (at, expected) in PATHS.into_iter().zip([
            json!("go\n\n[Deadstop] Stop."),
            json!("go\n\n[Deadstop] Stop."),
            json!("go\n\n[Deadstop] Stop."),
            json!([{ "text": "go" }, { "text": "[Deadstop] Stop." }]),
        ]) {
            let mut notes = Notes::default();
            notes.add("", "Stop.");
            let edited = noted(at, &body(at.0, 0), &mut notes).unwrap();
            let value: Value = serde_json::from_str(&edited).unwrap();
            let list = ["messages", "input", "contents"];
            let first = &list.iter().find_map(|list| value.get(list)).unwrap()[0];
            assert_eq!(first.get("content").or(first.get("parts")), Some(&expected));
            assert_eq!(value["system"], "be nice");
        }
    }

    #[test]
    fn notes_are_bounded() {
        let mut notes = Notes::default();
        for n in 0..100 {
            notes.add(&format!("c{n}"), &"ü".repeat(5000));
            notes.add(&format!("c{n}"), "the same call again");
        }
        assert_eq!(notes.0.len(), MOST);
        assert!(notes.0.iter().all(|note| note.text.len() < 2 * LONGEST + 20));
        let at = PATHS[0];
        assert_eq!(noted(at, &body(at.0, 3), &mut notes), None, "none of them is in the history");
    }
}
