//! Pins: the tools of MCP servers as they were first seen. A server that describes a
//! tool otherwise later may have been taken over.

use std::collections::BTreeMap;

use deadstop_core::{Time, ToolCall};
use deadstop_protocol::mcp::{self, Listed};
use deadstop_store::StoredTool;
use parking_lot::RwLock;

/// Tools that are remembered; further ones are not checked.
const MOST: usize = 20_000;
/// The longest tool name that is kept.
const LONGEST: usize = 200;

/// Project, server and tool.
type Place = (String, String, String);

/// All pinned tools.
#[derive(Default)]
pub struct Pins {
    tools: RwLock<BTreeMap<Place, StoredTool>>,
}

/// What a listing changed.
#[derive(Debug, Default, PartialEq)]
pub struct News {
    /// Tools to write.
    pub write: Vec<StoredTool>,
    /// Tools whose description has changed.
    pub changed: Vec<String>,
}

impl Pins {
    /// Takes over the tools from the database.
    pub fn remember(&self, tools: Vec<StoredTool>) {
        let mut all = self.tools.write();
        for tool in tools {
            let place = (tool.project.clone(), tool.server.clone(), tool.tool.clone());
            all.insert(place, tool);
        }
    }

    /// Adds to a call's facts whether its tool has changed.
    pub fn judge(&self, project: &str, server: &str, call: &mut ToolCall) {
        let tools = self.tools.read();
        if tools.is_empty() {
            return;
        }
        let place = (project.to_owned(), server.to_owned(), call.name.clone());
        if let Some(tool) = tools.get(&place) {
            call.changed = tool.known != tool.seen;
            mcp::suspect(call, tool.destructive);
        }
    }

    /// Compares a listing with the pinned tools, and pins new ones.
    pub fn listed(&self, project: &str, server: &str, tools: &[Listed], now: Time) -> News {
        let mut news = News::default();
        let mut all = self.tools.write();
        for listed in tools {
            if listed.name.len() > LONGEST || server.len() > LONGEST {
                continue;
            }
            let place = (project.to_owned(), server.to_owned(), listed.name.clone());
            let many = all.len() >= MOST;
            let Some(tool) = all.get_mut(&place) else {
                if !many {
                    let fresh = first(&place, listed, now);
                    news.write.push(fresh.clone());
                    all.insert(place, fresh);
                }
                continue;
            };
            let before = tool.clone();
            tool.seen = listed.fingerprint;
            tool.destructive |= listed.destructive;
            if tool.seen != before.seen {
                let changed = tool.seen != tool.known;
                tool.changed = changed.then_some(now);
                news.changed.extend(changed.then(|| listed.name.clone()));
            }
            if *tool != before {
                news.write.push(tool.clone());
            }
        }
        news
    }

    /// Accepts a tool's current description; `None` if the tool is unknown.
    pub fn accept(&self, project: &str, server: &str, tool: &str, who: &str) -> Option<StoredTool> {
        let place = (project.to_owned(), server.to_owned(), tool.to_owned());
        let mut all = self.tools.write();
        let tool = all.get_mut(&place)?;
        tool.known = tool.seen;
        tool.changed = None;
        tool.accepted_by = Some(who.to_owned());
        Some(tool.clone())
    }

    /// The tools of a project.
    pub fn of(&self, project: &str, server: Option<&str>) -> Vec<StoredTool> {
        let all = self.tools.read();
        let theirs = |tool: &&StoredTool| {
            tool.project == project && server.is_none_or(|server| server == tool.server)
        };
        all.values().filter(theirs).cloned().collect()
    }
}

fn first((project, server, name): &Place, listed: &Listed, now: Time) -> StoredTool {
    StoredTool {
        project: project.clone(),
        server: server.clone(),
        tool: name.clone(),
        known: listed.fingerprint,
        seen: listed.fingerprint,
        destructive: listed.destructive,
        first: now,
        changed: None,
        accepted_by: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deadstop_core::Digest;

    fn listed(fingerprint: u64) -> [Listed; 1] {
        let fingerprint = Digest(fingerprint);
        [Listed { name: "write".into(), fingerprint, destructive: false }]
    }

    fn changed(pins: &Pins) -> bool {
        let mut call = ToolCall { name: "write".into(), ..ToolCall::default() };
        pins.judge("p", "s", &mut call);
        call.changed
    }

    #[test]
    fn a_change_holds_until_it_is_accepted_or_taken_back() {
        let pins = Pins::default();
        let list = |fingerprint| pins.listed("p", "s", &listed(fingerprint), Time(1));
        assert_eq!(list(1).write.len(), 1);
        assert_eq!(list(1), News::default());
        assert!(!changed(&pins));
        assert_eq!(list(2).changed, ["write"]);
        assert!(changed(&pins));
        assert_eq!(list(2), News::default());
        assert!(list(1).changed.is_empty() && !changed(&pins));
        list(2);
        assert!(pins.accept("p", "other", "write", "ada").is_none());
        assert!(pins.accept("p", "s", "write", "ada").is_some());
        assert!(!changed(&pins));
        assert_eq!(list(1).changed, ["write"]);
        // Another project, or another server, has its own.
        assert!(pins.listed("q", "s", &listed(9), Time(1)).changed.is_empty());
        assert_eq!(pins.of("p", None).len(), 1);
        assert_eq!(pins.of("p", Some("other")), []);
    }
}
