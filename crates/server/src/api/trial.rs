//! "Try a command": what Deadstop would say about a tool call, without making it.
//!
//! The same as `deadstop check`, except that the server does not stand next to the files: the text
//! of the call decides.

use axum::Json;
use deadstop_protocol::check::{Checked, Checker, Told};
use deadstop_protocol::facts::effect::{self, Nowhere};
use deadstop_protocol::policy_views::FieldFault;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::auth::Who;
use super::extract::{Body, Strict};
use super::problem::{Code, Problem};

/// A command or a tool call to try.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandToTry {
    /// A command, as an agent's shell would get it.
    #[schema(min_length = 1, max_length = 65_536, example = "git checkout -- .")]
    command: Option<String>,
    /// The tool that is called, in place of a command.
    #[schema(min_length = 1, max_length = 200, example = "drop_table")]
    tool: Option<String>,
    /// Its arguments.
    #[schema(value_type = Option<Object>)]
    input: Option<Value>,
}

impl Strict for CommandToTry {}

/// What would be said about it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Tried {
    /// The tool.
    tool: String,
    /// The commands that were read in it.
    commands: Vec<String>,
    /// What harm it would do, the worst first.
    harms: Vec<TriedHarm>,
    /// `none`, `minor`, `serious` or `catastrophic`.
    severity: &'static str,
    /// What each preset would do about the first such call of a session.
    verdict: TriedVerdict,
    /// Why, in one sentence.
    because: String,
    /// The safer way, if one is needed.
    instead: String,
}

/// One harm of a call that was tried.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TriedHarm {
    /// What sort of harm.
    kind: String,
    /// What is done.
    verb: String,
    /// What it is done to.
    target: String,
    /// How far it reaches.
    reach: String,
    /// Whether what is lost comes back.
    recovery: String,
    /// How bad that is.
    severity: &'static str,
}

/// What each preset would do: `allow`, `warn`, `steer`, `ask`, `block` or `kill`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TriedVerdict {
    observe: String,
    balanced: String,
    strict: String,
}

/// What Deadstop would say about a command or a tool call. Nothing is run, and nothing is recorded.
#[utoipa::path(
    post, path = "/api/check", tag = "guards", request_body = CommandToTry,
    responses((status = 200, description = "What would be said", body = Tried))
)]
pub(crate) async fn check(_: Who, Body(trial): Body<CommandToTry>) -> Result<Json<Tried>, Problem> {
    let (tool, input) = match (trial.command, trial.tool, trial.input) {
        (Some(command), None, None) => ("Bash".to_owned(), json!({ "command": command })),
        (None, Some(tool), input) => (tool, input.unwrap_or_else(|| json!({}))),
        _ => {
            let fault = FieldFault::invalid("command", "send `command`, or `tool` with `input`");
            return Err(Problem::fields(Code::InvalidBody, vec![fault]));
        }
    };
    let checked = Checker::default().check(&tool, &input, &Nowhere);
    let commands = effect::of_in(&tool, &input, &Nowhere).commands;
    Ok(Json(tried(checked, commands)))
}

fn tried(checked: Checked, commands: Vec<String>) -> Tried {
    let Checked { tool, harms, severity, verdict, because, instead } = checked;
    let harm = |Told { kind, verb, target, reach, recovery, severity }: Told| TriedHarm {
        kind: word(&kind),
        verb,
        target,
        reach: word(&reach),
        recovery: word(&recovery),
        severity: severity.name(),
    };
    Tried {
        tool,
        commands,
        harms: harms.into_iter().map(harm).collect(),
        severity: severity.name(),
        verdict: TriedVerdict {
            observe: verdict.observe.to_string(),
            balanced: verdict.balanced.to_string(),
            strict: verdict.strict.to_string(),
        },
        because,
        instead,
    }
}

/// The word that stands for a value in JSON.
fn word(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}
