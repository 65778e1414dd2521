//! What calls came to: by agent, by model, by day, by hour.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use deadstop_protocol::prices::PriceSource;
use deadstop_store::{CostBy, CostFilter, CostLine};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::auth::Who;
use super::extract::{AskedBoth, Page, Span};
use super::problem::Problem;

/// One line.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Cost {
    /// The agent, the model, or the first millisecond of the day or hour.
    of: String,
    /// Calls that ended.
    calls: u64,
    /// Input tokens.
    input_tokens: u64,
    /// Output tokens.
    output_tokens: u64,
    /// Input tokens read from a cache.
    cache_read_tokens: u64,
    /// Input tokens written to a cache.
    cache_write_tokens: u64,
    /// Dollars.
    cost_usd: f64,
    /// For a model: true if its price is unknown, so that it was charged at $10 in and $30 out per
    /// million tokens. Null for other lines.
    #[schema(required)]
    priced_by_fallback: Option<bool>,
}

impl From<CostLine> for Cost {
    fn from(line: CostLine) -> Cost {
        Cost {
            of: line.of,
            calls: line.calls,
            input_tokens: line.usage.input.0,
            output_tokens: line.usage.output.0,
            cache_read_tokens: line.usage.cache_read.0,
            cache_write_tokens: line.usage.cache_write.0,
            cost_usd: line.cost.dollars(),
            priced_by_fallback: None,
        }
    }
}

/// What to add up by.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum By {
    /// A line an agent.
    #[default]
    Agent,
    /// A line a model.
    Model,
    /// A line a day, in UTC.
    Day,
    /// A line an hour, in UTC, as long as calls are kept.
    Hour,
}

/// Which costs.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct CostsAsked {
    /// What to add up by; by agent if it is left out.
    #[param(inline)]
    by: Option<By>,
    /// Only this agent's.
    #[param(max_length = 200)]
    agent: Option<String>,
    /// Only this model's.
    #[param(max_length = 200)]
    model: Option<String>,
}

/// What calls came to.
#[utoipa::path(
    get, path = "/api/costs", tag = "costs", params(CostsAsked, Span),
    responses((status = 200, description = "The dearest first; days and hours in their order", body = Page<Cost>))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    who: Who,
    AskedBoth(asked, span): AskedBoth<CostsAsked, Span>,
) -> Result<Json<Page<Cost>>, Problem> {
    let by = match asked.by.unwrap_or_default() {
        By::Agent => CostBy::Agent,
        By::Model => CostBy::Model,
        By::Day => CostBy::Day,
        By::Hour => CostBy::Hour,
    };
    let filter = CostFilter { agent: asked.agent, model: asked.model, period: span.period() };
    let lines = app.store()?.costs(&who.project, by, &filter).await?;
    let prices = app.project(&who).await?.prices();
    let mut costs: Vec<Cost> = lines.into_iter().map(Cost::from).collect();
    // A tool has no price of its own: what has no tokens was not priced.
    for cost in costs.iter_mut().filter(|cost| by == CostBy::Model && cost.input_tokens > 0) {
        let source = prices.price(&cost.of).source;
        cost.priced_by_fallback = Some(source == PriceSource::Fallback);
    }
    Ok(Json(Page::all(costs)))
}
