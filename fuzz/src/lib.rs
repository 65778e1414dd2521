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

use xxhash_rust::xxh3::xxh3_64;

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
