//! `deadstop run` as a user meets it: the real program, real processes, and a stand-in for the
//! provider on loopback.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

#[path = "run/child.rs"]
mod child;
#[path = "run/stage.rs"]
mod stage;

use std::fs;
use std::time::{Duration, Instant};

use stage::{Provider, Running, Stage, order, until};

/// A provider that always asks for something else.
const HEALTHY: &str = r#"{"q":#}"#;

#[test]
fn exit_codes_are_passed_through() {
    for (script, expected) in
        [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137), ("kill -TERM $$", 143)]
    {
        let outcome = Stage::new().run(&["run", "--", "sh", "-c", script]);
        assert_eq!(outcome.code, expected, "{script}: {outcome:?}");
        assert_eq!(outcome.text(), "");
    }
}

#[test]
fn what_cannot_be_run_is_a_shells_error() {
    let stage = Stage::new();
    fs::write(stage.path("plain"), "text").unwrap();
    for (command, code, message) in [
        ("no-such-command", 127, "error: no-such-command: command not found\nhint: "),
        ("./plain", 126, "error: ./plain: cannot be run: Permission denied"),
    ] {
        let outcome = stage.run(&["run", "--quiet", "--", command]);
        assert_eq!(outcome.code, code, "{outcome:?}");
        assert!(outcome.stderr.starts_with(message), "{outcome:?}");
    }
    for args in [
        &["run", "--max-time", "soon", "--", "true"][..],
        &["run", "--max-cost", "0", "--", "true"],
        &["run", "--policy", "strict", "--server", "http://127.0.0.1:1", "--", "true"],
        &["run", "--server", "http://127.0.0.1:1", "--", "true"],
        &["run", "--policy", "unknown", "--", "true"],
        &["run"],
    ] {
        assert_eq!(stage.run(args).code, 2, "{args:?}");
    }
}

#[test]
fn streams_are_the_commands() {
    let bytes: Vec<u8> =
        (0..200_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let stage = Stage::new();
    let outcome = stage.start(&["run", "--", "cat"]).finish(&bytes);
    assert_eq!(outcome.code, 0);
    assert!(outcome.stdout == bytes, "the bytes differ");
    assert!(outcome.stderr.contains("deadstop: no calls came through"), "{}", outcome.stderr);
    let quiet = stage.run(&["run", "--quiet", "--", "sh", "-c", "echo out; echo err >&2"]);
    assert_eq!((quiet.text().as_str(), quiet.stderr.as_str()), ("out\n", "err\n"));
}

#[test]
fn the_environment_points_at_the_gateway_and_the_gateway_where_it_pointed() {
    let provider = Provider::start(HEALTHY);
    let stage = Stage::new()
        .with("OPENAI_BASE_URL", &provider.url("/deep/v1"))
        .with("OPENAI_API_KEY", "sk-mine")
        .with("HTTPS_PROXY", "http://127.0.0.1:1");
    let script = "env > environment; exec python3 agent.py 2";
    let outcome = stage.run(&["run", "--agent", "bot", "--", "sh", "-c", script]);
    assert_eq!((outcome.code, outcome.text().as_str()), (0, "answered\nanswered\ndone\n"));
    let environment = fs::read_to_string(stage.path("environment")).unwrap();
    let get = |name: &str| {
        let found = environment.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
        found.unwrap_or_else(|| panic!("no {name}")).to_owned()
    };
    let server = get("DEADSTOP_SERVER");
    assert!(server.starts_with("http://127.0.0.1:"), "{server}");
    for (name, path) in [
        ("OPENAI_BASE_URL", "/openai/v1"),
        ("OPENAI_API_BASE", "/openai/v1"),
        ("ANTHROPIC_BASE_URL", "/anthropic"),
        ("GOOGLE_GEMINI_BASE_URL", "/gemini"),
    ] {
        assert_eq!(get(name), format!("{server}{path}"));
    }
    assert_eq!(get("OPENAI_API_KEY"), "sk-mine");
    assert_eq!(get("DEADSTOP_AGENT"), "bot");
    assert_eq!(get("NO_PROXY"), "127.0.0.1,localhost");

    let heads = provider.heads();
    assert_eq!(heads.len(), 2);
    for head in heads {
        assert!(head.starts_with("post /deep/v1/chat/completions http/1.1"), "{head}");
        assert!(head.contains("authorization: bearer sk-mine"), "{head}");
    }
    let figures =
        "deadstop: 2 model calls, 2 tool calls, 2,000 tokens in and 2,000 tokens out, $0.02";
    assert!(outcome.stderr.contains(figures), "{}", outcome.stderr);
}

/// An agent that does not take no for an answer, until something ends it.
fn stopped(provider: &'static str, args: &[&str], answered: usize, sentence: &str, guard: &str) {
    let provider = Provider::start(provider);
    let stage = Stage::new().with("OPENAI_BASE_URL", &provider.url("/v1"));
    let mut all = vec!["run", "--summary", "summary.json", "--grace", "1"];
    all.extend(args);
    all.extend(["--", "sh", "-c", "setsid sleep 60 & python3 agent.py 1000"]);
    let outcome = stage.run(&all);
    assert_eq!(outcome.code, 86, "{outcome:?}");
    assert_eq!(outcome.text().matches("answered").count(), answered, "{outcome:?}");
    assert!(outcome.stderr.contains(sentence), "{}", outcome.stderr);
    let summary = fs::read_to_string(stage.path("summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["guard"], guard, "{summary}");
    assert_eq!((&summary["fate"], &summary["exit_code"]), (&"stopped".into(), &86.into()));
    assert!(summary["why"].as_str().unwrap().contains(sentence), "{summary}");
}

#[test]
fn too_many_steps_end_the_command() {
    stopped(HEALTHY, &["--max-steps", "3"], 3, "all 3 tool calls of", "steps");
}

#[test]
fn a_budget_that_is_used_up_ends_the_command() {
    // Each call costs $0.0125: the first bill passes the limit.
    stopped(HEALTHY, &["--max-cost", "0.012"], 1, "budget of $0.012", "budget");
}

#[test]
fn a_loop_ends_the_command() {
    let same = r#"{"q":"the same"}"#;
    stopped(same, &["--policy", "strict"], 4, "look_up", "loop");
}

#[test]
fn an_agent_that_gives_up_by_itself_was_stopped_all_the_same() {
    let provider = Provider::start(HEALTHY);
    let stage = Stage::new().with("OPENAI_BASE_URL", &provider.url("/v1"));
    let outcome =
        stage.run(&["run", "--json", "--max-steps", "1", "--", "python3", "agent.py", "2"]);
    assert_eq!(outcome.code, 86, "{outcome:?}");
    let summary: serde_json::Value = serde_json::from_str(outcome.stderr.trim()).unwrap();
    assert_eq!(summary["model_calls"], 2, "{summary}");
    assert_eq!(summary["tool_calls"], 1, "{summary}");
}

#[test]
fn limits_hold_even_where_the_policy_only_watches() {
    let provider = Provider::start(HEALTHY);
    let stage = Stage::new().with("OPENAI_BASE_URL", &provider.url("/v1"));
    fs::write(stage.path("watch.toml"), "mode = \"log-only\"\n").unwrap();
    let args = ["run", "--policy", "watch.toml", "--max-steps", "2", "--grace", "1"];
    let outcome = stage.run(&[&args[..], &["--", "python3", "agent.py", "1000"]].concat());
    assert_eq!(outcome.code, 86, "{outcome:?}");
}

#[test]
fn time_is_up_without_a_single_call() {
    let began = Instant::now();
    let stage = Stage::new();
    let outcome = stage.run(&["run", "--max-time", "300ms", "--", "sleep", "60"]);
    assert_eq!(outcome.code, 86, "{outcome:?}");
    assert!(outcome.stderr.contains("Time limit of 300 ms reached"), "{outcome:?}");
    assert!(began.elapsed() < Duration::from_secs(10));
    // The same from a policy.
    fs::write(stage.path("short.toml"), "[time]\nmax_wall_time_seconds = 1\n").unwrap();
    let outcome = stage.run(&["run", "--policy", "short.toml", "--", "sleep", "60"]);
    assert_eq!(outcome.code, 86, "{outcome:?}");
}

/// Scripts that write to the file `lines` when all of them are there; then an operator kills.
fn nasty(script: &str, lines: usize) {
    for _ in 0..5 {
        let stage = Stage::new();
        let script = format!("echo $DEADSTOP_SERVER > server\n{script}");
        let running = stage.start(&["run", "--grace", "0.2", "--", "sh", "-c", &script]);
        stage.lines("lines", lines);
        let server = stage.lines("server", 1);
        // Ourselves not counted: the search finds what there is to be found.
        stage.lives(lines.min(3) + 1);
        let order_of = r#"{"all":true,"reason":"enough","by":"a test"}"#;
        order(&server, "/api/kill", order_of);
        let outcome = stage.finish(running);
        assert_eq!(outcome.code, 86, "{}", outcome.stderr);
        assert!(outcome.stderr.contains("everything was killed: enough"), "{}", outcome.stderr);
    }
}

#[test]
fn a_tree_in_other_sessions_is_ended() {
    nasty(
        "setsid sh -c 'echo x >> lines; sleep 60; :' & \
         setsid setsid -f sh -c 'echo x >> lines; sleep 60; :'; echo x >> lines; wait",
        3,
    );
}

#[test]
fn a_tree_that_ignores_signals_is_ended() {
    nasty(
        "trap '' TERM HUP INT; setsid sh -c 'echo x >> lines; sleep 60; :' & \
         echo x >> lines; while sleep 1; do test $((n += 1)) -lt 60 || exit; done",
        2,
    );
}

#[test]
fn a_daemon_is_ended() {
    nasty(
        r#"perl -MPOSIX=setsid -e 'fork and exit; setsid; fork and exit;
           exec "/bin/sh", "-c", "echo x >> lines; exec >/dev/null 2>&1; sleep 60; :"'
           echo x >> lines; sleep 60; :"#,
        2,
    );
}

#[test]
fn a_fork_storm_is_ended() {
    nasty(
        r#"exec perl -e '$SIG{TERM} = "IGNORE"; my $end = time + 30;
           sub node { my $depth = shift; my $alive = 0; my $born = 0;
             if (open my $f, ">>", "lines") { print $f "x\n" }
             while (time < $end) {
               while ($depth < 5 and $alive < 2 and $born < 40) {
                 my $pid = fork; last unless defined $pid;
                 if (!$pid) { node($depth + 1); exit } $alive++; $born++ }
               if ($alive) { wait; $alive-- }
               else { select undef, undef, undef, 0.05; exit if $depth == 5 and rand() < 0.3 } } }
           node(0)'"#,
        30,
    );
}

#[test]
fn a_flood_of_output_is_ended() {
    nasty("yes > /dev/null & setsid yes > /dev/null & echo x >> lines; exec yes > /dev/null", 1);
}

#[test]
fn what_a_command_leaves_behind_is_ended() {
    let outcome = Stage::new().run(&["run", "--", "sh", "-c", "setsid sleep 60 & exit 3"]);
    assert_eq!(outcome.code, 3, "{outcome:?}");
    assert!(outcome.stderr.contains("that the command had left behind"), "{outcome:?}");
}

/// Notes the signals it gets and goes on.
const STUBBORN: &str = "trap 'echo INT >> lines' INT; trap 'echo TERM >> asked' TERM; \
                        setsid sh -c 'trap \"\" TERM; sleep 60; :' & \
                        echo ready > ready; while :; do sleep 0.05; done";

#[test]
fn ctrl_c_is_the_commands_and_twice_is_ours() {
    let stage = Stage::new();
    let mut running = stage.start(&["run", "--grace", "60", "--", "sh", "-c", STUBBORN]);
    stage.lines("ready", 1);
    running.signal_group("INT");
    stage.lines("lines", 1);
    assert!(running.child.try_wait().unwrap().is_none(), "one Ctrl-C ended it");
    // Twice means within two seconds, which a busy machine may miss once, but not every time.
    let began = Instant::now();
    while running.child.try_wait().unwrap().is_none() && began.elapsed() < Duration::from_secs(20) {
        running.signal_group("INT");
        std::thread::sleep(Duration::from_millis(200));
    }
    let outcome = stage.finish(running);
    assert_eq!(outcome.code, 130, "{outcome:?}");
    assert!(began.elapsed() < Duration::from_secs(30), "the grace was kept");
}

#[test]
fn ctrl_c_ends_a_command_that_takes_it() {
    let stage = Stage::new();
    let running = stage.start(&["run", "--", "sh", "-c", "echo ready > ready; exec sleep 60"]);
    stage.lines("ready", 1);
    // The shell may not have become the sleeper yet; either takes it.
    running.signal_group("INT");
    assert_eq!(stage.finish(running).code, 130);
}

#[test]
fn the_end_of_deadstop_is_the_end_of_the_tree() {
    for (signal, code) in [("TERM", 143), ("HUP", 129)] {
        let stage = Stage::new();
        let running = stage.start(&["run", "--grace", "0.2", "--", "sh", "-c", STUBBORN]);
        stage.lines("ready", 1);
        running.signal(signal);
        assert_eq!(stage.finish(running).code, code);
    }
    // A further signal cuts a long grace short.
    let stage = Stage::new();
    let running = stage.start(&["run", "--grace", "60", "--", "sh", "-c", STUBBORN]);
    stage.lines("ready", 1);
    running.signal("TERM");
    stage.lines("asked", 1);
    running.signal("INT");
    assert_eq!(stage.finish(running).code, 143);
}

/// Number 10 of the attack table: without a guardian the tree lived on.
#[test]
fn hole_10_a_killed_deadstop_takes_its_tree_along() {
    let daemon = r#"perl -MPOSIX=setsid -e 'fork and exit; setsid; fork and exit;
        exec "/bin/sh", "-c", "echo x >> lines; exec >/dev/null 2>&1; sleep 60; :"'"#;
    let script = format!(
        "trap '' TERM; setsid sh -c 'echo x >> lines; sleep 60; :' & {daemon}; echo x >> lines; wait"
    );
    let group = |running: &Running| running.signal_group("KILL");
    let alone = |running: &Running| running.signal("KILL");
    for kill in [group, alone] {
        let stage = Stage::new();
        let mut running = stage.start(&["run", "--", "sh", "-c", &script]);
        stage.lines("lines", 3);
        stage.lives(4);
        kill(&running);
        running.child.wait().unwrap();
        stage.dies();
    }
    // A Deadstop inside it, whose own guardian is ended with it.
    let stage = Stage::new();
    let deadstop = env!("CARGO_BIN_EXE_deadstop");
    let mut running = stage.start(&["run", "--", deadstop, "run", "--", "sh", "-c", &script]);
    stage.lines("lines", 3);
    alone(&running);
    running.child.wait().unwrap();
    stage.dies();
}

#[test]
fn what_is_ignored_stays_ignored() {
    let stage = Stage::new();
    let deadstop = env!("CARGO_BIN_EXE_deadstop");
    let script = format!(
        "trap '' HUP; exec {deadstop} run --quiet -- sh -c 'grep SigIgn /proc/self/status'"
    );
    let outcome = stage.run(&["run", "--", "sh", "-c", &script]);
    let mask = outcome.text().trim().trim_start_matches("SigIgn:").trim().to_owned();
    assert_eq!(u64::from_str_radix(&mask, 16).unwrap() & 1, 1, "{outcome:?}");
}

#[test]
fn a_running_server_can_be_used_and_can_stop_it() {
    let provider = Provider::start(HEALTHY);
    let stage = Stage::new();
    let config = format!("[providers.openai]\nbase_url = \"{}\"\n", provider.url(""));
    fs::write(stage.path("deadstop.toml"), config).unwrap();
    let script = "deadstop serve --listen 127.0.0.1:0 --data data 2> served";
    let script = script.replace("deadstop ", &format!("{} ", env!("CARGO_BIN_EXE_deadstop")));
    let serving = stage.start(&["run", "--quiet", "--", "sh", "-c", &script]);
    let served = stage.lines("served", 1);
    let server = served.split_whitespace().find(|word| word.starts_with("http://")).unwrap();

    let args = ["run", "--server", server, "--agent", "my bot", "--grace", "1"];
    let with = |more: &[&str], calls: &str| {
        let command = ["--", "python3", "agent.py", calls];
        [&args[..], more, &command].concat().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let run = |args: Vec<String>| {
        let client = Stage::new();
        client.run(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let fine = run(with(&[], "2"));
    assert_eq!(fine.code, 0, "{fine:?}");
    assert!(fine.stderr.contains("2 model calls"), "{}", fine.stderr);

    // Named by the environment, it is joined as well; settings of a gateway ask for one's own.
    let joined = |more: &[&str]| {
        let client = Stage::new().with("DEADSTOP_SERVER", server);
        client.run(&[&["run"], more, &["--", "true"]].concat()).stderr
    };
    let note = format!("joined the server at {server}");
    assert!(joined(&[]).contains(&note) && !joined(&["--policy", "strict"]).contains(&note));

    let limited = run(with(&["--max-steps", "3"], "1000"));
    assert_eq!(limited.code, 86, "{limited:?}");

    let client = Stage::new();
    let typed = with(&[], "1000");
    let running = client.start(&typed.iter().map(String::as_str).collect::<Vec<_>>());
    let before = provider.heads().len();
    until("calls", || provider.heads().len() > before);
    order(server, "/api/kill", r#"{"agent":"my bot","reason":"enough","by":"a test"}"#);
    let killed = client.finish(running);
    assert_eq!(killed.code, 86, "{killed:?}");
    assert!(killed.stderr.contains("the agent my bot was killed: enough"), "{}", killed.stderr);

    let refused = run(with(&[], "1"));
    assert_eq!((refused.code, refused.text().as_str()), (86, ""), "{refused:?}");
    assert!(refused.stderr.contains("not started: the agent my bot"), "{}", refused.stderr);
    serving.signal("TERM");
    assert_eq!(stage.finish(serving).code, 143);
}

/// Makes one call with the headers that the environment names, as SDKs do.
const CALLER: &str = "import os, urllib.request
headers = dict(line.split(': ', 1) for line in os.environ['OPENAI_CUSTOM_HEADERS'].splitlines())
headers['content-type'] = 'application/json'
url = os.environ['OPENAI_BASE_URL'] + '/chat/completions'
body = b'{\"model\":\"gpt-4o\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}'
urllib.request.urlopen(urllib.request.Request(url, body, headers)).read()";

#[test]
fn a_server_with_keys_is_shown_one_and_the_command_can_call_with_it() {
    let provider = Provider::start(HEALTHY);
    let stage = Stage::new();
    let config = format!("[providers.openai]\nbase_url = \"{}\"\n", provider.url(""));
    fs::write(stage.path("deadstop.toml"), config).unwrap();
    let make = |role: &str, name: &str| {
        let args = ["keys", "create", "--role", role, "--name", name, "--data", "data"];
        let any: &[&str] = if role == "agent" { &["--any-agent"] } else { &[] };
        let made = stage.run(&[&args[..], any].concat());
        assert_eq!(made.code, 0, "{made:?}");
        let file = stage.path(name);
        fs::write(&file, made.text()).unwrap();
        file.display().to_string()
    };
    let (admin, agent) = (make("admin", "root"), make("agent", "bot"));
    let operator = make("operator", "op");
    let script = "deadstop serve --listen 127.0.0.1:0 --data data 2> served";
    let script = script.replace("deadstop ", &format!("{} ", env!("CARGO_BIN_EXE_deadstop")));
    let serving = stage.start(&["run", "--quiet", "--", "sh", "-c", &script]);
    let served = stage.lines("served", 1);
    let server = served.split_whitespace().find(|word| word.starts_with("http://")).unwrap();

    let run = |key: &[&str]| {
        let args = [&["run", "--server", server, "--agent", "caller"][..], key].concat();
        Stage::new().run(&[&args[..], &["--", "python3", "-c", CALLER]].concat())
    };
    let keyless = run(&[]);
    assert_eq!(keyless.code, 2, "{keyless:?}");
    assert!(keyless.stderr.contains("wants a key"), "{}", keyless.stderr);
    let by_agent = run(&["--key-file", &agent]);
    assert_eq!(by_agent.code, 0, "{by_agent:?}");
    assert!(by_agent.stderr.contains("1 model call"), "{}", by_agent.stderr);
    // An operator's key is not given to a command, and an admin's lends it one of its own.
    let by_operator = run(&["--key-file", &operator]);
    assert_eq!(by_operator.code, 2, "{by_operator:?}");
    assert!(by_operator.stderr.contains("lift its own stop"), "{}", by_operator.stderr);
    let by_admin = run(&["--key-file", &admin]);
    assert_eq!(by_admin.code, 0, "{by_admin:?}");
    let show = "echo $DEADSTOP_KEY $DEADSTOP_KEY_FILE; env | grep -c ds_a_";
    let args = ["run", "--quiet", "--server", server, "--agent", "shower", "--key-file", &admin];
    let shown = Stage::new().run(&[&args[..], &["--", "sh", "-c", show]].concat());
    let (lent, rest) = shown.stdout.split_at(5);
    assert_eq!(lent, b"ds_g_", "{shown:?}");
    assert!(String::from_utf8_lossy(rest).ends_with("\n0\n"), "{shown:?}");
    let listed =
        Stage::new().run(&["keys", "list", "--json", "--server", server, "--key-file", &admin]);
    let keys: Vec<serde_json::Value> =
        listed.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let lent: Vec<_> = keys.iter().filter(|key| key["agent"] == "shower").collect();
    assert_eq!(lent.len(), 1, "{keys:?}");
    assert!(!lent[0]["revoked_ms"].is_null(), "it is given back: {lent:?}");
    serving.signal("TERM");
    assert_eq!(stage.finish(serving).code, 143);
}
