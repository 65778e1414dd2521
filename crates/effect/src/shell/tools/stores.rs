//! Databases that a tool of a cloud or a client of their own is told what to do with.

use super::super::super::{http, sql, target};
use super::super::Input;
use super::super::command::value_of;
use super::operands;

/// SQL that a cloud's tool runs.
pub(super) fn query(arguments: &[String]) -> Option<(String, String)> {
    let text = value_of(arguments, &["--command"]);
    let text = text.as_ref().or_else(|| arguments.iter().rev().find(|word| word.contains(' ')))?;
    let deed = sql::of(text)?.harms.into_iter().next()?;
    Some((deed.verb, deed.target))
}

pub(super) fn redis(name: &str, arguments: &[String], input: &Input) -> Option<(String, String)> {
    let host = value_of(arguments, &["-h", "-u"]).unwrap_or_default();
    let flushes = arguments.windows(2).find(|pair| {
        pair[0].eq_ignore_ascii_case("eval") && pair[1].to_ascii_lowercase().contains("flush")
    });
    if let Some(pair) = flushes {
        return Some((format!("{name} EVAL"), pair[1].clone()));
    }
    let fed = input.text.as_deref().unwrap_or_default();
    let mut said: Vec<Vec<&str>> =
        fed.lines().map(|line| line.split_whitespace().collect()).collect();
    said.push(operands(arguments).into_iter().filter(|word| **word != *host).collect());
    said.iter().find_map(|words| {
        let (command, keys) = words.split_first()?;
        match command.to_ascii_uppercase().as_str() {
            flush @ ("FLUSHALL" | "FLUSHDB") => {
                Some((format!("{name} {flush}"), http::place(&host)))
            }
            delete @ ("DEL" | "UNLINK" | "HDEL" | "GETDEL") => {
                let keys = match keys {
                    [] => target::join(&input.from),
                    keys => target::join(keys),
                };
                Some((format!("{name} {delete}"), keys))
            }
            _ => None,
        }
    })
}

pub(super) fn mongo(
    name: &str,
    arguments: &[String],
    fed: Option<&str>,
) -> Option<(String, String)> {
    let script = value_of(arguments, &["--eval"]).or_else(|| fed.map(str::to_owned))?;
    let deeds = [
        "dropDatabase(",
        "deleteMany(",
        "deleteOne(",
        ".drop(",
        ".remove(",
        "dropUser(",
        "shutdownServer(",
        "shutdown:",
        "removeShard(",
        "dropIndexes(",
        "dropRole(",
        "updateMany({},",
    ];
    let deed = deeds.iter().find(|deed| script.contains(*deed))?;
    Some((format!("{name} {}", deed.trim_matches(['.', '('])), target::clip(script.trim())))
}
