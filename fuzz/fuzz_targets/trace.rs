//! Recorded runs in every format.
#![no_main]

use deadstop_fuzz::trace;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| trace::check(data));
