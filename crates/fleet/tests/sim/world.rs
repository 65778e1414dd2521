//! A small world: nodes, agents with their sessions, callers, operators, and faults.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use deadstop_core::{
    Action, Call, Decision, Dollars, ModelCall, NanoUsd, Outcome, Period, PolicySet, Preset,
    Progress, Rates, Reservation, ScopeKind, ScopeState, Status, Ticket, Time, Tokens, ToolCall,
    Usage,
};
use deadstop_fleet::{Cell, Fleet, Owner, Transaction, Unreachable, Version};
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::books::{Books, Entry, Fate};
use crate::net::{Endpoint, Hub, Machine, Row, Weather};
use crate::plant::Plant;

/// Prices: what a million tokens cost, in billionths of a dollar.
const RATES: Rates = Rates {
    input: NanoUsd(1_000_000_000),
    output: NanoUsd(2_000_000_000),
    cache_read: NanoUsd(0),
    cache_write: NanoUsd(0),
};

/// What the seed decides about the world.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) nodes: usize,
    pub(crate) agents: usize,
    pub(crate) sessions: usize,
    pub(crate) callers: usize,
    pub(crate) seconds: u64,
    pub(crate) ceiling: bool,
    pub(crate) open: bool,
    pub(crate) weather: Weather,
    pub(crate) partitions: bool,
    pub(crate) crashes: bool,
    pub(crate) halts: bool,
    pub(crate) restarts: bool,
    pub(crate) operators: bool,
}

/// A node.
pub(crate) struct Node {
    pub(crate) fleet: Arc<Fleet<Endpoint>>,
    pub(crate) cells: Mutex<BTreeMap<String, Arc<Cell>>>,
    pub(crate) machine: Arc<Machine>,
}

/// The world.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) policies: Arc<PolicySet>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) books: Arc<Books>,
    /// All nodes, including dead ones.
    pub(crate) nodes: Mutex<Vec<Arc<Node>>>,
    orders: Mutex<BTreeMap<String, ()>>,
}

impl World {
    pub(crate) fn new(seed: u64, plant: Option<Plant>) -> Arc<World> {
        let dice = crate::dice::Dice::new(seed ^ 0xabcd);
        let calm = dice.chance(150);
        let bad = |most: u64| if calm || dice.chance(300) { 0 } else { dice.range(1, most) };
        let plan = Plan {
            nodes: dice.range(2, 5) as usize,
            agents: dice.range(1, 4) as usize,
            sessions: dice.range(1, 4) as usize,
            callers: dice.range(2, 6) as usize,
            seconds: dice.range(6, 25),
            ceiling: dice.chance(700),
            open: dice.chance(300),
            weather: Weather {
                lost_requests: bad(40),
                lost_replies: bad(60),
                twice: bad(60),
                slow: bad(100),
                late: bad(20),
                database: bad(100),
            },
            partitions: !calm && dice.chance(400),
            crashes: !calm && dice.chance(400),
            halts: !calm && dice.chance(300),
            restarts: !calm && dice.chance(250),
            operators: dice.chance(700),
        };
        // The clock starts a few seconds before an hour begins.
        let hour = 3_600_000;
        let epoch = 480_000 * hour - dice.range(1, 20_000);
        let hub = Hub::new(seed, plan.weather, plant, epoch);
        let world = Arc::new(World {
            policies: Arc::new(policies(&plan, &dice)),
            plan,
            hub,
            books: Arc::default(),
            nodes: Mutex::default(),
            orders: Mutex::default(),
        });
        crate::check::while_it_runs(&world);
        world
    }

    pub(crate) fn chains(&self) -> Vec<Vec<String>> {
        let mut all = Vec::new();
        for agent in 0..self.plan.agents {
            for session in 0..self.plan.sessions {
                let agent = format!("acme/a{agent}");
                let session = format!("{agent}/s{session}");
                all.push(vec!["acme".to_owned(), agent, session]);
            }
        }
        all
    }

    /// Starts a node.
    pub(crate) fn start(self: &Arc<World>) -> Arc<Node> {
        let seed = self.hub.dice.any();
        let machine = Machine::new();
        let at = self.nodes.lock().len();
        let (hub, books) = (Arc::clone(&self.hub), Arc::clone(&self.books));
        let line = Endpoint { hub, machine: Arc::clone(&machine), books, at };
        let name = format!("n{at}");
        let fleet = Fleet::new(line, &name, seed, self.hub.now());
        let node = Arc::new(Node { fleet: Arc::clone(&fleet), cells: Mutex::default(), machine });
        tokio::spawn(fleet.keep());
        self.nodes.lock().push(Arc::clone(&node));
        node
    }

    /// Nodes that are not dead.
    pub(crate) fn alive(&self) -> Vec<(usize, Arc<Node>)> {
        let nodes = self.nodes.lock();
        let alive = nodes.iter().enumerate().filter(|(_, node)| !node.machine.is_dead());
        alive.map(|(at, node)| (at, Arc::clone(node))).collect()
    }

    /// A chain as a node knows it, read from the database where the node has not seen it yet.
    pub(crate) fn cells(&self, node: &Node, chain: &[String]) -> Vec<Arc<Cell>> {
        let mut cells = node.cells.lock();
        chain
            .iter()
            .map(|scope| {
                let cell = cells.entry(scope.clone()).or_insert_with(|| {
                    let cell = Arc::new(self.load(scope));
                    cell.asked_in(node.fleet.era("acme"));
                    node.fleet.know(&cell);
                    cell
                });
                Arc::clone(cell)
            })
            .collect()
    }

    /// A scope as the database has it.
    pub(crate) fn load(&self, scope: &str) -> Cell {
        let kind = match scope.matches('/').count() {
            0 => ScopeKind::Project,
            1 => ScopeKind::Agent,
            _ => ScopeKind::Session,
        };
        let row = self.hub.database.lock().get(scope).cloned();
        let new =
            || Row { state: ScopeState::new(kind, self.hub.now()), version: Version::default() };
        let row = row.unwrap_or_else(new);
        let state = Arc::new(Mutex::new(row.state));
        Cell::new("acme", scope, scope, state, (row.version, 1), Box::new(|_| ()))
    }

    /// One call, from admission to settlement.
    pub(crate) async fn call(self: Arc<World>, at: usize, node: Arc<Node>, chain: Vec<String>) {
        let dice = &self.hub.dice;
        let cells = self.cells(&node, &chain);
        let call = Arc::new(self.some_call());
        node.machine.runs().await;
        let standing = self.books.standing(&chain);
        let asked = Arc::clone(&call);
        let ghost = self.books.asks(&chain, call.tool().is_some());
        let admitted = node
            .fleet
            .run(cells.iter().cloned(), &self.policies, None, move |transaction| {
                let owner = transaction.me();
                (transaction.admit(&asked, &owner), owner)
            })
            .await;
        let (ticket, owner) = match admitted {
            Ok((admission, owner)) => {
                self.books.answered(ghost);
                (admission.ticket, owner)
            }
            Err(Unreachable { maybe_done, .. }) => {
                if !maybe_done {
                    self.books.answered(ghost);
                }
                if !self.plan.open {
                    return;
                }
                node.machine.runs().await;
                let dead = cells.iter().any(|cell| cell.state.lock().killed().is_some());
                let admission = node.fleet.offline(&cells, &self.policies, |transaction| {
                    transaction.admit(&call, &Owner::Offline)
                });
                if dead && admission.ticket.is_some() {
                    self.books
                        .fault(format!("(a) {chain:?}: admitted offline despite a known kill"));
                }
                (admission.ticket, Owner::Offline)
            }
        };
        let Some(mut ticket) = ticket else { return };
        let offline = owner == Owner::Offline;
        for kill in standing.iter().filter(|_| !offline) {
            if self.books.standing(&chain).contains(kill) {
                self.books.fault(format!("(a) {chain:?}: admitted after the kill of {}", kill.0));
            }
        }
        let input = call.model().map_or(Tokens(0), |call| call.input);
        let entry = self.books.open(Entry {
            chain: chain.clone(),
            node: at,
            tool: call.tool().is_some(),
            offline,
            reserved: ticket.held(),
            granted: ticket.held(),
            input,
            output: Tokens(0),
            cost: cost(&call, input, Tokens(0)),
            fate: Fate::Runs,
            ends: false,
        });
        crate::check::granted(&self, &chain);
        let used = self.answer(&node, &cells, &call, &mut ticket, &owner, entry).await;
        let status = if dice.chance(100) { Status::Cancelled } else { Status::Ok };
        let usage = Usage { input, output: used, ..Usage::default() };
        let outcome = Outcome { usage, status, ..Outcome::default() };
        self.books.change(entry, |entry| entry.ends = true);
        let end = move |transaction: &mut Transaction<'_, '_>| {
            transaction.settle(&call, ticket.clone(), &owner, &outcome)
        };
        if offline || !dice.chance(500) {
            let settled = node.fleet.run_durably(cells, &self.policies, None, end);
            self.settled(&node, entry, settled).await;
            return;
        }
        // Its end rides with the next call. The client does not wait for it.
        self.books.change(entry, |entry| entry.fate = Fate::Told);
        let world = Arc::clone(&self);
        tokio::spawn(async move {
            let policies = &world.policies;
            match world.hub.plant {
                Some(Plant::Fragile) => {
                    let settled = node.fleet.run(cells, policies, None, end);
                    world.settled(&node, entry, settled).await;
                }
                Some(Plant::Idle) if world.hub.dice.chance(100) => {}
                _ => {
                    let settled = node.fleet.run_with_next(cells, policies, end);
                    world.settled(&node, entry, settled).await;
                }
            }
        });
    }

    /// Notes in the books that the end of a call is committed.
    async fn settled(
        &self,
        node: &Node,
        entry: usize,
        settled: impl Future<Output = Result<Decision, Unreachable>> + Send,
    ) {
        if settled.await.is_ok() {
            node.machine.runs().await;
            self.books.change(entry, |entry| entry.fate = Fate::Settled);
        }
    }

    /// Streams a model's answer. Returns its length.
    async fn answer(
        &self,
        node: &Node,
        cells: &[Arc<Cell>],
        call: &Arc<Call>,
        ticket: &mut Ticket,
        owner: &Owner,
        entry: usize,
    ) -> Tokens {
        let dice = &self.hub.dice;
        let long = dice.chance(80);
        let most = ticket.reserved().output.0;
        let wanted = match (call.tool().is_some(), self.plan.ceiling) {
            (true, _) => 0,
            (false, true) => dice.range(0, most + 1),
            (false, false) => dice.range(0, most * 2 + 1),
        };
        let pieces = dice.range(1, 5);
        let mut output = 0;
        for piece in 1..=pieces {
            let ms = if long { dice.range(500, 3000) } else { dice.range(1, 200) };
            sleep(Duration::from_millis(ms)).await;
            node.machine.runs().await;
            output = wanted * piece / pieces;
            self.books.change(entry, |entry| {
                entry.output = Tokens(output);
                entry.cost = cost(call, entry.input, entry.output);
            });
            let asks = output > ticket.reserved().output.0 || dice.chance(200);
            if *owner == Owner::Offline || call.tool().is_some() || !asks {
                continue;
            }
            let (base, call, owner) = (ticket.clone(), Arc::clone(call), owner.clone());
            let all = cells.iter().cloned();
            let ran = node.fleet.run(all, &self.policies, None, move |transaction| {
                let mut ticket = base.clone();
                let new = Progress { output: Tokens(output), text: "" };
                (transaction.progress(&call, &mut ticket, &owner, new).allowed(), ticket)
            });
            match ran.await {
                Ok((allowed, corrected)) => {
                    *ticket = corrected;
                    let held = ticket.held();
                    self.books.change(entry, |entry| {
                        entry.reserved = held;
                        if allowed {
                            entry.granted = held;
                        }
                    });
                    if !allowed {
                        break;
                    }
                    let chain: Vec<String> = cells.iter().map(|cell| cell.scope.clone()).collect();
                    crate::check::granted(self, &chain);
                }
                Err(_) if self.plan.open => {}
                Err(_) => break,
            }
        }
        Tokens(output)
    }

    pub(crate) fn some_call(&self) -> Call {
        let dice = &self.hub.dice;
        if dice.chance(300) {
            let name = dice.pick(&["read", "search", "paint"]).to_string();
            return Call::Tool(ToolCall { name, ..ToolCall::default() });
        }
        Call::Model(ModelCall {
            rates: RATES,
            input: Tokens(dice.range(1, 60)),
            max_output: dice.chance(850).then(|| Tokens(dice.range(1, 200))),
            ..ModelCall::default()
        })
    }

    /// Redis loses all of its data, or the last writes.
    pub(crate) fn lose_memory(&self) {
        match self.hub.dice.chance(500) {
            true => self.hub.restart(),
            false => self.hub.fail_over(),
        }
    }

    /// Redis loses data at the worst moment: other nodes have not heard of an order yet, and
    /// callers ask them.
    fn worst_moment(self: &Arc<World>, chain: &[String]) {
        if !self.plan.restarts || self.hub.restarts.lock().len() > 4 {
            return;
        }
        self.lose_memory();
        self.call_everywhere(chain);
    }

    /// One call on every node, at once.
    fn call_everywhere(self: &Arc<World>, chain: &[String]) {
        let chains = self.chains();
        let below = chains.iter().filter(|other| other.starts_with(chain));
        let chain = below.min_by_key(|_| self.hub.dice.any()).map_or(chain, Vec::as_slice);
        for (at, other) in self.alive() {
            tokio::spawn(Arc::clone(self).call(at, other, chain.to_vec()));
        }
    }

    /// Applies an order everywhere: in Redis, in the database, and then once more in Redis, which
    /// may have lost it in between. Returns whether it was done.
    async fn decree(
        self: &Arc<World>,
        node: &Node,
        chain: &[String],
        stops: bool,
        change: impl Fn(&mut ScopeState, Time) + Send + Sync + 'static,
    ) -> bool {
        let cells = self.cells(node, chain);
        let (Some(cell), Some(scope)) = (cells.last().cloned(), chain.last()) else { return false };
        if stops && node.fleet.outage().is_some() {
            // In force on this node at once.
            cell.force(|state| change(state, self.hub.now()));
        }
        let done =
            node.fleet.run_durably(cells.clone(), &self.policies, None, move |transaction| {
                let now = transaction.now;
                if let Some(link) = transaction.links.last_mut() {
                    change(link.state, now);
                }
            });
        if done.await.is_err() {
            return false;
        }
        if self.hub.dice.chance(200) {
            // At this point the order is not in the database either.
            self.worst_moment(chain);
        }
        sleep(Duration::from_millis(self.hub.dice.range(0, 30))).await;
        node.machine.runs().await;
        self.hub.write_down(scope, &cell);
        if self.hub.dice.chance(700) {
            // Other nodes write their state of the scope, too.
            for (_, other) in self.alive() {
                if let Some(cell) = other.cells.lock().get(scope) {
                    self.hub.write_down(scope, cell);
                }
            }
        }
        let sure = self.hub.plant == Some(Plant::Confirm)
            || node.fleet.run_durably(cells, &self.policies, None, |_| ()).await.is_ok();
        node.machine.runs().await;
        sure
    }

    /// An operator's order.
    pub(crate) async fn order(self: Arc<World>, node: Arc<Node>, mut chain: Vec<String>) {
        let dice = &self.hub.dice;
        let mut depth = *dice.pick(&[0, 1, 1, 2, 2, 2]);
        if dice.chance(250) {
            // A session that has not been used yet, and that the other nodes have looked up in the
            // database.
            depth = 2;
            chain[2] = format!("{}/new{}", chain[1], dice.any() % 1000);
            for (_, other) in self.alive() {
                self.cells(&other, &chain);
            }
        }
        let scopes = &chain[..=depth];
        let Some(scope) = scopes.last().cloned() else { return };
        // One order at a time for each scope.
        if self.orders.lock().insert(scope.clone(), ()).is_some() {
            return;
        }
        let killed = !self.books.standing(std::slice::from_ref(&scope)).is_empty();
        let clears = depth < 2 && (killed || dice.chance(200));
        let holds = !clears && dice.chance(150);
        node.machine.runs().await;
        let order = move |state: &mut ScopeState, now| match (clears, holds) {
            (true, _) => {
                let _ = state.clear();
                state.resume();
            }
            (false, true) => state.pause("ada", "wait", now),
            (false, false) => state.kill("ada", "enough", now),
        };
        if clears {
            self.books.clears(&scope);
        }
        let done = self.decree(&node, scopes, !clears, order).await;
        if done && !clears && !holds {
            self.books.killed(&scope);
            match dice.chance(400) {
                true => self.worst_moment(&chain),
                false => self.call_everywhere(&chain),
            }
        }
        if holds {
            sleep(Duration::from_millis(dice.range(10, 2000))).await;
            self.decree(&node, scopes, false, |state, _| state.resume()).await;
        }
        self.orders.lock().remove(&scope);
    }
}

/// The cost of a call with this usage.
pub(crate) fn cost(call: &Call, input: Tokens, output: Tokens) -> NanoUsd {
    match call {
        Call::Model(call) => call.rates.cost(&Usage { input, output, ..Usage::default() }),
        Call::Tool(tool) if tool.name == "paint" => NanoUsd(9_000),
        Call::Tool(_) => NanoUsd(0),
    }
}

fn policies(plan: &Plan, dice: &crate::dice::Dice) -> PolicySet {
    let mut set = Preset::Balanced.policies();
    let action = if dice.chance(850) { Action::Block } else { Action::Terminate };
    let sessions = (plan.agents * plan.sessions) as u64;
    for (policy, share) in [
        (&mut set.project, sessions),
        (&mut set.agent, plan.sessions as u64),
        (&mut set.session, 1),
    ] {
        let money = 3_000_000 * share;
        if dice.chance(600) {
            let limit = dice.range(money / 10, money);
            policy.budget.max_cost_usd = Some(Dollars(NanoUsd(limit)));
        }
        policy.budget.per = *dice.pick(&[Period::Total, Period::Total, Period::Hour]);
        policy.budget.action = action;
        if plan.ceiling {
            policy.budget.reservation = Reservation::Ceiling;
        }
        if dice.chance(300) {
            policy.steps.max_steps = Some(dice.range(1, 15 * share));
        }
        if dice.chance(200) {
            policy.steps.max_model_calls = Some(dice.range(1, 20 * share));
        }
        policy.steps.action = action;
        if dice.chance(250) {
            policy.tokens.output_token_limit = Some(Tokens(dice.range(100, 2000 * share)));
        }
        if dice.chance(250) {
            policy.tokens.total_token_limit = Some(Tokens(dice.range(200, 4000 * share)));
        }
        policy.tokens.action = action;
        if dice.chance(200) {
            let limit = dice.range(money / 10, money);
            policy.velocity.max_usd_per_minute = Some(Dollars(NanoUsd(limit)));
        }
        if dice.chance(150) {
            policy.velocity.max_tokens_per_minute = Some(Tokens(dice.range(100, 2000 * share)));
        }
        policy.velocity.action = action;
        let price = Dollars(NanoUsd(9_000));
        policy.budget.tool_prices.insert(deadstop_core::Pattern::new("paint"), price);
        policy.loops.enabled = false;
        policy.strikes.enabled = false;
        policy.text_loop.enabled = false;
    }
    set
}
