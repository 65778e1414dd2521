//! Code that comes from elsewhere: what is fetched or decoded on its way into an interpreter, and
//! shells that are handed to the network.

use brush_parser::ast;
use deadstop_core::{HarmKind, Reach, Recovery};

use super::command::{SHELLS, unwrapped, value_of};
use super::databases::DATABASES;
use super::{Input, Language, Walk};
use crate::target;

/// Where a text comes from that is not in the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Taint {
    /// From this machine, or it is known.
    #[default]
    None,
    /// From another machine.
    Fetched,
    /// From a decoder, so that it cannot be read here.
    Decoded,
    /// From files or variables that may hold secrets.
    Private,
}

impl Taint {
    pub(super) fn or(self, other: Taint) -> Taint {
        if self == Taint::None { other } else { self }
    }
}

/// What is in a file that the script wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// This text.
    Text(String),
    /// Something from elsewhere.
    From(Taint),
}

/// Files whose contents are followed.
const MAX_CONTENTS: usize = 64;

const FETCHERS: &[&str] = &[
    "curl", "wget", "http", "https", "xh", "fetch", "aria2c", "lynx", "nc", "ncat", "netcat",
    "iwr", "irm",
];

/// Commands that pass on what they are fed.
const FILTERS: &[&str] = &[
    "cat", "tee", "sed", "tr", "grep", "head", "tail", "awk", "sort", "uniq", "cut", "gunzip",
    "zcat", "gzip", "xz", "bzip2", "iconv", "dos2unix", "envsubst", "perl", "jq", "base64", "pv",
];

/// Where what a command prints comes from.
pub(super) fn gives(argv: &[String], input: &Input, is_known: bool) -> Taint {
    let argv = unwrapped(argv);
    let Some((first, words)) = argv.split_first() else {
        return Taint::None;
    };
    if is_known {
        return Taint::None;
    }
    let name = first.rsplit('/').next().unwrap_or(first);
    let has = |flags: &[&str]| words.iter().any(|word| flags.contains(&word.as_str()));
    let fetches = match name {
        "curl" => !is_local(words) && !saves(name, words) && !is_help(words),
        "wget" => prints_document(words),
        "http" | "https" | "xh" => !has(&["--offline", "--download", "-d"]),
        "ssh" => !is_help(words) && !words.is_empty(),
        "nc" | "ncat" | "netcat" | "telnet" => !has(&["-h", "--help"]),
        "openssl" => has(&["s_client"]),
        _ => FETCHERS.contains(&name),
    };
    if fetches {
        return Taint::Fetched;
    }
    let short = |letter: char| {
        words.iter().any(|w| w.starts_with('-') && !w.starts_with("--") && w.contains(letter))
    };
    let decodes = match name {
        "base64" | "base32" | "gbase64" => has(&["--decode", "-D"]) || short('d'),
        "openssl" => {
            has(&["-d"]) && words.iter().any(|word| word.contains("base64") || word == "enc")
        }
        "xxd" => short('r'),
        "uudecode" | "zcat" | "xzcat" | "bzcat" | "zstdcat" => true,
        "gzip" | "xz" | "bzip2" | "zstd" => short('d') || has(&["--decompress"]),
        "gunzip" | "unxz" | "bunzip2" => short('c') || has(&["--stdout"]),
        "unzip" => short('p'),
        "gpg" => short('d') || has(&["--decrypt"]),
        _ => false,
    };
    if decodes {
        return input.taint.or(Taint::Decoded);
    }
    // What a program on the command line prints is not known before it has run.
    let inline = Language::of(name).is_some()
        && (has(&["-c", "-e", "-r", "--eval"]) || words.iter().any(|word| word == "base64"));
    if inline {
        return input.taint.or(Taint::Decoded);
    }
    if matches!(name, "env" | "printenv") && words.iter().all(|w| w.starts_with('-') && w != "-i") {
        return Taint::Private;
    }
    // A text that is known goes in, and what comes out is not: it was hidden, and is now made plain.
    if input.text.as_deref().is_some_and(|text| !text.trim().is_empty()) && HIDES.contains(&name) {
        return input.taint.or(Taint::Decoded);
    }
    if FILTERS.contains(&name) { input.taint } else { Taint::None }
}

/// Commands that can turn a text into another one.
const HIDES: &[&str] = &["tr", "sed", "awk", "perl", "gunzip", "zcat", "gzip", "xz", "cut", "fold"];

fn is_help(words: &[String]) -> bool {
    words.first().is_some_and(|word| matches!(word.as_str(), "--help" | "--version" | "-V"))
}

/// `curl file:///…`: the file is on this machine.
fn is_local(words: &[String]) -> bool {
    words.iter().any(|word| word.starts_with("file:"))
}

/// Whether a download goes to a file.
fn saves(name: &str, words: &[String]) -> bool {
    saved(name, words).is_some_and(|file| file != "-")
}

/// `wget -O -`, in all its spellings.
fn prints_document(words: &[String]) -> bool {
    saved("wget", words).is_some_and(|file| file == "-" || file == "/dev/stdout")
}

/// The file that a download is saved to.
fn saved(name: &str, words: &[String]) -> Option<String> {
    let cluster = |letter: char| {
        let at = words.iter().position(|word| {
            word.starts_with('-') && !word.starts_with("--") && word.contains(letter)
        })?;
        let after = words[at].split_once(letter).map_or("", |(_, rest)| rest);
        if after.is_empty() { words.get(at + 1).cloned() } else { Some(after.to_owned()) }
    };
    let last = || {
        let url = words.iter().rev().find(|word| !word.starts_with('-'))?;
        let path = url.split(['?', '#']).next().unwrap_or(url).trim_end_matches('/');
        Some(path.rsplit('/').next().unwrap_or(path).to_owned())
    };
    match name {
        "curl" => {
            if words.iter().any(|word| word == "--no-clobber") {
                return None;
            }
            let remote = words.iter().any(|word| {
                matches!(word.as_str(), "-O" | "--remote-name" | "--remote-name-all")
                    || (word.starts_with('-') && !word.starts_with("--") && word.ends_with('O'))
            });
            value_of(words, &["-o", "--output"])
                .or_else(|| remote.then(last).flatten())
                .or_else(|| cluster('o').filter(|_| words.iter().any(|w| w.ends_with('o'))))
        }
        "wget" => {
            let long = words.iter().find_map(|word| {
                let (flag, file) = word.split_once('=')?;
                flag.starts_with("--output-d").then(|| file.to_owned())
            });
            long.or_else(|| value_of(words, &["--output-document"]))
                .or_else(|| cluster('O'))
                .or_else(last)
        }
        "aria2c" => value_of(words, &["-o", "--out"]).or_else(last),
        _ => None,
    }
}

impl Walk<'_> {
    /// Notes what is in the files that a command writes.
    pub(super) fn writes_content(
        &mut self,
        argv: &[String],
        emptied: &[String],
        text: Option<&str>,
        taint: Taint,
    ) {
        let content = match (text, taint) {
            (Some(text), _) if text.len() <= 4096 => Content::Text(text.to_owned()),
            (_, taint) => Content::From(taint),
        };
        for file in emptied {
            if content == Content::From(Taint::Fetched) {
                self.places_download(&self.resolve(file));
            }
            self.contains(file, content.clone());
        }
        let argv = unwrapped(argv);
        let Some((first, words)) = argv.split_first() else { return };
        let name = first.rsplit('/').next().unwrap_or(first);
        match name {
            "tee" => {
                for file in words.iter().filter(|word| !word.starts_with('-')) {
                    self.contains(file, content.clone());
                }
            }
            "curl" | "wget" | "aria2c" => {
                if let Some(file) = saved(name, words).filter(|f| f != "-" && !is_local(words)) {
                    self.places_download(&self.resolve(&file));
                    self.contains(&file, Content::From(Taint::Fetched));
                }
            }
            "rm" | "unlink" => {
                for file in words.iter().filter(|word| !word.starts_with('-')) {
                    let path = self.resolve(file);
                    self.contents.retain(|(known, _)| *known != path);
                }
            }
            "cp" | "mv" | "ln" | "install" | "rsync" => {
                let operands: Vec<&String> = words.iter().filter(|w| !w.starts_with('-')).collect();
                if let [.., from, to] = operands.as_slice()
                    && let Some(content) = self.content(from)
                {
                    let from = self.resolve(from);
                    if name == "mv" {
                        self.contents.retain(|(known, _)| *known != from);
                    }
                    self.contains(to, content);
                }
            }
            "dd" => {
                let part = |start: &str| words.iter().find_map(|word| word.strip_prefix(start));
                if let (Some(from), Some(to)) = (part("if="), part("of="))
                    && let Some(content) = self.content(from)
                {
                    self.contains(to, content);
                }
            }
            _ => {}
        }
    }

    fn contains(&mut self, file: &str, content: Content) {
        let path = self.resolve(file);
        self.contents.retain(|(known, _)| *known != path);
        let matters = content != Content::From(Taint::None);
        if matters && self.contents.len() < MAX_CONTENTS {
            self.contents.push((path, content));
        }
    }

    fn content(&self, file: &str) -> Option<Content> {
        let path = self.resolve(file);
        self.contents.iter().find(|(known, _)| *known == path).map(|(_, content)| content.clone())
    }

    /// Whether the script wrote something into a file that may hold secrets.
    pub(super) fn is_private(&self, file: &str) -> bool {
        self.content(file) == Some(Content::From(Taint::Private))
    }

    /// Whether nothing is known of what is in a file.
    pub(super) fn is_unwritten(&self, file: &str) -> bool {
        self.content(file).is_none()
    }

    /// A file is run by a shell: one that the script wrote is walked, one that it fetched is told.
    pub(super) fn runs_file(&mut self, file: &str) {
        match self.content(file) {
            Some(Content::Text(text)) => self.script(&text),
            Some(Content::From(taint)) => self.runs_unread(file, taint),
            None => self.task("run", file),
        }
    }

    /// An interpreter is about to run what it is fed, and that cannot be read.
    pub(super) fn runs_unread(&mut self, name: &str, taint: Taint) {
        let (kind, verb) = match taint {
            Taint::Fetched => (HarmKind::RunsDownload, "run fetched code"),
            Taint::Decoded => (HarmKind::Unreadable, "run decoded code"),
            Taint::None | Taint::Private => return,
        };
        self.effects.harm(kind, verb, name, Reach::Outside, Recovery::Unknown);
    }

    /// A script or a program that is a substitution, such as `$(curl …)`.
    pub(super) fn runs_substitution(&mut self, text: &str) -> bool {
        let text = text.trim();
        let Some(inner) = text.strip_prefix("$(").or_else(|| text.strip_prefix('`')) else {
            return false;
        };
        let words = inner.split(['|', ';', '&', '\n', ')']);
        let mut taint = Taint::None;
        for part in words {
            let argv: Vec<String> = part.split_whitespace().map(str::to_owned).collect();
            if argv.is_empty() || argv[0].starts_with(['"', '\'']) {
                continue;
            }
            let input = Input { taint, ..Input::default() };
            taint = gives(&argv, &input, false);
        }
        self.runs_unread(target::clip(inner).trim_end_matches(')'), taint);
        taint != Taint::None
    }

    /// `nc -e sh`, `socat EXEC:sh`, `bash -i >& /dev/tcp/…`: a shell for any caller.
    pub(super) fn network_shell(&mut self, name: &str, words: &[String]) {
        let runs_shell = |text: &str| {
            let argv: Vec<String> = text
                .trim_matches(['"', '\''])
                .split_whitespace()
                .map(|word| word.trim_matches(['"', '\'']).to_owned())
                .collect();
            unwrapped(&argv).first().is_some_and(|first| {
                let name = first.rsplit('/').next().unwrap_or(first);
                SHELLS.contains(&name) || matches!(name, "cmd.exe" | "powershell" | "pwsh")
            })
        };
        let hands = match name {
            "nc" | "ncat" | "netcat" => {
                let flags = ["-e", "-c", "--exec", "--sh-exec"];
                let given = value_of(words, &flags);
                let joined = words.iter().find_map(|word| {
                    let rest = word.strip_prefix("-e").or(word.strip_prefix("-c"))?;
                    (!rest.is_empty()).then(|| rest.to_owned())
                });
                given.or(joined).is_some_and(|text| runs_shell(&text))
            }
            "ssh" | "autossh" => {
                if words.iter().any(|word| word.starts_with("-R")) {
                    let kind = HarmKind::OpensAccess;
                    let what = target::join(words);
                    self.effects.harm(kind, "ssh -R", &what, Reach::Remote, Recovery::Elsewhere);
                }
                false
            }
            "socat" => words.iter().any(|word| {
                let (kind, rest) = word.split_once(':').unwrap_or((word, ""));
                match kind.to_ascii_uppercase().as_str() {
                    "EXEC" | "SYSTEM" => runs_shell(rest.split(',').next().unwrap_or(rest)),
                    "SHELL" => true,
                    _ => false,
                }
            }),
            _ => false,
        };
        if hands {
            let what = target::join(words);
            let kind = HarmKind::OpensAccess;
            self.effects.harm(kind, &format!("{name} shell"), &what, Reach::System, Recovery::None);
        }
    }

    /// `bash -i >& /dev/tcp/…`: a shell whose output goes to another machine.
    pub(super) fn hands_out_shell(&mut self, argv: &[String]) {
        let name = argv.first().map_or("", |first| first.rsplit('/').next().unwrap_or(first));
        let Some(to) = self.sends.clone().filter(|to| to.starts_with("/dev/tcp/")) else { return };
        if SHELLS.contains(&name) {
            let kind = HarmKind::OpensAccess;
            self.effects.harm(kind, &format!("{name} shell"), &to, Reach::System, Recovery::None);
        }
    }

    /// `sh -i | nc host port`: a shell whose output goes to another machine through a pipe.
    pub(super) fn hands_on_shell(&mut self, pipeline: &ast::Pipeline) {
        if pipeline.seq.len() < 2 {
            return;
        }
        let name = |command: &ast::Command| match command {
            ast::Command::Simple(simple) => {
                let word = simple.word_or_name.as_ref().map_or("", |word| word.value.as_str());
                word.rsplit('/').next().unwrap_or(word).to_owned()
            }
            _ => String::new(),
        };
        let names: Vec<String> = pipeline.seq.iter().map(name).collect();
        let asks = |command: &ast::Command| {
            match command {
            ast::Command::Simple(simple) => simple.suffix.iter().flat_map(|suffix| &suffix.0).any(|item| {
                matches!(item, ast::CommandPrefixOrSuffixItem::Word(word) if matches!(word.value.as_str(), "-i" | "-li" | "-il"))
            }),
            _ => false,
        }
        };
        let shell = names
            .iter()
            .zip(&pipeline.seq)
            .position(|(name, command)| SHELLS.contains(&name.as_str()) && asks(command));
        let sends = |name: &String| {
            matches!(name.as_str(), "nc" | "ncat" | "netcat" | "telnet" | "openssl")
        };
        if let Some(at) = shell
            && names[at..].iter().any(sends)
        {
            let kind = HarmKind::OpensAccess;
            self.effects.harm(
                kind,
                "shell to the network",
                &names[at],
                Reach::System,
                Recovery::None,
            );
        }
    }

    /// What is fetched goes straight into a cluster, a database or a scheduler, which does what it says.
    pub(super) fn feeds_download(&mut self, name: &str, arguments: &[String], input: &Input) {
        if input.taint != Taint::Fetched {
            return;
        }
        let has = |words: &[&str]| arguments.iter().any(|word| words.contains(&word.as_str()));
        let takes = match name {
            "kubectl" | "oc" | "k" => {
                has(&["apply", "create", "replace"]) && has(&["-", "-f-", "--filename=-"])
            }
            "crontab" => has(&["-"]) || arguments.is_empty(),
            "docker" | "podman" => has(&["build", "buildx"]) && has(&["-"]),
            name => DATABASES.contains(&name) && !has(&["-c", "-e", "--command", "--execute"]),
        };
        if takes {
            self.runs_unread(name, input.taint);
        }
    }

    /// Whether a program in another language is handed code from elsewhere.
    pub(super) fn interprets(&mut self, name: &str, arguments: &[String], input: &Input) {
        let Some(_) = Language::of(name) else { return };
        let file = arguments.iter().find(|word| !word.starts_with('-'));
        match file {
            None => self.runs_unread(name, input.taint),
            Some(file) if file == "-" => self.runs_unread(name, input.taint),
            Some(file) => {
                if let Some(Content::From(taint)) = self.content(file) {
                    self.runs_unread(file, taint);
                }
            }
        }
    }
}
