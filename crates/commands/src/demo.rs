//! `deadstop demo`: two runaways stopped and one healthy agent let through, before your eyes.
//!
//! No key and no network: a stand-in plays the provider, but the gateway between it and the agents
//! is the real one, with the policy that is printed.

mod agents;
mod catalogue;
mod cleanup;
mod standin;

use std::collections::BTreeMap;
use std::process::ExitCode;

use deadstop_core::RawPolicy;
use deadstop_server::{Config, RawConfig, RawProvider};
use serde_json::json;

use crate::ui;

/// Arguments of `deadstop demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    scene: Option<Scene>,
    /// What came of each agent, as one line of JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Scene {
    /// An agent cleans up a catalogue over MCP; what it deletes still exists, and it tries again.
    Cleanup,
    /// The catalogue alone, as an MCP server on stdio, or over HTTP where --listen says.
    #[command(hide = true)]
    Catalogue {
        /// An address such as 127.0.0.1:0; the one that it is becomes the first line
        #[arg(long, value_name = "ADDRESS")]
        listen: Option<std::net::SocketAddr>,
    },
}

/// What a session may spend in the demo.
const BUDGET: f64 = 0.05;

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match args.scene {
        Some(Scene::Cleanup) => {
            let fine = ui::runtime()?.block_on(cleanup::run(args.json))?;
            return Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Some(Scene::Catalogue { listen: None }) => {
            return catalogue::over_stdio().map(|()| ExitCode::SUCCESS);
        }
        Some(Scene::Catalogue { listen: Some(address) }) => {
            return ui::runtime()?.block_on(async {
                ui::print(&catalogue::start(address).await?.to_string())?;
                ui::interrupted().await;
                Ok(ExitCode::SUCCESS)
            });
        }
        None => {}
    }
    ui::runtime()?.block_on(async {
        let provider = standin::start().await?;
        let server = crate::start(config(provider)?).await?;
        let stage = agents::Stage::new(server.address(), !args.json);
        if !args.json {
            println!(
                "Three agents run through a real gateway to a stand-in for a provider.\n\
                 Policy: strict, ${BUDGET:.2} a session.\n"
            );
        }
        let told = [
            ("janitor", agents::janitor(&stage).await?),
            ("writer", agents::writer(&stage).await?),
            ("reporter", agents::reporter(&stage).await?),
        ];
        server.stop().await;
        let expected = told[0].1.stopped() && told[1].1.stopped() && !told[2].1.stopped();
        if args.json {
            let lines: BTreeMap<_, _> = told.iter().map(|(name, end)| (name, end.json())).collect();
            println!("{}", json!(lines));
        } else {
            println!("{NEXT}");
        }
        Ok(if expected { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

const NEXT: &str = "\
Two were stopped, one was not. Next:
  deadstop demo cleanup              see an agent stopped at its tools, over MCP
  deadstop serve                     the same gateway for your own agents; it prints what to set
  deadstop run -- your-agent         or put it around one command
  deadstop backtest runs.jsonl       or see what it would have stopped last night
  deadstop policy init               and write down what your agents may do";

fn config(provider: std::net::SocketAddr) -> anyhow::Result<Config> {
    let policy = json!({ "preset": "strict", "budget": { "max_cost_usd": BUDGET } });
    let policies = serde_json::from_value::<RawPolicy>(policy)?.resolve()?;
    // With prices, or else each call would log that its model's price is not known.
    let models = ["stand-in", "stand-in-janitor", "stand-in-writer", "stand-in-reporter"];
    let prices: BTreeMap<&str, [f64; 2]> = models.map(|model| (model, [10.0, 30.0])).into();
    let openai: RawProvider = serde_json::from_value(json!({
        "base_url": format!("http://{provider}"),
        "prices": { "models": prices },
    }))?;
    let raw = RawConfig {
        listen: Some("127.0.0.1:0".to_owned()),
        providers: BTreeMap::from([("openai".to_owned(), openai)]),
        ..RawConfig::default()
    };
    Ok(raw.resolve(policies, |_| None)?)
}
