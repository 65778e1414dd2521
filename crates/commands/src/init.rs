//! `deadstop init`: two questions, then everything that follows from the answers: shown, written,
//! and tested.

use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use deadstop_core::Preset;
use deadstop_protocol::hook::Host;
use toml_edit::DocumentMut;

use crate::ui::{self, Hinted};
use crate::{config, doctor, hook, install};

/// The answers, where they are known beforehand.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The coding agents to set up, with commas between them; `none` for none [default: asks]
    #[arg(long, value_name = "HOSTS", value_delimiter = ',', value_parser = named)]
    agents: Option<Vec<Choice>>,
    /// How strict: observe, balanced or strict [default: asks]
    #[arg(long, value_name = "PRESET", value_parser = preset)]
    policy: Option<Preset>,
    /// Show what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Write without asking
    #[arg(long, short)]
    yes: bool,
}

/// One word of the answer to the first question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Host(Host),
    Nothing,
}

fn named(word: &str) -> Result<Choice, String> {
    if word == "none" { Ok(Choice::Nothing) } else { hook::host(word).map(Choice::Host) }
}

fn preset(word: &str) -> Result<Preset, String> {
    Preset::named(word).ok_or_else(|| "it is observe, balanced or strict".to_owned())
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let asks = args.agents.is_none() || args.policy.is_none() || !(args.yes || args.dry_run);
    if asks && !std::io::stdin().is_terminal() {
        return Err(Hinted::error(
            "init asks two questions, and there is no terminal to answer them",
            "answer beforehand: deadstop init --agents claude-code --policy balanced --yes",
        ));
    }
    let hosts = match &args.agents {
        Some(named) => hosts(named),
        None => which_agents()?,
    };
    let preset = match args.policy {
        Some(preset) => preset,
        None => how_strict()?,
    };
    let policy = Policy::prepare(preset)?;
    let hosts: Vec<_> =
        hosts.into_iter().map(install::Prepared::usual).collect::<anyhow::Result<_>>()?;
    policy.show()?;
    for host in &hosts {
        host.show()?;
    }
    let nothing = !policy.changes() && hosts.iter().all(|host| !host.changes());
    if nothing {
        eprintln!("nothing to change");
    }
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    if !nothing && !args.yes && !agreed("write this? [y/N] ")? {
        eprintln!("nothing was written");
        return Ok(ExitCode::SUCCESS);
    }
    policy.write()?;
    for host in &hosts {
        host.write()?;
    }
    let done = if nothing { "all is set up" } else { "written" };
    eprintln!("\n{done}; now a test of all of it (deadstop doctor --quick):\n");
    let code = doctor::quickly()?;
    eprintln!("\nnext: start a coding agent, then look at `deadstop status --local`;");
    eprintln!("`deadstop serve` adds the page, and limits that hold over all agents");
    // Without a coding agent there is no door to test yet.
    Ok(if hosts.is_empty() { ExitCode::SUCCESS } else { code })
}

fn hosts(named: &[Choice]) -> Vec<Host> {
    let mut hosts = Vec::new();
    for choice in named {
        if let Choice::Host(host) = choice
            && !hosts.contains(host)
        {
            hosts.push(*host);
        }
    }
    hosts
}

/// The first question. Agents that are on this machine are the default.
fn which_agents() -> anyhow::Result<Vec<Host>> {
    let here: Vec<Host> = Host::ALL.into_iter().filter(|host| install::is_here(*host)).collect();
    eprintln!("1. Which coding agents should Deadstop watch?");
    for (number, host) in Host::ALL.iter().enumerate() {
        let found = if here.contains(host) { "  (found here)" } else { "" };
        eprintln!("   {} {}{found}", number + 1, host.name());
    }
    let usual = if here.is_empty() { "none" } else { "those that were found" };
    loop {
        let said = asked(&format!("   numbers or names, or none [{usual}]: "))?;
        if said.is_empty() {
            return Ok(here);
        }
        let words = said.split([',', ' ']).filter(|word| !word.is_empty());
        match words.map(chosen).collect::<Result<Vec<_>, _>>() {
            Ok(choices) => return Ok(hosts(&choices)),
            Err(problem) => eprintln!("   {problem}"),
        }
    }
}

/// A number of the list, or a name.
fn chosen(word: &str) -> Result<Choice, String> {
    match word.parse::<usize>() {
        Ok(number) => Host::ALL
            .get(number.wrapping_sub(1))
            .map(|host| Choice::Host(*host))
            .ok_or_else(|| format!("there is no number {number} in the list")),
        Err(_) => named(word),
    }
}

/// The second question.
fn how_strict() -> anyhow::Result<Preset> {
    eprintln!("\n2. How strict?");
    eprintln!("   1 observe    only warns, and records what it would have done");
    eprintln!("   2 balanced   stops loops, asks before catastrophic harm");
    eprintln!("   3 strict     stops loops sooner, blocks serious harm");
    loop {
        let said = asked("   a number or a name [balanced]: ")?;
        let found = match &*said {
            "" | "2" => Some(Preset::Balanced),
            "1" => Some(Preset::Observe),
            "3" => Some(Preset::Strict),
            name => Preset::named(name),
        };
        match found {
            Some(preset) => return Ok(preset),
            None => eprintln!("   it is observe, balanced or strict"),
        }
    }
}

fn agreed(question: &str) -> anyhow::Result<bool> {
    Ok(matches!(&*asked(question)?, "y" | "Y" | "yes"))
}

fn asked(question: &str) -> anyhow::Result<String> {
    eprint!("{question}");
    std::io::stderr().flush()?;
    let mut said = String::new();
    if std::io::stdin().lock().read_line(&mut said)? == 0 {
        return Err(Hinted::error("the answer did not come", "nothing was written"));
    }
    Ok(said.trim().to_owned())
}

/// The user's `deadstop.toml` with another policy in it, and all else as it was.
struct Policy {
    path: PathBuf,
    now: String,
    next: String,
}

impl Policy {
    fn prepare(preset: Preset) -> anyhow::Result<Policy> {
        let folder = config::xdg("XDG_CONFIG_HOME", ".config").context("HOME is not set")?;
        let path = folder.join("deadstop.toml");
        let now = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        let next = with_policy(&now, preset)
            .with_context(|| format!("{} cannot be read", path.display()))?;
        Ok(Policy { path, now, next })
    }

    fn changes(&self) -> bool {
        self.now != self.next
    }

    fn show(&self) -> anyhow::Result<()> {
        if !self.changes() {
            return Ok(());
        }
        ui::print(&install::shown(
            &self.path,
            Some(&*self.now).filter(|now| !now.is_empty()),
            &self.next,
        ))
    }

    fn write(&self) -> anyhow::Result<()> {
        if self.changes() { install::record::write(&self.path, &self.next) } else { Ok(()) }
    }
}

/// A configuration with this policy; all else stays, to the byte.
fn with_policy(text: &str, preset: Preset) -> anyhow::Result<String> {
    let mut document: DocumentMut = text.parse()?;
    if document.get("policy").and_then(toml_edit::Item::as_str) != Some(preset.name()) {
        document["policy"] = toml_edit::value(preset.name());
    }
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_policy_changes() {
        let check = |before: &str, after: &str| {
            assert_eq!(with_policy(before, Preset::Strict).unwrap(), after);
        };
        check("", "policy = \"strict\"\n");
        check("policy = \"strict\" # ours\n", "policy = \"strict\" # ours\n");
        check(
            "# mine\npolicy = \"observe\"\n\n[providers.x]\nbase_url = \"http://x\"\n",
            "# mine\npolicy = \"strict\"\n\n[providers.x]\nbase_url = \"http://x\"\n",
        );
        assert!(with_policy("policy = [", Preset::Strict).is_err());
    }

    #[test]
    fn answers_are_numbers_or_names() {
        assert_eq!(chosen("1"), Ok(Choice::Host(Host::ClaudeCode)));
        assert_eq!(chosen("cursor"), Ok(Choice::Host(Host::Cursor)));
        assert_eq!(chosen("none"), Ok(Choice::Nothing));
        for wrong in ["0", "99", "-1", "vim"] {
            assert!(chosen(wrong).is_err(), "{wrong}");
        }
        let both = [Choice::Host(Host::Codex), Choice::Nothing, Choice::Host(Host::Codex)];
        assert_eq!(hosts(&both), [Host::Codex]);
    }
}
