//! The register of the seed pages: every statement has a test that shows it, or a reason why ours
//! differs.
//!
//! `tests/seeds/` has a file for each page. A statement that is held `as_written` names at least one
//! test; one that is `better`, `different` or `missing` gives its reason. A test is named as
//! `path::function`, or by its title in the tests of the page and the scenarios, and both must exist.

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use serde::Deserialize;

/// Where the register is, from the root of the workspace.
const FOLDER: &str = "tests/seeds";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    page: String,
    about: String,
    statements: Vec<Statement>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Statement {
    number: usize,
    says: String,
    holds: Holds,
    #[serde(default)]
    tests: Vec<String>,
    #[serde(default)]
    reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Holds {
    AsWritten,
    Better,
    Different,
    Missing,
}

/// Checks the register and prints its counts.
pub(crate) fn check() -> anyhow::Result<()> {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace has a root")?;
    let mut files: Vec<_> = fs::read_dir(root.join(FOLDER))
        .with_context(|| format!("reading {FOLDER}"))?
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .collect();
    files.sort();
    ensure!(!files.is_empty(), "{FOLDER} has no page");
    let mut faults = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file)?;
        let page: Page = serde_json::from_str(&text).with_context(|| file.display().to_string())?;
        faults.extend(faults_of(&page, &|path| fs::read_to_string(root.join(path)).ok()));
        let count = |holds| page.statements.iter().filter(|one| one.holds == holds).count();
        println!(
            "{} {}: {} statements, {} as written, {} better, {} different, {} missing",
            page.page,
            page.about,
            page.statements.len(),
            count(Holds::AsWritten),
            count(Holds::Better),
            count(Holds::Different),
            count(Holds::Missing),
        );
    }
    ensure!(faults.is_empty(), "the register of the pages has faults:\n{}", faults.join("\n"));
    Ok(())
}

/// What is wrong with a page. `read` gives the text of a file of the workspace.
fn faults_of(page: &Page, read: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let mut faults = Vec::new();
    for (index, one) in page.statements.iter().enumerate() {
        let mut fault =
            |what: &str| faults.push(format!("{}.{} {}: {what}", page.page, one.number, one.says));
        if one.number != index + 1 {
            fault("its number is out of order");
        }
        match one.holds {
            Holds::AsWritten if one.tests.is_empty() => fault("names no test that shows it"),
            Holds::Better | Holds::Different | Holds::Missing if one.reason.trim().is_empty() => {
                fault("gives no reason");
            }
            _ => {}
        }
        for test in &one.tests {
            let known = test.rsplit_once("::").is_some_and(|(path, name)| {
                read(path).is_some_and(|text| text.contains(&defined(path, name)))
            });
            if !known {
                fault(&format!("there is no test {test}"));
            }
        }
    }
    faults
}

/// How a file defines a test: a function in Rust, a quoted title elsewhere.
fn defined(path: &str, name: &str) -> String {
    match path.rsplit('.').next() {
        Some("rs") => format!("fn {name}("),
        Some("json") => format!("\"name\": \"{name}\""),
        _ => format!("test('{name}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(holds: &str, tests: &[&str], reason: &str) -> Vec<String> {
        let page = serde_json::json!({
            "page": "009", "about": "a page",
            "statements": [
                { "number": 1, "says": "it works", "holds": holds, "tests": tests, "reason": reason },
            ],
        });
        let read = |path: &str| (path == "a.rs").then(|| "fn it_works() {}".to_owned());
        faults_of(&serde_json::from_value(page).unwrap(), &read)
    }

    #[test]
    fn a_statement_needs_a_test_or_a_reason() {
        assert_eq!(faults("as_written", &["a.rs::it_works"], ""), [""; 0]);
        assert_eq!(faults("different", &[], "ours counts more"), [""; 0]);
        for (holds, tests, expected) in [
            ("as_written", &[][..], "names no test that shows it"),
            ("as_written", &["a.rs::it_fails"][..], "there is no test a.rs::it_fails"),
            ("as_written", &["b.rs::it_works"][..], "there is no test b.rs::it_works"),
            ("better", &["a.rs::it_works"][..], "gives no reason"),
            ("missing", &[][..], "gives no reason"),
        ] {
            assert_eq!(faults(holds, tests, " "), [format!("009.1 it works: {expected}")]);
        }
    }

    #[test]
    fn the_register_of_this_workspace_is_sound() {
        check().unwrap();
    }
}
