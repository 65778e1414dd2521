//! MCP: a message that we judge says the same to any other reader of JSON.

use deadstop_protocol::mcp::{
    Envelope, Events, Message, Why, asked, ended, listing, lists_unreadably, noted, read,
    refuse_all, strictly,
};
use serde::de::IgnoredAny;
use serde_json::Value;

/// Bytes as one envelope, and as a stream of events.
pub fn check(data: &[u8]) {
    if let Ok(envelope) = read(data) {
        judged(data, &envelope);
    }
    if let Some(strict) = strictly(data) {
        assert!(serde_json::from_slice::<IgnoredAny>(&strict).is_ok(), "strict JSON");
    }
    let whole = events(&[data]);
    let [parts, bytes] = crate::ways(data);
    if parts {
        assert_eq!(whole, events(&crate::parts(data)), "cut");
    }
    if bytes {
        assert_eq!(whole, events(&data.chunks(1).collect::<Vec<_>>()), "a byte at a time");
    }
}

fn judged(data: &[u8], envelope: &Envelope<'_>) {
    // What is nested too deep for a tree is read in place only.
    let document: Option<Value> = serde_json::from_slice(data).ok();
    let values: Vec<&Value> = match (&document, envelope) {
        (Some(Value::Array(list)), Envelope::Batch(_)) => list.iter().collect(),
        (Some(value), Envelope::One(_)) => vec![value],
        _ => Vec::new(),
    };
    if document.is_some() {
        assert_eq!(values.len(), envelope.messages().len(), "as many messages");
    }
    for (message, value) in envelope.messages().iter().zip(values) {
        let method = value["method"].as_str();
        assert_eq!(message.method.as_deref(), method, "one method");
        if let Some(call) = asked(message) {
            assert_eq!(Some(call.name.as_str()), value["params"]["name"].as_str(), "one name");
            let _ = (call.facts("server"), call.text());
        }
    }
    for message in envelope.messages() {
        let _ = (message.key(), message.is_governed(), ended(message));
        if let Some(told) = noted(data, message, "You repeat \"yourself\".") {
            assert!(read(&told).is_ok(), "a note spoils the answer");
        }
        listed(data, message);
    }
    let whys = vec![Some(Why::failed("fuzz", "no")); envelope.messages().len()];
    if let Some(refusal) = refuse_all(envelope.messages(), &whys) {
        assert!(serde_json::from_slice::<Value>(&refusal).is_ok(), "a refusal is JSON");
    }
}

/// A tool that is hidden is gone from the listing, and the others stay.
fn listed(data: &[u8], message: &Message<'_>) {
    let Some(result) = message.result else { return };
    let Some(found) = listing(result) else { return };
    assert!(!lists_unreadably(result), "it was read");
    let Some(first) = found.tools.first() else { return };
    let hidden = first.name.clone();
    let hidden_or_none = |name: &str| name.is_empty() || name == hidden;
    let Some(narrowed) = found.narrowed(data, |name| name == hidden) else { return };
    let Ok(envelope) = read(&narrowed) else { panic!("a narrowed listing is unreadable") };
    let left: Vec<String> = envelope
        .messages()
        .iter()
        .filter_map(|message| listing(message.result?))
        .flat_map(|listing| listing.tools)
        .map(|tool| tool.name)
        .collect();
    if let Envelope::One(_) = envelope {
        let kept: Vec<String> = found
            .tools
            .into_iter()
            .map(|tool| tool.name)
            .filter(|name| !hidden_or_none(name))
            .collect();
        assert_eq!(left, kept, "all but the hidden tool, and those without a name");
    }
}

fn events(parts: &[&[u8]]) -> (Vec<(Vec<u8>, Option<Vec<u8>>)>, bool, bool) {
    let mut events = Events::default();
    let mut found = Vec::new();
    for part in parts {
        events.push(part, |event, said| {
            // The end of the last line may come behind its event: `\r\n\r` is one already.
            let event = event.trim_ascii_end().to_vec();
            // Line ends alone are no event, and may come in any number of pieces.
            if !event.is_empty() || said.is_some() {
                found.push((event, said.map(<[u8]>::to_vec)));
            }
        });
    }
    let (between, resumable) = (events.is_between(), events.is_resumable());
    (found, between, resumable)
}
