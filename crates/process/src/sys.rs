//! What a platform can see of a tree and do to it.
//!
//! Each platform has a `System` with the same methods: `launch`, `members`, `send`, `bury`,
//! `kill_at_once`, `hunt`, `wait_main`, `means`, `token`, `close`; and a function `end_orphans` for a
//! guardian, which ends the tree of a token.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod other;

#[cfg(target_os = "linux")]
pub(crate) use linux::{System, end_orphans, outside, process, send_to};
#[cfg(not(target_os = "linux"))]
pub(crate) use other::{System, end_orphans, outside};

/// A process, for certain: a pid is used again some day, but not with the same start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) pid: u32,
    /// When it started, in the platform's own unit.
    pub(crate) start: u64,
}

/// A process of the tree, as it was when we looked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    pub(crate) identity: Identity,
    pub(crate) parent: u32,
    pub(crate) zombie: bool,
}
