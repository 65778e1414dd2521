//! OpenCode. It has no hooks that are processes but plugins, so a small plugin of ours stands between:
//! it passes on what happens, and throws when it is told to.

use deadstop_core::Status;
use serde_json::{Value, json};

use super::{BadEvent, Event, Host, Kind, Moment, Output, Reply, field};
use crate::told::{refusal, sentence};

/// The events that the plugin passes on.
pub(super) const EVENTS: &[(&str, Moment)] = &[
    ("tool.execute.before", Moment::Before),
    ("tool.execute.after", Moment::After),
    ("tool.execute.error", Moment::After),
    ("chat.message", Moment::Prompt),
    ("session.deleted", Moment::End),
];

/// The plugin, calling this command. `closed` says what it does when it cannot be called.
pub fn plugin(command: &[String], closed: bool) -> String {
    let command = Value::from(command.to_vec());
    format!(
        r#"// Written by `deadstop install opencode`; `deadstop uninstall opencode` removes it.
// Asks deadstop before each tool runs, and tells it how the tool ended.
import {{ spawn }} from "node:child_process"

const COMMAND = {command}
const FAIL_CLOSED = {closed}
const PATIENCE_MS = 30_000

function ask(event) {{
  return new Promise((resolve) => {{
    const failed = (why) => resolve(FAIL_CLOSED ? {{ decision: "deny", reason: `deadstop could not be asked: ${{why}}` }} : {{}})
    let said = ""
    const child = spawn(COMMAND[0], [...COMMAND.slice(1), event.hook_event_name], {{ stdio: ["pipe", "pipe", "ignore"] }})
    const timer = setTimeout(() => {{ child.kill("SIGKILL"); failed("it took too long") }}, PATIENCE_MS)
    child.on("error", (error) => {{ clearTimeout(timer); failed(error.message) }})
    child.stdin.on("error", () => {{}})
    child.stdout.on("data", (data) => {{ said += data }})
    child.on("close", (code) => {{
      clearTimeout(timer)
      try {{ code === 0 ? resolve(JSON.parse(said || "{{}}")) : failed(`it ended with ${{code}}`) }}
      catch {{ failed("its answer is torn") }}
    }})
    child.stdin.end(JSON.stringify(event))
  }})
}}

export const Deadstop = async ({{ client, directory }}) => {{
  const tools = new Map()
  const obey = async (answer, session) => {{
    if (answer.decision === "stop") {{
      try {{ await client.session.abort({{ path: {{ id: session }} }}) }} catch {{ /* it has ended already */ }}
    }}
    if (answer.decision === "deny" || answer.decision === "stop") throw new Error(answer.reason)
  }}
  const about = (name, input, args) => ({{
    hook_event_name: name, session_id: input.sessionID, tool_use_id: input.callID,
    tool_name: input.tool, tool_input: args, cwd: directory,
  }})
  return {{
    "tool.execute.before": async (input, output) => {{
      tools.set(input.callID, {{ ...input, args: output.args }})
      await obey(await ask(about("tool.execute.before", input, output.args)), input.sessionID)
    }},
    "tool.execute.after": async (input, output) => {{
      const call = tools.get(input.callID)
      if (!tools.delete(input.callID)) return
      const event = {{ ...about("tool.execute.after", input, call.args), tool_response: output.output }}
      const answer = await ask(event)
      if (answer.advice) output.output = `${{output.output}}\n\n${{answer.advice}}`
      await obey(answer, input.sessionID).catch(() => {{}})
    }},
    "chat.message": async (input, output) => {{
      const prompt = (output.parts ?? []).filter((part) => part.type === "text").map((part) => part.text).join("\n")
      await obey(await ask({{ hook_event_name: "chat.message", session_id: input.sessionID, prompt, cwd: directory }}), input.sessionID)
    }},
    event: async ({{ event }}) => {{
      if (event.type === "session.deleted") {{
        await ask({{ hook_event_name: "session.deleted", session_id: event.properties?.info?.id, cwd: directory }})
        return
      }}
      const part = event.type === "message.part.updated" ? event.properties?.part : undefined
      if (part?.type !== "tool" || part.state?.status !== "error") return
      const call = tools.get(part.callID)
      if (!tools.delete(part.callID)) return
      await ask({{ ...about("tool.execute.error", call, call.args), error: part.state.error }})
    }},
  }}
}}
"#
    )
}

pub(super) fn read(input: &Value, told: Option<&str>) -> Result<Event, BadEvent> {
    let name = field::name(input, told)?;
    let session = field::session(input, &["session_id"])?;
    if let Some(event) = field::event(Host::OpenCode, name.clone(), session.clone(), input)? {
        return Ok(event);
    }
    let tool = field::tool(input)?;
    let kind = match Host::OpenCode.moment(&name) {
        Moment::Before => Kind::Before(tool),
        _ if name == "tool.execute.error" => {
            Kind::After { tool, status: Status::Error, text: field::result(input.get("error")) }
        }
        _ => {
            let result = field::any(input, &["tool_response"]);
            Kind::After { tool, status: field::status(result), text: field::result(result) }
        }
    };
    Ok(Event { name, session, scope: Vec::new(), kind })
}

pub(super) fn answer(moment: Moment, reply: &Reply) -> Output {
    let said = match (moment, reply) {
        (Moment::Before | Moment::Prompt, Reply::Refuse(why) | Reply::Ask(why)) => {
            json!({ "decision": "deny", "reason": refusal(why) })
        }
        (Moment::Before | Moment::Prompt | Moment::After, Reply::End(why)) => {
            json!({ "decision": "stop", "reason": refusal(why) })
        }
        (Moment::After, Reply::Steer(advice)) => {
            json!({ "decision": "allow", "advice": advice })
        }
        (_, Reply::Warn(why)) => {
            json!({ "decision": "allow", "reason": sentence(why) })
        }
        _ => json!({}),
    };
    Output::json(&said)
}
