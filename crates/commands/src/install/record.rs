//! What was written where, and what was there before: so that it can be taken back to the byte.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use deadstop_core::Digest;
use deadstop_protocol::hook::Host;
use serde::{Deserialize, Serialize};

use super::piece::Piece;
use super::plan::{Level, hooks_file, whole};
use crate::config::xdg;
use crate::ui::Hinted;

/// What an installation has changed.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) files: Vec<Changed>,
}

/// A file that was changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Changed {
    pub(crate) path: PathBuf,
    /// Where its old text is kept; nothing if it was not there.
    pub(crate) backup: Option<PathBuf>,
    /// The digest of what was written.
    pub(crate) written: u64,
}

impl Changed {
    /// Whether the file is unchanged since.
    pub(crate) fn is_as_written(&self, text: &str) -> bool {
        Digest::of(text.as_bytes()).0 == self.written
    }

    /// What was there before.
    pub(crate) fn before(&self) -> anyhow::Result<Option<String>> {
        let Some(backup) = &self.backup else { return Ok(None) };
        let text = fs::read_to_string(backup)
            .with_context(|| format!("cannot read the backup {}", backup.display()))?;
        Ok(Some(text))
    }
}

/// Where the record of an installation lies.
pub(crate) fn place(host: Host, level: Level) -> anyhow::Result<PathBuf> {
    let folder = xdg("XDG_STATE_HOME", ".local/state").context("HOME is not set")?;
    let about = whole(&hooks_file(host, level)?);
    let digest = Digest::of(about.as_os_str().as_encoded_bytes()).0;
    let name = format!("{}-{}-{digest:016x}.json", host.name(), level.name());
    Ok(folder.join("installed").join(name))
}

impl Record {
    /// The record of an installation, if there is one.
    pub(crate) fn read(place: &Path) -> anyhow::Result<Option<Record>> {
        match fs::read_to_string(place) {
            Ok(text) => {
                let record = serde_json::from_str(&text);
                Ok(Some(record.with_context(|| format!("{} is damaged", place.display()))?))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", place.display())),
        }
    }

    pub(crate) fn write(&self, place: &Path) -> anyhow::Result<()> {
        write(place, &serde_json::to_string_pretty(self)?)
    }

    pub(crate) fn of(&self, path: &Path) -> Option<&Changed> {
        self.files.iter().find(|file| file.path == path)
    }
}

/// What is in a file; nothing if it is not there.
pub(crate) fn read(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Replaces a file whole. A link stays a link, and the file's permissions stay as they are.
pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(|error| refused(&error, &path))?;
    }
    let mut next = path.clone().into_os_string();
    next.push(format!(".{}.new", std::process::id()));
    let next = PathBuf::from(next);
    let replace = || {
        let mut file = fs::File::create(&next)?;
        if let Ok(metadata) = fs::metadata(&path) {
            file.set_permissions(metadata.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&next, &path)
    };
    replace().inspect_err(|_| drop(fs::remove_file(&next))).map_err(|error| refused(&error, &path))
}

/// A file that cannot be written, and what to do about it.
fn refused(error: &std::io::Error, path: &Path) -> anyhow::Error {
    let hint = match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "this user may not write there: check HOME, and who owns the folder"
        }
        std::io::ErrorKind::StorageFull => {
            "the disk is full: make room, then run the command again"
        }
        _ => "check HOME and the folder",
    };
    Hinted::error(format!("cannot write {}: {error}", path.display()), hint)
}
