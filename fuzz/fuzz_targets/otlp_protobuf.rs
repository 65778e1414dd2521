//! Telemetry that agents send, as protobuf.
#![no_main]

use deadstop_fuzz::otlp;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| otlp::check_protobuf(data));
