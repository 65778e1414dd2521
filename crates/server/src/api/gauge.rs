//! What guards measure, as the API shows it: beside what runs, and at a call of a replay.

use std::collections::HashMap;

use deadstop_core::{
    Digest, Failing, Gauge, Measure, ProviderQuota, ScopeKind, ScopeState, Signal, Time,
};
use deadstop_warden::{Project, Scope};
use serde::Serialize;
use utoipa::ToSchema;

/// What a guard measures, against its limit.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Limit {
    /// The guard.
    guard: &'static str,
    /// What it measures, such as `cost`, `score` or `calls_without_news`.
    what: &'static str,
    /// How much that is.
    measured: f64,
    /// From where on it trips.
    limit: f64,
    /// In what both are given: `count`, `tokens`, `usd`, `ms` or `score`.
    unit: &'static str,
    /// How near it is: 0 is nothing, 1 is the limit.
    pub(crate) share: f64,
    /// What a score is made of.
    signals: Vec<SignalLine>,
    /// The server that it is about, if it is about one that is known by name.
    #[schema(required)]
    server: Option<String>,
}

/// A window of a provider, such as the five hours of a subscription, as its last answer reported it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Quota {
    /// The provider.
    provider: String,
    /// Its name for the window: `5h`, `7d`, `primary`.
    window: String,
    /// The share that is used, from 0 to 1.
    used: f64,
    /// When it begins anew, in milliseconds since 1970.
    resets_ms: u64,
}

impl Quota {
    /// The windows that a scope remembers and that have not begun anew, the fullest first.
    pub(crate) fn all(state: &ScopeState, now: Time) -> Vec<Quota> {
        let told = |found: ProviderQuota| Quota {
            provider: found.provider,
            window: found.quota.window,
            used: found.quota.used,
            resets_ms: found.quota.resets.0,
        };
        state.quotas(now).into_iter().map(told).collect()
    }
}

/// A provider or a tool server that fails, so that its calls are refused for a while.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct FailingServer {
    /// Its name.
    server: String,
    /// Since when, in milliseconds since 1970.
    since_ms: u64,
    /// In how many milliseconds calls are let through to try it; 0 while they are.
    retry_in_ms: u64,
}

impl From<Failing> for FailingServer {
    fn from(failing: Failing) -> FailingServer {
        let Failing { server, since, left, .. } = failing;
        FailingServer { server, since_ms: since.0, retry_in_ms: left.0 }
    }
}

impl FailingServer {
    /// Those that an agent meets.
    pub(crate) fn of_agent(project: &Project, agent: &Scope, now: Time) -> Vec<FailingServer> {
        let found = failing(project, agent, now);
        found.into_iter().map(FailingServer::from).collect()
    }

    /// The one that holds a session back: the provider that it used last, if it fails for its credential.
    pub(crate) fn of_session(
        project: &Project,
        agent: &Scope,
        session: &Scope,
        now: Time,
    ) -> Vec<FailingServer> {
        let own = |failing: &Failing| session.is_held_back_by(failing);
        failing(project, agent, now).into_iter().filter(own).map(FailingServer::from).collect()
    }
}

fn failing(project: &Project, agent: &Scope, now: Time) -> Vec<Failing> {
    let policies = project.policies(agent.name());
    agent.state().failing(policies.of(ScopeKind::Agent), now)
}

/// One line of a score.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SignalLine {
    /// What was counted.
    name: String,
    /// How often.
    count: u32,
    /// What each counts for.
    weight: f64,
    /// Both multiplied.
    score: f64,
}

impl From<&Signal> for SignalLine {
    fn from(signal: &Signal) -> SignalLine {
        SignalLine {
            name: signal.name.clone(),
            count: signal.count,
            weight: signal.weight,
            score: f64::from(signal.count) * signal.weight,
        }
    }
}

impl Limit {
    /// A gauge as it is shown. States know servers by their digests; these are their names.
    pub(crate) fn of(gauge: &Gauge, servers: &HashMap<Digest, &str>) -> Limit {
        let (measured, unit) = plain(gauge.measured);
        Limit {
            guard: gauge.guard.name(),
            what: gauge.what,
            measured,
            limit: plain(gauge.limit).0,
            unit,
            share: gauge.share,
            signals: gauge.signals.iter().map(SignalLine::from).collect(),
            server: gauge.server.and_then(|server| Some((*servers.get(&server)?).to_owned())),
        }
    }
}

fn plain(measure: Measure) -> (f64, &'static str) {
    match measure {
        Measure::None => (0.0, "count"),
        Measure::Count(count) => (count as f64, "count"),
        Measure::Tokens(tokens) => (tokens.0 as f64, "tokens"),
        Measure::Money(money) => (money.dollars(), "usd"),
        Measure::Time(time) => (time.0 as f64, "ms"),
        Measure::Score(score) => (score, "score"),
    }
}
