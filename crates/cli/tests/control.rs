//! The commands for a server's control plane: the real program against the real server, what people
//! see and what programs read.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use serde_json::{Value, json};

#[path = "control/access.rs"]
mod access;
#[path = "control/columns.rs"]
mod columns;
#[path = "control/house.rs"]
mod house;
#[path = "control/mistakes.rs"]
mod mistakes;
#[path = "control/operator.rs"]
mod operator;
#[path = "control/watching.rs"]
mod watching;

use house::{House, Said};

/// A time as people see it: the date here, and how long ago.
#[track_caller]
fn is_time(text: &str) {
    let (date, age) = text.split_once(" (").unwrap_or_else(|| panic!("{text}"));
    assert!(date.len() == 19 && date.starts_with("20"), "{text}");
    assert!(age.ends_with(" ago)"), "{text}");
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

#[test]
fn agents_are_listed_shown_switched_and_tagged() {
    let house = House::new();
    house.ask(&["agents"]).refused_nothing("no agents\n");
    assert_eq!(house.call("healthy", "s1", ""), 200);
    house.run_away("seeker", "s1");
    house.until(&["agents"], 2);
    house.ask(&["agents", "tag", "seeker", "red", "nightly run"]).fine();

    let listed = house.ask(&["agents"]).fine();
    let rows = listed.rows();
    assert_eq!(rows.len(), 2, "{listed:?}");
    assert_eq!(&rows[0][..4], ["healthy", "on", "ok", "2"]);
    assert_eq!(rows[0][6], "$0.0125");
    assert_eq!(&rows[1][..3], ["seeker", "off", "stopped"]);
    assert_eq!(rows[1][8], "red, nightly run");
    is_time(&rows[1][7]);
    assert!(!listed.out.contains('\u{1b}'), "{listed:?}");
    for (args, name) in [(&["--off"], "seeker"), (&["--on"], "healthy"), (&["--tag=red"], "seeker")]
    {
        let all = [&["agents", "--json"], &args[..]].concat();
        let found = house.ask(&all).fine().json();
        assert_eq!((found.len(), text(&found[0]["name"])), (1, name), "{args:?}");
    }

    let shown = house.ask(&["agents", "show", "seeker"]).fine().out;
    assert!(shown.starts_with("agent seeker\n  switch      off\n"), "{shown}");
    assert!(shown.contains("  stopped     by kill_switch, 20"), "{shown}");
    assert!(shown.contains("  why         loop score 12.5 of 10.0"), "{shown}");
    let on = house.ask(&["agents", "on", "seeker", "--reason", "fixed", "--json"]).fine().json();
    assert_eq!((&on[0]["active"], &on[0]["deactivated_by"]), (&json!(true), &Value::Null));
    assert_eq!(house.call("seeker", "s2", ""), 200);
    let off = house.ask(&["agents", "off", "seeker", "--reason", "enough of it"]).fine().out;
    assert!(off.contains("stopped     by tester, 20"), "{off}");
    assert!(off.contains("why         enough of it\n"), "{off}");
    assert_eq!(house.call("seeker", "s3", ""), 403);
    let none = house.ask(&["agents", "--json", "tag", "seeker", "--none"]).fine().json();
    assert_eq!(none[0]["tags"], json!([]));

    let unknown = "the server knows no agent `unknown`";
    for args in [&["agents", "show", "unknown"][..], &["agents", "off", "unknown", "--reason", "x"]]
    {
        house.ask(args).refused(unknown, "`deadstop agents` lists them");
    }
    let filtered = house.ask(&["agents", "--tag", "red", "show", "seeker"]);
    filtered.refused("filters are for lists", "leave them out");
}

#[test]
fn a_session_is_shown_with_its_calls() {
    let house = House::new();
    house.run_away("seeker", "s/1");
    assert_eq!(house.call("healthy", "h1", ""), 200);

    house.until(&["sessions"], 2);
    let rows = house.ask(&["sessions"]).fine().rows();
    let row = rows.iter().find(|row| row[0] == "seeker/s/1").unwrap();
    assert_eq!([&row[1], &row[6], &row[7]], ["stopped", "loop_detected", "gpt-4o"]);
    is_time(&row[3]);
    for (args, name) in [
        (["--tag", "loop_detected"], "s/1"),
        (["--agent", "healthy"], "h1"),
        (["--since", "2020-01-01"], "h1"),
    ] {
        let all = [&["sessions", "--json", "--limit", "1"], &args[..]].concat();
        assert_eq!(house.ask(&all).fine().json()[0]["name"], name, "{args:?}");
    }
    house.ask(&["sessions", "--until", "1d"]).refused_nothing("no sessions\n");
    house.ask(&["sessions", "--state", "paused"]).refused_nothing("no sessions\n");

    let shown = house.ask(&["sessions", "show", "seeker/s/1"]).fine();
    assert!(shown.out.starts_with("session seeker/s/1\n  state      stopped\n"), "{shown:?}");
    let calls = shown.calls();
    assert!(calls.len() >= 6, "{shown:?}");
    // Found a bug: the first call was listed as the second, after the tool call in its answer.
    assert!(calls[0].trim_start().starts_with("1 "), "{shown:?}");
    assert!(calls[0].contains("  model  gpt-4o  allow "), "{shown:?}");
    assert!(!calls[0].contains('+') && calls[1].contains("  +"), "{shown:?}");
    let killed = calls.iter().find(|call| call.contains("similarity: kill_switch")).unwrap();
    assert!(killed.contains("  kill  ") && killed.contains("  ok  "), "{killed}");

    let whole = house.ask(&["sessions", "show", "seeker/s/1", "--all", "--json"]).fine().json();
    assert_eq!(whole[0]["timeline"].as_array().unwrap().len(), calls.len());
    let last = house.ask(&["sessions", "show", "seeker/s/1", "--limit", "2"]).fine();
    assert_eq!(last.calls().len(), 2);
    assert!(last.err.contains("showing the latest calls"), "{last:?}");

    // Orders take a name as it is listed, or as an option.
    for order in [&["pause", "seeker/s/1"][..], &["resume", "--session", "s/1"]] {
        let done = house.ask(order).fine();
        assert!(done.out.ends_with("session s/1\n"), "{done:?}");
    }
    house.ask(&["pause", "seeker/none"]).refused("seeker/none", "`deadstop sessions` lists");
    assert_eq!(house.ask(&["pause", "a", "--session", "b"]).code, 2);

    let missing = house.ask(&["sessions", "show", "seeker/none"]);
    missing.refused("knows no session `seeker/none`", "`deadstop sessions` lists them");
    house
        .ask(&["sessions", "show", "seeker"])
        .refused("`seeker` is an agent, and no session has that name", "sessions --agent seeker");
}

#[test]
fn an_incident_is_explained_and_acknowledged() {
    let house = House::new();
    house.run_away("seeker", "s1");
    let listed = house.ask(&["incidents", "--open"]).fine();
    let rows = listed.rows();
    assert_eq!(rows.len(), 1, "{listed:?}");
    let id = rows[0][0].as_str();
    is_time(&rows[0][1]);
    assert_eq!(&rows[0][2..5], ["seeker/s1", "similarity", "open"]);
    assert!(rows[0][7].starts_with("stopped: loop score 12.5 of 10.0"), "{listed:?}");

    let told = house.ask(&["explain", id]).fine().out;
    let mut lines = told.lines();
    let first = lines.next().unwrap();
    assert!(
        first.starts_with("stopped: loop score 12.5 of 10.0 in the last 20 requests"),
        "{told}"
    );
    for part in [
        "  guard     similarity: kill_switch\n",
        "  seen by   not acknowledged\n",
        "Score 12.5, 125% of the threshold 10.0:\n",
        "  0 [####################|#####...............] 20.0\n",
        "similar_prompts          5    1.00   5.00\n",
        "repeated_tool_calls      5    1.50   7.50\n",
        "sum                                 12.50\n",
        "Evidence, secrets removed:\n",
        "  request, 134 characters:\n    please look up how many rows",
        "\nThe calls around it:\n",
        "\nstop ",
        "\nevidence     1  ",
        "\nSavings unknown",
    ] {
        assert!(told.contains(part), "{part}\n{told}");
    }
    let whole = house.ask(&["explain", id, "--json"]).fine().json();
    assert_eq!(whole[0]["scoring"]["score"], 12.5);

    let seen = house.ask(&["incidents", "ack", id, "--note", "a test"]).fine().out;
    assert_eq!(seen, format!("acknowledged: incident {id}, by tester\n"));
    house.ask(&["incidents", "--open"]).refused_nothing("no incidents\n");
    let seen = house.ask(&["incidents", "--seen", "--guard", "similarity", "--json"]).fine().json();
    assert_eq!(seen[0]["acknowledged"]["note"], "a test");
    let group = house.ask(&["incidents", "--groups"]).fine().rows().remove(0);
    assert_eq!(&group[..6], ["seeker", "similarity", "kill_switch", "acknowledged", "1", "0"]);
    workflow(&house, id);

    for args in [&["explain", "none"][..], &["incidents", "ack", "none", "--note", "x"]] {
        house.ask(args).refused("incident none: ", "`deadstop incidents` lists them");
    }
    let mistyped = house.ask(&["incidents", "--guard", "strike"]);
    assert!(mistyped.err.contains("a similar value exists: 'strikes'"), "{mistyped:?}");
}

/// Assigned, muted, resolved and opened again, by the end of its id; each state shows in the list.
fn workflow(house: &House, id: &str) {
    let short = &id[id.len() - 6..];
    let state = |expected: &str| {
        let row = house.ask(&["incidents", "--json"]).fine().json()[0].clone();
        assert_eq!(row["state"], expected, "{row}");
        let listed = house.ask(&["incidents"]).fine().rows().remove(0);
        assert!(listed.iter().any(|cell| cell == expected), "{listed:?}");
    };
    let told = house.ask(&["incidents", "assign", short, "--to", "ada"]).fine().out;
    assert_eq!(told, format!("acknowledged: incident {id}, by ada\n"));
    state("acknowledged");
    house.ask(&["incidents", "mute", short, "--for", "2h", "--note", "known"]).fine();
    state("muted");
    house.ask(&["incidents", "unmute", short]).fine();
    let done = house.ask(&["incidents", "resolve", short, "--json"]).fine().json();
    assert_eq!(done[0]["incidents"][0]["resolved"]["how"], "fixed", "{done:?}");
    state("resolved");
    house.ask(&["incidents", "--state", "unresolved"]).refused_nothing("no incidents\n");
    house.ask(&["incidents", "reopen", short]).fine();
    state("open");
}

#[test]
fn long_lists_come_in_pages() {
    let house = House::new();
    for number in 0..5 {
        assert_eq!(house.call("worker", &format!("s{number}"), ""), 200);
    }
    house.until(&["sessions"], 5);
    for (args, lines, more) in [
        (&["--limit", "2"][..], 2, true),
        (&["--limit", "5"], 5, false),
        (&["--all"], 5, false),
        (&[], 5, false),
    ] {
        for json in [&[][..], &["--json"]] {
            let said = house.ask(&[&["sessions"], args, json].concat()).fine();
            let found = if json.is_empty() { said.rows().len() } else { said.json().len() };
            assert_eq!(found, lines, "{args:?}: {said:?}");
            assert_eq!(said.err.contains("Use --limit or --all."), more, "{args:?}: {said:?}");
        }
    }
    assert_eq!(house.ask(&["sessions", "--all", "--limit", "2"]).code, 2);
    assert_eq!(house.ask(&["sessions", "--limit", "0"]).code, 2);
}

#[test]
fn policies_are_set_compared_and_restored() {
    let house = House::new();
    house.ask(&["policy", "versions"]).refused_nothing("no versions yet\n");
    let first = house.ask(&["policy", "get"]).fine().out;
    assert!(first.contains("version 0,\n# which the server was started with.\n"), "{first}");

    let set = house.ask(&["policy", "set", "strict", "--reason", "safer"]).fine();
    assert_eq!(set.out, "in force: the project's default, version 1\n");
    let changes = house.ask(&["policy", "diff", "0", "1"]).fine();
    assert!(changes.out.starts_with("setting\t"), "{changes:?}");
    let action = ["loop.action", "\"warn\"", "\"terminate\""];
    assert!(changes.rows().iter().any(|row| row == &action), "{changes:?}");
    let same = house.ask(&["policy", "diff", "0", "--json"]).fine().json();
    assert_eq!(same[0]["changes"].as_array().unwrap().len(), changes.rows().len());

    // What is shown can be set again, and changes nothing.
    let got = house.ask(&["policy", "get"]).fine().out;
    std::fs::write(house.path("got.toml"), got).unwrap();
    let set = ["policy", "set", "got.toml", "--reason", "the same", "--replaces", "1"];
    house.ask(&set).fine();
    house.ask(&["policy", "diff", "1"]).refused_nothing("versions 1 and 2 are the same\n");
    house.ask(&set).refused("it was changed since you read it", "`deadstop policy get`");

    house.ask(&["policy", "restore", "1", "--reason", "calm"]).fine();
    let versions = house.ask(&["policy", "versions"]).fine().rows();
    let told: Vec<_> = versions.iter().map(|row| [&*row[0], &*row[3], &*row[4]]).collect();
    let expected =
        [["3", "set", "version 1 restored: calm"], ["2", "set", "the same"], ["1", "set", "safer"]];
    assert_eq!(told, expected);
    house.ask(&["policy", "reset", "--default"]).fine();
    let last = house.ask(&["policy", "versions", "--limit", "1", "--json"]).fine().json();
    assert_eq!(last[0]["is_default"], true);

    let missing = house.ask(&["policy", "restore", "99"]);
    missing.refused("version 99: ", "`deadstop policy versions`");
    house.ask(&["policy", "diff", "7", "8"]).refused("no such version", "policy versions");
    std::fs::write(house.path("bad.toml"), "[budget]\nmax_cost_used = 5\n").unwrap();
    let bad = house.ask(&["policy", "set", "bad.toml", "--reason", "x"]);
    bad.refused("bad.toml:2", "max_cost_usd");
}

#[test]
fn an_agent_has_a_policy_of_its_own_until_it_is_reset() {
    let house = House::new();
    let agent = |args: &[&'static str]| -> Said {
        house.ask(&[&["policy"], args, &["--agent", "careful"]].concat())
    };
    agent(&["get"]).refused("agent careful: ", "deadstop agents");
    std::fs::write(house.path("own.toml"), "[access]\ndeny = [\"drop_*\"]\n").unwrap();
    let set = agent(&["set", "own.toml", "--reason", "before its first call"]).fine();
    assert_eq!(set.out, "in force: agent careful, version 1\n");
    let got = agent(&["get"]).fine().out;
    assert!(got.contains("deny = [\"drop_*\"]"), "{got}");
    assert!(got.contains("# set by local user, 20"), "{got}");
    let document = agent(&["get", "--json"]).fine().json();
    assert_eq!(document[0]["document"]["kill_switch"], Value::Null);
    agent(&["reset", "--reason", "no need"]).fine();
    let got = agent(&["get"]).fine().out;
    assert!(got.contains("back to the project's default by local user"), "{got}");
    assert!(!got.contains("drop_*"), "{got}");
    agent(&["restore", "1"]).fine();
    assert!(agent(&["get"]).fine().out.contains("drop_*"));
    let versions = agent(&["versions", "--json"]).fine().json();
    assert_eq!(versions.len(), 3);
    house.ask(&["policy", "get"]).fine();
    assert_eq!(house.ask(&["policy", "reset"]).code, 2);
}

#[test]
fn alerts_are_sent_tested_and_logged() {
    let house = House::new();
    house.ask(&["alerts"]).refused_nothing("no targets yet\n");
    std::fs::write(house.path("secret"), "hush\n").unwrap();
    let url = house.provider.url("/services/T0/secret-path");
    let add = ["alerts", "add", "webhook", &url, "--name", "pager", "--on", "kill,trip"];
    let made = house.ask(&[&add[..], &["--secret-file", "secret"]].concat()).fine();
    assert!(!made.out.contains("signed with"), "{made:?}");
    let id = made.out.split([' ', ',']).nth(1).unwrap();
    assert!(made.err.contains(&format!("deadstop alerts test {id}")), "{made:?}");
    let listed = house.ask(&["alerts", "list"]).fine();
    let row = &listed.rows()[0];
    assert_eq!(&row[..2], [id, "pager"]);
    assert!(row[2].starts_with("webhook: http://127.0.0.1:"), "{listed:?}");
    assert_eq!(&row[3..5], ["", "kill, trip"]);
    assert!(!listed.out.contains("secret-path") && !listed.out.contains("hush"), "{listed:?}");

    let tested = house.ask(&["alerts", "test", id]).fine();
    assert!(tested.out.starts_with("delivered: 200"), "{tested:?}");
    house.run_away("seeker", "s1");
    let told = ["alerts", "log", "--agent", "seeker"];
    house.until(&told, 1);
    assert_eq!(house.ask(&told).fine().rows()[0][3], "kill");
    let tests = house.ask(&["alerts", "log", "--target", id]).fine();
    assert!(tests.rows().iter().any(|row| row[3] == "test" && row[1] == "delivered"), "{tests:?}");

    let signed = house.ask(&add).fine();
    assert!(
        signed.out.contains("\nsigned with ") && signed.err.contains("not shown again"),
        "{signed:?}"
    );

    let slack = ["alerts", "add", "slack", "-", "--name", "no server there", "--json"];
    let dead = house.tell(&slack, "http://127.0.0.1:1/x\n").fine().json();
    assert_eq!(dead[0]["kind"], "slack");
    let failed = house.ask(&["alerts", "test", text(&dead[0]["id"])]);
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(failed.out.starts_with("not delivered: ") && failed.out.len() > 20, "{failed:?}");
    let mail = [
        "alerts",
        "add",
        "email",
        "--smtp",
        "smtp://127.0.0.1:1",
        "--from",
        "a@example.org",
        "--to",
        "b@example.org",
        "--to",
        "c@example.org",
        "--name",
        "mail",
    ];
    let mail = house.ask(&mail).fine();
    assert!(mail.out.contains("email: b@example.org, c@example.org over smtp://"), "{mail:?}");

    assert_eq!(house.ask(&["alerts", "remove", id]).fine().out, format!("removed: target {id}\n"));
    house.ask(&["alerts", "remove", id]).refused("no such target", "`deadstop alerts` lists");
    house.ask(&["alerts", "test", "7"]).refused("target 7: ", "`deadstop alerts` lists");
    let bad = house.ask(&["alerts", "add", "webhook", "nowhere", "--name", "x"]);
    bad.refused("`target`: not a URL", "--help");
}

#[test]
fn without_a_server_the_next_step_is_named() {
    let mut house = House::new();
    house.stop();
    for args in [
        &["agents"][..],
        &["sessions", "show", "a/b"],
        &["incidents"],
        &["explain", "x"],
        &["policy", "get"],
        &["policy", "set", "strict", "--reason", "x"],
        &["keys", "list"],
        &["keys", "create", "--role", "admin", "--name", "x"],
        &["audit"],
        &["audit", "verify"],
        &["audit", "export", "--out", "never.ndjson"],
        &["alerts"],
        &["kill", "--all"],
    ] {
        house.ask(args).refused("no server answers at http://127.0.0.1:1", "deadstop serve");
        let wrong = house.with(&[("DEADSTOP_SERVER", "nowhere")], args);
        wrong.refused("`nowhere` is not the URL of a server", "http://127.0.0.1:4141");
    }
    assert!(!house.path("never.ndjson").exists());
    let other = house.with(&[], &["agents", "--server", &house.provider.url("")]);
    other.refused("another program answers at ", "check --server");
}

impl Said {
    /// It went well, and there was nothing to show.
    #[track_caller]
    fn refused_nothing(&self, talk: &str) {
        assert_eq!((self.code, self.out.as_str(), self.err.as_str()), (0, "", talk), "{self:?}");
    }
}

#[test]
fn a_person_decides_about_calls_that_wait() {
    let house = House::under("preset = \"balanced\"\n[access]\nask = [\"delete_*\"]\n");
    house.ask(&["approvals"]).refused_nothing("no calls that wait for a person\n");
    let first = house.propose("cleaner", "s1", "t1");
    let second = house.propose("cleaner", "s1", "t2");
    let listed = house.ask(&["approvals"]).fine();
    let rows = listed.rows();
    assert_eq!(rows.len(), 2, "{listed:?}");
    assert_eq!((&rows[0][0], &rows[0][1]), (&first, &"cleaner/s1".to_owned()));
    assert!(
        rows[0][7].starts_with("waits for a person: delete_asset needs approval"),
        "{listed:?}"
    );
    let shown = house.ask(&["approvals", "show", &first]).fine().out;
    assert!(shown.starts_with(&format!("approval {first}\n  state")), "{shown}");
    assert!(shown.contains("fact_sales"), "{shown}");

    // The end of an id is enough, where it tells which.
    let end = &first[first.len() - 8..];
    let said = house.ask(&["approvals", "approve", end, "--reason", "ticket 7"]).fine().out;
    assert_eq!(said, "approved: delete_asset of cleaner/s1\n");
    let deny = ["approvals", "deny", &second, "--reason", "not that one", "--json"];
    let denied = house.ask(&deny).fine().json();
    assert_eq!(
        (&denied[0]["state"], &denied[0]["decided_by"], &denied[0]["decided_why"]),
        (&json!("denied"), &json!("tester"), &json!("not that one"))
    );
    assert!(house.ask(&["approvals", "--json"]).fine().json().is_empty());
    let again = house.ask(&["approvals", "approve", &second, "--reason", "no"]);
    again.refused("it is no longer waiting: denied by tester", "");
    let audit = house.ask(&["audit", "--json"]).fine().json();
    let actions: Vec<&str> = audit.iter().map(|entry| text(&entry["action"])).collect();
    assert!(actions.contains(&"call.approve") && actions.contains(&"call.deny"), "{actions:?}");
}

/// Number 8 of the attack table, in the terminal: what was cut is marked, and what was not shown is
/// not approved.
#[test]
fn hole_08_a_script_says_what_was_shown() {
    let house = House::under("preset = \"balanced\"\n[access]\nask = [\"delete_*\"]\n");
    let asset = format!("{}; rm -rf ~", "x".repeat(3000));
    let id = house.propose_about("cleaner", "s1", "t1", &asset);
    let listed = house.ask(&["approvals"]).fine();
    let asked = &listed.rows()[0][4];
    assert!(asked.contains("more characters]") && asked.contains("29"), "{asked}");
    let shown = house.ask(&["approvals", "show", &id]).fine().out;
    assert!(shown.contains("; rm -rf ~"), "{shown}");
    let chars = shown.split("length").nth(1).unwrap().split_whitespace().next().unwrap();
    let approve = |more: &[&str]| {
        let args = [&["approvals", "approve", &id, "--reason", "ticket 7"], more].concat();
        house.ask(&args)
    };
    approve(&[]).refused("characters, and they were not all shown", "--shown");
    approve(&["--shown", "2000"]).refused("characters", "");
    assert!(approve(&["--shown", chars]).fine().out.starts_with("approved: delete_asset"));
}

#[test]
fn a_call_that_a_server_refused_is_allowed_once() {
    let house = House::under("preset = \"strict\"\n");
    let refused = |id: &str| {
        let call = json!({ "id": id, "tool": "Bash", "arguments": { "command": "rm -rf ~" } });
        house.post("/api/sessions/cleaner/s1/proposal", "", &json!({ "calls": [call] }))
    };
    let said = refused("t1");
    let code: String = said.split("deadstop allow ").nth(1).unwrap().chars().take(6).collect();
    let agent = house.with(&[("CLAUDECODE", "1")], &["allow", &code, "--yes"]);
    agent.refused("an agent's session cannot loosen its own control", "terminal of your own");
    house.ask(&["allow", "NOCODE", "--yes"]).refused("code", "");
    let done = house.ask(&["allow", &code, "--reason", "ticket 7", "--yes"]).fine().out;
    assert!(done.starts_with("allowed once within 10 minutes: Bash of cleaner/s1"), "{done}");
    assert!(refused("t2").contains("\"allowed\":true"));
    assert!(refused("t3").contains("\"allowed\":false"));
}

#[test]
fn a_batch_is_granted_listed_and_taken_back() {
    let house = House::new();
    let none = house.ask(&["grants", "cleaner"]);
    none.refused("there is no such agent", "");
    assert_eq!(house.call("cleaner", "s1", ""), 200);
    house.ask(&["grants", "cleaner/s1"]).refused_nothing("no grants\n");
    for whom in ["cleaner", "cleaner/s1"] {
        let give = [
            "grant",
            whom,
            "--deletes",
            "50",
            "--target",
            "tmp_*",
            "--for",
            "10m",
            "--reason",
            "old tables",
        ];
        let given = house.ask(&give).fine().out;
        assert!(given.starts_with(&format!("granted: {whom}, 50 of tmp_* until 20")), "{given}");
        let listed = house.ask(&["grants", whom]).fine();
        let row = listed.rows().remove(0);
        assert_eq!(
            (&row[1..5], &row[6..]),
            (
                &["50", "50", "tmp_*", "*"].map(str::to_owned)[..],
                &["tester", "old tables"].map(str::to_owned)[..]
            )
        );
        let revoke = ["grants", whom, "--revoke", &row[0], "--reason", "done", "--json"];
        assert_eq!(house.ask(&revoke).fine().json()[0]["left"], 50);
        assert!(house.ask(&["grants", whom, "--json"]).fine().json().is_empty());
    }
}
