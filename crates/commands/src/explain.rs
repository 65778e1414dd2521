//! `deadstop explain`: one incident, from the sentence to the calls around it.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context;
use deadstop_core::Measure;
use serde::Deserialize;
use serde_json::Value;

use crate::client::{Client, encoded};
use crate::remote::Server;
use crate::table::{Table, facts};
use crate::{short, timeline, ui, when};

/// Characters of the bar: the threshold stands in its middle.
const BAR: usize = 40;
/// Characters of evidence that are shown, unless all are wanted.
const SHOWN: usize = 300;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The incident, or the beginning or the end of its id [default: the latest]
    #[arg(value_name = "INCIDENT")]
    id: Option<String>,
    /// Show the evidence in full, and not its beginning
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    server: Server,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.server.client()?;
    let found = ui::runtime()?.block_on(async {
        let id = match &args.id {
            Some(typed) => short::incident(&client, typed).await?,
            None => match latest(&client).await? {
                Some(id) => id,
                None => return Ok(None),
            },
        };
        let path = format!("/api/incidents/{}", encoded(&id));
        client.get(&path).await.with_context(|| format!("incident {id}")).map(Some)
    });
    let Some(incident) = found? else {
        eprintln!("no incidents");
        return Ok(ExitCode::SUCCESS);
    };
    if args.server.json {
        ui::print(&incident.to_string())?;
    } else {
        let shown = if args.full { usize::MAX } else { SHOWN };
        let page = args.server.page(&["incidents", &ui::text(&incident["id"])]);
        ui::print(&format!("{}\n\npage: {page}\n", told(&incident, shown).trim_end()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The id of the newest incident.
async fn latest(client: &Client) -> anyhow::Result<Option<String>> {
    let newest = client.get("/api/incidents?limit=1").await?;
    Ok(newest["items"][0]["id"].as_str().map(str::to_owned))
}

fn told(incident: &Value, shown: usize) -> String {
    let mut out = format!("{}\n\n", ui::text(&incident["explain"]));
    let seen = &incident["acknowledged"];
    let seen_by = match seen.is_null() {
        true => "not acknowledged".to_owned(),
        false => {
            let (by, note) = (ui::text(&seen["by"]), ui::text(&seen["note"]));
            format!("{by}, {}: {note}", when::ago(&seen["at_ms"]))
        }
    };
    let trip = &incident["trip"];
    out += &facts(&[
        ("incident", ui::text(&incident["id"])),
        ("at", when::ago(&incident["at_ms"])),
        ("calls", calls(incident)),
        ("session", format!("{}/{}", ui::text(&incident["agent"]), ui::text(&incident["session"]))),
        ("provider", ui::text(&incident["provider"])),
        ("guard", format!("{}: {}", ui::text(&incident["guard"]), ui::text(&incident["reason"]))),
        ("verdict", ui::text(&incident["verdict"])),
        ("measured", measure(&trip["measured"])),
        ("limit", measure(&trip["limit"])),
        ("window", ui::text(&incident["window"])),
        ("seen by", seen_by),
    ]);
    score(&mut out, &incident["scoring"]);
    ladder(&mut out, incident["ladder"].as_array());
    evidence(&mut out, incident["evidence"].as_array(), shown);
    around(&mut out, incident);
    if incident["verdict"] == "kill" {
        saved(&mut out, &incident["unstopped"]);
    }
    out
}

/// How many calls an incident that grew met, and when it was seen last.
fn calls(incident: &Value) -> String {
    match incident["calls"].as_u64() {
        Some(calls @ 2..) => format!("{calls}, the last {}", when::ago(&incident["last_ms"])),
        _ => String::new(),
    }
}

/// A measure with its unit, as the engine writes it.
fn measure(value: &Value) -> String {
    match Measure::deserialize(value) {
        Ok(Measure::None) | Err(_) => String::new(),
        Ok(measure) => measure.to_string(),
    }
}

fn score(out: &mut String, scoring: &Value) {
    let figure = |name: &str| scoring[name].as_f64();
    let (Some(score), Some(threshold)) = (figure("score"), figure("threshold")) else { return };
    let end = figure("scale_end").unwrap_or(2.0 * threshold);
    let percent = figure("percent").unwrap_or_default();
    let _ = writeln!(out, "\nScore {score:.1}, {percent:.0}% of the threshold {threshold:.1}:\n");
    let _ = writeln!(out, "  {}", bar(score, threshold, end));
    let none = Vec::new();
    let signals = scoring["signals"].as_array().unwrap_or(&none);
    if signals.is_empty() {
        return;
    }
    let mut table = Table::new(["signal", "count", "weight", "score"]).inside().right([1, 2, 3]);
    for signal in signals {
        let decimal = |name: &str| format!("{:.2}", signal[name].as_f64().unwrap_or_default());
        table.row([
            ui::text(&signal["name"]),
            ui::text(&signal["count"]),
            decimal("weight"),
            decimal("score"),
        ]);
    }
    table.row(["sum".to_owned(), String::new(), String::new(), format!("{score:.2}")]);
    let _ = writeln!(out, "\n{table}");
}

/// The score against its threshold, from nothing to the end of the scale. Beyond the end there is
/// an arrow.
fn bar(score: f64, threshold: f64, end: f64) -> String {
    let place = |value: f64| {
        let share = if end > 0.0 { (value / end).clamp(0.0, 1.0) } else { 0.0 };
        (share * BAR as f64).round() as usize
    };
    let (filled, mark) = (place(score), place(threshold));
    let mut cells = String::new();
    for cell in 0..BAR {
        if cell == mark {
            cells.push('|');
        }
        cells.push(if cell < filled { '#' } else { '.' });
    }
    if mark >= BAR {
        cells.push('|');
    }
    let beyond = if score > end { ">" } else { "" };
    format!("0 [{cells}{beyond}] {end:.1}")
}

/// What a loop's agent was told at which count, and what it did next.
fn ladder(out: &mut String, rungs: Option<&Vec<Value>>) {
    let Some(rungs) = rungs.filter(|rungs| !rungs.is_empty()) else { return };
    let _ = writeln!(out, "\nStep by step:");
    for rung in rungs {
        let done = match rung["verdict"].as_str() {
            Some("warn") => "warned",
            Some("steer") => "steered",
            Some("block") => "blocked",
            Some("kill") => "stopped",
            _ => "noticed",
        };
        let (first, last) = (ui::text(&rung["count"]), ui::text(&rung["last_count"]));
        let counts = if first == last { first } else { format!("{first} to {last}") };
        let limit = ui::text(&rung["limit"]);
        let at = when::local(&rung["at_ms"]);
        let _ = writeln!(out, "\n  {done} at {counts} (limit {limit}), {at}");
        let said = match ui::text(&rung["said"]) {
            said if said.is_empty() => "nothing; people were told".to_owned(),
            said => said,
        };
        let _ = writeln!(out, "    the agent was told: {said}");
        let next = &rung["next"];
        let tool = ui::text(&next["name"]);
        let did = match (next.is_null(), next["repeats"] == true) {
            (true, _) => "no tool call since".to_owned(),
            (false, true) => format!("repeated the loop ({tool})"),
            (false, false) => format!("something else ({tool})"),
        };
        let _ = writeln!(out, "    next: {did}");
    }
}

fn evidence(out: &mut String, pieces: Option<&Vec<Value>>, shown: usize) {
    let Some(pieces) = pieces.filter(|pieces| !pieces.is_empty()) else {
        let _ = writeln!(out, "\nEvidence: none was kept.");
        return;
    };
    let _ = writeln!(out, "\nEvidence, secrets removed:");
    for (number, piece) in pieces.iter().enumerate() {
        let call = match ui::text(&piece["call"]) {
            id if id.is_empty() => String::new(),
            id => format!(" (call {id})"),
        };
        let _ = writeln!(out, "\n  {}{call}", number + 1);
        for side in ["request", "response"] {
            let chars = ui::text(&piece[format!("{side}_chars")]);
            if piece[format!("{side}_chars")] == 0 {
                let _ = writeln!(out, "  {side}: none");
                continue;
            }
            let Some(text) = piece[side].as_str() else {
                let _ = writeln!(out, "  {side}, {chars} characters: not kept");
                continue;
            };
            let kept = text.chars().count();
            let cut = piece[format!("{side}_cut")] == true;
            let part = match (kept > shown, cut) {
                (true, _) => format!(", the first {shown}; --full shows more"),
                (false, true) => format!(", of which {kept} were kept"),
                (false, false) => String::new(),
            };
            let _ = writeln!(out, "  {side}, {chars} characters{part}:");
            let text: String = text.chars().take(shown).collect();
            for line in text.lines() {
                let _ = writeln!(out, "    {}", ui::printable(line));
            }
        }
    }
}

fn around(out: &mut String, incident: &Value) {
    let none = Vec::new();
    let calls = |name: &str| incident[name].as_array().unwrap_or(&none).clone();
    let (before, after) = (calls("before"), calls("after"));
    if before.is_empty() && after.is_empty() {
        return;
    }
    let id = &incident["id"];
    let pieces = calls("evidence");
    let mark = |call: &Value| match () {
        () if call["incident"] == *id && call["verdict"] == "kill" => "stop",
        () if call["incident"] == *id => "incident",
        () if pieces.iter().any(|piece| piece["call"] == call["id"]) => "evidence",
        () if after.iter().any(|later| later["id"] == call["id"]) => "after",
        () => "",
    };
    let all: Vec<Value> = before.iter().chain(&after).cloned().collect();
    let _ = writeln!(out, "\nThe calls around it:\n\n{}", timeline::table(&all, Some(&mark)));
    if after.is_empty() {
        let _ = writeln!(out, "\nNo call came after it.");
    }
}

/// What a stop saved. A call that was only refused or reported leaves its session running.
fn saved(out: &mut String, pace: &Value) {
    let Some(how) = pace["how"].as_str() else {
        let _ = writeln!(
            out,
            "\nSavings unknown: too few calls came before the stop, or all came within a second."
        );
        return;
    };
    if let Some(cost) = pace["cost_usd"].as_f64() {
        let _ = writeln!(out, "\nSaved: about ${cost:.4}.");
    }
    let _ = writeln!(out, "\n{how}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_stands_in_the_middle_of_the_bar() {
        let dots = |n| ".".repeat(n);
        let full = |n| "#".repeat(n);
        for (score, expected) in [
            (0.0, format!("0 [{}|{}] 20.0", dots(20), dots(20))),
            (10.0, format!("0 [{}|{}] 20.0", full(20), dots(20))),
            (13.0, format!("0 [{}|{}{}] 20.0", full(20), full(6), dots(14))),
            (20.0, format!("0 [{}|{}] 20.0", full(20), full(20))),
            (99.0, format!("0 [{}|{}>] 20.0", full(20), full(20))),
        ] {
            assert_eq!(bar(score, 10.0, 20.0), expected);
        }
        assert_eq!(bar(1.0, 0.0, 0.0), format!("0 [|{}>] 0.0", dots(40)));
    }
}
