//! Changes a JSON file in place: what is not ours keeps its bytes, comments and order included.
//!
//! Hosts allow comments and trailing commas in their settings, and people sort them as they like, so
//! a file is never written anew from its values.

use anyhow::bail;
use serde_json::Value;

/// How deep a file may be nested.
const DEEPEST: usize = 128;

/// A value and where it stands.
#[derive(Debug)]
struct Node {
    start: usize,
    end: usize,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Object(Vec<(String, usize, Node)>),
    Array(Vec<Node>),
    Scalar,
}

/// A JSON file as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Jsonc(String);

impl Jsonc {
    /// Reads a file; one that is empty is an empty object.
    pub(crate) fn read(text: &str) -> anyhow::Result<Jsonc> {
        let text = if text.trim().is_empty() { "{}\n" } else { text };
        let doc = Jsonc(text.to_owned());
        match doc.root()?.kind {
            Kind::Object(_) => Ok(doc),
            _ => bail!("it is not a JSON object"),
        }
    }

    pub(crate) fn into_text(self) -> String {
        self.0
    }

    /// The value at a path.
    pub(crate) fn get(&self, path: &[&str]) -> Option<Value> {
        let root = self.root().ok()?;
        let node = find(&root, path)?;
        value(self.0.get(node.start..node.end)?)
    }

    /// Sets the value at a path; objects on the way are made.
    pub(crate) fn set(&mut self, path: &[&str], to: &Value) -> anyhow::Result<()> {
        let Some((last, above)) = path.split_last() else { bail!("no path") };
        let root = self.root()?;
        if let Some(node) = find(&root, path) {
            let text = pretty(to, &indent_at(&self.0, node.start), &self.unit());
            self.0.replace_range(node.start..node.end, &text);
            return Ok(());
        }
        match find(&root, above) {
            None => {
                self.set(above, &Value::Object(serde_json::Map::new()))?;
                self.set(path, to)
            }
            Some(node) => match &node.kind {
                Kind::Object(members) => {
                    let last_end = members.last().map(|(_, _, value)| value.end);
                    self.insert(node, last_end, Some(last), to);
                    Ok(())
                }
                _ => bail!("`{}` is not an object", above.join(".")),
            },
        }
    }

    /// Adds an item to the array at a path, which is made if it is not there.
    pub(crate) fn push(&mut self, path: &[&str], item: &Value) -> anyhow::Result<()> {
        let root = self.root()?;
        let Some(node) = find(&root, path) else {
            self.set(path, &Value::Array(Vec::new()))?;
            return self.push(path, item);
        };
        let Kind::Array(items) = &node.kind else { bail!("`{}` is not a list", path.join(".")) };
        let last_end = items.last().map(|item| item.end);
        self.insert(node, last_end, None, item);
        Ok(())
    }

    /// Removes the items of the array at a path that are ours, and what is empty then.
    pub(crate) fn remove_items(
        &mut self,
        path: &[&str],
        ours: &dyn Fn(&Value) -> bool,
    ) -> anyhow::Result<()> {
        loop {
            let root = self.root()?;
            let Some(Node { start, end, kind: Kind::Array(items) }) = find(&root, path) else {
                return Ok(());
            };
            let is_ours =
                |item: &Node| value(&self.0[item.start..item.end]).is_some_and(|item| ours(&item));
            let Some(at) = items.iter().position(is_ours) else { return Ok(()) };
            let spans: Vec<_> = items.iter().map(|item| (item.start, item.end)).collect();
            self.cut(*start, *end, &spans, at);
            if spans.len() == 1 {
                return self.unset_empty(path);
            }
        }
    }

    /// Removes the value at a path, and the objects around it that are empty then. A key that stands
    /// there several times goes each time: without the last, hosts would read the one before it.
    pub(crate) fn unset(&mut self, path: &[&str]) -> anyhow::Result<()> {
        let Some((last, above)) = path.split_last() else { return Ok(()) };
        loop {
            let root = self.root()?;
            let Some(Node { start, end, kind: Kind::Object(members) }) = find(&root, above) else {
                return Ok(());
            };
            let Some(at) = members.iter().position(|(key, _, _)| key == last) else {
                return Ok(());
            };
            let spans: Vec<_> =
                members.iter().map(|(_, start, value)| (*start, value.end)).collect();
            self.cut(*start, *end, &spans, at);
            if spans.len() == 1 && !above.is_empty() {
                return self.unset(above);
            }
        }
    }

    fn unset_empty(&mut self, path: &[&str]) -> anyhow::Result<()> {
        match self.get(path) {
            Some(Value::Array(items)) if items.is_empty() => self.unset(path),
            _ => Ok(()),
        }
    }

    fn root(&self) -> anyhow::Result<Node> {
        let mut reader = Reader { text: &self.0, at: 0 };
        reader.skip()?;
        let node = reader.node(0)?;
        reader.skip()?;
        if reader.at < self.0.len() {
            bail!("unexpected text after the end, in line {}", reader.line());
        }
        Ok(node)
    }

    /// Puts something behind the last part of an object or array.
    fn insert(&mut self, node: &Node, last_end: Option<usize>, key: Option<&str>, item: &Value) {
        let unit = self.unit();
        let outer = indent_at(&self.0, node.start);
        let inner = format!("{outer}{unit}");
        let key = key.map(|key| format!("{}: ", Value::from(key))).unwrap_or_default();
        let text = format!("\n{inner}{key}{}", pretty(item, &inner, &unit));
        match last_end {
            None => self.0.replace_range(node.start + 1..node.end - 1, &format!("{text}\n{outer}")),
            Some(end) => {
                // A comma may stand there already.
                let mut reader = Reader { text: &self.0, at: end };
                let trailing = reader.skip().is_ok() && reader.peek() == Some(b',');
                let (at, comma) = if trailing { (reader.at + 1, "") } else { (end, ",") };
                self.0.insert_str(at, &format!("{comma}{text}"));
            }
        }
    }

    /// Cuts one of several parts out.
    fn cut(&mut self, start: usize, end: usize, spans: &[(usize, usize)], at: usize) {
        let (from, to) = spans[at];
        match (spans.get(at + 1), at.checked_sub(1).and_then(|before| spans.get(before))) {
            (Some((next, _)), _) => self.0.replace_range(from..*next, ""),
            (None, Some((_, before))) => self.0.replace_range(*before..to, ""),
            (None, None) => self.0.replace_range(start + 1..end - 1, ""),
        }
    }

    /// What one step of indentation is in this file.
    fn unit(&self) -> String {
        let indented = self.0.lines().find(|line| line.starts_with([' ', '\t']));
        let unit = indented.map_or("  ", |line| &line[..line.len() - line.trim_start().len()]);
        unit.to_owned()
    }
}

fn find<'n>(node: &'n Node, path: &[&str]) -> Option<&'n Node> {
    let Some((first, rest)) = path.split_first() else { return Some(node) };
    let Kind::Object(members) = &node.kind else { return None };
    let (_, _, value) = members.iter().rev().find(|(key, _, _)| key == first)?;
    find(value, rest)
}

/// The spaces at the start of the line in which something stands.
fn indent_at(text: &str, at: usize) -> String {
    let line = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let rest = &text[line..];
    rest[..rest.len() - rest.trim_start_matches([' ', '\t']).len()].to_owned()
}

/// A value over several lines, all but the first indented.
fn pretty(value: &Value, indent: &str, unit: &str) -> String {
    let plain = serde_json::to_string_pretty(value).unwrap_or_default();
    let mut lines = plain.lines();
    let mut out = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        let depth = (line.len() - line.trim_start().len()) / 2;
        out.push_str(&format!("\n{indent}{}{}", unit.repeat(depth), line.trim_start()));
    }
    out
}

/// A part of the text as a value, comments and trailing commas left out.
fn value(text: &str) -> Option<Value> {
    if let Ok(value) = serde_json::from_str(text) {
        return Some(value);
    }
    let mut reader = Reader { text, at: 0 };
    let node = reader.node(0).ok()?;
    build(text, &node)
}

fn build(text: &str, node: &Node) -> Option<Value> {
    Some(match &node.kind {
        Kind::Scalar => serde_json::from_str(&text[node.start..node.end]).ok()?,
        Kind::Array(items) => items.iter().map(|item| build(text, item)).collect::<Option<_>>()?,
        Kind::Object(members) => {
            let member =
                |(key, _, value): &(String, usize, Node)| Some((key.clone(), build(text, value)?));
            Value::Object(members.iter().map(member).collect::<Option<_>>()?)
        }
    })
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn line(&self) -> usize {
        self.text[..self.at.min(self.text.len())].matches('\n').count() + 1
    }

    /// Passes over what means nothing.
    fn skip(&mut self) -> anyhow::Result<()> {
        loop {
            let rest = &self.text[self.at..];
            let trimmed = rest.trim_start_matches([' ', '\t', '\r', '\n', '\u{feff}']);
            self.at += rest.len() - trimmed.len();
            let length = if trimmed.starts_with("//") {
                trimmed.find('\n').unwrap_or(trimmed.len())
            } else if trimmed.starts_with("/*") {
                match trimmed.find("*/") {
                    Some(end) => end + 2,
                    None => bail!("a comment is not closed, in line {}", self.line()),
                }
            } else {
                return Ok(());
            };
            self.at += length;
        }
    }

    fn node(&mut self, depth: usize) -> anyhow::Result<Node> {
        if depth > DEEPEST {
            bail!("it is nested too deep");
        }
        let start = self.at;
        let kind = match self.peek() {
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.array(depth)?,
            Some(b'"') => {
                self.string()?;
                Kind::Scalar
            }
            Some(_) => {
                let rest = &self.text[self.at..];
                let end = rest.find(|c: char| ",]}/".contains(c) || c.is_whitespace());
                self.at += end.unwrap_or(rest.len());
                if serde_json::from_str::<Value>(&self.text[start..self.at]).is_err() {
                    bail!("a value is missing in line {}", self.line());
                }
                Kind::Scalar
            }
            None => bail!("it ends too early"),
        };
        Ok(Node { start, end: self.at, kind })
    }

    fn object(&mut self, depth: usize) -> anyhow::Result<Kind> {
        let mut members = Vec::new();
        self.at += 1;
        loop {
            self.skip()?;
            if self.peek() == Some(b'}') {
                self.at += 1;
                return Ok(Kind::Object(members));
            }
            let start = self.at;
            let key = self.string()?;
            self.skip()?;
            self.expect(b':')?;
            self.skip()?;
            let value = self.node(depth + 1)?;
            members.push((key, start, value));
            self.separator(b'}')?;
        }
    }

    fn array(&mut self, depth: usize) -> anyhow::Result<Kind> {
        let mut items = Vec::new();
        self.at += 1;
        loop {
            self.skip()?;
            if self.peek() == Some(b']') {
                self.at += 1;
                return Ok(Kind::Array(items));
            }
            items.push(self.node(depth + 1)?);
            self.separator(b']')?;
        }
    }

    fn separator(&mut self, end: u8) -> anyhow::Result<()> {
        self.skip()?;
        if self.peek() == Some(end) { Ok(()) } else { self.expect(b',') }
    }

    fn expect(&mut self, byte: u8) -> anyhow::Result<()> {
        if self.peek() != Some(byte) {
            bail!("`{}` is missing in line {}", byte as char, self.line());
        }
        self.at += 1;
        Ok(())
    }

    fn string(&mut self) -> anyhow::Result<String> {
        let start = self.at;
        self.expect(b'"')?;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.at += 2,
                Some(_) => self.at += 1,
                None => bail!("a string is not closed, in line {}", self.line()),
            }
        }
        self.at += 1;
        let text = self.text.get(start..self.at).unwrap_or_default();
        match serde_json::from_str(text) {
            Ok(text) => Ok(text),
            Err(_) => bail!("a string breaks off in line {}", self.line()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(before: &str, change: impl Fn(&mut Jsonc) -> anyhow::Result<()>, expected: &str) {
        let mut doc = Jsonc::read(before).unwrap();
        change(&mut doc).unwrap();
        assert_eq!(doc.0, expected);
        doc.root().unwrap();
    }

    #[test]
    fn what_is_not_ours_keeps_its_bytes() {
        let before = "// mine\n{\n    \"b\": 1, // one\n    \"a\": [1, 2,],\n}\n";
        check(
            before,
            |doc| doc.set(&["env", "URL"], &json!("x")),
            "// mine\n{\n    \"b\": 1, // one\n    \"a\": [1, 2,],\n    \"env\": {\n        \"URL\": \"x\"\n    }\n}\n",
        );
        check(
            before,
            |doc| doc.push(&["a"], &json!({ "c": 3 })),
            "// mine\n{\n    \"b\": 1, // one\n    \"a\": [1, 2,\n        {\n            \"c\": 3\n        }],\n}\n",
        );
        check(before, |doc| doc.set(&["b"], &json!(2)), &before.replace(": 1,", ": 2,"));
        check("", |doc| doc.set(&["a"], &json!(1)), "{\n  \"a\": 1\n}\n");
        check(
            "{\"a\":{}}",
            |doc| doc.push(&["a", "b"], &json!(1)),
            "{\"a\":{\n  \"b\": [\n    1\n  ]\n}}",
        );
    }

    #[test]
    fn what_was_put_in_is_taken_out() {
        for before in [
            "{\n  \"x\": 1\n}\n",
            "{\n\t\"hooks\": {\n\t\t\"Pre\": [\n\t\t\t\"mine\"\n\t\t]\n\t},\n\t\"y\": \"z\"\n}",
            "{ \"hooks\": { \"Other\": [\"mine\"] } }",
            "{\n  \"hooks\": {\n    \"Pre\": [\n      // keep\n      \"mine\"\n    ]\n  }\n}\n",
        ] {
            check(
                before,
                |doc| {
                    doc.push(&["hooks", "Pre"], &json!("ours"))?;
                    doc.set(&["env", "URL"], &json!("ours"))?;
                    assert_eq!(doc.get(&["env", "URL"]), Some(json!("ours")));
                    doc.remove_items(&["hooks", "Pre"], &|item| item == "ours")?;
                    doc.unset(&["env", "URL"])
                },
                before,
            );
        }
        let middle = "{\"a\": [1, \"ours\", 2, \"ours\"]}";
        check(middle, |doc| doc.remove_items(&["a"], &|item| item == "ours"), "{\"a\": [1, 2]}");
        check("{\"a\": 1, \"b\": 2}", |doc| doc.unset(&["a"]), "{\"b\": 2}");
        // Found by fuzzing: the first of two went, and ours, the last, stayed in force.
        check("{\"a\": 1, \"b\": 2, \"a\": 3}", |doc| doc.unset(&["a"]), "{\"b\": 2}");
    }

    #[test]
    fn broken_files_are_not_touched() {
        for text in
            ["[]", "{", "{\"a\"}", "{\"a\":}", "{} x", "/* {}", "{\"a\": nope}", "{\"\\q\": 1}"]
        {
            assert!(Jsonc::read(text).is_err(), "{text}");
        }
        assert!(Jsonc::read(&format!("{{\"a\":{}}}", "[".repeat(500))).is_err());
        let mut doc = Jsonc::read("{\"hooks\": 7}").unwrap();
        assert!(doc.push(&["hooks", "Pre"], &json!(1)).is_err());
    }
}
