//! A mark on a process that all its descendants inherit and that no program touches.
//!
//! An orphan that we adopted is our child like any other: nothing in `/proc` tells whose orphan
//! it is, and a program that embeds this crate has children of its own. An environment variable
//! is lost when a daemon cleans its environment. The kernel hands resource limits down through
//! fork, exec and setuid, and one of them has meant nothing since Linux 2.4.25:
//! `RLIMIT_LOCKS`. Its soft value is our mark: a number that says Deadstop, process and tree.
//!
//! It is set on ourselves for the moment of the fork, so that there is no instant in which the
//! child runs without it. A child that another thread of the host starts in that instant would
//! bear the mark as well and be ended with the tree. So trees start one at a time, and a host with
//! other children starts them in [`crate::outside`].

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The upper bits of every mark: `DEADSTOP`, as far as hexadecimal digits go.
const SIGN: u64 = 0x0dea_d570;
const SIGN_SHIFT: u32 = 34;
/// Pids have 22 bits on Linux; the rest counts the trees of a process.
const COUNT_BITS: u32 = 12;

static COUNT: AtomicU64 = AtomicU64::new(0);

/// The mark that this process itself was born with, if it runs inside another Deadstop's tree.
static INHERITED: OnceLock<Option<Mark>> = OnceLock::new();

/// A tree's mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark(u64);

impl Mark {
    /// Runs `spawn` so that what it starts bears a new mark. There is no mark where the system
    /// refuses it: in some sandboxes, and below an administrator's own limit.
    pub(super) fn around<T>(spawn: impl FnOnce() -> T) -> (Option<Self>, T) {
        let old = getrlimit(Resource::Locks);
        INHERITED.get_or_init(|| old.current.and_then(Self::read));
        let mark = Self::fresh();
        let set = setrlimit(Resource::Locks, Rlimit { current: Some(mark.0), ..old }).is_ok();
        let result = spawn();
        if set {
            // The way back can't be refused: the value was ours a moment ago.
            let _ = setrlimit(Resource::Locks, old);
        }
        (set.then_some(mark), result)
    }

    /// The mark on a process, also on a dead one that is not buried yet.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
        Self::find(&limits)
    }

    /// Whether it is the mark that all children of this process bear anyway.
    pub(super) fn is_inherited(self) -> bool {
        INHERITED.get().is_some_and(|inherited| *inherited == Some(self))
    }

    /// Whether it was given by this process, to whichever of its trees, ended ones included.
    pub(super) fn is_ours(self) -> bool {
        self.0 >> COUNT_BITS == Self::of_this_process() >> COUNT_BITS
    }

    fn of_this_process() -> u64 {
        (SIGN << SIGN_SHIFT) | (u64::from(std::process::id()) << COUNT_BITS)
    }

    fn fresh() -> Self {
        let count = COUNT.fetch_add(1, Ordering::Relaxed) & ((1 << COUNT_BITS) - 1);
        Self(Self::of_this_process() | count)
    }

    fn find(limits: &str) -> Option<Self> {
        let line = limits.lines().find_map(|line| line.strip_prefix("Max file locks"))?;
        line.split_ascii_whitespace().next()?.parse().ok().and_then(Self::read)
    }

    /// The mark as a number, for [`Mark::read`].
    pub(super) fn number(self) -> u64 {
        self.0
    }

    /// The mark in a number, if it is one.
    pub(super) fn read(limit: u64) -> Option<Self> {
        (limit >> SIGN_SHIFT == SIGN).then_some(Self(limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_told_from_limits() {
        let mark = Mark::fresh();
        let check = |soft: &str, expected| {
            let limits = format!("Max processes 5 6 processes\nMax file locks  {soft}  9 locks \n");
            assert_eq!(Mark::find(&limits), expected, "{soft}");
        };
        check("unlimited", None);
        check("1024", None);
        check("", None);
        check(&u64::MAX.to_string(), None);
        check(&mark.0.to_string(), Some(mark));
        assert_eq!(Mark::find(""), None);
        assert_ne!(Mark::fresh(), mark);
        assert!(mark.is_ours());
        assert!(!Mark(mark.0 + (1 << COUNT_BITS)).is_ours());
    }
}
