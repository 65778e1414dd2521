//! Secrets are removed from texts before they are stored.
//!
//! A [`Redactor`] knows the usual kinds of secrets, and the patterns that it was given. What it
//! finds is replaced by `[redacted:kind]`, and everything around it stays as it is: JSON stays JSON.
//! A text may also come in pieces ([`Stream`]); the result is the same wherever it was cut, and no
//! more than a bounded part of it is held back.
//!
//! One automaton looks for everything that may start a secret; small matchers then judge the place
//! by what follows and what is around. Time is linear in the length of the text.

mod anchors;
mod card;
mod engine;
pub mod excerpt;
mod fields;
mod names;
mod own;
mod pem;
mod place;
mod quote;
mod shapes;
#[cfg(test)]
mod tests;
mod tokens;
mod view;

use std::borrow::Cow;
use std::sync::Arc;

use anchors::Anchors;
use engine::{Engine, Sink};
use own::Own;
pub use own::{BadPattern, LONGEST_PATTERN, MOST_PATTERNS, Pattern};

/// Bytes after a place that may tell whether a secret begins there.
pub const LOOK_AHEAD: usize = place::AHEAD;

/// Bytes of a whole text that are looked at together.
const PIECE: usize = 64 * 1024;

/// Removes secrets from texts. Made once, cheap to clone, used by many threads.
///
/// ```
/// use deadstop_redact::Redactor;
/// let redactor = Redactor::default();
/// let text = r#"{"model":"m","password":"hunter2"}"#;
/// assert_eq!(redactor.redact(text), r#"{"model":"m","password":"[redacted:password]"}"#);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    own: Arc<Vec<Own>>,
}

impl Redactor {
    /// One that knows these patterns besides the built-in kinds.
    ///
    /// ```
    /// use deadstop_redact::{Pattern, Redactor};
    /// let own = Pattern { name: "badge".into(), regex: r"badge (\d{6})".into() };
    /// let redactor = Redactor::with_patterns(&[own]).unwrap();
    /// assert_eq!(redactor.redact("badge 123456"), "badge [redacted:badge]");
    /// ```
    pub fn with_patterns(patterns: &[Pattern]) -> Result<Self, BadPattern> {
        Ok(Self { own: Arc::new(Own::compile(patterns)?) })
    }

    /// A text without its secrets; the text itself when there are none.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.redact_bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            // Secrets start and end at ASCII, so that nothing is torn; if it ever were, the text
            // must still not be lost.
            Cow::Owned(bytes) => Cow::Owned(match String::from_utf8(bytes) {
                Ok(text) => text,
                Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
            }),
        }
    }

    /// The same for bytes that need not be UTF-8.
    pub fn redact_bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let mut sink = Lazy { text: bytes, kept: 0, changed: None };
        let mut engine = Engine::default();
        let (anchors, own) = (Anchors::get(), self.own.as_slice());
        for piece in bytes.chunks(PIECE) {
            engine.push(piece, anchors, own, &mut sink);
        }
        engine.finish(anchors, own, &mut sink);
        match sink.changed {
            Some(changed) => Cow::Owned(changed),
            None => Cow::Borrowed(bytes),
        }
    }

    /// The beginning of a text, without its secrets: of what its first `most` bytes have become. A
    /// secret that begins there and ends later goes whole, as far as the text at hand tells what it
    /// is: have [`LOOK_AHEAD`] bytes more than are wanted.
    ///
    /// ```
    /// # use deadstop_redact::Redactor;
    /// let text = "use sk-proj-a1B2c3D4e5F6g7H8i9J0 from now on";
    /// assert_eq!(Redactor::default().redact_start(text, 12), "use [redacted:openai-key]");
    /// ```
    pub fn redact_start(&self, text: &str, most: usize) -> String {
        let most = text.floor_char_boundary(most.min(text.len()));
        let mut sink = Start { most, text: Vec::with_capacity(most) };
        let mut engine = Engine::default();
        let (anchors, own) = (Anchors::get(), self.own.as_slice());
        for piece in text.as_bytes().chunks(PIECE) {
            engine.push(piece, anchors, own, &mut sink);
        }
        engine.finish(anchors, own, &mut sink);
        String::from_utf8_lossy(&sink.text).into_owned()
    }

    /// For a text that comes in pieces.
    pub fn stream(&self) -> Stream {
        Stream { own: Arc::clone(&self.own), engine: Engine::default() }
    }
}

/// A text that comes in pieces. Holds back some 4,000 characters (20,000 with own patterns), never
/// more.
///
/// ```
/// # use deadstop_redact::Redactor;
/// let mut stream = Redactor::default().stream();
/// let mut out = stream.push(b"Cookie: sid=12");
/// out.extend(stream.push(b"34\nHost: example.org\n"));
/// out.extend(stream.finish());
/// assert_eq!(out, b"Cookie: [redacted:cookie]\nHost: example.org\n");
/// ```
#[derive(Debug)]
pub struct Stream {
    own: Arc<Vec<Own>>,
    engine: Engine,
}

impl Stream {
    /// Takes a piece and gives what is certain by now. Pieces may be cut anywhere, also within a
    /// character; what comes out may be, too.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut out = Plain(Vec::with_capacity(piece.len()));
        for piece in piece.chunks(PIECE) {
            self.engine.push(piece, Anchors::get(), &self.own, &mut out);
        }
        out.0
    }

    /// The text is over: gives the rest.
    pub fn finish(mut self) -> Vec<u8> {
        let mut out = Plain(Vec::new());
        self.engine.finish(Anchors::get(), &self.own, &mut out);
        out.0
    }
}

/// Collects.
struct Plain(Vec<u8>);

impl Sink for Plain {
    fn keep(&mut self, _: usize, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn put(&mut self, _: usize, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }
}

/// Collects what the beginning of a text becomes.
struct Start {
    most: usize,
    text: Vec<u8>,
}

impl Sink for Start {
    fn keep(&mut self, at: usize, bytes: &[u8]) {
        let room = self.most.saturating_sub(at).min(bytes.len());
        self.text.extend_from_slice(&bytes[..room]);
    }

    fn put(&mut self, at: usize, text: &str) {
        if at < self.most {
            self.text.extend_from_slice(text.as_bytes());
        }
    }
}

/// Copies nothing until something is replaced.
struct Lazy<'a> {
    text: &'a [u8],
    /// Bytes that have passed unchanged.
    kept: usize,
    changed: Option<Vec<u8>>,
}

impl Sink for Lazy<'_> {
    fn keep(&mut self, _: usize, bytes: &[u8]) {
        match &mut self.changed {
            Some(changed) => changed.extend_from_slice(bytes),
            None => self.kept += bytes.len(),
        }
    }

    fn put(&mut self, _: usize, text: &str) {
        let changed = self.changed.get_or_insert_with(|| {
            let mut start = Vec::with_capacity(self.text.len());
            start.extend_from_slice(self.text.get(..self.kept).unwrap_or_default());
            start
        });
        changed.extend_from_slice(text.as_bytes());
    }
}
