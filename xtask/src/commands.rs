//! What `strict` says about commands that the makers of other guards have labelled: how many of
//! those that they stop it would run without asking, and how many of those that they let pass it
//! interrupts.
//!
//! The commands are judged in a scratch project with an uncommitted change, as an agent would make
//! them. Labels that we disagree with are listed, by set and id, with the reason in
//! `docs/commands-disagreements.md`; they are counted apart.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use deadstop_core::Verdict;
use deadstop_gate::Machine;
use deadstop_protocol::check::{Checked, Checker};
use serde::Deserialize;
use serde_json::Value;

/// The list of labels that we disagree with.
const DISAGREEMENTS: &str = "docs/commands-disagreements.md";

/// One labelled command.
#[derive(Debug, Deserialize)]
struct Case {
    set: String,
    id: String,
    tool: String,
    input: Value,
    label: String,
}

#[derive(Debug, Default)]
struct Tally {
    stop: usize,
    missed: usize,
    pass: usize,
    interrupted: usize,
    disputed: usize,
}

/// Judges all sets of a folder with `strict`, prints what came of it and fails below the goals.
pub(crate) fn check(folder: &str, verbose: bool) -> anyhow::Result<()> {
    let mut cases = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.to_owned())? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "jsonl") {
            for line in fs::read_to_string(&path)?.lines().filter(|line| !line.is_empty()) {
                cases.push(serde_json::from_str::<Case>(line).context(path.display().to_string())?);
            }
        }
    }
    ensure!(!cases.is_empty(), "no cases in {folder}");
    let disputed = disagreements()?;
    let scratch = Scratch::new()?;
    let checker = Checker::default();
    let machine = Machine::at(&scratch.0, Vec::new()).remembering();
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    for case in &cases {
        let checked = checker.check(&case.tool, &case.input, &machine);
        let held = checked.verdict.strict >= Verdict::Ask;
        let tally = tallies.entry(case.set.clone()).or_default();
        let agrees = held == (case.label == "stop");
        if !agrees && disputed.contains(&(case.set.clone(), case.id.clone())) {
            tally.disputed += 1;
            continue;
        }
        match case.label.as_str() {
            "stop" => {
                tally.stop += 1;
                tally.missed += usize::from(!held);
            }
            _ => {
                tally.pass += 1;
                tally.interrupted += usize::from(held);
            }
        }
        if !agrees && verbose {
            tell(case, &checked);
        }
    }
    report(&tallies, cases.len())
}

fn tell(case: &Case, checked: &Checked) {
    let text = case.input["command"].as_str().map_or_else(|| case.input.to_string(), str::to_owned);
    let (set, id, label) = (&case.set, &case.id, &case.label);
    println!("{label:>4} but {:<5} {set} {id}\n        {text}", checked.verdict.strict.to_string());
    for harm in &checked.harms {
        println!(
            "        - {:?} {} {} {:?} {:?}",
            harm.kind, harm.verb, harm.target, harm.reach, harm.recovery
        );
    }
}

fn report(tallies: &BTreeMap<String, Tally>, cases: usize) -> anyhow::Result<()> {
    let share = |part: usize, of: usize| 100.0 * part as f64 / of.max(1) as f64;
    let mut all = Tally::default();
    for (set, tally) in tallies {
        let held = tally.stop - tally.missed;
        println!(
            "{set}: held {held} of {} stop ({:.1}%), interrupted {} of {} pass ({:.1}%), \
             disputed {}",
            tally.stop,
            share(held, tally.stop),
            tally.interrupted,
            tally.pass,
            share(tally.interrupted, tally.pass),
            tally.disputed
        );
        all.stop += tally.stop;
        all.missed += tally.missed;
        all.pass += tally.pass;
        all.interrupted += tally.interrupted;
        all.disputed += tally.disputed;
    }
    ensure!(all.missed * 100 <= all.stop * 3, "more than 3% of what others stop would run");
    ensure!(all.interrupted * 100 <= all.pass * 2, "more than 2% of what others let pass is held");
    ensure!(all.disputed * 20 <= cases, "more than 5% of the labels are disputed");
    Ok(())
}

/// Sets and ids in the table of disagreements: `| nah | id | reason |`.
fn disagreements() -> anyhow::Result<HashSet<(String, String)>> {
    let text = match fs::read_to_string(DISAGREEMENTS) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(HashSet::new()),
        read => read.context(DISAGREEMENTS)?,
    };
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        Some((cells.next()?.to_owned(), cells.next()?.trim_matches('`').to_owned()))
    });
    Ok(rows.collect())
}

/// A git project with one commit and an uncommitted change; gone when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> anyhow::Result<Scratch> {
        let folder = std::env::temp_dir().join(format!("deadstop-commands-{}", std::process::id()));
        fs::create_dir_all(folder.join("src"))?;
        fs::write(folder.join("src/lib.rs"), "pub fn one() {}\n")?;
        fs::write(folder.join("README.md"), "# scratch\n")?;
        let scratch = Scratch(folder);
        scratch.git(&["init", "-q", "-b", "main"])?;
        scratch.git(&["add", "."])?;
        let who = ["-c", "user.name=test", "-c", "user.email=test@example.invalid"];
        scratch.git(&[&who[..], &["commit", "-q", "-m", "start"]].concat())?;
        fs::write(scratch.0.join("src/lib.rs"), "pub fn two() {}\n")?;
        Ok(scratch)
    }

    fn git(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let done = Command::new("git").arg("-C").arg(&self.0).args(arguments).status()?;
        ensure!(done.success(), "git {arguments:?} failed");
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays behind lies in a temporary directory.
        let _ = fs::remove_dir_all(Path::new(&self.0));
    }
}
