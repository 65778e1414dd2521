//! Telemetry that agents send, as JSON.
#![no_main]

use deadstop_fuzz::otlp;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| otlp::check_json(data));
