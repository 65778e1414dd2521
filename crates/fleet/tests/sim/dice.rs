//! Random numbers that depend on the seed only.

use parking_lot::Mutex;

/// A random number generator.
pub(crate) struct Dice(Mutex<u64>);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(Mutex::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xd1b5_4a32_d192_ed03))
    }

    /// Any number.
    pub(crate) fn any(&self) -> u64 {
        let mut state = self.0.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut n = *state;
        n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        n ^ (n >> 31)
    }

    /// A number from `low` up to, but not including, `high`.
    pub(crate) fn range(&self, low: u64, high: u64) -> u64 {
        low + self.any() % (high - low)
    }

    /// True with a probability of so many in a thousand.
    pub(crate) fn chance(&self, of_thousand: u64) -> bool {
        self.any() % 1000 < of_thousand
    }

    /// A random element.
    pub(crate) fn pick<'a, T>(&self, all: &'a [T]) -> &'a T {
        &all[self.range(0, all.len() as u64) as usize]
    }
}
