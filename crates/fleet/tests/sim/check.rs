//! The invariants: those that hold after each commit, and those that hold at the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use deadstop_core::share::{minute_began, spent_since};
use deadstop_core::{Period, Policy, ScopeKind, Time};
use deadstop_fleet::model::Model;
use deadstop_fleet::{Commit, Record, Sum, Sums};

use crate::books::{Books, Entry, Fate};
use crate::world::World;

/// A scope and its keys in Redis.
struct Known {
    scope: String,
    kind: ScopeKind,
    key: String,
    sums: Option<String>,
}

fn known(world: &World) -> Vec<Known> {
    let mut all = BTreeMap::new();
    for scope in world.chains().into_iter().flatten() {
        let cell = world.load(&scope);
        let kind = cell.kind();
        let counted = kind != ScopeKind::Session;
        let sums = counted.then(|| cell.sum_key());
        let known = Known { scope: scope.clone(), kind, key: cell.key().to_owned(), sums };
        all.insert(scope, known);
    }
    all.into_values().collect()
}

/// What Redis shows of a scope: spent, and spent or reserved, for steps, model calls, input,
/// output, cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Shown {
    steps: u64,
    models: u64,
    input: u64,
    output: u64,
    cost: u64,
    /// Spent or reserved.
    all_input: u64,
    all_output: u64,
    /// Spent or reserved in the current period.
    all_cost: u64,
    in_flight: i64,
    held: bool,
}

fn shown(model: &Model, known: &Known) -> Option<Shown> {
    if let Some(key) = &known.sums {
        let sums = model.sums(key);
        let held = sums.held_by_all();
        let [_, steps, models, input, output, _, cost, ..] = sums.counts;
        return Some(Shown {
            steps,
            models,
            input,
            output,
            cost,
            all_input: input.saturating_add_signed(held.input),
            all_output: output.saturating_add_signed(held.output),
            all_cost: sums.period_cost.saturating_add_signed(held.cost),
            in_flight: held.calls,
            held: !sums.held.is_empty(),
        });
    }
    let record = Record::from_bytes(&model.record(&known.key)?.1).ok()?;
    let ledger = record.state.ledger();
    let (spent, held) = (ledger.spent, ledger.reserved);
    Some(Shown {
        steps: spent.steps,
        models: spent.model_calls,
        input: spent.input.0,
        output: spent.output.0,
        cost: spent.cost.0,
        all_input: spent.input.0 + held.input.0,
        all_output: spent.output.0 + held.output.0,
        all_cost: ledger.committed().0,
        in_flight: ledger.in_flight as i64,
        held: !record.parts.is_empty() || !record.state.held().is_empty(),
    })
}

/// After each commit: no counter exceeds its limit.
pub(crate) fn while_it_runs(world: &Arc<World>) {
    let scopes = known(world);
    let (policies, books) = (Arc::clone(&world.policies), Arc::clone(&world.books));
    let ceiling = world.plan.ceiling;
    let hub = Arc::downgrade(&world.hub);
    world.hub.watch(Box::new(move |commit: &Commit, model: &Model| {
        // After Redis lost data it cannot know what was spent.
        let Some(hub) = hub.upgrade() else { return };
        if !hub.restarts.lock().is_empty() {
            return;
        }
        for known in &scopes {
            let touched = match &known.sums {
                Some(key) => commit.sums.iter().any(|sum| sum.key == *key),
                None => commit.items.iter().any(|i| i.key == known.key && i.write.is_some()),
            };
            let Some(shown) = touched.then(|| shown(model, known)).flatten() else { continue };
            let policy = policies.of(known.kind);
            let mut more = offline(&books, &known.scope);
            if policy.budget.per != Period::Total {
                // A dead node's call that began in one period may have been booked in that one or
                // the next: allow for both.
                more.all_cost += books.died(&known.scope);
            }
            if let Some(over) = over(&shown, policy, ceiling, more) {
                let sum = commit.sums.iter().find(|sum| Some(&sum.key) == known.sums.as_ref());
                books.fault(format!("(b) {}: {over}: {shown:?} after {sum:?}", known.scope));
            }
            let sum = commit.sums.iter().find(|sum| Some(&sum.key) == known.sums.as_ref());
            if let Some(sum) = sum.filter(|_| ceiling && more == Shown::default())
                && let Some(over) = too_fast(sum, &model.sums(&sum.key), policy, hub.now())
            {
                books.fault(format!("(b) {}: {over} after {sum:?}", known.scope));
            }
        }
    }));
}

/// Whether a call was admitted although its scope was over a limit of pace. What calls that end in
/// the same commit have spent was not known when the call was decided.
fn too_fast(sum: &Sum, after: &Sums, policy: &Policy, now: Time) -> Option<String> {
    let admits = sum.add[1] > 0 || sum.add[2] > 0;
    if !admits || sum.pace.is_some() || !sum.bury.is_empty() {
        return None;
    }
    let held = after.held_by_all();
    let (paid, used) = spent_since(&after.pace, minute_began(now));
    let paid = paid.saturating_add_signed(held.cost);
    let used = used.saturating_add_signed(held.input + held.output);
    let bounds = policy.bounds();
    let over = |amount: u64, limit: Option<u64>| limit.is_some_and(|limit| amount > limit);
    (over(paid, bounds.pace_cost) || over(used, bounds.pace_tokens))
        .then(|| format!("pace {paid}, {used} > {bounds:?}"))
}

/// Calls admitted offline come on top of the limits.
fn offline(books: &Books, scope: &str) -> Shown {
    let entries = books.entries.lock();
    let here = |entry: &&Entry| entry.offline && entry.chain.iter().any(|name| name == scope);
    entries.iter().filter(here).fold(Shown::default(), |mut all, entry| {
        all.steps += u64::from(entry.tool);
        all.models += u64::from(!entry.tool);
        all.all_input += entry.input.0;
        all.all_output += entry.output.0;
        all.all_cost += entry.cost.0;
        all
    })
}

fn over(shown: &Shown, policy: &Policy, ceiling: bool, more: Shown) -> Option<String> {
    let bounds = policy.bounds();
    let mut checks = vec![
        ("steps", shown.steps, bounds.steps, more.steps),
        ("model calls", shown.models, bounds.model_calls, more.models),
    ];
    if ceiling {
        let both = (shown.all_input + shown.all_output, more.all_input + more.all_output);
        checks.push(("output", shown.all_output, bounds.output, more.all_output));
        checks.push(("tokens", both.0, bounds.tokens, both.1));
        checks.push(("money", shown.all_cost, bounds.cost, more.all_cost));
    }
    let over = |(_, used, limit, more): &&(&str, u64, Option<u64>, u64)| {
        limit.is_some_and(|limit| *used > limit + more)
    };
    let found = checks.iter().find(over)?;
    Some(format!("{} {} > {:?} + {}", found.0, found.1, found.2, found.3))
}

/// At the end: everything settled is booked, nothing is reserved, and all nodes agree.
pub(crate) fn in_the_end(world: &World) {
    let model = world.hub.model();
    let books = &world.books;
    let lossy = !world.hub.restarts.lock().is_empty();
    let entries = books.entries.lock().clone();
    for known in known(world) {
        let here = |chain: &[String]| chain.contains(&known.scope);
        let mine: Vec<&Entry> = entries.iter().filter(|entry| here(&entry.chain)).collect();
        let Some(shown) = shown(&model, &known) else {
            if mine.iter().any(|entry| entry.fate == Fate::Settled) {
                books.fault(format!("(c) {}: the store knows nothing of it", known.scope));
            }
            continue;
        };
        let held = holders(&model, &known);
        // Calls that any node may settle, and whose entries Redis lost, stay reserved.
        let forgotten = lossy && held.iter().all(|held| held.contains("\"\""));
        if (shown.held || shown.in_flight != 0) && !forgotten {
            books.fault(format!("(d) {}: still held: {shown:?} {:?}", known.scope, held));
        }
        // A node may die after it has told a client of the end of a call, and before it has
        // committed that. Then what the call had reserved is booked.
        let settled = mine.iter().filter(|entry| entry.fate != Fate::Runs);
        let sum = |of: fn(&Entry) -> u64| settled.clone().map(|entry| of(entry)).sum::<u64>();
        let least = [
            ("steps", sum(|e| u64::from(e.tool)), shown.steps),
            ("model calls", sum(|e| u64::from(!e.tool)), shown.models),
            ("input", sum(|e| booked(e, e.input.0, e.granted.input)), shown.input),
            ("output", sum(|e| booked(e, e.output.0, e.granted.output)), shown.output),
            ("money", sum(|e| booked(e, e.cost.0, e.granted.cost)), shown.cost),
        ];
        for (what, booked, shows) in least {
            if shows < booked && !lossy {
                books.fault(format!("(c) {}: {what} {shows} < {booked}", known.scope));
            }
        }
        // A dead node's calls are charged for what they had reserved. An admission whose answer was
        // lost is a step all the same, and costs money if its node is taken for dead.
        let died = |entry: &&&Entry| books.has_died(entry.node);
        let late = mine.iter().filter(|e| e.fate == Fate::Runs || died(e));
        // The node may have died before it heard the answer to its last request.
        let most = |entry: &&Entry| entry.reserved.cost.max(entry.cost.0 as i64);
        let more: i64 = late.map(most).sum();
        let ghosts = books.ghosts();
        let ghosts = ghosts.iter().filter(|ghost| here(&ghost.chain));
        let (tools, models): (Vec<_>, Vec<_>) = ghosts.partition(|ghost| ghost.tool);
        let any_died = books.any_node_died();
        let most = [
            ("steps", least[0].1 + tools.len() as u64 + unsettled(&mine, true), shown.steps),
            (
                "model calls",
                least[1].1 + models.len() as u64 + unsettled(&mine, false),
                shown.models,
            ),
        ];
        // After a loss of data, nodes may have written the same call twice.
        for (what, booked, shows) in most {
            if shows > booked && !lossy {
                books.fault(format!("(c) {}: {what} {shows} > {booked}", known.scope));
            }
        }
        let haunted = any_died && (!models.is_empty() || !tools.is_empty());
        let most = least[4].1.saturating_add_signed(more);
        if shown.cost > most && !haunted && !lossy {
            books.fault(format!("(c) {}: money {} > {most}", known.scope, shown.cost));
        }
    }
    for scope in books.dead_scopes() {
        let database = world.hub.database.lock();
        if database.get(&scope).is_none_or(|row| row.state.killed().is_none()) {
            books.fault(format!("(c) {scope}: the database does not know that it was killed"));
        }
    }
    for (at, node) in world.alive() {
        for known in known(world) {
            let cells = node.cells.lock();
            let Some(cell) = cells.get(&known.scope) else { continue };
            let Some((version, bytes)) = model.record(&known.key) else { continue };
            let Ok(record) = Record::from_bytes(bytes) else { continue };
            let state = cell.state.lock().clone();
            let same = match &known.sums {
                Some(key) => {
                    let sums = model.sums(key);
                    state.rest() == record.state.rest()
                        && state.calls() == sums.counts[0]
                        && state.ledger().spent.cost.0 == sums.counts[6]
                        && state.held() == sums.held_by_all()
                }
                None => state == record.state,
            };
            if cell.version() != *version || !same {
                let seen = cell.version();
                let words = format!("{state:?}");
                let other = format!("{:?}", record.state);
                let same = words.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
                let from = same.saturating_sub(60);
                books.fault(format!(
                    "(e) {}: n{at} has {seen:?}, not {version:?}: …{} | …{}",
                    known.scope,
                    words.get(from..same + 60).unwrap_or_default(),
                    other.get(from..same + 60).unwrap_or_default(),
                ));
            }
        }
    }
}

/// What calls were granted, and what settled calls used of it, stays within the limits. This also
/// holds where a call reserves less than it may use; what it used beyond its grant comes on top.
pub(crate) fn granted(world: &World, chain: &[String]) {
    if !world.hub.restarts.lock().is_empty() {
        return;
    }
    let entries = world.books.entries.lock();
    for (scope, kind) in
        chain.iter().zip([ScopeKind::Project, ScopeKind::Agent, ScopeKind::Session])
    {
        let policy = world.policies.of(kind);
        let here = |entry: &&Entry| !entry.offline && entry.chain.contains(scope);
        let mut used = Shown::default();
        for entry in entries.iter().filter(here) {
            let share = |used: u64, granted: i64| match (entry.ends, granted.unsigned_abs()) {
                (true, granted) => used.min(granted),
                (false, granted) => granted,
            };
            used.steps += u64::from(entry.tool);
            used.models += u64::from(!entry.tool);
            used.all_input += share(entry.input.0, entry.granted.input);
            used.all_output += share(entry.output.0, entry.granted.output);
            if policy.budget.per == Period::Total {
                used.all_cost += share(entry.cost.0, entry.granted.cost);
            }
        }
        if let Some(over) = over(&used, policy, true, Shown::default()) {
            world.books.fault(format!("(b) {scope}: granted: {over}"));
        }
    }
}

/// What must be booked of an ended call.
fn booked(entry: &Entry, used: u64, granted: i64) -> u64 {
    match entry.fate {
        Fate::Told => used.min(granted.unsigned_abs()),
        Fate::Runs | Fate::Settled => used,
    }
}

/// After a calm while: every end that waited for a ride is committed, unless its node died.
pub(crate) fn arrived(world: &World) {
    let alive: Vec<usize> = world.alive().into_iter().map(|(at, _)| at).collect();
    let entries = world.books.entries.lock();
    let waits = |entry: &&Entry| entry.fate == Fate::Told && alive.contains(&entry.node);
    if let Some(entry) = entries.iter().find(waits) {
        world.books.fault(format!("(f) the end of a call was not committed: {entry:?}"));
    }
}

fn unsettled(entries: &[&Entry], tool: bool) -> u64 {
    let open = |entry: &&&Entry| entry.fate == Fate::Runs && entry.tool == tool;
    entries.iter().filter(open).count() as u64
}

fn holders(model: &Model, known: &Known) -> Vec<String> {
    match &known.sums {
        Some(key) => model.sums(key).held.iter().map(|held| format!("{held:?}")).collect(),
        None => {
            let record = model.record(&known.key).and_then(|r| Record::from_bytes(&r.1).ok());
            record.map(|r| r.parts.iter().map(|p| format!("{p:?}")).collect()).unwrap_or_default()
        }
    }
}
