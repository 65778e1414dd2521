//! Quotes, at any depth of escaping.
//!
//! JSON inside a JSON string has its quotes written `\"`, one level deeper `\\\"`: a delimiter at
//! depth k has 2^k - 1 backslashes. Some writers use `\u0022` or `%22` instead.

/// What a quoted value is delimited by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quote {
    /// A quote character that is escaped `depth` times.
    Mark { mark: u8, depth: u8 },
    /// `u0022` or `u0027` after this many backslashes.
    Unicode { digits: &'static str, slashes: u8 },
    /// A text that stands for a quote, such as `%22`.
    Text(&'static str),
}

const UNICODE: [&str; 2] = ["u0022", "u0027"];
const TEXTS: [&str; 4] = ["%22", "%27", "&quot;", "&#34;"];
/// Units that the longest of them takes, and its backslashes.
pub(super) const LONGEST: usize = 24;

impl Quote {
    /// The quote that a text starts with, and its length.
    pub(super) fn at(units: &[u8]) -> Option<(Self, usize)> {
        let slashes = units.iter().take(16).take_while(|unit| **unit == b'\\').count();
        let rest = units.get(slashes..)?;
        let mark = *rest.first()?;
        if mark == b'"' || mark == b'\'' || (mark == b'`' && slashes == 0) {
            let depth = [0, 1, 3, 7, 15].iter().position(|count| *count == slashes)?;
            return Some((Self::Mark { mark, depth: depth as u8 }, slashes + 1));
        }
        if mark == b'u' && slashes > 0 {
            let digits = *UNICODE.iter().find(|digits| rest.starts_with(digits.as_bytes()))?;
            return Some((Self::Unicode { digits, slashes: slashes as u8 }, slashes + 5));
        }
        if slashes > 0 {
            return None;
        }
        let text = *TEXTS.iter().find(|text| rest.starts_with(text.as_bytes()))?;
        Some((Self::Text(text), text.len()))
    }

    /// The quote that a text ends with.
    pub(super) fn before(units: &[u8]) -> Option<Self> {
        let tail = &units[units.len().saturating_sub(LONGEST)..];
        let mark = *tail.last()?;
        let text = match mark {
            b'"' | b'\'' | b'`' => 1,
            b'2' | b'7' if UNICODE.iter().any(|digits| tail.ends_with(digits.as_bytes())) => 5,
            _ => TEXTS.iter().find(|text| tail.ends_with(text.as_bytes()))?.len(),
        };
        let slashes = tail[..tail.len() - text].iter().rev().take_while(|u| **u == b'\\').count();
        Self::at(&tail[tail.len() - text - slashes..]).map(|(quote, _)| quote)
    }

    /// Whether the quote that stands at `units` after `slashes` backslashes ends a value that this
    /// one began, and how many of the backslashes belong to it.
    pub(super) fn closes(self, units: &[u8], slashes: usize) -> Option<usize> {
        match self {
            Self::Mark { mark, depth } => {
                if mark != b'"' && ends_json_string(units) && slashes.is_multiple_of(2) {
                    // The quote never closed, but the JSON string around it did.
                    return Some(0);
                }
                if units.first() != Some(&mark) {
                    return None;
                }
                closing_depth(depth, slashes).map(|depth| (1 << depth) - 1)
            }
            Self::Unicode { digits, slashes: own } => {
                if units.first() == Some(&b'"') && slashes.is_multiple_of(2) {
                    return Some(0);
                }
                (slashes == usize::from(own) && units.starts_with(digits.as_bytes()))
                    .then_some(slashes)
            }
            Self::Text(text) => {
                let outer = matches!(units.first(), Some(b'"' | b'<'));
                (outer || units.starts_with(text.as_bytes())).then_some(slashes)
            }
        }
    }

    /// Backslashes fewer than this before an `n` end the line that the value is on.
    pub(super) fn newline_slashes(self) -> u8 {
        match self {
            Self::Mark { depth, .. } => 1 << depth,
            Self::Unicode { slashes, .. } => slashes * 2,
            Self::Text(_) => 1,
        }
    }

    /// How it is written.
    pub(super) fn text(self) -> String {
        match self {
            Self::Mark { mark, depth } => {
                let slashes = (1_usize << depth) - 1;
                format!("{}{}", "\\".repeat(slashes), char::from(mark))
            }
            Self::Unicode { digits, slashes } => {
                format!("{}{digits}", "\\".repeat(usize::from(slashes)))
            }
            Self::Text(text) => text.to_owned(),
        }
    }
}

/// A double quote that is followed by what can only follow the end of a string in JSON.
fn ends_json_string(units: &[u8]) -> bool {
    let Some((b'"', rest)) = units.split_first() else { return false };
    let next = rest.iter().take(LONGEST - 1).find(|unit| !unit.is_ascii_whitespace());
    matches!(next, None | Some(b',' | b'}' | b']' | b':'))
}

/// Undoes one level of escaping after the other: an even number of backslashes leaves the quote
/// bare, which ends the string at that level; an odd one hides it, and half of them are left.
fn closing_depth(depth: u8, slashes: usize) -> Option<u8> {
    let mut slashes = slashes;
    for level in 0..=depth {
        if slashes.is_multiple_of(2) {
            return Some(level);
        }
        slashes /= 2;
    }
    None
}
