//! The guardian: a process that ends a tree whose keeper was killed with SIGKILL.
//!
//! No program can act on its own SIGKILL, so another one watches. The keeper starts the guardian
//! first, tells it through a pipe which tree to watch, and holds the pipe open. The system closes
//! the pipe when the keeper dies, however it dies; then the guardian ends what is left of the tree.
//! The pipe is not handed down to the tree, so that nothing in it can hold it open.
//!
//! The guardian is the same program, started with an argument that its `main` takes as the order to
//! call [`stand_guard`]. It has no environment, no streams and a session of its own: Ctrl-C and the
//! end of a process group do not reach it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::{Tree, outside, sys};

/// A running guardian. Dropping it closes the pipe, and waits until it has gone.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Guardian {
    /// Starts a guardian: this program, with these arguments. Start it before the tree.
    ///
    /// # Errors
    /// If this program can't be started once more.
    pub fn start(arguments: &[&str]) -> io::Result<Guardian> {
        let mut command = Command::new(own_program()?);
        command.args(arguments).env_clear().current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = outside(|| command.spawn())?;
        let pipe = child.stdin.take();
        Ok(Guardian { child, pipe })
    }

    /// Tells it which tree to end when this process is gone.
    ///
    /// # Errors
    /// If it is gone already.
    pub fn watch(&mut self, tree: &Tree) -> io::Result<()> {
        let token = tree.token();
        let pipe = self.pipe.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        pipe.write_all(format!("{token}\n").as_bytes())
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        drop(self.pipe.take());
        let _ = self.child.wait();
    }
}

/// What a guardian does: waits until its keeper is gone, and ends the tree that it was told of.
///
/// # Errors
/// If the pipe can't be read, or processes are left after ten seconds.
pub fn stand_guard(pipe: impl Read) -> io::Result<()> {
    // A session of its own; it has one already if that fails.
    let _ = rustix::process::setsid();
    let mut lines = BufReader::new(pipe).lines();
    let Some(token) = lines.next().transpose()? else { return Ok(()) };
    // Nothing more is said: this waits for the end of the pipe.
    let _ = lines.next().transpose()?;
    sys::end_orphans(&token)
}

/// This very program, even if its file was replaced meanwhile.
fn own_program() -> io::Result<std::path::PathBuf> {
    if cfg!(target_os = "linux") {
        return Ok("/proc/self/exe".into());
    }
    std::env::current_exe()
}
