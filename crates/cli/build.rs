//! Puts the commit into a release's version. A debug build does without, so that a commit does not
//! link the program anew.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=DEADSTOP_COMMIT");
    let release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let build = if release { commit() } else { Some("debug".to_owned()) };
    let build = build.map(|build| format!(" ({build})")).unwrap_or_default();
    println!("cargo::rustc-env=DEADSTOP_BUILD={build}");
    if release && folds() {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}

/// Whether the linker can keep one copy of functions that are the same, byte for byte. On this target
/// Rust brings its own linker, which can; a linker that was chosen by hand may not.
fn folds() -> bool {
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    let own = std::env::var_os("RUSTC_LINKER").is_none()
        && !std::env::var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.contains("link"));
    own && is("TARGET", "x86_64-unknown-linux-gnu") && is("HOST", "x86_64-unknown-linux-gnu")
}

/// The commit that is built: as the environment names it where there is no repository (an image, a
/// package), or as git tells it.
fn commit() -> Option<String> {
    if let Some(named) = std::env::var("DEADSTOP_COMMIT").ok().filter(|named| !named.is_empty()) {
        return Some(named.chars().take(12).collect());
    }
    // A package from a registry says it itself; a repository around it would be another one.
    if let Ok(info) = std::fs::read_to_string(".cargo_vcs_info.json") {
        let (_, sha) = info.split_once("\"sha1\": \"")?;
        return sha.split_once('"').map(|(sha, _)| sha.chars().take(12).collect());
    }
    let folder = git(&["rev-parse", "--absolute-git-dir"])?;
    println!("cargo::rerun-if-changed={}", Path::new(&folder).join("HEAD").display());
    println!("cargo::rerun-if-changed={}", Path::new(&folder).join("logs/HEAD").display());
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let done = Command::new("git").args(arguments).output().ok()?;
    let said = String::from_utf8(done.stdout).ok()?.trim().to_owned();
    (done.status.success() && !said.is_empty()).then_some(said)
}
