//! Calls that wait for a person: the list, and the person's decision.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use deadstop_core::{Harm, Trip};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::auth::Who;
use super::extract::{Asked, At, Body, Strict};
use super::problem::{Code, Problem, ProblemBody};
use deadstop_warden::{ApprovalOutcome, Word};

/// Characters of a call that a list shows, and that can be approved without saying what was shown.
pub(super) const LISTED: usize = 2000;

/// One thing that a call would do.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Would {
    /// The sort of harm: `destroys`, `sends_secret` and so on.
    kind: String,
    /// `none`, `minor`, `serious` or `catastrophic`.
    severity: &'static str,
    /// What would happen and why it matters.
    because: String,
}

impl Would {
    pub(super) fn of(harm: &Harm) -> Would {
        let kind = serde_json::to_value(harm.kind).unwrap_or_default();
        Would {
            kind: kind.as_str().unwrap_or_default().to_owned(),
            severity: harm.severity().name(),
            because: harm.because(),
        }
    }
}

/// How much of a call is answered.
#[derive(Clone, Copy)]
enum Much {
    /// Its beginning, for a list.
    Beginning,
    /// All that is kept.
    Whole,
}

/// A call that waits for a person, or did.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Approval {
    /// Its id.
    id: String,
    /// The project.
    project: String,
    /// The agent that wants to make it.
    agent: String,
    /// The session.
    session: String,
    /// The nested scopes in which it is made, one below the other.
    #[schema(required)]
    scope: Option<String>,
    /// `tool` or `model`.
    kind: &'static str,
    /// The tool, or the model.
    tool: String,
    /// The server that it runs on.
    #[schema(required)]
    server: Option<String>,
    /// What it would do, the worst first, as far as that is known.
    harms: Vec<Would>,
    /// What it is called with, without secrets. A list holds the first 2,000 characters,
    /// `GET /api/approvals/{id}` all of them.
    asked: String,
    /// Characters of the whole text.
    asked_chars: u64,
    /// Characters of the call behind the whole text, which were not kept. A tool call with any
    /// cannot be approved.
    unkept_chars: u64,
    /// What it would destroy, as far as that is known.
    destroys: Vec<String>,
    /// The guard that wants a person asked.
    guard: &'static str,
    /// Its code for why.
    reason: String,
    /// Why, in a sentence.
    explain: String,
    /// Since when it waits.
    since_ms: u64,
    /// Until when it does; then it is refused.
    until_ms: u64,
    /// `waiting`, `approved`, `denied`, `lapsed`, `withdrawn` or `stopped`.
    state: &'static str,
    /// Who decided.
    #[schema(required)]
    decided_by: Option<String>,
    /// Why.
    #[schema(required)]
    decided_why: Option<String>,
    /// When.
    #[schema(required)]
    decided_ms: Option<u64>,
}

impl Approval {
    fn of(approval: &deadstop_warden::Approval, much: Much) -> Approval {
        let call = &approval.call;
        let (kind, server) = match (call.tool(), call.model()) {
            (Some(tool), _) => ("tool", &tool.server),
            (None, Some(model)) => ("model", &model.server),
            (None, None) => ("model", &None),
        };
        let harms = approval.harms();
        let asked = match much {
            Much::Whole => approval.asked.clone(),
            Much::Beginning => approval.asked.chars().take(LISTED).collect(),
        };
        let (trip, word) = (approval.trip(), approval.word());
        let said = |text: fn(&Word) -> &String| {
            word.as_ref().map(|word| text(word).clone()).filter(|text| !text.is_empty())
        };
        Approval {
            id: approval.id.clone(),
            project: approval.project.clone(),
            agent: approval.agent.clone(),
            session: approval.session.clone(),
            scope: approval.nested.clone(),
            kind,
            tool: call.name().to_owned(),
            server: server.clone(),
            destroys: harms.iter().filter(|harm| harm.kind.removes()).map(|h| h.deed()).collect(),
            harms: harms.into_iter().map(Would::of).collect(),
            asked,
            asked_chars: chars(approval),
            unkept_chars: approval.unkept,
            guard: trip.map_or("", |trip| trip.guard.name()),
            reason: trip.map(|trip| trip.reason.clone()).unwrap_or_default(),
            explain: trip.map(Trip::explain).unwrap_or_default(),
            since_ms: approval.since.0,
            until_ms: approval.until.0,
            state: word.as_ref().map_or("waiting", |word| word.answer.name()),
            decided_by: said(|word| &word.by),
            decided_why: said(|word| &word.reason),
            decided_ms: word.as_ref().map(|word| word.at.0),
        }
    }
}

/// Characters of a call that a person can be shown.
fn chars(approval: &deadstop_warden::Approval) -> u64 {
    approval.asked.chars().count() as u64
}

/// Calls that wait for a person.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Waiting {
    /// The longest waiting first.
    items: Vec<Approval>,
}

/// How long to wait for an answer.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct Patience {
    /// Seconds to wait for a decision before answering.
    #[param(minimum = 0, maximum = 300, default = 0)]
    wait: Option<u64>,
}

/// A person's word.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Because {
    /// Why.
    #[schema(min_length = 1, max_length = 1000)]
    pub(crate) reason: String,
    /// The person who says so, where a client speaks for several.
    #[schema(max_length = 200)]
    pub(crate) by: Option<String>,
}

impl Strict for Because {}

/// A person's word that lets a call pass.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Approving {
    /// Why.
    #[schema(min_length = 1, max_length = 1000)]
    pub(super) reason: String,
    /// The person who says so, where a client speaks for several.
    #[schema(max_length = 200)]
    pub(super) by: Option<String>,
    /// Characters of `asked` that the person was shown. Needed for a tool call whose `asked_chars`
    /// are more than 2,000, and then equal to them.
    #[schema(minimum = 0)]
    pub(super) shown_chars: Option<u64>,
}

impl Strict for Approving {}

/// The calls that wait for a person.
#[utoipa::path(
    get, path = "/api/approvals", tag = "approvals",
    responses((status = 200, description = "The longest waiting first", body = Waiting))
)]
pub(crate) async fn list(State(app): State<Arc<App>>, who: Who) -> Json<Waiting> {
    let waiting = app.warden.approvals.waiting(&who.project, app.warden.time());
    let items = waiting.iter().map(|approval| Approval::of(approval, Much::Beginning));
    Json(Waiting { items: items.collect() })
}

/// One of them, or one that was decided a moment ago. With `wait`, the answer comes when it is
/// decided, or when the time is up.
#[utoipa::path(
    get, path = "/api/approvals/{id}", tag = "approvals",
    params(("id" = String, Path, description = "The approval"), Patience),
    responses((status = 200, description = "As it is now", body = Approval))
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    who: Who,
    At(id): At<String>,
    Asked(patience): Asked<Patience>,
) -> Result<Json<Approval>, Problem> {
    let approval = find(&app, &who, &id)?;
    let wait = Duration::from_secs(patience.wait.unwrap_or_default());
    if !wait.is_zero() {
        // A server that shuts down answers at once.
        let over = app.warden.events.over.clone();
        tokio::select! {
            _ = tokio::time::timeout(wait, approval.decided()) => {}
            () = over.cancelled() => {}
        }
    }
    Ok(Json(Approval::of(&approval, Much::Whole)))
}

/// Lets a call pass that waits, if the person was shown all of it.
#[utoipa::path(
    post, path = "/api/approvals/{id}/approve", tag = "approvals", request_body = Approving,
    params(("id" = String, Path, description = "The approval")),
    responses(
        (status = 200, description = "In force and in the audit", body = Approval),
        (status = 422, description = "`not_shown`: show the whole call first", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "`already_decided`", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn approve(
    State(app): State<Arc<App>>,
    who: Who,
    At(id): At<String>,
    Body(Approving { reason, by, shown_chars }): Body<Approving>,
) -> Result<Json<Approval>, Problem> {
    shown(&*find(&app, &who, &id)?, shown_chars)?;
    decide(&app, &who, &id, ApprovalOutcome::Approved, &Because { reason, by }).await
}

/// Whether a person was shown all of a tool call. Of a model call the prompt's beginning is enough:
/// what is asked about is its cost or its pattern.
fn shown(approval: &deadstop_warden::Approval, chars_shown: Option<u64>) -> Result<(), Problem> {
    if approval.call.tool().is_none() || approval.word().is_some() {
        return Ok(());
    }
    let at = format!("/api/approvals/{}", approval.id);
    all_shown(&approval.asked, approval.unkept, chars_shown, &at)
}

/// Whether a person was shown the whole text of a call; `at` is where to get it.
pub(super) fn all_shown(
    asked: &str,
    unkept: u64,
    shown: Option<u64>,
    at: &str,
) -> Result<(), Problem> {
    let chars = asked.chars().count() as u64;
    let not_shown = |text: String| Err(Problem::new(Code::NotShown, text));
    if unkept > 0 {
        return not_shown(format!(
            "the call has {} characters, and only the first {chars} can be shown: a person cannot \
             let it pass; have the agent make smaller calls",
            chars + unkept
        ));
    }
    match shown {
        Some(shown) if shown == chars => Ok(()),
        None if chars <= LISTED as u64 => Ok(()),
        _ => not_shown(format!(
            "the call has {chars} characters: show all of `asked` from GET {at} to the person, and \
             send `shown_chars`: {chars}"
        )),
    }
}

/// Refuses a call that waits.
#[utoipa::path(
    post, path = "/api/approvals/{id}/deny", tag = "approvals", request_body = Because,
    params(("id" = String, Path, description = "The approval")),
    responses(
        (status = 200, description = "In force and in the audit", body = Approval),
        (status = 409, description = "`already_decided`", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn deny(
    State(app): State<Arc<App>>,
    who: Who,
    At(id): At<String>,
    Body(because): Body<Because>,
) -> Result<Json<Approval>, Problem> {
    decide(&app, &who, &id, ApprovalOutcome::Denied, &because).await
}

async fn decide(
    app: &App,
    who: &Who,
    id: &str,
    answer: ApprovalOutcome,
    because: &Because,
) -> Result<Json<Approval>, Problem> {
    let approval = find(app, who, id)?;
    let by = app.redacted(who, &who.signed(because.by.as_deref()));
    let reason = app.redacted(who, &because.reason);
    let word = Word::said(answer, &by, &reason, app.warden.time());
    match app.warden.say(&approval, word).await {
        Some(Ok(())) => Ok(Json(Approval::of(&approval, Much::Whole))),
        Some(Err(error)) => {
            let text = format!("it could not be written, or told where the call waits: {error}");
            Err(Problem::new(Code::NotDurable, text))
        }
        None => {
            let now = Approval::of(&approval, Much::Beginning);
            let by = now.decided_by.map(|by| format!(" by {by}")).unwrap_or_default();
            let text = format!("it is no longer waiting: {}{by}", now.state);
            Err(Problem::new(Code::AlreadyDecided, text))
        }
    }
}

fn find(app: &App, who: &Who, id: &str) -> Result<Arc<deadstop_warden::Approval>, Problem> {
    let found = app.warden.approvals.get(&who.project, id);
    let found = found.ok_or_else(|| Problem::not_found("call that waits"))?;
    who.may_see(&found.agent)?;
    Ok(found)
}
