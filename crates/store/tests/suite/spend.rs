//! Spend over time agrees with a count over the calls that were written.

use std::collections::BTreeMap;

use deadstop_core::NanoUsd;
use deadstop_store::{
    Batch, CallKind, CostFilter, Numbers, Period, SpendBy, SpendStep, StoredCall,
};

use crate::place::{TestDatabase, on_both};
use crate::sample::{agent, at, call, number, session};

on_both![a_series_agrees_with_a_count];

/// Random calls of two agents and two models over seven hours, some of them free tools or not over.
fn history(seed: u64) -> (Vec<deadstop_store::StoredAgent>, Vec<StoredCall>) {
    let mut state = seed;
    let mut dice = move |most: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % (most + 1)
    };
    let agents = vec![agent("ada", number(0)), agent("bob", number(1))];
    let sessions = [session(&agents[0], number(2)), session(&agents[1], number(3))];
    let numbers = Numbers::new(3);
    let mut times: Vec<u64> = (0..400).map(|_| 1000 + dice(7 * 3_600_000)).collect();
    times.sort_unstable();
    let mut calls = Vec::new();
    for time in times {
        let id = numbers.next(at(time));
        let mut row = call(&sessions[dice(1) as usize], id);
        (row.at, row.cost) = (at(time), NanoUsd(dice(5000)));
        row.name = ["sonnet", "haiku"][dice(1) as usize].to_owned();
        match dice(9) {
            0 => row.status = None,
            1 => (row.kind, row.cost) = (CallKind::Tool, NanoUsd(0)),
            _ => {}
        }
        calls.push(row);
    }
    (agents, calls)
}

async fn a_series_agrees_with_a_count(place: &TestDatabase) {
    let store = place.open().await;
    let (agents, calls) = history(7);
    let names: BTreeMap<i64, String> = agents.iter().map(|a| (a.number, a.name.clone())).collect();
    store.write(&Batch { agents, calls: calls.clone(), ..Batch::default() }).await.unwrap();
    for step in [SpendStep::TenSeconds, SpendStep::Minute, SpendStep::Hour, SpendStep::Day] {
        let width = step.width();
        for by in [SpendBy::Total, SpendBy::Agent, SpendBy::Model] {
            for (only, model, from) in
                [(None, None, 0), (Some("bob"), None, 3_600_000), (None, Some("haiku"), 12_345_678)]
            {
                let (from, to) = (at(from), at(6 * 3_600_000));
                let mut counted: BTreeMap<(u64, String), (u64, u64)> = BTreeMap::new();
                for call in &calls {
                    let free = call.kind == CallKind::Tool && call.cost == NanoUsd(0);
                    let agent = &names[&call.agent_number];
                    let first = from.0 / width * width;
                    let inside = (first..to.0.div_ceil(width) * width).contains(&call.at.0);
                    let wanted = only.is_none_or(|only| only == agent)
                        && model.is_none_or(|model| model == call.name);
                    if call.status.is_none() || free || !inside || !wanted {
                        continue;
                    }
                    let line = match by {
                        SpendBy::Total => String::new(),
                        SpendBy::Agent => agent.clone(),
                        SpendBy::Model => call.name.clone(),
                    };
                    let sum = counted.entry((call.at.0 / width * width, line)).or_default();
                    *sum = (sum.0 + 1, sum.1 + call.cost.0);
                }
                let period = Period { from: Some(from), to: Some(to) };
                let (agent, model) = (only.map(str::to_owned), model.map(str::to_owned));
                let filter = CostFilter { agent, model, period };
                let told = store.spend("default", step, by, &filter).await.unwrap();
                assert!(told.is_sorted_by_key(|point| point.at), "{step:?}");
                let told: BTreeMap<_, _> = told
                    .into_iter()
                    .map(|point| ((point.at.0, point.of), (point.calls, point.cost.0)))
                    .collect();
                assert!(!told.is_empty() && told == counted, "{step:?} {by:?} {filter:?}");
            }
        }
    }
    let none = store.spend("other", SpendStep::Day, SpendBy::Total, &CostFilter::default()).await;
    assert_eq!(none.unwrap(), []);
}
