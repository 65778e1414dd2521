//! Sessions: list, detail, orders.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use deadstop_store::{Paging, SessionFilter, SessionState, Store, StoredSession};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::agents::Totals;
use super::auth::Who;
use super::calls::stored_session;
use super::extract::{Asked, AskedBoth, At, Body, Filter, Name, Numbered, Page};
use super::gauge::FailingServer;
use super::live::{Row, Running};
use super::orders::{Carried, Done, Why, carry_out};
use super::problem::{Problem, ProblemBody};
use super::standing::{Standing, Waiting};
use deadstop_warden::{Project, Scope, What, now};

/// A session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Session {
    /// Its number; a session that was reset gets a new one. Null while it is not written yet.
    #[schema(required)]
    number: Option<String>,
    /// Its agent.
    agent: String,
    /// Its name.
    name: String,
    /// `running`, `paused`, `killed` or `ended`: whether its own calls go through.
    state: &'static str,
    /// How it stands, with its agent and its project.
    standing: Standing,
    /// The provider that it used last, if that fails, so that its calls are refused for a while.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    failing: Vec<FailingServer>,
    /// Why it is in this state.
    #[schema(required)]
    why: Option<String>,
    /// What was ended above it, so that its calls are refused although it was not ended itself:
    /// `agent`, `project`, or null.
    #[schema(required)]
    stopped_with: Option<&'static str>,
    /// Its health tags, such as `loop_detected` or `budget_warning`.
    tags: Vec<String>,
    /// The provider that it used last.
    #[schema(required)]
    provider: Option<String>,
    /// The model that it used last.
    #[schema(required)]
    model: Option<String>,
    /// When it was opened.
    opened_ms: u64,
    /// When it last did something.
    used_ms: u64,
    #[serde(flatten)]
    totals: Totals,
}

impl From<StoredSession> for Session {
    fn from(stored: StoredSession) -> Session {
        Session {
            number: Some(stored.number.to_string()),
            state: stored.state.name(),
            standing: Standing::stored(&stored, now()),
            failing: Vec::new(),
            agent: stored.agent,
            name: stored.name,
            why: stored.why,
            stopped_with: None,
            tags: stored.tags,
            provider: stored.provider,
            model: stored.model,
            opened_ms: stored.opened.0,
            used_ms: stored.used.0,
            totals: stored.counters.into(),
        }
    }
}

/// A session, and what it has in memory.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionDetail {
    #[serde(flatten)]
    session: Session,
    /// Whether another session of the same name was opened since, so that orders go to that one.
    superseded: bool,
    /// What it has spent and reserved, as it is now; null if it is not in memory.
    #[schema(required)]
    live: Option<Running>,
}

/// Which sessions.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct SessionsAsked {
    /// Only those that stand so.
    #[param(inline)]
    state: Option<StateAsked>,
    /// Only those with this health tag.
    #[param(max_length = 50)]
    tag: Option<String>,
}

/// How a session stands, with its agent and its project; `killed` and `ended` are about itself alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StateAsked {
    /// Its calls go through, and it made one in the last 15 minutes or has one that runs.
    Running,
    /// A call of it waits for a person's approval.
    Waiting,
    /// The same as `waiting`.
    WaitingForApproval,
    /// Its next call is held.
    Paused,
    /// It may go on and did nothing for 15 minutes.
    Idle,
    /// Its host said that it is over.
    Finished,
    /// It was stopped, by a guard or a person.
    Stopped,
    /// A guard stopped it.
    StoppedByGuard,
    /// A person stopped it.
    StoppedByPerson,
    /// It was ended itself, by a guard or a person.
    Killed,
    /// It ended by itself.
    Ended,
}

impl StateAsked {
    /// Whether a session that stands so is meant.
    fn fits(self, standing: Standing) -> bool {
        match self {
            StateAsked::Running => standing == Standing::Running,
            StateAsked::Waiting | StateAsked::WaitingForApproval => {
                standing == Standing::WaitingForApproval
            }
            StateAsked::Paused => standing == Standing::Paused,
            StateAsked::Idle => standing == Standing::Idle,
            StateAsked::Finished => standing == Standing::Finished,
            StateAsked::Stopped => standing.is_stopped(),
            StateAsked::StoppedByGuard => standing == Standing::StoppedByGuard,
            StateAsked::StoppedByPerson => standing == Standing::StoppedByPerson,
            // The database has chosen those.
            StateAsked::Killed | StateAsked::Ended => true,
        }
    }

    /// What the database can tell by itself. How a session stands depends on what is in memory, too.
    fn stored(self) -> Option<SessionState> {
        match self {
            StateAsked::Killed => Some(SessionState::Killed),
            StateAsked::Ended | StateAsked::Finished => Some(SessionState::Ended),
            _ => None,
        }
    }
}

/// Rows that are read at a time, and times, for one page of sessions that stand in a certain way.
const ROWS: u32 = 1000;
const READS: usize = 20;

/// Sessions, the one opened last first.
///
/// With `state`, a page may have fewer entries than asked for, and `next` all the same.
#[utoipa::path(
    get, path = "/api/sessions", tag = "sessions", params(Filter, SessionsAsked),
    responses((status = 200, description = "A page of them", body = Page<Session>))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    who: Who,
    AskedBoth(filter, asked): AskedBoth<Filter, SessionsAsked>,
) -> Result<Json<Page<Session>>, Problem> {
    let wanted = SessionFilter {
        agent: filter.agent.clone(),
        name: filter.session.clone(),
        state: asked.state.and_then(StateAsked::stored),
        tag: asked.tag.or_else(|| filter.guard().ok().flatten().map(tag_of)),
        period: filter.period(),
    };
    filter.guard()?;
    let project = app.project(&who).await?;
    let place = StandingInputs {
        app: &app,
        project: &project,
        waiting: Waiting::of(&app, &who.project, now()),
    };
    let fits =
        |stored: &StoredSession| asked.state.is_none_or(|state| state.fits(place.standing(stored)));
    let found = sessions(app.store()?, &who.project, &wanted, &filter.paging(), fits).await?;
    let above = |stored: StoredSession| {
        let stopped_with = stopped_with(&app, &project, &stored.agent);
        let standing = place.standing(&stored);
        let live = place.live(&stored);
        let totals = Totals::newest(stored.counters, live.as_deref());
        let failing = live.map(|live| place.failing(&live)).unwrap_or_default();
        Session { stopped_with, standing, failing, totals, ..Session::from(stored) }
    };
    Ok(Json(Page::of(found, above)))
}

/// A page of the sessions that fit. Reads on until the page is full, or so many rows were read.
async fn sessions(
    store: &Store,
    project: &str,
    wanted: &SessionFilter,
    paging: &Paging,
    fits: impl Fn(&StoredSession) -> bool,
) -> Result<deadstop_store::Page<StoredSession>, Problem> {
    let most = paging.limit as usize;
    let mut page = store.sessions(project, wanted, paging).await?;
    page.items.retain(&fits);
    for _ in 0..READS {
        let Some(cursor) = page.next.take_if(|_| page.items.len() < most) else { break };
        let rest = Paging { limit: ROWS, cursor: Some(cursor) };
        let read = store.sessions(project, wanted, &rest).await?;
        page.next = read.next;
        let mut fitting = read.items.into_iter().filter(&fits);
        page.items.extend(fitting.by_ref().take(most - page.items.len()));
        if fitting.next().is_some() {
            page.next = page.items.last().map(|last| last.number.to_string());
        }
    }
    Ok(page)
}

/// What a session's standing depends on, apart from its row.
struct StandingInputs<'a> {
    app: &'a App,
    project: &'a Project,
    waiting: Waiting,
}

impl StandingInputs<'_> {
    /// A stored session as it is in memory, unless another one took its name since.
    fn live(&self, stored: &StoredSession) -> Option<Arc<Scope>> {
        let live = self.app.warden.live_session(&self.project.name, &stored.agent, &stored.name);
        live.filter(|live| live.number() == stored.number)
    }

    /// How a session stands: what is in memory is newer than its row.
    fn standing(&self, stored: &StoredSession) -> Standing {
        let own = match self.live(stored) {
            // Of a session that is over, a node that was not told may know less than the row.
            Some(live) if stored.state != SessionState::Ended || live.used() > stored.used => {
                Standing::live(&live, now())
            }
            _ => Standing::stored(stored, now()),
        };
        self.under(own, &stored.agent, &stored.name)
    }

    /// The provider that holds a session back.
    fn failing(&self, live: &Scope) -> Vec<FailingServer> {
        let agent = self.app.warden.live_agent(&self.project.name, live.agent());
        let of = |agent: Arc<Scope>| FailingServer::of_session(self.project, &agent, live, now());
        agent.map(of).unwrap_or_default()
    }

    fn under(&self, own: Standing, agent: &str, session: &str) -> Standing {
        let of_agent = self.app.warden.live_agent(&self.project.name, agent);
        let of_agent = of_agent.map_or(Standing::Running, |agent| Standing::live(&agent, now()));
        let above = [Standing::live(&self.project.scope, now()), of_agent];
        own.under(&above, self.waiting.waits(agent, session))
    }
}

/// What was killed above an agent's sessions. All killed scopes are in memory.
fn stopped_with(app: &App, project: &Project, agent: &str) -> Option<&'static str> {
    let dead = |scope: &Scope| scope.state().killed().is_some();
    let of_agent = app.warden.live_agent(&project.name, agent);
    match of_agent.is_some_and(|scope| dead(&scope)) {
        true => Some("agent"),
        false => dead(&project.scope).then_some("project"),
    }
}

/// The health tag that a guard leaves.
fn tag_of(guard: deadstop_core::GuardId) -> String {
    guard.tag(deadstop_core::Verdict::Kill).to_owned()
}

/// One session: the one of this name that was opened last, or an earlier one by its number.
#[utoipa::path(
    get, path = "/api/sessions/{agent}/{session}", tag = "sessions",
    params(
        ("agent" = String, Path, description = "The agent"),
        ("session" = String, Path, description = "The session's name"),
        Numbered,
    ),
    responses((status = 200, description = "The session", body = SessionDetail))
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    who: Who,
    At((Name(agent), Name(name))): At<(Name, Name)>,
    Asked(asked): Asked<Numbered>,
) -> Result<Json<SessionDetail>, Problem> {
    who.may_see(&agent)?;
    let (store, number) = (app.store()?, asked.number()?);
    let project = app.project(&who).await?;
    let stored = stored_session(store, &who.project, (&agent, &name), number).await?;
    // What is in memory is the session of this name that was opened last.
    let live = app.warden.live_session(&who.project, &agent, &name);
    let superseded = match (number, &live) {
        (None, _) => false,
        (Some(number), Some(newest)) => newest.number() != number,
        (Some(number), None) => {
            let newest = store.session_named(&who.project, &agent, &name).await?;
            newest.is_some_and(|newest| newest.number != number)
        }
    };
    let scope = live.filter(|_| !superseded);
    let of_agent = app.warden.live_agent(&who.project, &agent);
    let running = |scope: &Arc<Scope>| Running::below(&project, of_agent.as_deref(), scope, now());
    let live = scope.as_ref().map(running);
    let counters = stored.as_ref().map(|stored| stored.counters).unwrap_or_default();
    let totals = Totals::newest(counters, scope.as_deref());
    let session = match (stored, &live) {
        (Some(stored), _) => Session { totals, ..Session::from(stored) },
        (None, Some(live)) => unwritten(&live.row, totals),
        (None, None) => return Err(Problem::not_found("session")),
    };
    // What is in memory is newer than what is written.
    let (state, own, why) = match &live {
        Some(live) => (live.row.state, live.row.standing, live.row.why.clone()),
        None => (session.state, session.standing, session.why.clone()),
    };
    let place = StandingInputs {
        app: &app,
        project: &project,
        waiting: Waiting::of(&app, &who.project, now()),
    };
    let standing = place.under(own, &agent, &name);
    let stopped_with = stopped_with(&app, &project, &session.agent);
    let failing = scope.map(|scope| place.failing(&scope)).unwrap_or_default();
    let session = Session { state, standing, failing, why, stopped_with, ..session };
    Ok(Json(SessionDetail { session, superseded, live }))
}

fn unwritten(row: &Row, totals: Totals) -> Session {
    Session {
        number: None,
        agent: row.agent.clone(),
        name: row.name.clone(),
        state: row.state,
        standing: row.standing,
        failing: Vec::new(),
        why: row.why.clone(),
        stopped_with: None,
        tags: Vec::new(),
        provider: None,
        model: None,
        opened_ms: row.opened_ms,
        used_ms: row.used_ms,
        totals,
    }
}

/// A session that is live or stored; fails for an unknown one.
pub(crate) async fn known(app: &App, who: &Who, at: &(Name, Name)) -> Result<Arc<Scope>, Problem> {
    let (Name(agent), Name(session)) = at;
    who.may_see(agent)?;
    let unknown = || Problem::not_found("session");
    if app.warden.live_session(&who.project, agent, session).is_none() {
        let stored = app.store()?.session_named(&who.project, agent, session).await?;
        stored.ok_or_else(unknown)?;
    }
    Ok(app.warden.session_in(&who.project, agent, session).await?)
}

/// Ends a session, for good.
#[utoipa::path(
    post, path = "/api/sessions/{agent}/{session}/kill", tag = "sessions", request_body = Why,
    params(
        ("agent" = String, Path, description = "The agent"),
        ("session" = String, Path, description = "The session's name"),
    ),
    responses((status = 200, description = "In force and on disk", body = Done))
)]
pub(crate) async fn kill(
    State(app): State<Arc<App>>,
    who: Who,
    At(at): At<(Name, Name)>,
    Body(why): Body<Why>,
) -> Carried {
    carry_out(&app, &who, &known(&app, &who, &at).await?, What::Kill, &why).await
}

/// Holds a session's next call until a person decides.
#[utoipa::path(
    post, path = "/api/sessions/{agent}/{session}/pause", tag = "sessions", request_body = Why,
    params(
        ("agent" = String, Path, description = "The agent"),
        ("session" = String, Path, description = "The session's name"),
    ),
    responses((status = 200, description = "In force and on disk", body = Done))
)]
pub(crate) async fn pause(
    State(app): State<Arc<App>>,
    who: Who,
    At(at): At<(Name, Name)>,
    Body(why): Body<Why>,
) -> Carried {
    carry_out(&app, &who, &known(&app, &who, &at).await?, What::Pause, &why).await
}

/// Ends a hold.
#[utoipa::path(
    post, path = "/api/sessions/{agent}/{session}/resume", tag = "sessions", request_body = Why,
    params(
        ("agent" = String, Path, description = "The agent"),
        ("session" = String, Path, description = "The session's name"),
    ),
    responses(
        (status = 200, description = "In force and on disk", body = Done),
        (status = 409, description = "`session_final`", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    who: Who,
    At(at): At<(Name, Name)>,
    Body(why): Body<Why>,
) -> Carried {
    carry_out(&app, &who, &known(&app, &who, &at).await?, What::Resume, &why).await
}

/// A fresh start under the same name.
#[utoipa::path(
    post, path = "/api/sessions/{agent}/{session}/reset", tag = "sessions", request_body = Why,
    params(
        ("agent" = String, Path, description = "The agent"),
        ("session" = String, Path, description = "The session's name"),
    ),
    responses((status = 200, description = "In force and on disk", body = Done))
)]
pub(crate) async fn reset(
    State(app): State<Arc<App>>,
    who: Who,
    At(at): At<(Name, Name)>,
    Body(why): Body<Why>,
) -> Carried {
    carry_out(&app, &who, &known(&app, &who, &at).await?, What::Reset, &why).await
}
