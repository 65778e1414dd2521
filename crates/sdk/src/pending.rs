//! Kills that a server has not heard of yet, in files: a kill outlives the process that gave it.
//!
//! A file is written when the session is killed and removed when the server has the kill. The next
//! process that opens a session at the same server delivers what it finds.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use deadstop_core::Digest;
use serde::{Deserialize, Serialize};

/// The most files that one process delivers.
const MOST: usize = 1000;

/// A kill that a server has not heard of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PendingKill {
    /// The server.
    pub(crate) url: String,
    /// The project that the killing process named.
    #[serde(default)]
    pub(crate) project: Option<String>,
    pub(crate) agent: String,
    pub(crate) session: String,
    pub(crate) reason: String,
}

impl PendingKill {
    /// Writes it down, whole or not at all.
    pub(crate) fn keep(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let path = folder.join(self.file());
        let new = path.with_extension(format!("{}.new", std::process::id()));
        fs::write(&new, serde_json::to_vec(self).map_err(io::Error::other)?)?;
        fs::rename(&new, &path)
    }

    /// The server has it.
    pub(crate) fn delivered(&self, folder: &Path) {
        // Another process may have delivered it as well.
        let _ = fs::remove_file(folder.join(self.file()));
    }

    fn file(&self) -> String {
        let project = self.project.as_deref().unwrap_or_default();
        let place = format!("{}\n{project}\n{}\n{}", self.url, self.agent, self.session);
        format!("{:016x}.json", Digest::of(place.as_bytes()).0)
    }
}

/// The kills that a server has not heard of.
pub(crate) fn pending(folder: &Path, url: &str, project: Option<&str>) -> Vec<PendingKill> {
    let Ok(files) = fs::read_dir(folder) else { return Vec::new() };
    let paths = files.filter_map(|file| Some(file.ok()?.path()));
    let paths = paths.filter(|path| path.extension().is_some_and(|kind| kind == "json"));
    let read = |path: PathBuf| serde_json::from_slice(&fs::read(path).ok()?).ok();
    let ours = |kill: &PendingKill| kill.url == url && kill.project.as_deref() == project;
    paths.take(MOST).filter_map(read).filter(ours).collect()
}

/// Where they lie: below `$XDG_STATE_HOME`, or `~/.local/state`.
pub(crate) fn usual_folder() -> Option<PathBuf> {
    let filled = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = filled("XDG_STATE_HOME").map(PathBuf::from);
    let home = || filled("HOME").or_else(|| filled("USERPROFILE")).map(PathBuf::from);
    let state = state.or_else(|| Some(home()?.join(".local/state")))?;
    Some(state.join("deadstop").join("kills"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_is_kept_until_its_server_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let kill = |session: &str, reason: &str| PendingKill {
            url: "http://a".to_owned(),
            project: None,
            agent: "agent".to_owned(),
            session: session.to_owned(),
            reason: reason.to_owned(),
        };
        for one in [kill("s/1", "STOP"), kill("s/1", "again"), kill("s2", "STOP")] {
            one.keep(folder.path()).unwrap();
        }
        fs::write(folder.path().join("torn.json"), "{").unwrap();
        kill("s3", "STOP").keep(folder.path()).unwrap();
        kill("s3", "STOP").delivered(folder.path());
        let mut found = pending(folder.path(), "http://a", None);
        found.sort_by(|a, b| a.session.cmp(&b.session));
        assert_eq!(found, [kill("s/1", "again"), kill("s2", "STOP")]);
        assert_eq!(pending(folder.path(), "http://b", None), []);
        assert_eq!(pending(folder.path(), "http://a", Some("p")), []);
    }
}
