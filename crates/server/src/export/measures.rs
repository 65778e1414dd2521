//! Metrics out: those of `/metrics`, at an interval.

use std::sync::Weak;

use deadstop_otlp::measure::{self, Example, Measured, Period, Point, Value};
use deadstop_warden::metrics::family::{self, Family, FamilyKind};
use deadstop_warden::{Warden, now};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::Road;
use super::settings::Telemetry;

/// What ends a name tells the unit, which OTLP has a place of its own for.
const UNITS: [(&str, &str); 2] = [("_seconds", "s"), ("_ratio", "1")];
/// A point in time is no duration.
const TIMESTAMP: &str = "_timestamp_seconds";

/// Sends all metrics at an interval, and a last time when the server stops.
pub(super) async fn run(
    telemetry: Telemetry,
    mut road: Road,
    warden: Weak<Warden>,
    stop: CancellationToken,
) {
    let from_ms = now().0;
    let mut ticks = tokio::time::interval(telemetry.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick comes at once, when there is nothing to tell yet.
    ticks.tick().await;
    while !stop.is_cancelled() {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stop.cancelled() => {}
        }
        let Some(warden) = warden.upgrade() else { return };
        let families = warden.metrics_families();
        drop(warden);
        let period = Period { from_ms, to_ms: now().0 };
        let metrics = families.into_iter().map(measured).collect();
        let body = measure::encode(metrics, period, telemetry.sender());
        road.send(body.into()).await;
    }
}

fn measured(family: Family) -> Measured {
    let found = UNITS.iter().find(|(end, _)| family.name.ends_with(end));
    let found = found.filter(|_| !family.name.ends_with(TIMESTAMP));
    let (name, unit) = match found {
        Some((end, unit)) => (family.name.trim_end_matches(end), *unit),
        None => (family.name, ""),
    };
    Measured {
        name: name.replacen('_', ".", 1),
        description: family.help.to_owned(),
        unit,
        grows: family.kind == FamilyKind::Counter,
        points: family.series.into_iter().map(point).collect(),
    }
}

fn point(series: family::Series) -> Point {
    let attributes =
        series.labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let value = match series.value {
        family::Value::Number(number) => Value::Number(number),
        family::Value::Durations(durations) => Value::Counts {
            ends: durations.ends.iter().map(|end| seconds(*end)).collect(),
            sum: seconds(durations.nanos),
            examples: durations.exemplars.iter().flatten().map(example).collect(),
            counts: durations.counts,
        },
    };
    Point { attributes, value }
}

fn example(exemplar: &family::Exemplar) -> Example {
    let family::Exemplar { trace, span, took, at } = *exemplar;
    Example { trace, span, value: took.as_secs_f64(), at_ms: at.0 }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_units_beside_them() {
        for (name, said, unit) in [
            ("deadstop_calls", "deadstop.calls", ""),
            ("deadstop_decision_seconds", "deadstop.decision", "s"),
            ("deadstop_quota_used_ratio", "deadstop.quota_used", "1"),
            (
                "deadstop_quota_reset_timestamp_seconds",
                "deadstop.quota_reset_timestamp_seconds",
                "",
            ),
        ] {
            let (kind, series) = (FamilyKind::Gauge, Vec::new());
            let found = measured(Family { name, help: "", kind, series });
            assert_eq!((&*found.name, found.unit), (said, unit));
        }
    }
}
