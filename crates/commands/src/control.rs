//! `deadstop stop`, `pause`, `resume`, `status` and `watch`: an operator's commands to a server that
//! runs, or about local files where none does. The API's own words (kill, clear, reset) stay in the
//! API; people read `stop` and `resume`.

mod here;
mod known;

pub(crate) use here::gate as gate_here;

use std::io::Write;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use deadstop_core::GuardId;
use serde_json::{Value, json};

use crate::client::Client;
use crate::remote::{self, Server};
use crate::table::Table;
use crate::ui::{self, Hinted};
use crate::{quota, short, when};

/// An order about a scope.
#[derive(Debug, clap::Args)]
pub(crate) struct Order {
    /// A session: its name, or AGENT/SESSION as lists show it; the beginning is enough
    #[arg(value_name = "SESSION", required_unless_present_any = ["agent", "all", "named"])]
    session: Option<String>,
    /// The same, spelled as in the other commands
    #[arg(long = "session", value_name = "NAME", hide = true, conflicts_with = "session")]
    named: Option<String>,
    /// An agent; the beginning of its name is enough
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Everything
    #[arg(long, conflicts_with_all = ["session", "named", "agent"])]
    all: bool,
    /// Why; people will read it
    #[arg(long, default_value = "", value_name = "TEXT")]
    reason: String,
    /// Give the order in advance, about an agent or a session that has made no call yet
    #[arg(long)]
    new: bool,
    /// In local files, where coding agents' hooks are judged without a server
    #[arg(long, conflicts_with = "server")]
    local: bool,
    #[command(flatten)]
    server: Server,
}

impl Order {
    /// The session that it is about, if it is about one.
    fn session(&self) -> Option<&str> {
        self.session.as_deref().or(self.named.as_deref())
    }
}

/// What is shown.
#[derive(Debug, clap::Args)]
pub(crate) struct Status {
    /// What local files know, where coding agents' hooks are judged without a server
    #[arg(long, conflicts_with = "server")]
    local: bool,
    #[command(flatten)]
    server: Server,
}

/// What is followed.
#[derive(Debug, clap::Args)]
pub(crate) struct Watch {
    /// Only this agent
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Only this session: its name, or AGENT/SESSION
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Only what this guard did, such as loop or budget
    #[arg(long, value_name = "NAME", value_parser = guard_names())]
    guard: Option<String>,
    #[command(flatten)]
    server: Server,
}

/// The names of the guards.
pub(crate) fn guard_names() -> PossibleValuesParser {
    PossibleValuesParser::new(GuardId::ALL.map(GuardId::name))
}

impl Watch {
    /// Whether an event passes the filters.
    fn wants(&self, event: &Value) -> bool {
        let text = |key: &str| event[key].as_str().unwrap_or_default();
        let is_session = |wanted: &String| {
            text("session") == wanted
                || wanted.split_once('/') == Some((text("agent"), text("session")))
        };
        self.agent.as_ref().is_none_or(|agent| text("agent") == agent)
            && self.session.as_ref().is_none_or(is_session)
            && self.guard.as_ref().is_none_or(|guard| text("guard") == guard)
    }
}

/// Carries an order out: `kill`, `clear`, `reset`, `pause` or `resume`.
pub(crate) fn order(what: &str, order: &Order) -> anyhow::Result<ExitCode> {
    if order.local || order.server.is_none() {
        return here::order(what, order);
    }
    let mut body = json!({ "reason": order.reason, "by": remote::operator() });
    if order.all {
        body["all"] = json!(true);
    }
    if order.new {
        body["new"] = json!(true);
    }
    let client = order.server.client()?;
    let carried = ui::runtime()?.block_on(send(&client, what, order, body));
    let answer = match carried {
        // No server was named and none runs: then hooks judge coding agents by local files.
        Err(error) if Hinted::is_away(&error) && here::judges(order) => {
            eprintln!("no server runs at {}: done in local files", order.server.url());
            return here::order(what, order);
        }
        other => other?,
    };
    if order.server.json {
        println!("{answer}");
        return Ok(ExitCode::SUCCESS);
    }
    let scope = &answer["scope"];
    let text = |key: &str| scope[key].as_str().unwrap_or_default();
    let (done, kind, name) = (answer["done"].as_str().unwrap_or(what), text("kind"), text("name"));
    println!("{}", carried_out(done, kind, name));
    if let Some(key) = answer["key"]["key"].as_str() {
        eprintln!("its old keys no longer work; this is its new key, shown this once:");
        println!("{key}");
    }
    Ok(ExitCode::SUCCESS)
}

/// What was done, in the words of people.
fn carried_out(done: &str, kind: &str, name: &str) -> String {
    let whole = if kind == "project" { "everything".to_owned() } else { format!("{kind} {name}") };
    match done {
        "killed" => format!("stopped: {whole}"),
        "cleared" => format!("resumed: {whole}"),
        "reset" => format!("resumed with empty counters: {whole}"),
        done => format!("{done}: {whole}"),
    }
}

/// Carries out an order as a server takes it. `resume` is for what was paused; for what was stopped
/// the server has other words.
async fn post(client: &Client, what: &str, body: &Value) -> anyhow::Result<Value> {
    match client.post(&format!("/api/{what}"), body).await {
        Err(error) if what == "resume" && Hinted::is_stopped(&error) => {
            let what = if body["session"].is_string() { "reset" } else { "clear" };
            client.post(&format!("/api/{what}"), body).await
        }
        carried => carried,
    }
}

/// Sends an order. A session that is named without its agent, and is not in use under that very
/// name, is looked for in the list.
async fn send(
    client: &Client,
    what: &str,
    order: &Order,
    mut body: Value,
) -> anyhow::Result<Value> {
    let (agent, session) = known::meant(client, order).await?;
    let mut about = |(agent, session): known::Whom| {
        for (name, value) in [("agent", agent), ("session", session)] {
            if let Some(value) = value {
                body[name] = json!(value);
            }
        }
        body.clone()
    };
    let alone = session.clone().filter(|_| agent.is_none());
    let carried = post(client, what, &about((agent, session))).await;
    match (carried, alone) {
        (Err(error), Some(typed)) if Hinted::is_missing(&error) => {
            let Some((agent, session)) = short::session(client, &typed).await? else {
                let meant = known::instead(client, what, &typed).await;
                return Err(meant.unwrap_or(error));
            };
            post(client, what, &about((Some(agent), Some(session)))).await
        }
        (carried, _) => carried,
    }
}

/// Shows who runs, the nearest to a limit first.
pub(crate) fn status(args: &Status) -> anyhow::Result<ExitCode> {
    let server = &args.server;
    if args.local || server.is_none() {
        return here::status(server);
    }
    let client = server.client()?;
    let runtime = ui::runtime()?;
    let answer = runtime.block_on(client.get("/api/status?order=danger"))?;
    if server.json {
        println!("{answer}");
        return Ok(ExitCode::SUCCESS);
    }
    for part in [&answer["database"], &answer["cluster"]["degraded"]] {
        if let Some(what) = part["what"].as_str() {
            let since = when::local(&part["since_ms"]);
            println!("the server has been running degraded since {since}: {what}\n");
        }
    }
    if let Some(undelivered) = runtime.block_on(undelivered(&client)) {
        println!("{undelivered}\n");
    }
    let project = &answer["project"];
    if let ("killed" | "paused", Some(why)) =
        (project["state"].as_str().unwrap_or_default(), project["why"].as_str())
    {
        println!("everything is {}: {why}\n", ui::state(&project["state"]));
    }
    if let Some(until) = answer["key_grace"]["until_ms"].as_u64() {
        let agents = ui::text(&answer["key_grace"]["agents"]);
        let agents = if agents.is_empty() { "none so far".to_owned() } else { agents };
        let until = when::local(&until.into());
        println!("keys are required; agents that call without one until {until}: {agents}\n");
    }
    let none = Vec::new();
    let mut scopes: Vec<&Value> = answer["scopes"].as_array().unwrap_or(&none).iter().collect();
    // What was stopped can do no harm: it stands below what runs.
    scopes.sort_by_key(|scope| matches!(&*ui::standing(scope), "stopped" | "finished"));
    if scopes.is_empty() {
        println!("no calls yet");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new([
        "kind",
        "scope",
        "state",
        "cost",
        "in flight",
        "nearest limit",
        "model calls",
        "tool calls",
        "why",
    ])
    .right([3, 4, 6, 7])
    .names([1]);
    let mut quotas = Vec::new();
    for scope in scopes {
        let told = quota::all(scope).into_iter();
        quotas.extend(told.map(|line| format!("quota of {}: {line}", ui::text(&scope["name"]))));
        table.row([
            ui::text(&scope["kind"]),
            named(scope),
            ui::standing(scope),
            ui::dollars(&scope["cost_usd"]),
            ui::text(&scope["in_flight"]),
            nearest_limit(scope),
            ui::text(&scope["model_calls"]),
            ui::text(&scope["steps"]),
            ui::why(scope),
        ]);
    }
    println!("{table}");
    if answer["next"].is_string() {
        eprintln!("showing those nearest to a limit; `deadstop sessions` lists all");
    }
    for line in quotas {
        println!("{}", ui::printable(&line));
    }
    Ok(ExitCode::SUCCESS)
}

/// A scope as orders take it: AGENT, or AGENT/SESSION.
fn named(scope: &Value) -> String {
    let (agent, name) = (ui::text(&scope["agent"]), ui::text(&scope["name"]));
    if scope["kind"] == "agent" { name } else { format!("{agent}/{name}") }
}

/// The limit that a scope is nearest to: `84% of cost`.
fn nearest_limit(scope: &Value) -> String {
    let nearest = &scope["limits"][0];
    let what = ui::text(&nearest["what"]).replace('_', " ");
    match nearest["share"].as_f64() {
        Some(share) if share > 0.0 => format!("{:.0}% of {what}", share * 100.0),
        _ => String::new(),
    }
}

const DAY_MS: u64 = 86_400_000;

/// How many alerts of the last day could not be delivered; nothing where that may not be read.
async fn undelivered(client: &Client) -> Option<String> {
    let from = when::now().saturating_sub(DAY_MS);
    let path = format!("/api/alerts/deliveries?state=failed&limit=100&from={from}");
    let failed = client.get(&path).await.ok()?;
    let many = failed["items"].as_array().map_or(0, Vec::len);
    let many = match (many, failed["next"].is_string()) {
        (0, _) => return None,
        (1, false) => "1 alert".to_owned(),
        (many, false) => format!("{many} alerts"),
        (many, true) => format!("more than {many} alerts"),
    };
    let advice = "`deadstop alerts log --state failed` says why";
    Some(format!("{many} of the last day could not be delivered;\n{advice}"))
}

/// Prints events until the user presses Ctrl-C.
pub(crate) fn watch(args: &Watch) -> anyhow::Result<ExitCode> {
    let server = &args.server;
    let client = server.client()?;
    ui::runtime()?.block_on(async {
        let mut events = client.events("/api/events").await?;
        let mut interrupted = std::pin::pin!(ui::interrupted());
        eprintln!("watching {} (Ctrl-C ends)", server.url());
        loop {
            let event = tokio::select! {
                event = events.next() => event?,
                () = &mut interrupted => return Ok(ExitCode::SUCCESS),
            };
            let Some(event) = event else {
                eprintln!("the server has gone");
                return Ok(ExitCode::FAILURE);
            };
            if !args.wants(&event) {
                continue;
            }
            let line = if server.json { event.to_string() } else { told(&event) };
            let mut out = std::io::stdout().lock();
            writeln!(out, "{line}").and_then(|()| out.flush())?;
        }
    })
}

fn told(event: &Value) -> String {
    let at = event["at"].as_u64().unwrap_or_default() / 1000;
    let (hours, minutes, seconds) = (at / 3600 % 24, at / 60 % 60, at % 60);
    let text = |key: &str| ui::text(&event[key]);
    let mut line = format!(
        "{hours:02}:{minutes:02}:{seconds:02} UTC  {:<7} {}/{}  {}",
        text("what"),
        text("agent"),
        text("session"),
        text("text")
    );
    if event["what"] == "ask" {
        line.push_str(&format!("  (deadstop approvals approve|deny {})", text("approval")));
    }
    line
}
