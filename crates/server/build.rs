//! Looks whether the page was built before it is put into the program.
//!
//! A release without its page would be a page that is silently empty in production, so it is not
//! built at all. A debug build does without: it says on the page how to get one.

use std::path::Path;

fn main() {
    // Asked for now and not when this was compiled: a target folder may come from another checkout.
    let home = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let page = Path::new(&home).join("page");
    println!("cargo::rerun-if-changed={}", page.display());
    let release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if release && !page.join("index.html").is_file() {
        println!(
            "cargo::error=the dashboard is not built, and a release carries it: run `make page` first"
        );
    }
}
