//! `deadstop check`: what Deadstop would say about a command or a tool call, without running it.
//!
//! One command is explained to a person. With `--json`, calls come as JSON lines on stdin and go
//! out as one JSON line each, whatever is in them: a line that cannot be read is answered too.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use deadstop_gate::Machine;
use deadstop_protocol::check::{Checked, Checker};
use deadstop_protocol::facts::effect;
use serde_json::{Value, json};

use crate::ui;

/// Commands may nest; the thread that reads them has room for it.
const STACK: usize = 64 * 1024 * 1024;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The command, as an agent's shell would get it
    #[arg(value_name = "COMMAND", conflicts_with_all = ["tool", "input"])]
    command: Option<String>,
    /// The tool that is called
    #[arg(long, value_name = "NAME", requires = "input")]
    tool: Option<String>,
    /// Its arguments, as JSON
    #[arg(long, value_name = "JSON", requires = "tool")]
    input: Option<String>,
    /// The directory that it would run in [default: this one]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Print JSON; without a command, read JSON lines {"tool", "input"} from stdin
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let cwd = match &args.cwd {
        Some(cwd) => cwd.clone(),
        None => std::env::current_dir().context("the working directory cannot be read")?,
    };
    if !cwd.is_dir() {
        let problem = format!("{} is no directory", cwd.display());
        return Err(ui::Hinted::error(problem, "name one with --cwd"));
    }
    let call = match (&args.command, &args.tool, &args.input) {
        (Some(command), ..) => Some(("Bash".to_owned(), json!({ "command": command }))),
        (None, Some(tool), Some(input)) => {
            let input = serde_json::from_str(input).context("--input is not JSON")?;
            Some((tool.clone(), input))
        }
        _ => None,
    };
    let json = args.json;
    let work = move || match call {
        Some((tool, input)) => {
            let machine = Machine::at(&cwd, Vec::new());
            one(&tool, &input, &machine, json)
        }
        None if json => lines(&Machine::at(&cwd, Vec::new()).remembering()),
        None => Err(ui::Hinted::error(
            "nothing to check",
            "say `deadstop check 'rm -rf build'`, or pipe JSON lines into `deadstop check --json`",
        )),
    };
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(work)?;
    thread.join().map_err(|_| anyhow::anyhow!("the check failed: please report this command"))?
}

fn one(tool: &str, input: &Value, machine: &Machine, json: bool) -> anyhow::Result<ExitCode> {
    let checked = Checker::default().check(tool, input, machine);
    if json {
        ui::print(&serde_json::to_string(&checked)?)?;
    } else {
        ui::print(&told(&checked, &effect::of_in(tool, input, machine).commands))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What a person reads.
fn told(checked: &Checked, commands: &[String]) -> String {
    let mut out = String::new();
    let mut line = |name: &str, text: &str| out.push_str(&format!("{name:<10} {text}\n"));
    match commands {
        [] => line("tool", &checked.tool),
        commands => {
            for (at, command) in commands.iter().enumerate() {
                line(if at == 0 { "read as" } else { "" }, command);
            }
        }
    }
    line("severity", checked.severity.name());
    for (at, harm) in checked.harms.iter().enumerate() {
        let (kind, reach, recovery) = (word(&harm.kind), word(&harm.reach), word(&harm.recovery));
        let what = format!("{} {}", harm.verb, harm.target);
        let severity = harm.severity.name();
        let text =
            format!("{kind}: {} (reach {reach}, recovery {recovery}: {severity})", what.trim_end());
        line(if at == 0 { "harms" } else { "" }, &text);
    }
    line("because", &checked.because);
    line("observe", &checked.verdict.observe.to_string());
    line("balanced", &checked.verdict.balanced.to_string());
    line("strict", &checked.verdict.strict.to_string());
    if !checked.instead.is_empty() {
        line("instead", &checked.instead);
    }
    out
}

/// The word that stands for a value in JSON.
fn word(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().replace('_', " ")
}

/// Answers every line of stdin with one line; fails at the end if one could not be read.
fn lines(machine: &Machine) -> anyhow::Result<ExitCode> {
    let checker = Checker::default();
    let mut input = BufReader::new(std::io::stdin().lock());
    let mut output = BufWriter::new(std::io::stdout().lock());
    let (mut bytes, mut number, mut bad) = (Vec::new(), 0_usize, 0_usize);
    loop {
        bytes.clear();
        if input.read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
        number += 1;
        match answered(&checker, machine, &bytes) {
            Ok(text) => writeln!(output, "{text}")?,
            Err(problem) => {
                bad += 1;
                writeln!(output, "{}", json!({ "error": format!("line {number}: {problem}") }))?;
            }
        }
        // A client that sends one line at a time waits for its answer: only what has come already is looked at.
        if !input.buffer().contains(&b'\n') {
            output.flush()?;
        }
    }
    output.flush()?;
    if bad == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("error: {bad} of {number} lines could not be read");
    eprintln!(
        "hint: a line is a JSON object such as {{\"tool\":\"Bash\",\"input\":{{\"command\":\"ls\"}}}}"
    );
    Ok(ExitCode::from(2))
}

fn answered(checker: &Checker, machine: &Machine, line: &[u8]) -> Result<String, String> {
    let call: Value = serde_json::from_slice(line).map_err(|error| format!("not JSON: {error}"))?;
    let tool = call["tool"].as_str().ok_or("`tool` is missing, or no text")?;
    let input = match &call["input"] {
        Value::String(command) => json!({ "command": command }),
        input @ Value::Object(_) => input.clone(),
        _ => return Err("`input` is missing, or no object".to_owned()),
    };
    let checked = catch_unwind(AssertUnwindSafe(|| checker.check(tool, &input, machine)));
    let checked = checked.map_err(|_| "the check failed: please report this call".to_owned())?;
    serde_json::to_string(&checked).map_err(|error| error.to_string())
}
