//! The API's document as one HTML page, without scripts and external resources.

use std::fmt::Write as _;

use serde_json::Value;

use super::problem::Code;

const STYLE: &str = "
:root { color-scheme: light dark; --soft: color-mix(in srgb, currentColor 12%, transparent) }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
code, pre { font: 14px/1.45 ui-monospace, monospace }
h2 { margin-top: 3rem; border-bottom: 1px solid var(--soft) }
details { border: 1px solid var(--soft); border-radius: 6px; margin: .5rem 0; padding: .3rem .8rem }
summary { cursor: pointer } summary b { display: inline-block; width: 4.5rem }
summary small { float: right; opacity: .7 }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; vertical-align: top;
  padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--soft) }
pre { background: var(--soft); padding: .6rem; border-radius: 6px; overflow: auto }
nav a { margin-right: 1rem }
";

/// Deeper than any of our types.
const DEEPEST: usize = 6;

/// The page.
pub(crate) fn page(document: &Value) -> String {
    let mut out = String::with_capacity(128 * 1024);
    let title = escape(document["info"]["title"].as_str().unwrap_or_default());
    let version = escape(document["info"]["version"].as_str().unwrap_or_default());
    let about = escape(document["info"]["description"].as_str().unwrap_or_default());
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title} API</title><style>{STYLE}</style>\
         <h1>{title} API <small>{version}</small></h1><p>{about}</p>\
         <p>The same for programs: <a href=\"/api/openapi.json\">/api/openapi.json</a>.</p>"
    );
    let tags = tags(document);
    out.push_str("<nav>");
    for tag in &tags {
        let _ = write!(out, "<a href=\"#{0}\">{0}</a>", escape(tag));
    }
    out.push_str("<a href=\"#errors\">errors</a></nav>");
    for tag in &tags {
        let _ = write!(out, "<h2 id=\"{0}\">{0}</h2>", escape(tag));
        for (path, method, operation) in operations(document) {
            if tag_of(operation) == tag {
                write_operation(&mut out, document, path, method, operation);
            }
        }
    }
    out.push_str("<h2 id=\"errors\">errors</h2><table><tr><th>status<th>code<th>meaning</tr>");
    for code in Code::ALL {
        let (status, name) = (code.status().as_u16(), code.name());
        let meaning = escape(code.meaning().trim());
        let _ = write!(out, "<tr><td>{status}<td><code>{name}</code><td>{meaning}</tr>");
    }
    out.push_str("</table></html>");
    out
}

fn operations(document: &Value) -> impl Iterator<Item = (&str, &str, &Value)> {
    document["paths"].as_object().into_iter().flatten().flat_map(|(path, item)| {
        let operations = item.as_object().into_iter().flatten();
        operations.map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
    })
}

fn tag_of(operation: &Value) -> &str {
    operation["tags"][0].as_str().unwrap_or("server")
}

fn tags(document: &Value) -> Vec<String> {
    let mut tags: Vec<_> =
        operations(document).map(|(_, _, operation)| tag_of(operation).to_owned()).collect();
    tags.sort();
    tags.dedup();
    tags
}

fn write_operation(out: &mut String, document: &Value, path: &str, method: &str, op: &Value) {
    let roles = op["x-deadstop-roles"].as_array().into_iter().flatten();
    let roles: Vec<_> = roles.filter_map(Value::as_str).collect();
    let role = if roles.is_empty() { "no key needed".to_owned() } else { roles.join(", ") };
    let summary = escape(op["summary"].as_str().unwrap_or_default());
    let _ = write!(
        out,
        "<details><summary><b>{}</b><code>{}</code> <small>{role}</small><br>{summary}</summary>",
        escape(&method.to_ascii_uppercase()),
        escape(path),
    );
    if let Some(description) = op["description"].as_str() {
        let _ = write!(out, "<p>{}</p>", escape(description));
    }
    let parameters = op["parameters"].as_array();
    if let Some(parameters) = parameters.filter(|parameters| !parameters.is_empty()) {
        out.push_str("<table><tr><th>parameter<th>in<th>meaning</tr>");
        for parameter in parameters {
            let text = |key: &str| escape(parameter[key].as_str().unwrap_or_default());
            let (name, place, about) = (text("name"), text("in"), text("description"));
            let _ = write!(out, "<tr><td><code>{name}</code><td>{place}<td>{about}</tr>");
        }
        out.push_str("</table>");
    }
    let schema = &op["requestBody"]["content"]["application/json"]["schema"];
    if !schema.is_null() {
        let _ = write!(out, "<p>Body:</p><pre>{}</pre>", escape(&shape(document, schema, 0)));
    }
    for (status, response) in op["responses"].as_object().into_iter().flatten() {
        let about = escape(response["description"].as_str().unwrap_or_default());
        let _ = write!(out, "<p><b>{}</b> {about}</p>", escape(status));
        let schema = &response["content"]["application/json"]["schema"];
        if !schema.is_null() {
            let _ = write!(out, "<pre>{}</pre>", escape(&shape(document, schema, 0)));
        }
    }
    out.push_str("</details>");
}

/// A schema as people write JSON: names, types, and what they mean.
fn shape(document: &Value, schema: &Value, depth: usize) -> String {
    if depth > DEEPEST {
        return "…".to_owned();
    }
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
        return shape(document, &document["components"]["schemas"][name], depth);
    }
    for choice in ["oneOf", "anyOf", "allOf"] {
        if let Some(options) = schema[choice].as_array() {
            let shapes: Vec<_> =
                options.iter().map(|option| shape(document, option, depth)).collect();
            return shapes.join(if choice == "allOf" { " & " } else { " | " });
        }
    }
    if let Some(words) = schema["enum"].as_array() {
        return words.iter().map(Value::to_string).collect::<Vec<_>>().join(" | ");
    }
    let pad = "  ".repeat(depth + 1);
    let kind = match &schema["type"] {
        Value::Array(kinds) => {
            kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" | ")
        }
        kind => kind.as_str().unwrap_or("anything").to_owned(),
    };
    if let Some(fields) = schema["properties"].as_object() {
        let required = schema["required"].as_array();
        let mut text = "{\n".to_owned();
        for (name, field) in fields {
            let there = required.is_some_and(|names| names.iter().any(|one| one == name.as_str()));
            let optional = if there { "" } else { "?" };
            let inner = shape(document, field, depth + 1);
            let about = field["description"].as_str().unwrap_or_default().replace('\n', " ");
            let about = if about.is_empty() { about } else { format!("  // {about}") };
            let _ = writeln!(text, "{pad}{name}{optional}: {inner},{about}");
        }
        let _ = write!(text, "{}}}", "  ".repeat(depth));
        return text;
    }
    if !schema["items"].is_null() {
        return format!("[ {} ]", shape(document, &schema["items"], depth));
    }
    kind
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}
