//! Tools that MCP servers list: which of them a chain may see, and which have changed.

use std::sync::Arc;

use deadstop_core::{Mode, Time};
use deadstop_protocol::mcp::Listed;
use deadstop_store::{AuditEvent, Store, StoreError};

use super::pins::{Listing, News, Stored};
use super::{Booking, Chain, Message, Project, Warden, now};

/// The tools of a listing.
#[derive(Debug, Clone)]
pub struct Tools {
    /// The tools.
    pub tools: Vec<Listed>,
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

    /// Takes a server's list of tools, in the background. The listing must not pass before the booking
    /// completes; `None` if nothing in it is new. Must be called inside a runtime.
    pub fn listed(
        self: &Arc<Warden>,
        chain: &Chain,
        server: &str,
        mut tools: Tools,
    ) -> Option<Booking> {
        redact(&chain.project, &mut tools.tools);
        if self.pins.is_known(&listing(chain, server, &tools)) {
            return None;
        }
        let (warden, chain, server) = (Arc::clone(self), chain.clone(), server.to_owned());
        // A client that hangs up must not keep its server's tools from being pinned.
        let task = tokio::spawn(async move { warden.compare(&chain, &server, &tools).await });
        Some(Box::pin(async move { drop(task.await) }))
    }

    /// The same, and the names of tools that have changed with this listing.
    pub async fn list(&self, chain: &Chain, server: &str, mut tools: Tools) -> Vec<String> {
        redact(&chain.project, &mut tools.tools);
        match self.pins.is_known(&listing(chain, server, &tools)) {
            true => Vec::new(),
            false => self.compare(chain, server, &tools).await,
        }
    }

    /// Compares a listing with what all nodes know: pins new tools, and reports changed ones. When it
    /// returns, all nodes know of changed tools. While the database is away, this node's memory counts.
    async fn compare(&self, chain: &Chain, server: &str, tools: &Tools) -> Vec<String> {
        let at = now();
        let listing = listing(chain, server, tools);
        let turn = self.pins.turn.lock().await;
        let kept = match &self.store {
            Some(store) => self.in_time(self.keep_listing(store, &listing, at)).await.map(Some),
            None => Ok(None),
        };
        let news = match kept {
            Ok(Some(news)) => news,
            Ok(None) => self.pins.listed(&listing, at),
            Err(error) => {
                tracing::error!("tools of {server} could not be pinned for all nodes: {error}");
                self.pins.listed(&listing, at)
            }
        };
        drop(turn);
        self.tell_news(chain, server, &news, at);
        let message = Message::Project { name: chain.project.name.clone() };
        match (news.changed.is_empty(), news.write.is_empty()) {
            // A call of such a tool may come to any node next.
            (false, _) => self.announce(message).await,
            (true, false) => self.tell_nodes(message),
            (true, true) => {}
        }
        news.changed
    }

    /// Reads the tools of all servers again.
    pub async fn reread_tools(&self) -> Result<(), StoreError> {
        let Some(store) = &self.store else { return Ok(()) };
        let _turn = self.pins.turn.lock().await;
        self.pins.remember(store.tools().await?);
        self.pins.remember_complete(store.complete_servers().await?);
        Ok(())
    }

    /// Compares a listing with the tools in the database, and keeps what is new, in one step.
    async fn keep_listing(
        &self,
        store: &Store,
        listing: &Listing<'_>,
        at: Time,
    ) -> Result<News, StoreError> {
        let mut reading = store.listing(listing.project, listing.server).await?;
        let stored = Stored {
            tools: std::mem::take(&mut reading.tools),
            complete: reading.complete.is_some(),
        };
        let news = self.pins.compare(listing, &stored, at);
        reading.keep(&news.write, listing.complete.then_some(at)).await?;
        self.pins.keep(listing, stored, &news);
        Ok(news)
    }

    /// Tells people what a listing changed.
    fn tell_news(&self, chain: &Chain, server: &str, news: &News, at: Time) {
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
    }
}

fn listing<'a>(chain: &'a Chain, server: &'a str, tools: &'a Tools) -> Listing<'a> {
    let Tools { tools, complete } = tools;
    Listing { project: &chain.project.name, server, tools, complete: *complete }
}

fn redact(project: &Project, tools: &mut [Listed]) {
    for tool in tools {
        tool.text = project.redact(&tool.text);
    }
}
