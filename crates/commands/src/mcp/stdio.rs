//! `deadstop mcp -- command`: starts the server, and stays until it ends.

use std::io::{self, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus, Stdio as Streams};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use deadstop_client::{Patience, Server};
use deadstop_gate::{Gate, ScopePath, Setup};
use deadstop_process::{Signal, Tree};
use tokio::signal::unix::{SignalKind, signal};

use super::relay::{self, Relay};
use super::{Stdio, called};
use crate::run::{self, not_started};

/// How long a server may take to end once its client is gone, and then again once it was asked to.
const GRACE: Duration = Duration::from_secs(5);
/// How long the last ends of calls may take to be told.
const LAST: Duration = Duration::from_secs(3);
/// How long a decision may take: a person may have to be asked.
const DECISION: Duration = Duration::from_secs(330);

/// Why it is over.
enum Over {
    /// The server has ended.
    Itself(ExitStatus),
    /// The client is gone.
    NoClient,
    /// A signal came.
    Signal(u8),
}

pub(super) fn run(args: &Stdio) -> anyhow::Result<ExitCode> {
    // First of all: from here on no signal ends us before the server.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(stay(args))
}

async fn stay(args: &Stdio) -> anyhow::Result<ExitCode> {
    let mut signals = [
        (1, signal(SignalKind::hangup())?),
        (2, signal(SignalKind::interrupt())?),
        (15, signal(SignalKind::terminate())?),
    ];
    let gate = gate(args)?;
    let mut command = Command::new(args.command.first().context("there is no command")?);
    command.args(&args.command[1..]).stdin(Streams::piped()).stdout(Streams::piped());
    let mut guardian = run::guardian();
    let tree = match Tree::spawn_without_cgroup(&mut command) {
        Ok(tree) => Arc::new(tree),
        Err(error) => return Ok(not_started(&args.command, &error)),
    };
    run::watch(guardian.as_mut(), &tree);
    let pipes = tree.pipes();
    let (to_server, from_server) = pipes.stdin.zip(pipes.stdout).context("there are no pipes")?;
    let run = uuid();
    let relay = Relay::new(relay::Setup {
        gate,
        place: ScopePath {
            agent: args.agent.clone().unwrap_or_else(|| "default".to_owned()),
            session: args.session.clone().unwrap_or_else(|| format!("mcp-{run}")),
            scope: Vec::new(),
        },
        server: args.server.clone().unwrap_or_else(|| called(&args.command)),
        timeout: args.timeout,
        json: args.json,
        run,
        to_server: Box::new(to_server),
        to_client: Box::new(io::stdout()),
    });

    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let (waiting, ended) = (Arc::clone(&tree), tell.clone());
    thread::spawn(move || ended.send(waiting.wait().map(Over::Itself)));
    relay.hear_client(BufReader::with_capacity(64 << 10, io::stdin()), move || {
        // Fails if the receiver has ended as well.
        let _ = tell.send(Ok(Over::NoClient));
    });
    let hearing = Arc::clone(&relay);
    let hearing = thread::spawn(move || {
        hearing.hear_server(BufReader::with_capacity(64 << 10, from_server));
    });

    let [hangup, interrupt, terminate] = &mut signals;
    let mut over = tokio::select! {
        Some(over) = told.recv() => over?,
        _ = hangup.1.recv() => Over::Signal(1),
        _ = interrupt.1.recv() => Over::Signal(2),
        _ = terminate.1.recv() => Over::Signal(15),
    };
    if matches!(over, Over::NoClient) {
        // The server sees its stdin closed, and may finish its open calls.
        let mut until = Instant::now() + GRACE;
        over = loop {
            if relay.is_busy() {
                until = Instant::now() + GRACE;
            }
            tokio::select! {
                Some(next) = told.recv() => break next?,
                _ = hangup.1.recv() => break Over::Signal(1),
                _ = interrupt.1.recv() => break Over::Signal(2),
                _ = terminate.1.recv() => break Over::Signal(15),
                () = tokio::time::sleep(Duration::from_millis(50)) => {}
            }
            if Instant::now() >= until {
                break Over::NoClient;
            }
        };
    }
    let code = finish(&tree, over)?;
    // What it has said last still passes.
    let until = Instant::now() + LAST;
    while !hearing.is_finished() && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    relay.flush(LAST);
    Ok(ExitCode::from(code))
}

/// Ends whatever is left, and says how it went.
fn finish(tree: &Tree, over: Over) -> io::Result<u8> {
    match &over {
        Over::Signal(2) => drop(tree.interrupt(Signal::Interrupt)),
        Over::Signal(1) => drop(tree.interrupt(Signal::Hangup)),
        _ => {}
    }
    tree.end(match over {
        Over::Itself(_) => Duration::from_millis(500),
        _ => GRACE,
    })?;
    let status = match (over, tree.try_wait()) {
        (Over::Itself(status), _) => Some(status),
        // It has ended in its own way after all.
        (Over::NoClient, Ok(status)) => status,
        (Over::Signal(number), _) => return Ok(128 + number),
        (Over::NoClient, Err(_)) => None,
    };
    let code = status.map_or(0, |status| {
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
    });
    Ok(u8::try_from(code).unwrap_or(1))
}

fn gate(args: &Stdio) -> anyhow::Result<Gate> {
    let server = match &args.via {
        Some(url) => Some(Server { url: url.clone(), ..Server::from_env()? }),
        None => None,
    };
    let patience = Patience { answer: DECISION, ..Patience::default() };
    let policy = args.policy.clone();
    Ok(Gate::open(Setup { server, policy, patience, ..Setup::default() }))
}

/// A name that no other run has.
fn uuid() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = since.unwrap_or_default().as_nanos();
    format!("{:x}-{:x}", nanos, std::process::id())
}
