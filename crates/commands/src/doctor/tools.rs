//! The doors of tools over MCP: servers behind the gateway, and servers that a client starts
//! through Deadstop. A killed agent's call must be refused, and must not reach the server.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use deadstop_client::{Client, ClientError, Server};
use deadstop_gate::{Gate, ScopePath, Setup};
use deadstop_protocol::hook::Host;
use deadstop_protocol::mcp;
use serde_json::{Value, json};

use super::doors::{AGENT, LONGEST, order};
use super::{Chart, State, canary};
use crate::install::jsonc::Jsonc;
use crate::install::plan::{Level, mcp_files};
use crate::install::record;

/// What is asked: an id, and a tool that none has.
const ID: u64 = 7;

fn call() -> Value {
    json!({ "jsonrpc": "2.0", "id": ID, "method": mcp::CALL,
        "params": { "name": "deadstop_canary", "arguments": {} } })
}

/// Whether an answer is Deadstop's refusal of a killed agent's call.
fn refuses(answer: &Value) -> bool {
    answer["id"] == ID && answer["error"]["data"]["guard"] == "killed"
}

/// `/mcp/{server}`: an agent that was killed may not call a tool.
pub(super) fn gateway(chart: &mut Chart, client: Option<&Client>) {
    let Some(client) = client else { return };
    // The error for an unknown server lists the known ones.
    let Ok(said) = client.send("POST", "/mcp/", Some(&call())) else { return };
    let names: Vec<&str> = said.body.split("/mcp/").skip(1).map(name).collect();
    for server in names.into_iter().filter(|name| !name.is_empty()) {
        let what = format!("mcp {server} (gateway)");
        match knock(client, server) {
            Ok(answer) if refuses(&answer) => {
                chart.doors += 1;
                chart.add(what, State::Proven, "a stopped agent's tool call is refused");
            }
            Ok(answer) => {
                let said: String = answer.to_string().chars().take(200).collect();
                chart.add(
                    what,
                    State::Wrong,
                    format!("a call that should have been refused was answered: {said}"),
                );
            }
            Err(ClientError::Refused(problem)) if matches!(problem.status, 401 | 403) => {
                let detail = format!("this key may not run the test: {}", problem.detail);
                chart.add(what, State::Unknown, detail);
            }
            Err(error) => chart.add(what, State::Unknown, error.to_string()),
        }
    }
}

fn name(rest: &str) -> &str {
    rest.split([',', ' ', '\n', '"']).next().unwrap_or_default()
}

fn knock(client: &Client, server: &str) -> Result<Value, ClientError> {
    let session = canary();
    let _ = client.open(AGENT, Some(&session), None);
    let _: Value = client.post("/api/kill", &order(&session))?;
    let path = format!("/agent/{AGENT}/session/{session}/mcp/{server}");
    let answer = client.send("POST", &path, Some(&call()));
    answer.map(|answer| serde_json::from_str(&answer.body).unwrap_or(Value::String(answer.body)))
}

/// A server in a client's configuration that is started through us.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wrapped {
    program: String,
    /// Our arguments, up to the server's command.
    args: Vec<String>,
    env: BTreeMap<String, String>,
}

/// Servers that a client starts through `deadstop mcp`.
pub(super) fn wrapped(chart: &mut Chart) {
    for host in Host::ALL {
        for level in [Level::User, Level::Project] {
            for (path, at) in mcp_files(host, level).unwrap_or_default() {
                let Ok(Some(text)) = record::read(&path) else { continue };
                for (server, wrapped) in servers(&path, &text, at) {
                    let what = format!("mcp {server} ({}, {})", host.name(), level.name());
                    match try_it(&wrapped) {
                        Ok(()) => {
                            chart.doors += 1;
                            let detail = "a tool call of a dead session is refused; tried with a \
                                          server of our own behind the same command";
                            chart.add(what, State::Proven, detail);
                        }
                        Err(problem) => chart.add(what, State::Wrong, problem),
                    }
                }
            }
        }
    }
}

/// The servers of a configuration that go through us.
fn servers(path: &Path, text: &str, at: &[&str]) -> Vec<(String, Wrapped)> {
    let found = match path.extension().is_some_and(|ending| ending == "toml") {
        true => toml::from_str::<Value>(text).ok().and_then(|all| all.get(at[0]).cloned()),
        false => Jsonc::read(text).ok().and_then(|doc| doc.get(at)),
    };
    let Some(Value::Object(servers)) = found else { return Vec::new() };
    let read = |(name, server): (String, Value)| {
        let program = server["command"].as_str()?.to_owned();
        let ours = Path::new(&program).file_stem().is_some_and(|stem| stem == "deadstop");
        let args: Vec<String> = serde_json::from_value(server["args"].clone()).ok()?;
        let end = args.iter().position(|arg| arg == "--")?;
        let env = serde_json::from_value(server["env"].clone()).unwrap_or_default();
        let wrapped = Wrapped { program, args: args[..end].to_vec(), env };
        (ours && wrapped.args.first().is_some_and(|arg| arg == "mcp")).then_some((name, wrapped))
    };
    servers.into_iter().filter_map(read).collect()
}

/// Runs the command as the client does, with a server of our own behind it.
fn try_it(wrapped: &Wrapped) -> Result<(), String> {
    let said = |flag: &str| {
        let at = wrapped.args.iter().position(|arg| arg == flag)?;
        wrapped.args.get(at + 1).cloned()
    };
    let variable =
        |name: &str| wrapped.env.get(name).cloned().or_else(|| crate::remote::filled(name));
    let agent = said("--agent").or_else(|| variable("DEADSTOP_AGENT"));
    let place = ScopePath {
        agent: agent.unwrap_or_else(|| "default".to_owned()),
        session: canary(),
        scope: Vec::new(),
    };
    let via = said("--via").or_else(|| variable("DEADSTOP_SERVER"));
    let server = match via {
        Some(url) => Some(Server { url, ..Server::from_env().map_err(|error| error.to_string())? }),
        None => None,
    };
    let gate = Gate::open(Setup { server, ..Setup::default() });
    gate.kill(&place, "doctor", "a canary").map_err(|error| error.to_string())?;
    let answer = ask(wrapped, &place.session);
    gate.forget(&place).map_err(|error| error.to_string())?;
    let answer = answer?;
    if refuses(&answer) {
        return Ok(());
    }
    let said: String = answer.to_string().chars().take(200).collect();
    Err(format!("a call that should have been refused was answered: {said}"))
}

/// Sends something that passes, and a call that must not; gives what the call got.
fn ask(wrapped: &Wrapped, session: &str) -> Result<Value, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let told = |error: std::io::Error| format!("{} cannot be run: {error}", wrapped.program);
    let mut args = wrapped.args.clone();
    if let Some(at) = args.iter().position(|arg| arg == "--session") {
        args.drain(at..(at + 2).min(args.len()));
    }
    let mut child = Command::new(&wrapped.program)
        .args(args)
        .args(["--session", session, "--"])
        .arg(program)
        .args(["demo", "catalogue"])
        .envs(&wrapped.env)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(told)?;
    let answers = exchange(&mut child).map_err(told);
    // Its client is gone: it ends by itself, and is ended if it does not.
    drop(child.stdin.take());
    thread::spawn(move || {
        for _ in 0..100 {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
        let _ = child.kill();
        let _ = child.wait();
    });
    let answers = answers?;
    let passed = |answer: &Value| answer["id"] == 1 && answer.get("result").is_some();
    if !answers.iter().any(passed) {
        return Err("an allowed call did not reach the MCP server".to_owned());
    }
    let got = answers.into_iter().find(|answer| answer["id"] == ID);
    got.ok_or_else(|| format!("a call got no answer within {} s", LONGEST.as_secs()))
}

fn exchange(child: &mut Child) -> std::io::Result<Vec<Value>> {
    let (Some(stdin), Some(stdout)) = (&mut child.stdin, child.stdout.take()) else {
        return Ok(Vec::new());
    };
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let lines = BufReader::new(stdout).lines().map_while(Result::ok);
        for line in lines {
            if tell.send(serde_json::from_str(&line).unwrap_or_default()).is_err() {
                return;
            }
        }
    });
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    stdin.write_all(format!("{ping}\n{}\n", call()).as_bytes())?;
    stdin.flush()?;
    let mut answers: Vec<Value> = Vec::new();
    while answers.len() < 2 {
        match told.recv_timeout(LONGEST) {
            Ok(answer) => answers.push(answer),
            Err(_) => break,
        }
    }
    Ok(answers)
}
