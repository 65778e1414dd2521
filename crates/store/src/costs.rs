//! What calls came to, by day, agent and model: added up as they are written, so that a page about
//! money does not read a million of them.

use std::collections::{BTreeMap, HashSet};

use deadstop_core::{NanoUsd, Time, Tokens, Usage};

use crate::backend::{Row, Tx, sql};
use crate::calls::{CallKind, StoredCall};
use crate::page::Period;
use crate::{Store, StoreError};

/// A day in milliseconds; days are counted in UTC.
const DAY_MS: u64 = 86_400_000;
/// What one call may add at most, and how long a name may be in a sum: figures and names come from
/// outside, and none of them may make a sum overflow or a row too long for its index.
const MOST_TOKENS: Tokens = Tokens(1_000_000_000_000);
const MOST_MONEY: NanoUsd = NanoUsd(1_000_000_000_000_000);
const LONGEST_NAME: usize = 200;

/// What the amounts are added up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CostBy {
    /// A line an agent.
    Agent,
    /// A line a model.
    Model,
    /// A line a day.
    Day,
}

/// Which amounts are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CostFilter {
    /// Only this agent's.
    pub agent: Option<String>,
    /// Only this model's.
    pub model: Option<String>,
    /// Only those of the days that this span touches.
    pub period: Period,
}

/// One line of the sum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CostLine {
    /// The agent, the model, or the day's first millisecond.
    pub of: String,
    /// Calls that ended.
    pub calls: u64,
    /// Their tokens.
    pub usage: Usage,
    /// Their money.
    pub cost: NanoUsd,
}

impl Store {
    /// What calls came to, the dearest line first; days in their order.
    pub async fn costs(
        &self,
        project: &str,
        by: CostBy,
        filter: &CostFilter,
    ) -> Result<Vec<CostLine>, StoreError> {
        let head = match by {
            CostBy::Agent => {
                "SELECT coalesce((SELECT name FROM agents \
                WHERE agents.number = costs.agent_number), '') AS line"
            }
            CostBy::Model => "SELECT model AS line",
            CostBy::Day => "SELECT CAST(day * 86400000 AS TEXT) AS line",
        };
        let day = |time: Time| time.0 / DAY_MS;
        let mut query = sql(head)
            .then(
                ", CAST(SUM(calls) AS BIGINT) AS calls, CAST(SUM(input) AS BIGINT) AS input, \
                 CAST(SUM(output) AS BIGINT) AS output, \
                 CAST(SUM(cache_read) AS BIGINT) AS cache_read, \
                 CAST(SUM(cache_write) AS BIGINT) AS cache_write, \
                 CAST(SUM(cost) AS BIGINT) AS cost FROM costs",
            )
            .with(" WHERE project = ", project)
            .with_some(" AND day >= ", filter.period.from.map(day))
            .with_some(" AND day <= ", filter.period.to.map(|to| day(Time(to.0.saturating_sub(1)))))
            .with_some(" AND model = ", filter.model.as_ref());
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
        });
        self.backend.rows(query).await?.iter().map(read).collect()
    }
}

/// Adds up what has ended, except for calls that were counted before.
pub(crate) async fn add(
    tx: &mut Tx,
    calls: &[&StoredCall],
    counted: &HashSet<i64>,
) -> Result<(), StoreError> {
    let mut sums: BTreeMap<(&str, u64, i64, &str, &str), CostLine> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.status.is_some() && !counted.contains(&call.id)) {
        if call.kind == CallKind::Tool && call.cost == NanoUsd(0) {
            continue;
        }
        let (name, server) = (short(&call.name), short(call.server.as_deref().unwrap_or_default()));
        let key = (call.project.as_str(), call.at.0 / DAY_MS, call.agent_number, server, name);
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
    tx.insert(
        "INSERT INTO costs (project, day, agent_number, provider, model, calls, input, output, \
         cache_read, cache_write, cost)",
        "ON CONFLICT (project, day, agent_number, provider, model) DO UPDATE SET \
         calls = costs.calls + excluded.calls, input = costs.input + excluded.input, \
         output = costs.output + excluded.output, \
         cache_read = costs.cache_read + excluded.cache_read, \
         cache_write = costs.cache_write + excluded.cache_write, \
         cost = costs.cost + excluded.cost",
        &sums,
        |((project, day, agent, provider, model), sum), values| {
            values.extend([
                (*project).into(),
                (*day).into(),
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
        },
    )
    .await?;
    Ok(())
}

/// The beginning of a name that is too long.
fn short(name: &str) -> &str {
    &name[..name.floor_char_boundary(LONGEST_NAME)]
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
