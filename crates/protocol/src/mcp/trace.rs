//! A message's place in a trace, as MCP has it (SEP-414): W3C Trace Context in `params._meta`, under names
//! without a prefix.

use std::borrow::Cow;

use serde_json::Value;

use super::message::{Message, members_of, text};

/// What a message says about its trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InTrace<'a> {
    /// `traceparent`: the span in which its client sent it.
    pub parent: Cow<'a, str>,
    /// `tracestate`: what tracing systems add to that.
    pub state: Option<Cow<'a, str>>,
}

/// What to do with a message that names no trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unnamed {
    /// Leave it as it is.
    Stays,
    /// Name the trace in it.
    IsNamed,
}

/// Reads what a message says about its trace.
pub fn in_trace<'a>(message: &Message<'a>) -> Option<InTrace<'a>> {
    let [meta] = members_of(message.params?, ["_meta"]).ok()?;
    let [parent, state] = members_of(meta?, ["traceparent", "tracestate"]).ok()?;
    Some(InTrace { parent: text(parent?).ok()?, state: state.and_then(|state| text(state).ok()) })
}

/// The same bytes with another `traceparent` in some of their messages, in their order; `None` if nothing
/// changes. A message whose `_meta` is odd stays as it is.
///
/// ```
/// use deadstop_protocol::mcp::{Unnamed, read, traced};
/// let sent = br#"{"id":1,"method":"tools/call","params":{"name":"ls"}}"#;
/// let envelope = read(sent).unwrap();
/// let calls = [(&envelope.messages()[0], "00-a-b-01")];
/// let expected = br#"{"id":1,"method":"tools/call","params":{"_meta":{"traceparent":"00-a-b-01"},"name":"ls"}}"#;
/// assert_eq!(traced(sent, &calls, Unnamed::IsNamed).unwrap(), expected);
/// assert_eq!(traced(sent, &calls, Unnamed::Stays), None);
/// ```
pub fn traced(sent: &[u8], calls: &[(&Message<'_>, &str)], unnamed: Unnamed) -> Option<Vec<u8>> {
    let mut traced = Vec::new();
    let mut done = 0;
    for (message, parent) in calls {
        let Some(Piece { place, text }) = piece(message, parent, unnamed) else { continue };
        let at = (place.as_ptr() as usize).checked_sub(sent.as_ptr() as usize)?;
        traced.extend_from_slice(sent.get(done..at)?);
        traced.extend_from_slice(text.as_bytes());
        done = at + place.len();
    }
    traced.extend_from_slice(sent.get(done..)?);
    (done > 0).then_some(traced)
}

/// What to write in the place of something.
struct Piece<'a> {
    /// What stands there; empty where something is put in.
    place: &'a str,
    text: String,
}

fn piece<'a>(message: &Message<'a>, parent: &str, unnamed: Unnamed) -> Option<Piece<'a>> {
    let params = message.params?;
    let [meta] = members_of(params, ["_meta"]).ok()?;
    let named = match meta {
        Some(meta) => members_of(meta, ["traceparent"]).ok()?[0],
        None => None,
    };
    let quoted = Value::from(parent).to_string();
    match (named, meta, unnamed) {
        (Some(place), ..) => text(place).ok().map(|_| Piece { place, text: quoted }),
        (None, _, Unnamed::Stays) => None,
        (None, Some(meta), _) => put_first(meta, &format!("\"traceparent\":{quoted}")),
        (None, None, _) => put_first(params, &format!("\"_meta\":{{\"traceparent\":{quoted}}}")),
    }
}

/// A member that becomes the first of an object.
fn put_first<'a>(object: &'a str, member: &str) -> Option<Piece<'a>> {
    let inside = object.strip_prefix('{')?;
    let comma = if inside.trim_start().starts_with('}') { "" } else { "," };
    Some(Piece { place: inside.get(..0)?, text: format!("{member}{comma}") })
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    fn call(params: &str) -> String {
        format!(r#"{{"id":1,"method":"tools/call","params":{params}}}"#)
    }

    #[test]
    fn a_messages_trace_is_read() {
        let check = |params: &str, expected: Option<(&str, Option<&str>)>| {
            let line = call(params);
            let envelope = read(line.as_bytes()).unwrap();
            let found = in_trace(&envelope.messages()[0]);
            let found = found.as_ref().map(|found| (&*found.parent, found.state.as_deref()));
            assert_eq!(found, expected, "{params}");
        };
        check(
            r#"{"name":"ls","_meta":{"progressToken":1,"traceparent":"00-a-b-01"}}"#,
            Some(("00-a-b-01", None)),
        );
        check(
            r#"{"_meta":{"traceparent":"00-a-b-01","tracestate":"x=1"}}"#,
            Some(("00-a-b-01", Some("x=1"))),
        );
        for none in [r#"{"name":"ls"}"#, r#"{"_meta":{}}"#, r#"{"_meta":{"traceparent":7}}"#, "[]"]
        {
            check(none, None);
        }
    }

    /// Nothing but the trace changes, and what is odd stays.
    #[test]
    fn a_trace_is_put_into_messages() {
        let check = |params: &str, named: Option<&str>, stays: Option<&str>| {
            let line = format!("{}\n", call(params));
            let envelope = read(line.as_bytes()).unwrap();
            let calls = [(&envelope.messages()[0], "00-c-d-01")];
            for (unnamed, expected) in [(Unnamed::IsNamed, named), (Unnamed::Stays, stays)] {
                let found = traced(line.as_bytes(), &calls, unnamed);
                let found = found.map(|bytes| String::from_utf8(bytes).unwrap());
                let expected = expected.map(|params| format!("{}\n", call(params)));
                assert_eq!(found, expected, "{params} {unnamed:?}");
            }
        };
        let ours = r#"{"name":"ls", "_meta" : {"a":1.0,"traceparent" : "00-c-d-01" ,"z":[]}}"#;
        let said = r#"{"name":"ls", "_meta" : {"a":1.0,"traceparent" : "00-a-b-01" ,"z":[]}}"#;
        check(said, Some(ours), Some(ours));
        let escaped =
            r#"{"name":"ls", "_meta" : {"a":1.0,"traceparent" : "00-\u0061-b-01" ,"z":[]}}"#;
        check(escaped, Some(ours), Some(ours));
        check(
            r#"{"_meta":{"progressToken":7},"name":"ls"}"#,
            Some(r#"{"_meta":{"traceparent":"00-c-d-01","progressToken":7},"name":"ls"}"#),
            None,
        );
        check(
            r#"{"_meta":{ },"name":"ls"}"#,
            Some(r#"{"_meta":{"traceparent":"00-c-d-01" },"name":"ls"}"#),
            None,
        );
        check(r#"{}"#, Some(r#"{"_meta":{"traceparent":"00-c-d-01"}}"#), None);
        for odd in [
            r#"{"_meta":null}"#,
            r#"{"_meta":7}"#,
            r#"{"_meta":{"traceparent":7}}"#,
            r#"{"_meta":{},"_meta":{}}"#,
            r#"{"_META":{}}"#,
            r#"[]"#,
        ] {
            check(odd, None, None);
        }
    }

    #[test]
    fn each_message_of_a_batch_has_its_own() {
        let said = r#"{"_meta":{"traceparent":"00-a-b-01"}}"#;
        let batch = format!("[{}, {} ,{}]", call(said), call("{}"), call(said));
        let envelope = read(batch.as_bytes()).unwrap();
        let messages = envelope.messages();
        let calls = [(&messages[0], "1"), (&messages[1], "2"), (&messages[2], "3")];
        let found = traced(batch.as_bytes(), &calls, Unnamed::IsNamed).unwrap();
        let meta = |n: u8| call(&format!(r#"{{"_meta":{{"traceparent":"{n}"}}}}"#));
        assert_eq!(found, format!("[{}, {} ,{}]", meta(1), meta(2), meta(3)).into_bytes());
    }
}
