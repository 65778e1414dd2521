//! What a tool call can do to the world, worked out from its name and arguments.
//!
//! The guard against destruction ends a session, so this module would rather miss a deletion than
//! cry wolf over ordinary work: a name says `delete` in plain words, a shell command or an SQL
//! statement is parsed and not searched for scary words, and whatever cannot be understood
//! destroys nothing.

mod graphql;
mod http;
mod name;
mod shell;
mod sql;
mod target;
#[cfg(test)]
mod tests;

use deadstop_core::{Destruction, Effect};
use serde_json::{Map, Value};

use name::Words;

/// What a tool call can do to the world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effects {
    /// Whether it does nothing, looks, or changes something.
    pub effect: Effect,
    /// What it would destroy, one entry an operation.
    pub destroys: Vec<Destruction>,
}

/// Works out what a call of `tool` with these arguments would do.
///
/// ```
/// use deadstop_effect as effect;
/// let call = effect::of("Bash", &serde_json::json!({ "command": "cd /srv && rm -rf data" }));
/// assert_eq!(call.destroys[0].target, "/srv/data");
/// let call = effect::of("Bash", &serde_json::json!({ "command": "rm -rf node_modules && npm ci" }));
/// assert!(call.destroys.is_empty());
/// ```
pub fn of(tool: &str, arguments: &Value) -> Effects {
    let empty = Map::new();
    let arguments = arguments.as_object().unwrap_or(&empty);
    if let Some((tool, arguments)) = carried(arguments) {
        return of_object(tool, arguments.as_object().unwrap_or(&empty));
    }
    of_object(tool, arguments)
}

fn of_object(tool: &str, arguments: &Map<String, Value>) -> Effects {
    let words = Words::of(tool);
    if let Some(effects) = by_name(tool, &words, arguments) {
        return effects;
    }
    if words.is_database()
        && let Some(effects) = by_sql(&words, arguments)
    {
        return effects;
    }
    if let Some(effects) = by_program(&words, arguments) {
        return effects;
    }
    if let Some(effects) = by_command(&words, arguments) {
        return effects;
    }
    if !words.is_database()
        && let Some(effects) = by_sql(&words, arguments)
    {
        return effects;
    }
    if let Some(effects) = by_graphql(arguments) {
        return effects;
    }
    if let Some(effects) = http::of(arguments) {
        return effects;
    }
    Effects::only(words.effect())
}

/// One call cannot usefully report more operations than this; a guard trips long before.
const MAX_DESTRUCTIONS: usize = 32;

impl Effects {
    fn only(effect: Effect) -> Effects {
        Effects { effect, destroys: Vec::new() }
    }

    /// The stronger effect wins: one `rm` among ten `ls` makes the whole line change something.
    fn raise(&mut self, effect: Effect) {
        self.effect = match (self.effect, effect) {
            (Effect::Changes, _) | (_, Effect::Changes) => Effect::Changes,
            (Effect::Reads, _) | (_, Effect::Reads) => Effect::Reads,
            (Effect::Inert | Effect::Waits, Effect::Inert | Effect::Waits) => Effect::Inert,
        };
    }

    fn destroy(&mut self, verb: &str, target: &str) {
        self.effect = Effect::Changes;
        if self.destroys.len() < MAX_DESTRUCTIONS {
            let (verb, target) = (target::clip(verb), target::clip(target));
            self.destroys.push(Destruction { verb, target });
        }
    }

    fn absorb(&mut self, other: Effects) {
        self.raise(other.effect);
        let room = MAX_DESTRUCTIONS.saturating_sub(self.destroys.len());
        self.destroys.extend(other.destroys.into_iter().take(room));
    }
}

/// The call that a call carries: a tool that calls tools names the real one in its arguments.
fn carried(arguments: &Map<String, Value>) -> Option<(&str, &Value)> {
    let tool = arguments.get("tool_name")?.as_str()?;
    let keys = ["arguments", "params", "args", "tool_input", "input"];
    let inner = keys.iter().find_map(|key| arguments.get(*key).filter(|v| v.is_object()))?;
    Some((tool, inner))
}

/// Tools whose name, or whose `action`, is the deed.
fn by_name(tool: &str, words: &Words, arguments: &Map<String, Value>) -> Option<Effects> {
    let destroys = words.destroys()
        || (!words.edits()
            && ["action", "operation"].iter().any(|key| target::is_deletion(arguments.get(*key)))
            && target::known(arguments).is_some())
        || (words.is("memory")
            && target::is_deletion(arguments.get("command"))
            && arguments.contains_key("path"));
    if !destroys {
        return None;
    }
    let mut effects = Effects::only(Effect::Changes);
    if !target::is_rehearsal(arguments) {
        effects.destroy(name::last_part(tool), &target::of(arguments));
    }
    Some(effects)
}

/// Tools that run a program in another language.
fn by_program(words: &Words, arguments: &Map<String, Value>) -> Option<Effects> {
    let language = words.language()?;
    let keys = ["code", "script", "source", "program"];
    let text = keys.iter().find_map(|key| arguments.get(*key)?.as_str())?;
    Some(shell::of_program(language, text))
}

/// Tools that send a GraphQL document.
fn by_graphql(arguments: &Map<String, Value>) -> Option<Effects> {
    let keys = ["query", "mutation", "document", "graphql"];
    keys.iter().find_map(|key| graphql::of(arguments.get(*key)?.as_str()?))
}

/// Tools that run a shell command.
fn by_command(words: &Words, arguments: &Map<String, Value>) -> Option<Effects> {
    if words.edits() {
        // Editors have a `command` too: `view`, `create`, `str_replace`.
        return (arguments.get("command")?.as_str()? == "view")
            .then(|| Effects::only(Effect::Reads));
    }
    let runs = words.runs_commands();
    let keys = ["command", "cmd", "commands", "script", "code", "input"];
    let usual = if runs { keys.len() } else { 2 };
    let (key, value) = keys.iter().take(usual).find_map(|key| arguments.get_key_value(*key))?;
    match value {
        Value::String(text) => Some(shell::of_script(text)),
        Value::Array(items) => {
            let words: Vec<&str> = items.iter().map(Value::as_str).collect::<Option<_>>()?;
            Some(if key == "commands" { shell::of_lines(&words) } else { shell::of_argv(&words) })
        }
        _ => None,
    }
}

/// Tools that run SQL. Plain search words come in an argument called `query` as well, so that a
/// tool that searches is not asked.
fn by_sql(words: &Words, arguments: &Map<String, Value>) -> Option<Effects> {
    const NAMED: &[&str] = &["sql", "sql_query", "statement", "statements"];
    const LOOSE: &[&str] = &["query", "queries"];
    const ANY: &[&str] = &["command", "script", "code", "input", "text"];
    let database = words.is_database();
    let loose = if database || !words.searches() { LOOSE } else { &[] };
    let any = if database { ANY } else { &[] };
    let mut keys = NAMED.iter().chain(loose).chain(any);
    let value = keys.find_map(|key| arguments.get(*key))?;
    let mut effects = Effects::only(Effect::Inert);
    let mut read = |text: &str| match sql::of(text) {
        Some(found) => {
            effects.absorb(found);
            true
        }
        None => false,
    };
    let understood = match value {
        Value::String(text) => read(text),
        Value::Array(items) => {
            !items.is_empty() && items.iter().all(|item| item.as_str().is_some_and(&mut read))
        }
        _ => false,
    };
    // A broken DELETE still means to change something, even in a tool called `query`.
    let meant = database && value.as_str().is_some_and(sql::means_to_change);
    match (understood, meant) {
        (true, _) => Some(effects),
        (false, true) => Some(Effects::only(Effect::Changes)),
        (false, false) => None,
    }
}
