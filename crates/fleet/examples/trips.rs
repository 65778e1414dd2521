//! What one call costs a fleet: commits, and processor time of the nodes and of Redis.
//!
//! ```text
//! trips REDIS_ADDRESS REDIS_PID [CALLS [ROW]]
//! ```
//!
//! Three nodes in this process, without gateway and database: only decisions and commits. Each row is
//! one way to call. Prints a table.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use deadstop_core::{
    Answer, Call, Digest, Dollars, ModelCall, NanoUsd, Outcome, Period, PolicySet, Preset, Rates,
    ScopeKind, ScopeState, TextFacts, Time, Tokens, Usage,
};
use deadstop_fleet::{
    Beat, Cell, Commit, Fleet, Redis, Reply, Shared, Touched, Transaction, Unreachable, Version,
};
use parking_lot::Mutex;

type Measured<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Bytes that travel with a session's record, about as many as a conversation takes.
const ATTACHED: usize = 300;
/// Calls of one session.
const TURNS: u64 = 20;

/// Redis without a database behind it.
struct Alone(Redis);

impl Shared for Alone {
    async fn commit(&self, commit: &Commit) -> Result<Reply, Unreachable> {
        self.0.commit(commit).await
    }

    async fn touched(&self, tag: &str, since: Time) -> Result<Touched, Unreachable> {
        self.0.touched(tag, since).await
    }

    async fn beat(&self, node: &str, ms: u64) -> Result<Beat, Unreachable> {
        self.0.beat(node, ms).await
    }

    async fn recall(&self, _: &str) -> Result<Option<ScopeState>, Unreachable> {
        Ok(None)
    }
}

type Node = Arc<Fleet<Alone>>;

/// A way to call.
#[derive(Clone, Copy)]
struct Way {
    what: &'static str,
    callers: u64,
    /// Whether the calls of a caller go to any node.
    roams: bool,
    /// Whether the end of a call rides with the next.
    rides: bool,
}

const WAYS: [Way; 6] = [
    Way {
        what: "one caller at one node, waits for the end",
        callers: 1,
        roams: false,
        rides: false,
    },
    Way { what: "one caller at one node, the end rides", callers: 1, roams: false, rides: true },
    Way { what: "one caller, any node, waits for the end", callers: 1, roams: true, rides: false },
    Way { what: "32 callers, any node, wait for the end", callers: 32, roams: true, rides: false },
    Way { what: "32 callers that stay, wait for the end", callers: 32, roams: false, rides: false },
    Way { what: "32 callers that stay, the end rides", callers: 32, roams: false, rides: true },
];

#[tokio::main]
async fn main() -> Measured<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "trips REDIS_ADDRESS REDIS_PID [CALLS [ROW]]";
    let address = arguments.next().ok_or(usage)?;
    let pid: u32 = arguments.next().ok_or(usage)?.parse()?;
    let calls = arguments.next().map_or(Ok(20_000), |calls| calls.parse())?;
    let only: Option<usize> = arguments.next().map(|row| row.parse()).transpose()?;
    println!("| {calls} calls each | calls/s | commits | conflicts | nodes µs | Redis µs |");
    println!("|---|---|---|---|---|---|");
    for (row, way) in WAYS.into_iter().enumerate() {
        if only.is_none_or(|only| only == row) {
            measure(&address, pid, calls, (row, way)).await?;
        }
    }
    Ok(())
}

async fn measure(address: &str, pid: u32, calls: u64, (row, way): (usize, Way)) -> Measured<()> {
    let policies = Arc::new(policies());
    let project = format!("p{row}-{}", std::process::id());
    let mut nodes: Vec<Node> = Vec::new();
    for node in 0..3 {
        let fleet = Fleet::new(Alone(Redis::open(address)?), "n", node + 1, Time(0));
        fleet.beat().await?;
        tokio::spawn(Arc::clone(&fleet).keep());
        nodes.push(fleet);
    }
    // The project and the agent of each node.
    let tops: Vec<[Arc<Cell>; 2]> = nodes
        .iter()
        .map(|node| {
            let all = [(ScopeKind::Project, ""), (ScopeKind::Agent, "/agent")];
            all.map(|(kind, name)| known(node, &project, name, kind))
        })
        .collect();
    let left = Arc::new(AtomicU64::new(calls));
    let (begun, used, redis) =
        (Instant::now(), on_processor("self")?, on_processor(&pid.to_string())?);
    let mut callers = Vec::new();
    for caller in 0..way.callers {
        let (nodes, tops, project) = (nodes.clone(), tops.clone(), project.clone());
        let (policies, left) = (Arc::clone(&policies), Arc::clone(&left));
        callers.push(tokio::spawn(async move {
            let mut dice = caller.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut sessions: Vec<Arc<Cell>> = Vec::new();
            let one = |n: u64| n.checked_sub(1);
            let mut turn = 0;
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one).is_ok() {
                if turn % TURNS == 0 {
                    let name = format!("/agent/{caller}-{turn}");
                    let at = |node| known(node, &project, &name, ScopeKind::Session);
                    sessions = nodes.iter().map(at).collect();
                }
                turn += 1;
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let drawn = if way.roams { dice >> 33 } else { caller };
                let at = usize::try_from(drawn).unwrap_or(0) % nodes.len();
                let [project, agent] = &tops[at];
                let chain = [project, agent, &sessions[at]].map(Arc::clone);
                one_call(&nodes[at], chain, &policies, (dice, way.rides)).await?;
            }
            Ok::<(), Unreachable>(())
        }));
    }
    for caller in callers {
        caller.await??;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let each = |used: f64| used / calls as f64;
    let count = |of: fn(&Node) -> u64| each(nodes.iter().map(of).sum::<u64>() as f64);
    println!(
        "| {} | {:.0} | {:.2} | {:.2} | {:.0} | {:.0} |",
        way.what,
        calls as f64 / seconds,
        count(|node| node.steps.load(Ordering::Relaxed)),
        count(|node| node.conflicts.load(Ordering::Relaxed)),
        each(on_processor("self")? - used) * 1e6,
        each(on_processor(&pid.to_string())? - redis) * 1e6,
    );
    nodes.iter().for_each(|node| node.stop());
    Ok(())
}

/// A call, from its admission to its end.
async fn one_call(
    node: &Node,
    chain: [Arc<Cell>; 3],
    policies: &Arc<PolicySet>,
    (dice, rides): (u64, bool),
) -> Result<(), Unreachable> {
    let call = Call::Model(ModelCall {
        model: "bench".to_owned(),
        input: Tokens(400 + dice % 100),
        max_output: Some(Tokens(256)),
        rates: Rates { input: NanoUsd(1000), output: NanoUsd(3000), ..Rates::default() },
        ..ModelCall::default()
    });
    let asked = call.clone();
    let admitted = node.run(chain.clone(), policies, None, move |transaction| {
        if transaction.attachment().is_empty() {
            transaction.attachment().resize(ATTACHED, 7);
        }
        let owner = transaction.me();
        (transaction.admit(&asked, &owner), owner)
    });
    let (admission, owner) = admitted.await?;
    let Some(ticket) = admission.ticket else { return Ok(()) };
    let usage = Usage { input: Tokens(420), output: Tokens(200), ..Usage::default() };
    let text = TextFacts::of(&format!("an answer that says {dice:x} {:x}", dice >> 9));
    let answer = Some(Answer { text: Some(text), calls: Some(Digest(dice)) });
    let outcome = Outcome { usage, answer, ..Outcome::default() };
    let end = move |transaction: &mut Transaction<'_, '_>| {
        transaction.settle(&call, ticket.clone(), &owner, &outcome);
    };
    if rides {
        drop(tokio::spawn(node.run_with_next(chain, policies, end)));
        return Ok(());
    }
    node.run_durably(chain, policies, None, end).await
}

fn known(node: &Node, project: &str, name: &str, kind: ScopeKind) -> Arc<Cell> {
    let scope = format!("{project}{name}");
    let state = Arc::new(Mutex::new(ScopeState::new(kind, node.now())));
    let cell = Cell::new(project, &scope, &scope, state, (Version::default(), 1), Box::new(|_| ()));
    cell.asked_in(node.era(project));
    let cell = Arc::new(cell);
    node.know(&cell);
    cell
}

/// All guards on, with limits that are not reached.
fn policies() -> PolicySet {
    let mut set = Preset::Strict.policies();
    let much = Some(Dollars(NanoUsd(u64::MAX >> 12)));
    for policy in [&mut set.project, &mut set.agent, &mut set.session] {
        policy.budget.max_cost_usd = much;
        policy.budget.per = Period::Day;
        policy.velocity.max_usd_per_minute = much;
        policy.velocity.max_tokens_per_minute = None;
        policy.steps.max_model_calls = Some(1_000_000_000);
        policy.steps.max_steps = None;
        policy.tokens.total_token_limit = None;
    }
    set
}

/// Seconds that a process was on a processor; the kernel counts in hundredths.
fn on_processor(process: &str) -> Measured<f64> {
    let said = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields = said.rsplit(')').next().unwrap_or_default().split(' ');
    let ticks = fields.skip(12).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? / 100.0)
}
