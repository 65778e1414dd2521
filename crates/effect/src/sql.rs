//! SQL that a tool or a command line would run.
//!
//! It is parsed, so that `SELECT 'DROP TABLE x'` and words typed into a search box are what they
//! are. What no dialect understands destroys nothing.

use std::ops::ControlFlow;

use deadstop_core::{Effect, HarmKind, Reach, Recovery};
use sqlparser::ast::{
    AlterTableOperation, CopyTarget, Delete, Expr, FromTable, MergeAction, MergeClause, ObjectType,
    Query, Statement, TableFactor, Visit, Visitor,
};
use sqlparser::dialect::{Dialect, GenericDialect, MySqlDialect, PostgreSqlDialect, SQLiteDialect};
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::{Effects, remote};

/// Longer texts are bulk data, and would be slow to parse on every call.
const MAX_TEXT: usize = 64 * 1024;

/// A chain of operators becomes a tree as deep as it is long, which is walked and dropped
/// recursively.
const MAX_OPERATORS: usize = 300;

/// What these statements do, or `None` when they are not SQL.
pub(super) fn of(text: &str) -> Option<Effects> {
    inside(text, 0)
}

/// Statements that are read one by one where they cannot be read together.
const MAX_PARTS: usize = 50;

/// Statements inside statements are followed this deep.
const MAX_DEPTH: u8 = 3;

fn inside(text: &str, depth: u8) -> Option<Effects> {
    if text.len() > MAX_TEXT || depth > MAX_DEPTH {
        return None;
    }
    // What MySQL carries out although it stands in a comment.
    if text.contains("/*!") {
        let plain = text.replace("*/", " ");
        return inside(&plain.split("/*!").map(unversioned).collect::<String>(), depth + 1);
    }
    if let Some(inner) = carried(text) {
        return inside(&inner, depth + 1).or(Some(Effects::only(Effect::Changes)));
    }
    if !starts_like_sql(text) {
        return None;
    }
    if let Some(found) = administers(text) {
        return Some(found);
    }
    let Some(statements) = parse(text) else {
        // One statement that no dialect knows must not hide the others.
        let parts: Vec<&str> =
            text.split(';').map(str::trim).filter(|part| !part.is_empty()).collect();
        if (2..=MAX_PARTS).contains(&parts.len()) && !text.contains(['\'', '"', '$']) {
            let mut effects = Effects::only(Effect::Changes);
            parts.iter().filter_map(|part| inside(part, depth + 1)).for_each(|e| effects.absorb(e));
            return (!effects.harms.is_empty()).then_some(effects);
        }
        return plain_words(text);
    };
    let mut effects = Effects::only(Effect::Inert);
    for statement in &statements {
        run(statement, &mut effects);
    }
    (!statements.is_empty()).then_some(effects)
}

/// What a Cypher query deletes, or `None` when it is none: `MATCH (n) DETACH DELETE n`.
pub(super) fn of_graph(text: &str) -> Option<Effects> {
    let first = first_word(text);
    let starts = ["match", "optional", "unwind", "call", "merge", "create"];
    if text.len() > MAX_TEXT || !starts.iter().any(|word| word.eq_ignore_ascii_case(first)) {
        return None;
    }
    let upper = text.to_ascii_uppercase();
    let mut effects = Effects::only(Effect::Reads);
    if upper.split_whitespace().any(|word| word == "DELETE") {
        let narrow = upper.contains("WHERE") || upper.contains('{');
        let target = super::target::clip(text.trim());
        match narrow {
            true => effects.destroy_by_name("DELETE", &target),
            false => effects.destroy("DELETE", &target),
        }
    }
    Some(effects)
}

fn unversioned(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_ascii_digit())
}

/// The statement inside a statement that runs it: a block of its own, or a text.
fn carried(text: &str) -> Option<String> {
    let rest = text.trim_start();
    let word = first_word(rest);
    if word.eq_ignore_ascii_case("do") {
        let open = rest.find('$')?;
        let tag = &rest[open..=open + 1 + rest[open + 1..].find('$')?];
        let body = rest[open + tag.len()..].split(tag).next()?.trim();
        let lower = body.to_ascii_lowercase();
        let from = lower.find("begin").map_or(0, |at| at + "begin".len());
        let to = lower.rfind("end").filter(|at| *at > from).unwrap_or(body.len());
        return body.get(from..to).map(str::to_owned);
    }
    let runs = word.eq_ignore_ascii_case("exec") || word.eq_ignore_ascii_case("execute");
    let open = rest.find('\'').filter(|_| runs)?;
    let close = rest.rfind('\'').filter(|close| *close > open)?;
    Some(rest[open + 1..close].replace("\'\'", "\'"))
}

/// What no dialect understands may still say in its first words what it is about, and say nothing
/// else: `DROP USER bob`, `DELETE TOP (10) FROM t`.
fn plain_words(text: &str) -> Option<Effects> {
    let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize().ok()?;
    let mut effects = Effects::only(Effect::Changes);
    for statement in tokens.split(|token| *token == Token::SemiColon) {
        let words: Vec<String> = statement
            .iter()
            .filter(|token| !matches!(token, Token::Whitespace(_)))
            .map(|token| match token {
                Token::Word(word) => word.value.clone(),
                other => other.to_string(),
            })
            .collect();
        let upper: Vec<String> = words.iter().map(|word| word.to_ascii_uppercase()).collect();
        let upper: Vec<&str> = upper.iter().map(String::as_str).collect();
        match upper.as_slice() {
            ["DROP", "INDEX", "CONCURRENTLY", rest @ ..] if (1..=3).contains(&rest.len()) => {
                let name = words.last().map_or("", String::as_str);
                effects.destroy("DROP INDEX", &format!("index={name}"));
            }
            ["DROP", kind, rest @ ..] if DROPPED.contains(kind) && rest.len() <= 8 => {
                let at = if rest.starts_with(&["IF", "EXISTS"]) { 4 } else { 2 };
                let rest = &upper[at.min(upper.len())..];
                let names = rest.iter().take_while(|word| !AFTER_NAMES.contains(word)).count();
                let after = rest.get(names..).unwrap_or(&[]);
                let names = &words[at.min(words.len())..(at + names).min(words.len())];
                // Names are joined by dots and commas; words in a row are English.
                let english = names.windows(2).any(|pair| pair.iter().all(|w| is_name(w)));
                if !names.is_empty() && !english && after.iter().all(|w| AFTER_NAMES.contains(w)) {
                    let target = format!("{}={}", kind.to_ascii_lowercase(), names.concat());
                    effects.destroy(&format!("DROP {kind}"), &target);
                }
            }
            ["DROP", "OWNED", "BY", ..] => {
                effects.destroy("DROP OWNED", &words[3..].concat());
            }
            ["DELETE", "TOP", "(", _, ")", "FROM", table, ..] => {
                effects.destroy_by_name("DELETE", &format!("table={}", table.to_ascii_lowercase()));
            }
            ["ALTER", "TABLE", table, "DELETE", ..] => {
                let table = table.to_ascii_lowercase();
                effects.destroy("ALTER TABLE DELETE", &format!("table={table}"));
            }
            ["ALTER", "TABLE", table, "DROP" | "TRUNCATE", "PARTITION", ..] => {
                let table = table.to_ascii_lowercase();
                effects.destroy("ALTER TABLE DROP PARTITION", &format!("table={table}"));
            }
            _ => {}
        }
    }
    (!effects.harms.is_empty()).then_some(effects)
}

/// Statements about the server itself, which other databases read as something else: `RESET MASTER`.
fn administers(text: &str) -> Option<Effects> {
    let upper = text.get(..64).unwrap_or(text).to_ascii_uppercase();
    let words: Vec<&str> = upper.trim_end_matches([';', ' ', '\n']).split_whitespace().collect();
    let mut effects = Effects::only(Effect::Changes);
    match words.as_slice() {
        ["RESET", what @ ("MASTER" | "SLAVE" | "REPLICA" | "BINARY"), ..] => {
            effects.destroy(&format!("RESET {what}"), "");
        }
        ["PURGE", what @ ("BINARY" | "MASTER"), "LOGS", ..] => {
            effects.destroy(&format!("PURGE {what} LOGS"), "");
        }
        ["ALTER", "SYSTEM", "RESET", ..] => {
            let kind = HarmKind::Stops;
            effects.harm(kind, "ALTER SYSTEM RESET", "", Reach::Remote, Recovery::Elsewhere);
        }
        ["ALTER", "ROLE" | "USER", name, rest @ ..] if rest.contains(&"SUPERUSER") => {
            let (kind, name) = (HarmKind::OpensAccess, name.to_ascii_lowercase());
            effects.harm(kind, "SUPERUSER", &name, Reach::Remote, Recovery::Elsewhere);
        }
        ["KILL", rest @ ..]
            if rest.last().is_some_and(|id| id.bytes().all(|b| b.is_ascii_digit())) =>
        {
            let kind = HarmKind::Stops;
            effects.harm(kind, "KILL", rest[rest.len() - 1], Reach::Remote, Recovery::Elsewhere);
        }
        ["DETACH", "TABLE" | "DATABASE" | "VIEW" | "DICTIONARY", name, ..] => {
            let (kind, name) = (HarmKind::Stops, name.to_ascii_lowercase());
            effects.harm(kind, "DETACH", &name, Reach::Remote, Recovery::Elsewhere);
        }
        ["SHUTDOWN"] => {
            let kind = HarmKind::Stops;
            effects.harm(kind, "SHUTDOWN", "", Reach::Remote, Recovery::Elsewhere);
        }
        _ => return None,
    }
    Some(effects)
}

fn is_name(word: &str) -> bool {
    word.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// What a DROP can be about that not every parser knows.
const DROPPED: &[&str] = &[
    "TABLE",
    "DATABASE",
    "SCHEMA",
    "VIEW",
    "INDEX",
    "USER",
    "ROLE",
    "KEYSPACE",
    "COLLECTION",
    "TABLESPACE",
    "WAREHOUSE",
    "STAGE",
    "DATASET",
    "BUCKET",
    "CATALOG",
    "SERVER",
    "EVENT",
    "PUBLICATION",
    "SUBSCRIPTION",
    "MEASUREMENT",
    "SERIES",
    "STREAM",
    "PIPE",
    "TASK",
];

/// What may stand behind the names.
const AFTER_NAMES: &[&str] = &["CASCADE", "RESTRICT", "PURGE", "CONSTRAINTS", "FORCE", "SYNC"];

fn parse(text: &str) -> Option<Vec<Statement>> {
    let dialects: [&dyn Dialect; 4] =
        [&GenericDialect {}, &PostgreSqlDialect {}, &MySqlDialect {}, &SQLiteDialect {}];
    dialects.into_iter().find_map(|dialect| {
        let tokens = Tokenizer::new(dialect, text).tokenize_with_location().ok()?;
        if operators(&tokens) > MAX_OPERATORS {
            return None;
        }
        Parser::new(dialect).with_tokens_with_locations(tokens).parse_statements().ok()
    })
}

/// The longest chain of operators in any statement.
fn operators(tokens: &[TokenWithSpan]) -> usize {
    let (mut longest, mut here) = (0, 0);
    for token in tokens {
        match &token.token {
            Token::SemiColon => here = 0,
            Token::Comma | Token::Whitespace(_) | Token::Period | Token::SingleQuotedString(_) => {}
            Token::Number(..) | Token::LParen | Token::RParen => {}
            Token::Word(word) => {
                let joins = [
                    Keyword::AND,
                    Keyword::OR,
                    Keyword::UNION,
                    Keyword::EXCEPT,
                    Keyword::INTERSECT,
                ];
                let chains =
                    [Keyword::IS, Keyword::NOT, Keyword::JOIN, Keyword::COLLATE, Keyword::AT];
                here +=
                    usize::from(joins.contains(&word.keyword) || chains.contains(&word.keyword));
            }
            _ => here += 1,
        }
        longest = longest.max(here);
    }
    longest
}

/// Whether a text that is no SQL was meant to be a statement that changes something.
pub(super) fn means_to_change(text: &str) -> bool {
    MUTATIONS.iter().any(|word| word.eq_ignore_ascii_case(first_word(text)))
}

fn starts_like_sql(text: &str) -> bool {
    let word = first_word(text);
    STARTS.iter().chain(MUTATIONS).any(|start| start.eq_ignore_ascii_case(word))
}

/// The first word after comments and brackets.
fn first_word(text: &str) -> &str {
    let mut text = text.trim_start();
    loop {
        let skipped = if let Some(rest) = text.strip_prefix("--") {
            rest.split_once('\n').map_or("", |(_, rest)| rest)
        } else if let Some(rest) = text.strip_prefix("/*") {
            rest.split_once("*/").map_or("", |(_, rest)| rest)
        } else {
            text.strip_prefix(['(', ';']).unwrap_or(text)
        };
        if skipped.len() == text.len() {
            break;
        }
        text = skipped.trim_start();
    }
    let end = text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
    &text[..end]
}

const MUTATIONS: &[&str] = &[
    "insert", "update", "delete", "drop", "truncate", "alter", "create", "grant", "revoke",
    "merge", "replace",
];

const STARTS: &[&str] = &[
    "select",
    "with",
    "explain",
    "show",
    "describe",
    "desc",
    "pragma",
    "begin",
    "start",
    "commit",
    "rollback",
    "end",
    "set",
    "use",
    "call",
    "vacuum",
    "analyze",
    "copy",
    "values",
    "table",
    "lock",
    "comment",
    "savepoint",
    "release",
    "flush",
    "reset",
    "purge",
    "shutdown",
    "kill",
    "detach",
];

/// Adds what one top-level statement does.
fn run(statement: &Statement, effects: &mut Effects) {
    match statement {
        // EXPLAIN only plans; EXPLAIN ANALYZE carries the statement out.
        Statement::Explain { analyze, options, statement, .. } => {
            let analyzes = *analyze
                || options.iter().flatten().any(|o| o.name.value.eq_ignore_ascii_case("analyze"));
            effects.raise(Effect::Reads);
            if analyzes {
                run(statement, effects);
            }
        }
        // A body that is only stored.
        Statement::CreateFunction(_)
        | Statement::CreateTrigger(_)
        | Statement::CreateProcedure { .. }
        | Statement::CreatePolicy(_)
        | Statement::Prepare { .. } => effects.raise(Effect::Changes),
        Statement::StartTransaction { .. } | Statement::Commit { .. } => {}
        Statement::Rollback { savepoint, .. } => {
            if savepoint.is_none() {
                effects.harms.clear();
            }
        }
        _ => {
            // The visitor never breaks.
            let _ = statement.visit(&mut Collector { effects });
        }
    }
}

struct Collector<'a> {
    effects: &'a mut Effects,
}

impl Visitor for Collector<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let into = query.body.as_select().is_some_and(|select| select.into.is_some());
        self.effects.raise(if into { Effect::Changes } else { Effect::Reads });
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expression {
            let name = function.name.to_string().to_ascii_lowercase();
            if STOPPING.contains(&name.rsplit('.').next().unwrap_or(&name)) {
                let target = function.args.to_string();
                let kind = HarmKind::Stops;
                self.effects.harm(kind, &name, &target, Reach::Remote, Recovery::Elsewhere);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<()> {
        one(statement, self.effects);
        ControlFlow::Continue(())
    }
}

/// Functions with which a query ends connections or takes something away.
const STOPPING: &[&str] = &[
    "pg_terminate_backend",
    "pg_drop_replication_slot",
    "pg_switch_wal",
    "lo_unlink",
    "cron_unschedule",
    "pg_promote",
];

fn one(statement: &Statement, effects: &mut Effects) {
    match statement {
        Statement::Query(_) => effects.raise(Effect::Reads),
        Statement::Drop { temporary: true, .. } => effects.raise(Effect::Changes),
        Statement::Drop { object_type, names, .. } => {
            let kind = kind(*object_type);
            effects.destroy(&format!("DROP {object_type}"), &format!("{kind}={}", plain(names)));
        }
        Statement::Truncate(truncate) => {
            let names: Vec<_> = truncate.table_names.iter().map(|table| &table.name).collect();
            effects.destroy("TRUNCATE", &format!("table={}", plain(&names)));
        }
        Statement::Delete(delete) => match deleted(delete) {
            // Some rows go, and the statement says which.
            Some(target) if delete.selection.as_ref().is_some_and(chooses) => {
                effects.destroy_by_name("DELETE", &target);
            }
            Some(target) => effects.destroy("DELETE", &target),
            None => effects.raise(Effect::Changes),
        },
        Statement::Update(update) if !update.selection.as_ref().is_some_and(chooses) => {
            // Every row is written over. In a project's own database that is a day's work, so that it is asked
            // about and not counted.
            let target = format!("table={}", plain(&[&update.table]));
            let narrow = update.limit.is_some() || update.from.is_some();
            effects.raise(Effect::Changes);
            if !narrow {
                let reach = remote(&[&target]);
                effects.harm(HarmKind::Stops, "UPDATE", &target, reach, Recovery::Elsewhere);
            }
        }
        Statement::Grant(grant) => {
            let text = grant.to_string();
            let public = text.to_ascii_uppercase().trim_end().ends_with("TO PUBLIC")
                || text.to_ascii_uppercase().starts_with("GRANT ALL");
            effects.raise(Effect::Changes);
            if public {
                let reach = remote(&[&text]);
                effects.harm(HarmKind::OpensAccess, "GRANT", &text, reach, Recovery::Elsewhere);
            }
        }
        Statement::Revoke(revoke) => {
            let text = revoke.to_string();
            let reach = remote(&[&text]);
            effects.harm(HarmKind::Stops, "REVOKE", &text, reach, Recovery::Elsewhere);
        }
        Statement::Copy { target: CopyTarget::Program { command }, .. } => {
            let reach = Reach::Remote;
            effects.harm(
                HarmKind::OpensAccess,
                "COPY PROGRAM",
                command,
                reach,
                Recovery::Elsewhere,
            );
        }
        Statement::Merge(merge) => {
            effects.raise(Effect::Changes);
            let deletes =
                |clause: &MergeClause| matches!(clause.action, MergeAction::Delete { .. });
            if merge.clauses.iter().any(deletes) {
                effects.destroy("MERGE DELETE", &format!("table={}", plain(&[&merge.table])));
            }
        }
        Statement::CreateTable(create) if create.or_replace && !create.temporary => {
            let target = format!("table={}", plain(&[&create.name]));
            effects.destroy("CREATE OR REPLACE TABLE", &target);
        }
        Statement::AlterTable(alter) => {
            effects.raise(Effect::Changes);
            for operation in &alter.operations {
                let table = plain(&[&alter.name]);
                match operation {
                    AlterTableOperation::DropColumn { column_names, .. } => {
                        let target = format!("column={table}.{}", plain(column_names));
                        effects.destroy("ALTER TABLE DROP COLUMN", &target);
                    }
                    AlterTableOperation::DisableRowLevelSecurity => {
                        let target = format!("table={table}");
                        effects.harm(
                            HarmKind::OpensAccess,
                            "DISABLE ROW LEVEL SECURITY",
                            &target,
                            remote(&[&target]),
                            Recovery::Elsewhere,
                        );
                    }
                    AlterTableOperation::DropPartitions { partitions, .. } => {
                        let target = format!("partition={table}.{}", plain(partitions));
                        effects.destroy("ALTER TABLE DROP PARTITION", &target);
                    }
                    _ => {}
                }
            }
        }
        Statement::DropFunction(drop) => {
            effects.destroy("DROP FUNCTION", &format!("function={}", plain(&drop.func_desc)));
        }
        Statement::DropProcedure { proc_desc, .. } => {
            effects.destroy("DROP PROCEDURE", &format!("procedure={}", plain(proc_desc)));
        }
        Statement::DropTrigger(drop) => {
            effects.destroy("DROP TRIGGER", &format!("trigger={}", plain(&[&drop.trigger_name])));
        }
        Statement::DropExtension(drop) => {
            effects.destroy("DROP EXTENSION", &format!("extension={}", plain(&drop.names)));
        }
        Statement::Pragma { value: None, .. } => effects.raise(Effect::Reads),
        Statement::Explain { .. } | Statement::ExplainTable { .. } | Statement::Use(_) => {
            effects.raise(Effect::Reads);
        }
        other => effects.raise(if shows(other) { Effect::Reads } else { Effect::Changes }),
    }
}

fn shows(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::ShowFunctions { .. }
            | Statement::ShowVariable { .. }
            | Statement::ShowStatus { .. }
            | Statement::ShowVariables { .. }
            | Statement::ShowCreate { .. }
            | Statement::ShowColumns { .. }
            | Statement::ShowCatalogs { .. }
            | Statement::ShowDatabases { .. }
            | Statement::ShowProcessList { .. }
            | Statement::ShowSchemas { .. }
            | Statement::ShowObjects(_)
            | Statement::ShowTables { .. }
            | Statement::ShowViews { .. }
    )
}

/// Whether a condition chooses among rows: `1 = 1` and `true` are met by all.
fn chooses(condition: &Expr) -> bool {
    let text: String =
        condition.to_string().chars().filter(|c| !c.is_whitespace()).take(64).collect();
    let same = text.split_once('=').is_some_and(|(left, right)| {
        left == right && left.bytes().all(|b| b.is_ascii_digit() || b == b'\'')
    });
    !same && !text.eq_ignore_ascii_case("true") && text != "1"
}

/// The table and the rows; other rows are another target. Without FROM it is as likely to be
/// English, so that it counts for nothing.
fn deleted(delete: &Delete) -> Option<String> {
    let FromTable::WithFromKeyword(from) = &delete.from else {
        return None;
    };
    let tables = if delete.tables.is_empty() {
        let names = from.iter().filter_map(|table| match &table.relation {
            TableFactor::Table { name, .. } => Some(name),
            _ => None,
        });
        plain(&names.collect::<Vec<_>>())
    } else {
        plain(&delete.tables)
    };
    Some(match &delete.selection {
        Some(rows) => format!("table={tables} where {rows}"),
        None => format!("table={tables}"),
    })
}

fn kind(object: ObjectType) -> String {
    object.to_string().to_ascii_lowercase().replace(' ', "_")
}

/// Names without their quotes, joined by a comma.
fn plain<T: ToString>(names: &[T]) -> String {
    let names: Vec<String> =
        names.iter().map(|name| name.to_string().replace(['"', '`', '[', ']'], "")).collect();
    names.join(",")
}
