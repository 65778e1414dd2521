//! Asking for the usage of an OpenAI chat stream: one field in the body, every other byte kept.
//!
//! Without `stream_options.include_usage` a stream ends without saying what it cost. The gateway
//! asks for it and keeps the extra chunk from a client that did not.

use serde_json::value::RawValue;

use super::json::{fields, is_true, object};

const ASKED: &str = r#"{"include_usage":true}"#;

/// The body with `stream_options.include_usage` set; `None` when there is nothing to do: no stream,
/// the client asked itself, or a body that cannot be read.
///
/// ```
/// use deadstop_protocol::llm::request::with_usage;
/// let asked = with_usage(br#"{"model":"m", "stream":true}"#).unwrap();
/// assert_eq!(asked, br#"{"stream_options":{"include_usage":true},"model":"m", "stream":true}"#);
/// assert_eq!(with_usage(&asked), None);
/// ```
pub fn with_usage(body: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(body).ok()?;
    let [stream, options] = object(text, ["stream", "stream_options"], "").ok()?.fields;
    edit(body, stream, options)
}

/// The same, where the two fields were found already; both lie in `body`.
pub(super) fn edit(
    body: &[u8],
    stream: Option<&RawValue>,
    options: Option<&RawValue>,
) -> Option<Vec<u8>> {
    if !is_true(stream) {
        return None;
    }
    let Some(options) = options else {
        // There is at least one key in the object already, so a comma can follow.
        let after_brace = body.iter().position(|b| *b == b'{')? + 1;
        return splice(body, after_brace, 0, &format!("\"stream_options\":{ASKED},"));
    };
    let (at, json) = (offset(body, options)?, options.get());
    if json == "null" {
        return splice(body, at, json.len(), ASKED);
    }
    let inside = json.strip_prefix('{')?;
    match fields(options, ["include_usage"]) {
        [Some(asked)] if asked.get() == "true" => None,
        [Some(asked)] => splice(body, offset(body, asked)?, asked.get().len(), "true"),
        [None] if inside.trim_start() == "}" => splice(body, at, json.len(), ASKED),
        [None] => splice(body, at + 1, 0, "\"include_usage\":true,"),
    }
}

/// Where in the body a value lies that was borrowed from it.
fn offset(body: &[u8], value: &RawValue) -> Option<usize> {
    let at = (value.get().as_ptr() as usize).checked_sub(body.as_ptr() as usize)?;
    (at + value.get().len() <= body.len()).then_some(at)
}

fn splice(body: &[u8], at: usize, cut: usize, insert: &str) -> Option<Vec<u8>> {
    let mut edited = Vec::with_capacity(body.len() + insert.len());
    edited.extend_from_slice(body.get(..at)?);
    edited.extend_from_slice(insert.as_bytes());
    edited.extend_from_slice(body.get(at + cut..)?);
    Some(edited)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(body: &str, expected: Option<&str>) {
        let edited = with_usage(body.as_bytes()).map(|body| String::from_utf8(body).unwrap());
        assert_eq!(edited.as_deref(), expected, "{body}");
    }

    #[test]
    fn only_what_is_missing_is_added() {
        check(
            " {\n \"stream\" : true,\"z\":1e5 }\n",
            Some(
                " {\"stream_options\":{\"include_usage\":true},\n \"stream\" : true,\"z\":1e5 }\n",
            ),
        );
        check(
            r#"{"stream":true,"stream_options":null,"n":1.0}"#,
            Some(r#"{"stream":true,"stream_options":{"include_usage":true},"n":1.0}"#),
        );
        check(
            r#"{"stream":true,"stream_options":{ },"n":1.0}"#,
            Some(r#"{"stream":true,"stream_options":{"include_usage":true},"n":1.0}"#),
        );
        check(
            r#"{"stream":true,"stream_options":{"include_obfuscation":false}}"#,
            Some(
                r#"{"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false}}"#,
            ),
        );
        check(
            r#"{"stream":true,"stream_options":{"x":1,"include_usage" : false}}"#,
            Some(r#"{"stream":true,"stream_options":{"x":1,"include_usage" : true}}"#),
        );
        check(r#"{"stream":true,"stream_options":{"include_usage":true}}"#, None);
        check(r#"{"stream":true,"stream_options":7}"#, None);
        check(r#"{"stream":false}"#, None);
        check(r#"{"messages":[]}"#, None);
        check("[true]", None);
        check("", None);
    }

    proptest! {
        #[test]
        fn every_other_byte_stays(
            before in "[a-z]{0,8}",
            text in "\\PC{0,40}",
            gap in "[ \n\t]{0,3}",
        ) {
            let text = serde_json::to_string(&text).unwrap();
            let body = format!(
                "{gap}{{{gap}\"x{before}\":{text},\"messages\":[{text}]{gap},\"stream\":{gap}true}}"
            );
            let edited = String::from_utf8(with_usage(body.as_bytes()).unwrap()).unwrap();
            let added = format!("\"stream_options\":{ASKED},");
            prop_assert_eq!(edited.replacen(&added, "", 1), body);
            prop_assert!(serde_json::from_str::<serde_json::Value>(&edited).is_ok());
            prop_assert_eq!(with_usage(edited.as_bytes()), None);
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = with_usage(&bytes);
        }
    }
}
