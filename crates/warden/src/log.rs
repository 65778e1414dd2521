//! Lines of the log about calls and decisions, for log pipelines: one line each.
//!
//! A target says what a line is about: [`TRIP`], [`KILL`], [`ORDER`] or [`CALL`]. What a line says was
//! redacted before, as it is for the database. Building a line costs nothing while its target is off.

use deadstop_core::{ScopeKind, Time, Trip, Verdict};
use deadstop_store::StoredCall;

use super::{Chain, Order, Scope, Warden, now};
use crate::trace::CallSpan;

/// A guard warned, steered, asked or refused; level info.
pub const TRIP: &str = "deadstop::trip";
/// A guard ended a scope; level warn. There is no line of [`TRIP`] besides.
pub const KILL: &str = "deadstop::kill";
/// An operator gave an order about a scope; level info.
pub const ORDER: &str = "deadstop::order";
/// A call ended or was refused; level debug.
pub const CALL: &str = "deadstop::call";
/// The span of a request, with project, agent and session; level info.
pub const REQUEST: &str = "deadstop::request";

/// A line for an exporter of logs.
#[derive(Debug, Clone)]
pub struct LogLine {
    /// When.
    pub at: Time,
    /// Its target.
    pub target: &'static str,
    /// The sentence.
    pub text: String,
    /// Names and values.
    pub fields: Vec<(&'static str, String)>,
    /// The call's place in its trace, if it is about one.
    pub place: Option<CallSpan>,
}

/// A trip, or the kill that it led to.
pub(super) fn trip(warden: &Warden, chain: &Chain, trip: &Trip, call: i64, incident: Option<&str>) {
    let (agent, session) = chain.names();
    let (project, verdict) = (&*chain.project.name, trip.verdict.to_string());
    let (guard, reason) = (trip.guard.name(), &*trip.reason);
    let text = trip.explain();
    let kills = trip.verdict == Verdict::Kill;
    let ends = chain.scopes().get(trip.context.depth).filter(|_| kills);
    let ends = ends.map(|scope| scope.kind().name());
    if kills {
        tracing::warn!(
            target: KILL, project, agent, session, guard, reason, verdict, ends, call, incident, "{text}"
        );
    } else {
        tracing::info!(
            target: TRIP, project, agent, session, guard, reason, verdict, call, incident, "{text}"
        );
    }
    warden.export_line(|| {
        let mut fields = named(&[
            ("project", Some(project)),
            ("agent", Some(agent)),
            ("session", Some(session)),
            ("guard", Some(guard)),
            ("reason", Some(reason)),
            ("verdict", Some(&verdict)),
            ("ends", ends),
            ("incident", incident),
        ]);
        fields.push(("call", call.to_string()));
        let target = if kills { KILL } else { TRIP };
        LogLine { at: now(), target, text, fields, place: Some(chain.place(call)) }
    });
}

/// An operator's order.
pub(super) fn order(warden: &Warden, scope: &Scope, order: &Order<'_>) {
    let kind = scope.kind();
    let agent = Some(scope.agent()).filter(|agent| !agent.is_empty());
    let inner = matches!(kind, ScopeKind::Session | ScopeKind::Nested);
    let session = inner.then(|| scope.name());
    let (project, name) = (&*scope.id.project, order.what.name());
    tracing::info!(
        target: ORDER, project, agent, session, scope = kind.name(), order = name, who = order.who,
        reason = order.reason, "{}", order.text()
    );
    warden.export_line(|| {
        let fields = named(&[
            ("project", Some(project)),
            ("agent", agent),
            ("session", session),
            ("scope", Some(kind.name())),
            ("order", Some(name)),
            ("who", Some(order.who)),
            ("reason", Some(order.reason)),
        ]);
        LogLine { at: now(), target: ORDER, text: order.text(), fields, place: None }
    });
}

fn named(fields: &[(&'static str, Option<&str>)]) -> Vec<(&'static str, String)> {
    fields.iter().filter_map(|(name, value)| Some((*name, (*value)?.to_owned()))).collect()
}

/// A call that ended or was refused.
pub(super) fn call(chain: &Chain, row: &StoredCall, incident: Option<&str>) {
    let (agent, session) = chain.names();
    let usage = &row.usage;
    tracing::debug!(
        target: CALL, project = &*row.project, agent, session, call = row.id, name = &*row.name,
        server = row.server.as_deref(), verdict = %row.verdict,
        guard = row.guard.map(deadstop_core::GuardId::name),
        ms = row.duration.map(|took| took.0), input_tokens = usage.input.0,
        output_tokens = usage.output.0, cost_usd = row.cost.dollars(), incident,
        "{}", if row.status.is_some() { "ended" } else { "refused" }
    );
}

/// Notes in the request's span whose call it is.
pub(super) fn names(project: &str, agent: &str, session: &str) {
    let span = tracing::Span::current();
    span.record("project", project).record("agent", agent).record("session", session);
}
