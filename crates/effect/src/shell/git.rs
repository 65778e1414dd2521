//! Git: which of its commands lose work.
//!
//! Git keeps what was committed. Lost are changes that were never committed, and history that is
//! overwritten where others use it. `--force-with-lease` is how a rebased branch is pushed every
//! day and refuses to lose another's work; it does not count. On a clean tree there is nothing to
//! discard, so that most of these commands do no harm there.

use deadstop_core::{Effect, HarmKind, Reach, Recovery};

use super::super::place::{self, Depth};
use super::super::surroundings::{Kept, Sight};
use super::super::target;
use super::command::{after_options, value_of};
use super::{Input, Walk};

/// A command of git, taken apart.
struct Git<'a> {
    command: &'a str,
    /// What stands before `--`.
    words: Vec<String>,
    /// What stands behind it, all of it paths.
    paths: Vec<String>,
    /// Settings for this command alone.
    settings: Vec<(String, String)>,
    /// Where it runs.
    place: String,
}

/// Runs `git` with these arguments.
pub(super) fn run(walk: &mut Walk<'_>, arguments: &[String]) {
    let mut rest = arguments;
    let mut place = walk.resolve(".");
    let mut settings: Vec<(String, String)> = Vec::new();
    while let Some(word) = rest.first().filter(|word| word.starts_with('-')) {
        let valued =
            matches!(word.as_str(), "-C" | "-c" | "--git-dir" | "--work-tree" | "--namespace");
        let value = rest.get(1).filter(|_| valued);
        match (word.as_str(), value) {
            ("-C", Some(path)) => place = walk.resolve(path),
            ("-c", Some(set)) => {
                let (name, value) = set.split_once('=').unwrap_or((set, "true"));
                settings.push((name.to_ascii_lowercase(), value.to_owned()));
            }
            _ => {}
        }
        rest = rest.get(if valued { 2 } else { 1 }..).unwrap_or(&[]);
    }
    let Some((command, words)) = rest.split_first() else {
        walk.effects.raise(Effect::Reads);
        return;
    };
    let alias = format!("alias.{command}");
    if !BUILT_IN.contains(&command.as_str())
        && let Some((name, script)) =
            settings.iter().chain(&walk.shorthands).find(|(name, _)| *name == alias).cloned()
    {
        // While it is expanded it is a command like any other.
        let known = walk.shorthands.iter().position(|(known, _)| *known == name);
        let taken = known.map(|at| walk.shorthands.remove(at));
        match script.strip_prefix('!') {
            Some(script) => walk.script(script),
            None => walk.script(&format!("git {script} {}", words.join(" "))),
        }
        walk.shorthands.extend(taken);
        return;
    }
    let dashes = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let git = Git {
        command,
        words: words[..dashes].to_vec(),
        paths: words.get(dashes + 1..).unwrap_or(&[]).to_vec(),
        settings,
        place,
    };
    git.carried(walk);
    let rehearsal = long(&git.words, "--dry-run")
        || (matches!(git.command, "push" | "clean" | "prune" | "rm") && short(&git.words, 'n'));
    walk.effects.raise(match rehearsal || reads(command, words) {
        true => Effect::Reads,
        false => Effect::Changes,
    });
    if !rehearsal {
        git.judge(walk);
        git.configures(walk);
    }
}

/// Aliases of git that are remembered.
const MAX_SHORTHANDS: usize = 16;

/// Commands that an alias cannot replace, as far as they matter here.
const BUILT_IN: &[&str] = &[
    "status", "log", "diff", "show", "add", "commit", "push", "pull", "fetch", "clone", "reset",
    "checkout", "switch", "restore", "clean", "stash", "branch", "tag", "merge", "rebase", "gc",
];

impl Git<'_> {
    fn operands(&self) -> Vec<&String> {
        let mut words = self.words.iter();
        let mut found = Vec::new();
        while let Some(word) = words.next() {
            let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
            // `clean -e pattern` keeps what fits the pattern.
            let valued = word == "--exclude" || letters.is_some_and(|rest| rest.ends_with('e'));
            if self.command == "clean" && valued {
                words.next();
            } else if !word.starts_with('-') {
                found.push(word);
            }
        }
        found
    }

    /// Commands that git is told to run: `rebase --exec`, `bisect run`, `submodule foreach`.
    fn carried(&self, walk: &mut Walk<'_>) {
        let after = |name: &str| {
            let at = self.words.iter().position(|word| word == name)?;
            Some(after_options(self.words.get(at + 1..)?, &[]))
        };
        let script = match self.command {
            "rebase" => value_of(&self.words, &["--exec", "-x"]),
            "bisect" => {
                let command = after("run").unwrap_or(&[]).to_vec();
                return walk.run(&command, &Input::default());
            }
            "submodule" => after("foreach").map(|words| words.join(" ")),
            "difftool" => value_of(&self.words, &["--extcmd", "-x"]),
            "filter-branch" => value_of(&self.words, &["--tree-filter", "--index-filter"]),
            // An address that is a command.
            _ => self.words.iter().find_map(|word| word.strip_prefix("ext::")).map(str::to_owned),
        };
        if let Some(script) = script {
            walk.script(&script);
        }
    }

    /// `git config core.sshCommand …`, `core.hooksPath /dev/null`: what git runs later, and what it runs no
    /// more.
    fn configures(&self, walk: &mut Walk<'_>) {
        if self.command != "config" {
            return;
        }
        let operands = self.operands();
        let words: Vec<&str> =
            operands.iter().map(|word| word.as_str()).filter(|word| *word != "set").collect();
        let [name, value, ..] = words.as_slice() else { return };
        let name = name.to_ascii_lowercase();
        let runs = matches!(
            name.as_str(),
            "core.sshcommand" | "core.fsmonitor" | "core.pager" | "core.editor"
        );
        if name.starts_with("alias.") && walk.shorthands.len() < MAX_SHORTHANDS {
            walk.shorthands.push((name.clone(), (*value).to_owned()));
        }
        match value.strip_prefix('!') {
            Some(script) if name.starts_with("alias.") || name.starts_with("credential.") => {
                walk.script(script);
            }
            None if runs => walk.script(value),
            _ => {}
        }
        let nowhere = value.starts_with("/dev/") || value.starts_with("/tmp/");
        if name == "core.hookspath" && nowhere {
            let kind = HarmKind::OpensAccess;
            walk.effects.harm(
                kind,
                "git config core.hooksPath",
                value,
                Reach::Outside,
                Recovery::Elsewhere,
            );
        }
    }

    fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().rev().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    fn judge(&self, walk: &mut Walk<'_>) {
        let operands = self.operands();
        let first = operands.first().map_or("", |word| word.as_str());
        let words = &self.words;
        match self.command {
            "push" => {
                self.gives_away(walk, &operands);
                self.push(walk, &operands);
            }
            "remote" if matches!(first, "add" | "set-url") => {
                if let [_, name, url, ..] = operands.as_slice()
                    && is_stranger(url)
                    && !matches!(name.as_str(), "origin" | "upstream")
                {
                    walk.strangers.push((*name).clone());
                }
            }
            "bundle" if first == "create" => walk.bundles.push("git bundle".to_owned()),
            // What is in a directory that the script made, or in a temporary one, is not missed.
            _ if walk.is_throwaway(&self.place) => {}
            "reset" if words.iter().any(|w| is_short_for(w, "--hard", 3) || w == "--merge") => {
                let to = if first.is_empty() { "HEAD" } else { first };
                let moves = !matches!(to, "HEAD" | "@");
                let mut recovery = self.changes(walk, ".");
                if moves && recovery == Recovery::VersionControl {
                    recovery = Recovery::Elsewhere;
                }
                self.discards(walk, "git reset --hard", to, Reach::Workspace, recovery);
            }
            "checkout" => self.checkout(walk, &operands),
            "switch" => {
                let discards = forced(words) || long(words, "--discard-changes");
                if discards {
                    let recovery = self.changes(walk, ".");
                    let verb = "git switch --discard-changes";
                    self.discards(walk, verb, first, Reach::Workspace, recovery);
                }
            }
            "restore" => {
                let staged = long(words, "--staged") || short(words, 'S');
                let tree = long(words, "--worktree") || short(words, 'W');
                if !staged || tree {
                    // What `-s` names is a commit.
                    let source = value_of(words, &["-s", "--source"]);
                    let mut paths: Vec<&str> = operands
                        .iter()
                        .map(|w| w.as_str())
                        .filter(|w| source.as_deref() != Some(*w))
                        .collect();
                    paths.extend(self.paths.iter().map(String::as_str));
                    self.discard_paths(walk, "git restore", &paths);
                }
            }
            "clean" => self.clean(walk, &operands),
            "stash" if matches!(first, "drop" | "clear") => {
                let verb = if first == "drop" { "git stash drop" } else { "git stash clear" };
                let target = operands.get(1).map_or("", |word| word.as_str());
                self.discards(walk, verb, target, Reach::Workspace, Recovery::None);
            }
            "rm" if forced(words) && !long(words, "--cached") => {
                for path in
                    operands.iter().map(|w| w.as_str()).chain(self.paths.iter().map(String::as_str))
                {
                    walk.lose("git rm -f", path, Depth::Tree);
                }
            }
            "checkout-index" if forced(words) || short(words, 'f') => {
                let recovery = self.changes(walk, ".");
                self.discards(walk, "git checkout-index -f", ".", Reach::Workspace, recovery);
            }
            "read-tree" if long(words, "--reset") && short(words, 'u') => {
                let recovery = self.changes(walk, ".");
                self.discards(walk, "git read-tree --reset", first, Reach::Workspace, recovery);
            }
            "worktree" if first == "remove" && forced(words) => {
                let path = operands.get(1).map_or("", |path| path.as_str());
                walk.lose("git worktree remove --force", path, Depth::Tree);
            }
            "submodule" if first == "deinit" && forced(words) => {
                let recovery = self.changes(walk, ".");
                let verb = "git submodule deinit --force";
                self.discards(walk, verb, "", Reach::Workspace, recovery);
            }
            _ => self.history(walk, &operands),
        }
    }

    /// Commands that rewrite or remove what was committed.
    fn history(&self, walk: &mut Walk<'_>, operands: &[&String]) {
        let words = &self.words;
        let first = operands.first().map_or("", |word| word.as_str());
        let at_once = |start: &str| {
            words.iter().any(|word| {
                word.strip_prefix(start).is_some_and(|value| {
                    matches!(value.trim_start_matches('='), "now" | "0" | "all" | "epoch")
                })
            })
        };
        let pruned =
            self.setting("gc.pruneexpire").is_some_and(|v| matches!(v, "now" | "0" | "all"));
        let (verb, target, recovery) = match self.command {
            "branch" if short(words, 'D') || (forced(words) && deletes(words)) => {
                ("git branch -D", target::join(operands), Recovery::Elsewhere)
            }
            "reflog" if first == "expire" => {
                let now = words.iter().any(|word| {
                    word.starts_with("--expire")
                        && ["now", "all", "=0"].iter().any(|when| word.ends_with(when))
                });
                if !now {
                    return;
                }
                ("git reflog expire", self.place.clone(), Recovery::None)
            }
            "reflog" if first == "delete" => {
                ("git reflog delete", target::join(&operands[1..]), Recovery::None)
            }
            "gc" if at_once("--prune") || (pruned && !long(words, "--no-prune")) => {
                ("git gc --prune=now", self.place.clone(), Recovery::None)
            }
            "prune" => ("git prune", self.place.clone(), Recovery::None),
            "filter-branch" | "filter-repo" => {
                ("git filter-branch", self.place.clone(), Recovery::None)
            }
            // The names come from `xargs`: many of them.
            "tag" if deletes(words) && (operands.is_empty() || walk.listed) => {
                ("git tag -d", String::new(), Recovery::Elsewhere)
            }
            "symbolic-ref" if deletes(words) => {
                ("git symbolic-ref -d", target::join(operands), Recovery::Elsewhere)
            }
            "update-ref" if deletes(words) => {
                ("git update-ref -d", target::join(operands), Recovery::Elsewhere)
            }
            _ => return,
        };
        let kind = HarmKind::RewritesHistory;
        walk.effects.harm(kind, verb, &target, Reach::Workspace, recovery);
    }

    fn checkout(&self, walk: &mut Walk<'_>, operands: &[&String]) {
        let words = &self.words;
        let all: Vec<&str> = self.paths.iter().map(String::as_str).collect();
        if !all.is_empty() {
            return self.discard_paths(walk, "git checkout --", &all);
        }
        let creates = short(words, 'b') || short(words, 'B') || long(words, "--orphan");
        if forced(words) {
            let to = operands.first().map_or("", |word| word.as_str());
            let recovery = self.changes(walk, ".");
            return self.discards(walk, "git checkout --force", to, Reach::Workspace, recovery);
        }
        // A path cannot be told from a branch, but these can only be paths.
        let paths: Vec<&str> = operands
            .iter()
            .map(|word| word.as_str())
            .filter(|word| matches!(*word, "." | "./" | ":/" | "*" | ".."))
            .collect();
        if !creates && !paths.is_empty() {
            self.discard_paths(walk, "git checkout", &paths);
        }
    }

    fn discard_paths(&self, walk: &mut Walk<'_>, verb: &str, paths: &[&str]) {
        for path in paths {
            let whole = matches!(*path, "." | "./" | ":/" | "*" | "..") || path.starts_with(":(");
            let (reach, recovery) = match whole {
                true => (Reach::Workspace, self.changes(walk, ".")),
                false => {
                    let known = self.restores(walk, path);
                    let here = walk.here.cwd().is_some();
                    let many = walk.listed && path.starts_with('$');
                    let tree = path.ends_with('/') || path.contains('*') || many;
                    match (here, tree) {
                        (true, _) if many => (Reach::Directory, known),
                        (true, _) => (Reach::Item, known),
                        (false, true) => (Reach::Directory, Recovery::None),
                        (false, false) => (Reach::Item, Recovery::Unknown),
                    }
                }
            };
            self.discards(walk, verb, path, reach, recovery);
        }
    }

    fn clean(&self, walk: &mut Walk<'_>, operands: &[&String]) {
        let words = &self.words;
        let mut force = self.setting("clean.requireforce").is_some_and(|v| v == "false");
        for word in words {
            match word.as_str() {
                "--force" => force = true,
                "--no-force" => force = false,
                word if word.starts_with('-') && !word.starts_with("--") && word.contains('f') => {
                    force = true;
                }
                _ => {}
            }
        }
        if !force || short(words, 'i') || long(words, "--interactive") {
            return;
        }
        let paths: Vec<&str> = operands
            .iter()
            .map(|w| w.as_str())
            .chain(self.paths.iter().map(String::as_str))
            .collect();
        let paths: Vec<&str> = if paths.is_empty() { vec!["."] } else { paths };
        let (ignored, only_ignored) = (short(words, 'x'), short(words, 'X'));
        for path in paths {
            if walk.is_throwaway(path) {
                continue;
            }
            let kept = walk.here.kept(&self.full(walk, path));
            let recovery = match kept {
                Kept::Clean => Recovery::VersionControl,
                Kept::Ignored if !ignored => Recovery::VersionControl,
                _ if only_ignored => Recovery::Elsewhere,
                _ => Recovery::None,
            };
            self.discards(walk, "git clean", path, Reach::Workspace, recovery);
        }
    }

    /// A push of everything to an address that the same script has set up.
    fn gives_away(&self, walk: &mut Walk<'_>, operands: &[&String]) {
        let Some(to) = operands.first() else { return };
        let whole = ["--all", "--mirror", "--tags"].iter().any(|option| long(&self.words, option));
        if walk.strangers.contains(to) || (whole && is_stranger(to)) {
            let kind = HarmKind::SendsSecret;
            walk.effects.harm(kind, "git push", to, Reach::Remote, Recovery::None);
        }
    }

    fn push(&self, walk: &mut Walk<'_>, operands: &[&String]) {
        let words = &self.words;
        let refs: Vec<&str> = operands.iter().skip(1).map(|word| word.as_str()).collect();
        let lease = words.iter().any(|word| word.starts_with("--force-with-lease"));
        let force = forced(words)
            || words.iter().any(|word| word.starts_with("--force="))
            || long(words, "--mirror")
            || (!lease && refs.iter().any(|name| name.starts_with('+')));
        let removes = deletes(words)
            || long(words, "--prune")
            || refs.iter().any(|name| name.starts_with(':'));
        let is_main = |name: &str| {
            let name =
                name.trim_start_matches(['+', ':']).rsplit([':', '/']).next().unwrap_or(name);
            matches!(
                name,
                "main" | "master" | "trunk" | "production" | "prod" | "release" | "develop"
            )
        };
        let (verb, recovery) = match (force, removes) {
            (true, _) => ("git push --force", Recovery::None),
            (false, true) => ("git push --delete", Recovery::Elsewhere),
            (false, false) => return,
        };
        let reach = match refs.iter().any(|name| is_main(name)) || long(words, "--mirror") {
            true => Reach::Production,
            false => Reach::Remote,
        };
        let kind = HarmKind::RewritesHistory;
        walk.effects.harm(kind, verb, &target::join(operands), reach, recovery);
    }

    /// Whether what is uncommitted below a path would be missed.
    fn changes(&self, walk: &Walk<'_>, path: &str) -> Recovery {
        match walk.here.kept(&self.full(walk, path)) {
            Kept::Clean | Kept::Ignored | Kept::Untracked => Recovery::VersionControl,
            Kept::Changed | Kept::Unknown => Recovery::None,
        }
    }

    /// The same, where the path is taken from the index or a commit.
    fn restores(&self, walk: &Walk<'_>, path: &str) -> Recovery {
        // A path in a variable may be any.
        if path.starts_with('$') {
            return self.changes(walk, ".");
        }
        let full = self.full(walk, path);
        if walk.here.look(&full) != Sight::Missing || place::has_glob(path) {
            return self.changes(walk, path);
        }
        let named = match self.command {
            "restore" => value_of(&self.words, &["-s", "--source"]),
            _ => self.words.iter().find(|word| !word.starts_with('-')).cloned(),
        };
        let source = named.is_some_and(|commit| !matches!(commit.as_str(), "HEAD" | "@"));
        match walk.here.kept(&full) {
            // Git knows it: a deleted file comes back.
            Kept::Changed => Recovery::VersionControl,
            // From another commit it comes anew.
            _ if source => Recovery::VersionControl,
            // Neither git nor the disk knows it: the command is meant for another place than this one.
            _ => Recovery::None,
        }
    }

    fn full(&self, walk: &Walk<'_>, path: &str) -> String {
        let path = match path {
            "." | "./" | ":/" | "*" => self.place.clone(),
            path if path.starts_with(['/', '~']) || self.place == "." => walk.resolve(path),
            path => format!("{}/{path}", self.place),
        };
        place::absolute(walk.here, &path)
    }

    fn discards(
        &self,
        walk: &mut Walk<'_>,
        verb: &str,
        target: &str,
        reach: Reach,
        recovery: Recovery,
    ) {
        walk.effects.harm(HarmKind::DiscardsWork, verb, target, reach, recovery);
    }
}

/// Whether an address of a repository is at none of the places where people keep theirs.
fn is_stranger(url: &str) -> bool {
    const HOSTS: &[&str] = &[
        "github.com",
        "gitlab.com",
        "bitbucket.org",
        "codeberg.org",
        "dev.azure.com",
        "git.heroku.com",
        "huggingface.co",
        "git.sr.ht",
    ];
    url.contains("://")
        && !url.starts_with("file:")
        && !crate::http::is_local(url)
        && !HOSTS.iter().any(|host| url.contains(host))
}

/// Whether a word is an option, or its beginning: `--har` for `--hard`.
fn is_short_for(word: &str, option: &str, least: usize) -> bool {
    word.len() >= least && option.starts_with(word)
}

fn long(words: &[String], name: &str) -> bool {
    words.iter().any(|word| word == name)
}

fn short(words: &[String], letter: char) -> bool {
    words.iter().any(|w| w.starts_with('-') && !w.starts_with("--") && w.contains(letter))
}

fn forced(words: &[String]) -> bool {
    long(words, "--force") || short(words, 'f')
}

fn deletes(words: &[String]) -> bool {
    long(words, "--delete") || short(words, 'd')
}

/// Whether a git command only looks.
fn reads(command: &str, words: &[String]) -> bool {
    let looks = [
        "status",
        "log",
        "diff",
        "show",
        "blame",
        "rev-parse",
        "rev-list",
        "ls-files",
        "ls-tree",
        "ls-remote",
        "cat-file",
        "describe",
        "shortlog",
        "grep",
        "merge-base",
        "for-each-ref",
        "name-rev",
        "show-ref",
        "check-ignore",
        "whatchanged",
        "range-diff",
        "cherry",
        "version",
        "help",
        "var",
        "count-objects",
        "diff-tree",
        "diff-index",
    ];
    if looks.contains(&command) {
        return !words.iter().any(|word| word.starts_with("--output"));
    }
    let first = words.first().map_or("", String::as_str);
    match command {
        "branch" | "tag" => words.iter().all(|word| {
            matches!(
                word.as_str(),
                "-a" | "-r" | "-v" | "-vv" | "-l" | "--list" | "--all" | "--show-current"
            )
        }),
        "remote" => matches!(first, "" | "-v" | "show" | "get-url"),
        "stash" | "worktree" | "reflog" | "submodule" | "notes" => {
            matches!(first, "list" | "show" | "status")
        }
        "config" => matches!(first, "--get" | "--list" | "-l" | "get" | "list" | "--get-all"),
        _ => false,
    }
}
