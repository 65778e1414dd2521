//! Incidents: what was blocked or killed, and why.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::App;
use super::extract::{Asked, Filter, Page};
use super::problem::{Code, Problem};

/// An incident.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Incident {
    /// Its id.
    id: String,
    /// When it happened.
    at_ms: u64,
    /// The agent it happened to.
    agent: String,
    /// The session it happened in.
    session: String,
    /// Which guard.
    guard: &'static str,
    /// Why, in a word that stays the same.
    reason: String,
    /// `block` or `kill`.
    verdict: String,
    /// Why, in a sentence.
    explain: String,
    /// The trip in full.
    trip: Value,
}

/// Incidents, the newest first.
#[utoipa::path(
    get, path = "/api/incidents", tag = "incidents", params(Filter),
    responses((status = 200, description = "A page of them", body = Page<Incident>))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Asked(filter): Asked<Filter>,
) -> Result<Json<Page<Incident>>, Problem> {
    let failed = || Problem::new(Code::StoreFailed, "the database failed; see the log");
    let Some(store) = app.warden.store() else {
        return Ok(Json(Page { items: Vec::new(), next: None }));
    };
    app.warden.flush().await.map_err(|_| failed())?;
    let paging = deadstop_store::Paging::first(filter.limit());
    let asked = deadstop_store::IncidentFilter::default();
    let found = store.incidents("default", &asked, &paging).await.map_err(|_| failed())?;
    let items = found
        .items
        .iter()
        .map(|incident| Incident {
            id: incident.id.clone(),
            at_ms: incident.at.0,
            agent: incident.agent.clone(),
            session: incident.session.clone(),
            guard: incident.trip.guard.name(),
            reason: incident.trip.reason.clone(),
            verdict: incident.trip.verdict.to_string(),
            explain: incident.trip.explain(),
            trip: serde_json::to_value(&incident.trip).unwrap_or_default(),
        })
        .collect();
    Ok(Json(Page { items, next: None }))
}
