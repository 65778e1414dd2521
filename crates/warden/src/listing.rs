//! Tools that MCP servers list: which of them a chain may see, and which have changed.

use deadstop_core::Mode;
use deadstop_protocol::mcp::Listed;
use deadstop_store::AuditEvent;

use super::{Chain, Message, Warden, now};

impl Warden {
    /// Whether a tool is hidden: its calls would be refused whatever their arguments.
    pub fn hides(&self, chain: &Chain, server: &str, tool: &str) -> bool {
        let policies = chain.policies();
        chain.scopes().iter().any(|scope| {
            let policy = policies.of(scope.kind());
            policy.mode == Mode::Enforce && policy.access.hides(tool, Some(server))
        })
    }

    /// Takes a server's list of tools: pins new ones, and reports changed ones. Must be called
    /// inside a runtime. Returns the names of changed tools.
    pub fn listed(&self, chain: &Chain, server: &str, tools: &[Listed]) -> Vec<String> {
        let at = now();
        let news = self.pins.listed(&chain.project.name, server, tools, at);
        for tool in &news.changed {
            let tool = chain.project.redact_name(tool);
            let text =
                format!("{server} changed the description of {tool} since it was first seen");
            self.outbox.lock().audit.push(AuditEvent {
                number: self.number(),
                project: chain.project.name.clone(),
                at,
                who: "guard:access".to_owned(),
                action: "tool.changed".to_owned(),
                subject: format!("{server}/{tool}"),
                reason: text.clone(),
                detail: "{}".to_owned(),
            });
            self.tell(chain, "tool_changed", text, None);
        }
        if let Some(store) = self.store.clone().filter(|_| !news.write.is_empty()) {
            let told = self.telling(Message::Project { name: chain.project.name.clone() });
            tokio::spawn(async move {
                match store.put_tools(&news.write).await {
                    Ok(_) => told.await,
                    Err(error) => {
                        tracing::error!("pinned tools could not be written: {error}");
                    }
                }
            });
        }
        news.changed
    }
}
