//! Doors that a command opens: rights for others, public addresses, agents without questions, connections that
//! are no longer checked, packages from anywhere.

use deadstop_core::{HarmKind, Reach, Recovery};

use super::Walk;
use super::command::value_of;
use super::fetch::Taint;
use super::tools::operands;
use crate::place::{self, Depth};
use crate::surroundings::Sight;
use crate::{http, secret, target};

/// Coding agents, and the options with which they no longer ask.
const AGENTS: &[(&str, &[&str])] = &[
    ("claude", &["--dangerously-skip-permissions", "bypassPermissions"]),
    ("codex", &["--dangerously-bypass-approvals-and-sandbox", "--yolo", "danger-full-access"]),
    ("gemini", &["--yolo", "-y", "--approval-mode=yolo"]),
    ("qwen", &["--yolo", "-y", "--approval-mode=yolo"]),
    ("cursor-agent", &["--force", "-f"]),
    ("copilot", &["--allow-all-tools", "--allow-all"]),
    ("aider", &["--yes-always"]),
    ("amp", &["--dangerously-allow-all"]),
    ("crush", &["--yolo"]),
    ("droid", &["--skip-permissions-unsafe"]),
];

/// Settings after which connections are no longer checked, and the values that say so.
const UNCHECKED: &[(&str, &str, &[&str])] = &[
    ("git", "http.sslverify", &["false", "0", "off", "no"]),
    ("npm", "strict-ssl", &["false"]),
    ("pnpm", "strict-ssl", &["false"]),
    ("yarn", "strict-ssl", &["false"]),
    ("yarn", "enablestrictssl", &["false"]),
    ("pip", "global.trusted-host", &[]),
    ("pip3", "global.trusted-host", &[]),
    ("conda", "ssl_verify", &["false"]),
    ("composer", "disable-tls", &["true"]),
    ("composer", "secure-http", &["false"]),
];

/// Programs whose name another command must not take.
const TRUSTED: &[&str] =
    &["sudo", "su", "doas", "ssh", "scp", "passwd", "login", "gpg", "git", "ls", "ps", "cat"];

impl Walk<'_> {
    /// Notes doors that a command opens; what else it does is read elsewhere.
    pub(super) fn lets_in(&mut self, name: &str, arguments: &[String]) {
        let opens = HarmKind::OpensAccess;
        if is_unasking(name, arguments) || is_unchecked(name, arguments) {
            let what = target::join(arguments);
            self.effects.harm(opens, name, &what, Reach::Outside, Recovery::Elsewhere);
        }
        if shares(name, arguments) {
            let what = target::join(arguments);
            self.effects.harm(opens, name, &what, Reach::Remote, Recovery::Elsewhere);
        }
        if let Some(source) = unsafe_source(name, arguments) {
            self.runs_unread(&source, Taint::Fetched);
        }
        self.replaces_key(name, arguments);
    }

    /// `alias sudo='sudo /tmp/.x'`: another program under a name that people trust.
    pub(super) fn shadows(&mut self, alias: &str, words: &str) {
        let odd = |word: &str| place::is_temporary(word) || word.contains("/.");
        if TRUSTED.contains(&alias) && words.split_whitespace().any(odd) {
            let kind = HarmKind::OpensAccess;
            self.effects.harm(kind, "alias", alias, Reach::Outside, Recovery::Elsewhere);
        }
    }

    /// A download that is put where a shell, git or a scheduler runs it, or where it lets people log in.
    pub(super) fn places_download(&mut self, path: &str) {
        if self.is_system_file(path) {
            self.writes_system("download", path);
        } else if crate::files::runs_at_start(path) {
            self.runs_unread(path, Taint::Fetched);
        }
    }

    /// Another program that is put in the place of one that people trust: `install x /usr/local/bin/git`.
    pub(super) fn replaces_program(&mut self, name: &str, to: &str) {
        let (folder, program) = to.rsplit_once('/').unwrap_or(("", to));
        let searched = ["/usr/local/bin", "/usr/local/sbin"].contains(&folder)
            || folder.ends_with("/.local/bin");
        if searched && TRUSTED.contains(&program) {
            let kind = HarmKind::Destroys;
            self.effects.harm(kind, name, to, Reach::System, Recovery::Elsewhere);
        }
    }

    /// A new key where an old one is: the old one is gone.
    fn replaces_key(&mut self, name: &str, arguments: &[String]) {
        let file = match name {
            "ssh-keygen" => value_of(arguments, &["-f"]),
            "openssl" => value_of(arguments, &["-out"]),
            "age-keygen" => value_of(arguments, &["-o", "--output"]),
            _ => None,
        };
        let Some(file) = file.filter(|file| secret::is_secret(file)) else { return };
        let full = place::absolute(self.here, &self.resolve(&file));
        if self.here.look(&full) == Sight::File {
            self.lose(&format!("{name} over"), &file, Depth::Single);
        }
    }

    /// `ssh-keygen -f FILE <<< y`: the question whether an old key may go is answered before it is put.
    pub(super) fn answers_for_key(&mut self, name: &str, arguments: &[String], answer: &str) {
        let agrees = matches!(answer.trim(), "y" | "yes");
        let file = value_of(arguments, &["-f"]).filter(|_| name == "ssh-keygen" && agrees);
        if let Some(file) = file {
            let kind = HarmKind::Destroys;
            self.effects.harm(kind, "ssh-keygen over", &file, Reach::Outside, Recovery::None);
        }
    }
}

/// An agent that is told not to ask.
fn is_unasking(name: &str, arguments: &[String]) -> bool {
    AGENTS.iter().any(|(agent, options)| {
        *agent == name
            && (arguments.iter().any(|word| options.contains(&word.as_str()))
                || value_of(arguments, &["--approval-mode"]).is_some_and(|mode| mode == "yolo"))
    })
}

fn is_unchecked(name: &str, arguments: &[String]) -> bool {
    let words: Vec<&str> = arguments
        .iter()
        .map(String::as_str)
        .filter(|word| !word.starts_with('-') && *word != "set" && *word != "config")
        .collect();
    let [key, value, ..] = words.as_slice() else { return false };
    let sets = arguments.iter().any(|word| word == "config");
    sets && UNCHECKED.iter().any(|(program, setting, values)| {
        *program == name
            && setting.eq_ignore_ascii_case(key)
            && (values.is_empty() || values.iter().any(|off| off.eq_ignore_ascii_case(value)))
    })
}

/// Rights that are given to others, and addresses under which others reach this machine or what it keeps.
fn shares(name: &str, arguments: &[String]) -> bool {
    let words = operands(arguments);
    let has = |flags: &[&str]| arguments.iter().any(|word| flags.contains(&word.as_str()));
    match (name, words.as_slice()) {
        // What protects a branch is set aside.
        ("gh", ["pr", "merge", ..]) => has(&["--admin"]),
        ("gh" | "glab", ["ssh-key" | "gpg-key" | "deploy-key" | "repo", rest @ ..]) => {
            matches!(rest, ["add", ..] | ["deploy-key", "add", ..])
        }
        ("npm" | "pnpm", ["owner" | "team", "add", ..] | ["access", "grant" | "public", ..]) => {
            true
        }
        ("npm", ["access", "set", status, ..]) => status.ends_with("=public"),
        ("cargo", ["owner", ..]) => has(&["--add", "-a"]),
        ("gem", ["owner", ..]) => has(&["--add", "-a"]),
        ("heroku", ["access:add" | "members:add", ..]) => true,
        ("mc", ["anonymous" | "policy", "set", rule, ..]) => *rule != "none" && *rule != "private",
        ("s3cmd", ["setacl", ..]) => has(&["--acl-public", "-P"]),
        ("az", ["storage", "container", ..]) => value_of(arguments, &["--public-access"])
            .is_some_and(|access| matches!(access.as_str(), "blob" | "container")),
        ("b2", _) => words.contains(&"allPublic"),
        ("tailscale", ["funnel", rest @ ..]) => !rest.contains(&"off") && !rest.contains(&"status"),
        ("lt" | "localtunnel", _) => has(&["--port", "-p"]),
        ("bore", ["local", ..]) | ("zrok", ["share", ..]) | ("upterm", ["host", ..]) => true,
        ("devtunnel", ["host", ..]) => has(&["--allow-anonymous", "-a"]),
        ("tmate" | "sshx" | "ttyd" | "gotty", _) => {
            !has(&["-h", "--help", "-V", "--version", "-v"])
        }
        _ => false,
    }
}

/// A source of packages that any machine on the way can replace: by plain HTTP, or from a host that is not checked.
fn unsafe_source(name: &str, arguments: &[String]) -> Option<String> {
    let words = operands(arguments);
    let installs = words.iter().take(2).any(|word| {
        matches!(*word, "install" | "i" | "add" | "localinstall" | "reinstall" | "wheel")
    }) || matches!(name, "rpm" | "npx" | "bunx" | "pnpx");
    let known = matches!(
        name,
        "npm"
            | "pnpm"
            | "yarn"
            | "bun"
            | "npx"
            | "bunx"
            | "pnpx"
            | "pip"
            | "pip3"
            | "pipx"
            | "uv"
            | "gem"
            | "yum"
            | "dnf"
            | "rpm"
            | "brew"
            | "cargo"
    );
    if !known || !installs {
        return None;
    }
    let plain = |word: &&String| {
        let address = word.split_once('=').map_or(word.as_str(), |(_, value)| value);
        let address = address.strip_prefix("git+").unwrap_or(address);
        address.starts_with("http://") && !http::is_local(address)
    };
    arguments.iter().find(plain).cloned()
}
