//! `deadstop doctor`: tests that blocking works everywhere Deadstop is installed, and says what it
//! could not test.
//!
//! It does not read a configuration and believe it: it runs the very command that a host would run,
//! sends a call through the gateway, starts a process and has it ended. What it uses for that are
//! canaries, sessions of its own that are dead from the start.

mod cluster;
mod doors;
mod house;
mod tools;

use std::process::ExitCode;

use serde_json::json;

use crate::table::Table;
use crate::ui;

/// Arguments of `deadstop doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    server: crate::remote::Server,
    /// Run only the quick checks, which start and end no process
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    cluster: cluster::Wanted,
}

/// What a look has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It was tried, and it is so.
    Proven,
    /// It was tried, and it is not so.
    Wrong,
    /// It could not be tried.
    Unknown,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Proven => "ok",
            State::Wrong => "WRONG",
            State::Unknown => "unknown",
        }
    }
}

/// One look at one thing.
#[derive(Debug)]
struct Check {
    what: String,
    state: State,
    detail: String,
}

/// All that was looked at.
#[derive(Debug, Default)]
struct Chart {
    checks: Vec<Check>,
    /// What this command cannot test.
    notes: Vec<String>,
    /// Doors at which a deny was seen to deny.
    doors: usize,
}

impl Chart {
    fn add(&mut self, what: impl Into<String>, state: State, detail: impl Into<String>) {
        self.checks.push(Check { what: what.into(), state, detail: detail.into() });
    }

    fn has(&self, state: State) -> bool {
        self.checks.iter().any(|check| check.state == state)
    }

    /// 0 when all is proven, 1 when something is wrong, 2 when it cannot be told.
    fn code(&self) -> u8 {
        if self.has(State::Wrong) {
            1
        } else if self.has(State::Unknown) || self.doors == 0 {
            2
        } else {
            0
        }
    }
}

/// Looks at everything.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut chart = Chart::default();
    if args.cluster.cluster {
        cluster::look(&mut chart, &args.cluster, &args.server)?;
        print(args, &chart)?;
        return Ok(ExitCode::from(chart.code()));
    }
    house::policy(&mut chart);
    house::states(&mut chart);
    house::key(&mut chart);
    house::proxies(&mut chart);
    let client = house::server(&mut chart, &args.server);
    doors::gateway(&mut chart, client.as_ref());
    doors::hooks(&mut chart, client.as_ref());
    tools::gateway(&mut chart, client.as_ref());
    tools::wrapped(&mut chart);
    if !args.quick {
        doors::run(&mut chart);
    }
    house::cgroups(&mut chart);
    if chart.doors == 0 {
        chart.notes.push(
            "no door was seen to block a call: set one up with `deadstop init`, `deadstop serve` or `deadstop run`"
                .to_owned(),
        );
    }
    print(args, &chart)?;
    Ok(ExitCode::from(chart.code()))
}

/// The quick look at what is set up for this user, as if it had been typed.
pub(crate) fn quickly() -> anyhow::Result<ExitCode> {
    #[derive(clap::Parser)]
    struct Typed {
        #[command(flatten)]
        args: Args,
    }
    run(&<Typed as clap::Parser>::try_parse_from(["doctor", "--quick"])?.args)
}

fn print(args: &Args, chart: &Chart) -> anyhow::Result<()> {
    if args.server.json {
        let checks: Vec<_> = chart
            .checks
            .iter()
            .map(|check| {
                let state = check.state.name().to_ascii_lowercase();
                json!({ "what": check.what, "state": state, "detail": check.detail })
            })
            .collect();
        let whole = json!({ "code": chart.code(), "checks": checks, "notes": chart.notes });
        return ui::print(&whole.to_string());
    }
    let mut table = Table::new(["what", "state", "found"]);
    for check in &chart.checks {
        table.row([check.what.clone(), check.state.name().to_owned(), check.detail.clone()]);
    }
    ui::print(&table.to_string())?;
    for note in &chart.notes {
        eprintln!("note: {note}");
    }
    Ok(())
}

/// A name that no other session has.
fn canary() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    format!(
        "{}{}-{}",
        deadstop_store::CANARY,
        std::process::id(),
        now.unwrap_or_default().as_millis()
    )
}
