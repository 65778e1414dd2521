//! The summary at the end of a run: on stderr, since stdout is the command's, and as JSON where the
//! user asks for it.

use std::fmt::Write as _;
use std::time::Duration;

use deadstop_core::{Millis, Tokens};
use deadstop_process::{Ended, Means};
use serde_json::{Value, json};

use super::supervise::Heard;
use super::watch::Used;

/// Sentences of one kind that are shown to people.
const SHOWN: usize = 3;

/// A run that is over.
#[derive(Debug)]
pub(super) struct Summary {
    pub(super) agent: String,
    pub(super) session: String,
    pub(super) elapsed: Duration,
    pub(super) used: Used,
    pub(super) heard: Heard,
    pub(super) fate: Fate,
    pub(super) exit_code: u8,
    /// What became of the processes; nothing if there were none.
    pub(super) processes: Option<Ended>,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// By itself.
    Finished,
    /// By us.
    Stopped {
        /// Why, as one clause.
        why: String,
        /// Which guard it was, if it was one and if that is known.
        guard: Option<&'static str>,
    },
    /// It was never started, because it would have been stopped at once.
    NotStarted {
        /// Why.
        why: String,
    },
    /// By a signal to us, with its number.
    Signalled(u8),
}

impl Summary {
    /// For people.
    pub(super) fn text(&self) -> String {
        let elapsed = Millis(u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX));
        let mut lines = Vec::new();
        match &self.fate {
            Fate::Finished => {}
            Fate::Stopped { why, guard } => {
                let guard = guard.map(|guard| format!(" (guard: {guard})")).unwrap_or_default();
                lines.push(format!("stopped after {elapsed}: {why}{guard}"));
            }
            Fate::NotStarted { why } => lines.push(format!("not started: {why}")),
            Fate::Signalled(number) => {
                lines.push(format!("ended after {elapsed} by signal {number}"));
            }
        }
        lines.push(self.figures(elapsed));
        for (what, sentences) in [("warning", &self.heard.warnings), ("block", &self.heard.blocks)]
        {
            let more = sentences.len().saturating_sub(SHOWN);
            if more > 0 {
                lines.push(format!("{more} earlier {what}s"));
            }
            lines.extend(sentences.iter().skip(more).cloned());
        }
        if self.heard.silence {
            lines.push(
                "the server did not answer for a while: a stop in that time went unseen".into(),
            );
        }
        lines.extend(self.processes.and_then(|ended| ended_processes(&self.fate, ended)));
        let mut text = String::new();
        for line in lines {
            let line: String =
                line.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
            let _ = writeln!(text, "deadstop: {line}");
        }
        text
    }

    fn figures(&self, elapsed: Millis) -> String {
        let used = &self.used;
        if used.model_calls == 0 && used.tool_calls == 0 {
            return format!(
                "no calls came through the gateway in {elapsed}; `deadstop run --help` says which \
                 programs need more than their environment"
            );
        }
        format!(
            "{}, {}, {} in and {} out, {} in {elapsed}",
            plural(used.model_calls, "model call"),
            plural(used.tool_calls, "tool call"),
            Tokens(used.input),
            Tokens(used.output),
            used.cost,
        )
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        let (fate, why, guard) = match &self.fate {
            Fate::Finished => ("finished", None, None),
            Fate::Stopped { why, guard } => ("stopped", Some(why.clone()), *guard),
            Fate::NotStarted { why } => ("not_started", Some(why.clone()), None),
            Fate::Signalled(number) => ("signalled", Some(format!("signal {number}")), None),
        };
        json!({
            "agent": self.agent,
            "session": self.session,
            "fate": fate,
            "why": why,
            "guard": guard,
            "exit_code": self.exit_code,
            "elapsed_ms": u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX),
            "model_calls": self.used.model_calls,
            "tool_calls": self.used.tool_calls,
            "input_tokens": self.used.input,
            "output_tokens": self.used.output,
            "cost_usd": self.used.cost.dollars(),
            "warnings": self.heard.warnings,
            "blocks": self.heard.blocks,
            "processes": self.processes.map(|ended| json!({
                "ended_politely": ended.politely,
                "ended_forcibly": ended.forcibly,
                "means": match ended.means {
                    Means::CgroupV2 => "cgroup_v2",
                    Means::Subreaper => "subreaper",
                    Means::ProcessGroups => "process_groups",
                },
            })),
        })
    }
}

fn ended_processes(fate: &Fate, ended: Ended) -> Option<String> {
    let all = ended.politely + ended.forcibly;
    let processes = match all {
        0 => return None,
        1 => "1 process".to_owned(),
        many => format!("{many} processes"),
    };
    let left = if *fate == Fate::Finished { " that the command had left behind" } else { "" };
    let force = match ended.forcibly {
        0 => String::new(),
        forced if forced == all => ", by force".to_owned(),
        forced => format!(", {forced} of them by force"),
    };
    Some(format!("ended {processes}{left}{force}"))
}

fn plural(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deadstop_core::NanoUsd;

    fn summary(fate: Fate) -> Summary {
        Summary {
            agent: "a".into(),
            session: "s".into(),
            elapsed: Duration::from_secs(3),
            used: Used {
                model_calls: 4,
                tool_calls: 1,
                input: 1200,
                output: 30,
                cost: NanoUsd(4_200_000),
                reserved: NanoUsd(0),
            },
            heard: Heard::default(),
            fate,
            exit_code: 86,
            processes: Some(Ended { politely: 1, forcibly: 2, means: Means::Subreaper }),
        }
    }

    #[test]
    fn says_what_happened() {
        let mut stopped =
            summary(Fate::Stopped { why: "a loop\u{1b}".into(), guard: Some("loop") });
        stopped.heard.warnings = (1..=4).map(|n| format!("warned: {n}")).collect();
        assert_eq!(
            stopped.text(),
            "deadstop: stopped after 3 s: a loop\u{fffd} (guard: loop)\n\
             deadstop: 4 model calls, 1 tool call, 1,200 tokens in and 30 tokens out, $0.0042 in 3 s\n\
             deadstop: 1 earlier warnings\n\
             deadstop: warned: 2\ndeadstop: warned: 3\ndeadstop: warned: 4\n\
             deadstop: ended 3 processes, 2 of them by force\n"
        );
        let finished = Summary { used: Used::default(), ..summary(Fate::Finished) };
        assert_eq!(
            finished.text(),
            "deadstop: no calls came through the gateway in 3 s; `deadstop run --help` says which \
             programs need more than their environment\n\
             deadstop: ended 3 processes that the command had left behind, 2 of them by force\n"
        );
    }
}
