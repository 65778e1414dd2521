//! What a session says of itself: its state, frozen by a kill, and its health.

use std::fmt;

use deadstop_core::{FailMode, Mode, ProviderQuota, Quota, ScopeState};
use serde::Serialize;

use crate::session::Session;
use crate::tree::{SESSION, Tree};

/// A window of a provider as the bindings give it out.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Window {
    /// The provider, by the name under which it is called.
    pub provider: String,
    /// The window's name: `5h`, `7d`, `primary`, `requests`.
    pub window: String,
    /// The share that is used.
    pub used: f64,
    /// When it begins anew, in milliseconds since 1970.
    pub resets_ms: u64,
}

impl From<ProviderQuota> for Window {
    fn from(ProviderQuota { provider, quota }: ProviderQuota) -> Window {
        let Quota { window, used, resets } = quota;
        Window { provider, window, used, resets_ms: resets.0 }
    }
}

/// A session's state. A kill freezes it: only calls that were in flight at the kill are still booked.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
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
    /// Changes with every decision; a kill freezes it.
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
#[non_exhaustive]
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
    /// Calls in flight.
    pub in_flight: u64,
}

/// What a scope inside the session has used.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
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

/// What a kill freezes.
#[derive(Debug, Clone)]
pub(crate) struct Frozen {
    pub(crate) mode: Mode,
    pub(crate) version: u64,
    pub(crate) forbidden_tools: Vec<String>,
}

impl Frozen {
    pub(crate) fn of(tree: &Tree) -> Frozen {
        let denied = tree.policy(SESSION).access.deny.iter();
        Frozen {
            mode: tree.mode(),
            version: tree.version,
            forbidden_tools: denied.map(ToString::to_string).collect(),
        }
    }
}

impl State {
    pub(crate) fn of(session: &Session, tree: &Tree, frozen: Option<Frozen>) -> State {
        let scope = |at| ScopeFigures {
            path: tree.names(at),
            killed: tree.state(at).killed().is_some(),
            figures: Figures::of(tree.state(at)),
        };
        let Frozen { mode, version, forbidden_tools } = frozen.unwrap_or_else(|| Frozen::of(tree));
        State {
            agent: session.agent().to_owned(),
            session: session.name().to_owned(),
            mode,
            killed: tree.killed().is_some(),
            kill_reason: tree.killed().map(|kill| kill.because.clone()),
            state_version: version,
            forbidden_tools,
            figures: Figures::of(tree.state(SESSION)),
            scopes: tree.all().skip(1).map(scope).collect(),
        }
    }
}

/// Declares states as words.
macro_rules! words {
    ($( $(#[doc = $doc:literal])* $name:ident { $( $(#[doc = $about:literal])* $word:ident = $text:literal, )* } )*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
            #[serde(rename_all = "lowercase")]
            #[non_exhaustive]
            pub enum $name {
                $( $(#[doc = $about])* $word, )*
            }

            impl $name {
                /// The state as a word, as it is serialised.
                pub fn as_str(self) -> &'static str {
                    match self { $( $name::$word => $text, )* }
                }
            }

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(self.as_str())
                }
            }
        )*
    };
}

words! {
    /// What the authority over a session (its server, or this process) says about it.
    AuthorityState {
        /// Calls are admitted.
        Active = "active",
        /// An operator holds the session.
        Paused = "paused",
        /// The session was killed.
        Killed = "killed",
        /// The server does not answer.
        Unreachable = "unreachable",
    }
    /// Whether a session works.
    SessionStatus {
        /// It works.
        Active = "active",
        /// Its server does not answer; the policy's fail mode decides.
        Degraded = "degraded",
        /// It was killed or restored.
        Inactive = "inactive",
    }
    /// Where a kill is kept.
    Durability {
        /// In this process only: there is no server.
        Process = "process",
        /// In this process, and in a file until the server has it.
        Pending = "pending",
        /// At the server.
        Server = "server",
    }
}

/// How a session is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Health {
    /// Whether it is over.
    pub killed: bool,
    /// What the authority says about it.
    pub authority_state: AuthorityState,
    /// Whether it works.
    pub status: SessionStatus,
    /// Where a kill is kept.
    pub durability: Durability,
    /// The server, if there is one.
    pub server: Option<ServerHealth>,
    /// Captures that could not be written.
    pub lost_captures: u64,
}

/// The connection to the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
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
