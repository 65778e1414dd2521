//! The govern API on the wire: what an agent's process asks a server before, during and after a call,
//! and what the server answers. The server, the blocking client and the SDKs all use these types.

#[cfg(feature = "schema")]
mod harm_schema;

use std::fmt;

use deadstop_core::{
    Answer, Call, CallId, Harm, Outcome, Status, TextFacts, Tokens, Trip, Usage, Verdict,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::facts;
use crate::policy_views::FieldFault;

/// Opens a session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Opening {
    /// The agent.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200))]
    pub agent: String,
    /// The session's name; one is made up if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200))]
    pub session: Option<String>,
    /// What a person has just said to it, where no model call tells that: new words let calls be
    /// made again that would have been repetition.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(max_length = 1_000_000))]
    pub said: Option<String>,
    /// The nested scopes that are opened in it, the outermost first: a sub-agent begins. The limits
    /// on sub-agents decide whether it may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_items = 16))]
    pub scope: Vec<String>,
    /// Whether the sub-agent of `scope` has ended: it no longer counts as at work. Without `scope`, whether
    /// the session is over, and its reported calls with it; its next call opens it again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub done: bool,
    /// Whether the agent's context was compacted, where no model call tells that: what it forgot it
    /// may look up again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compacted: bool,
}

/// A session that is open, as far as a client needs to know it. The server adds its live figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// The agent.
    pub agent: String,
    /// The session's name.
    pub session: String,
    /// The policy in force, for an engine of the client's own.
    #[serde(default)]
    pub policy: Value,
}

/// A model call that is about to be made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Preflight {
    /// The client's id for this call.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200))]
    pub id: String,
    /// The model.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200))]
    pub model: String,
    /// The provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(max_length = 200))]
    pub provider: Option<String>,
    /// Tokens of the prompt, as far as they are known.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(maximum = 1_000_000_000_000_u64))]
    pub input_tokens: u64,
    /// The most tokens that the answer may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(maximum = 1_000_000_000_000_u64))]
    pub max_output_tokens: Option<u64>,
    /// What is new in the prompt since the last call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Whether a person has said it.
    #[serde(default)]
    pub from_person: bool,
    /// Whether the history before it was rewritten, as a context compaction does: what the agent
    /// forgot it may look up again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compacted: bool,
    /// The nested scopes in which it is made, the outermost first.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(max_items = 16))]
    pub scope: Vec<String>,
}

/// Tool calls that an answer asks for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Proposal {
    /// The calls, in order.
    #[cfg_attr(feature = "schema", schema(min_items = 1, max_items = 256))]
    pub calls: Vec<ProposedCall>,
    /// The nested scopes in which they are made, the outermost first.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(max_items = 16))]
    pub scope: Vec<String>,
    /// How long they may be held while the session is paused, in seconds; 0 refuses them at once.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(maximum = 600))]
    pub hold_s: u64,
}

/// A tool call that an answer asks for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ProposedCall {
    /// The client's id for this call.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200))]
    pub id: String,
    /// The tool.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200))]
    pub tool: String,
    /// The server that it runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(max_length = 200))]
    pub server: Option<String>,
    /// Its arguments: an object as a rule, but whatever the model made up is judged.
    #[serde(default)]
    pub arguments: Value,
    /// What harm it would do, from a hook that has looked at the machine. Not for other clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Vec<harm_schema::HarmSeen>>, max_items = 32))]
    pub harms: Option<Vec<Harm>>,
    /// Whether it starts a sub-agent: the limits on sub-agents count that before it does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spawns: bool,
}

/// How far a call is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// The client's id for the call.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200))]
    pub id: String,
    /// Tokens of the answer so far.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(maximum = 1_000_000_000_000_u64))]
    pub output_tokens: u64,
    /// What was said since the last report.
    #[serde(default)]
    pub text: String,
    /// The nested scopes in which it was made, the outermost first.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(max_items = 16))]
    pub scope: Vec<String>,
    /// Answers when the call is to be stopped, or after so many milliseconds.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(maximum = 60_000))]
    pub wait_ms: u64,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// The client's id for the call.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200))]
    pub id: String,
    /// How it ended.
    pub status: Ended,
    /// The tokens that it used, by the provider's figures.
    #[serde(default)]
    pub usage: Used,
    /// A model's answer, or a tool's result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The nested scopes in which it was made, the outermost first.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(max_items = 16))]
    pub scope: Vec<String>,
    /// Whether to answer only when it is on disk. A session that is dead always is.
    #[serde(default = "yes")]
    #[cfg_attr(feature = "schema", schema(default = true))]
    pub wait: bool,
}

fn yes() -> bool {
    true
}

impl Default for Receipt {
    fn default() -> Receipt {
        Receipt {
            id: String::new(),
            status: Ended::Ok,
            usage: Used::default(),
            text: None,
            scope: Vec::new(),
            wait: true,
        }
    }
}

impl Receipt {
    /// How the call has ended, for the engine.
    pub fn outcome(&self, call: &Call) -> Outcome {
        let text = self.text.as_deref().unwrap_or_default();
        let model = call.model().is_some();
        Outcome {
            status: self.status.into(),
            usage: self.usage.into(),
            result: (!model && self.text.is_some()).then(|| facts::result(text)),
            answer: model.then(|| Answer {
                text: (!text.is_empty()).then(|| TextFacts::of(text)),
                calls: None,
            }),
            id: CallId::of(&self.id).filter(|_| !model),
            ..Outcome::default()
        }
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// It did what it should.
    #[default]
    Ok,
    /// It was answered with an error.
    Error,
    /// It was not answered.
    Fault,
    /// It was cut off.
    Cancelled,
}

impl From<Ended> for Status {
    fn from(ended: Ended) -> Status {
        match ended {
            Ended::Ok => Status::Ok,
            Ended::Error => Status::Error,
            Ended::Fault => Status::Fault,
            Ended::Cancelled => Status::Cancelled,
        }
    }
}

impl From<Status> for Ended {
    fn from(status: Status) -> Ended {
        match status {
            Status::Ok => Ended::Ok,
            Status::Error => Ended::Error,
            Status::Fault => Ended::Fault,
            Status::Cancelled => Ended::Cancelled,
        }
    }
}

/// Tokens that a call used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Used {
    /// Of the prompt, without those of the cache.
    #[cfg_attr(feature = "schema", schema(maximum = 1_000_000_000_000_u64))]
    pub input: u64,
    /// Of the answer.
    #[cfg_attr(feature = "schema", schema(maximum = 1_000_000_000_000_u64))]
    pub output: u64,
    /// Read from the provider's cache.
    #[cfg_attr(feature = "schema", schema(maximum = 1_000_000_000_000_u64))]
    pub cache_read: u64,
    /// Written to it.
    #[cfg_attr(feature = "schema", schema(maximum = 1_000_000_000_000_u64))]
    pub cache_write: u64,
}

impl From<Used> for Usage {
    fn from(used: Used) -> Usage {
        Usage {
            input: Tokens(used.input),
            output: Tokens(used.output),
            cache_read: Tokens(used.cache_read),
            cache_write: Tokens(used.cache_write),
        }
    }
}

impl From<Usage> for Used {
    fn from(usage: Usage) -> Used {
        Used {
            input: usage.input.0,
            output: usage.output.0,
            cache_read: usage.cache_read.0,
            cache_write: usage.cache_write.0,
        }
    }
}

/// What was decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Decided {
    /// The client's id for the call.
    pub id: String,
    /// Whether it may go ahead.
    pub allowed: bool,
    /// `allow`, `warn`, `ask`, `block` or `kill`. After `ask`, wait at `/api/approvals/{approval}`
    /// and ask again with the same id.
    #[serde(deserialize_with = "known_verdict")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub verdict: Verdict,
    /// Every guard that has something to say, the strictest first.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required))]
    pub trips: Vec<Spoken>,
    /// The incident that it became, if it is a new one.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required))]
    pub incident: Option<String>,
    /// What waits for a person's word, if it does.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required))]
    pub approval: Option<String>,
    /// The call's span, where calls are exported: send it on as `traceparent` to what the call asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// A client that is older than its server may not know a verdict: it takes it for a block.
fn known_verdict<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Verdict, D::Error> {
    let word = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(word).unwrap_or(Verdict::Block))
}

/// What was decided about each of several calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DecidedAll {
    /// One for each call, in order.
    pub calls: Vec<Decided>,
}

/// What a guard says.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Spoken {
    /// The guard.
    pub guard: String,
    /// Its code for why.
    pub reason: String,
    /// Why, in a sentence.
    pub explain: String,
    /// What was measured.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required, value_type = Object))]
    pub measured: Value,
    /// The limit.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required, value_type = Object))]
    pub limit: Value,
    /// What the model should be told, where the verdict is `steer` or stricter and a pattern guard
    /// decided: put it behind the tool's result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl From<&Trip> for Spoken {
    fn from(trip: &Trip) -> Spoken {
        Spoken {
            guard: trip.guard.name().to_owned(),
            reason: trip.reason.clone(),
            explain: trip.explain(),
            measured: serde_json::to_value(trip.measured).unwrap_or_default(),
            limit: serde_json::to_value(trip.limit).unwrap_or_default(),
            advice: trip.advice.clone(),
        }
    }
}

/// A refusal: an error whose code is a guard's, with what was decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Refusal {
    /// Always `about:blank`: the code tells more.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required))]
    pub r#type: String,
    /// The status in words.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required))]
    pub title: String,
    /// The status.
    pub status: u16,
    /// `session_killed…`, a guard's code for why, or one of the API's own codes.
    pub code: String,
    /// What went wrong, in words, and what to do about it.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required))]
    pub detail: String,
    /// The fields that are wrong; none for a refusal.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required))]
    pub errors: Vec<FieldFault>,
    /// What was decided, if it was about a call.
    #[serde(default)]
    pub decision: Option<Decided>,
    /// Which scope is over, if one is: `session`, or its `agent` or `project`, which may be cleared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

impl Refusal {
    /// Whether a session, an agent or a project is dead.
    pub fn is_death(&self) -> bool {
        self.code.contains("killed")
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server refused ({}): {}", self.code, self.detail)
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_one_side_writes_the_other_reads() {
        let receipt = Receipt {
            id: "r1".to_owned(),
            status: Ended::Fault,
            usage: Used { input: 3, output: 4, ..Used::default() },
            ..Receipt::default()
        };
        let written = serde_json::to_value(&receipt).unwrap();
        assert_eq!(written["wait"], true);
        assert!(written.get("text").is_none(), "{written}");
        assert_eq!(serde_json::from_value::<Receipt>(written).unwrap(), receipt);
        let usage: Usage = receipt.usage.into();
        assert_eq!(
            (Used::from(usage), Ended::from(Status::from(receipt.status))),
            (receipt.usage, Ended::Fault)
        );
        for unknown in [json!({ "id": "r1", "status": "ok", "statsu": 1 }), json!({ "id": "r1" })] {
            assert!(serde_json::from_value::<Receipt>(unknown).is_err());
        }
    }

    #[test]
    fn a_verdict_that_is_not_known_is_a_block() {
        let decided = json!({ "id": "t", "allowed": false, "verdict": "ponder" });
        let decided: Decided = serde_json::from_value(decided).unwrap();
        assert_eq!(decided.verdict, Verdict::Block);
        let written = serde_json::to_value(decided).unwrap();
        assert_eq!((&written["verdict"], &written["incident"]), (&json!("block"), &Value::Null));
    }

    #[test]
    fn a_receipt_of_a_tool_has_a_result_and_one_of_a_model_an_answer() {
        let receipt = Receipt { text: Some("done".to_owned()), ..Receipt::default() };
        let tool = receipt.outcome(&Call::Tool(facts::tool_call("t", &json!({}))));
        assert!(tool.result.is_some() && tool.answer.is_none());
        let model = receipt.outcome(&Call::Model(deadstop_core::ModelCall::default()));
        assert!(model.result.is_none() && model.answer.unwrap().text.is_some());
    }
}
