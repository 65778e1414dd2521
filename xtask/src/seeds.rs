//! The register of the seed pages: every statement has a test that shows it, or a reason why ours
//! differs.
//!
//! `tests/seeds/` has a file for each page. A statement that is held `as_written` names at least one
//! test; one that is `better`, `different` or `missing` gives its reason. A test is named as
//! `path::function`, or by its title in the tests of the page and the scenarios, and both must exist.
//! `docs/coming-from.md` is made from the register, for readers who know one of the five products.

mod document;

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use serde::Deserialize;

/// Where the register is, from the root of the workspace.
const FOLDER: &str = "tests/seeds";

/// The document that is made from it.
const DOCUMENT: &str = "docs/coming-from.md";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    page: String,
    /// Whose page it is.
    product: String,
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
    /// What it is called here, or where it is found, if that is not plain.
    #[serde(default)]
    here: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Holds {
    AsWritten,
    Better,
    Different,
    Missing,
}

impl Page {
    fn count(&self, holds: Holds) -> usize {
        self.statements.iter().filter(|one| one.holds == holds).count()
    }
}

/// Checks the register and the document, and prints the register's counts.
pub(crate) fn check() -> anyhow::Result<()> {
    let root = root()?;
    let pages = read(root)?;
    let mut faults = Vec::new();
    for page in &pages {
        faults.extend(faults_of(page, &|path| fs::read_to_string(root.join(path)).ok()));
        println!(
            "{} {}: {} statements, {} as written, {} better, {} different, {} missing",
            page.page,
            page.about,
            page.statements.len(),
            page.count(Holds::AsWritten),
            page.count(Holds::Better),
            page.count(Holds::Different),
            page.count(Holds::Missing),
        );
    }
    ensure!(faults.is_empty(), "the register of the pages has faults:\n{}", faults.join("\n"));
    let written = fs::read_to_string(root.join(DOCUMENT)).unwrap_or_default();
    ensure!(
        written == document::of(&pages),
        "{DOCUMENT} is not what {FOLDER} says: run `cargo xtask seeds --write`"
    );
    Ok(())
}

/// Makes the document anew.
pub(crate) fn write() -> anyhow::Result<()> {
    let root = root()?;
    fs::write(root.join(DOCUMENT), document::of(&read(root)?))
        .with_context(|| format!("writing {DOCUMENT}"))?;
    check()
}

fn root() -> anyhow::Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace has a root")
}

/// The pages, in order.
fn read(root: &Path) -> anyhow::Result<Vec<Page>> {
    let mut files: Vec<_> = fs::read_dir(root.join(FOLDER))
        .with_context(|| format!("reading {FOLDER}"))?
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .collect();
    files.sort();
    ensure!(!files.is_empty(), "{FOLDER} has no page");
    let page = |file: &std::path::PathBuf| {
        let text = fs::read_to_string(file)?;
        serde_json::from_str(&text).with_context(|| file.display().to_string())
    };
    files.iter().map(page).collect()
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

/// How a file defines a test: a function in Rust and Python, a quoted title elsewhere.
fn defined(path: &str, name: &str) -> String {
    match path.rsplit('.').next() {
        Some("rs") => format!("fn {name}("),
        Some("py") => format!("def {name}("),
        Some("json") => format!("\"name\": \"{name}\""),
        _ => format!("test('{name}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(holds: &str, tests: &[&str], reason: &str) -> Vec<String> {
        let page = serde_json::json!({
            "page": "009", "product": "Brakes", "about": "a page",
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
