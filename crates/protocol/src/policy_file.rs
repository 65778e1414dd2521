//! Policies as files: TOML, YAML and JSON of one shape, and back to TOML.
//!
//! Whatever the format, a file first becomes one tree whose keys and values know where they stand
//! (`tree`); one reader makes the raw policy of it. So all formats accept the same keys, and
//! every complaint, also one about settings that contradict each other, names its line.

mod every;
mod fault;
mod json;
mod locate;
mod read;
mod tree;
mod write;

use std::fmt;

use deadstop_core::{PolicySet, RawPolicy};
use serde::Deserialize;

use fault::Fault;
use tree::{At, Node, Spot, Value};
pub use write::{template, to_json, to_toml};

/// Most bytes that a policy may have.
pub const MAX_BYTES: usize = 1 << 20;

/// How a policy is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `.toml`, the one that `deadstop policy init` writes.
    Toml,
    /// `.yaml` or `.yml`.
    Yaml,
    /// `.json`.
    Json,
}

impl Format {
    /// The format by the ending of a file's name, or else by what the text looks like.
    ///
    /// ```
    /// use deadstop_protocol::policy_file::Format;
    /// assert_eq!(Format::of("policy.yml", ""), Format::Yaml);
    /// assert_eq!(Format::of("-", "{ \"mode\": \"enforce\" }"), Format::Json);
    /// ```
    pub fn of(file: &str, text: &str) -> Format {
        let ending = file.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
        match ending.as_deref() {
            Some("toml") => Format::Toml,
            Some("yaml" | "yml") => Format::Yaml,
            Some("json") => Format::Json,
            _ => Format::detect(text),
        }
    }

    /// The first line that says anything tells the formats apart.
    fn detect(text: &str) -> Format {
        let mut lines = text.trim_start_matches('\u{feff}').lines().map(str::trim);
        let Some(line) = lines.find(|line| !line.is_empty() && !line.starts_with('#')) else {
            return Format::Toml;
        };
        if line.starts_with('{') {
            return Format::Json;
        }
        if line.starts_with("---") || line.starts_with('%') {
            return Format::Yaml;
        }
        match line.find(['=', ':']) {
            Some(at) if !line.starts_with('[') && line[at..].starts_with(':') => Format::Yaml,
            _ => Format::Toml,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Format::Toml => "TOML",
            Format::Yaml => "YAML",
            Format::Json => "JSON",
        }
    }
}

/// Why a file is not a policy: where, what, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyError {
    /// The file's name, as it was given.
    pub file: String,
    /// The line, counted from 1.
    pub line: Option<usize>,
    /// The column in characters, counted from 1.
    pub column: Option<usize>,
    /// What is wrong.
    pub problem: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        for place in [self.line, self.column].into_iter().flatten() {
            write!(f, ":{place}")?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for PolicyError {}

/// Reads a policy. The file's name decides on the format, and stands in front of every error; an
/// empty text is the balanced preset.
///
/// ```
/// use deadstop_protocol::policy_file::parse;
/// let policies = parse("[budget]\nmax_cost_usd = 5\n", "policy.toml").unwrap();
/// assert_eq!(policies.session.budget.max_cost_usd.unwrap().0.to_string(), "$5.00");
///
/// let error = parse("[budget]\nmax_cost_used = 5\n", "policy.toml").unwrap_err();
/// assert_eq!(error.to_string(), "policy.toml:2:1: unknown key `max_cost_used` in `budget`");
/// assert_eq!(error.hint.unwrap(), "did you mean `max_cost_usd`?");
/// ```
pub fn parse(text: &str, file: &str) -> Result<PolicySet, PolicyError> {
    let (text, format) = read(text, file);
    let resolved = tree(text, format).and_then(|tree| resolve(&tree));
    resolved.map_err(|fault| told(&fault, text, file, format))
}

/// Reads a policy, and says everything that is wrong with it, in the order of the file.
///
/// ```
/// use deadstop_protocol::policy_file::parse_all;
/// let text = "[budget]\nmax_cost_used = 5\n[loop]\nthreshold = \"many\"\n";
/// let errors = parse_all(text, "policy.toml").unwrap_err();
/// let lines: Vec<_> = errors.iter().filter_map(|error| error.line).collect();
/// assert_eq!(lines, [2, 4]);
/// ```
pub fn parse_all(text: &str, file: &str) -> Result<PolicySet, Vec<PolicyError>> {
    let (text, format) = read(text, file);
    let told = |fault: &Fault| told(fault, text, file, format);
    let mut tree = tree(text, format).map_err(|fault| vec![told(&fault)])?;
    every::resolve(&mut tree).map_err(|faults| {
        let mut errors: Vec<PolicyError> = faults.iter().map(told).collect();
        errors.sort_by_key(|error| (error.line, error.column));
        errors
    })
}

/// The text without the mark that Windows editors leave at its start, and its format.
fn read<'t>(text: &'t str, file: &str) -> (&'t str, Format) {
    let text = text.trim_start_matches('\u{feff}');
    (text, Format::of(file, text))
}

fn told(fault: &Fault, text: &str, file: &str, format: Format) -> PolicyError {
    let At { line, column } = fault.at(text).unwrap_or_default();
    PolicyError {
        file: file.to_owned(),
        line: (line > 0).then_some(line),
        column: (column > 0).then_some(column),
        problem: fault.problem(),
        hint: Some(fault.hint(format)),
    }
}

fn tree(text: &str, format: Format) -> Result<Node, Fault> {
    if text.len() > MAX_BYTES {
        return Err(Fault::too_large());
    }
    if text.trim().is_empty() {
        return Ok(Node { spot: Spot::Byte(0), value: Value::Section(Vec::new()) });
    }
    match format {
        Format::Toml => tree::from_toml(text),
        Format::Yaml => tree::from_yaml(text),
        Format::Json => json::read(text),
    }
}

fn resolve(tree: &Node) -> Result<PolicySet, Fault> {
    typed(tree)?.resolve().map_err(|bad| {
        let found = locate::find(tree, &bad.path);
        Fault::bad_setting(bad, found)
    })
}

fn typed(tree: &Node) -> Result<RawPolicy, Fault> {
    RawPolicy::deserialize(tree)
}

#[cfg(test)]
mod tests;
