//! What is new in a request, gathered message by message: a person's words and tools' results.

use std::borrow::Cow;

use deadstop_core::{Digest, TextFacts, TextHasher};
use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::attachment::marker;
use super::json;
use crate::facts::{self, envelope};
use crate::llm::ToolResult;
use deadstop_redact::excerpt::Excerpt;

/// Who speaks in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    /// The model: its texts, calls and thoughts.
    Model,
    /// The program's standing orders.
    System,
    /// A person, or a tool by way of the program.
    Other,
}

/// Tags in which coding agents wrap what they add to a conversation themselves: such a text stands
/// in a user's message, but the user did not write it.
const HARNESS: [&str; 5] = [
    "system-reminder",
    "environment_context",
    "user_instructions",
    "turn_aborted",
    "subagent_notification",
];

/// What was found so far.
#[derive(Default)]
pub(super) struct News {
    hasher: TextHasher,
    /// Whether only the digest is needed, so that the facts are not computed.
    digest_only: bool,
    any: bool,
    exact: u64,
    pub from_person: bool,
    /// Whether a summary has taken the place of what was said before.
    pub summary: bool,
    pub results: Vec<ToolResult>,
    /// What was said, for people.
    pub said: Excerpt,
}

impl News {
    /// News of which only the digest is wanted.
    pub(super) fn digest_only() -> News {
        News { digest_only: true, ..News::default() }
    }

    /// A user's content, in any dialect whose parts have a `type` and a `text`.
    pub(super) fn content(&mut self, content: &RawValue) {
        for part in parts(content) {
            self.part(&part);
        }
    }

    /// One part of a user's content.
    pub(super) fn part(&mut self, part: &Part<'_>) {
        match &part.text {
            Some(text) => self.said(text),
            None => self.mark(&marker(&part.kind, part.raw.get())),
        }
    }

    /// Something that is no text.
    pub(super) fn mark(&mut self, marker: &str) {
        self.push(marker);
    }

    /// A text in a user's name.
    pub(super) fn said(&mut self, text: &str) {
        if text.trim().is_empty() || from_harness(text) {
            return;
        }
        // Agents that write their calls as text get their results in a user's name, without an id.
        let result = if envelope::is_observation(text) { Some(text) } else { None };
        if let Some(text) = result.or_else(|| envelope::last_observation(text)) {
            let text = text.to_owned();
            return self.result(ToolResult { text, ..ToolResult::default() });
        }
        self.summary |= envelope::is_summary(text);
        self.from_person |= !envelope::is_summary(text);
        self.push(text);
    }

    /// What a tool brought.
    pub(super) fn result(&mut self, mut result: ToolResult) {
        result.is_error |= facts::says_failed(&result.text);
        self.push(&result.text);
        self.results.push(result);
    }

    /// The facts about all texts together; `None` when nothing was said.
    pub(super) fn facts(&self) -> Option<TextFacts> {
        self.any.then(|| self.hasher.clone().finish())
    }

    /// The digest of all texts exactly as they are.
    pub(super) fn exact(&self) -> Digest {
        Digest(self.exact)
    }

    fn push(&mut self, text: &str) {
        self.any |= !text.is_empty();
        self.exact = xxh3_64_with_seed(text.as_bytes(), self.exact);
        if !self.digest_only {
            self.hasher.push(text);
            self.said.line(text);
        }
    }
}

/// A part of a message's content.
pub(super) struct Part<'a> {
    pub kind: Cow<'a, str>,
    pub text: Option<Cow<'a, str>>,
    pub raw: &'a RawValue,
}

/// The parts of a content: a plain text is one.
pub(super) fn parts(content: &RawValue) -> Vec<Part<'_>> {
    if let Some(text) = json::text(content) {
        return vec![Part { kind: Cow::Borrowed("text"), text: Some(text), raw: content }];
    }
    let part = |raw| {
        let [kind, text] = json::fields(raw, ["type", "text"]);
        let kind = kind.and_then(json::text).unwrap_or_default();
        Part { kind, text: json::text(raw).or_else(|| text.and_then(json::text)), raw }
    };
    json::elements(content).into_iter().map(part).collect()
}

/// A tool's output as one text: its texts, and a marker for each thing that is none.
pub(super) fn output(content: Option<&RawValue>) -> String {
    let Some(content) = content.filter(|content| content.get() != "null") else {
        return String::new();
    };
    if let Some(text) = json::text(content) {
        return text.into_owned();
    }
    if !content.get().starts_with('[') {
        let [kind, text] = json::fields(content, ["type", "text"]);
        return match (kind.and_then(json::text), text.and_then(json::text)) {
            (_, Some(text)) => text.into_owned(),
            (Some(kind), None) => marker(&kind, content.get()),
            (None, None) => content.get().to_owned(),
        };
    }
    let mut all = String::new();
    for part in parts(content) {
        if !all.is_empty() {
            all.push('\n');
        }
        match part.text {
            Some(text) => all.push_str(&text),
            None => all.push_str(&marker(&part.kind, part.raw.get())),
        }
    }
    all
}

fn from_harness(text: &str) -> bool {
    let text = text.trim();
    let Some(inner) = text.strip_prefix('<').and_then(|text| text.strip_suffix('>')) else {
        return false;
    };
    HARNESS.iter().any(|tag| {
        inner.strip_prefix(tag).is_some_and(|rest| rest.starts_with('>'))
            && inner.strip_suffix(tag).is_some_and(|rest| rest.ends_with("</"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_harness_adds_nobody_said() {
        for (text, expected) in [
            ("<system-reminder>\nbe nice\n</system-reminder>\n", true),
            ("<environment_context><cwd>/</cwd></environment_context>", true),
            ("<system-reminder>x</system-reminder> and fix the bug", false),
            ("<html></html>", false),
            ("<system-reminder>", false),
            ("hello", false),
            ("", false),
        ] {
            assert_eq!(from_harness(text), expected, "{text}");
        }
    }
}
