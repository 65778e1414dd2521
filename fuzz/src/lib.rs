//! What must hold for every input of every parser of foreign input.
//!
//! A fuzz target hands its bytes to one function of this crate. A function panics when an invariant
//! is broken; `cargo fuzz` reports the input. Places at which an input is cut come from a digest of the
//! input, so that a seed is a plain file without a header of ours.

pub mod answer;
pub mod effect;
pub mod hook;
pub mod mcp;
pub mod otlp;
pub mod policy;
pub mod redact;
pub mod request;
pub mod trace;

/// The program's editor of JSON files, and what must hold for it.
pub mod jsonc;

use std::sync::atomic::{AtomicU32, Ordering};

use xxhash_rust::xxh3::xxh3_64;

/// Executions of a process that check everything: more than there are seeds and regressions.
const THOROUGH: u32 = 500;

/// Which of several ways to read an input is compared with the plain one: all of them for the first inputs of a process,
/// seeds and findings that are tried again among them, and one of them, by the input's digest, for the many that follow.
pub fn ways<const N: usize>(data: &[u8]) -> [bool; N] {
    static DONE: AtomicU32 = AtomicU32::new(0);
    if DONE.load(Ordering::Relaxed) < THOROUGH {
        DONE.fetch_add(1, Ordering::Relaxed);
        return [true; N];
    }
    let chosen = (xxh3_64(data) >> 3) as usize % N;
    std::array::from_fn(|way| way == chosen)
}

/// The input in one to four parts, cut where its digest says.
pub fn parts(data: &[u8]) -> Vec<&[u8]> {
    let digest = xxh3_64(data);
    let mut cuts: Vec<usize> = (0..digest % 4)
        .map(|n| ((digest >> (8 + 16 * n)) & 0xffff) as usize % (data.len() + 1))
        .collect();
    cuts.sort_unstable();
    let mut parts = Vec::new();
    let mut from = 0;
    for cut in cuts.into_iter().chain([data.len()]) {
        parts.push(&data[from..cut]);
        from = cut;
    }
    parts
}
