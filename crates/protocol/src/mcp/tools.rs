//! Listings of tools: what each looks like, and a listing without those that are not allowed.

use std::borrow::Cow;
use std::fmt;

use deadstop_core::Digest;
use serde::Deserializer as _;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::message::{members_of, text};
use crate::facts;

/// A tool as its server describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// A digest of its description, schemas and annotations; the order of members does not count.
    pub fingerprint: Digest,
    /// Whether its server says that it destroys something.
    pub destructive: bool,
    /// What its server says about it, for people: the description, then schemas and annotations.
    pub text: String,
    /// Characters in it that a person does not see and a model reads, the first few.
    pub invisible: Vec<char>,
}

/// Bytes of a tool's text that are kept.
const LONGEST_TEXT: usize = 4000;
/// Invisible characters that are named.
const MOST_INVISIBLE: usize = 8;

/// The tools in the answer to `tools/list`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing<'a> {
    /// The tools, in order.
    pub tools: Vec<Listed>,
    /// Whether no further page follows.
    pub complete: bool,
    /// Where each stands.
    raw: Vec<&'a str>,
}

/// What of a tool is its description. Its name is what it goes by; icons and titles say nothing to
/// a model.
const DESCRIBED: [&str; 4] = ["description", "inputSchema", "outputSchema", "annotations"];

/// Reads a listing from a result; `None` if it is none.
pub fn listing(result: &str) -> Option<Listing<'_>> {
    let [tools, next] = members_of(result, ["tools", "nextCursor"]).ok()?;
    let raw = serde_json::Deserializer::from_str(tools?).deserialize_seq(Tools).ok()?;
    let tools = raw.iter().map(|raw| listed(raw)).collect();
    let complete = next.is_none_or(|next| next == "null");
    Some(Listing { tools, complete, raw })
}

/// Whether a result lists tools in a way that [`listing`] does not read, and a client may: a member that is there
/// twice, or too many tools.
pub fn lists_unreadably(result: &str) -> bool {
    struct Lists;
    impl<'de> Visitor<'de> for Lists {
        type Value = bool;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
            let mut lists = false;
            while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                let value = map.next_value::<&RawValue>()?;
                lists |= key.eq_ignore_ascii_case("tools") && value.get().starts_with('[');
            }
            Ok(lists)
        }
    }
    let lists = serde_json::Deserializer::from_str(result).deserialize_map(Lists);
    lists.unwrap_or_default() && listing(result).is_none()
}

/// Tools of a listing; a page with more is not read.
const MOST_TOOLS: usize = 10_000;
/// Bytes of a tool that are read. A larger one is compared as it stands there.
const LONGEST_TOOL: usize = 256 << 10;

struct Tools;

impl<'de> Visitor<'de> for Tools {
    type Value = Vec<&'de str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of tools")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut tools = Vec::new();
        while let Some(tool) = list.next_element::<&RawValue>()? {
            if tools.len() == MOST_TOOLS {
                return Err(A::Error::custom("too many tools"));
            }
            tools.push(tool.get());
        }
        Ok(tools)
    }
}

fn listed(raw: &str) -> Listed {
    let name = members_of(raw, ["name"]).ok().and_then(|[name]| text(name?).ok());
    let name = name.map(std::borrow::Cow::into_owned).unwrap_or_default();
    let small = Some(raw).filter(|raw| raw.len() <= LONGEST_TOOL);
    let tool = small.and_then(|raw| serde_json::from_str::<Value>(raw).ok());
    let (fingerprint, destructive, text) = match &tool {
        Some(tool) => {
            let parts = DESCRIBED.map(|part| facts::canonical(&tool[part]));
            let destructive = tool["annotations"]["destructiveHint"] == Value::Bool(true);
            (facts::combine(&parts), destructive, Cow::Owned(said(tool)))
        }
        None => {
            let destructive = says_destructive(raw).unwrap_or_default();
            (Digest::of(raw.as_bytes()), destructive, Cow::Borrowed(raw))
        }
    };
    let invisible = invisible(&[name.as_str(), &text]);
    let kept = text.floor_char_boundary(LONGEST_TEXT);
    let more = text.get(kept..).unwrap_or_default().chars().count();
    let text = match more {
        0 => text.into_owned(),
        _ => format!("{} [{more} more characters]", text.get(..kept).unwrap_or_default()),
    };
    Listed { name, fingerprint, destructive, text, invisible }
}

/// The hint of a tool that is not read as a whole.
fn says_destructive(raw: &str) -> Option<bool> {
    let [annotations] = members_of(raw, ["annotations"]).ok()?;
    let [hint] = members_of(annotations?, ["destructiveHint"]).ok()?;
    Some(hint? == "true")
}

/// What a server says about a tool, in the order of [`DESCRIBED`].
fn said(tool: &Value) -> String {
    let mut said = Vec::new();
    for part in DESCRIBED {
        match &tool[part] {
            Value::Null => {}
            Value::String(text) => said.push(text.clone()),
            other => said.push(format!("{part}: {other}")),
        }
    }
    said.join("\n")
}

/// Characters that a person does not see and a model reads: tags, marks that turn the direction of
/// text, and those without width. Joiners between letters that need them are left out.
fn invisible(texts: &[&str]) -> Vec<char> {
    let mut found = Vec::new();
    for text in texts {
        let mut before = ' ';
        for c in text.chars() {
            let hides = match c {
                '\u{e0000}'..='\u{e0fff}' => true,
                '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
                '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{180e}' => true,
                '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{ad}' => true,
                '\u{200c}' | '\u{200d}' => before.is_ascii(),
                _ => false,
            };
            if hides && !found.contains(&c) && found.len() < MOST_INVISIBLE {
                found.push(c);
            }
            before = c;
        }
    }
    found
}

impl Listing<'_> {
    /// A message without the tools that are not to be seen; `None` if there are none of them.
    /// `message` is what the listing was read from, and everything else of it stays as it is.
    pub fn narrowed(&self, message: &[u8], hidden: impl Fn(&str) -> bool) -> Option<Vec<u8>> {
        // A tool without one name cannot be judged when it is called: a client takes the last of two.
        let shown = |tool: &Listed| !tool.name.is_empty() && !hidden(&tool.name);
        let keep: Vec<bool> = self.tools.iter().map(shown).collect();
        if keep.iter().all(|keep| *keep) {
            return None;
        }
        let start = message.as_ptr() as usize;
        let at = |raw: &str| {
            let from = (raw.as_ptr() as usize).checked_sub(start)?;
            message.get(from..from + raw.len())?;
            Some((from, from + raw.len()))
        };
        let (first, _) = at(self.raw.first()?)?;
        let (_, last) = at(self.raw.last()?)?;
        let kept: Vec<&str> =
            self.raw.iter().zip(&keep).filter(|(_, keep)| **keep).map(|(raw, _)| *raw).collect();
        let mut narrowed = message.get(..first)?.to_vec();
        narrowed.extend_from_slice(kept.join(",").as_bytes());
        narrowed.extend_from_slice(message.get(last..)?);
        Some(narrowed)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::read;
    use super::*;

    const LIST: &str = r#"{"jsonrpc":"2.0", "id":1,"result":{"tools":[ {"name":"a","description":"A","inputSchema":{"type":"object","x":1}},
        {"name":"b","annotations":{"destructiveHint":true}} , {"name":"c"}],"nextCursor":"x"}}"#;

    fn narrowed(hide: &[&str]) -> Option<String> {
        let envelope = read(LIST.as_bytes()).unwrap();
        let listing = listing(envelope.messages()[0].result.unwrap()).unwrap();
        let narrowed = listing.narrowed(LIST.as_bytes(), |name| hide.contains(&name))?;
        Some(String::from_utf8(narrowed).unwrap())
    }

    #[test]
    fn narrowing_touches_nothing_else() {
        assert_eq!(narrowed(&[]), None);
        assert_eq!(narrowed(&["x"]), None);
        let left = narrowed(&["b"]).unwrap();
        assert!(left.starts_with(r#"{"jsonrpc":"2.0", "id":1,"result":{"tools":[ {"name":"a","#));
        assert!(left.ends_with(r#"{"name":"c"}],"nextCursor":"x"}}"#), "{left}");
        let none: Value = serde_json::from_str(&narrowed(&["a", "b", "c"]).unwrap()).unwrap();
        assert_eq!(none["result"], json!({ "tools": [], "nextCursor": "x" }));
    }

    #[test]
    fn what_a_person_does_not_see_is_found() {
        for (description, expected) in [
            ("Reads a file", ""),
            ("R\u{e9}sum\u{e9} \u{1f468}\u{200d}\u{1f469} \u{645}\u{6cc}\u{200c}\u{62e}", ""),
            ("Reads\u{e0041}\u{e0042}", "\u{e0041}\u{e0042}"),
            ("Reads \u{202e}elif", "\u{202e}"),
            ("Re\u{200b}ads, re\u{200d}ads", "\u{200b}\u{200d}"),
        ] {
            let tool = json!({ "name": "a", "description": description });
            let found: String = listed(&tool.to_string()).invisible.into_iter().collect();
            assert_eq!(found, expected, "{description:?}");
        }
        // In a schema and in the name as well.
        let schema = json!({ "name": "a", "inputSchema": { "title": "x\u{2066}" } });
        assert_eq!(listed(&schema.to_string()).invisible, ['\u{2066}']);
        assert_eq!(listed(r#"{"name":"a\u200b"}"#).invisible, ['\u{200b}']);
    }

    #[test]
    fn fingerprints() {
        let of = |tool: &str| listed(tool).fingerprint;
        let base = of(r#"{"name":"a","description":"d","inputSchema":{"x":1,"y":2}}"#);
        assert_eq!(base, of(r#"{"inputSchema":{"y":2,"x":1},"description":"d","title":"t"}"#));
        for other in [
            r#"{"description":"e","inputSchema":{"x":1,"y":2}}"#,
            r#"{"description":"d","inputSchema":{"x":1,"y":3}}"#,
            r#"{"description":"d","inputSchema":{"x":1,"y":2},"annotations":{"readOnlyHint":true}}"#,
        ] {
            assert_ne!(base, of(other), "{other}");
        }
        assert!(listed(r#"{"annotations":{"destructiveHint":true}}"#).destructive);
        assert!(!listed(r#"{"annotations":{"destructiveHint":"true"}}"#).destructive);
        let page = listing(r#"{"tools":[],"nextCursor":"x"}"#).unwrap();
        assert!(!page.complete && listing(r#"{"tools":[]}"#).unwrap().complete);
        assert!(listing("7").is_none() && listing(r#"{"tools":7}"#).is_none());
        assert_eq!(listing(r#"{"tools":[7]}"#).unwrap().tools[0].name, "");
    }

    /// A client takes the last of two members, and one that does not mind the case takes either.
    #[test]
    fn hole_09_a_listing_has_one_meaning() {
        for (result, expected) in [
            (r#"{"tools":[]}"#, false),
            (r#"{"tools":[],"tools":[{"name":"a"}]}"#, true),
            (r#"{"Tools":[{"name":"a"}]}"#, true),
            (r#"{"t\u006fols":[],"tools":[]}"#, true),
            (r#"{"tools":[],"nextCursor":null,"nextCursor":"x"}"#, true),
            (r#"{"tools":7}"#, false),
            ("[]", false),
        ] {
            assert_eq!(lists_unreadably(result), expected, "{result}");
        }
        let many = |times: usize| format!(r#"{{"tools":[{}7]}}"#, "7,".repeat(times));
        assert!(!lists_unreadably(&many(9_999)) && lists_unreadably(&many(10_000)));
        let twice = r#"{"id":1,"result":{"tools":[{"name":"a"},{"name":"b","name":"evil"}]}}"#;
        let envelope = read(twice.as_bytes()).unwrap();
        let listing = listing(envelope.messages()[0].result.unwrap()).unwrap();
        let shown = listing.narrowed(twice.as_bytes(), |_| false).unwrap();
        assert_eq!(shown, br#"{"id":1,"result":{"tools":[{"name":"a"}]}}"#);
        // A large tool is not made a tree of.
        let large = format!(r#"{{"name":"a","inputSchema":[{}0]}}"#, "0,".repeat(1 << 18));
        assert_ne!(listed(&large).fingerprint, listed(&large.replace("[0", "[1")).fingerprint);
    }
}
