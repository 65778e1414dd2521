//! The ladder of a loop's incident: what the agent was told, at which count, and what it did next.

use deadstop_core::Verdict;
use deadstop_store::{
    CallFilter, CallKind, Order, Paging, Period, Store, StoredIncident, StoredRung,
};
use deadstop_warden::OBSERVED;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::problem::Problem;

/// Calls after a step that are looked at for what the agent did next.
const LOOKED_AT: u32 = 20;

/// One step of a ladder.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Rung {
    /// What was done: `warn` (people were told), `steer` (the model was told), `block` or `kill`.
    verdict: String,
    /// When first.
    at_ms: u64,
    /// When last.
    last_ms: u64,
    /// The count at which it was done first.
    count: u64,
    /// The count at which it was done last.
    last_count: u64,
    /// The count from which on it is done.
    limit: u64,
    /// Whether telemetry told of the call, after it had run: then the step holds from
    /// the next call on.
    observed: bool,
    /// Why, in a sentence, at the last count.
    explain: String,
    /// What the agent was told: the note to the model, or the reason of the refusal. Null where
    /// only people were told.
    #[schema(required)]
    said: Option<String>,
    /// What the agent did next; null if it has done nothing since, or if its calls are no longer kept.
    #[schema(required)]
    next: Option<Next>,
}

/// The first tool call after a step.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Next {
    /// The call's id.
    call: String,
    /// The tool.
    name: String,
    /// When.
    at_ms: u64,
    /// Whether it went on with the loop.
    repeats: bool,
}

/// The ladder of an incident; empty if it is no loop.
pub(super) async fn of(
    store: &Store,
    project: &str,
    incident: &StoredIncident,
) -> Result<Vec<Rung>, Problem> {
    let mut ladder = Vec::new();
    for rung in store.rungs(project, &incident.id).await? {
        let next = next(store, project, incident, &rung).await?;
        let observed = rung.sentence.ends_with(OBSERVED);
        let said = match rung.verdict {
            // The model gets it with the next request that passes a door.
            Verdict::Steer => rung.advice,
            Verdict::Block | Verdict::Kill if observed => None,
            Verdict::Block | Verdict::Kill => Some(rung.sentence.clone()),
            Verdict::Allow | Verdict::Warn | Verdict::Ask => None,
        };
        ladder.push(Rung {
            verdict: rung.verdict.to_string(),
            at_ms: rung.at.0,
            last_ms: rung.last.0,
            count: rung.count,
            last_count: rung.last_count,
            limit: rung.limit,
            observed,
            explain: rung.sentence,
            said,
            next,
        });
    }
    Ok(ladder)
}

/// The first tool call of the session after a step was taken for the last time.
async fn next(
    store: &Store,
    project: &str,
    incident: &StoredIncident,
    rung: &StoredRung,
) -> Result<Option<Next>, Problem> {
    let (Some(session), Some(last)) = (incident.session_number, rung.last_call) else {
        return Ok(None);
    };
    let after = CallFilter {
        session: Some(session),
        period: Period { from: Some(rung.last), to: None },
        order: Order::Oldest,
        ..CallFilter::default()
    };
    let calls = store.calls(project, &after, &Paging::first(LOOKED_AT)).await?.items;
    let found = calls.into_iter().map(|listed| listed.call);
    let mut found = found.filter(|call| call.kind == CallKind::Tool && call.id > last);
    Ok(found.next().map(|call| Next {
        call: call.id.to_string(),
        repeats: call.incident.as_ref() == Some(&incident.id),
        name: call.name,
        at_ms: call.at.0,
    }))
}
