//! `deadstop prices`: what models cost, and own prices where the catalogue does not know.

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::client::encoded;
use crate::remote::Server;
use crate::table::Table;
use crate::ui;
use crate::ui::Hinted;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List own prices, and those of the models that were used.
    List,
    /// Show what a model costs, used or not.
    Show {
        /// The model's name
        model: String,
    },
    /// Set an own price, in force for the next call.
    Set(Set),
    /// Go back to the catalogue's price.
    Reset {
        /// The model's name
        model: String,
    },
}

#[derive(Debug, clap::Args)]
struct Set {
    /// The model's name; also prices those whose names go on after it, as gpt-4o does gpt-4o-mini
    model: String,
    /// Dollars per million tokens of input
    #[arg(long, value_name = "USD", value_parser = dollars)]
    input: f64,
    /// Dollars per million tokens of output
    #[arg(long, value_name = "USD", value_parser = dollars)]
    output: f64,
    /// Dollars per million tokens read from a cache [default: as input]
    #[arg(long, value_name = "USD", value_parser = dollars)]
    cache_read: Option<f64>,
    /// Dollars per million tokens written to a cache [default: as input]
    #[arg(long, value_name = "USD", value_parser = dollars)]
    cache_write: Option<f64>,
}

fn dollars(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.trim_start_matches('$').parse().ok();
    let fine = number.filter(|dollars| dollars.is_finite() && *dollars >= 0.0);
    fine.ok_or_else(|| "write dollars, such as 2.50".to_owned())
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let server = &args.server;
    match args.command.as_ref().unwrap_or(&Command::List) {
        Command::List => list(server),
        Command::Show { model } => show(server, model),
        Command::Set(set) => {
            let body = json!({
                "input_usd": set.input,
                "output_usd": set.output,
                "cache_read_usd": set.cache_read,
                "cache_write_usd": set.cache_write,
            });
            let client = server.client()?;
            let set = ui::runtime()?.block_on(client.put(&path(&set.model), &body, None))?;
            told(server, &set)
        }
        Command::Reset { model } => {
            let client = server.client()?;
            let now = ui::runtime()?.block_on(client.delete(&path(model)))?;
            told(server, &now)
        }
    }
}

fn path(model: &str) -> String {
    format!("/api/prices/{}", encoded(model))
}

fn list(server: &Server) -> anyhow::Result<ExitCode> {
    let client = server.client()?;
    let found = ui::runtime()?.block_on(client.get("/api/prices"))?;
    let items = found["items"].as_array().cloned().unwrap_or_default();
    if server.json {
        for item in &items {
            ui::print(&item.to_string())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new([
        "model",
        "from",
        "input",
        "output",
        "cache read",
        "cache write",
        "calls",
        "cost",
    ])
    .right([2, 3, 4, 5, 6, 7]);
    for item in &items {
        table.row([
            ui::text(&item["model"]),
            ui::text(&item["source"]),
            money(&item["input_usd"]),
            money(&item["output_usd"]),
            money(&item["cache_read_usd"]),
            money(&item["cache_write_usd"]),
            ui::text(&item["calls"]),
            ui::dollars(&item["cost_usd"]),
        ]);
    }
    if items.is_empty() {
        eprintln!("no model has been used yet, and you have set no prices");
    } else {
        ui::print(table.to_string().trim_end())?;
    }
    let (catalogue, date) = (ui::text(&found["catalogue"]), ui::text(&found["catalogue_date"]));
    eprintln!("dollars per million tokens; the catalogue is {catalogue}, prices of {date}");
    let unknown = items.iter().find(|item| item["source"] == "fallback");
    if let Some(model) = unknown.map(|item| ui::text(&item["model"])) {
        eprintln!(
            "hint: the price of {model} is unknown: deadstop prices set {model} --input USD --output USD"
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn show(server: &Server, model: &str) -> anyhow::Result<ExitCode> {
    if model.trim().is_empty() {
        return Err(Hinted::error("a model has a name", "write it after `show`"));
    }
    let client = server.client()?;
    let query = format!("/api/prices?model={}", encoded(model));
    let found = ui::runtime()?.block_on(client.get(&query))?;
    told(server, &found["items"][0])
}

fn told(server: &Server, price: &Value) -> anyhow::Result<ExitCode> {
    if server.json {
        ui::print(&price.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    let from = match price["source"].as_str() {
        Some("own") => "own price",
        Some("catalogue") => "from the catalogue",
        _ => "its price is unknown; this is charged instead",
    };
    ui::print(&format!(
        "{}: {} in, {} out, {} cache read, {} cache write per million tokens ({from})",
        ui::text(&price["model"]),
        money(&price["input_usd"]),
        money(&price["output_usd"]),
        money(&price["cache_read_usd"]),
        money(&price["cache_write_usd"]),
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn money(value: &Value) -> String {
    value.as_f64().map(|dollars| format!("${dollars}")).unwrap_or_default()
}
