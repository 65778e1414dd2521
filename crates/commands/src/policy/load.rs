//! Gets a policy from where the command line says: a preset's name, a file, or stdin.

use std::fs::File;
use std::io::{self, Read};

use deadstop_core::{PolicySet, Preset};
use deadstop_protocol::policy_file::{self, PolicyError};

use crate::ui::Hinted;

/// The policies of a preset (`strict`), a file (`policy.toml`, `./strict`) or stdin (`-`).
pub(crate) fn load(source: &str) -> anyhow::Result<PolicySet> {
    if let Some(preset) = Preset::named(source) {
        return Ok(preset.policies());
    }
    file(source).map_err(|problem| match problem {
        Problem::Missing => Hinted::error(
            format!("`{source}` is neither a preset nor a file"),
            format!("the presets are {}; `deadstop policy init` writes a file", presets()),
        ),
        Problem::Policy(error) => {
            let shown = error.to_string();
            match error.hint {
                Some(hint) => Hinted::error(shown, hint),
                None => anyhow::Error::msg(shown),
            }
        }
    })
}

/// Why there is no policy in a file.
pub(super) enum Problem {
    /// There is no such file.
    Missing,
    /// It cannot be read, or is not a policy.
    Policy(PolicyError),
}

/// The policies in a file, or in stdin (`-`).
pub(super) fn file(name: &str) -> Result<PolicySet, Problem> {
    policy_file::parse(&text(name)?, name).map_err(Problem::Policy)
}

/// Everything that is wrong with a file.
pub(super) fn problems(name: &str) -> Vec<PolicyError> {
    let text = match text(name) {
        Ok(text) => text,
        Err(Problem::Policy(error)) => return vec![error],
        Err(Problem::Missing) => return vec![unreadable(name, "there is no such file".into())],
    };
    policy_file::parse_all(&text, name).err().unwrap_or_default()
}

fn text(name: &str) -> Result<String, Problem> {
    let bytes = match name {
        "-" => bounded(io::stdin().lock()),
        _ => File::open(name).and_then(bounded),
    };
    let bytes = bytes.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Problem::Missing,
        _ => Problem::Policy(unreadable(name, format!("cannot be read: {error}"))),
    })?;
    String::from_utf8(bytes)
        .map_err(|_| Problem::Policy(unreadable(name, "is not UTF-8 text".to_owned())))
}

/// Reads what a policy may have at most, and a byte more, so that too much is noticed.
fn bounded(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(policy_file::MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unreadable(file: &str, problem: String) -> PolicyError {
    let hint = Some("check that this is the right file".to_owned());
    PolicyError { file: file.to_owned(), line: None, column: None, problem, hint }
}

/// The names of the presets, for people.
fn presets() -> String {
    let [first, second, third] = Preset::ALL.map(Preset::name);
    format!("{first}, {second} and {third}")
}
