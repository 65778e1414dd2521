//! How a call is admitted: by the engine here, and by the server if there is one.

use std::sync::atomic::Ordering;

use deadstop_core::{
    Call, FailMode, GuardId, Outcome, Status, Time, Trip, Verdict, admit, admit_approved,
};
use serde_json::json;

use crate::authority::{Asked, Question, Refusal, Remote, Report, Telling, Told};
use crate::capture::{Capture, CaptureKind};
use crate::refused::{Context, Refused, Why};
use crate::running::Running;
use crate::scope::Scope;
use crate::session::Session;
use crate::steer::admitted_with;
use crate::stop::StopSignal;
use crate::tree::{Ended, Pending, SESSION};

impl Scope {
    /// Asks the engine here, then the server. Stops asking once the caller has left.
    pub(crate) fn admit(
        &self,
        call: Call,
        asked: impl FnOnce() -> Asked,
        left: &StopSignal,
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
        let stop = tree.stop(self.at);
        drop(tree);
        if verdict > Verdict::Ask {
            return self.admit_here(call, Word::None);
        }
        let word = if verdict == Verdict::Ask { Word::Approved } else { Word::None };
        let (id, asked, scope) = (self.session.call_id(), asked(), self.path());
        let asking = Asking::new(&self.session);
        let question = Question { id: &id, scope: &scope, call: &asked };
        let (remote, steer) = match authority.ask(&question, [&stop, left]) {
            Told::Allowed(steer) => (Remote { id, late: None }, steer),
            // No person can be asked while the server is away.
            Told::Away if word == Word::Approved => return self.admit_here(call, Word::None),
            Told::Away if closed => {
                let why = "the server does not answer, and the policy's fail_mode is closed";
                return Err(self.refuse(Refusal {
                    explain: format!("blocked: {why}"),
                    guard: "server".to_owned(),
                    ..unheard(Verdict::Block, "server_away")
                }));
            }
            // The server is told about it when it is back.
            Told::Away => (Remote { id, late: Some(asked) }, None),
            Told::Stopped => {
                // The server may have admitted it: it gives back what it set aside.
                let remote = Remote { id, late: None };
                authority.tell(cancelled(remote, scope));
                return Err(self.why_stopped());
            }
            Told::Refused(refusal) => {
                drop(asking);
                return Err(self.refused_there(*refusal, now));
            }
        };
        let admitted = self.admit_here(call, word);
        drop(asking);
        match admitted {
            Ok(mut running) => {
                running.remote = Some(remote);
                if let Some(steer) = steer.filter(|_| admitted_with(&running.warnings).is_none()) {
                    let why = self.refuse(*steer).why().clone();
                    self.session.tell_steer(self.at, &why);
                    running.warnings.push(why);
                }
                if running.call.tool().is_some() {
                    running.take_late();
                }
                Ok(running)
            }
            Err(refused) => {
                // Another call was faster here: the server gives back what it set aside.
                authority.tell(cancelled(remote, scope));
                Err(refused)
            }
        }
    }

    /// The server has refused a call: ends here what it has ended there, and tells observers.
    fn refused_there(&self, mut refusal: Refusal, now: Time) -> Refused {
        let over = refusal.guard == "killed";
        if refusal.verdict == Verdict::Kill {
            let at = refusal.ended.unwrap_or(self.at);
            // A used-up limit lets calls in flight finish; then the listener ends the session.
            let drains = ["steps", "tokens", "budget", "time"].contains(&&*refusal.guard)
                || GuardId::is_used_up(&refusal.reason);
            let mut tree = self.session.tree();
            if !over {
                tree.caused_by(at, &refusal.reason);
            } else if let Some(cause) = tree.cause(at).or(tree.cause(SESSION)) {
                refusal.cause = Some(cause.to_owned());
            }
            drop(tree);
            if !drains || self.session.is_idle() {
                let ended = self.session.tree().kill(at, "the server", &refusal.explain, now);
                self.session.carry_out(ended.into_iter().collect());
            }
        }
        let is_trip = !over && refusal.guard != "paused" && refusal.verdict >= Verdict::Block;
        let refused = self.refuse(refusal);
        if is_trip {
            self.session.tell_why(self.at, refused.why());
        }
        refused
    }

    fn admit_here(&self, call: Call, word: Word) -> Result<Running, Refused> {
        let now = self.session.now();
        let mut tree = self.session.tree();
        let (admission, ended) = tree.decide(self.at, |links| match word {
            Word::None => admit(links, &call, now),
            Word::Approved => admit_approved(links, &call, now),
        });
        let stop = tree.stop(self.at);
        let refused = tree.refused(self.at, &admission.trips);
        let warnings: Vec<Why> = match &admission.ticket {
            Some(_) => admission.trips.iter().map(|trip| tree.why(self.at, trip)).collect(),
            None => Vec::new(),
        };
        drop(tree);
        let what = match &admission.ticket {
            Some(_) => CaptureKind::Admitted,
            None => CaptureKind::Refused,
        };
        self.note(what, &call, admission.verdict, &admission.trips, ended);
        let Some(ticket) = admission.ticket else {
            return Err(refused.unwrap_or_else(|| self.refuse(unheard(Verdict::Block, "refused"))));
        };
        let (scope, ticket) = (self.clone(), Some(ticket));
        Ok(Running { scope, call, ticket, remote: None, stop, warnings, asked_as: None })
    }

    /// A call that was admitted when an answer asked for it, and that now runs.
    pub(crate) fn resume(&self, pending: Pending) -> Result<Running, Refused> {
        let mut running = self.taken_up(pending);
        // The scope may have been ended since.
        running.progress(0, "").map(|()| running)
    }

    /// A refusal that came from elsewhere, with the figures that are known here.
    fn refuse(&self, refusal: Refusal) -> Refused {
        let at = if refusal.verdict == Verdict::Kill { SESSION } else { self.at };
        self.refuse_at(at, refusal)
    }

    fn refuse_at(&self, at: usize, refusal: Refusal) -> Refused {
        let tree = self.session.tree();
        let (state, root, path) = (tree.state(at), tree.state(0), tree.path(at));
        let (own, all) = (&state.ledger().spent, &root.ledger().spent);
        let Refusal {
            verdict,
            guard,
            reason,
            cause,
            explain,
            measured,
            limit,
            incident,
            advice,
            ..
        } = refusal;
        Refused::new(Why {
            guard,
            verdict,
            explain,
            measured,
            limit,
            incident,
            advice,
            context: Context {
                who: path.join("/"),
                path,
                kind: state.kind(),
                depth: tree.names(at).len(),
                reason: cause.unwrap_or_else(|| reason.clone()),
                input_tokens_spent: own.input.0,
                output_tokens_spent: own.output.0,
                elapsed_ms: self.session.now().since(state.opened()).0,
                accumulated_input_tokens: all.input.0,
                accumulated_output_tokens: all.output.0,
            },
            code: reason,
        })
    }

    /// Why a call that was stopped may not go on.
    pub fn why_stopped(&self) -> Refused {
        let tree = self.session.tree();
        let at = tree.ender(self.at);
        let kill = tree.killed().or_else(|| tree.state(at).killed()).cloned();
        let cause = (0..=SESSION).chain([at]).find_map(|at| tree.cause(at)).map(str::to_owned);
        let over = tree.killed().is_some();
        drop(tree);
        let because = kill.map_or_else(|| "a scope above was ended".to_owned(), |k| k.because);
        let explain = format!("stopped: {because}");
        let reason = if over { "session_killed" } else { "scope_killed" };
        self.refuse_at(at, Refusal { explain, cause, ..unheard(Verdict::Kill, reason) })
    }

    pub(crate) fn note(
        &self,
        what: CaptureKind,
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

/// A refusal without a guard's figures.
fn unheard(verdict: Verdict, reason: &str) -> Refusal {
    Refusal {
        verdict,
        guard: "killed".to_owned(),
        reason: reason.to_owned(),
        ended: None,
        cause: None,
        explain: reason.replace('_', " "),
        measured: json!({ "unit": "none" }),
        limit: json!({ "unit": "none" }),
        incident: None,
        advice: None,
    }
}

/// What the server is told about a call that did not run.
fn cancelled(remote: Remote, scope: Vec<String>) -> Telling {
    let outcome = Outcome { status: Status::Cancelled, ..Outcome::default() };
    Telling::Ended(Box::new(Report { remote, scope, outcome, text: None, steered: true }))
}

impl Running {
    /// Takes over what the server said to the model about the end of an earlier call, unless this
    /// call has advice of its own.
    pub(crate) fn take_late(&mut self) {
        if admitted_with(&self.warnings).is_none() {
            let late = self.scope.session.tree().late(self.scope.at).take();
            self.warnings.extend(late);
        }
    }
}

impl Session {
    /// The server steers the model, but only told so when a call of this scope had ended: the model is
    /// told with the next call of the scope.
    pub(crate) fn steer_later(&self, path: &[String], steer: Refusal) {
        let Some(at) = self.tree().at(path) else { return };
        let scope = Scope { session: self.clone(), at };
        let why = scope.refuse(steer).why().clone();
        self.tell_steer(at, &why);
        *self.tree().late(at) = Some(why);
    }
}

/// Counts a call while a server is asked about it.
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

/// Whether a person has approved a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    None,
    Approved,
}
