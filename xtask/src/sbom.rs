//! `cargo xtask sbom FILE`: what the program is made of, as CycloneDX 1.5.
//!
//! Crates come from `cargo metadata` (with the lock file), the page's packages from its own lock file. Nothing is
//! asked of the network. Crates that only tests or builds use are marked `excluded`.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

/// Lock files of npm whose packages end up in what is shipped.
const NPM: [&str; 1] = ["dashboard/package-lock.json"];

/// Writes the document.
pub(crate) fn write(file: &str) -> anyhow::Result<()> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--locked"])
        .output()
        .context("cargo metadata cannot be run")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let mut components = crates(&metadata)?;
    for lock in NPM {
        let text = fs::read_to_string(lock).with_context(|| format!("cannot read {lock}"))?;
        components.extend(packages(&serde_json::from_str(&text)?));
    }
    let count = components.len();
    let document = document(env!("CARGO_PKG_VERSION"), &components);
    if let Some(folder) = std::path::Path::new(file).parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(file, format!("{document:#}\n")).with_context(|| format!("cannot write {file}"))?;
    println!("{count} components in {file}");
    Ok(())
}

fn document(version: &str, components: &[Value]) -> Value {
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": { "type": "application", "name": "deadstop", "version": version },
        },
        "components": components,
    })
}

/// All crates of others, once each.
fn crates(metadata: &Value) -> anyhow::Result<Vec<Value>> {
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let shipped = shipped(metadata);
    let theirs = packages.iter().filter(|package| !package["source"].is_null());
    let component = |package: &Value| {
        let (name, version) = (text(package, "name"), text(package, "version"));
        let scope = if shipped.contains(&text(package, "id")) { "required" } else { "excluded" };
        json!({
            "type": "library",
            "name": name,
            "version": version,
            "purl": format!("pkg:cargo/{name}@{version}"),
            "scope": scope,
            "licenses": licenses(package["license"].as_str()),
        })
    };
    Ok(theirs.map(component).collect())
}

/// The ids of all packages that the program is linked with: reached from it by normal dependencies.
fn shipped(metadata: &Value) -> Vec<String> {
    let none = Vec::new();
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap_or(&none);
    let nodes: BTreeMap<String, &Value> =
        nodes.iter().map(|node| (text(node, "id"), node)).collect();
    let program = metadata["packages"].as_array().into_iter().flatten();
    let program = program.filter(|package| package["name"] == "deadstop");
    let mut waiting: Vec<String> = program.map(|package| text(package, "id")).collect();
    let mut found: Vec<String> = Vec::new();
    while let Some(id) = waiting.pop() {
        if found.contains(&id) {
            continue;
        }
        let deps = nodes.get(&id).and_then(|node| node["deps"].as_array());
        for dep in deps.into_iter().flatten() {
            let mut kinds = dep["dep_kinds"].as_array().into_iter().flatten();
            if kinds.any(|kind| kind["kind"].is_null()) {
                waiting.push(text(dep, "pkg"));
            }
        }
        found.push(id);
    }
    found
}

/// The packages of a lock file of npm. The page is built from them, and parts of them are in it.
fn packages(lock: &Value) -> Vec<Value> {
    let all = lock["packages"].as_object().into_iter().flatten();
    let named = all.filter_map(|(path, package)| {
        let name = path.rsplit_once("node_modules/").map(|(_, name)| name)?;
        let version = package["version"].as_str()?;
        Some(json!({
            "type": "library",
            "name": name,
            "version": version,
            "purl": format!("pkg:npm/{}@{version}", name.replace('@', "%40")),
            "scope": "required",
            "licenses": licenses(package["license"].as_str()),
        }))
    });
    named.collect()
}

fn licenses(expression: Option<&str>) -> Value {
    match expression {
        // Older crates write a slash between two.
        Some(text) => json!([{ "expression": text.replace('/', " OR ") }]),
        None => json!([]),
    }
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_and_packages_are_listed_with_what_they_are_for() {
        let package = |name: &str, source: Value| json!({ "id": name, "name": name, "version": "1.0.0", "source": source, "license": "MIT/Apache-2.0" });
        let dep = |to: &str, kind: Value| json!({ "pkg": to, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [
                package("deadstop", Value::Null), package("hyper", json!("registry")),
                package("tempfile", json!("registry")),
            ],
            "resolve": { "nodes": [
                { "id": "deadstop", "deps": [dep("hyper", Value::Null), dep("tempfile", json!("dev"))] },
                { "id": "hyper", "deps": [] },
            ] },
        });
        let found = crates(&metadata).unwrap();
        let told: Vec<_> = found.iter().map(|it| (text(it, "purl"), text(it, "scope"))).collect();
        let expected =
            [("pkg:cargo/hyper@1.0.0", "required"), ("pkg:cargo/tempfile@1.0.0", "excluded")];
        assert_eq!(told, expected.map(|(purl, scope)| (purl.to_owned(), scope.to_owned())));
        assert_eq!(found[0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        let lock = json!({ "packages": {
            "": { "name": "page" },
            "node_modules/@sveltejs/kit": { "version": "2.0.0", "license": "MIT" },
        } });
        assert_eq!(packages(&lock)[0]["purl"], "pkg:npm/%40sveltejs/kit@2.0.0");
    }
}
