//! Whole answers of a model, as gemini writes them.
#![no_main]

use deadstop_fuzz::answer;
use deadstop_protocol::llm::Dialect;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| answer::whole(Dialect::Gemini, data));
