//! Streams of a model, as anthropic writes them, cut anywhere.
#![no_main]

use deadstop_fuzz::answer;
use deadstop_protocol::llm::Dialect;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| answer::stream(Dialect::Anthropic, data));
