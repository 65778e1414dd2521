//! A note to the model: one more block of text behind the content of a tool's result. Every other byte
//! of the message stays as it is.

use super::message::{Message, members_of};

/// The message with the note behind the content of the result that it brings; `None` where it brings
/// no content, as an error does not.
///
/// ```
/// use deadstop_protocol::mcp::{noted, read};
/// let said = br#"{"id":1,"result":{"content":[{"type":"text","text":"no"}]}}"#;
/// let envelope = read(said).unwrap();
/// let noted = noted(said, &envelope.messages()[0], "Try another way.").unwrap();
/// let expected = br#"{"id":1,"result":{"content":[{"type":"text","text":"no"},{"type":"text","text":"[Deadstop] Try another way."}]}}"#;
/// assert_eq!(noted, expected);
/// ```
pub fn noted(said: &[u8], answer: &Message<'_>, advice: &str) -> Option<Vec<u8>> {
    let [content] = members_of(answer.result?, ["content"]).ok()?;
    let content = content?;
    let inside = content.strip_prefix('[')?.strip_suffix(']')?;
    let at = (content.as_ptr() as usize).checked_sub(said.as_ptr() as usize)? + content.len() - 1;
    let comma = if inside.trim().is_empty() { "" } else { "," };
    let text = serde_json::to_string(&format!("[Deadstop] {advice}")).ok()?;
    let mut noted = said.get(..at)?.to_vec();
    noted.extend_from_slice(format!("{comma}{{\"type\":\"text\",\"text\":{text}}}").as_bytes());
    noted.extend_from_slice(said.get(at..)?);
    Some(noted)
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    fn check(said: &str, expected: Option<&str>) {
        let envelope = read(said.as_bytes()).unwrap();
        let found = noted(said.as_bytes(), &envelope.messages()[0], "Say \"no\".");
        assert_eq!(found.map(|said| String::from_utf8(said).unwrap()).as_deref(), expected);
    }

    #[test]
    fn a_block_is_added_behind_the_others() {
        check(
            r#"{ "id":1, "result": {"isError":true, "content":[ ] , "x":1.0} }"#,
            Some(
                r#"{ "id":1, "result": {"isError":true, "content":[ {"type":"text","text":"[Deadstop] Say \"no\"."}] , "x":1.0} }"#,
            ),
        );
        check(r#"{"id":1,"result":{}}"#, None);
        check(r#"{"id":1,"result":{"content":"text"}}"#, None);
        check(r#"{"id":1,"error":{"code":1,"message":"no"}}"#, None);
    }
}
