//! What may start a secret, all of it looked for at once.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};

use super::names::WORDS;
use super::place::{Candidate, Outcome};
use super::tokens::TOKENS;
use super::{card, fields, shapes, tokens};

/// Units that the longest anchor has at most.
pub(super) const LONGEST: usize = 32;

/// Judges a place.
type Shape = fn(&Candidate<'_>) -> Outcome;

#[derive(Clone, Copy, Debug)]
enum Anchor {
    Token(usize),
    Word(usize),
    Shape(Shape),
}

/// Finds them.
#[derive(Debug)]
pub(super) struct Anchors {
    automaton: AhoCorasick,
    anchors: Vec<Anchor>,
}

/// Compiled on first use, once.
#[expect(clippy::expect_used, reason = "made of constants, and every test would fail")]
static ANCHORS: LazyLock<Anchors> =
    LazyLock::new(|| Anchors::new().expect("built-in anchors compile"));

impl Anchors {
    /// All that is built in.
    pub(super) fn get() -> &'static Self {
        &ANCHORS
    }

    fn new() -> Result<Self, aho_corasick::BuildError> {
        let mut patterns: Vec<String> = Vec::new();
        let mut anchors = Vec::new();
        let mut add = |pattern: String, anchor| {
            patterns.push(pattern);
            anchors.push(anchor);
        };
        for (number, token) in TOKENS.iter().enumerate() {
            if token.prefix.len() > 2 {
                add(token.prefix.to_owned(), Anchor::Token(number));
                continue;
            }
            // Two letters are in every other word; with the digit after them they are not.
            for digit in "0123456789abcdef".chars() {
                add(format!("{}{digit}", token.prefix), Anchor::Token(number));
            }
        }
        for (number, word) in WORDS.iter().enumerate() {
            add(word.text.to_owned(), Anchor::Word(number));
        }
        for digit in "0123456789abcdef".chars() {
            add(format!("AC{digit}"), Anchor::Shape(shapes::twilio));
        }
        let shapes: [(&str, Shape); 20] = [
            ("eyJ", shapes::jwt),
            ("://", shapes::url),
            ("bearer", shapes::bearer),
            ("basic", shapes::basic),
            ("sig=", shapes::signature),
            ("amz-signature=", shapes::signature),
            ("goog-signature=", shapes::signature),
            (":AA", shapes::telegram),
            ("ds_", shapes::deadstop),
            ("-----BEGIN", shapes::private_key),
            ("-u", shapes::argument),
            ("-p", shapes::argument),
            ("-w", shapes::argument),
            ("-a", shapes::argument),
            ("--user ", shapes::argument),
            ("2", card::check),
            ("3", card::check),
            ("4", card::check),
            ("5", card::check),
            ("6", card::check),
        ];
        for (pattern, shape) in shapes {
            add(pattern.to_owned(), Anchor::Shape(shape));
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .ascii_case_insensitive(true)
            .kind(Some(AhoCorasickKind::DFA))
            .build(&patterns)?;
        Ok(Self { automaton, anchors })
    }

    /// The next place that starts before `limit` where an anchor stands, and which.
    pub(super) fn next(&self, units: &[u8], from: usize, limit: usize) -> Option<(usize, usize)> {
        if from >= limit {
            return None;
        }
        let end = units.len().min(limit + LONGEST);
        let found = self.automaton.find(Input::new(units).span(from..end))?;
        (found.start() < limit).then(|| (found.start(), found.pattern().as_usize()))
    }

    /// Judges the place where an anchor stands.
    pub(super) fn judge(&self, anchor: usize, place: &Candidate<'_>) -> Outcome {
        match self.anchors.get(anchor) {
            Some(Anchor::Token(number)) => tokens::check(place, &TOKENS[*number]),
            Some(Anchor::Word(number)) => fields::check(place, &WORDS[*number]),
            Some(Anchor::Shape(shape)) => shape(place),
            None => Outcome::Nothing,
        }
    }
}
