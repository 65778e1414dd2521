//! Deadstop itself: commands that take it out of the way.

use deadstop_core::{HarmKind, Reach, Recovery};

use super::Walk;
use crate::place;

/// Commands of `deadstop` that only a person should give.
const ORDERS: &[&str] = &["uninstall", "clear", "grant", "allow", "reset", "resume", "sign-in"];

/// Variables that lead an agent's calls through Deadstop.
const LEADS: &[&str] = &[
    "ANTHROPIC_BASE_URL",
    "OPENAI_BASE_URL",
    "OPENAI_API_BASE",
    "GEMINI_BASE_URL",
    "GOOGLE_GEMINI_BASE_URL",
    "CLAUDE_CODE_USE_BEDROCK",
];

/// Whether a path is one that Deadstop needs: a host's hook settings, its policy, its states, its
/// database, its program.
pub(crate) fn protects(path: &str) -> bool {
    let path = path.trim_matches(['"', '\'']).trim_end_matches('/');
    let ends = [
        ".claude/settings.json",
        ".claude/settings.local.json",
        ".codex/hooks.json",
        ".codex/config.toml",
        ".gemini/settings.json",
        ".cursor/hooks.json",
        ".github/hooks/deadstop.json",
        "state/deadstop",
        "share/deadstop",
        "config/deadstop",
        "deadstop.toml",
        "deadstop.db",
        "deadstop.db-wal",
        "bin/deadstop",
        "hooks/deadstop.json",
    ];
    ends.iter().any(|end| {
        path.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with(['/', '.']))
    }) || path.contains("/deadstop/")
        && (path.contains("state/") || path.contains("share/") || path.contains("config/"))
}

impl Walk<'_> {
    fn disables(&mut self, verb: &str, target: &str) {
        let kind = HarmKind::DisablesDeadstop;
        self.effects.harm(kind, verb, target, Reach::System, Recovery::None);
    }

    /// `deadstop uninstall`, `pkill deadstop`, `systemctl stop deadstop`.
    pub(super) fn against_deadstop(&mut self, name: &str, arguments: &[String]) {
        let words: Vec<&str> =
            arguments.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
        let names = |word: &&str| {
            let word = word.rsplit('/').next().unwrap_or(word);
            word.trim_end_matches(".service").starts_with("deadstop")
        };
        let first = words.first().copied().unwrap_or_default();
        match name {
            "deadstop" => {
                let second = words.get(1).copied().unwrap_or_default();
                let orders = ORDERS.contains(&first)
                    || matches!((first, second), ("approvals", "approve") | ("mcp", "accept"))
                    || matches!((first, second), ("policy", "set" | "reset" | "restore"))
                    || matches!(
                        (first, second),
                        ("prices", "set" | "reset") | ("alerts", "remove")
                    )
                    || matches!((first, second), ("agents", "on" | "resume" | "clear" | "remove"))
                    || matches!((first, second), ("mcp", "unwrap") | ("keys", "create" | "revoke"));
                if orders {
                    self.disables("deadstop", &words.join(" "));
                }
            }
            "kill" | "pkill" | "killall" | "skill" => {
                let substituted = arguments.iter().any(|word| word.contains("deadstop"));
                if substituted || words.iter().any(names) {
                    self.disables(name, "deadstop");
                }
            }
            "systemctl" | "service" | "launchctl" | "rc-service" | "supervisorctl" => {
                let stops = words.iter().any(|word| {
                    matches!(*word, "stop" | "disable" | "mask" | "kill" | "unload" | "bootout")
                });
                if stops && words.iter().any(names) {
                    self.disables(name, &words.join(" "));
                }
            }
            "docker" | "podman" => {
                let stops =
                    words.iter().any(|word| matches!(*word, "stop" | "kill" | "rm" | "pause"));
                if stops && words.iter().any(|word| word.contains("deadstop")) {
                    self.disables(name, &words.join(" "));
                }
            }
            "npm" | "pip" | "pip3" | "cargo" | "brew" | "apt" | "apt-get" => {
                let removes = words
                    .iter()
                    .any(|word| matches!(*word, "uninstall" | "remove" | "purge" | "rm"));
                if removes && words.iter().any(names) {
                    self.disables(name, &words.join(" "));
                }
            }
            "unset" => {
                for word in words.iter().filter(|word| LEADS.contains(word)) {
                    self.disables("unset", word);
                }
            }
            "chmod" | "mv" | "cp" | "sed" | "tee" | "rm" | "truncate" | "ln" | "jq" | "sqlite3"
            | "shred" | "unlink" | "install" | "perl" => self.touches(name, arguments),
            _ => {}
        }
        if name == "env" {
            let unset = arguments.windows(2).filter(|pair| pair[0] == "-u" || pair[0] == "--unset");
            let named: Vec<String> = unset.map(|pair| pair[1].clone()).collect();
            for word in named.iter().filter(|word| LEADS.contains(&word.as_str())) {
                self.disables("env -u", word);
            }
        }
    }

    /// A command that changes files changes one that Deadstop needs.
    fn touches(&mut self, name: &str, arguments: &[String]) {
        let writes = match name {
            "sed" | "perl" => arguments.iter().any(|word| word.starts_with("-i") || word == "-pi"),
            "jq" => false,
            _ => true,
        };
        let words = arguments.iter().filter(|word| !word.starts_with('-'));
        let words: Vec<&String> = match name {
            // What is copied from stays as it is.
            "cp" | "ln" | "install" => words.rev().take(1).collect(),
            _ => words.collect(),
        };
        let protected = words.into_iter().find(|word| self.is_protected(word)).cloned();
        if let Some(path) = protected.filter(|_| writes) {
            self.disables(name, &path);
        }
    }

    pub(super) fn is_protected(&self, path: &str) -> bool {
        protects(&place::absolute(self.here, &self.resolve(path)))
    }

    /// Variables that are set or unset for a child, so that it goes past Deadstop.
    pub(super) fn unsets(&mut self, argv: &[String], assignments: &[(String, String)]) {
        for (name, value) in assignments {
            let empty = value.is_empty() || value == "none";
            let direct = ["api.anthropic.com", "api.openai.com", "googleapis.com"]
                .iter()
                .any(|host| value.contains(host));
            let leads = LEADS.contains(&name.as_str()) && (empty || direct);
            let ours = name.starts_with("DEADSTOP_")
                && (empty
                    || name.starts_with("DEADSTOP_OPERATOR_TOKEN")
                    || matches!(name.as_str(), "DEADSTOP_POLICY" | "DEADSTOP_SERVER"));
            // The program's own tests set its variables.
            let tests =
                argv.first().is_some_and(|first| matches!(first.as_str(), "cargo" | "make"));
            if leads || (ours && !tests) {
                self.disables("set", &format!("{name}={value}"));
            }
        }
    }

    /// A redirection writes a file that Deadstop needs.
    pub(super) fn overwrites_protected(&mut self, path: &str) {
        if self.is_protected(path) {
            self.disables("write", path);
        }
    }
}
