//! The API's document: generated from the handlers, completed from the table of who may do what.
//!
//! The handlers say what they answer when all is well. What every route answers when it is not, and
//! which key it takes, follows from its shape and is added here, once.

use axum::extract::State;
use axum::http::header;
use axum::response::{Html, IntoResponse, Response};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use utoipa::openapi::{Info, OpenApi};

use super::App;
use super::auth::{Need, ROUTES, Role};
use super::problem::Code;

/// What the document says about itself.
const ABOUT: &str = "See what runs, stop it, hold it, let it go on; set guards, read incidents. \
    Errors are problem+json with a stable `code`. Lists answer `{items, next}`; `next` is the \
    `cursor` of the next page. Times are milliseconds since 1970, ids are texts.";

/// The document before the handlers are in it.
pub(crate) fn empty() -> OpenApi {
    let mut info = Info::new("Deadstop", env!("CARGO_PKG_VERSION"));
    info.description = Some(ABOUT.to_owned());
    OpenApi::new(info, utoipa::openapi::Paths::new())
}

/// The document with what all routes have in common.
pub(crate) fn complete(document: &OpenApi) -> Value {
    let mut document = serde_json::to_value(document).unwrap_or_default();
    document["components"]["securitySchemes"] = json!({
        "key": { "type": "http", "scheme": "bearer", "description": "A key: ds_…" },
        "key_header": { "type": "apiKey", "in": "header", "name": "x-deadstop-key" },
        "login": { "type": "apiKey", "in": "cookie", "name": "deadstop_login" },
    });
    let paths = document["paths"].as_object_mut();
    for (path, item) in paths.into_iter().flatten() {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            if let Some(operation) = operation.as_object_mut() {
                describe(path, &method.to_ascii_uppercase(), operation);
            }
        }
    }
    document
}

fn describe(path: &str, method: &str, operation: &mut Map<String, Value>) {
    // Handlers of several topics have the same name; programs that read the document want one each.
    let topic = operation.get("tags").and_then(|tags| tags[0].as_str()).unwrap_or_default();
    let name = operation.get("operationId").and_then(Value::as_str).unwrap_or_default();
    let unique = if name.contains(topic) { name.to_owned() } else { format!("{topic}_{name}") };
    operation.insert("operationId".to_owned(), unique.into());
    let need = ROUTES.iter().find(|(m, p, _)| *m == method && *p == path).map(|(_, _, n)| *n);
    let mut statuses = vec![];
    let roles: Vec<_> = need.map(Need::roles).unwrap_or_default();
    if !roles.is_empty() {
        let roles: Vec<_> = roles.into_iter().map(Role::name).collect();
        operation.insert("x-deadstop-roles".to_owned(), json!(roles));
        let schemes = json!([{ "key": [] }, { "key_header": [] }, { "login": [] }]);
        operation.insert("security".to_owned(), schemes);
        statuses.extend([401, 403, 404, 503]);
    }
    if operation.contains_key("requestBody") {
        statuses.extend([400, 413, 415, 422]);
        operation["requestBody"]["required"] = true.into();
    }
    let parameters = operation.get("parameters").and_then(Value::as_array);
    for parameter in parameters.into_iter().flatten() {
        match parameter["in"].as_str() {
            Some("path") => statuses.push(404),
            Some("query") => statuses.extend([400, 422]),
            Some("header") => statuses.extend([412, 428]),
            _ => {}
        }
    }
    let problem = json!({
        "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } }
    });
    if let Some(responses) = operation["responses"].as_object_mut() {
        for status in statuses {
            let codes = Code::ALL.iter().filter(|code| code.status().as_u16() == status);
            let codes: Vec<_> = codes.map(|code| format!("`{}`", code.name())).collect();
            let response = json!({ "description": codes.join(", "), "content": problem });
            responses.entry(status.to_string()).or_insert(response);
        }
    }
}

/// The document.
#[utoipa::path(
    get, path = "/api/openapi.json", tag = "server",
    responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value))
)]
pub(crate) async fn document(State(app): State<Arc<App>>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], app.document.to_string()).into_response()
}

/// The document as a page to read.
#[utoipa::path(
    get, path = "/api/docs", tag = "server",
    responses((status = 200, description = "A page", body = String, content_type = "text/html"))
)]
pub(crate) async fn docs(State(app): State<Arc<App>>) -> Response {
    let policy = "default-src 'none'; style-src 'unsafe-inline'";
    let page = Html(super::docs::page(&app.document));
    ([(header::CONTENT_SECURITY_POLICY, policy)], page).into_response()
}
