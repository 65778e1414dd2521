//! Runs a command with its terminal untouched, and ends its whole process tree.
//!
//! Killing a process group is not enough: coding agents start each shell in a session of its
//! own, daemons fork twice, and a storm of forks outruns a list of pids. A [`Tree`] holds on to
//! every process that its command ever starts, by whatever road, and [`Tree::end`] returns only
//! when none of them is left.
//!
//! ```
//! use std::process::Command;
//! use std::time::Duration;
//! use deadstop_process::Tree;
//!
//! let tree = Tree::spawn(Command::new("sh").args(["-c", "setsid sleep 60 & exit 3"]))?;
//! assert_eq!(tree.wait()?.code(), Some(3));
//! let ended = tree.end(Duration::from_secs(2))?; // the sleeper in its own session
//! assert!(tree.survivors().is_empty());
//! # let _ = ended;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # How, on Linux
//! Two means, of which the second is always on and the first is added where it works:
//!
//! 1. **cgroup v2.** The command is moved to a cgroup of its own below ours, and `cgroup.kill`
//!    ends all of it at once; the kernel lets no fork slip through.
//! 2. **Subreaper.** While a tree lives, this process is the `PR_SET_CHILD_SUBREAPER` of its
//!    descendants: an orphan becomes our child, not init's, so a walk of `/proc` from us
//!    downwards sees everything. Signals go through pidfds that were checked after they were
//!    opened, so a pid that was reused meanwhile is never hit. Everything is stopped first and
//!    killed then, in rounds, until two scans in a row find nothing, not even a zombie; a zombie
//!    is the trace that a process leaves which forks and exits faster than we look.
//!
//! Which of our own children belong to a tree and which to the rest of this program is told by a
//! mark that the kernel hands down through every fork and exec: see `sys/linux/mark.rs`. Where a
//! sandbox refuses the mark, every child that came after the tree's start counts as the tree's.
//!
//! # What the host program should know
//! - Statuses of children that belong to no tree are never taken, and such children are never
//!   signalled; if other threads start them, see [`outside`]. But do not ignore `SIGCHLD` and do not `waitpid(-1)`: both take the statuses of
//!   the tree's processes.
//! - The command stays in our process group, in the terminal's foreground, so that `less`, `vim`
//!   and shells work, and Ctrl-C reaches it and us alike: the host installs a handler, or it dies
//!   first. See [`Tree::end`] for Ctrl-C twice, and [`Terminal`] for a terminal left in disorder.
//! - Orphans of children that belong to no tree are adopted as well, as long as a tree lives;
//!   they are left alone, and are zombies once they exit, until this process does.
//!
//! # Limits
//! - What a daemon starts on request (`docker run`, `systemd-run`, `at`, `ssh`) is no descendant.
//! - Processes of another user (`sudo`) can't be signalled without privilege. `cgroup.kill` ends
//!   them; otherwise [`Tree::end`] fails after ten seconds and names them.
//! - If this process is killed with SIGKILL, its trees live on, unless a [`Guardian`] watches them. Who
//!   may signal this process may kill the guardian first.
//! - macOS has no subreaper, no pidfd and no cgroup: there the descendants that `ps` shows are
//!   signalled, with their process groups. A daemon that forks twice between two looks escapes.

#![cfg(unix)]

mod caller;
mod guardian;
mod sys;
mod terminal;
mod tree;

pub use caller::Caller;
pub use guardian::{Guardian, stand_guard};
pub use terminal::Terminal;
pub use tree::{Ended, Means, Pipes, Signal, Tree};

/// Starts a process that is to belong to no tree, from a program that has trees.
///
/// A child that another thread starts at the very instant in which a tree starts would count as
/// that tree's. In here no tree starts meanwhile, so do not start one in it. A program whose trees are its only children,
/// or that starts them all from one thread, does not need it.
///
/// ```
/// use std::process::Command;
///
/// let status = deadstop_process::outside(|| Command::new("true").spawn())?.wait()?;
/// assert!(status.success());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn outside<T>(spawn: impl FnOnce() -> T) -> T {
    sys::outside(spawn)
}
