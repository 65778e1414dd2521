//! How fast models answer and how often they fail, and how many calls were made over time.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use deadstop_store::{ActivityPoint, Speed, SpeedBy, SpeedFilter, SpendStep, Took};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::auth::Who;
use super::calls::written;
use super::extract::{AskedBoth, Page, Span};
use super::problem::Problem;
use super::spend::{StepAsked, span_of};

/// How a model, or a provider, did.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SpeedLine {
    /// The provider; empty where it is not known.
    provider: String,
    /// The model; empty for a line a provider.
    model: String,
    /// Calls that ended.
    calls: u64,
    /// Those that the provider failed to answer: 5xx, 429, time-outs, broken answers.
    faults: u64,
    /// Those that were answered with an error of the caller's: a wrong key, a malformed request.
    errors: u64,
    /// Those that were cut off or abandoned.
    cancelled: u64,
    /// Faults and errors, over all calls that were not cancelled: 0 to 1.
    error_rate: f64,
    /// Half of the whole answers took this long or less; null if there was none.
    #[schema(required)]
    half_ms: Option<u64>,
    /// 95 of 100 whole answers took this long or less.
    #[schema(required)]
    most_ms: Option<u64>,
    /// Half of the streamed answers took this long or less to begin; null if there was none.
    #[schema(required)]
    first_half_ms: Option<u64>,
    /// 95 of 100 streamed answers took this long or less to begin.
    #[schema(required)]
    first_most_ms: Option<u64>,
}

impl From<Speed> for SpeedLine {
    fn from(speed: Speed) -> SpeedLine {
        let Speed { provider, model, calls, faults, errors, cancelled, whole, first } = speed;
        let answered = calls.saturating_sub(cancelled);
        // Only shown to people, so floats are exact enough.
        let error_rate = (faults + errors) as f64 / answered.max(1) as f64;
        let half = |took: Option<Took>| took.map(|took| took.half.0);
        let most = |took: Option<Took>| took.map(|took| took.most.0);
        SpeedLine {
            provider,
            model,
            calls,
            faults,
            errors,
            cancelled,
            error_rate,
            half_ms: half(whole),
            most_ms: most(whole),
            first_half_ms: half(first),
            first_most_ms: most(first),
        }
    }
}

/// What speeds are told apart by.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SpeedByAsked {
    /// A line a provider and model.
    #[default]
    Model,
    /// A line a provider.
    Provider,
}

/// Which speeds.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct SpeedAsked {
    /// What they are told apart by; by model if it is left out.
    #[param(inline)]
    by: Option<SpeedByAsked>,
    /// Only this agent's.
    #[param(max_length = 200)]
    agent: Option<String>,
}

/// How fast models answered and how often they failed, from stored calls.
#[utoipa::path(
    get, path = "/api/speed", tag = "costs", params(SpeedAsked, Span),
    responses((status = 200, description = "The one with the most calls first", body = Page<SpeedLine>))
)]
pub(crate) async fn speed(
    State(app): State<Arc<App>>,
    who: Who,
    AskedBoth(asked, span): AskedBoth<SpeedAsked, Span>,
) -> Result<Json<Page<SpeedLine>>, Problem> {
    let by = match asked.by.unwrap_or_default() {
        SpeedByAsked::Model => SpeedBy::Model,
        SpeedByAsked::Provider => SpeedBy::Provider,
    };
    let store = app.store()?;
    written(&app).await;
    let filter = SpeedFilter { agent: asked.agent, period: span.period() };
    let found = store.speeds(&who.project, by, &filter).await?;
    Ok(Json(Page::all(found.into_iter().map(SpeedLine::from).collect())))
}

/// How many calls were made in one step.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Activity {
    /// The first millisecond of the step.
    at_ms: u64,
    /// Calls of models and tools, also those that were refused.
    calls: u64,
    /// Those that were refused or cut.
    refused: u64,
    /// Those that failed: of the provider, the tool or the caller.
    failed: u64,
}

impl From<ActivityPoint> for Activity {
    fn from(point: ActivityPoint) -> Activity {
        let ActivityPoint { at, calls, refused, failed } = point;
        Activity { at_ms: at.0, calls, refused, failed }
    }
}

/// Which calls.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct ActivityAsked {
    /// How wide the steps are; a minute if it is left out.
    #[param(inline)]
    step: Option<StepAsked>,
    /// Only this agent's.
    #[param(max_length = 200)]
    agent: Option<String>,
}

/// How many calls were made over time: those that `/api/calls` lists. Steps without a call are left out.
/// Without `from`, the last 60 steps.
#[utoipa::path(
    get, path = "/api/activity", tag = "calls", params(ActivityAsked, Span),
    responses((status = 200, description = "Steps in their order", body = Page<Activity>))
)]
pub(crate) async fn activity(
    State(app): State<Arc<App>>,
    who: Who,
    AskedBoth(asked, span): AskedBoth<ActivityAsked, Span>,
) -> Result<Json<Page<Activity>>, Problem> {
    let step = SpendStep::from(asked.step.unwrap_or_default());
    let filter = SpeedFilter { agent: asked.agent, period: span_of(step, &span)? };
    let store = app.store()?;
    written(&app).await;
    let found = store.activity(&who.project, step, &filter).await?;
    Ok(Json(Page::all(found.into_iter().map(Activity::from).collect())))
}
