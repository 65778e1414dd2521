//! Ways around a verdict that were found from outside, each closed. The names are those of the
//! attack table in `docs/security.md`.

mod answers;
mod astray;
mod audit;
mod bombs;
mod elsewhere;
mod files;
mod keys;
mod killed;
mod paths;
mod slow;
mod spread;
