//! A server that has the last word: asked before each call, told afterwards, and listened to.
//!
//! Questions are asked on the thread that makes the call. Ends are told by a thread of their own, in
//! order, out of a bounded queue. Another thread listens: a kill, a hold or a new policy arrives as
//! soon as the server knows of it. Once the server does not answer nobody waits for it any more,
//! until the first of these threads has found it again.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use deadstop_client::{
    Approval, Client, ClientError, Decided, Ended, Patience, Preflight, Problem, ProposedCall,
    Receipt, Server, Used, escaped,
};
use deadstop_core::{FailMode, Status, Verdict};
use deadstop_protocol::policy_file;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::authority::{Asked, Authority, Question, Refusal, Remote, Report, Told};
use crate::health::ServerHealth;
use crate::session::{Inner, OpenError, Session};
use crate::tree::SESSION;

/// Ends that wait to be told.
const MOST_WAITING: usize = 4096;
/// How long a call waits for an answer before it goes by the fail mode, unless `DEADSTOP_PATIENCE`
/// says otherwise, in seconds.
const ASKING: Patience =
    Patience { connect: Duration::from_secs(1), answer: Duration::from_secs(5) };
/// The server holds a listener for less than this.
const LISTENING: Patience =
    Patience { connect: Duration::from_secs(1), answer: Duration::from_secs(60) };
/// How long a question waits for the ends before it.
const TURN: Duration = Duration::from_secs(2);
/// How long a kill waits to be lasting.
const LASTING: Duration = Duration::from_secs(2);
/// Between two attempts to find a server that is away.
const RETRY: Duration = Duration::from_millis(200);

/// What the server says of a session whose limit was used up.
pub(crate) const USED_UP: &str = "session_killed_budget";
/// How often is looked whether calls that may finish have.
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
}

impl Address {
    fn server(self) -> Result<Server, ClientError> {
        Ok(Server { url: self.url, ..Server::from_env()? })
    }
}

/// Opens a session at its server. One that is away is looked for from then on.
pub(crate) fn connect(session: &Session, address: Address) -> Result<(), OpenError> {
    let bad = |error: ClientError| OpenError::Server(error.to_string());
    let server = address.server().map_err(bad)?;
    let line = Arc::new(Line::new(session, &server).map_err(bad)?);
    match line.open() {
        Ok(()) => {}
        Err(error) if error.is_not_reached() => line.lost(&error),
        Err(error) => return Err(bad(error)),
    }
    line.start(session, &server).map_err(bad)
}

/// The same for a process that was forked off, which cannot be told what is wrong. The session is
/// open there, and its first call finds out whether the server is.
pub(crate) fn connect_later(session: &Session, address: Address) {
    let Ok(server) = address.server() else { return };
    let Ok(line) = Line::new(session, &server) else { return };
    let _ = Arc::new(line).start(session, &server);
}

/// The line to the server.
struct Line {
    session: Weak<Inner>,
    client: Client,
    url: String,
    agent: String,
    name: String,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Report>,
    /// How many were put in, and how many are done with.
    put: u64,
    done: u64,
    dropped: u64,
    /// What went wrong, while the server is away.
    away: Option<String>,
    /// A kill that it has not heard of.
    kill: Option<String>,
    knows_kill: bool,
    closed: bool,
}

/// What the server says when something has changed.
#[derive(Debug, Deserialize)]
struct Standing {
    version: String,
    /// `running`, `paused`, `draining` or `killed`.
    state: String,
    why: Option<String>,
    policy: Value,
}

impl Line {
    fn new(session: &Session, server: &Server) -> Result<Line, ClientError> {
        Ok(Line {
            session: Arc::downgrade(&session.0),
            client: Client::patient(server, asking())?,
            url: server.url.clone(),
            agent: session.agent().to_owned(),
            name: session.name().to_owned(),
            queue: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn start(self: &Arc<Line>, session: &Session, server: &Server) -> Result<(), ClientError> {
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

    /// The server does not answer: from now on nobody waits for it.
    fn lost(&self, error: &ClientError) {
        self.queue().away = Some(error.to_string());
        self.changed.notify_all();
    }

    /// The session is dead at the server.
    fn dead(&self, why: &str) {
        self.queue().knows_kill = true;
        self.changed.notify_all();
        if let Some(session) = self.session() {
            session.end("the server", why);
        }
    }

    fn put(&self, question: &Question<'_>) -> Result<Decided, ClientError> {
        let Question { id, scope, call } = *question;
        let (agent, name) = (&self.agent, &self.name);
        match call {
            Asked::Tool { tool, server, arguments } => {
                let server = server.as_deref();
                let call = ProposedCall { id, tool, server, arguments, harms: None };
                let decided = self.client.propose(agent, name, scope, &[call])?;
                let first = decided.into_iter().next();
                first.ok_or_else(|| ClientError::Malformed("no decision".to_owned()))
            }
            Asked::Model { model, provider, input, max_output, prompt, from_person } => {
                let call = Preflight {
                    id,
                    model,
                    provider: provider.as_deref(),
                    input_tokens: *input,
                    max_output_tokens: *max_output,
                    prompt: prompt.as_deref(),
                    from_person: *from_person,
                };
                self.client.preflight(agent, name, scope, &call)
            }
        }
    }

    fn told(&self, decided: Result<Decided, ClientError>) -> Told {
        match decided {
            Ok(decided) if decided.allowed => Told::Allowed,
            Ok(decided) => {
                let first = decided.trips.into_iter().next();
                let Some(trip) = first else { return Told::Refused(unspoken("refused")) };
                Told::Refused(Refusal {
                    verdict: decided.verdict.max(Verdict::Ask),
                    guard: trip.guard,
                    reason: trip.reason,
                    explain: trip.explain,
                    measured: trip.measured,
                    limit: trip.limit,
                    incident: decided.incident,
                })
            }
            Err(ClientError::Refused(problem)) if problem.status < 500 => {
                let verdict = if dies(&problem) { Verdict::Kill } else { Verdict::Block };
                if dies(&problem) {
                    self.queue().knows_kill = true;
                }
                let explain = match verdict {
                    Verdict::Kill => format!("stopped: {}", problem.detail),
                    _ => format!("blocked: {}", problem.detail),
                };
                Told::Refused(Refusal { verdict, explain, ..unspoken(&problem.code) })
            }
            Err(error) => {
                self.lost(&error);
                Told::Away
            }
        }
    }

    /// Tells of ends and kills, one after the other.
    fn telling(&self) {
        loop {
            let mut queue = self.queue();
            while queue.away.is_none() && queue.kill.is_none() && queue.waiting.is_empty() {
                if queue.closed {
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
            let Some(report) = queue.waiting.pop_front() else { continue };
            drop(queue);
            if let Err(error) = self.report(&report) {
                // It is told when the server is back, before all others.
                let mut queue = self.queue();
                queue.waiting.push_front(report);
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

    /// Looks for a server that was away.
    fn find(&self) {
        match self.open() {
            Ok(()) => {}
            Err(ClientError::Refused(problem)) if dies(&problem) => {
                self.queue().away = None;
                self.dead(&problem.detail);
            }
            Err(error) => self.queue().away = Some(error.to_string()),
        }
    }

    fn tell_kill(&self, reason: &str) {
        let path = format!("/api/sessions/{}/{}/kill", escaped(&self.agent), escaped(&self.name));
        let reason: String = reason.chars().take(900).collect();
        let body = json!({ "reason": reason, "by": "the agent's process" });
        let told: Result<Value, ClientError> = self.client.post(&path, &body);
        let mut queue = self.queue();
        match told {
            Ok(_) => (queue.kill, queue.knows_kill) = (None, true),
            Err(ClientError::Refused(problem)) if problem.status < 500 => {
                queue.kill = None;
                queue.knows_kill = dies(&problem);
            }
            Err(error) => queue.away = Some(error.to_string()),
        }
        drop(queue);
        self.changed.notify_all();
    }

    /// Tells how a call ended, and that it was made, if the server was away then.
    fn report(&self, report: &Report) -> Result<(), ClientError> {
        let Remote { id, late } = &report.remote;
        if let Some(asked) = late {
            let question = Question { id, scope: &report.scope, call: asked };
            match self.told(self.put(&question)) {
                Told::Allowed => {}
                Told::Away => return Err(ClientError::Malformed("away".to_owned())),
                Told::Refused(refusal) if refusal.verdict == Verdict::Kill => {
                    self.dead(&refusal.explain);
                    return Ok(());
                }
                Told::Refused(_) => return Ok(()),
            }
        }
        let usage = &report.outcome.usage;
        let receipt = Receipt {
            id,
            status: match report.outcome.status {
                Status::Ok => Ended::Ok,
                Status::Error => Ended::Error,
                Status::Fault => Ended::Fault,
                Status::Cancelled => Ended::Cancelled,
            },
            usage: Used {
                input: usage.input.0,
                output: usage.output.0,
                cache_read: usage.cache_read.0,
                cache_write: usage.cache_write.0,
            },
            text: report.text.as_deref(),
        };
        match self.client.receipt(&self.agent, &self.name, &report.scope, &receipt) {
            Ok(decided) if decided.verdict == Verdict::Kill => {
                let why = decided.trips.first().map(|trip| trip.explain.clone());
                self.dead(&why.unwrap_or_default());
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(ClientError::Refused(problem)) if dies(&problem) => {
                // Where a limit was used up others may finish; the listener hears of it.
                if problem.code != USED_UP {
                    self.dead(&problem.detail);
                }
                Ok(())
            }
            // The server has forgotten the call, or does not want to hear of it.
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
                    // The other thread looks for the server.
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

    /// The session is over at the server, and what runs may finish: nothing new is let through there.
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
            session.end("the server", "no thread could be had to wait for calls that run");
        }
    }

    fn hear(&self, standing: &Standing) {
        let Some(session) = self.session() else { return };
        let why = standing.why.as_deref().unwrap_or("no reason given");
        match standing.state.as_str() {
            "killed" => self.dead(why),
            "draining" => self.drain(&session, why),
            "paused" => session.tree().pause(SESSION, Some(why), session.now()),
            _ => session.tree().pause(SESSION, None, session.now()),
        }
        self.follow(&standing.policy);
    }
}

impl Authority for Line {
    fn ask(&self, question: &Question<'_>) -> Told {
        let mut queue = self.queue();
        let turn = queue.put;
        let until = Instant::now() + TURN;
        while queue.away.is_none() && queue.done < turn {
            let Some(left) = until.checked_duration_since(Instant::now()) else { break };
            queue = self.wait(queue, left);
        }
        if queue.away.is_some() {
            return Told::Away;
        }
        drop(queue);
        loop {
            let decided = self.put(question);
            let Some(id) = waits_for(&decided) else { return self.told(decided) };
            // A person is asked. Who waits obeys a stop all the same.
            let over = self.session().is_none_or(|session| session.is_killed());
            let path = format!("/api/approvals/{}?wait=2", escaped(&id));
            if over || self.client.get(&path).is_err() {
                return self.told(decided);
            }
        }
    }

    fn tell(&self, report: Report) {
        let mut queue = self.queue();
        if queue.waiting.len() >= MOST_WAITING {
            queue.waiting.pop_front();
            queue.dropped += 1;
            queue.done += 1;
        }
        queue.waiting.push_back(report);
        queue.put += 1;
        drop(queue);
        self.changed.notify_all();
    }

    fn killed(&self, reason: &str, wait: bool) {
        let mut queue = self.queue();
        if queue.knows_kill {
            return;
        }
        queue.kill.get_or_insert_with(|| reason.to_owned());
        self.changed.notify_all();
        let until = Instant::now() + LASTING;
        while wait && !queue.knows_kill && queue.kill.is_some() && queue.away.is_none() {
            let Some(left) = until.checked_duration_since(Instant::now()) else { break };
            queue = self.wait(queue, left);
        }
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

/// The question to a person that a call waits for, if it does.
fn waits_for(decided: &Result<Decided, ClientError>) -> Option<String> {
    let decided = decided.as_ref().ok().filter(|decided| decided.verdict == Verdict::Ask)?;
    match decided.approval.as_ref()? {
        Approval::Id(id) => Some(id.clone()),
        Approval::Whole(all) => all["id"].as_str().map(str::to_owned),
    }
}

/// Whether a refusal says that the session, or what it belongs to, is over.
fn dies(problem: &Problem) -> bool {
    problem.code.contains("killed")
}

fn unspoken(code: &str) -> Refusal {
    Refusal {
        verdict: Verdict::Block,
        guard: "server".to_owned(),
        reason: code.to_owned(),
        explain: format!("blocked: {}", code.replace('_', " ")),
        measured: json!({ "unit": "none" }),
        limit: json!({ "unit": "none" }),
        incident: None,
    }
}
