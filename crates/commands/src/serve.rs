//! `deadstop serve`: the gateway and its API on one port, with nothing to configure.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use deadstop_server::{Anchor, Config, OperatorToken, Server, StartError};

use crate::{config, log, operator, policy, remote, ui};

/// What is said of a server that keeps nothing.
const FORGETS: &str =
    "Nothing is stored: costs, stops and settings are lost when the server stops.";
/// What is said when it is told to stop.
const STOPS: &str = "stopping: calls in flight may finish";

/// Arguments of `deadstop serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to listen; beyond this machine only with keys (deadstop keys create)
    #[arg(long, env = "DEADSTOP_LISTEN", value_name = "ADDRESS")]
    listen: Option<String>,
    /// The folder of the database [default: deadstop in the XDG data folder]
    #[arg(long, env = "DEADSTOP_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// A PostgreSQL database in place of the file: postgres://user:password@host/name
    #[arg(long, env = "DEADSTOP_DATABASE", value_name = "URL", hide_env_values = true)]
    database: Option<String>,
    /// The Redis that makes this one node of many: redis://host:6379, rediss:// for TLS,
    /// redis+sentinel://host1,host2/master, redis+cluster://host1,host2
    #[arg(long, env = "DEADSTOP_REDIS", value_name = "URL", hide_env_values = true)]
    redis: Option<String>,
    /// Keep nothing: no database, everything in memory until the server stops
    #[arg(long)]
    no_store: bool,
    /// While there are no keys, take every order from every process of this machine, the agents
    /// included; for throw-away servers
    #[arg(long, env = "DEADSTOP_TRUST_LOCAL", value_parser = clap::builder::FalseyValueParser::new())]
    trust_local: bool,
    /// The configuration [default: deadstop.toml here, or in the XDG config folder]
    #[arg(long, env = "DEADSTOP_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// A policy file, or the name of a preset: observe, balanced, strict
    #[arg(long, env = "DEADSTOP_POLICY", value_name = "FILE|PRESET")]
    policy: Option<String>,
    /// How the log on stderr is written; DEADSTOP_LOG filters it (docs/operations.md)
    #[arg(long, env = "DEADSTOP_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    log_format: log::Format,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    log::start(args.log_format);
    let config = configure(args)?;
    let token = config.operator.clone();
    let proxied = config.proxied();
    // Said here, where it is known: the key has to be made in the database that this server uses.
    let place = match (&config.database, &config.data) {
        (Some(_), _) => "--database URL".to_owned(),
        (None, Some(folder)) => format!("--data {}", folder.display()),
        (None, None) => "--data DIR".to_owned(),
    };
    ui::runtime()?.block_on(async {
        let server = crate::start(config).await.map_err(|error| {
            let hint = match &error {
                StartError::Exposed(_) => {
                    format!("make one first: deadstop keys create --role admin --name NAME {place}")
                }
                StartError::Listen(..) => {
                    "`deadstop` says what runs there; another port: deadstop serve --listen \
                     127.0.0.1:4142"
                        .to_owned()
                }
                StartError::Store(_) => "check --database or --data".to_owned(),
                StartError::Taken(_) => {
                    "stop the other server, or give this one a folder of its own with --data"
                        .to_owned()
                }
                StartError::Shared(_) => "check --redis; is it running?".to_owned(),
                StartError::Folder(..)
                | StartError::Threads(_)
                | StartError::Alerts(_)
                | StartError::Absent => "check --data and the limits".to_owned(),
            };
            ui::Hinted::error(error.to_string(), hint)
        })?;
        let interrupted = ui::interrupted();
        match args.log_format {
            log::Format::Json => {
                tracing::info!("listens on http://{}", server.address());
                for line in through(&proxied) {
                    tracing::info!("{line}");
                }
            }
            log::Format::Text => {
                eprint!("{}", welcome(&server, token.as_ref()).await);
                for line in through(&proxied) {
                    eprintln!("{line}");
                }
                if args.no_store {
                    eprintln!("{FORGETS}");
                }
            }
        }
        interrupted.await;
        match args.log_format {
            log::Format::Json => tracing::info!("{STOPS}"),
            log::Format::Text => eprintln!("{STOPS}"),
        }
        server.stop().await;
        Ok(ExitCode::SUCCESS)
    })
}

/// The configuration: the command line first, then the file, then the defaults.
fn configure(args: &Args) -> anyhow::Result<Config> {
    let mut raw = config::read(args.config.as_deref())?;
    if args.listen.is_some() {
        raw.listen.clone_from(&args.listen);
    }
    raw.data =
        args.data.clone().or(raw.data).or_else(|| config::xdg("XDG_DATA_HOME", ".local/share"));
    raw.database = args.database.clone().or(raw.database);
    raw.redis = args.redis.clone().or(raw.redis);
    if args.no_store {
        (raw.data, raw.database, raw.redis) = (None, None, None);
    }
    let source = args.policy.clone().or_else(|| raw.policy.clone());
    let policies = policy::load(source.as_deref().unwrap_or("balanced"))?;
    let url = raw.database.clone();
    let trusts = args.trust_local || raw.trust_local;
    let resolved = raw.resolve(policies, |name| std::env::var(name).ok());
    let mut config = resolved.context("bad configuration")?;
    if !trusts {
        config.operator = Some(operator::of_server()?);
    }
    let database = match (&config.database, &config.data) {
        // Its address may hold a password; the anchor keeps a hash of it.
        (Some(_), _) => url,
        (None, Some(folder)) => Some(std::path::absolute(folder)?.display().to_string()),
        (None, None) => None,
    };
    if let (Some(database), Some(folder)) =
        (database, config::xdg("XDG_STATE_HOME", ".local/state"))
    {
        match Anchor::open(&folder, &database) {
            Ok(anchor) => config.anchor = Some(Arc::new(anchor)),
            Err(error) => {
                tracing::warn!(
                    "cannot keep a copy of the audit's latest hashes outside the database: {error}"
                );
            }
        }
    }
    Ok(config)
}

/// Which upstreams are reached through a proxy; a proxy shows no password.
pub(crate) fn through(proxied: &BTreeMap<String, Vec<String>>) -> impl Iterator<Item = String> {
    proxied
        .iter()
        .map(|(proxy, upstreams)| format!("Through the proxy {proxy}: {}", upstreams.join(", ")))
}

async fn welcome(server: &Server, token: Option<&OperatorToken>) -> String {
    let url = format!("http://{}", server.address());
    // With keys, a browser signs in with one.
    let link = match token {
        Some(token) if !server.has_keys().await => token.sign_in_link(&url).ok(),
        _ => None,
    };
    let page = match link {
        Some(link) => format!("The page, signed in (this link works once): {link}\n"),
        None => format!("The page: {url}\n"),
    };
    // The commands look at the usual address by themselves.
    let find = match url == remote::USUAL {
        true => String::new(),
        false => format!("export DEADSTOP_SERVER={url}\n  "),
    };
    format!(
        "deadstop listens on {url}\n{page}\n\
         Point an agent at it (name it, if you like, with /agent/NAME in front):\n  \
           export OPENAI_BASE_URL={url}/openai/v1\n  \
           export ANTHROPIC_BASE_URL={url}/anthropic\n  \
           export GOOGLE_GEMINI_BASE_URL={url}/gemini\n\n\
         Then, in another terminal:\n  \
           {find}deadstop watch                            what happens, live\n  \
           deadstop status                           what is running, and what it cost\n  \
           deadstop stop --all --reason \"enough\"     stops all agents\n\n\
         Ctrl-C stops it.\n"
    )
}
