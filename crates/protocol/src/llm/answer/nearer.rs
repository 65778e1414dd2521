//! Addresses in an answer that would lead a client past the gateway.

use serde_json::Deserializer;

/// The member in which Anthropic names the results of a batch.
const RESULTS: &str = "\"results_url\"";

/// An answer in which the addresses of a batch's results are paths of the same API, which clients look for at the
/// address that they asked; `None` if there is nothing to change. `base` is the path of the provider's address.
///
/// ```
/// use deadstop_protocol::llm::answer::nearer;
/// let batch = br#"{"id":"b","results_url": "https://api.anthropic.com/v1/messages/batches/b/results"}"#;
/// let near = br#"{"id":"b","results_url": "/v1/messages/batches/b/results"}"#;
/// assert_eq!(nearer(batch, "").as_deref(), Some(&near[..]));
/// assert_eq!(nearer(near, ""), None);
/// ```
pub fn nearer(body: &[u8], base: &str) -> Option<Vec<u8>> {
    let mut rest = std::str::from_utf8(body).ok()?;
    let (mut near, mut changed) = (String::with_capacity(rest.len()), false);
    while let Some(at) = rest.find(RESULTS) {
        let (before, after) = rest.split_at(at + RESULTS.len());
        near.push_str(before);
        rest = after;
        let gap = rest.find('"').filter(|gap| rest[..*gap].trim() == ":");
        let Some((between, text)) = gap.map(|gap| rest.split_at(gap)) else { continue };
        let mut texts = Deserializer::from_str(text).into_iter::<String>();
        let Some(Ok(address)) = texts.next() else { continue };
        let Some(path) = path(&address, base) else { continue };
        near.push_str(between);
        near.push_str(&serde_json::Value::from(path).to_string());
        rest = text.get(texts.byte_offset()..)?;
        changed = true;
    }
    near.push_str(rest);
    changed.then(|| near.into_bytes())
}

/// What follows the host of an address, and the base; `None` if it has no host.
fn path<'a>(address: &'a str, base: &str) -> Option<&'a str> {
    let (_, rest) = address.split_once("//")?;
    let path = &rest[rest.find('/')?..];
    path.strip_prefix(base.trim_end_matches('/'))
        .filter(|path| path.starts_with('/'))
        .or(Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_results_become_paths() {
        let check = |body: &str, base: &str, expected: Option<&str>| {
            let near = nearer(body.as_bytes(), base).map(|near| String::from_utf8(near).unwrap());
            assert_eq!(near.as_deref(), expected, "{body}");
        };
        check(
            r#"{"data":[{"results_url":"http://h:1/base/v1/x"},{"results_url" :\n"https:\/\/h\/v1\/y"}]}"#.replace("\\n", "\n").as_str(),
            "/base/",
            Some("{\"data\":[{\"results_url\":\"/v1/x\"},{\"results_url\" :\n\"/v1/y\"}]}"),
        );
        check(r#"{"results_url":"//h/v1/x"}"#, "", Some(r#"{"results_url":"/v1/x"}"#));
        for same in [
            r#"{"results_url":null,"a":"https://h/x"}"#,
            r#"{"results_url":"/v1/x"}"#,
            r#"{"results_url""#,
            "",
        ] {
            check(same, "", None);
        }
    }
}
