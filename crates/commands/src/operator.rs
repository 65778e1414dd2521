//! Who may loosen control: the operator, by a token that agents do not get.
//!
//! The token lies in the user's state folder, for the user alone. `deadstop serve` makes it. An
//! order that a server refuses without it is sent again with it, if a person gives the order: in a
//! terminal, and not in the session of a coding agent. A script of the operator names the token in
//! `DEADSTOP_OPERATOR_TOKEN_FILE` or `DEADSTOP_OPERATOR_TOKEN`.

use std::io::IsTerminal;
use std::path::PathBuf;

use deadstop_server::OperatorToken;

use crate::config;
use crate::remote::filled;
use crate::ui::Hinted;

/// Variables that hold the token, or say where it is.
const TOKEN: &str = "DEADSTOP_OPERATOR_TOKEN";
const TOKEN_FILE: &str = "DEADSTOP_OPERATOR_TOKEN_FILE";

/// Variables that a command must not inherit from `deadstop run`: what they hold would let it lift
/// its own stop.
pub(crate) const SECRETS: [&str; 7] = [
    TOKEN,
    TOKEN_FILE,
    "DEADSTOP_KEY",
    "DEADSTOP_KEY_FILE",
    "DEADSTOP_DATABASE",
    "DEADSTOP_REDIS",
    "DEADSTOP_PROJECT",
];

/// Variables with which hosts mark what their agents run.
const MARKS: &[&str] = &[
    "CLAUDECODE",
    "CLAUDE_CODE_ENTRYPOINT",
    "GEMINI_CLI",
    "CURSOR_AGENT",
    "OPENCODE",
    "COPILOT_AGENT",
    "DEADSTOP_SESSION",
];
/// Beginnings of such variables.
const MARKED: &[&str] = &["CODEX_SANDBOX", "CODEX_THREAD", "CODEX_SESSION"];

/// The token that the environment names.
fn named() -> anyhow::Result<Option<OperatorToken>> {
    let hint = "check DEADSTOP_OPERATOR_TOKEN and DEADSTOP_OPERATOR_TOKEN_FILE";
    let token = match (filled(TOKEN), filled(TOKEN_FILE)) {
        (Some(text), _) => OperatorToken::new(&text),
        (None, Some(file)) => OperatorToken::read(&PathBuf::from(file)),
        (None, None) => return Ok(None),
    };
    token.map(Some).map_err(|error| Hinted::error(error.to_string(), hint))
}

/// Where the token lies if the environment does not say.
fn usual() -> Option<PathBuf> {
    config::xdg("XDG_STATE_HOME", ".local/state").map(|folder| folder.join("operator-token"))
}

/// The token of a server that starts here. Where none can be kept, the server has one of its own,
/// which ends with it.
pub(crate) fn of_server() -> anyhow::Result<OperatorToken> {
    if let Some(token) = named()? {
        return Ok(token);
    }
    if let Some(path) = usual() {
        match OperatorToken::read_or_make(&path) {
            Ok(token) => return Ok(token),
            Err(error) => eprintln!("warning: {error}; this server has a token of its own"),
        }
    }
    OperatorToken::random()
        .map_err(|error| Hinted::error(error.to_string(), "see the system's log"))
}

/// The token, for an order that a person gives.
pub(crate) fn token() -> anyhow::Result<OperatorToken> {
    if let Some(token) = named()? {
        return Ok(token);
    }
    must_be_person()?;
    let path = usual().ok_or_else(|| {
        Hinted::error("neither HOME nor XDG_STATE_HOME is set", "set HOME to the operator's folder")
    })?;
    OperatorToken::read(&path).map_err(|error| {
        let hint = "run this as the user that runs the server, or bring a key";
        Hinted::error(error.to_string(), hint)
    })
}

/// Fails unless a person gives this order, or a script that has the operator's token.
pub(crate) fn must_be_operator() -> anyhow::Result<()> {
    if named()?.is_some() {
        return Ok(());
    }
    must_be_person()
}

/// Fails unless a person gives this order: in a terminal that is not an agent's.
fn must_be_person() -> anyhow::Result<()> {
    must_not_be_agent()?;
    let terminal = std::io::stdin().is_terminal()
        || std::io::stdout().is_terminal()
        || std::io::stderr().is_terminal();
    match terminal {
        true => Ok(()),
        false => Err(Hinted::error(
            "this order loosens control, so a person must give it in a terminal, and there is none here",
            "run it in a terminal; docs/security.md says how a script of yours gives it",
        )),
    }
}

/// Fails in the session of an agent, which its host marks in the environment.
pub(crate) fn must_not_be_agent() -> anyhow::Result<()> {
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    match names.into_iter().find(|name| is_mark(name)) {
        None => Ok(()),
        Some(mark) => Err(Hinted::error(
            format!("an agent's session cannot loosen its own control ({mark} is set)"),
            "run this in a terminal of your own",
        )),
    }
}

fn is_mark(name: &str) -> bool {
    MARKS.contains(&name) || MARKED.iter().any(|start| name.starts_with(start))
}
