//! Files and disks: what is deleted, and whether it is throwaway, such as build output.

use deadstop_core::{Effect, HarmKind, Reach, Recovery};

use super::super::place::{self, Depth};
use super::super::surroundings::Sight;
use super::super::target;
use super::Walk;
use super::command::{SHELLS, value_of};
use super::disks::is_disk;

/// Runs a command about files or disks; false when it is not one.
pub(super) fn run(walk: &mut Walk<'_>, name: &str, arguments: &[String]) -> bool {
    match name {
        "rm" | "unlink" | "shred" | "srm" | "wipe" | "rimraf" | "del-cli" => {
            let verb = verb(name, arguments);
            let recursive = verb.starts_with("rm -r") || (name == "srm" && is_recursive(arguments));
            let tree = recursive || matches!(name, "wipe" | "rimraf");
            walk.remove(&verb, arguments, if tree { Depth::Tree } else { Depth::Single });
        }
        "rmdir" => walk.effects.raise(Effect::Changes),
        "truncate" => {
            let emptied = value_of(arguments, &["-s", "--size"]).or_else(|| {
                arguments.iter().find_map(|word| Some(word.strip_prefix("-s")?.to_owned()))
            });
            if emptied.as_deref() == Some("0") {
                let files: Vec<String> =
                    arguments.iter().filter(|word| *word != "0").cloned().collect();
                walk.remove("truncate", &files, Depth::Single);
            } else {
                walk.effects.raise(Effect::Changes);
            }
        }
        "dd" => {
            let to = arguments.iter().find_map(|word| word.strip_prefix("of="));
            let empties = arguments.iter().any(|w| w == "if=/dev/null" || w.contains("notrunc"));
            match to {
                Some(disk) if is_disk(disk) => walk.writes_device("dd", disk),
                Some("/dev/null") => walk.effects.raise(Effect::Changes),
                Some(file) if empties || walk.is_far(file) => {
                    walk.remove("dd", &[file.to_owned()], Depth::Single);
                }
                _ => walk.effects.raise(Effect::Changes),
            }
        }
        "rsync" => {
            let deletes = arguments.iter().any(|word| word.starts_with("--del"));
            let rehearses = arguments
                .iter()
                .any(|w| w.starts_with('-') && !w.starts_with("--") && w.contains('n'));
            if let Some(script) = value_of(arguments, &["-e", "--rsh", "-ae", "-avze", "-aze"]) {
                walk.script(&script);
            }
            if arguments.iter().any(|word| word == "--remove-source-files") && !rehearses {
                walk.moves_away(arguments);
            }
            match arguments.iter().rev().find(|word| !word.starts_with('-')) {
                Some(to) if deletes && !rehearses && to.contains(':') => {
                    walk.effects.destroy("rsync --delete", to);
                }
                Some(to) if deletes && !rehearses => {
                    walk.remove("rsync --delete", std::slice::from_ref(to), Depth::Tree);
                }
                _ => walk.effects.raise(Effect::Changes),
            }
        }
        // Archivers that remove what they have packed.
        "tar" | "zip" if walk.packs_away(name, arguments) => {}
        "sed" | "gsed" if walk.edits_in_place(arguments) => {}
        "cp" | "mv" | "tee" | "install" | "ln" if walk.overwrites(name, arguments) => {}
        "wipefs" | "blkdiscard" | "mkswap" | "mke2fs" | "fdisk" | "sfdisk" | "cfdisk" => {
            walk.disk(name, arguments);
        }
        name if name.starts_with("mkfs") || name.starts_with("newfs") => walk.disk(name, arguments),
        _ => return false,
    }
    true
}

/// Whether an option is given, by one of its letters or in full.
fn has(arguments: &[String], short: &[char], long: &str) -> bool {
    arguments.iter().take_while(|word| *word != "--").any(|word| {
        word == long || (word.starts_with('-') && !word.starts_with("--") && word.contains(short))
    })
}

fn is_recursive(arguments: &[String]) -> bool {
    has(arguments, &['r', 'R'], "--recursive")
}

fn verb(name: &str, arguments: &[String]) -> String {
    match (name, is_recursive(arguments), has(arguments, &['f'], "--force")) {
        ("rm", true, true) => "rm -rf".to_owned(),
        ("rm", true, false) => "rm -r".to_owned(),
        _ => name.to_owned(),
    }
}

impl Walk<'_> {
    /// `cp /dev/null file`, `mv file /dev/null`, and anything written over what the system needs.
    fn overwrites(&mut self, name: &str, arguments: &[String]) -> bool {
        let words: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
        match (name, words.as_slice()) {
            ("cp", [from, to]) if from.starts_with("/dev/") && EMPTY.contains(&from.as_str()) => {
                self.remove(&format!("cp {from}"), &[(*to).clone()], Depth::Single);
            }
            ("mv", [files @ .., to]) if *to == "/dev/null" && !files.is_empty() => {
                let files: Vec<String> = files.iter().map(|file| (*file).clone()).collect();
                self.remove("mv to /dev/null", &files, Depth::Tree);
            }
            ("mv", [files @ .., _]) if files.iter().any(|file| self.is_far(file)) => {
                let files: Vec<String> = files.iter().map(|file| (*file).clone()).collect();
                let far: Vec<String> = files.into_iter().filter(|file| self.is_far(file)).collect();
                self.remove("mv", &far, Depth::Tree);
            }
            // What git kept goes along, and with it all that was never pushed.
            ("mv", [files @ .., _])
                if files
                    .iter()
                    .any(|file| self.resolve(file).rsplit('/').next() == Some(".git")) =>
            {
                let kind = HarmKind::DiscardsWork;
                self.effects.harm(kind, "mv", ".git", Reach::Workspace, Recovery::Elsewhere);
                let kind = HarmKind::Stops;
                self.effects.harm(kind, "mv", ".git", Reach::Remote, Recovery::Elsewhere);
            }
            ("ln", [from, to])
                if *from == "/dev/null"
                    && (to.ends_with("_history") || has(arguments, &['f'], "--force")) =>
            {
                self.remove("ln -s /dev/null", &[(*to).clone()], Depth::Single);
            }
            ("install", _)
                if value_of(arguments, &["-m", "--mode"])
                    .is_some_and(|mode| super::power::is_setuid(&mode)) =>
            {
                let kind = HarmKind::OpensAccess;
                let what = target::join(&words);
                self.effects.harm(kind, name, &what, Reach::System, Recovery::Elsewhere);
            }
            ("mv", [_, to]) if place::is_temporary(&self.resolve(to)) => {
                self.moves_away(arguments);
                self.effects.raise(Effect::Changes);
            }
            (_, [.., to]) if is_disk(to) => self.writes_device(name, to),
            ("tee", files) if files.iter().any(|file| self.is_system_file(file)) => {
                for file in files {
                    if self.is_system_file(file) {
                        self.writes_system(name, file);
                    }
                }
            }
            ("cp" | "mv" | "install" | "ln", [_, .., to]) if self.is_system_file(to) => {
                let to = (*to).clone();
                self.writes_system(name, &to);
            }
            ("cp" | "mv" | "install", [_, .., to]) => {
                let to = self.resolve(to);
                self.replaces_program(name, &to);
                return false;
            }
            _ => return false,
        }
        true
    }

    /// Remembers what is moved to a temporary directory, to be missed when that goes.
    fn moves_away(&mut self, arguments: &[String]) {
        let words: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
        let [from, to] = words.as_slice() else { return };
        let (from, to) = (self.resolve(from), self.resolve(to));
        let counts = place::is_temporary(&to) && !place::is_spare(self.here, &from);
        if self.moved.len() < MAX_MADE && counts {
            self.moved.push((from, to));
        }
    }

    /// `tar --remove-files`, `zip -m`: what was packed is only in the archive from then on.
    fn packs_away(&mut self, name: &str, arguments: &[String]) -> bool {
        let removes = match name {
            "tar" => arguments.iter().any(|word| word == "--remove-files"),
            _ => has(arguments, &['m'], "--move"),
        };
        let archive = value_of(arguments, &["-f", "--file", "-czf", "-cf", "-C"]);
        let packed: Vec<String> = arguments
            .iter()
            .filter(|word| !word.starts_with('-') && Some(*word) != archive.as_ref())
            .skip(usize::from(name == "zip"))
            .cloned()
            .collect();
        // An archive in a temporary directory does not stay.
        if removes {
            self.remove(&format!("{name} and remove"), &packed, Depth::Tree);
        }
        removes
    }

    /// `sed -i` on a file that the system needs.
    pub(super) fn edits_in_place(&mut self, arguments: &[String]) -> bool {
        let in_place = |word: &String| {
            word.starts_with("-i") || word.starts_with("--in-place") || word == "-pi"
        };
        if !arguments.iter().any(in_place) {
            return false;
        }
        let mut found = false;
        let words: Vec<String> =
            arguments.iter().filter(|word| !word.starts_with('-')).cloned().collect();
        if let [program, files @ ..] = words.as_slice()
            && leaves_nothing(program)
        {
            self.remove("sed -i", files, Depth::Single);
            found = true;
        }
        for file in arguments.iter().filter(|word| word.starts_with(['/', '~'])) {
            if self.is_system_file(file) {
                self.writes_system("edit", file);
                found = true;
            }
        }
        found
    }

    /// Whether a path is part of the system or a home directory itself.
    fn is_far(&self, path: &str) -> bool {
        let loss = place::loss(self.here, &self.resolve(path), Depth::Tree);
        let far = |reach| matches!(reach, Reach::System | Reach::Home);
        loss.is_some_and(|(reach, recovery)| far(reach) && recovery == Recovery::None)
    }

    /// A file that the system reads when it starts or when people log in.
    pub(super) fn is_system_file(&self, path: &str) -> bool {
        let path = self.resolve(path);
        ["/etc/", "/boot/", "/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/lib/", "/usr/lib/"]
            .iter()
            .any(|start| path.starts_with(start) || path == start.trim_end_matches('/'))
            || path.starts_with("/proc/sys")
            || path.ends_with("/.ssh/authorized_keys")
    }

    pub(super) fn writes_system(&mut self, verb: &str, path: &str) {
        let path = self.resolve(path);
        let trusted = path.ends_with("authorized_keys") || path.starts_with("/etc/sudoers");
        match trusted {
            true => {
                let kind = HarmKind::OpensAccess;
                self.effects.harm(kind, verb, &path, Reach::System, Recovery::Elsewhere);
            }
            false => {
                let kind = HarmKind::Destroys;
                self.effects.harm(kind, verb, &path, Reach::System, Recovery::Elsewhere);
            }
        }
    }

    /// Removes these operands: each is a harm of its own, as far as there is something to lose.
    pub(super) fn remove(&mut self, verb: &str, arguments: &[String], depth: Depth) {
        self.effects.raise(Effect::Changes);
        let mut only_operands = false;
        for word in arguments {
            if !only_operands && word == "--" {
                only_operands = true;
            } else if only_operands || !word.starts_with('-') {
                for path in braces(word) {
                    if !path.is_empty() {
                        self.lose(verb, &path, depth);
                    }
                }
            }
        }
    }

    /// Notes that a path goes.
    pub(super) fn lose(&mut self, verb: &str, path: &str, depth: Depth) {
        let resolved = self.resolve(path);
        if is_disk(&resolved) && resolved.len() > "/dev/".len() {
            return self.writes_device(verb, &resolved);
        }
        // What was moved away goes with the place that it was moved to.
        if let Some(at) = self.moved.iter().position(|(_, to)| place::within(&resolved, to)) {
            let (from, _) = self.moved.remove(at);
            return self.lose(verb, &from, depth);
        }
        if self.is_made(&resolved) {
            let kind = HarmKind::Destroys;
            return self.effects.harm(kind, verb, &resolved, Reach::Item, Recovery::Session);
        }
        // One file for each line of a list is many files.
        if self.listed && resolved.starts_with('$') && !place::is_temporary(&resolved) {
            let kind = HarmKind::Destroys;
            return self.effects.harm(kind, verb, &resolved, Reach::Directory, Recovery::None);
        }
        let subject = self.counted_from_start(&resolved);
        if let Some((reach, recovery)) = place::loss(self.here, &subject, depth) {
            self.effects.harm(HarmKind::Destroys, verb, &resolved, reach, recovery);
        }
    }

    /// A relative path that the script changed its directory for is still relative to where the
    /// call starts, which is what [`place`] expects.
    fn counted_from_start(&self, resolved: &str) -> String {
        // In the text alone, everything below a `cd` is one directory, not the workspace.
        if resolved == "." && !self.cwd.is_empty() {
            return self.cwd.clone();
        }
        resolved.to_owned()
    }

    fn disk(&mut self, verb: &str, arguments: &[String]) {
        let rehearses = arguments.iter().any(|word| {
            matches!(
                word.as_str(),
                "-n" | "--no-act" | "-l" | "--list" | "--test" | "-d" | "--dump"
            )
        });
        match arguments.iter().rev().find(|word| word.starts_with("/dev/") && is_disk(word)) {
            Some(disk) if !rehearses => self.writes_device(verb, &disk.clone()),
            _ => self.effects.raise(Effect::Changes),
        }
    }

    /// Notes that something is written to a disk, or to a switch of the kernel.
    pub(super) fn writes_device(&mut self, verb: &str, path: &str) {
        let kernel = path.starts_with("/proc/sysrq") || path.starts_with("/sys/");
        if is_disk(path) || kernel {
            let kind = HarmKind::Destroys;
            self.effects.harm(kind, verb, path, Reach::System, Recovery::None);
        }
    }

    /// A redirection adds to a file.
    pub(super) fn appended(&mut self, path: &str) {
        self.overwrites_protected(path);
        if self.is_system_file(path) {
            self.writes_system("append", path);
        }
    }

    /// Files that redirections write afresh: what was in them is gone.
    pub(super) fn overwritten(&mut self, argv: &[String], emptied: &[String]) {
        for file in emptied {
            if file.starts_with("/dev/") || file.starts_with('&') {
                continue;
            }
            self.overwrites_protected(file);
            let full = place::absolute(self.here, &self.resolve(file));
            if self.is_system_file(file) {
                self.writes_system("overwrite", file);
            } else if crate::secret::is_secret(file) && !file.contains(".env") {
                // A key that is overwritten is gone.
                let kind = HarmKind::Destroys;
                self.effects.harm(kind, "overwrite", file, Reach::Outside, Recovery::None);
            } else if prints_nothing(argv) {
                self.lose("truncate", file, Depth::Single);
            } else if restores(argv, &self.resolve(file)) {
                self.lose("git show over", file, Depth::Single);
            } else if full.contains(".git/objects") || full.contains(".git/refs") {
                self.lose("overwrite", file, Depth::Single);
            }
            self.make(file);
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
        let program = exec.and_then(|at| arguments.get(at + 1)).map_or("", String::as_str);
        let removes =
            matches!(program.rsplit('/').next(), Some("rm" | "unlink" | "shred" | "truncate"));
        if deletes || removes {
            self.effects.raise(Effect::Changes);
            let mut found = vec!["find".to_owned()];
            found.extend_from_slice(&arguments[..exec.unwrap_or(arguments.len())]);
            let verb = match (deletes, program) {
                (true, _) => "find -delete",
                (false, "truncate") => "find -exec truncate",
                (false, _) => "find -exec rm",
            };
            found.retain(|word| word != "-delete");
            self.lose_found(verb, &found);
        } else if let Some(at) = exec {
            let command: Vec<String> = arguments[at + 1..]
                .iter()
                .take_while(|word| !matches!(word.as_str(), ";" | "+" | "\\;"))
                .cloned()
                .collect();
            // `{}` stands for what is found: at most everything below the first root.
            let root = arguments.first().filter(|word| !word.starts_with('-'));
            let root = root.map_or(".", String::as_str);
            let found = [&["find".to_owned()], &arguments[..at]].concat();
            self.reads_found(program, &found);
            // To a script, each of them is a word: `sh -c ': > "$1"' _ {}`.
            let name = program.rsplit('/').next().unwrap_or(program);
            let each = SHELLS.contains(&name) && !self.are_throwaway(&found) && !self.is_far(root);
            let stands = match (SHELLS.contains(&name), each) {
                (true, true) => "$found",
                (true, false) if !self.is_far(root) => "/tmp/found",
                _ => root,
            };
            let command: Vec<String> = command
                .iter()
                .map(|word| if word == "{}" { stands.to_owned() } else { word.clone() })
                .collect();
            let before = self.listed;
            self.listed |= each;
            self.run(&command, &super::Input::default());
            self.listed = before;
        }
    }

    /// Notes that what a `find` finds goes: all of its roots, or some files below them.
    pub(super) fn lose_found(&mut self, verb: &str, found: &[String]) {
        let target = target::join(found.get(1..).unwrap_or(&[]));
        let kind = HarmKind::Destroys;
        let system = |word: &String| {
            let reach = place::loss(self.here, &self.resolve(word), Depth::Tree);
            let temporary = place::is_temporary(&format!("{word}/x"));
            !temporary
                && word.starts_with('/')
                && reach.is_some_and(|(reach, _)| reach == Reach::System)
        };
        if self.are_throwaway(found) && !found.iter().skip(1).take(1).any(system) {
            return self.effects.harm(kind, verb, &target, Reach::Directory, Recovery::Cache);
        }
        let words = found.get(1..).unwrap_or(&[]);
        let roots: Vec<&String> =
            words.iter().take_while(|word| !word.starts_with(['-', '(', '!'])).collect();
        let narrow = words.iter().any(|word| {
            matches!(word.as_str(), "-name" | "-iname" | "-path" | "-newer" | "-mtime" | "-empty")
        });
        let mut worst = None;
        for root in roots.iter().map(|root| root.as_str()).chain(roots.is_empty().then_some(".")) {
            let resolved = self.counted_from_start(&self.resolve(root));
            let loss = place::loss(self.here, &resolved, Depth::Tree);
            worst = worst.max(loss.map(|(reach, recovery)| (recovery, reach)));
        }
        let Some((recovery, reach)) = worst else { return };
        let reach = match reach {
            Reach::Workspace if narrow => Reach::Directory,
            reach => reach,
        };
        self.effects.harm(kind, verb, &target, reach, recovery);
    }

    /// Whether the paths that a command prints are all throwaway.
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
        // What a pattern excludes says nothing about what is found.
        let pruned = words
            .windows(2)
            .rposition(|pair| pair[0] == "-prune" && matches!(pair[1].as_str(), "-o" | "-or"));
        let negated = |at: usize| {
            pruned.is_some_and(|pruned| at < pruned)
                || at
                    .checked_sub(1)
                    .is_some_and(|before| matches!(words[before].as_str(), "!" | "-not"))
        };
        let patterns = words.windows(2).enumerate().filter_map(|(at, pair)| match pair {
            [flag, pattern]
                if matches!(flag.as_str(), "-name" | "-iname" | "-path" | "-wholename")
                    && !negated(at) =>
            {
                Some(pattern)
            }
            _ => None,
        });
        let mut patterns = patterns.peekable();
        let either = words.iter().any(|word| matches!(word.as_str(), "-o" | "-or" | ","));
        // Empty files and directories hold nothing.
        let empty = words.iter().enumerate().any(|(at, word)| word == "-empty" && !negated(at));
        (empty && !either)
            || (patterns.peek().is_some() && patterns.all(|pattern| self.is_throwaway(pattern)))
    }

    /// Whether a value of a loop stands for the files that a command lists.
    pub(super) fn is_listing(&self, value: &str) -> bool {
        let inner = value.strip_prefix("$(").and_then(|rest| rest.strip_suffix(')'));
        let words = inner.unwrap_or_default().split(['|', ';']).next().unwrap_or_default();
        let argv: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let lists = argv.first().is_some_and(|first| {
            matches!(first.as_str(), "git" | "ls" | "find" | "fd" | "cat" | "rg" | "grep")
        });
        lists && !self.are_throwaway(&argv)
    }

    /// A path from the working directory, with `.` and `..` worked out.
    pub(super) fn resolve(&self, path: &str) -> String {
        // The same place, spelled out.
        let here = ["$(pwd)", "$PWD", "${PWD}"].iter().find_map(|start| path.strip_prefix(start));
        let path = match here {
            Some("") => ".",
            Some(rest) if rest.starts_with('/') => rest.trim_start_matches('/'),
            _ => path,
        };
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

    /// Whether this path can be spared: temporary, built, cached, or made by this very script.
    pub(super) fn is_throwaway(&self, path: &str) -> bool {
        let path = self.resolve(path);
        self.is_made(&path) || place::is_spare(self.here, &path)
    }

    fn is_made(&self, path: &str) -> bool {
        self.made.iter().any(|made| place::within(path, made))
    }

    /// Remembers that the script makes this file itself.
    pub(super) fn make(&mut self, path: &str) {
        let path = self.resolve(path);
        let fits = !matches!(path.as_str(), "." | "/" | "~") && !path.starts_with('$');
        if self.made.len() < MAX_MADE && fits {
            let full = place::absolute(self.here, &path);
            let there = !matches!(self.here.look(&full), Sight::Missing | Sight::Unknown);
            // With a look at the machine, only what is not there yet is made.
            if !there {
                self.effects.make(full);
                self.made.push(path);
            }
        }
    }

    /// Remembers what a command makes, where its arguments prove it: `mkdir -p` and `tee -a` may
    /// find what they name already there, and so may `cp` with a directory.
    pub(super) fn note_made(&mut self, name: &str, arguments: &[String]) {
        let has = |letter: char| arguments.iter().any(|w| w.starts_with('-') && w.contains(letter));
        let mut operands = arguments.iter().filter(|word| !word.starts_with('-'));
        match name {
            "mkdir" if !has('p') || self.here.cwd().is_some() => {
                operands.for_each(|path| self.make(path));
            }
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
            "git" => {
                let words: Vec<&String> = operands.collect();
                let folder = match words.as_slice() {
                    [verb, _, folder] if *verb == "clone" => Some((*folder).clone()),
                    [verb, url] if *verb == "clone" => {
                        let last = url.trim_end_matches('/').rsplit(['/', ':']).next();
                        last.map(|last| last.trim_end_matches(".git").to_owned())
                    }
                    _ => None,
                };
                if let Some(folder) = folder {
                    self.make(&folder);
                }
            }
            // Their `-o` is a format.
            "kubectl" | "oc" | "k" | "helm" | "aws" | "az" | "gcloud" | "ps" | "docker" => {}
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

/// `git show HEAD:src/app.ts > src/app.ts`: the file as it was committed, over the one that is there.
fn restores(argv: &[String], file: &str) -> bool {
    let [git, show, rest @ ..] = argv else { return false };
    git == "git"
        && matches!(show.as_str(), "show" | "cat-file")
        && rest.iter().any(|word| {
            word.rsplit_once(':').is_some_and(|(_, path)| !path.is_empty() && file.ends_with(path))
        })
}

/// Files that hold nothing, or nothing but noise.
const EMPTY: &[&str] = &["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/full"];

/// Whether a program of `sed` leaves no line.
fn leaves_nothing(program: &str) -> bool {
    matches!(program.trim(), "d" | "1,$d" | "1,$ d" | "/./d" | "/.*/d" | "/^/d")
}

/// Whether a command prints nothing at all, so that what it is written to is emptied.
fn prints_nothing(argv: &[String]) -> bool {
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    matches!(
        words.as_slice(),
        [] | [":" | "true" | "echo"] | ["cat", "/dev/null"] | ["echo", "-n"] | ["printf", ""]
    )
}

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
