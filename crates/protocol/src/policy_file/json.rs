//! JSON as a tree. `serde_json` does not tell where a value stands, so it judges the text as a
//! whole and reads the single numbers and texts; only the places are found out here.

use std::collections::HashSet;

use super::fault::Fault;
use super::tree::{Key, Node, Spot, Value};

/// Reads JSON.
pub(super) fn read(text: &str) -> Result<Node, Fault> {
    if let Err(error) = serde_json::from_str::<serde_json::Value>(text) {
        let message = error.to_string();
        let end = message.rfind(" at line ").unwrap_or(message.len());
        return Err(Fault::syntax(message[..end].to_owned(), Some(place(text, &error))));
    }
    let mut reader = Reader { text, at: 0 };
    // The text is known to be JSON, nested no deeper than serde_json allows.
    reader.node()?.ok_or_else(|| Fault::syntax("not JSON".into(), Some(Spot::Byte(reader.at))))
}

fn place(text: &str, error: &serde_json::Error) -> Spot {
    let before = text.split_inclusive('\n').take(error.line().saturating_sub(1));
    let start: usize = before.map(str::len).sum();
    Spot::Byte((start + error.column().saturating_sub(1)).min(text.len()))
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    /// The next value; `None` if there is none.
    fn node(&mut self) -> Result<Option<Node>, Fault> {
        let Some(first) = self.peek() else { return Ok(None) };
        let spot = Spot::Byte(self.at);
        let value = match first {
            b'{' => self.section()?,
            b'[' => self.list()?,
            b'"' => self.string().map(Value::Text),
            _ => self.word(),
        };
        Ok(value.map(|value| Node { spot, value }))
    }

    fn section(&mut self) -> Result<Option<Value>, Fault> {
        let mut entries = Vec::new();
        let mut seen = HashSet::new();
        self.at += 1;
        while let Some(next) = self.peek() {
            match next {
                b'}' => {
                    self.at += 1;
                    return Ok(Some(Value::Section(entries)));
                }
                b',' => self.at += 1,
                _ => {
                    let spot = Spot::Byte(self.at);
                    let Some(name) = self.string() else { return Ok(None) };
                    if !seen.insert(name.clone()) {
                        return Err(Fault::twice(name, Some(spot)));
                    }
                    self.peek();
                    self.at += 1; // the colon
                    let node = self.node().map_err(|fault| fault.inside(&name))?;
                    let Some(node) = node else { return Ok(None) };
                    entries.push((Key { spot, name }, node));
                }
            }
        }
        Ok(None)
    }

    fn list(&mut self) -> Result<Option<Value>, Fault> {
        let mut nodes = Vec::new();
        self.at += 1;
        while let Some(next) = self.peek() {
            match next {
                b']' => {
                    self.at += 1;
                    return Ok(Some(Value::List(nodes)));
                }
                b',' => self.at += 1,
                _ => match self.node()? {
                    Some(node) => nodes.push(node),
                    None => return Ok(None),
                },
            }
        }
        Ok(None)
    }

    /// The next byte that is no white space, not yet taken.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let blank = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.at += blank;
        rest.get(blank).copied()
    }

    /// Takes the next so many bytes.
    fn take(&mut self, len: usize) -> Option<&'a str> {
        let token = self.text.get(self.at..self.at + len)?;
        self.at += len;
        Some(token)
    }

    fn string(&mut self) -> Option<String> {
        let mut bytes = self.text.as_bytes().get(self.at + 1..)?.iter().enumerate();
        let end = loop {
            match bytes.next()? {
                (at, b'"') => break at,
                (_, b'\\') => {
                    bytes.next();
                }
                _ => {}
            }
        };
        serde_json::from_str(self.take(end + 2)?).ok()
    }

    fn word(&mut self) -> Option<Value> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        let len = rest.iter().take_while(part).count();
        match self.take(len)? {
            "null" => Some(Value::Null),
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            digits => {
                let number: serde_json::Number = serde_json::from_str(digits).ok()?;
                let signed = || number.as_i64().map(Value::Signed);
                let float = || number.as_f64().map(Value::Float);
                number.as_u64().map(Value::Unsigned).or_else(signed).or_else(float)
            }
        }
    }
}
