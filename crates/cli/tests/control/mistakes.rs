//! What an operator mistypes at three in the morning: each mistake is told in one sentence, with a hint
//! and an exit code, and nothing is done.

use std::net::TcpListener;

use super::house::House;

/// Commands that ask a server, each with arguments that a server would take.
const ASKING: &[&[&str]] = &[
    &["agents"],
    &["agents", "show", "seeker"],
    &["alerts"],
    &["alerts", "log"],
    &["allow", "ABCD", "--yes"],
    &["approvals"],
    &["approvals", "approve", "ap-1", "--reason", "x"],
    &["audit"],
    &["audit", "verify"],
    &["explain"],
    &["explain", "0193a5c0"],
    &["grants", "seeker"],
    &["incidents"],
    &["incidents", "ack", "0193a5c0", "--note", "x"],
    &["keys", "list"],
    &["mcp", "tools"],
    &["prices"],
    &["ready"],
    &["sessions"],
    &["sessions", "show", "seeker/s1"],
    &["status"],
    &["stop", "seeker/s1"],
    &["watch"],
];

/// A command without colours or a broken row, that failed as an operator should see it.
#[track_caller]
fn told(said: &super::Said, what: &str) {
    assert!(said.code != 0 && said.out.is_empty(), "{what}: {said:?}");
    let (error, hint) =
        said.err.split_once("\nhint: ").unwrap_or_else(|| panic!("{what}: {said:?}"));
    assert!(error.starts_with("error: ") && hint.trim().len() > 10, "{what}: {said:?}");
    assert!(!said.err.contains('\u{1b}') && !said.err.contains("panicked"), "{what}: {said:?}");
}

#[test]
fn without_a_server_every_command_says_so() {
    let mut house = House::new();
    house.stop();
    for args in ASKING {
        let said = house.with(&[("DEADSTOP_SERVER", "http://127.0.0.1:1")], args);
        told(&said, &args.join(" "));
        assert!(said.err.contains("127.0.0.1:1"), "{args:?}: {said:?}");
    }
}

/// Found on a walk: a command waited for ever for a server that had taken its connection.
#[test]
fn a_server_that_hangs_is_not_waited_for() {
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", hangs.local_addr().unwrap());
    let mut house = House::new();
    house.stop();
    std::thread::scope(|scope| {
        for args in ASKING {
            let (house, url) = (&house, &url);
            scope.spawn(move || {
                let waits = [("DEADSTOP_SERVER", url.as_str()), ("DEADSTOP_TIMEOUT", "1")];
                let said = house.with(&waits, args);
                told(&said, &args.join(" "));
                let expected = format!("the server at {url} did not answer within 1 s");
                assert!(said.err.contains(&expected), "{args:?}: {said:?}");
            });
        }
    });
    let wrong = house.with(&[("DEADSTOP_SERVER", &url), ("DEADSTOP_TIMEOUT", "soon")], &["status"]);
    wrong.refused("DEADSTOP_TIMEOUT is `soon`", "whole seconds");
}

/// What answers is no server of ours: a page, a proxy.
#[test]
fn another_program_is_no_server() {
    use std::io::{BufRead, BufReader, Write};
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", other.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in other.incoming().map_while(Result::ok) {
            BufReader::new(&stream).lines().map_while(Result::ok).find(String::is_empty);
            let head = "content-type: text/html\r\ncontent-length: 15\r\nconnection: close";
            let _ = write!(&stream, "HTTP/1.1 200 OK\r\n{head}\r\n\r\n<html>no</html>");
        }
    });
    let mut house = House::new();
    house.stop();
    for args in ASKING.iter().filter(|args| !["watch", "ready"].contains(&args[0])) {
        told(&house.with(&[("DEADSTOP_SERVER", &url)], args), &args.join(" "));
    }
}

#[test]
fn an_unknown_name_is_told_with_what_was_meant() {
    let house = House::new();
    assert_eq!(house.call("healthy", "nightly-1", ""), 200);
    assert_eq!(house.call("healthy", "nightly-2", ""), 200);
    house.until(&["sessions"], 2);
    for args in [
        &["agents", "show", "helthy"][..],
        &["agents", "stop", "helthy", "--reason", "x"],
        &["agents", "remove", "helthy", "--reason", "x"],
        &["alerts", "test", "nothing"],
        &["allow", "ABCD", "--yes"],
        &["approvals", "approve", "ap-1", "--reason", "x"],
        &["approvals", "deny", "ap-1", "--reason", "x"],
        &["explain", "nothing"],
        &["grants", "healthy", "--revoke", "nothing", "--reason", "x"],
        &["incidents", "ack", "nothing", "--note", "x"],
        &["keys", "revoke", "nothing"],
        &["pause", "healthy/nightli"],
        &["resume", "--agent", "helthy"],
        &["sessions", "show", "helthy/nightly-1"],
        &["sessions", "show", "nightly-7"],
        &["stop", "nightli-1"],
        &["stop", "--agent", "helthy"],
        &["stop", "healthy"],
    ] {
        told(&house.ask(args), &args.join(" "));
    }
    for args in [&["stop", "night"][..], &["sessions", "show", "healthy/nightly"]] {
        let said = house.ask(args);
        told(&said, &args.join(" "));
        assert!(said.err.contains("nightly-1") && said.err.contains("nightly-2"), "{said:?}");
    }
    house.ask(&["stop", "healthy"]).refused("is an agent", "deadstop stop --agent healthy");
    let counts = house.ask(&["sessions", "--json"]).fine().json();
    assert!(counts.iter().all(|session| session["standing"] == "running"), "{counts:?}");
}

/// A flag that does not exist, a list that takes none, and a word that is no command.
#[test]
fn a_wrong_flag_is_told_with_the_nearest() {
    let house = House::new();
    for (args, meant) in [
        (&["sessions", "--agnet", "x"][..], "--agent"),
        (&["incidents", "--opne"], "--open"),
        (&["stpo", "x"], "stop"),
        (&["status", "--jsno"], "--json"),
    ] {
        let said = house.ask(args);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{said:?}");
        assert!(said.err.contains(meant) && said.err.contains("similar"), "{args:?}: {said:?}");
    }
}

/// Every command that shows something shows JSON, and nothing else on stdout.
#[test]
fn json_is_json_everywhere() {
    let house = House::new();
    house.run_away("seeker", "s1");
    house.until(&["incidents"], 1);
    let others: [&[&str]; 2] = [&["check", "rm -rf ~"], &["status", "--local"]];
    let mut shown = 0;
    for args in ASKING.iter().filter(|args| args[0] != "watch").chain(&others) {
        let said = house.ask(&[args, &["--json"][..]].concat());
        assert!(!said.err.contains("unexpected argument"), "{args:?}: {said:?}");
        let _: Vec<_> = said.json();
        shown += usize::from(said.code == 0);
    }
    assert!(shown >= 17, "{shown} commands have shown something");
}
