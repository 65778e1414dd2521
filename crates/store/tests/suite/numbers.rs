//! Every sum that the database works out agrees with a brute-force count over the calls that were
//! written: random histories, random spans, on both databases.

use std::collections::BTreeMap;

use deadstop_core::{Millis, NanoUsd, Status, Time, Tokens, Usage, Verdict};
use deadstop_store::{
    Batch, CallFilter, CallKind, CostBy, CostFilter, Numbers, Paging, Period, SpeedBy, SpeedFilter,
    SpendBy, SpendStep, Store, StoredAgent, StoredCall, Took,
};

use crate::place::{TestDatabase, on_both};
use crate::sample::{agent, at, call, session};

on_both![sums_agree_with_a_brute_force_count];

const HOUR: u64 = 3_600_000;
/// What the histories span.
const SPAN: u64 = 75 * HOUR;
const STEPS: [SpendStep; 4] =
    [SpendStep::TenSeconds, SpendStep::Minute, SpendStep::Hour, SpendStep::Day];

/// Fewer histories in an ordinary run.
fn histories() -> u64 {
    match std::env::var_os("DEADSTOP_SOAK").is_some_and(|value| value != "0") {
        true => 1000,
        false => 15,
    }
}

struct Dice(u64);

impl Dice {
    fn to(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % (most + 1)
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.to(from.len() as u64 - 1) as usize].clone()
    }
}

/// A project of its own, so that all histories of a run share one database.
struct History {
    project: String,
    names: BTreeMap<i64, String>,
    calls: Vec<StoredCall>,
}

/// A model's name that is longer than an index has room for, in letters of several bytes.
fn long() -> String {
    "modèle-très-long-".repeat(20)
}

async fn history(store: &Store, seed: u64, numbers: &Numbers) -> History {
    let mut dice = Dice(seed);
    let project = format!("p{seed}");
    let agents: Vec<StoredAgent> = (0..=dice.to(2))
        .map(|n| StoredAgent {
            project: project.clone(),
            ..agent(&format!("agent {n}"), numbers.next(at(0)))
        })
        .collect();
    let mut times: Vec<u64> = (0..20 + dice.to(40)).map(|_| dice.to(SPAN)).collect();
    times.sort_unstable();
    let calls: Vec<StoredCall> =
        times.into_iter().map(|time| one(&mut dice, &agents, numbers, time)).collect();
    let names = agents.iter().map(|agent| (agent.number, agent.name.clone())).collect();
    // In pieces, and some calls first without their end: each counts once.
    let running = |call: &StoredCall| StoredCall { status: None, ..call.clone() };
    let before = calls.iter().filter(|call| call.id % 3 == 0).map(running).collect();
    store.write(&Batch { agents, calls: before, ..Batch::default() }).await.unwrap();
    for calls in calls.chunks(17) {
        store.write(&Batch { calls: calls.to_vec(), ..Batch::default() }).await.unwrap();
    }
    store.write(&Batch { calls: calls[..5].to_vec(), ..Batch::default() }).await.unwrap();
    History { project, names, calls }
}

fn one(dice: &mut Dice, agents: &[StoredAgent], numbers: &Numbers, time: u64) -> StoredCall {
    let owner = dice.pick(agents);
    let mut row = call(&session(&owner, owner.number), numbers.next(at(time)));
    // It may have waited for room before it was admitted.
    row.at = at(time + dice.pick(&[0, 0, 0, 3, 40_000]));
    row.cost = NanoUsd(dice.pick(&[0, 1, 999_999, 5_000_000_000, 7_000_000_000_000_000]));
    row.name = dice.pick(&["sonnet".to_owned(), "haiku".to_owned(), long()]);
    row.server = dice.pick(&[Some("anthropic".to_owned()), Some("openai".to_owned()), None]);
    row.usage = Usage {
        input: Tokens(dice.to(5000)),
        output: Tokens(dice.to(900)),
        cache_read: Tokens(dice.to(2)),
        cache_write: Tokens(0),
    };
    row.status = Some(dice.pick(&[
        Status::Ok,
        Status::Ok,
        Status::Ok,
        Status::Error,
        Status::Fault,
        Status::Cancelled,
    ]));
    row.duration = Some(Millis(dice.to(30_000)));
    row.first = Some(Millis(dice.to(900))).filter(|first| first.0 % 2 == 0);
    row.verdict = dice.pick(&[Verdict::Allow, Verdict::Allow, Verdict::Warn, Verdict::Steer]);
    match dice.to(9) {
        0 => (row.kind, row.name, row.cost) = (CallKind::Tool, "look".into(), NanoUsd(0)),
        1 => (row.kind, row.name) = (CallKind::Tool, "search".into()),
        2 => {
            (row.status, row.duration, row.first) = (None, None, None);
            (row.usage, row.cost) = (Usage::default(), NanoUsd(0));
            row.verdict = dice.pick(&[Verdict::Block, Verdict::Kill]);
        }
        _ => {}
    }
    row
}

/// The beginning of a name, as sums have it.
fn short(name: &str) -> String {
    name.chars().take(200).collect()
}

/// What one call adds to a sum at most.
fn money(call: &StoredCall) -> u64 {
    call.cost.0.min(1_000_000_000_000_000)
}

impl History {
    /// Whether a sum of money is about this call.
    fn is_paid(call: &StoredCall) -> bool {
        call.status.is_some() && (call.kind == CallKind::Model || call.cost.0 > 0)
    }

    fn wanted<'h>(&'h self, filter: &'h CostFilter) -> impl Iterator<Item = &'h StoredCall> {
        let agent = |call: &StoredCall| self.names[&call.agent_number].clone();
        self.calls.iter().filter(|call| History::is_paid(call)).filter(move |call| {
            filter.agent.as_ref().is_none_or(|only| *only == agent(call))
                && filter.model.as_ref().is_none_or(|only| short(only) == short(&call.name))
        })
    }

    async fn costs(&self, store: &Store, by: CostBy, filter: &CostFilter) {
        let (from, to) = (filter.period.from.unwrap().0, filter.period.to.unwrap().0);
        let hours = from / HOUR * HOUR..to.div_ceil(HOUR) * HOUR;
        let mut counted: BTreeMap<String, [u64; 5]> = BTreeMap::new();
        for call in self.wanted(filter).filter(|call| hours.contains(&call.at.0)) {
            let line = match by {
                CostBy::Agent => self.names[&call.agent_number].clone(),
                CostBy::Model => short(&call.name),
                CostBy::Day => (call.at.0 / (24 * HOUR) * 24 * HOUR).to_string(),
                CostBy::Hour => (call.at.0 / HOUR * HOUR).to_string(),
            };
            let sum = counted.entry(line).or_default();
            let usage = call.usage;
            let parts = [1, usage.input.0, usage.output.0, usage.cache_read.0, money(call)];
            sum.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
        }
        let told = store.costs(&self.project, by, filter).await.unwrap();
        let told: BTreeMap<String, [u64; 5]> = told
            .into_iter()
            .map(|line| {
                let usage = line.usage;
                let parts = [usage.input.0, usage.output.0, usage.cache_read.0];
                (line.of, [line.calls, parts[0], parts[1], parts[2], line.cost.0])
            })
            .collect();
        assert_eq!(told, counted, "{} {by:?} {filter:?}", self.project);
    }

    async fn spend(&self, store: &Store, step: SpendStep, by: SpendBy, filter: &CostFilter) {
        let width = step.width();
        let (from, to) = (filter.period.from.unwrap().0, filter.period.to.unwrap().0);
        let span = from / width * width..to.div_ceil(width) * width;
        let mut counted: BTreeMap<(u64, String), (u64, u64)> = BTreeMap::new();
        for call in self.wanted(filter).filter(|call| span.contains(&call.at.0)) {
            let line = match by {
                SpendBy::Total => String::new(),
                SpendBy::Agent => self.names[&call.agent_number].clone(),
                SpendBy::Model => short(&call.name),
            };
            let sum = counted.entry((call.at.0 / width * width, line)).or_default();
            *sum = (sum.0 + 1, sum.1 + money(call));
        }
        let told = store.spend(&self.project, step, by, filter).await.unwrap();
        let told: BTreeMap<_, _> = told
            .into_iter()
            .map(|point| ((point.at.0, point.of), (point.calls, point.cost.0)))
            .collect();
        assert_eq!(told, counted, "{} {step:?} {by:?} {filter:?}", self.project);
    }

    /// Calls that were asked in a span.
    fn asked<'h>(&'h self, filter: &'h SpeedFilter) -> impl Iterator<Item = &'h StoredCall> {
        let (from, to) = (filter.period.from.unwrap(), filter.period.to.unwrap());
        self.calls.iter().filter(move |call| {
            (from..to).contains(&Numbers::time(call.id))
                && filter.agent.as_ref().is_none_or(|only| *only == self.names[&call.agent_number])
        })
    }

    async fn speeds(&self, store: &Store, by: SpeedBy, filter: &SpeedFilter) {
        type Line = ([u64; 4], Vec<u64>, Vec<u64>);
        let mut counted: BTreeMap<(String, String), Line> = BTreeMap::new();
        for call in self.asked(filter) {
            let (CallKind::Model, Some(status)) = (call.kind, call.status) else { continue };
            let model = if by == SpeedBy::Model { short(&call.name) } else { String::new() };
            let key = (call.server.clone().unwrap_or_default(), model);
            let (counts, whole, first) = counted.entry(key).or_default();
            counts[0] += 1;
            match status {
                Status::Ok => {
                    whole.extend(call.duration.map(|took| took.0));
                    first.extend(call.first.map(|took| took.0));
                }
                Status::Fault => counts[1] += 1,
                Status::Error => counts[2] += 1,
                Status::Cancelled => counts[3] += 1,
            }
        }
        let took = |mut times: Vec<u64>| {
            times.sort_unstable();
            let rank = |part: usize| Millis(times[(times.len() * part).div_ceil(100) - 1]);
            (!times.is_empty()).then(|| Took { half: rank(50), most: rank(95) })
        };
        let counted: BTreeMap<_, _> = counted
            .into_iter()
            .map(|(key, (counts, whole, first))| (key, (counts, took(whole), took(first))))
            .collect();
        let told = store.speeds(&self.project, by, filter).await.unwrap();
        assert!(told.is_sorted_by(|a, b| a.calls >= b.calls), "{told:?}");
        let told: BTreeMap<_, _> = told
            .into_iter()
            .map(|line| {
                let counts = [line.calls, line.faults, line.errors, line.cancelled];
                ((line.provider, line.model), (counts, line.whole, line.first))
            })
            .collect();
        assert_eq!(told, counted, "{} {by:?} {filter:?}", self.project);
    }

    async fn activity(&self, store: &Store, step: SpendStep, filter: &SpeedFilter) {
        let width = step.width();
        let period = filter.period;
        let whole = SpeedFilter {
            period: Period {
                from: period.from.map(|from| Time(from.0 / width * width)),
                to: period.to.map(|to| Time(to.0.div_ceil(width) * width)),
            },
            ..filter.clone()
        };
        let mut counted: BTreeMap<u64, [u64; 3]> = BTreeMap::new();
        for call in self.asked(&whole) {
            let sum = counted.entry(Numbers::time(call.id).0 / width * width).or_default();
            sum[0] += 1;
            sum[1] += u64::from(matches!(call.verdict, Verdict::Block | Verdict::Kill));
            sum[2] += u64::from(call.status.is_some_and(Status::failed));
        }
        let told = store.activity(&self.project, step, filter).await.unwrap();
        let told: BTreeMap<_, _> = told
            .into_iter()
            .map(|point| (point.at.0, [point.calls, point.refused, point.failed]))
            .collect();
        assert_eq!(told, counted, "{} {step:?} {filter:?}", self.project);
        // A chart links to the calls behind it: the list has as many.
        let calls = CallFilter {
            agent: filter.agent.clone(),
            period: whole.period,
            ..CallFilter::default()
        };
        let listed = store.calls(&self.project, &calls, &Paging::first(1000)).await.unwrap();
        let sum: u64 = told.values().map(|counts| counts[0]).sum();
        assert_eq!(listed.items.len() as u64, sum, "{} {step:?} {filter:?}", self.project);
    }
}

async fn sums_agree_with_a_brute_force_count(place: &TestDatabase) {
    let store = place.open().await;
    let mut sums = 0;
    for seed in 0..histories() {
        // Numbers only grow: every history begins anew.
        let history = history(&store, seed, &Numbers::new(seed)).await;
        let mut dice = Dice(seed ^ 0x5eed);
        let names: Vec<Option<String>> =
            history.names.values().cloned().map(Some).chain([None]).collect();
        for _ in 0..3 {
            let mut ends = [dice.to(SPAN), dice.to(SPAN)];
            ends.sort_unstable();
            // Some spans begin or end with a day.
            let whole = dice.to(3);
            let place = |end: u64, round: bool| {
                let end = at(end).0;
                Time(if round { end / (24 * HOUR) * 24 * HOUR } else { end })
            };
            let (from, to) = (place(ends[0], whole & 1 > 0), place(ends[1] + 1, whole & 2 > 0));
            let period = Period { from: Some(from), to: Some(to.max(Time(from.0 + 1))) };
            let model = dice.pick(&[None, None, Some("haiku".to_owned()), Some(long())]);
            let filter = CostFilter { agent: dice.pick(&names), model, period };
            for by in [CostBy::Agent, CostBy::Model, CostBy::Day, CostBy::Hour] {
                history.costs(&store, by, &filter).await;
            }
            for step in STEPS {
                for by in [SpendBy::Total, SpendBy::Agent, SpendBy::Model] {
                    history.spend(&store, step, by, &filter).await;
                }
            }
            let filter = SpeedFilter { agent: dice.pick(&names), period };
            history.speeds(&store, SpeedBy::Model, &filter).await;
            history.speeds(&store, SpeedBy::Provider, &filter).await;
            for step in STEPS {
                history.activity(&store, step, &filter).await;
            }
            sums += 22;
        }
    }
    eprintln!("{sums} sums agree");
}
