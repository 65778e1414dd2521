//! Captures: one line for each thing that happened to a call, with names and figures, never with what
//! was said.
//!
//! The latest are kept in memory. Where a file is named they are also written there, in batches; a
//! kill and the end of the session write the rest.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use deadstop_core::Verdict;
use serde::Serialize;

/// Captures that are kept in memory.
const KEPT: usize = 256;
/// Bytes that wait for the disk at most.
const BATCH: usize = 64 << 10;

/// What happened to a call or a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CaptureKind {
    /// A call was admitted.
    Admitted,
    /// A call was refused.
    Refused,
    /// A call was cut off while it ran.
    Cut,
    /// A call has ended and was booked.
    Settled,
    /// A guard tripped while a call ran, and let it go on.
    Tripped,
    /// A scope was ended.
    Killed,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Capture {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// What happened.
    pub what: CaptureKind,
    /// The scopes inside the session, the outermost first.
    pub scope: Vec<String>,
    /// The tool or the model; empty for a kill.
    pub name: String,
    /// The verdict.
    pub verdict: Verdict,
    /// What the strictest guard says, if a guard tripped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Dollars that it has cost; once it is settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

/// The captures of a session.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    last: VecDeque<Capture>,
    file: Option<File>,
    waiting: Vec<u8>,
    lost: u64,
}

impl Captures {
    /// Captures that also go to a file, after what is in it.
    pub(crate) fn to(path: &Path) -> io::Result<Captures> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Captures { kept: Mutex::new(Kept { file: Some(file), ..Kept::default() }) })
    }

    pub(crate) fn add(&self, capture: Capture) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.file.is_some() && serde_json::to_writer(&mut kept.waiting, &capture).is_ok() {
            kept.waiting.push(b'\n');
        }
        if kept.waiting.len() >= BATCH {
            kept.write();
        }
        if kept.last.len() == KEPT {
            kept.last.pop_front();
        }
        kept.last.push_back(capture);
    }

    /// Writes what waits.
    pub(crate) fn flush(&self) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).write();
    }

    pub(crate) fn last(&self) -> Vec<Capture> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.last.iter().cloned().collect()
    }

    /// Captures that could not be written.
    pub(crate) fn lost(&self) -> u64 {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).lost
    }
}

impl Kept {
    fn write(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        let Some(file) = self.file.as_mut().filter(|_| !waiting.is_empty()) else { return };
        // A full disk stops no agent; health tells of it.
        if file.write_all(&waiting).is_err() {
            self.lost += waiting.iter().filter(|byte| **byte == b'\n').count() as u64;
        }
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        self.flush();
    }
}
