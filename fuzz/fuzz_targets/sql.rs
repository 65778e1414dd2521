//! SQL statements of a tool call.
#![no_main]

use deadstop_fuzz::effect;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| effect::sql(data));
