//! The connection to a server that governs a session: it is asked before each call, told afterwards,
//! and listened to.
//!
//! The thread that makes a call asks. A thread of its own reports how calls ended, in order, out of a
//! bounded queue. Another one listens: a kill, a hold or a new policy arrives as soon as the server
//! knows of it. Once the server does not answer, calls no longer wait for it, until the reporting
//! thread has reached it again.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use deadstop_client::{
    Cancel, Client, ClientError, Decided, Opening, Patience, Preflight, Proposal, ProposedCall,
    Receipt, Server, Spoken, escaped,
};
use deadstop_core::{FailMode, GuardId, Verdict};
use deadstop_protocol::policy_file;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::authority::{Asked, Authority, Question, Refusal, Remote, Report, Telling, Told};
use crate::health::ServerHealth;
use crate::pending::{PendingKill, pending, usual_folder};
use crate::refused::Refused;
use crate::session::{Inner, OpenError, Session};
use crate::stop::StopSignal;
use crate::tree::{AGENT, SESSION};

/// The most reports that wait to be sent.
const MOST_WAITING: usize = 4096;
/// How long a call waits for an answer before it goes by the fail mode, unless `DEADSTOP_PATIENCE`
/// says otherwise, in seconds.
const ASKING: Patience =
    Patience { connect: Duration::from_secs(1), answer: Duration::from_secs(5) };
/// The server holds a listener for less than this.
const LISTENING: Patience =
    Patience { connect: Duration::from_secs(1), answer: Duration::from_secs(60) };
/// How long a question waits for the reports before it.
const TURN: Duration = Duration::from_secs(2);
/// How often a waiting question looks for a stop.
const LOOK: Duration = Duration::from_millis(20);
/// Back-off between two attempts to reach the server.
const RETRY: Duration = Duration::from_millis(200);

/// How often a draining session is checked for calls in flight.
const DRAINING: Duration = Duration::from_millis(10);

/// How long a call waits for an answer here.
fn asking() -> Patience {
    let said = std::env::var("DEADSTOP_PATIENCE").ok().and_then(|said| said.trim().parse().ok());
    let answer = said.filter(|seconds| *seconds > 0).map(Duration::from_secs);
    Patience { answer: answer.unwrap_or(ASKING.answer), ..ASKING }
}

/// Where the server is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Address {
    pub(crate) url: String,
    /// Where kills are kept until the server has them.
    pub(crate) folder: Option<PathBuf>,
}

impl Address {
    fn server(&self) -> Result<Server, ClientError> {
        Ok(Server { url: self.url.clone(), ..Server::from_env()? })
    }
}

/// Opens a session at its server. A server that does not answer is tried again in the background.
pub(crate) fn connect(session: &Session, address: &Address) -> Result<(), OpenError> {
    let server = address.server()?;
    let line = Arc::new(ServerLink::new(session, address, &server)?);
    let noted = line.deliver();
    match line.open() {
        // It was killed in an earlier process, and the server has not heard of it yet.
        Ok(()) if noted.is_some() => {}
        Ok(()) => return line.start(session, &server).map_err(OpenError::from),
        Err(error) if error.is_not_reached() && noted.is_none() => line.lost(&error),
        Err(error) if error.is_not_reached() => {}
        Err(error) => match error.death() {
            Some(death) => return Err(killed(session, &death.detail)),
            None => return Err(error.into()),
        },
    }
    match noted {
        Some(noted) => Err(killed(session, &noted.reason)),
        None => Ok(line.start(session, &server)?),
    }
}

/// The error for a session that was killed before it was opened.
fn killed(session: &Session, why: &str) -> OpenError {
    session.end("the server", why);
    match session.root().why_stopped() {
        Refused::Killed(killed) => OpenError::Killed(killed),
        Refused::Blocked(_) => OpenError::Server(ClientError::Malformed(why.to_owned())),
    }
}

/// The same for a forked process, which cannot be told what is wrong. The session is open at the
/// server, and its first call learns whether the server answers.
pub(crate) fn connect_later(session: &Session, address: &Address) {
    let Ok(server) = address.server() else { return };
    let Ok(line) = ServerLink::new(session, address, &server) else { return };
    let _ = Arc::new(line).start(session, &server);
}

/// The connection to the server.
struct ServerLink {
    session: Weak<Inner>,
    client: Client,
    url: String,
    project: Option<String>,
    folder: Option<PathBuf>,
    agent: String,
    name: String,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Telling>,
    /// How many reports were queued, and how many were sent or dropped.
    put: u64,
    done: u64,
    dropped: u64,
    /// What went wrong, while the server is away.
    away: Option<String>,
    /// A kill that the server has not heard of.
    kill: Option<String>,
    knows_kill: bool,
    /// How often an operator has cleared what was killed.
    revivals: u64,
    closed: bool,
}

/// What the server says when something has changed.
#[derive(Debug, Deserialize)]
struct Standing {
    version: String,
    state: Stands,
    why: Option<String>,
    /// Which scope is over: `session`, `agent` or `project`.
    #[serde(default)]
    ended: Option<String>,
    policy: Value,
}

/// How a session stands at the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Stands {
    /// Calls are admitted.
    Running,
    /// An operator holds it.
    Paused,
    /// It is over, and calls in flight may finish.
    Draining,
    /// It is over.
    Killed,
    /// A state that a newer server has.
    #[serde(other)]
    Other,
}

impl ServerLink {
    fn new(
        session: &Session,
        address: &Address,
        server: &Server,
    ) -> Result<ServerLink, ClientError> {
        Ok(ServerLink {
            session: Arc::downgrade(&session.0),
            client: Client::patient(server, asking())?,
            url: server.url.clone(),
            project: server.project.clone(),
            folder: address.folder.clone().or_else(usual_folder),
            agent: session.agent().to_owned(),
            name: session.name().to_owned(),
            queue: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn start(
        self: &Arc<ServerLink>,
        session: &Session,
        server: &Server,
    ) -> Result<(), ClientError> {
        let listener = Client::patient(server, LISTENING)?;
        session.govern(Arc::clone(self) as Arc<dyn Authority>);
        let (tells, listens) = (Arc::clone(self), Arc::clone(self));
        let started = std::thread::Builder::new()
            .name("deadstop-tells".to_owned())
            .spawn(move || tells.telling())
            .and_then(|_| {
                let thread = std::thread::Builder::new().name("deadstop-listens".to_owned());
                thread.spawn(move || listens.listening(&listener))
            });
        started.map(drop).map_err(|error| ClientError::BadServer(format!("no thread: {error}")))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session(&self) -> Option<Session> {
        self.session.upgrade().map(Session)
    }

    /// Waits until something has changed, or for so long.
    fn wait<'a>(&'a self, queue: MutexGuard<'a, Queue>, most: Duration) -> MutexGuard<'a, Queue> {
        self.changed.wait_timeout(queue, most).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Tells the server about kills of earlier processes; gives that of this session, if the server
    /// still has not heard of it.
    fn deliver(&self) -> Option<PendingKill> {
        let folder = self.folder.as_deref()?;
        let kept = pending(folder, &self.url, self.project.as_deref());
        let is_own = |kill: &&PendingKill| kill.agent == self.agent && kill.session == self.name;
        let mut own = kept.iter().find(is_own).cloned();
        for kill in &kept {
            match self.post_kill(&kill.agent, &kill.session, &kill.reason) {
                Err(error) if error.is_not_reached() => break,
                Err(error) if error.death().is_none() => continue,
                Ok(_) | Err(_) => kill.delivered(folder),
            }
            if is_own(&kill) {
                own = None;
            }
        }
        own
    }

    fn post_kill(&self, agent: &str, session: &str, reason: &str) -> Result<Value, ClientError> {
        let path = format!("/api/sessions/{}/{}/kill", escaped(agent), escaped(session));
        let reason: String = reason.chars().take(900).collect();
        let body = json!({ "reason": reason, "by": "the agent's process" });
        match self.client.post(&path, &body) {
            // A session that made no call yet is not known after a restart: it is opened, to be killed.
            Err(ClientError::Refused(refusal)) if refusal.status == 404 => {
                self.client.open(agent, Some(session), None)?;
                self.client.post(&path, &body)
            }
            told => told,
        }
    }

    /// Opens the session there and takes its policy over.
    fn open(&self) -> Result<(), ClientError> {
        let opened = self.client.open(&self.agent, Some(&self.name), None)?;
        self.follow(&opened.policy);
        self.queue().away = None;
        self.changed.notify_all();
        Ok(())
    }

    fn follow(&self, policy: &Value) {
        let read = policy_file::parse(&policy.to_string(), "the server's policy.json");
        if let (Some(session), Ok(policies)) = (self.session(), read) {
            session.set_policy(policies);
        }
    }

    /// The server does not answer: calls no longer wait for it.
    fn lost(&self, error: &ClientError) {
        self.queue().away = Some(error.to_string());
        self.changed.notify_all();
    }

    /// The session, its agent or its project is dead at the server.
    fn dead(&self, at: usize, why: &str) {
        self.queue().knows_kill = true;
        self.changed.notify_all();
        if let Some(session) = self.session() {
            session.end_at(at, "the server", why);
        }
    }

    fn put(&self, client: &Client, question: &Question<'_>) -> Result<Decided, ClientError> {
        let Question { id, scope, call } = *question;
        let (agent, name, scope) = (&self.agent, &self.name, scope.to_vec());
        match call {
            Asked::Tool { tool, server, arguments } => {
                let call = ProposedCall {
                    id: id.to_owned(),
                    tool: tool.clone(),
                    server: server.clone(),
                    arguments: arguments.clone(),
                    ..ProposedCall::default()
                };
                let proposal = Proposal { calls: vec![call], scope, hold_s: 0 };
                let first = client.propose(agent, name, &proposal)?.into_iter().next();
                first.ok_or_else(|| ClientError::Malformed("no decision".to_owned()))
            }
            Asked::Model { model, provider, input, max_output, prompt, from_person, compacted } => {
                let call = Preflight {
                    id: id.to_owned(),
                    model: model.clone(),
                    provider: provider.clone(),
                    input_tokens: *input,
                    max_output_tokens: *max_output,
                    prompt: prompt.clone(),
                    from_person: *from_person,
                    compacted: *compacted,
                    scope,
                };
                client.preflight(agent, name, &call)
            }
        }
    }

    fn told(&self, decided: Result<Decided, ClientError>) -> Told {
        match decided {
            Ok(decided) if decided.allowed => Told::Allowed(steer(decided)),
            Ok(decided) => {
                let first = decided.trips.into_iter().next();
                let Some(trip) = first else {
                    return Told::Refused(Box::new(unspoken("refused")));
                };
                let verdict = decided.verdict.max(Verdict::Ask);
                Told::Refused(Box::new(spoken(verdict, trip, decided.incident)))
            }
            Err(ClientError::Cancelled) => Told::Stopped,
            Err(ClientError::Refused(problem)) if problem.status < 500 => {
                let verdict = if problem.is_death() { Verdict::Kill } else { Verdict::Block };
                if problem.is_death() {
                    self.queue().knows_kill = true;
                }
                let explain = match verdict {
                    Verdict::Kill => format!("stopped: {}", problem.detail),
                    _ => format!("blocked: {}", problem.detail),
                };
                let guard = if problem.is_death() { "killed" } else { "server" }.to_owned();
                let ended = problem.is_death().then(|| ended_at(problem.ended.as_deref()));
                let told = unspoken(&problem.code);
                Told::Refused(Box::new(Refusal { verdict, guard, explain, ended, ..told }))
            }
            Err(error) => {
                self.lost(&error);
                Told::Away
            }
        }
    }

    /// Reports ends and kills, one after the other.
    fn telling(&self) {
        loop {
            let mut queue = self.queue();
            while queue.away.is_none() && queue.kill.is_none() && queue.waiting.is_empty() {
                if queue.closed {
                    drop(queue);
                    // The session is over. If that is not heard, it is idle after a while.
                    let _ = self.client.open_with(&Opening { done: true, ..self.opening() });
                    return;
                }
                queue = self.wait(queue, Duration::from_secs(60));
            }
            if queue.away.is_some() {
                if queue.closed {
                    return;
                }
                queue = self.wait_away(queue);
                drop(queue);
                self.find();
                continue;
            }
            if let Some(reason) = queue.kill.clone() {
                drop(queue);
                self.tell_kill(&reason);
                continue;
            }
            let Some(telling) = queue.waiting.pop_front() else { continue };
            drop(queue);
            let told = match &telling {
                Telling::Ended(report) => self.report(report),
                Telling::Compacted(scope) => self.compacted(scope),
            };
            if let Err(error) = told {
                // It is told first when the server is back.
                let mut queue = self.queue();
                queue.waiting.push_front(telling);
                queue.away = Some(error.to_string());
                continue;
            }
            self.queue().done += 1;
            self.changed.notify_all();
        }
    }

    fn wait_away<'a>(&'a self, mut queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        let until = Instant::now() + RETRY;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            if queue.closed {
                break;
            }
            queue = self.wait(queue, left);
        }
        queue
    }

    /// Tries to reach a server that did not answer.
    fn find(&self) {
        match self.open() {
            Ok(()) => {}
            Err(ClientError::Refused(problem)) if problem.is_death() => {
                self.queue().away = None;
                self.dead(ended_at(problem.ended.as_deref()), &problem.detail);
            }
            Err(error) => self.queue().away = Some(error.to_string()),
        }
    }

    fn tell_kill(&self, reason: &str) {
        let told = self.post_kill(&self.agent, &self.name, reason);
        let mut queue = self.queue();
        match told {
            Ok(_) => (queue.kill, queue.knows_kill) = (None, true),
            Err(ClientError::Refused(problem)) if problem.status < 500 => {
                queue.kill = None;
                queue.knows_kill = problem.is_death();
            }
            Err(error) => queue.away = Some(error.to_string()),
        }
        let heard = queue.kill.is_none();
        drop(queue);
        if let Some(folder) = self.folder.as_deref().filter(|_| heard) {
            self.pending_kill(reason).delivered(folder);
        }
        self.changed.notify_all();
    }

    fn pending_kill(&self, reason: &str) -> PendingKill {
        PendingKill {
            url: self.url.clone(),
            project: self.project.clone(),
            agent: self.agent.clone(),
            session: self.name.clone(),
            reason: reason.to_owned(),
        }
    }

    /// What names this session at the server.
    fn opening(&self) -> Opening {
        let (agent, session) = (self.agent.clone(), Some(self.name.clone()));
        Opening { agent, session, ..Opening::default() }
    }

    /// Tells that a context was compacted. A refusal is heard of at the next call.
    fn compacted(&self, scope: &[String]) -> Result<(), ClientError> {
        let opening = Opening { scope: scope.to_vec(), compacted: true, ..self.opening() };
        match self.client.open_with(&opening) {
            Ok(_) => Ok(()),
            Err(ClientError::Refused(refusal)) if refusal.status < 500 => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reports how a call ended; first that it was made, if the server was away then.
    fn report(&self, report: &Report) -> Result<(), ClientError> {
        let Remote { id, late } = &report.remote;
        if let Some(asked) = late {
            let question = Question { id, scope: &report.scope, call: asked };
            match self.told(self.put(&self.client, &question)) {
                Told::Allowed(_) => {}
                Told::Away | Told::Stopped => {
                    return Err(ClientError::Malformed("away".to_owned()));
                }
                Told::Refused(refusal) if refusal.verdict == Verdict::Kill => {
                    self.dead(SESSION, &refusal.explain);
                    return Ok(());
                }
                Told::Refused(_) => return Ok(()),
            }
        }
        let receipt = Receipt {
            id: id.clone(),
            status: report.outcome.status.into(),
            usage: report.outcome.usage.into(),
            text: report.text.clone(),
            scope: report.scope.clone(),
            ..Receipt::default()
        };
        match self.client.receipt(&self.agent, &self.name, &receipt) {
            Ok(decided) if decided.verdict == Verdict::Kill => {
                let trip = decided.trips.into_iter().next();
                let (why, code) = trip.map(|trip| (trip.explain, trip.reason)).unwrap_or_default();
                if let Some(session) = self.session().filter(|_| !code.contains("killed")) {
                    session.tree().caused_by(SESSION, &code);
                }
                self.dead(SESSION, &why);
                Ok(())
            }
            Ok(decided) => {
                if let Some(steer) = steer(decided).filter(|_| !report.steered)
                    && let Some(session) = self.session()
                {
                    session.steer_later(&report.scope, *steer);
                }
                Ok(())
            }
            Err(ClientError::Refused(problem)) if problem.is_death() => {
                // The listener hears when it is over: a used-up limit lets other calls finish, and an
                // operator may have cleared the agent while this answer was on its way.
                let at = ended_at(problem.ended.as_deref());
                if at == SESSION && !GuardId::is_used_up(&problem.code) {
                    self.dead(at, &problem.detail);
                }
                Ok(())
            }
            // The server does not know the call, or does not accept the report.
            Err(ClientError::Refused(problem)) if problem.status < 500 => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Listens for what changes at the server.
    fn listening(&self, client: &Client) {
        let mut version = String::new();
        let base = format!("/api/sessions/{}/{}/follow", escaped(&self.agent), escaped(&self.name));
        loop {
            if self.queue().closed || self.session.strong_count() == 0 {
                return;
            }
            let heard = client.get(&format!("{base}?after={version}"));
            let heard = heard.map(serde_json::from_value::<Standing>);
            match heard {
                Ok(Ok(standing)) if standing.version != version => {
                    version.clone_from(&standing.version);
                    self.hear(&standing);
                }
                Ok(Ok(_)) => {}
                Ok(Err(_)) | Err(_) => {
                    // The reporting thread tries to reach the server.
                    if let Err(error) = &heard
                        && error.is_not_reached()
                    {
                        self.lost(error);
                    }
                    let mut queue = self.queue();
                    queue = self.wait_away(queue);
                    drop(queue);
                }
            }
        }
    }

    /// The session is over at the server, and calls in flight may finish: new ones are refused there.
    fn drain(&self, session: &Session, why: &str) {
        self.queue().knows_kill = true;
        self.changed.notify_all();
        let (watched, why) = (Arc::downgrade(&session.0), why.to_owned());
        let waiting = move || {
            while let Some(session) = watched.upgrade().map(Session) {
                if session.is_idle() || session.is_killed() {
                    return session.end("the server", &why);
                }
                drop(session);
                std::thread::sleep(DRAINING);
            }
        };
        if std::thread::Builder::new().name("deadstop-drains".to_owned()).spawn(waiting).is_err() {
            session.end("the server", "no thread was left to wait for calls in flight");
        }
    }

    fn hear(&self, standing: &Standing) {
        let Some(session) = self.session() else { return };
        let why = standing.why.as_deref().unwrap_or("no reason given");
        if matches!(standing.state, Stands::Running | Stands::Paused) && session.revive() {
            let mut queue = self.queue();
            (queue.knows_kill, queue.kill) = (false, None);
            queue.revivals += 1;
        }
        match standing.state {
            Stands::Killed => self.dead(ended_at(standing.ended.as_deref()), why),
            Stands::Draining => self.drain(&session, why),
            Stands::Paused => session.tree().pause(SESSION, Some(why), session.now()),
            Stands::Running | Stands::Other => {
                session.tree().pause(SESSION, None, session.now());
            }
        }
        self.follow(&standing.policy);
    }
}

impl Authority for ServerLink {
    fn ask(&self, question: &Question<'_>, until: [&StopSignal; 2]) -> Told {
        let stopped = || until.iter().any(|signal| signal.is_stopped());
        let mut queue = self.queue();
        let (turn, latest) = (queue.put, Instant::now() + TURN);
        while queue.away.is_none() && queue.done < turn && !stopped() {
            let Some(left) = latest.checked_duration_since(Instant::now()) else { break };
            queue = self.wait(queue, left.min(LOOK));
        }
        if queue.away.is_some() {
            return Told::Away;
        }
        drop(queue);
        // A stop ends the request, however long the server takes.
        let cancel = Cancel::default();
        let client = self.client.cancelled_by(&cancel);
        let _watches = until.map(|signal| {
            let cancel = cancel.clone();
            signal.on_stop(move || cancel.cancel())
        });
        loop {
            let revivals = self.queue().revivals;
            let decided = self.put(&client, question);
            // A refusal from before an operator cleared the agent says nothing about now.
            if is_death(&decided) && self.queue().revivals != revivals {
                continue;
            }
            let Some(id) = waits_for(&decided) else { return self.told(decided) };
            // A person is asked.
            match client.get(&format!("/api/approvals/{}?wait=2", escaped(&id))) {
                Ok(_) => {}
                Err(ClientError::Cancelled) => return Told::Stopped,
                Err(_) => return self.told(decided),
            }
        }
    }

    fn tell(&self, telling: Telling) {
        let mut queue = self.queue();
        if queue.waiting.len() >= MOST_WAITING {
            queue.waiting.pop_front();
            queue.dropped += 1;
            queue.done += 1;
        }
        queue.waiting.push_back(telling);
        queue.put += 1;
        drop(queue);
        self.changed.notify_all();
    }

    fn killed(&self, reason: &str) {
        let mut queue = self.queue();
        if queue.knows_kill || queue.kill.is_some() {
            return;
        }
        queue.kill = Some(reason.to_owned());
        drop(queue);
        if let Some(folder) = &self.folder {
            // Without a file the kill still holds here, and the server is told all the same.
            let _ = self.pending_kill(reason).keep(folder);
        }
        self.changed.notify_all();
    }

    fn health(&self) -> ServerHealth {
        let closed = |session: &Session| session.policies().session.fail_mode;
        let fail_mode = self.session().as_ref().map_or(FailMode::Open, closed);
        let queue = self.queue();
        ServerHealth {
            url: self.url.clone(),
            connected: queue.away.is_none(),
            problem: queue.away.clone(),
            fail_mode,
            waiting: queue.waiting.len(),
            dropped: queue.dropped,
            knows_kill: queue.knows_kill,
        }
    }

    fn flush(&self, most: Duration) {
        let until = Instant::now() + most;
        let mut queue = self.queue();
        let turn = queue.put;
        while queue.away.is_none() && (queue.done < turn || queue.kill.is_some()) {
            let Some(left) = until.checked_duration_since(Instant::now()) else { break };
            queue = self.wait(queue, left);
        }
    }

    fn close(&self) {
        self.queue().closed = true;
        self.changed.notify_all();
    }
}

/// Whether a scope is over at the server, by this answer.
fn is_death(decided: &Result<Decided, ClientError>) -> bool {
    match decided {
        Ok(decided) => decided.verdict == Verdict::Kill,
        Err(error) => error.death().is_some(),
    }
}

/// The id of the question to a person that a call waits for, if it does.
fn waits_for(decided: &Result<Decided, ClientError>) -> Option<String> {
    let decided = decided.as_ref().ok().filter(|decided| decided.verdict == Verdict::Ask)?;
    decided.approval.clone()
}

/// Where a scope that is over is in the tree.
fn ended_at(kind: Option<&str>) -> usize {
    match kind {
        Some("project") => 0,
        Some("agent") => AGENT,
        _ => SESSION,
    }
}

/// What the server has to say to the model about a call that may go ahead.
fn steer(decided: Decided) -> Option<Box<Refusal>> {
    let Decided { verdict, trips, incident, .. } = decided;
    let trip = trips.into_iter().find(|trip| trip.advice.is_some());
    let trip = trip.filter(|_| verdict == Verdict::Steer)?;
    Some(Box::new(spoken(verdict, trip, incident)))
}

/// A guard's words at the server.
fn spoken(verdict: Verdict, trip: Spoken, incident: Option<String>) -> Refusal {
    Refusal {
        verdict,
        guard: trip.guard,
        ended: match trip.reason.as_str() {
            "project_killed" => Some(0),
            "agent_killed" => Some(AGENT),
            _ => None,
        },
        reason: trip.reason,
        cause: None,
        explain: trip.explain,
        measured: trip.measured,
        limit: trip.limit,
        incident,
        advice: trip.advice,
    }
}

fn unspoken(code: &str) -> Refusal {
    Refusal {
        verdict: Verdict::Block,
        guard: "server".to_owned(),
        reason: code.to_owned(),
        ended: None,
        cause: None,
        explain: format!("blocked: {}", code.replace('_', " ")),
        measured: json!({ "unit": "none" }),
        limit: json!({ "unit": "none" }),
        incident: None,
        advice: None,
    }
}
