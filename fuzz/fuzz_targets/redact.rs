//! Texts with secrets in them.
#![no_main]

use deadstop_fuzz::redact;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| redact::check(data));
