//! Ends many trees of each nasty kind, by each means, and counts what is left of them.
//!
//! `cargo run --release -p deadstop-process --example soak -- 200`

use std::error::Error;
use std::process::Command;
use std::time::{Duration, Instant};

use deadstop_process::{Means, Tree};
use nasty::{KINDS, Kind};

#[path = "../tests/nasty/mod.rs"]
mod nasty;

/// Long enough for the polite, short enough for many runs.
const GRACE: Duration = Duration::from_millis(30);

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let runs = words.next().map_or(Ok(20), |word| word.parse())?;
    let only = words.next();
    let best = Tree::spawn(Command::new("sleep").arg("60"))?.means();
    println!("best means here: {best:?}; {runs} runs of each");
    let mut left = 0;
    for means in [Means::CgroupV2, Means::Subreaper] {
        if means == Means::CgroupV2 && best != means {
            println!("{means:?}: not possible here");
            continue;
        }
        for kind in KINDS {
            if only.as_ref().is_none_or(|only| kind.name.contains(only.as_str())) {
                left += soak(kind, means, runs)?;
            }
        }
    }
    println!("survivors in all: {left}");
    if left == 0 { Ok(()) } else { Err("processes survived".into()) }
}

fn soak(kind: Kind, means: Means, runs: usize) -> Result<usize, Box<dyn Error>> {
    let begin = Instant::now();
    let (mut politely, mut forcibly, mut left) = (0, 0, 0);
    let mut times = Vec::new();
    for _ in 0..runs {
        let run = kind.start(means)?;
        let start = Instant::now();
        let ended = run.tree.end(GRACE)?;
        times.push(start.elapsed());
        politely += ended.politely;
        forcibly += ended.forcibly;
        left += nasty::remains(&run).len().max(run.tree.survivors().len());
    }
    times.sort_unstable();
    let at = |share: usize| times.get(times.len().saturating_sub(1) * share / 100);
    println!(
        "{:<11} {:<16} {politely:>6} politely {forcibly:>6} forcibly, end {:>8.1?} median \
         {:>8.1?} longest, {:>5.1?} in all, survivors {left}",
        format!("{means:?}"),
        kind.name,
        at(50).copied().unwrap_or_default(),
        at(100).copied().unwrap_or_default(),
        begin.elapsed(),
    );
    Ok(left)
}
