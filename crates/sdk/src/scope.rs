//! A scope, and the calls that are made in it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use deadstop_core::{
    Answer, Call, FailMode, ModelCall, Outcome, Progress, Status, TextFacts, Ticket, Tokens, Trip,
    Usage, Verdict, admit, admit_approved, progress, settle,
};
use deadstop_protocol::facts;
use serde_json::{Value, json};

use crate::authority::{Asked, Question, Refusal, Remote, Report, Told};
use crate::capture::Capture;
use crate::health::Figures;
use crate::limits::{BadLimit, Limits};
use crate::refused::{Context, Refused, Why};
use crate::session::Session;
use crate::stop::Stop;
use crate::tree::{Ended, Pending, SESSION, ScopeError};

/// A scope of a session: what happens in it is charged to it and to everything above it.
///
/// ```
/// use deadstop_sdk::{Limits, Session};
/// use serde_json::json;
///
/// let session = Session::builder("crew").open()?;
/// let two = Limits { max_steps: Some(2), ..Limits::default() };
/// let researcher = session.scope("researcher", two)?;
/// for page in 1..=2 {
///     researcher.tool("read", &json!({ "page": page }))?.done("text")?;
/// }
/// let killed = researcher.tool("read", &json!({ "page": 3 })).unwrap_err();
/// assert_eq!((killed.why().reason(), killed.why().context.depth), ("max_steps", 1));
/// // What is beside it goes on.
/// assert!(session.tool("write", &json!({})).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Scope {
    pub(crate) session: Session,
    pub(crate) at: usize,
}

/// A model call, as far as whoever makes it knows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelAsk<'a> {
    /// The model.
    pub model: &'a str,
    /// The API or server that it goes to.
    pub provider: Option<&'a str>,
    /// Tokens of the prompt.
    pub input_tokens: u64,
    /// The most tokens that the answer may have.
    pub max_output_tokens: Option<u64>,
    /// What is new in the prompt since the last call.
    pub prompt: Option<&'a str>,
    /// Whether a person has said it.
    pub from_person: bool,
}

impl Scope {
    /// The session that it belongs to.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.session.tree().name(self.at).to_string()
    }

    /// Its names inside the session, the outermost first; none for the session itself.
    pub fn path(&self) -> Vec<String> {
        self.session.tree().names(self.at)
    }

    /// A scope inside it, opened if there is none of this name. Limits that are given replace those
    /// that it had.
    pub fn scope(&self, name: &str, limits: Limits) -> Result<Scope, ScopeError> {
        let now = self.session.now();
        let at = self.session.tree().open(self.at, name, limits, now)?;
        Ok(Scope { session: self.session.clone(), at })
    }

    /// Sets its limits, also while it is in use; they hold from the next call on.
    pub fn set_limits(&self, limits: Limits) -> Result<(), BadLimit> {
        limits.check()?;
        self.session.tree().limit(self.at, limits);
        Ok(())
    }

    /// Its limits.
    pub fn limits(&self) -> Limits {
        self.session.tree().limits(self.at)
    }

    /// What it has used.
    pub fn figures(&self) -> Figures {
        Figures::of(self.session.tree().state(self.at))
    }

    /// The stop that comes when it, or anything above it, is killed.
    pub fn stop(&self) -> Stop {
        self.session.tree().stop(self.at)
    }

    /// Ends it, for good, and all below it; what is beside it goes on.
    pub fn kill(&self, reason: &str) {
        if self.at <= SESSION {
            return self.session.kill(reason);
        }
        let now = self.session.now();
        let ended = self.session.tree().kill(self.at, "the agent's process", reason, now);
        self.session.carry_out(ended.into_iter().collect());
    }

    /// Has a function told of what trips in it. It cannot prevent anything.
    pub fn on_tripped(&self, observer: impl Fn(&Why) + Send + Sync + 'static) {
        self.session.tree().observe(self.at, Arc::new(observer));
    }

    /// Where other processes find it: variables for their environment.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("DEADSTOP_AGENT", self.session.agent().to_owned()),
            ("DEADSTOP_SESSION", self.session.name().to_owned()),
        ];
        let path = self.path();
        if !path.is_empty() {
            all.push(("DEADSTOP_SCOPE", path.join("/")));
        }
        if let Some(authority) = self.session.authority() {
            all.push(("DEADSTOP_SERVER", authority.health().url));
        }
        all
    }

    /// May a tool be called? Tell the call that it is done, or drop it and it counts as broken off.
    pub fn tool(&self, name: &str, arguments: &Value) -> Result<Running, Refused> {
        self.tool_on(name, None, arguments)
    }

    /// The same for a tool that runs on a server: the breaker counts per server.
    pub fn tool_on(
        &self,
        name: &str,
        server: Option<&str>,
        arguments: &Value,
    ) -> Result<Running, Refused> {
        let mut call = facts::tool_call(name, arguments);
        if let Some(server) = server {
            call.server = Some(server.to_owned());
        }
        let call = Call::Tool(call);
        let claimed = self.session.tree().claim(self.at, &call);
        match claimed {
            Some((at, pending)) if at == self.at => return self.resume(pending),
            // Asked for outside, run in here: it is charged here, too.
            Some((at, pending)) => Scope { at, ..self.clone() }.give_up(pending),
            None => {}
        }
        self.admit(call, || Asked::Tool {
            tool: name.to_owned(),
            server: server.map(str::to_owned),
            arguments: arguments.clone(),
        })
    }

    /// May a model be asked? For calls that are made over HTTP see [`Scope::request`].
    pub fn model(&self, ask: &ModelAsk<'_>) -> Result<Running, Refused> {
        let call = Call::Model(ModelCall {
            model: ask.model.to_owned(),
            server: ask.provider.map(str::to_owned),
            rates: self.session.prices().price(ask.model).rates,
            input: Tokens(ask.input_tokens),
            max_output: ask.max_output_tokens.map(Tokens),
            prompt: ask.prompt.map(TextFacts::of),
            from_person: ask.from_person,
            compacted: false,
        });
        self.admit(call, || Asked::Model {
            model: ask.model.to_owned(),
            provider: ask.provider.map(str::to_owned),
            input: ask.input_tokens,
            max_output: ask.max_output_tokens,
            prompt: ask.prompt.map(str::to_owned),
            from_person: ask.from_person,
        })
    }

    /// Asks the engine here, and whoever has the last word.
    pub(crate) fn admit(
        &self,
        call: Call,
        asked: impl FnOnce() -> Asked,
    ) -> Result<Running, Refused> {
        let Some(authority) = self.session.authority() else {
            return self.admit_here(call, Word::None);
        };
        // What is refused here need not be asked there; what is refused there must leave no trace
        // here. So it is tried on a copy first.
        let now = self.session.now();
        let tree = self.session.tree();
        let verdict = tree.attempt(self.at, |links| admit(links, &call, now).verdict);
        let closed = tree.policies().session.fail_mode == FailMode::Closed;
        drop(tree);
        if verdict > Verdict::Ask {
            return self.admit_here(call, Word::None);
        }
        let word = if verdict == Verdict::Ask { Word::Approved } else { Word::None };
        let (id, asked, scope) = (self.session.call_id(), asked(), self.path());
        let asking = Asking::new(&self.session);
        let remote = match authority.ask(&Question { id: &id, scope: &scope, call: &asked }) {
            Told::Allowed => Remote { id, late: None },
            // Nobody is there who could be asked.
            Told::Away if word == Word::Approved => return self.admit_here(call, Word::None),
            Told::Away if closed => {
                let why = "the server is away, and the policy's fail_mode says closed";
                return Err(self.refuse(Refusal {
                    explain: format!("blocked: {why}"),
                    guard: "server".to_owned(),
                    ..unheard(Verdict::Block, "server_away")
                }));
            }
            // The server hears of it when it is back.
            Told::Away => Remote { id, late: Some(asked) },
            Told::Refused(refusal) => {
                drop(asking);
                // A limit that is used up lets finish what was let pass before; once that is done,
                // whoever listens to the server ends the session.
                let drains = ["steps", "tokens", "budget", "time"].contains(&&*refusal.guard)
                    || refusal.reason == crate::govern::USED_UP;
                let now_or_later = !drains || self.session.is_idle();
                if refusal.verdict == Verdict::Kill && now_or_later {
                    let mut tree = self.session.tree();
                    let ended = tree.kill(self.at, "the server", &refusal.explain, now);
                    drop(tree);
                    self.session.carry_out(ended.into_iter().collect());
                }
                return Err(self.refuse(refusal));
            }
        };
        let admitted = self.admit_here(call, word);
        drop(asking);
        match admitted {
            Ok(mut running) => {
                running.remote = Some(remote);
                Ok(running)
            }
            Err(refused) => {
                // Somebody else was faster: what was set aside there is given back.
                let outcome = Outcome { status: Status::Cancelled, ..Outcome::default() };
                authority.tell(Report { remote, scope, outcome, text: None });
                Err(refused)
            }
        }
    }

    fn admit_here(&self, call: Call, word: Word) -> Result<Running, Refused> {
        let now = self.session.now();
        let mut tree = self.session.tree();
        let (admission, ended) = tree.decide(self.at, |links| match word {
            Word::None => admit(links, &call, now),
            Word::Approved => admit_approved(links, &call, now),
        });
        let stop = tree.stop(self.at);
        drop(tree);
        let what = if admission.ticket.is_some() { "admitted" } else { "refused" };
        self.note(what, &call, admission.verdict, &admission.trips, ended);
        let Some(ticket) = admission.ticket else {
            return Err(Refused::by(&admission.trips)
                .unwrap_or_else(|| self.refuse(unheard(Verdict::Block, "refused"))));
        };
        let warnings = admission.trips.iter().map(Why::of).collect();
        let (scope, ticket) = (self.clone(), Some(ticket));
        Ok(Running { scope, call, ticket, remote: None, stop, warnings })
    }

    /// A call of an answer that is now run: it was admitted when the answer came.
    fn resume(&self, pending: Pending) -> Result<Running, Refused> {
        let Pending { call, ticket, remote, .. } = pending;
        let stop = self.session.tree().stop(self.at);
        let mut running = Running {
            scope: self.clone(),
            call,
            ticket: Some(ticket),
            remote,
            stop,
            warnings: Vec::new(),
        };
        // Much may have happened since.
        running.progress(0, "").map(|()| running)
    }

    /// A refusal that came from elsewhere, with what is known here.
    fn refuse(&self, refusal: Refusal) -> Refused {
        let at = if refusal.verdict == Verdict::Kill { SESSION } else { self.at };
        self.refuse_at(at, refusal)
    }

    fn refuse_at(&self, at: usize, refusal: Refusal) -> Refused {
        let tree = self.session.tree();
        let (state, root) = (tree.state(at), tree.state(0));
        let (own, all) = (&state.ledger().spent, &root.ledger().spent);
        let Refusal { verdict, guard, reason, explain, measured, limit, incident } = refusal;
        Refused::new(Why {
            guard,
            verdict,
            explain,
            measured,
            limit,
            incident,
            context: Context {
                who: tree.name(at).to_string(),
                kind: state.kind(),
                depth: tree.names(at).len(),
                reason,
                input_tokens_spent: own.input.0,
                output_tokens_spent: own.output.0,
                elapsed_ms: self.session.now().since(state.opened()).0,
                accumulated_input_tokens: all.input.0,
                accumulated_output_tokens: all.output.0,
            },
        })
    }

    /// Why a call that was stopped may not go on.
    pub fn why_stopped(&self) -> Refused {
        let tree = self.session.tree();
        let at = tree.ender(self.at);
        let kill = tree.killed().or_else(|| tree.state(at).killed()).cloned();
        drop(tree);
        let because = kill.map_or_else(|| "a scope above was ended".to_owned(), |k| k.because);
        let explain = format!("stopped: {because}");
        let reason = if self.session.is_killed() { "session_killed" } else { "scope_killed" };
        self.refuse_at(at, Refusal { explain, ..unheard(Verdict::Kill, reason) })
    }

    fn note(
        &self,
        what: &'static str,
        call: &Call,
        verdict: Verdict,
        trips: &[Trip],
        ended: Vec<Ended>,
    ) {
        let why = trips.first().map(Trip::explain);
        self.session.capture(Capture {
            at_ms: self.session.now().0,
            what,
            scope: self.path(),
            name: call.name().to_owned(),
            verdict,
            why,
            cost_usd: None,
        });
        self.session.carry_out(ended);
        self.session.tell(self.at, trips);
    }
}

fn unheard(verdict: Verdict, reason: &str) -> Refusal {
    Refusal {
        verdict,
        guard: "killed".to_owned(),
        reason: reason.to_owned(),
        explain: reason.replace('_', " "),
        measured: json!({ "unit": "none" }),
        limit: json!({ "unit": "none" }),
        incident: None,
    }
}

/// While a server is asked about a call.
struct Asking<'a>(&'a Session);

impl Asking<'_> {
    fn new(session: &Session) -> Asking<'_> {
        session.0.asking.fetch_add(1, Ordering::AcqRel);
        Asking(session)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.0.asking.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether a person has let a call pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    None,
    Approved,
}

/// A call that was admitted. Settle it; one that is dropped counts as broken off.
#[derive(Debug)]
pub struct Running {
    scope: Scope,
    call: Call,
    ticket: Option<Ticket>,
    /// How the server knows it, if there is one.
    remote: Option<Remote>,
    stop: Stop,
    warnings: Vec<Why>,
}

impl Running {
    /// The stop that this call must obey: it comes when its scope, or anything above it, is killed.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// What was said when it was let pass.
    pub fn warnings(&self) -> &[Why] {
        &self.warnings
    }

    /// The scope in which it runs.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// May it go on? `output_tokens` counts from the beginning of the answer, `text` is what is new.
    /// If not, cut it off, then settle or drop it.
    pub fn progress(&mut self, output_tokens: u64, text: &str) -> Result<(), Refused> {
        let Some(ticket) = &mut self.ticket else { return Ok(()) };
        if self.stop.is_stopped() {
            return Err(self.scope.why_stopped());
        }
        let (call, now) = (&self.call, self.scope.session.now());
        let new = Progress { output: Tokens(output_tokens), text };
        let mut tree = self.scope.session.tree();
        let at = self.scope.at;
        let (decision, ended) = tree.decide(at, |links| progress(links, call, ticket, new, now));
        drop(tree);
        if !decision.trips.is_empty() {
            let what = if decision.allowed() { "tripped" } else { "cut" };
            self.scope.note(what, &self.call, decision.verdict, &decision.trips, ended);
        }
        Refused::by(&decision.trips).map_or(Ok(()), Err)
    }

    /// A tool has answered. An error means that its scope was ended, by this result or meanwhile:
    /// the result is not to be used.
    pub fn done(self, text: &str) -> Result<(), Refused> {
        self.end(Status::Ok, text)
    }

    /// A tool has answered with an error, or has not answered.
    pub fn failed(self, text: &str) -> Result<(), Refused> {
        self.end(Status::Error, text)
    }

    /// A tool's call has ended this way.
    pub fn end(mut self, status: Status, text: &str) -> Result<(), Refused> {
        let result = Some(facts::result(text));
        self.close(&Outcome { status, result, ..Outcome::default() }, Some(text))
    }

    /// A model has answered.
    pub fn answered(self, usage: Usage, text: &str) -> Result<(), Refused> {
        self.end_model(Status::Ok, usage, text)
    }

    /// A model's call has ended this way.
    pub fn end_model(mut self, status: Status, usage: Usage, text: &str) -> Result<(), Refused> {
        let said = (!text.is_empty()).then(|| TextFacts::of(text));
        let answer = Some(Answer { text: said, calls: None });
        self.close(&Outcome { status, usage, answer, result: None }, Some(text))
    }

    /// It has ended, as told by whoever knows all about it.
    pub(crate) fn close(&mut self, outcome: &Outcome, text: Option<&str>) -> Result<(), Refused> {
        let Some(trips) = self.settle_saying(outcome, text) else { return Ok(()) };
        match Refused::by(&trips).filter(Refused::is_killed) {
            Some(refused) => Err(refused),
            None if self.stop.is_stopped() => Err(self.scope.why_stopped()),
            None => Ok(()),
        }
    }

    fn settle_with(&mut self, outcome: &Outcome) {
        self.settle_saying(outcome, None);
    }

    fn settle_saying(&mut self, outcome: &Outcome, text: Option<&str>) -> Option<Vec<Trip>> {
        let ticket = self.ticket.take()?;
        let (call, session, at) = (&self.call, &self.scope.session, self.scope.at);
        let now = session.now();
        let mut tree = session.tree();
        let (decision, ended) = tree.decide(at, |links| settle(links, call, ticket, outcome, now));
        drop(tree);
        let cost = call.model().map(|model| model.rates.cost(&outcome.usage).dollars());
        session.capture(Capture {
            at_ms: now.0,
            what: "settled",
            scope: self.scope.path(),
            name: call.name().to_owned(),
            verdict: decision.verdict,
            why: decision.trips.first().map(Trip::explain),
            cost_usd: cost,
        });
        session.carry_out(ended);
        session.tell(at, &decision.trips);
        if let (Some(remote), Some(authority)) = (self.remote.take(), session.authority()) {
            authority.tell(Report {
                remote,
                scope: self.scope.path(),
                outcome: outcome.clone(),
                text: text.map(|text| text[..text.floor_char_boundary(LONGEST_TOLD)].to_owned()),
            });
        }
        Some(decision.trips)
    }

    /// Keeps an admitted call of an answer until somebody runs it.
    pub(crate) fn wait_as(mut self, id: String) -> Option<u64> {
        let ticket = self.ticket.take()?;
        let number = ticket.number;
        let call = self.call.clone();
        let pending = Pending { id, call, ticket, remote: self.remote.take() };
        let forgotten = self.scope.session.tree().wait_for(self.scope.at, pending);
        if let Some(forgotten) = forgotten {
            self.scope.give_up(forgotten);
        }
        Some(number)
    }
}

/// Bytes of an answer that the server is told.
const LONGEST_TOLD: usize = 64 << 10;

impl Scope {
    /// A call of an answer that nobody will run.
    pub(crate) fn give_up(&self, pending: Pending) {
        let outcome = Outcome { status: Status::Cancelled, ..Outcome::default() };
        let _ = self.finish(pending, &outcome, None);
    }

    /// A call of an answer that was run elsewhere, and whose result is known.
    pub(crate) fn finish(
        &self,
        pending: Pending,
        outcome: &Outcome,
        text: Option<&str>,
    ) -> Result<(), Refused> {
        let Pending { call, ticket, remote, .. } = pending;
        let stop = self.session.tree().stop(self.at);
        let scope = self.clone();
        let warnings = Vec::new();
        Running { scope, call, ticket: Some(ticket), remote, stop, warnings }.close(outcome, text)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            // Broken off; what it had set aside may have been used, but nobody can say.
            self.settle_with(&Outcome { status: Status::Cancelled, ..Outcome::default() });
        }
    }
}

impl Session {
    /// May a tool be called? See [`Scope::tool`].
    pub fn tool(&self, name: &str, arguments: &Value) -> Result<Running, Refused> {
        self.root().tool(name, arguments)
    }

    /// May a model be asked? See [`Scope::model`].
    pub fn model(&self, ask: &ModelAsk<'_>) -> Result<Running, Refused> {
        self.root().model(ask)
    }
}
