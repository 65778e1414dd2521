//! What a stop saved: the pace that a session had, bounded by what a run of its agent usually costs.
//!
//! A pace alone would grow without end: an hour after the stop of a session that had cost a cent it
//! says dollars, a day later hundreds. No run of the agent ever cost that.

use deadstop_core::{Millis, NanoUsd, Time};
use deadstop_store::{SessionState, StoredCall, StoredSession};
use serde::Serialize;
use utoipa::ToSchema;

/// A pace that was measured over less than this says nothing.
const SHORTEST: Millis = Millis(1000);
/// Fewer other runs than this do not say what is usual.
const FEWEST: usize = 3;
/// How many runs of an agent are looked at.
pub(super) const RUNS: u32 = 100;

/// What a stop saved, and how that was worked out.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Pace {
    /// Dollars a minute, before it was stopped.
    usd_per_minute: f64,
    /// Calls a minute, before it was stopped.
    calls_per_minute: f64,
    /// Calls that this was measured by.
    measured_calls: usize,
    /// The time that they took, in milliseconds.
    measured_ms: u64,
    /// When the saving ends: now, or when the cost of a usual run is reached.
    until_ms: u64,
    /// What nine of ten runs of the agent cost at most; null without three other runs that were not stopped.
    #[schema(required)]
    usual_usd: Option<f64>,
    /// The other runs that this was taken from.
    usual_runs: usize,
    /// Dollars saved: the pace until now, at most what a run usually costs. Null if what is usual is not known.
    #[schema(required)]
    cost_usd: Option<f64>,
    /// The calculation, in words.
    how: String,
}

/// What runs of an agent usually cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Usual {
    runs: usize,
    cost: Option<NanoUsd>,
}

impl Usual {
    /// What is usual, from the agent's runs: those that were stopped, and the one that is asked
    /// about, do not say.
    pub(super) fn of(sessions: &[StoredSession], but: Option<i64>) -> Usual {
        let tells = |session: &&StoredSession| {
            let stopped = session.state == SessionState::Killed;
            !stopped && Some(session.number) != but && session.counters.calls > 0
        };
        let mut costs: Vec<NanoUsd> =
            sessions.iter().filter(tells).map(|session| session.counters.cost).collect();
        costs.sort_unstable();
        let runs = costs.len();
        let ninth = (runs * 9).div_ceil(10).saturating_sub(1);
        Usual { runs, cost: costs.get(ninth).copied().filter(|_| runs >= FEWEST) }
    }
}

impl Pace {
    /// The pace of calls until a stop, extrapolated until now; `None` if there are too few calls.
    pub(super) fn of<'c>(
        calls: impl Iterator<Item = &'c StoredCall>,
        stopped: Time,
        now: Time,
        usual: Usual,
    ) -> Option<Pace> {
        let (mut count, mut cost, mut first) = (0, NanoUsd(0), stopped);
        for call in calls {
            count += 1;
            cost += call.cost;
            first = first.min(call.at);
        }
        let took = stopped.since(first);
        if count < 2 || took < SHORTEST {
            return None;
        }
        // Only shown to people, so floats are exact enough.
        let minutes = took.0 as f64 / 60_000.0;
        let usd_per_minute = cost.dollars() / minutes;
        let unbounded = usd_per_minute * (now.since(stopped).0 as f64 / 60_000.0);
        let bound = usual.cost.map(NanoUsd::dollars);
        let reached = bound.filter(|bound| unbounded > *bound);
        let until = reached.map_or(now.0, |bound| {
            stopped.0.saturating_add((bound / usd_per_minute * 60_000.0) as u64)
        });
        let mut pace = Pace {
            usd_per_minute,
            calls_per_minute: count as f64 / minutes,
            measured_calls: count,
            measured_ms: took.0,
            until_ms: until,
            usual_usd: bound,
            usual_runs: usual.runs,
            cost_usd: bound.map(|bound| unbounded.min(bound)),
            how: String::new(),
        };
        pace.how = pace.told(took, unbounded);
        Some(pace)
    }

    /// The calculation, in words.
    fn told(&self, took: Millis, unbounded: f64) -> String {
        let Pace { usd_per_minute, calls_per_minute, measured_calls, usual_runs, .. } = self;
        let pace = format!(
            "Before the stop it made {calls_per_minute:.1} calls and cost ${usd_per_minute:.4} a minute \
             (its last {measured_calls} calls, {took})."
        );
        match self.usual_usd {
            None => format!(
                "{pace} How much that saved cannot be told in money: it takes {FEWEST} other runs of \
                 the agent that were not stopped to know what a run usually costs, and there are \
                 {usual_runs}."
            ),
            Some(usual) if unbounded > usual => format!(
                "{pace} At that pace it would have cost ${unbounded:.2} by now, but nine of ten runs \
                 of this agent cost ${usual:.4} or less (last {usual_runs} runs), so no more than \
                 that is counted."
            ),
            Some(usual) => format!(
                "{pace} At that pace it would have cost ${unbounded:.4} by now, which is less than \
                 what a run of this agent usually costs (${usual:.4}, last {usual_runs} runs)."
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deadstop_core::{Usage, Verdict};
    use deadstop_store::{CallKind, Counters};

    fn call(at: u64, cost: u64) -> StoredCall {
        StoredCall {
            id: 1,
            project: "default".into(),
            agent_number: 1,
            session_number: 1,
            nested: None,
            position: 1,
            kind: CallKind::Model,
            name: "m".into(),
            server: None,
            at: Time(at),
            duration: None,
            verdict: Verdict::Allow,
            guard: None,
            reason: None,
            status: None,
            usage: Usage::default(),
            cost: NanoUsd(cost),
            incident: None,
            facts: None,
            first: None,
            cause: None,
        }
    }

    fn run(number: i64, cost: u64, state: SessionState) -> StoredSession {
        StoredSession {
            number,
            project: "default".into(),
            agent_number: 1,
            agent: "a".into(),
            name: "s".into(),
            opened: Time(0),
            used: Time(0),
            state,
            why: None,
            tags: Vec::new(),
            provider: None,
            model: None,
            counters: Counters { calls: 1, cost: NanoUsd(cost), ..Counters::default() },
        }
    }

    #[test]
    fn the_pace_goes_on_until_a_run_would_usually_be_over() {
        let dollar = NanoUsd::DOLLAR.0;
        let usual = |cost| Usual { runs: 9, cost: Some(NanoUsd(cost)) };
        let calls = [call(0, dollar), call(30_000, dollar)];
        let of = |usual| Pace::of(calls.iter(), Time(60_000), Time(660_000), usual).unwrap();
        let pace = of(usual(50 * dollar));
        assert_eq!((pace.usd_per_minute, pace.calls_per_minute), (2.0, 2.0));
        assert_eq!((pace.cost_usd, pace.until_ms), (Some(20.0), 660_000));
        let bounded = of(usual(4 * dollar));
        assert_eq!((bounded.cost_usd, bounded.until_ms), (Some(4.0), 180_000));
        assert!(
            bounded.how.contains("$20.00") && bounded.how.contains("$4.0000"),
            "{}",
            bounded.how
        );
        let unknown = of(Usual { runs: 2, cost: None });
        assert_eq!((unknown.cost_usd, unknown.usual_usd), (None, None));
        assert!(unknown.how.contains("and there are 2"), "{}", unknown.how);
        for (calls, stopped) in [(vec![], 60_000), (vec![call(0, 1)], 60_000), (calls.into(), 500)]
        {
            let none = Pace::of(calls.iter(), Time(stopped), Time(660_000), Usual::default());
            assert_eq!(none, None);
        }
    }

    /// The issue: a session of $0.015 was said to have saved $6,431 six days later.
    #[test]
    fn days_later_it_is_still_no_more_than_a_run() {
        let cent = NanoUsd::DOLLAR.0 / 100;
        let calls = [call(0, cent), call(1000, cent / 2)];
        let usual = Usual { runs: 5, cost: Some(NanoUsd(2 * cent)) };
        let now = Time(6 * 86_400_000);
        let pace = Pace::of(calls.iter(), Time(1200), now, usual).unwrap();
        assert_eq!(pace.cost_usd, Some(0.02));
    }

    #[test]
    fn what_is_usual_leaves_stopped_runs_out() {
        let ended = |number, cost| run(number, cost, SessionState::Ended);
        let mut runs: Vec<_> = (1..=10).map(|n| ended(n, n as u64)).collect();
        runs.push(run(11, 1000, SessionState::Killed));
        runs.push(ended(12, 5000));
        let usual = Usual::of(&runs, Some(12));
        assert_eq!(usual, Usual { runs: 10, cost: Some(NanoUsd(9)) });
        assert_eq!(Usual::of(&runs[..2], None), Usual { runs: 2, cost: None });
    }
}
