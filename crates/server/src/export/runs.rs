//! Runs of agents as spans: the calls of one session are below one `invoke_agent` span, as tracing
//! backends show an agent.
//!
//! A span is sent when it is over, so a run's is sent after those of its calls. A run is over when its
//! host says so, when it had no call for a while, or when the server stops. If the session goes on
//! later, that is another run in the same trace. Calls that stand below a span of their caller belong
//! to the caller's own run, and to none of ours.

use std::collections::HashMap;

use deadstop_core::{Digest, Time, Usage, Verdict};
use deadstop_otlp::names::deadstop as ours;
use deadstop_otlp::span::{Failed, Finished, Work};
use deadstop_store::CallKind;
use deadstop_warden::ExportedCall;

/// A run that had no call for so long is over.
const IDLE_MS: u64 = 5 * 60 * 1000;
/// Runs that are open at once; beyond that, those that were idle longest end.
const MOST: usize = 10_000;

/// The runs that are not over.
#[derive(Default)]
pub(super) struct Runs(HashMap<(String, i64), Run>);

struct Run {
    trace: [u8; 16],
    span: [u8; 8],
    agent: String,
    session: String,
    began: Time,
    ended: Time,
    /// When its last call was added, by this server's clock.
    heard: Time,
    provider: Option<String>,
    model: Option<String>,
    usage: Usage,
    /// The strictest verdict of its calls.
    verdict: Verdict,
    incident: Option<String>,
    failed: Option<Failed>,
}

impl Runs {
    /// Adds a call to its run. Gives the run's span, which is the call's parent; `None` for a call whose
    /// caller has a span of its own.
    pub(super) fn add(&mut self, call: &ExportedCall, now: Time) -> Option<[u8; 8]> {
        if call.place.parent.is_some() {
            return None;
        }
        let row = &call.row;
        let key = (row.project.clone(), row.session_number);
        let run = self.0.entry(key).or_insert_with(|| Run::begins_with(call));
        run.began = run.began.min(row.at);
        run.ended = run.ended.max(Time(row.at.0.saturating_add(row.duration.map_or(0, |t| t.0))));
        run.heard = now;
        if row.kind == CallKind::Model {
            if run.model.is_none() {
                (run.provider, run.model) = (row.server.clone(), Some(row.name.clone()));
            }
            run.usage.input += row.usage.input;
            run.usage.output += row.usage.output;
            run.usage.cache_read += row.usage.cache_read;
            run.usage.cache_write += row.usage.cache_write;
        }
        if row.verdict > run.verdict {
            run.verdict = row.verdict;
            run.incident.clone_from(&row.incident);
            // A refused call is one that the agent can do without; a stop ends the run.
            run.failed = super::failed(call).filter(|_| row.verdict == Verdict::Kill);
        }
        Some(run.span)
    }

    /// Ends the run of a session.
    pub(super) fn end(&mut self, project: &str, session: i64) -> Option<Finished> {
        let key = (project.to_owned(), session);
        let run = self.0.remove(&key)?;
        Some(run.told(key.0))
    }

    /// Whether there are so many that some must end.
    pub(super) fn are_many(&self) -> bool {
        self.0.len() > 2 * MOST
    }

    /// Ends the runs that are over by now, and those that are too many.
    pub(super) fn idle(&mut self, now: Time) -> Vec<Finished> {
        let mut over: Vec<_> = self.0.iter().map(|(key, run)| (run.heard, key.clone())).collect();
        let many = over.len().saturating_sub(MOST);
        over.sort_unstable();
        let too_old = over.partition_point(|(heard, _)| now.since(*heard).0 >= IDLE_MS);
        over.truncate(many.max(too_old));
        over.iter().filter_map(|(_, (project, session))| self.end(project, *session)).collect()
    }

    /// Ends all runs.
    pub(super) fn all(&mut self) -> Vec<Finished> {
        self.0.drain().map(|((project, _), run)| run.told(project)).collect()
    }
}

impl Run {
    fn begins_with(call: &ExportedCall) -> Run {
        let row = &call.row;
        // Each node has a run of its own of a session that came to several, so its first call names it.
        let name = format!("run {}/{}/{}", row.project, row.session_number, row.id);
        Run {
            trace: call.place.trace,
            span: Digest::of(name.as_bytes()).0.to_be_bytes(),
            agent: call.agent.clone(),
            session: call.session.clone(),
            began: row.at,
            ended: row.at,
            heard: row.at,
            provider: None,
            model: None,
            usage: Usage::default(),
            verdict: Verdict::Allow,
            incident: None,
            failed: None,
        }
    }

    fn told(self, project: String) -> Finished {
        let mut decided = vec![(ours::VERDICT, self.verdict.to_string())];
        decided.extend(self.incident.map(|incident| (ours::INCIDENT, incident)));
        Finished {
            project,
            agent: self.agent,
            session: self.session,
            trace: self.trace,
            span: self.span,
            parent: None,
            work: Work::Run { provider: self.provider, model: self.model, usage: self.usage },
            began_ms: self.began.0,
            ended_ms: self.ended.0,
            failed: self.failed,
            decided,
        }
    }
}

#[cfg(test)]
mod tests;
