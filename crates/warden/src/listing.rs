//! Tools that MCP servers list: which of them a chain may see, and which have changed.

use deadstop_core::Mode;
use deadstop_protocol::mcp::Listed;
use deadstop_store::AuditEvent;

use super::{Chain, Message, Warden, now};

/// The tools of a listing.
#[derive(Debug, Clone, Copy)]
pub struct Tools<'a> {
    /// The tools.
    pub tools: &'a [Listed],
    /// Whether no further page follows.
    pub complete: bool,
}

impl Warden {
    /// Whether a tool is hidden: its calls would be refused whatever their arguments.
    pub fn hides(&self, chain: &Chain, server: &str, tool: &str) -> bool {
        let policies = chain.policies();
        chain.scopes().iter().any(|scope| {
            let policy = policies.of(scope.kind());
            policy.mode == Mode::Enforce
                && (policy.access.hides(tool, Some(server))
                    || policy.access.pins_hide()
                        && self.pins.is_changed(&chain.project.name, server, tool))
        })
    }

    /// Takes a server's list of tools: pins new ones, and reports changed ones. Must be called
    /// inside a runtime. Returns the names of changed tools.
    pub fn listed(&self, chain: &Chain, server: &str, listed: Tools<'_>) -> Vec<String> {
        let at = now();
        let tools: Vec<Listed> = listed
            .tools
            .iter()
            .map(|tool| Listed { text: chain.project.redact(&tool.text), ..tool.clone() })
            .collect();
        let news = self.pins.listed(&chain.project.name, server, &tools, at);
        if listed.complete {
            self.pins.complete(&chain.project.name, server);
        }
        let changed = news.changed.iter().map(|tool| {
            let name = chain.project.redact_name(tool);
            let text = match news.added.contains(tool) {
                true => format!("{server} added the tool {name} after its tools were first seen"),
                false => {
                    format!("{server} changed the description of {name} since it was first seen")
                }
            };
            (name, text, "tool.changed", "tool_changed")
        });
        let odd = news.odd.iter().map(|(tool, note)| {
            let name = chain.project.redact_name(tool);
            let text = format!("the tool {name} of {server} is odd: {note}");
            (name, text, "tool.odd", "tool_odd")
        });
        for (tool, text, action, event) in changed.chain(odd) {
            self.outbox.lock().audit.push(AuditEvent {
                number: self.number(),
                project: chain.project.name.clone(),
                at,
                who: "guard:access".to_owned(),
                action: action.to_owned(),
                subject: format!("{server}/{tool}"),
                reason: text.clone(),
                detail: "{}".to_owned(),
            });
            self.tell(chain, event, text, None);
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
