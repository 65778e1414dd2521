//! Tools of MCP servers as they were first seen, in a file for each server.

use std::collections::BTreeMap;

use deadstop_core::{Digest, Mode, ToolCall};
use deadstop_protocol::mcp::{self, Listed, Listing};
use serde::{Deserialize, Serialize};

use crate::files::{GateError, Lasts, file_name};
use crate::local::Local;

/// Tools of one server that are remembered.
const MOST: usize = 2000;

/// What is to be done with a listing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct Judged {
    /// Tools that the policy does not allow.
    pub hidden: Vec<String>,
    /// Tools that have changed since they were first seen.
    pub changed: Vec<String>,
}

/// A tool that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Pinned {
    /// Zero if the tool was added after the others were first seen.
    known: u64,
    seen: u64,
    destructive: bool,
    #[serde(default)]
    known_text: String,
    #[serde(default)]
    seen_text: String,
}

type Pins = BTreeMap<String, Pinned>;

/// The entry that says that a server's list was seen to its end. No tool has an empty name.
const COMPLETE: &str = "";

impl Local {
    /// Adds to a call's facts what is known of its tool.
    pub(crate) fn judge(&self, call: &mut ToolCall) {
        let Some(server) = &call.server else { return };
        let Some(pinned) = self.pins(server).ok().and_then(|mut pins| pins.remove(&call.name))
        else {
            return;
        };
        call.changed = pinned.known != pinned.seen;
        call.added = call.changed && pinned.known == 0;
        mcp::suspect(call, pinned.destructive);
    }

    pub(crate) fn listed(&self, server: &str, listing: &Listing<'_>) -> Judged {
        let changed = self.pin(server, listing).unwrap_or_default();
        let pins = self.pins(server).unwrap_or_default();
        let is_changed =
            |tool: &Listed| pins.get(&tool.name).is_some_and(|pinned| pinned.known != pinned.seen);
        let session = &self.policies.session;
        let hides = |tool: &&Listed| {
            [session, &self.policies.agent, &self.policies.project].iter().any(|policy| {
                let access = &policy.access;
                policy.mode == Mode::Enforce
                    && (access.hides(&tool.name, Some(server))
                        || access.pins_hide() && is_changed(tool))
            })
        };
        let hidden = listing.tools.iter().filter(hides).map(|tool| tool.name.clone()).collect();
        Judged { hidden, changed }
    }

    fn pin(&self, server: &str, listing: &Listing<'_>) -> Result<Vec<String>, GateError> {
        let folder = self.folder.as_ref().ok_or(GateError::Nowhere)?;
        let _held = folder.hold()?;
        let mut pins = self.pins(server)?;
        let before = pins.clone();
        let mut changed = Vec::new();
        let late = pins.contains_key(COMPLETE);
        for Listed { name, fingerprint: Digest(seen), destructive, text, .. } in &listing.tools {
            let full = pins.len() >= MOST;
            let fresh = Pinned {
                known: if late { 0 } else { *seen },
                // What was added later is told as a change below.
                seen: if late { 0 } else { *seen },
                destructive: false,
                known_text: if late { String::new() } else { text.clone() },
                seen_text: text.clone(),
            };
            let Some(pinned) = (match full {
                true => pins.get_mut(name),
                false => Some(pins.entry(name.clone()).or_insert(fresh)),
            }) else {
                continue;
            };
            if pinned.seen != *seen && pinned.known != *seen {
                changed.push(name.clone());
            }
            pinned.seen = *seen;
            pinned.seen_text.clone_from(text);
            pinned.destructive |= destructive;
        }
        if listing.complete {
            let done = Pinned {
                known: 0,
                seen: 0,
                destructive: false,
                known_text: String::new(),
                seen_text: String::new(),
            };
            pins.entry(COMPLETE.to_owned()).or_insert(done);
        }
        if pins != before {
            let bytes = serde_json::to_vec(&pins).unwrap_or_default();
            folder.write(&tools_file(server), &bytes, Lasts::Eventually)?;
        }
        Ok(changed)
    }

    /// Accepts a tool's current description; false if the tool is unknown.
    pub(crate) fn accept(&self, server: &str, tool: &str) -> Result<bool, GateError> {
        let folder = self.folder.as_ref().ok_or(GateError::Nowhere)?;
        let _held = folder.hold()?;
        let mut pins = self.pins(server)?;
        let Some(pinned) = pins.get_mut(tool) else { return Ok(false) };
        pinned.known = pinned.seen;
        pinned.known_text.clone_from(&pinned.seen_text);
        let bytes = serde_json::to_vec(&pins).unwrap_or_default();
        folder.write(&tools_file(server), &bytes, Lasts::Surely)?;
        Ok(true)
    }

    fn pins(&self, server: &str) -> Result<Pins, GateError> {
        let folder = self.folder.as_ref().ok_or(GateError::Nowhere)?;
        let bytes = folder.read(&tools_file(server))?.unwrap_or_default();
        // One that is torn is begun afresh.
        Ok(serde_json::from_slice(&bytes).unwrap_or_default())
    }
}

fn tools_file(server: &str) -> String {
    format!("{}.tools", file_name(server))
}
