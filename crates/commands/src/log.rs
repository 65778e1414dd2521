//! The log on stderr: text for people (warnings and errors), or one JSON object a line for log pipelines
//! (from level info on).
//!
//! `DEADSTOP_LOG` filters it: a level, or `TARGET=LEVEL` with commas between.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::ui::colour;

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    // With words of their own the whole help of the command would become twice as long.
    Text,
    Json,
}

impl Format {
    fn usual(self) -> &'static str {
        match self {
            // People see kills in what the command prints, on the page and in `watch`.
            Format::Text => "warn,deadstop::kill=error",
            Format::Json => "info",
        }
    }
}

/// Begins to log. Within one process the first format stays.
pub(crate) fn start(format: Format) {
    let filter =
        EnvFilter::try_from_env("DEADSTOP_LOG").unwrap_or_else(|_| EnvFilter::new(format.usual()));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let _ = match format {
        Format::Text => log.with_ansi(std::io::stderr().is_terminal() && colour()).try_init(),
        Format::Json => log.json().flatten_event(true).with_span_list(false).try_init(),
    };
}
