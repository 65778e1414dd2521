//! MCP envelopes, listings of tools and event streams.
#![no_main]

use deadstop_fuzz::mcp;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| mcp::check(data));
