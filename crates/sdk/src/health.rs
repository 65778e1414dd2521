//! What a session says of itself: its state, frozen by a kill, and its health.

use deadstop_core::{FailMode, Mode, ScopeState};
use serde::Serialize;

use crate::session::Session;
use crate::tree::Tree;

/// A session's state. After a kill it is what it was then.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct State {
    /// The agent.
    pub agent: String,
    /// The session's name.
    pub session: String,
    /// Whether verdicts are carried out.
    pub mode: Mode,
    /// Whether it is over.
    pub killed: bool,
    /// Why, if it is.
    pub kill_reason: Option<String>,
    /// Changes with everything that happens; stands still once it is over.
    pub state_version: u64,
    /// Tools that the policy denies.
    pub forbidden_tools: Vec<String>,
    /// The session's figures.
    #[serde(flatten)]
    pub figures: Figures,
    /// The scopes inside it.
    pub scopes: Vec<ScopeFigures>,
}

/// What a scope has used.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figures {
    /// Tool calls.
    pub steps: u64,
    /// Model calls.
    pub model_calls: u64,
    /// Input tokens, without cache reads.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Dollars spent.
    pub cost_usd: f64,
    /// Dollars set aside for calls that run.
    pub reserved_usd: f64,
    /// Calls that run.
    pub in_flight: u64,
}

/// What a scope inside the session has used.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScopeFigures {
    /// Its names, the outermost first.
    pub path: Vec<String>,
    /// Whether it is over.
    pub killed: bool,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
}

impl Figures {
    pub(crate) fn of(state: &ScopeState) -> Figures {
        let ledger = state.ledger();
        Figures {
            steps: ledger.spent.steps,
            model_calls: ledger.spent.model_calls,
            input_tokens: ledger.spent.input.0,
            output_tokens: ledger.spent.output.0,
            cost_usd: ledger.spent.cost.dollars(),
            reserved_usd: ledger.reserved.cost.dollars(),
            in_flight: ledger.in_flight,
        }
    }
}

impl State {
    pub(crate) fn of(session: &Session, tree: &Tree) -> State {
        let scope = |at| ScopeFigures {
            path: tree.names(at),
            killed: tree.state(at).killed().is_some(),
            figures: Figures::of(tree.state(at)),
        };
        let at = crate::tree::SESSION;
        let denied = tree.policy(at).access.deny.iter();
        State {
            agent: session.agent().to_owned(),
            session: session.name().to_owned(),
            mode: tree.mode(),
            killed: tree.killed().is_some(),
            kill_reason: tree.killed().map(|kill| kill.because.clone()),
            state_version: tree.version,
            forbidden_tools: denied.map(ToString::to_string).collect(),
            figures: Figures::of(tree.state(at)),
            scopes: tree.all().skip(1).map(scope).collect(),
        }
    }
}

/// How a session is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Health {
    /// Whether it is over.
    pub killed: bool,
    /// Who has the say and what was said: `active`, `paused`, `killed`, or `unreachable` while the
    /// server is away.
    pub authority_state: &'static str,
    /// `active`, `degraded` while the server is away, `inactive` once it is killed or restored.
    pub status: &'static str,
    /// Where a kill lasts: `process`, `pending` until the server has it, `server`.
    pub durability: &'static str,
    /// The server, if there is one.
    pub server: Option<ServerHealth>,
    /// Captures that could not be written.
    pub lost_captures: u64,
}

/// How the line to the server is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServerHealth {
    /// Its address.
    pub url: String,
    /// Whether it answers.
    pub connected: bool,
    /// What went wrong last.
    pub problem: Option<String>,
    /// What happens to calls while it is away.
    pub fail_mode: FailMode,
    /// Reports that wait to be sent.
    pub waiting: usize,
    /// Reports that were dropped because too many waited.
    pub dropped: u64,
    /// Whether it has heard of a kill.
    pub knows_kill: bool,
}
