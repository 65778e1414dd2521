//! Recorded bodies of every format, written for these tests, and files that are damaged.

use std::fmt::Write;
use std::io::{self, BufReader, Read};

use deadstop_core::{Time, Tokens, Usage};
use proptest::prelude::*;
use serde_json::json;

use super::*;

mod broken;
mod formats;
mod transcripts;

/// Reads a file and compares what is in it, written in short.
#[track_caller]
fn check(file: &str, expected: &str) {
    let found = shown(Reader::new(file.as_bytes()));
    assert_eq!(found.trim_end(), expected.trim_end(), "\n--- found ---\n{found}");
    // Where the input is cut into pieces makes no difference.
    let pieces = BufReader::with_capacity(3, file.as_bytes());
    assert_eq!(shown(Reader::new(pieces)), found, "read in pieces");
}

/// A trace as lines: what was said by whom, the calls, their results.
fn shown(traces: impl Iterator<Item = Result<Trace, BadLine>>) -> String {
    let mut out = String::new();
    for trace in traces {
        match trace {
            Ok(trace) => show(&mut out, &trace),
            Err(bad) => writeln!(out, "{bad}").unwrap(),
        }
    }
    out
}

fn show(out: &mut String, trace: &Trace) {
    write!(out, "{} ({} messages)", trace.id, trace.messages).unwrap();
    for (key, value) in
        [("dataset", &trace.dataset), ("model", &trace.model), ("task", &trace.task)]
    {
        if let Some(value) = value {
            write!(out, " {key}={value}").unwrap();
        }
    }
    if let Some(outcome) = trace.outcome {
        write!(out, " outcome={outcome}").unwrap();
    }
    if let Some(labels) = &trace.labels {
        write!(out, " labels={labels}").unwrap();
    }
    out.push('\n');
    for turn in &trace.turns {
        show_turn(out, turn);
    }
}

fn show_turn(out: &mut String, turn: &Turn) {
    match turn {
        Turn::Prompt { text, person, at, message } => {
            let who = if *person { "person" } else { "system" };
            writeln!(out, "{message} {who}: {text:?}{}", clock(*at)).unwrap();
        }
        Turn::Answer { text, calls, usage, model, at, message } => {
            write!(out, "{message} answer: {text:?}{}", clock(*at)).unwrap();
            if let Some(Usage { input, output, cache_read, cache_write }) = usage {
                let (r, w) = (cache_read.0, cache_write.0);
                write!(out, " in={} out={} read={r} write={w}", input.0, output.0).unwrap();
            }
            if let Some(model) = model {
                write!(out, " by {model}").unwrap();
            }
            out.push('\n');
            for call in calls {
                write!(out, "  {} {}{}", call.message, call.name, call.arguments).unwrap();
                if let Some(result) = &call.result {
                    let sign = if result.is_error { "!" } else { "=" };
                    let RecordedResult { text, at, message, .. } = result;
                    write!(out, " {sign} {text:?} in {message}{}", clock(*at)).unwrap();
                }
                out.push('\n');
            }
        }
    }
}

fn clock(at: Option<Time>) -> String {
    at.map_or(String::new(), |Time(millis)| format!(" @{millis}"))
}
