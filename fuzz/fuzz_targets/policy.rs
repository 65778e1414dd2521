//! Policy files in TOML, YAML and JSON.
#![no_main]

use deadstop_fuzz::policy;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| policy::check(data));
