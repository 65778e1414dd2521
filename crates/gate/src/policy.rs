//! The policy of the user, for when there is no server to have one: `DEADSTOP_POLICY`, or the
//! `policy` of their `deadstop.toml` below `$XDG_CONFIG_HOME`, or the balanced preset.
//!
//! A `deadstop.toml` in the working folder is not looked at: that folder is the agent's, and who is
//! judged must not write the law.

use std::fs;
use std::path::{Path, PathBuf};

use deadstop_core::{FailMode, PolicySet, Preset};
use deadstop_protocol::policy_file;

/// The policy that was found.
#[derive(Debug)]
pub struct Found {
    /// The policies.
    pub policies: PolicySet,
    /// Where they come from, for people.
    pub source: String,
    /// Why the user's own policy is not used.
    pub problem: Option<String>,
}

impl Found {
    /// The policy that a gate would use, where `named` is a preset or a file.
    pub fn find(named: Option<&str>) -> Found {
        find(named)
    }
}

pub(crate) fn find(named: Option<&str>) -> Found {
    let set = named.map(str::to_owned).or_else(|| filled("DEADSTOP_POLICY"));
    let source = match set {
        Some(source) => Some(source),
        None => match configured() {
            Ok(source) => source,
            Err(problem) => return fallback("balanced", &problem, ""),
        },
    };
    let Some(source) = source else {
        let policies = Preset::default().policies();
        return Found { policies, source: Preset::default().name().to_owned(), problem: None };
    };
    if let Some(preset) = Preset::named(&source) {
        return Found { policies: preset.policies(), source, problem: None };
    }
    let text = match read(Path::new(&source)) {
        Ok(text) => text,
        Err(problem) => return fallback(&source, &problem, ""),
    };
    match policy_file::parse(&text, &source) {
        Ok(policies) => Found { policies, source, problem: None },
        Err(error) => fallback(&source, &error.to_string(), &text),
    }
}

/// Replaces a policy that cannot be read by the strict preset. It fails closed if the broken text
/// seems to ask for that.
fn fallback(source: &str, problem: &str, text: &str) -> Found {
    let mut policies = Preset::Strict.policies();
    let closed = text.lines().any(|line| {
        let line = line.trim_start().trim_start_matches('"');
        line.starts_with("fail_mode") && line.contains("closed")
    });
    if closed {
        for policy in [
            &mut policies.project,
            &mut policies.agent,
            &mut policies.session,
            &mut policies.nested,
        ] {
            policy.fail_mode = FailMode::Closed;
        }
    }
    let problem = Some(format!("{problem}; judged by the strict preset"));
    Found { policies, source: source.to_owned(), problem }
}

/// The policy that the user's `deadstop.toml` names.
fn configured() -> Result<Option<String>, String> {
    let Some(folder) = below("XDG_CONFIG_HOME", ".config") else { return Ok(None) };
    let file = folder.join("deadstop.toml");
    if !file.is_file() {
        return Ok(None);
    }
    let table: toml::Table = toml::from_str(&read(&file)?)
        .map_err(|error| format!("{}: {}", file.display(), error.message()))?;
    let Some(policy) = table.get("policy").and_then(toml::Value::as_str) else { return Ok(None) };
    if Preset::named(policy).is_some() {
        return Ok(Some(policy.to_owned()));
    }
    Ok(Some(folder.join(policy).display().to_string()))
}

fn read(file: &Path) -> Result<String, String> {
    let told = |why: String| format!("cannot read {}: {why}", file.display());
    let size = fs::metadata(file).map_err(|error| told(error.to_string()))?.len();
    if size > policy_file::MAX_BYTES as u64 {
        return Err(told("it is too large".to_owned()));
    }
    fs::read_to_string(file).map_err(|error| told(error.to_string()))
}

/// The default folder of local states.
pub fn state_folder() -> Option<PathBuf> {
    below("XDG_STATE_HOME", ".local/state").map(|folder| folder.join("gate"))
}

fn below(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = filled(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || filled("HOME").map(|home| PathBuf::from(home).join(below_home));
    set.or_else(home).map(|folder| folder.join("deadstop"))
}

fn filled(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}
