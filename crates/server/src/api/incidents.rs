//! Incidents: what was blocked or killed, loops from their first warning on, and outages: why, on what
//! evidence, and what it would have cost.

mod act;
mod false_alarm;
mod groups;
mod ladder;
mod pace;

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use deadstop_core::{Measure, Time, Trip, Verdict};
use deadstop_store::{
    Acknowledged, CallFilter, Fingerprint, IncidentFilter, IncidentState, Mute, Order, Paging,
    Period, Resolved, SessionFilter, StatesWanted, Store, StoredIncident,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::auth::Who;
use super::calls::{Call, Said, Wanted, session_number};
use super::extract::{AskedBoth, At, Filter, Name, Page, number};
use super::gauge::SignalLine;
use super::problem::{Code, Problem};
pub(crate) use act::*;
use deadstop_warden::now;
pub(crate) use false_alarm::*;
pub(crate) use groups::*;
use ladder::Rung;
use pace::{Pace, RUNS, Usual};

/// Calls shown before and after an incident.
const AROUND: u32 = 20;

/// An incident.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Incident {
    /// Its id.
    id: String,
    /// When it happened, or began.
    at_ms: u64,
    /// When it last grew: all steps of one loop are one incident, and so are all calls of one outage.
    last_ms: u64,
    /// How many calls it met, of those that are still kept; 10,000 means that many or more.
    calls: u64,
    /// The agent it happened to.
    agent: String,
    /// The session it happened in.
    session: String,
    /// That session's number; null for incidents from before there were numbers.
    #[schema(required)]
    session_number: Option<String>,
    /// The provider that the call was for.
    #[schema(required)]
    provider: Option<String>,
    /// Which guard.
    guard: &'static str,
    /// Why, in a word that stays the same.
    reason: String,
    /// The strictest so far: `warn`, `steer`, `block` or `kill`.
    verdict: String,
    /// Why, in a sentence.
    explain: String,
    /// What was measured, where it is a score.
    #[schema(required)]
    score: Option<f64>,
    /// The score that had to be exceeded.
    #[schema(required)]
    threshold: Option<f64>,
    /// How many requests were looked at.
    #[schema(required)]
    window: Option<u32>,
    /// What the score is made of.
    signals: Vec<SignalLine>,
    /// Who acknowledged it, and when; null if it is not acknowledged.
    #[schema(required)]
    acknowledged: Option<Seen>,
    /// `open`, `acknowledged`, `muted` or `resolved`.
    state: &'static str,
    /// What it has in common with incidents that are alike, in short: agent, guard and `about`.
    fingerprint: String,
    /// The tool, where it is about one tool; otherwise the guard's code for why.
    about: String,
    /// The person who looks after it.
    #[schema(required)]
    assignee: Option<String>,
    /// Who resolved it, and when; null if it is not resolved.
    #[schema(required)]
    resolved: Option<Closed>,
    /// Who muted incidents that are alike; null if they are not muted.
    #[schema(required)]
    muted: Option<Silence>,
    /// The trip in full.
    trip: Value,
}

/// Who has seen an incident.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Seen {
    /// Who.
    by: String,
    /// When.
    at_ms: u64,
    /// What they had to say.
    note: String,
}

impl From<Acknowledged> for Seen {
    fn from(seen: Acknowledged) -> Seen {
        Seen { by: seen.by, at_ms: seen.at.0, note: seen.note }
    }
}

/// Who has resolved an incident.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Closed {
    /// Who.
    by: String,
    /// When.
    at_ms: u64,
    /// What they had to say.
    note: String,
    /// `fixed` or `false_alarm`.
    how: &'static str,
}

impl From<Resolved> for Closed {
    fn from(resolved: Resolved) -> Closed {
        let Resolved { by, at, note, how } = resolved;
        Closed { by, at_ms: at.0, note, how: how.name() }
    }
}

/// What incidents are shown with: the mutes of their project.
pub(crate) struct Shown {
    mutes: HashMap<Fingerprint, Mute>,
    now: Time,
}

impl Shown {
    pub(crate) async fn read(store: &Store, project: &str) -> Result<Shown, Problem> {
        let (mutes, now) = (store.mutes(project).await?, now());
        let holds = mutes.into_iter().filter(|mute| mute.holds(now));
        Ok(Shown { mutes: holds.map(|mute| (mute.fingerprint.clone(), mute)).collect(), now })
    }

    /// The mute of a fingerprint, if it holds.
    fn mute(&self, fingerprint: &Fingerprint) -> Option<&Mute> {
        self.mutes.get(fingerprint)
    }

    /// An incident as it is shown.
    pub(crate) fn incident(&self, stored: StoredIncident) -> Incident {
        let fingerprint = stored.fingerprint();
        let mute = self.mute(&fingerprint);
        let state = match stored.state(mute, self.now) {
            IncidentState::Open => "open",
            IncidentState::Acknowledged => "acknowledged",
            IncidentState::Muted => "muted",
            IncidentState::Resolved => "resolved",
        };
        let muted = mute.map(Silence::from);
        Incident { state, muted, fingerprint: fingerprint.id(), ..Incident::from(stored) }
    }
}

fn score(measure: Measure) -> Option<f64> {
    match measure {
        Measure::Score(score) => Some(score),
        _ => None,
    }
}

fn signals(trip: &Trip) -> Vec<SignalLine> {
    trip.signals.iter().map(SignalLine::from).collect()
}

impl Incident {
    fn agent(&self) -> &str {
        &self.agent
    }
}

impl From<StoredIncident> for Incident {
    fn from(stored: StoredIncident) -> Incident {
        let trip = stored.trip;
        Incident {
            id: stored.id,
            at_ms: stored.at.0,
            last_ms: stored.last.0,
            calls: stored.calls,
            agent: stored.agent,
            session: stored.session,
            session_number: stored.session_number.map(|number| number.to_string()),
            provider: stored.provider,
            guard: trip.guard.name(),
            reason: trip.reason.clone(),
            verdict: trip.verdict.to_string(),
            explain: trip.explain(),
            score: score(trip.measured),
            threshold: score(trip.limit),
            window: trip.window,
            signals: signals(&trip),
            acknowledged: stored.acknowledged.map(Seen::from),
            state: "open",
            fingerprint: String::new(),
            about: stored.about,
            assignee: stored.assignee,
            resolved: stored.resolved.map(Closed::from),
            muted: None,
            trip: serde_json::to_value(&trip).unwrap_or_default(),
        }
    }
}

/// Which incidents.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct IncidentsAsked {
    /// Only those with this code for why.
    #[param(max_length = 100)]
    reason: Option<String>,
    /// Only those that are about this: a tool, or the guard's code for why.
    #[param(max_length = 200)]
    about: Option<String>,
    /// Only acknowledged ones (true), or only those that are not (false).
    acknowledged: Option<bool>,
    /// Only those that stand so.
    #[param(inline)]
    state: Option<StateAsked>,
    /// Only those of the session with this number, also if its name was used again.
    #[param(max_length = 20)]
    number: Option<String>,
}

/// How an incident stands.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StateAsked {
    /// No person has seen it.
    Open,
    /// A person has seen it, or has it assigned.
    Acknowledged,
    /// Incidents that are alike are muted.
    Muted,
    /// A person has resolved it, and it did not happen again.
    Resolved,
    /// It is open or acknowledged.
    Unresolved,
}

impl From<StateAsked> for StatesWanted {
    fn from(state: StateAsked) -> StatesWanted {
        match state {
            StateAsked::Open => StatesWanted::One(IncidentState::Open),
            StateAsked::Acknowledged => StatesWanted::One(IncidentState::Acknowledged),
            StateAsked::Muted => StatesWanted::One(IncidentState::Muted),
            StateAsked::Resolved => StatesWanted::One(IncidentState::Resolved),
            StateAsked::Unresolved => StatesWanted::Unresolved,
        }
    }
}

/// What the store is asked for; nothing if the session is not there.
async fn wanted(
    store: &Store,
    who: &Who,
    filter: &Filter,
    asked: IncidentsAsked,
) -> Result<Option<IncidentFilter>, Problem> {
    let number = number(asked.number.as_deref())?;
    let session = match session_number(store, &who.project, filter, number).await? {
        Wanted::Nothing => return Ok(None),
        Wanted::Session(number) => Some(number),
        Wanted::Any => None,
    };
    Ok(Some(IncidentFilter {
        agent: filter.agent.clone(),
        session,
        guard: filter.guard()?,
        reason: asked.reason,
        about: asked.about,
        acknowledged: asked.acknowledged,
        state: asked.state.map(|state| (state.into(), now())),
        period: filter.period(),
    }))
}

/// Incidents, the newest first.
#[utoipa::path(
    get, path = "/api/incidents", tag = "incidents", params(Filter, IncidentsAsked),
    responses((status = 200, description = "A page of them", body = Page<Incident>))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    who: Who,
    AskedBoth(filter, asked): AskedBoth<Filter, IncidentsAsked>,
) -> Result<Json<Page<Incident>>, Problem> {
    let store = app.store()?;
    written(&app).await?;
    let Some(wanted) = wanted(store, &who, &filter, asked).await? else {
        return Ok(Json(Page::all(Vec::new())));
    };
    let found = store.incidents(&who.project, &wanted, &filter.paging()).await?;
    let shown = Shown::read(store, &who.project).await?;
    Ok(Json(Page::of(found, |incident| shown.incident(incident))))
}

/// Writes what is pending first, so that the newest incidents are in the answer.
async fn written(app: &App) -> Result<(), Problem> {
    app.warden.flush_everywhere().await.map_err(|error| {
        Problem::new(Code::StoreFailed, format!("the newest could not be written: {error}"))
    })
}

/// One of the calls that an incident is about.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Piece {
    /// Its place, from zero.
    position: u64,
    /// The call's id, if it is known.
    #[schema(required)]
    call: Option<String>,
    #[serde(flatten)]
    said: Said,
    /// The request body of the call that tripped, as it came in: with system prompt and history. Null for
    /// the calls before it, which it repeats, and for calls that do not pass the gateway.
    #[schema(required)]
    body: Option<RequestBody>,
}

/// A request body, secrets removed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RequestBody {
    /// Its beginning: at most 32 KB.
    text: String,
    /// How many characters it had in full.
    chars: u64,
    /// Whether it is shortened here.
    cut: bool,
}

impl From<deadstop_store::Body> for RequestBody {
    fn from(body: deadstop_store::Body) -> RequestBody {
        let deadstop_store::Body { text, chars, cut } = body;
        RequestBody { text, chars, cut }
    }
}

/// How a score was made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Scoring {
    /// The sum.
    score: f64,
    /// What had to be exceeded.
    threshold: f64,
    /// The sum in percent of the threshold.
    percent: f64,
    /// Where a bar that shows it ends: twice the threshold.
    scale_end: f64,
    /// What it is made of.
    signals: Vec<SignalLine>,
}

impl Scoring {
    fn of(trip: &Trip) -> Option<Scoring> {
        let (score, threshold) = (score(trip.measured)?, score(trip.limit)?);
        let percent = if threshold > 0.0 { 100.0 * score / threshold } else { 0.0 };
        Some(Scoring {
            score,
            threshold,
            percent,
            scale_end: 2.0 * threshold,
            signals: signals(trip),
        })
    }
}

/// An incident with everything that is known about it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct IncidentDetail {
    #[serde(flatten)]
    incident: Incident,
    /// How its score was made; null where it was no score.
    #[schema(required)]
    scoring: Option<Scoring>,
    /// The steps of a loop's ladder that were taken, the mildest first: what the agent was told, at
    /// which count, and what it did next. Empty for incidents that are no loop.
    ladder: Vec<Rung>,
    /// The requests and answers that it is about, secrets removed.
    evidence: Vec<Piece>,
    /// The session's last calls before it, oldest first.
    before: Vec<Call>,
    /// The session's first calls after it.
    after: Vec<Call>,
    /// What the stop saved and how that was worked out; null if it stopped no scope, or too few calls
    /// came before it.
    #[schema(required)]
    unstopped: Option<Pace>,
}

/// One incident.
#[utoipa::path(
    get, path = "/api/incidents/{id}", tag = "incidents",
    params(("id" = String, Path, description = "The incident's id")),
    responses((status = 200, description = "With its evidence", body = IncidentDetail))
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    who: Who,
    At(Name(id)): At<Name>,
) -> Result<Json<IncidentDetail>, Problem> {
    let store = app.store()?;
    let incident = match store.incident(&who.project, &id).await? {
        Some(incident) => incident,
        None => {
            written(&app).await?;
            let found = store.incident(&who.project, &id).await?;
            found.ok_or_else(|| Problem::not_found("incident"))?
        }
    };
    detail(store, &who.project, incident).await.map(Json)
}

async fn detail(
    store: &Store,
    project: &str,
    incident: StoredIncident,
) -> Result<IncidentDetail, Problem> {
    let evidence = store.evidence(project, &incident.id).await?;
    let ladder = ladder::of(store, project, &incident).await?;
    let (mut before, mut after) = (Vec::new(), Vec::new());
    if let Some(session) = incident.session_number {
        let calls = |period, order| CallFilter {
            session: Some(session),
            period,
            order,
            ..CallFilter::default()
        };
        let paging = Paging::first(AROUND);
        let then = Some(Time(incident.last.0 + 1));
        let earlier = calls(Period { from: None, to: then }, Order::Newest);
        let later = calls(Period { from: then, to: None }, Order::Oldest);
        before = store.calls(project, &earlier, &paging).await?.items;
        before.reverse();
        after = store.calls(project, &later, &paging).await?.items;
    }
    let runs = SessionFilter { agent: Some(incident.agent.clone()), ..SessionFilter::default() };
    let runs = store.sessions(project, &runs, &Paging::first(RUNS)).await?.items;
    let usual = Usual::of(&runs, incident.session_number);
    Ok(IncidentDetail {
        scoring: Scoring::of(&incident.trip),
        ladder,
        evidence: evidence
            .into_iter()
            .zip(0..)
            .map(|(piece, position)| Piece {
                position,
                call: piece.call.map(|id| id.to_string()),
                said: piece.exchange.into(),
                body: piece.body.map(RequestBody::from),
            })
            .collect(),
        unstopped: (incident.trip.verdict == Verdict::Kill)
            .then(|| Pace::of(before.iter().map(|l| &l.call), incident.last, now(), usual))
            .flatten(),
        before: before.into_iter().map(Call::from).collect(),
        after: after.into_iter().map(Call::from).collect(),
        incident: Shown::read(store, project).await?.incident(incident),
    })
}
