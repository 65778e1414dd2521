//! The doors: each is knocked at with a call that must be refused.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use deadstop_client::{Client, ClientError};
use deadstop_protocol::hook::{Host, Moment, Output};
use serde_json::{Value, json};

use super::{Chart, State, canary};
use crate::hook;
use crate::install::jsonc::Jsonc;
use crate::install::login;
use crate::install::plan::{Level, hooks_file, mark, shell, words};
use crate::install::record;

/// The agent under whose name calls are sent that must be refused.
pub(super) const AGENT: &str = "deadstop-doctor";
/// Most that a hook may take.
pub(super) const LONGEST: Duration = Duration::from_secs(30);

/// The gateway: a session that was killed may not call a model. A session and not an agent: its end
/// is final, so nothing has to be cleared afterwards, which takes the operator's token.
pub(super) fn gateway(chart: &mut Chart, client: Option<&Client>) {
    let Some(client) = client else {
        chart.notes.push("no server is running: the gateway was not tested".to_owned());
        return;
    };
    let session = canary();
    let knock = || -> Result<(u16, String), ClientError> {
        let _ = client.open(AGENT, Some(&session), None);
        let _: Value = client.post("/api/kill", &order(&session))?;
        let call = json!({ "model": "canary", "max_tokens": 1,
            "messages": [{ "role": "user", "content": "canary" }] });
        let path = format!("/agent/{AGENT}/session/{session}/anthropic/v1/messages");
        let answer = client.send("POST", &path, Some(&call));
        answer.map(|answer| (answer.status, answer.body))
    };
    match knock() {
        Ok((403, body)) if body.contains("\"deadstop\"") => {
            chart.doors += 1;
            chart.add("gateway", State::Proven, "a stopped session's call is refused");
        }
        Ok((status, _)) => {
            chart.add(
                "gateway",
                State::Wrong,
                format!("a call that should have been refused was answered with {status}"),
            );
        }
        Err(ClientError::Refused(problem)) if matches!(problem.status, 401 | 403) => {
            let detail = format!("this key may not run the test: {}", problem.detail);
            chart.add("gateway", State::Unknown, detail);
        }
        Err(error) => chart.add("gateway", State::Unknown, error.to_string()),
    }
}

/// The order that ends a canary's session.
pub(super) fn order(session: &str) -> Value {
    json!({ "agent": AGENT, "session": session, "reason": "deadstop doctor: a canary" })
}

/// The hooks of every host that has ours.
pub(super) fn hooks(chart: &mut Chart, client: Option<&Client>) {
    for host in Host::ALL {
        for level in [Level::User, Level::Project] {
            let what = format!("hook {} ({})", host.name(), level.name());
            let installed = record::place(host, level).is_ok_and(|place| place.is_file());
            let Ok(path) = hooks_file(host, level) else { continue };
            let text = match record::read(&path) {
                Ok(Some(text)) => text,
                Ok(None) if installed => {
                    chart.add(what, State::Wrong, format!("{} is gone", path.display()));
                    continue;
                }
                Ok(None) => continue,
                Err(error) => {
                    chart.add(what, State::Wrong, format!("{error:#}"));
                    continue;
                }
            };
            if commands(host, &text).is_ok() {
                chart.notes.extend(login::unseen(host));
            }
            match commands(host, &text) {
                Err(problem) if installed => {
                    chart.add(what, State::Wrong, format!("{}: {problem}", path.display()));
                }
                Err(_) => {}
                Ok(commands) => configured(chart, &what, host, &commands, client),
            }
            if let Some(problem) = switched_off(host, &text) {
                let what = format!("hook {} ({})", host.name(), level.name());
                chart.add(what, State::Wrong, problem);
            }
        }
    }
}

/// Our command for each event, as it is configured.
fn commands(host: Host, text: &str) -> Result<Vec<(&'static str, String)>, String> {
    if host == Host::OpenCode {
        let line = text.lines().find_map(|line| line.strip_prefix("const COMMAND = "));
        let words: Option<Vec<String>> = line.and_then(|line| serde_json::from_str(line).ok());
        let command = shell(&words.ok_or("the plugin is not ours")?);
        let events = host.events().iter();
        return Ok(events.map(|(event, _)| (*event, format!("{command} {event}"))).collect());
    }
    let doc = Jsonc::read(text).map_err(|error| error.to_string())?;
    let mark = mark(host);
    let mut found = Vec::new();
    for (event, _) in host.events() {
        let entries = doc.get(&["hooks", event]).unwrap_or_default();
        found.extend(ours(&entries, &mark).map(|command| (*event, command)));
    }
    if found.is_empty() { Err("it has no Deadstop hook".to_owned()) } else { Ok(found) }
}

/// The command of ours in some entries.
fn ours(value: &Value, mark: &str) -> Option<String> {
    match value {
        Value::Array(items) => items.iter().find_map(|item| ours(item, mark)),
        Value::Object(members) => members.iter().find_map(|(key, value)| match value.as_str() {
            Some(command) if key == "command" || key == "bash" => {
                command.replace('\'', "").contains(mark).then(|| command.to_owned())
            }
            _ => ours(value, mark),
        }),
        _ => None,
    }
}

/// Tries the command that is configured.
fn configured(
    chart: &mut Chart,
    what: &str,
    host: Host,
    commands: &[(&'static str, String)],
    client: Option<&Client>,
) {
    let missing: Vec<_> = host.events().iter().map(|(event, _)| *event).collect();
    let missing: Vec<_> = missing
        .into_iter()
        .filter(|event| commands.iter().all(|(configured, _)| configured != event))
        .collect();
    if !missing.is_empty() {
        let detail = format!("no hook for {}: install it again", missing.join(", "));
        chart.add(what, State::Wrong, detail);
        return;
    }
    let before = |event: &str| host.moment(event) == Moment::Before;
    let Some((event, command)) = commands.iter().find(|(event, _)| before(event)) else { return };
    match knock(host, event, command, client) {
        Ok(detail) => {
            chart.doors += 1;
            chart.add(what, State::Proven, detail);
        }
        Err(problem) => chart.add(what, State::Wrong, problem),
    }
    chart.notes.push(match host {
        Host::Codex => {
            "codex runs hooks only once they are trusted, and doctor cannot see whether they are: \
            type /hooks in codex"
                .to_owned()
        }
        _ => format!("doctor cannot see whether {} itself calls its hooks", host.name()),
    });
}

/// Has a dead session ask for a tool, first one that is dead here, then one that is dead there.
fn knock(
    host: Host,
    event: &str,
    command: &str,
    client: Option<&Client>,
) -> Result<String, String> {
    let line = words(command);
    let args = line.get(2..).and_then(hook::plainly);
    let args = args.ok_or_else(|| format!("this is not a Deadstop command: {command}"))?;
    let server = hook::server(&args)?;
    let gate = args.gate(server);
    let place = args.place(&canary());
    gate.kill(&place, "doctor", "a canary").map_err(|error| error.to_string())?;
    let began = Instant::now();
    let output = call(command, &asking(host, event, &place.session));
    let took = began.elapsed().as_millis();
    gate.forget(&place).map_err(|error| error.to_string())?;
    refused(host, event, &output?)?;
    let mut detail = format!("a refused call is blocked, in {took} ms");

    if let Some(client) = client {
        let there = args.place(&canary());
        let order = json!({ "agent": there.agent, "session": there.session,
            "reason": "deadstop doctor: a canary" });
        let killed = client
            .open(&there.agent, Some(&there.session), None)
            .and_then(|_| client.post::<Value>("/api/kill", &order));
        if killed.is_ok() {
            let output = call(command, &asking(host, event, &there.session));
            gate.forget(&there).map_err(|error| error.to_string())?;
            refused(host, event, &output?).map_err(|problem| format!("{problem} (server)"))?;
            detail.push_str(", and so is one that the server refuses");
        } else {
            detail.push_str("; a refusal by the server could not be tested");
        }
    }
    Ok(detail)
}

fn refused(host: Host, event: &str, output: &Output) -> Result<(), String> {
    if host.refuses(event, output) {
        return Ok(());
    }
    let said = format!("{}{}", output.stdout.trim(), output.stderr.trim());
    let said: String = said.chars().take(200).collect();
    Err(format!(
        "a call that should have been refused was not: exit code {}, {said:?}",
        output.code
    ))
}

/// What a host says before a tool runs.
fn asking(host: Host, event: &str, session: &str) -> Value {
    let input = json!({ "command": "true" });
    match host {
        Host::Copilot => {
            json!({ "sessionId": session, "timestamp": 0, "cwd": "/", "toolName": "bash",
            "toolArgs": input.to_string() })
        }
        Host::Cursor => json!({ "conversation_id": session, "hook_event_name": event,
            "tool_name": "Shell", "tool_input": input, "tool_use_id": "canary" }),
        _ => json!({ "session_id": session, "hook_event_name": event, "tool_name": "Bash",
            "tool_input": input, "tool_use_id": "canary" }),
    }
}

/// Runs a command as hosts do.
fn call(command: &str, event: &Value) -> Result<Output, String> {
    let told = |error: std::io::Error| format!("{command} cannot be run: {error}");
    let piped = || Stdio::piped();
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(piped())
        .stdout(piped())
        .stderr(piped())
        .spawn()
        .map_err(told)?;
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(event.to_string().as_bytes());
    }
    let until = Instant::now() + LONGEST;
    while child.try_wait().map_err(told)?.is_none() {
        if Instant::now() > until {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("{command} took longer than {} s", LONGEST.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let done = child.wait_with_output().map_err(told)?;
    Ok(Output {
        stdout: String::from_utf8_lossy(&done.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&done.stderr).into_owned(),
        code: done.status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX),
    })
}

/// Why a host would not call any hook.
fn switched_off(host: Host, text: &str) -> Option<String> {
    let set = |at: &[&str]| Jsonc::read(text).ok()?.get(at);
    match host {
        Host::ClaudeCode | Host::Qwen if set(&["disableAllHooks"]) == Some(json!(true)) => {
            Some("`disableAllHooks` is set".to_owned())
        }
        Host::Gemini if set(&["hooksConfig", "enabled"]) == Some(json!(false)) => {
            Some("`hooksConfig.enabled` is false".to_owned())
        }
        Host::Codex => {
            let config = hooks_file(host, Level::User).ok()?.with_file_name("config.toml");
            let config: toml::Table = toml::from_str(&record::read(&config).ok()??).ok()?;
            let off = config.get("features")?.get("hooks")?.as_bool() == Some(false);
            off.then(|| "`features.hooks` is false in config.toml".to_owned())
        }
        _ => None,
    }
}

/// `deadstop run`: a command that takes longer than it may is ended.
pub(super) fn run(chart: &mut Chart) {
    let Ok(program) = std::env::current_exe() else { return };
    let began = Instant::now();
    let done = Command::new(program)
        .args(["run", "--quiet", "--max-time", "1s", "--policy", "balanced", "--", "sleep", "60"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let took = began.elapsed();
    match done {
        Err(error) => chart.add("run", State::Unknown, error.to_string()),
        Ok(status) if status.success() || took > Duration::from_secs(50) => {
            chart.add("run", State::Wrong, "a command over its time limit was not ended");
        }
        Ok(_) => {
            chart.doors += 1;
            let detail = format!(
                "a command over its time limit was ended after {:.1} s",
                took.as_secs_f64()
            );
            chart.add("run", State::Proven, detail);
        }
    }
}
