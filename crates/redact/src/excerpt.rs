//! The beginning of a text and how long it was: what is kept of what was said, for evidence.
//!
//! Somewhat more than is shown is held, so that the redactor sees the whole of a secret that begins
//! before the end: half of it would not be recognised, and would stay.

use crate::LOOK_AHEAD;

/// Bytes of one text that are shown.
pub const MOST: usize = 8 << 10;
/// Bytes of a tool call that are shown to a person who decides about it.
pub const MOST_OF_CALL: usize = 32 << 10;
/// Bytes of one text that are held.
const HELD: usize = MOST + LOOK_AHEAD;
/// Bytes of a secret that may not tell yet that it is one.
const LONGEST_HALF: usize = 256;

/// The beginning of a text that comes in parts.
///
/// ```
/// use deadstop_redact::excerpt::Excerpt;
/// let mut said = Excerpt::default();
/// said.push("delete it");
/// assert_eq!((said.text(), said.chars(), said.is_cut()), ("delete it", 9, false));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    text: String,
    chars: u64,
    /// Bytes that are shown.
    most: usize,
    /// Bytes that are held at most.
    held: usize,
    /// The text that this one was taken from.
    whole: Option<Box<Excerpt>>,
}

impl Default for Excerpt {
    fn default() -> Excerpt {
        Excerpt { text: String::new(), chars: 0, most: MOST, held: HELD, whole: None }
    }
}

impl Excerpt {
    /// The beginning of a body, with so many bytes to be shown.
    pub fn of_body(body: &[u8], most: usize) -> Excerpt {
        let held = &body[..body.len().min(most + LOOK_AHEAD)];
        let text = match std::str::from_utf8(held) {
            Ok(text) => text.to_owned(),
            // A character that was cut in two at the end is left out; others are no characters.
            Err(error) if error.error_len().is_none() => {
                String::from_utf8_lossy(&held[..error.valid_up_to()]).into_owned()
            }
            Err(_) => String::from_utf8_lossy(held).into_owned(),
        };
        Excerpt { text, chars: chars(body), most, held: most + LOOK_AHEAD, whole: None }
    }

    /// Keeps the text that this one was taken from beside it.
    #[must_use]
    pub fn part_of(self, whole: Excerpt) -> Excerpt {
        Excerpt { whole: Some(Box::new(whole)), ..self }
    }

    /// The text that this one was taken from, if it was kept.
    pub fn whole(&self) -> Option<&Excerpt> {
        self.whole.as_deref()
    }

    /// Forgets the text that this one was taken from.
    #[must_use]
    pub fn alone(self) -> Excerpt {
        Excerpt { whole: None, ..self }
    }

    /// Bytes that are to be shown, once secrets are removed.
    pub fn most(&self) -> usize {
        self.most
    }

    /// A tool call: more of it is held, because a person must see the whole of what they approve.
    ///
    /// ```
    /// use deadstop_redact::excerpt::{Excerpt, MOST};
    /// let call = Excerpt::of_call(&"x".repeat(20_000));
    /// assert_eq!(call.unshown(20_000), 0);
    /// assert_eq!(call.unshown(2_000), 18_000);
    /// assert!(call.beginning().text().len() < 20_000);
    /// ```
    pub fn of_call(text: &str) -> Excerpt {
        let held = MOST_OF_CALL + LOOK_AHEAD;
        let mut call = Excerpt { held, ..Excerpt::default() };
        call.push(text);
        call
    }

    /// Characters behind the first `most` bytes of what is held: what a reader of those does not
    /// see.
    pub fn unshown(&self, most: usize) -> u64 {
        let shown = &self.text[..self.text.floor_char_boundary(most.min(self.text.len()))];
        self.chars.saturating_sub(shown.chars().count() as u64)
    }

    /// As much of it as evidence holds.
    #[must_use]
    pub fn beginning(&self) -> Excerpt {
        let kept = self.text.floor_char_boundary(HELD.min(self.text.len()));
        Excerpt { text: self.text[..kept].to_owned(), chars: self.chars, ..Excerpt::default() }
    }

    /// Adds the next part.
    pub fn push(&mut self, part: &str) {
        // Counting characters of what is not kept would cost more than keeping it.
        let room = self.held - self.text.len().min(self.held);
        let kept = part.floor_char_boundary(room.min(part.len()));
        self.text.push_str(&part[..kept]);
        self.chars += chars(part.as_bytes());
    }

    /// Adds a part that stands on a line of its own.
    pub fn line(&mut self, part: &str) {
        if self.chars > 0 {
            self.push("\n");
        }
        self.push(part);
    }

    /// For a text that broke off: leaves out what may be the beginning of a secret, since the rest
    /// never comes. The redactor recognises longer beginnings by itself.
    ///
    /// ```
    /// # use deadstop_redact::excerpt::Excerpt;
    /// let mut said = Excerpt::default();
    /// said.push("The key is sk-proj-a1B");
    /// assert_eq!(said.broken_off().text(), "The key is");
    /// ```
    #[must_use]
    pub fn broken_off(mut self) -> Excerpt {
        let cut = |text: &str| text.rfind(char::is_whitespace).unwrap_or_default();
        let mut whole = self.text[..cut(&self.text)].trim_end();
        // Numbers may stand in groups.
        let is_group = |word: &str| word.bytes().all(|b| b.is_ascii_digit() || b == b'-');
        while !whole.is_empty() && is_group(whole[cut(whole)..].trim_start()) {
            whole = whole[..cut(whole)].trim_end();
        }
        let least = self.text.len().saturating_sub(LONGEST_HALF);
        let kept = whole.len().max(least);
        self.text.truncate(self.text.floor_char_boundary(kept));
        self
    }

    /// What is held: of this [`Excerpt::most`] bytes are to be shown, once secrets are removed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Takes what is held.
    pub fn into_text(self) -> String {
        self.text
    }

    /// Characters of the whole.
    pub fn chars(&self) -> u64 {
        self.chars
    }

    /// Whether there was more than is shown.
    pub fn is_cut(&self) -> bool {
        self.text.len() > self.most
    }

    /// Whether nothing was said.
    pub fn is_empty(&self) -> bool {
        self.chars == 0
    }
}

/// Characters of a text: all bytes that do not continue one. They are counted in bytes, which the processor adds
/// many at once, and summed up before a byte could overflow.
fn chars(text: &[u8]) -> u64 {
    const TOGETHER: usize = 240;
    let begins = |byte: &u8| u8::from(byte & 0b1100_0000 != 0b1000_0000);
    let count = |bytes: &[u8]| bytes.iter().map(begins).fold(0u8, u8::wrapping_add);
    text.chunks(TOGETHER).map(|bytes| u64::from(count(bytes))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: usize = MOST + LOOK_AHEAD;

    #[test]
    fn a_body_is_cut_where_it_should_be() {
        let whole = Excerpt::of_body("system: häh".as_bytes(), 100);
        assert_eq!((whole.text(), whole.chars(), whole.is_cut()), ("system: häh", 11, false));
        let long = "ü".repeat(LOOK_AHEAD + 100);
        let cut = Excerpt::of_body(long.as_bytes(), 101);
        assert_eq!(cut.text().len(), (101 + LOOK_AHEAD) / 2 * 2);
        assert_eq!((cut.chars(), cut.is_cut()), (LOOK_AHEAD as u64 + 100, true));
        assert_eq!(Excerpt::of_body(b"a\xffb", 100).text(), "a\u{fffd}b");
        let part = Excerpt::default().part_of(whole);
        assert_eq!(part.whole().map(Excerpt::text), Some("system: häh"));
        assert_eq!(part.alone().whole(), None);
    }

    #[test]
    fn keeps_the_beginning_and_counts_the_whole() {
        let mut said = Excerpt::default();
        said.push(&"ü".repeat(MOST / 2));
        assert!(!said.is_cut());
        said.push(&"ü".repeat(HELD));
        said.push("more");
        assert_eq!(said.text().len(), HELD);
        assert_eq!(said.chars(), (MOST / 2 + HELD) as u64 + 4);
        assert!(said.is_cut());
    }

    #[test]
    fn characters_of_long_texts_are_counted() {
        for length in [0, 1, 239, 240, 241, 480, 5000] {
            let text = "aüx".repeat(length);
            assert_eq!(chars(text.as_bytes()), 3 * length as u64, "{length}");
        }
    }

    #[test]
    fn characters_are_never_torn() {
        let mut said = Excerpt::default();
        said.push(&"x".repeat(HELD - 1));
        said.push("ü");
        assert_eq!(said.text().len(), HELD - 1);
        assert!(said.is_cut());
        assert_eq!(said.chars(), HELD as u64);
    }

    #[test]
    fn what_broke_off_ends_with_something_whole() {
        let long = format!("{{\"a\":\"{}\"", "x".repeat(1000));
        for (text, expected) in [
            ("", ""),
            ("word", ""),
            ("one two", "one"),
            ("one two ", "one two"),
            ("pay 4111 1111 11", "pay"),
            ("4111 1111 11", ""),
            ("key a1B2c3 x", "key a1B2c3"),
            ("see https://bob:pass", "see"),
            (&long, &long[..long.len() - LONGEST_HALF]),
        ] {
            let mut said = Excerpt::default();
            said.push(text);
            assert_eq!(said.broken_off().text(), expected, "of {text}");
        }
    }

    #[test]
    fn lines_stand_apart() {
        let mut said = Excerpt::default();
        said.line("one");
        said.line("two");
        assert_eq!(said.into_text(), "one\ntwo");
    }
}
