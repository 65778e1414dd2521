//! Files and disks: what is deleted, and whether anybody would miss it.

use deadstop_core::Effect;

use super::super::target;
use super::Walk;
use super::command::value_of;
use super::disks::is_disk;

/// Runs a command about files or disks; false when it is not one.
pub(super) fn run(walk: &mut Walk, name: &str, arguments: &[String]) -> bool {
    match name {
        "rm" | "unlink" | "shred" | "srm" | "wipe" | "rimraf" | "del-cli" => {
            walk.remove(&verb(name, arguments), arguments);
        }
        "truncate" => {
            let emptied = value_of(arguments, &["-s", "--size"]).or_else(|| {
                arguments.iter().find_map(|word| Some(word.strip_prefix("-s")?.to_owned()))
            });
            if emptied.as_deref() == Some("0") {
                let files: Vec<String> =
                    arguments.iter().filter(|word| *word != "0").cloned().collect();
                walk.remove("truncate", &files);
            } else {
                walk.effects.raise(Effect::Changes);
            }
        }
        "dd" => {
            let to = arguments.iter().find_map(|word| word.strip_prefix("of="));
            let empties = arguments.iter().any(|w| w == "if=/dev/null" || w.contains("notrunc"));
            match to {
                Some(disk) if is_disk(disk) => walk.effects.destroy("dd", disk),
                Some(file) if empties => walk.remove("dd", &[file.to_owned()]),
                _ => walk.effects.raise(Effect::Changes),
            }
        }
        "rsync" => {
            let deletes = arguments.iter().any(|word| word.starts_with("--del"));
            let rehearses = arguments
                .iter()
                .any(|w| w.starts_with('-') && !w.starts_with("--") && w.contains('n'));
            match arguments.iter().rev().find(|word| !word.starts_with('-')) {
                Some(to) if deletes && !rehearses => {
                    walk.remove("rsync --delete", std::slice::from_ref(to));
                }
                _ => walk.effects.raise(Effect::Changes),
            }
        }
        "cp" | "mv" | "tee" if walk.overwrites(name, arguments) => {}
        "wipefs" | "blkdiscard" | "mkswap" | "mke2fs" => walk.disk(name, arguments),
        name if name.starts_with("mkfs") => walk.disk(name, arguments),
        _ => return false,
    }
    true
}

fn verb(name: &str, arguments: &[String]) -> String {
    let has = |short: &[char], long: &str| {
        arguments.iter().take_while(|word| *word != "--").any(|word| {
            word == long
                || (word.starts_with('-') && !word.starts_with("--") && word.contains(short))
        })
    };
    match (name, has(&['r', 'R'], "--recursive"), has(&['f'], "--force")) {
        ("rm", true, true) => "rm -rf".to_owned(),
        ("rm", true, false) => "rm -r".to_owned(),
        _ => name.to_owned(),
    }
}

impl Walk {
    /// `cp /dev/null file`, `mv file /dev/null`, and anything written to a disk.
    fn overwrites(&mut self, name: &str, arguments: &[String]) -> bool {
        let words: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
        match (name, words.as_slice()) {
            ("cp", [from, to]) if *from == "/dev/null" => {
                self.remove("cp /dev/null", &[(*to).clone()]);
            }
            ("mv", [files @ .., to]) if *to == "/dev/null" && !files.is_empty() => {
                let files: Vec<String> = files.iter().map(|file| (*file).clone()).collect();
                self.remove("mv to /dev/null", &files);
            }
            (_, [.., to]) if is_disk(to) => self.effects.destroy(name, to),
            _ => return false,
        }
        true
    }

    /// Removes whatever of these operands somebody could miss.
    fn remove(&mut self, verb: &str, arguments: &[String]) {
        self.effects.raise(Effect::Changes);
        let mut only_operands = false;
        let mut missed = Vec::new();
        for word in arguments {
            if !only_operands && word == "--" {
                only_operands = true;
            } else if only_operands || !word.starts_with('-') {
                for path in braces(word) {
                    if !path.is_empty() && !self.is_throwaway(&path) {
                        missed.push(self.resolve(&path));
                    }
                }
            }
        }
        if !missed.is_empty() {
            self.effects.destroy(verb, &target::join(&missed));
        }
    }

    fn disk(&mut self, verb: &str, arguments: &[String]) {
        match arguments.iter().rev().find(|word| word.starts_with("/dev/") && is_disk(word)) {
            Some(disk) => self.effects.destroy(verb, disk),
            None => self.effects.raise(Effect::Changes),
        }
    }

    /// `find … -delete`, `find … -exec rm`, `fd … -x rm`.
    pub(super) fn find(&mut self, arguments: &[String]) {
        let deletes = arguments.iter().any(|word| word == "-delete");
        let exec = arguments.iter().position(|word| {
            matches!(
                word.as_str(),
                "-exec" | "-execdir" | "-ok" | "-x" | "-X" | "--exec" | "--exec-batch"
            )
        });
        let writes = arguments.iter().any(|word| word.starts_with("-fprint") || word == "-fls");
        self.effects.raise(if writes { Effect::Changes } else { Effect::Reads });
        let removes = exec.is_some_and(|at| {
            let first = arguments.get(at + 1).map_or("", String::as_str);
            matches!(first.rsplit('/').next(), Some("rm" | "unlink" | "shred"))
        });
        if deletes || removes {
            self.effects.raise(Effect::Changes);
            let mut found = vec!["find".to_owned()];
            found.extend_from_slice(&arguments[..exec.unwrap_or(arguments.len())]);
            if !self.are_throwaway(&found) {
                let verb = if deletes { "find -delete" } else { "find -exec rm" };
                found.retain(|word| word != "-delete");
                self.effects.destroy(verb, &target::join(&found[1..]));
            }
        } else if let Some(at) = exec {
            let command: Vec<String> = arguments[at + 1..]
                .iter()
                .take_while(|word| !matches!(word.as_str(), ";" | "+"))
                .cloned()
                .collect();
            self.run(&command, &super::Input::default());
        }
    }

    /// Whether what a command prints names nothing that anybody would miss.
    pub(super) fn are_throwaway(&self, argv: &[String]) -> bool {
        let Some((name, words)) = argv.split_first() else {
            return false;
        };
        if name != "find" {
            let mut paths = words.iter().filter(|word| !word.starts_with('-')).peekable();
            let lists = matches!(name.as_str(), "ls" | "echo" | "printf" | "fd");
            return lists && paths.peek().is_some() && paths.all(|path| self.is_throwaway(path));
        }
        let roots = words.iter().take_while(|word| !word.starts_with(['-', '(', '!']));
        let mut roots = roots.peekable();
        if roots.peek().is_none() && self.is_throwaway(".") {
            return true;
        }
        if roots.peek().is_some() && roots.all(|root| self.is_throwaway(root)) {
            return true;
        }
        let patterns = words.windows(2).filter_map(|pair| match pair {
            [flag, pattern]
                if matches!(flag.as_str(), "-name" | "-iname" | "-path" | "-wholename") =>
            {
                Some(pattern)
            }
            _ => None,
        });
        let mut patterns = patterns.peekable();
        // Empty files and directories hold nothing.
        let empty = words.iter().any(|word| word == "-empty");
        empty || (patterns.peek().is_some() && patterns.all(|pattern| self.is_throwaway(pattern)))
    }

    /// A path from the working directory, with `.` and `..` worked out.
    pub(super) fn resolve(&self, path: &str) -> String {
        let is_rooted = path.starts_with(['/', '~', '$']);
        let joined = if is_rooted || self.cwd.is_empty() {
            path.to_owned()
        } else {
            format!("{}/{path}", self.cwd)
        };
        let mut parts: Vec<&str> = Vec::new();
        for part in joined.split('/') {
            match part {
                "" | "." => {}
                ".." if parts.last().is_some_and(|last| *last != "..") => {
                    parts.pop();
                }
                ".." if joined.starts_with('/') => {}
                part => parts.push(part),
            }
        }
        let root = if joined.starts_with('/') { "/" } else { "" };
        let resolved = format!("{root}{}", parts.join("/"));
        if resolved.is_empty() { ".".to_owned() } else { resolved }
    }

    /// Whether nobody would miss this path: temporary, built, cached, or made by this very script.
    pub(super) fn is_throwaway(&self, path: &str) -> bool {
        let path = self.resolve(path);
        let made = self.made.iter().any(|made| {
            path.strip_prefix(made.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        made || is_temporary(&path) || path.split('/').any(is_product) || is_byproduct(&path)
    }

    /// Remembers that the script makes this file itself.
    pub(super) fn make(&mut self, path: &str) {
        let path = self.resolve(path);
        if self.made.len() < MAX_MADE && !matches!(path.as_str(), "." | "/" | "~") {
            self.made.push(path);
        }
    }

    /// Remembers what a command makes, where its arguments prove it: `mkdir -p` and `tee -a` may
    /// find what they name already there, and so may `cp` with a directory.
    pub(super) fn note_made(&mut self, name: &str, arguments: &[String]) {
        let has = |letter: char| arguments.iter().any(|w| w.starts_with('-') && w.contains(letter));
        let mut operands = arguments.iter().filter(|word| !word.starts_with('-'));
        match name {
            "mkdir" if !has('p') => operands.for_each(|path| self.make(path)),
            "touch" => operands.for_each(|path| self.make(path)),
            "tee" if !has('a') => operands.for_each(|path| self.make(path)),
            "cp" | "ln" => {
                let to = operands.next_back();
                if let Some(file) =
                    to.filter(|to| to.rsplit('/').next().is_some_and(|n| n.contains('.')))
                {
                    self.make(file);
                }
            }
            "mkdir" | "tee" => {}
            _ => {
                if let Some(path) = value_of(arguments, &["-o", "--output", "-out"]) {
                    self.make(&path);
                }
            }
        }
    }
}

/// Paths that are remembered as made by the script.
const MAX_MADE: usize = 64;

fn is_temporary(path: &str) -> bool {
    const ROOTS: &[&str] = &[
        "/tmp",
        "/private/tmp",
        "/var/tmp",
        "/private/var/tmp",
        "/var/folders",
        "/private/var/folders",
        "/dev/shm",
    ];
    let under =
        |root: &&str| path.strip_prefix(*root).is_some_and(|r| r.is_empty() || r.starts_with('/'));
    if ROOTS.iter().any(under) {
        return true;
    }
    // `$TMPDIR`, `$tmp_file`, `$RUNNER_TEMP`; but not `$TEMPLATES`.
    path.strip_prefix('$').is_some_and(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let name = rest[..end].to_ascii_lowercase();
        name.contains("tmp")
            || name.split('_').any(|part| matches!(part, "temp" | "tempdir" | "tempfile"))
    })
}

/// Directories that a build, a package manager or a cache makes again.
fn is_product(part: &str) -> bool {
    PRODUCTS.contains(&part)
        || part.ends_with(".egg-info")
        || part.starts_with("cmake-build-")
        || part.starts_with("bazel-")
}

/// Files that tools leave behind.
fn is_byproduct(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let name = name.trim_end_matches([')', '"', '\'']);
    BYPRODUCTS.contains(&name)
        || name.rsplit_once('.').is_some_and(|(_, suffix)| SUFFIXES.contains(&suffix))
}

const PRODUCTS: &[&str] = &[
    "node_modules",
    "target",
    "dist",
    "build",
    "out",
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".tox",
    ".nox",
    ".venv",
    "venv",
    "coverage",
    "htmlcov",
    ".nyc_output",
    ".next",
    ".nuxt",
    ".svelte-kit",
    ".turbo",
    ".parcel-cache",
    ".cache",
    ".gradle",
    ".eggs",
    ".output",
    ".vite",
    ".angular",
    "tmp",
    "temp",
    ".tmp",
    ".temp",
    "test-results",
    "playwright-report",
    "DerivedData",
    "obj",
    "_build",
    ".dart_tool",
    ".hypothesis",
    "cache",
    "Caches",
    ".ipynb_checkpoints",
    "storybook-static",
    ".serverless",
    ".webpack",
    ".rollup.cache",
    ".eslintcache",
    "zig-cache",
    ".zig-cache",
    "zig-out",
];

const BYPRODUCTS: &[&str] = &[
    ".DS_Store",
    "nohup.out",
    "a.out",
    ".coverage",
    "coverage.out",
    "package-lock.json",
    "pnpm-lock.yaml",
    "bun.lockb",
    "npm-debug.log",
    ".eslintcache",
];

const SUFFIXES: &[&str] = &[
    "o",
    "obj",
    "a",
    "so",
    "pyc",
    "pyo",
    "class",
    "log",
    "tmp",
    "temp",
    "orig",
    "rej",
    "swp",
    "swo",
    "gcda",
    "gcno",
    "profraw",
    "tsbuildinfo",
    "pid",
    "lock",
    "prof",
    "test",
    "sock",
];

/// `{a,b}.txt` as `a.txt` and `b.txt`; one group is what people write.
fn braces(word: &str) -> Vec<String> {
    let group = word.find('{').and_then(|open| {
        let close = open + word[open..].find('}')?;
        let inner = &word[open + 1..close];
        (inner.contains(',') && !word[..open].ends_with('$')).then_some((open, inner, close))
    });
    match group {
        Some((open, inner, close)) => inner
            .split(',')
            .map(|choice| format!("{}{choice}{}", &word[..open], &word[close + 1..]))
            .collect(),
        None => vec![word.to_owned()],
    }
}
