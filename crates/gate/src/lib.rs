//! Decides whether a tool call may run. Asks the server if one answers, and otherwise a local
//! engine whose states lie in files that many processes share.
//!
//! There is always an answer. After a failure the policy's `fail_mode` decides: `open` falls back
//! on the local engine, and if that fails too lets the call through with a notice; `closed`
//! refuses. A kill that is known here is honoured in either case.

mod files;
mod local;
mod machine;
mod once;
mod orders;
mod policy;
mod remote;
mod tools;

use std::path::PathBuf;
use std::time::Duration;

use deadstop_client::{Patience, Server, Spoken};
use deadstop_core::{Digest, FailMode, Harm, Outcome, Status, Verdict};
use deadstop_protocol::mcp::Listing;
use serde_json::Value;

pub use files::GateError;
pub use machine::Machine;
pub use once::{AllowError, Once};
pub use orders::{Entry, Given, Here, Order, OrderError, Whom};
pub use policy::{Found, state_folder};

pub use tools::Judged;

use local::Local;
use remote::{Failed, Remote};

/// How often local files are looked at while a call runs.
const LOOK: Duration = Duration::from_millis(250);

/// Where a call is made: an agent's session, and the nested scopes inside it, the outermost first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScopePath {
    /// The agent.
    pub agent: String,
    /// The session.
    pub session: String,
    /// The scopes inside it.
    pub scope: Vec<String>,
}

/// A tool call that is about to be made.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ask {
    /// Where.
    pub place: ScopePath,
    /// The caller's id for it, with which it is settled; saying it twice is saying it once.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// The server that it runs on.
    pub server: Option<String>,
    /// Its arguments.
    pub arguments: Value,
    /// The directory that it would run in, where its files are on this machine.
    pub cwd: Option<PathBuf>,
    /// Whether it starts a sub-agent.
    pub spawns: bool,
    /// The span in which it is made, as a `traceparent`.
    pub trace: Option<String>,
}

/// What a sub-agent does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubAgent {
    /// It begins.
    Begins,
    /// It has ended.
    Ended,
}

/// Who has decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The server.
    Server,
    /// The engine on local files.
    Local,
    /// Neither could; the policy's fail mode applies.
    FailMode,
}

/// What was decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// Every guard that has something to say, the strictest first.
    pub trips: Vec<Spoken>,
    /// The incident that it became, if it is a new one.
    pub incident: Option<String>,
    /// Who has decided.
    pub by: By,
    /// What went wrong on the way, for the user.
    pub notice: Option<String>,
    /// The call's own span, where the server exports it.
    pub span: Option<String>,
}

/// How a call ended.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// Its outcome.
    pub outcome: &'a Outcome,
    /// Its result, for people.
    pub text: &'a str,
    /// The span in which it was made, as it was asked with.
    pub trace: Option<&'a str>,
}

impl Judgement {
    /// Whether the call may run.
    pub fn allowed(&self) -> bool {
        self.verdict <= Verdict::Steer
    }

    /// Why, in one sentence.
    pub fn why(&self) -> String {
        match (self.trips.first(), &self.notice) {
            (Some(trip), _) => trip.explain.clone(),
            (None, Some(notice)) => notice.clone(),
            (None, None) => self.verdict.to_string(),
        }
    }

    /// What the model should be told, if a guard has advice for it.
    pub fn advice(&self) -> Option<String> {
        let advice = self.trips.iter().find_map(|trip| trip.advice.as_ref())?;
        Some(format!("Deadstop: {advice}"))
    }

    /// The same answer with advice that was given before the call ran, unless it is stricter or has
    /// advice of its own.
    #[must_use]
    pub fn steered(mut self, advice: &str) -> Judgement {
        if self.verdict < Verdict::Steer {
            let advice = advice.strip_prefix("Deadstop: ").unwrap_or(advice).to_owned();
            self.verdict = Verdict::Steer;
            self.trips.insert(0, Spoken { advice: Some(advice), ..Spoken::default() });
        }
        self
    }

    fn of(verdict: Verdict, trips: Vec<Spoken>, by: By) -> Judgement {
        Judgement { verdict, trips, incident: None, by, notice: None, span: None }
    }

    fn passed(by: By) -> Judgement {
        Judgement::of(Verdict::Allow, Vec::new(), by)
    }

    fn said(verdict: Verdict, by: By, guard: &str, reason: &str, explain: String) -> Judgement {
        let trip = Spoken {
            guard: guard.to_owned(),
            reason: reason.to_owned(),
            explain,
            measured: Value::Null,
            limit: Value::Null,
            advice: None,
        };
        Judgement::of(verdict, vec![trip], by)
    }

    fn noticed(mut self, notice: Option<String>) -> Judgement {
        self.notice = match (notice, self.notice) {
            (Some(first), Some(second)) => Some(format!("{first}; {second}")),
            (first, second) => first.or(second),
        };
        self
    }
}

/// How a gate is set up.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// The server; `None` looks at the environment, and then at the usual place. One called `none`
    /// is none.
    pub server: Option<Server>,
    /// A preset or a policy file; `None` looks at `DEADSTOP_POLICY` and then at the user's
    /// `deadstop.toml`.
    pub policy: Option<String>,
    /// Where local states lie; `None` is below `$XDG_STATE_HOME`.
    pub folder: Option<PathBuf>,
    /// How long a server may take.
    pub patience: Patience,
    /// How long a person may take to approve a call; zero (no wait) by default.
    pub approval: Duration,
    /// Whether no server is asked at all.
    pub alone: bool,
}

/// Decides about tool calls.
#[derive(Debug)]
pub struct Gate {
    remote: Option<Remote>,
    local: Local,
    fail_mode: FailMode,
    notice: Option<String>,
}

impl Gate {
    /// Opens it. Nothing is asked yet.
    pub fn open(setup: Setup) -> Gate {
        let found = policy::find(setup.policy.as_deref());
        let fail_mode = found.policies.session.fail_mode;
        let mut notice = found.problem;
        let none = match &setup.server {
            Some(server) => server.is_none(),
            None => Server::from_env().is_ok_and(|server| server.is_none()),
        };
        let remote = match setup.alone || none {
            true => None,
            false => Remote::open(setup.server, setup.patience, setup.approval)
                .map_err(|error| notice = notice.take().or(Some(error.to_string())))
                .ok(),
        };
        let project = remote.as_ref().and_then(|remote| remote.project.clone());
        let folder = setup.folder.or_else(state_folder);
        let local = Local::new(folder, project.as_deref().unwrap_or("default"), found.policies);
        Gate { remote, local, fail_mode, notice }
    }

    /// What the policy says about calls that cannot be judged.
    pub fn fail_mode(&self) -> FailMode {
        self.fail_mode
    }

    /// May this call run?
    pub fn ask(&self, ask: &Ask) -> Judgement {
        self.asked(ask, |remote, harms| remote.ask(ask, harms))
    }

    /// May this call run? While its session is paused it is held, for so long.
    pub fn ask_held(&self, ask: &Ask, hold: Duration) -> Judgement {
        self.asked(ask, |remote, harms| remote.ask_held(ask, harms, hold))
    }

    /// Looks at the machine once, and tells the server or the local engine what it saw.
    fn asked(
        &self,
        ask: &Ask,
        remotely: impl FnOnce(&Remote, Option<&[Harm]>) -> Result<Judgement, Failed>,
    ) -> Judgement {
        let (call, makes) = self.local.facts(ask);
        let harms = ask.cwd.is_some().then_some(call.harms.as_slice());
        let answer = self.decide(
            &ask.place,
            |remote| remotely(remote, harms),
            |local| local.admit(ask, &call, &makes),
        );
        if answer.by == By::Server && answer.allowed() {
            // If this fails, later calls treat the session's own files as foreign.
            let _ = self.local.made_elsewhere(&ask.place, &makes);
        }
        answer.noticed(self.notice.clone())
    }

    /// This call has ended; it need not be on disk when this returns, unless its session has, too.
    pub fn settle_soon(&self, place: &ScopePath, id: &str, told: Told<'_>) -> Judgement {
        self.decide(
            place,
            |remote| remote.settle_soon(place, id, told),
            |local| local.settle(place, id, told.outcome),
        )
    }

    /// Waits until a call that runs is to be stopped, but no longer than so; tells why.
    pub fn watch(&self, place: &ScopePath, id: &str, wait: Duration) -> Option<Judgement> {
        let stopped = |answer: Judgement| (answer.verdict >= Verdict::Block).then_some(answer);
        if let Some(remote) = &self.remote
            && let Ok(answer) = remote.watch(place, id, wait)
        {
            return stopped(answer);
        }
        // Without a server no event announces a kill, so the files are polled.
        std::thread::sleep(wait.min(LOOK));
        stopped(self.local.known_dead(place)?)
    }

    /// Accepts a tool's current description, in local files; false if the tool is unknown there.
    pub fn accept_here(&self, server: &str, tool: &str) -> Result<bool, GateError> {
        self.local.accept(server, tool)
    }

    /// A server has listed its tools: which of them are not to be seen, and which have changed.
    pub fn listed(&self, place: &ScopePath, server: &str, listing: &Listing<'_>) -> Judged {
        if let Some(remote) = &self.remote
            && let Ok(judged) = remote.listed(place, server, listing)
        {
            return judged;
        }
        self.local.listed(server, listing)
    }

    /// This call has ended. The answer tells whether its session has, too.
    pub fn settle(
        &self,
        place: &ScopePath,
        id: &str,
        status: Status,
        text: Option<&str>,
    ) -> Judgement {
        let outcome = Outcome {
            status,
            result: text.map(deadstop_protocol::facts::result),
            ..Outcome::default()
        };
        let answer = self.decide(
            place,
            |remote| remote.settle(place, id, status, text),
            |local| local.settle(place, id, &outcome),
        );
        answer.noticed(self.notice.clone())
    }

    /// Is this session alive? `words` is what a person has just said to it, if it is about that.
    pub fn standing(&self, place: &ScopePath, words: Option<&str>) -> Judgement {
        let answer = self.decide(
            place,
            |remote| remote.standing(place, words),
            |local| local.standing(place, words),
        );
        answer.noticed(self.notice.clone())
    }

    /// May a sub-agent begin? Or one has ended: it no longer counts as at work.
    pub fn sub_agent(&self, place: &ScopePath, is: SubAgent) -> Judgement {
        let answer = self.decide(
            place,
            |remote| remote.sub_agent(place, is),
            |local| local.sub_agent(place, is),
        );
        answer.noticed(self.notice.clone())
    }

    /// The agent's context was compacted: what it forgot it may look up again.
    pub fn compacted(&self, place: &ScopePath) -> Judgement {
        let answer =
            self.decide(place, |remote| remote.compacted(place), |local| local.compacted(place));
        answer.noticed(self.notice.clone())
    }

    /// The host says that the session is over: it counts as finished until it goes on. Calls of it that
    /// still run ended with it.
    pub fn over(&self, place: &ScopePath) -> Judgement {
        let answer = self.decide(place, |remote| remote.over(place), |local| local.over(place));
        answer.noticed(self.notice.clone())
    }

    /// Ends a session here, for good, whatever a server says.
    pub fn kill(&self, place: &ScopePath, by: &str, because: &str) -> Result<(), GateError> {
        self.local.kill(place, by, because)
    }

    /// Forgets all that local files know of a session, its end included.
    pub fn forget(&self, place: &ScopePath) -> Result<(), GateError> {
        self.local.forget(place)
    }

    /// Keeps a call's id for callers that do not know it when the call has ended. `what` is what
    /// they know then.
    pub fn remember(&self, place: &ScopePath, what: &str, id: &str) {
        // If this fails, the call is not settled, as with an unknown id.
        let _ = self.local.remember(place, Digest::of(what.as_bytes()).0, id);
    }

    /// What was kept for something that does not end: it stays.
    pub fn known(&self, place: &ScopePath, what: &str) -> Option<String> {
        self.local.known(place, Digest::of(what.as_bytes()).0).ok().flatten()
    }

    /// The id of the oldest such call that has not ended.
    pub fn recall(&self, place: &ScopePath, what: &str) -> Option<String> {
        self.local.recall(place, Digest::of(what.as_bytes()).0).ok().flatten()
    }

    /// The answer by fail mode, for a call that could not be read.
    pub fn failed(&self, what: &str) -> Judgement {
        self.fail(what).noticed(self.notice.clone())
    }

    fn fail(&self, what: &str) -> Judgement {
        match self.fail_mode {
            FailMode::Open => Judgement::passed(By::FailMode).noticed(Some(what.to_owned())),
            FailMode::Closed => {
                let explain = format!("blocked: {what}, and the policy's fail_mode says closed");
                Judgement::said(Verdict::Block, By::FailMode, "fail_mode", "fail_closed", explain)
            }
        }
    }

    fn decide(
        &self,
        place: &ScopePath,
        remotely: impl FnOnce(&Remote) -> Result<Judgement, Failed>,
        locally: impl FnOnce(&Local) -> Result<Judgement, GateError>,
    ) -> Judgement {
        if let Some(dead) = self.local.known_dead(place) {
            return dead;
        }
        let mut notice = None;
        if let Some(remote) = &self.remote {
            match remotely(remote) {
                Ok(answer) => {
                    self.local.note(place, &answer);
                    return answer;
                }
                Err(Failed::Unknown) => {}
                Err(Failed::Away { why, named }) => {
                    if let Some(dead) = self.local.told_dead(place) {
                        return dead;
                    }
                    if named && self.fail_mode == FailMode::Closed {
                        return self.fail(&why);
                    }
                    notice = named.then(|| format!("{why}; judged by local files"));
                }
            }
        }
        match locally(&self.local) {
            Ok(answer) => answer.noticed(notice),
            Err(error) => self.fail(&error.to_string()),
        }
    }
}
