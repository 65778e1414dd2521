//! A tool call, and how it ended.

use std::borrow::Cow;

use deadstop_core::{Blame, Effect, Failure, Harm, How, Outcome, Reach, Status, ToolCall};
use serde::Deserializer as _;
use serde::de::{SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::message::{Message, members_of, text};
use crate::llm::request::marker;
use crate::{facts, plain};

/// A tool call that a client asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// The tool's name.
    pub name: String,
    /// Its arguments, with what a person has added to them.
    pub arguments: Value,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// For the engine.
    pub outcome: Outcome,
    /// What was answered, for people.
    pub text: String,
}

/// Reads the tool call in a message; `None` if it has no usable name, or more arguments than can be judged.
pub fn asked(message: &Message<'_>) -> Option<Asked> {
    let params = message.params?;
    let [name, arguments, responses] =
        members_of(params, ["name", "arguments", "inputResponses"]).ok()?;
    let name = text(name?).ok()?.into_owned();
    if [arguments, responses].into_iter().flatten().any(|raw| plain::is_vast(raw.as_bytes())) {
        return None;
    }
    // What is no JSON to any server stays a text: it is compared and shown all the same.
    let value =
        |raw: &str| plain::read(raw.as_bytes()).unwrap_or_else(|_| Value::String(raw.to_owned()));
    let arguments = arguments.map_or_else(|| json!({}), value);
    // A call that is made again with a person's answers is not the same call again.
    let arguments = match (arguments, responses) {
        (Value::Object(mut map), Some(responses)) => {
            map.insert("inputResponses".to_owned(), value(responses));
            Value::Object(map)
        }
        (arguments, _) => arguments,
    };
    Some(Asked { name, arguments })
}

impl Asked {
    /// What the engine is told.
    pub fn facts(&self, server: &str) -> ToolCall {
        let mut call = facts::tool_call(&self.name, &self.arguments);
        call.server = Some(server.to_owned());
        call
    }

    /// The call as people read it.
    pub fn text(&self) -> String {
        format!("{} {}", self.name, self.arguments)
    }
}

/// A server's own words about a tool may make it look worse, never better.
pub fn suspect(call: &mut ToolCall, destructive: bool) {
    if destructive {
        call.effect = Effect::Changes;
        if call.harms.is_empty() {
            // Servers say so of every tool that writes: it is told, and does not count.
            let harm = Harm::destroys(call.name.clone(), "");
            call.harms.push(Harm { reach: Reach::Item, ..harm });
        }
    }
}

/// The id, as it stands there, of the task that a server has begun in the place of an answer: it runs on when the call
/// has ended.
///
/// ```
/// use deadstop_protocol::mcp::begun_task;
/// let result = r#"{"task":{"taskId":"t-1","status":"working","ttl":60000}}"#;
/// assert_eq!(begun_task(result), Some("\"t-1\""));
/// assert_eq!(begun_task(r#"{"resultType":"task","taskId":"t-1"}"#), Some("\"t-1\""));
/// assert_eq!(begun_task(r#"{"content":[],"taskId":"t-1"}"#), None);
/// ```
pub fn begun_task(result: &str) -> Option<&str> {
    let [task, kind, own] = members_of(result, ["task", "resultType", "taskId"]).ok()?;
    let inner = task.and_then(|task| members_of(task, ["taskId"]).ok()?[0]);
    let id = inner.or(own.filter(|_| kind == Some("\"task\"")))?;
    id.starts_with('"').then_some(id)
}

/// The codes of JSON-RPC for a method that does not exist and for wrong parameters: the agent asked for
/// a tool that the server does not have, or with arguments that it does not take.
const ASKED_WRONGLY: [&str; 2] = ["-32601", "-32602"];

/// How the call ended that a message answers.
pub fn ended(answer: &Message<'_>) -> Ended {
    if let Some(error) = answer.error {
        let [message, code] = members_of(error, ["message", "code"]).unwrap_or_default();
        let message = message.and_then(|message| text(message).ok());
        let mut ended = end(Status::Error, message.map_or_else(|| error.to_owned(), Into::into));
        if code.is_some_and(|code| ASKED_WRONGLY.contains(&code.trim())) {
            ended.outcome.failure = Some(Failure { blame: Blame::Agent, how: How::Unsaid });
        }
        return ended;
    }
    let raw = answer.result.unwrap_or("null");
    let [failed, content] = members_of(raw, ["isError", "content"]).unwrap_or_default();
    let status = if failed == Some("true") { Status::Error } else { Status::Ok };
    let said = content.and_then(|content| {
        serde_json::Deserializer::from_str(content).deserialize_seq(Blocks(content)).ok().flatten()
    });
    end(status, said.unwrap_or_else(|| beginning(raw.to_owned(), raw)))
}

/// Bytes of a result that are kept. What follows is kept as a digest, so that two results are not the same because
/// they begin alike.
const LONGEST: usize = 1 << 20;
/// Bytes of a block without a text that are read as JSON, to be written in one form.
const LONGEST_BLOCK: usize = 1 << 16;

fn beginning(mut text: String, of: &str) -> String {
    if text.len() > LONGEST {
        text.truncate(text.floor_char_boundary(LONGEST));
        text.push_str(&marker("rest", of));
    }
    text
}

/// Reads the blocks of a content one by one, whatever their number; nothing if there are none.
struct Blocks<'a>(&'a str);

impl<'de> Visitor<'de> for Blocks<'de> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list of blocks")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut blocks: A) -> Result<Self::Value, A::Error> {
        let mut all: Option<String> = None;
        while let Some(block) = blocks.next_element::<&RawValue>()? {
            match &mut all {
                Some(all) if all.len() > LONGEST => {}
                Some(all) => {
                    all.push('\n');
                    all.push_str(&said(block.get()));
                }
                None => all = Some(said(block.get()).into_owned()),
            }
        }
        Ok(all.map(|all| beginning(all, self.0)))
    }
}

/// What a block of a result says: its text, or all of it.
fn said(block: &str) -> Cow<'_, str> {
    let [found] = members_of(block, ["text"]).unwrap_or_default();
    if let Some(found) = found.and_then(|found| text(found).ok()) {
        return found;
    }
    if block.len() > LONGEST_BLOCK {
        return Cow::Borrowed(block);
    }
    let tree = plain::read_bounded(block.as_bytes());
    tree.map_or(Cow::Borrowed(block), |tree| Cow::Owned(tree.to_string()))
}

fn end(status: Status, text: String) -> Ended {
    let outcome = Outcome { status, result: Some(facts::result(&text)), ..Outcome::default() };
    Ended { outcome, text }
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    #[test]
    fn a_call_with_more_arguments_than_can_be_judged_is_none() {
        let call = |times: usize| {
            let zeros = "0,".repeat(times);
            format!(
                r#"{{"id":1,"method":"tools/call","params":{{"name":"a","arguments":{{"a":[{zeros}0]}}}}}}"#
            )
        };
        assert!(asked(&message(&call(1 << 19))).is_some());
        assert_eq!(asked(&message(&call(1 << 21))), None);
    }

    fn message(line: &str) -> Message<'_> {
        read(line.as_bytes()).unwrap().messages()[0].clone()
    }

    #[test]
    fn calls_are_read() {
        let call = |params: &str| {
            let line = format!(r#"{{"id":1,"method":"tools/call","params":{params}}}"#);
            asked(&message(&line)).map(|asked| asked.text())
        };
        assert_eq!(call(r#"{"name":"ls"}"#).unwrap(), "ls {}");
        assert_eq!(call(r#"{"name":"a\u0062","arguments":{"x":1}}"#).unwrap(), r#"ab {"x":1}"#);
        assert_eq!(
            call(r#"{"name":"a","arguments":{},"inputResponses":{"q":"yes"}}"#).unwrap(),
            r#"a {"inputResponses":{"q":"yes"}}"#
        );
        // What only some parsers take hides no argument from a rule.
        let half = r#"{"name":"a","arguments":{"command":"rm","x":"\ud800","y":1e999}}"#;
        assert_eq!(call(half).unwrap(), "a {\"command\":\"rm\",\"x\":\"\u{fffd}\",\"y\":null}");
        let deep = format!(
            r#"{{"name":"a","arguments":{{"x":{}{},"command":"rm"}}}}"#,
            "[".repeat(500),
            "]".repeat(500)
        );
        assert!(call(&deep).unwrap().starts_with(r#"a {"command":"rm","x":[[["#));
        for none in ["{}", "7", r#"{"name":1}"#, r#"{"name":"a","Name":"b"}"#] {
            assert_eq!(call(none), None, "{none}");
        }
    }

    #[test]
    fn facts_name_the_server() {
        let asked = Asked { name: "delete_asset".into(), arguments: json!({"asset_id": "x"}) };
        let facts = asked.facts("catalogue");
        assert_eq!(facts.server.as_deref(), Some("catalogue"));
        assert_eq!(facts.harms[0].target, "asset_id=x");
        let mut harmless = Asked { name: "read_file".into(), arguments: json!({}) }.facts("s");
        assert_eq!(harmless.effect, Effect::Reads);
        suspect(&mut harmless, false);
        assert_eq!(harmless.effect, Effect::Reads);
        suspect(&mut harmless, true);
        assert_eq!(harmless.effect, Effect::Changes);
    }

    #[test]
    fn ends() {
        for (line, status, text) in [
            (r#"{"id":1,"result":{"content":[{"type":"text","text":"a"}]}}"#, Status::Ok, "a"),
            (
                r#"{"id":1,"result":{"content":[{"type":"text","text":"a"},{"type":"image"}],"isError":true}}"#,
                Status::Error,
                "a\n{\"type\":\"image\"}",
            ),
            (r#"{"id":1,"result":{"x":1}}"#, Status::Ok, r#"{"x":1}"#),
            (r#"{"id":1,"result":7}"#, Status::Ok, "7"),
            (
                r#"{"id":1,"result":{"content":[],"isError":false}}"#,
                Status::Ok,
                r#"{"content":[],"isError":false}"#,
            ),
            (r#"{"id":1,"error":{"code":-1,"message":"no"}}"#, Status::Error, "no"),
            (r#"{"id":1,"error":"odd"}"#, Status::Error, "\"odd\""),
        ] {
            let ended = ended(&message(line));
            assert_eq!((ended.outcome.status, ended.text.as_str()), (status, text), "{line}");
            assert_eq!(ended.outcome.failure, None, "{line}");
        }
        // A result that is long is compared as a whole, and kept in part.
        let long = |end: &str| {
            let text = "x".repeat(2 << 20);
            ended(&message(&format!(
                r#"{{"id":1,"result":{{"content":[{{"text":"{text}{end}"}}]}}}}"#
            )))
        };
        assert!(long("").text.len() < (1 << 20) + 100);
        assert_eq!(long("a"), long("a"));
        assert_ne!(long("a").outcome.result, long("b").outcome.result);
        for code in [-32601, -32602] {
            let line = format!(r#"{{"id":1,"error":{{"code":{code},"message":"no such tool"}}}}"#);
            let failure = ended(&message(&line)).outcome.failure;
            assert_eq!(failure.map(|failure| failure.blame), Some(Blame::Agent), "{code}");
        }
    }
}
