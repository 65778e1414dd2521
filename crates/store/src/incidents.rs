//! Incidents: trips that blocked or killed, loops from their first warning on, and outages, one by one
//! and in groups.
//!
//! All trips of one loop or outage have the same incident id. Each write adds its rungs: the row shows the
//! strictest and newest trip, and the rungs say at which counts the agent was warned, steered, blocked
//! and ended.

use std::collections::BTreeMap;

use deadstop_core::{GuardId, Time, Trip, Verdict};

use crate::backend::{Query, Row, Tx, sql};
use crate::page::{Page, Paging, Period};
use crate::workflow::{self, Fingerprint, IncidentState, Mute, Resolution, Resolved, StatesWanted};
use crate::{Store, StoreError};

/// An incident as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredIncident {
    /// Its id.
    pub id: String,
    /// Its project.
    pub project: String,
    /// When it happened, or began.
    pub at: Time,
    /// When it last grew.
    pub last: Time,
    /// The agent it happened to.
    pub agent: String,
    /// The session it happened in.
    pub session: String,
    /// That session's number; nothing for incidents from before there were numbers.
    pub session_number: Option<i64>,
    /// The call that was refused or cut.
    pub call: Option<i64>,
    /// The provider that the call was for.
    pub provider: Option<String>,
    /// What happened.
    pub trip: Trip,
    /// What was done about it, one rung for each verdict. Lists leave them out:
    /// see [`Store::rungs`].
    pub rungs: Vec<StoredRung>,
    /// Whether a person has seen it: see [`Store::act`]. A batch opens it again if it grew
    /// stricter, or if it happened again after it was resolved.
    pub acknowledged: Option<Acknowledged>,
    /// What it is about, the same for all that are alike: a tool, or the guard's code for why.
    pub about: String,
    /// The person who looks after it.
    pub assignee: Option<String>,
    /// Whether a person has resolved it. A batch opens it again if it happened again since.
    pub resolved: Option<Resolved>,
    /// Calls that it met and that are still kept, counted up to [`MOST_CALLS`]. A batch leaves it out.
    pub calls: u64,
}

/// So far the calls of an incident are counted: after a stop a program may call a million times.
pub const MOST_CALLS: u64 = 10_000;

/// One rung of an incident's ladder: all its trips with one verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRung {
    /// What was done.
    pub verdict: Verdict,
    /// When first.
    pub at: Time,
    /// When last.
    pub last: Time,
    /// The guard's count at the first of these trips.
    pub count: u64,
    /// The guard's count at the last one.
    pub last_count: u64,
    /// The count from which on this is done.
    pub limit: u64,
    /// The trip in a sentence, at the last count.
    pub sentence: String,
    /// What the model was told, at the last count.
    pub advice: Option<String>,
    /// The call of the first of these trips.
    pub call: Option<i64>,
    /// The call of the last one.
    pub last_call: Option<i64>,
}

impl StoredRung {
    /// Takes in another trip, or several, with the same verdict.
    fn grow(&mut self, other: &StoredRung) {
        if (other.at, other.count) < (self.at, self.count) {
            (self.at, self.count, self.call) = (other.at, other.count, other.call);
        }
        if (other.last, other.last_count) >= (self.last, self.last_count) {
            let StoredRung { at, count, call, .. } = *self;
            *self = StoredRung { at, count, call, ..other.clone() };
        }
    }
}

impl StoredIncident {
    /// What it has in common with all that are alike.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint {
            agent: self.agent.clone(),
            guard: self.trip.guard.name().to_owned(),
            about: self.about.clone(),
        }
    }

    /// How it stands, where this is the mute of its fingerprint.
    pub fn state(&self, mute: Option<&Mute>, now: Time) -> IncidentState {
        match (&self.resolved, mute, &self.acknowledged) {
            (Some(_), ..) => IncidentState::Resolved,
            (None, Some(mute), _) if mute.holds(now) => IncidentState::Muted,
            (None, _, Some(_)) => IncidentState::Acknowledged,
            (None, _, None) => IncidentState::Open,
        }
    }

    /// Takes in a later or earlier trip of the same incident.
    pub fn grow(&mut self, other: StoredIncident) {
        let newer = (other.trip.verdict, other.last) >= (self.trip.verdict, self.last);
        let (at, last) = (self.at.min(other.at), self.last.max(other.last));
        let mut rungs = std::mem::take(&mut self.rungs);
        for rung in &other.rungs {
            match rungs.iter_mut().find(|own| own.verdict == rung.verdict) {
                Some(own) => own.grow(rung),
                None => rungs.push(rung.clone()),
            }
        }
        if newer {
            let (acknowledged, resolved) = (self.acknowledged.take(), self.resolved.take());
            let (about, assignee) = (std::mem::take(&mut self.about), self.assignee.take());
            *self = StoredIncident { acknowledged, resolved, about, assignee, ..other };
        }
        (self.at, self.last, self.rungs) = (at, last, rungs);
    }
}

/// A person has seen an incident.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledged {
    /// Who.
    pub by: String,
    /// When.
    pub at: Time,
    /// What they have to say.
    pub note: String,
}

/// Which incidents are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IncidentFilter {
    /// Only those of this agent.
    pub agent: Option<String>,
    /// Only those of the session with this number.
    pub session: Option<i64>,
    /// Only those of this guard.
    pub guard: Option<GuardId>,
    /// Only those with this code for why.
    pub reason: Option<String>,
    /// Only those that are about this.
    pub about: Option<String>,
    /// Only those that were acknowledged, or only those that were not.
    pub acknowledged: Option<bool>,
    /// Only those that stand so, at a time: mutes may be over.
    pub state: Option<(StatesWanted, Time)>,
    /// Only those that happened in this span.
    pub period: Period,
}

/// Incidents with the same fingerprint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncidentGroup {
    /// What they have in common.
    pub fingerprint: Fingerprint,
    /// The guard's code for why; where they differ, the last in the alphabet.
    pub reason: String,
    /// How many.
    pub count: u64,
    /// How many of them are neither acknowledged nor resolved.
    pub open: u64,
    /// How many of them are resolved.
    pub resolved: u64,
    /// When it happened first.
    pub first: Time,
    /// When it happened last.
    pub last: Time,
}

/// All columns of incidents, and how many calls each met.
macro_rules! select_all {
    () => {
        "SELECT *, (SELECT COUNT(*) FROM (SELECT 1 FROM calls WHERE calls.incident = incidents.id \
         LIMIT 10000) AS met) AS calls FROM incidents"
    };
}
const SELECT: &str = select_all!();

impl Store {
    /// Incidents, the newest first.
    pub async fn incidents(
        &self,
        project: &str,
        filter: &IncidentFilter,
        paging: &Paging,
    ) -> Result<Page<StoredIncident>, StoreError> {
        let mut query = select(sql(SELECT), project, filter);
        if let Some((at, id)) = paging.time_and_id()? {
            query = query.with(" AND (at_ms, id) < (", at).with(", ", id).then(")");
        }
        let query = query.with(" ORDER BY at_ms DESC, id DESC LIMIT ", paging.rows());
        let found = self.backend.rows(query).await?;
        let items = found.iter().map(read).collect::<Result<_, _>>()?;
        Ok(paging.page(items, |item: &StoredIncident| format!("{}.{}", item.at.0, item.id)))
    }

    /// One incident.
    pub async fn incident(
        &self,
        project: &str,
        id: &str,
    ) -> Result<Option<StoredIncident>, StoreError> {
        let query = sql(concat!(select_all!(), " WHERE id = $1 AND project = $2"));
        let found = self.backend.row(query.bind(id).bind(project)).await?;
        found.as_ref().map(read).transpose()
    }

    /// The rungs of an incident's ladder, the mildest first.
    pub async fn rungs(
        &self,
        project: &str,
        incident: &str,
    ) -> Result<Vec<StoredRung>, StoreError> {
        let query = sql("SELECT * FROM incident_rungs WHERE incident = $1 AND project = $2");
        let found = self.backend.rows(query.bind(incident).bind(project)).await?;
        let mut rungs: Vec<StoredRung> =
            found.iter().map(read_rung).collect::<Result<_, StoreError>>()?;
        rungs.sort_by_key(|rung| rung.verdict);
        Ok(rungs)
    }

    /// Incidents by fingerprint, the group with the newest first; at most a thousand.
    pub async fn incident_groups(
        &self,
        project: &str,
        filter: &IncidentFilter,
        paging: &Paging,
    ) -> Result<Page<IncidentGroup>, StoreError> {
        // Groups move to the front as they grow, so a place in the list is all there is to go by.
        let from = paging.number()?.unwrap_or(0);
        if from < 0 {
            return Err(StoreError::Cursor);
        }
        let query = sql("SELECT agent, guard, about, MAX(reason) AS reason, COUNT(*) AS seen, \
             COUNT(*) - COUNT(COALESCE(resolved_ms, acknowledged_ms)) AS open, \
             COUNT(resolved_ms) AS resolved, MIN(at_ms) AS first_ms, \
             MAX(last_ms) AS grown_ms FROM incidents");
        let query = select(query, project, filter);
        let query = query
            .then(" GROUP BY agent, guard, about ORDER BY grown_ms DESC, agent, guard, about")
            .with(" LIMIT ", paging.rows())
            .with(" OFFSET ", from);
        let read = |row: &Row| {
            Ok(IncidentGroup {
                fingerprint: workflow::fingerprint(row)?,
                reason: row.get("reason")?,
                count: row.unsigned("seen")?,
                open: row.unsigned("open")?,
                resolved: row.unsigned("resolved")?,
                first: Time(row.unsigned("first_ms")?),
                last: Time(row.unsigned("grown_ms")?),
            })
        };
        let found = self.backend.rows(query).await?;
        let items: Vec<_> = found.iter().map(read).collect::<Result<_, StoreError>>()?;
        let mut page = paging.page(items, |_| String::new());
        let next = from.saturating_add_unsigned(page.items.len() as u64);
        page.next = page.next.map(|_| next.to_string());
        Ok(page)
    }
}

/// The conditions of a list.
pub(crate) fn select<'q>(query: Query<'q>, project: &'q str, filter: &IncidentFilter) -> Query<'q> {
    // Where a session is asked for, it alone is to choose the index.
    let query = match filter.session {
        // An outage meets many sessions and is one incident: its row names the last of them.
        Some(session) => query
            .with(" WHERE (session_number = ", session)
            .with(" OR id IN (SELECT incident FROM calls WHERE session_number = ", session)
            .with(" AND incident IS NOT NULL)) AND project || '' = ", project),
        None => query.with(" WHERE project = ", project),
    };
    let query = query
        .with_some(" AND agent = ", filter.agent.clone())
        .with_some(" AND guard = ", filter.guard.map(GuardId::name))
        .with_some(" AND reason = ", filter.reason.clone())
        .with_some(" AND about = ", filter.about.clone())
        .with_some(" AND at_ms >= ", filter.period.from)
        .with_some(" AND at_ms < ", filter.period.to);
    let query = match filter.state {
        Some((wanted, now)) => workflow::standing(query, wanted, now),
        None => query,
    };
    match filter.acknowledged {
        Some(true) => query.then(" AND acknowledged_ms IS NOT NULL"),
        Some(false) => query.then(" AND acknowledged_ms IS NULL"),
        None => query,
    }
}

/// Writes incidents. One that is there grows: it keeps its beginning and shows the strictest trip, and
/// of equally strict ones the newest. Writing the same twice changes nothing.
pub(crate) async fn write(tx: &mut Tx, incidents: &[StoredIncident]) -> Result<(), StoreError> {
    tx.insert(
        "INSERT INTO incidents (id, project, at_ms, last_ms, agent, session, session_number, \
         call_id, provider, guard, reason, verdict, strictness, sentence, trip, about)",
        GROW,
        incidents,
        |incident, values| {
            let trip = &incident.trip;
            values.extend([
                incident.id.as_str().into(),
                incident.project.as_str().into(),
                incident.at.into(),
                incident.last.into(),
                incident.agent.as_str().into(),
                incident.session.as_str().into(),
                incident.session_number.into(),
                incident.call.into(),
                (&incident.provider).into(),
                trip.guard.name().into(),
                trip.reason.as_str().into(),
                trip.verdict.to_string().into(),
                strictness(trip.verdict).into(),
                trip.explain().into(),
                serde_json::to_string(trip).unwrap_or_default().into(),
                incident.about.as_str().into(),
            ]);
        },
    )
    .await?;
    let rungs: Vec<(&StoredIncident, &StoredRung)> = incidents
        .iter()
        .flat_map(|incident| incident.rungs.iter().map(move |rung| (incident, rung)))
        .collect();
    tx.insert(
        "INSERT INTO incident_rungs (incident, strictness, project, at_ms, last_ms, count_first, \
         count_last, count_limit, sentence, advice, call_id, last_call_id)",
        GROW_RUNG,
        &rungs,
        |(incident, rung), values| {
            values.extend([
                incident.id.as_str().into(),
                strictness(rung.verdict).into(),
                incident.project.as_str().into(),
                rung.at.into(),
                rung.last.into(),
                rung.count.into(),
                rung.last_count.into(),
                rung.limit.into(),
                rung.sentence.as_str().into(),
                (&rung.advice).into(),
                rung.call.into(),
                rung.last_call.into(),
            ]);
        },
    )
    .await?;
    Ok(())
}

/// Incidents of a batch, each id once, in the order of their ids.
pub(crate) fn grown(incidents: &[StoredIncident]) -> Vec<StoredIncident> {
    let mut by_id: BTreeMap<&str, StoredIncident> = BTreeMap::new();
    for incident in incidents {
        match by_id.get_mut(incident.id.as_str()) {
            Some(known) => known.grow(incident.clone()),
            None => drop(by_id.insert(&incident.id, incident.clone())),
        }
    }
    by_id.into_values().collect()
}

/// Whether the new row is to be shown: it is stricter, or as strict and newer.
macro_rules! newer {
    () => {
        "(excluded.strictness > incidents.strictness OR (excluded.strictness = \
         incidents.strictness AND excluded.last_ms >= incidents.last_ms))"
    };
}

/// A column that a row empties which came after the incident was resolved.
macro_rules! reopened {
    ($column:literal) => {
        concat!(
            $column,
            " = CASE WHEN excluded.last_ms > incidents.resolved_ms THEN NULL ELSE incidents.",
            $column,
            " END, "
        )
    };
}

/// A column of the new row if that is to be shown.
macro_rules! shown {
    ($column:literal) => {
        concat!(
            $column,
            " = CASE WHEN ",
            newer!(),
            " THEN excluded.",
            $column,
            " ELSE incidents.",
            $column,
            " END, "
        )
    };
}

/// A column that a stricter row empties, and one that came after the incident was resolved.
macro_rules! opened {
    ($column:literal) => {
        concat!(
            $column,
            " = CASE WHEN excluded.strictness > incidents.strictness \
             OR excluded.last_ms > incidents.resolved_ms THEN NULL ELSE incidents.",
            $column,
            " END, "
        )
    };
}

const GROW: &str = concat!(
    "ON CONFLICT (id) DO UPDATE SET ",
    shown!("call_id"),
    shown!("provider"),
    shown!("session"),
    shown!("session_number"),
    shown!("reason"),
    shown!("verdict"),
    shown!("sentence"),
    shown!("trip"),
    opened!("acknowledged_by"),
    opened!("acknowledged_ms"),
    opened!("acknowledged_note"),
    reopened!("resolved_by"),
    reopened!("resolved_note"),
    reopened!("resolution"),
    reopened!("resolved_ms"),
    "strictness = CASE WHEN excluded.strictness > incidents.strictness \
     THEN excluded.strictness ELSE incidents.strictness END, \
     at_ms = CASE WHEN excluded.at_ms < incidents.at_ms \
     THEN excluded.at_ms ELSE incidents.at_ms END, \
     last_ms = CASE WHEN excluded.last_ms > incidents.last_ms \
     THEN excluded.last_ms ELSE incidents.last_ms END \
     WHERE incidents.project = excluded.project"
);

/// A column of a rung, from its first trip.
macro_rules! first {
    ($column:literal) => {
        concat!(
            $column,
            " = CASE WHEN excluded.count_first < incident_rungs.count_first THEN \
             excluded.",
            $column,
            " ELSE incident_rungs.",
            $column,
            " END, "
        )
    };
}

/// A column of a rung, from its last trip.
macro_rules! last {
    ($column:literal) => {
        concat!(
            $column,
            " = CASE WHEN excluded.last_ms >= incident_rungs.last_ms THEN excluded.",
            $column,
            " ELSE incident_rungs.",
            $column,
            " END, "
        )
    };
}

const GROW_RUNG: &str = concat!(
    "ON CONFLICT (incident, strictness) DO UPDATE SET ",
    first!("at_ms"),
    first!("call_id"),
    last!("count_last"),
    last!("count_limit"),
    last!("sentence"),
    last!("advice"),
    last!("last_call_id"),
    "count_first = CASE WHEN excluded.count_first < incident_rungs.count_first \
     THEN excluded.count_first ELSE incident_rungs.count_first END, \
     last_ms = CASE WHEN excluded.last_ms > incident_rungs.last_ms \
     THEN excluded.last_ms ELSE incident_rungs.last_ms END"
);

/// Verdicts by strictness, as the database compares them.
const VERDICTS: [Verdict; 6] =
    [Verdict::Allow, Verdict::Warn, Verdict::Steer, Verdict::Ask, Verdict::Block, Verdict::Kill];

fn strictness(verdict: Verdict) -> u64 {
    VERDICTS.iter().filter(|milder| **milder < verdict).count() as u64
}

fn read_rung(row: &Row) -> Result<StoredRung, StoreError> {
    let strictness = usize::try_from(row.unsigned("strictness")?).unwrap_or(usize::MAX);
    Ok(StoredRung {
        verdict: VERDICTS.get(strictness).copied().ok_or(StoreError::unreadable("strictness"))?,
        at: Time(row.unsigned("at_ms")?),
        last: Time(row.unsigned("last_ms")?),
        count: row.unsigned("count_first")?,
        last_count: row.unsigned("count_last")?,
        limit: row.unsigned("count_limit")?,
        sentence: row.get("sentence")?,
        advice: row.get("advice")?,
        call: row.get("call_id")?,
        last_call: row.get("last_call_id")?,
    })
}

fn read(row: &Row) -> Result<StoredIncident, StoreError> {
    let trip: String = row.get("trip")?;
    let acknowledged = match row.maybe_unsigned("acknowledged_ms")? {
        None => None,
        Some(at) => Some(Acknowledged {
            by: row.get::<Option<String>>("acknowledged_by")?.unwrap_or_default(),
            at: Time(at),
            note: row.get::<Option<String>>("acknowledged_note")?.unwrap_or_default(),
        }),
    };
    let resolved = match row.maybe_unsigned("resolved_ms")? {
        None => None,
        Some(at) => Some(Resolved {
            by: row.get::<Option<String>>("resolved_by")?.unwrap_or_default(),
            at: Time(at),
            note: row.get::<Option<String>>("resolved_note")?.unwrap_or_default(),
            how: row
                .get::<Option<String>>("resolution")?
                .and_then(|how| Resolution::named(&how))
                .unwrap_or(Resolution::Fixed),
        }),
    };
    Ok(StoredIncident {
        id: row.get("id")?,
        project: row.get("project")?,
        at: Time(row.unsigned("at_ms")?),
        last: Time(row.unsigned("last_ms")?),
        agent: row.get("agent")?,
        session: row.get("session")?,
        session_number: row.get("session_number")?,
        call: row.get("call_id")?,
        provider: row.get("provider")?,
        trip: serde_json::from_str(&trip).map_err(|_| StoreError::unreadable("trip"))?,
        rungs: Vec::new(),
        acknowledged,
        about: row.get("about")?,
        assignee: row.get("assignee")?,
        resolved,
        calls: row.unsigned("calls")?,
    })
}
