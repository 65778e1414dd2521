//! `deadstop check`, from the outside: a line in, a line out, whatever is in it.

#[cfg(test)]
mod check {
    use std::io::{BufRead, BufReader, Write};
    use std::path::Path;
    use std::process::{Command, Output, Stdio};
    use std::sync::mpsc;
    use std::time::Duration;

    use serde_json::Value;

    fn run(cwd: &Path, arguments: &[&str], input: &str) -> Output {
        let mut child = Command::new(env!("CARGO_BIN_EXE_deadstop"))
            .args(arguments)
            .current_dir(cwd)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    #[test]
    fn every_line_is_answered_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let input = concat!(
            "{\"tool\":\"Bash\",\"input\":{\"command\":\"rm -rf /\"}}\n",
            "no json\n",
            "{\"tool\":\"Bash\",\"input\":{\"command\":\"ls\"},\"label\":\"pass\"}\n",
            "\n",
            "{\"tool\":\"Read\",\"input\":{\"file_path\":\".env\"}}",
        );
        let output = run(folder.path(), &["check", "--json"], input);
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert_eq!(lines[0]["verdict"]["balanced"], "ask");
        assert_eq!(lines[0]["verdict"]["strict"], "block");
        assert_eq!(lines[0]["severity"], "catastrophic");
        let keys: Vec<&String> = lines[0].as_object().unwrap().keys().collect();
        assert_eq!(keys.len(), 6, "{keys:?}");
        assert!(lines[1]["error"].as_str().unwrap().starts_with("line 2: not JSON"));
        assert_eq!(lines[2]["verdict"]["strict"], "allow");
        assert!(lines[3]["error"].is_string());
        assert_eq!(lines[4]["harms"][0]["kind"], "reads_secret");
        assert_eq!(lines[4]["verdict"]["strict"], "ask");
    }

    /// A client that sends a call and waits for its answer before it sends the next.
    #[test]
    fn a_line_is_answered_before_the_next_one_comes() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_deadstop"))
            .args(["check", "--json"])
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut to = child.stdin.take().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        let (send, answers) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            for line in from.lines() {
                let _ = send.send(line.unwrap());
            }
        });
        for command in ["rm -rf ~", "ls"] {
            let call = serde_json::json!({ "tool": "Bash", "input": { "command": command } });
            to.write_all(format!("{call}\n").as_bytes()).unwrap();
            let answer = answers.recv_timeout(Duration::from_secs(20)).expect("no answer came");
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!(answer["verdict"]["strict"] == "allow", command == "ls");
        }
        drop(to);
        assert!(child.wait().unwrap().success());
        reader.join().unwrap();
    }

    #[test]
    fn one_command_is_explained() {
        let folder = tempfile::tempdir().unwrap();
        let output = run(folder.path(), &["check", "cd / && sudo rm -rf etc"], "");
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        for part in
            ["read as", "rm -rf etc", "severity   catastrophic", "strict     block", "instead"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let output = run(folder.path(), &["check"], "");
        assert_eq!(output.status.code(), Some(2));
        let output = run(folder.path(), &["check", "--tool", "x", "--input", "{"], "");
        assert_eq!(output.status.code(), Some(2));
    }
}
