//! The same orders about local files, where coding agents' hooks are judged without a server.

use std::process::ExitCode;

use deadstop_client::Server as Asked;
use deadstop_gate::{Gate, Given, Order, OrderError, Setup, Whom};
use deadstop_protocol::near::nearest;
use serde_json::json;

use crate::operator;
use crate::remote::{self, Server};
use crate::table::Table;
use crate::ui::{self, Hinted};

/// The gate of a project's local files.
pub(crate) fn gate(server: &Server) -> Gate {
    let project = server.project().map(str::to_owned);
    let none = Asked { url: "none".to_owned(), key: None, project };
    Gate::open(Setup { server: Some(none), ..Setup::default() })
}

/// Whether local files judge where no server answers.
pub(super) fn judges(order: &super::Order) -> bool {
    !order.server.is_typed() && !Server::is_usual() && whom(order).is_ok()
}

fn whom(order: &super::Order) -> anyhow::Result<Whom> {
    let of = |agent: &str, session: &str| {
        Ok(Whom::Session { agent: agent.to_owned(), session: session.to_owned() })
    };
    match (order.agent.as_deref(), order.session()) {
        _ if order.all => Ok(Whom::All),
        (Some(agent), None) => Ok(Whom::Agent(agent.to_owned())),
        (Some(agent), Some(session)) => of(agent, session),
        (None, session) => match session.and_then(|session| session.split_once('/')) {
            Some((agent, session)) => of(agent, session),
            None => Err(Hinted::error(
                "local files keep sessions by agent",
                "write AGENT/SESSION, or add --agent NAME; hooks use the host's name, such as \
                 claude-code",
            )),
        },
    }
}

/// Carries an order out.
pub(super) fn order(what: &str, order: &super::Order) -> anyhow::Result<ExitCode> {
    let Some(wanted) = Order::named(what) else { anyhow::bail!("there is no order {what}") };
    let whom = whom(order)?;
    if !matches!(wanted, Order::Kill | Order::Pause) {
        operator::must_be_operator()?;
    }
    let by = remote::operator().unwrap_or_else(|| "operator".to_owned());
    let gate = gate(&order.server);
    let give = |wanted| {
        let given = Given { order: wanted, by: &by, reason: &order.reason, in_advance: order.new };
        gate.order(&whom, given)
    };
    let (mut wanted, mut done) = (wanted, give(wanted));
    // `resume` is for what was paused; for what was stopped the files have other words.
    let stopped = match &done {
        Err(OrderError::Final) if wanted == Order::Resume => Some(Order::Reset),
        Err(OrderError::Killed(_)) if wanted == Order::Resume => Some(Order::Clear),
        _ => None,
    };
    if let Some(other) = stopped {
        (wanted, done) = (other, give(other));
    }
    let here = done.map_err(|error| {
        let problem = error.to_string();
        match error {
            OrderError::Unknown(_) => unknown(&gate, &whom, wanted),
            OrderError::Final => {
                Hinted::error(problem, "deadstop resume SESSION --agent NAME --local")
            }
            OrderError::NotASession | OrderError::Killed("agent") => {
                Hinted::error(problem, "deadstop resume --agent NAME --local")
            }
            OrderError::Killed(_) => Hinted::error(problem, "deadstop resume --all --local"),
            OrderError::Files(error) => error.into(),
        }
    })?;
    if order.server.json {
        let answer = json!({ "done": wanted.done(), "scope": here, "where": "local" });
        ui::print(&answer.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    println!("{}", super::carried_out(wanted.done(), here.kind, &ui::printable(&here.name)));
    Ok(ExitCode::SUCCESS)
}

/// The error about an agent or a session that local files do not know, with the names that are nearest.
fn unknown(gate: &Gate, whom: &Whom, wanted: Order) -> anyhow::Error {
    let known = gate.scopes_here().unwrap_or_default();
    let named = |kind: &str| {
        let those = known.iter().filter(move |scope| scope.kind == kind);
        those.map(|scope| scope.name.clone()).collect::<Vec<_>>()
    };
    let (kind, name) = match whom {
        Whom::All => ("project", ""),
        Whom::Session { agent, session } if named("agent").contains(agent) => {
            ("session", &**session)
        }
        Whom::Agent(agent) | Whom::Session { agent, .. } => ("agent", &**agent),
    };
    let near: Vec<String> = nearest(name, named(kind))
        .iter()
        .map(|near| format!("`{}`", ui::printable(near)))
        .collect();
    let meant = match near.is_empty() {
        true => "`deadstop status --local` lists what they know.".to_owned(),
        false => format!("did you mean {}?", near.join(" or ")),
    };
    let advance = match wanted {
        Order::Kill | Order::Pause => " Add --new to give the order in advance.",
        Order::Clear | Order::Reset | Order::Resume => "",
    };
    let name = ui::printable(name);
    let problem = format!("nothing was done: local files know no {kind} `{name}`");
    Hinted::error(problem, format!("{meant}{advance}"))
}

/// Shows what local files know.
pub(super) fn status(server: &Server) -> anyhow::Result<ExitCode> {
    let scopes = gate(server).scopes_here()?;
    if server.json {
        ui::print(&json!({ "scopes": scopes, "where": "local" }).to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    if scopes.is_empty() {
        println!("no calls yet");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(["kind", "name", "state", "why"]);
    for scope in &scopes {
        let why = ui::printable(scope.why.as_deref().unwrap_or_default());
        table.row([scope.kind.to_owned(), ui::printable(&scope.name), scope.state.to_owned(), why]);
    }
    ui::print(&table.to_string())?;
    Ok(ExitCode::SUCCESS)
}
