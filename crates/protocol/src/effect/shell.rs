//! Shell commands: what a line, a script or an argv would do.
//!
//! The grammar is bash's, read by a real parser; this file walks the tree and follows just enough
//! state (the working directory, plain variables, files made on the way) to tell `rm -rf "$tmp"`
//! from `rm -rf data`. What a single command does is in `command` and the files beside it.

mod command;
mod files;
mod git;
mod reads;
mod syntax;
mod tools;
mod word;

use brush_parser::ast;
use deadstop_core::Effect;

use super::Effects;
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

/// A walk through a script, with what is known on the way.
struct Walk {
    effects: Effects,
    variables: Variables,
    /// The working directory as far as `cd` says; empty is wherever the call started.
    cwd: String,
    /// Files and directories that the script itself made.
    made: Vec<String>,
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
}

impl Walk {
    fn new() -> Walk {
        Walk {
            effects: Effects::only(Effect::Inert),
            variables: Variables::new(),
            cwd: String::new(),
            made: Vec::new(),
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

    fn list(&mut self, list: &ast::CompoundList) {
        for ast::CompoundListItem(and_or, _) in &list.0 {
            for (_, pipeline) in and_or {
                self.pipeline(pipeline);
            }
        }
    }

    fn pipeline(&mut self, pipeline: &ast::Pipeline) {
        let mut input = Input::default();
        for command in &pipeline.seq {
            let output = self.command(command, &input);
            let from = if input.from.is_empty() { output.from } else { input.from };
            input = Input { text: output.text, from };
        }
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
            C::ArithmeticForClause(clause) => self.list(&clause.body.list),
            C::BraceGroup(group) => self.list(&group.list),
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
                    other.condition.iter().for_each(|condition| self.list(condition));
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
        let Parts { argv, assignments, fed } = parts;
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
        self.run(&argv, &input);
        Input { text: command::prints(&argv, &input), from: argv }
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
                if let Some(text) = self.redirect(redirect) {
                    parts.fed = Some(text);
                }
            }
            ast::CommandPrefixOrSuffixItem::ProcessSubstitution(_, subshell) => {
                self.list(&subshell.list);
            }
        }
    }

    fn redirects(&mut self, redirects: Option<&ast::RedirectList>) {
        for redirect in redirects.iter().flat_map(|list| &list.0) {
            self.redirect(redirect);
        }
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
                None
            }
            ast::IoRedirect::File(_, _, Target::ProcessSubstitution(_, subshell)) => {
                self.list(&subshell.list);
                None
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

const DECLARES: &[&str] = &["export", "declare", "local", "readonly", "typeset"];
