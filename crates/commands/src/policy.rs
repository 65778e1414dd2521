//! `deadstop policy`: write a policy to start from, check policies, show what is in force; here, and
//! on a server.

mod load;
mod remote;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use deadstop_core::Preset;
use deadstop_protocol::policy_file::{self, Format, PolicyError};
use serde::Serialize;

use crate::ui::Hinted;
pub(crate) use load::load;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Write a policy to start from, with every setting explained.
    Init(Init),
    /// Check that files are valid policies; name every mistake with its line.
    Check(Check),
    /// Show the policy that is in force, with every setting.
    Show(Show),
    /// Show the policy that a server has in force, as a file to edit.
    Get(remote::Get),
    /// Put a policy into force on a server, from the next call on.
    Set(remote::Set),
    /// Go back to the default.
    Reset(remote::Reset),
    /// List the versions that a server has kept.
    Versions(remote::Versions),
    /// Compare two versions, setting by setting.
    Diff(remote::Diff),
    /// Put an earlier version into force again.
    Restore(remote::Restore),
}

#[derive(Debug, clap::Args)]
struct Init {
    /// The file to write; `-` is stdout.
    #[arg(default_value = "deadstop-policy.toml")]
    file: String,
    /// What the policy starts from.
    #[arg(long, default_value = Preset::Balanced.name(), value_parser = preset_parser())]
    preset: Preset,
    /// Overwrite the file if there is one.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, clap::Args)]
struct Check {
    /// Policies in TOML, YAML or JSON; `-` is stdin.
    #[arg(required = true)]
    files: Vec<String>,
    /// One line of JSON a file.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Show {
    /// A policy file or a preset (observe, balanced, strict); `-` is stdin.
    #[arg(value_name = "FILE|PRESET", default_value = Preset::Balanced.name())]
    source: String,
    /// JSON in place of TOML.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Init(args) => init(args),
        Command::Check(args) => check(args),
        Command::Show(args) => show(args),
        Command::Get(args) => remote::get(args),
        Command::Set(args) => remote::set(args),
        Command::Reset(args) => remote::reset(args),
        Command::Versions(args) => remote::versions(args),
        Command::Diff(args) => remote::diff(args),
        Command::Restore(args) => remote::restore(args),
    }
}

fn preset_parser() -> impl TypedValueParser<Value = Preset> {
    PossibleValuesParser::new(Preset::ALL.map(Preset::name))
        .try_map(|name| Preset::named(&name).ok_or("no such preset"))
}

fn init(args: &Init) -> anyhow::Result<ExitCode> {
    let text = policy_file::template(args.preset);
    let file = &args.file;
    if file == "-" {
        io::stdout().lock().write_all(text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if Format::of(file, "") != Format::Toml {
        return Err(Hinted::error(
            format!("{file}: a policy to start from is written in TOML"),
            "give the file a name that ends in .toml; `deadstop policy show --json` writes JSON",
        ));
    }
    write(args, &text)?;
    let preset = args.preset.name();
    let mut talk = io::stderr().lock();
    writeln!(talk, "wrote {file}, a policy that starts from {preset}")?;
    writeln!(talk, "next: edit it, check it with `deadstop policy check {file}`, and see what it")?;
    writeln!(talk, "would have stopped with `deadstop backtest --policy {file} TRACES…`")?;
    Ok(ExitCode::SUCCESS)
}

fn write(args: &Init, text: &str) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true);
    if args.force {
        options.create(true).truncate(true);
    } else {
        // Not looked up first: another process might write between the look and the write.
        options.create_new(true);
    }
    let file = &args.file;
    match options.open(file) {
        Ok(mut open) => open.write_all(text.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(Hinted::error(
                format!("{file} is already there"),
                "name another file, or overwrite it with --force",
            ));
        }
        Err(error) => Err(error),
    }
    .with_context(|| format!("{file} cannot be written"))
}

/// What `check --json` says about a file: the first mistake, and all of them.
#[derive(Serialize)]
struct Checked<'a> {
    file: &'a str,
    ok: bool,
    line: Option<usize>,
    column: Option<usize>,
    problem: Option<&'a str>,
    hint: Option<&'a str>,
    errors: Vec<Mistake<'a>>,
}

/// One mistake.
#[derive(Serialize)]
struct Mistake<'a> {
    line: Option<usize>,
    column: Option<usize>,
    problem: &'a str,
    hint: Option<&'a str>,
}

fn check(args: &Check) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let mut code = ExitCode::SUCCESS;
    for file in &args.files {
        let errors = load::problems(file);
        if !errors.is_empty() {
            code = ExitCode::from(1);
        }
        if args.json {
            serde_json::to_writer(&mut out, &checked(file, &errors))?;
            writeln!(out)?;
            continue;
        }
        if errors.is_empty() {
            writeln!(out, "{file}: ok")?;
        }
        for error in errors {
            writeln!(out, "{error}")?;
            if let Some(hint) = error.hint {
                writeln!(out, "hint: {hint}")?;
            }
        }
    }
    Ok(code)
}

fn checked<'a>(file: &'a str, errors: &'a [PolicyError]) -> Checked<'a> {
    let error = errors.first();
    let mistake = |error: &'a PolicyError| Mistake {
        line: error.line,
        column: error.column,
        problem: &error.problem,
        hint: error.hint.as_deref(),
    };
    Checked {
        file,
        ok: error.is_none(),
        line: error.and_then(|error| error.line),
        column: error.and_then(|error| error.column),
        problem: error.map(|error| error.problem.as_str()),
        hint: error.and_then(|error| error.hint.as_deref()),
        errors: errors.iter().map(mistake).collect(),
    }
}

fn show(args: &Show) -> anyhow::Result<ExitCode> {
    let policies = load(&args.source)?;
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &policy_file::to_json(&policies))?;
        writeln!(out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let source = match args.source.as_str() {
        "-" => "of stdin".to_owned(),
        name if Preset::named(name).is_some() => format!("of the preset {name}"),
        // A file's name may hold a line break, which would end the comment.
        name => format!("of {}", name.replace(char::is_control, " ")),
    };
    writeln!(out, "# The policy {source} with every setting that is in force.")?;
    writeln!(out, "# A limit that is not listed is not set.")?;
    writeln!(out)?;
    out.write_all(policy_file::to_toml(&policies).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
