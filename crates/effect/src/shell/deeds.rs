//! Commands of tools that stand in no table here, judged by their own words.
//!
//! Tools that manage things elsewhere look alike: a path of nouns with a verb in it, as in
//! `acme instances destroy web-1 --yes`. A verb that destroys is told by its place: among the first
//! words, before any word that says that the command looks, makes or tests something. What such a
//! tool keeps is not known, so that the harm counts as one that takes work to bring back; `strict`
//! asks about it. Tools whose verbs are about texts, packages and caches are left out.

mod lists;

use deadstop_core::{Harm, HarmKind, Reach, Recovery};

use super::super::name::{Deed, Words};
use super::super::{remote, sql, target};
use super::tools::operands;
use super::{Input, Walk};
use lists::*;

/// Lines of what a tool is fed that are read.
const MAX_ORDERS: usize = 50;

/// Words of a command that are looked at for a verb.
const MAX_WORDS: usize = 6;

/// What a command of an unknown tool does, if its words say that it does harm. A program of the project's `own` is
/// tried out again and again while it is written, so that what it deletes is asked about and not counted.
pub(super) fn of(name: &str, arguments: &[String], own_program: bool) -> Option<Harm> {
    if is_quiet(name) || rehearses(arguments) {
        return None;
    }
    if name.contains('-') && name.starts_with(|c: char| c.is_ascii_uppercase()) {
        return None; // A cmdlet of PowerShell, which is read elsewhere.
    }
    let by_option = arguments.iter().find(|word| DELETES.contains(&word.as_str()));
    let own = Words::of(name);
    let (deed, verb, rest) = match spoken(arguments) {
        Some((deed, at, words)) => {
            (deed, format!("{name} {}", words[..=at].join(" ")), words[at + 1..].to_vec())
        }
        // `ldapdelete uid=x`: the same without a sign between.
        None if runs_together(name) && by_option.is_none() && !arguments.is_empty() => {
            (Deed::Destroys, name.to_owned(), operands(arguments))
        }
        // `lxc-destroy -n box`: the tool's own name is the deed.
        None if name.contains(['-', '_'])
            && own.deed() == Some(Deed::Destroys)
            && !own.ends_in_thing() =>
        {
            (Deed::Destroys, name.to_owned(), operands(arguments))
        }
        None => (Deed::Destroys, format!("{name} {}", by_option?), operands(arguments)),
    };
    let sure = arguments.iter().any(|word| CONFIRMS.contains(&word.as_str()));
    let large = || {
        let named = arguments.iter().filter(|word| !word.contains('/'));
        named
            .take(12)
            .flat_map(|word| word.split([':', '.']))
            .any(|part| Words::of(part).names_a_store())
    };
    // `acme module disable x`: what such a verb does is meant to last.
    let lasting = || verb.split(' ').next_back().is_some_and(|word| Words::of(word).lasts());
    if deed == Deed::Upsets && !sure && !lasting() && !large() && !Words::of(&verb).ends_all() {
        return None;
    }
    let counts = deed == Deed::Destroys && !own_program;
    let kind = if counts { HarmKind::Destroys } else { HarmKind::Stops };
    let reach = remote(&[&target::join(arguments)]);
    let final_word = deed == Deed::Destroys && sure && reach == Reach::Production;
    let recovery = if final_word { Recovery::None } else { Recovery::Elsewhere };
    Some(Harm { kind, verb, target: target::join(&rest), reach, recovery })
}

/// Whether a tool's name ends in its deed: `ldapdelete`.
fn runs_together(name: &str) -> bool {
    let name = name.split('.').next().unwrap_or(name);
    ["delete", "destroy", "purge", "wipe", "erase"]
        .iter()
        .any(|verb| name.strip_suffix(verb).is_some_and(|rest| rest.len() >= 2 && is_word(rest)))
        && !["un", "no", "soft", "auto", "test"].iter().any(|start| name.starts_with(start))
}

/// The first verb that does harm, where it stands, and the words of the command.
fn spoken(arguments: &[String]) -> Option<(Deed, usize, Vec<&str>)> {
    let words = operands(arguments);
    for (at, word) in words.iter().take(MAX_WORDS).enumerate() {
        // `vmsvc/destroy`: a noun and its verb in one word.
        let verb = word.split_once('/').filter(|(noun, _)| is_word(noun)).map(|(_, verb)| verb);
        let Some(spoken) =
            Some(*word).filter(|word| is_word(word)).or(verb.filter(|verb| is_plain(verb)))
        else {
            continue;
        };
        let parts = Words::of(spoken);
        let more = at + 1 < words.len().min(MAX_WORDS);
        // `dagster run wipe`, `acme backup delete x`: here the first word is a noun.
        let noun = NOUNS.contains(word)
            && words
                .get(at + 1)
                .is_some_and(|next| is_plain(next) || matches!(*next, "rm" | "disable"));
        if more && !noun && (parts.says_otherwise() || parts.names_a_trifle()) {
            return None;
        }
        if let Some(deed) = parts.deed().filter(|_| !is_value(arguments, word)) {
            return Some((deed, at, words));
        }
    }
    None
}

/// Whether a word is nothing but a verb that destroys.
fn is_plain(word: &str) -> bool {
    ["delete", "destroy", "purge", "wipe", "erase", "terminate", "drop"].contains(&word)
}

/// Whether a word is the value of an option.
fn is_value(arguments: &[String], word: &str) -> bool {
    let before = arguments
        .iter()
        .position(|other| other == word)
        .and_then(|at| arguments.get(at.checked_sub(1)?));
    before.is_some_and(|option| {
        option.starts_with('-')
            && !option.contains('=')
            && !CONFIRMS.contains(&option.as_str())
            && !SWITCHES.contains(&option.as_str())
    })
}

/// Whether a word may be part of a command, and not a path, an address or a text.
fn is_word(word: &str) -> bool {
    word.len() <= 48
        && word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_:.".contains(&b))
}

/// Whether a command only says what it would do.
fn rehearses(arguments: &[String]) -> bool {
    // In between, `--version` takes the version of a thing.
    let asks = |word: &String| matches!(word.as_str(), "--version" | "--help");
    arguments.last().is_some_and(asks)
        || arguments.iter().any(|word| {
            let word = word.split('=').next().unwrap_or(word);
            REHEARSES.contains(&word)
        })
}

/// Whether the words of a tool are about texts, files, packages or caches, or the tool is judged elsewhere.
fn is_quiet(name: &str) -> bool {
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let is_program = name.starts_with(|c: char| c.is_ascii_alphabetic());
    !is_program || QUIET.contains(&name) || QUIET.contains(&plain) || super::reads::looks(plain)
}

impl Walk<'_> {
    /// What a tool that stands in no table is told to run, and the statements that it is given.
    pub(super) fn told(&mut self, name: &str, arguments: &[String], input: &Input) {
        if arguments.is_empty() && input.text.is_none() {
            return;
        }
        self.mapped(name, arguments, input);
        if is_quiet(name) {
            return;
        }
        self.statements(name, arguments, input);
        for pair in arguments.windows(2).take(40) {
            if RUNS.contains(&pair[0].as_str()) && pair[1].contains(' ') && starts_told(&pair[1]) {
                self.script(&pair[1]);
            }
        }
        self.ordered(name, input);
        let said = operands(arguments);
        let other = said.iter().take(MAX_WORDS).any(|word| NAMES_ONLY.contains(word));
        let told = arguments.iter().skip(1).take(8).position(|word| TOLD.contains(&word.as_str()));
        let at_once = arguments.first().is_some_and(|word| TOLD.contains(&word.as_str()));
        match (at_once, told) {
            (true, _) => self.run(arguments, input),
            (false, Some(at)) if !other || arguments[at] == "--" => {
                let rest = arguments[at + 1..].to_vec();
                self.run(&rest, input);
            }
            _ => {}
        }
    }

    /// Orders that a tool is fed, one a line, of which the first word is the deed: `console <<< 'purge volume=x'`.
    fn ordered(&mut self, name: &str, input: &Input) {
        let lines = input.text.iter().flat_map(|text| text.lines()).take(MAX_ORDERS);
        let order = lines.map(str::trim).find(|line| {
            line.split_once(' ').is_some_and(|(first, _)| is_plain(first))
                || line.eq_ignore_ascii_case("changetype: delete")
        });
        if let Some(order) = order.map(str::to_owned) {
            let reach = remote(&[&order]);
            self.effects.harm(HarmKind::Stops, name, &order, reach, Recovery::Elsewhere);
        }
    }

    /// Statements for a database that a tool is given in an option, or as its last word where the tool or its
    /// command is about databases.
    fn statements(&mut self, name: &str, arguments: &[String], input: &Input) {
        let about = |word: &str| {
            Words::of(word).is_database() || word.contains("sql") || word.contains("db")
        };
        let asks = about(name)
            || operands(arguments).iter().take(3).any(|word| about(word) || *word == "exec");
        let last = arguments.last().filter(|word| asks && word.contains(' '));
        let given = arguments
            .windows(2)
            .filter(|pair| ASKS.contains(&pair[0].as_str()))
            .map(|pair| &pair[1]);
        let fed = input.text.as_ref().filter(|_| asks);
        let texts: Vec<String> = given.chain(last).chain(fed).take(4).cloned().collect();
        for text in texts.iter().filter(|text| starts_a_statement(text)) {
            if let Some(found) = sql::of(text) {
                self.effects.absorb(found);
            }
        }
    }

    /// `rails runner 'User.delete_all'`, `manage.py shell -c '…'`: rows that an object mapper deletes.
    pub(super) fn mapped(&mut self, name: &str, arguments: &[String], input: &Input) {
        const MAPPERS: &[&str] = &[
            "rails",
            "rake",
            "python",
            "python3",
            "php",
            "artisan",
            "flask",
            "bundle",
            "django-admin",
            "iex",
            "mix",
        ];
        if !MAPPERS.contains(&name) && !name.ends_with(".py") {
            return;
        }
        let given = arguments.iter().chain(input.text.as_ref()).take(40);
        let found = given
            .filter(|word| word.len() <= 4096)
            .find(|word| MAPPED.iter().any(|call| word.contains(call)));
        if let Some(text) = found.cloned() {
            let kind = HarmKind::Destroys;
            let verb = format!("{name} delete all");
            let reach = remote(&[&text]);
            self.effects.harm(kind, &verb, text.trim(), reach, Recovery::None);
        }
    }

    /// A task of a project whose name says that it empties a database or takes an environment down:
    /// `npm run db:reset`, `make destroy`, `./drop_database.sh`.
    pub(super) fn task(&mut self, runner: &str, task: &str) {
        let name = task.rsplit('/').next().unwrap_or(task);
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        let mut deed = None;
        let mut store = false;
        for part in stem.split(':').take(6) {
            let words = Words::of(part);
            if words.says_otherwise() {
                return;
            }
            deed = deed.or(words.deed());
            store |= words.names_all();
        }
        let whole = matches!(
            stem,
            "destroy" | "nuke" | "teardown" | "tear-down" | "wipe" | "factory-reset"
        );
        if whole || (deed.is_some() && store) {
            // A task of the project is run again and again: it is asked about and not counted.
            let kind = HarmKind::Stops;
            let reach = remote(&[stem]);
            self.effects.harm(kind, runner, task, reach, Recovery::Elsewhere);
        }
    }

    /// The task that a runner of tasks is given.
    pub(super) fn tasks(&mut self, name: &str, arguments: &[String]) {
        if rehearses(arguments) {
            return;
        }
        // `make -n` only tells what it would run.
        if matches!(name, "make" | "gmake" | "just") && arguments.iter().any(|word| word == "-n") {
            return;
        }
        let words: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
        if matches!(name, "yarn" | "pnpm")
            && words.first().is_some_and(|word| INSTALLED.contains(&word.as_str()))
        {
            return self.run(arguments, &Input::default());
        }
        let given = match (name, words.as_slice()) {
            ("npm" | "pnpm" | "yarn" | "bun", [run, task, ..])
                if matches!(run.as_str(), "run" | "run-script") =>
            {
                task
            }
            (
                "yarn" | "make" | "gmake" | "just" | "task" | "rake" | "invoke" | "inv",
                [task, ..],
            ) => task,
            _ => return,
        };
        if is_word(given) {
            self.task(name, &(*given).clone());
        }
    }
}

fn starts_told(text: &str) -> bool {
    let first = text.split_whitespace().next().unwrap_or_default();
    TOLD.contains(&first.rsplit('/').next().unwrap_or(first))
}

fn starts_a_statement(text: &str) -> bool {
    let first = text.split_whitespace().next().unwrap_or_default();
    ["drop", "truncate", "delete", "alter", "update", "grant", "begin", "set", "use", "with"]
        .iter()
        .any(|verb| verb.eq_ignore_ascii_case(first))
}
