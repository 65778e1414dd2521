//! Shells of databases: the statements that they are given, and files of statements.

use deadstop_core::{Effect, Recovery};

use super::super::name::{Deed, Words};
use super::super::{remote, sql, target};
use super::command::value_of;
use super::{Input, Walk};

/// Shells of databases.
pub(super) const DATABASES: &[&str] = &[
    "psql",
    "mysql",
    "mariadb",
    "sqlite3",
    "duckdb",
    "clickhouse-client",
    "sqlcmd",
    "cqlsh",
    "snowsql",
    "cockroach",
    "trino",
    "presto",
    "beeline",
    "hive",
    "spark-sql",
    "usql",
    "mysqlsh",
    "cypher-shell",
];

/// Whether a statement is only its first word.
fn is_lone(text: &str) -> bool {
    ["drop", "truncate", "delete", "alter"].iter().any(|verb| verb.eq_ignore_ascii_case(text))
}

impl Walk<'_> {
    /// A file of statements whose name says that they destroy something: `mysql < drop_all.sql`.
    pub(super) fn statements_file(&mut self, name: &str, file: &str) {
        let last = file.rsplit('/').next().unwrap_or(file);
        let stem = last.rsplit_once('.').map_or(last, |(stem, _)| stem);
        let words = Words::of(stem);
        if !words.says_otherwise() && words.deed() == Some(Deed::Destroys) {
            let reach = remote(&[stem]);
            self.stops(name, file, reach, Recovery::Elsewhere);
        }
    }

    /// Database shells: SQL in an argument or on standard input.
    pub(super) fn database(&mut self, name: &str, arguments: &[String], input: &Input) {
        let mut texts: Vec<String> = Vec::new();
        let flags: &[&str] = match name {
            "psql" => &["-c", "--command"],
            "mysql" | "mariadb" | "cqlsh" | "cockroach" | "hive" | "beeline" | "spark-sql"
            | "mysqlsh" | "trino" | "presto" => &["-e", "--execute"],
            "sqlcmd" => &["-Q", "-q"],
            _ => &["-c", "--query", "-q"],
        };
        for (index, word) in arguments.iter().enumerate() {
            let joined = flags.iter().find_map(|flag| {
                let value = word.strip_prefix(flag)?;
                if flag.starts_with("--") { value.strip_prefix('=') } else { Some(value) }
            });
            if flags.contains(&word.as_str()) {
                texts.extend(arguments.get(index + 1).map(|text| match is_lone(text) {
                    // Quotes get lost on the way through a second shell.
                    true => arguments[index + 1..].join(" "),
                    false => text.clone(),
                }));
            } else if let Some(text) = joined.filter(|text| !text.is_empty()) {
                texts.push(text.to_owned());
            }
        }
        if name == "cypher-shell" {
            texts.extend(arguments.iter().filter(|word| word.contains(' ')).cloned());
        }
        if name == "sqlite3" || (name == "duckdb" && texts.is_empty()) {
            let mut words = arguments.iter().filter(|word| !word.starts_with('-'));
            if words.next().is_some_and(|file| file == ":memory:" || self.is_throwaway(file)) {
                self.effects.raise(Effect::Changes);
                return;
            }
            texts.extend(words.cloned());
        }
        if texts.is_empty() {
            texts.extend(input.text.clone());
        }
        let fed = input.from.iter().skip(1).filter(|_| input.from[0] == "cat");
        let named = value_of(arguments, &["-f", "--file", "-i", "--input-file"]);
        for file in named.iter().chain(fed).take(8) {
            self.statements_file(name, file);
        }
        // Statements that a query makes, and another client runs.
        let made = input.from.first().is_some_and(|from| DATABASES.contains(&from.as_str()));
        if texts.is_empty() && made {
            let query = target::join(&input.from);
            self.unreadable(&query);
        }
        let understood = !texts.is_empty()
            && texts.iter().all(|text| match sql::of(text).or_else(|| sql::of_graph(text)) {
                Some(effects) => {
                    self.effects.absorb(effects);
                    true
                }
                // `\dt`, `.tables`: the shell's own commands, which look around.
                None => text.trim_start().starts_with(['\\', '.']),
            });
        for text in &texts {
            let command = text.trim_start();
            let file = ["source ", "\\i ", "\\. ", ".read "]
                .iter()
                .find_map(|start| command.strip_prefix(start));
            if let Some(file) = file {
                self.statements_file(name, file.trim());
            }
            // Two of them run a command.
            let script = ["\\!", ".shell ", ".system ", "system "]
                .iter()
                .find_map(|start| command.strip_prefix(start));
            if let Some(script) = script {
                self.script(script);
            }
        }
        self.effects.raise(if understood { Effect::Reads } else { Effect::Changes });
    }
}
