//! Incidents that are alike, together: how many, since when, and how often.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use deadstop_core::Time;
use deadstop_store::{Fingerprint, IncidentFilter, IncidentGroup, Strip};
use deadstop_warden::now;
use serde::Serialize;
use utoipa::ToSchema;

use super::act::Silence;
use super::{IncidentsAsked, Shown, wanted, written};
use crate::api::App;
use crate::api::auth::Who;
use crate::api::extract::{AskedBoth, Filter, Page};
use crate::api::problem::Problem;

/// Pieces of a frequency strip, and the span that it covers where none is asked for: seven days.
const PIECES: usize = 28;
const SPAN_MS: u64 = 7 * 24 * 3600 * 1000;

/// Incidents with the same agent and guard that are about the same.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Group {
    /// A short name for what they have in common.
    fingerprint: String,
    /// The agent.
    agent: String,
    /// The guard.
    guard: String,
    /// The tool, where it is about one tool; otherwise the guard's code for why.
    about: String,
    /// The guard's code for why; where they differ, one of them.
    reason: String,
    /// How many.
    count: u64,
    /// How many of them are neither acknowledged nor resolved.
    open: u64,
    /// How many of them are resolved.
    resolved: u64,
    /// `open`, `acknowledged`, `muted` or `resolved`: open if one of them is.
    state: &'static str,
    /// Whether it happened again after one of them was resolved.
    reopened: bool,
    /// Who muted it, and until when; null if it is not muted.
    #[schema(required)]
    muted: Option<Silence>,
    /// When it happened first.
    first_ms: u64,
    /// When it happened last.
    last_ms: u64,
    /// How often it happened, in 28 equal pieces of the span that is asked for, or of the last seven
    /// days.
    strip: Frequency,
}

/// How often something happened, piece by piece.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Frequency {
    /// The beginning of the first piece.
    from_ms: u64,
    /// How long each piece is.
    step_ms: u64,
    /// Incidents that began in each.
    counts: Vec<u64>,
}

/// Incidents by fingerprint, the group with the newest first.
#[utoipa::path(
    get, path = "/api/incidents/groups", tag = "incidents", params(Filter, IncidentsAsked),
    responses((status = 200, description = "A page of them", body = Page<Group>))
)]
pub(crate) async fn groups(
    State(app): State<Arc<App>>,
    who: Who,
    AskedBoth(filter, asked): AskedBoth<Filter, IncidentsAsked>,
) -> Result<Json<Page<Group>>, Problem> {
    let store = app.store()?;
    written(&app).await?;
    let Some(wanted) = wanted(store, &who, &filter, asked).await? else {
        return Ok(Json(Page::all(Vec::new())));
    };
    let strip = span(&wanted, now());
    let found = store.incident_groups(&who.project, &wanted, &filter.paging()).await?;
    let mut strips = store.incident_strips(&who.project, &wanted, &strip).await?;
    let shown = Shown::read(store, &who.project).await?;
    Ok(Json(Page::of(found, |group| {
        let counts = strips.remove(&group.fingerprint).unwrap_or_else(|| vec![0; PIECES]);
        let strip = Frequency { from_ms: strip.from.0, step_ms: strip.step, counts };
        show(group, strip, &shown)
    })))
}

/// The span of a strip: what is asked for, or the last days.
fn span(wanted: &IncidentFilter, now: Time) -> Strip {
    let to = wanted.period.to.unwrap_or(Time(now.0 + 1)).min(Time(now.0 + 1));
    let from = wanted.period.from.unwrap_or(Time(to.0.saturating_sub(SPAN_MS)));
    let step = to.0.saturating_sub(from.0).div_ceil(PIECES as u64).max(1);
    Strip { from, step, pieces: PIECES }
}

fn show(group: IncidentGroup, strip: Frequency, shown: &Shown) -> Group {
    let muted = shown.mute(&group.fingerprint).map(Silence::from);
    let state = match group {
        IncidentGroup { count, resolved, .. } if count == resolved => "resolved",
        _ if muted.is_some() => "muted",
        IncidentGroup { open: 0, .. } => "acknowledged",
        _ => "open",
    };
    let fingerprint = group.fingerprint.id();
    let Fingerprint { agent, guard, about } = group.fingerprint;
    Group {
        fingerprint,
        agent,
        guard,
        about,
        reason: group.reason,
        count: group.count,
        open: group.open,
        resolved: group.resolved,
        state,
        reopened: group.resolved > 0 && group.open > 0,
        muted,
        first_ms: group.first.0,
        last_ms: group.last.0,
        strip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deadstop_store::Period;

    #[test]
    fn a_strip_covers_its_span_to_the_last_moment() {
        for (from, to) in [(None, None), (Some(5), Some(6)), (Some(100), None), (None, Some(99))] {
            let period = Period { from: from.map(Time), to: to.map(Time) };
            let now = Time(30 * SPAN_MS);
            let strip = span(&IncidentFilter { period, ..IncidentFilter::default() }, now);
            let end = strip.from.0 + strip.step * PIECES as u64;
            let last = to.unwrap_or(now.0 + 1);
            assert!(end >= last && end < last + PIECES as u64, "{from:?} {to:?}: {strip:?}");
        }
    }
}
