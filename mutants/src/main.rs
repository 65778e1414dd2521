//! The mutation score of the severity table and of the reader of commands.
//!
//! `cargo run --release --manifest-path mutants/Cargo.toml -- [--again] [--list] [--every N] [--from N] [--jobs N] [--least PERCENT] [PART…]`
//! copies the tree to `target/mutants`, puts every fault into the copy at once, each behind a number, compiles the
//! tests once, and runs them for each number. That takes seconds where one compilation for each fault takes hours.
//! A PART names files by a part of their path; `--again` tries only what was missed the last time, `--every N` each
//! N-th, as a sample, `--from N` leaving the first N out; `--list` shows them and tries none.
//!
//! A fault is caught when a test fails or takes far too long. What is missed is told with its file and line, and
//! kept in `target/mutants/missed`. Exit 1 below `--least` percent (90).

mod switch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, bail, ensure};
use switch::Mutant;

/// A crate whose files get faults, and how its tests are run: the quick ones first, the rest for what they miss.
struct Part {
    package: &'static str,
    folder: &'static str,
    /// Files, or folders, below the crate's `src`.
    files: &'static [&'static str],
    runs: &'static [&'static [&'static str]],
}

const PARTS: [Part; 2] = [
    Part {
        package: "deadstop-core",
        folder: "crates/core",
        files: &["harm.rs", "guard/harm.rs"],
        runs: &[&["harm"], &["policy"], &[]],
    },
    Part {
        package: "deadstop-effect",
        folder: "crates/effect",
        files: &[""],
        runs: &[&["--skip", "limits"], &["limits"]],
    },
];

struct Options {
    again: bool,
    list: bool,
    every: usize,
    from: usize,
    jobs: usize,
    least: usize,
    only: Vec<String>,
}

fn main() -> anyhow::Result<()> {
    let options = options()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("there is no tree")?;
    let work = root.join("target/mutants");
    let tree = work.join("tree");
    copy(root, &tree)?;
    let mut mutants = Vec::new();
    for part in &PARTS {
        plant(part, &tree, &mut mutants)?;
    }
    if options.list {
        mutants.iter().for_each(|mutant| println!("{} {mutant}", mutant.number));
        return Ok(());
    }
    let mut tests = BTreeMap::new();
    for part in &PARTS {
        tests.insert(part.package, built(part, &tree, &work)?);
    }
    let missed_file = work.join("missed");
    let before: BTreeSet<String> =
        fs::read_to_string(&missed_file).unwrap_or_default().lines().map(str::to_owned).collect();
    let chosen: Vec<&Mutant> = mutants
        .iter()
        .filter(|mutant| !options.again || before.contains(&mutant.to_string()))
        .filter(|mutant| {
            options.only.is_empty() || options.only.iter().any(|part| mutant.file.contains(part))
        })
        .skip(options.from)
        .step_by(options.every.max(1))
        .collect();
    ensure!(!chosen.is_empty(), "no mutants to try");
    let limits = limits(&tests)?;
    println!("{} mutants, {} of them tried, {} at a time", mutants.len(), chosen.len(), options.jobs);
    let missed = tried(&chosen, &tests, &limits, options.jobs)?;
    report(&chosen, &missed, &missed_file, options.least)
}

fn options() -> anyhow::Result<Options> {
    let mut options = Options { again: false, list: false, every: 1, from: 0, jobs: 2, least: 90, only: Vec::new() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|word| word.parse().ok()).context("say a number");
        match word.as_str() {
            "--again" => options.again = true,
            "--list" => options.list = true,
            "--every" => options.every = number()?,
            "--from" => options.from = number()?,
            "--jobs" => options.jobs = number()?,
            "--least" => options.least = number()?,
            word if word.starts_with('-') => bail!("{word} is no option"),
            _ => options.only.push(word),
        }
    }
    Ok(options)
}

/// Copies all files that git knows or would know.
fn copy(root: &Path, tree: &Path) -> anyhow::Result<()> {
    if tree.exists() {
        fs::remove_dir_all(tree)?;
    }
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()?;
    ensure!(listed.status.success(), "git ls-files failed");
    for name in String::from_utf8(listed.stdout)?.split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (root.join(name), tree.join(name));
        if from.is_file() {
            fs::create_dir_all(to.parent().context("no folder")?)?;
            fs::copy(&from, &to).with_context(|| name.to_owned())?;
        }
    }
    Ok(())
}

/// Puts all faults into the files of a part.
fn plant(part: &Part, tree: &Path, mutants: &mut Vec<Mutant>) -> anyhow::Result<()> {
    let source = tree.join(part.folder).join("src");
    let mut files = Vec::new();
    for name in part.files {
        rust_files(&source.join(name), &mut files)?;
    }
    for file in files {
        let shown = file.strip_prefix(tree)?.display().to_string();
        let text = fs::read_to_string(&file)?;
        let text = switch::planted(&text, part.package, &shown, mutants).context(shown)?;
        fs::write(&file, text)?;
    }
    let top = source.join("lib.rs");
    let text = fs::read_to_string(&top)? + switch::SWITCH;
    fs::write(top, text)?;
    Ok(())
}

fn rust_files(path: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if path.is_file() {
        found.push(path.to_owned());
        return Ok(());
    }
    let mut entries: Vec<PathBuf> =
        fs::read_dir(path)?.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>()?;
    entries.sort();
    for path in entries {
        let is_test = path.file_stem().is_some_and(|stem| stem == "tests");
        if !is_test && (path.is_dir() || path.extension().is_some_and(|end| end == "rs")) {
            rust_files(&path, found)?;
        }
    }
    Ok(())
}

/// Compiles a part's tests; gives the program.
fn built(part: &Part, tree: &Path, work: &Path) -> anyhow::Result<PathBuf> {
    let output = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .args(["test", "--no-run", "--locked", "--lib", "--message-format=json", "--package"])
        .arg(part.package)
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", work.join("target"))
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_TEST_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("RUSTFLAGS", "--cap-lints=warn -Awarnings")
        .stderr(Stdio::inherit())
        .output()?;
    let mut program = None;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        if message["reason"] == "compiler-message" && message["message"]["level"] == "error" {
            eprintln!("{}", message["message"]["rendered"].as_str().unwrap_or_default());
        }
        if message["profile"]["test"] == true
            && let Some(path) = message["executable"].as_str()
        {
            program = Some(PathBuf::from(path));
        }
    }
    ensure!(output.status.success(), "the copy of {} does not compile", part.package);
    program.context("cargo names no test program")
}

fn part_of(package: &str) -> &'static Part {
    PARTS.iter().find(|part| part.package == package).unwrap_or(&PARTS[0])
}

/// Runs tests with a fault on; 0 is none. Whether they pass in time.
fn passes(program: &Path, words: &[&str], number: u32, limit: Duration) -> anyhow::Result<bool> {
    let mut child = Command::new(program)
        .args(words)
        .args(["--test-threads", "1"])
        .env("DEADSTOP_MUTANT", number.to_string())
        .env("PROPTEST_CASES", "16")
        .env("PROPTEST_RNG_SEED", "1")
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// How long each run of each part may take: what it takes without a fault, many times over.
fn limits(
    tests: &BTreeMap<&'static str, PathBuf>,
) -> anyhow::Result<BTreeMap<&'static str, Vec<Duration>>> {
    let mut limits = BTreeMap::new();
    for part in &PARTS {
        let mut all = Vec::new();
        for words in part.runs {
            let start = Instant::now();
            let fine = passes(&tests[part.package], words, 0, Duration::from_secs(300))?;
            ensure!(fine, "{}: tests fail without a fault: {words:?}", part.package);
            all.push(Duration::from_secs(5) + start.elapsed() * 8);
        }
        println!("{}: {all:?} at most", part.package);
        limits.insert(part.package, all);
    }
    Ok(limits)
}

/// Tries mutants; gives those that no test notices.
fn tried<'a>(
    chosen: &[&'a Mutant],
    tests: &BTreeMap<&'static str, PathBuf>,
    limits: &BTreeMap<&'static str, Vec<Duration>>,
    jobs: usize,
) -> anyhow::Result<Vec<&'a Mutant>> {
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> anyhow::Result<()> {
        while let Some(mutant) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            let runs = part_of(mutant.package).runs.iter().zip(&limits[mutant.package]);
            let mut caught = false;
            for (words, limit) in runs {
                caught = !passes(&tests[mutant.package], words, mutant.number, *limit)?;
                if caught {
                    break;
                }
            }
            if !caught {
                println!("MISSED {mutant}");
                missed.lock().map_err(|_| anyhow::anyhow!("a worker failed"))?.push(*mutant);
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(done) => done,
            Err(_) => bail!("a worker failed"),
        })
    })?;
    missed.into_inner().map_err(|_| anyhow::anyhow!("a worker failed"))
}

fn report(chosen: &[&Mutant], missed: &[&Mutant], file: &Path, least: usize) -> anyhow::Result<()> {
    let mut lines: Vec<String> = missed.iter().map(|mutant| mutant.to_string()).collect();
    lines.sort();
    fs::write(file, lines.join("\n") + "\n")?;
    let mut files: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for mutant in chosen {
        files.entry(&mutant.file).or_default().1 += 1;
    }
    for mutant in missed {
        files.entry(&mutant.file).or_default().0 += 1;
    }
    let share = |missed: usize, all: usize| 100.0 * (all - missed) as f64 / all as f64;
    for (file, (missed, all)) in files {
        println!("{:>5.1}%  {} of {all} caught  {file}", share(missed, all), all - missed);
    }
    let (all, caught) = (chosen.len(), chosen.len() - missed.len());
    println!("{:.1}%: {caught} of {all} mutants caught", share(missed.len(), all));
    ensure!(caught * 100 >= least * all, "less than {least}% of the mutants are caught");
    Ok(())
}
