//! Answers in the shapes that providers document, cut everywhere: the pieces must not depend on it.

mod anywhere;
mod chat;
mod limits;
mod odd;
mod others;
mod speed;

use super::*;

/// One answer and what must be read in it.
struct Case {
    dialect: Dialect,
    form: Form,
    hide_usage: bool,
    answer: String,
    /// The pieces, a line each, as `render` writes them.
    expected: &'static str,
    /// What the client gets.
    forwarded: String,
}

impl Case {
    fn new(dialect: Dialect, form: Form, answer: &str, expected: &'static str) -> Case {
        let answer = answer.to_owned();
        Case { dialect, form, hide_usage: false, forwarded: answer.clone(), answer, expected }
    }

    fn hiding(self, forwarded: &str) -> Case {
        Case { hide_usage: true, forwarded: forwarded.to_owned(), ..self }
    }
}

/// All that a reader gave for an answer in parts.
#[derive(Debug, PartialEq)]
struct Run {
    pieces: Vec<Piece>,
    /// Where calls were held, counted in all that was forwarded.
    held: Vec<usize>,
    forwarded: Vec<u8>,
    usage: Option<Usage>,
    output: Tokens,
}

fn run<'a>(case: &Case, parts: impl IntoIterator<Item = &'a [u8]>) -> Run {
    let mut reader = Reader::new(case.dialect, case.form, case.hide_usage);
    let (mut pieces, mut held, mut forwarded) = (Vec::new(), Vec::new(), Vec::new());
    let mut settle = |pass: Pass, bytes: &[u8], pieces: &mut Vec<Piece>| {
        let passed = match pass {
            Pass::All => bytes.to_vec(),
            Pass::Bytes(passed) => passed,
        };
        for piece in pieces {
            if let Piece::ToolCall { held_from, .. } = piece
                && *held_from != usize::MAX
            {
                assert!(*held_from <= passed.len());
                held.push(forwarded.len() + *held_from);
                *held_from = usize::MAX;
            }
        }
        forwarded.extend_from_slice(&passed);
    };
    for part in parts {
        let pass = reader.push(part, &mut pieces);
        settle(pass, part, &mut pieces);
    }
    let pass = reader.finish(&mut pieces);
    settle(pass, &[], &mut pieces);
    assert_eq!(reader.finish(&mut Vec::new()), Pass::All, "nothing is left after the end");
    Run { pieces, held, forwarded, usage: reader.usage(), output: reader.output_so_far() }
}

fn render(pieces: &[Piece]) -> String {
    let line = |piece: &Piece| match piece {
        Piece::Text(text) => format!("text {text}"),
        Piece::ToolCall { id, name, arguments, .. } => format!("call {id} {name} {arguments}"),
        Piece::Usage(u) => {
            let parts = [u.input, u.output, u.cache_read, u.cache_write].map(|t| t.0.to_string());
            format!("usage {}", parts.join(" "))
        }
        Piece::Error(message) => format!("error {message}"),
        Piece::Done => "done".to_owned(),
    };
    pieces.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Reads the answer at once, cut in two at every byte, and byte by byte.
fn check(case: &Case) {
    let bytes = case.answer.as_bytes();
    let whole = run(case, [bytes]);
    let expected: Vec<&str> = case.expected.trim().lines().map(str::trim).collect();
    assert_eq!(render(&whole.pieces), expected.join("\n"));
    assert_eq!(String::from_utf8_lossy(&whole.forwarded), case.forwarded);

    let compare = |found: &Run, cut: usize| {
        assert_eq!(render(&found.pieces), render(&whole.pieces), "cut at {cut}");
        assert_eq!(found.forwarded, whole.forwarded, "cut at {cut}");
        assert_eq!((found.usage, found.output), (whole.usage, whole.output), "cut at {cut}");
    };
    for cut in 0..=bytes.len() {
        let found = run(case, [&bytes[..cut], &bytes[cut..]]);
        compare(&found, cut);
        for (held, expected) in found.held.iter().zip(&whole.held) {
            // A call is held from its event on, or from the cut if that lies within the event.
            let begun = !case.hide_usage && *held == cut && cut > *expected;
            assert!(held == expected || begun, "cut at {cut}: held from {held}, not {expected}");
        }
    }
    let found = run(case, bytes.chunks(1));
    compare(&found, usize::MAX);
}

/// Where calls are held when the answer comes at once: the beginnings of those events.
fn held_events(case: &Case) -> Vec<String> {
    let found = run(case, [case.answer.as_bytes()]);
    let text = |at: &usize| String::from_utf8_lossy(&found.forwarded[*at..]).into_owned();
    found.held.iter().map(text).collect()
}
