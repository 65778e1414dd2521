//! House rules and benches, as programs rather than as memory.
//!
//! `cargo xtask rules` fails when the workspace has left its architecture; `cargo xtask bench`
//! measures what the project promises.

mod bench;
mod rules;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["rules"] => rules::check(),
        ["bench"] => bench::run(),
        ["kernel", calls] => bench::kernel(calls),
        _ => Err(anyhow::anyhow!("say `cargo xtask rules` or `cargo xtask bench`")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
