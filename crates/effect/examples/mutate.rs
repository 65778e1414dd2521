//! Reads mutated commands without end, or as many as are asked for: none may panic, stall or say
//! more than it may.
//!
//! `cargo run --release -p deadstop-effect --example mutate -- CASES [SEED [TELL_FROM]]`. Cases come from the
//! tables of the tests, cut, doubled, nested, quoted and spliced. A case is a stall when it takes
//! more than 5 ms for each 10 KB it has, beyond 5 ms for its start, five times in a row.

use std::time::{Duration, Instant};

use deadstop_effect::of;
use serde_json::json;

/// A small generator of random numbers, the same for the same seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, most: usize) -> usize {
        (self.next() % most.max(1) as u64) as usize
    }
}

const PIECES: [&str; 40] = [
    "'",
    "\"",
    "`",
    "$(",
    ")",
    "${",
    "}",
    "((",
    "))",
    "{",
    ";",
    "&&",
    "||",
    "|",
    "&",
    "\n",
    "\\",
    "<<EOF\n",
    "\nEOF\n",
    "<(",
    ">",
    ">>",
    "2>&1",
    "$",
    "$x",
    "*",
    "?",
    "[",
    "]",
    "~",
    "!",
    "#",
    "=",
    "bash -c ",
    "eval ",
    "sudo ",
    "rm -rf ",
    "\u{1f4a5}",
    "\0",
    "../",
];

/// Words and signs in any order, for what no case has: above all documents inside substitutions.
fn spelled(dice: &mut Dice) -> String {
    const DOCUMENTS: [&str; 10] =
        ["<<E", "<<-E", "E", "\tE\n", "\nE\n", "cat ", " ", "$(", ")", "<<'E'\n"];
    let mut text = String::new();
    for _ in 0..=dice.below(30) {
        text.push_str(match dice.below(2) {
            0 => DOCUMENTS[dice.below(DOCUMENTS.len())],
            _ => PIECES[dice.below(PIECES.len())],
        });
    }
    text
}

fn mutated(dice: &mut Dice, cases: &[String]) -> String {
    if dice.below(10) == 0 {
        return spelled(dice);
    }
    let mut text = cases[dice.below(cases.len())].clone();
    for _ in 0..=dice.below(6) {
        let at = text.floor_char_boundary(dice.below(text.len() + 1));
        match dice.below(9) {
            0 => text.truncate(at),
            1 => text.insert_str(at, PIECES[dice.below(PIECES.len())]),
            2 => text.insert_str(at, &PIECES[dice.below(PIECES.len())].repeat(dice.below(40))),
            3 => {
                let end = text.floor_char_boundary(dice.below(text.len() + 1)).max(at);
                text.replace_range(at..end, "");
            }
            4 => text = format!("bash -c '{}'", text.replace('\'', "'\\''")),
            5 => {
                text =
                    format!("{text}{}{}", PIECES[dice.below(16)], cases[dice.below(cases.len())]);
            }
            6 => text = format!("$({text})"),
            7 => text = format!("echo \"{text}\" | sh"),
            _ if text.len() < 20_000 => text = text.repeat(1 + dice.below(30)),
            _ => {}
        }
    }
    text.truncate(text.floor_char_boundary(40_000));
    text
}

/// Time that this thread has spent on a processor, where the system tells: on a busy machine the
/// clock on the wall says little.
fn busy() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// What a case may take.
fn limit(text: &str) -> Duration {
    Duration::from_millis(5) + Duration::from_micros(text.len() as u64 / 2)
}

fn took(text: &str) -> Duration {
    let (start, before) = (Instant::now(), busy());
    let effects = of("Bash", &json!({ "command": text }));
    let wall = start.elapsed();
    let took = match (before, busy()) {
        (Some(before), Some(after)) => wall.min(after.saturating_sub(before)),
        _ => wall,
    };
    assert!(effects.harms.len() <= 32 && effects.makes.len() <= 32, "{text:?}");
    assert!(effects.harms.iter().all(|harm| harm.target.chars().count() <= 200), "{text:?}");
    took
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|text| text.parse::<u64>().ok());
    let count = arguments.next().unwrap_or(100_000);
    let seed = arguments.next().unwrap_or(1);
    let told = arguments.next().unwrap_or(u64::MAX);
    let table = include_str!("../src/tests/table.txt").lines();
    let readings = include_str!("../src/tests/readings.txt").lines();
    let held = include_str!("../src/tests/held.txt").lines();
    let cases: Vec<String> = table
        .chain(readings)
        .chain(held)
        .filter_map(|line| {
            ["D sh ", "H sh ", "sh ", "here ", "S ", "P "]
                .iter()
                .find_map(|start| line.strip_prefix(start))
        })
        .map(|line| line.replace('⏎', "\n"))
        .collect();
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (mut stalls, mut slowest, mut bytes) = (0_u64, Duration::ZERO, 0_u64);
    let start = Instant::now();
    for number in 0..count {
        let text = mutated(&mut dice, &cases);
        // Whatever ends the program, the case that did is known.
        if number >= told {
            eprintln!("case {number}: {text:?}");
        }
        bytes += text.len() as u64;
        let mut time = took(&text);
        // Another process may have been in the way.
        for _ in 0..4 {
            if time > limit(&text) {
                time = time.min(took(&text));
            }
        }
        slowest = slowest.max(time);
        if time > limit(&text) {
            stalls += 1;
            let shown = &text[..text.floor_char_boundary(300)];
            println!("case {number}: {time:?} for {} bytes: {shown:?}", text.len());
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let rate = count as f64 / seconds;
    println!(
        "{count} cases, {bytes} bytes, {stalls} stalls, slowest {slowest:?}, {rate:.0} a second"
    );
    assert_eq!(stalls, 0, "some cases took too long");
}
