//! Logins with which a coding agent's model calls go past the gateway: its token belongs to another
//! address, so they cannot be seen. Its hooks hold all the same.

use deadstop_protocol::hook::Host;
use serde_json::Value;

use super::plan::{Level, folder};
use super::record;
use crate::remote::filled;

/// What is not visible of this host's model calls, for people.
pub(crate) fn unseen(host: Host) -> Option<String> {
    let whose = match host {
        Host::Codex if chatgpt() => "codex is logged in with ChatGPT",
        Host::Gemini if google() => "gemini is logged in with a Google account",
        Host::Copilot if filled("COPILOT_PROVIDER_BASE_URL").is_none() => {
            "copilot is logged in with GitHub"
        }
        _ => return None,
    };
    Some(format!(
        "{whose}: its model calls, tokens and dollars are not visible; hooks still refuse tools and \
         count loops and steps"
    ))
}

/// Whether Codex has ChatGPT's token and no API key.
pub(crate) fn chatgpt() -> bool {
    let auth = said(Host::Codex, "auth.json");
    auth["tokens"].is_object() && !auth["OPENAI_API_KEY"].is_string()
}

fn google() -> bool {
    let settings = said(Host::Gemini, "settings.json");
    let kinds = [&settings["security"]["auth"]["selectedType"], &settings["selectedAuthType"]];
    kinds.iter().any(|kind| kind.as_str().is_some_and(|kind| kind.starts_with("oauth")))
}

/// A file of a host's own, or nothing.
fn said(host: Host, file: &str) -> Value {
    let path = folder(host, Level::User).map(|folder| folder.join(file));
    let text = path.and_then(|path| record::read(&path)).ok().flatten();
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}
