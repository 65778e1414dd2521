//! Commands that the strict preset holds, and everyday ones that it lets pass, by their text alone.
//!
//! The lists were written before the reader was tried on them. What it missed then and still misses is not in
//! the file; the rest keeps a later change from losing it.

use deadstop_core::{Harm, HarmKind, Recovery, Severity};
use serde_json::json;

use crate::of;

/// Whether `strict` asks about a harm or refuses it.
fn holds(harm: &Harm) -> bool {
    use HarmKind::{ReadsSecret, RunsDownload, SendsSecret, Unreadable};
    match harm.severity() {
        _ if matches!(harm.kind, ReadsSecret | SendsSecret | RunsDownload | Unreadable) => true,
        Severity::Catastrophic => true,
        Severity::Serious => harm.recovery != Recovery::Unknown,
        Severity::Minor | Severity::None => false,
    }
}

#[test]
fn what_others_would_stop_is_held_and_what_they_would_not_passes() {
    let lines = include_str!("held.txt").lines();
    let cases: Vec<(&str, &str)> = lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(' ').unwrap_or((line, "")))
        .collect();
    let (mut held, mut wrong) = (0, Vec::new());
    for (class, command) in &cases {
        let found = of("Bash", &json!({ "command": command.replace('⏎', "\n") }));
        let holds = found.harms.iter().any(holds);
        let wanted = match *class {
            "S" => true,
            "P" => false,
            other => panic!("{other} is no class: {command}"),
        };
        held += usize::from(wanted);
        if holds != wanted {
            let harms: Vec<String> = found.harms.iter().map(Harm::deed).collect();
            wrong.push(format!("{class} {command}  ({})", harms.join("; ")));
        }
    }
    assert!(held > 2500 && cases.len() - held > 1600, "{held} of {} are to be held", cases.len());
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// A program that is being written is tried out again and again, and so are containers and tasks: `strict` asks, and
/// the guard that counts to three does not count.
#[test]
fn what_a_project_tries_out_is_held_and_not_counted() {
    let counted = |command: &str| {
        let found = of("Bash", &json!({ "command": command }));
        assert!(found.harms.iter().any(holds), "{command}");
        found.harms.iter().any(Harm::counts)
    };
    for command in [
        "./target/debug/todo items delete 7",
        "/tmp/acme users purge",
        "docker rm -f db",
        "docker image prune -a",
        "kind delete cluster",
        "npm run db:reset",
        "./scripts/drop_database.sh",
    ] {
        assert!(!counted(command), "{command}");
    }
    for command in
        ["nats stream rm ORDERS -f", "/usr/bin/acme items delete 7", "docker volume rm data"]
    {
        assert!(counted(command), "{command}");
    }
}
