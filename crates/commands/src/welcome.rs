//! `deadstop` without arguments: what runs, where it is installed, and three next steps.

use std::process::ExitCode;
use std::time::Duration;

use deadstop_protocol::hook::Host;
use serde_json::Value;

use crate::install;
use crate::remote::Server;
use crate::ui::{self, Hinted};

/// A server on this machine answers sooner; a first look does not wait for others.
const PATIENCE: Duration = Duration::from_secs(2);

/// What was found at the usual address.
enum Found {
    /// No server answers.
    Nothing,
    /// A server answers, and this is what it says.
    Server(Value),
    /// A server answers, but does not let us look.
    Closed(String),
    /// Another program listens there.
    Foreign,
}

pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let server = Server::usual();
    let url = ui::printable(&server.url());
    let found = look(&server)?;
    let hosts: Vec<&str> =
        Host::ALL.into_iter().filter(|host| install::is_installed(*host)).map(Host::name).collect();
    println!("Deadstop {} stops runaway AI agents.\n", crate::version());
    match &found {
        Found::Nothing if server.is_none() => println!("server     none is wanted"),
        Found::Nothing => println!("server     none runs at {url}"),
        Found::Server(status) => println!("server     {url}: {}", summary(status)),
        Found::Closed(why) => println!("server     {url}: {why}"),
        Found::Foreign => println!("server     none; another program listens at {url}"),
    }
    let installed = if hosts.is_empty() { "none".to_owned() } else { hosts.join(", ") };
    println!("installed  coding agents: {installed}\n\nnext");
    for (command, what) in steps(&found, hosts.is_empty()) {
        println!("  {command:<29} {what}");
    }
    println!("\n`deadstop help` lists all commands.");
    Ok(ExitCode::SUCCESS)
}

fn look(server: &Server) -> anyhow::Result<Found> {
    if server.is_none() {
        return Ok(Found::Nothing);
    }
    let client = server.client()?;
    let asked = ui::runtime()?
        .block_on(async { tokio::time::timeout(PATIENCE, client.get("/api/status")).await });
    Ok(match asked {
        Err(_) => Found::Closed(format!("no answer within {} s", PATIENCE.as_secs())),
        Ok(Ok(status)) => Found::Server(status),
        Ok(Err(error)) if Hinted::is_away(&error) => Found::Nothing,
        Ok(Err(error)) if Hinted::is_foreign(&error) => Found::Foreign,
        Ok(Err(error)) => Found::Closed(ui::printable(&format!("{error:#}"))),
    })
}

/// Agents, sessions and what they cost, in one line.
fn summary(status: &Value) -> String {
    let none = Vec::new();
    let scopes = status["scopes"].as_array().unwrap_or(&none);
    let of = |kind: &str| scopes.iter().filter(|scope| scope["kind"] == kind).count();
    let sessions = of("session");
    if sessions == 0 {
        return "no calls yet".to_owned();
    }
    let stopped = |scope: &&Value| scope["kind"] == "session" && scope["state"] == "killed";
    let stopped = scopes.iter().filter(stopped).count();
    let cost: f64 = scopes
        .iter()
        .filter(|scope| scope["kind"] == "session")
        .filter_map(|scope| scope["cost_usd"].as_f64())
        .sum();
    let agents = counted(of("agent"), "agent");
    let sessions = counted(sessions, "session");
    format!("{agents}, {sessions} ({stopped} stopped), ${cost:.2}")
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Three steps that make sense from here.
fn steps(found: &Found, nowhere: bool) -> [(&'static str, &'static str); 3] {
    let calls = |status: &Value| status["scopes"].as_array().is_some_and(|all| !all.is_empty());
    match found {
        Found::Server(status) if calls(status) => [
            ("deadstop status", "what is running, and what it has cost"),
            ("deadstop incidents --open", "what was stopped, and why"),
            ("deadstop watch", "what happens, live"),
        ],
        Found::Server(_) => [
            ("deadstop run -- your-agent", "put Deadstop around one command"),
            ("deadstop init", "set up Claude Code, Codex and others"),
            ("deadstop watch", "what happens, live"),
        ],
        Found::Closed(_) => [
            ("export DEADSTOP_KEY=…", "show the server your key"),
            ("deadstop doctor", "test what is set up"),
            ("deadstop status", "what is running, and what it has cost"),
        ],
        Found::Foreign => [
            ("deadstop demo", "see runaways stopped, without a key"),
            ("deadstop run -- your-agent", "put Deadstop around one command"),
            ("deadstop serve --listen ADDR", "start the gateway on another port"),
        ],
        Found::Nothing if nowhere => [
            ("deadstop demo", "see runaways stopped, without a key"),
            ("deadstop init", "set up Claude Code, Codex and others"),
            ("deadstop serve", "start the gateway for agents of your own"),
        ],
        Found::Nothing => [
            ("deadstop doctor", "test that blocking works"),
            ("deadstop status --local", "what the coding agents did"),
            ("deadstop serve", "start the gateway and its page"),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_server_is_summed_up_in_a_line() {
        assert_eq!(summary(&json!({ "scopes": [] })), "no calls yet");
        let session = |state: &str| json!({ "kind": "session", "state": state, "cost_usd": 0.25 });
        let status = json!({ "scopes": [{ "kind": "agent", "cost_usd": 9.0 }, session("killed"), session("running")] });
        assert_eq!(summary(&status), "1 agent, 2 sessions (1 stopped), $0.50");
    }

    #[test]
    fn steps_follow_from_what_was_found() {
        let first = |found: &Found, nowhere| steps(found, nowhere)[0].0;
        assert_eq!(first(&Found::Nothing, true), "deadstop demo");
        assert_eq!(first(&Found::Nothing, false), "deadstop doctor");
        assert_eq!(first(&Found::Foreign, false), "deadstop demo");
        assert_eq!(
            first(&Found::Server(json!({ "scopes": [] })), true),
            "deadstop run -- your-agent"
        );
        assert_eq!(first(&Found::Server(json!({ "scopes": [{}] })), true), "deadstop status");
    }
}
