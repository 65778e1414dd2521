//! How fast answers come and how many calls fail, by model and provider; and how many calls were made
//! over time. All of it is worked out by the database, from single calls.

use deadstop_core::{Millis, Status, Time, Verdict};

use crate::backend::{Query, Row, sql};
use crate::calls::{status_code, verdict_code};
use crate::costs::SpendStep;
use crate::number::Numbers;
use crate::page::Period;
use crate::{Store, StoreError};

/// What speeds are told apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpeedBy {
    /// A line a provider and model.
    Model,
    /// A line a provider.
    Provider,
}

/// Which calls are counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpeedFilter {
    /// Only this agent's.
    pub agent: Option<String>,
    /// Only those asked in this span.
    pub period: Period,
}

/// How long half of the answers took at most, and 95 of 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Took {
    /// Half of them took this long or less.
    pub half: Millis,
    /// 95 of 100 took this long or less.
    pub most: Millis,
}

/// How a model, or a provider, did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Speed {
    /// The provider; empty where it is not known.
    pub provider: String,
    /// The model; empty for a line a provider.
    pub model: String,
    /// Calls that ended.
    pub calls: u64,
    /// Those that the provider failed to answer: 5xx, 429, time-outs, broken answers.
    pub faults: u64,
    /// Those that were answered with an error of the caller's: a wrong key, a malformed request.
    pub errors: u64,
    /// Those that were cut off or abandoned.
    pub cancelled: u64,
    /// How long whole answers took; nothing if there was none.
    pub whole: Option<Took>,
    /// How long streamed answers took to begin; nothing if there was none.
    pub first: Option<Took>,
}

/// How many calls were made in one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityPoint {
    /// The first millisecond of the step.
    pub at: Time,
    /// Calls of models and tools, also those that were refused.
    pub calls: u64,
    /// Those that were refused or cut.
    pub refused: u64,
    /// Those that failed: of the provider, the tool or the caller.
    pub failed: u64,
}

impl Store {
    /// How fast models answered and how often they failed, the one with the most calls first.
    pub async fn speeds(
        &self,
        project: &str,
        by: SpeedBy,
        filter: &SpeedFilter,
    ) -> Result<Vec<Speed>, StoreError> {
        let query = sql("SELECT coalesce(server, '') AS provider, ")
            .then(model(by))
            .then(" AS model, CAST(COUNT(*) AS BIGINT) AS calls, ")
            .with("CAST(SUM(CASE WHEN status = ", status_code(Status::Fault))
            .then(" THEN 1 ELSE 0 END) AS BIGINT) AS faults, ")
            .with("CAST(SUM(CASE WHEN status = ", status_code(Status::Error))
            .then(" THEN 1 ELSE 0 END) AS BIGINT) AS errors, ")
            .with("CAST(SUM(CASE WHEN status = ", status_code(Status::Cancelled))
            .then(" THEN 1 ELSE 0 END) AS BIGINT) AS cancelled FROM calls WHERE ");
        let query = matching(query, project, filter)
            .then(" AND kind = 0 AND status IS NOT NULL GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2");
        let mut found =
            self.backend.rows(query).await?.iter().map(speed).collect::<Result<Vec<_>, _>>()?;
        for (column, of) in [("duration_ms", Part::Whole), ("first_ms", Part::First)] {
            for row in self.backend.rows(ranked(column, by, project, filter)).await? {
                let (provider, model): (String, String) = (row.get("provider")?, row.get("model")?);
                let took = Took {
                    half: Millis(row.unsigned("half")?),
                    most: Millis(row.unsigned("most")?),
                };
                let line = found.iter_mut().find(|line| {
                    (line.provider.as_str(), line.model.as_str()) == (&provider, &model)
                });
                match (line, of) {
                    (Some(line), Part::Whole) => line.whole = Some(took),
                    (Some(line), Part::First) => line.first = Some(took),
                    (None, _) => {}
                }
            }
        }
        Ok(found)
    }

    /// How many calls were made over time, in steps, in their order. Steps without a call are left out.
    /// A call belongs to the moment at which it was asked, as in [`Store::calls`].
    pub async fn activity(
        &self,
        project: &str,
        step: SpendStep,
        filter: &SpeedFilter,
    ) -> Result<Vec<ActivityPoint>, StoreError> {
        let width = step.width();
        let whole = |time: Time| Time(time.0 / width * width);
        let period = Period {
            from: filter.period.from.map(whole),
            to: filter.period.to.map(|to| Time(to.0.div_ceil(width) * width)),
        };
        let filter = SpeedFilter { period, ..filter.clone() };
        let query = sql("SELECT ((id >> 22) + 1704067200000)")
            .with(" / ", width)
            .with(" * ", width)
            .then(" AS place, CAST(COUNT(*) AS BIGINT) AS calls, ")
            .with("CAST(SUM(CASE WHEN verdict = ", verdict_code(Verdict::Block))
            .with(" OR verdict = ", verdict_code(Verdict::Kill))
            .then(" THEN 1 ELSE 0 END) AS BIGINT) AS refused, ")
            .with("CAST(SUM(CASE WHEN status = ", status_code(Status::Fault))
            .with(" OR status = ", status_code(Status::Error))
            .then(" THEN 1 ELSE 0 END) AS BIGINT) AS failed FROM calls WHERE ");
        let query = matching(query, project, &filter).then(" GROUP BY 1 ORDER BY 1");
        let read = |row: &Row| {
            Ok(ActivityPoint {
                at: Time(row.unsigned("place")?),
                calls: row.unsigned("calls")?,
                refused: row.unsigned("refused")?,
                failed: row.unsigned("failed")?,
            })
        };
        self.backend.rows(query).await?.iter().map(read).collect()
    }
}

/// Which time of an answer.
#[derive(Debug, Clone, Copy)]
enum Part {
    Whole,
    First,
}

/// The model as a line is about it.
fn model(by: SpeedBy) -> &'static str {
    match by {
        SpeedBy::Model => "substr(name, 1, 200)",
        SpeedBy::Provider => "''",
    }
}

/// The times in the middle and near the end, of answers in the order of their times.
fn ranked<'q>(
    column: &'static str,
    by: SpeedBy,
    project: &'q str,
    filter: &'q SpeedFilter,
) -> Query<'q> {
    let query = sql("SELECT provider, model, \
         CAST(MIN(CASE WHEN place >= (many + 1) / 2 THEN took END) AS BIGINT) AS half, \
         CAST(MIN(CASE WHEN place >= (many * 95 + 99) / 100 THEN took END) AS BIGINT) AS most \
         FROM (SELECT provider, model, took, \
         ROW_NUMBER() OVER (PARTITION BY provider, model ORDER BY took) AS place, \
         COUNT(*) OVER (PARTITION BY provider, model) AS many \
         FROM (SELECT coalesce(server, '') AS provider, ")
    .then(model(by))
    .then(" AS model, ")
    .then(column)
    .then(" AS took FROM calls WHERE ");
    matching(query, project, filter)
        .with(" AND kind = 0 AND status = ", status_code(Status::Ok))
        .then(" AND ")
        .then(column)
        .then(" IS NOT NULL) answers) placed GROUP BY provider, model")
}

/// The calls that a filter wants, by the index that fits.
fn matching<'q>(query: Query<'q>, project: &'q str, filter: &'q SpeedFilter) -> Query<'q> {
    let query = match &filter.agent {
        Some(agent) => query
            .with("agent_number = (SELECT number FROM agents WHERE project = ", project)
            .with(" AND name = ", agent)
            .then(")"),
        None => query.with("project = ", project),
    };
    query
        .with_some(" AND id >= ", filter.period.from.map(Numbers::first))
        .with_some(" AND id < ", filter.period.to.map(Numbers::first))
}

fn speed(row: &Row) -> Result<Speed, StoreError> {
    Ok(Speed {
        provider: row.get("provider")?,
        model: row.get("model")?,
        calls: row.unsigned("calls")?,
        faults: row.unsigned("faults")?,
        errors: row.unsigned("errors")?,
        cancelled: row.unsigned("cancelled")?,
        whole: None,
        first: None,
    })
}
