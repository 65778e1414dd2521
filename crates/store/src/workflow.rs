//! What people do about incidents: acknowledge, assign, resolve, reopen; and mute all that are alike.
//!
//! Incidents are alike if agent, guard and what they are about are the same: their fingerprint. A mute
//! belongs to a fingerprint. It silences alerts and nothing else.

use std::collections::HashMap;

use deadstop_core::{Digest, Time};

use crate::audit::{self, AuditEvent};
use crate::backend::{Query, Row, sql};
use crate::incidents::{Acknowledged, IncidentFilter, select};
use crate::page::Period;
use crate::{Store, StoreError};

/// What incidents that are alike have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint {
    /// The agent.
    pub agent: String,
    /// The guard's name.
    pub guard: String,
    /// The tool, where it is about one tool; otherwise the guard's code for why.
    pub about: String,
}

impl Fingerprint {
    /// A short name for it.
    pub fn id(&self) -> String {
        let text = format!("{}\n{}\n{}", self.agent, self.guard, self.about);
        format!("{:016x}", Digest::of(text.as_bytes()).0)
    }
}

/// How an incident stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IncidentState {
    /// No person has seen it.
    Open,
    /// A person has seen it, or has it assigned.
    Acknowledged,
    /// Its fingerprint is muted.
    Muted,
    /// A person has resolved it, and it did not happen again.
    Resolved,
}

/// Incidents in which states are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StatesWanted {
    /// In this one.
    One(IncidentState),
    /// Open or acknowledged.
    Unresolved,
}

/// A person has resolved an incident.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// Who.
    pub by: String,
    /// When.
    pub at: Time,
    /// What they have to say.
    pub note: String,
    /// How.
    pub how: Resolution,
}

/// How an incident was resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resolution {
    /// What was wrong is put right.
    Fixed,
    /// The guard should not have tripped.
    FalseAlarm,
}

impl Resolution {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Resolution::Fixed => "fixed",
            Resolution::FalseAlarm => "false_alarm",
        }
    }

    /// What a word means.
    pub fn named(name: &str) -> Option<Resolution> {
        [Resolution::Fixed, Resolution::FalseAlarm].into_iter().find(|one| one.name() == name)
    }
}

/// What a person does about an incident.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Notes that they have seen it.
    Acknowledge(Acknowledged),
    /// Gives it to a person, or takes it from them. It counts as seen.
    Assign(Option<String>, Acknowledged),
    /// Closes it.
    Resolve(Resolved),
    /// Opens it again.
    Reopen,
}

/// A fingerprint that sends no alerts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mute {
    /// The project.
    pub project: String,
    /// Of which incidents.
    pub fingerprint: Fingerprint,
    /// Since when.
    pub at: Time,
    /// Until when; nothing if for good.
    pub until: Option<Time>,
    /// Who muted it.
    pub by: String,
    /// Why.
    pub reason: String,
}

impl Mute {
    /// Whether it holds at a time.
    pub fn holds(&self, now: Time) -> bool {
        self.until.is_none_or(|until| until > now)
    }
}

/// How often something happened, in equal pieces of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strip {
    /// The beginning of the first piece.
    pub from: Time,
    /// How long each piece is, in milliseconds.
    pub step: u64,
    /// How many there are.
    pub pieces: usize,
}

impl Store {
    /// Does something about incidents, each with its audit entry, all or nothing. Ids of no incident
    /// are left out of what comes back.
    pub async fn act(
        &self,
        project: &str,
        incidents: &[(String, AuditEvent)],
        act: &Act,
    ) -> Result<Vec<String>, StoreError> {
        let mut tx = self.backend.begin().await?;
        let mut done = Vec::new();
        for (id, event) in incidents {
            if tx.run(change(project, id, act)).await? > 0 {
                audit::append(&mut tx, [event]).await?;
                done.push(id.clone());
            }
        }
        tx.commit().await?;
        Ok(done)
    }

    /// Mutes a fingerprint; the last word counts.
    pub async fn mute(&self, mute: &Mute, audit: &AuditEvent) -> Result<(), StoreError> {
        let Mute { project, fingerprint, at, until, by, reason } = mute;
        let query = sql("INSERT INTO incident_mutes (project, agent, guard, about, at_ms, \
             until_ms, muted_by, reason) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
             ON CONFLICT (project, agent, guard, about) DO UPDATE SET at_ms = excluded.at_ms, \
             until_ms = excluded.until_ms, muted_by = excluded.muted_by, reason = excluded.reason")
        .bind(project)
        .bind(&fingerprint.agent)
        .bind(&fingerprint.guard)
        .bind(&fingerprint.about)
        .bind(*at)
        .bind(*until)
        .bind(by)
        .bind(reason);
        self.change(query, Some(audit)).await?;
        Ok(())
    }

    /// Lifts a mute; false if there is none.
    pub async fn unmute(
        &self,
        project: &str,
        of: &Fingerprint,
        audit: &AuditEvent,
    ) -> Result<bool, StoreError> {
        let query = sql("DELETE FROM incident_mutes WHERE project = $1 AND agent = $2 \
             AND guard = $3 AND about = $4");
        let query = query.bind(project).bind(&of.agent).bind(&of.guard).bind(&of.about);
        Ok(self.change(query, Some(audit)).await? > 0)
    }

    /// The mutes of a project, also those that are over.
    pub async fn mutes(&self, project: &str) -> Result<Vec<Mute>, StoreError> {
        let query = sql("SELECT * FROM incident_mutes WHERE project = $1 ORDER BY at_ms DESC");
        self.backend.rows(query.bind(project)).await?.iter().map(read).collect()
    }

    /// How often incidents of each fingerprint began, piece by piece.
    pub async fn incident_strips(
        &self,
        project: &str,
        filter: &IncidentFilter,
        strip: &Strip,
    ) -> Result<HashMap<Fingerprint, Vec<u64>>, StoreError> {
        let end = strip.from.0.saturating_add(strip.step.saturating_mul(strip.pieces as u64));
        let period = Period { from: Some(strip.from), to: Some(Time(end)) };
        let filter = IncidentFilter { period, ..filter.clone() };
        let query = sql("SELECT agent, guard, about")
            .with(", (at_ms - ", strip.from)
            .with(") / ", strip.step)
            .then(" AS piece, COUNT(*) AS seen FROM incidents");
        let query = select(query, project, &filter).then(" GROUP BY agent, guard, about, piece");
        let mut found: HashMap<Fingerprint, Vec<u64>> = HashMap::new();
        for row in self.backend.rows(query).await? {
            let of = found.entry(fingerprint(&row)?).or_insert_with(|| vec![0; strip.pieces]);
            let piece = usize::try_from(row.unsigned("piece")?).unwrap_or(usize::MAX);
            if let Some(count) = of.get_mut(piece) {
                *count = row.unsigned("seen")?;
            }
        }
        Ok(found)
    }
}

fn change<'q>(project: &'q str, id: &'q str, act: &'q Act) -> Query<'q> {
    let query = match act {
        Act::Acknowledge(seen) => sql("UPDATE incidents SET ")
            .with("acknowledged_by = ", &seen.by)
            .with(", acknowledged_ms = ", seen.at)
            .with(", acknowledged_note = ", &seen.note),
        Act::Assign(to, seen) => sql("UPDATE incidents SET ")
            .with("assignee = ", to)
            .with(", acknowledged_by = COALESCE(acknowledged_by, ", &seen.by)
            .with("), acknowledged_note = COALESCE(acknowledged_note, ", &seen.note)
            .with("), acknowledged_ms = COALESCE(acknowledged_ms, ", seen.at)
            .then(")"),
        Act::Resolve(resolved) => sql("UPDATE incidents SET ")
            .with("resolved_by = ", &resolved.by)
            .with(", resolved_ms = ", resolved.at)
            .with(", resolved_note = ", &resolved.note)
            .with(", resolution = ", resolved.how.name()),
        Act::Reopen => sql("UPDATE incidents SET resolved_by = NULL, resolved_ms = NULL, \
             resolved_note = NULL, resolution = NULL, acknowledged_by = NULL, \
             acknowledged_ms = NULL, acknowledged_note = NULL"),
    };
    query.with(" WHERE id = ", id).with(" AND project = ", project)
}

/// The condition that incidents stand in a certain way.
pub(crate) fn standing<'q>(query: Query<'q>, wanted: StatesWanted, now: Time) -> Query<'q> {
    const MUTED: &str = "EXISTS (SELECT 1 FROM incident_mutes AS muted \
         WHERE muted.project = incidents.project AND muted.agent = incidents.agent \
         AND muted.guard = incidents.guard AND muted.about = incidents.about \
         AND (muted.until_ms IS NULL OR muted.until_ms > ";
    let unmuted = |query: Query<'q>| {
        query.then(" AND resolved_ms IS NULL AND NOT ").with(MUTED, now).then("))")
    };
    match wanted {
        StatesWanted::Unresolved => unmuted(query),
        StatesWanted::One(IncidentState::Open) => {
            unmuted(query).then(" AND acknowledged_ms IS NULL")
        }
        StatesWanted::One(IncidentState::Acknowledged) => {
            unmuted(query).then(" AND acknowledged_ms IS NOT NULL")
        }
        StatesWanted::One(IncidentState::Muted) => {
            query.then(" AND resolved_ms IS NULL AND ").with(MUTED, now).then("))")
        }
        StatesWanted::One(IncidentState::Resolved) => query.then(" AND resolved_ms IS NOT NULL"),
    }
}

/// The fingerprint in a row.
pub(crate) fn fingerprint(row: &Row) -> Result<Fingerprint, StoreError> {
    Ok(Fingerprint { agent: row.get("agent")?, guard: row.get("guard")?, about: row.get("about")? })
}

fn read(row: &Row) -> Result<Mute, StoreError> {
    Ok(Mute {
        project: row.get("project")?,
        fingerprint: fingerprint(row)?,
        at: Time(row.unsigned("at_ms")?),
        until: row.maybe_unsigned("until_ms")?.map(Time),
        by: row.get("muted_by")?,
        reason: row.get("reason")?,
    })
}
