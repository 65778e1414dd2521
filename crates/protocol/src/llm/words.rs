//! The text of an answer as the guards see it: the same, whatever the pieces in which it came.

use deadstop_core::{TextFacts, TextHasher};

/// A word that is longer than this is hashed in parts.
const LONGEST_WORD: usize = 4096;

/// The text of an answer that comes in pieces.
///
/// ```
/// use deadstop_protocol::llm::words::Words;
/// let (mut whole, mut parts) = (Words::default(), Words::default());
/// whole.push("It costs 1234 dollars");
/// ["It co", "sts 12", "34 dollars"].iter().for_each(|part| parts.push(part));
/// assert_eq!(whole.finish(), parts.finish());
/// ```
#[derive(Debug, Default)]
pub struct Words {
    hasher: TextHasher,
    anything: bool,
    /// The beginning of a word whose end is not in yet.
    held: String,
}

impl Words {
    /// Adds the next piece.
    pub fn push(&mut self, text: &str) {
        self.anything |= !text.is_empty();
        // After a digit a space may stand inside a date.
        let gap = |(at, pair): (usize, &[u8])| {
            (pair[1].is_ascii_whitespace() && !pair[0].is_ascii_digit()).then_some(at + 1)
        };
        let Some(end) = text.as_bytes().windows(2).enumerate().rev().find_map(gap) else {
            self.held.push_str(text);
            if self.held.len() > LONGEST_WORD {
                self.hasher.push(&std::mem::take(&mut self.held));
            }
            return;
        };
        let (whole, rest) = text.split_at(end);
        if self.held.is_empty() {
            self.hasher.push(whole);
        } else {
            self.held.push_str(whole);
            self.hasher.push(&self.held);
            self.held.clear();
        }
        self.held.push_str(rest);
    }

    /// What is known of the whole; `None` if nothing was said.
    pub fn finish(mut self) -> Option<TextFacts> {
        self.hasher.push(&self.held);
        self.anything.then(|| self.hasher.finish())
    }
}
