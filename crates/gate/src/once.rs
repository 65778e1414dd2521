//! Allowed once: a refusal carries a short code, and a person who gives that code lets exactly that
//! call run, once, within ten minutes.
//!
//! A code belongs to one session and one call, by its digest. It is offered when a call is held
//! because of its harm, given by `deadstop allow`, and used up by the call itself.

use deadstop_core::Digest;
use serde::{Deserialize, Serialize};

use crate::files::{GateError, Lasts};
use crate::local::{Local, now, session_file};
use crate::orders::{Entry, record};
use crate::{Gate, ScopePath};

/// Where codes are kept.
const FILE: &str = "once.json";
/// Codes that are kept, the newest last.
const MOST: usize = 64;
/// How long a code can be given after the refusal, and how long the call may then be made.
const OFFERED_MS: u64 = 3_600_000;
const ALLOWED_MS: u64 = 600_000;
/// Letters of a code: none that looks like another.
const LETTERS: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";

/// A call that may be allowed once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Once {
    /// The code.
    pub code: String,
    /// The session's file.
    session: String,
    /// The call, by its digest.
    call: u64,
    /// What it would do, in words.
    pub what: String,
    /// When it was refused, in milliseconds since 1970.
    at_ms: u64,
    /// Until when it may be made; `None` before a person has said so.
    pub until_ms: Option<u64>,
    /// Who has said so.
    by: String,
}

/// Why a code does not allow anything.
#[derive(Debug, thiserror::Error)]
pub enum AllowError {
    /// The files cannot be used.
    #[error(transparent)]
    Files(#[from] GateError),
    /// No such code.
    #[error("no call waits under the code {0}: codes end an hour after the refusal")]
    Unknown(String),
}

impl Gate {
    /// Allows the call that was refused under this code: once, within ten minutes. Records it.
    pub fn allow(&self, code: &str, by: &str, reason: &str) -> Result<Once, AllowError> {
        self.local.allow(code, by, reason)
    }
}

impl Local {
    fn codes(&self) -> Result<Vec<Once>, GateError> {
        let bytes = self.folder()?.read(FILE)?.unwrap_or_default();
        let now = now().0;
        let mut codes: Vec<Once> = serde_json::from_slice(&bytes).unwrap_or_default();
        codes.retain(|once| match once.until_ms {
            Some(until) => now < until,
            None => now < once.at_ms.saturating_add(OFFERED_MS),
        });
        Ok(codes)
    }

    fn keep_codes(&self, codes: &[Once], lasts: Lasts) -> Result<(), GateError> {
        let bytes = serde_json::to_vec(codes).unwrap_or_default();
        self.folder()?.write(FILE, &bytes, lasts)
    }

    /// Offers a code for a call that was refused; the same call gets the same code again. Called
    /// while the folder is held.
    pub(crate) fn offer(
        &self,
        place: &ScopePath,
        call: Digest,
        what: &str,
    ) -> Result<String, GateError> {
        let session = session_file(place);
        let mut codes = self.codes()?;
        if let Some(known) = codes.iter().find(|o| o.session == session && o.call == call.0) {
            return Ok(known.code.clone());
        }
        let now = now().0;
        let pid = std::process::id();
        let mut seed = Digest::of(format!("{session} {} {now} {pid}", call.0).as_bytes()).0;
        let mut code = String::new();
        for _ in 0..6 {
            code.push(char::from(LETTERS[(seed % 32) as usize]));
            seed /= 32;
        }
        let over = (codes.len() + 1).saturating_sub(MOST);
        codes.drain(..over);
        let once = Once {
            code: code.clone(),
            session,
            call: call.0,
            what: what.to_owned(),
            at_ms: now,
            until_ms: None,
            by: String::new(),
        };
        codes.push(once);
        self.keep_codes(&codes, Lasts::Eventually)?;
        Ok(code)
    }

    /// Uses up a one-time code that allows this call; gives who allowed it. Needs the lock.
    pub(crate) fn take_once(
        &self,
        place: &ScopePath,
        call: Digest,
    ) -> Result<Option<String>, GateError> {
        let session = session_file(place);
        let mut codes = self.codes()?;
        let allowed = |o: &Once| o.session == session && o.call == call.0 && o.until_ms.is_some();
        let Some(at) = codes.iter().position(allowed) else { return Ok(None) };
        let once = codes.remove(at);
        self.keep_codes(&codes, Lasts::Surely)?;
        let entry = Entry {
            at_ms: now().0,
            who: once.by.clone(),
            action: "call.allowed".to_owned(),
            subject: place.session.clone(),
            reason: once.what,
        };
        record(self.folder()?, &entry)?;
        Ok(Some(once.by))
    }

    fn allow(&self, code: &str, by: &str, reason: &str) -> Result<Once, AllowError> {
        let folder = self.folder()?;
        let _held = folder.hold()?;
        let mut codes = self.codes()?;
        let wanted = code.trim().to_ascii_uppercase();
        let Some(once) = codes.iter_mut().find(|once| once.code == wanted) else {
            return Err(AllowError::Unknown(wanted));
        };
        let now = now().0;
        once.until_ms = Some(now.saturating_add(ALLOWED_MS));
        once.by = by.to_owned();
        let allowed = once.clone();
        self.keep_codes(&codes, Lasts::Surely)?;
        let said = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let entry = Entry {
            at_ms: now,
            who: by.to_owned(),
            action: "call.allow".to_owned(),
            subject: wanted,
            reason: format!("{}{said}", allowed.what),
        };
        record(folder, &entry)?;
        Ok(allowed)
    }
}
