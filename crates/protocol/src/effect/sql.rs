//! SQL that a tool or a command line would run.
//!
//! It is parsed, so that `SELECT 'DROP TABLE x'` and words typed into a search box are what they
//! are. What no dialect understands destroys nothing.

use std::ops::ControlFlow;

use deadstop_core::Effect;
use sqlparser::ast::{
    AlterTableOperation, Delete, FromTable, ObjectType, Query, Statement, TableFactor, Visit,
    Visitor,
};
use sqlparser::dialect::{Dialect, GenericDialect, MySqlDialect, PostgreSqlDialect, SQLiteDialect};
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::Effects;

/// Longer texts are bulk data, and would be slow to parse on every call.
const MAX_TEXT: usize = 64 * 1024;

/// A chain of operators becomes a tree as deep as it is long, which is walked and dropped
/// recursively.
const MAX_OPERATORS: usize = 300;

/// What these statements do, or `None` when they are not SQL.
pub(super) fn of(text: &str) -> Option<Effects> {
    if text.len() > MAX_TEXT || !starts_like_sql(text) {
        return None;
    }
    let statements = parse(text)?;
    let mut effects = Effects::only(Effect::Inert);
    for statement in &statements {
        run(statement, &mut effects);
    }
    (!statements.is_empty()).then_some(effects)
}

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
                effects.destroys.clear();
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

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<()> {
        one(statement, self.effects);
        ControlFlow::Continue(())
    }
}

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
            Some(target) => effects.destroy("DELETE", &target),
            None => effects.raise(Effect::Changes),
        },
        Statement::AlterTable(alter) => {
            effects.raise(Effect::Changes);
            for operation in &alter.operations {
                if let AlterTableOperation::DropColumn { column_names, .. } = operation {
                    let target =
                        format!("column={}.{}", plain(&[&alter.name]), plain(column_names));
                    effects.destroy("ALTER TABLE DROP COLUMN", &target);
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
