//! The terminal, as it was before the command had it.
//!
//! A program that is killed can't put the terminal back: raw mode, mouse reports and a hidden
//! cursor stay, and a shell that had moved its jobs to the foreground leaves us in the
//! background, where the next read would stop us.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// Leaves the alternate screen, shows the cursor, and switches colours, mouse and focus reports,
/// and bracketed paste off. All are without effect where nothing is on.
const CALM: &[u8] =
    b"\x1b[?1047l\x1b[?25h\x1b[0m\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2004l";

/// The state of the controlling terminal, kept for later.
#[derive(Debug)]
pub struct Terminal {
    tty: File,
    modes: Termios,
    group: Pid,
}

impl Terminal {
    /// Remembers the state of our terminal, if we have one and are in its foreground.
    #[must_use]
    pub fn save() -> Option<Self> {
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        let group = tcgetpgrp(&tty).ok()?;
        let modes = tcgetattr(&tty).ok()?;
        (group == getpgrp()).then_some(Self { tty, modes, group })
    }

    /// Puts the terminal back as it was. Call it after [`crate::Tree::end`], not after a command
    /// that ended by itself: such a one has tidied up, or has meant what it left.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn restore(&self) -> io::Result<()> {
        // A process in the background that changes its terminal is stopped by SIGTTOU, unless
        // the thread that does it blocks that signal.
        let mut background = SigSet::empty();
        background.add(Signal::SIGTTOU);
        let before = background.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let restored = tcsetpgrp(&self.tty, self.group)
            .and_then(|()| tcsetattr(&self.tty, OptionalActions::Now, &self.modes));
        let written = (&self.tty).write_all(CALM);
        before.thread_set_mask()?;
        restored?;
        written
    }
}
