//! Topping up: an operator raises the limits of a session, and a session that a limit ended goes on.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use deadstop_core::{GuardId, Kill, Millis, NanoUsd, Tokens};
use serde::Deserialize;
use utoipa::ToSchema;

use super::App;
use super::auth::Who;
use super::extract::{At, Body, Name, Strict};
use super::live::Row;
use super::orders::{Carried, Done};
use super::problem::{Code, Problem, ProblemBody};
use super::sessions::known;
use deadstop_warden::{Order, What};

/// How much a session may use in addition; at least one of the four.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TopUp {
    /// Dollars.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1_000_000, example = 5.0)]
    cost_usd: f64,
    /// Tool calls, and as many model calls.
    #[serde(default)]
    #[schema(maximum = 1_000_000_000, example = 50)]
    steps: u64,
    /// Tokens: input, output and both.
    #[serde(default)]
    #[schema(maximum = 1_000_000_000_000_u64, example = 200_000)]
    tokens: u64,
    /// Seconds.
    #[serde(default)]
    #[schema(maximum = 31_536_000, example = 1800)]
    time_s: u64,
    /// Why.
    #[serde(default)]
    #[schema(max_length = 1000)]
    reason: String,
    /// The person who says so, where a client speaks for several.
    #[schema(max_length = 200)]
    by: Option<String>,
}

impl Strict for TopUp {}

impl TopUp {
    fn amounts(&self) -> Result<deadstop_core::TopUp, Problem> {
        let wrong = |text: &str| Problem::new(Code::BadOrder, text);
        let cost = NanoUsd::from_dollars(self.cost_usd).filter(|_| self.cost_usd <= 1e6);
        let cost = cost.ok_or_else(|| wrong("`cost_usd` must be from 0 to 1000000"))?;
        let more = deadstop_core::TopUp {
            cost,
            steps: self.steps.min(1_000_000_000),
            tokens: Tokens(self.tokens.min(1_000_000_000_000)),
            time: Millis::from_secs(self.time_s.min(31_536_000)),
        };
        if more == deadstop_core::TopUp::default() {
            return Err(wrong("say by how much: `cost_usd`, `steps`, `tokens` or `time_s`"));
        }
        Ok(more)
    }
}

/// The amounts as the audit shows them.
fn shown(more: deadstop_core::TopUp) -> String {
    let parts = [
        (more.cost > NanoUsd(0)).then(|| more.cost.to_string()),
        (more.steps > 0).then(|| format!("{} steps", more.steps)),
        (more.tokens > Tokens(0)).then(|| more.tokens.to_string()),
        (more.time > Millis(0)).then(|| more.time.to_string()),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Raises the limits of a session. If one of them ended it, it goes on; a stop by a person is final.
#[utoipa::path(
    post, path = "/api/sessions/{agent}/{session}/top-up", tag = "sessions", request_body = TopUp,
    params(
        ("agent" = String, Path, description = "The agent"),
        ("session" = String, Path, description = "The session's name"),
    ),
    responses(
        (status = 200, description = "In force and on disk", body = Done),
        (status = 409, description = "`session_final`", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn top_up(
    State(app): State<Arc<App>>,
    who: Who,
    At(at): At<(Name, Name)>,
    Body(asked): Body<TopUp>,
) -> Carried {
    let scope = known(&app, &who, &at).await?;
    let more = asked.amounts()?;
    let closed = || {
        let state = scope.state();
        let limit = |kill: &Kill| kill.guard.is_some_and(GuardId::is_limit);
        state.killed().is_some_and(|kill| !limit(kill))
    };
    let stopped = || {
        Problem::new(
            Code::SessionFinal,
            format!(
                "the session {} was not ended by a limit, so its end is final; start a new session, or reset this one",
                scope.name()
            ),
        )
    };
    if closed() {
        return Err(stopped());
    }
    let by = app.redacted(&who, &who.signed(asked.by.as_deref()));
    let why = if asked.reason.is_empty() { "no reason given" } else { &asked.reason };
    let reason = format!("{}: {}", shown(more), app.redacted(&who, why));
    let order = Order { who: &by, what: What::TopUp, reason: &reason };
    let carried = app.warden.order(&scope, order, move |state, _| {
        // A person may have stopped it meanwhile: that stays.
        let _ = state.top_up(more);
    });
    if let Err(error) = carried.await {
        let text = format!("it will be carried out as soon as it can be: {error}");
        return Err(Problem::new(Code::NotDurable, text));
    }
    if closed() {
        return Err(stopped());
    }
    Ok(Json(Done { done: What::TopUp.done(), scope: Row::of(&scope), key: None }))
}
