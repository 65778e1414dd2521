//! Calls as a timeline: when each was made, how long after the one before, and what became of it.

use serde_json::Value;

use crate::table::Table;
use crate::{ui, when};

/// A table of calls, oldest first. Those that a mark is given for carry it.
pub(crate) fn table(calls: &[Value], mark: Option<&dyn Fn(&Value) -> &'static str>) -> Table {
    let mut table = Table::new([
        "", "call", "at", "after", "kind", "name", "verdict", "guard", "status", "took", "tokens",
        "cost",
    ])
    .right([1, 3, 9, 10, 11])
    .inside();
    let mut before = None;
    for call in calls {
        let at = call["at_ms"].as_u64();
        let gap = at.zip(before).map(|(at, before): (u64, u64)| at.saturating_sub(before));
        before = at.or(before);
        // A call that was refused never became one of its session's.
        let refused =
            call["status"].is_null() && ["block", "kill"].iter().any(|v| call["verdict"] == *v);
        let position = if refused { "-".to_owned() } else { ui::text(&call["position"]) };
        let took = call["duration_ms"].as_u64();
        let tokens = ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"];
        let tokens: u64 = tokens.iter().filter_map(|kind| call[*kind].as_u64()).sum();
        let guard = match (ui::text(&call["guard"]), ui::text(&call["reason"])) {
            (guard, reason) if guard.is_empty() || reason.is_empty() => guard,
            (guard, reason) => format!("{guard}: {reason}"),
        };
        table.row([
            mark.map(|mark| mark(call)).unwrap_or_default().to_owned(),
            position,
            when::local(&call["at_ms"]),
            gap.map(|gap| format!("+{}", when::length(gap))).unwrap_or_default(),
            ui::text(&call["kind"]),
            ui::clip(&ui::text(&call["name"]), 60),
            ui::text(&call["verdict"]),
            guard,
            ui::text(&call["status"]),
            took.map(when::length).unwrap_or_default(),
            tokens.to_string(),
            ui::dollars(&call["cost_usd"]),
        ]);
    }
    table
}
