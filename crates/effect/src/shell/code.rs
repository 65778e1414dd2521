//! Programs in other languages, as far as one line of them is handed to an interpreter: which files
//! they delete, and which commands they run.
//!
//! This is no parser. Strings and comments are taken out first, so that a program that prints
//! `os.remove(…)` deletes nothing; then calls are looked for that can only mean one thing.

use deadstop_core::{Effect, HarmKind, Reach, Recovery};

use super::super::place::Depth;
use super::dynamic::listed;
use super::fetch::Taint;
use super::{Input, Walk};

/// A language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Language {
    Python,
    JavaScript,
    Perl,
    Ruby,
    Php,
    /// Lua, R, Julia and the like, whose one-liners call the same few things.
    Other,
}

/// Longer programs are not read.
const MAX_TEXT: usize = 64 * 1024;
/// Calls of a program that are looked at.
const MAX_CALLS: usize = 32;
/// Strings are joined up to this length.
const MAX_JOINED: usize = 4096;
/// Stands for a string that was taken out, with its number behind it.
const STRING: char = '\u{1}';

impl Language {
    /// The language of an interpreter.
    pub(super) fn of(program: &str) -> Option<Language> {
        let program = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        Some(match program {
            "python" | "ipython" | "pypy" => Language::Python,
            "node" | "nodejs" | "bun" | "deno" | "tsx" | "ts-node" => Language::JavaScript,
            "perl" => Language::Perl,
            "ruby" => Language::Ruby,
            "php" => Language::Php,
            "lua" | "luajit" | "Rscript" | "julia" | "tclsh" | "osascript" | "elixir"
            | "groovy" | "swift" | "erl" => Language::Other,
            _ => return None,
        })
    }

    /// Calls that delete what they name.
    fn deletes(self) -> &'static [&'static str] {
        match self {
            Language::Python => &[
                "os.remove(",
                "os.unlink(",
                "os.removedirs(",
                "rmtree(",
                ".unlink(",
                "remove_tree(",
            ],
            Language::JavaScript => &[
                "rmSync(",
                "unlinkSync(",
                "rmdirSync(",
                "removeSync(",
                "emptyDirSync(",
                "fs.rm(",
                "fs.unlink(",
                "fs.rmdir(",
                "fs.remove(",
                "fsp.rm(",
                "fsp.unlink(",
                "promises.rm(",
                "promises.unlink(",
                ").rm(",
                ").unlink(",
                "rimraf(",
                "rimrafSync(",
                "Deno.remove(",
                "Deno.removeSync(",
            ],
            Language::Perl => &["unlink(", "unlink ", "rmtree(", "rmtree ", "remove_tree("],
            Language::Ruby => &[
                "File.delete(",
                "File.delete ",
                "File.unlink(",
                "File.unlink ",
                "FileUtils.rm_r ",
                "FileUtils.rm_rf(",
                "FileUtils.rm_rf ",
                "FileUtils.rm_r(",
                "FileUtils.rm(",
                "FileUtils.rm_f(",
                "FileUtils.remove_dir(",
                "FileUtils.remove_entry(",
            ],
            Language::Php => &["unlink(", "rmdir("],
            Language::Other => &[
                "os.remove(",
                "unlink(",
                "file.remove(",
                "File.rm_rf!(",
                "rm(",
                "removeItem(",
                "new File(",
            ],
        }
    }

    /// Calls that a program is handed to as text.
    fn evaluates(self) -> &'static [&'static str] {
        match self {
            Language::Python => &["exec(", "eval("],
            Language::JavaScript => &["eval(", "Function(", "runInThisContext("],
            Language::Perl | Language::Ruby => &["eval(", "eval ", "instance_eval("],
            Language::Php => &["eval(", "assert("],
            Language::Other => &["load(", "loadstring(", "eval("],
        }
    }

    /// Calls that run a command.
    fn runs(self) -> &'static [&'static str] {
        match self {
            Language::Python => &[
                // Also of a module that is loaded on the way: `__import__("os").system(…)`.
                "system(",
                "popen(",
                "subprocess.run(",
                "subprocess.call(",
                "subprocess.getoutput(",
                "check_call(",
                "check_output(",
                "Popen(",
            ],
            Language::JavaScript => &["execSync(", "spawnSync(", "execFileSync(", "spawn("],
            Language::Perl => &["system(", "system ", "exec(", "exec "],
            Language::Ruby => &["system(", "system ", "exec(", "exec ", "spawn("],
            Language::Php => &["shell_exec(", "exec(", "system(", "passthru(", "popen("],
            Language::Other => &[
                "os.execute(",
                "io.popen(",
                "system(",
                "System.cmd(",
                "do shell script ",
                "run(",
                "exec ",
                "os:cmd(",
            ],
        }
    }

    fn comment(self) -> &'static [&'static str] {
        match self {
            Language::Python | Language::Perl | Language::Ruby => &["#"],
            Language::JavaScript => &["//"],
            Language::Other => &["--"],
            Language::Php => &["#", "//"],
        }
    }
}

/// A program without its strings, and the strings.
pub(super) struct Bare {
    pub(super) text: String,
    pub(super) strings: Vec<String>,
    /// Strings that the language runs as commands: what stands between backquotes.
    commands: Vec<String>,
}

impl Bare {
    fn of(language: Language, program: &str) -> Bare {
        let mut bare = Bare {
            text: String::with_capacity(program.len()),
            strings: Vec::new(),
            commands: Vec::new(),
        };
        let runs = matches!(language, Language::Perl | Language::Ruby | Language::Php);
        let mut rest = program;
        while let Some(c) = rest.chars().next() {
            if language.comment().iter().any(|mark| rest.starts_with(mark)) {
                rest = rest.find('\n').map_or("", |end| &rest[end..]);
            } else if rest.starts_with("/*") && language == Language::JavaScript {
                rest = rest.find("*/").map_or("", |end| &rest[end + 2..]);
            } else if matches!(c, '\'' | '"' | '`') {
                let triple = &program[program.len() - rest.len()..];
                let triple = triple.get(..3).filter(|three| three.chars().all(|one| one == c));
                let mark = triple.filter(|_| language == Language::Python);
                let mark = mark.map_or_else(|| c.to_string(), str::to_owned);
                let (string, after) = quoted(&rest[mark.len()..], &mark);
                if c == '`' && (runs || bare.text.ends_with('$')) {
                    bare.commands.push(string.clone());
                }
                bare.text.push(STRING);
                bare.text.push_str(&bare.strings.len().to_string());
                bare.text.push(STRING);
                bare.strings.push(string);
                rest = after;
                bare.joins();
            } else {
                bare.text.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
        bare
    }

    /// Puts two strings together that a `+` joins: `"rm" + "tree"`.
    fn joins(&mut self) {
        let last = self.strings.len().saturating_sub(1);
        let Some(before) = last.checked_sub(1) else { return };
        let mark = |number: usize| format!("{STRING}{number}{STRING}");
        let own = self.text.strip_suffix(&mark(last)).map(str::trim_end);
        let plus = own.and_then(|text| text.strip_suffix('+')).map(str::trim_end);
        let Some(kept) = plus.filter(|text| text.ends_with(&mark(before))).map(str::len) else {
            return;
        };
        if self.strings[before].len() < MAX_JOINED
            && let Some(end) = self.strings.pop()
        {
            self.strings[before].push_str(&end);
            self.text.truncate(kept);
        }
    }

    /// Where calls begin that start with one of these.
    pub(super) fn calls(&self, names: &[&str]) -> Vec<usize> {
        let mut found = Vec::new();
        for name in names {
            for (at, _) in self.text.match_indices(name) {
                let before = self.text[..at].chars().next_back();
                let inside = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
                if !(inside && name.starts_with(|c: char| c.is_alphanumeric())) {
                    found.push(at + name.len());
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found.truncate(MAX_CALLS);
        found
    }

    /// The strings among what a call is given, and whether it starts with one or a list of them.
    pub(super) fn given(&self, from: usize) -> (Vec<&str>, Option<char>) {
        let rest = &self.text[from..];
        let mut depth = 0_usize;
        let end = rest.char_indices().find_map(|(at, c)| {
            match c {
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' if depth == 0 => return Some(at),
                ')' | ']' | '}' => depth -= 1,
                ';' | '\n' if depth == 0 => return Some(at),
                _ => {}
            }
            None
        });
        let given = &rest[..end.unwrap_or(rest.len())];
        (self.strings_in(given), given.trim_start().chars().next())
    }

    /// What a call is given, with its strings taken out.
    fn expression(&self, from: usize) -> &str {
        let rest = &self.text[from..];
        let end = rest.find([';', '\n']).unwrap_or(rest.len());
        &rest[..end]
    }

    /// The path that a call names with the help of the home directory: `join(homedir(), "x")`.
    pub(super) fn below_home(&self, from: usize) -> String {
        let named = self.strings_in(self.expression(from));
        let parts: Vec<&str> = named
            .into_iter()
            .filter(|part| !matches!(*part, "os" | "path" | "HOME" | "~" | "fs"))
            .map(|part| part.trim_start_matches(['~', '/']))
            .filter(|part| !part.is_empty())
            .collect();
        match parts.as_slice() {
            [] => "~".to_owned(),
            parts => format!("~/{}", parts.join("/")),
        }
    }

    /// Whether it starts itself again without end.
    fn forks(&self) -> bool {
        let bare: String = self.text.chars().filter(|c| !c.is_whitespace()).take(4096).collect();
        let forks = ["fork", "child_process"].iter().any(|word| bare.contains(word));
        let forever =
            ["whileTrue:", "while1:", "while(1)", "while(true)", "for(;;)", "loop{", "forkwhile"];
        forks && !bare.contains("wait") && forever.iter().any(|head| bare.contains(head))
    }

    pub(super) fn has(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.text.contains(name))
    }

    /// Whether the program names a library: as a word of its own, or as the beginning of a string that it loads.
    pub(super) fn names(&self, library: &str) -> bool {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let written = self.text.match_indices(library).take(MAX_CALLS).any(|(at, _)| {
            let before = self.text[..at].chars().next_back();
            let after = self.text[at + library.len()..].chars().next();
            !before.is_some_and(is_part) && !after.is_some_and(is_part)
        });
        written
            || self.strings.iter().any(|text| {
                let rest = text.strip_prefix(library);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ':', '-']))
            })
    }

    /// Methods that are called, and where what they are given begins.
    pub(super) fn methods(&self) -> Vec<(&str, usize)> {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let opened = self.text.match_indices('(').filter_map(|(at, _)| {
            let before = &self.text[..at];
            let start = before.trim_end_matches(is_part).len();
            let method = before[..start].ends_with(['.', '>', ':']) && start < at;
            // A command that is sent: `new DeleteBucketCommand(…)`.
            let sent = before[start..].ends_with("Command");
            (method || sent).then(|| (&before[start..], at + 1))
        });
        opened.collect()
    }

    fn strings_in(&self, text: &str) -> Vec<&str> {
        let numbers = text.split(STRING).skip(1).step_by(2);
        numbers.filter_map(|n| Some(self.strings.get(n.parse::<usize>().ok()?)?.as_str())).collect()
    }
}

/// A string up to its end, and what follows it.
fn quoted<'a>(text: &'a str, mark: &str) -> (String, &'a str) {
    let mut string = String::new();
    let mut rest = text;
    loop {
        if let Some(after) = rest.strip_prefix(mark) {
            return (string, after);
        }
        let mut chars = rest.chars();
        match chars.next() {
            None => return (string, ""),
            Some('\\') => string.extend(chars.next()),
            Some(c) => string.push(c),
        }
        rest = chars.as_str();
    }
}

/// How programs name the home directory.
const HOMES: &[&str] =
    &["homedir()", "Path.home()", "Dir.home", "expanduser(", "ENV{HOME}", "env.HOME"];

/// A path inside a string that the language fills in: `$ENV{HOME}/x`, `#{Dir.home}/x`.
fn at_home(path: &str) -> String {
    let starts = [
        "$ENV{HOME}",
        "#{Dir.home}",
        "${os.homedir()}",
        "${process.env.HOME}",
        "{$_SERVER['HOME']}",
    ];
    let rest = starts.iter().find_map(|start| path.strip_prefix(start));
    rest.map_or_else(|| path.to_owned(), |rest| format!("~{rest}"))
}

/// Whether a program looks through the home directory.
fn walks_home(text: &str) -> bool {
    let looks = ["iterdir(", "listdir(", "glob(", "rglob(", "readdirSync(", "children", "walk("];
    HOMES.iter().any(|home| text.contains(home)) && looks.iter().any(|look| text.contains(look))
}

/// Calls that turn an encoded text into a program.
const DECODES: &[&str] = &[
    "b64decode",
    "decodebytes",
    "fromhex",
    "unhexlify",
    "decompress(",
    "marshal.loads",
    "codecs.decode",
    "Buffer.from(",
    "atob(",
    "decode_base64",
    "base64_decode",
    "Base64.decode64",
    "str_rot13",
    "gzinflate",
    "unpack(",
];

/// Calls that ask another machine for something.
pub(super) const FETCHES: &[&str] = &[
    "urlopen(",
    "requests.",
    "httpx.",
    "urllib",
    "http.client",
    "fetch(",
    "axios",
    "https.get",
    "http.get",
    "https.request",
    "Net::HTTP",
    "open-uri",
    "LWP::",
    "file_get_contents(",
    "curl_exec(",
    "socket.http",
];

impl Walk<'_> {
    /// `array_map("unlink", glob("dir/*"))`: a deletion that is handed to another call by its name.
    fn maps_deletion(&mut self, language: Language, bare: &Bare) {
        let named = |text: &String| matches!(text.as_str(), "unlink" | "rmdir" | "os.remove");
        let handed = bare.has(&[
            "map(os.unlink",
            "map(os.remove",
            "map(shutil.rmtree",
            "map(&File.method(:delete",
        ]);
        let maps = bare.has(&["array_map(", "array_walk(", "map("]);
        let mapped = maps && bare.strings.iter().any(named);
        if !(handed || mapped) {
            return;
        }
        let verb = format!("{language:?} delete");
        for at in bare.calls(&["glob(", "scandir("]) {
            for path in bare.given(at).0 {
                self.lose(&verb, path, Depth::Tree);
            }
        }
    }

    /// What a program deletes that it has found by looking through a directory; false where no such
    /// directory is named.
    fn lose_listed(&mut self, verb: &str, bare: &Bare) -> bool {
        const LISTS: &[&str] = &[
            "walk(",
            "listdir(",
            "scandir(",
            "glob(",
            "iglob(",
            "rglob(",
            "readdirSync(",
            "readdir(",
            "Dir.glob(",
            "Dir[",
            "Dir.children(",
            "Dir.entries(",
        ];
        let roots: Vec<String> = bare
            .calls(LISTS)
            .into_iter()
            .filter_map(|at| {
                let given = bare.given(at).0.first().map(|root| at_home(root))?;
                // `Path("src").rglob("*.py")`: the directory stands before the call.
                let line = bare.text[..at].rsplit(['\n', ';']).next().unwrap_or_default();
                let before = line.strip_suffix(").rglob(");
                let before = before.or(line.strip_suffix(").glob("));
                let folder = before.and_then(|text| bare.strings_in(text).last().copied());
                match folder {
                    Some(folder) if !self.is_throwaway(&given) => Some(at_home(folder)),
                    _ => Some(given),
                }
            })
            .collect();
        for root in &roots {
            self.lose(verb, root, Depth::Tree);
        }
        !roots.is_empty()
    }

    /// Files of the system that a program writes afresh: `writeFileSync("/etc/hosts", …)`.
    fn writes_over(&mut self, bare: &Bare) {
        const WRITES: &[&str] =
            &["writeFileSync(", "writeFile(", "File.write(", "file_put_contents("];
        let mut found: Vec<String> = Vec::new();
        for at in bare.calls(WRITES) {
            found.extend(bare.given(at).0.first().map(|path| (*path).to_owned()));
        }
        for at in bare.calls(&["open("]) {
            if let [path, mode, ..] = bare.given(at).0.as_slice()
                && mode.len() <= 3
                && mode.starts_with(['w', 'a'])
            {
                found.push((*path).to_owned());
            }
        }
        for path in found.iter().filter(|path| path.starts_with('/')) {
            if self.is_system_file(path) {
                self.writes_system("write", path);
            }
        }
    }

    /// A program that another decodes or fetches, and runs.
    fn evaluates(&mut self, language: Language, bare: &Bare) {
        let web = || bare.strings.iter().any(|text| text.starts_with("http"));
        if bare.has(&[".then(eval"]) || (bare.has(&["eval(open(", "eval(URI."]) && web()) {
            self.runs_unread("eval", Taint::Fetched);
        }
        for at in bare.calls(language.evaluates()) {
            let expression = bare.expression(at);
            let given = bare.strings_in(expression);
            let encoded = given.iter().any(|text| matches!(*text, "base64" | "hex" | "rot13"));
            let variable = given.iter().all(|text| text.is_empty()) && bare.has(FETCHES);
            let loaded =
                given.iter().any(|text| *text == "open-uri" || text.starts_with("http://"));
            if variable || loaded || FETCHES.iter().any(|call| expression.contains(call)) {
                self.runs_unread("eval", Taint::Fetched);
            } else if encoded || DECODES.iter().any(|call| expression.contains(call)) {
                let plain = given.iter().find_map(|text| super::output::plain(text));
                match plain {
                    Some(program) if self.depth < super::MAX_DEPTH => {
                        self.depth += 1;
                        self.code(language, &program);
                        self.depth -= 1;
                    }
                    _ => {}
                }
                self.runs_unread("eval", Taint::Decoded);
            }
        }
    }

    /// A program that calls another machine: what secrets it reads go there, and the environment
    /// where it is handed over whole.
    fn calls_out(&mut self, language: Language, bare: &Bare) {
        let posts = bare.has(&["data=", "json=", "body:", "body=", ".post(", "send(", "POST"])
            || bare.strings.iter().any(|text| text == "POST");
        if !bare.has(FETCHES) && !bare.has(&["socket"]) {
            return;
        }
        if posts {
            self.sends.get_or_insert_with(|| format!("{language:?} request"));
        }
        let environment = ["os.environ", "process.env", "ENV.to_h", "%ENV", "getenv()"];
        let whole = environment.iter().any(|name| {
            bare.text.match_indices(name).any(|(at, _)| {
                let rest = &bare.text[at + name.len()..];
                !rest.starts_with(['[', '.', '{'])
            })
        });
        if whole && posts {
            let kind = HarmKind::SendsSecret;
            let verb = format!("{language:?} request");
            self.effects.harm(kind, &verb, "the environment", Reach::Remote, Recovery::None);
        }
    }

    /// Adds what a program does.
    pub(super) fn code(&mut self, language: Language, program: &str) {
        self.effects.raise(Effect::Changes);
        if program.len() > MAX_TEXT {
            return;
        }
        if language == Language::Python {
            self.notebook(program);
        }
        if language == Language::Other {
            self.tells_finder(program);
        }
        let bare = Bare::of(language, program);
        for at in bare.calls(language.deletes()) {
            // A file that is named is not yet a file that is deleted.
            if bare.text[..at].ends_with("new File(") && !bare.text[at..].contains(".delete") {
                continue;
            }
            let (given, _) = bare.given(at);
            let named = given.first().copied().or_else(|| {
                // The path may stand before the call: `Path("x").unlink()`.
                let line = bare.text[..at].rsplit(['\n', ';']).next().unwrap_or_default();
                bare.strings_in(line).last().copied()
            });
            let verb = format!("{language:?} delete");
            let name = &bare.text[..at];
            let tree = ["rmtree", "rm_r", "remove_tree", "remove_dir", "remove_entry", "rimraf"]
                .iter()
                .any(|call| name.trim_end_matches(['(', ' ']).contains(call))
                || given.len() > 1
                || bare.text[at..].contains("recursive")
                || bare.text[at..].contains("deleteDir(")
                || name.ends_with("removeItem(");
            let depth = if tree { Depth::Tree } else { Depth::Single };
            let expression = bare.expression(at);
            match named {
                _ if HOMES.iter().any(|home| expression.contains(home)) => {
                    self.lose(&verb, &bare.below_home(at), depth);
                }
                Some(path) => {
                    let path = at_home(path);
                    match listed(&path) {
                        Some(folder) if language != Language::Other => {
                            self.lose(&verb, folder, Depth::Tree);
                        }
                        _ if path.ends_with('/') => self.lose(&verb, &path, Depth::Tree),
                        _ => self.lose(&verb, &path, depth),
                    }
                }
                // What is in a variable may come from a look at the home directory.
                None if self.lose_listed(&verb, &bare) => {}
                None if walks_home(&bare.text) => {
                    let kind = HarmKind::Destroys;
                    self.effects.harm(kind, &verb, "~", Reach::Home, Recovery::None);
                }
                None => {
                    let kind = HarmKind::Destroys;
                    self.effects.harm(kind, &verb, "", Reach::Item, Recovery::Unknown);
                }
            }
        }
        self.maps_deletion(language, &bare);
        self.calls_by_name(language, &bare);
        self.empties_files(language, &bare);
        self.reads_at_home(language, &bare, HOMES);
        self.writes_over(&bare);
        self.evaluates(language, &bare);
        self.calls_out(language, &bare);
        self.calls_clients(language, &bare);
        for command in bare.commands.iter().take(MAX_CALLS) {
            self.script(command);
        }
        if bare.forks() {
            let kind = HarmKind::Stops;
            let verb = format!("{language:?} fork bomb");
            self.effects.harm(kind, &verb, "", Reach::System, Recovery::None);
        }
        if language == Language::JavaScript && bare.text.contains("Bun.file(") {
            for _ in bare.calls(&[").delete("]) {
                let path = bare.strings.first().map_or("", |s| s);
                self.lose("JavaScript delete", path, Depth::Single);
            }
        }
        let shell = |text: &String| {
            let first = text.split_whitespace().next().unwrap_or_default();
            matches!(first, "/bin/sh" | "/bin/bash" | "sh" | "bash")
        };
        if bare.has(&["socket", "fsockopen(", "TCPSocket"])
            && (bare.strings.iter().any(shell) || bare.has(&["IO.popen(", "pty.spawn("]))
        {
            let kind = HarmKind::OpensAccess;
            let verb = format!("{language:?} shell");
            self.effects.harm(kind, &verb, "socket", Reach::System, Recovery::None);
        }
        for path in bare.strings.iter().filter(|text| crate::secret::is_secret(text)).take(4) {
            let kind = HarmKind::ReadsSecret;
            let verb = format!("{language:?} read");
            self.effects.harm(kind, &verb, path, Reach::Outside, Recovery::None);
        }
        let mut runs = bare.calls(language.runs());
        if language == Language::JavaScript && program.contains("child_process") {
            runs.extend(bare.calls(&["exec("]));
        }
        if language == Language::Python && program.contains("subprocess") {
            runs.extend(bare.calls(&["run(", "call("]));
        }
        runs.sort_unstable();
        runs.dedup();
        for at in runs {
            let (given, first) = bare.given(at);
            self.runs_decoded(DECODES.iter().any(|call| bare.expression(at).contains(call)), &bare);
            match first {
                Some('[') => {
                    let argv: Vec<String> = given.iter().map(|word| (*word).to_owned()).collect();
                    self.run(&argv, &Input::default());
                }
                // A program and its arguments, one string for each.
                Some(STRING) if given.len() > 1 && !given[0].contains(' ') => {
                    let argv: Vec<String> = given.iter().map(|word| (*word).to_owned()).collect();
                    self.run(&argv, &Input::default());
                }
                Some(STRING) => self.script(given.first().copied().unwrap_or_default()),
                _ => {}
            }
        }
    }

    /// `tell application "Finder" to delete every item of desktop`.
    fn tells_finder(&mut self, program: &str) {
        let lower = program.to_ascii_lowercase();
        let deletes =
            ["delete every", "delete folder", "delete home", "empty trash", "empty the trash"];
        if lower.contains("finder") && deletes.iter().any(|order| lower.contains(order)) {
            let kind = HarmKind::Destroys;
            self.effects.harm(kind, "Finder delete", program, Reach::Home, Recovery::Elsewhere);
        }
    }

    /// Lines of a notebook that are commands: `!rm -rf data`, `%%bash`.
    fn notebook(&mut self, program: &str) {
        let first = program.trim_start();
        let cells = ["%%bash", "%%sh", "%%script bash"];
        if let Some(script) = cells.iter().find_map(|start| first.strip_prefix(start)) {
            return self.script(script);
        }
        let lines = program.lines().map(str::trim_start);
        let commands: Vec<&str> = lines
            .filter_map(|line| line.strip_prefix('!').or(line.strip_prefix("%sx ")))
            .take(50)
            .collect();
        for command in commands {
            self.script(command);
        }
    }

    /// `python -c program`, `node -e program`, or a program on standard input; false if it runs a
    /// file.
    pub(super) fn interpreter(
        &mut self,
        language: Language,
        arguments: &[String],
        input: &Input,
    ) -> bool {
        let inline = |word: &String| match language {
            Language::Python => word == "-c",
            Language::JavaScript => {
                matches!(word.as_str(), "-e" | "--eval" | "-p" | "--print" | "-pe" | "eval")
            }
            Language::Perl | Language::Ruby => {
                word.starts_with('-')
                    && !word.starts_with("--")
                    && !word.starts_with("-M")
                    && !word.starts_with("-r")
                    && word.ends_with(['e', 'E'])
            }
            Language::Php => word == "-r",
            Language::Other => matches!(word.as_str(), "-e" | "-E" | "--eval" | "-eval"),
        };
        if matches!(language, Language::Perl | Language::Ruby) {
            self.edits_in_place(arguments);
        }
        if arguments.first().is_some_and(|word| word.ends_with("manage.py")) {
            self.mapped("python", arguments, input);
        }
        if let Some(at) = arguments.iter().position(inline) {
            let program = arguments.get(at + 1).cloned().unwrap_or_default();
            if !self.runs_substitution(&program) {
                self.code(language, &program);
            }
            return true;
        }
        // `deno run -A -` reads its program from standard input as well.
        let mut words = arguments.iter().enumerate().filter(|(_, word)| !word.starts_with('-'));
        if words.any(|(at, word)| at > 0 || word != "run") {
            return false;
        }
        match &input.text {
            Some(program) => self.code(language, &program.clone()),
            None => self.effects.raise(Effect::Changes),
        }
        true
    }
}
