//! One thing that is written into a host's configuration, and how it is taken out again.

use std::path::PathBuf;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::jsonc::Jsonc;

/// One thing in one file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Piece {
    /// The file.
    pub(crate) path: PathBuf,
    /// What is in it.
    pub(crate) what: What,
}

/// What is written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum What {
    /// Hooks in a list for each event, beside those of others.
    Hooks {
        /// The event, and what is added to its list.
        entries: Vec<(String, Value)>,
        /// What marks an entry as ours: how its command goes on after the program.
        mark: String,
        /// Keys at the top that must be there.
        top: Vec<(String, Value)>,
    },
    /// A file that is ours alone.
    Whole(String),
    /// A value at a path, unless the user has set another one.
    Value { at: Vec<String>, value: String },
    /// A provider in a TOML file, unless the user has chosen another one.
    Provider { url: String },
    /// A variable in a file of variables, unless the user has set it.
    Variable { name: String, value: String },
    /// MCP servers that are started through us.
    McpServers { at: Vec<String>, program: String },
}

/// A file's new text, and what could not be done.
pub(crate) struct Put {
    pub(crate) text: String,
    pub(crate) note: Option<String>,
}

impl Piece {
    /// The text with this in it; what was there of ours before is replaced.
    pub(crate) fn put(&self, text: &str) -> anyhow::Result<Put> {
        let shown = || format!("cannot change {}", self.path.display());
        let text = self.take(text)?;
        let mut note = None;
        let text = match &self.what {
            What::Whole(whole) => whole.clone(),
            What::Hooks { entries, top, .. } => {
                let mut doc = Jsonc::read(&text).with_context(shown)?;
                for (key, value) in top {
                    if doc.get(&[key]).is_none() {
                        doc.set(&[key], value).with_context(shown)?;
                    }
                }
                for (event, entry) in entries {
                    doc.push(&["hooks", event], entry).with_context(shown)?;
                }
                doc.into_text()
            }
            What::Value { at, value } => {
                let mut doc = Jsonc::read(&text).with_context(shown)?;
                let at: Vec<&str> = at.iter().map(String::as_str).collect();
                match doc.get(&at) {
                    Some(other) if other != value.as_str() => {
                        note = Some(taken(&at.join("."), &self.path, value));
                    }
                    _ => doc.set(&at, &json!(value)).with_context(shown)?,
                }
                doc.into_text()
            }
            What::Provider { url } => {
                let mut doc: toml_edit::DocumentMut = text.parse().with_context(shown)?;
                if doc.get("model_provider").is_some() {
                    note = Some(taken("model_provider", &self.path, url));
                } else {
                    doc["model_provider"] = toml_edit::value("deadstop");
                    let mut provider = toml_edit::Table::new();
                    provider["name"] = toml_edit::value("Deadstop");
                    provider["base_url"] = toml_edit::value(url);
                    provider["wire_api"] = toml_edit::value("responses");
                    provider["requires_openai_auth"] = toml_edit::value(true);
                    let providers = doc.entry("model_providers").or_insert_with(|| {
                        let mut table = toml_edit::Table::new();
                        table.set_implicit(true);
                        toml_edit::Item::Table(table)
                    });
                    let table =
                        providers.as_table_mut().context("`model_providers` is no table")?;
                    table.insert("deadstop", toml_edit::Item::Table(provider));
                }
                doc.to_string()
            }
            What::Variable { name, value } => {
                let set = text.lines().any(|line| variable(line) == Some(name));
                if set {
                    note = Some(taken(name, &self.path, value));
                    text
                } else {
                    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
                    format!("{text}{gap}{name}={value}\n")
                }
            }
            What::McpServers { at, program } => {
                let wrap = |name: &str, command: &str, arguments: &[String]| {
                    let ours = ["mcp", "--server", name, "--", command];
                    let all = ours.iter().map(|word| (*word).to_owned());
                    Some((program.clone(), all.chain(arguments.iter().cloned()).collect()))
                };
                servers(&self.path, &text, at, wrap)?
            }
        };
        Ok(Put { text, note })
    }

    /// The text without this.
    pub(crate) fn take(&self, text: &str) -> anyhow::Result<String> {
        let shown = || format!("cannot change {}", self.path.display());
        if text.trim().is_empty() {
            return Ok(text.to_owned());
        }
        Ok(match &self.what {
            What::Whole(_) => String::new(),
            What::Hooks { entries, mark, .. } => {
                let mut doc = Jsonc::read(text).with_context(shown)?;
                for (event, _) in entries {
                    doc.remove_items(&["hooks", event], &|item| is_ours(item, mark))?;
                }
                doc.into_text()
            }
            What::Value { at, value } => {
                let mut doc = Jsonc::read(text).with_context(shown)?;
                let at: Vec<&str> = at.iter().map(String::as_str).collect();
                if doc.get(&at).is_some_and(|there| there == value.as_str()) {
                    doc.unset(&at)?;
                }
                doc.into_text()
            }
            What::Provider { .. } => {
                let mut doc: toml_edit::DocumentMut = text.parse().with_context(shown)?;
                let ours = doc.get("model_provider").and_then(toml_edit::Item::as_str);
                if ours == Some("deadstop") {
                    doc.remove("model_provider");
                }
                if let Some(providers) =
                    doc.get_mut("model_providers").and_then(toml_edit::Item::as_table_mut)
                {
                    providers.remove("deadstop");
                    if providers.is_empty() {
                        doc.remove("model_providers");
                    }
                }
                doc.to_string()
            }
            What::Variable { name, value } => {
                let ours = format!("{name}={value}");
                text.split_inclusive('\n').filter(|line| line.trim_end() != ours).collect()
            }
            What::McpServers { at, program } => {
                let unwrap = |_: &str, command: &str, arguments: &[String]| match arguments {
                    [first, _, _, dashes, inner, rest @ ..]
                        if command == program && first == "mcp" && dashes == "--" =>
                    {
                        Some((inner.clone(), rest.to_vec()))
                    }
                    _ => None,
                };
                servers(&self.path, text, at, unwrap)?
            }
        })
    }
}

/// The note about a setting that the user has made and that is left alone.
fn taken(setting: &str, file: &std::path::Path, wanted: &str) -> String {
    format!(
        "`{setting}` in {} is set already and was left; for the gateway set it to {wanted}",
        file.display()
    )
}

fn variable(line: &str) -> Option<&str> {
    let line = line.trim_start().trim_start_matches("export ");
    line.split_once('=').map(|(name, _)| name.trim())
}

/// Whether an entry runs our hook, at any depth in which hosts nest it.
fn is_ours(item: &Value, mark: &str) -> bool {
    let runs = |item: &Value| {
        let command = ["command", "bash"].iter().find_map(|key| item[*key].as_str());
        // A path with a space in it stands in quotes.
        command.is_some_and(|command| command.replace('\'', "").contains(mark))
    };
    runs(item)
        || item["hooks"].as_array().is_some_and(|hooks| !hooks.is_empty() && hooks.iter().all(runs))
}

/// Starts the servers of a file in another way.
fn servers(
    path: &std::path::Path,
    text: &str,
    at: &[String],
    change: impl Fn(&str, &str, &[String]) -> Option<(String, Vec<String>)>,
) -> anyhow::Result<String> {
    let shown = || format!("cannot change {}", path.display());
    if path.extension().is_some_and(|ending| ending == "toml") {
        let mut doc: toml_edit::DocumentMut = text.parse().with_context(shown)?;
        let table = at.first().and_then(|key| doc.get_mut(key)?.as_table_like_mut());
        for (name, server) in table.into_iter().flat_map(toml_edit::TableLike::iter_mut) {
            let Some(server) = server.as_table_like_mut() else { continue };
            let Some(command) = server.get("command").and_then(toml_edit::Item::as_str) else {
                continue;
            };
            let arguments = server.get("args").and_then(toml_edit::Item::as_array);
            let arguments: Vec<String> = arguments
                .into_iter()
                .flatten()
                .filter_map(|word| word.as_str().map(str::to_owned))
                .collect();
            if let Some((command, arguments)) = change(name.get(), command, &arguments) {
                server.insert("command", toml_edit::value(command));
                let arguments: toml_edit::Array = arguments.into_iter().collect();
                server.insert("args", toml_edit::value(arguments));
            }
        }
        return Ok(doc.to_string());
    }
    let mut doc = Jsonc::read(text).with_context(shown)?;
    let at: Vec<&str> = at.iter().map(String::as_str).collect();
    let Some(Value::Object(all)) = doc.get(&at) else { return Ok(text.to_owned()) };
    for (name, server) in &all {
        let Some(command) = server["command"].as_str() else { continue };
        let arguments = server["args"].as_array().into_iter().flatten();
        let arguments: Vec<String> =
            arguments.filter_map(|word| word.as_str().map(str::to_owned)).collect();
        if let Some((command, arguments)) = change(name, command, &arguments) {
            let place: Vec<&str> = at.iter().copied().chain([name.as_str()]).collect();
            let inside = |key: &'static str| [&place[..], &[key]].concat();
            doc.set(&inside("command"), &json!(command))?;
            doc.set(&inside("args"), &json!(arguments))?;
        }
    }
    Ok(doc.into_text())
}
