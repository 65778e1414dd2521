//! A report for programs: one line of JSON per trace.

use std::io::Write;

use deadstop_protocol::replay::{Event, Report};
use deadstop_protocol::trace::Trace;
use serde_json::{Value, json};

/// Writes the line of one trace.
pub(crate) fn write(
    out: &mut impl Write,
    trace: &Trace,
    report: &Report,
    all_trips: bool,
) -> anyhow::Result<()> {
    let telling = report.telling();
    let mut line = json!({
        "id": trace.id,
        "dataset": trace.dataset,
        "verdict": report.verdict(),
        "guard": telling.map(|event| event.trip.guard),
        "reason": telling.map(|event| &event.trip.reason),
        "at_call": telling.and_then(|event| event.at_call),
        "at_message": telling.map(|event| event.at_message),
        "calls_total": report.calls_total,
        "calls_after": telling.map_or(0, |event| event.calls_after),
        "explain": telling.map(|event| event.trip.explain()),
        "cost_usd": report.cost.dollars(),
        "cost_after_usd": report.cost_after.dollars(),
        "assumed": {
            "times": report.assumed.times,
            "usage": report.assumed.usage,
            "unpriced": report.assumed.unpriced,
        },
    });
    if all_trips {
        line["trips"] = report.events.iter().map(trip).collect();
    }
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")?;
    Ok(())
}

fn trip(event: &Event) -> Value {
    json!({
        "verdict": event.trip.verdict,
        "guard": event.trip.guard,
        "reason": event.trip.reason,
        "at_call": event.at_call,
        "at_message": event.at_message,
        "calls_after": event.calls_after,
        "measured": event.trip.measured,
        "limit": event.trip.limit,
        "evidence": event.trip.evidence,
        "explain": event.trip.explain(),
    })
}
