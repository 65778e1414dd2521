//! Totals of calls by hour and day, by agent and model. They are added up as calls are written, so
//! that a page about costs does not read a million rows.

use std::collections::{BTreeMap, HashSet};

use deadstop_core::{NanoUsd, Time, Tokens, Usage};

use crate::backend::{Query, Row, Tx, sql};
use crate::calls::{CallKind, INDEXED, StoredCall};
use crate::number::Numbers;
use crate::page::Period;
use crate::{Store, StoreError};

/// A day and an hour in milliseconds; both are counted in UTC.
const DAY_MS: u64 = 86_400_000;
const HOUR_MS: u64 = 3_600_000;
/// What one call may add at most: figures come from outside, and none may make a sum overflow.
const MOST_TOKENS: Tokens = Tokens(1_000_000_000_000);
const MOST_MONEY: NanoUsd = NanoUsd(1_000_000_000_000_000);
/// For how long a call may have had its id before it was admitted.
const HELD_MS: u64 = 600_000;

/// What the amounts are added up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CostBy {
    /// A line an agent.
    Agent,
    /// A line a model.
    Model,
    /// A line a day.
    Day,
    /// A line an hour, as long as calls are kept.
    Hour,
}

/// Which amounts are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CostFilter {
    /// Only this agent's.
    pub agent: Option<String>,
    /// Only this model's.
    pub model: Option<String>,
    /// Only those of the hours that this span touches. Parts of a day are known as long as calls are
    /// kept; whole days are known for good.
    pub period: Period,
}

/// One line of the sum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CostLine {
    /// The agent, the model, or the first millisecond of the day or hour.
    pub of: String,
    /// Calls that ended.
    pub calls: u64,
    /// Their tokens.
    pub usage: Usage,
    /// Their money.
    pub cost: NanoUsd,
}

impl Store {
    /// What calls came to, the dearest line first; days and hours in their order.
    pub async fn costs(
        &self,
        project: &str,
        by: CostBy,
        filter: &CostFilter,
    ) -> Result<Vec<CostLine>, StoreError> {
        let head = match by {
            CostBy::Agent => {
                "SELECT coalesce((SELECT name FROM agents \
                WHERE agents.number = sums.agent_number), '') AS line"
            }
            CostBy::Model => "SELECT model AS line",
            CostBy::Day => "SELECT CAST(day * 86400000 AS TEXT) AS line",
            CostBy::Hour => "SELECT CAST(hour * 3600000 AS TEXT) AS line",
        };
        let query = sql(head).then(
            ", CAST(SUM(calls) AS BIGINT) AS calls, CAST(SUM(input) AS BIGINT) AS input, \
             CAST(SUM(output) AS BIGINT) AS output, \
             CAST(SUM(cache_read) AS BIGINT) AS cache_read, \
             CAST(SUM(cache_write) AS BIGINT) AS cache_write, \
             CAST(SUM(cost) AS BIGINT) AS cost",
        );
        let query = match by {
            CostBy::Hour => {
                let hours = Hours::of(filter.period);
                query
                    .with(" FROM hour_costs sums WHERE project = ", project)
                    .with_some(" AND hour >= ", hours.from)
                    .with_some(" AND hour < ", hours.to)
            }
            CostBy::Agent | CostBy::Model | CostBy::Day => {
                Hours::of(filter.period).sums(query, project)
            }
        };
        let mut query = query.with_some(" AND model = ", filter.model.as_deref().map(short));
        if let Some(agent) = &filter.agent {
            query = query
                .with(" AND agent_number = (SELECT number FROM agents WHERE project = ", project)
                .with(" AND name = ", agent)
                .then(")");
        }
        let query = query.then(match by {
            CostBy::Agent => " GROUP BY agent_number ORDER BY 7 DESC, 1",
            CostBy::Model => " GROUP BY model ORDER BY 7 DESC, 1",
            CostBy::Day => " GROUP BY day ORDER BY day",
            CostBy::Hour => " GROUP BY hour ORDER BY hour",
        });
        self.backend.rows(query).await?.iter().map(read).collect()
    }
}

/// A span in whole hours.
#[derive(Debug, Clone, Copy)]
struct Hours {
    from: Option<u64>,
    /// The first one after it.
    to: Option<u64>,
}

/// The columns of a sum, with the day that it belongs to.
const OF_DAYS: &str = "SELECT agent_number, model, day, calls, input, output, cache_read, \
    cache_write, cost FROM costs WHERE project = ";
const OF_HOURS: &str = " UNION ALL SELECT agent_number, model, hour / 24, calls, input, output, \
    cache_read, cache_write, cost FROM hour_costs WHERE project = ";

impl Hours {
    /// The hours that a span touches.
    fn of(period: Period) -> Hours {
        let from = period.from.map(|from| from.0 / HOUR_MS);
        Hours { from, to: period.to.map(|to| to.0.div_ceil(HOUR_MS)) }
    }

    /// Sums of these hours: those of whole days, and those of the hours before and after them.
    fn sums<'q>(self, query: Query<'q>, project: &'q str) -> Query<'q> {
        let first = self.from.map(|from| from.div_ceil(24));
        let last = self.to.map(|to| (to / 24).max(first.unwrap_or(0)));
        let query = query
            .then(" FROM (")
            .with(OF_DAYS, project)
            .with_some(" AND day >= ", first)
            .with_some(" AND day < ", last);
        let mut query = query;
        let head = first.and_then(|first| Some((self.from?, first * 24)));
        let tail = last.and_then(|last| Some((last * 24, self.to?)));
        for (from, to) in head.into_iter().chain(tail) {
            // Within one day the hours before the first whole day may end before that day.
            let to = self.to.map_or(to, |end| to.min(end));
            if from < to {
                query = query
                    .with(OF_HOURS, project)
                    .with(" AND hour >= ", from)
                    .with(" AND hour < ", to);
            }
        }
        query.then(") sums WHERE 1 = 1")
    }
}

/// How wide the steps of a series are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpendStep {
    /// Ten seconds, from single calls.
    TenSeconds,
    /// A minute, from single calls.
    Minute,
    /// An hour, in UTC, as long as calls are kept.
    Hour,
    /// A day, in UTC.
    Day,
}

impl SpendStep {
    /// Its length in milliseconds.
    pub fn width(self) -> u64 {
        match self {
            SpendStep::TenSeconds => 10_000,
            SpendStep::Minute => 60_000,
            SpendStep::Hour => HOUR_MS,
            SpendStep::Day => DAY_MS,
        }
    }
}

/// What a series is split by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpendBy {
    /// Not at all.
    Total,
    /// A line an agent.
    Agent,
    /// A line a model.
    Model,
}

/// What was spent in one step, on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpendPoint {
    /// The first millisecond of the step.
    pub at: Time,
    /// The agent or the model; empty for the total.
    pub of: String,
    /// Calls of models and paid tools that ended, by when they were asked.
    pub calls: u64,
    /// Their money.
    pub cost: NanoUsd,
}

impl Store {
    /// What was spent over time, in steps, in their order. Steps in which nothing was spent are left out.
    pub async fn spend(
        &self,
        project: &str,
        step: SpendStep,
        by: SpendBy,
        filter: &CostFilter,
    ) -> Result<Vec<SpendPoint>, StoreError> {
        let width = step.width();
        let single = matches!(step, SpendStep::TenSeconds | SpendStep::Minute);
        let query = sql(match step {
            SpendStep::TenSeconds => "SELECT at_ms / 10000 * 10000 AS place, ",
            SpendStep::Minute => "SELECT at_ms / 60000 * 60000 AS place, ",
            SpendStep::Hour => "SELECT hour * 3600000 AS place, ",
            SpendStep::Day => "SELECT day * 86400000 AS place, ",
        });
        let query = query.then(match by {
            SpendBy::Total => "'' AS line, ",
            SpendBy::Agent => {
                "coalesce((SELECT name FROM agents \
                 WHERE agents.number = sums.agent_number), '') AS line, "
            }
            SpendBy::Model if single => "substr(name, 1, 200) AS line, ",
            SpendBy::Model => "model AS line, ",
        });
        let query = query
            .then(if single {
                // As much as the sums take from one call.
                "CAST(COUNT(*) AS BIGINT) AS calls, CAST(SUM(CASE WHEN cost > 1000000000000000 \
                 THEN 1000000000000000 ELSE cost END) AS BIGINT) AS cost"
            } else {
                "CAST(SUM(calls) AS BIGINT) AS calls, CAST(SUM(cost) AS BIGINT) AS cost"
            })
            .then(match step {
                SpendStep::TenSeconds | SpendStep::Minute => " FROM calls sums",
                SpendStep::Hour => " FROM hour_costs sums",
                SpendStep::Day => " FROM costs sums",
            })
            .with(" WHERE project = ", project);
        let (from, to) = (filter.period.from, filter.period.to);
        let first = |time: Time| time.0 / width;
        let last = |time: Time| time.0.div_ceil(width);
        let mut query = match step {
            SpendStep::Hour => query
                .with_some(" AND hour >= ", from.map(first))
                .with_some(" AND hour < ", to.map(last))
                .with_some(" AND model = ", filter.model.as_deref().map(short)),
            SpendStep::Day => query
                .with_some(" AND day >= ", from.map(first))
                .with_some(" AND day < ", to.map(last))
                .with_some(" AND model = ", filter.model.as_deref().map(short)),
            // The ids hold the time and are in the index. A call may have had its id for a while
            // before it was admitted.
            SpendStep::TenSeconds | SpendStep::Minute => query
                .with_some(
                    " AND id >= ",
                    from.map(|from| Numbers::first(Time(from.0.saturating_sub(HELD_MS)))),
                )
                .with_some(" AND at_ms >= ", from.map(|from| first(from) * width))
                .with_some(" AND at_ms < ", to.map(|to| last(to) * width))
                .with_some(" AND substr(name, 1, 200) = ", filter.model.as_deref().map(short))
                .then(" AND status IS NOT NULL AND (kind = 0 OR cost > 0)"),
        };
        if let Some(agent) = &filter.agent {
            query = query
                .with(" AND agent_number = (SELECT number FROM agents WHERE project = ", project)
                .with(" AND name = ", agent)
                .then(")");
        }
        let query = query.then(match by {
            SpendBy::Total => " GROUP BY 1 ORDER BY 1",
            SpendBy::Agent => " GROUP BY 1, sums.agent_number ORDER BY 1, 4 DESC, 2",
            SpendBy::Model => " GROUP BY 1, 2 ORDER BY 1, 4 DESC, 2",
        });
        let read = |row: &Row| {
            Ok(SpendPoint {
                at: Time(row.unsigned("place")?),
                of: row.get("line")?,
                calls: row.unsigned("calls")?,
                cost: NanoUsd(row.unsigned("cost")?),
            })
        };
        self.backend.rows(query).await?.iter().map(read).collect()
    }
}

/// Adds up what has ended, except for calls that were counted before.
pub(crate) async fn add(
    tx: &mut Tx,
    calls: &[&StoredCall],
    counted: &HashSet<i64>,
) -> Result<(), StoreError> {
    let ended = |call: &&&StoredCall| {
        let free = call.kind == CallKind::Tool && call.cost == NanoUsd(0);
        call.status.is_some() && !counted.contains(&call.id) && !free
    };
    let ended: Vec<&StoredCall> = calls.iter().filter(ended).copied().collect();
    let by_day = Sums {
        insert: "INSERT INTO costs (project, day, agent_number, provider, model, calls, input, \
             output, cache_read, cache_write, cost)",
        conflict: "ON CONFLICT (project, day, agent_number, provider, model) DO UPDATE SET \
             calls = costs.calls + excluded.calls, input = costs.input + excluded.input, \
             output = costs.output + excluded.output, \
             cache_read = costs.cache_read + excluded.cache_read, \
             cache_write = costs.cache_write + excluded.cache_write, \
             cost = costs.cost + excluded.cost",
        width: DAY_MS,
    };
    let by_hour = Sums {
        insert: "INSERT INTO hour_costs (project, hour, agent_number, provider, model, calls, \
             input, output, cache_read, cache_write, cost)",
        conflict: "ON CONFLICT (project, hour, agent_number, provider, model) DO UPDATE SET \
             calls = hour_costs.calls + excluded.calls, \
             input = hour_costs.input + excluded.input, \
             output = hour_costs.output + excluded.output, \
             cache_read = hour_costs.cache_read + excluded.cache_read, \
             cache_write = hour_costs.cache_write + excluded.cache_write, \
             cost = hour_costs.cost + excluded.cost",
        width: HOUR_MS,
    };
    for sums in [by_day, by_hour] {
        sums.add(tx, &ended).await?;
    }
    Ok(())
}

/// A table of sums.
struct Sums {
    insert: &'static str,
    conflict: &'static str,
    /// How much time a line stands for.
    width: u64,
}

impl Sums {
    async fn add(&self, tx: &mut Tx, calls: &[&StoredCall]) -> Result<(), StoreError> {
        let mut sums: BTreeMap<(&str, u64, i64, &str, &str), CostLine> = BTreeMap::new();
        for call in calls {
            let server = short(call.server.as_deref().unwrap_or_default());
            let step = call.at.0 / self.width;
            let key = (call.project.as_str(), step, call.agent_number, server, short(&call.name));
            let sum = sums.entry(key).or_insert_with(|| CostLine {
                of: String::new(),
                calls: 0,
                usage: Usage::default(),
                cost: NanoUsd(0),
            });
            sum.calls += 1;
            sum.usage.input += call.usage.input.min(MOST_TOKENS);
            sum.usage.output += call.usage.output.min(MOST_TOKENS);
            sum.usage.cache_read += call.usage.cache_read.min(MOST_TOKENS);
            sum.usage.cache_write += call.usage.cache_write.min(MOST_TOKENS);
            sum.cost += call.cost.min(MOST_MONEY);
        }
        let sums: Vec<_> = sums.into_iter().collect();
        tx.insert(self.insert, self.conflict, &sums, |(key, sum), values| {
            let (project, step, agent, provider, model) = key;
            values.extend([
                (*project).into(),
                (*step).into(),
                (*agent).into(),
                (*provider).into(),
                (*model).into(),
                sum.calls.into(),
                sum.usage.input.0.into(),
                sum.usage.output.0.into(),
                sum.usage.cache_read.0.into(),
                sum.usage.cache_write.0.into(),
                sum.cost.0.into(),
            ]);
        })
        .await?;
        Ok(())
    }
}

/// The beginning of a name that is too long for a row of an index: as much as the index of calls has.
fn short(name: &str) -> &str {
    name.char_indices().nth(INDEXED).map_or(name, |(end, _)| &name[..end])
}

fn read(row: &Row) -> Result<CostLine, StoreError> {
    Ok(CostLine {
        of: row.get("line")?,
        calls: row.unsigned("calls")?,
        usage: Usage {
            input: Tokens(row.unsigned("input")?),
            output: Tokens(row.unsigned("output")?),
            cache_read: Tokens(row.unsigned("cache_read")?),
            cache_write: Tokens(row.unsigned("cache_write")?),
        },
        cost: NanoUsd(row.unsigned("cost")?),
    })
}
