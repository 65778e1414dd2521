//! The house rules that a program can check.
//!
//! Arrows between crates go one way, core is pure, files say what they are and stay readable,
//! and no test is switched off.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde::Deserialize;

/// Which crates of ours each crate may depend on. A crate that is not listed may not exist.
const ARROWS: [(&str, &[&str]); 19] = [
    ("deadstop-core", &[]),
    ("deadstop-effect", &["deadstop-core"]),
    ("deadstop-redact", &[]),
    ("deadstop-protocol", &["deadstop-core", "deadstop-effect", "deadstop-redact"]),
    ("deadstop-client", &["deadstop-core", "deadstop-protocol"]),
    (
        "deadstop-gate",
        &["deadstop-client", "deadstop-core", "deadstop-protocol", "deadstop-redact"],
    ),
    ("deadstop-sdk", &["deadstop-client", "deadstop-core", "deadstop-protocol", "deadstop-redact"]),
    ("deadstop-node", &["deadstop-sdk"]),
    ("deadstop-python", &["deadstop-sdk"]),
    ("deadstop-otlp", &["deadstop-core"]),
    ("deadstop-process", &[]),
    ("deadstop-alerts", &["deadstop-client", "deadstop-core", "deadstop-protocol"]),
    ("deadstop-fleet", &["deadstop-core"]),
    ("deadstop-store", &["deadstop-core", "deadstop-protocol"]),
    (
        "deadstop-warden",
        &[
            "deadstop-alerts",
            "deadstop-core",
            "deadstop-fleet",
            "deadstop-protocol",
            "deadstop-redact",
            "deadstop-store",
        ],
    ),
    (
        "deadstop-server",
        &[
            "deadstop-alerts",
            "deadstop-client",
            "deadstop-core",
            "deadstop-fleet",
            "deadstop-otlp",
            "deadstop-protocol",
            "deadstop-redact",
            "deadstop-store",
            "deadstop-warden",
        ],
    ),
    ("deadstop", &["deadstop-commands", "deadstop-server"]),
    (
        "deadstop-commands",
        &[
            "deadstop-client",
            "deadstop-core",
            "deadstop-fleet",
            "deadstop-gate",
            "deadstop-otlp",
            "deadstop-process",
            "deadstop-protocol",
            "deadstop-server",
            "deadstop-store",
        ],
    ),
    ("xtask", &["deadstop-core", "deadstop-gate", "deadstop-protocol"]),
];

/// All that core may use: data formats and hashing, nothing that waits, listens or tells the time.
const CORE_USES: [&str; 4] = ["postcard", "serde", "thiserror", "xxhash-rust"];

/// Crates that do no I/O and read no clock.
const PURE: [&str; 5] =
    ["deadstop-core", "deadstop-effect", "deadstop-otlp", "deadstop-protocol", "deadstop-redact"];

/// What they must not say.
const IMPURE: [&str; 10] = [
    "Instant::now",
    "SystemTime::now",
    "Timestamp::now",
    "Zoned::now",
    "thread::sleep",
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "async fn",
];

/// Lines after which a file certainly holds more than one idea.
const LONGEST_FILE: usize = 800;

#[derive(Deserialize)]
struct Metadata {
    workspace_root: PathBuf,
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

/// Checks every rule and tells of every breach, not only of the first.
pub(crate) fn check() -> anyhow::Result<()> {
    let metadata = metadata()?;
    let mut breaches = Vec::new();
    for package in &metadata.packages {
        arrows(package, &mut breaches);
        let source = package.manifest_path.with_file_name("src");
        let pure = PURE.contains(&package.name.as_str());
        let sources = rust_files(&source)?;
        ensure!(!sources.is_empty(), "no sources under {}", source.display());
        for file in sources {
            read(&file, pure, &mut breaches)?;
        }
    }
    // Workspaces of their own, since they need another compiler or all of syn; the rules are the same.
    for folder in ["fuzz/src", "fuzz/fuzz_targets", "mutants/src"] {
        for file in rust_files(&metadata.workspace_root.join(folder))? {
            read(&file, false, &mut breaches)?;
        }
    }
    for breach in &breaches {
        eprintln!("{breach}");
    }
    ensure!(breaches.is_empty(), "{} house rules broken", breaches.len());
    println!("house rules hold in {} crates", metadata.packages.len());
    Ok(())
}

fn metadata() -> anyhow::Result<Metadata> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("cannot read cargo metadata")
}

fn arrows(package: &Package, breaches: &mut Vec<String>) {
    let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == package.name) else {
        breaches.push(format!("{}: not in the architecture; add it there first", package.name));
        return;
    };
    for dependency in package.dependencies.iter().filter(|d| d.kind.as_deref() != Some("dev")) {
        let name = dependency.name.as_str();
        if name.starts_with("deadstop") && !allowed.contains(&name) {
            breaches.push(format!("{} must not depend on {name}", package.name));
        }
        if package.name == "deadstop-core" && !CORE_USES.contains(&name) {
            breaches.push(format!("core is pure and must not depend on {name}"));
        }
    }
}

fn read(file: &Path, pure: bool, breaches: &mut Vec<String>) -> anyhow::Result<()> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut breach = |line: usize, what: &str| {
        breaches.push(format!("{}:{line}: {what}", file.display()));
    };
    if !text.starts_with("//!") {
        breach(1, "a file starts with //!: what it is and why it exists");
    }
    let tests =
        file.components().any(|part| part.as_os_str().to_string_lossy().starts_with("tests"));
    let lines = text.lines().count();
    if !tests && lines > LONGEST_FILE {
        breach(lines, "too long for one idea");
    }
    for (number, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        if code.trim_start().starts_with("#[ignore") {
            breach(number + 1, "a test that does not run is no test");
        }
        if pure && !tests {
            for word in IMPURE.iter().filter(|word| code.contains(**word)) {
                breach(number + 1, &format!("{word}: this crate reads no clock and does no I/O"));
            }
        }
    }
    Ok(())
}

fn rust_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries =
        fs::read_dir(folder).with_context(|| format!("no folder {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        Package {
            name: name.into(),
            manifest_path: PathBuf::new(),
            dependencies: dependencies
                .iter()
                .map(|(name, kind)| Dependency {
                    name: (*name).into(),
                    kind: kind.map(str::to_owned),
                })
                .collect(),
        }
    }

    #[test]
    fn arrows_go_one_way() {
        for (package, breaches) in [
            (package("deadstop-core", &[("serde", None), ("tokio", Some("dev"))]), 0),
            (package("deadstop-core", &[("tokio", None)]), 1),
            (package("deadstop-core", &[("deadstop-protocol", None)]), 2),
            (package("deadstop-protocol", &[("deadstop-core", None), ("jiff", None)]), 0),
            (package("deadstop-protocol", &[("deadstop-server", None)]), 1),
            (package("deadstop-surprise", &[]), 1),
        ] {
            let mut found = Vec::new();
            arrows(&package, &mut found);
            assert_eq!(found.len(), breaches, "{found:?}");
        }
    }

    #[test]
    fn impure_words_are_found_in_code_only() {
        let folder = std::env::temp_dir().join(format!("deadstop-rules-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (text, pure, breaches) in [
            ("//! Fine.\nfn a() {}\n", true, 0),
            ("fn a() {}\n", true, 1),
            ("//! Clock.\nfn a() { Instant::now(); }\n", true, 1),
            ("//! Clock.\nfn a() { Instant::now(); }\n", false, 0),
            ("//! Only talks of it.\n// Instant::now() is banned.\n", true, 0),
            ("//! Off.\n#[ignore]\nfn a() {}\n", false, 1),
        ] {
            let file = folder.join("x.rs");
            fs::write(&file, text).unwrap();
            let mut found = Vec::new();
            read(&file, pure, &mut found).unwrap();
            assert_eq!(found.len(), breaches, "{text}: {found:?}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
