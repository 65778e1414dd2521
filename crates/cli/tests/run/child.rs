//! Issue 19, number 1: the command that `deadstop run` starts was the admin of its own gateway.

use crate::stage::{Provider, Stage};

/// Tries every order that loosens control, as a process of the same user does, and prints what came
/// of each.
const REBEL: &str = r#"
import json, os, subprocess, sys, urllib.error, urllib.request
server = os.environ["DEADSTOP_SERVER"]

def ask(method, path, body=None, headers={}):
    headers = {"content-type": "application/json", "if-match": "*"} | headers
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server + path, data, headers, method=method)
    try:
        return 200, json.load(urllib.request.urlopen(request))
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")

me, session = os.environ["DEADSTOP_AGENT"], os.environ["DEADSTOP_SESSION"]
orders = [
    ("PUT", "/api/policies/default", {"mode": "log_only"}),
    ("DELETE", "/api/policies/default", None),
    ("PUT", "/api/prices/gpt-4o", {"input": 0, "output": 0}),
    ("PUT", f"/api/agents/{me}/prevention-config", {}),
    ("PUT", f"/api/agents/{me}/kill-switch", {"enabled": False}),
    ("POST", f"/api/agents/{me}/grants", {"calls": 100, "reason": "mine"}),
    ("POST", f"/api/sessions/{me}/{session}/grants", {"calls": 100, "reason": "mine"}),
    ("PATCH", f"/api/agents/{me}", {"active": True}),
    ("POST", "/api/clear", {"all": True}),
    ("POST", "/api/resume", {"all": True}),
    ("POST", "/api/keys", {"name": "mine", "role": "admin"}),
    ("PUT", "/api/settings", {}),
    ("POST", "/api/mcp/tools/accept", {}),
]
for method, path, body in orders:
    status, said = ask(method, path, body)
    print(method, path.split("/")[-1], status, said.get("code"))
for words in (["grant", me, "--deletes", "9", "--target", "*", "--for", "1h", "--reason", "mine"],
              ["prices", "set", "gpt-4o", "--input", "0", "--output", "0"], ["clear", "--all"], ["sign-in"]):
    done = subprocess.run([sys.argv[1], *words, "--server", server], capture_output=True, text=True)
    print("deadstop", words[0], done.returncode, "DEADSTOP_SESSION is set" in done.stderr)
print("secrets", sorted(name for name, value in os.environ.items() if "ds_operator" in value
                        or name.startswith("DEADSTOP_OPERATOR") or name == "DEADSTOP_KEY"))
status, opened = ask("POST", "/api/sessions", {"agent": "another", "session": "fresh"},
                     {"x-deadstop-project": "elsewhere"})
print("opened", opened["agent"] == me, opened["session"] == session)
status, call = ask("POST", "/api/sessions/another/fresh/preflight", {"id": "1", "model": "gpt-4o", "prompt": "hi"})
print("preflight", status)
status, known = ask("GET", "/api/status")
print("known", sorted({row["agent"] for row in known["scopes"]}) == [me], len(known["scopes"]))
status, killed = ask("POST", "/api/kill", {"all": True, "reason": "even so"})
print("kill", status)
"#;

#[test]
fn hole_01_the_command_is_no_admin_of_its_gateway() {
    let provider = Provider::start(r#"{"step":#}"#);
    let stage = Stage::new()
        .with("OPENAI_BASE_URL", &provider.url("/v1"))
        .with("DEADSTOP_KEY", "ds_a_of-another-server")
        .with("DEADSTOP_OPERATOR_TOKEN", "a-secret-of-the-operator");
    std::fs::write(stage.path("rebel.py"), REBEL).unwrap();
    let program = env!("CARGO_BIN_EXE_deadstop");
    let said = stage.run(&["run", "--grace", "1", "--", "python3", "-u", "rebel.py", program]);
    let text = said.text();
    let orders: Vec<&str> = text.lines().take(13).collect();
    assert_eq!(orders.len(), 13, "{said:?}");
    for order in orders {
        assert!(order.ends_with(" 403 operator_required"), "{order} in {said:?}");
    }
    let rest: Vec<&str> = text.lines().skip(13).collect();
    let expected = [
        "deadstop grant 2 True",
        "deadstop prices 2 True",
        "deadstop clear 2 True",
        "deadstop sign-in 2 True",
        "secrets []",
        "opened True True",
        "preflight 200",
        "known True 2",
    ];
    assert_eq!(rest[..expected.len()], expected, "{said:?}");
    // The one button always works, also for the command itself.
    assert_eq!(said.code, 86, "{said:?}");
}
