//! How the program talks: colour only where it is wanted, errors with a hint.

use std::io::{IsTerminal, Write};
use std::pin::Pin;
use std::process::ExitCode;

use serde_json::Value;

use crate::when;

/// An error that knows what to do next.
#[derive(Debug)]
pub(crate) struct Hinted {
    problem: String,
    hint: String,
    kind: Kind,
}

/// What callers tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// No server answers.
    Away,
    /// Another program answers in place of a server.
    Foreign,
    /// The order takes the operator's token.
    ForOperator,
    /// The server knows no such thing.
    Missing,
    /// The scope was stopped, and not paused.
    Stopped,
    /// All else.
    Other,
}

impl Hinted {
    /// An error with a hint.
    pub(crate) fn error(problem: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
        Hinted::of(Kind::Other, problem, hint)
    }

    fn of(kind: Kind, problem: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Hinted { problem: problem.into(), hint: hint.into(), kind })
    }

    /// The error that no server answers.
    pub(crate) fn away(problem: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
        Hinted::of(Kind::Away, problem, hint)
    }

    /// The error that another program answers in place of a server.
    pub(crate) fn foreign(problem: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
        Hinted::of(Kind::Foreign, problem, hint)
    }

    /// Whether an error is that another program answers in place of a server.
    pub(crate) fn is_foreign(error: &anyhow::Error) -> bool {
        Hinted::is(error, Kind::Foreign)
    }

    /// The error that an order takes the operator's token.
    pub(crate) fn for_operator(
        problem: impl Into<String>,
        hint: impl Into<String>,
    ) -> anyhow::Error {
        Hinted::of(Kind::ForOperator, problem, hint)
    }

    /// Whether an error is that an order takes the operator's token.
    pub(crate) fn is_for_operator(error: &anyhow::Error) -> bool {
        Hinted::is(error, Kind::ForOperator)
    }

    /// The error that the server knows no such thing.
    pub(crate) fn missing(problem: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
        Hinted::of(Kind::Missing, problem, hint)
    }

    /// Whether an error is that the server knows no such thing.
    pub(crate) fn is_missing(error: &anyhow::Error) -> bool {
        Hinted::is(error, Kind::Missing)
    }

    /// The error that a scope was stopped, and not paused.
    pub(crate) fn stopped(problem: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
        Hinted::of(Kind::Stopped, problem, hint)
    }

    /// Whether an error is that a scope was stopped, and not paused.
    pub(crate) fn is_stopped(error: &anyhow::Error) -> bool {
        Hinted::is(error, Kind::Stopped)
    }

    /// Whether an error is that no server answers.
    pub(crate) fn is_away(error: &anyhow::Error) -> bool {
        Hinted::is(error, Kind::Away)
    }

    fn is(error: &anyhow::Error, kind: Kind) -> bool {
        error.chain().filter_map(|cause| cause.downcast_ref::<Hinted>()).any(|it| it.kind == kind)
    }
}

impl std::fmt::Display for Hinted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for Hinted {}

/// Why a scope is held or stopped, or else which server holds it back.
pub(crate) fn why(scope: &Value) -> String {
    match text(&scope["why"]) {
        why if why.is_empty() => failing(scope),
        why => why,
    }
}

/// The servers that fail, so that the calls of a scope are refused for a while.
pub(crate) fn failing(scope: &Value) -> String {
    let none = Vec::new();
    let told = |one: &Value| match one["retry_in_ms"].as_u64() {
        Some(left @ 1..) => {
            format!("{} fails: calls are refused for {}", text(&one["server"]), when::length(left))
        }
        _ => format!("{} fails: calls are let through to try it", text(&one["server"])),
    };
    let failing = scope["failing"].as_array().unwrap_or(&none);
    failing.iter().map(told).collect::<Vec<_>>().join("; ")
}

/// Writes data to stdout. If the reader has gone away, there is nothing left to do.
pub(crate) fn say(words: std::fmt::Arguments<'_>) {
    let mut stdout = std::io::stdout().lock();
    if let Err(error) = stdout.write_fmt(words).and_then(|()| stdout.flush())
        && error.kind() == std::io::ErrorKind::BrokenPipe
    {
        std::process::exit(0);
    }
}

/// Writes talk to stderr; nothing is lost if nothing reads it.
pub(crate) fn talk(words: std::fmt::Arguments<'_>) {
    let _ = std::io::stderr().lock().write_fmt(words);
}

/// Reports an error on stderr; the exit code is 2, as for wrong arguments.
pub(crate) fn fail(error: &anyhow::Error) -> ExitCode {
    let mut stderr = std::io::stderr().lock();
    // A reader that went away is not an error worth a message.
    if let Some(io) = error.root_cause().downcast_ref::<std::io::Error>()
        && io.kind() == std::io::ErrorKind::BrokenPipe
    {
        return ExitCode::SUCCESS;
    }
    let _ = writeln!(stderr, "error: {error:#}");
    if let Some(hinted) = error.chain().find_map(|cause| cause.downcast_ref::<Hinted>()) {
        let _ = writeln!(stderr, "hint: {}", hinted.hint);
    }
    ExitCode::from(2)
}

/// Whether stdout should be coloured: a terminal, without `NO_COLOR` and `TERM=dumb`.
pub(crate) fn colour() -> bool {
    std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// How many columns the terminal has; nothing in a pipe, where a row is a line.
pub(crate) fn width() -> Option<u16> {
    let wanted =
        crate::remote::filled("DEADSTOP_COLUMNS").and_then(|text| text.trim().parse().ok());
    if let Some(columns) = wanted.filter(|columns| *columns >= 40) {
        return Some(columns);
    }
    let stdout = std::io::stdout();
    let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout))?;
    size.ok().map(|size| size.ws_col).filter(|columns| *columns >= 40)
}

/// How a scope stands, in the words of people: the API's `killed` is `stopped`.
pub(crate) fn state(value: &Value) -> String {
    match value.as_str() {
        Some("killed") => "stopped".to_owned(),
        _ => text(value),
    }
}

/// How a session stands, in one word. A server from before there were standings tells its state.
pub(crate) fn standing(session: &Value) -> String {
    match session["standing"].as_str() {
        Some("stopped_by_guard" | "stopped_by_person") => "stopped".to_owned(),
        Some("waiting_for_approval") => "waiting".to_owned(),
        Some(other) => other.to_owned(),
        None => state(&session["state"]),
    }
}

/// Writes data to stdout. A reader that went away ends the program, without a word.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

/// Text without control characters, and without those that turn or hide the text around them:
/// names, reasons and what models say come from outside.
pub(crate) fn printable(text: &str) -> String {
    let hides = |c: char| {
        c.is_control()
            || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
            || matches!(c, '\u{2060}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}')
            || matches!(c, '\u{e0000}'..='\u{e0fff}')
    };
    text.chars().map(|c| if hides(c) { '\u{fffd}' } else { c }).collect()
}

/// A value of an answer as text.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => printable(text),
        Value::Array(items) => items.iter().map(self::text).collect::<Vec<_>>().join(", "),
        other => printable(&other.to_string()),
    }
}

/// Dollars, with as many decimals as it takes to see small ones.
pub(crate) fn dollars(value: &Value) -> String {
    value.as_f64().map(|dollars| format!("${dollars:.4}")).unwrap_or_default()
}

/// One line of limited width.
pub(crate) fn clip(text: &str, width: usize) -> String {
    let line = printable(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    match line.char_indices().nth(width) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

/// A runtime for the commands that talk to others.
pub(crate) fn runtime() -> anyhow::Result<Runtime> {
    crate::log::start(crate::log::Format::Text);
    Ok(Runtime(tokio::runtime::Builder::new_multi_thread().enable_all().build()?))
}

/// A runtime whose code is compiled once for each type of answer, and not once for each command.
pub(crate) struct Runtime(tokio::runtime::Runtime);

impl Runtime {
    /// Runs a command's work to its end.
    pub(crate) fn block_on<'a, T>(&self, work: impl Future<Output = T> + 'a) -> T {
        let work: Pin<Box<dyn Future<Output = T> + 'a>> = Box::pin(work);
        self.0.block_on(work)
    }
}

/// Ready once Ctrl-C is pressed or SIGTERM arrives. It listens from this call on, not only from
/// when it is awaited: a signal that comes right after the program's first words is not lost.
pub(crate) fn interrupted() -> impl Future<Output = ()> {
    use tokio::signal::unix::{Signal, SignalKind, signal};
    let mut pressed = signal(SignalKind::interrupt()).ok();
    let mut asked = signal(SignalKind::terminate()).ok();
    async fn came(signal: &mut Option<Signal>) {
        match signal {
            Some(signal) => {
                signal.recv().await;
            }
            None => std::future::pending().await,
        }
    }
    async move {
        tokio::select! {
            () = came(&mut pressed) => {}
            () = came(&mut asked) => {}
        }
    }
}
