//! What a server answers, as types.

use std::fmt;

use deadstop_core::Verdict;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A session that is open.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Opened {
    /// The agent.
    pub agent: String,
    /// The session's name.
    pub session: String,
    /// The policy in force.
    #[serde(default)]
    pub policy: Value,
}

/// What was decided about a call.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Decided {
    /// The caller's id for it.
    pub id: String,
    /// Whether it may go ahead.
    pub allowed: bool,
    /// How it was judged. A verdict that this client does not know is a refusal.
    #[serde(deserialize_with = "verdict")]
    pub verdict: Verdict,
    /// Every guard that has something to say, the strictest first.
    #[serde(default)]
    pub trips: Vec<Spoken>,
    /// The incident that it became, if it is a new one.
    #[serde(default)]
    pub incident: Option<String>,
    /// What a person was asked, if one was.
    #[serde(default)]
    pub approval: Option<Approval>,
}

/// A question that waits for a person.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Approval {
    /// Its id alone.
    Id(String),
    /// All about it.
    Whole(Value),
}

/// What a guard says.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Spoken {
    /// The guard.
    pub guard: String,
    /// Its code for why.
    pub reason: String,
    /// Why, in a sentence.
    pub explain: String,
    /// What was measured.
    #[serde(default)]
    pub measured: Value,
    /// The limit.
    #[serde(default)]
    pub limit: Value,
    /// What the model should be told, where the verdict is to steer it.
    #[serde(default)]
    pub advice: Option<String>,
}

/// A refusal as problem+json.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Problem {
    /// The status.
    pub status: u16,
    /// What went wrong, in a word that stays the same.
    pub code: String,
    /// What went wrong, in words.
    #[serde(default)]
    pub detail: String,
    /// What was decided, if it was about a call.
    #[serde(default)]
    pub decision: Option<Decided>,
}

impl Problem {
    /// Whether it was refused because something is dead.
    pub fn is_death(&self) -> bool {
        self.code.starts_with("session_killed")
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server refused ({}): {}", self.code, self.detail)
    }
}

fn verdict<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Verdict, D::Error> {
    let word = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(word).unwrap_or(Verdict::Block))
}
