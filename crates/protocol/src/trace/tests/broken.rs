//! Files that are damaged, too large, hostile, or something else altogether.

use super::super::read::Limits;
use super::*;

const GOOD: &str = r#"{"id":"g","messages":[{"role":"user","content":"x"}]}"#;
const SHOWN: &str = "g (1 messages)\n1 person: \"x\"";

#[test]
fn a_bad_line_is_named_and_passed_over() {
    for (bad, problem) in [
        ("{\"id\": oops}", "not JSON at column 8: expected value; correct or remove this line"),
        (
            "{\"id\":\"g\",\"messa",
            "ends in the middle: the recording was cut short here; remove this line",
        ),
        (
            "7",
            "not as expected at column 1: invalid type: integer `7`, expected a JSON object or a list of messages; correct it",
        ),
        (
            "{\"messages\":\"none\"}",
            "not as expected at column 18: invalid type: string \"none\", expected a sequence; correct it",
        ),
        ("{\"spans\":[]}", "no trace, no message and no event of a transcript: remove this line"),
    ] {
        check(&format!("{GOOD}\n{bad}\n{GOOD}"), &format!("{SHOWN}\nline 2: {problem}\n{SHOWN}"));
        check(&format!("{bad}\n\n{GOOD}"), &format!("line 1: {problem}\n{SHOWN}"));
    }
}

#[test]
fn a_file_of_something_else_is_named_once() {
    let many = "some words\n".repeat(100_000);
    let typed = "{\"type\":\"span\"}\n".repeat(50);
    for (file, first) in [
        ("hello", "line 1: no recorded run found: not JSON at column 1"),
        ("\n\nhello\nworld", "line 3: no recorded run found: not JSON at column 1"),
        (&many, "line 1: no recorded run found: not JSON at column 1"),
        (&typed, "line 1: no recorded run found: no trace, no message"),
        ("{\"spans\": [\n1, 2]}", "line 1: no recorded run found: no trace, no message"),
        ("{\n\"messages\": [\n", "line 2: no recorded run found: ends in the middle"),
        ("{\n\"messages\": [}\n", "line 2: no recorded run found: not JSON at column 14"),
        ("[{\"a\": 1}]", "line 1: no recorded run found: no trace, no message"),
        ("\u{1f}\u{8b}", "line 1: no recorded run found: not JSON"),
    ] {
        let found = shown(Reader::new(file.as_bytes()));
        assert!(found.starts_with(first), "{found}");
        assert!(found.trim_end().ends_with("unpack it first if it is compressed"), "{found}");
        assert_eq!(found.lines().count(), 1, "{found}");
    }
    for nothing in ["", "\n", " \n\r\n\t\n", "\u{feff}"] {
        check(nothing, "");
    }
}

#[test]
fn text_that_is_no_text() {
    let mut file = format!("{GOOD}\n").into_bytes();
    file.extend(b"{\"id\":\"\xff\",\"messages\":[]}\n");
    file.extend(GOOD.as_bytes());
    let expected = format!("{SHOWN}\nline 2: not UTF-8 at byte 8: convert it to UTF-8\n{SHOWN}\n");
    assert_eq!(shown(Reader::new(&file[..])), expected);
}

#[test]
fn depth_is_no_weapon() {
    let deep = |n: usize| "[".repeat(n) + &"]".repeat(n);
    let objects = "{\"a\":".repeat(100_000);
    for bomb in [
        deep(100_000),
        "[".repeat(100_000),
        objects,
        format!("{{\"messages\":[{{\"role\":\"user\",\"content\":{}}}]}}", deep(100_000)),
        format!("{{\"labels\":{},\"messages\":[]}}", deep(100_000)),
        format!("{{\"messages\":{}}}", "[{\"messages\":".repeat(100_000)),
    ] {
        let found = shown(Reader::new(format!("{GOOD}\n{bomb}\n{GOOD}").as_bytes()));
        assert!(found.starts_with(SHOWN) && found.trim_end().ends_with(SHOWN), "{found:.200}");
        assert!(found.contains("line 2: "), "{found:.200}");
        Reader::new(bomb.as_bytes()).for_each(drop);
    }
    // A field that is not read may be as deep as it likes. Arguments too deep to parse stay text.
    let skipped = format!("{{\"id\":\"g\",\"x\":{},\"messages\":[]}}", deep(100_000));
    check(&skipped, "g (0 messages)");
    let call = json!({"function": {"name": "f", "arguments": deep(1000)}});
    let file = json!([{"role": "assistant", "tool_calls": [call]}]).to_string();
    check(&file, &format!("line-1 (1 messages)\n1 answer: \"\"\n  1 f{:?}", deep(1000)));
}

#[test]
fn long_lines_are_passed_over() {
    let limits = Limits { line: 100, transcript: 1 << 20 };
    let long = format!("{{\"id\":\"l\",\"messages\":[{}]}}", " ".repeat(200));
    let document = format!("[\n{}]", " \n".repeat(200));
    let too_long =
        |line, what| format!("line {line}: {what} is longer than 0 MiB: cut its longest texts");
    for (file, expected) in [
        (format!("{GOOD}\n{long}\n{GOOD}"), {
            format!("{SHOWN}\n{}\n{SHOWN}\n", too_long(2, "this line"))
        }),
        (format!("{long}\n{GOOD}"), format!("{}\n{SHOWN}\n", too_long(1, "this line"))),
        (format!("{GOOD}\n{long}"), format!("{SHOWN}\n{}\n", too_long(2, "this line"))),
    ] {
        assert_eq!(shown(Reader::with_limits(file.as_bytes(), limits)), expected);
    }
    let found = shown(Reader::with_limits(document.as_bytes(), limits));
    assert!(found.contains("this JSON document is longer than 0 MiB"), "{found}");
    let cut = format!("{{\"id\":\n{long}\n{GOOD}");
    let found = shown(Reader::with_limits(cut.as_bytes(), limits));
    assert!(found.starts_with("line 1: ends in the middle") && found.contains(SHOWN), "{found}");
    let exact = format!("{GOOD}{}\n{GOOD}", " ".repeat(100 - GOOD.len()));
    let found = shown(Reader::with_limits(exact.as_bytes(), limits));
    assert_eq!(found, format!("{SHOWN}\n{SHOWN}\n"));
}

#[test]
fn a_transcript_without_end_is_handed_out_in_pieces() {
    let event = r#"{"type":"user","sessionId":"s","message":{"role":"user","content":"x"}}"#;
    let file = format!("{event}\n").repeat(10);
    let limits = Limits { line: 1000, transcript: 4 * (event.len() + 1 + 256) - 1 };
    let found: Vec<_> = Reader::with_limits(file.as_bytes(), limits).collect();
    let sizes: Vec<_> = found.iter().map(|t| t.as_ref().map_or(0, |t| t.messages)).collect();
    assert_eq!(sizes, [4, 0, 4, 0, 2]);
    let problem = found[1].as_ref().unwrap_err().to_string();
    assert!(problem.starts_with("line 4: the transcript is longer than 0 MiB"), "{problem}");
}

#[test]
fn input_that_fails_ends_the_reading() {
    struct Fails;
    impl Read for Fails {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("corrupt deflate stream"))
        }
    }
    let event = r#"{"type":"user","sessionId":"s","message":{"role":"user","content":"x"}}"#;
    let problem = "cannot be read: corrupt deflate stream; check the file, or unpack it again";
    for (file, expected) in [
        (format!("{GOOD}\n"), format!("{SHOWN}\nline 2: {problem}\n")),
        (format!("{event}\n"), format!("s (1 messages)\n1 person: \"x\"\nline 2: {problem}\n")),
        (String::new(), format!("line 1: {problem}\n")),
        ("[\n".to_owned(), format!("line 2: {problem}\n")),
    ] {
        let input = BufReader::new(file.as_bytes().chain(Fails));
        assert_eq!(shown(Reader::new(input)), expected);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_to_an_end(file in prop::collection::vec(any::<u8>(), 0..400)) {
        Reader::new(&file[..]).for_each(drop);
    }

    #[test]
    fn any_cut_or_change_is_read_to_an_end(at in 0usize..2000, byte in any::<u8>(), cut: bool) {
        let line = json!({"id": "i", "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "input": {"a": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]},
            {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "x", "ts": 1.5, "usage": {"in": 1}},
        ]});
        let mut file = format!("{line}\n{line:#}\n{line}\n").into_bytes();
        let at = at % file.len();
        if cut { file.truncate(at) } else { file[at] = byte }
        Reader::new(&file[..]).for_each(drop);
    }
}
