//! Patterns of the people who run it.
//!
//! A pattern may be anything, so where its match ends cannot be known before the text goes on. The
//! text is therefore searched in segments of fixed size, each together with what follows it as far
//! as a match may reach.

use regex::bytes::{Regex, RegexBuilder};
use thiserror::Error;

use super::place::{AHEAD, OPENING};

/// Characters that a pattern may have.
pub const LONGEST_PATTERN: usize = 1000;
/// Patterns that there may be.
pub const MOST_PATTERNS: usize = 64;
/// Bytes that a compiled pattern may take.
const LARGEST: usize = 1 << 20;
/// Units that are searched together.
const SEGMENT: usize = 16 * 1024;
/// Units before a segment that `\b` and `^` can see.
const CONTEXT: usize = 64;

/// A pattern as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// What the replacement calls it: `[redacted:name]`.
    pub name: String,
    /// A regular expression. If it has a group, only what the first one matches is removed.
    pub regex: String,
}

/// What is wrong with one.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum BadPattern {
    /// Its name.
    #[error(
        "'{0}' cannot name a redaction pattern: use 1 to 40 lower-case letters, digits and dashes"
    )]
    Name(String),
    /// Too long, or too big when compiled.
    #[error("the redaction pattern '{0}' is too big: make it simpler or split it")]
    TooBig(String),
    /// Not a regular expression.
    #[error("the redaction pattern '{name}' is not a regular expression: {reason}")]
    Syntax {
        /// The pattern's name.
        name: String,
        /// Why it is none.
        reason: String,
    },
    /// It matches nothing, everywhere.
    #[error("the redaction pattern '{0}' matches the empty text: ask for at least one character")]
    Empty(String),
    /// Too many.
    #[error("{0} redaction patterns are too many: at most {MOST_PATTERNS}")]
    TooMany(usize),
}

/// A compiled one.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) name: String,
    regex: Regex,
}

impl Own {
    /// Compiles all.
    pub(super) fn compile(patterns: &[Pattern]) -> Result<Vec<Self>, BadPattern> {
        if patterns.len() > MOST_PATTERNS {
            return Err(BadPattern::TooMany(patterns.len()));
        }
        patterns.iter().map(Self::new).collect()
    }

    fn new(pattern: &Pattern) -> Result<Self, BadPattern> {
        let name = pattern.name.clone();
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || name.len() > 40 || !name.bytes().all(fits) {
            return Err(BadPattern::Name(name));
        }
        if pattern.regex.len() > LONGEST_PATTERN {
            return Err(BadPattern::TooBig(name));
        }
        let regex = match RegexBuilder::new(&pattern.regex).size_limit(LARGEST).build() {
            Ok(regex) => regex,
            Err(regex::Error::CompiledTooBig(_)) => return Err(BadPattern::TooBig(name)),
            Err(error) => {
                let text = error.to_string();
                let reason = text.lines().last().unwrap_or_default();
                let reason = reason.trim_start_matches("error: ").to_owned();
                return Err(BadPattern::Syntax { name, reason });
            }
        };
        if regex.is_match(b"") {
            return Err(BadPattern::Empty(name));
        }
        Ok(Self { name, regex })
    }
}

/// What they matched in the part of a text that is in hand.
#[derive(Debug, Default)]
pub(super) struct OwnMatches {
    /// From, to, and whose; sorted.
    matches: Vec<(usize, usize, usize)>,
    /// Units before this were searched.
    searched: usize,
    /// Where the last match of each ended.
    ends: Vec<usize>,
    active: bool,
}

impl OwnMatches {
    /// Searches what can be searched; says how far.
    pub(super) fn look(&mut self, own: &[Own], units: &[u8], finished: bool) -> usize {
        if own.is_empty() {
            return usize::MAX;
        }
        self.active = true;
        self.ends.resize(own.len(), 0);
        loop {
            let end = self.searched + SEGMENT;
            if !finished && end + AHEAD > units.len() {
                return self.searched;
            }
            if self.searched >= units.len() {
                return usize::MAX;
            }
            self.segment(own, units, end);
            self.searched = end;
        }
    }

    fn segment(&mut self, own: &[Own], units: &[u8], end: usize) {
        let context = self.searched.min(CONTEXT);
        let base = self.searched - context;
        let text = &units[base..units.len().min(end + AHEAD)];
        for (number, own) in own.iter().enumerate() {
            let mut from = context.max(self.ends[number].saturating_sub(base));
            while from <= text.len()
                && let Some(groups) = own.regex.captures_at(text, from)
                && let Some(whole) = groups.get(0)
                && whole.start() + base < end
            {
                let found = groups.get(1).unwrap_or(whole);
                if !found.is_empty() && !is_replaced(text, found.start(), found.end()) {
                    self.matches.push((found.start() + base, found.end() + base, number));
                }
                from = whole.end().max(whole.start() + 1);
                self.ends[number] = from + base;
            }
        }
        self.matches.sort_unstable();
    }

    /// The next match that starts at a unit or before it, without what has left already.
    pub(super) fn next(&mut self, at: usize, last: usize) -> Option<(usize, usize, usize)> {
        let gone = self.matches.iter().take_while(|(_, to, _)| *to <= at).count();
        self.matches.drain(..gone);
        let (from, to, name) =
            self.matches.iter().copied().find(|(from, to, _)| *from <= last && *to > at)?;
        Some((from.max(at), to, name))
    }

    /// Units before this are not looked at again.
    pub(super) fn needed(&self) -> usize {
        if self.active { self.searched.saturating_sub(CONTEXT) } else { usize::MAX }
    }

    /// Units that are gone.
    pub(super) fn forget(&mut self, units: usize) {
        self.searched = self.searched.saturating_sub(units);
        for end in &mut self.ends {
            *end = end.saturating_sub(units);
        }
        self.matches.retain(|(_, to, _)| *to > units);
        for (from, to, _) in &mut self.matches {
            *from = from.saturating_sub(units);
            *to -= units;
        }
    }
}

/// Whether a match lies in a replacement, or around one.
fn is_replaced(text: &[u8], from: usize, to: usize) -> bool {
    if memchr::memmem::find(&text[from..to], OPENING).is_some() {
        return true;
    }
    let before = &text[from.saturating_sub(64)..from];
    memchr::memmem::rfind(before, OPENING).is_some_and(|at| !before[at..].contains(&b']'))
}
