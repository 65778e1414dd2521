//! Keys, projects and the audit: with a server, and in the database without one.

use std::process::Command;

use serde_json::{Value, json};

use super::house::{House, Said};
use super::{is_time, text};

/// Makes a key in the database and gives its text.
fn key_in(house: &House, args: &[&str]) -> String {
    let data = house.data();
    let made = house.alone(&[&["keys", "create", "--yes", "--data", &data], args].concat()).fine();
    made.out.trim().to_owned()
}

const ADMIN: [&str; 4] = ["--role", "admin", "--name", "root"];

#[test]
fn the_first_key_is_made_before_anybody_may_reach_the_server() {
    let mut house = House::new();
    house.stop();
    let fresh = house.path("fresh").display().to_string();
    let serve = ["serve", "--listen", "0.0.0.0:0", "--data", &fresh];
    let exposed = house.alone(&serve);
    let hint = format!("deadstop keys create --role admin --name NAME --data {fresh}");
    exposed.refused("there is no key yet", &hint);
    let first =
        house.alone(&["keys", "create", "--role", "viewer", "--name", "v", "--data", &fresh]);
    first.refused("the first key must have the role admin", "--role admin");
    let made =
        house.alone(&["keys", "create", "--role", "admin", "--name", "root", "--data", &fresh]);
    let made = made.fine();
    // The key alone is on stdout, so that it can go into a file.
    assert!(made.out.starts_with("ds_a_") && made.out.lines().count() == 1, "{made:?}");
    assert!(!made.err.contains(made.out.trim()), "{made:?}");
    assert!(made.err.contains("it is not shown again"), "{made:?}");
}

/// Issue 19, number 16: a person who makes the first key is told which agents it stops, and is asked.
#[test]
fn hole_16_the_first_key_is_asked_about() {
    let house = House::new();
    assert_eq!(house.call("runner", "s1", ""), 200);
    house.until(&["agents"], 1);
    let (data, create) = (house.data(), ["keys", "create", "--role", "admin", "--name", "root"]);
    for more in [&["--data", &data][..], &["--server", house.url()]] {
        let asked = house.ask(&[&create, more].concat());
        assert_eq!((asked.code, asked.out.as_str()), (2, ""), "{asked:?}");
        for words in ["will fail with 401", "runner", "x-deadstop-key", "hint: add --yes"] {
            assert!(asked.err.contains(words), "{words}: {asked:?}");
        }
    }
    assert_eq!(house.call("runner", "s1", ""), 200);
    let made = house.ask(&[&create[..], &["--yes", "--server", house.url()]].concat()).fine();
    assert!(made.err.contains("may call without one until 20"), "{made:?}");
    assert_eq!(house.call("runner", "s1", ""), 200, "it was running");
    assert_eq!(house.call("later", "s1", ""), 401);
    let status = house.ask_as(made.out.trim(), &["status"]).fine();
    assert!(status.out.starts_with("keys are required; agents that call without"), "{status:?}");
    let unbound = ["keys", "create", "--role", "agent", "--name", "bot"];
    let refused = house.ask_as(made.out.trim(), &unbound);
    refused.refused("none is named", "--agent 'team-*', or --any-agent");
}

/// Found from outside: a typo was answered with "killed", and made an agent.
#[test]
fn hole_11_an_unknown_agent_is_not_killed() {
    let house = House::new();
    assert_eq!(house.call("crawler", "s1", ""), 200);
    house.until(&["agents"], 1);
    let typo = house.ask(&["kill", "--agent", "crwaler", "--reason", "enough"]);
    typo.refused("the server knows no agent `crwaler`", "did you mean `crawler`?");
    let session = house.ask(&["kill", "s2", "--agent", "crawler"]);
    session.refused("the server knows no session `s2`", "--new");
    assert_eq!(house.ask(&["agents"]).fine().rows().len(), 1);
    house.ask(&["kill", "--agent", "later", "--new", "--reason", "in advance"]).fine();
    assert_eq!(house.call("later", "s1", ""), 403);
    house.ask(&["kill", "--agent", "crawler", "--reason", "enough"]).fine();
    assert_eq!(house.call("crawler", "s1", ""), 403);
}

/// Found from outside: an agent that a typo had made could not be removed.
#[test]
fn hole_11_an_agent_is_removed() {
    let house = House::new();
    assert_eq!(house.call("crawler", "s1", ""), 200);
    house.ask(&["stop", "--agent", "crwaler", "--new", "--reason", "enough"]).fine();
    house.until(&["agents"], 2);
    let typo = house.ask(&["agents", "remove", "crwalr"]);
    typo.refused("the server knows no agent `crwalr`", "did you mean `crwaler`");
    // The beginning of a name is enough.
    let removed = house.ask(&["agents", "remove", "crwa", "--reason", "a typo"]).fine();
    assert!(removed.out.starts_with("Removed agent `crwaler` from lists."), "{removed:?}");
    assert!(removed.out.contains("It is still stopped"), "{removed:?}");
    assert_eq!(house.ask(&["agents"]).fine().rows().len(), 1);
    assert!(!house.ask(&["status"]).fine().out.contains("crwaler"));
    let again = house.ask(&["stop", "--agent", "crwaler", "--reason", "enough"]);
    again.refused("the server knows no agent `crwaler`", "did you mean `crawler`?");
    let shown = house.ask(&["agents", "show", "crwaler"]).fine();
    assert!(shown.out.contains("its next call lists it again"), "{shown:?}");
    assert_eq!(house.call("crwaler", "s1", ""), 403);
    house.until(&["agents"], 2);
    // Its model has asked for a tool whose result did not come.
    let busy = house.ask(&["agents", "remove", "crawler"]);
    busy.refused("agent `crawler` has 1 call in flight", "");
    house.ask(&["stop", "--agent", "crawler", "--reason", "enough"]).fine();
    let json = house.ask(&["agents", "remove", "crawler", "--json"]).fine().json();
    assert_eq!((&json[0]["name"], &json[0]["stopped"]), (&"crawler".into(), &true.into()));
}

/// Found from outside: `keys create > key` leaves a file that other users can read.
#[test]
fn hole_07_a_key_is_written_to_a_private_file() {
    use std::os::unix::fs::PermissionsExt;
    let mut house = House::new();
    house.stop();
    let (data, file) = (house.data(), house.path("key"));
    let shown = file.display().to_string();
    let create = [&["keys", "create", "--data", &data, "--out", &shown], &ADMIN[..]].concat();
    let made = house.alone(&create).fine();
    let key = std::fs::read_to_string(&file).unwrap();
    assert!(key.starts_with("ds_a_") && key.lines().count() == 1, "{made:?}");
    assert!(!made.out.contains("ds_a_") && !made.err.contains("ds_a_"), "{made:?}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // What is there is not written over, and no key is made for it.
    house.alone(&create).refused("cannot make", "--out needs a file that does not exist yet");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), key);
}

#[test]
fn keys_open_what_their_role_may_see_and_no_more() {
    let mut house = House::new();
    house.stop();
    let admin = key_in(&house, &ADMIN);
    house.start();
    let ask = |key: &str, args: &[&str]| -> Said { house.ask_as(key, args) };

    ask("", &["agents"]).refused("this server wants a key", "DEADSTOP_KEY");
    for wrong in ["ds_a_nonsense", &admin.replace("ds_a", "ds_x")[..admin.len() - 1]] {
        ask(wrong, &["agents"]).refused("unknown, wrong or revoked", "keys create --data DIR");
    }
    std::fs::write(house.path("key"), format!("{admin}\n")).unwrap();
    house.ask(&["agents", "--key-file", "key"]).fine();
    house.ask(&["status", "--key-file", "key"]).fine();
    house.ask(&["agents", "--key-file", "none"]).refused("cannot read the key", "--key-file");

    let made = ask(&admin, &["keys", "create", "--role", "viewer", "--name", "eyes", "--json"]);
    let made = made.fine().json().remove(0);
    let (viewer, id) = (text(&made["key"]), text(&made["id"]));
    ask(viewer, &["agents"]).fine();
    ask(viewer, &["keys", "list"]).refused("this takes the role admin", "a key with that role");
    ask(viewer, &["audit", "verify"]).refused("this takes the role operator", "that role");
    let bound =
        ["keys", "create", "--role", "agent", "--name", "bot", "--agent", "seeker", "--json"];
    let bot = ask(&admin, &bound).fine().json().remove(0);
    assert_eq!(bot["agent"], "seeker");
    let header = format!("x-deadstop-key: {}\r\n", text(&bot["key"]));
    assert_eq!(house.call("seeker", "s1", &header), 200);
    let heads = house.provider.heads().join("\n");
    assert!(!heads.contains("ds_g_"), "a key went to the provider: {heads}");
    ask(text(&bot["key"]), &["agents"]).refused("this takes the role viewer", "that role");

    let listed = ask(&admin, &["keys", "list"]).fine();
    let rows = listed.rows();
    let names: Vec<_> = rows.iter().map(|row| (&*row[1], &*row[2], &*row[3])).collect();
    let expected = [("root", "admin", ""), ("eyes", "viewer", ""), ("bot", "agent", "seeker")];
    assert_eq!(names, expected);
    let (at, by) = rows[0][4].split_once(", by ").unwrap();
    is_time(at);
    assert_eq!(by, "tester");
    assert!(!listed.out.contains(viewer), "{listed:?}");

    let revoked = ask(&admin, &["keys", "revoke", id]).fine();
    assert_eq!(revoked.out, format!("revoked: key {id}\n"));
    ask(viewer, &["agents"]).refused("unknown, wrong or revoked", "DEADSTOP_KEY");
    ask(&admin, &["keys", "revoke", id]).refused("no such key", "`deadstop keys list`");
    let own = admin.split('_').nth(2).unwrap();
    ask(&admin, &["keys", "revoke", own]).refused("last admin key", "keys create");
    ask(&admin, &["keys", "create", "--role", "boss", "--name", "x"]).is_usage();
    let named = ask(&admin, &["keys", "create", "--role", "viewer", "--name", "a\u{1b}[2J"]);
    named.refused("`name`: this cannot be a name", "--help");

    // Who lost all keys gets in again, while the server runs.
    let again = key_in(&house, &["--role", "admin", "--name", "found again"]);
    ask(&again, &["keys", "list"]).fine();
}

#[test]
fn what_is_typed_counts_more_than_the_environment() {
    let house = House::new();
    let (data, url) = (house.data(), house.url().to_owned());
    let create = ["keys", "create", "--role", "admin", "--name", "x"];
    let both = [("DEADSTOP_SERVER", url.as_str()), ("DEADSTOP_DATA", data.as_str())];
    house.with(&both, &create).refused("names both a server and a database", "say which");
    let typed = [&create[..], &["--server", &url, "--data", &data]].concat();
    house.alone(&typed).refused("both a server and a database", "leave --server out");
    let bad = [&create[..], &["--database", "mysql://x"]].concat();
    house.alone(&bad).refused("not the address of a database", "postgres://");
    house.with(&both, &[&create[..], &["--data", &data]].concat()).fine();
    house.with(&[("DEADSTOP_DATA", &data)], &create).fine();
    house.with(&both, &["audit", "verify", "--data", &data]).fine();
}

#[test]
fn projects_are_walls() {
    let house = House::new();
    house.run_away("seeker", "s1");
    let incident = house.ask(&["incidents", "--json"]).fine().json().remove(0);
    let incident = text(&incident["id"]);
    let ours = key_in(&house, &ADMIN);
    let theirs = key_in(&house, &["--role", "admin", "--name", "them", "--project", "other"]);
    let (ours, theirs) = (ours.as_str(), theirs.as_str());

    assert_eq!(house.ask_as(ours, &["agents"]).fine().rows().len(), 1);
    for args in [&["agents"][..], &["sessions"], &["incidents"], &["policy", "versions"]] {
        assert_eq!(house.ask_as(theirs, args).fine().out, "", "{args:?}");
    }
    for args in [&["agents", "show", "seeker"][..], &["agents", "on", "seeker"]] {
        let stranger = house.ask_as(theirs, args);
        stranger.refused("the server knows no agent `seeker`", "deadstop agents");
    }
    for args in [
        &["explain", incident][..],
        &["incidents", "ack", incident, "--note", "mine"],
        &["policy", "get", "--agent", "seeker"],
    ] {
        house.ask_as(theirs, args).refused("Not Found", "deadstop ");
    }
    let session = house.ask_as(theirs, &["sessions", "show", "seeker/s1"]);
    session.refused("knows no session `seeker/s1`", "deadstop sessions");
    house.ask_as(theirs, &["agents", "--project", "other"]).fine();
    let wrong = house.ask_as(theirs, &["agents", "--project", "default"]);
    wrong.refused("no such project", "leave --project out");
    let keys = house.ask_as(theirs, &["keys", "list"]).fine().rows();
    assert_eq!((keys.len(), keys[0][1].as_str()), (1, "them"));
    // Each project has a chain of its own, and both can be checked in the database.
    let chains = house.alone(&["audit", "verify", "--data", &house.data()]).fine();
    assert_eq!(chains.out.lines().count(), 2, "{chains:?}");
    assert!(chains.out.contains("project other: whole: 1 entry,"), "{chains:?}");
    let one = ["audit", "verify", "--data", &house.data(), "--project", "other", "--json"];
    let one = house.alone(&one).fine().json();
    assert_eq!((one.len(), &one[0]["project"]), (1, &json!("other")));
}

#[test]
fn the_audit_is_listed_exported_and_checked() {
    let mut house = House::new();
    house.run_away("seeker", "s1");
    house.ask(&["agents", "on", "seeker", "--reason", "fixed"]).fine();
    house.ask(&["policy", "set", "strict", "--reason", "safer"]).fine();
    let listed = house.ask(&["audit"]).fine().rows();
    let told: Vec<_> = listed.iter().map(|row| [&*row[2], &*row[3], &*row[4], &*row[5]]).collect();
    assert_eq!(told[0], ["local user", "policy.set", "default", "safer"]);
    assert_eq!(told[1], ["tester", "agent.clear", "seeker", "fixed"]);
    assert_eq!(told[2][..3], ["guard:similarity", "agent.kill", "seeker"]);
    is_time(&listed[0][1]);
    for args in [&["--who", "tester"][..], &["--action", "agent.clear"]] {
        let found = house.ask(&[&["audit", "list", "--json"], args].concat()).fine().json();
        assert_eq!((found.len(), &found[0]["reason"]), (1, &json!("fixed")), "{args:?}");
    }

    let whole = house.ask(&["audit", "verify"]).fine().out;
    assert!(whole.starts_with("whole: 3 entries, the last hash is "), "{whole}");
    let exported = house.ask(&["audit", "export"]).fine();
    assert_eq!(exported.json().iter().map(|e| &e["seq"]).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(exported.err, "3 entries\n");
    let data = house.data();
    house.ask(&["audit", "export", "--out", "audit.ndjson"]).fine();
    let written = std::fs::read_to_string(house.path("audit.ndjson")).unwrap();
    assert_eq!(written, exported.out);
    let again = house.ask(&["audit", "export", "--out", "audit.ndjson"]);
    again.refused("cannot write audit.ndjson", "does not exist yet");
    assert_eq!(house.alone(&["audit", "export", "--data", &data]).fine().out, exported.out);

    house.stop();
    let nowhere = house.path("nowhere").display().to_string();
    let missing = house.alone(&["audit", "verify", "--data", &nowhere]);
    missing.refused("there is no database in", "--data");
    assert!(!house.path("nowhere").exists());
    change(&house, "UPDATE audit SET reason = 'never happened' WHERE seq = 2");
    broken(&house.alone(&["audit", "verify", "--data", &data]));
    let chain = house.alone(&["audit", "verify", "--data", &data, "--json"]);
    assert_eq!((chain.code, &chain.json()[0]["broken_at"]), (1, &json!(2)));
    house.start();
    broken(&house.ask(&["audit", "verify"]));
}

#[track_caller]
fn broken(said: &Said) {
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.out.contains("broken at entry 2: the entry was changed\n  it says: 20"),
        "{said:?}"
    );
    assert!(said.out.contains(" tester agent.clear seeker\n"), "{said:?}");
}

/// Tampers with the database.
fn change(house: &House, sql: &str) {
    let script = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); \
                  db.execute(sys.argv[2]); db.commit()";
    let file = house.path("data/deadstop.db");
    let done = Command::new("python3").args(["-c", script]).arg(file).arg(sql).status().unwrap();
    assert!(done.success());
}

impl Said {
    /// The arguments were wrong.
    #[track_caller]
    fn is_usage(&self) {
        assert!(self.code == 2 && self.err.contains("possible values"), "{self:?}");
    }
}

/// The database holds only the key's hash, so a copy of it gives no access.
#[test]
fn the_key_that_is_shown_once_is_not_in_the_database() {
    let house = House::new();
    let key = key_in(&house, &ADMIN);
    let secret = key.rsplit('_').next().unwrap().as_bytes();
    for file in std::fs::read_dir(house.path("data")).unwrap().flatten() {
        let bytes = std::fs::read(file.path()).unwrap();
        assert!(!bytes.windows(secret.len()).any(|part| part == secret), "{:?}", file.path());
    }
    let entries = house.alone(&["audit", "export", "--data", &house.data()]).fine().json();
    let entry: &Value = &entries[0];
    assert_eq!((&entry["action"], &entry["who"]), (&json!("key.create"), &json!("tester")));
    assert!(!entry.to_string().contains(&key), "{entry}");
}
