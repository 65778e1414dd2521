//! Sub-agents of coding agents: counted from the tool that starts them, their own events and calls, with
//! local files and with a server alike.

use std::fs;

use deadstop_protocol::hook::{Host, Output};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Server, Stage, none};

/// A stage with this policy: local files decide, or a server.
struct Played {
    stage: Stage,
    /// The server that decides, and its folder.
    _server: Option<(Server, TempDir)>,
}

impl Played {
    fn both(policy: &str) -> [Played; 2] {
        let mut alone = Stage::new(policy);
        alone.server = none();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("policy.toml"), policy).unwrap();
        fs::write(folder.path().join("deadstop.toml"), "policy = \"policy.toml\"\n").unwrap();
        let server = Server::start(folder.path());
        let mut asks = Stage::new("");
        asks.server = Some(server.url.clone());
        [
            Played { stage: alone, _server: None },
            Played { stage: asks, _server: Some((server, folder)) },
        ]
    }

    fn tell(&self, host: Host, event: &str, agent: Option<&str>, more: &Value) -> Output {
        let mut said = json!({ "session_id": "s", "hook_event_name": event, "cwd": "/w" });
        if let Some(agent) = agent {
            said["agent_id"] = agent.into();
            said["agent_type"] = "Explore".into();
        }
        for (key, value) in more.as_object().into_iter().flatten() {
            said[key] = value.clone();
        }
        let output = self
            .stage
            .run(self.stage.command().args(["hook", host.name(), event]), &said.to_string());
        assert_eq!(output.code, 0, "{output:?}");
        assert_eq!(output.stderr, "", "{event}");
        output
    }

    /// Whether a tool may run.
    fn uses(&self, host: Host, agent: Option<&str>, id: &str, tool: &str) -> bool {
        let event = host.events()[0].0;
        let more = json!({ "tool_name": tool, "tool_use_id": id,
            "tool_input": { "prompt": id, "agent_name": "investigator" } });
        let output = self.tell(host, event, agent, &more);
        let refused = host.refuses(event, &output);
        assert!(!refused || output.stdout.contains("sub-agents"), "{output:?}");
        !refused
    }

    fn ended(&self, host: Host, id: &str, tool: &str) {
        let more = json!({ "tool_name": tool, "tool_use_id": id, "tool_response": "done",
            "tool_input": { "prompt": id, "agent_name": "investigator" } });
        self.tell(host, host.events()[1].0, None, &more);
    }

    /// What a sub-agent that begins is told.
    fn begins(&self, host: Host, agent: &str) -> Option<String> {
        let output = self.tell(host, "SubagentStart", Some(agent), &Value::Null);
        let said: Value = serde_json::from_str(&output.stdout).unwrap_or_default();
        said["hookSpecificOutput"]["additionalContext"].as_str().map(str::to_owned)
    }

    fn ends(&self, host: Host, agent: &str) {
        let output = self.tell(host, "SubagentStop", Some(agent), &Value::Null);
        assert_eq!(output.stdout, "", "a sub-agent that ends is let go");
    }
}

/// The name of the tool that starts a sub-agent, and of one that looks.
fn tools(host: Host) -> (&'static str, &'static str) {
    match host {
        Host::Codex => ("spawn_agent", "Bash"),
        _ => ("Agent", "Read"),
    }
}

#[test]
fn the_tool_that_starts_one_too_many_is_refused() {
    for host in [Host::ClaudeCode, Host::Codex] {
        let (spawn, look) = tools(host);
        for played in Played::both("[swarm]\nmax_agents = 2\n") {
            assert!(played.uses(host, None, "t1", spawn));
            assert!(played.uses(host, None, "t2", spawn));
            assert!(!played.uses(host, None, "t3", spawn), "{host:?}");
            assert_eq!((played.begins(host, "a"), played.begins(host, "b")), (None, None));
            assert!(
                played.uses(host, Some("a"), "t4", look)
                    && played.uses(host, Some("b"), "t5", look)
            );
            // One that the host started all the same is told, and can do nothing.
            let told = played.begins(host, "c").unwrap();
            assert!(told.contains("would have 3 sub-agents in all (limit 2)"), "{told}");
            assert!(!played.uses(host, Some("c"), "t6", look), "{host:?}");
            assert!(played.uses(host, None, "t7", look), "the main agent goes on");
            played.ends(host, "a");
            assert!(!played.uses(host, None, "t8", spawn), "the number in all does not recover");
        }
    }
}

#[test]
fn a_sub_agent_that_has_ended_makes_room() {
    for played in Played::both("[swarm]\nmax_parallel = 1\n") {
        let host = Host::ClaudeCode;
        assert!(played.uses(host, None, "t1", "Task"));
        assert_eq!(played.begins(host, "a"), None);
        assert!(!played.uses(host, None, "t2", "Task"));
        let told = played.begins(host, "b").unwrap();
        assert!(told.contains("side by side (limit 1)"), "{told}");
        played.ends(host, "a");
        played.ended(host, "t1", "Task");
        assert!(played.uses(host, None, "t3", "Task"));
    }
}

#[test]
fn sub_agents_below_each_other_are_counted_where_the_host_names_no_parent() {
    for played in Played::both("[swarm]\nmax_depth = 2\n") {
        let host = Host::ClaudeCode;
        assert!(played.uses(host, None, "t1", "Agent"));
        assert_eq!(played.begins(host, "a"), None);
        assert!(played.uses(host, Some("a"), "t2", "Agent"));
        assert_eq!(played.begins(host, "b"), None);
        assert!(played.uses(host, Some("b"), "t3", "Read"));
        assert!(!played.uses(host, Some("b"), "t4", "Agent"), "that would be the third level");
        assert!(played.uses(host, None, "t5", "Agent"), "another one of the first level");
    }
}

#[test]
fn a_host_that_names_no_sub_agents_is_counted_by_its_tool() {
    for played in Played::both("[swarm]\nmax_parallel = 1\n") {
        let host = Host::Gemini;
        assert!(played.uses(host, None, "one", "invoke_agent"));
        assert!(played.uses(host, None, "look", "read_file"));
        assert!(!played.uses(host, None, "two", "invoke_agent"));
        played.ended(host, "one", "invoke_agent");
        assert!(played.uses(host, None, "two", "invoke_agent"));
    }
}

#[test]
fn a_burst_of_sub_agents_is_held_back_by_the_minute() {
    for played in Played::both("[swarm]\nmax_spawns_per_minute = 2\n") {
        let host = Host::Codex;
        for (agent, may) in [("a", true), ("b", true), ("c", false), ("a", true)] {
            assert_eq!(played.begins(host, agent).is_none(), may, "{agent}");
        }
    }
}
