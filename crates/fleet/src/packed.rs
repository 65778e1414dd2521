//! Counters and their changes as bytes, the way the script in Redis reads and writes them.
//!
//! ```text
//! counters   form, born, changes, period, its cost, nine counters, number of intervals;
//!            intervals: number, cost, tokens; nodes: name, input, output, cost, calls
//! change     born, nine additions, period, its addition, changes seen, interval with its cost and
//!            tokens, the minute's first interval, number of bounds, of dead nodes and of others; bounds: which, amount;
//!            dead nodes: name; others: name, input, output, cost, calls; floors of the period's
//!            cost and of the nine counters, which are read after a loss only
//! ```
//!
//! Numbers are eight bytes, little end first; -1 stands for none. A name has its length in two
//! bytes in front. As one string each, counters cost Redis two commands and no tables of fields.

use deadstop_core::share::{Bounds, Held};
use deadstop_core::{NanoUsd, Tokens};

use crate::wire::{Sum, Sums};

/// The layout of counters that this version reads and writes.
const FORM: u8 = 1;
/// Stands for none.
const NONE: i64 = -1;
/// Bytes of a change of one scope by one node, about.
const CHANGE: usize = 320;

/// A change of counters.
pub(crate) fn pack(sum: &Sum) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(CHANGE);
    let number = |bytes: &mut Vec<u8>, n: i64| bytes.extend_from_slice(&n.to_le_bytes());
    number(&mut bytes, signed(sum.born));
    sum.add.iter().for_each(|more| number(&mut bytes, *more));
    let (bucket, cost, tokens) = sum.pace.map_or((NONE, 0, 0), |(bucket, cost, tokens)| {
        (signed(bucket), signed(cost.0), signed(tokens.0))
    });
    let seen = sum.seen.map_or(NONE, signed);
    let minute = signed(sum.minute);
    for n in [signed(sum.period), sum.period_add, seen, bucket, cost, tokens, minute] {
        number(&mut bytes, n);
    }
    let Bounds { steps, model_calls, input, output, tokens, cost, pace_cost, pace_tokens } =
        sum.bounds;
    let all = [steps, model_calls, input, output, tokens, cost, pace_cost, pace_tokens];
    let bounds = || (1_u8..).zip(all).filter_map(|(at, bound)| Some((at, bound?)));
    bytes.push(bounds().map(|_| 1).sum());
    put_count(&mut bytes, sum.bury.len());
    put_count(&mut bytes, sum.held.len());
    for (at, bound) in bounds() {
        bytes.push(at);
        number(&mut bytes, signed(bound));
    }
    sum.bury.iter().for_each(|node| put_name(&mut bytes, node));
    for (node, held) in &sum.held {
        put_name(&mut bytes, node);
        for amount in [held.input, held.output, held.cost, held.calls] {
            number(&mut bytes, amount);
        }
    }
    number(&mut bytes, signed(sum.period_floor));
    sum.floor.iter().for_each(|floor| number(&mut bytes, signed(*floor)));
    bytes
}

/// Numbers beyond the range are as good as its end: no counter gets there.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn put_count(bytes: &mut Vec<u8>, count: usize) {
    bytes.extend_from_slice(&u16::try_from(count).unwrap_or(u16::MAX).to_le_bytes());
}

fn put_name(bytes: &mut Vec<u8>, name: &str) {
    put_count(bytes, name.len());
    bytes.extend_from_slice(name.as_bytes());
}

/// Reads counters; `None` if the bytes are damaged. No bytes are no counters.
pub(crate) fn unpack(bytes: &[u8]) -> Option<Sums> {
    let mut rest = match bytes.split_first() {
        None => return Some(Sums::default()),
        Some((&FORM, rest)) => Rest(rest),
        Some(_) => return None,
    };
    let mut sums = Sums {
        born: rest.number()?,
        changes: rest.number()?,
        period: rest.number()?,
        period_cost: rest.number()?,
        ..Sums::default()
    };
    for count in &mut sums.counts {
        *count = rest.number()?;
    }
    let [intervals] = rest.take()?;
    for _ in 0..intervals {
        sums.pace.push((rest.number()?, NanoUsd(rest.number()?), Tokens(rest.number()?)));
    }
    while !rest.0.is_empty() {
        let node = rest.name()?;
        let held = Held {
            input: rest.signed()?,
            output: rest.signed()?,
            cost: rest.signed()?,
            calls: rest.signed()?,
        };
        sums.held.push((node, held));
    }
    sums.held.sort_by(|a, b| a.0.cmp(&b.0));
    Some(sums)
}

/// Bytes that are still to be read.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn signed(&mut self) -> Option<i64> {
        self.take().map(i64::from_le_bytes)
    }

    fn number(&mut self) -> Option<u64> {
        u64::try_from(self.signed()?).ok()
    }

    fn name(&mut self) -> Option<String> {
        let length = u16::from_le_bytes(self.take()?);
        let (name, rest) = self.0.split_at_checked(length.into())?;
        self.0 = rest;
        String::from_utf8(name.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_whole_or_not_at_all() {
        let mut bytes = vec![FORM];
        (1..=13_i64).for_each(|n| bytes.extend(n.to_le_bytes()));
        bytes.push(1);
        [70, 8, 9_i64].into_iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        let whole = bytes.len();
        for (node, calls) in [("n2", 1_i64), ("", -1)] {
            put_name(&mut bytes, node);
            [5, 6, 7, calls].into_iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        }
        let sums = unpack(&bytes).unwrap();
        assert_eq!((sums.born, sums.changes, sums.period, sums.period_cost), (1, 2, 3, 4));
        assert_eq!(sums.counts, [5, 6, 7, 8, 9, 10, 11, 12, 13]);
        assert_eq!(sums.pace, [(70, NanoUsd(8), Tokens(9))]);
        let held = |calls| Held { input: 5, output: 6, cost: 7, calls };
        assert_eq!(sums.held, [(String::new(), held(-1)), ("n2".to_owned(), held(1))]);
        let ends = [0, whole, whole + 2 + 2 + 32, bytes.len()];
        for end in 0..=bytes.len() {
            assert_eq!(unpack(&bytes[..end]).is_some(), ends.contains(&end), "{end}");
        }
        bytes[0] = FORM + 1;
        assert_eq!(unpack(&bytes), None);
    }
}
