//! The body of a private key: lines of base64 up to its last line, however they are wrapped.
//!
//! Between the lines there may be real line ends, escaped ones, line numbers of a listing, or the
//! quotes of an array or of strings that are put together. A key that was cut off has no last line;
//! it ends where something stands that cannot be part of one.

/// Units that a step may look at.
pub(super) const AHEAD: usize = 128;
/// Units between two lines.
const LONGEST_GAP: usize = 32;
/// Digits between two lines: a line's number has no more, and what has may be a card's.
const MOST_DIGITS: usize = 8;
/// Units of base64 that show that the key goes on after a gap.
const PROOF: usize = 24;

/// What is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// So many units belong to the key; none when there are none left.
    Pass(usize),
    /// So many units are between its lines and must stay.
    Gap(usize),
    /// It ends after so many units.
    End(usize),
}

/// Looks at the next units of a key.
pub(super) fn step(units: &[u8]) -> Step {
    if let Some(length) = last_line(units) {
        return Step::End(length);
    }
    match units.first() {
        None => Step::Pass(0),
        Some(unit) if is_body(*unit) => Step::Pass(1),
        Some(_) => gap(units),
    }
}

/// The length of `-----END … KEY-----`.
fn last_line(units: &[u8]) -> Option<usize> {
    let name = units.strip_prefix(b"-----END ")?;
    let words = name.iter().take(60).take_while(|unit| **unit != b'-').count();
    let dashes = name[words..].iter().take(5).take_while(|unit| **unit == b'-').count();
    Some(9 + words + dashes)
}

fn gap(units: &[u8]) -> Step {
    let units = &units[..units.len().min(AHEAD)];
    let is_gap = |unit: &&u8| {
        unit.is_ascii_whitespace()
            || unit.is_ascii_digit()
            || !unit.is_ascii()
            || b"\"'`\\+,|>#*;.&[](){}".contains(unit)
    };
    let gap = units.iter().take(LONGEST_GAP).take_while(is_gap).count();
    // Digits right before a line are its own.
    let gap = gap - units[..gap].iter().rev().take_while(|unit| unit.is_ascii_digit()).count();
    let rest = &units[gap..];
    let base64 =
        rest.iter().take_while(|u| u.is_ascii_alphanumeric() || b"+/=".contains(u)).count();
    let goes_on = base64 >= PROOF || rest[base64..].starts_with(b"-----END");
    let digits = units[..gap].iter().filter(|unit| unit.is_ascii_digit()).count();
    if !goes_on || digits > MOST_DIGITS {
        return Step::End(0);
    }
    if units[..gap].iter().any(|unit| b"\"'`".contains(unit)) {
        Step::Gap(gap)
    } else {
        Step::Pass(gap)
    }
}

/// What lines of a key, and the headers before them, consist of.
fn is_body(unit: u8) -> bool {
    unit.is_ascii_alphanumeric() || unit.is_ascii_whitespace() || b"+/=-:,._()@".contains(&unit)
}
