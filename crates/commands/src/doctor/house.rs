//! What stands behind the doors: policy, local states, keys, the server with its port, its store and
//! its clock, cgroups.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use deadstop_client::{Client, ClientError, Key, Patience, Server};
use deadstop_core::FailMode;
use deadstop_gate::{Found, Gate, ScopePath, Setup, state_folder};
use deadstop_process::{Means, Tree};
use serde_json::Value;

use super::{Chart, State, canary};
use crate::config;
use crate::remote::filled;
use crate::serve::through;

/// Seconds that two clocks may differ.
const APART: i64 = 30;

/// The policy that hooks would use without a server.
pub(super) fn policy(chart: &mut Chart) {
    let found = Found::find(None);
    let mode = match found.policies.session.fail_mode {
        FailMode::Open => "open",
        FailMode::Closed => "closed",
    };
    match found.problem {
        Some(problem) => chart.add("policy", State::Wrong, problem),
        None => {
            let detail = format!("{}, fail_mode {mode}", found.source);
            chart.add("policy", State::Proven, detail);
        }
    }
}

/// Local states: can they be written, and is a kill in them honoured?
pub(super) fn states(chart: &mut Chart) {
    let what = "local states";
    let Some(folder) = state_folder() else {
        chart.add(what, State::Wrong, "neither HOME nor XDG_STATE_HOME is set");
        return;
    };
    let place = ScopePath { agent: "doctor".into(), session: canary(), scope: Vec::new() };
    let gate = Gate::open(Setup { alone: true, ..Setup::default() });
    let done = gate.kill(&place, "doctor", "a canary");
    let dead = !gate.standing(&place, None).allowed();
    let forgotten = gate.forget(&place);
    match (done.and(forgotten), dead) {
        (Err(error), _) => chart.add(what, State::Wrong, error.to_string()),
        (Ok(()), false) => chart.add(what, State::Wrong, "a stop was not enforced"),
        (Ok(()), true) => {
            let detail = format!("{}: a stop is stored and enforced", folder.display());
            chart.add(what, State::Proven, detail);
        }
    }
}

/// The key that is shown to a server.
pub(super) fn key(chart: &mut Chart) {
    let Some(file) = filled("DEADSTOP_KEY_FILE") else {
        if filled("DEADSTOP_KEY").is_some() {
            chart.add("key", State::Proven, "from DEADSTOP_KEY");
        }
        return;
    };
    let path = std::path::Path::new(&file);
    let open = std::fs::metadata(path).map(|metadata| metadata.permissions().mode() & 0o077 != 0);
    match (Key::read(path), open) {
        (Err(error), _) => chart.add("key", State::Wrong, error.to_string()),
        (Ok(_), Ok(true)) => {
            chart.add("key", State::Wrong, format!("others can read {file}: chmod 600 it"));
        }
        (Ok(_), _) => chart.add("key", State::Proven, format!("from {file}")),
    }
}

/// The proxies that a server would use which is started here: with this environment and configuration.
pub(super) fn proxies(chart: &mut Chart) {
    let variable = |name: &str| std::env::var(name).ok();
    let policies = deadstop_core::Preset::Balanced.policies();
    let config = config::read(None)
        .and_then(|raw| raw.resolve(policies, variable).map_err(anyhow::Error::from));
    // What is wrong with a configuration is said by `serve`, which knows the keys that it names.
    for line in config.iter().flat_map(|config| through(&config.proxied()).collect::<Vec<_>>()) {
        chart.add("proxy", State::Proven, line);
    }
}

/// The server: its port, its store, its clock, and whether our key is good there.
pub(super) fn server(chart: &mut Chart, named: &crate::remote::Server) -> Option<Client> {
    let url = named.url();
    let known = named.is_typed() || crate::remote::Server::is_usual();
    let server = match Server::from_env() {
        Ok(server) => Server { url: url.clone(), ..server },
        Err(error) => {
            chart.add("server", State::Wrong, error.to_string());
            return None;
        }
    };
    if server.is_none() {
        chart.add("server", State::Proven, "none is wanted: local files decide");
        return None;
    }
    let patience = Patience { connect: Duration::from_secs(2), answer: Duration::from_secs(10) };
    let answer = Client::patient(&server, patience)
        .and_then(|client| Ok((client.send("GET", "/readyz", None)?, client)));
    let (ready, client) = match answer {
        Err(error @ ClientError::NotReached { .. }) if !known => {
            chart.add("server", State::Proven, format!("none runs ({error}): local files decide"));
            return None;
        }
        Err(error) => {
            chart.add("server", State::Wrong, error.to_string());
            return None;
        }
        Ok(answer) => answer,
    };
    let said: Value = serde_json::from_str(&ready.body).unwrap_or_default();
    if said.get("ready").is_none() {
        chart.add("port", State::Wrong, format!("what listens at {url} is not deadstop"));
        return None;
    }
    chart.add("port", State::Proven, format!("{url} answers"));
    match (said["store"].as_str(), said["detail"].as_str()) {
        (Some("failed"), detail) => {
            chart.add("store", State::Wrong, detail.unwrap_or("the database cannot be used"));
        }
        (Some("none"), _) => {
            chart.add("store", State::Unknown, "this server stores nothing (--no-store)");
        }
        _ => chart.add("store", State::Proven, "takes writes"),
    }
    clock(chart, ready.date.as_deref());
    match client.get("/api/agents?limit=1") {
        Ok(_) => chart.add("access", State::Proven, "the server accepts the key or token"),
        Err(error) => chart.add("access", State::Wrong, error.to_string()),
    }
    Some(client)
}

fn clock(chart: &mut Chart, date: Option<&str>) {
    let there = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
    let Some(there) = there else {
        chart.add("clock", State::Unknown, "the server does not report its time");
        return;
    };
    let apart = (there.timestamp().as_second() - jiff::Timestamp::now().as_second()).abs();
    let state = if apart > APART { State::Wrong } else { State::Proven };
    chart.add("clock", state, format!("the server's clock is {apart} s off"));
}

/// By what means a process tree would be ended.
pub(super) fn cgroups(chart: &mut Chart) {
    let tree = Tree::spawn(&mut Command::new("true"));
    let means = tree.as_ref().map(|tree| {
        let _ = tree.wait();
        tree.means()
    });
    let detail = match means {
        Ok(Means::CgroupV2) => "a stop ends a whole process tree at once (cgroup.kill)",
        Ok(Means::Subreaper) => {
            "no writable cgroup: a stop finds the descendants and ends each one"
        }
        Ok(Means::ProcessGroups) => {
            "process groups only: a process that becomes a daemon may escape"
        }
        Err(error) => {
            chart.add("cgroups", State::Unknown, error.to_string());
            return;
        }
    };
    chart.add("cgroups", State::Proven, detail);
}
