//! What was spent over time, added up by the server: charts do not sum lists of calls.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use deadstop_core::Time;
use deadstop_protocol::policy_views::FieldFault;
use deadstop_store::{CostFilter, Period, SpendBy, SpendPoint, SpendStep};
use deadstop_warden::now;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::auth::Who;
use super::extract::{AskedBoth, Page, Span};
use super::problem::{Code, Problem};

/// Steps that one answer spans at most.
const MOST_STEPS: u64 = 2000;

/// The span of a series. Without `from`, the last 60 steps.
pub(super) fn span_of(step: SpendStep, span: &Span) -> Result<Period, Problem> {
    let period = span.period();
    let to = period.to.unwrap_or_else(now);
    let from = period.from.unwrap_or(Time(to.0.saturating_sub(60 * step.width())));
    if to.0.saturating_sub(from.0) / step.width() > MOST_STEPS {
        let text =
            format!("spans more than {MOST_STEPS} steps; ask for wider steps or a shorter time");
        return Err(Problem::fields(Code::InvalidQuery, vec![FieldFault::invalid("from", &text)]));
    }
    Ok(Period { from: Some(from), to: period.to })
}

/// What was spent in one step.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Spent {
    /// The first millisecond of the step.
    at_ms: u64,
    /// The agent or the model; empty if the series is not split.
    of: String,
    /// Calls of models and paid tools that ended, by when they were asked.
    calls: u64,
    /// Dollars.
    cost_usd: f64,
}

impl From<SpendPoint> for Spent {
    fn from(point: SpendPoint) -> Spent {
        let SpendPoint { at, of, calls, cost } = point;
        Spent { at_ms: at.0, of, calls, cost_usd: cost.dollars() }
    }
}

/// How wide the steps are.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StepAsked {
    /// Ten seconds.
    #[serde(rename = "10s")]
    TenSeconds,
    /// A minute.
    #[default]
    Minute,
    /// An hour, in UTC, as long as calls are kept.
    Hour,
    /// A day, in UTC.
    Day,
}

impl From<StepAsked> for SpendStep {
    fn from(asked: StepAsked) -> SpendStep {
        match asked {
            StepAsked::TenSeconds => SpendStep::TenSeconds,
            StepAsked::Minute => SpendStep::Minute,
            StepAsked::Hour => SpendStep::Hour,
            StepAsked::Day => SpendStep::Day,
        }
    }
}

/// What the series is split by.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SplitAsked {
    /// Not at all.
    #[default]
    Total,
    /// A line an agent.
    Agent,
    /// A line a model.
    Model,
}

/// Which series.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct SpendAsked {
    /// How wide the steps are; a minute if it is left out.
    #[param(inline)]
    step: Option<StepAsked>,
    /// What the series is split by; not at all if it is left out.
    #[param(inline)]
    by: Option<SplitAsked>,
    /// Only this agent's.
    #[param(max_length = 200)]
    agent: Option<String>,
    /// Only this model's.
    #[param(max_length = 200)]
    model: Option<String>,
}

/// What was spent over time. Steps in which nothing was spent are left out. Without `from`, the last
/// 60 steps.
#[utoipa::path(
    get, path = "/api/spend", tag = "costs", params(SpendAsked, Span),
    responses((status = 200, description = "Steps in their order, the dearest line of a step first", body = Page<Spent>))
)]
pub(crate) async fn series(
    State(app): State<Arc<App>>,
    who: Who,
    AskedBoth(asked, span): AskedBoth<SpendAsked, Span>,
) -> Result<Json<Page<Spent>>, Problem> {
    let step = SpendStep::from(asked.step.unwrap_or_default());
    let by = match asked.by.unwrap_or_default() {
        SplitAsked::Total => SpendBy::Total,
        SplitAsked::Agent => SpendBy::Agent,
        SplitAsked::Model => SpendBy::Model,
    };
    let period = span_of(step, &span)?;
    let filter = CostFilter { agent: asked.agent, model: asked.model, period };
    let found = app.store()?.spend(&who.project, step, by, &filter).await?;
    Ok(Json(Page::all(found.into_iter().map(Spent::from).collect())))
}
