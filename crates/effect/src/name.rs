//! What a tool's name gives away.
//!
//! Names come in every case style, and often with the server in front. Only the last part counts,
//! cut into words, without allocating: this runs for every call.

use deadstop_core::Effect;

use super::shell::Language;

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
        ])
    }

    /// What a word of a command says that is done, if that does harm: `delete`, `sql-drop`,
    /// `TerminateInstances`.
    pub(super) fn deed(&self) -> Option<Deed> {
        let words = self.all();
        let (first, last) = (self.word(0), self.word(self.len.wrapping_sub(1)));
        if words.len() > 5 || words.iter().any(|word| one_of(word, NOT_DONE) || one_of(word, READS))
        {
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

    /// Whether a word of a command says that it looks, makes or tests something, whatever the words behind
    /// it are.
    pub(super) fn says_otherwise(&self) -> bool {
        self.len == 1 && (one_of(self.word(0), READS) || one_of(self.word(0), MAKES))
            || self.any(&["can", "help", "test", "tests", "testing", "lint", "spec", "example"])
    }

    /// Whether a word names something large: a database, an account, all of it.
    pub(super) fn names_a_store(&self) -> bool {
        self.destroys_much() || self.any(LARGE)
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

/// Programs after which tools and servers are named.
const PROGRAMS: &[(&str, &str)] = &[
    ("kubectl", "kubectl"),
    ("kubernetes", "kubectl"),
    ("k8s", "kubectl"),
    ("docker", "docker"),
    ("podman", "podman"),
    ("git", "git"),
    ("aws", "aws"),
    ("gcloud", "gcloud"),
    ("az", "az"),
    ("helm", "helm"),
    ("terraform", "terraform"),
    ("gh", "gh"),
    ("redis", "redis-cli"),
    ("systemctl", "systemctl"),
];

/// Verbs of commands after which something is gone.
const RUINS: &[&str] = &[
    "delete",
    "deletes",
    "destroy",
    "purge",
    "drop",
    "wipe",
    "terminate",
    "erase",
    "truncate",
    "obliterate",
    "nuke",
    "teardown",
    "decommission",
    "deprovision",
    "undefine",
    "unregister",
    "unpublish",
    "yank",
    "revoke",
    "deregister",
    "flushall",
    "flushdb",
    "dropdb",
    "deleteall",
    "delprinc",
    "annihilate",
    "expunge",
];

/// The same, where they stand first or last in a word: `rm`, `vm-rm`, and not `rm-proxy-x`.
const REMOVES: &[&str] =
    &["rm", "rmi", "rb", "rmr", "del", "remove", "uninstall", "zap", "empty", "cleanse"];

/// Verbs after which something is stopped, emptied or as it was before.
const UPSETS: &[&str] = &[
    "stop",
    "kill",
    "shutdown",
    "disable",
    "deactivate",
    "suspend",
    "cancel",
    "reset",
    "clear",
    "rollback",
    "revert",
    "undo",
    "downgrade",
    "detach",
    "disconnect",
    "drain",
    "offline",
    "seal",
    "archive",
    "abandon",
    "discard",
    "unset",
    "clean",
    "cleanup",
    "prune",
    "rekey",
    "roll",
    "leave",
    "reboot",
    "poweroff",
    "flush",
    "evict",
    "compact",
    "gc",
    "expire",
    "unlink",
    "unbind",
    "dissolve",
    "cut",
    "lock",
    "logout",
    "restore",
    "repair",
];

/// Things that come back by themselves, and signs that nothing is lost.
const NOT_LOST: &[&str] = &[
    "cache",
    "caches",
    "tmp",
    "temp",
    "logs",
    "snapshots-list",
    "label",
    "labels",
    "tag",
    "tags",
    "comment",
    "todo",
    "shadow",
    "whitespace",
    "console",
    "lint",
    "alias",
    "color",
    "filter",
    "breakpoint",
    "bookmark",
];

/// Words of commands that make or start something, or hand the rest on to something else.
const MAKES: &[&str] = &[
    "create",
    "add",
    "new",
    "init",
    "generate",
    "g",
    "make",
    "set",
    "update",
    "edit",
    "install",
    "build",
    "start",
    "open",
    "clone",
    "deploy",
    "watch",
    "wait",
    "plan",
    "run",
    "test",
    "help",
    "docs",
    "man",
    "which",
    "log",
    "logs",
    "login",
    "auth-status",
    "completion",
    "schema",
    "format",
    "print",
    "echo",
    "export",
    "dump",
    "backup",
    "import",
    "use",
    "switch",
    "enable",
    "attach",
    "connect",
    "invite",
    "version",
    "config-view",
    "lint",
    "scan",
    "analyze",
    "commit",
    "write",
    "say",
    "draft",
    "translate",
    "chat",
    "ask",
    "prompt",
    "explain",
];

/// Nouns for things that hold many others.
const LARGE: &[&str] = &[
    "db",
    "schema",
    "schemas",
    "table",
    "tables",
    "collection",
    "keyspace",
    "prod",
    "production",
    "live",
    "users",
    "user",
    "tenants",
    "tenant",
    "org",
    "server",
    "servers",
    "instance",
    "instances",
    "vm",
    "vms",
    "machine",
    "node",
    "nodes",
    "site",
    "domain",
    "zone",
    "queue",
    "queues",
    "topic",
    "topics",
    "stream",
    "index",
    "indices",
    "snapshot",
    "vault",
    "store",
    "storage",
    "disk",
    "device",
    "infra",
    "infrastructure",
    "env",
    "data",
    "dataset",
    "metadata",
    "broker",
    "service",
    "services",
    "deployment",
    "deployments",
    "secret",
    "secrets",
    "key",
    "keys",
    "certificate",
    "token",
    "app",
    "apps",
    "stack",
    "host",
    "workflow",
    "pipeline",
    "subscription",
    "subscriptions",
    "customer",
    "customers",
    "lease",
    "policy",
    "role",
    "group",
    "pool",
    "backend",
    "migrations",
    "migration",
    "repo",
];

/// Words that come before the verb: manners, and products that name every tool after themselves.
const LEADS: &[&str] = &[
    "bulk",
    "batch",
    "force",
    "hard",
    "permanently",
    "mass",
    "s3",
    "ec2",
    "rds",
    "gcs",
    "aws",
    "gcp",
    "azure",
    "github",
    "gitlab",
    "jira",
    "k8s",
    "kubernetes",
    "db",
    "database",
    "postgres",
    "mysql",
    "mongo",
    "mongodb",
    "redis",
    "dynamodb",
    "file",
    "fs",
    "notion",
    "slack",
    "gmail",
    "drive",
    "calendar",
    "stripe",
    "salesforce",
    "hubspot",
    "supabase",
    "firebase",
    "neon",
    "cloudflare",
    "docker",
    "admin",
];

/// What can be deleted, dropped or truncated without anything being lost: pieces of text being
/// edited, rows of a frame in memory, gestures of a mouse.
const NOT_THINGS: &[&str] = &[
    "text",
    "line",
    "lines",
    "string",
    "strings",
    "cell",
    "cells",
    "selection",
    "selected",
    "word",
    "words",
    "char",
    "chars",
    "character",
    "characters",
    "na",
    "null",
    "nulls",
    "duplicates",
    "down",
    "shadow",
    "context",
    "output",
    "cache",
    "caches",
    "todo",
    "todos",
    "pin",
    "off",
    "zone",
    "here",
];

/// Before `delete`, these say that nothing is deleted: not yet, not for good, or not at all.
const NOT_DONE: &[&str] = &[
    "can", "may", "should", "could", "is", "was", "un", "undo", "cancel", "confirm", "soft", "set",
    "unset", "on", "before", "after", "pre", "post", "allow", "prevent", "no", "not", "mark",
    "for", "to", "and", "or", "restore", "request", "schedule", "toggle", "enable", "disable",
    "test",
];

const MACHINES: &[&str] = &[
    "instance",
    "instances",
    "vm",
    "vms",
    "cluster",
    "clusters",
    "server",
    "servers",
    "environment",
];

/// What people are locked out of, or lose sight of, when it is archived or revoked.
const HELD: &[&str] = &[
    "access",
    "key",
    "keys",
    "token",
    "tokens",
    "certificate",
    "credentials",
    "user",
    "users",
    "account",
    "project",
    "repository",
    "repo",
    "database",
    "role",
    "permission",
    "permissions",
    "package",
    "release",
    "channel",
    "organization",
    "workspace",
    "dataset",
];

/// What a reset empties.
const RESET: &[&str] =
    &["database", "db", "device", "environment", "cluster", "account", "instance", "server", "all"];

/// `remove` mostly takes a thing out of a list (a label, an item in a cart); of these it can only
/// mean that they are gone.
const STORES: &[&str] = &[
    "file",
    "files",
    "directory",
    "dir",
    "folder",
    "database",
    "table",
    "bucket",
    "volume",
    "dataset",
    "schema",
    "collection",
];

const SHELLS: &[&str] =
    &["exec", "execute", "localshell", "commandexec", "runterminalcmd", "console", "runcommand"];

const DATABASES: &[&str] = &[
    "sql",
    "query",
    "database",
    "db",
    "postgres",
    "sqlite",
    "snowflake",
    "bigquery",
    "redshift",
    "duckdb",
    "clickhouse",
    "statement",
    "warehouse",
];

const INERT: &[&str] = &[
    "think",
    "thinking",
    "sequentialthinking",
    "todowrite",
    "todoread",
    "writetodos",
    "readtodos",
    "updatetodos",
    "managetodolist",
    "todo",
    "todolist",
    "updateplan",
    "plan",
    "noop",
    "sleep",
    "wait",
    "delay",
    "pause",
    "exitplanmode",
    "enterplanmode",
    "reflect",
];

/// Claude Code's own list of tasks; elsewhere a `task_create` may well create a task.
const CLAUDE_INERT: &[&str] = &["TaskCreate", "TaskUpdate", "TaskList", "TaskGet"];

const CLAUDE_READS: &[&str] =
    &["TaskOutput", "BashOutput", "LSP", "LS", "WebFetch", "WebSearch", "ToolSearch"];

const READS: &[&str] = &[
    "get",
    "list",
    "read",
    "search",
    "find",
    "fetch",
    "view",
    "show",
    "query",
    "lookup",
    "look",
    "describe",
    "check",
    "status",
    "grep",
    "glob",
    "ls",
    "cat",
    "count",
    "calculate",
    "compute",
    "inspect",
    "explain",
    "summarize",
    "validate",
    "verify",
    "compare",
    "diff",
    "stat",
    "head",
    "tail",
    "tree",
    "browse",
    "explore",
    "retrieve",
    "resolve",
    "ping",
    "poll",
    "preview",
    "is",
    "has",
    "whoami",
    "which",
    "snapshot",
    "info",
];

/// What a tool tells when it is named after it: `job_status`, `build_logs`.
const TOLD: &[&str] =
    &["status", "progress", "state", "logs", "log", "output", "result", "results"];

/// Verbs that make such a name mean the opposite: `set_status`.
const ALTERS: &[&str] = &[
    "set", "update", "change", "create", "add", "delete", "remove", "clear", "reset", "write",
    "put", "post", "patch", "save", "edit", "send", "toggle", "append", "submit", "store", "purge",
];

/// Nouns that come before a reading verb: `file_search`, `web_fetch`.
const READABLE: &[&str] = &[
    "file",
    "files",
    "web",
    "code",
    "codebase",
    "doc",
    "docs",
    "browser",
    "memory",
    "resource",
    "knowledge",
    "vector",
    "semantic",
    "db",
    "database",
    "image",
    "page",
    "dir",
    "directory",
    "folder",
    "repo",
    "symbol",
    "tool",
];
