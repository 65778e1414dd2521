//! What a session would have cost by now, at the pace that it had when it was stopped.

use deadstop_core::{Millis, NanoUsd, Time};
use deadstop_store::StoredCall;
use serde::Serialize;
use utoipa::ToSchema;

/// A pace that was measured over less than this says nothing.
const SHORTEST: Millis = Millis(1000);

/// What a session would have come to.
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
    /// Until when the pace is extrapolated.
    until_ms: u64,
    /// Dollars that it would have cost from its stop until then.
    cost_usd: f64,
}

impl Pace {
    /// The pace of calls until a stop, extrapolated until now; `None` if there are too few calls.
    pub(super) fn of<'c>(
        calls: impl Iterator<Item = &'c StoredCall>,
        stopped: Time,
        now: Time,
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
        let since = now.since(stopped).0 as f64 / 60_000.0;
        Some(Pace {
            usd_per_minute,
            calls_per_minute: count as f64 / minutes,
            measured_calls: count,
            measured_ms: took.0,
            until_ms: now.0,
            cost_usd: usd_per_minute * since,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deadstop_core::{Usage, Verdict};
    use deadstop_store::CallKind;

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
        }
    }

    #[test]
    fn the_pace_goes_on() {
        let dollar = NanoUsd::DOLLAR.0;
        let calls = [call(0, dollar), call(30_000, dollar)];
        let pace = Pace::of(calls.iter(), Time(60_000), Time(660_000)).unwrap();
        assert_eq!((pace.usd_per_minute, pace.calls_per_minute), (2.0, 2.0));
        assert_eq!(pace.cost_usd, 20.0);
        for (calls, stopped) in [(vec![], 60_000), (vec![call(0, 1)], 60_000), (calls.into(), 500)]
        {
            assert_eq!(Pace::of(calls.iter(), Time(stopped), Time(660_000)), None);
        }
    }
}
