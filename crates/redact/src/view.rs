//! A text with its escapes undone, and the way back to the bytes as they were.
//!
//! The same secret may stand in a body as it is, in a JSON string (`\/`, `\u0041`, `\n`), in a JSON
//! string inside a JSON string (`\\n`), or percent-encoded in a URL. The matchers see one form: a
//! unit of the view is one byte, however many bytes it took to write. Quotes and backslashes that
//! delimit are left as they are, because how often a quote is escaped tells where its string ends.

use memchr::memchr2;

/// Backslashes in a row that are looked at together.
const LONGEST_RUN: usize = 16;
/// Stands in the view for an escaped character beyond ASCII.
const OTHER: u8 = 0xff;

/// How a unit was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// As it is.
    Plain,
    /// After this many backslashes.
    Escaped(u8),
    /// As `%41`.
    Percent,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    /// Where in the view the unit after the escaped one is.
    unit: usize,
    /// Where in the raw bytes that is.
    raw: usize,
    written: Written,
}

/// The part of a text that is in hand.
#[derive(Debug, Default)]
pub(super) struct View {
    raw: Vec<u8>,
    units: Vec<u8>,
    marks: Vec<Mark>,
    /// Raw bytes that have become units.
    read: usize,
}

impl View {
    /// The units.
    pub(super) fn units(&self) -> &[u8] {
        &self.units
    }

    /// Takes more bytes in. An escape that is not complete waits for the rest.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.raw.extend_from_slice(bytes);
        self.decode(false);
    }

    /// No more bytes will come: what waits is what it is.
    pub(super) fn finish(&mut self) {
        self.decode(true);
    }

    /// The bytes that units `from..to` were written as.
    pub(super) fn raw(&self, from: usize, to: usize) -> &[u8] {
        self.raw.get(self.place(from)..self.place(to)).unwrap_or_default()
    }

    /// How a unit was written.
    pub(super) fn written(&self, unit: usize) -> Written {
        let after = self.marks.partition_point(|mark| mark.unit <= unit);
        match self.marks.get(after) {
            Some(mark) if mark.unit == unit + 1 => mark.written,
            _ => Written::Plain,
        }
    }

    /// Forgets everything before a unit.
    pub(super) fn forget(&mut self, before: usize) {
        let raw = self.place(before);
        self.marks.retain_mut(|mark| {
            let keep = mark.unit > before;
            if keep {
                mark.unit -= before;
                mark.raw -= raw;
            }
            keep
        });
        self.units.drain(..before);
        self.raw.drain(..raw);
        self.read -= raw;
    }

    /// How many bytes come before a unit.
    pub(super) fn place(&self, unit: usize) -> usize {
        let after = self.marks.partition_point(|mark| mark.unit <= unit);
        match after.checked_sub(1).and_then(|last| self.marks.get(last)) {
            Some(mark) => mark.raw + (unit - mark.unit),
            None => unit,
        }
    }

    fn decode(&mut self, finished: bool) {
        loop {
            let rest = self.raw.get(self.read..).unwrap_or_default();
            let plain = memchr2(b'\\', b'%', rest).unwrap_or(rest.len());
            self.units.extend_from_slice(&rest[..plain]);
            self.read += plain;
            let rest = &rest[plain..];
            if rest.is_empty() {
                return;
            }
            let unit = if rest[0] == b'%' { percent(rest) } else { backslash(rest) };
            match unit {
                Unit::Short if !finished => return,
                Unit::Short => {
                    self.units.push(rest[0]);
                    self.read += 1;
                }
                Unit::Literal(bytes) => {
                    self.units.extend_from_slice(&rest[..bytes]);
                    self.read += bytes;
                }
                Unit::One { byte, bytes, written } => {
                    self.units.push(byte);
                    self.read += bytes;
                    self.marks.push(Mark { unit: self.units.len(), raw: self.read, written });
                }
            }
        }
    }
}

enum Unit {
    /// More bytes are needed to tell.
    Short,
    /// These bytes mean themselves.
    Literal(usize),
    One {
        byte: u8,
        bytes: usize,
        written: Written,
    },
}

fn percent(rest: &[u8]) -> Unit {
    let [_, high, low, ..] = rest else {
        let may_become = rest.get(1).is_none_or(u8::is_ascii_hexdigit);
        return if may_become { Unit::Short } else { Unit::Literal(1) };
    };
    match hex(&[*high, *low]) {
        // Encoded quotes delimit by themselves, and an encoded percent sign may start another
        // encoding: both stay.
        Some(0x22 | 0x25 | 0x27 | 0x5c) | None => Unit::Literal(1),
        Some(code @ (0x20..=0x7e | 0x09 | 0x0a | 0x0d)) => {
            Unit::One { byte: code as u8, bytes: 3, written: Written::Percent }
        }
        Some(_) => Unit::Literal(1),
    }
}

fn backslash(rest: &[u8]) -> Unit {
    let run = rest.iter().take(LONGEST_RUN).take_while(|byte| **byte == b'\\').count();
    if run == LONGEST_RUN {
        return Unit::Literal(run);
    }
    let Some(next) = rest.get(run) else { return Unit::Short };
    let written = Written::Escaped(run as u8);
    let simple = |byte| Unit::One { byte, bytes: run + 1, written };
    match next {
        b'n' => simple(b'\n'),
        b'r' => simple(b'\r'),
        b't' => simple(b'\t'),
        b'/' => simple(b'/'),
        b'u' => {
            let digits = &rest[run + 1..rest.len().min(run + 5)];
            if !digits.iter().all(u8::is_ascii_hexdigit) {
                return Unit::Literal(run);
            }
            if digits.len() < 4 {
                return Unit::Short;
            }
            let byte = match hex(digits) {
                Some(0x22 | 0x27 | 0x5c) | None => return Unit::Literal(run),
                Some(code @ (0x20..=0x7e | 0x09 | 0x0a | 0x0d)) => code as u8,
                Some(_) => OTHER,
            };
            Unit::One { byte, bytes: run + 5, written }
        }
        _ => Unit::Literal(run),
    }
}

fn hex(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |sum, digit| Some(sum * 16 + char::from(*digit).to_digit(16)?))
}
