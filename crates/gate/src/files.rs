//! States in files: one process at a time works on them, a file is replaced whole, and what must
//! last is on disk before the agent gets the verdict.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use deadstop_core::Digest;
use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

/// How long a process waits for the lock. On a busy machine fifty hooks at once take seconds, and a
/// call whose hook gives up is not judged.
const PATIENCE: Duration = Duration::from_secs(20);
/// Most bytes of one file.
const LARGEST: u64 = 4 * 1024 * 1024;
/// How long a session's file is kept after its last call, and how long it is known to be dead.
const KEPT: Duration = Duration::from_secs(30 * 86_400);
const KEPT_DEAD: Duration = Duration::from_secs(365 * 86_400);

/// Why local files could not be used.
#[derive(Debug, Error)]
pub enum GateError {
    /// Neither `XDG_STATE_HOME` nor `HOME` says where.
    #[error("nowhere to keep states: set HOME or XDG_STATE_HOME")]
    Nowhere,
    /// Another process holds the lock for too long.
    #[error("{} is held by another process: see who with `fuser`", .0.display())]
    Held(PathBuf),
    /// They cannot be read or written.
    #[error("{}: {error}", .path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// A file is not what we wrote.
    #[error("{} is damaged ({why}): delete it to start afresh", .path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// The folder of one project.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

/// The folder's lock: while it lives, no other process works on the folder.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    folder: &'a Folder,
    _lock: File,
}

impl Folder {
    pub(crate) fn new(base: &Path, project: &str) -> Folder {
        Folder(base.join(file_name(project)))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Waits for the folder's lock.
    pub(crate) fn hold(&self) -> Result<Held<'_>, GateError> {
        let path = self.path("lock");
        let told = |error| GateError::Io { path: path.clone(), error };
        let open = || OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let lock = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut builder = fs::DirBuilder::new();
                builder.recursive(true).mode(0o700).create(&self.0).map_err(told)?;
                open()
            }
            done => done,
        };
        let lock = lock.map_err(told)?;
        let until = Instant::now() + PATIENCE;
        let mut pause = Duration::from_micros(200);
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Held { folder: self, _lock: lock }),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(4));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(GateError::Held(path)),
                Err(error) => return Err(told(error.into())),
            }
        }
    }

    /// What is in a file; nothing if it is not there.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, GateError> {
        let path = self.path(name);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            done => done,
        };
        let mut bytes = Vec::with_capacity(4096);
        let read = file.and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes));
        read.map_err(|error| GateError::Io { path: path.clone(), error })?;
        match bytes.len() as u64 > LARGEST {
            true => Err(GateError::Damaged { path, why: "it is too large".to_owned() }),
            false => Ok(Some(bytes)),
        }
    }

    /// Writes a file that is not changed afterwards, so that it lasts.
    pub(crate) fn write(&self, name: &str, bytes: &[u8], lasts: Lasts) -> Result<(), GateError> {
        let path = self.path(name);
        let next = self.path(&format!("{name}.{}.new", std::process::id()));
        self.replace(&path, &next, bytes, lasts).map_err(|error| {
            let _ = fs::remove_file(&next);
            GateError::Io { path, error }
        })
    }

    fn replace(&self, path: &Path, next: &Path, bytes: &[u8], lasts: Lasts) -> io::Result<()> {
        let open = || {
            let mut options = OpenOptions::new();
            options.create(true).write(true).truncate(true).mode(0o600).open(next)
        };
        let mut file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
                open()?
            }
            done => done?,
        };
        file.write_all(bytes)?;
        if lasts == Lasts::Surely {
            file.sync_all()?;
        }
        fs::rename(next, path)?;
        if lasts == Lasts::Surely {
            File::open(&self.0)?.sync_all()?;
        }
        Ok(())
    }

    /// The names of its files.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    pub(crate) fn remove(&self, name: &str) {
        let _ = fs::remove_file(self.path(name));
    }
}

/// Whether a file must be on disk before we go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lasts {
    /// It must.
    Surely,
    /// The system writes it when it likes.
    Eventually,
}

impl Held<'_> {
    /// Puts a file out of the way that cannot be read.
    pub(crate) fn set_aside(&self, name: &str) {
        let from = self.folder.path(name);
        let _ = fs::rename(&from, self.folder.path(&format!("{name}.damaged")));
    }

    /// Removes files that are past their retention, at most once a day.
    pub(crate) fn tidy(&self) {
        let now = SystemTime::now();
        let age = |path: &Path| {
            let touched = fs::metadata(path).and_then(|metadata| metadata.modified()).ok()?;
            now.duration_since(touched).ok()
        };
        let stamp = self.folder.path("tidied");
        if age(&stamp).is_some_and(|age| age < Duration::from_secs(86_400)) {
            return;
        }
        let _ = self.folder.write("tidied", &[], Lasts::Eventually);
        for entry in fs::read_dir(&self.folder.0).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let kept = match name.rsplit_once('.').map(|(_, ending)| ending) {
                Some("session" | "ids" | "made" | "over" | "damaged") => KEPT,
                Some("killed") => KEPT_DEAD,
                Some("new") => Duration::from_secs(3600),
                _ => continue,
            };
            if age(&entry.path()).is_some_and(|age| age > kept) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// A name as that of a file: readable, and different for different names.
pub(crate) fn file_name(name: &str) -> String {
    let readable: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' })
        .take(40)
        .collect();
    format!("{readable}-{:016x}", Digest::of(name.as_bytes()).0)
}
