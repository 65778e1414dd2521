//! `deadstop run`: a command behind a gateway of its own, with its terminal untouched.
//!
//! ```text
//! names ▸ gateway ▸ environment ▸ start ▸ watch gateway, clock, signals and the command itself
//!       ▸ end of the whole tree ▸ figures ▸ exit code
//! ```
//!
//! The command's exit code is passed through (128 + n if a signal ended it). 86 says that Deadstop
//! ended its session, whatever the command made of that; 126 and 127 are a shell's.

mod environment;
mod gateway;
mod join;
mod limits;
mod summary;
mod supervise;
mod watch;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use deadstop_process::{Ended, Guardian, Terminal, Tree};
use tokio::sync::mpsc;

use self::gateway::Gateway;
use self::limits::Limits;
use self::summary::{Fate, Summary};
use self::supervise::{Heard, Over, Signals, Supervisor};
use self::watch::{Look, Used, Watch};
use crate::{operator, ui};

/// Exit code of a command that Deadstop stopped. No shell, signal, `timeout` (124) or sysexits (64
/// to 78) uses it, and scripts do not take it for "try again", as they take 75.
const STOPPED: u8 = 86;

/// How long calls that lost their client may take to be settled.
const SETTLING: Duration = Duration::from_millis(300);

/// Arguments of `deadstop run`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Args {
    /// A policy file, or the name of a preset: observe, balanced, strict [env: DEADSTOP_POLICY]
    // Read by hand: a variable that is set for good must not conflict with --server.
    #[arg(long, value_name = "FILE|PRESET")]
    policy: Option<String>,
    /// What to call the agent [default: the command's name]
    #[arg(long, value_name = "NAME", value_parser = name)]
    agent: Option<String>,
    /// Join the server at this URL: its policy holds [env: DEADSTOP_SERVER] [default: a server that you
    /// run at http://127.0.0.1:4141; without one, or with --policy, --data or --config, a gateway alone]
    #[arg(long, value_name = "URL", conflicts_with_all = ["policy", "data", "config"])]
    server: Option<String>,
    /// With --server: a file with the key to show; DEADSTOP_KEY may hold it as well. The command gets
    /// an agent's key; in place of an admin's it gets one of its own, for the time of this run
    #[arg(long, env = "DEADSTOP_KEY_FILE", value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// With --server: the project, where the key does not decide it
    #[arg(long, env = "DEADSTOP_PROJECT", value_name = "NAME")]
    project: Option<String>,
    #[command(flatten)]
    limits: Limits,
    /// How long the command may take to end after it was asked to
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = crate::when::duration)]
    grace: Duration,
    /// Keep a database in this folder; without it, nothing is kept
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The configuration [env: DEADSTOP_CONFIG] [default: deadstop.toml here, or in the XDG config
    /// folder]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Say nothing unless the command is stopped
    #[arg(long, short)]
    quiet: bool,
    /// Write the summary as one line of JSON, to stderr: stdout is the command's
    #[arg(long)]
    json: bool,
    /// Write the summary as JSON to this file
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const HELP: &str = "\
Pointing programs at the gateway:
  OPENAI_BASE_URL, OPENAI_API_BASE, ANTHROPIC_BASE_URL, ANTHROPIC_API_BASE and
  GOOGLE_GEMINI_BASE_URL are set for the command, and AZURE_OPENAI_ENDPOINT if it was set. Calls
  go on to where these variables pointed before, or to the providers. Keys are left alone.
  Codex does not read them; tell it:
    deadstop run -- sh -c 'codex -c openai_base_url=\"$OPENAI_BASE_URL\"'
  Vertex AI, Bedrock and logins without an API key (Gemini CLI) go past the gateway; --max-time
  holds for them all the same.

Stopping:
  When its session ends (by a guard, a limit, or `deadstop stop`), the command and everything it
  has started get SIGTERM, then --grace seconds, then SIGKILL. A budget that is used up ends the
  command as well. What a command leaves behind when it ends by itself is ended in the same way.
  Ctrl-C goes to the command; twice within two seconds ends everything at once. A program that
  takes Ctrl-C as a key is ended by a SIGTERM to deadstop, or by `deadstop stop`.

Exit codes:
  the command's own, or 128 + n if signal n ended it
  86   stopped by Deadstop: the summary says why
  126  the command cannot be run        127  there is no such command
  2    deadstop itself could not start   128 + n  signal n to deadstop ended everything";

/// Whose run it is.
struct Run {
    agent: String,
    session: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // First of all: from here on no signal ends us before the tree.
    let runtime = ui::runtime()?;
    runtime.block_on(async {
        let signals = Signals::listen().context("cannot listen to signals")?;
        let run = Run { agent: agent(args), session: session() };
        let gateway = Gateway::open(args, &run).await?;
        let begun = Instant::now();
        let look = gateway.watch.look().await?;
        if let Some(why) = look.ended {
            let fate = Fate::NotStarted { why };
            let summary = Summary { used: look.used, ..summary(&run, fate, begun) };
            gateway.close(None).await;
            return tell(args, &summary);
        }
        introduce(args, &run, &gateway);
        let terminal = Terminal::save();
        let mut guardian = guardian();
        let tree = match start(args, &gateway) {
            Ok(tree) => tree,
            Err(error) => {
                gateway.close(None).await;
                return Ok(not_started(&args.command, &error));
            }
        };
        watch(guardian.as_mut(), &tree);
        let (news, hearing) = mpsc::unbounded_channel();
        let watching = tokio::spawn(gateway.watch.clone().run(news));
        let mut supervisor = Supervisor::new(tree, signals, hearing);

        let over = supervisor.wait(gateway.watch.limits.max_time).await?;
        let (over, ended) = finish(args, &gateway, &mut supervisor, over).await;
        let ended_by_us = !matches!(over, Over::Itself(_));
        if let Some(terminal) = terminal.filter(|_| ended_by_us) {
            // Without a terminal there is nothing to put back.
            let _ = terminal.restore();
        }
        let look = settled(&gateway.watch).await;
        supervisor.listen();
        watching.abort();
        let heard = std::mem::take(&mut supervisor.heard);
        let (fate, exit_code) = judge(over, &look, &gateway).await;
        let summary = Summary {
            used: look.used,
            heard,
            exit_code,
            processes: ended.as_ref().ok().copied(),
            ..summary(&run, fate, begun)
        };
        let told = tell(args, &summary);
        gateway.watch.finished().await;
        gateway.close(args.data.as_deref()).await;
        ended.context("not everything could be ended")?;
        told
    })
}

/// Ends the remaining processes. The reason decides how much time they get.
async fn finish(
    args: &Args,
    gateway: &Gateway,
    supervisor: &mut Supervisor,
    over: Over,
) -> (Over, io::Result<Ended>) {
    let grace = match &over {
        Over::Signal(supervise::Sent::Interrupt | supervise::Sent::Quit) => Duration::ZERO,
        _ => args.grace,
    };
    // Our own reasons are not known to the server yet; the end does not wait for it to hear them.
    let reason = match &over {
        Over::OutOfTime => Some(gateway.watch.limits.time_is_up()),
        Over::Exceeded(why) => Some(why.clone()),
        Over::Stopped(_) | Over::Itself(_) | Over::Signal(_) => None,
    };
    let kill = async {
        if let Some(reason) = reason {
            gateway.watch.kill(&reason).await;
        }
    };
    let ((), ended) = tokio::join!(kill, supervisor.end(grace));
    (over, ended)
}

/// The outcome of the run, and its exit code.
async fn judge(over: Over, look: &Look, gateway: &Gateway) -> (Fate, u8) {
    let guard = gateway.guard().await;
    let stopped = |why: String| (Fate::Stopped { why, guard }, STOPPED);
    match over {
        Over::Stopped(why) | Over::Exceeded(why) => stopped(why),
        Over::OutOfTime => {
            let why = gateway.watch.limits.time_is_up();
            (Fate::Stopped { why, guard: Some("time") }, STOPPED)
        }
        Over::Signal(sent) => (Fate::Signalled(sent.number()), 128 + sent.number()),
        // An agent that is refused often ends by itself, before we can end it.
        Over::Itself(status) => match look.ended.as_ref().or(look.exceeded.as_ref()) {
            Some(why) => stopped(why.clone()),
            None => (Fate::Finished, code(status)),
        },
    }
}

/// The last look, when calls that lost their client are settled.
async fn settled(watch: &Watch) -> Look {
    let deadline = Instant::now() + SETTLING;
    loop {
        let look = watch.look().await.unwrap_or_default();
        if look.used.reserved.0 == 0 || Instant::now() > deadline {
            return look;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Starts the process that ends the tree if this one is killed. Without it the command runs all the
/// same, and the person is told.
pub(crate) fn guardian() -> Option<Guardian> {
    match Guardian::start(&[crate::GUARDIAN]) {
        Ok(guardian) => Some(guardian),
        Err(error) => {
            unguarded(&error);
            None
        }
    }
}

/// Tells the guardian which tree to end.
pub(crate) fn watch(guardian: Option<&mut Guardian>, tree: &Tree) {
    if let Some(Err(error)) = guardian.map(|guardian| guardian.watch(tree)) {
        unguarded(&error);
    }
}

fn unguarded(error: &io::Error) {
    say(&format!("deadstop: a SIGKILL to deadstop would leave the command running ({error})\n"));
}

fn start(args: &Args, gateway: &Gateway) -> io::Result<Tree> {
    let (program, arguments) =
        args.command.split_first().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let mut command = Command::new(program);
    command.args(arguments);
    for secret in operator::SECRETS {
        command.env_remove(secret);
    }
    command.envs(gateway.variables.iter().map(|(name, value)| (name, value)));
    Tree::spawn(&mut command)
}

/// A shell's words and codes for a command that cannot be run.
pub(crate) fn not_started(command: &[OsString], error: &io::Error) -> ExitCode {
    let program = command.first().map(|program| program.to_string_lossy().into_owned());
    let program = program.unwrap_or_default();
    let (problem, hint, code) = match error.kind() {
        io::ErrorKind::NotFound => (
            format!("{program}: command not found"),
            "check its spelling and PATH; a shell's own commands need `sh -c '…'`",
            127,
        ),
        io::ErrorKind::PermissionDenied => (
            format!("{program}: cannot be run: {error}"),
            "is it a program, and are you allowed to run it? try chmod +x",
            126,
        ),
        _ => (
            format!("{program}: cannot be run: {error}"),
            "a script needs a first line such as #!/bin/sh",
            126,
        ),
    };
    let _ = ui::fail(&ui::Hinted::error(problem, hint));
    ExitCode::from(code)
}

fn introduce(args: &Args, run: &Run, gateway: &Gateway) {
    if args.quiet || args.json {
        return;
    }
    for note in &gateway.notes {
        say(&format!("deadstop: {note}\n"));
    }
    let server = gateway.watch.server.url();
    say(&format!(
        "deadstop: {} runs behind {server} as {}; to stop it: deadstop stop --agent '{}' --server \
         {server}\n",
        run.agent, run.session, run.agent,
    ));
}

fn tell(args: &Args, summary: &Summary) -> anyhow::Result<ExitCode> {
    if args.json {
        say(&format!("{}\n", summary.json()));
    } else if !args.quiet || summary.exit_code == STOPPED {
        say(&summary.text());
    }
    if let Some(file) = &args.summary {
        let written = std::fs::write(file, format!("{}\n", summary.json()));
        written.with_context(|| format!("cannot write the summary to {}", file.display()))?;
    }
    Ok(ExitCode::from(summary.exit_code))
}

/// Writes to stderr, which may be closed.
fn say(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

fn summary(run: &Run, fate: Fate, begun: Instant) -> Summary {
    Summary {
        agent: run.agent.clone(),
        session: run.session.clone(),
        elapsed: begun.elapsed(),
        used: Used::default(),
        heard: Heard::default(),
        fate,
        exit_code: STOPPED,
        processes: None,
    }
}

fn agent(args: &Args) -> String {
    let named = || {
        let program = Path::new(args.command.first()?).file_name()?.to_string_lossy().into_owned();
        name(&program).ok()
    };
    args.agent.clone().or_else(named).unwrap_or_else(|| "agent".to_owned())
}

/// A name that the gateway will take as one.
pub(crate) fn name(text: &str) -> Result<String, String> {
    let text = text.trim();
    let fine = !text.is_empty() && text.len() <= 100 && !text.chars().any(char::is_control);
    let wrong = "a name has up to 100 bytes and no control characters";
    if fine { Ok(text.to_owned()) } else { Err(wrong.to_owned()) }
}

/// A name that no other run has.
fn session() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("run-{:x}-{:x}", now.as_millis(), std::process::id())
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
