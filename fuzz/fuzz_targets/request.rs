//! Requests to model providers, in every dialect.
#![no_main]

use deadstop_fuzz::request;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| request::check(data));
