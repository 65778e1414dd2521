//! Shell commands: what a line, a script or an argv would do.
//!
//! The grammar is bash's, read by a real parser; this file walks the tree and follows just enough
//! state (the working directory, plain variables, files made on the way) to tell `rm -rf "$tmp"`
//! from `rm -rf data`. What a single command does is in `command` and the files beside it.

mod code;
mod command;
mod disks;
mod files;
mod git;
mod output;
mod reads;
mod syntax;
mod tools;
mod windows;
mod word;

use brush_parser::ast;
use deadstop_core::Effect;

use super::Effects;
pub(super) use code::Language;
use word::Variables;

/// Scripts inside scripts (`bash -c`, `$(…)`, `ssh`) are followed this deep.
const MAX_DEPTH: u8 = 8;

/// Scripts inside one call that are parsed at all, however they are nested.
const MAX_SCRIPTS: u16 = 200;

/// What a script would do. One that cannot be parsed may change anything and destroys nothing that
/// could be named.
pub(super) fn of_script(text: &str) -> Effects {
    let mut walk = Walk::new();
    walk.script(text);
    walk.effects
}

/// What some scripts would do, one after the other in the same shell.
pub(super) fn of_lines(lines: &[&str]) -> Effects {
    let mut walk = Walk::new();
    for line in lines {
        walk.script(line);
    }
    walk.effects
}

/// What an argv would do. A list of one, or of whole command lines, is taken for scripts.
pub(super) fn of_argv(argv: &[&str]) -> Effects {
    if argv.len() == 1 || argv.iter().all(|word| word.contains(' ')) {
        return of_lines(argv);
    }
    let mut walk = Walk::new();
    let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
    walk.run(&argv, &Input::default());
    walk.effects
}

/// What a program in another language would do.
pub(super) fn of_program(language: Language, text: &str) -> Effects {
    let mut walk = Walk::new();
    walk.code(language, text);
    walk.effects
}

/// What a script prints, if it does no more than print: as a command decodes what it is about to
/// run.
fn printed(script: &str, variables: &Variables) -> Option<String> {
    const PRINTS: [&str; 5] = ["base64", "xxd", "rev", "printf", "echo -e"];
    let plain = script.len() <= MAX_PRINTED && !script.contains("$(") && !script.contains('`');
    if !plain || !PRINTS.iter().any(|word| script.contains(word)) || !variables.may_print() {
        return None;
    }
    let mut walk = Walk { variables: variables.clone(), ..Walk::new() };
    let program = syntax::parse(script)?;
    let mut last = Input::default();
    for list in &program.complete_commands {
        last = walk.list(list);
    }
    Some(last.text?.trim_end_matches('\n').to_owned())
}

/// Longest script of which it is worked out what it prints.
const MAX_PRINTED: usize = 4096;

/// A walk through a script, with what is known on the way.
struct Walk {
    effects: Effects,
    variables: Variables,
    /// The working directory as far as `cd` says; empty is wherever the call started.
    cwd: String,
    /// Files and directories that the script itself made.
    made: Vec<String>,
    /// Names that the script gave to commands.
    aliases: Vec<(String, String)>,
    depth: u8,
    scripts: u16,
}

/// What a command is fed.
#[derive(Default)]
struct Input {
    /// The text itself, where it stands in the script.
    text: Option<String>,
    /// The first command of the pipeline that feeds it.
    from: Vec<String>,
}

/// A simple command, taken apart.
#[derive(Default)]
struct Parts {
    argv: Vec<String>,
    assignments: Vec<(String, String)>,
    /// The text of a here-document or here-string.
    fed: Option<String>,
    /// Files that are written afresh, and that somebody could miss.
    emptied: Vec<String>,
}

impl Walk {
    fn new() -> Walk {
        Walk {
            effects: Effects::only(Effect::Inert),
            variables: Variables::new(),
            cwd: String::new(),
            made: Vec::new(),
            aliases: Vec::new(),
            depth: 0,
            scripts: 0,
        }
    }

    /// Walks a script that is text so far.
    fn script(&mut self, text: &str) {
        if self.depth >= MAX_DEPTH || self.scripts >= MAX_SCRIPTS {
            self.effects.raise(Effect::Changes);
            return;
        }
        self.scripts += 1;
        let Some(program) = syntax::parse(text) else {
            self.effects.raise(Effect::Changes);
            return;
        };
        self.depth += 1;
        for list in &program.complete_commands {
            self.list(list);
        }
        self.depth -= 1;
    }

    /// Walks commands; gives what the last of them prints.
    fn list(&mut self, list: &ast::CompoundList) -> Input {
        let mut last = Input::default();
        for ast::CompoundListItem(and_or, _) in &list.0 {
            for (_, pipeline) in and_or {
                last = self.pipeline(pipeline);
            }
        }
        last
    }

    fn pipeline(&mut self, pipeline: &ast::Pipeline) -> Input {
        let mut input = Input::default();
        for command in &pipeline.seq {
            let output = self.command(command, &input);
            let from = if input.from.is_empty() { output.from } else { input.from };
            input = Input { text: output.text, from };
        }
        input
    }

    fn command(&mut self, command: &ast::Command, input: &Input) -> Input {
        match command {
            ast::Command::Simple(simple) => return self.simple(simple, input),
            ast::Command::Compound(compound, redirects) => {
                self.redirects(redirects.as_ref());
                self.compound(compound);
            }
            // Whether it is ever called is not followed; once is a fair guess.
            ast::Command::Function(function) => self.compound(&function.body.0),
            ast::Command::ExtendedTest(test, redirects) => {
                self.redirects(redirects.as_ref());
                self.effects.raise(Effect::Reads);
                self.test(&test.expr);
            }
        }
        Input::default()
    }

    fn compound(&mut self, compound: &ast::CompoundCommand) {
        use ast::CompoundCommand as C;
        match compound {
            C::Arithmetic(_) => {}
            C::ArithmeticForClause(clause) => {
                self.list(&clause.body.list);
            }
            C::BraceGroup(group) => {
                self.list(&group.list);
            }
            C::Subshell(subshell) => {
                let cwd = self.cwd.clone();
                self.list(&subshell.list);
                self.cwd = cwd;
            }
            C::ForClause(clause) => {
                let values: Vec<String> =
                    clause.values.iter().flatten().flat_map(|value| self.expand(value)).collect();
                self.variables.set_each(&clause.variable_name, &values);
                self.list(&clause.body.list);
            }
            C::CaseClause(clause) => {
                self.expand(&clause.value);
                for list in clause.cases.iter().filter_map(|case| case.cmd.as_ref()) {
                    self.list(list);
                }
            }
            C::IfClause(clause) => {
                self.list(&clause.condition);
                self.list(&clause.then);
                for other in clause.elses.iter().flatten() {
                    if let Some(condition) = &other.condition {
                        self.list(condition);
                    }
                    self.list(&other.body);
                }
            }
            C::WhileClause(clause) | C::UntilClause(clause) => {
                self.list(&clause.0);
                self.list(&clause.1.list);
            }
            C::Coprocess(coprocess) => {
                self.command(&coprocess.body, &Input::default());
            }
        }
    }

    fn test(&mut self, test: &ast::ExtendedTestExpr) {
        use ast::ExtendedTestExpr as T;
        match test {
            T::And(left, right) | T::Or(left, right) => {
                self.test(left);
                self.test(right);
            }
            T::Not(inner) | T::Parenthesized(inner) => self.test(inner),
            T::UnaryTest(_, word) => {
                self.expand(word);
            }
            T::BinaryTest(_, left, right) => {
                self.expand(left);
                self.expand(right);
            }
        }
    }

    fn simple(&mut self, simple: &ast::SimpleCommand, input: &Input) -> Input {
        let mut parts = Parts::default();
        for item in simple.prefix.iter().flat_map(|prefix| &prefix.0) {
            self.item(item, &mut parts);
        }
        if let Some(word) = &simple.word_or_name {
            parts.argv.extend(self.expand(word));
        }
        let declares = parts.argv.first().is_some_and(|name| DECLARES.contains(&name.as_str()));
        for item in simple.suffix.iter().flat_map(|suffix| &suffix.0) {
            match item {
                // To most commands, `of=/dev/sda` is a word like any other.
                ast::CommandPrefixOrSuffixItem::AssignmentWord(_, word) if !declares => {
                    parts.argv.extend(self.expand(word));
                }
                item => self.item(item, &mut parts),
            }
        }
        let Parts { argv, assignments, fed, emptied } = parts;
        if !emptied.is_empty() && prints_nothing(&argv) {
            self.effects.destroy("truncate", &super::target::join(&emptied));
        }
        if argv.is_empty() || declares {
            for (name, value) in assignments {
                self.variables.set(&name, &value);
            }
            return Input::default();
        }
        let input = match fed {
            Some(text) => Input { text: Some(text), from: Vec::new() },
            None => Input { text: input.text.clone(), from: input.from.clone() },
        };
        if argv[0] == "tee" && input.text.as_deref() == Some("") {
            let empties = ["truncate", "-s", "0"].map(str::to_owned);
            self.run(&[&empties, &argv[1..]].concat(), &input);
        }
        self.run(&argv, &input);
        Input { text: output::prints(&argv, &input), from: argv }
    }

    fn item(&mut self, item: &ast::CommandPrefixOrSuffixItem, parts: &mut Parts) {
        match item {
            ast::CommandPrefixOrSuffixItem::Word(word) => parts.argv.extend(self.expand(word)),
            ast::CommandPrefixOrSuffixItem::AssignmentWord(assignment, _) => {
                let words = match &assignment.value {
                    ast::AssignmentValue::Scalar(word) => self.expand(word),
                    ast::AssignmentValue::Array(words) => {
                        words.iter().flat_map(|(_, word)| self.expand(word)).collect()
                    }
                };
                if let ast::AssignmentName::VariableName(name) = &assignment.name {
                    parts.assignments.push((name.clone(), words.join(" ")));
                }
            }
            ast::CommandPrefixOrSuffixItem::IoRedirect(redirect) => {
                parts.emptied.extend(self.empties(redirect));
                if let Some(text) = self.redirect(redirect) {
                    parts.fed = Some(text);
                }
            }
            ast::CommandPrefixOrSuffixItem::ProcessSubstitution(_, subshell) => {
                parts.fed = self.list(&subshell.list).text.or(parts.fed.take());
            }
        }
    }

    fn redirects(&mut self, redirects: Option<&ast::RedirectList>) {
        for redirect in redirects.iter().flat_map(|list| &list.0) {
            self.redirect(redirect);
        }
    }

    /// The file that a redirection empties, if somebody could miss what is in it.
    fn empties(&mut self, redirect: &ast::IoRedirect) -> Option<String> {
        use ast::{IoFileRedirectKind as Kind, IoFileRedirectTarget as Target};
        let ast::IoRedirect::File(_, kind, Target::Filename(word)) = redirect else {
            return None;
        };
        let name = word::expand(&word.value, &self.variables).fields.join(" ");
        let writes = matches!(kind, Kind::Write | Kind::Clobber);
        let missed = writes && !name.starts_with("/dev/") && !self.is_throwaway(&name);
        missed.then(|| self.resolve(&name))
    }

    /// Notes what a redirection writes, and gives back the text that it feeds to standard input.
    fn redirect(&mut self, redirect: &ast::IoRedirect) -> Option<String> {
        use ast::{IoFileRedirectKind as Kind, IoFileRedirectTarget as Target};
        match redirect {
            ast::IoRedirect::File(_, kind, Target::Filename(word)) => {
                let name = self.expand(word).join(" ");
                if matches!(kind, Kind::Write | Kind::Append | Kind::Clobber | Kind::ReadAndWrite) {
                    self.writes(&name);
                }
                if matches!(kind, Kind::Write | Kind::Clobber) {
                    self.make(&name);
                }
                (matches!(kind, Kind::Read) && name == "/dev/null").then(String::new)
            }
            ast::IoRedirect::File(_, _, Target::ProcessSubstitution(_, subshell)) => {
                self.list(&subshell.list).text
            }
            ast::IoRedirect::File(_, Kind::DuplicateOutput, Target::Duplicate(word)) => {
                let name = self.expand(word).join(" ");
                if !name.chars().all(|c| c.is_ascii_digit() || c == '-') {
                    self.writes(&name);
                }
                None
            }
            ast::IoRedirect::File(..) => None,
            ast::IoRedirect::OutputAndError(word, _) => {
                let name = self.expand(word).join(" ");
                self.writes(&name);
                None
            }
            ast::IoRedirect::HereString(_, word) => Some(self.expand(word).join(" ")),
            ast::IoRedirect::HereDocument(_, document) => {
                let text = &document.doc.value;
                if document.requires_expansion {
                    for script in word::substitutions(text) {
                        self.script(&script);
                    }
                }
                Some(text.clone())
            }
        }
    }

    fn writes(&mut self, path: &str) {
        if !matches!(path, "/dev/null" | "/dev/stdout" | "/dev/stderr" | "/dev/tty") {
            self.effects.raise(Effect::Changes);
        }
        if disks::is_disk(path) {
            self.effects.destroy("write", path);
        }
    }

    /// Expands a word, and runs the commands inside it.
    fn expand(&mut self, word: &ast::Word) -> Vec<String> {
        let expanded = word::expand(&word.value, &self.variables);
        for script in &expanded.scripts {
            let cwd = self.cwd.clone();
            self.script(script);
            self.cwd = cwd;
        }
        expanded.fields
    }
}

/// Whether a command prints nothing at all, so that what it is written to is emptied.
fn prints_nothing(argv: &[String]) -> bool {
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    matches!(
        words.as_slice(),
        [] | [":" | "true"] | ["cat", "/dev/null"] | ["echo", "-n"] | ["printf", ""]
    )
}

const DECLARES: &[&str] = &["export", "declare", "local", "readonly", "typeset"];
