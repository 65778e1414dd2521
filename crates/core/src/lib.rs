//! The Deadstop engine: decides whether an agent's call may go ahead.
//!
//! Pure and deterministic. The current time is an argument, randomness is none; there is no I/O,
//! no async and no lock. A call is charged to a chain of scopes (project ▸ agent ▸ session ▸
//! nested), each with a [`Policy`] and a bounded [`ScopeState`]; [`admit`], [`progress`] and
//! [`settle`] are its three moments.

mod blame;
mod call;
mod chant;
mod engine;
mod gauge;
mod grant;
mod guard;
mod harm;
mod hex;
mod ladder;
mod ledger;
mod measured;
mod pattern;
mod policy;
mod scope;
mod settings;
#[cfg(feature = "share")]
pub mod share;
pub mod text;
mod trip;
mod twice;
mod units;

pub use blame::{Blame, Failure, How};
pub use call::{
    Answer, Argument, Call, Digest, Effect, ModelCall, Outcome, Rates, ResultFacts, Status,
    ToolCall, Usage,
};
pub use engine::{
    Admission, Decision, Observed, Progress, Ticket, admit, admit_allowed, admit_approved,
    admit_recorded, begin, end, observe, progress, prompt_counted, settle,
};
pub use gauge::Gauge;
pub use grant::{Grant, MOST_GRANTS, TooManyGrants};
pub use guard::access::{AccessSettings, Pin, RawAccess, Rule};
pub use guard::breaker::{BreakerSettings, Failing, RawBreaker, circuit};
pub use guard::budget::{BudgetSettings, RawBudget};
pub use guard::destructive::{DestructiveSettings, RawDestructive};
pub use guard::ending::{EndingSettings, RawEnding, TopUp};
pub use guard::harm::{HarmSettings, OnHarm, RawHarm};
pub use guard::loops::{LoopSettings, RawLoop, ToolLimits};
pub use guard::quota::{ProviderQuota, Quota, QuotaSettings, RawQuota};
pub use guard::similarity::{RawSimilarity, SimilaritySettings};
pub use guard::steps::{RawSteps, StepSettings};
pub use guard::strikes::{Blocked, RawStrikes, StrikeSettings};
pub use guard::swarm::{RawSwarm, SwarmSettings};
pub use guard::text_loop::{RawTextLoop, TextLoopSettings};
pub use guard::time::{RawTime, TimeSettings};
pub use guard::tokens::{RawTokens, TokenSettings};
pub use guard::velocity::{RawVelocity, VelocitySettings};
pub use harm::{Harm, HarmKind, Reach, Recovery, Severity};
pub use hex::hex;
pub use ladder::{HIGHEST_RUNG, Rung};
pub use ledger::{Ledger, Period, Reservation, Reserved, Spent};
pub use pattern::Pattern;
pub use policy::{FailMode, IDLE, Mode, Policy, PolicySet, Preset, RawPolicy, RawSessionLimits};
pub use scope::{BadBlob, Final, Kill, Link, Pause, STATE_VERSION, ScopeKind, ScopeState};
pub use settings::{BadSetting, Dollars, Seconds, Share};
pub use text::{Gist, Sketch, TextFacts, TextHasher};
pub use trip::{Action, Context, Ends, GuardId, Measure, RefusalKind, Signal, Trip, Verdict, Wait};
pub use twice::CallId;
pub use units::{Millis, NanoUsd, Time, Tokens};
