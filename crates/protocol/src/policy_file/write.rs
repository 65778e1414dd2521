//! Policies as text: the effective policy, which reads back as the same, and the starter file.
//!
//! Values come from core; only the order and the sentences for people stand here.

use std::fmt::Write as _;

use deadstop_core::{Policy, PolicySet, Preset};
use serde_json::{Map, Value};

/// A section in the order in which people meet it: its name, what it is for, and its keys.
pub(super) struct Section {
    pub(super) name: &'static str,
    about: &'static str,
    pub(super) keys: &'static [Entry],
}

/// A key, what it means, and for a key without a default an example.
pub(super) struct Entry {
    pub(super) name: &'static str,
    about: &'static str,
    example: Option<&'static str>,
}

const fn key(name: &'static str, about: &'static str) -> Entry {
    Entry { name, about, example: None }
}

const fn limit(name: &'static str, about: &'static str, example: &'static str) -> Entry {
    Entry { name, about, example: Some(example) }
}

const ACTION: Entry =
    key("action", "What to do then: warn, ask (a person), block (this call) or terminate.");
const ENDS: Entry = key("ends", "What a stop ends: scope, session or agent.");
const ENABLED: Entry = key("enabled", "Whether this guard works at all.");

/// All sections of a policy. A test holds them against core.
pub(super) const SECTIONS: [Section; 14] = [
    Section {
        name: "access",
        about: "Which tools may be called; `*` stands for any characters.",
        keys: &[
            key("allow", "If not empty, only these tools, such as [\"read_*\", \"search\"]."),
            key("deny", "Tools that may not be called, such as [\"delete_*\"]; wins over allow."),
            key("ask", "Tools that wait until a person has approved the call."),
            key(
                "rules",
                "Arguments that are not allowed, such as \
                 [{ tool = \"refund\", argument = \"amount\", above = 100 }].",
            ),
            ACTION,
            key(
                "pin_tools",
                "MCP tools whose description or schema has changed: off, warn or block.",
            ),
        ],
    },
    Section {
        name: "steps",
        about: "How many calls may be made.",
        keys: &[
            limit("max_steps", "Tool calls.", "200"),
            limit("max_model_calls", "Model calls.", "200"),
            ACTION,
        ],
    },
    Section {
        name: "tokens",
        about: "How many tokens may be used.",
        keys: &[
            limit("input_token_limit", "Input tokens, without cache reads.", "2000000"),
            limit("output_token_limit", "Output tokens, reasoning included.", "200000"),
            limit("total_token_limit", "Both together.", "2000000"),
            ACTION,
        ],
    },
    Section {
        name: "budget",
        about: "How much money may be spent, on models and on tools.",
        keys: &[
            limit("max_cost_usd", "The most that may be spent, in dollars.", "5.00"),
            limit("soft_alert_threshold_usd", "Warn when this much is spent.", "4.00"),
            key("per", "How long the limit counts: total, hour or day."),
            key("reservation", "What is set aside for a call: expected, or ceiling (never over)."),
            key(
                "ceiling_share",
                "Under ceiling: the share of the rest that a call without a maximum takes.",
            ),
            key("wait_s", "Seconds that a call waits for room that calls in flight may leave."),
            key("tool_prices", "Dollars for a call of a tool, such as { \"web_search\" = 0.01 }."),
            ACTION,
        ],
    },
    Section {
        name: "time",
        about: "How long it may take.",
        keys: &[
            limit("max_wall_time_seconds", "Seconds since the session was opened.", "3600"),
            ACTION,
        ],
    },
    Section {
        name: "ending",
        about: "What happens before and at the end of a limit.",
        keys: &[
            key(
                "wrap_up_at",
                "The share of a limit at which the agent is asked to finish, or \"off\".",
            ),
            key(
                "reserve_for_answer",
                "The share of each limit kept for one last answer without tools, or \"off\".",
            ),
        ],
    },
    Section {
        name: "velocity",
        about: "How fast money and tokens may go.",
        keys: &[
            limit("max_usd_per_minute", "Dollars a minute.", "1.00"),
            limit("max_tokens_per_minute", "Tokens a minute, input and output.", "500000"),
            ACTION,
        ],
    },
    Section {
        name: "loop",
        about: "Calls that repeat themselves and bring nothing new.",
        keys: &[
            ENABLED,
            key("steer_at", "Repeated calls from which on the model is told, or \"off\"."),
            key("block_at", "Repeated calls from which on they are refused, or \"off\"."),
            key("end_at", "Repeated calls that end the session, or \"off\"."),
            key("threshold", "Repeated calls in a row that are a loop, where no rung is set."),
            ACTION,
            ENDS,
            key("max_wait_s", "Seconds that an agent may wait for something, looking with pauses."),
            key("tools", "Tools with rungs of their own, or `ignore = true`."),
        ],
    },
    Section {
        name: "similarity",
        about: "The similarity kill switch: requests that look too much like earlier ones.",
        keys: &[
            ENABLED,
            key("window_size", "Requests to look back on."),
            key("threshold", "The score that must be exceeded."),
            key("prompt_weight", "What a similar prompt counts."),
            key("response_weight", "What a similar response counts."),
            key("tool_call_weight", "What a repeated tool call counts."),
            ACTION,
            ENDS,
        ],
    },
    Section {
        name: "text_loop",
        about: "Text that repeats itself, inside one answer or over several.",
        keys: &[
            ENABLED,
            key("steer_at", "Repeated answers from which on the model is told, or \"off\"."),
            key("end_at", "Repeated answers that end the session, or \"off\"."),
            key(
                "max_repeated_answers",
                "Answers without a tool call that say the same, where no rung is set.",
            ),
            ACTION,
            ENDS,
        ],
    },
    Section {
        name: "destructive",
        about: "Calls that delete, drop or overwrite.",
        keys: &[
            ENABLED,
            key("max_deletes", "The destructive call that trips, over all targets."),
            key("max_same_target", "The destructive call that trips, on one target."),
            key("window_s", "The window in seconds."),
            key("exempt_targets", "Targets that may be destroyed freely, such as [\"/tmp/*\"]."),
            ACTION,
            ENDS,
        ],
    },
    Section {
        name: "harm",
        about: "What one call would do: its first time, not its third.",
        keys: &[
            ENABLED,
            key("catastrophic", "About catastrophic harm: allow, warn, ask, block, terminate."),
            key("serious", "About serious harm that does not come back."),
            key("recoverable", "About serious harm that takes work to bring back."),
            key("unknown", "About serious harm by tools whose name alone says so."),
            key("secrets", "About secrets that are read or sent, and fetched code that is run."),
            key("unreadable", "About commands that cannot be read and hold destructive words."),
            key("allow", "Deeds that are allowed, such as [\"rm -rf tmp/*\"]."),
        ],
    },
    Section {
        name: "breaker",
        about: "Leaves a failing server alone for a while, per agent and server.",
        keys: &[
            ENABLED,
            key("open_after_failures", "Failures in a row that open the circuit."),
            key("cooldown_seconds", "Seconds it stays open."),
            key("half_open_max_calls", "Trial calls after that."),
            ACTION,
        ],
    },
    Section {
        name: "strikes",
        about: "Failures in a row that end a session.",
        keys: &[
            ENABLED,
            key("consecutive_blocks", "Blocked calls in a row."),
            key("consecutive_errors", "Tool calls in a row that got no answer."),
            key("provider_errors", "Whether failures of the provider count as errors, too."),
            ACTION,
        ],
    },
];

/// The complete, effective policy in the shape of a policy file. A limit that is not set is null.
pub fn to_json(policies: &PolicySet) -> Value {
    let mut top = object(&policies.session);
    // At the top, a breaker is about the agent's; that one stands in the agent's own section. A
    // session's own does nothing, and is the preset's.
    top.remove("breaker");
    top.insert("preset".to_owned(), nearest_preset(policies).name().into());
    for (name, policy) in
        [("agent", &policies.agent), ("project", &policies.project), ("nested", &policies.nested)]
    {
        top.insert(name.to_owned(), Value::Object(object(policy)));
    }
    Value::Object(top)
}

/// The complete, effective policy as TOML. Read back, it is the same policy.
///
/// ```
/// use deadstop_core::Preset;
/// use deadstop_protocol::policy_file::{parse, to_toml};
/// let policies = Preset::Strict.policies();
/// assert_eq!(parse(&to_toml(&policies), "policy.toml"), Ok(policies));
/// ```
pub fn to_toml(policies: &PolicySet) -> String {
    let Value::Object(mut top) = to_json(policies) else { return String::new() };
    let others = ["agent", "project", "nested"].map(|name| (name, top.remove(name)));
    let mut out = String::new();
    line(&mut out, "preset", top.get("preset"));
    write_scope(&mut out, "", &top);
    for (name, policy) in others {
        if let Some(Value::Object(policy)) = policy {
            let _ = write!(out, "\n[{name}]\n");
            write_scope(&mut out, &format!("{name}."), &policy);
        }
    }
    out
}

fn write_scope(out: &mut String, prefix: &str, policy: &Map<String, Value>) {
    line(out, "mode", policy.get("mode"));
    line(out, "fail_mode", policy.get("fail_mode"));
    line(out, "ask_timeout_s", policy.get("ask_timeout_s"));
    line(out, "offline_calls", policy.get("offline_calls"));
    for section in &SECTIONS {
        if let Some(settings) = policy.get(section.name) {
            let _ = write!(out, "\n[{prefix}{}]\n", section.name);
            for key in section.keys {
                line(out, key.name, settings.get(key.name));
            }
        }
    }
}

/// A policy to start from: everything at the preset's defaults, commented out and explained.
///
/// ```
/// use deadstop_core::Preset;
/// use deadstop_protocol::policy_file::{parse, template};
/// assert_eq!(parse(&template(Preset::Strict), "policy.toml"), Ok(Preset::Strict.policies()));
/// ```
pub fn template(preset: Preset) -> String {
    let policies = preset.policies();
    let mut session = object(&policies.session);
    let agent = object(&policies.agent);
    if let Some(breaker) = agent.get("breaker") {
        session.insert("breaker".to_owned(), breaker.clone());
    }
    let mut out = String::from(
        "# A Deadstop policy. Settings are commented out and at their defaults: remove the `#` in\n\
         # front of one and change it. `deadstop policy check` tells whether all is well, and\n\
         # `deadstop policy show` what is in force.\n\
         \n\
         # Where to start from: observe (only warns), balanced, or strict (stops loops, too).\n",
    );
    line(&mut out, "preset", Some(&preset.name().into()));
    out.push_str("\n# enforce, or log-only: everything passes, and what would have been stopped is recorded.\n");
    line(&mut out, "mode", session.get("mode"));
    out.push_str("\n# While the database cannot be written: open (calls go on), or closed (they are refused).\n");
    line(&mut out, "fail_mode", session.get("fail_mode"));
    out.push_str("\n# Seconds that a call waits for a person where an action is `ask`; then it is refused.\n");
    line(&mut out, "ask_timeout_s", session.get("ask_timeout_s"));
    out.push_str(
        "\n# In a fleet, under fail_mode open: calls of an agent that each node lets pass while it\n\
         # cannot reach the state that nodes share; then it refuses.\n",
    );
    line(&mut out, "offline_calls", session.get("offline_calls"));
    out.push_str("\n# What follows is about a session.\n");
    for section in &SECTIONS {
        explain(&mut out, "", section, section.about, session.get(section.name));
    }
    out.push_str(
        "\n# Each of these sections can also be about an agent over all its sessions, about the\n\
         # whole project, or about scopes inside a session: [agent.budget], [project.budget],\n\
         # [nested.loop].\n",
    );
    for section in SECTIONS.iter().filter(|section| section.name == "destructive") {
        let about = "What an agent may destroy in all its sessions together.";
        explain(&mut out, "agent.", section, about, agent.get(section.name));
    }
    out
}

fn explain(out: &mut String, prefix: &str, section: &Section, about: &str, set: Option<&Value>) {
    let _ = write!(out, "\n# {about}\n[{prefix}{}]\n", section.name);
    for key in section.keys {
        let value = set.and_then(|set| set.get(key.name)).filter(|value| !value.is_null());
        match (value, key.example) {
            (None, Some(example)) => {
                let (name, about) = (key.name, key.about);
                let _ = writeln!(out, "# {about} Not set; an example: {name} = {example}");
            }
            _ => {
                let _ = write!(out, "# {}\n#", key.about);
                line(out, key.name, value);
            }
        }
    }
}

fn object(policy: &Policy) -> Map<String, Value> {
    match serde_json::to_value(policy) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// The preset that the policies come from, or else one that agrees in what no file can say.
fn nearest_preset(policies: &PolicySet) -> Preset {
    let all = [Preset::Balanced, Preset::Strict, Preset::Observe];
    let like = |preset: &Preset| preset.policies().session.breaker == policies.session.breaker;
    let same = all.into_iter().find(|preset| preset.policies() == *policies);
    same.or_else(|| all.into_iter().find(like)).unwrap_or_default()
}

/// `name = value`, or nothing if there is no value: TOML has no null.
fn line(out: &mut String, name: &str, value: Option<&Value>) {
    if let Some(value) = value.filter(|value| !value.is_null()) {
        let _ = writeln!(out, "{name} = {}", toml(value));
    }
}

fn toml(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(toml).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) if map.is_empty() => "{}".to_owned(),
        Value::Object(map) => {
            let entry =
                |(key, value): (&String, &Value)| format!("{} = {}", named(key), toml(value));
            format!("{{ {} }}", map.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

fn named(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(bare) { key.to_owned() } else { quoted(key) }
}

/// A basic string; JSON's escapes are TOML's, but for one.
fn quoted(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}
