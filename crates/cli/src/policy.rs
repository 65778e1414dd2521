//! Placeholder until the command is written.

use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn load(source: &str) -> anyhow::Result<deadstop_core::PolicySet> {
    deadstop_core::Preset::named(source).map(|p| p.policies()).ok_or_else(|| anyhow::anyhow!("no"))
}
