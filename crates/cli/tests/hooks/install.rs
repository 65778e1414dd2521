//! `deadstop install` and `uninstall`: what they write, what they leave, and that it is taken back.

use std::fs;
use std::path::Path;

use deadstop_protocol::hook::{Host, Output};
use serde_json::Value;

use super::Stage;

/// What a user may have had, with comments and an order of their own.
const SETTINGS: &str = r#"{
    // What I like.
    "theme": "dark",
    "hooks": {
        "PreToolUse": [
            { "matcher": "Bash", "hooks": [{ "type": "command", "command": "my-check" }] }
        ]
    },
    "env": { "MINE": "1" },
}
"#;

fn file(host: Host) -> &'static str {
    match host {
        Host::ClaudeCode => ".claude/settings.json",
        Host::Codex => ".codex/hooks.json",
        Host::Gemini => ".gemini/settings.json",
        Host::Cursor => ".cursor/hooks.json",
        Host::OpenCode => ".config/opencode/plugins/deadstop.js",
        Host::Copilot => ".copilot/hooks/deadstop.json",
        Host::Qwen => ".qwen/settings.json",
        Host::Generic => "none",
    }
}

fn run(stage: &Stage, words: &[&str]) -> Output {
    stage.run(stage.command().args(words), "")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn install(stage: &Stage, host: Host, more: &[&str]) {
    let output = run(stage, &[&["install", host.name(), "--yes"], more].concat());
    assert_eq!(output.code, 0, "{output:?}");
}

fn uninstall(stage: &Stage, host: Host) {
    let output = run(stage, &["uninstall", host.name(), "--yes"]);
    assert_eq!(output.code, 0, "{output:?}");
}

#[test]
fn what_was_not_there_goes_again() {
    for host in Host::ALL {
        let stage = Stage::new("");
        let path = stage.folder.path().join(file(host));
        install(&stage, host, &["--gateway", "--server", "http://127.0.0.1:4141"]);
        let first = read(&path);
        for (event, _) in host.events() {
            assert!(first.contains(event), "{host:?} {event}");
        }
        install(&stage, host, &["--gateway", "--server", "http://127.0.0.1:4141"]);
        assert_eq!(read(&path), first, "{host:?}: a second time changes nothing");
        // Other settings replace those of before.
        install(&stage, host, &["--policy", "strict"]);
        let second = read(&path);
        assert!(second.contains("strict") && second.matches("preToolUse").count() <= 2, "{second}");
        uninstall(&stage, host);
        let left: Vec<_> = walk(stage.folder.path());
        assert_eq!(left, ["policy.toml"], "{host:?}");
    }
}

fn walk(folder: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.path().is_dir() {
            true => files.extend(walk(&entry.path())),
            false => files.push(entry.file_name().to_string_lossy().into_owned()),
        }
    }
    files
}

#[test]
fn what_was_there_comes_back_to_the_byte() {
    for host in [Host::ClaudeCode, Host::Codex, Host::Gemini, Host::Cursor, Host::Qwen] {
        let stage = Stage::new("");
        let path = stage.folder.path().join(file(host));
        write(&path, SETTINGS);
        install(&stage, host, &[]);
        let with = read(&path);
        assert!(with.contains("// What I like.") && with.contains("my-check"), "{with}");
        assert!(with.contains("deadstop hook"), "{with}");
        uninstall(&stage, host);
        assert_eq!(read(&path), SETTINGS, "{host:?}");
    }
}

#[test]
fn what_others_have_changed_meanwhile_stays() {
    for host in [Host::ClaudeCode, Host::Codex, Host::Gemini, Host::Cursor, Host::Qwen] {
        let stage = Stage::new("");
        let path = stage.folder.path().join(file(host));
        write(&path, SETTINGS);
        install(&stage, host, &["--gateway", "--server", "http://127.0.0.1:4141"]);
        write(&path, &read(&path).replace("dark", "light"));
        uninstall(&stage, host);
        let left = read(&path);
        assert!(!left.contains("deadstop") && left.contains("light"), "{left}");
        assert!(left.contains("// What I like.") && left.contains("my-check"), "{left}");
    }
}

#[test]
fn a_dry_run_shows_and_writes_nothing() {
    let stage = Stage::new("");
    let path = stage.folder.path().join(file(Host::ClaudeCode));
    write(&path, SETTINGS);
    let shown = run(&stage, &["install", "claude-code", "--dry-run"]);
    assert!(shown.stdout.contains("+ ") && shown.stdout.contains("hook claude-code PreToolUse"));
    let gone: Vec<_> = shown.stdout.lines().filter_map(|line| line.strip_prefix("  - ")).collect();
    let stays = |line: &&str| shown.stdout.contains(&format!("+ {line},"));
    assert!(gone.iter().all(stays), "nothing of theirs goes: {}", shown.stdout);
    assert_eq!(read(&path), SETTINGS);
    let refused = run(&stage, &["install", "claude-code"]);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("hint: --yes"), "{refused:?}");
    assert_eq!(read(&path), SETTINGS);
    let json = run(&stage, &["install", "claude-code", "--dry-run", "--json"]);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&json["files"][0]["change"], &json["written"]), (&"changed".into(), &false.into()));
}

#[test]
fn a_broken_file_is_left_alone() {
    let stage = Stage::new("");
    let path = stage.folder.path().join(file(Host::Gemini));
    write(&path, "{ \"a\": ");
    let output = run(&stage, &["install", "gemini", "--yes"]);
    assert_eq!(output.code, 2);
    assert!(output.stderr.contains("settings.json"), "{output:?}");
    assert_eq!(read(&path), "{ \"a\": ");
}

#[test]
fn base_urls_are_written_and_those_of_others_left() {
    let stage = Stage::new("");
    let home = stage.folder.path();
    let config = "# mine\nmodel = \"gpt-5\" # the big one\n\n[mcp_servers.docs]\ncommand = \"npx\"\nargs = [\"docs\"]\n";
    write(&home.join(".codex/config.toml"), config);
    write(&home.join(".gemini/.env"), "GEMINI_API_KEY=x");
    for host in [Host::ClaudeCode, Host::Codex, Host::Gemini, Host::OpenCode] {
        install(&stage, host, &["--gateway", "--server", "http://127.0.0.1:5555"]);
    }
    let with = read(&home.join(".codex/config.toml"));
    assert!(with.contains("# mine\n") && with.contains("# the big one"), "{with}");
    assert!(with.contains("base_url = \"http://127.0.0.1:5555/agent/codex/openai/v1\""), "{with}");
    let claude: Value = serde_json::from_str(&read(&home.join(file(Host::ClaudeCode)))).unwrap();
    assert_eq!(
        claude["env"]["ANTHROPIC_BASE_URL"],
        "http://127.0.0.1:5555/agent/claude-code/anthropic"
    );
    let variables = read(&home.join(".gemini/.env"));
    assert_eq!(
        variables,
        "GEMINI_API_KEY=x\nGOOGLE_GEMINI_BASE_URL=http://127.0.0.1:5555/agent/gemini/gemini\n"
    );
    for host in [Host::ClaudeCode, Host::Codex, Host::Gemini, Host::OpenCode] {
        uninstall(&stage, host);
    }
    assert_eq!(read(&home.join(".codex/config.toml")), config);
    assert_eq!(read(&home.join(".gemini/.env")), "GEMINI_API_KEY=x");

    write(&home.join(".codex/config.toml"), "model_provider = \"azure\"\n");
    let output = run(
        &stage,
        &["install", "codex", "--yes", "--gateway", "--server", "http://127.0.0.1:4141"],
    );
    assert!(
        output.stderr.contains("`model_provider`") && output.stderr.contains("was left"),
        "{output:?}"
    );
    assert_eq!(read(&home.join(".codex/config.toml")), "model_provider = \"azure\"\n");
}

/// A base URL that is none would break the host.
#[test]
fn the_gateway_needs_an_address() {
    let stage = Stage::new("");
    for server in ["none", "127.0.0.1:4141"] {
        let mut command = stage.command();
        command.env("DEADSTOP_SERVER", server);
        let output = stage.run(command.args(["install", "codex", "--yes", "--gateway"]), "");
        assert_eq!(output.code, 2, "{output:?}");
        assert!(output.stderr.contains(&format!("`{server}` is not one")), "{output:?}");
    }
    assert!(!stage.folder.path().join(".codex").exists());
}

/// The token of a ChatGPT login belongs to ChatGPT's own address, so Codex keeps its provider, and its user reads
/// what cannot be seen.
#[test]
fn a_chatgpt_login_keeps_its_provider() {
    let stage = Stage::new("");
    let home = stage.folder.path();
    let config = "model = \"gpt-5\"\n";
    write(&home.join(".codex/config.toml"), config);
    write(&home.join(".codex/auth.json"), r#"{ "tokens": { "access_token": "t" } }"#);
    let output = run(
        &stage,
        &["install", "codex", "--yes", "--gateway", "--server", "http://127.0.0.1:4141"],
    );
    assert_eq!(output.code, 0, "{output:?}");
    let said = format!("{}{}", output.stdout, output.stderr);
    assert!(said.contains("codex is logged in with ChatGPT"), "{said}");
    assert!(said.contains("not visible"), "{said}");
    assert!(!read(&home.join(".codex/config.toml")).contains("base_url"));
    assert!(home.join(file(Host::Codex)).exists(), "its hooks hold all the same");

    // An API key beside it is what Codex uses.
    let auth = r#"{ "OPENAI_API_KEY": "k", "tokens": { "access_token": "t" } }"#;
    write(&home.join(".codex/auth.json"), auth);
    install(&stage, Host::Codex, &["--gateway", "--server", "http://127.0.0.1:4141"]);
    assert!(read(&home.join(".codex/config.toml")).contains("/agent/codex/openai/v1"));
}

#[test]
fn mcp_servers_are_started_through_us_and_back() {
    let stage = Stage::new("");
    let home = stage.folder.path();
    let config = "[mcp_servers.docs]\ncommand = \"npx\" # mine\nargs = [\"docs\", \"-y\"]\n\n[mcp_servers.far]\nurl = \"https://far\"\n";
    write(&home.join(".codex/config.toml"), config);
    let cursor = "{\"mcpServers\": {\"db\": {\"command\": \"db\", \"args\": [\"--ro\"]}}}\n";
    write(&home.join(".cursor/mcp.json"), cursor);
    for host in [Host::Codex, Host::Cursor] {
        install(&stage, host, &["--mcp"]);
    }
    let with = read(&home.join(".codex/config.toml"));
    assert!(
        with.contains(r#"args = ["mcp", "--server", "docs", "--", "npx", "docs", "-y"]"#),
        "{with}"
    );
    let with: Value = serde_json::from_str(&read(&home.join(".cursor/mcp.json"))).unwrap();
    assert_eq!(with["mcpServers"]["db"]["args"][4], "db");
    for host in [Host::Codex, Host::Cursor] {
        uninstall(&stage, host);
    }
    assert_eq!(read(&home.join(".codex/config.toml")), config);
    assert_eq!(read(&home.join(".cursor/mcp.json")), cursor);
}

#[test]
fn a_project_has_a_configuration_of_its_own() {
    let stage = Stage::new("");
    install(&stage, Host::ClaudeCode, &["--project"]);
    let path = stage.folder.path().join(".claude/settings.local.json");
    assert!(read(&path).contains("hook claude-code PreToolUse"));
    assert!(!stage.folder.path().join(".claude/settings.json").exists());
    let output = run(&stage, &["uninstall", "claude-code", "--yes"]);
    assert_eq!(output.code, 2, "{output:?}");
    let output = run(&stage, &["uninstall", "claude-code", "--yes", "--project"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(!path.exists());
}
