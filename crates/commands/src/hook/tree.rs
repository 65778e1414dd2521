//! Where a sub-agent stands in its session. Hosts name a sub-agent but not the one that started it, so
//! a tool call that starts one is noted, and the sub-agent that begins next stands below its caller.

use std::time::{SystemTime, UNIX_EPOCH};

use deadstop_gate::{Gate, ScopePath};
use deadstop_protocol::hook::{Event, Kind};

/// Seconds within which a sub-agent begins after the call that starts it.
const SOON: u64 = 60;
/// The key under which callers are noted until their sub-agents begin.
const CALLERS: &str = "started a sub-agent";

/// The place of an event: its session, and the path down to its sub-agent.
pub(super) fn place(gate: &Gate, session: ScopePath, event: &Event) -> ScopePath {
    let Some(agent) = event.scope.first() else { return session };
    let above = match &event.kind {
        Kind::Begins { parent } => {
            let noted = caller(gate, &session);
            let above = match parent {
                Some(parent) => [above(gate, &session, parent), vec![parent.clone()]].concat(),
                None => noted,
            };
            // The main agent may be named as a parent: it is the session itself.
            let others = |name: &String| *name != session.session && name != agent;
            let above: Vec<String> = above.into_iter().filter(others).collect();
            if !above.is_empty() {
                gate.remember(&session, &parents_of(agent), &written(&above));
            }
            above
        }
        _ => above(gate, &session, agent),
    };
    let scope = above.into_iter().chain(event.scope.iter().cloned()).collect();
    ScopePath { scope, ..session }
}

/// Notes that a tool call starts a sub-agent.
pub(super) fn announce(gate: &Gate, place: &ScopePath) {
    let session = ScopePath { scope: Vec::new(), ..place.clone() };
    gate.remember(&session, CALLERS, &format!("{} {}", seconds(), written(&place.scope)));
}

/// The path of the oldest caller whose sub-agent has not begun.
fn caller(gate: &Gate, session: &ScopePath) -> Vec<String> {
    while let Some(noted) = gate.recall(session, CALLERS) {
        // The host may have started none, because its user declined.
        if let Some((at, path)) = noted.split_once(' ')
            && at.parse().is_ok_and(|at: u64| seconds().saturating_sub(at) <= SOON)
        {
            return read(path);
        }
    }
    Vec::new()
}

/// The sub-agents above one that has begun.
fn above(gate: &Gate, session: &ScopePath, agent: &str) -> Vec<String> {
    gate.known(session, &parents_of(agent)).map(|path| read(&path)).unwrap_or_default()
}

fn parents_of(agent: &str) -> String {
    format!("above {agent}")
}

fn written(path: &[String]) -> String {
    serde_json::to_string(path).unwrap_or_default()
}

fn read(path: &str) -> Vec<String> {
    serde_json::from_str(path).unwrap_or_default()
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
