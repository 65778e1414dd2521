//! Issue 19, number 1: every process of the machine was the admin of a server without keys.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::house::{House, OPERATOR};

/// What loosens control, as an agent's shell would give it.
const LOOSEN: [&[&str]; 8] = [
    &["clear", "--agent", "seeker"],
    &["agents", "on", "seeker", "--reason", "x"],
    &["resume", "--all"],
    &["grant", "seeker", "--deletes", "9", "--target", "*", "--for", "1h", "--reason", "x"],
    &["policy", "set", "observe", "--reason", "x"],
    &["prices", "set", "gpt-4o", "--input", "0", "--output", "0"],
    &["keys", "create", "--role", "admin", "--name", "mine", "--yes"],
    &["policy", "reset", "--default", "--reason", "x"],
];

#[test]
fn hole_01_an_agent_cannot_loosen_control() {
    let house = House::new();
    house.run_away("seeker", "s1");
    let shell = |more: &[(&str, &str)], args: &[&str]| {
        let none = [("DEADSTOP_SERVER", house.url()), ("DEADSTOP_OPERATOR_TOKEN", "")];
        house.with(&[&none, more].concat(), args)
    };
    for order in LOOSEN {
        shell(&[], order).refused("so a person must give it in a terminal", "run it in a terminal");
        let marked = shell(&[("CLAUDECODE", "1")], order);
        marked.refused("CLAUDECODE is set", "a terminal of your own");
        let guessed = [("DEADSTOP_OPERATOR_TOKEN", "not-the-token-at-all")];
        shell(&guessed, order).refused("loosens control", "in a terminal");
    }
    assert_eq!(house.call("seeker", "s2", ""), 403, "it is still stopped");
    // What tightens control, and what only looks, takes nothing.
    for order in [
        &["status"][..],
        &["agents"],
        &["audit"],
        &["pause", "--all"],
        &["kill", "--all", "--reason", "enough"],
    ] {
        shell(&[], order).fine();
    }
    let file = house.path("token");
    std::fs::write(&file, OPERATOR).unwrap();
    let named = [("DEADSTOP_OPERATOR_TOKEN_FILE", file.to_str().unwrap())];
    shell(&named, &["clear", "--all"]).fine();
    shell(&named, &["resume", "--all"]).fine();
    shell(&named, LOOSEN[0]).fine();
    assert_eq!(house.call("seeker", "s3", ""), 200);
}

/// The page of a new user is signed in by the link that `serve` prints; it works once.
#[test]
fn hole_01_a_link_signs_the_operator_in() {
    let house = House::new();
    let (status, who) = house.get("/api/whoami", "");
    assert_eq!((status, &who["operator"]), (200, &json!(false)), "{who}");
    let link = house.ask(&["sign-in"]).fine().out;
    let code = link.trim().split_once("/sign-in#").unwrap().1;
    let (status, head, who) = house.send("POST", "/api/login", "", &json!({ "key": code }));
    assert_eq!((status, &who["operator"]), (200, &json!(true)), "{who}");
    let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
    let cookie = format!("cookie: {}\r\n", cookie.split(';').next().unwrap());
    let csrf = who["csrf_token"].as_str().unwrap();

    let order = json!({ "all": true, "reason": "enough" });
    let pause = |headers: &str| house.send("POST", "/api/pause", headers, &order).0;
    let resume = |headers: &str| house.send("POST", "/api/resume", headers, &order);
    assert_eq!(pause(""), 200);
    assert_eq!(resume("").2["code"], "operator_required");
    assert_eq!(resume(&cookie).2["code"], "bad_csrf_token");
    assert_eq!(resume(&format!("{cookie}x-csrf-token: {csrf}\r\n")).0, 200);
    let (status, _, again) = house.send("POST", "/api/login", "", &json!({ "key": code }));
    assert_eq!((status, &again["code"]), (401, &json!("bad_key")), "a link works once");
    // A cookie of another server of this machine does not lock the browser out.
    let other = "cookie: deadstop_login=op_99999999999999_aaaa_bbbb\r\n";
    assert_eq!(house.get("/api/whoami", other).0, 200);
    assert_eq!(resume(other).2["code"], "operator_required");
}

/// `deadstop serve` makes the token itself, for its user alone, and prints a link and no token.
#[test]
fn hole_01_the_token_is_made_at_the_first_start() {
    let house = House::new();
    let (home, said) = (house.path("new"), house.path("said"));
    std::fs::create_dir(&home).unwrap();
    let mut serving = Command::new(env!("CARGO_BIN_EXE_deadstop"))
        .args(["serve", "--listen", "127.0.0.1:0"])
        .current_dir(&home)
        .env_clear()
        .env("HOME", &home)
        .stdin(Stdio::null())
        .stderr(File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    let text = loop {
        let text = std::fs::read_to_string(&said).unwrap();
        if text.contains("Ctrl-C stops it") {
            break text;
        }
        assert!(Instant::now() < until, "it does not start: {text}");
    };
    let url = text.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
    let file = home.join(".local/state/deadstop/operator-token");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    let token = std::fs::read_to_string(&file).unwrap();
    let named = [
        ("DEADSTOP_SERVER", url),
        ("DEADSTOP_OPERATOR_TOKEN", ""),
        ("DEADSTOP_OPERATOR_TOKEN_FILE", file.to_str().unwrap()),
    ];
    let set = house.with(&named, &["policy", "set", "observe", "--reason", "x"]);
    serving.kill().unwrap();
    serving.wait().unwrap();
    assert_eq!(mode, 0o600);
    assert!(text.contains("/sign-in#ds_link_") && !text.contains(token.trim()), "{text}");
    set.fine();
}
