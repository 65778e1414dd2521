//! Programs in other languages, as far as one line of them is handed to an interpreter: which files
//! they delete, and which commands they run.
//!
//! This is no parser. Strings and comments are taken out first, so that a program that prints
//! `os.remove(…)` deletes nothing; then calls are looked for that can only mean one thing.

use deadstop_core::{Effect, HarmKind, Reach, Recovery};

use super::super::place::Depth;
use super::{Input, Walk};

/// A language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Language {
    Python,
    JavaScript,
    Perl,
    Ruby,
    Php,
}

/// Longer programs are not read.
const MAX_TEXT: usize = 64 * 1024;
/// Calls of a program that are looked at.
const MAX_CALLS: usize = 32;
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
                "FileUtils.rm_rf(",
                "FileUtils.rm_rf ",
                "FileUtils.rm_r(",
                "FileUtils.rm(",
                "FileUtils.rm_f(",
                "FileUtils.remove_dir(",
                "FileUtils.remove_entry(",
            ],
            Language::Php => &["unlink("],
        }
    }

    /// Calls that run a command.
    fn runs(self) -> &'static [&'static str] {
        match self {
            Language::Python => &[
                "os.system(",
                "os.popen(",
                "subprocess.run(",
                "subprocess.call(",
                "subprocess.getoutput(",
                "check_call(",
                "check_output(",
                "Popen(",
            ],
            Language::JavaScript => &["execSync(", "spawnSync(", "execFileSync(", "spawn("],
            Language::Perl => &["system(", "system ", "exec(", "exec "],
            Language::Ruby => &["system(", "system "],
            Language::Php => &["shell_exec(", "exec(", "system(", "passthru("],
        }
    }

    fn comment(self) -> &'static [&'static str] {
        match self {
            Language::Python | Language::Perl | Language::Ruby => &["#"],
            Language::JavaScript => &["//"],
            Language::Php => &["#", "//"],
        }
    }
}

/// A program without its strings, and the strings.
struct Bare {
    text: String,
    strings: Vec<String>,
}

impl Bare {
    fn of(language: Language, program: &str) -> Bare {
        let mut bare = Bare { text: String::with_capacity(program.len()), strings: Vec::new() };
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
                bare.text.push(STRING);
                bare.text.push_str(&bare.strings.len().to_string());
                bare.text.push(STRING);
                bare.strings.push(string);
                rest = after;
            } else {
                bare.text.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
        bare
    }

    /// Where calls begin that start with one of these.
    fn calls(&self, names: &[&str]) -> Vec<usize> {
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
    fn given(&self, from: usize) -> (Vec<&str>, Option<char>) {
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

impl Walk<'_> {
    /// Adds what a program does.
    pub(super) fn code(&mut self, language: Language, program: &str) {
        self.effects.raise(Effect::Changes);
        if program.len() > MAX_TEXT {
            return;
        }
        if language == Language::Python {
            self.notebook(program);
        }
        let bare = Bare::of(language, program);
        for at in bare.calls(language.deletes()) {
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
                || bare.text[at..].contains("recursive");
            let depth = if tree { Depth::Tree } else { Depth::Single };
            match named {
                Some(path) => self.lose(&verb, path, depth),
                None => {
                    let kind = HarmKind::Destroys;
                    self.effects.harm(kind, &verb, "", Reach::Item, Recovery::Unknown);
                }
            }
        }
        if language == Language::JavaScript && bare.text.contains("Bun.file(") {
            for _ in bare.calls(&[").delete("]) {
                let path = bare.strings.first().map_or("", |s| s);
                self.lose("JavaScript delete", path, Depth::Single);
            }
        }
        let shell =
            |text: &String| matches!(text.as_str(), "/bin/sh" | "/bin/bash" | "sh" | "bash");
        if bare.text.contains("socket") && bare.strings.iter().any(shell) {
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
        for at in runs {
            let (given, first) = bare.given(at);
            match first {
                Some('[') => {
                    let argv: Vec<String> = given.iter().map(|word| (*word).to_owned()).collect();
                    self.run(&argv, &Input::default());
                }
                Some(STRING) => self.script(given.first().copied().unwrap_or_default()),
                _ => {}
            }
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
        };
        if matches!(language, Language::Perl | Language::Ruby) {
            self.edits_in_place(arguments);
        }
        if let Some(at) = arguments.iter().position(inline) {
            let program = arguments.get(at + 1).cloned().unwrap_or_default();
            if !self.runs_substitution(&program) {
                self.code(language, &program);
            }
            return true;
        }
        if arguments.iter().any(|word| !word.starts_with('-')) {
            return false;
        }
        match &input.text {
            Some(program) => self.code(language, &program.clone()),
            None => self.effects.raise(Effect::Changes),
        }
        true
    }
}
