//! Secrets: which commands read them, and which send them to another machine.

use brush_parser::ast;
use deadstop_core::{HarmKind, Reach, Recovery};

use super::command::{unwrapped, value_of};
use super::databases::DATABASES;
use super::fetch::Taint;
use super::{Input, Parts, Walk};
use crate::{Effects, secret, target};

/// Commands that show, copy or pass on what is in a file.
const READERS: &[&str] = &[
    "cat",
    "bat",
    "batcat",
    "head",
    "tail",
    "less",
    "more",
    "most",
    "view",
    "vi",
    "vim",
    "nvim",
    "nano",
    "emacs",
    "code",
    "open",
    "grep",
    "egrep",
    "fgrep",
    "rg",
    "ag",
    "ack",
    "awk",
    "gawk",
    "mawk",
    "sed",
    "gsed",
    "cut",
    "tr",
    "sort",
    "uniq",
    "nl",
    "tac",
    "rev",
    "paste",
    "join",
    "fold",
    "column",
    "xxd",
    "od",
    "hexdump",
    "strings",
    "base64",
    "base32",
    "openssl",
    "gpg",
    "gzip",
    "bzip2",
    "xz",
    "zstd",
    "tar",
    "zip",
    "7z",
    "cp",
    "scp",
    "rsync",
    "sftp",
    "dd",
    "ln",
    "install",
    "date",
    "sqlite3",
    "diff",
    "cmp",
    "comm",
    "jq",
    "yq",
    "tee",
    "curl",
    "wget",
    "http",
    "nc",
    "ncat",
    "netcat",
    "socat",
    "ssh",
    "python",
    "python3",
    "perl",
    "ruby",
    "node",
    "type",
    "get-content",
    "gc",
    "invoke-restmethod",
    "invoke-webrequest",
    "irm",
    "iwr",
    "pbcopy",
    "xclip",
    "mail",
    "aws",
    "gsutil",
    "az",
    "rclone",
    "iconv",
    "split",
    "csplit",
    "shuf",
    "dig",
    "nslookup",
    "host",
    "read",
    "mapfile",
    "xargs",
    "printf",
    "echo",
    "git",
    "unzip",
    "zcat",
    "zless",
    "bsdtar",
];

impl Walk<'_> {
    /// Notes secrets that a command reads or sends.
    pub(super) fn secrets(&mut self, name: &str, arguments: &[String], input: &Input) {
        self.stores(name, arguments);
        let reads = READERS.contains(&name) && !matches!(name, "echo" | "printf" | "git" | "tee");
        if reads && !arguments.iter().any(|word| word == "--attributes-only") {
            for word in self.read_words(name, arguments) {
                for piece in secrets_in(&word) {
                    self.reads_secret(name, piece);
                }
            }
        }
        self.stages(name, arguments);
        self.in_address(name, arguments);
        if matches!(name, "grep" | "egrep" | "rg")
            && input.from.first().is_some_and(|from| from == "history")
            && arguments.iter().any(|word| {
                let word = word.to_ascii_lowercase();
                ["password", "passwd", "token", "secret", "apikey", "api_key"]
                    .iter()
                    .any(|mark| word.contains(mark))
            })
        {
            self.reads_secret("history", "what was typed");
        }
        let searches = match name {
            "grep" | "egrep" | "fgrep" => arguments.iter().any(|word| {
                word == "--recursive"
                    || (word.starts_with('-')
                        && !word.starts_with("--")
                        && word.contains(['r', 'R']))
            }),
            "rg" | "ag" | "ack" => true,
            _ => false,
        };
        if searches
            && let Some(folder) =
                arguments.iter().skip(1).find(|word| secret::is_hidden_folder(word)).cloned()
        {
            self.reads_secret(name, &folder);
        }
        if let Some(sink) = sends(name, arguments, input) {
            if input.taint == Taint::Private {
                self.sends_secret(name, "the environment");
            }
            let folders: Vec<&String> = arguments
                .iter()
                .filter(|word| {
                    let whole = ["~", "$HOME", "/root", "/home", "/etc", "/"];
                    let bare = if word.len() > 1 { word.trim_end_matches('/') } else { word };
                    !word.contains(':') && (secret::is_secret_folder(word) || whole.contains(&bare))
                })
                .collect();
            if matches!(name, "scp" | "rsync" | "sftp" | "rclone") && !folders.is_empty() {
                self.sends_secret(name, &target::join(&folders));
            }
            let private = |word: &&String| {
                let file = word.rsplit(['@', '=']).next().unwrap_or(word);
                self.is_private(file) || (file.starts_with("/etc/") && !file.contains("ssl"))
            };
            if let Some(file) = arguments.iter().find(private).cloned() {
                self.sends_secret(name, &file);
            }
            self.sends.get_or_insert(sink);
        }
        if matches!(name, "tar" | "zip" | "7z" | "cp")
            && let Some(folder) = arguments.iter().find(|word| secret::is_hidden_folder(word))
        {
            self.reads_secret(name, folder);
        }
        if name == "tar" || name == "zip" || name == "7z" {
            self.bundle(name, arguments);
        }
    }

    /// All variables of the environment, shown: `env`, `printenv`, `export -p`.
    pub(super) fn lists_environment(&mut self, argv: &[String]) {
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        let lists = matches!(
            words.as_slice(),
            ["env" | "printenv" | "set"]
                | ["export" | "declare" | "typeset", "-p" | "-x" | "-px" | "-xp"]
        );
        if lists {
            self.reads_secret(words[0], "the environment");
        }
    }

    /// Secrets that are added to a repository, and the push that sends them.
    fn stages(&mut self, name: &str, arguments: &[String]) {
        if name != "git" {
            return;
        }
        let mut words = arguments.iter().filter(|word| !word.starts_with('-'));
        match words.next().map(String::as_str) {
            Some("add" | "stage") => {
                let found: Vec<String> = words.filter(|w| secret::is_secret(w)).cloned().collect();
                for path in found.iter().take(16 - self.staged.len().min(16)) {
                    self.staged.push(path.clone());
                }
            }
            Some("push") if !self.staged.is_empty() => {
                let what = target::join(&self.staged);
                self.sends_secret("git push", &what);
            }
            _ => {}
        }
    }

    /// The words of a command that name what it reads: not where it writes to.
    fn read_words(&self, name: &str, arguments: &[String]) -> Vec<String> {
        let mut words: Vec<String> = arguments.to_vec();
        let target = value_of(arguments, &["-t", "--target-directory"]).is_some();
        if matches!(name, "cp" | "install" | "ln") && !target {
            let last = words.iter().rposition(|word| !word.starts_with('-'));
            let operands = words.iter().filter(|word| !word.starts_with('-')).count();
            if let Some(last) = last.filter(|_| operands > 1) {
                words.remove(last);
            }
        }
        match name {
            // The first word is what is looked for.
            "grep" | "egrep" | "fgrep" | "rg" | "ag" | "ack" | "sed" | "awk" | "jq" | "yq" => {
                if let Some(first) = words.iter().position(|word| !word.starts_with('-')) {
                    words.remove(first);
                }
            }
            "tar" => words.retain(|word| !word.starts_with("--exclude")),
            "curl" | "wget" => {
                // Keys and certificates for the connection itself stay here.
                let own = ["--cert", "--key", "--cacert", "-E", "--certificate", "--private-key"];
                let mut skip = false;
                words.retain(|word| {
                    let keep = !skip && !own.contains(&word.as_str()) && !word.contains("://");
                    skip = own.contains(&word.as_str());
                    keep
                });
            }
            "ssh" | "scp" | "sftp" | "rsync" | "openssl" => {
                if let Some(at) = words.iter().position(|word| word == "-i" || word == "-out") {
                    words.drain(at..(at + 2).min(words.len()));
                }
            }
            _ => {}
        }
        words
    }

    fn reads_secret(&mut self, verb: &str, path: &str) {
        self.effects.harm(HarmKind::ReadsSecret, verb, path, Reach::Outside, Recovery::None);
    }

    fn sends_secret(&mut self, verb: &str, what: &str) {
        self.effects.harm(HarmKind::SendsSecret, verb, what, Reach::Remote, Recovery::None);
    }

    /// Stores of secrets that have commands of their own.
    fn stores(&mut self, name: &str, arguments: &[String]) {
        let words: Vec<&str> =
            arguments.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
        let reads = match (name, words.as_slice()) {
            ("security", [verb, ..]) => {
                verb.starts_with("dump-keychain")
                    || (verb.starts_with("find-")
                        && arguments.iter().any(|w| {
                            w.starts_with('-') && !w.starts_with("--") && w.contains(['w', 'g'])
                        }))
                    || *verb == "export"
            }
            ("secret-tool", ["lookup" | "search", ..]) | ("pass", ["show", ..]) => true,
            (
                "heroku",
                [
                    "config" | "auth:token" | "pg:credentials" | "pg:credentials:url"
                    | "redis:credentials",
                    ..,
                ],
            ) => true,
            ("vercel", ["env", "pull", ..]) | ("chamber", ["read" | "export", ..]) => true,
            ("infisical", ["secrets" | "export", ..]) => !words.contains(&"delete"),
            ("git", ["show" | "cat-file", rest @ ..]) => rest
                .iter()
                .any(|word| word.rsplit_once(':').is_some_and(|(_, path)| secret::is_secret(path))),
            ("docker" | "podman", ["exec", _, "env" | "printenv"]) => true,
            ("docker" | "podman", ["inspect", ..]) => {
                arguments.iter().any(|word| word.contains(".Env"))
            }
            ("gh", ["auth", "token", ..]) | ("gcloud", ["auth", "print-access-token", ..]) => true,
            ("gpg", _) => arguments.iter().any(|word| word.starts_with("--export-secret")),
            ("aws", ["secretsmanager", "get-secret-value", ..])
            | ("aws", ["sts", "get-session-token" | "assume-role", ..])
            | ("aws", ["configure", "export-credentials", ..])
            | (
                "aws",
                [
                    "configure",
                    "get",
                    "aws_secret_access_key" | "aws_access_key_id" | "aws_session_token",
                    ..,
                ],
            )
            | ("aws", ["ecr", "get-login-password", ..]) => true,
            ("aws", ["ssm", verb, ..]) => {
                verb.starts_with("get-parameter")
                    && arguments.iter().any(|word| word == "--with-decryption")
            }
            ("vault", ["kv", "get", ..] | ["read", ..]) => true,
            ("op", ["read", ..] | ["item", "get", ..]) => true,
            ("gcloud", ["secrets", "versions", "access", ..]) => true,
            ("gcloud", ["auth", "application-default", "print-access-token", ..]) => true,
            ("az", ["keyvault", "secret", "show" | "download", ..]) => true,
            ("az", ["account", "get-access-token", ..]) => true,
            ("bw", ["get", ..]) | ("lpass" | "gopass", ["show", ..]) | ("keyring", ["get", ..]) => {
                true
            }
            ("doppler", ["secrets", "get" | "download", ..]) | ("heroku", ["config:get", ..]) => {
                true
            }
            ("kubectl", ["config", "view", ..]) => arguments.iter().any(|word| word == "--raw"),
            ("sops", _) => arguments.iter().any(|word| matches!(word.as_str(), "-d" | "--decrypt")),
            ("git", ["credential", "fill", ..]) => true,
            ("kubectl", ["get", "secret" | "secrets", _, ..]) => {
                arguments.iter().any(|word| word.starts_with("-o") || word.starts_with("--output"))
            }
            // The environment of every process.
            ("ps", [flags, ..]) => flags.contains("eww") || flags.contains("auxe"),
            _ => false,
        };
        if reads {
            self.reads_secret(name, &target::join(&words));
        }
    }

    /// Keys that a search looks for, and what is done with the files that it finds: `find / -name id_rsa | xargs cat`.
    pub(super) fn reads_found(&mut self, program: &str, found: &[String]) {
        let name = program.rsplit('/').next().unwrap_or(program);
        if !READERS.contains(&name) || found.first().is_none_or(|first| first != "find") {
            return;
        }
        let named = found
            .windows(2)
            .filter(|pair| matches!(pair[0].as_str(), "-name" | "-iname" | "-path" | "-wholename"))
            .find(|pair| secret::is_secret(&pair[1]));
        if let Some(pair) = named {
            self.reads_secret(name, &pair[1].clone());
        }
    }

    /// A secret that a request carries in its address, where servers and proxies log it.
    fn in_address(&mut self, name: &str, arguments: &[String]) {
        if !matches!(name, "curl" | "wget" | "http" | "https" | "xh") {
            return;
        }
        let secret = |word: &&String| {
            word.contains("://")
                && word.split('$').skip(1).any(|part| {
                    let part = part.trim_start_matches('{');
                    let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                    let name = &part[..end.unwrap_or(part.len())];
                    ["SECRET", "PRIVATE_KEY", "PASSWORD"].iter().any(|mark| name.contains(mark))
                })
        };
        if let Some(word) = arguments.iter().find(secret).cloned() {
            self.sends_secret(name, &word);
        }
    }

    /// Directories that are packed up: whole, so that their contents are unknown.
    fn bundle(&mut self, name: &str, arguments: &[String]) {
        let creates = match name {
            "tar" => arguments.iter().enumerate().any(|(at, word)| {
                word.starts_with("--cr")
                    || (word.starts_with('-') && !word.starts_with("--") && word.contains('c'))
                    || (at == 0 && !word.starts_with('-') && word.contains('c'))
            }),
            _ => true,
        };
        let whole = !arguments.iter().any(|word| word == "--no-recursion")
            || arguments.iter().any(|word| word.ends_with("/*"));
        if !creates || !whole {
            return;
        }
        let operands = arguments.iter().skip(1).filter(|word| !word.starts_with('-'));
        for word in operands {
            if self.bundles.len() < 16 {
                self.bundles.push(word.clone());
            }
        }
        if let Some(file) = value_of(arguments, &["-f", "--file"])
            && file.contains(':')
        {
            self.sends.get_or_insert(file);
        }
    }

    /// Files that a redirection reads: `< ~/.ssh/id_rsa`, `< /dev/tcp/host/port`.
    pub(super) fn note_inputs(&mut self, redirect: &ast::IoRedirect, parts: &mut Parts) {
        use ast::{IoFileRedirectKind as Kind, IoFileRedirectTarget as Target};
        match redirect {
            ast::IoRedirect::File(_, Kind::Read, Target::Filename(word)) => {
                let name = super::word::expand(&word.value, &self.variables).fields.join(" ");
                if name.starts_with("/dev/tcp/") || name.starts_with("/dev/udp/") {
                    parts.taint = Taint::Fetched;
                }
                parts.inputs.push(name);
            }
            ast::IoRedirect::File(_, Kind::DuplicateInput, Target::Duplicate(word))
                if word.value.contains("COPROC") || word.value.contains('[') =>
            {
                // What a coprocess prints.
                parts.taint = Taint::Fetched.or(parts.taint);
            }
            _ => {}
        }
    }

    /// Notes secrets among files that a redirection reads.
    pub(super) fn reads_inputs(&mut self, argv: &[String], inputs: &[String]) {
        let name = unwrapped(argv).first().map_or("", String::as_str);
        // These do not look at what they are fed.
        if matches!(name, "chmod" | "chown" | "touch" | "ls" | "mkdir" | "rm") {
            return;
        }
        for path in inputs.iter().filter(|path| secret::is_secret(path)) {
            self.reads_secret("read", path);
        }
        if DATABASES.contains(&name) {
            for path in inputs.iter().take(8) {
                self.statements_file(name, path);
            }
        }
    }

    /// The effects of the whole walk, with what only shows at its end.
    pub(super) fn finish(mut self) -> Effects {
        if let Some(sink) = self.sends.take() {
            if !self.bundles.is_empty() {
                let what = target::join(&self.bundles);
                self.sends_secret("send", &what);
            }
            let secrets = self.effects.harms.iter().filter(|h| h.kind == HarmKind::ReadsSecret);
            let read: Vec<String> = secrets.map(|harm| harm.target.clone()).collect();
            for path in read.iter().take(4) {
                self.sends_secret(&format!("send to {sink}"), path);
            }
        }
        self.effects
    }
}

/// Parts of a word that name secrets: `.env` in `--data=@.env`, `server.key` in `a,server.key`.
fn secrets_in(word: &str) -> Vec<&str> {
    let word = word.trim_matches(['"', '\'']);
    let value = word.rsplit(['=', '@']).next().unwrap_or(word);
    if secret::is_secret(value) {
        return vec![value];
    }
    let inner = word.split(['=', '@', ',', ':', '"', '\'', '(', ')', '<', ' ', '!']);
    inner.filter(|piece| secret::is_secret(piece)).collect()
}

/// Where a command sends what it is given, if it does.
fn sends(name: &str, arguments: &[String], input: &Input) -> Option<String> {
    let has = |starts: &[&str]| {
        arguments.iter().any(|word| starts.iter().any(|start| word.starts_with(start)))
    };
    let remote = arguments.iter().find(|word| is_remote(word));
    let host = || {
        let address = |w: &&String| !w.starts_with(['-', '@', '.']) && w.contains('.');
        let named = |w: &&String| address(w) && !w.contains('=') && !secret::is_secret(w);
        let found = arguments.iter().find(|word| word.contains("://"));
        found.or_else(|| arguments.iter().rev().find(named)).map(|host| crate::http::place(host))
    };
    match name {
        "curl" => {
            let uploads = has(&["--data", "--form", "--upload-file", "--json", "--url-query"])
                || arguments.iter().any(|word| {
                    word.starts_with('-')
                        && !word.starts_with("--")
                        && word.contains(['d', 'F', 'T'])
                });
            uploads.then(|| host().unwrap_or_else(|| "curl".into()))
        }
        "invoke-restmethod" | "invoke-webrequest" | "irm" | "iwr" => {
            let uploads = arguments.iter().any(|word| {
                ["-infile", "-body", "-form"].iter().any(|flag| word.eq_ignore_ascii_case(flag))
            });
            uploads.then(|| host().unwrap_or_else(|| name.into()))
        }
        "wget" => has(&["--post-file", "--post-data", "--body-file", "--body-data"])
            .then(|| host().unwrap_or_else(|| "wget".into())),
        "nc" | "ncat" | "netcat" | "telnet" => Some(host().unwrap_or_else(|| name.into())),
        "socat" => has(&["TCP", "UDP", "OPENSSL", "SSL", "VSOCK", "PROXY", "SOCKS", "FD"])
            .then(|| "socat".into()),
        "ssh" => (!arguments.iter().any(|w| w == "-n") && !input.from.is_empty())
            .then(|| host().unwrap_or_else(|| "ssh".into())),
        "scp" | "rsync" | "sftp" => remote.cloned(),
        "aws" => has(&["s3://"]).then(|| "s3".into()),
        "gsutil" | "rclone" => Some(name.into()),
        _ => None,
    }
}

/// `host:path`, but neither `C:\x` nor `https://…`.
fn is_remote(word: &str) -> bool {
    let Some((host, path)) = word.split_once(':') else {
        return word.starts_with("s3://");
    };
    host.len() > 1 && !host.starts_with(['-', '/', '.']) && !path.starts_with("//")
}
