//! Tools that MCP servers list: which of them a chain gets to see, and what has become of them.

use deadstop_core::Mode;
use deadstop_protocol::mcp::Listed;

use super::{Chain, Warden};

impl Warden {
    /// Whether a tool is not to be offered: its calls would be refused whatever their arguments.
    pub(crate) fn hides(&self, chain: &Chain, server: &str, tool: &str) -> bool {
        let policies = chain.policies();
        chain.scopes().iter().any(|scope| {
            let policy = policies.of(scope.kind());
            policy.mode == Mode::Enforce && policy.access.hides(tool, Some(server))
        })
    }

    /// A server has listed its tools.
    pub(crate) fn listed(&self, chain: &Chain, server: &str, tools: &[Listed]) {
        for seen in self.pins.listed(&chain.project.name, server, tools) {
            if seen.changed {
                let text = format!("{server} describes {} otherwise than at first", seen.tool);
                self.tell(chain, "tool_changed", text, None);
            }
        }
    }
}
