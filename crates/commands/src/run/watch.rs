//! Watches the gateway for the end of this run's session, over the same API as everybody else, so
//! that a private gateway and a shared server are watched alike.
//!
//! Events say that something has happened, the status says what is true: events wake us up, and a
//! slow poll sees to it that a lost one does no harm.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use deadstop_core::NanoUsd;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::limits::Limits;
use crate::client::{Client, Events, encoded};
use crate::remote::Server;

/// A server that takes longer to answer is as good as gone.
const PATIENCE: Duration = Duration::from_secs(2);
/// Failed requests in a row before the supervisor is told.
const SILENCE: u32 = 3;

/// Which of the server's scopes are this run's.
#[derive(Debug, Clone)]
pub(super) enum Reach {
    /// All: the gateway is private.
    Everything,
    /// The session of this run's name, and every other one of the agent that was used since the
    /// run began: clients without a way to say the name are put elsewhere by the server, perhaps
    /// where an earlier run was. Holds when each was used last, and what it had used by then.
    Agent { before: HashMap<String, (u64, Used)> },
    /// The session of this run's name alone: an agent's key sees no more.
    Session,
}

/// The eye on the gateway.
#[derive(Clone)]
pub(super) struct Watch {
    pub(super) server: Arc<Server>,
    pub(super) agent: String,
    pub(super) session: String,
    pub(super) reach: Reach,
    pub(super) limits: Limits,
}

/// What the run has used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) model_calls: u64,
    pub(super) tool_calls: u64,
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cost: NanoUsd,
    /// What calls that are still open have set aside.
    pub(super) reserved: NanoUsd,
}

/// One look at the server.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) used: Used,
    /// Why the server has ended the run, if it has.
    pub(super) ended: Option<String>,
    /// Which limit of the command line was passed, if one was.
    pub(super) exceeded: Option<String>,
    /// Whether the server knows the session by our name.
    named: bool,
}

/// What the watch has to tell.
#[derive(Debug)]
pub(super) enum News {
    /// The server has ended the run.
    Ended(String),
    /// The run has passed a limit of the command line.
    Exceeded(String),
    /// A guard let something pass, and said so.
    Warned(String),
    /// A guard refused a call.
    Blocked(String),
    /// The server answers no more.
    Silence,
}

/// With which key a server was asked.
pub(super) enum Begun {
    /// An agent's: the command may have it.
    WithOwnKey,
    /// One that may do more: the command must not have it.
    WithKeyOfRole(String),
    /// None: the server has no keys.
    WithoutKey,
}

impl Watch {
    /// Reports events until the supervisor stops listening.
    pub(super) async fn run(self, news: UnboundedSender<News>) {
        let Ok(client) = self.server.client() else { return };
        let pace = match self.reach {
            Reach::Everything => Duration::from_millis(100),
            Reach::Agent { .. } | Reach::Session => Duration::from_millis(500),
        };
        let mut tick = interval(pace);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut events = None;
        let mut failures = 0;
        while !news.is_closed() {
            tokio::select! {
                event = next(&mut events) => match event {
                    Some(event) => {
                        if !self.hear(&event, &news) {
                            continue;
                        }
                        // The event comes a moment before the order is in force.
                        tick.reset_after(Duration::from_millis(10));
                    }
                    None => events = None,
                },
                _ = tick.tick() => if events.is_none() && self.hears() {
                    let opened = timeout(PATIENCE, client.events("/api/events")).await;
                    events = opened.ok().and_then(Result::ok);
                },
            }
            match self.look_with(&client).await {
                Ok(look) => {
                    failures = 0;
                    let end = look.ended.map(News::Ended);
                    if let Some(end) = end.or(look.exceeded.map(News::Exceeded)) {
                        let _ = news.send(end);
                    }
                }
                Err(_) => {
                    failures += 1;
                    if failures == SILENCE {
                        let _ = news.send(News::Silence);
                    }
                }
            }
        }
    }

    /// Looks once.
    pub(super) async fn look(&self) -> anyhow::Result<Look> {
        self.look_with(&self.server.client()?).await
    }

    /// Whether it may read events; an agent's key may not.
    fn hears(&self) -> bool {
        !matches!(self.reach, Reach::Session)
    }

    fn session_path(&self) -> String {
        format!("/api/sessions/{}/{}", encoded(&self.agent), encoded(&self.session))
    }

    async fn look_with(&self, client: &Client) -> anyhow::Result<Look> {
        let status = match self.reach {
            Reach::Everything => timeout(PATIENCE, client.get("/api/status")).await??,
            Reach::Agent { .. } => timeout(PATIENCE, client.get(&self.status_path())).await??,
            Reach::Session => {
                let session = timeout(PATIENCE, client.get(&self.session_path())).await??;
                let mut row = session["live"].clone();
                // A session is stopped if its agent or project is.
                if let Some(above) = session["stopped_with"].as_str() {
                    row["state"] = json!("killed");
                    row["why"] = json!(format!("the {above} was killed"));
                }
                json!({ "scopes": [row] })
            }
        };
        Ok(self.read(&status))
    }

    /// Ends the session at the server, with a reason. Only under our own name: a session that the
    /// server has named itself may be the next run's as well, and its end would be final.
    pub(super) async fn kill(&self, reason: &str) {
        let Ok(client) = self.server.client() else { return };
        let named = self.look_with(&client).await.is_ok_and(|look| look.named);
        if !named {
            return;
        }
        let order = json!({ "reason": reason, "by": "deadstop run" });
        // A server that has gone lets nothing through anyway.
        let path = format!("{}/kill", self.session_path());
        let _ = timeout(PATIENCE, client.post(&path, &order)).await;
    }

    /// Tells the server that the session is over, so that it does not count as running. Under our own
    /// name only, as for [`Watch::kill`].
    pub(super) async fn finished(&self) {
        let Ok(client) = self.server.client() else { return };
        if self.look_with(&client).await.is_ok_and(|look| look.named && look.ended.is_none()) {
            let over = json!({ "agent": self.agent, "session": self.session, "done": true });
            // If the server is not reached, the session is idle after a while.
            let _ = timeout(PATIENCE, client.post("/api/sessions", &over)).await;
        }
    }

    /// Only what is about this agent: a server may have very many others.
    fn status_path(&self) -> String {
        format!("/api/status?agent={}", encoded(&self.agent))
    }

    /// Remembers what the agent's sessions used before this run, which does not count against it.
    /// Says with which key the server was asked.
    pub(super) async fn begin(&mut self) -> anyhow::Result<Begun> {
        let client = self.server.client()?;
        let who = timeout(PATIENCE, client.get("/api/whoami")).await??;
        if who["role"] == "agent" {
            self.reach = Reach::Session;
            let order = json!({ "agent": self.agent, "session": self.session });
            timeout(PATIENCE, client.post("/api/sessions", &order)).await??;
            return Ok(Begun::WithOwnKey);
        }
        let begun = match who["key"].as_str() {
            Some(_) => Begun::WithKeyOfRole(who["role"].as_str().unwrap_or("unknown").to_owned()),
            None => Begun::WithoutKey,
        };
        let status = timeout(PATIENCE, client.get(&self.status_path())).await??;
        let Reach::Agent { before } = &mut self.reach else { return Ok(begun) };
        for row in rows(&status) {
            if row["kind"] == "session" && row["agent"] == self.agent.as_str() {
                let name = row["name"].as_str().unwrap_or_default().to_owned();
                before.insert(name, (last_used(row), Used::of(row)));
            }
        }
        Ok(begun)
    }

    /// Passes an event on; true if it may be the end.
    fn hear(&self, event: &Value, news: &UnboundedSender<News>) -> bool {
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        let agent = text("agent");
        let ours = match self.reach {
            Reach::Everything => true,
            Reach::Agent { .. } | Reach::Session => agent.is_empty() || agent == self.agent,
        };
        let told = match text("what").as_str() {
            "warn" => News::Warned(text("text")),
            "ask" => {
                let decide = format!("deadstop approvals --server {}", self.server.url());
                News::Warned(format!("{}; decide with: {decide}", text("text")))
            }
            // The outcome of a question is reported by the call that asked.
            "approved" | "denied" | "lapsed" | "withdrawn" | "stopped" | "grant" => return false,
            "block" => News::Blocked(text("text")),
            // An end, lost events, or a kind that is younger than this program.
            _ => return ours,
        };
        if ours {
            let _ = news.send(told);
        }
        false
    }

    fn read(&self, status: &Value) -> Look {
        let mut look = Look::default();
        if killed(&status["project"]) {
            look.ended = Some(format!("everything was killed: {}", why(&status["project"])));
        }
        for row in rows(status) {
            let text = |key: &str| row[key].as_str().unwrap_or_default();
            let (kind, agent, name) = (text("kind"), text("agent"), text("name"));
            let agent_is_ours = match self.reach {
                Reach::Everything => true,
                Reach::Agent { .. } | Reach::Session => agent == self.agent,
            };
            match kind {
                "session" if agent_is_ours => {
                    let Some(used) = self.used(row, name) else { continue };
                    look.used.add(used);
                    look.named |= agent == self.agent && name == self.session;
                    if killed(row) {
                        look.ended.get_or_insert_with(|| why(row));
                    }
                }
                "agent" if agent_is_ours && killed(row) => {
                    let text = format!("the agent {agent} was killed: {}", why(row));
                    look.ended.get_or_insert(text);
                }
                // A sub-agent that was ended is the session's business.
                _ => {}
            }
        }
        look.exceeded = self.limits.exceeded(&look.used);
        look
    }

    /// What this run has used in a session, if the session is this run's.
    fn used(&self, row: &Value, name: &str) -> Option<Used> {
        let used = Used::of(row);
        let before = match &self.reach {
            Reach::Agent { before } => before.get(name),
            Reach::Everything | Reach::Session => None,
        };
        match before {
            None => Some(used),
            Some((last, before)) => (last_used(row) > *last).then(|| used.since(before)),
        }
    }
}

impl Used {
    fn of(row: &Value) -> Used {
        let count = |key: &str| row[key].as_u64().unwrap_or_default();
        let money =
            |key: &str| row[key].as_f64().and_then(NanoUsd::from_dollars).unwrap_or(NanoUsd(0));
        Used {
            model_calls: count("model_calls"),
            tool_calls: count("steps"),
            input: count("input_tokens"),
            output: count("output_tokens"),
            cost: money("cost_usd"),
            reserved: money("reserved_usd"),
        }
    }

    fn add(&mut self, other: Used) {
        self.model_calls += other.model_calls;
        self.tool_calls += other.tool_calls;
        self.input += other.input;
        self.output += other.output;
        self.cost += other.cost;
        self.reserved += other.reserved;
    }

    fn since(self, before: &Used) -> Used {
        Used {
            model_calls: self.model_calls.saturating_sub(before.model_calls),
            tool_calls: self.tool_calls.saturating_sub(before.tool_calls),
            input: self.input.saturating_sub(before.input),
            output: self.output.saturating_sub(before.output),
            cost: self.cost - before.cost,
            reserved: self.reserved,
        }
    }
}

fn rows(status: &Value) -> impl Iterator<Item = &Value> {
    status["scopes"].as_array().into_iter().flatten()
}

fn last_used(row: &Value) -> u64 {
    row["used_ms"].as_u64().unwrap_or_default()
}

fn killed(row: &Value) -> bool {
    row["state"] == "killed"
}

fn why(row: &Value) -> String {
    row["why"].as_str().unwrap_or("no reason given").to_owned()
}

/// The next event; never, where there are none.
async fn next(events: &mut Option<Events>) -> Option<Value> {
    match events {
        Some(events) => events.next().await.ok().flatten(),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        limits: Limits,
    }

    fn look(reach: Reach, limits: &[&str], rows: &[Value]) -> Look {
        let typed = std::iter::once(&"x").chain(limits);
        let watch = Watch {
            server: Arc::new(Server::named("", None, None)),
            agent: "a".into(),
            session: "s".into(),
            reach,
            limits: Typed::parse_from(typed).limits,
        };
        watch.read(&json!({ "project": { "state": "running" }, "scopes": rows }))
    }

    fn row(kind: &str, agent: &str, name: &str, state: &str) -> Value {
        json!({
            "kind": kind, "agent": agent, "name": name, "state": state, "why": "enough",
            "model_calls": 3, "steps": 3, "cost_usd": 0.25, "used_ms": 100,
        })
    }

    /// A server that knows one session from before, with two calls.
    fn agent(last: u64) -> Reach {
        let used = Used { model_calls: 2, ..Used::default() };
        Reach::Agent { before: HashMap::from([("old".to_owned(), (last, used))]) }
    }

    #[test]
    fn only_what_is_ours_ends_us() {
        for (reach, row, ended, calls) in [
            (agent(99), row("session", "a", "s", "running"), None, 3),
            (agent(99), row("session", "a", "s", "killed"), Some("enough"), 3),
            (agent(99), row("session", "a", "new", "killed"), Some("enough"), 3),
            (agent(99), row("session", "a", "old", "killed"), Some("enough"), 1),
            (agent(100), row("session", "a", "old", "killed"), None, 0),
            (agent(99), row("session", "b", "s", "killed"), None, 0),
            (
                agent(99),
                row("agent", "a", "a", "killed"),
                Some("the agent a was killed: enough"),
                0,
            ),
            (agent(99), row("agent", "b", "b", "killed"), None, 0),
            (agent(99), row("nested", "a", "sub", "killed"), None, 0),
            (Reach::Everything, row("session", "b", "t", "killed"), Some("enough"), 3),
        ] {
            let look = look(reach, &[], std::slice::from_ref(&row));
            assert_eq!((look.ended.as_deref(), look.used.model_calls), (ended, calls), "{row}");
        }
    }

    #[test]
    fn limits_are_looked_after() {
        let rows = [row("session", "a", "s", "running")];
        for (limit, expected) in [
            ("--max-steps=3", None),
            ("--max-steps=2", Some("it has made 3 tool calls (limit 2)")),
            ("--max-cost=0.25", Some("it has spent $0.25 of its budget of $0.25")),
            ("--max-cost=0.26", None),
        ] {
            let look = look(Reach::Everything, &[limit], &rows);
            assert_eq!(look.exceeded.as_deref(), expected, "{limit}");
        }
    }
}
