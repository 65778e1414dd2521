//! The machine that a tool call would run on: a bounded look at its files and at git.
//!
//! It is only asked about paths that a call would harm, so that most calls cost nothing here. Git
//! runs as a program, without hooks, without locks and with a time limit. Without an answer in time
//! the path's state is unknown.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use deadstop_protocol::facts::effect::{Kept, Sight, Surroundings};

/// How long git may take.
const PATIENCE: Duration = Duration::from_millis(400);
/// How long it may take for all paths of one call.
const PATIENCE_FOR_ALL: Duration = Duration::from_millis(1000);
/// Paths of one call about which git is asked.
const MOST_QUESTIONS: usize = 32;
/// Entries of one directory that are looked at, paths that a pattern may name, and directories that
/// it may lead through.
const MOST_ENTRIES: usize = 2000;
const MOST_PATHS: usize = 200;
const MOST_FOLDERS: usize = 50;
/// Bytes of git's answer that are read.
const MOST_STATUS: u64 = 1024 * 1024;

/// This machine, as seen from a working directory.
#[derive(Debug)]
pub struct Machine {
    cwd: String,
    home: Option<String>,
    workspace: String,
    /// Paths that the session created.
    created: Vec<String>,
    /// Everything that git would tell about the workspace, where it was asked once for all.
    status: Option<Vec<(Kept, String)>>,
    asked: RefCell<HashMap<String, Kept>>,
    /// How long git took so far.
    spent: Cell<Duration>,
}

impl Machine {
    /// This machine, from a directory. `created` are the paths that the session made.
    pub fn at(cwd: &Path, created: Vec<String>) -> Machine {
        let cwd = fs::canonicalize(cwd).unwrap_or_else(|_| cwd.to_path_buf());
        let home = std::env::var("HOME").ok().filter(|home| home.starts_with('/'));
        let root = cwd.ancestors().find(|folder| folder.join(".git").exists());
        // A repository over all of a home directory or of the system is no workspace.
        let usable = |root: &&Path| {
            root.parent().is_some() && home.as_deref().is_none_or(|home| *root != Path::new(home))
        };
        let workspace = root.filter(usable).unwrap_or(&cwd).to_string_lossy().into_owned();
        Machine {
            cwd: cwd.to_string_lossy().into_owned(),
            home,
            workspace,
            created,
            status: None,
            asked: RefCell::default(),
            spent: Cell::default(),
        }
    }

    /// Asks git once for all, for callers with many questions about files that do not change.
    pub fn remembering(mut self) -> Machine {
        self.status = status(Path::new(&self.workspace), None, Duration::from_secs(5));
        self
    }

    /// A path that is not there yet, so that a call which makes it creates it.
    pub fn is_missing(path: &str) -> bool {
        fs::symlink_metadata(path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    }
}

impl Surroundings for Machine {
    fn cwd(&self) -> Option<&str> {
        Some(&self.cwd)
    }

    fn home(&self) -> Option<&str> {
        self.home.as_deref()
    }

    fn workspace(&self) -> Option<&str> {
        Some(&self.workspace)
    }

    fn real(&self, path: &str) -> String {
        let own = Path::new(path);
        let (Some(folder), Some(name)) = (own.parent(), own.file_name()) else {
            return path.to_owned();
        };
        match fs::canonicalize(folder) {
            Ok(folder) => folder.join(name).to_string_lossy().into_owned(),
            Err(_) => path.to_owned(),
        }
    }

    fn look(&self, path: &str) -> Sight {
        if !path.starts_with('/') {
            return Sight::Unknown;
        }
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_symlink() => {
                let to = fs::read_link(path).unwrap_or_default();
                Sight::Link(to.to_string_lossy().into_owned())
            }
            Ok(found) if found.is_dir() => Sight::Directory,
            Ok(_) => Sight::File,
            Err(error) => match error.kind() {
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => Sight::Missing,
                _ => Sight::Unknown,
            },
        }
    }

    fn glob(&self, pattern: &str) -> Option<Vec<String>> {
        glob(pattern)
    }

    fn kept(&self, path: &str) -> Kept {
        let workspace = Path::new(&self.workspace);
        let inside = Path::new(path).starts_with(workspace);
        if let Some(status) = self.status.as_ref().filter(|_| inside) {
            return of_status(status, &self.workspace, path);
        }
        if let Some(known) = self.asked.borrow().get(path) {
            return *known;
        }
        let folder = match fs::metadata(path) {
            Ok(found) if found.is_dir() => PathBuf::from(path),
            _ => Path::new(path).parent().map(Path::to_path_buf).unwrap_or_default(),
        };
        // Git is a program that has to start: one call cannot have it started without end.
        let left = PATIENCE_FOR_ALL.saturating_sub(self.spent.get()).min(PATIENCE);
        let may_ask = self.asked.borrow().len() < MOST_QUESTIONS && !left.is_zero();
        let start = Instant::now();
        let told =
            (may_ask && folder.is_dir()).then(|| status(&folder, Some(path), left)).flatten();
        self.spent.set(self.spent.get() + start.elapsed());
        let kept = match told {
            Some(found) => found.iter().map(|(kept, _)| *kept).max().unwrap_or(Kept::Clean),
            None => Kept::Unknown,
        };
        self.asked.borrow_mut().insert(path.to_owned(), kept);
        kept
    }

    fn created(&self, path: &str) -> bool {
        let path = Path::new(path);
        self.created.iter().any(|made| path.starts_with(made))
    }
}

/// What git says of a path, from its answer about everything.
fn of_status(status: &[(Kept, String)], workspace: &str, path: &str) -> Kept {
    let path = Path::new(path);
    let about = |entry: &&(Kept, String)| {
        let entry = Path::new(workspace).join(entry.1.trim_end_matches('/'));
        entry.starts_with(path) || path.starts_with(&entry)
    };
    status.iter().filter(about).map(|(kept, _)| *kept).max().unwrap_or(Kept::Clean)
}

/// What git says about a directory, or one path in it; `None` when it says nothing.
fn status(folder: &Path, path: Option<&str>, patience: Duration) -> Option<Vec<(Kept, String)>> {
    let mut git = Command::new("git");
    // Neither the repository's settings nor its hooks may start a program here.
    git.arg("-C").arg(folder).args([
        "-c",
        "core.fsmonitor=false",
        "-c",
        "core.hooksPath=/dev/null",
    ]);
    git.args(["--no-optional-locks", "status", "--porcelain=v1", "-z", "--ignored"]);
    if let Some(path) = path {
        git.arg("--").arg(path);
    }
    git.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = git.spawn().ok()?;
    let stdout = child.stdout.take()?;
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = stdout.take(MOST_STATUS).read_to_end(&mut bytes);
        read.map(|_| bytes)
    });
    let until = Instant::now() + patience;
    let mut pause = Duration::from_micros(100);
    let done = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.success(),
            Ok(None) if Instant::now() < until => std::thread::sleep(pause),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                break false;
            }
        }
        pause = (pause * 2).min(Duration::from_millis(2));
    };
    let bytes = reader.join().ok()?.ok()?;
    done.then(|| entries(&bytes))
}

/// The entries of `git status -z`: two letters, a space, a path; a renamed file has two paths.
fn entries(bytes: &[u8]) -> Vec<(Kept, String)> {
    let text = String::from_utf8_lossy(bytes);
    let mut found = Vec::new();
    let mut fields = text.split('\0');
    while let Some(field) = fields.next() {
        let (Some(letters), Some(path)) = (field.get(..2), field.get(3..)) else { continue };
        let kept = match letters {
            "??" => Kept::Untracked,
            "!!" => Kept::Ignored,
            _ => Kept::Changed,
        };
        found.push((kept, path.to_owned()));
        if letters.contains('R') {
            fields.next();
        }
    }
    found
}

/// The paths that a pattern names, within bounds.
fn glob(pattern: &str) -> Option<Vec<String>> {
    let mut paths = vec![String::new()];
    let mut folders = 0;
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        if !part.contains(['*', '?', '[']) {
            for path in &mut paths {
                *path = format!("{path}/{part}");
            }
            continue;
        }
        let mut next = Vec::new();
        for folder in &paths {
            folders += 1;
            if folders > MOST_FOLDERS {
                return None;
            }
            let own = if folder.is_empty() { "/" } else { folder };
            let Ok(entries) = fs::read_dir(own) else { continue };
            for (number, entry) in entries.flatten().enumerate() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if number >= MOST_ENTRIES || next.len() > MOST_PATHS {
                    return None;
                }
                let hidden = name.starts_with('.') && !part.starts_with('.');
                if !hidden && deadstop_protocol::facts::effect::fits(part, &name) {
                    next.push(format!("{folder}/{name}"));
                }
            }
        }
        paths = next;
    }
    Some(paths)
}
