//! Settings files of hosts, changed in place.
#![no_main]

use deadstop_fuzz::jsonc;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| jsonc::check(data));
