//! Tools as they were first seen: a server that describes one otherwise later on may have been
//! taken over.

use std::collections::HashMap;

use deadstop_core::{Digest, ToolCall};
use deadstop_protocol::mcp::{self, Listed};
use parking_lot::RwLock;

/// Project, server and tool.
type Place = (String, String, String);

/// A tool that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pinned {
    /// As it is known.
    pub(crate) known: Digest,
    /// As it was described last.
    pub(crate) seen: Digest,
    /// Whether its server has ever said that it destroys something.
    pub(crate) destructive: bool,
}

/// All tools that were seen.
#[derive(Default)]
pub(crate) struct Pins {
    tools: RwLock<HashMap<Place, Pinned>>,
}

impl Pins {
    /// Adds to a call's facts what is known of its tool.
    pub(crate) fn judge(&self, project: &str, server: &str, call: &mut ToolCall) {
        let place = (project.to_owned(), server.to_owned(), call.name.clone());
        if let Some(pinned) = self.tools.read().get(&place) {
            call.changed = pinned.known != pinned.seen;
            mcp::suspect(call, pinned.destructive);
        }
    }

    /// Takes a listing in; gives what is new or has changed.
    pub(crate) fn listed(&self, project: &str, server: &str, tools: &[Listed]) -> Vec<Seen> {
        let mut seen = Vec::new();
        for tool in tools {
            let place = (project.to_owned(), server.to_owned(), tool.name.clone());
            let mut all = self.tools.write();
            let fresh = Pinned {
                known: tool.fingerprint,
                seen: tool.fingerprint,
                destructive: tool.destructive,
            };
            let Some(pinned) = all.get_mut(&place) else {
                all.insert(place, fresh.clone());
                seen.push(Seen { tool: tool.name.clone(), pinned: fresh, changed: false });
                continue;
            };
            let before = pinned.clone();
            pinned.seen = tool.fingerprint;
            pinned.destructive |= tool.destructive;
            if before != *pinned {
                let changed = pinned.seen != before.seen && pinned.seen != pinned.known;
                seen.push(Seen { tool: tool.name.clone(), pinned: pinned.clone(), changed });
            }
        }
        seen
    }
}

/// What a listing has brought.
pub(crate) struct Seen {
    pub(crate) tool: String,
    pub(crate) pinned: Pinned,
    /// Whether it is described otherwise than before.
    pub(crate) changed: bool,
}
