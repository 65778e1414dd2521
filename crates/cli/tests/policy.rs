//! The real program, with its whole output compared. `UPDATE_SNAPSHOTS=1` writes the files in
//! `tests/policy/` anew.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A run of the program: exit code, stdout, stderr.
type Run = (i32, String, String);

fn deadstop(directory: &Path, args: &[&str], stdin: &str) -> Run {
    let mut child = Command::new(env!("CARGO_BIN_EXE_deadstop"))
        .args(args)
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that does not read its stdin may be gone already.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A directory with a good file and bad ones.
fn directory() -> TempDir {
    let directory = TempDir::new().unwrap();
    for (name, text) in [
        ("good.yaml", "preset: strict\nbudget:\n  max_cost_usd: 5\n"),
        ("typo.toml", "[budget]\nmax_cost_used = 5\n"),
        ("zero.json", "{\n  \"destructive\": { \"window_s\": 0 }\n}\n"),
        ("dollars.toml", "budget.max_cost_usd = -1\n"),
        (
            "many.toml",
            "mode = \"enforse\"\n[budget]\nmax_cost_used = 5\n[steps]\nmax_steps = \"x\"\n",
        ),
    ] {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    std::fs::write(directory.path().join("bytes.toml"), b"mode = \"\xff\"").unwrap();
    std::fs::write(directory.path().join("large.toml"), "#".repeat(2 << 20)).unwrap();
    directory
}

fn check(args: &[&str], code: i32, stdout: &str, stderr: &str) {
    let run = deadstop(directory().path(), args, "");
    assert_eq!(run, (code, stdout.to_owned(), stderr.to_owned()), "{args:?}");
}

fn check_snapshot(name: &str, actual: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/policy").join(name);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, actual).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(actual, expected, "{name}: if this is wanted, run again with UPDATE_SNAPSHOTS=1");
}

const TALK: &str = "\
wrote deadstop-policy.toml, a policy that starts from balanced
next: edit it, check it with `deadstop policy check deadstop-policy.toml`, and see what it
would have stopped with `deadstop backtest --policy deadstop-policy.toml TRACES…`
";

#[test]
fn init_writes_a_file_once() {
    let directory = TempDir::new().unwrap();
    let at = |args: &[&str]| deadstop(directory.path(), args, "");
    let file = directory.path().join("deadstop-policy.toml");

    assert_eq!(at(&["policy", "init"]), (0, String::new(), TALK.to_owned()));
    let written = std::fs::read_to_string(&file).unwrap();
    check_snapshot("init_balanced.toml", &written);
    assert_eq!(
        at(&["policy", "check", "deadstop-policy.toml"]),
        (0, "deadstop-policy.toml: ok\n".to_owned(), String::new())
    );

    std::fs::write(&file, "mine").unwrap();
    let refused = "error: deadstop-policy.toml is already there\n\
                   hint: name another file, or overwrite it with --force\n";
    assert_eq!(at(&["policy", "init"]), (2, String::new(), refused.to_owned()));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");

    assert_eq!(at(&["policy", "init", "--force"]), (0, String::new(), TALK.to_owned()));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), written);
    assert_eq!(at(&["policy", "init", "-"]), (0, written, String::new()));
}

#[test]
fn init_starts_from_any_preset() {
    for preset in ["observe", "balanced", "strict"] {
        let directory = TempDir::new().unwrap();
        let at = |args: &[&str]| deadstop(directory.path(), args, "");
        let args = ["policy", "init", "p.toml", "--preset", preset];
        let talk = TALK.replace("deadstop-policy.toml", "p.toml").replace("balanced", preset);
        assert_eq!(at(&args), (0, String::new(), talk));
        let (code, from_file, _) = at(&["policy", "show", "p.toml", "--json"]);
        assert_eq!((code, from_file), (0, at(&["policy", "show", preset, "--json"]).1));
    }
}

#[test]
fn init_refuses_what_it_cannot_do() {
    check(
        &["policy", "init", "p.yaml"],
        2,
        "",
        "error: p.yaml: a policy to start from is written in TOML\n\
         hint: give the file a name that ends in .toml; `deadstop policy show --json` writes JSON\n",
    );
    check(
        &["policy", "init", "nowhere/p.toml"],
        2,
        "",
        "error: nowhere/p.toml cannot be written: No such file or directory (os error 2)\n",
    );
    let (code, stdout, stderr) =
        deadstop(directory().path(), &["policy", "init", "--preset", "lax"], "");
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.contains("[possible values: observe, balanced, strict]"), "{stderr}");
}

#[test]
fn check_says_what_is_wrong_with_each_file() {
    check(&["policy", "check", "good.yaml"], 0, "good.yaml: ok\n", "");
    check(
        &["policy", "check", "typo.toml", "good.yaml", "zero.json", "missing.toml", "dollars.toml"],
        1,
        "typo.toml:2:1: unknown key `max_cost_used` in `budget`\n\
         hint: did you mean `max_cost_usd`?\n\
         good.yaml: ok\n\
         zero.json:2:20: `destructive.window_s`: 0 is not between 1 and 31536000\n\
         hint: write a whole number from 1 to 31536000\n\
         missing.toml: there is no such file\n\
         hint: check that this is the right file\n\
         dollars.toml:1:23: `budget.max_cost_usd`: an amount of dollars must be 0 or more\n\
         hint: `deadstop policy show` lists every setting with a value\n",
        "",
    );
    check(
        &["policy", "check", "many.toml"],
        1,
        "many.toml:1:8: `mode` cannot be `enforse`\n\
         hint: did you mean `enforce`?\n\
         many.toml:3:1: unknown key `max_cost_used` in `budget`\n\
         hint: did you mean `max_cost_usd`?\n\
         many.toml:5:13: `steps.max_steps` must be a whole number of 0 or more, not the text \"x\"\n\
         hint: write the number alone: no quotes, no unit\n",
        "",
    );
    check(
        &["policy", "check", "bytes.toml", "large.toml", "."],
        1,
        "bytes.toml: is not UTF-8 text\n\
         hint: check that this is the right file\n\
         large.toml: more than 1048576 bytes are too many for a policy\n\
         hint: check that this is the right file\n\
         .: cannot be read: Is a directory (os error 21)\n\
         hint: check that this is the right file\n",
        "",
    );
}

#[test]
fn check_speaks_json() {
    let path = directory();
    let args = ["policy", "check", "--json", "typo.toml", "good.yaml", "-"];
    let (code, stdout, stderr) = deadstop(path.path(), &args, "mode: 5");
    assert_eq!((code, stderr.as_str()), (1, ""));
    assert_eq!(
        stdout,
        "{\"file\":\"typo.toml\",\"ok\":false,\"line\":2,\"column\":1,\
         \"problem\":\"unknown key `max_cost_used` in `budget`\",\
         \"hint\":\"did you mean `max_cost_usd`?\",\
         \"errors\":[{\"line\":2,\"column\":1,\
         \"problem\":\"unknown key `max_cost_used` in `budget`\",\
         \"hint\":\"did you mean `max_cost_usd`?\"}]}\n\
         {\"file\":\"good.yaml\",\"ok\":true,\"line\":null,\"column\":null,\
         \"problem\":null,\"hint\":null,\"errors\":[]}\n\
         {\"file\":\"-\",\"ok\":false,\"line\":1,\"column\":7,\"problem\":\"`mode` cannot be 5\",\
         \"hint\":\"write one of `enforce`, `log-only`, `shadow`\",\
         \"errors\":[{\"line\":1,\"column\":7,\"problem\":\"`mode` cannot be 5\",\
         \"hint\":\"write one of `enforce`, `log-only`, `shadow`\"}]}\n"
    );
}

#[test]
fn show_prints_what_is_in_force() {
    let path = directory();
    let at = |args: &[&str], stdin: &str| deadstop(path.path(), args, stdin);

    let (code, shown, talk) = at(&["policy", "show"], "");
    assert_eq!((code, talk.as_str()), (0, ""));
    check_snapshot("show_balanced.toml", &shown);
    assert_eq!(at(&["policy", "show", "balanced"], ""), (0, shown.clone(), String::new()));

    // What is shown is a policy, too, and the same one.
    let again = at(&["policy", "show", "-"], &shown).1;
    assert_eq!(again, shown.replace("of the preset balanced", "of stdin"));

    let (code, shown, talk) = at(&["policy", "show", "good.yaml"], "");
    assert_eq!((code, talk.as_str()), (0, ""));
    assert!(shown.starts_with("# The policy of good.yaml with every setting that is in force.\n"));
    assert!(shown.contains("\n[budget]\nmax_cost_usd = 5.0\nper = \"total\"\n"), "{shown}");

    let (code, json, talk) = at(&["policy", "show", "good.yaml", "--json"], "");
    assert_eq!((code, talk.as_str()), (0, ""));
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["budget"]["max_cost_usd"], 5.0);
    assert_eq!(at(&["policy", "show", "-", "--json"], &shown).1, json);
    assert_eq!(at(&["policy", "show", "-", "--json"], &json).1, json);
}

#[test]
fn show_says_why_it_cannot() {
    check(
        &["policy", "show", "strct"],
        2,
        "",
        "error: `strct` is neither a preset nor a file\n\
         hint: the presets are observe, balanced and strict; `deadstop policy init` writes a file\n",
    );
    check(
        &["policy", "show", "typo.toml"],
        2,
        "",
        "error: typo.toml:2:1: unknown key `max_cost_used` in `budget`\n\
         hint: did you mean `max_cost_usd`?\n",
    );
    check(
        &["policy", "show", "dollars.toml"],
        2,
        "",
        "error: dollars.toml:1:23: `budget.max_cost_usd`: an amount of dollars must be 0 or more\n\
         hint: `deadstop policy show` lists every setting with a value\n",
    );
}

/// `deadstop status | head` used to panic when `head` had seen enough.
#[test]
fn a_reader_that_goes_away_is_no_panic() {
    for args in [&["policy", "show", "strict"][..], &["--help"], &["policy", "show", "balanced"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_deadstop"))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(!said.contains("panicked"), "{args:?}: {said}");
        assert_ne!(ended.status.code(), Some(101), "{args:?}");
    }
}
