//! Incidents: trips that blocked or killed, one by one and in groups.

use deadstop_core::{GuardId, Time, Trip};

use crate::audit::AuditEvent;
use crate::backend::{Query, Row, Tx, sql};
use crate::page::{Page, Paging, Period};
use crate::{Store, StoreError};

/// An incident as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredIncident {
    /// Its id.
    pub id: String,
    /// Its project.
    pub project: String,
    /// When it happened.
    pub at: Time,
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
    /// Whether a person has seen it. A batch never changes that: see [`Store::acknowledge`].
    pub acknowledged: Option<Acknowledged>,
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
    /// Only those that were acknowledged, or only those that were not.
    pub acknowledged: Option<bool>,
    /// Only those that happened in this span.
    pub period: Period,
}

/// Incidents of one agent with the same guard and reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncidentGroup {
    /// The agent.
    pub agent: String,
    /// The guard's name.
    pub guard: String,
    /// The guard's code for why.
    pub reason: String,
    /// How many.
    pub count: u64,
    /// How many of them are not acknowledged.
    pub open: u64,
    /// When it happened first.
    pub first: Time,
    /// When it happened last.
    pub last: Time,
}

impl Store {
    /// Incidents, the newest first.
    pub async fn incidents(
        &self,
        project: &str,
        filter: &IncidentFilter,
        paging: &Paging,
    ) -> Result<Page<StoredIncident>, StoreError> {
        let mut query = select(sql("SELECT * FROM incidents"), project, filter);
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
        let query = sql("SELECT * FROM incidents WHERE id = $1 AND project = $2");
        let found = self.backend.row(query.bind(id).bind(project)).await?;
        found.as_ref().map(read).transpose()
    }

    /// Incidents by agent, guard and reason, the group with the newest first; at most a thousand.
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
        let query = sql("SELECT agent, guard, reason, COUNT(*) AS seen, \
             COUNT(*) - COUNT(acknowledged_ms) AS open, MIN(at_ms) AS first_ms, \
             MAX(at_ms) AS last_ms FROM incidents");
        let query = select(query, project, filter);
        let query = query
            .then(" GROUP BY agent, guard, reason ORDER BY last_ms DESC, agent, guard, reason")
            .with(" LIMIT ", paging.rows())
            .with(" OFFSET ", from);
        let read = |row: &Row| {
            Ok(IncidentGroup {
                agent: row.get("agent")?,
                guard: row.get("guard")?,
                reason: row.get("reason")?,
                count: row.unsigned("seen")?,
                open: row.unsigned("open")?,
                first: Time(row.unsigned("first_ms")?),
                last: Time(row.unsigned("last_ms")?),
            })
        };
        let found = self.backend.rows(query).await?;
        let items: Vec<_> = found.iter().map(read).collect::<Result<_, StoreError>>()?;
        let mut page = paging.page(items, |_| String::new());
        let next = from.saturating_add_unsigned(page.items.len() as u64);
        page.next = page.next.map(|_| next.to_string());
        Ok(page)
    }

    /// Notes that a person has seen an incident; false if there is none. The last word counts.
    pub async fn acknowledge(
        &self,
        project: &str,
        id: &str,
        by: &Acknowledged,
        audit: Option<&AuditEvent>,
    ) -> Result<bool, StoreError> {
        let query = sql("UPDATE incidents SET acknowledged_by = $1, acknowledged_ms = $2, \
             acknowledged_note = $3 WHERE id = $4 AND project = $5");
        let query = query.bind(&by.by).bind(by.at).bind(&by.note).bind(id).bind(project);
        Ok(self.change(query, audit).await? > 0)
    }
}

/// The conditions of a list.
fn select<'q>(query: Query<'q>, project: &'q str, filter: &'q IncidentFilter) -> Query<'q> {
    // Where a session is asked for, it alone is to choose the index.
    let query = match filter.session {
        Some(session) => {
            query.with(" WHERE session_number = ", session).with(" AND project || '' = ", project)
        }
        None => query.with(" WHERE project = ", project),
    };
    let query = query
        .with_some(" AND agent = ", filter.agent.as_ref())
        .with_some(" AND guard = ", filter.guard.map(GuardId::name))
        .with_some(" AND reason = ", filter.reason.as_ref())
        .with_some(" AND at_ms >= ", filter.period.from)
        .with_some(" AND at_ms < ", filter.period.to);
    match filter.acknowledged {
        Some(true) => query.then(" AND acknowledged_ms IS NOT NULL"),
        Some(false) => query.then(" AND acknowledged_ms IS NULL"),
        None => query,
    }
}

/// Writes incidents; one that is there stays as it is.
pub(crate) async fn write(tx: &mut Tx, incidents: &[&StoredIncident]) -> Result<(), StoreError> {
    tx.insert(
        "INSERT INTO incidents (id, project, at_ms, agent, session, session_number, call_id, \
         provider, guard, reason, verdict, sentence, trip)",
        "ON CONFLICT (id) DO NOTHING",
        incidents,
        |incident, values| {
            let trip = &incident.trip;
            values.extend([
                incident.id.as_str().into(),
                incident.project.as_str().into(),
                incident.at.into(),
                incident.agent.as_str().into(),
                incident.session.as_str().into(),
                incident.session_number.into(),
                incident.call.into(),
                (&incident.provider).into(),
                trip.guard.name().into(),
                trip.reason.as_str().into(),
                trip.verdict.to_string().into(),
                trip.explain().into(),
                serde_json::to_string(trip).unwrap_or_default().into(),
            ]);
        },
    )
    .await?;
    Ok(())
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
    Ok(StoredIncident {
        id: row.get("id")?,
        project: row.get("project")?,
        at: Time(row.unsigned("at_ms")?),
        agent: row.get("agent")?,
        session: row.get("session")?,
        session_number: row.get("session_number")?,
        call: row.get("call_id")?,
        provider: row.get("provider")?,
        trip: serde_json::from_str(&trip).map_err(|_| StoreError::unreadable("trip"))?,
        acknowledged,
    })
}
