//! What a call was: the same where we read it from telemetry and where we write it.

use deadstop_core::Usage;

/// What a call was.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// A model call.
    Model {
        /// The provider.
        provider: Option<String>,
        /// The model.
        model: String,
        /// The tokens that it used; those of the cache are not in `input`.
        usage: Usage,
    },
    /// A tool call.
    Tool {
        /// The tool.
        name: String,
        /// The MCP server that it runs on, where that is known.
        server: Option<String>,
        /// The model's id for the call, where that is known.
        call_id: Option<String>,
    },
}
