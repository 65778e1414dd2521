//! An echo: what a client's next request repeats of an answer.
//!
//! Clients write an answer into their history in their own way: as one text or as parts, trimmed,
//! without thoughts, with tool calls in another order. What survives all of that is the text without
//! its white space, and which tools were called. An echo of an answer and an echo of the message
//! that repeats it are equal.

use deadstop_core::Digest;

/// What is repeated of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo {
    text: u64,
    calls: u64,
    any: bool,
}

const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

impl Default for Echo {
    fn default() -> Echo {
        Echo { text: BASIS, calls: 0, any: false }
    }
}

impl Echo {
    /// Takes in a text, or the next part of one.
    pub fn text(&mut self, text: &str) {
        for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
            self.text = (self.text ^ u64::from(byte)).wrapping_mul(PRIME);
            self.any = true;
        }
    }

    /// Takes in a tool call, by its id, or by the tool where the dialect has no ids.
    pub fn call(&mut self, id: &str, name: &str) {
        let known = if id.is_empty() { name } else { id };
        self.calls = self.calls.wrapping_add(Digest::of(known.as_bytes()).0 | 1);
        self.any = true;
    }

    /// Its digest; `None` of an answer that said nothing.
    pub fn digest(&self) -> Option<Digest> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.text.to_le_bytes());
        bytes[8..].copy_from_slice(&self.calls.to_le_bytes());
        self.any.then(|| Digest::of(&bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo(texts: &[&str], calls: &[(&str, &str)]) -> Option<Digest> {
        let mut echo = Echo::default();
        texts.iter().for_each(|text| echo.text(text));
        calls.iter().for_each(|(id, name)| echo.call(id, name));
        echo.digest()
    }

    #[test]
    fn the_way_of_writing_does_not_matter() {
        assert_eq!(echo(&["Hel", "lo\n", " you"], &[]), echo(&["Hello you"], &[]));
        let calls = [("a", "ls"), ("b", "ls")];
        assert_eq!(echo(&[], &calls), echo(&[" "], &[("b", "x"), ("a", "y")]));
        assert_ne!(echo(&["Hello"], &[]), echo(&["Hello"], &[("a", "ls")]));
        assert_ne!(echo(&[], &[("a", "ls")]), echo(&[], &[("b", "ls")]));
        assert_ne!(echo(&[], &[("", "ls")]), echo(&[], &[("", "rm")]));
        assert_eq!(echo(&["", " "], &[]), None);
    }
}
