//! The `deadstop` program.
fn main() {}
