//! First contact: `deadstop` without arguments, `init`, completions and man pages, in an empty home.

use std::fs;
use std::process::{Command, Output};

use tempfile::TempDir;

/// Runs the program in a home where no server is wanted.
fn deadstop(home: &TempDir, arguments: &[&str]) -> Output {
    with_server(home, "none", arguments)
}

#[expect(clippy::unwrap_used, reason = "a helper of tests alone")]
fn with_server(home: &TempDir, server: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_deadstop"));
    command.env_clear().env("HOME", home.path()).env("PATH", "/usr/bin:/bin");
    command.env("DEADSTOP_SERVER", server).current_dir(home.path());
    command.args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn without_arguments_it_says_what_runs_and_what_to_do_next() {
    let home = tempfile::tempdir().unwrap();
    let output = with_server(&home, "http://127.0.0.1:1", &[]);
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stdout);
    assert!(said.contains("server     none runs at http://127.0.0.1:1\n"), "{said}");
    assert!(said.contains("installed  coding agents: none\n"), "{said}");
    let steps: Vec<&str> = said.lines().filter(|line| line.starts_with("  deadstop ")).collect();
    assert_eq!(steps.len(), 3, "{said}");
    assert!(steps[0].starts_with("  deadstop demo"), "{said}");
}

/// A web server that answers every request with a page of its own.
#[expect(clippy::unwrap_used, reason = "a helper of tests alone")]
fn another_program() -> String {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let page = "<html>File not found</html>";
            let head = "HTTP/1.1 404 Not Found\r\ncontent-type: text/html\r\nconnection: close";
            let _ = write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{page}", page.len());
        }
    });
    format!("http://{address}")
}

#[test]
fn another_program_on_the_port_is_named_as_such() {
    let home = tempfile::tempdir().unwrap();
    let other = another_program();
    let bare = text(&with_server(&home, &other, &[]).stdout);
    assert!(bare.contains(&format!("none; another program listens at {other}\n")), "{bare}");
    assert!(!bare.contains("html") && !bare.contains("DEADSTOP_KEY"), "{bare}");
    let status = with_server(&home, &other, &["status"]);
    let said = text(&status.stderr);
    assert_eq!(status.status.code(), Some(2), "{said}");
    assert!(said.contains(&format!("another program answers at {other}, not Deadstop")), "{said}");
    assert!(said.contains("hint: check --server") && !said.contains("html"), "{said}");
}

#[test]
fn init_that_cannot_write_says_where_and_what_to_check() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_deadstop"));
    command.env_clear().env("HOME", home.path()).env("DEADSTOP_SERVER", "none");
    // Not even root makes a folder there.
    command.env("XDG_CONFIG_HOME", "/proc/nowhere").current_dir(home.path());
    command.args(["init", "--agents", "none", "--policy", "strict", "--yes"]);
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("error: cannot write /proc/nowhere/deadstop/deadstop.toml"), "{said}");
    assert!(said.contains("hint: ") && said.contains("check HOME"), "{said}");
}

#[test]
fn init_writes_what_it_shows_and_tests_it() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join(".config/deadstop/deadstop.toml");
    let settings = home.path().join(".claude/settings.json");
    let answers = ["init", "--agents", "claude-code", "--policy", "strict"];
    let shown = deadstop(&home, &[&answers[..], &["--dry-run"]].concat());
    assert!(shown.status.success() && !config.exists() && !settings.exists(), "{shown:?}");
    assert!(text(&shown.stdout).contains("+ policy = \"strict\""), "{shown:?}");
    let done = deadstop(&home, &[&answers[..], &["--yes"]].concat());
    assert!(done.status.success(), "{done:?}");
    assert_eq!(fs::read_to_string(&config).unwrap(), "policy = \"strict\"\n");
    assert!(fs::read_to_string(&settings).unwrap().contains("hook claude-code PreToolUse"));
    let said = text(&done.stdout);
    let proven = |line: &&str| {
        line.contains("hook claude-code") && line.split(['\t', '|']).any(|cell| cell.trim() == "ok")
    };
    assert!(said.lines().any(|line| proven(&line)), "{said}");
    // Once more, there is nothing to do; and what was written is found.
    let again = deadstop(&home, &[&answers[..], &["--yes"]].concat());
    assert!(text(&again.stderr).contains("nothing to change"), "{again:?}");
    let bare = text(&deadstop(&home, &[]).stdout);
    assert!(bare.contains("installed  coding agents: claude-code\n"), "{bare}");
}

#[test]
fn init_without_a_terminal_says_how_to_answer() {
    let home = tempfile::tempdir().unwrap();
    let output = deadstop(&home, &["init"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("hint: answer beforehand: deadstop init --agents"));
    assert!(!home.path().join(".config").exists());
}

#[test]
fn the_parser_writes_completions_and_man_pages() {
    let home = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let said = text(&deadstop(&home, &["completions", shell]).stdout);
        assert!(said.contains("backtest") && said.contains("max-cost"), "{shell}: {said}");
    }
    assert!(deadstop(&home, &["man", "pages"]).status.success());
    let page = fs::read_to_string(home.path().join("pages/deadstop-run.1")).unwrap();
    assert!(page.contains("\\-\\-max\\-cost"), "{page}");
    assert!(home.path().join("pages/deadstop.1").is_file());
}

#[test]
fn the_version_says_what_was_built() {
    let home = tempfile::tempdir().unwrap();
    let said = text(&deadstop(&home, &["--version"]).stdout);
    assert!(said.starts_with(&format!("deadstop {} (", env!("CARGO_PKG_VERSION"))), "{said}");
}
