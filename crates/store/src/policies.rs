//! Policy documents: every version of them, and what the current ones say as plain columns.
//!
//! A document is text to the store. A writer says which version it replaces, so that two people who
//! change the same document do not overwrite each other unawares.

use deadstop_core::{NanoUsd, Time};

use crate::audit::{self, AuditEvent};
use crate::backend::{Row, Tx, sql};
use crate::page::{Page, Paging};
use crate::{Store, StoreError};

/// How often a change without an expected version is tried when others are faster.
const ATTEMPTS: usize = 20;

/// One version of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyVersion {
    /// Its project.
    pub project: String,
    /// Its agent; nothing for the project's default.
    pub agent: Option<String>,
    /// Its version, from one.
    pub version: i64,
    /// When it was written.
    pub at: Time,
    /// Who wrote it.
    pub who: String,
    /// What they had to say about it.
    pub note: String,
    /// The document; nothing for "back to the default".
    pub document: Option<String>,
}

/// A new version of a document.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyChange {
    /// Its project.
    pub project: String,
    /// Its agent; nothing for the project's default.
    pub agent: Option<String>,
    /// The version that it replaces (zero for none); nothing to replace whatever is there.
    pub expected: Option<i64>,
    /// When.
    pub at: Time,
    /// Who.
    pub who: String,
    /// What they have to say about it.
    pub note: String,
    /// The document; nothing to go back to the default.
    pub document: Option<String>,
    /// What the document says, for its row in `prevention_configs`; nothing to take the row away.
    pub prevention: Option<PreventionConfig>,
}

/// The columns of `prevention_configs`: what the current document says about three of the guards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreventionConfig {
    /// Loop detection is on.
    pub loop_enabled: bool,
    /// Repeats until it trips.
    pub loop_threshold: u64,
    /// `warn` or `terminate`.
    pub loop_action: String,
    /// Calls a session.
    pub loop_max_steps: Option<u64>,
    /// Money a session. The column ends at $9,999.999999: more is kept as that.
    pub budget_max_cost: Option<NanoUsd>,
    /// Money from which on it warns.
    pub budget_soft_alert: Option<NanoUsd>,
    /// Seconds a session.
    pub budget_max_wall_time_secs: Option<u64>,
    /// The circuit breaker is on.
    pub cb_enabled: bool,
    /// Failures in a row until it opens.
    pub cb_open_after_failures: u64,
    /// Seconds until it lets calls through again to try.
    pub cb_cooldown_seconds: u64,
    /// How many calls it lets through then.
    pub cb_half_open_max_calls: u64,
}

/// A row of `prevention_configs` as it is found.
#[derive(Debug)]
pub struct PreventionRow {
    /// Its project.
    pub project: String,
    /// Its agent; nothing for the project's default.
    pub agent: Option<String>,
    /// What it says; an error if a column holds what it cannot mean.
    pub config: Result<PreventionConfig, StoreError>,
    /// What this program wrote last; nothing in a row that a person or an earlier version wrote.
    pub written: Option<String>,
}

impl PreventionRow {
    /// Whether the columns are no longer as this program wrote them.
    pub fn is_changed(&self) -> bool {
        match (&self.config, &self.written) {
            (Ok(config), Some(written)) => config.fingerprint() != *written,
            (Err(_), Some(_)) => true,
            (_, None) => false,
        }
    }
}

impl PreventionConfig {
    /// As the columns hold it.
    #[must_use]
    pub fn as_kept(&self) -> PreventionConfig {
        let money = |amount: Option<NanoUsd>| {
            amount.map(|amount| NanoUsd(micro_dollars(amount).saturating_mul(1000)))
        };
        PreventionConfig {
            loop_enabled: self.loop_enabled,
            loop_threshold: integer(self.loop_threshold),
            loop_action: self.loop_action.clone(),
            loop_max_steps: self.loop_max_steps.map(integer),
            budget_max_cost: money(self.budget_max_cost),
            budget_soft_alert: money(self.budget_soft_alert),
            budget_max_wall_time_secs: self.budget_max_wall_time_secs.map(integer),
            cb_enabled: self.cb_enabled,
            cb_open_after_failures: integer(self.cb_open_after_failures),
            cb_cooldown_seconds: integer(self.cb_cooldown_seconds),
            cb_half_open_max_calls: integer(self.cb_half_open_max_calls),
        }
    }

    /// One text for all columns.
    fn fingerprint(&self) -> String {
        let kept = self.as_kept();
        let some = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
        [
            kept.loop_enabled.to_string(),
            kept.loop_threshold.to_string(),
            kept.loop_action,
            some(kept.loop_max_steps),
            some(kept.budget_max_cost.map(|cost| cost.0)),
            some(kept.budget_soft_alert.map(|cost| cost.0)),
            some(kept.budget_max_wall_time_secs),
            kept.cb_enabled.to_string(),
            kept.cb_open_after_failures.to_string(),
            kept.cb_cooldown_seconds.to_string(),
            kept.cb_half_open_max_calls.to_string(),
        ]
        .join(" ")
    }
}

const PREVENTION: &str = "SELECT project_id, agent_name, loop_enabled, loop_threshold, loop_action, \
    loop_max_steps, budget_max_wall_time_secs, cb_enabled, cb_open_after_failures, \
    cb_cooldown_seconds, cb_half_open_max_calls, written, \
    CAST(ROUND(budget_max_cost_usd * 1000000) AS BIGINT) AS max_cost, \
    CAST(ROUND(budget_soft_alert_usd * 1000000) AS BIGINT) AS soft_alert \
    FROM prevention_configs";

const CURRENT: &str = "SELECT p.* FROM policy_versions p WHERE p.version = \
    (SELECT MAX(version) FROM policy_versions WHERE project = p.project AND agent = p.agent)";

impl Store {
    /// The current document of an agent, or of the project.
    pub async fn policy(
        &self,
        project: &str,
        agent: Option<&str>,
    ) -> Result<Option<PolicyVersion>, StoreError> {
        let query = sql("SELECT * FROM policy_versions WHERE project = $1 AND agent = $2 \
             ORDER BY version DESC LIMIT 1");
        let found = self.backend.row(query.bind(project).bind(agent.unwrap_or_default())).await?;
        found.as_ref().map(read).transpose()
    }

    /// Every current document of every project, also those that went back to the default.
    pub async fn policies(&self) -> Result<Vec<PolicyVersion>, StoreError> {
        let query = sql(CURRENT).then(" ORDER BY p.project, p.agent");
        self.backend.rows(query).await?.iter().map(read).collect()
    }

    /// The versions of a document, the newest first.
    pub async fn policy_versions(
        &self,
        project: &str,
        agent: Option<&str>,
        paging: &Paging,
    ) -> Result<Page<PolicyVersion>, StoreError> {
        let query = sql("SELECT * FROM policy_versions")
            .with(" WHERE project = ", project)
            .with(" AND agent = ", agent.unwrap_or_default())
            .with_some(" AND version < ", paging.number()?)
            .with(" ORDER BY version DESC LIMIT ", paging.rows());
        let found = self.backend.rows(query).await?;
        let items = found.iter().map(read).collect::<Result<_, _>>()?;
        Ok(paging.page(items, |item: &PolicyVersion| item.version.to_string()))
    }

    /// One version of a document.
    pub async fn policy_version(
        &self,
        project: &str,
        agent: Option<&str>,
        version: i64,
    ) -> Result<Option<PolicyVersion>, StoreError> {
        let query =
            sql("SELECT * FROM policy_versions WHERE project = $1 AND agent = $2 AND version = $3");
        let query = query.bind(project).bind(agent.unwrap_or_default()).bind(version);
        self.backend.row(query).await?.as_ref().map(read).transpose()
    }

    /// Writes a new version, its row in `prevention_configs` and its audit entry, all or nothing.
    /// Gives the version, or [`StoreError::Conflict`] if another version than the expected one is
    /// current.
    pub async fn put_policy(
        &self,
        change: &PolicyChange,
        audit: Option<&AuditEvent>,
    ) -> Result<i64, StoreError> {
        let mut current = 0;
        for _ in 0..ATTEMPTS {
            let mut tx = self.backend.begin().await?;
            current = current_version(&mut tx, change).await?;
            if change.expected.is_some_and(|expected| expected != current) {
                tx.undo().await?;
                return Err(StoreError::Conflict { current });
            }
            // If two nodes write the same version at the same time, one of them finds it taken.
            let query = sql("INSERT INTO policy_versions \
                 (project, agent, version, at_ms, who, note, document) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING");
            let query = query
                .bind(&change.project)
                .bind(change.agent.as_deref().unwrap_or_default())
                .bind(current + 1)
                .bind(change.at)
                .bind(&change.who)
                .bind(&change.note)
                .bind(&change.document);
            if tx.run(query).await? == 0 {
                tx.undo().await?;
                continue;
            }
            write_prevention(&mut tx, change).await?;
            audit::append(&mut tx, audit).await?;
            tx.commit().await?;
            return Ok(current + 1);
        }
        Err(StoreError::Conflict { current })
    }

    /// The rows of `prevention_configs` of a project, with the agent of each.
    pub async fn prevention_configs(
        &self,
        project: &str,
    ) -> Result<Vec<(Option<String>, PreventionConfig)>, StoreError> {
        let query = sql(PREVENTION)
            .with(" WHERE project_id = ", project)
            .then(" ORDER BY coalesce(agent_name, '')");
        let found = self.backend.rows(query).await?;
        found.iter().map(|row| Ok((row.get("agent_name")?, read_prevention(row)?))).collect()
    }

    /// All rows of `prevention_configs`, also those that cannot be read.
    pub async fn prevention_rows(&self) -> Result<Vec<PreventionRow>, StoreError> {
        let read = |row: &Row| {
            Ok(PreventionRow {
                project: row.get("project_id")?,
                agent: row.get("agent_name")?,
                config: read_prevention(row),
                written: row.get("written")?,
            })
        };
        self.backend.rows(sql(PREVENTION)).await?.iter().map(read).collect()
    }
}

async fn current_version(tx: &mut Tx, change: &PolicyChange) -> Result<i64, StoreError> {
    let query = sql("SELECT coalesce(MAX(version), 0) AS version FROM policy_versions \
         WHERE project = $1 AND agent = $2");
    let agent = change.agent.as_deref().unwrap_or_default();
    let found = tx.row(query.bind(&change.project).bind(agent)).await?;
    found.map_or(Ok(0), |row| row.get("version"))
}

/// Brings the row of a document's columns up to date. The transaction has just written the
/// document's version, so no other one is at the same row.
async fn write_prevention(tx: &mut Tx, change: &PolicyChange) -> Result<(), StoreError> {
    let agent = change.agent.as_deref();
    let Some(config) = &change.prevention else {
        let query = sql("DELETE FROM prevention_configs WHERE project_id = $1 \
             AND coalesce(agent_name, '') = $2");
        tx.run(query.bind(&change.project).bind(agent.unwrap_or_default())).await?;
        return Ok(());
    };
    let update = sql("UPDATE prevention_configs SET agent_name = $2, loop_enabled = $3, \
         loop_threshold = $4, loop_action = $5, loop_max_steps = $6, \
         budget_max_cost_usd = CAST($7 AS NUMERIC) / 1000000.0, \
         budget_soft_alert_usd = CAST($8 AS NUMERIC) / 1000000.0, \
         budget_max_wall_time_secs = $9, cb_enabled = $10, cb_open_after_failures = $11, \
         cb_cooldown_seconds = $12, cb_half_open_max_calls = $13, written = $14, \
         updated_at = CURRENT_TIMESTAMP \
         WHERE project_id = $1 AND coalesce(agent_name, '') = coalesce($2, '')");
    let insert = sql("INSERT INTO prevention_configs (project_id, agent_name, loop_enabled, \
         loop_threshold, loop_action, loop_max_steps, budget_max_cost_usd, \
         budget_soft_alert_usd, budget_max_wall_time_secs, cb_enabled, cb_open_after_failures, \
         cb_cooldown_seconds, cb_half_open_max_calls, written) VALUES ($1, $2, $3, $4, $5, $6, \
         CAST($7 AS NUMERIC) / 1000000.0, CAST($8 AS NUMERIC) / 1000000.0, \
         $9, $10, $11, $12, $13, $14)");
    for query in [update, insert] {
        let query = query
            .bind(&change.project)
            .bind(agent)
            .bind(config.loop_enabled)
            .bind(integer(config.loop_threshold))
            .bind(&config.loop_action)
            .bind(config.loop_max_steps.map(integer))
            .bind(config.budget_max_cost.map(micro_dollars))
            .bind(config.budget_soft_alert.map(micro_dollars))
            .bind(config.budget_max_wall_time_secs.map(integer))
            .bind(config.cb_enabled)
            .bind(integer(config.cb_open_after_failures))
            .bind(integer(config.cb_cooldown_seconds))
            .bind(integer(config.cb_half_open_max_calls))
            .bind(config.fingerprint());
        if tx.run(query).await? > 0 {
            break;
        }
    }
    Ok(())
}

/// What an INTEGER column can hold.
fn integer(value: u64) -> u64 {
    value.min(i32::MAX as u64)
}

/// What a NUMERIC(10, 6) column can hold, in its last digit.
fn micro_dollars(amount: NanoUsd) -> u64 {
    amount.0.saturating_add(500).div_euclid(1000).min(9_999_999_999)
}

fn read(row: &Row) -> Result<PolicyVersion, StoreError> {
    let agent: String = row.get("agent")?;
    Ok(PolicyVersion {
        project: row.get("project")?,
        agent: Some(agent).filter(|agent| !agent.is_empty()),
        version: row.get("version")?,
        at: Time(row.unsigned("at_ms")?),
        who: row.get("who")?,
        note: row.get("note")?,
        document: row.get("document")?,
    })
}

fn read_prevention(row: &Row) -> Result<PreventionConfig, StoreError> {
    let money = |column| {
        let found = row.maybe_unsigned(column)?;
        Ok::<_, StoreError>(found.map(|micro| NanoUsd(micro.saturating_mul(1000))))
    };
    Ok(PreventionConfig {
        loop_enabled: row.get("loop_enabled")?,
        loop_threshold: row.unsigned("loop_threshold")?,
        loop_action: row.get("loop_action")?,
        loop_max_steps: row.maybe_unsigned("loop_max_steps")?,
        budget_max_cost: money("max_cost")?,
        budget_soft_alert: money("soft_alert")?,
        budget_max_wall_time_secs: row.maybe_unsigned("budget_max_wall_time_secs")?,
        cb_enabled: row.get("cb_enabled")?,
        cb_open_after_failures: row.unsigned("cb_open_after_failures")?,
        cb_cooldown_seconds: row.unsigned("cb_cooldown_seconds")?,
        cb_half_open_max_calls: row.unsigned("cb_half_open_max_calls")?,
    })
}
