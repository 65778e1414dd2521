//! House rules and benches, as programs rather than as memory.
//!
//! `cargo xtask rules` fails when the workspace has left its architecture; `cargo xtask seeds` checks the
//! register of the seed pages and the document made from it (`--write` makes it anew); `cargo xtask bench`
//! measures what the project promises; `cargo xtask traces FOLDER` judges labelled traces, and
//! `cargo xtask commands [-v] FOLDER` labelled commands.

mod bench;
mod commands;
mod rules;
mod seeds;
mod traces;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["rules"] => rules::check(),
        ["seeds"] => seeds::check(),
        ["seeds", "--write"] => seeds::write(),
        ["bench"] => bench::run(),
        ["commands", folder] => commands::check(folder, false),
        ["commands", "-v", folder] => commands::check(folder, true),
        ["harms", folder] => traces::harms(folder),
        ["traces", folder] => traces::check(folder),
        ["kernel", calls] => bench::kernel(calls),
        _ => Err(anyhow::anyhow!(
            "say `rules`, `seeds [--write]`, `bench`, `traces FOLDER` or `commands [-v] FOLDER`"
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
