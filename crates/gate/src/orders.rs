//! An operator's orders about what lies in local files, and the record of them.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use deadstop_core::{ScopeKind, ScopeState, TopUp};
use deadstop_redact::Redactor;
use serde::{Deserialize, Serialize};

use crate::files::{Folder, GateError, Lasts};
use crate::local::{
    Kept, Local, Scope, agent_file, bytes, killed, now, remove_session, session_file,
};
use crate::{Gate, ScopePath};

/// The record of orders, a line each.
const AUDIT: &str = "audit.jsonl";

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// End it, for good or until it is cleared.
    Kill,
    /// Let an agent, or everything, run again.
    Clear,
    /// Give a session a fresh start under its name.
    Reset,
    /// Refuse calls until it is resumed.
    Pause,
    /// Let it go on.
    Resume,
}

impl Order {
    /// The order of this name.
    pub fn named(name: &str) -> Option<Order> {
        Some(match name {
            "kill" => Order::Kill,
            "clear" => Order::Clear,
            "reset" => Order::Reset,
            "pause" => Order::Pause,
            "resume" => Order::Resume,
            _ => return None,
        })
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Order::Kill => "kill",
            Order::Clear => "clear",
            Order::Reset => "reset",
            Order::Pause => "pause",
            Order::Resume => "resume",
        }
    }

    /// What was done, in a word.
    pub fn done(self) -> &'static str {
        match self {
            Order::Kill => "killed",
            Order::Clear => "cleared",
            Order::Reset => "reset",
            Order::Pause => "paused",
            Order::Resume => "resumed",
        }
    }
}

/// Whom an order is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whom {
    /// Everything.
    All,
    /// An agent.
    Agent(String),
    /// A session of an agent.
    Session {
        /// The agent.
        agent: String,
        /// The session.
        session: String,
    },
}

/// An order as an operator gives it.
#[derive(Debug, Clone, Copy)]
pub struct Given<'a> {
    /// What is to be done.
    pub order: Order,
    /// Who gives it.
    pub by: &'a str,
    /// Why.
    pub reason: &'a str,
    /// Whether an agent or a session that has made no call yet may be killed or paused. Otherwise an
    /// unknown name is refused, because it may be a typo.
    pub in_advance: bool,
}

/// Why an order was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// The files cannot be used.
    #[error(transparent)]
    Files(#[from] GateError),
    /// Local files have no scope of that name.
    #[error("local files know no {0} of that name")]
    Unknown(&'static str),
    /// A session's end is final.
    #[error("a session's end is final: reset gives it a fresh start")]
    Final,
    /// What was killed is not resumed.
    #[error("the {0} was killed, not paused: clear lets it run again")]
    Killed(&'static str),
    /// Only sessions are reset.
    #[error("only a session is reset: clear lets an agent, or everything, run again")]
    NotASession,
}

/// A scope as local files know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Here {
    /// `project`, `agent` or `session`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// `active`, `paused`, `killed`, or `finished`: its host said that it is over.
    pub state: &'static str,
    /// Why.
    pub why: Option<String>,
}

/// One order in the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Who gave it.
    pub who: String,
    /// What, such as `agent.kill`.
    pub action: String,
    /// Whom it was about.
    pub subject: String,
    /// Why.
    pub reason: String,
}

impl Gate {
    /// Carries an order out in local files, whatever a server says, and records it.
    pub fn order(&self, whom: &Whom, given: Given<'_>) -> Result<Here, OrderError> {
        self.local.order(whom, given)
    }

    /// Raises the limits of a session in local files, and records it. A session that a limit ended goes
    /// on; one that was killed stays dead.
    pub fn top_up_here(
        &self,
        agent: &str,
        session: &str,
        more: TopUp,
        (by, reason): (&str, &str),
    ) -> Result<Here, OrderError> {
        let whom = Whom::Session { agent: agent.to_owned(), session: session.to_owned() };
        self.local.top_up(&whom, more, by, reason)
    }

    /// All scopes that local files know: everything first, then agents, then sessions.
    pub fn scopes_here(&self) -> Result<Vec<Here>, GateError> {
        self.local.scopes()
    }

    /// The orders that were given here, the newest first.
    pub fn orders_here(&self) -> Result<Vec<Entry>, GateError> {
        let bytes = self.local.folder()?.read(AUDIT)?.unwrap_or_default();
        let lines = bytes.split(|byte| *byte == b'\n');
        let mut entries: Vec<Entry> =
            lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
        entries.reverse();
        Ok(entries)
    }
}

impl Local {
    fn order(&self, whom: &Whom, given: Given<'_>) -> Result<Here, OrderError> {
        let Given { order, by, reason, in_advance } = given;
        let reason = Redactor::default().redact(reason).into_owned();
        let (place, kind) = self.place_of(whom);
        let (file, name) = match kind {
            ScopeKind::Project => ("project".to_owned(), self.project.clone()),
            ScopeKind::Agent => (agent_file(&place), place.agent.clone()),
            _ => (session_file(&place), place.session.clone()),
        };
        if order == Order::Reset && kind != ScopeKind::Session {
            return Err(OrderError::NotASession);
        }
        let folder = self.folder()?;
        let held = folder.hold()?;
        let (kept, damaged) = match self.read_one(&file, &name) {
            // A damaged file must not prevent an order.
            Err(GateError::Damaged { .. }) => {
                held.set_aside(&file);
                (None, true)
            }
            other => (other?, false),
        };
        let stops = matches!(order, Order::Kill | Order::Pause);
        let may_be_new = stops && (in_advance || damaged || kind == ScopeKind::Project);
        if kept.is_none() && !may_be_new && !folder.path(&killed(&file)).exists() {
            return Err(OrderError::Unknown(kind.name()));
        }
        let mut kept = kept.unwrap_or_else(|| Kept::new(&name));
        let state = self.state(&file, &kept.state).unwrap_or_else(|_| ScopeState::new(kind, now()));
        let mut scope = Scope { name: name.clone(), kind, state };
        // A local kill replaces a server's note, so that the server cannot take it back.
        if order == Order::Kill && scope.state.killed().is_none() {
            folder.remove(&killed(&file));
        }
        match order {
            Order::Kill => scope.state.kill(by, &reason, now()),
            Order::Clear => scope.state.clear().map_err(|_| OrderError::Final)?,
            Order::Pause => scope.state.pause(by, &reason, now()),
            Order::Resume if scope.state.killed().is_some() => {
                return Err(match kind {
                    ScopeKind::Session | ScopeKind::Nested => OrderError::Final,
                    ScopeKind::Agent | ScopeKind::Project => OrderError::Killed(kind.name()),
                });
            }
            Order::Resume => scope.state.resume(),
            Order::Reset => scope.state.reset(now()),
        }
        match order {
            Order::Kill => drop(self.note_death(folder, &place, &mut scope)?),
            Order::Clear => folder.remove(&killed(&file)),
            _ => {}
        }
        if order == Order::Reset {
            remove_session(folder, &place);
        } else {
            kept.state = scope.state.to_blob();
            folder.write(&file, &bytes(&kept), Lasts::Surely)?;
        }
        let who = if by.is_empty() { "operator" } else { by };
        let entry = Entry {
            at_ms: now().0,
            who: who.to_owned(),
            action: format!("{}.{}", kind.name(), order.name()),
            subject: name.clone(),
            reason,
        };
        record(folder, &entry)?;
        Ok(here(kind, name, &scope.state))
    }

    fn top_up(&self, whom: &Whom, more: TopUp, by: &str, reason: &str) -> Result<Here, OrderError> {
        let (place, kind) = self.place_of(whom);
        let (file, name) = (session_file(&place), place.session.clone());
        let folder = self.folder()?;
        let _held = folder.hold()?;
        let kept = self.read_one(&file, &name)?;
        let mut kept = kept.ok_or(OrderError::Unknown(kind.name()))?;
        let mut state = self.state(&file, &kept.state)?;
        let noted = folder.path(&killed(&file)).exists();
        // A note without a kill in the state is a server's word, which stays.
        if noted && state.killed().is_none() {
            return Err(OrderError::Final);
        }
        state.top_up(more).map_err(|_| OrderError::Final)?;
        kept.state = state.to_blob();
        // The state goes first: if the program ends in between, the session stays dead.
        folder.write(&file, &bytes(&kept), Lasts::Surely)?;
        folder.remove(&killed(&file));
        let entry = Entry {
            at_ms: now().0,
            who: if by.is_empty() { "operator" } else { by }.to_owned(),
            action: "session.top_up".to_owned(),
            subject: name.clone(),
            reason: Redactor::default().redact(reason).into_owned(),
        };
        record(folder, &entry)?;
        Ok(here(kind, name, &state))
    }

    fn place_of(&self, whom: &Whom) -> (ScopePath, ScopeKind) {
        let place = |agent: &str, session: &str| ScopePath {
            agent: agent.to_owned(),
            session: session.to_owned(),
            scope: Vec::new(),
        };
        match whom {
            Whom::All => (ScopePath::default(), ScopeKind::Project),
            Whom::Agent(agent) => (place(agent, ""), ScopeKind::Agent),
            Whom::Session { agent, session } => (place(agent, session), ScopeKind::Session),
        }
    }

    fn scopes(&self) -> Result<Vec<Here>, GateError> {
        let folder = self.folder()?;
        let mut found: Vec<(u8, Here)> = Vec::new();
        for file in folder.names() {
            let (rank, kind) = match file.rsplit_once('.').map_or(&*file, |(_, ending)| ending) {
                "project" => (0, ScopeKind::Project),
                "agent" => (1, ScopeKind::Agent),
                "session" => (2, ScopeKind::Session),
                _ => continue,
            };
            let Some(kept) = folder.read(&file)?.and_then(|bytes| Kept::read(&bytes)) else {
                continue;
            };
            let Ok(state) = self.state(&file, &kept.state) else { continue };
            let over = kind == ScopeKind::Session && self.is_over(&file);
            let mut here = here(kind, kept.name, &state);
            if over && here.state == "active" {
                here.state = "finished";
            }
            found.push((rank, here));
        }
        found.sort_by(|(one, a), (other, b)| one.cmp(other).then_with(|| a.name.cmp(&b.name)));
        Ok(found.into_iter().map(|(_, here)| here).collect())
    }
}

fn here(kind: ScopeKind, name: String, state: &ScopeState) -> Here {
    let (word, why) = match (state.killed(), state.paused()) {
        (Some(kill), _) => ("killed", Some(kill.because.clone())),
        (None, Some(pause)) => ("paused", Some(pause.because.clone())),
        (None, None) => ("active", None),
    };
    Here { kind: kind.name(), name, state: word, why: why.filter(|why| !why.is_empty()) }
}

/// Writes a line that stays. Called while the folder is held.
pub(crate) fn record(folder: &Folder, entry: &Entry) -> Result<(), GateError> {
    let path = folder.path(AUDIT);
    let mut line = serde_json::to_vec(entry).unwrap_or_default();
    line.push(b'\n');
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| file.write_all(&line).and_then(|()| file.sync_all()));
    written.map_err(|error| GateError::Io { path, error })
}
