//! Watches the gateway for the end of this run's session, over the same API as everybody else, so
//! that a private gateway and a shared server are watched alike.
//!
//! Events say that something has happened, the status says what is true: events wake us up, and a
//! slow poll sees to it that a lost one does no harm.

use std::time::Duration;

use deadstop_core::NanoUsd;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::limits::Limits;
use crate::client::{Client, Events};

/// A server that takes longer to answer is as good as gone.
const PATIENCE: Duration = Duration::from_secs(2);
/// Failed looks in a row before somebody is told.
const SILENCE: u32 = 3;

/// Which of the server's scopes are this run's.
#[derive(Debug, Clone)]
pub(super) enum Reach {
    /// All: the gateway is private.
    Everything,
    /// The agent's session of this name, and those that clients without a way to say its name have
    /// opened under the agent since this time, in milliseconds.
    Agent { since: u64 },
}

/// The eye on the gateway.
#[derive(Clone)]
pub(super) struct Watch {
    pub(super) server: String,
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
    /// Why the run has to end, if it has.
    pub(super) ended: Option<String>,
    /// Agent and name of each session of this run.
    sessions: Vec<(String, String)>,
}

/// What the watch has to tell.
#[derive(Debug)]
pub(super) enum News {
    /// The run has to end.
    Ended(String),
    /// A guard let something pass, and said so.
    Warned(String),
    /// A guard refused a call.
    Blocked(String),
    /// The sentence that goes with an end.
    Stopped(String),
    /// Nobody answers any more.
    Silence,
}

impl Watch {
    /// Tells what happens until nobody listens.
    pub(super) async fn run(self, news: UnboundedSender<News>) {
        let Ok(client) = Client::new(&self.server) else { return };
        let pace = match self.reach {
            Reach::Everything => Duration::from_millis(100),
            Reach::Agent { .. } => Duration::from_millis(500),
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
                        // An order is told of in the moment before it is in force.
                        tick.reset_after(Duration::from_millis(10));
                    }
                    None => events = None,
                },
                _ = tick.tick() => if events.is_none() {
                    let opened = timeout(PATIENCE, client.events("/api/events")).await;
                    events = opened.ok().and_then(Result::ok);
                },
            }
            match self.look_with(&client).await {
                Ok(look) => {
                    failures = 0;
                    if let Some(why) = look.ended {
                        let _ = news.send(News::Ended(why));
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
        self.look_with(&Client::new(&self.server)?).await
    }

    async fn look_with(&self, client: &Client) -> anyhow::Result<Look> {
        let status = timeout(PATIENCE, client.get("/api/status")).await??;
        Ok(self.read(&status))
    }

    /// Ends every session of the run at the server, with a reason.
    pub(super) async fn kill(&self, reason: &str) {
        let Ok(client) = Client::new(&self.server) else { return };
        let mut sessions =
            self.look_with(&client).await.map(|look| look.sessions).unwrap_or_default();
        let ours = (self.agent.clone(), self.session.clone());
        if !sessions.contains(&ours) {
            sessions.push(ours);
        }
        for (agent, session) in sessions {
            let order = json!({
                "agent": agent, "session": session, "reason": reason, "by": "deadstop run",
            });
            // A server that has gone lets nothing through anyway.
            let _ = timeout(PATIENCE, client.post("/api/kill", &order)).await;
        }
    }

    /// Passes an event on; true if it may be the end.
    fn hear(&self, event: &Value, news: &UnboundedSender<News>) -> bool {
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        let (agent, session) = (text("agent"), text("session"));
        let ours = match self.reach {
            Reach::Everything => true,
            Reach::Agent { .. } => agent.is_empty() || agent == self.agent,
        };
        if !ours {
            return false;
        }
        let precisely = matches!(self.reach, Reach::Everything) || session == self.session;
        let told = match text("what").as_str() {
            "warn" => News::Warned(text("text")),
            "block" => News::Blocked(text("text")),
            "stop" => News::Stopped(text("text")),
            "kill" | "killed" => return true,
            // Events were lost, or a kind that came later than this program.
            _ => return true,
        };
        let may_be_the_end = matches!(told, News::Stopped(_));
        if precisely {
            let _ = news.send(told);
        }
        may_be_the_end
    }

    fn read(&self, status: &Value) -> Look {
        let mut look = Look::default();
        if killed(&status["project"]) {
            look.ended = Some(format!("everything was killed: {}", why(&status["project"])));
        }
        for row in status["scopes"].as_array().into_iter().flatten() {
            let text = |key: &str| row[key].as_str().unwrap_or_default();
            let (agent, name) = (text("agent"), text("name"));
            let ours = match self.reach {
                Reach::Everything => true,
                Reach::Agent { since } => {
                    agent == self.agent
                        && (text("kind") == "agent"
                            || name == self.session
                            || row["opened_ms"].as_u64().unwrap_or_default() >= since)
                }
            };
            match text("kind") {
                "session" if ours => {
                    look.add(row);
                    look.sessions.push((agent.to_owned(), name.to_owned()));
                    if killed(row) {
                        look.ended.get_or_insert_with(|| why(row));
                    }
                }
                "agent" if ours && killed(row) => {
                    let text = format!("the agent {agent} was killed: {}", why(row));
                    look.ended.get_or_insert(text);
                }
                // A sub-agent that was ended is the session's business.
                _ => {}
            }
        }
        if look.ended.is_none() {
            look.ended = self.limits.exceeded(&look.used);
        }
        look
    }
}

impl Look {
    fn add(&mut self, row: &Value) {
        let count = |key: &str| row[key].as_u64().unwrap_or_default();
        let money =
            |key: &str| row[key].as_f64().and_then(NanoUsd::from_dollars).unwrap_or(NanoUsd(0));
        self.used.model_calls += count("model_calls");
        self.used.tool_calls += count("steps");
        self.used.input += count("input_tokens");
        self.used.output += count("output_tokens");
        self.used.cost += money("cost_usd");
        self.used.reserved += money("reserved_usd");
    }
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

    fn check(reach: Reach, limits: &[&str], rows: &[Value], ended: Option<&str>, calls: u64) {
        let typed = std::iter::once(&"x").chain(limits);
        let watch = Watch {
            server: String::new(),
            agent: "a".into(),
            session: "s".into(),
            reach,
            limits: Typed::parse_from(typed).limits,
        };
        let look = watch.read(&json!({ "project": { "state": "running" }, "scopes": rows }));
        assert_eq!(look.ended.as_deref(), ended, "{rows:?}");
        assert_eq!(look.used.model_calls, calls, "{rows:?}");
    }

    fn row(kind: &str, agent: &str, name: &str, state: &str) -> Value {
        json!({
            "kind": kind, "agent": agent, "name": name, "state": state, "why": "enough",
            "model_calls": 1, "steps": 3, "cost_usd": 0.25, "opened_ms": 100,
        })
    }

    #[test]
    fn only_what_is_ours_ends_us() {
        let new = Reach::Agent { since: 100 };
        let old = Reach::Agent { since: 101 };
        for (reach, row, ended, calls) in [
            (new.clone(), row("session", "a", "s", "running"), None, 1),
            (new.clone(), row("session", "a", "s", "killed"), Some("enough"), 1),
            (old.clone(), row("session", "a", "s", "killed"), Some("enough"), 1),
            (new.clone(), row("session", "a", "other", "killed"), Some("enough"), 1),
            (old.clone(), row("session", "a", "other", "killed"), None, 0),
            (new.clone(), row("session", "b", "s", "killed"), None, 0),
            (old, row("agent", "a", "a", "killed"), Some("the agent a was killed: enough"), 0),
            (new.clone(), row("agent", "b", "b", "killed"), None, 0),
            (new, row("nested", "a", "sub", "killed"), None, 0),
            (Reach::Everything, row("session", "b", "t", "killed"), Some("enough"), 1),
        ] {
            check(reach, &[], &[row], ended, calls);
        }
    }

    #[test]
    fn limits_are_looked_after() {
        let rows = [row("session", "a", "s", "running")];
        let all = || Reach::Everything;
        check(all(), &["--max-steps=3"], &rows, None, 1);
        check(all(), &["--max-steps=2"], &rows, Some("it has made 3 tool calls (limit 2)"), 1);
        let spent = "it has spent $0.25 of its budget of $0.25";
        check(all(), &["--max-cost=0.25"], &rows, Some(spent), 1);
        check(all(), &["--max-cost=0.26"], &rows, None, 1);
    }
}
