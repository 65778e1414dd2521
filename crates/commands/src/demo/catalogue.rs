//! A stand-in for a data catalogue that speaks MCP: assets, schemas and tables. Whatever is deleted
//! there still exists afterwards, as in catalogues that keep a copy somewhere.

use std::io::{BufRead, Write};
use std::net::SocketAddr;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

const ASSETS: [&str; 3] = ["fact_sales", "dim_region", "tmp_import_7"];
const SCHEMAS: [&str; 2] = ["sales", "staging"];
const TABLES: [&str; 3] = ["sales.orders", "sales.refunds", "staging.orders_copy"];

/// Starts it as an MCP server over HTTP; gives where it listens.
pub(super) async fn start(listen: SocketAddr) -> anyhow::Result<SocketAddr> {
    let listener = tokio::net::TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    let routes = Router::new().route("/mcp", post(over_http));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Ok(address)
}

async fn over_http(Json(message): Json<Value>) -> Response {
    match answer(&message) {
        Some(answer) => Json(answer).into_response(),
        None => StatusCode::ACCEPTED.into_response(),
    }
}

/// Speaks MCP on stdio until the client closes stdin.
pub(super) fn over_stdio() -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?).unwrap_or_default();
        if let Some(answer) = answer(&message) {
            writeln!(out, "{answer}")?;
            out.flush()?;
        }
    }
    Ok(())
}

/// What it answers; nothing to a notification.
fn answer(message: &Value) -> Option<Value> {
    let id = message.get("id").filter(|id| !id.is_null())?;
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "catalogue", "version": "1" },
        }),
        "ping" => json!({}),
        "tools/list" => json!({ "tools": tools() }),
        "tools/call" => called(&message["params"]),
        other => {
            let error = json!({ "code": -32601, "message": format!("no method {other}") });
            return Some(json!({ "jsonrpc": "2.0", "id": id, "error": error }));
        }
    };
    Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

fn tools() -> Vec<Value> {
    let tool = |name: &str, about: &str, argument: Option<&str>| {
        let properties = argument.map_or(json!({}), |name| json!({ name: { "type": "string" } }));
        json!({
            "name": name,
            "description": about,
            "inputSchema": {
                "type": "object", "properties": properties, "required": argument.into_iter().collect::<Vec<_>>(),
            },
            "annotations": { "destructiveHint": argument.is_some() && !name.starts_with("get") },
        })
    };
    vec![
        tool("list_assets", "Lists the assets", None),
        tool("get_asset", "Shows an asset", Some("asset_id")),
        tool("delete_asset", "Deletes an asset", Some("asset_id")),
        tool("list_schemas", "Lists the schemas", None),
        tool("drop_schema", "Drops a schema and what is in it", Some("schema")),
        tool("list_tables", "Lists the tables", None),
        tool("drop_table", "Drops a table", Some("table")),
    ]
}

fn called(params: &Value) -> Value {
    let argument = |name: &str| params["arguments"][name].as_str().unwrap_or_default().to_owned();
    let gone = |kind: &str, all: &[&str], name: &str| match all.contains(&name) {
        true => Ok(format!("{kind} still exists")),
        false => Err(format!("there is no {kind} {name}")),
    };
    let said = match params["name"].as_str().unwrap_or_default() {
        "list_assets" => Ok(ASSETS.join("\n")),
        "list_schemas" => Ok(SCHEMAS.join("\n")),
        "list_tables" => Ok(TABLES.join("\n")),
        "get_asset" => Ok(format!("asset {}: owner sales, 3 columns", argument("asset_id"))),
        "delete_asset" => gone("asset", &ASSETS, &argument("asset_id")),
        "drop_schema" => gone("schema", &SCHEMAS, &argument("schema")),
        "drop_table" => gone("table", &TABLES, &argument("table")),
        other => Err(format!("there is no tool {other}")),
    };
    let (text, is_error) = match said {
        Ok(text) => (text, false),
        Err(text) => (text, true),
    };
    json!({ "content": [{ "type": "text", "text": text }], "isError": is_error })
}
