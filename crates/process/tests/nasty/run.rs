//! A marked tree of processes, and the search for what bears its mark.
//!
//! Every process of a tree carries a marker in its arguments, and in its environment unless it
//! has cleaned that; what bears the marker afterwards is a survivor, whatever the crate believes.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use deadstop_process::{Means, Tree};
use tempfile::TempDir;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A started tree with what is needed to look for its remains.
pub(crate) struct Run {
    pub(crate) tree: Tree,
    pub(crate) marker: String,
    folder: TempDir,
}

impl Run {
    /// Starts a script by the given means. `$1` is the marker, `$2` a file to write lines to.
    pub(crate) fn script(script: &str, means: Means) -> io::Result<Self> {
        let folder = TempDir::new()?;
        let marker = marker();
        let mut command = Command::new("sh");
        // The pipe is never read: who floods it stands in a write.
        command
            .args(["-c", script, "sh", &marker])
            .arg(folder.path().join("lines"))
            .env("DEADSTOP_NASTY", &marker)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let tree = match means {
            Means::CgroupV2 => Tree::spawn(&mut command)?,
            _ => Tree::spawn_without_cgroup(&mut command)?,
        };
        Ok(Self { tree, marker, folder })
    }

    /// A file of this run.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits until so many lines are written.
    pub(crate) fn lines(&self, count: usize) -> io::Result<()> {
        let file = self.file("lines");
        until(|| fs::read_to_string(&file).is_ok_and(|text| text.lines().count() >= count))
    }
}

/// A marker that no other run has.
fn marker() -> String {
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("deadstop-nasty-{}-{count}-end", std::process::id())
}

/// All living processes that bear a marker, ourselves excepted.
pub(crate) fn bearers(marker: &str) -> Vec<u32> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != std::process::id())
        .filter(|pid| {
            let folder = PathBuf::from(format!("/proc/{pid}"));
            bears(&folder.join("cmdline"), marker) || bears(&folder.join("environ"), marker)
        })
        .collect()
}

/// Waits until something holds, at most ten seconds.
pub(crate) fn until(mut holds: impl FnMut() -> bool) -> io::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        if Instant::now() > deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it never came true"));
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn bears(file: &Path, marker: &str) -> bool {
    // These files have no length to be asked for.
    let mut text = vec![0; 64 * 1024];
    let read = fs::File::open(file).and_then(|file| file.read_at(&mut text, 0)).unwrap_or(0);
    text.truncate(read);
    text.windows(marker.len()).any(|window| window == marker.as_bytes())
}
