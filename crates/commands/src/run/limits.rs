//! Limits from the command line: they become limits of the session's policy, and are looked after
//! here as well, for servers and modes whose policy does not carry them out.

use std::time::Duration;

use deadstop_core::{Action, Dollars, Millis, Mode, NanoUsd, Period, PolicySet, Seconds};

use super::watch::Used;
use crate::when::duration;

/// What the run may use.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Limits {
    /// Stop the command when its calls have cost this much, in dollars
    #[arg(long, value_name = "USD", value_parser = dollars)]
    max_cost: Option<NanoUsd>,
    /// Stop the command after this time, even if it makes no calls: 90s, 30m, 1h30m
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    pub(super) max_time: Option<Duration>,
    /// Stop the command when it makes more tool calls than this
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_steps: Option<u64>,
}

impl Limits {
    /// Writes the limits into the session's policy. What was typed here counts, whatever the policy
    /// says about the same thing, and it stops.
    pub(super) fn apply(&self, policies: &mut PolicySet) {
        let session = &mut policies.session;
        if let Some(limit) = self.max_cost {
            session.budget.max_cost_usd = Some(Dollars(limit));
            session.budget.per = Period::Total;
            session.budget.action = Action::Terminate;
        }
        if let Some(limit) = self.max_steps {
            session.steps.max_steps = Some(limit);
            session.steps.action = Action::Terminate;
        }
        if let Some(limit) = self.max_time {
            let whole = limit.as_secs() + u64::from(limit.subsec_nanos() > 0);
            session.time.max_wall_time_seconds = Some(Seconds(whole));
            session.time.action = Action::Terminate;
        }
    }

    /// Takes the policy's own limit on time over, where it stops: a command that makes no calls
    /// never meets the guard.
    pub(super) fn adopt(&mut self, policies: &PolicySet) {
        let session = &policies.session;
        let stops = session.mode == Mode::Enforce && session.time.action == Action::Terminate;
        let limit = session.time.max_wall_time_seconds.filter(|_| stops);
        self.max_time = self.max_time.or(limit.map(|limit| Duration::from_secs(limit.0)));
    }

    /// Why the run has to end, if it has used too much.
    pub(super) fn exceeded(&self, used: &Used) -> Option<String> {
        if let Some(limit) = self.max_cost
            && used.cost >= limit
        {
            return Some(format!("it has spent {} of its budget of {limit}", used.cost));
        }
        let limit = self.max_steps.filter(|limit| used.tool_calls > *limit)?;
        Some(format!("it has made {} tool calls (limit {limit})", used.tool_calls))
    }

    /// Why the run has to end when its time is over.
    pub(super) fn time_is_up(&self) -> String {
        let limit = self.max_time.unwrap_or_default();
        let limit = Millis(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        format!("Time limit of {limit} reached")
    }
}

fn dollars(text: &str) -> Result<NanoUsd, String> {
    let number = text.trim().trim_start_matches('$').parse().ok().and_then(NanoUsd::from_dollars);
    match number {
        Some(amount) if amount > NanoUsd(0) => Ok(amount),
        _ => Err("write an amount of dollars above 0, such as 5 or 0.50".to_owned()),
    }
}

fn some_time(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time.is_zero() {
        Err("with a limit of 0 the command could not start".to_owned())
    } else {
        Ok(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_at_all_is_no_limit() {
        assert!(some_time("0s").is_err());
        assert!(some_time("1s").is_ok());
    }

    #[test]
    fn dollars_are_read() {
        for (text, expected) in [
            ("5", Some(5_000_000_000)),
            ("$0.50", Some(500_000_000)),
            ("0", None),
            ("-1", None),
            ("five", None),
            ("inf", None),
        ] {
            assert_eq!(dollars(text).ok().map(|amount| amount.0), expected, "{text}");
        }
    }
}
