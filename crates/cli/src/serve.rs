//! `deadstop serve`: the gateway and its API on one port, with nothing to configure.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use deadstop_server::{Config, RawConfig, Server};

use crate::{policy, ui};

/// Arguments of `deadstop serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to listen; only this machine can be listened on
    #[arg(long, env = "DEADSTOP_LISTEN", value_name = "ADDRESS")]
    listen: Option<String>,
    /// The folder of the database [default: deadstop in the XDG data folder]
    #[arg(long, env = "DEADSTOP_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// The configuration [default: deadstop.toml here, or in the XDG config folder]
    #[arg(long, env = "DEADSTOP_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// A policy file, or the name of a preset: observe, balanced, strict
    #[arg(long, env = "DEADSTOP_POLICY", value_name = "FILE|PRESET")]
    policy: Option<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = configure(args)?;
    ui::runtime()?.block_on(async {
        let server = Server::start(config).await.map_err(|error| {
            ui::Hinted::error(
                error.to_string(),
                "another port: deadstop serve --listen 127.0.0.1:4142",
            )
        })?;
        eprint!("{}", welcome(&server));
        ui::interrupted().await;
        eprintln!("stopping: calls in flight may finish");
        server.stop().await;
        Ok(ExitCode::SUCCESS)
    })
}

/// What was typed, what the file says, and what is true if nobody said anything.
fn configure(args: &Args) -> anyhow::Result<Config> {
    let mut raw = match find_config(args)? {
        None => RawConfig::default(),
        Some(path) => {
            let shown = path.display().to_string();
            let text = std::fs::read_to_string(&path).map_err(|error| {
                ui::Hinted::error(format!("cannot read {shown}: {error}"), "check --config")
            })?;
            toml::from_str(&text).map_err(|error| {
                let hint = "providers are written as [providers.NAME] with a base_url";
                ui::Hinted::error(format!("{shown}: {}", error.to_string().trim_end()), hint)
            })?
        }
    };
    if args.listen.is_some() {
        raw.listen.clone_from(&args.listen);
    }
    raw.data = args.data.clone().or(raw.data).or_else(|| xdg("XDG_DATA_HOME", ".local/share"));
    let source = args.policy.clone().or_else(|| raw.policy.clone());
    let policies = policy::load(source.as_deref().unwrap_or("balanced"))?;
    raw.resolve(policies, |name| std::env::var(name).ok()).context("bad configuration")
}

fn find_config(args: &Args) -> anyhow::Result<Option<PathBuf>> {
    if args.config.is_some() {
        return Ok(args.config.clone());
    }
    let here = PathBuf::from("deadstop.toml");
    let home = xdg("XDG_CONFIG_HOME", ".config").map(|folder| folder.join("deadstop.toml"));
    Ok([Some(here), home].into_iter().flatten().find(|path| path.is_file()))
}

/// Our folder below one of the XDG folders.
fn xdg(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(below_home));
    set.or_else(home).map(|folder| folder.join("deadstop"))
}

fn welcome(server: &Server) -> String {
    let url = format!("http://{}", server.address());
    format!(
        "deadstop listens on {url} (open it in a browser for a first look)\n\n\
         Point an agent at it (name it, if you like, with /agent/NAME in front):\n  \
           export OPENAI_BASE_URL={url}/openai/v1\n  \
           export ANTHROPIC_BASE_URL={url}/anthropic\n  \
           export GOOGLE_GEMINI_BASE_URL={url}/gemini\n\n\
         Then, in another terminal:\n  \
           deadstop watch                            what happens, live\n  \
           deadstop status                           who runs, and what it cost\n  \
           deadstop kill --all --reason \"enough\"     the big red button\n\n\
         Ctrl-C stops it.\n"
    )
}
