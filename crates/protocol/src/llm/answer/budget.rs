//! How much memory may become of one document.
//!
//! An event of 16 MiB may hold five million empty objects in a list of choices, and each would become a value of
//! some hundred bytes. So everything that is built takes its share of a budget, and what is beyond is skipped and
//! told. The readers are derived and take no argument of ours, so the budget belongs to the thread: reading a
//! document never waits.

use std::cell::Cell;

/// The memory that may become of one document: 260,000 numbers in arguments, or 22,000 objects. No model writes as many,
/// and what is built is copied several times on its way through the guards.
const MOST: usize = 16 << 20;

thread_local! {
    /// What is left for the document that is read now. Outside of one there is no limit.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
    /// Whether anything was skipped.
    static SPENT: Cell<bool> = const { Cell::new(false) };
}

/// Reads one document within the budget.
pub(super) fn within<T>(read: impl FnOnce() -> T) -> T {
    let outer = LEFT.replace(Some(MOST));
    let read = read();
    LEFT.set(outer);
    read
}

/// Takes so many bytes; false if there are not as many, and what needs them is to be skipped.
pub(super) fn take(bytes: usize) -> bool {
    let Some(left) = LEFT.get() else { return true };
    let after = left.checked_sub(bytes);
    LEFT.set(Some(after.unwrap_or_default()));
    if after.is_none() {
        SPENT.set(true);
    }
    after.is_some()
}

/// Whether anything was skipped since this was asked last.
pub(super) fn was_spent() -> bool {
    SPENT.replace(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_holds_for_one_document() {
        assert!(take(usize::MAX) && !was_spent(), "no limit outside");
        within(|| {
            assert!(take(MOST) && !was_spent());
            assert!(!take(1) && !take(0x10), "nothing is left");
        });
        assert!(was_spent() && !was_spent(), "told once");
        assert!(within(|| take(MOST)) && take(MOST), "each has its own");
    }
}
