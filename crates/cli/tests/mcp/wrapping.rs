//! `deadstop mcp wrap` on a client's configuration.

use std::fs;

use serde_json::{Value, json};

use crate::{CATALOGUE, Client, deadstop};

#[test]
fn a_configuration_there_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mcp.json");
    let path = file.display().to_string();
    let [program, demo, catalogue] = CATALOGUE;
    let text = format!(
        "{{\n\t\"mcpServers\" : {{\n\t\t\"catalogue\": {{ \"command\": {}, \"args\": [{demo:?}, {catalogue:?}] }},\n\t\t\"web\": {{\"url\": \"https://x.example/mcp\"}}\n\t}} }}\n",
        json!(program)
    );
    fs::write(&file, &text).unwrap();
    let run = |words: &[&str]| {
        let output = deadstop().args(["mcp", "wrap", &path]).args(words).output().unwrap();
        let (out, talk) = (output.stdout.clone(), output.stderr.clone());
        (output.status.success(), String::from_utf8(out).unwrap(), String::from_utf8(talk).unwrap())
    };
    let (fine, diff, talk) = run(&["--dry-run"]);
    assert!(
        fine && diff.contains("- \t\t\"catalogue\"") && diff.contains("+ \t\t\"catalogue\""),
        "{diff}"
    );
    assert!(talk.contains("web: left as it is"), "{talk}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    for round in 0..2 {
        assert!(run(&["--agent", "janitor"]).0, "{round}");
        let value: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let args = &value["mcpServers"]["catalogue"]["args"];
        assert_eq!(
            *args,
            json!([
                "mcp",
                "--server",
                "catalogue",
                "--agent",
                "janitor",
                "--",
                program,
                demo,
                catalogue
            ])
        );
        assert_eq!(
            fs::read_to_string(folder.path().join("mcp.json.before-deadstop")).unwrap(),
            text
        );
    }
    // It works as it stands there.
    let value: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let server = &value["mcpServers"]["catalogue"];
    let mut command = std::process::Command::new(server["command"].as_str().unwrap());
    command.args(server["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()));
    command.env("XDG_STATE_HOME", folder.path()).env("DEADSTOP_SERVER", "http://127.0.0.1:9");
    let mut client = Client::start(command);
    assert!(client.call(1, "list_assets", json!({}))["result"].is_object());
    drop(client);

    let (fine, report, _) = run(&["--undo", "--json"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert!(fine && report["changed"] == true && report["servers"][0]["done"] == "unwrapped");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    assert!(!folder.path().join("mcp.json.before-deadstop").exists());

    for (text, expected) in [("{ no", "not JSON"), ("{}", "has no MCP servers")] {
        fs::write(&file, text).unwrap();
        let (fine, _, talk) = run(&[]);
        assert!(!fine && talk.contains(expected) && talk.contains("hint:"), "{talk}");
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
}
