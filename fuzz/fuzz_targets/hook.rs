//! Events of coding agents, as each host writes them.
#![no_main]

use deadstop_fuzz::hook;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| hook::check(data));
