//! Shell commands: what a line, a script or an argv would do.
//!
//! The grammar is bash's, read by a real parser; this file walks the tree and follows just enough
//! state (the working directory, plain variables, files made on the way) to tell `rm -rf "$tmp"`
//! from `rm -rf data`. What a single command does is in `command` and the files beside it.

mod bombs;
mod carried;
mod clients;
mod code;
mod command;
mod containers;
mod databases;
mod deeds;
mod disks;
mod dynamic;
mod fetch;
mod files;
mod git;
mod guard;
mod host;
mod lexical;
mod opens;
mod orders;
mod output;
mod power;
mod reads;
mod rehearsals;
mod secrets;
mod served;
mod syntax;
mod tools;
mod transfers;
mod web;
mod windows;
mod word;

use brush_parser::ast;
use deadstop_core::{Effect, HarmKind, Reach, Recovery};

use super::Effects;
use super::surroundings::{Nowhere, Surroundings};
pub(super) use code::Language;
use fetch::{Content, Taint};
pub(super) use guard::protects;
use word::Variables;

/// Scripts inside scripts (`bash -c`, `$(…)`, `ssh`) are followed this deep.
const MAX_DEPTH: u8 = 14;

/// Scripts inside one call that are parsed at all, however they are nested.
const MAX_SCRIPTS: u16 = 200;

/// Bytes of scripts inside one call that are parsed, for each byte of the call and beyond a start.
const MAX_TIMES: usize = 2;
const MAX_START: usize = 8 * 1024;

/// Which shell a script is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shell {
    /// bash and its like.
    Posix,
    /// PowerShell.
    Power,
}

impl Shell {
    pub(super) fn of(is_powershell: bool) -> Shell {
        if is_powershell { Shell::Power } else { Shell::Posix }
    }
}

/// What a script would do.
pub(super) fn of_script(text: &str, shell: Shell, here: &dyn Surroundings) -> Effects {
    let mut walk = Walk::new(here, text.len());
    match shell {
        Shell::Posix if windows::is_cmdlet(text) => walk.powershell(text),
        Shell::Posix => walk.script(text),
        Shell::Power => walk.powershell(text),
    }
    walk.finish()
}

/// What some scripts would do, one after the other in the same shell.
pub(super) fn of_lines(lines: &[&str], here: &dyn Surroundings) -> Effects {
    let mut walk = Walk::new(here, lines.iter().map(|line| line.len()).sum());
    for line in lines {
        walk.script(line);
    }
    walk.finish()
}

/// What an argv would do. A list of one, or of whole command lines, is taken for scripts.
pub(super) fn of_argv(argv: &[&str], here: &dyn Surroundings) -> Effects {
    if argv.len() == 1 || argv.iter().all(|word| word.contains(' ')) {
        return of_lines(argv, here);
    }
    let mut walk = Walk::new(here, argv.iter().map(|word| word.len()).sum());
    let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
    walk.run(&argv, &Input::default());
    walk.finish()
}

/// What a program in another language would do.
pub(super) fn of_program(language: Language, text: &str, here: &dyn Surroundings) -> Effects {
    let mut walk = Walk::new(here, text.len());
    walk.code(language, text);
    walk.finish()
}

/// What a script prints, if it does no more than print: as a command decodes what it is about to
/// run.
fn printed(script: &str, variables: &Variables) -> Option<String> {
    const PRINTS: [&str; 5] = ["base64", "xxd", "rev", "printf", "echo -e"];
    let plain = script.len() <= MAX_PRINTED && !script.contains("$(") && !script.contains('`');
    if !plain || !PRINTS.iter().any(|word| script.contains(word)) || !variables.may_print() {
        return None;
    }
    let mut walk = Walk { variables: variables.inside(), ..Walk::new(&Nowhere, script.len()) };
    let program = syntax::parse(script)?;
    let mut text = String::new();
    for list in &program.complete_commands {
        for ast::CompoundListItem(and_or, _) in &list.0 {
            for (_, pipeline) in and_or {
                text.push_str(&walk.pipeline(pipeline).text?);
            }
        }
    }
    Some(text.trim_end_matches('\n').to_owned())
}

/// Longest script of which it is worked out what it prints.
const MAX_PRINTED: usize = 4096;

/// A walk through a script, with what is known on the way.
struct Walk<'a> {
    effects: Effects,
    here: &'a dyn Surroundings,
    variables: Variables,
    /// The working directory as far as `cd` says; empty is wherever the call started.
    cwd: String,
    /// Files and directories that the script itself made.
    made: Vec<String>,
    /// What the script moved to a temporary directory, and where it is now.
    moved: Vec<(String, String)>,
    /// Names that the script gave to commands.
    aliases: Vec<(String, String)>,
    /// Names that the script gave to commands of git.
    shorthands: Vec<(String, String)>,
    /// Repositories at places that are not known, as the script has named them.
    strangers: Vec<String>,
    /// Files that the script fetched or wrote, and what is in them.
    contents: Vec<(String, Content)>,
    /// Directories that the script packs up.
    bundles: Vec<String>,
    /// Secrets that the script adds to a repository.
    staged: Vec<String>,
    /// Whether the script sends something to another machine, and how.
    sends: Option<String>,
    /// Where what the last redirection fed comes from.
    fed: Taint,
    /// The command whose output the last redirection fed: `< <(git ls-files)`.
    listing: Vec<String>,
    /// Whether the program that runs belongs to the project: it is named by its path.
    own: bool,
    /// Whether a loop runs over a list that is not known.
    listed: bool,
    depth: u8,
    scripts: u16,
    /// Bytes that may still be parsed.
    budget: usize,
}

/// What a command is fed.
#[derive(Default)]
struct Input {
    /// The text itself, where it stands in the script.
    text: Option<String>,
    /// The first command of the pipeline that feeds it.
    from: Vec<String>,
    /// Where the text comes from, if it is not known.
    taint: Taint,
}

/// A simple command, taken apart.
#[derive(Default)]
struct Parts {
    argv: Vec<String>,
    assignments: Vec<(String, String)>,
    /// The text of a here-document or here-string.
    fed: Option<String>,
    /// Where what is fed comes from, if it is not known.
    taint: Taint,
    /// Files that are read from.
    inputs: Vec<String>,
    /// Files that are written afresh.
    emptied: Vec<String>,
    /// Files that are added to.
    extended: Vec<String>,
}

impl<'a> Walk<'a> {
    fn new(here: &'a dyn Surroundings, length: usize) -> Walk<'a> {
        Walk {
            effects: Effects::only(Effect::Inert),
            here,
            variables: Variables::new(),
            cwd: String::new(),
            made: Vec::new(),
            moved: Vec::new(),
            aliases: Vec::new(),
            shorthands: Vec::new(),
            strangers: Vec::new(),
            contents: Vec::new(),
            bundles: Vec::new(),
            staged: Vec::new(),
            sends: None,
            fed: Taint::None,
            listing: Vec::new(),
            own: false,
            listed: false,
            depth: 0,
            scripts: 0,
            budget: MAX_START + MAX_TIMES * length,
        }
    }

    /// Walks a script that is text so far.
    fn script(&mut self, text: &str) {
        let exhausted =
            self.depth >= MAX_DEPTH || self.scripts >= MAX_SCRIPTS || self.budget < text.len();
        if exhausted {
            return self.unreadable(text);
        }
        self.budget -= text.len();
        self.scripts += 1;
        self.depth += 1;
        let (readable, rest) = syntax::beginning(text);
        match syntax::parse(readable) {
            Some(program) => {
                for list in &program.complete_commands {
                    self.list(list);
                }
            }
            None => self.lexically(readable),
        }
        if !rest.is_empty() {
            self.unreadable(rest);
        }
        self.depth -= 1;
    }

    /// Notes a text that is not read, if it contains words that destroy.
    fn unreadable(&mut self, text: &str) {
        self.effects.raise(Effect::Changes);
        if let Some(word) = lexical::destructive_word(text) {
            let kind = HarmKind::Unreadable;
            self.effects.harm(kind, "unreadable", word, Reach::Outside, Recovery::Unknown);
        }
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
        self.hands_on_shell(pipeline);
        for command in &pipeline.seq {
            let output = self.command(command, &input);
            if pipeline.seq.len() == 1 {
                self.lists_environment(&output.from);
            }
            let from = if input.from.is_empty() { output.from } else { input.from };
            input = Input { text: output.text, from, taint: output.taint };
        }
        input
    }

    fn command(&mut self, command: &ast::Command, input: &Input) -> Input {
        match command {
            ast::Command::Simple(simple) => return self.simple(simple, input),
            ast::Command::Compound(compound, redirects) => {
                self.listing.clear();
                self.redirects(redirects.as_ref());
                return self.fed_compound(compound, redirects.as_ref(), input);
            }
            // Whether it is ever called is not followed; once is a fair guess.
            ast::Command::Function(function) => {
                self.bomb(function);
                self.compound(&function.body.0, &Input::default());
            }
            ast::Command::ExtendedTest(test, redirects) => {
                self.redirects(redirects.as_ref());
                self.effects.raise(Effect::Reads);
                self.test(&test.expr);
            }
        }
        Input::default()
    }

    /// A loop over the lines of a file or of what a command prints: `while read f; do rm "$f"; done < list`.
    fn fed_compound(
        &mut self,
        compound: &ast::CompoundCommand,
        redirects: Option<&ast::RedirectList>,
        input: &Input,
    ) -> Input {
        use ast::{IoFileRedirectKind as Kind, IoFileRedirectTarget as Target};
        let reads = |redirect: &ast::IoRedirect| {
            matches!(redirect, ast::IoRedirect::File(_, Kind::Read, Target::Filename(_)))
        };
        let file = redirects.iter().flat_map(|list| &list.0).any(reads);
        let listing = std::mem::take(&mut self.listing);
        let file = file || (!listing.is_empty() && !self.are_throwaway(&listing));
        let piped = !input.from.is_empty() && !self.are_throwaway(&input.from);
        let looping = matches!(compound, ast::CompoundCommand::WhileClause(_));
        let before = std::mem::replace(&mut self.listed, looping && (file || piped));
        let output = self.compound(compound, input);
        self.listed = before;
        output
    }

    fn compound(&mut self, compound: &ast::CompoundCommand, input: &Input) -> Input {
        use ast::CompoundCommand as C;
        match compound {
            // `( ( rm … ) )` looks like arithmetic to a parser and is none to bash.
            C::Arithmetic(arithmetic) => {
                let text = &arithmetic.expr.value;
                if lexical::destructive_word(text).is_some() {
                    self.script(text);
                }
            }
            C::ArithmeticForClause(clause) => {
                self.endless(clause);
                self.list(&clause.body.list);
            }
            C::BraceGroup(group) => return self.list(&group.list),
            C::Subshell(subshell) => {
                let cwd = self.cwd.clone();
                let output = self.list(&subshell.list);
                self.cwd = cwd;
                return output;
            }
            C::ForClause(clause) => {
                let values: Vec<String> =
                    clause.values.iter().flatten().flat_map(|value| self.expand(value)).collect();
                self.variables.set_each(&clause.variable_name, &values);
                let printed = values.iter().any(|value| self.is_listing(value));
                let before = self.listed;
                self.listed |= printed;
                self.list(&clause.body.list);
                self.listed = before;
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
                self.endless_loop(matches!(compound, C::WhileClause(_)), clause);
                self.list(&clause.0);
                self.list(&clause.1.list);
            }
            C::Coprocess(coprocess) => return self.command(&coprocess.body, input),
        }
        Input::default()
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
        self.simple_parts(parts, declares, input)
    }

    fn simple_parts(&mut self, parts: Parts, declares: bool, input: &Input) -> Input {
        let Parts { argv, assignments, fed, taint, inputs, emptied, extended } = parts;
        self.overwritten(&argv, &emptied);
        self.hands_out_shell(&argv);
        self.reads_inputs(&argv, &inputs);
        self.unsets(&argv, &assignments);
        self.forgets(&argv, &assignments);
        self.runs_variables(&assignments);
        if argv.is_empty() || declares {
            self.lists_environment(&argv);
            for (name, value) in assignments {
                self.variables.set(&name, &value);
            }
            // `$(<file)` prints the file.
            return Input::default();
        }
        let input = match fed {
            Some(text) => Input { text: Some(text), from: Vec::new(), taint },
            None if taint != Taint::None => Input { text: None, from: Vec::new(), taint },
            None => {
                Input { text: input.text.clone(), from: input.from.clone(), taint: input.taint }
            }
        };
        if argv[0] == "tee" && input.text.as_deref() == Some("") {
            let empties = ["truncate", "-s", "0"].map(str::to_owned);
            self.run(&[&empties, &argv[1..]].concat(), &input);
        }
        // What stands before a command holds for it alone.
        let before: Vec<_> =
            assignments.iter().map(|(name, _)| (name, self.variables.value(name))).collect();
        let before: Vec<(String, Option<String>)> =
            before.into_iter().map(|(name, value)| (name.clone(), value)).collect();
        for (name, value) in assignments {
            self.variables.set(&name, &value);
        }
        self.run(&argv, &input);
        for (name, value) in before {
            self.variables.put(&name, value);
        }
        let text = output::prints(&argv, &input);
        let taint = fetch::gives(&argv, &input, text.is_some());
        self.writes_content(&argv, &emptied, text.as_deref(), taint);
        self.starts_later(&argv, &[emptied, extended].concat(), text.as_deref());
        Input { text, from: argv, taint }
    }

    fn item(&mut self, item: &ast::CommandPrefixOrSuffixItem, parts: &mut Parts) {
        match item {
            ast::CommandPrefixOrSuffixItem::Word(word) => parts.argv.extend(self.expand(word)),
            ast::CommandPrefixOrSuffixItem::AssignmentWord(assignment, _) => {
                let ast::AssignmentName::VariableName(name) = &assignment.name else {
                    return;
                };
                let (words, all) = match &assignment.value {
                    ast::AssignmentValue::Scalar(word) => (self.expand(word), None),
                    ast::AssignmentValue::Array(words) => {
                        let words: Vec<String> =
                            words.iter().flat_map(|(_, word)| self.expand(word)).collect();
                        let all = word::joined(&words);
                        (words, Some(all))
                    }
                };
                let before = |name: &str| {
                    self.variables.value(name).filter(|_| assignment.append).unwrap_or_default()
                };
                if let Some(all) = all {
                    let each = format!("{name}[@]");
                    let known = before(&each);
                    let all = if known.is_empty() { all } else { word::joined(&[known, all]) };
                    parts.assignments.push((each, all));
                }
                let value = before(name) + &words.join(" ");
                parts.assignments.push((name.clone(), value));
            }
            ast::CommandPrefixOrSuffixItem::IoRedirect(redirect) => {
                parts.emptied.extend(self.empties(redirect));
                parts.extended.extend(self.extends(redirect));
                self.note_inputs(redirect, parts);
                if let Some(text) = self.redirect(redirect) {
                    parts.fed = Some(text);
                }
                parts.taint = std::mem::take(&mut self.fed).or(parts.taint);
            }
            ast::CommandPrefixOrSuffixItem::ProcessSubstitution(_, subshell) => {
                let output = self.list(&subshell.list);
                parts.fed = output.text.or(parts.fed.take());
                parts.taint = output.taint.or(parts.taint);
            }
        }
    }

    fn redirects(&mut self, redirects: Option<&ast::RedirectList>) {
        for redirect in redirects.iter().flat_map(|list| &list.0) {
            self.redirect(redirect);
        }
    }

    /// The file that a redirection writes afresh.
    fn empties(&mut self, redirect: &ast::IoRedirect) -> Option<String> {
        use ast::{IoFileRedirectKind as Kind, IoFileRedirectTarget as Target};
        let word = match redirect {
            ast::IoRedirect::File(_, Kind::Write | Kind::Clobber, Target::Filename(word)) => word,
            ast::IoRedirect::OutputAndError(word, false) => word,
            _ => return None,
        };
        let name = word::expand(&word.value, &self.variables).fields.join(" ");
        Some(name).filter(|name| !name.is_empty())
    }

    /// The file that a redirection adds to.
    fn extends(&mut self, redirect: &ast::IoRedirect) -> Option<String> {
        use ast::{IoFileRedirectKind as Kind, IoFileRedirectTarget as Target};
        let ast::IoRedirect::File(_, Kind::Append, Target::Filename(word)) = redirect else {
            return None;
        };
        Some(word::expand(&word.value, &self.variables).fields.join(" "))
    }

    /// What is written into a file that a shell runs when it starts is run later.
    fn starts_later(&mut self, argv: &[String], files: &[String], text: Option<&str>) {
        let tee = if argv.first().is_some_and(|name| name == "tee") { &argv[1..] } else { &[] };
        let starts = |file: &String| crate::files::runs_at_start(&self.resolve(file));
        if let Some(text) = text.filter(|_| files.iter().chain(tee).any(starts)) {
            self.script(text);
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
                if matches!(kind, Kind::Append) {
                    self.appended(&name);
                }
                (matches!(kind, Kind::Read) && name == "/dev/null").then(String::new)
            }
            ast::IoRedirect::File(_, _, Target::ProcessSubstitution(_, subshell)) => {
                let output = self.list(&subshell.list);
                self.fed = output.taint;
                self.listing = output.from;
                output.text
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
        if path.starts_with("/dev/tcp/") || path.starts_with("/dev/udp/") {
            self.sends.get_or_insert_with(|| path.to_owned());
        }
        self.writes_device("write", path);
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
