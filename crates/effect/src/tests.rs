//! What calls do, case by case: by their names, their SQL, their requests. Shell commands, which
//! are most of it, are in `tests/commands.rs`.

mod commands;
mod harms;
mod held;
mod limits;
mod readings;
mod table;

use deadstop_core::{Effect, Harm, HarmKind, Severity};
use serde_json::{Value, json};

use super::{Effects, of};

/// What a call loses on one line: `verb target; verb target`. What comes back is not told.
fn told(effects: &Effects) -> String {
    let loses = |harm: &&Harm| {
        use HarmKind::{Destroys, DiscardsWork, RewritesHistory};
        matches!(harm.kind, Destroys | DiscardsWork | RewritesHistory)
            && harm.severity() > Severity::None
    };
    let all: Vec<String> = effects.harms.iter().filter(loses).map(Harm::deed).collect();
    all.join("; ")
}

/// Checks what a call destroys.
#[track_caller]
fn check(tool: &str, arguments: &Value, destroys: &str) {
    assert_eq!(told(&of(tool, arguments)), destroys, "{tool} {arguments}");
}

/// Checks what a call does, when it destroys nothing.
#[track_caller]
fn check_effect(tool: &str, arguments: &Value, effect: Effect) {
    let effects = of(tool, arguments);
    assert_eq!((effects.effect, told(&effects)), (effect, String::new()), "{tool} {arguments}");
}

#[test]
fn names_that_say_delete() {
    let asset = json!({ "asset_id": "fact_sales" });
    for tool in [
        "delete_asset",
        "deleteAsset",
        "DeleteAsset",
        "delete-asset",
        "catalog.delete_asset",
        "destroy_asset",
        "purge_asset",
        "wipe_asset",
        "erase_asset",
        "bulk_delete_assets",
        "s3_delete_object",
        "terminate_instances",
        "remove_file",
        "DELETE_ASSET",
    ] {
        let name = tool.rsplit('.').next().unwrap_or(tool);
        check(tool, &asset, &format!("{name} asset_id=fact_sales"));
    }
    check("mcp__catalog__drop_table", &json!({ "table": "t" }), "drop_table table=t");
    check("truncateTable", &json!({ "schema": "s", "table": "t" }), "truncateTable table=s.t");
}

#[test]
fn names_that_only_sound_like_it() {
    for tool in [
        "undelete_asset",
        "list_deleted_assets",
        "get_delete_status",
        "remove_from_cart",
        "remove_label",
        "remove_user",
        "drag_and_drop",
        "drop",
        "dropdown_select",
        "drop_down_select",
        "truncate_text",
        "delete_lines",
        "drop_duplicates",
        "terminate_session",
        "purge_cache",
        "soft_delete_user",
        "mcp__delete_server__get_item",
        "restore_asset",
        "cancel_deletion",
    ] {
        check(tool, &json!({ "asset_id": "fact_sales" }), "");
    }
    check("delete_asset", &json!({ "asset_id": "a", "dry_run": true }), "");
}

#[test]
fn actions_that_say_delete() {
    check(
        "manage_record",
        &json!({ "action": "delete", "record_id": 7 }),
        "manage_record record_id=7",
    );
    check(
        "memory",
        &json!({ "command": "delete", "path": "/memories/a" }),
        "memory path=/memories/a",
    );
    check("edit_text", &json!({ "operation": "delete", "path": "a.md" }), "");
    check("computer", &json!({ "action": "delete" }), "");
}

#[test]
fn targets() {
    for (arguments, target) in [
        (json!({ "user_id": 12, "name": "Ann" }), " user_id=12"),
        (json!({ "name": "Ann", "reason": "asked" }), " name=Ann"),
        (json!({ "bucket": "b", "note": "x" }), " bucket=b"),
        (json!({ "ids": [1, 2, 3] }), " ids=1,2,3"),
        (json!({ "zone": "eu", "count": 3, "deep": { "a": 1 } }), " count=3 zone=eu"),
        (json!({ "path": "" }), " path="),
        (json!({}), ""),
        (Value::Null, ""),
        (json!("text"), ""),
    ] {
        check("delete_it", &arguments, &format!("delete_it{target}"));
    }
    let long = of("delete_it", &json!({ "path": "é".repeat(500) }));
    assert_eq!(long.harms[0].target.chars().count(), 200);
}

#[test]
fn statements() {
    for (sql, destroys) in [
        ("DROP TABLE fact_sales", "DROP TABLE table=fact_sales"),
        ("drop table if exists \"Fact\".sales cascade;", "DROP TABLE table=Fact.sales"),
        ("DROP DATABASE prod", "DROP DATABASE database=prod"),
        ("DROP SCHEMA s CASCADE", "DROP SCHEMA schema=s"),
        ("DROP MATERIALIZED VIEW v", "DROP MATERIALIZED VIEW materialized_view=v"),
        ("TRUNCATE TABLE a, b", "TRUNCATE table=a,b"),
        ("TRUNCATE a", "TRUNCATE table=a"),
        ("DELETE FROM t", "DELETE table=t"),
        ("DELETE FROM t WHERE id = 1", "DELETE table=t where id = 1"),
        ("delete from `t` where a in (1,2)", "DELETE table=t where a IN (1, 2)"),
        ("DELETE t1 FROM t1 JOIN t2 ON t1.id = t2.id", "DELETE table=t1"),
        ("WITH x AS (DELETE FROM t RETURNING id) SELECT * FROM x", "DELETE table=t"),
        ("ALTER TABLE t DROP COLUMN c", "ALTER TABLE DROP COLUMN column=t.c"),
        ("-- tidy up\nDROP TABLE a; DROP TABLE b", "DROP TABLE table=a; DROP TABLE table=b"),
        ("/* x */ BEGIN; DELETE FROM t; COMMIT;", "DELETE table=t"),
        ("BEGIN; DELETE FROM t; ROLLBACK;", ""),
        ("EXPLAIN ANALYZE DELETE FROM t", "DELETE table=t"),
        ("EXPLAIN DELETE FROM t", ""),
        ("SELECT 'DROP TABLE x'", ""),
        ("SELECT * FROM deleted WHERE note = 'DELETE FROM t'", ""),
        ("UPDATE t SET a = 1", ""),
        ("INSERT INTO t VALUES ('DROP TABLE t;')", ""),
        ("ALTER TABLE t ADD COLUMN c INT", ""),
        ("ALTER TABLE t DROP CONSTRAINT c", ""),
        ("DROP TEMPORARY TABLE t", ""),
        ("CREATE TABLE t (id INT REFERENCES o ON DELETE CASCADE)", ""),
        ("CREATE TRIGGER x AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()", ""),
        ("GRANT DELETE ON t TO u", ""),
        ("DROP TABEL t", ""),
    ] {
        check("run_sql", &json!({ "sql": sql }), destroys);
        check("mcp__postgres__query", &json!({ "query": sql }), destroys);
    }
    check("db", &json!({ "statements": ["SELECT 1", "DROP TABLE a"] }), "DROP TABLE table=a");
}

#[test]
fn statements_in_other_arguments() {
    check("execute_sql", &json!({ "command": "DROP TABLE a" }), "DROP TABLE table=a");
    check("query_database", &json!({ "text": "TRUNCATE TABLE a" }), "TRUNCATE table=a");
    check("database_shell", &json!({ "command": "rm -rf data" }), "rm -rf data");
    check("say", &json!({ "text": "DROP TABLE a" }), "");
}

#[test]
fn calls_carried_by_calls() {
    let inner = json!({ "tool_name": "delete_asset", "params": { "asset_id": "a" } });
    check("execute-tool", &inner, "delete_asset asset_id=a");
    let inner = json!({ "tool_name": "list_assets", "arguments": {} });
    check_effect("call_tool", &inner, Effect::Reads);
}

#[test]
fn search_words_are_not_statements() {
    for (tool, words) in [
        ("web_search", "delete from cart button not working"),
        ("search_documentation", "DROP TABLE syntax"),
        ("mcp__context7__query-docs", "truncate table"),
        ("ask", "delete old files"),
        ("find_products", "drop shipping suppliers"),
        ("run_query", "delete old files"),
        ("run_query", "truncate the table that is unused please"),
    ] {
        check(tool, &json!({ "query": words }), "");
    }
}

#[test]
fn requests() {
    let url = "https://ann:secret@api.example.com/v1/users/7?token=abc#top";
    let place = "DELETE https://api.example.com/v1/users/7";
    check("http_request", &json!({ "method": "DELETE", "url": url }), place);
    check("http_request", &json!({ "method": "delete", "url": url }), place);
    check("api", &json!({ "method": "DELETE", "endpoint": "/v1/users/7" }), "DELETE /v1/users/7");
    check("api", &json!({ "method": "DELETE" }), "");
    check_effect("api", &json!({ "method": "GET", "url": url }), Effect::Reads);
    check_effect("api", &json!({ "method": "head", "uri": "/x" }), Effect::Reads);
    check_effect("api", &json!({ "method": "POST", "url": url }), Effect::Changes);
}

#[test]
fn effects_by_name() {
    let cases: &[(Effect, &[&str])] = &[
        (
            Effect::Inert,
            &[
                "think",
                "sequentialthinking",
                "mcp__sequential-thinking__sequentialthinking",
                "TodoWrite",
                "TodoRead",
                "todo_write",
                "write_todos",
                "update_plan",
                "TaskCreate",
                "TaskUpdate",
                "TaskList",
                "noop",
                "no_op",
                "sleep",
                "wait",
                "wait_for",
                "ExitPlanMode",
            ],
        ),
        (
            Effect::Reads,
            &[
                "get_user",
                "list_files",
                "Read",
                "Grep",
                "Glob",
                "LS",
                "search",
                "web_search",
                "WebFetch",
                "WebSearch",
                "fetch_page",
                "view_image",
                "describeTable",
                "check_status",
                "lookup",
                "calculate_total",
                "count_rows",
                "mcp__ide__getDiagnostics",
                "query",
                "file_search",
            ],
        ),
        (
            Effect::Changes,
            &[
                "Write",
                "Edit",
                "create_issue",
                "send_email",
                "task_create",
                "create_list",
                "book",
                "",
                "get_or_create_user",
                "find_and_replace",
                "check_out_cart",
                "checkout",
                "mark_as_read",
                "x",
                "reader",
                "listen",
                "wind",
                "Task",
                "🦀",
            ],
        ),
    ];
    for (effect, tools) in cases {
        for tool in *tools {
            check_effect(tool, &json!({}), *effect);
        }
    }
}

#[test]
fn effects_by_arguments() {
    check_effect("query", &json!({ "sql": "SELECT 1" }), Effect::Reads);
    check_effect(
        "run_sql",
        &json!({ "sql": "WITH a AS (SELECT 1) SELECT * FROM a" }),
        Effect::Reads,
    );
    check_effect("run_sql", &json!({ "sql": "EXPLAIN DELETE FROM t" }), Effect::Reads);
    check_effect("run_sql", &json!({ "sql": "SHOW TABLES" }), Effect::Reads);
    check_effect("query", &json!({ "sql": "UPDATE t SET a = 1" }), Effect::Changes);
    check_effect("run_sql", &json!({ "sql": "SELECT * INTO a FROM b" }), Effect::Changes);
    check_effect(
        "run_sql",
        &json!({ "sql": "WITH x AS (INSERT INTO t VALUES (1) RETURNING 1) SELECT 1" }),
        Effect::Changes,
    );
    check_effect("query", &json!({ "sql": "DELETE FORM t" }), Effect::Changes);
    check_effect("str_replace_editor", &json!({ "command": "view", "path": "a" }), Effect::Reads);
    check_effect(
        "str_replace_editor",
        &json!({ "command": "create", "path": "a" }),
        Effect::Changes,
    );
}
