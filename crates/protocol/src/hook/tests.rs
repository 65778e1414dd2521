//! What each host says and is told, as a table.

use serde_json::json;

use super::*;

fn all() -> [Reply; 5] {
    [
        Reply::Pass,
        Reply::Warn("warned: w".into()),
        Reply::Ask("asks: a".into()),
        Reply::Refuse("blocked: b".into()),
        Reply::End("stopped: k".into()),
    ]
}

/// What a host is told at an event: passed, warned, asked, refused, ended.
#[track_caller]
fn check(host: Host, event: &str, expected: [&str; 5]) {
    for (reply, expected) in all().iter().zip(expected) {
        let output = host.answer(event, reply);
        assert_eq!(
            (output.stdout.as_str(), output.code),
            (expected, 0),
            "{host:?} {event} {reply:?}"
        );
        let refuses = matches!(reply, Reply::Refuse(_) | Reply::End(_));
        if host.moment(event) == Moment::Before {
            let may_ask = expected.contains("\"ask\"");
            let refuses = refuses || (matches!(reply, Reply::Ask(_)) && !may_ask);
            assert_eq!(host.refuses(event, &output), refuses, "{host:?} {event} {reply:?}");
        }
    }
}

#[test]
fn claude_code_is_told() {
    let deny = r#"{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"Deadstop blocked this call: b. Do not retry."}}"#;
    let ended = r#"{"continue":false,"stopReason":"Deadstop stopped this session: k."}"#;
    check(
        Host::ClaudeCode,
        "PreToolUse",
        [
            "",
            r#"{"systemMessage":"Deadstop warns: w."}"#,
            r#"{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"ask","permissionDecisionReason":"Deadstop asks: a."}}"#,
            deny,
            r#"{"continue":false,"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"Deadstop stopped this session: k. Do not retry."},"stopReason":"Deadstop stopped this session: k."}"#,
        ],
    );
    check(
        Host::ClaudeCode,
        "PostToolUse",
        ["", r#"{"systemMessage":"Deadstop warns: w."}"#, "", "", ended],
    );
    check(
        Host::ClaudeCode,
        "Stop",
        ["", r#"{"systemMessage":"Deadstop warns: w."}"#, "", "", ended],
    );
    let warned = r#"{"systemMessage":"Deadstop warns: w."}"#;
    check(Host::ClaudeCode, "PostToolBatch", ["", warned, "", "", ended]);
    check(
        Host::ClaudeCode,
        "UserPromptSubmit",
        [
            "",
            r#"{"systemMessage":"Deadstop warns: w."}"#,
            "",
            r#"{"continue":false,"decision":"block","reason":"Deadstop blocked this call: b.","stopReason":"Deadstop blocked this call: b."}"#,
            r#"{"continue":false,"decision":"block","reason":"Deadstop stopped this session: k.","stopReason":"Deadstop stopped this session: k."}"#,
        ],
    );
    check(Host::ClaudeCode, "Notification", ["", "", "", "", ""]);
    let refused = |why: &str| {
        format!(
            r#"{{"hookSpecificOutput":{{"additionalContext":"Deadstop refused this sub-agent and its tool calls ({why}). Do not use tools: say that you were refused, and finish.","hookEventName":"SubagentStart"}}}}"#
        )
    };
    let (blocked, dead) = (refused("blocked: b"), refused("stopped: k"));
    check(Host::ClaudeCode, "SubagentStart", ["", warned, "", &blocked, &dead]);
    check(Host::Codex, "SubagentStart", ["", "", "", &blocked, &dead]);
}

#[test]
fn tools_that_start_sub_agents_are_known_by_host() {
    let said = |name: &str, input: Value| json!({ "session_id": "s", "tool_name": name, "tool_input": input, "agent_id": "a" });
    for (host, name, input, expected) in [
        (Host::ClaudeCode, "Agent", json!({ "prompt": "p" }), true),
        (Host::ClaudeCode, "Task", json!({ "prompt": "p" }), true),
        (Host::ClaudeCode, "Agent", json!({ "prompt": "p", "resume": "a1" }), false),
        (Host::ClaudeCode, "TaskList", json!({}), false),
        (Host::Codex, "spawn_agent", json!({}), true),
        (Host::Codex, "Agent", json!({}), false),
        (Host::Gemini, "invoke_agent", json!({ "agent_name": "x" }), true),
        (Host::Cursor, "Task", json!({}), true),
        (Host::OpenCode, "task", json!({}), true),
        (Host::Copilot, "bash", json!({}), false),
    ] {
        let before = host.events()[0].0;
        let bytes = said(name, input).to_string();
        let event = host.read(bytes.as_bytes(), Some(before)).unwrap();
        let Kind::Before(tool) = event.kind else { panic!("{host:?} {name}") };
        assert_eq!(tool.spawns, expected, "{host:?} {name}");
    }
    for (event, expected) in [
        ("SubagentStart", Kind::Begins { parent: None }),
        ("SubagentStop", Kind::Ended),
        ("Stop", Kind::Standing),
    ] {
        for host in [Host::ClaudeCode, Host::Codex] {
            let read = host.read(said("", json!({})).to_string().as_bytes(), Some(event)).unwrap();
            assert_eq!((read.kind, read.scope), (expected.clone(), vec!["a".to_owned()]));
        }
    }
}

#[test]
fn codex_is_told_nothing_that_spoils_a_refusal() {
    let deny = |why: &str| {
        format!(
            r#"{{"hookSpecificOutput":{{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"Deadstop {why}. Do not retry."}}}}"#
        )
    };
    let (asked, refused, ended) =
        (deny("asks: a"), deny("blocked this call: b"), deny("stopped this session: k"));
    check(Host::Codex, "PreToolUse", ["", "", &asked, &refused, &ended]);
    let ended = r#"{"continue":false,"stopReason":"Deadstop stopped this session: k."}"#;
    check(Host::Codex, "PostToolUse", ["", "", "", "", ended]);
    check(Host::Codex, "Stop", ["", "", "", "", ended]);
    check(Host::Codex, "SessionStart", ["", "", "", "", ended]);
    let blocked = r#"{"decision":"block","reason":"Deadstop blocked this call: b."}"#;
    check(Host::Codex, "UserPromptSubmit", ["", "", "", blocked, ended]);
    // What Claude Code is told would let the call through.
    let spoilt = Host::ClaudeCode.answer("PreToolUse", &Reply::End("x".into()));
    assert!(Host::ClaudeCode.refuses("PreToolUse", &spoilt));
    assert!(!Host::Codex.refuses("PreToolUse", &spoilt));
}

#[test]
fn gemini_is_told() {
    let deny = r#"{"decision":"deny","reason":"Deadstop blocked this call: b. Do not retry."}"#;
    let warned = r#"{"systemMessage":"Deadstop warns: w."}"#;
    let asked = r#"{"decision":"deny","reason":"Deadstop asks: a. Do not retry."}"#;
    let both = r#"{"continue":false,"decision":"deny","reason":"Deadstop stopped this session: k. Do not retry.","stopReason":"Deadstop stopped this session: k."}"#;
    let ended = r#"{"continue":false,"stopReason":"Deadstop stopped this session: k."}"#;
    check(Host::Gemini, "BeforeTool", ["{}", warned, asked, deny, both]);
    check(Host::Gemini, "AfterTool", ["{}", warned, "{}", "{}", ended]);
    let blocked = r#"{"decision":"deny","reason":"Deadstop blocked this call: b."}"#;
    check(Host::Gemini, "BeforeAgent", ["{}", "{}", "{}", blocked, both]);
    check(Host::Gemini, "AfterAgent", ["{}", "{}", "{}", "{}", ended]);
}

#[test]
fn cursor_is_told() {
    let deny = |why: &str| {
        format!(
            r#"{{"agent_message":"Deadstop {why}. Do not retry.","permission":"deny","user_message":"Deadstop {why}."}}"#
        )
    };
    let (asked, refused, ended) =
        (deny("asks: a"), deny("blocked this call: b"), deny("stopped this session: k"));
    check(Host::Cursor, "preToolUse", ["{}", "{}", &asked, &refused, &ended]);
    let asked = r#"{"agent_message":"Deadstop asks: a.","permission":"ask","user_message":"Deadstop asks: a."}"#;
    check(Host::Cursor, "beforeShellExecution", ["{}", "{}", asked, &refused, &ended]);
    let stop = |why: &str| format!(r#"{{"continue":false,"user_message":"Deadstop {why}."}}"#);
    let (refused, ended) = (stop("blocked this call: b"), stop("stopped this session: k"));
    check(Host::Cursor, "beforeSubmitPrompt", ["{}", "{}", "{}", &refused, &ended]);
    check(Host::Cursor, "stop", ["{}", "{}", "{}", "{}", "{}"]);
}

#[test]
fn copilot_is_told() {
    let decided = |decision: &str, why: &str| {
        format!(
            r#"{{"permissionDecision":"{decision}","permissionDecisionReason":"Deadstop {why}"}}"#
        )
    };
    let (asked, refused, ended) = (
        decided("ask", "asks: a."),
        decided("deny", "blocked this call: b. Do not retry."),
        decided("deny", "stopped this session: k. Do not retry."),
    );
    check(Host::Copilot, "preToolUse", ["", "", &asked, &refused, &ended]);
    let deny = |why: &str, interrupt: bool| {
        format!(
            r#"{{"behavior":"deny","interrupt":{interrupt},"message":"Deadstop {why}. Do not retry."}}"#
        )
    };
    let (refused, ended) =
        (deny("blocked this call: b", false), deny("stopped this session: k", true));
    check(Host::Copilot, "permissionRequest", ["", "", "", &refused, &ended]);
    check(Host::Copilot, "postToolUse", ["", "", "", "", ""]);
}

#[test]
fn qwen_is_told() {
    let deny = |why: &str| {
        format!(
            r#"{{"hookSpecificOutput":{{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"Deadstop {why}. Do not retry."}}}}"#
        )
    };
    let (asked, refused, ended) =
        (deny("asks: a"), deny("blocked this call: b"), deny("stopped this session: k"));
    check(Host::Qwen, "PreToolUse", ["", "", &asked, &refused, &ended]);
    // A `continue: false` there would make it go on.
    check(Host::Qwen, "Stop", ["", "", "", "", ""]);
    let read = |prompt: &str| {
        let said =
            json!({ "session_id": "s", "hook_event_name": "UserPromptSubmit", "prompt": prompt });
        Host::Qwen.read(said.to_string().as_bytes(), None).unwrap().kind
    };
    // It comes before each request to the model; a person's words are only in the first.
    assert_eq!((read(""), read("go")), (Kind::Standing, Kind::Prompt("go".into())));
    let said = json!({ "session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "x",
        "tool_input": {}, "tool_use_id": "toolu_1" });
    let event = Host::Qwen.read(said.to_string().as_bytes(), None).unwrap();
    // The result comes without this id.
    assert_eq!(event.kind, Kind::Before(tool(None, "x", json!({}))));
}

#[test]
fn a_generic_host_is_understood_and_told() {
    let event = |input: &Value, told: Option<&str>| {
        Host::Generic.read(input.to_string().as_bytes(), told).unwrap()
    };
    let ls = json!({ "command": "ls" });
    let before = json!({ "event": "before", "session": "s", "tool": "sh", "arguments": ls, "call": "c",
        "server": "m", "spawns": true, "sub_agent": "a" });
    let read = event(&before, None);
    let expected =
        ToolUse { server: Some("m".into()), spawns: true, ..tool(Some("c"), "sh", ls.clone()) };
    assert_eq!((read.kind, read.scope), (Kind::Before(expected), vec!["a".to_owned()]));
    let after =
        json!({ "session": "s", "tool": "sh", "call": "c", "status": "error", "result": "no" });
    let Kind::After { status, text, .. } = event(&after, Some("after")).kind else { panic!() };
    assert_eq!((status, text.as_str()), (Status::Error, "no"));
    // As Kiro says it, which has no sessions.
    let kiro = json!({ "hook_event_name": "preToolUse", "cwd": "/w", "tool_name": "sh", "tool_input": ls });
    let read = event(&kiro, None);
    assert_eq!((read.kind, read.session.as_str()), (Kind::Before(tool(None, "sh", ls)), "/w"));
    for (reply, decision, code) in [
        (Reply::Pass, "allow", 0),
        (Reply::Warn("w".into()), "allow", 0),
        (Reply::Steer("s".into()), "allow", 0),
        (Reply::Ask("a".into()), "ask", 2),
        (Reply::Refuse("b".into()), "deny", 2),
        (Reply::End("k".into()), "stop", 2),
    ] {
        let output = Host::Generic.answer("before", &reply);
        let said: Value = serde_json::from_str(&output.stdout).unwrap();
        assert_eq!((said["decision"].as_str(), output.code), (Some(decision), code));
        assert_eq!(Host::Generic.refuses("before", &output), code == 2);
        assert_eq!(output.stderr.is_empty(), code == 0, "{output:?}");
    }
}

#[test]
fn opencode_is_told() {
    let said = |decision: &str, why: &str| {
        format!(r#"{{"decision":"{decision}","reason":"Deadstop {why}"}}"#)
    };
    let warned = said("allow", "warns: w.");
    let (asked, refused, ended) = (
        said("deny", "asks: a. Do not retry."),
        said("deny", "blocked this call: b. Do not retry."),
        said("stop", "stopped this session: k. Do not retry."),
    );
    check(Host::OpenCode, "tool.execute.before", ["{}", &warned, &asked, &refused, &ended]);
    check(Host::OpenCode, "tool.execute.after", ["{}", &warned, "{}", "{}", &ended]);
    let plugin =
        plugin(&["/opt/dead stop".to_owned(), "hook".to_owned(), "opencode".to_owned()], true);
    assert!(plugin.contains(r#"const COMMAND = ["/opt/dead stop","hook","opencode"]"#));
    assert!(plugin.contains("const FAIL_CLOSED = true"));
}

fn tool(id: Option<&str>, name: &str, arguments: Value) -> ToolUse {
    ToolUse { id: id.map(str::to_owned), name: name.to_owned(), arguments, ..ToolUse::default() }
}

#[test]
fn every_host_is_understood() {
    let ls = || json!({ "command": "ls" });
    let after = |tool, status, text: &str| Kind::After { tool, status, text: text.to_owned() };
    for (host, event, input, expected) in [
        (
            Host::ClaudeCode,
            None,
            json!({ "session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "Bash",
                "tool_input": ls(), "tool_use_id": "t1", "agent_id": "a1" }),
            Some(Kind::Before(tool(Some("t1"), "Bash", ls()))),
        ),
        (
            Host::ClaudeCode,
            None,
            json!({ "session_id": "s", "hook_event_name": "PostToolUse", "tool_name": "Bash",
                "tool_input": ls(), "tool_use_id": "t1", "tool_response": { "stdout": "x" } }),
            Some(after(tool(Some("t1"), "Bash", ls()), Status::Ok, r#"{"stdout":"x"}"#)),
        ),
        (
            Host::ClaudeCode,
            None,
            json!({ "session_id": "s", "hook_event_name": "PostToolUseFailure", "tool_name": "Bash",
                "tool_input": ls(), "tool_use_id": "t1", "error": "no" }),
            Some(after(tool(Some("t1"), "Bash", ls()), Status::Error, "no")),
        ),
        (
            Host::ClaudeCode,
            None,
            json!({ "session_id": "s", "hook_event_name": "UserPromptSubmit", "prompt": "hi" }),
            Some(Kind::Prompt("hi".into())),
        ),
        (
            Host::ClaudeCode,
            None,
            json!({ "session_id": "s", "hook_event_name": "Stop", "stop_hook_active": false }),
            Some(Kind::Standing),
        ),
        (
            Host::ClaudeCode,
            None,
            json!({ "session_id": "s", "hook_event_name": "Notification" }),
            Some(Kind::Other),
        ),
        (Host::ClaudeCode, None, json!({ "session_id": "s" }), None),
        (Host::ClaudeCode, Some("Stop"), json!({ "session_id": "s" }), Some(Kind::Standing)),
        (Host::ClaudeCode, Some("PreToolUse"), json!({ "session_id": "s" }), None),
        (Host::ClaudeCode, Some("PreToolUse"), json!({ "tool_name": "Bash" }), None),
        (
            Host::Codex,
            None,
            json!({ "session_id": "s", "turn_id": "u", "hook_event_name": "PostToolUse",
                "tool_name": "Bash", "tool_use_id": "c", "tool_input": ls(),
                "tool_response": { "output": "x", "metadata": { "exit_code": 2 } } }),
            Some(after(
                tool(Some("c"), "Bash", ls()),
                Status::Error,
                r#"{"metadata":{"exit_code":2},"output":"x"}"#,
            )),
        ),
        (
            Host::Gemini,
            None,
            json!({ "session_id": "s", "hook_event_name": "BeforeTool",
                "tool_name": "run_shell_command", "tool_input": ls(),
                "mcp_context": { "server_name": "m" } }),
            Some(Kind::Before(ToolUse {
                server: Some("m".into()),
                ..tool(None, "run_shell_command", ls())
            })),
        ),
        (
            Host::Gemini,
            None,
            json!({ "session_id": "s", "hook_event_name": "AfterTool", "tool_name": "x",
                "tool_input": {}, "tool_response": { "llmContent": "c", "error": { "message": "no" } } }),
            Some(after(tool(None, "x", json!({})), Status::Error, r#"{"message":"no"}"#)),
        ),
        (
            Host::Cursor,
            None,
            json!({ "conversation_id": "s", "hook_event_name": "beforeShellExecution", "command": "ls" }),
            Some(Kind::Before(tool(None, "Shell", ls()))),
        ),
        (
            Host::Cursor,
            None,
            json!({ "conversation_id": "s", "hook_event_name": "preToolUse", "tool_use_id": "t",
                "tool_name": "MCP:linear:create", "tool_input": "{\"a\":1}" }),
            Some(Kind::Before(ToolUse {
                server: Some("linear".into()),
                ..tool(Some("t"), "MCP:linear:create", json!({ "a": 1 }))
            })),
        ),
        (
            Host::Cursor,
            None,
            json!({ "conversation_id": "s", "hook_event_name": "postToolUseFailure",
                "tool_use_id": "t", "tool_name": "Shell", "tool_input": ls(),
                "failure_type": "timeout", "error_message": "late" }),
            Some(after(tool(Some("t"), "Shell", ls()), Status::Fault, "late")),
        ),
        (
            Host::OpenCode,
            None,
            json!({ "hook_event_name": "tool.execute.before", "session_id": "s",
                "tool_use_id": "c", "tool_name": "bash", "tool_input": ls() }),
            Some(Kind::Before(tool(Some("c"), "bash", ls()))),
        ),
        (
            Host::Copilot,
            Some("preToolUse"),
            json!({ "sessionId": "s", "toolName": "bash", "toolArgs": "{\"command\":\"ls\"}" }),
            Some(Kind::Before(tool(None, "bash", ls()))),
        ),
        (
            Host::Copilot,
            Some("postToolUse"),
            json!({ "sessionId": "s", "toolName": "bash", "toolArgs": ls(),
                "toolResult": { "resultType": "failure", "textResultForLlm": "no" } }),
            Some(after(tool(None, "bash", ls()), Status::Error, "no")),
        ),
    ] {
        let read = host.read(input.to_string().as_bytes(), event);
        assert_eq!(
            read.as_ref().ok().map(|event| &event.kind),
            expected.as_ref(),
            "{host:?} {input}"
        );
        if let Ok(event) = read {
            assert_eq!(event.session, "s");
            assert_eq!(event.scope.len(), usize::from(input.get("agent_id").is_some()));
        }
    }
}

#[test]
fn nonsense_is_no_event() {
    for host in Host::ALL {
        assert_eq!(Host::named(host.name()), Some(host));
        for nonsense in ["", "null", "[]", "\"x\"", "{", "{}", "{\"session_id\":7}", "\u{0}"] {
            assert!(host.read(nonsense.as_bytes(), None).is_err(), "{host:?} {nonsense}");
        }
        for (event, moment) in host.events() {
            assert_eq!(host.moment(event), *moment);
        }
        assert_eq!(host.moment("surprise"), Moment::Other);
    }
    assert_eq!(Host::named("vim"), None);
}

/// What the model is told stands behind a tool's result, where a host has a place for it; it never
/// keeps a tool from running.
#[test]
fn models_are_told() {
    let reply = Reply::Steer("Deadstop: try another way".to_owned());
    let specific = |event: &str| {
        format!(
            r#"{{"hookSpecificOutput":{{"additionalContext":"Deadstop: try another way","hookEventName":"{event}"}}}}"#
        )
    };
    for (host, event, expected) in [
        (Host::ClaudeCode, "PostToolUse", specific("PostToolUse")),
        (Host::ClaudeCode, "PostToolUseFailure", specific("PostToolUseFailure")),
        (Host::ClaudeCode, "PreToolUse", String::new()),
        (Host::Codex, "PostToolUse", specific("PostToolUse")),
        (Host::Codex, "PreToolUse", String::new()),
        (Host::Gemini, "AfterTool", specific("AfterTool")),
        (Host::Gemini, "BeforeTool", "{}".to_owned()),
        (
            Host::Cursor,
            "postToolUse",
            r#"{"additional_context":"Deadstop: try another way"}"#.to_owned(),
        ),
        (Host::Cursor, "preToolUse", "{}".to_owned()),
        (
            Host::OpenCode,
            "tool.execute.after",
            r#"{"advice":"Deadstop: try another way","decision":"allow"}"#.to_owned(),
        ),
        (Host::Copilot, "postToolUse", String::new()),
    ] {
        let output = host.answer(event, &reply);
        assert_eq!(output.stdout, expected, "{host:?} {event}");
        assert!(!host.refuses(event, &output) && output.code == 0, "{host:?} {event}");
    }
}

/// A host is not answered when a session ends, not even where it is dead: there is nothing to refuse.
#[test]
fn the_end_of_a_session_is_an_event_of_its_own() {
    let ends = |host: Host| {
        let known = host.events().iter().find(|(_, moment)| *moment == Moment::End);
        known.map(|(event, _)| *event)
    };
    assert_eq!(ends(Host::Codex), None, "it has no such hook");
    for host in Host::ALL.into_iter().chain([Host::Generic]).filter(|host| *host != Host::Codex) {
        let event = ends(host).unwrap();
        let input = json!({ "session_id": "s", "hook_event_name": event, "reason": "exit" });
        let read = host.read(input.to_string().as_bytes(), Some(event)).unwrap();
        assert_eq!((read.kind, read.session.as_str()), (Kind::Over, "s"), "{host:?}");
        let output = host.answer(event, &Reply::Pass);
        assert!(
            matches!(output.stdout.as_str(), "" | "{}" | r#"{"decision":"allow"}"#),
            "{host:?}"
        );
        assert_eq!(output.code, 0, "{host:?}");
    }
}

#[test]
fn a_compaction_is_an_event_of_its_own() {
    let read = |source: &str| {
        let input =
            format!(r#"{{"hook_event_name":"SessionStart","session_id":"s","source":"{source}"}}"#);
        Host::ClaudeCode.read(input.as_bytes(), None).unwrap().kind
    };
    assert_eq!((read("compact"), read("startup")), (Kind::Compacted, Kind::Standing));
}

/// Hosts read half of a surrogate pair, which a model can write into any argument, and any depth.
#[test]
fn hole_05_an_odd_argument_does_not_hide_a_call_from_its_hook() {
    let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
    for odd in ["\"\\ud800\"", "1e999", "NaN", &deep] {
        let input = format!(r#"{{"command":"rm -rf /srv","description":{odd}}}"#);
        let event = format!(
            r#"{{"session_id":"s","hook_event_name":"PreToolUse","tool_name":"Bash","tool_use_id":"t","tool_input":{input}}}"#
        );
        for host in [Host::ClaudeCode, Host::Codex] {
            let read = host.read(event.as_bytes(), None).unwrap();
            let Kind::Before(tool) = read.kind else { panic!("{odd}") };
            assert_eq!(
                (tool.name.as_str(), &tool.arguments["command"]),
                ("Bash", &json!("rm -rf /srv"))
            );
        }
    }
    let bytes = b"{\"session_id\":\"s\",\"hook_event_name\":\"PreToolUse\",\"tool_name\":\"Bash\",\"tool_input\":{\"command\":\"rm \xff\"}}";
    assert!(Host::ClaudeCode.read(bytes, None).is_ok());
}
