//! Numbers of payment cards: brand, length and check digit must all agree.

use super::place::{Candidate, Ending, Found, Outcome, Wrap};
use super::quote::Quote;

/// A card's number, with single blanks or dashes between its groups or without.
///
/// Whatever a run of digits is, it is looked at once: long numbers cost no more than short ones.
pub(super) fn check(place: &Candidate<'_>) -> Outcome {
    let at = place.at;
    let run = place.from(at).iter().take_while(|unit| unit.is_ascii_digit()).count();
    let skip = Outcome::Skip(at + run.max(1));
    let joined = match place.before(at) {
        Some(b'.' | b'_' | b'#') => true,
        // A negative number, or a part of something longer.
        Some(b'-') => place.back(at - 1).last().is_some_and(u8::is_ascii_alphanumeric),
        _ => !place.is_fresh(at),
    };
    if joined || !(run == 4 || (14..=19).contains(&run)) {
        return skip;
    }
    let Some(end) = number(place, at, run) else { return skip };
    let next = place.from(end);
    let longer = match next {
        [b'.' | b',', digit, ..] if run > 4 => digit.is_ascii_digit() && next[0] == b'.',
        [unit, ..] => unit.is_ascii_alphanumeric() || *unit == b'_',
        [] => false,
    };
    if longer {
        return skip;
    }
    let wrap = if run > 4 { wrap(place, at, end) } else { Wrap::Bare };
    Outcome::Secret(Found { start: at, ending: Ending::At(end), kind: "card", wrap })
}

/// Where a valid number ends.
fn number(place: &Candidate<'_>, at: usize, run: usize) -> Option<usize> {
    let mut digits = Vec::with_capacity(19);
    let mut end = at;
    if run > 4 {
        digits.extend_from_slice(&place.from(at)[..run]);
        end = at + run;
    } else {
        let separator = *place.from(at + 4).first().filter(|unit| b" -".contains(unit))?;
        let american = matches!(place.from(at), [b'3', b'4' | b'7', ..]);
        let groups: &[usize] = match place.from(at) {
            _ if american => &[4, 6, 5],
            [b'3', b'0' | b'6' | b'8', ..] => &[4, 6, 4],
            _ => &[4, 4, 4, 4],
        };
        for (nth, group) in groups.iter().enumerate() {
            if nth > 0 {
                (place.from(end).first() == Some(&separator)).then_some(())?;
                end += 1;
            }
            let part = place.from(end).get(..*group)?;
            digits.extend_from_slice(part);
            end += group;
        }
        let more = place.from(end).first().is_some_and(u8::is_ascii_digit);
        if more || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
    }
    (is_brand(&digits) && luhn(&digits)).then_some(end)
}

fn is_brand(digits: &[u8]) -> bool {
    let prefix =
        |count| digits.iter().take(count).fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    match (digits.len(), digits.first()) {
        (16, Some(b'4')) => true,
        (16, Some(b'5')) => (51..=55).contains(&prefix(2)),
        (16, Some(b'2')) => (2221..=2720).contains(&prefix(4)),
        (15, Some(b'3')) => matches!(prefix(2), 34 | 37),
        (14, Some(b'3')) => matches!(prefix(2), 36 | 38) || (300..=305).contains(&prefix(3)),
        (16, Some(b'3')) => (3528..=3589).contains(&prefix(4)),
        (16, Some(b'6')) => prefix(4) == 6011 || matches!(prefix(2), 62 | 64 | 65),
        (17..=19, Some(b'6')) => prefix(2) == 62,
        _ => false,
    }
}

fn luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(place, digit)| {
            let value = u32::from(digit - b'0');
            match place % 2 {
                0 => value,
                _ if value > 4 => value * 2 - 9,
                _ => value * 2,
            }
        })
        .sum();
    sum.is_multiple_of(10)
}

/// A number that is a JSON value by itself must be followed by a JSON value.
fn wrap(place: &Candidate<'_>, at: usize, end: usize) -> Wrap {
    let back = place.back(at);
    let trimmed = back.trim_ascii_end();
    let next = place.from(end).iter().find(|unit| !unit.is_ascii_whitespace());
    if !matches!(next, Some(b',' | b'}' | b']')) {
        return Wrap::Bare;
    }
    match trimmed.last() {
        Some(b':') => Quote::before(trimmed[..trimmed.len() - 1].trim_ascii_end())
            .map_or(Wrap::Bare, Wrap::Quoted),
        Some(b'[' | b',') => Wrap::Zero,
        _ => Wrap::Bare,
    }
}
