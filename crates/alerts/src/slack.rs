//! A message as Slack and its likes show it.

use serde_json::{Value, json};

use crate::Message;
use crate::message::shortened;

/// Characters that Slack takes in a heading, a section and a field.
const LONGEST: (usize, usize, usize) = (150, 2900, 1900);

/// The body of the POST: blocks for Slack, the text for notifications and for everything else.
pub(crate) fn body(message: &Message) -> Value {
    let title = message.title();
    let sentence = escaped(message.sentence.trim());
    let mut blocks = vec![
        json!({ "type": "header", "text": { "type": "plain_text", "text": shortened(&title, LONGEST.0) } }),
        json!({ "type": "section", "text": { "type": "mrkdwn", "text": shortened(&sentence, LONGEST.1) } }),
    ];
    let fields: Vec<Value> = message
        .details()
        .into_iter()
        .take(10)
        .map(|(name, value)| {
            let text = shortened(&format!("*{name}*\n{}", escaped(&value)), LONGEST.2);
            json!({ "type": "mrkdwn", "text": text })
        })
        .collect();
    blocks.push(json!({ "type": "section", "fields": fields }));
    if let Some(link) = message.link.as_ref().filter(|link| link.starts_with("http")) {
        let link = escaped(link).replace('|', "%7C");
        let text = shortened(&format!("<{link}|Open in Deadstop>"), LONGEST.1);
        blocks.push(json!({ "type": "section", "text": { "type": "mrkdwn", "text": text } }));
    }
    json!({ "text": shortened(&format!("{}: {sentence}", escaped(&title)), LONGEST.1), "blocks": blocks })
}

/// Without the characters that mean something to Slack, so that no name of an agent can mention a
/// channel or hide a link.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use deadstop_core::Time;

    #[test]
    fn nothing_in_a_message_is_markup() {
        let mut message = Message::new("1", Kind::Kill, "p", "stopped: <!channel> & more", Time(0));
        message.agent = Some("<@U1>".into());
        message.link = Some("https://d/i/1|x>".into());
        let mut body = body(&message);
        // The heading is plain text, where nothing means anything.
        body["blocks"][0] = Value::Null;
        let body = body.to_string();
        assert!(!body.contains("<!") && !body.contains("<@"), "{body}");
        assert!(body.contains("&lt;!channel&gt; &amp; more"), "{body}");
        assert!(body.contains("<https://d/i/1%7Cx&gt;|Open in Deadstop>"), "{body}");
    }

    #[test]
    fn long_texts_fit() {
        let mut message = Message::new("1", Kind::Trip, "p", &"ä".repeat(9000), Time(0));
        message.agent = Some("a".repeat(9000));
        let body = body(&message);
        assert!(body["text"].as_str().unwrap().chars().count() <= 3000);
        assert!(body["blocks"][0]["text"]["text"].as_str().unwrap().chars().count() <= 150);
        assert!(body["blocks"][1]["text"]["text"].as_str().unwrap().chars().count() <= 3000);
    }
}
