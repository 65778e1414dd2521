//! `deadstop hook`: one event of a coding agent in, one answer out, in the host's own words.
//!
//! It runs before every tool call, so it touches neither the argument parser nor a runtime. It never
//! fails: whatever goes wrong is answered in the way that the policy's fail mode says.

mod tree;
mod turn;

use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use deadstop_client::{Key, Patience, Server};
use deadstop_core::{FailMode, Outcome, Verdict};
use deadstop_gate::{Ask, By, Found, Gate, Judgement, ScopePath, Setup, SubAgent, Told};
use deadstop_protocol::facts;
use deadstop_protocol::hook::{Event, Host, Kind, Moment, Output, Reply, ToolUse};

/// Most bytes that an event may have.
const LARGEST: u64 = 32 * 1024 * 1024;
/// How long a server may take.
const ANSWER: Duration = Duration::from_secs(5);
/// Seconds that a person may take by default: less than hosts wait for a hook.
pub(crate) const PATIENCE: u64 = 50;

/// Which host, and whom to ask.
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub(crate) struct Args {
    /// The host: claude-code, codex, gemini, cursor, opencode, copilot or qwen; generic for any other
    #[arg(value_parser = host)]
    host: Host,
    /// The event, for hosts that do not tell it
    event: Option<String>,
    /// The agent's name [default: the host's]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// The server to ask [env: DEADSTOP_SERVER]; without one, local files decide
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// A file with the key to show [env: DEADSTOP_KEY_FILE]; DEADSTOP_KEY may hold it as well
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The project [env: DEADSTOP_PROJECT]
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// A policy file or a preset, for when there is no server [env: DEADSTOP_POLICY]
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Seconds that a person may take to approve a call
    #[arg(long, value_name = "SECONDS", default_value_t = PATIENCE)]
    patience: u64,
}

impl Args {
    /// Where a session's calls are charged.
    pub(crate) fn place(&self, session: &str) -> ScopePath {
        let agent = self.agent.clone().unwrap_or_else(|| self.host.name().to_owned());
        ScopePath { agent, session: session.to_owned(), scope: Vec::new() }
    }

    /// Who decides.
    pub(crate) fn gate(&self, server: Option<Server>) -> Gate {
        Gate::open(Setup {
            server,
            policy: self.policy.clone(),
            patience: Patience { connect: Duration::from_secs(1), answer: ANSWER },
            approval: Duration::from_secs(self.patience),
            ..Setup::default()
        })
    }
}

/// The host of this name.
pub(crate) fn host(name: &str) -> Result<Host, String> {
    Host::named(name).ok_or_else(|| {
        let hosts = Host::ALL.into_iter().chain([Host::Generic]);
        let names: Vec<_> = hosts.map(Host::name).collect();
        format!("the hosts are {}", names.join(", "))
    })
}

/// Runs the hook without the argument parser, which saves time. Unusual arguments are left to the
/// parser.
pub(crate) fn at_once() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1).map(|argument| argument.into_string().ok());
    if arguments.next()??.as_str() != "hook" {
        return None;
    }
    let arguments: Option<Vec<String>> = arguments.collect();
    plainly(&arguments?).map(|args| run(&args))
}

pub(crate) fn plainly(arguments: &[String]) -> Option<Args> {
    let mut args = Args {
        host: Host::named(arguments.first()?)?,
        event: None,
        agent: None,
        server: None,
        key_file: None,
        project: None,
        policy: None,
        patience: PATIENCE,
    };
    let mut rest = arguments.iter().skip(1);
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--agent" => args.agent = Some(rest.next()?.clone()),
            "--server" => args.server = Some(rest.next()?.clone()),
            "--key-file" => args.key_file = Some(rest.next()?.into()),
            "--project" => args.project = Some(rest.next()?.clone()),
            "--policy" => args.policy = Some(rest.next()?.clone()),
            "--patience" => args.patience = rest.next()?.parse().ok()?,
            event if !event.starts_with('-') && args.event.is_none() => {
                args.event = Some(event.to_owned());
            }
            _ => return None,
        }
    }
    Some(args)
}

/// Answers one event.
pub(crate) fn run(args: &Args) -> ExitCode {
    let (output, notice) = answer(args, std::io::stdin().lock());
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(output.stderr.as_bytes());
    if let Some(notice) = notice {
        let _ = writeln!(stderr, "deadstop: {notice}");
    }
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(output.stdout.as_bytes()).and_then(|()| stdout.flush());
    ExitCode::from(output.code)
}

/// The answer to an event, and what went wrong on the way.
fn answer(args: &Args, input: impl Read) -> (Output, Option<String>) {
    // Silences the panic message: the host reads only our answer.
    std::panic::set_hook(Box::new(|_| {}));
    let work = AssertUnwindSafe(|| judge(args, input));
    catch_unwind(work).unwrap_or_else(|_| {
        let policy = AssertUnwindSafe(|| Found::find(args.policy.as_deref()));
        let mode = catch_unwind(policy).map(|found| found.policies.session.fail_mode);
        failed(args, None, mode.unwrap_or_default(), "deadstop failed: please report this")
    })
}

fn judge(args: &Args, input: impl Read) -> (Output, Option<String>) {
    let server = match server(args) {
        Ok(server) => server,
        Err(problem) => {
            let mode = Found::find(args.policy.as_deref()).policies.session.fail_mode;
            return failed(args, None, mode, &problem);
        }
    };
    let gate = args.gate(server);
    let (event, cwd) = match read(args, input) {
        Ok(read) => read,
        Err((event, problem)) => {
            return failed(args, event.as_deref(), gate.fail_mode(), &problem);
        }
    };
    let place = tree::place(&gate, args.place(&event.session), &event);
    let answer = ask(args, &gate, &event, &place, cwd);
    let reply = reply(args, &gate, &event, &answer);
    turn::end(args.host, &gate, &place, &event, &reply);
    (args.host.answer(&event.name, &reply), answer.notice)
}

/// The server that was named, if one was.
pub(crate) fn server(args: &Args) -> Result<Option<Server>, String> {
    if args.server.is_none() && args.key_file.is_none() && args.project.is_none() {
        return Ok(None);
    }
    let mut server = Server::from_env().map_err(|error| error.to_string())?;
    if let Some(file) = &args.key_file {
        server.key = Some(Key::read(file).map_err(|error| error.to_string())?);
    }
    server.url = args.server.clone().unwrap_or(server.url);
    server.project = args.project.clone().or(server.project);
    Ok(Some(server))
}

/// The event on stdin; what is wrong with it, and what it is called if that can be told.
fn read(
    args: &Args,
    input: impl Read,
) -> Result<(Event, Option<PathBuf>), (Option<String>, String)> {
    let mut bytes = Vec::new();
    let told = args.event.clone();
    if let Err(error) = input.take(LARGEST + 1).read_to_end(&mut bytes) {
        return Err((told, format!("the hook's input cannot be read: {error}")));
    }
    if bytes.len() as u64 > LARGEST {
        return Err((told, "the hook's input is too large".to_owned()));
    }
    let event = args.host.read(&bytes, args.event.as_deref()).map_err(|error| {
        let said: Option<serde_json::Value> = serde_json::from_slice(&bytes).ok();
        let said = said.and_then(|said| said["hook_event_name"].as_str().map(str::to_owned));
        (said.or(told), error.to_string())
    })?;
    Ok((event, working_directory(&bytes)))
}

/// The directory that the agent works in: what the host says, or else where the hook runs.
fn working_directory(bytes: &[u8]) -> Option<PathBuf> {
    #[derive(serde::Deserialize)]
    struct Said {
        #[serde(default)]
        cwd: Option<String>,
    }
    let said = serde_json::from_slice::<Said>(bytes).ok().and_then(|said| said.cwd);
    let said = said.map(PathBuf::from).filter(|cwd| cwd.is_absolute() && cwd.is_dir());
    said.or_else(|| std::env::current_dir().ok())
}

fn ask(
    args: &Args,
    gate: &Gate,
    event: &Event,
    place: &ScopePath,
    cwd: Option<PathBuf>,
) -> Judgement {
    match &event.kind {
        Kind::Before(tool) => {
            let id = tool.id.as_deref().map_or_else(made_up, short);
            let answer = gate.ask(&Ask {
                place: place.clone(),
                id: id.clone(),
                tool: short(&tool.name),
                server: tool.server.as_deref().map(short),
                arguments: tool.arguments.clone(),
                cwd,
                spawns: tool.spawns,
                trace: None,
            });
            if tool.id.is_none() && answer.allowed() {
                gate.remember(place, &what(tool), &id);
            }
            if tool.spawns && answer.allowed() && args.host.tells_sub_agents() {
                tree::announce(gate, place);
            }
            // Hosts add to a model's context behind a tool's result, so the advice waits for it.
            if let Some(advice) = answer.advice().filter(|_| answer.verdict == Verdict::Steer) {
                gate.remember(place, &advice_for(&id), &advice);
            }
            answer
        }
        Kind::After { tool, status, text } => {
            let id = match &tool.id {
                Some(id) => Some(short(id)),
                None => gate.recall(place, &what(tool)),
            };
            match id {
                Some(id) => {
                    let result = Some(facts::result(text));
                    let outcome = Outcome { status: *status, result, ..Outcome::default() };
                    let told = Told { outcome: &outcome, text, trace: None };
                    let answer = gate.settle_soon(place, &id, told);
                    match gate.recall(place, &advice_for(&id)) {
                        Some(advice) => answer.steered(&advice),
                        None => answer,
                    }
                }
                None => gate.standing(place, None),
            }
        }
        Kind::Prompt(words) => gate.standing(place, Some(words)),
        Kind::Compacted => gate.compacted(place),
        Kind::Begins { .. } if !place.scope.is_empty() => gate.sub_agent(place, SubAgent::Begins),
        Kind::Ended => gate.sub_agent(place, SubAgent::Ended),
        Kind::Over => gate.over(place),
        Kind::Begins { .. } | Kind::Standing | Kind::Other => gate.standing(place, None),
    }
}

/// The key under which the advice for a call is kept until the call has ended.
fn advice_for(id: &str) -> String {
    format!("advice for {id}")
}

/// The reply to the host for the gate's answer.
fn reply(args: &Args, gate: &Gate, event: &Event, answer: &Judgement) -> Reply {
    // There is nothing left to refuse.
    if event.kind == Kind::Over {
        return Reply::Pass;
    }
    let why = answer.why();
    match answer.verdict {
        Verdict::Allow => Reply::Pass,
        Verdict::Warn => Reply::Warn(why),
        Verdict::Steer => match answer.advice() {
            Some(advice) => Reply::Steer(advice),
            None => Reply::Warn(why),
        },
        // Without a server the host asks its own user. With one, no approver answered in time.
        Verdict::Ask if answer.by == By::Local => Reply::Ask(why),
        Verdict::Kill => {
            // A sub-agent may die alone; its session goes on.
            let alone = !event.scope.is_empty()
                && gate.standing(&args.place(&event.session), None).verdict != Verdict::Kill;
            match alone {
                true => Reply::Refuse(why.replacen("stopped:", "stopped this sub-agent:", 1)),
                false => Reply::End(why),
            }
        }
        Verdict::Ask | Verdict::Block => match answer.advice() {
            Some(advice) => Reply::Refuse(format!("{why}. {advice}")),
            None => Reply::Refuse(why),
        },
    }
}

/// The answer to an event that could not be judged, by the policy's fail mode.
fn failed(
    args: &Args,
    event: Option<&str>,
    mode: FailMode,
    problem: &str,
) -> (Output, Option<String>) {
    // An unknown event is treated as the one before a tool call, which can be refused.
    let before = args.host.events().iter().find(|(_, moment)| *moment == Moment::Before);
    let usual = before.map_or("", |(name, _)| *name);
    let event = event.unwrap_or(usual);
    let reply = match mode {
        FailMode::Open => Reply::Pass,
        FailMode::Closed => {
            Reply::Refuse(format!("blocked: {problem}, and the policy's fail_mode says closed"))
        }
    };
    (args.host.answer(event, &reply), Some(problem.to_owned()))
}

/// Identifies a tool call without an id: its name and arguments, known before and after it.
fn what(tool: &ToolUse) -> String {
    format!("{} {}", tool.name, tool.arguments)
}

/// A name that is not longer than names may be.
fn short(name: &str) -> String {
    if name.len() <= 200 {
        return name.to_owned();
    }
    let digest = deadstop_core::Digest::of(name.as_bytes());
    format!("{}…{:016x}", &name[..name.floor_char_boundary(160)], digest.0)
}

/// An id for a call that has none.
fn made_up() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("hook-{}-{}", std::process::id(), now.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Option<Args> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        plainly(&words)
    }

    #[test]
    fn plain_arguments_are_read_as_the_parser_reads_them() {
        #[derive(Debug, clap::Parser)]
        struct Parsed {
            #[command(flatten)]
            args: Args,
        }
        for line in [
            "codex",
            "copilot preToolUse",
            "claude-code PreToolUse --server http://h:1 --key-file k --project p",
            "gemini --policy strict --agent me BeforeTool --patience 9",
            "vim",
            "codex --surprise",
            "codex one two",
            "codex --server",
            "codex --patience soon",
            "",
        ] {
            let words = std::iter::once("hook").chain(line.split_whitespace());
            let parsed = <Parsed as clap::Parser>::try_parse_from(words).ok();
            assert_eq!(args(line), parsed.map(|parsed| parsed.args), "{line}");
        }
    }

    struct Broken;

    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            panic!("a fault of ours");
        }
    }

    #[test]
    fn a_fault_of_ours_is_answered_as_the_policy_says() {
        let folder = tempfile::tempdir().unwrap();
        let policy = folder.path().join("policy.toml");
        for (mode, refused) in [("open", false), ("closed", true)] {
            std::fs::write(&policy, format!("fail_mode = \"{mode}\"\n")).unwrap();
            for host in Host::ALL {
                let args = Args {
                    policy: Some(policy.display().to_string()),
                    ..args(host.name()).unwrap()
                };
                let (output, notice) = answer(&args, Broken);
                let event = host.events()[0].0;
                assert_eq!(host.refuses(event, &output), refused, "{host:?} {mode} {output:?}");
                assert!(notice.is_some());
            }
        }
    }
}
