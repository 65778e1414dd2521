//! Pins: the tools of MCP servers as they were first seen. A server that describes a
//! tool otherwise later may have been taken over.

use std::collections::{BTreeMap, BTreeSet};

use deadstop_core::{Digest, Time, ToolCall};
use deadstop_protocol::mcp::{self, Listed};
use deadstop_store::StoredTool;
use parking_lot::RwLock;

/// Tools that are remembered; further ones are not checked.
const MOST: usize = 20_000;
/// The longest tool name that is kept.
const LONGEST: usize = 200;
/// How long after the first of a server's tools others count as first seen with it, unless its list
/// was complete before.
const SETTLES_MS: u64 = 60_000;

/// Project, server and tool.
type ToolKey = (String, String, String);

/// All pinned tools.
#[derive(Default)]
pub struct Pins {
    tools: RwLock<BTreeMap<ToolKey, StoredTool>>,
    /// Servers whose list of tools was seen to its end, by project and name.
    complete: RwLock<BTreeSet<(String, String)>>,
    /// Held while tools are read from the database and taken over, so that an older read is not taken
    /// over after a newer one.
    pub turn: tokio::sync::Mutex<()>,
}

/// A server's list of tools, or a page of it.
#[derive(Debug, Clone, Copy)]
pub struct Listing<'a> {
    /// The project.
    pub project: &'a str,
    /// The server.
    pub server: &'a str,
    /// The tools.
    pub tools: &'a [Listed],
    /// Whether no further page follows.
    pub complete: bool,
}

/// A server's tools as the database has them.
#[derive(Debug, Default)]
pub struct Stored {
    /// The tools.
    pub tools: Vec<StoredTool>,
    /// Whether the list was seen to its end.
    pub complete: bool,
}

/// What a listing changed.
#[derive(Debug, Default, PartialEq)]
pub struct News {
    /// Tools to write.
    pub write: Vec<StoredTool>,
    /// Tools whose description has changed, or that were added later.
    pub changed: Vec<String>,
    /// Those of them that were added later.
    pub added: Vec<String>,
    /// What is odd about tools that were not listed so before: the tool, and a sentence.
    pub odd: Vec<(String, String)>,
}

impl Pins {
    /// Takes over the tools from the database.
    pub fn remember(&self, tools: Vec<StoredTool>) {
        let mut all = self.tools.write();
        for tool in tools {
            all.insert(place_of(&tool), tool);
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
            call.changed = tool.is_changed();
            call.added = tool.is_added();
            mcp::suspect(call, tool.destructive);
        }
    }

    /// Whether a tool is described otherwise than it is accepted, or was added later.
    pub fn is_changed(&self, project: &str, server: &str, tool: &str) -> bool {
        let place = (project.to_owned(), server.to_owned(), tool.to_owned());
        self.tools.read().get(&place).is_some_and(StoredTool::is_changed)
    }

    /// Notes that servers' lists of tools were seen to their ends: what comes later was added.
    pub fn remember_complete(&self, servers: Vec<(String, String)>) {
        servers.into_iter().for_each(|server| self.completed(server));
    }

    fn completed(&self, server: (String, String)) {
        let mut complete = self.complete.write();
        if complete.len() < MOST {
            complete.insert(server);
        }
    }

    /// What is new in a listing, for a server whose tools are as the database has them. Nothing is
    /// pinned yet: [`Pins::keep`] does that.
    pub fn compare(&self, listing: &Listing<'_>, stored: &Stored, now: Time) -> News {
        let (project, server) = (listing.project, listing.server);
        let names: BTreeSet<&str> = listing.tools.iter().map(|tool| tool.name.as_str()).collect();
        let (mut all, pinned) = {
            let tools = self.tools.read();
            // Tools of other servers count if they have the same name.
            let near = tools.iter().filter(|((of, by, name), _)| {
                *of == project && *by != server && names.contains(name.as_str())
            });
            let near = near.map(|(place, tool)| (place.clone(), tool.clone()));
            (near.collect::<BTreeMap<_, _>>(), tools.len())
        };
        all.extend(stored.tools.iter().map(|tool| (place_of(tool), tool.clone())));
        let most = all.len() + MOST.saturating_sub(pinned);
        compare(&mut all, listing, stored.complete, now, most)
    }

    /// The same for the tools as this node knows them, and pins new ones at once.
    pub fn listed(&self, listing: &Listing<'_>, now: Time) -> News {
        let whole = (listing.project.to_owned(), listing.server.to_owned());
        let complete = self.complete.read().contains(&whole);
        let news = compare(&mut self.tools.write(), listing, complete, now, MOST);
        if listing.complete {
            self.completed(whole);
        }
        news
    }

    /// Whether a listing says nothing that this node does not know.
    pub fn is_known(&self, listing: &Listing<'_>) -> bool {
        let whole = (listing.project.to_owned(), listing.server.to_owned());
        if listing.complete && !self.complete.read().contains(&whole) {
            return false;
        }
        let all = self.tools.read();
        listing.tools.iter().all(|listed| {
            let place = (whole.0.clone(), whole.1.clone(), listed.name.clone());
            let same = |tool: &StoredTool| {
                tool.seen == listed.fingerprint
                    && (tool.destructive || !listed.destructive)
                    && (listed.text.is_empty() || tool.seen_text == listed.text)
            };
            all.get(&place).map_or_else(|| is_unpinned(&place, all.len()), same)
        })
    }

    /// Pins what the database has of a server, after a listing was kept there.
    pub fn keep(&self, listing: &Listing<'_>, stored: Stored, news: &News) {
        self.remember(stored.tools);
        self.remember(news.write.clone());
        if stored.complete || listing.complete {
            self.completed((listing.project.to_owned(), listing.server.to_owned()));
        }
    }

    /// Accepts a tool's current description; `None` if the tool is unknown.
    pub fn accept(&self, project: &str, server: &str, tool: &str, who: &str) -> Option<StoredTool> {
        let place = (project.to_owned(), server.to_owned(), tool.to_owned());
        let mut all = self.tools.write();
        let tool = all.get_mut(&place)?;
        tool.known = tool.seen;
        tool.known_text.clone_from(&tool.seen_text);
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

/// Compares a listing with tools, changes them accordingly, and says what is new.
fn compare(
    all: &mut BTreeMap<ToolKey, StoredTool>,
    listing: &Listing<'_>,
    complete: bool,
    now: Time,
    most: usize,
) -> News {
    let Listing { project, server, tools, .. } = *listing;
    let mut news = News::default();
    let first_of = |all: &BTreeMap<ToolKey, StoredTool>| {
        let theirs = |tool: &&StoredTool| tool.project == project && tool.server == server;
        all.values().filter(theirs).map(|tool| tool.first).min()
    };
    let begun = first_of(all);
    let late = begun.is_some_and(|begun| complete || now.since(begun).0 > SETTLES_MS);
    for listed in tools {
        if listed.name.len() > LONGEST || server.len() > LONGEST {
            continue;
        }
        let place = (project.to_owned(), server.to_owned(), listed.name.clone());
        let many = all.len() >= most;
        let Some(tool) = all.get_mut(&place) else {
            if !many {
                let mut fresh = first(&place, listed, now);
                fresh.notes = odd(all, &place, listed);
                if late {
                    fresh.known = Digest(0);
                    fresh.known_text.clear();
                    fresh.changed = Some(now);
                    news.changed.push(listed.name.clone());
                    news.added.push(listed.name.clone());
                }
                let notes = fresh.notes.lines().map(str::to_owned);
                news.odd.extend(notes.map(|note| (listed.name.clone(), note)));
                news.write.push(fresh.clone());
                all.insert(place, fresh);
            }
            continue;
        };
        let before = tool.clone();
        tool.seen = listed.fingerprint;
        tool.destructive |= listed.destructive;
        if !listed.text.is_empty() {
            tool.seen_text.clone_from(&listed.text);
            if tool.known == tool.seen {
                tool.known_text.clone_from(&listed.text);
            }
        }
        if tool.seen != before.seen {
            let changed = tool.seen != tool.known;
            tool.changed = changed.then_some(now);
            news.changed.extend(changed.then(|| listed.name.clone()));
        }
        let tool = tool.clone();
        let notes =
            if tool.seen == before.seen { before.notes.clone() } else { odd(all, &place, listed) };
        if notes != before.notes {
            let fresh = notes.lines().filter(|note| !before.notes.contains(note));
            news.odd.extend(fresh.map(|note| (listed.name.clone(), note.to_owned())));
        }
        let tool = StoredTool { notes, ..tool };
        if tool != before {
            news.write.push(tool.clone());
            all.insert(place, tool);
        }
    }
    news
}

/// What is odd about a tool, one finding a line.
fn odd(
    all: &BTreeMap<ToolKey, StoredTool>,
    (project, server, name): &ToolKey,
    listed: &Listed,
) -> String {
    let mut notes = Vec::new();
    if !listed.invisible.is_empty() {
        let codes = listed.invisible.iter().map(|c| format!("U+{:04X}", u32::from(*c)));
        let codes = codes.collect::<Vec<_>>().join(", ");
        notes.push(format!("its description contains invisible characters ({codes})"));
    }
    let same = |tool: &&StoredTool| {
        tool.project == *project && tool.server != *server && tool.tool == *name
    };
    if let Some(other) = all.values().find(same) {
        notes.push(format!("it has the name of a tool of the server {}", other.server));
    }
    notes.join("\n")
}

fn place_of(tool: &StoredTool) -> ToolKey {
    (tool.project.clone(), tool.server.clone(), tool.tool.clone())
}

/// Whether a tool that is not pinned never will be.
fn is_unpinned((_, server, name): &ToolKey, pinned: usize) -> bool {
    name.len() > LONGEST || server.len() > LONGEST || pinned >= MOST
}

fn first((project, server, name): &ToolKey, listed: &Listed, now: Time) -> StoredTool {
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
        known_text: listed.text.clone(),
        seen_text: listed.text.clone(),
        notes: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(fingerprint: u64) -> [Listed; 1] {
        let fingerprint = Digest(fingerprint);
        [Listed { name: "write".into(), fingerprint, ..Listed::default() }]
    }

    fn changed(pins: &Pins) -> bool {
        let mut call = ToolCall { name: "write".into(), ..ToolCall::default() };
        pins.judge("p", "s", &mut call);
        call.changed
    }

    /// Number 9 of the attack table: a tool that was added later ran, and nothing was said about
    /// characters that a person does not see, or a name that another server has.
    #[test]
    fn hole_09_added_hidden_and_shadowing_tools_are_told() {
        let pins = Pins::default();
        let named = |name: &str, text: &str| Listed {
            name: name.into(),
            text: text.into(),
            fingerprint: Digest(7),
            invisible: text.chars().filter(|c| !c.is_ascii()).collect(),
            ..Listed::default()
        };
        let listed = |server: &str, tools: &[Listed], complete, at| {
            pins.listed(&Listing { project: "p", server, tools, complete }, Time(at))
        };
        let list = |server: &str, tools: &[Listed], at| listed(server, tools, false, at);
        // Pages of the first listing belong together.
        assert!(list("s", &[named("a", "A")], 1).changed.is_empty());
        assert!(listed("s", &[named("b", "B")], true, 2).changed.is_empty());
        assert_eq!(list("s", &[named("c", "C")], 3).added, ["c"]);
        assert!(pins.is_changed("p", "s", "c") && !pins.is_changed("p", "s", "b"));
        // Without an end of the list, a minute is its end.
        assert!(list("t", &[named("d", "D")], 1).changed.is_empty());
        assert_eq!(list("t", &[named("e", "E")], 60_002).added, ["e"]);
        pins.accept("p", "t", "e", "ada");
        assert!(!pins.is_changed("p", "t", "e"));
        // Reported at first sight, once.
        let tools = [named("a", "A\u{e0041}")];
        let odd = list("u", &tools, 1).odd;
        assert_eq!(odd.len(), 2, "{odd:?}");
        assert!(odd[0].1.contains("U+E0041") && odd[1].1.contains("server s"), "{odd:?}");
        assert!(list("u", &tools, 2).odd.is_empty());
        assert!(pins.of("p", Some("u"))[0].notes.contains("invisible"));
    }

    #[test]
    fn a_change_holds_until_it_is_accepted_or_taken_back() {
        let pins = Pins::default();
        let of = |project, fingerprint| {
            let tools = &listed(fingerprint);
            pins.listed(&Listing { project, server: "s", tools, complete: false }, Time(1))
        };
        let list = |fingerprint| of("p", fingerprint);
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
        assert!(of("q", 9).changed.is_empty());
        assert_eq!(pins.of("p", None).len(), 1);
        assert_eq!(pins.of("p", Some("other")), []);
    }
}
