//! The table of what destroys and what does not: every case is told, and every miss.

use serde_json::{Value, json};

use super::super::of;
use super::told;

/// What a line of the table asks.
fn asked(kind: &str, text: &str) -> (String, Value) {
    let text = text.replace('⏎', "\n");
    match kind {
        "sh" => ("Bash".to_owned(), json!({ "command": text })),
        "sql" => ("run_sql".to_owned(), json!({ "sql": text })),
        "call" => {
            let (tool, arguments) = text.split_once(' ').unwrap_or((&text, "{}"));
            let arguments = serde_json::from_str(arguments);
            (tool.to_owned(), arguments.unwrap_or_else(|error| panic!("{text}: {error}")))
        }
        other => panic!("{other} is no way to ask"),
    }
}

#[test]
fn nothing_destructive_is_missed_and_nothing_harmless_flagged() {
    let lines = include_str!("table.txt").lines();
    let cases: Vec<&str> =
        lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let (mut destructive, mut misses) = (0, Vec::new());
    for line in &cases {
        let (class, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (kind, text) = rest.split_once(' ').unwrap_or((rest, ""));
        let (tool, arguments) = asked(kind, text);
        let found = told(&of(&tool, &arguments));
        match class {
            "D" if found.is_empty() => misses.push(format!("missed:  {rest}")),
            "H" if !found.is_empty() => misses.push(format!("flagged: {rest}  ({found})")),
            "D" | "H" => {}
            other => panic!("{other} is no class: {line}"),
        }
        destructive += usize::from(class == "D");
    }
    let harmless = cases.len() - destructive;
    assert!(destructive >= 150 && harmless >= 150, "{destructive} and {harmless} cases");
    let all = cases.len();
    assert!(misses.is_empty(), "{} of {all} cases:\n{}", misses.len(), misses.join("\n"));
}
