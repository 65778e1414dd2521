//! `deadstop backtest`: what would this policy have stopped?
//!
//! Traces stream through: read, replayed on all cores, reported in the order in which they came,
//! and forgotten, so that a file of any size needs the memory of a batch.

mod explain;
mod input;
mod line;
mod otlp;
mod table;

use std::io::{self, Write};
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use deadstop_core::Millis;
use deadstop_protocol::prices::Prices;
use deadstop_protocol::replay::{Replayer, Report};
use deadstop_protocol::trace::{BadLine, Trace};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::policy;
use crate::ui::Hinted;

/// Arguments of `deadstop backtest`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Traces: .jsonl or .jsonl.gz in any of the known formats; `-` or nothing for standard input
    #[arg(value_name = "FILES")]
    files: Vec<PathBuf>,
    /// A policy file, or the name of a preset: observe, balanced, strict
    #[arg(long, default_value = "balanced", value_name = "FILE|PRESET")]
    policy: String,
    /// One line of JSON per trace on standard output
    #[arg(long)]
    json: bool,
    /// With --json: every guard that fired, not only the first stop
    #[arg(long, requires = "json")]
    all_trips: bool,
    /// Show this trace around its stop
    #[arg(long, value_name = "ID", conflicts_with = "json")]
    explain: Option<String>,
    /// Seconds between two messages, for traces that have no times: judges limits per minute, too
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pace: Option<Duration>,
    /// Replay on this many threads
    #[arg(long, value_name = "N")]
    threads: Option<NonZero<usize>>,
}

/// Traces that are read before they are replayed together.
const BATCH: usize = 256;

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let policies = policy::load(&args.policy)?;
    let prices = Prices::builtin();
    let pace = args.pace.map(|pace| Millis(u64::try_from(pace.as_millis()).unwrap_or(u64::MAX)));
    let replayer = Replayer::new(policies, &prices, pace);
    let mut sink = Sink::new(args);
    let mut broken = 0usize;

    let sources = input::sources(&args.files)?;
    let bar = progress_bar(&sources);
    for source in sources {
        let traces = source.open(&bar)?;
        let mut batch = Vec::with_capacity(BATCH);
        for trace in traces {
            match trace {
                Ok(trace) => batch.push(trace),
                Err(bad) => {
                    broken += 1;
                    bar.suspend(|| complain(&source, &bad));
                }
            }
            if batch.len() == BATCH {
                replay(&replayer, args.threads, &mut batch, &mut sink)?;
            }
        }
        replay(&replayer, args.threads, &mut batch, &mut sink)?;
    }
    bar.finish_and_clear();
    sink.finish(args, broken)
}

/// Replays a batch on all cores and hands the reports on in order.
fn replay(
    replayer: &Replayer<'_>,
    threads: Option<NonZero<usize>>,
    batch: &mut Vec<Trace>,
    sink: &mut Sink,
) -> anyhow::Result<()> {
    let threads = threads.or_else(|| std::thread::available_parallelism().ok());
    let share = batch.len().div_ceil(threads.map_or(1, NonZero::get)).max(1);
    let reports: Vec<Report> = std::thread::scope(|scope| {
        let workers: Vec<_> = batch
            .chunks(share)
            .map(|traces| {
                let work = move || traces.iter().map(|trace| replayer.replay(trace)).collect();
                scope.spawn::<_, Vec<Report>>(work)
            })
            .collect();
        let joined = workers.into_iter().map(|worker| {
            worker
                .join()
                .map_err(|_| anyhow::anyhow!("a replay broke off; please report the trace"))
        });
        joined.collect::<anyhow::Result<Vec<_>>>().map(|parts| parts.concat())
    })?;
    for (trace, report) in batch.drain(..).zip(reports) {
        sink.take(&trace, &report)?;
    }
    Ok(())
}

/// Where reports go.
enum Sink {
    Lines { out: io::BufWriter<io::Stdout>, all_trips: bool },
    Table(Box<table::Table>),
    Explain { id: String, found: bool },
}

impl Sink {
    fn new(args: &Args) -> Sink {
        if let Some(id) = &args.explain {
            Sink::Explain { id: id.clone(), found: false }
        } else if args.json {
            Sink::Lines { out: io::BufWriter::new(io::stdout()), all_trips: args.all_trips }
        } else {
            Sink::Table(Box::default())
        }
    }

    fn take(&mut self, trace: &Trace, report: &Report) -> anyhow::Result<()> {
        match self {
            Sink::Lines { out, all_trips } => line::write(out, trace, report, *all_trips)?,
            Sink::Table(table) => table.add(trace, report),
            Sink::Explain { id, found } if trace.id == *id => {
                *found = true;
                print(&explain::explain(trace, report))?;
            }
            Sink::Explain { .. } => {}
        }
        Ok(())
    }

    fn finish(self, args: &Args, broken: usize) -> anyhow::Result<ExitCode> {
        match self {
            Sink::Lines { mut out, .. } => out.flush()?,
            Sink::Table(table) => print(&table.render(&args.policy))?,
            Sink::Explain { found: true, .. } => {}
            Sink::Explain { id, found: false } => {
                return Err(Hinted::error(
                    format!("no trace has the id {id}"),
                    "ids are the `id` of each line of `deadstop backtest --json`",
                ));
            }
        }
        if broken > 0 {
            eprintln!("{broken} broken {} skipped", if broken == 1 { "line" } else { "lines" });
            return Ok(ExitCode::FAILURE);
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write the report")
}

fn complain(source: &input::Source, bad: &BadLine) {
    eprintln!("{source}:{}: {}", bad.line, bad.problem);
}

fn progress_bar(sources: &[input::Source]) -> ProgressBar {
    let bytes = sources.iter().map(input::Source::bytes).sum::<Option<u64>>();
    let bar = ProgressBar::with_draw_target(bytes, ProgressDrawTarget::stderr());
    let style = match bytes {
        Some(_) => "{bar:40} {bytes} of {total_bytes}, {eta} left",
        None => "{spinner} {bytes} read",
    };
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("`{text}` is not a number of seconds"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}
