//! Everyday commands and what `strict` makes of them, from the text alone.

use deadstop_core::Verdict;
use serde_json::json;

use super::Checker;
use crate::facts::effect::Nowhere;

/// Written from what guards by other makers are about, and not from their lists.
#[test]
fn what_destroys_is_held_and_what_looks_like_it_passes() {
    let lines = include_str!("everyday.txt").lines();
    let checker = Checker::default();
    let (mut wrong, mut stops, mut passes) = (Vec::new(), 0, 0);
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (label, text) = line.split_once(' ').unwrap_or((line, ""));
        let checked = match text.split_once(' ').filter(|(_, input)| input.starts_with("{\"")) {
            // A tool and its input.
            Some((tool, input)) => {
                let input = serde_json::from_str(input);
                checker.check(tool, &input.unwrap_or_else(|e| panic!("{line}: {e}")), &Nowhere)
            }
            None => {
                let command = text.replace('⏎', "\n");
                checker.check("Bash", &json!({ "command": command }), &Nowhere)
            }
        };
        let held = checked.verdict.strict >= Verdict::Ask;
        match label {
            "stop" => stops += 1,
            "pass" => passes += 1,
            other => panic!("{other} is no label: {line}"),
        }
        if held != (label == "stop") {
            wrong.push(format!("{line}\n        {:?}", checked.harms));
        }
    }
    assert!(stops >= 800 && passes >= 600, "{stops} and {passes} commands");
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), stops + passes, wrong.join("\n"));
}
