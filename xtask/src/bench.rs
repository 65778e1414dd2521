//! What the project promises about speed and size, measured and printed as one table.
//!
//! Times are taken on whatever machine this is; where they would mislead, instructions are counted
//! under valgrind. A time that misses its mark is shown as such. The instructions of a call are the same
//! on every machine, so they are held to `bench/instructions.json`, and it fails if they left it.

use std::hint::black_box;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, ensure};
use deadstop_core::{
    Answer, Call, Digest, Link, ModelCall, NanoUsd, Outcome, Policy, Rates, RawPolicy, ResultFacts,
    ScopeKind, ScopeState, TextFacts, Time, Tokens, ToolCall, Usage, admit, settle,
};
use deadstop_protocol::prices::Prices;
use deadstop_protocol::replay::Replayer;
use deadstop_protocol::trace::{Reader, Trace};

/// Runs every bench and prints the table.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut rows = vec![decisions(), text(), state()];
    let counted = Counted::now();
    match &counted {
        Ok(counted) => rows.extend([counted.flatness(), counted.pinned()?]),
        Err(error) => rows.push(Row::skipped("instructions of a call", error)),
    }
    match backtest() {
        Ok(measured) => rows.extend(measured),
        Err(error) => rows.push(Row::skipped("backtest", &error)),
    }
    println!("| what | measured | goal | |");
    println!("|---|---|---|---|");
    for row in rows {
        let met = row.met.map_or("", |met| if met { "met" } else { "MISSED" });
        println!("| {} | {} | {} | {met} |", row.what, row.measured, row.goal);
    }
    counted.map_or(Ok(()), |counted| counted.check())
}

struct Row {
    what: String,
    measured: String,
    goal: String,
    met: Option<bool>,
}

impl Row {
    fn new(what: &str, measured: String, goal: &str, met: bool) -> Row {
        Row { what: what.into(), measured, goal: goal.into(), met: Some(met) }
    }

    fn skipped(what: &str, why: &anyhow::Error) -> Row {
        Row {
            what: what.into(),
            measured: format!("not measured: {why:#}"),
            goal: String::new(),
            met: None,
        }
    }
}

/// A session under every guard there is, making calls that are all new.
struct Session {
    states: [ScopeState; 3],
    policies: [Policy; 3],
    made: u64,
}

const ALL_GUARDS: &str = r#"{
    "preset": "strict",
    "access": {"deny": ["drop_*", "delete_prod_*"],
               "rules": [{"tool": "sql", "argument": "query", "matches": "*drop*"}]},
    "steps": {"max_steps": 1000000000, "max_model_calls": 1000000000},
    "tokens": {"input_token_limit": 1000000000000, "output_token_limit": 1000000000000},
    "budget": {"max_cost_usd": 100000000, "soft_alert_threshold_usd": 90000000},
    "time": {"max_wall_time_seconds": 1000000000},
    "velocity": {"max_usd_per_minute": 1000000, "max_tokens_per_minute": 1000000000000},
    "similarity": {"enabled": true},
    "agent": {"budget": {"max_cost_usd": 100000000, "per": "day"}},
    "project": {"budget": {"max_cost_usd": 100000000, "per": "day"}}
}"#;

impl Session {
    fn new() -> anyhow::Result<Session> {
        let set = serde_json::from_str::<RawPolicy>(ALL_GUARDS)?.resolve()?;
        Ok(Session {
            states: [ScopeKind::Project, ScopeKind::Agent, ScopeKind::Session]
                .map(|kind| ScopeState::new(kind, Time(0))),
            policies: [set.project, set.agent, set.session],
            made: 0,
        })
    }

    /// One call, admitted and settled: a model call and a tool call in turn.
    fn step(&mut self) {
        self.made += 1;
        let n = self.made;
        let now = Time(n * 50);
        let fresh = |salt: u64| Digest(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt);
        let text = Some(TextFacts {
            simhash: fresh(1).0,
            digest: fresh(2),
            words: 200,
            bag: 0,
            masked: false,
        });
        let (call, outcome) = if n.is_multiple_of(2) {
            let call = ModelCall {
                rates: Rates::FALLBACK,
                input: Tokens(2000),
                prompt: text,
                ..ModelCall::default()
            };
            let usage = Usage { input: Tokens(2000), output: Tokens(300), ..Usage::default() };
            let answer = Some(Answer { text, calls: Some(fresh(3)) });
            (Call::Model(call), Outcome { usage, answer, ..Outcome::default() })
        } else {
            let call = ToolCall { signature: fresh(4), shape: fresh(5), ..ToolCall::default() };
            let result =
                Some(ResultFacts { masked: fresh(6), exact: fresh(7), ..ResultFacts::default() });
            (Call::Tool(call), Outcome { result, ..Outcome::default() })
        };
        let [a, b, c] = &mut self.states;
        let [p, q, r] = &self.policies;
        let mut chain = [
            Link { name: "project", state: a, policy: p },
            Link { name: "agent", state: b, policy: q },
            Link { name: "session", state: c, policy: r },
        ];
        let admission = admit(&mut chain, black_box(&call), now);
        if let Some(ticket) = admission.ticket {
            black_box(settle(&mut chain, &call, ticket, &outcome, now));
        }
    }
}

/// The part that valgrind counts: so many calls of one session.
pub(crate) fn kernel(calls: &str) -> anyhow::Result<()> {
    let calls: u64 = calls.parse().context("how many calls?")?;
    let mut session = Session::new()?;
    for _ in 0..calls {
        session.step();
    }
    println!("{}", session.states[2].calls());
    Ok(())
}

fn decisions() -> Row {
    const CALLS: u32 = 200_000;
    let best = (0..5)
        .filter_map(|_| {
            let mut session = Session::new().ok()?;
            let start = Instant::now();
            for _ in 0..CALLS {
                session.step();
            }
            Some(start.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS))
        })
        .fold(f64::INFINITY, f64::min);
    let measured = format!("{best:.2} µs (best of 5 × {CALLS} calls, chain of 3)");
    Row::new("admit + settle, all guards on", measured, "2 µs or less", best <= 2.0)
}

fn text() -> Row {
    let sentence = "The deployment of service 4711 failed at 2026-11-15T05:06:07Z because the \
                    migration could not obtain a lock on table customers; commit 3f2a9c1d, see \
                    /tmp/run-8/log.txt for the 12 errors.\n";
    let body = sentence.repeat(8 * 1024 * 1024 / sentence.len());
    let best = (0..5)
        .map(|_| {
            let start = Instant::now();
            black_box(TextFacts::of(black_box(&body)));
            body.len() as f64 / start.elapsed().as_secs_f64() / 1e6
        })
        .fold(0.0, f64::max);
    let measured = format!("{best:.0} MB/s (best of 5 × 8 MB)");
    Row::new("normalise + hash text, one core", measured, "300 MB/s or more", best >= 300.0)
}

fn state() -> Row {
    let size = Session::new().map(|mut session| {
        for _ in 0..10_000 {
            session.step();
        }
        session.states[2].to_blob().len()
    });
    let size = size.unwrap_or(usize::MAX);
    let measured = format!("{size} bytes after 10,000 calls, all guards on");
    Row::new("state of a session", measured, "under 4,096 bytes", size < 4096)
}

/// Instructions of a call of the engine, counted by callgrind.
struct Counted {
    /// Of calls 10 to 1,010.
    early: f64,
    /// Of calls 100,000 to 101,000.
    late: f64,
}

/// Instructions that are held to.
const PINS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/instructions.json");
/// What a figure may differ by, in percent.
const MOST: f64 = 3.0;

impl Counted {
    fn now() -> anyhow::Result<Counted> {
        let first = counted(10)?;
        let early = (counted(1_010)? - first) / 1000.0;
        let late = (counted(101_000)? - counted(100_000)?) / 1000.0;
        Ok(Counted { early, late })
    }

    fn flatness(&self) -> Row {
        let Counted { early, late } = self;
        let change = (late / early - 1.0) * 100.0;
        let measured = format!(
            "{early:.0} instructions a call from the 10th, {late:.0} from the 100,000th ({change:+.1}%)"
        );
        Row::new("cost of a late call", measured, "within 10% of an early one", change <= 10.0)
    }

    /// How far the cost of an early call has left the figure that it is held to, in percent.
    fn change(&self) -> anyhow::Result<(f64, f64)> {
        let text = std::fs::read_to_string(PINS).with_context(|| format!("cannot read {PINS}"))?;
        let pins: serde_json::Value = serde_json::from_str(&text)?;
        let pin = pins["engine"].as_f64().context("bench/instructions.json has no `engine`")?;
        Ok((pin, (self.early / pin - 1.0) * 100.0))
    }

    fn pinned(&self) -> anyhow::Result<Row> {
        let (pin, change) = self.change()?;
        let measured = format!("{:.0} ({change:+.1}%)", self.early);
        let goal = format!("{pin:.0} ± {MOST}%");
        Ok(Row::new("instructions of a call", measured, &goal, change.abs() <= MOST))
    }

    fn check(&self) -> anyhow::Result<()> {
        let (pin, change) = self.change()?;
        ensure!(
            change.abs() <= MOST,
            "a call of the engine takes {:.0} instructions, {change:+.1}% of {pin:.0}.\n\
             hint: if that is meant, or the compiler is another one, write the new figure into \
             bench/instructions.json and say why in the commit",
            self.early
        );
        Ok(())
    }
}

/// Instructions of a process that makes so many calls.
fn counted(calls: u64) -> anyhow::Result<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["kernel", &calls.to_string()])
        .output()
        .context("valgrind is not installed (apt-get install valgrind)")?;
    let log = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind failed: {log}");
    let line = log.lines().find(|line| line.contains("Collected :"));
    let count = line.and_then(|line| line.split_whitespace().last());
    count.and_then(|n| n.parse().ok()).context("valgrind told no count")
}

/// The traces beside the checkout, if they are there.
fn backtest() -> anyhow::Result<Vec<Row>> {
    let folder =
        PathBuf::from(std::env::var("DEADSTOP_TRACES").unwrap_or("../shared/traces".into()));
    let files = trace_files(&folder)?;
    let start = Instant::now();
    let prices = Prices::builtin();
    let mut traces = Vec::new();
    for file in &files {
        traces.extend(load(file)?);
    }
    let policies = deadstop_core::Preset::Strict.policies();
    let replayer = Replayer::new(policies, &prices, None);
    let replay = Instant::now();
    let mut calls = 0;
    let mut cost = NanoUsd(0);
    for trace in &traces {
        let report = replayer.replay(trace);
        calls += report.calls_total + report.model_calls;
        cost += report.cost;
    }
    let (replaying, whole) = (replay.elapsed().as_secs_f64(), start.elapsed().as_secs_f64());
    black_box(cost);
    let speed = calls as f64 / replaying;
    Ok(vec![
        Row::new(
            "backtest from parsed traces, one core",
            format!("{speed:.0} calls/s ({calls} calls, facts worked out anew)"),
            "100,000 calls/s or more",
            speed >= 100_000.0,
        ),
        Row::new(
            "backtest of all traces, read and replayed, one core",
            format!("{whole:.2} s ({} traces)", traces.len()),
            "under 5 s",
            whole < 5.0,
        ),
    ])
}

/// The files of traces in a folder, in order.
pub(crate) fn trace_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)
        .with_context(|| format!("no traces at {} (set TRACES)", folder.display()))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "gz"))
        .collect();
    ensure!(!files.is_empty(), "no .jsonl.gz files in {}", folder.display());
    files.sort();
    Ok(files)
}

/// The traces of one file.
pub(crate) fn load(file: &Path) -> anyhow::Result<Vec<Trace>> {
    let mut plain = Vec::new();
    flate2::read::MultiGzDecoder::new(std::fs::File::open(file)?).read_to_end(&mut plain)?;
    Ok(Reader::new(BufReader::new(plain.as_slice())).filter_map(Result::ok).collect())
}
