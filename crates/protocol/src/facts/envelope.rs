//! What hosts wrap around things: results of tools with a head of their own, results that come as a
//! user's text, and the summary that takes a history's place.

use std::borrow::Cow;

use serde_json::Value;

/// A result without what its host put around it.
pub(crate) struct Opened<'a> {
    pub(crate) text: Cow<'a, str>,
    /// Whether the host says that it failed.
    pub(crate) failed: bool,
}

/// Takes a result out of the envelope of a known host.
///
/// Codex has two: lines (`Chunk ID:`, `Wall time:`, `Process exited with code`, `Output:`) and JSON
/// (`{"output":…, "metadata":{"exit_code":…}}`). Gemini CLI and Qwen Code write lines (`Output:`,
/// `Exit Code:`, `Process Group PGID:`). Copilot CLI numbers its shells in a last line (`<shellId: 0
/// completed with exit code 1>`). The exit code stays with the text, everything else of the envelope is
/// different each time.
pub(crate) fn open(result: &str) -> Opened<'_> {
    let found = codex_lines(result).or_else(|| codex_json(result));
    let found = found.or_else(|| gemini_lines(result)).or_else(|| copilot_line(result));
    found.unwrap_or(Opened { text: Cow::Borrowed(result), failed: false })
}

fn codex_lines(result: &str) -> Option<Opened<'_>> {
    const HEAD: [&str; 5] =
        ["Chunk ID:", "Wall time:", "Process ", "Original token count:", "Exit code:"];
    if !HEAD.iter().any(|head| result.starts_with(head)) {
        return None;
    }
    let mut rest = result;
    let mut exit = None;
    // A head is a few lines long; whatever stands there otherwise is no envelope.
    for _ in 0..8 {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        if line.trim_end() == "Output:" {
            let code = exit.unwrap_or(0);
            let text = if code == 0 { Cow::Borrowed(after) } else { exited(code, after) };
            return Some(Opened { text, failed: code != 0 });
        }
        let code = line
            .strip_prefix("Process exited with code ")
            .or_else(|| line.strip_prefix("Exit code: "))
            .and_then(|code| code.trim().parse().ok());
        exit = exit.or(code);
        if after.is_empty() || !HEAD.iter().any(|head| line.starts_with(head)) {
            return None;
        }
        rest = after;
    }
    None
}

fn codex_json(result: &str) -> Option<Opened<'_>> {
    if !result.starts_with("{\"output\":") {
        return None;
    }
    let value: Value = serde_json::from_str(result).ok()?;
    let code = value["metadata"]["exit_code"].as_i64()?;
    let output = value["output"].as_str()?;
    let text = if code == 0 { Cow::Owned(output.to_owned()) } else { exited(code, output) };
    Some(Opened { text, failed: code != 0 })
}

fn gemini_lines(result: &str) -> Option<Opened<'_>> {
    let inner = result.trim().trim_start_matches("<untrusted_context>").trim_start();
    let inner = inner.trim_end_matches("</untrusted_context>");
    if !["Output: ", "Command: ", "Output:\n"].iter().any(|head| inner.starts_with(head)) {
        return None;
    }
    // What follows the output: the last lines, whatever the output itself says.
    let tail = |line: &&str| {
        ["Error: ", "Exit Code: ", "Signal: ", "Background PIDs: ", "Process Group PGID: "]
            .iter()
            .any(|head| line.starts_with(head))
    };
    let last: Vec<&str> = inner.lines().rev().take(8).take_while(tail).collect();
    let code = last.iter().find_map(|line| line.strip_prefix("Exit Code: "))?;
    let code = code.trim().parse().unwrap_or(0);
    let lines = inner.lines().count() - last.len();
    let output = inner.lines().take(lines).filter(|line| !line.starts_with("Directory: "));
    let output = output.collect::<Vec<_>>().join("\n");
    let text = if code == 0 { Cow::Owned(output) } else { exited(code, &output) };
    Some(Opened { text, failed: code != 0 })
}

fn copilot_line(result: &str) -> Option<Opened<'_>> {
    let inner = result.trim_end().strip_suffix('>')?;
    let (output, last) = inner.rsplit_once("<shellId: ")?;
    let (shell, code) = last.split_once(" completed with exit code ")?;
    shell.parse::<u64>().ok()?;
    let code: i64 = code.parse().ok()?;
    let output = output.trim_end();
    let text = if code == 0 { Cow::Borrowed(output) } else { exited(code, output) };
    Some(Opened { text, failed: code != 0 })
}

fn exited(code: i64, output: &str) -> Cow<'static, str> {
    Cow::Owned(format!("exit {code}\n{output}"))
}

/// Whether a text in a user's name is the result of a tool: agents that write their calls as text
/// (ReAct, smolagents) get their results so.
pub(crate) fn is_observation(text: &str) -> bool {
    const HEADS: [&str; 9] = [
        "observation:",
        "[output of step",
        "execution logs:",
        "execution result of",
        "tool result:",
        "tool response:",
        "tool output:",
        "<tool_response>",
        "<tool_result>",
    ];
    let text = text.trim_start();
    HEADS
        .iter()
        .any(|head| text.get(..head.len()).is_some_and(|start| start.eq_ignore_ascii_case(head)))
}

/// The newest result in a text in a user's name that tells a whole run again, as DSPy's agents do:
/// thought, tool, arguments and observation of each step, each below a heading with the step's number.
pub(crate) fn last_observation(text: &str) -> Option<&str> {
    const HEAD: &str = "[[ ## observation_";
    // Nearly no text has one, which is found out faster from the front.
    memchr::memmem::find(text.as_bytes(), HEAD.as_bytes())?;
    let (_, last) = text.rsplit_once(HEAD).filter(|(before, _)| before.ends_with('\n'))?;
    let (number, rest) = last.split_once(" ## ]]\n")?;
    number.parse::<u32>().ok()?;
    // What follows is the next heading, or what the model is to answer.
    let ends = ["\n\n[[ ## ", "\n\nRespond with the corresponding output fields"];
    let end = ends.iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
    Some(rest[..end].trim())
}

/// Whether a text in a user's name is a summary that takes the place of a history: the context was
/// compacted.
pub(crate) fn is_summary(text: &str) -> bool {
    const HEADS: [&str; 4] = [
        "This session is being continued from a previous conversation",
        "Another language model started to solve this problem",
        "<conversation_summary>",
        "The conversation history before this point was compacted",
    ];
    let text = text.trim_start();
    HEADS.iter().any(|head| text.starts_with(head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_observation_of_a_retold_run_is_found() {
        let told = "[[ ## question ## ]]\nWhich?\n\n[[ ## trajectory ## ]]\n[[ ## thought_0 ## ]]\nI look.\n\n\
                    [[ ## tool_name_0 ## ]]\nget\n\n[[ ## observation_0 ## ]]\nfirst\n\n\
                    [[ ## thought_1 ## ]]\nAgain.\n\n[[ ## observation_1 ## ]]\nsecond\n\nline";
        let asked = format!(
            "{told}\n\nRespond with the corresponding output fields, starting with `[[ ## next ## ]]`."
        );
        for (text, found) in [
            (told, Some("second\n\nline")),
            (asked.as_str(), Some("second\n\nline")),
            ("[[ ## question ## ]]\nWhat is [[ ## observation_1 ## ]]\nin DSPy?", None),
            ("\n[[ ## observation_x ## ]]\nno", None),
            ("[[ ## question ## ]]\nWhich?", None),
        ] {
            assert_eq!(last_observation(text), found, "{text}");
        }
    }

    #[test]
    fn codex_results_are_taken_out() {
        let lines = |id: &str, code: i64| {
            format!(
                "Chunk ID: {id}\nWall time: 0.0512 seconds\nProcess exited with code {code}\n\
                 Original token count: 12\nOutput:\nno such file\nreally"
            )
        };
        let opened = |text: &str| {
            let opened = open(text);
            (opened.text.into_owned(), opened.failed)
        };
        assert_eq!(opened(&lines("7c44eb", 0)), ("no such file\nreally".to_owned(), false));
        assert_eq!(opened(&lines("7c44eb", 2)), opened(&lines("f00d12", 2)));
        assert_eq!(opened(&lines("a", 2)), ("exit 2\nno such file\nreally".to_owned(), true));
        let json = r#"{"output":"boom\n","metadata":{"exit_code":1,"duration_seconds":0.1}}"#;
        assert_eq!(opened(json), ("exit 1\nboom\n".to_owned(), true));
        let gemini = |code: i64, group: u32| {
            format!(
                "<untrusted_context>\nOutput: cat: x: No such file\nExit Code: {code}\n\
                 Process Group PGID: {group}\n</untrusted_context>"
            )
        };
        let failed = ("exit 1\nOutput: cat: x: No such file".to_owned(), true);
        assert_eq!(opened(&gemini(1, 1623)), failed);
        assert_eq!(opened(&gemini(1, 1624)), failed);
        assert!(!opened(&gemini(0, 1)).1);
        let older = "Command: cat x\nDirectory: (root)\nOutput: no\nError: (none)\nExit Code: 2\n\
                     Signal: (none)\nBackground PIDs: (none)\nProcess Group PGID: 7";
        assert_eq!(opened(older), ("exit 2\nCommand: cat x\nOutput: no".to_owned(), true));
        let copilot = |shell: u32, code: u32| {
            format!("cat: x: No such file\n<shellId: {shell} completed with exit code {code}>")
        };
        assert_eq!(opened(&copilot(0, 1)), ("exit 1\ncat: x: No such file".to_owned(), true));
        assert_eq!(opened(&copilot(1, 1)), opened(&copilot(7, 1)));
        assert_eq!(opened(&copilot(7, 0)), ("cat: x: No such file".to_owned(), false));
        for other in [
            "",
            "<shellId: x completed with exit code 1>",
            "a <shellId: 1 completed",
            "Output: the log says\nExit Code: 1\nand goes on",
            "Wall time: 3 s",
            "Chunk ID: x\nsomething else\nOutput:\n",
            "{\"output\": 3}",
            "{\"output\":\"x\"}",
            "no such file",
        ] {
            assert_eq!(opened(other), (other.to_owned(), false), "{other}");
        }
    }

    #[test]
    fn results_and_summaries_in_a_users_name() {
        for (text, observation, summary) in [
            ("Observation: 3 files", true, false),
            (" OBSERVATION:\nnothing", true, false),
            ("[OUTPUT OF STEP 3] -> Observation:\nx", true, false),
            ("<tool_response>{}</tool_response>", true, false),
            ("My observation: it is late", false, false),
            ("This session is being continued from a previous conversation that ran…", false, true),
            ("please go on", false, false),
            ("ü", false, false),
        ] {
            assert_eq!((is_observation(text), is_summary(text)), (observation, summary), "{text}");
        }
    }
}
