//! Listings of tools: what each looks like, and a listing without those that are not allowed.

use deadstop_core::Digest;
use serde_json::{Value, json};

use super::message::{members_of, text};
use crate::facts;

/// A tool as its server describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// A digest of its description, schemas and annotations; the order of members does not count.
    pub fingerprint: Digest,
    /// Whether its server says that it destroys something.
    pub destructive: bool,
}

/// The tools in the answer to `tools/list`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing<'a> {
    /// The tools, in order.
    pub tools: Vec<Listed>,
    /// Where each stands.
    raw: Vec<&'a str>,
}

/// What of a tool is its description. Its name is what it goes by; icons and titles say nothing to
/// a model.
const DESCRIBED: [&str; 4] = ["description", "inputSchema", "outputSchema", "annotations"];

/// Reads a listing from a result; `None` if it is none.
pub fn listing(result: &str) -> Option<Listing<'_>> {
    let [tools] = members_of(result, ["tools"]).ok()?;
    let raw: Vec<&serde_json::value::RawValue> = serde_json::from_str(tools?).ok()?;
    let raw: Vec<&str> = raw.into_iter().map(serde_json::value::RawValue::get).collect();
    let tools = raw.iter().map(|raw| listed(raw)).collect();
    Some(Listing { tools, raw })
}

fn listed(raw: &str) -> Listed {
    let name = members_of(raw, ["name"]).ok().and_then(|[name]| text(name?).ok());
    let name = name.map(std::borrow::Cow::into_owned).unwrap_or_default();
    let tool: Value = serde_json::from_str(raw).unwrap_or_else(|_| json!({ "description": raw }));
    let parts = DESCRIBED.map(|part| facts::canonical(&tool[part]));
    let destructive = tool["annotations"]["destructiveHint"] == Value::Bool(true);
    Listed { name, fingerprint: facts::combine(&parts), destructive }
}

impl Listing<'_> {
    /// A message without the tools that are not to be seen; `None` if there are none of them.
    /// `message` is what the listing was read from, and everything else of it stays as it is.
    pub fn narrowed(&self, message: &[u8], hidden: impl Fn(&str) -> bool) -> Option<Vec<u8>> {
        let keep: Vec<bool> = self.tools.iter().map(|tool| !hidden(&tool.name)).collect();
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
        assert!(listing("7").is_none() && listing(r#"{"tools":7}"#).is_none());
        assert_eq!(listing(r#"{"tools":[7]}"#).unwrap().tools[0].name, "");
    }
}
