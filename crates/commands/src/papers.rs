//! `deadstop completions` and `deadstop man`: what the parser knows, for shells and for `man`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

/// Which shell.
#[derive(Debug, clap::Args)]
#[command(after_help = COMPLETIONS)]
pub(crate) struct Completions {
    /// The shell that completes
    shell: Shell,
}

const COMPLETIONS: &str = "\
Examples:
  deadstop completions bash > ~/.local/share/bash-completion/completions/deadstop
  deadstop completions zsh > ~/.zfunc/_deadstop      # with fpath+=~/.zfunc before compinit
  deadstop completions fish > ~/.config/fish/completions/deadstop.fish";

/// Where man pages go.
#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// The folder to write a page a command to; without it, the first page goes to stdout
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// Writes what a shell reads.
pub(crate) fn completions(args: &Completions) -> anyhow::Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "deadstop", &mut text);
    io::stdout().lock().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the pages.
pub(crate) fn man(args: &Man) -> anyhow::Result<ExitCode> {
    let mut command = crate::Cli::command();
    command.build();
    let Some(folder) = &args.folder else {
        clap_mangen::Man::new(command).render(&mut io::stdout().lock())?;
        return Ok(ExitCode::SUCCESS);
    };
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    page(&command, "deadstop", folder)?;
    for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        if one.get_name() != "help" {
            page(one, &format!("deadstop-{}", one.get_name()), folder)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn page(command: &clap::Command, name: &str, folder: &Path) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).title(name).render(&mut text)?;
    let file = folder.join(format!("{name}.1"));
    std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}
