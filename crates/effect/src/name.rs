//! What a tool's name gives away.
//!
//! Names come in every case style, and often with the server in front. Only the last part counts,
//! cut into words, without allocating: this runs for every call.

mod lists;

use deadstop_core::Effect;

use super::shell::Language;
use lists::*;

/// More words than this say nothing new.
const MAX_WORDS: usize = 8;

/// A name's last part, cut into words.
pub(super) struct Words<'a> {
    name: &'a str,
    words: [&'a str; MAX_WORDS],
    len: usize,
}

/// What a command's word says that it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    /// Something is gone afterwards.
    Destroys,
    /// Something stops, is emptied or goes back: harm only to something large, or by force.
    Upsets,
}

/// The tool's own name: what is left of `mcp__server__tool` or `server.tool`.
pub(super) fn last_part(tool: &str) -> &str {
    let tool = tool.rsplit("__").next().unwrap_or(tool);
    tool.rsplit(['.', '/', ':']).find(|part| !part.is_empty()).unwrap_or(tool)
}

impl<'a> Words<'a> {
    pub(super) fn of(tool: &'a str) -> Words<'a> {
        let name = last_part(tool);
        let mut cut = Words { name, words: [""; MAX_WORDS], len: 0 };
        for part in name.split(|c: char| !c.is_alphanumeric()) {
            let mut rest = part;
            while !rest.is_empty() {
                let (word, more) = rest.split_at(hump(rest));
                if cut.len < MAX_WORDS && !word.is_empty() {
                    cut.words[cut.len] = word;
                    cut.len += 1;
                }
                rest = more;
            }
        }
        cut
    }

    fn word(&self, index: usize) -> &'a str {
        self.words.get(index).copied().unwrap_or("")
    }

    fn all(&self) -> &[&'a str] {
        &self.words[..self.len]
    }

    fn any(&self, list: &[&str]) -> bool {
        self.all().iter().any(|word| one_of(word, list))
    }

    /// Whether the name, written without separators, is this one.
    pub(super) fn is(&self, name: &str) -> bool {
        let mut left = name;
        for word in self.all() {
            match left.get(..word.len()) {
                Some(start) if start.eq_ignore_ascii_case(word) => left = &left[word.len()..],
                _ => return false,
            }
        }
        left.is_empty() && self.len > 0
    }

    /// Whether the tool is called after destroying something.
    pub(super) fn destroys(&self) -> bool {
        // `mcp_github_delete_repository`: a server's name says nothing about the tool.
        let server = if self.word(0).eq_ignore_ascii_case("mcp") { 2 } else { 0 };
        let lead = server
            + usize::from(
                one_of(self.word(server), LEADS)
                    && one_of(
                        self.word(server + 1),
                        &["delete", "drop", "destroy", "terminate", "purge"],
                    ),
            );
        if self.ends_in_deletion() {
            return true;
        }
        let (verb, object) = (self.word(lead), self.word(lead + 1));
        if one_of(verb, &["delete", "drop", "truncate", "destroy", "purge", "wipe", "erase"]) {
            // A bare `drop` is a mouse gesture as often as not.
            let gesture = verb.eq_ignore_ascii_case("drop") && object.is_empty();
            return !gesture && !one_of(object, NOT_THINGS);
        }
        (verb.eq_ignore_ascii_case("terminate") && one_of(object, MACHINES))
            || (verb.eq_ignore_ascii_case("remove") && one_of(object, STORES))
            || (verb.eq_ignore_ascii_case("empty") && one_of(object, &["trash", "bin", "bucket"]))
            || (one_of(
                verb,
                &["archive", "revoke", "deactivate", "disable", "suspend", "unpublish"],
            ) && one_of(object, HELD))
            || (verb.eq_ignore_ascii_case("reset") && one_of(object, RESET))
            || (verb.eq_ignore_ascii_case("factory") && object.eq_ignore_ascii_case("reset"))
            || (verb.eq_ignore_ascii_case("format")
                && one_of(object, &["disk", "drive", "volume", "device", "partition"]))
    }

    /// `user_delete`, `http_delete`: the thing first, and then what is done to it.
    fn ends_in_deletion(&self) -> bool {
        let last = self.word(self.len.wrapping_sub(1));
        let things = &self.words[..self.len.saturating_sub(1)];
        (1..=2).contains(&things.len())
            && one_of(last, &["delete", "destroy", "purge"])
            && !things.iter().any(|word| one_of(word, NOT_DONE) || one_of(word, READS))
            && !one_of(things[things.len() - 1], NOT_THINGS)
    }

    /// Whether what goes is more than one thing: a database, a cluster, all of a device.
    pub(super) fn destroys_much(&self) -> bool {
        self.any(&[
            "database",
            "databases",
            "cluster",
            "repository",
            "repo",
            "account",
            "project",
            "namespace",
            "bucket",
            "volume",
            "organization",
            "workspace",
            "tenant",
            "factory",
            "everything",
            "environment",
            "backup",
            "backups",
            "snapshots",
            "all",
            "accounts",
            "users",
            "customers",
            "tenants",
            "projects",
            "repositories",
            "clusters",
            "namespaces",
            "buckets",
            "volumes",
            "organizations",
            "workspaces",
            "environments",
            "production",
        ])
    }

    /// What a word of a command says that is done, if that does harm: `delete`, `sql-drop`,
    /// `TerminateInstances`.
    pub(super) fn deed(&self) -> Option<Deed> {
        let words = self.all();
        let (first, last) = (self.word(0), self.word(self.len.wrapping_sub(1)));
        let said = |word: &&str| one_of(word, NOT_SO);
        if words.len() > 5 || (words.len() > 1 && words.iter().any(said)) {
            return None;
        }
        if words.iter().any(|word| one_of(word, NOT_LOST)) {
            return None;
        }
        if words.iter().any(|word| one_of(word, RUINS))
            || one_of(last, REMOVES)
            || one_of(first, REMOVES)
        {
            return Some(Deed::Destroys);
        }
        (one_of(first, UPSETS) || one_of(last, UPSETS)).then_some(Deed::Upsets)
    }

    /// Whether a verb does something that is meant to last until it is undone by hand.
    pub(super) fn lasts(&self) -> bool {
        one_of(self.word(0), LASTS) || one_of(self.word(self.len.wrapping_sub(1)), LASTS)
    }

    /// Whether a call of a program says that something goes for good: `drop_database`, `terminateInstances`.
    pub(super) fn ruins(&self) -> bool {
        let words = self.all();
        let last = self.word(self.len.wrapping_sub(1));
        // `flush_all` in two words, and what has no object here: a map and a list can be emptied too.
        let flushes = self.is("flushall") || self.is("flushdb");
        flushes
            || (words.len() > 1
                && one_of(self.word(0), RUINS)
                && !words.iter().any(|word| one_of(word, NOT_SO) || one_of(word, NOT_LOST))
                && !one_of(self.word(1), NOT_THINGS)
                && !one_of(last, &["property", "listener", "node", "child", "element", "key"]))
    }

    /// Whether a word of a command says that it looks, makes or tests something, whatever the words behind
    /// it are.
    pub(super) fn says_otherwise(&self) -> bool {
        self.len == 1 && (one_of(self.word(0), LOOKS) || one_of(self.word(0), MAKES))
            || self.any(&["can", "help", "test", "tests", "testing", "lint", "spec", "example"])
    }

    /// Whether a word names something large: a database, an account, all of it.
    pub(super) fn names_a_store(&self) -> bool {
        self.destroys_much() || self.any(LARGE)
    }

    /// Whether a word names what comes back by itself, or holds nothing: a cache, a label.
    pub(super) fn names_a_trifle(&self) -> bool {
        self.len == 1 && one_of(self.word(0), NOT_LOST)
    }

    /// Whether it ends in a noun for a part of something, as in `remove-background`.
    pub(super) fn ends_in_thing(&self) -> bool {
        one_of(
            self.word(self.len.wrapping_sub(1)),
            &["background", "noise", "lines", "whitespace", "duplicates", "exif"],
        )
    }

    /// Whether a verb ends the whole of a service, whatever it is called.
    pub(super) fn ends_all(&self) -> bool {
        self.any(&["kill", "shutdown", "poweroff", "leave", "stopall", "killall"])
    }

    /// Whether a task is about a database or about all of an environment.
    pub(super) fn names_all(&self) -> bool {
        self.destroys_much()
            || self.any(&[
                "db",
                "schema",
                "tables",
                "prod",
                "production",
                "infra",
                "users",
                "tenants",
                "cloud",
            ])
    }

    /// Whether the tool is about directories.
    pub(super) fn is_folder(&self) -> bool {
        self.any(&["directory", "folder", "dir", "tree"])
    }

    /// The program that the tool is named after, as `kubectl` is, or its server where the tool only
    /// says that it runs something: `mcp__git__run`.
    pub(super) fn program(&self, tool: &str) -> Option<&'static str> {
        let named = |text: &str| {
            PROGRAMS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|found| found.1)
        };
        let runs = ["run", "command", "cmd", "cli", "call", "tool", "invoke"];
        // `run_in_docker` runs its command inside, and is none of docker's own.
        let plain = self.all().iter().all(|word| named(word).is_some() || one_of(word, &runs));
        let own = self.all().iter().find_map(|word| named(word)).filter(|_| plain);
        own.or_else(|| {
            let server = tool.rsplit("__").nth(1).filter(|_| self.any(&runs))?;
            server.split(['-', '_']).find_map(named)
        })
    }

    /// Whether the tool reads files.
    pub(super) fn reads_files(&self) -> bool {
        !self.writes_files()
            && (self.any(&["read", "glob", "grep", "view", "open", "cat", "search", "find", "get"]))
    }

    /// Whether the tool writes files.
    pub(super) fn writes_files(&self) -> bool {
        self.any(&["write", "edit", "editor", "create", "replace", "patch", "save", "notebook"])
    }

    /// Whether its commands are PowerShell's.
    pub(super) fn is_powershell(&self) -> bool {
        self.any(&["powershell", "pwsh"])
    }

    /// Whether the tool edits text, where `command` and `operation` mean something else.
    pub(super) fn edits(&self) -> bool {
        self.any(&["edit", "editor", "notebook", "replace"])
    }

    /// Whether the tool runs shell commands.
    pub(super) fn runs_commands(&self) -> bool {
        self.any(&["bash", "shell", "sh", "zsh", "terminal", "powershell", "pwsh", "ssh", "stdin"])
            || (self.any(&["run", "exec", "execute"])
                && self.any(&["command", "commands", "cmd", "script"]))
            || SHELLS.iter().any(|name| self.is(name))
    }

    /// The language of the programs that the tool runs.
    pub(super) fn language(&self) -> Option<Language> {
        if self.any(&["python", "ipython", "jupyter"]) {
            Some(Language::Python)
        } else if self.any(&["javascript", "node", "nodejs", "js"]) {
            Some(Language::JavaScript)
        } else {
            None
        }
    }

    /// Whether the tool talks to a database.
    pub(super) fn is_database(&self) -> bool {
        self.any(DATABASES) || self.all().iter().any(|word| ends_with(word, "sql"))
    }

    /// Whether the tool searches, so that its `query` is words.
    pub(super) fn searches(&self) -> bool {
        self.any(&[
            "search",
            "find",
            "lookup",
            "grep",
            "glob",
            "browse",
            "docs",
            "documentation",
            "ask",
            "recall",
            "retrieve",
        ])
    }

    /// What a tool of this name is likely to do when its arguments say nothing.
    pub(super) fn effect(&self) -> Effect {
        if INERT.iter().any(|name| self.is(name)) || CLAUDE_INERT.contains(&self.name) {
            return Effect::Inert;
        }
        if CLAUDE_READS.contains(&self.name) {
            return Effect::Reads;
        }
        let (first, second) = (self.word(0), self.word(1));
        if one_of(first, &["wait", "sleep"]) {
            return Effect::Inert;
        }
        let two_deeds = self.any(&["and", "or"]) || one_of(second, &["out", "in", "off"]);
        if one_of(first, READS) && !two_deeds {
            return Effect::Reads;
        }
        if self.len == 2 && one_of(first, READABLE) && one_of(second, READS) {
            return Effect::Reads;
        }
        if self.len == 2 && one_of(second, TOLD) && !one_of(first, ALTERS) {
            return Effect::Reads;
        }
        Effect::Changes
    }
}

/// Where the first word of `aRunTogetherName` or `HTTPServer` ends.
fn hump(text: &str) -> usize {
    let bytes = text.as_bytes();
    for index in 1..bytes.len() {
        let (before, here) = (bytes[index - 1], bytes[index]);
        let next_is_lower = bytes.get(index + 1).is_some_and(u8::is_ascii_lowercase);
        if here.is_ascii_uppercase()
            && (before.is_ascii_lowercase()
                || before.is_ascii_digit()
                || (before.is_ascii_uppercase() && next_is_lower))
        {
            return index;
        }
    }
    text.len()
}

fn one_of(word: &str, list: &[&str]) -> bool {
    list.iter().any(|item| item.eq_ignore_ascii_case(word))
}

fn ends_with(word: &str, tail: &str) -> bool {
    word.len()
        .checked_sub(tail.len())
        .and_then(|at| word.get(at..))
        .is_some_and(|end| end.eq_ignore_ascii_case(tail))
}
