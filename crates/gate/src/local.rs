//! The engine on local files: what a server keeps in memory lies in a file for the project, one for
//! each agent and one for each session, under one lock.
//!
//! Each killed scope has a note beside them. It is on disk before a kill is acknowledged, and can
//! be read when the states are damaged. A note from a server holds while that server is away.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use deadstop_client::Spoken;
use deadstop_core::{
    Admission, Call, Digest, GuardId, Link, Outcome, PolicySet, ScopeKind, ScopeState, Status,
    TextFacts, Ticket, Time, ToolCall, Trip, Verdict, admit, admit_allowed, begin, end, settle,
};
use deadstop_protocol::facts;
use deadstop_redact::Redactor;
use serde::{Deserialize, Serialize};

use crate::files::{Folder, GateError, Held, Lasts, file_name};
use crate::machine::Machine;
use crate::{Ask, By, Judgement, ScopePath, SubAgent};

/// The version of the files.
const VERSION: u8 = 1;
/// Calls that may run in one session, and nested scopes that are remembered.
const MOST_RUNNING: usize = 512;
const MOST_SCOPES: usize = 64;
/// Paths that are remembered as created by one session, and bytes of one of them.
const MOST_MADE: usize = 512;
const LONGEST_PATH: usize = 1024;

/// The engine on local files.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) folder: Option<Folder>,
    pub(crate) project: String,
    pub(crate) policies: PolicySet,
}

/// What a file holds.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Kept {
    version: u8,
    /// Whose it is.
    pub(crate) name: String,
    /// The scope's own state.
    pub(crate) state: Vec<u8>,
    /// Scopes inside it by their paths, the one that was used last at the end.
    nested: Vec<(Vec<String>, Vec<u8>)>,
    running: Vec<Running>,
}

/// A call that was admitted and has not ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Running {
    id: String,
    scope: Vec<String>,
    call: Call,
    ticket: Ticket,
}

impl Running {
    /// Whether this is the same call: an id alone says nothing, since an agent chooses it.
    fn is(&self, id: &str, tool: &ToolCall) -> bool {
        let Call::Tool(own) = &self.call else { return false };
        self.id == id
            && (&own.name, &own.server) == (&tool.name, &tool.server)
            && own.signature == tool.signature
    }
}

/// The end of something, as it is noted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Death {
    /// What was ended, in words.
    what: String,
    because: String,
    /// The code that later calls are refused with.
    code: String,
    /// Whether a server said so: it may take it back.
    from_server: bool,
    at: u64,
}

/// One scope of a chain, in hand.
pub(crate) struct Scope {
    pub(crate) name: String,
    pub(crate) kind: ScopeKind,
    pub(crate) state: ScopeState,
}

impl Kept {
    /// What a file holds about something that is new.
    pub(crate) fn new(name: &str) -> Kept {
        Kept { version: VERSION, name: name.to_owned(), ..Kept::default() }
    }

    /// What a file holds, if it is one of ours and whole.
    pub(crate) fn read(bytes: &[u8]) -> Option<Kept> {
        let kept: Kept = postcard::from_bytes(bytes).ok()?;
        (kept.version == VERSION).then_some(kept)
    }
}

/// A chain of scopes, read from files.
struct Chain {
    scopes: Vec<Scope>,
    /// The session's file.
    session: Kept,
    notice: Option<String>,
    /// Whether the session is new.
    fresh: bool,
}

impl Local {
    pub(crate) fn new(base: Option<PathBuf>, project: &str, policies: PolicySet) -> Local {
        let folder = base.map(|base| Folder::new(&base, project));
        Local { folder, project: project.to_owned(), policies }
    }

    /// The refusal for a session that was killed in local files.
    pub(crate) fn known_dead(&self, place: &ScopePath) -> Option<Judgement> {
        self.death(place, |death| !death.from_server)
    }

    /// The same, also for a session that a server has killed, while that server is away.
    pub(crate) fn told_dead(&self, place: &ScopePath) -> Option<Judgement> {
        self.death(place, |_| true)
    }

    fn death(&self, place: &ScopePath, counts: impl Fn(&Death) -> bool) -> Option<Judgement> {
        let folder = self.folder.as_ref()?;
        let notes = [killed("project"), killed(&agent_file(place)), killed(&session_file(place))];
        let found = notes.iter().find_map(|note| {
            let bytes = folder.read(note).ok().flatten()?;
            // A note that is torn is still a note that something was ended.
            let death = serde_json::from_slice(&bytes).unwrap_or_else(|_| Death {
                what: "this session".to_owned(),
                because: "its note is torn".to_owned(),
                code: "session_killed".to_owned(),
                from_server: false,
                at: 0,
            });
            counts(&death).then_some(death)
        })?;
        let explain = format!("stopped: {} was ended: {}", found.what, found.because);
        Some(Judgement::said(Verdict::Kill, By::Local, "killed", &found.code, explain))
    }

    /// Remembers what a server has said about a session's life.
    pub(crate) fn note(&self, place: &ScopePath, answer: &Judgement) {
        let Some(folder) = &self.folder else { return };
        let note = killed(&session_file(place));
        if answer.verdict != Verdict::Kill {
            if answer.allowed() && folder.path(&note).exists() {
                folder.remove(&note);
            }
            return;
        }
        if folder.path(&note).exists() {
            return;
        }
        let why = answer.why();
        let death = Death {
            what: format!("session {}", place.session),
            because: Redactor::default().redact(&why).into_owned(),
            code: "session_killed".to_owned(),
            from_server: true,
            at: now().0,
        };
        let _ = folder.write(&note, &json(&death), Lasts::Surely);
    }

    pub(crate) fn admit(
        &self,
        ask: &Ask,
        seen: &ToolCall,
        makes: &[String],
    ) -> Result<Judgement, GateError> {
        let held = self.hold()?;
        self.goes_on(&ask.place);
        let mut chain = self.read(&held, &ask.place)?;
        let mut tool = seen.clone();
        tool.server = ask.server.clone().or(tool.server);
        tool.spawns = ask.spawns;
        self.judge(&mut tool);
        // The same call, asked again, was judged already. Another call with its id was not.
        if chain.session.running.iter().any(|running| running.is(&ask.id, &tool)) {
            return Ok(Judgement::passed(By::Local).noticed(chain.notice));
        }
        let signature = tool.signature;
        let allowed = match tool.harms.is_empty() {
            true => None,
            false => self.take_once(&ask.place, signature)?,
        };
        let mut call = Call::Tool(tool);
        let now = now();
        let admission = match &allowed {
            // A person has let this one call pass; everything but its harm is judged.
            Some(_) => chain.with(&self.policies, |links| admit_allowed(links, &call, now)),
            None => chain.with(&self.policies, |links| admit(links, &call, now)),
        };
        let mut answer = spoken(admission.verdict, &admission.trips, chain.notice.take());
        if let Some(by) = allowed.filter(|_| answer.verdict <= Verdict::Warn) {
            let explain = format!("warned: this call is allowed once, by {by}");
            let notice = answer.notice.take();
            answer = Judgement::said(Verdict::Warn, By::Local, "harm", "allowed_once", explain);
            answer.notice = notice;
        }
        self.offer_code(&ask.place, signature, &admission, &mut answer)?;
        if let Some(ticket) = admission.ticket {
            // What it would destroy was judged; arguments are not kept.
            if let Call::Tool(tool) = &mut call {
                tool.arguments.clear();
                tool.harms.clear();
            }
            self.note_made(&ask.place, makes)?;
            let (id, scope) = (ask.id.clone(), ask.place.scope.clone());
            chain.session.running.push(Running { id, scope, call, ticket });
            self.forget_lost(&mut chain, now);
        }
        if chain.fresh {
            held.tidy();
        }
        self.write(&ask.place, chain)?;
        Ok(answer)
    }

    /// What the engine is told about a call, and the paths that it would create.
    pub(crate) fn facts(&self, ask: &Ask) -> (ToolCall, Vec<String>) {
        let Some(cwd) = &ask.cwd else {
            return (facts::tool_call(&ask.tool, &ask.arguments), Vec::new());
        };
        let machine = Machine::at(cwd, self.made(&ask.place));
        let (call, mut makes) = facts::tool_call_in(&ask.tool, &ask.arguments, &machine);
        makes.retain(|path| path.starts_with('/') && Machine::is_missing(path));
        (call, makes)
    }

    /// Adds the code with which a person may let a call pass that was held because of its harm.
    fn offer_code(
        &self,
        place: &ScopePath,
        call: Digest,
        admission: &Admission,
        answer: &mut Judgement,
    ) -> Result<(), GateError> {
        let held = matches!(answer.verdict, Verdict::Ask | Verdict::Block);
        let (Some(trip), Some(spoken)) = (admission.trips.first(), answer.trips.first_mut()) else {
            return Ok(());
        };
        if !held || trip.guard != GuardId::Harm {
            return Ok(());
        }
        let what = Redactor::default().redact(&trip.because).into_owned();
        let code = self.offer(place, call, &what)?;
        spoken.explain +=
            &format!(". A person can let this one call pass: `deadstop allow {code}`");
        Ok(())
    }

    /// Paths that a session created, as far as they are remembered.
    fn made(&self, place: &ScopePath) -> Vec<String> {
        let read = self.folder().and_then(|folder| folder.read(&made_file(place)));
        let bytes = read.ok().flatten().unwrap_or_default();
        let text = String::from_utf8(bytes).unwrap_or_default();
        text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect()
    }

    /// Remembers paths that a call creates which a server has admitted.
    pub(crate) fn made_elsewhere(
        &self,
        place: &ScopePath,
        makes: &[String],
    ) -> Result<(), GateError> {
        if makes.is_empty() {
            return Ok(());
        }
        let _held = self.hold()?;
        self.note_made(place, makes)
    }

    /// Remembers paths that a call creates. Called while the folder is held.
    fn note_made(&self, place: &ScopePath, makes: &[String]) -> Result<(), GateError> {
        if makes.is_empty() {
            return Ok(());
        }
        let mut made = self.made(place);
        for path in makes.iter().filter(|path| path.len() <= LONGEST_PATH) {
            if !made.contains(path) {
                made.push(path.clone());
            }
        }
        let over = made.len().saturating_sub(MOST_MADE);
        made.drain(..over);
        self.folder()?.write(&made_file(place), made.join("\0").as_bytes(), Lasts::Eventually)
    }

    pub(crate) fn settle(
        &self,
        place: &ScopePath,
        id: &str,
        outcome: &Outcome,
    ) -> Result<Judgement, GateError> {
        let held = self.hold()?;
        let mut chain = self.read(&held, place)?;
        let found = chain.session.running.iter().position(|running| running.id == id);
        let Some(running) = found.map(|at| chain.session.running.remove(at)) else {
            return Ok(Judgement::passed(By::Local).noticed(chain.notice));
        };
        let now = now();
        let Running { call, ticket, .. } = running;
        let decision =
            chain.with(&self.policies, |links| settle(links, &call, ticket, outcome, now));
        let mut answer = spoken(decision.verdict, &decision.trips, chain.notice.take());
        if answer.verdict < Verdict::Kill
            && let Some(dead) = chain.dead()
        {
            answer = dead;
        }
        self.write(place, chain)?;
        Ok(answer)
    }

    pub(crate) fn standing(
        &self,
        place: &ScopePath,
        words: Option<&str>,
    ) -> Result<Judgement, GateError> {
        let held = self.hold()?;
        self.goes_on(place);
        let mut chain = self.read(&held, place)?;
        if let Some(dead) = chain.dead() {
            return Ok(dead);
        }
        let answer = Judgement::passed(By::Local).noticed(chain.notice.take());
        if let (Some(words), Some(innermost)) = (words, chain.scopes.last_mut()) {
            innermost.state.hear(&TextFacts::of(words));
            self.write(place, chain)?;
        }
        Ok(answer)
    }

    pub(crate) fn sub_agent(
        &self,
        place: &ScopePath,
        is: SubAgent,
    ) -> Result<Judgement, GateError> {
        let held = self.hold()?;
        let mut chain = self.read(&held, place)?;
        let now = now();
        let answer = match is {
            SubAgent::Begins => {
                let decision = chain.with(&self.policies, |links| begin(links, now));
                spoken(decision.verdict, &decision.trips, chain.notice.take())
            }
            SubAgent::Ended => {
                chain.with(&self.policies, |links| end(links, now));
                chain.dead().unwrap_or_else(|| Judgement::passed(By::Local))
            }
        };
        if chain.dead().is_none() {
            self.write(place, chain)?;
        }
        Ok(answer)
    }

    /// The session is over. A mark beside its file says so, until its next event takes the mark away.
    pub(crate) fn over(&self, place: &ScopePath) -> Result<Judgement, GateError> {
        let held = self.hold()?;
        let mut chain = self.read(&held, place)?;
        let answer = chain.dead().unwrap_or_else(|| Judgement::passed(By::Local));
        // A session that made no call has no file, and needs none.
        if !chain.fresh {
            let now = now();
            for lost in std::mem::take(&mut chain.session.running) {
                self.cancelled(&mut chain, &lost, now);
            }
            self.write(place, chain)?;
            let mark = over(&session_file(place));
            self.folder()?.write(&mark, b"", Lasts::Eventually)?;
        }
        Ok(answer)
    }

    /// Takes back that a session is over. Called while the folder is held.
    fn goes_on(&self, place: &ScopePath) {
        if let Some(folder) = &self.folder {
            folder.remove(&over(&session_file(place)));
        }
    }

    /// Whether the host of the session in this file said that it is over.
    pub(crate) fn is_over(&self, session_file: &str) -> bool {
        self.folder.as_ref().is_some_and(|folder| folder.path(&over(session_file)).exists())
    }

    pub(crate) fn compacted(&self, place: &ScopePath) -> Result<Judgement, GateError> {
        let held = self.hold()?;
        let mut chain = self.read(&held, place)?;
        if let Some(dead) = chain.dead() {
            return Ok(dead);
        }
        let answer = Judgement::passed(By::Local).noticed(chain.notice.take());
        if let Some(innermost) = chain.scopes.last_mut() {
            innermost.state.compacted();
            self.write(place, chain)?;
        }
        Ok(answer)
    }

    pub(crate) fn kill(&self, place: &ScopePath, by: &str, because: &str) -> Result<(), GateError> {
        let held = self.hold()?;
        let mut chain = self.read(&held, place)?;
        let session = chain.scopes.iter_mut().find(|scope| scope.kind == ScopeKind::Session);
        if let Some(session) = session {
            session.state.kill(by, because, now());
        }
        self.write(place, chain)
    }

    /// Forgets a session, and its agent if that has made no call and stands under no order.
    pub(crate) fn forget(&self, place: &ScopePath) -> Result<(), GateError> {
        let _held = self.hold()?;
        let folder = self.folder()?;
        remove_session(folder, place);
        let agent = agent_file(place);
        if let Some(kept) = self.read_one(&agent, &place.agent)? {
            let state = self.state(&agent, &kept.state)?;
            if state.calls() == 0 && state.killed().is_none() && state.paused().is_none() {
                folder.remove(&agent);
            }
        }
        Ok(())
    }

    /// Keeps the id under which a call was asked for, by what the caller knows of it later.
    pub(crate) fn remember(&self, place: &ScopePath, key: u64, id: &str) -> Result<(), GateError> {
        let _held = self.hold()?;
        let mut ids = self.ids(place)?;
        ids.push((key, id.to_owned()));
        let over = ids.len().saturating_sub(MOST_RUNNING);
        ids.drain(..over);
        self.write_ids(place, &ids)
    }

    /// The id of the oldest call of that kind that runs.
    pub(crate) fn recall(&self, place: &ScopePath, key: u64) -> Result<Option<String>, GateError> {
        let _held = self.hold()?;
        let mut ids = self.ids(place)?;
        let Some(at) = ids.iter().position(|(there, _)| *there == key) else { return Ok(None) };
        let (_, id) = ids.remove(at);
        self.write_ids(place, &ids)?;
        Ok(Some(id))
    }

    /// What is kept under a key, which stays.
    pub(crate) fn known(&self, place: &ScopePath, key: u64) -> Result<Option<String>, GateError> {
        let ids = self.ids(place)?;
        Ok(ids.into_iter().find_map(|(there, id)| (there == key).then_some(id)))
    }

    fn ids(&self, place: &ScopePath) -> Result<Vec<(u64, String)>, GateError> {
        let bytes = self.folder()?.read(&ids_file(place))?.unwrap_or_default();
        // Ids that cannot be read are calls that are never settled, nothing worse.
        Ok(postcard::from_bytes(&bytes).unwrap_or_default())
    }

    fn write_ids(&self, place: &ScopePath, ids: &Vec<(u64, String)>) -> Result<(), GateError> {
        let bytes = postcard::to_extend(ids, Vec::new()).unwrap_or_default();
        self.folder()?.write(&ids_file(place), &bytes, Lasts::Eventually)
    }

    pub(crate) fn folder(&self) -> Result<&Folder, GateError> {
        self.folder.as_ref().ok_or(GateError::Nowhere)
    }

    fn hold(&self) -> Result<Held<'_>, GateError> {
        self.folder()?.hold()
    }

    /// Reads the chain of a place. A damaged file is set aside and started afresh, unless the fail
    /// mode is closed.
    fn read(&self, held: &Held<'_>, place: &ScopePath) -> Result<Chain, GateError> {
        let now = now();
        let mut notice = None;
        let mut chain = Vec::with_capacity(4);
        for (file, name, kind) in [
            ("project".to_owned(), self.project.as_str(), ScopeKind::Project),
            (agent_file(place), place.agent.as_str(), ScopeKind::Agent),
            (session_file(place), place.session.as_str(), ScopeKind::Session),
        ] {
            let read = self.read_one(&file, name).and_then(|kept| {
                let state = kept.as_ref().map(|kept| self.state(&file, &kept.state)).transpose()?;
                Ok(kept.zip(state))
            });
            let found = match read {
                Err(error @ GateError::Damaged { .. })
                    if self.policies.session.fail_mode == deadstop_core::FailMode::Open =>
                {
                    held.set_aside(&file);
                    notice = Some(format!("{error}; the file was moved aside"));
                    None
                }
                other => other?,
            };
            let fresh = found.is_none();
            let (kept, state) =
                found.unwrap_or_else(|| (Kept::new(name), ScopeState::new(kind, now)));
            chain.push((Scope { name: name.to_owned(), kind, state }, kept, fresh));
        }
        let mut scopes = Vec::with_capacity(4);
        let (mut session, mut fresh) = (Kept::default(), false);
        for (scope, kept, new) in chain {
            scopes.push(scope);
            (session, fresh) = (kept, new);
        }
        for depth in 1..=place.scope.len() {
            let path = &place.scope[..depth];
            let found = session.nested.iter().find(|(there, _)| there == path);
            let state = match found {
                Some((_, blob)) => self.state(&session_file(place), blob)?,
                None => ScopeState::new(ScopeKind::Nested, now),
            };
            let name = path.last().cloned().unwrap_or_default();
            scopes.push(Scope { name, kind: ScopeKind::Nested, state });
        }
        Ok(Chain { scopes, session, notice, fresh })
    }

    pub(crate) fn read_one(&self, file: &str, name: &str) -> Result<Option<Kept>, GateError> {
        let folder = self.folder()?;
        let Some(bytes) = folder.read(file)? else { return Ok(None) };
        let damaged =
            |why: &str| GateError::Damaged { path: folder.path(file), why: why.to_owned() };
        if bytes.first().is_some_and(|version| *version != VERSION) {
            return Err(damaged("another version wrote it"));
        }
        let kept: Kept =
            postcard::from_bytes(&bytes).map_err(|_| damaged("it is cut or altered"))?;
        match kept.name == name {
            true => Ok(Some(kept)),
            false => Err(damaged("it belongs to another scope")),
        }
    }

    pub(crate) fn state(&self, file: &str, blob: &[u8]) -> Result<ScopeState, GateError> {
        let path = self.folder()?.path(file);
        ScopeState::from_blob(blob)
            .map_err(|error| GateError::Damaged { path, why: error.to_string() })
    }

    /// Calls that never told how they ended, once there are too many.
    fn forget_lost(&self, chain: &mut Chain, now: Time) {
        while chain.session.running.len() > MOST_RUNNING {
            let lost = chain.session.running.remove(0);
            self.cancelled(chain, &lost, now);
        }
    }

    /// A call that ended without a result.
    fn cancelled(&self, chain: &mut Chain, lost: &Running, now: Time) {
        let outcome = Outcome { status: Status::Cancelled, ..Outcome::default() };
        let ticket = lost.ticket.clone();
        chain.with(&self.policies, |links| settle(links, &lost.call, ticket, &outcome, now));
    }

    /// Writes a chain back. Notes of kills go first, and are on disk before the states are written.
    fn write(&self, place: &ScopePath, chain: Chain) -> Result<(), GateError> {
        let folder = self.folder()?;
        let Chain { scopes, mut session, .. } = chain;
        let mut depth = 0;
        for mut scope in scopes {
            let lasts = self.note_death(folder, place, &mut scope)?;
            let blob = scope.state.to_blob();
            let file = match scope.kind {
                ScopeKind::Project => "project".to_owned(),
                ScopeKind::Agent => agent_file(place),
                ScopeKind::Session => {
                    session.state = blob;
                    continue;
                }
                ScopeKind::Nested => {
                    depth += 1;
                    let path = &place.scope[..depth];
                    session.nested.retain(|(there, _)| there != path);
                    session.nested.push((path.to_vec(), blob));
                    continue;
                }
            };
            let kept = Kept { version: VERSION, name: scope.name, state: blob, ..Kept::default() };
            folder.write(&file, &bytes(&kept), lasts)?;
        }
        let over = session.nested.len().saturating_sub(MOST_SCOPES);
        session.nested.drain(..over);
        folder.write(&session_file(place), &bytes(&session), Lasts::Eventually)
    }

    pub(crate) fn note_death(
        &self,
        folder: &Folder,
        place: &ScopePath,
        scope: &mut Scope,
    ) -> Result<Lasts, GateError> {
        let Some(kill) = scope.state.killed().cloned() else { return Ok(Lasts::Eventually) };
        let file = match scope.kind {
            ScopeKind::Project => "project".to_owned(),
            ScopeKind::Agent => agent_file(place),
            ScopeKind::Session => session_file(place),
            ScopeKind::Nested => return Ok(Lasts::Eventually),
        };
        let note = killed(&file);
        if folder.path(&note).exists() {
            return Ok(Lasts::Eventually);
        }
        let because = Redactor::default().redact(&kill.because).into_owned();
        scope.state.reword(&because);
        let death = Death {
            what: format!("{} {}", scope.kind.name(), scope.name),
            because,
            code: kill.guard.unwrap_or(GuardId::Killed).refusal().to_owned(),
            from_server: false,
            at: kill.at.0,
        };
        folder.write(&note, &json(&death), Lasts::Surely)?;
        Ok(Lasts::Surely)
    }
}

impl Chain {
    /// Works on the chain with the engine.
    fn with<T>(&mut self, policies: &PolicySet, work: impl FnOnce(&mut [Link<'_>]) -> T) -> T {
        let mut links: Vec<Link<'_>> = self
            .scopes
            .iter_mut()
            .map(|scope| Link {
                name: &scope.name,
                policy: policies.of(scope.kind),
                state: &mut scope.state,
            })
            .collect();
        work(&mut links)
    }

    fn dead(&self) -> Option<Judgement> {
        self.scopes.iter().find_map(|scope| {
            let kill = scope.state.killed()?;
            let code = kill.guard.unwrap_or(GuardId::Killed).refusal();
            let what = format!("{} {}", scope.kind.name(), scope.name);
            let explain = format!("stopped: {what} was ended: {}", kill.because);
            Some(Judgement::said(Verdict::Kill, By::Local, "killed", code, explain))
        })
    }
}

fn spoken(verdict: Verdict, trips: &[Trip], notice: Option<String>) -> Judgement {
    let measure = |measure| serde_json::to_value(measure).unwrap_or_default();
    let trips = trips
        .iter()
        .map(|trip| Spoken {
            guard: trip.guard.name().to_owned(),
            reason: trip.reason.clone(),
            explain: trip.explain(),
            measured: measure(trip.measured),
            limit: measure(trip.limit),
            advice: trip.advice.clone(),
        })
        .collect();
    Judgement { notice, ..Judgement::of(verdict, trips, By::Local) }
}

/// Removes all that is known of a session. Called while the folder is held.
pub(crate) fn remove_session(folder: &Folder, place: &ScopePath) {
    let session = session_file(place);
    for file in [killed(&session), over(&session), ids_file(place), made_file(place), session] {
        folder.remove(&file);
    }
}

pub(crate) fn agent_file(place: &ScopePath) -> String {
    format!("{}.agent", file_name(&place.agent))
}

pub(crate) fn session_file(place: &ScopePath) -> String {
    format!("{}.session", file_name(&format!("{}/{}", place.session, place.agent)))
}

fn ids_file(place: &ScopePath) -> String {
    format!("{}.ids", file_name(&format!("{}/{}", place.session, place.agent)))
}

fn made_file(place: &ScopePath) -> String {
    format!("{}.made", file_name(&format!("{}/{}", place.session, place.agent)))
}

pub(crate) fn killed(file: &str) -> String {
    format!("{file}.killed")
}

/// The file that says that a session is over.
fn over(session_file: &str) -> String {
    format!("{session_file}.over")
}

pub(crate) fn bytes(kept: &Kept) -> Vec<u8> {
    postcard::to_extend(kept, Vec::with_capacity(4096)).unwrap_or_default()
}

fn json(death: &Death) -> Vec<u8> {
    serde_json::to_vec(death).unwrap_or_default()
}

/// The only clock of a gate.
pub(crate) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
