//! What a tool call can do to the world, worked out from its name and arguments.
//!
//! A call yields harms: kind, target, reach, recovery. A name says `delete` in plain words; a shell
//! command or an SQL statement is parsed and not searched for scary words. A command that cannot be
//! parsed is read statement by statement, then word by word, and what is left is `unreadable`.

mod files;
mod graphql;
mod http;
mod name;
mod place;
mod secret;
mod shell;
mod sql;
mod surroundings;
mod target;
#[cfg(test)]
mod tests;

use deadstop_core::{Effect, Harm, HarmKind, Reach, Recovery};
use serde_json::{Map, Value};

use name::Words;
pub use place::glob_fits as fits;
pub use surroundings::{Kept, Nowhere, Sight, Surroundings};

/// What a tool call can do to the world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effects {
    /// Whether it does nothing, looks, or changes something.
    pub effect: Effect,
    /// What harm it would do, one entry for each thing.
    pub harms: Vec<Harm>,
    /// Paths that it would create, if nothing is there yet.
    pub makes: Vec<String>,
    /// The commands that were read, wrappers and quotes taken off.
    pub commands: Vec<String>,
}

/// Works out what a call of `tool` with these arguments would do, from its text alone.
///
/// ```
/// use deadstop_effect as effect;
/// use deadstop_core::Severity;
/// let call = effect::of("Bash", &serde_json::json!({ "command": "cd /srv && rm -rf data" }));
/// assert_eq!(call.harms[0].target, "/srv/data");
/// assert_eq!(call.harms[0].severity(), Severity::Serious);
/// let call = effect::of("Bash", &serde_json::json!({ "command": "rm -rf node_modules && npm ci" }));
/// assert_eq!(call.harms[0].severity(), Severity::None);
/// ```
pub fn of(tool: &str, arguments: &Value) -> Effects {
    of_in(tool, arguments, &Nowhere)
}

/// The same, with a look at the machine on which it would run.
pub fn of_in(tool: &str, arguments: &Value, here: &dyn Surroundings) -> Effects {
    let empty = Map::new();
    let arguments = arguments.as_object().unwrap_or(&empty);
    if let Some((tool, arguments)) = carried(arguments) {
        return of_object(tool, arguments.as_object().unwrap_or(&empty), here);
    }
    of_object(tool, arguments, here)
}

fn of_object(tool: &str, arguments: &Map<String, Value>, here: &dyn Surroundings) -> Effects {
    let words = Words::of(tool);
    let mut effects = read(tool, &words, arguments, here);
    files::tool(&mut effects, &words, arguments, here);
    effects
}

fn read(
    tool: &str,
    words: &Words,
    arguments: &Map<String, Value>,
    here: &dyn Surroundings,
) -> Effects {
    by_name(tool, words, arguments, here)
        .or_else(|| words.is_database().then(|| by_sql(words, arguments)).flatten())
        .or_else(|| by_program(words, arguments, here))
        .or_else(|| by_arguments(tool, words, arguments, here))
        .or_else(|| by_command(words, arguments, here))
        .or_else(|| (!words.is_database()).then(|| by_sql(words, arguments)).flatten())
        .or_else(|| by_graphql(arguments))
        .or_else(|| http::of(arguments))
        .unwrap_or_else(|| Effects::only(words.effect()))
}

/// Harms of one call that are reported; the worst are kept.
const MAX_HARMS: usize = 32;

/// Commands of one call that are reported.
const MAX_COMMANDS: usize = 16;

/// Paths of one call that are reported as made.
const MAX_MADE: usize = 32;

impl Effects {
    fn only(effect: Effect) -> Effects {
        Effects { effect, harms: Vec::new(), makes: Vec::new(), commands: Vec::new() }
    }

    /// One harm and nothing else.
    fn of_harm(harm: Harm) -> Effects {
        Effects { harms: vec![harm], ..Effects::only(Effect::Changes) }
    }

    /// The stronger effect wins: one `rm` among ten `ls` makes the whole line change something.
    fn raise(&mut self, effect: Effect) {
        self.effect = match (self.effect, effect) {
            (Effect::Changes, _) | (_, Effect::Changes) => Effect::Changes,
            (Effect::Reads, _) | (_, Effect::Reads) => Effect::Reads,
            (Effect::Inert | Effect::Waits, Effect::Inert | Effect::Waits) => Effect::Inert,
        };
    }

    /// Something on another machine or service goes for good.
    fn destroy(&mut self, verb: &str, target: &str) {
        let reach = remote(&[verb, target]);
        self.harm(HarmKind::Destroys, verb, target, reach, Recovery::None);
    }

    /// The same, where only a name says so.
    fn destroy_by_name(&mut self, verb: &str, target: &str) {
        let reach = remote(&[target]);
        self.harm(HarmKind::Destroys, verb, target, reach, Recovery::Unknown);
    }

    fn harm(&mut self, kind: HarmKind, verb: &str, target: &str, reach: Reach, recovery: Recovery) {
        if kind != HarmKind::ReadsSecret {
            self.effect = Effect::Changes;
        }
        let (verb, target) = (target::clip(verb), target::clip(target));
        let harm = Harm { kind, verb, target, reach, recovery };
        if self.harms.contains(&harm) {
            return;
        }
        if self.harms.len() < MAX_HARMS {
            self.harms.push(harm);
        } else if let Some(least) = self.harms.iter_mut().min_by_key(|known| known.severity())
            && least.severity() < harm.severity()
        {
            *least = harm;
        }
    }

    fn absorb(&mut self, other: Effects) {
        self.raise(other.effect);
        for one in other.harms {
            self.harm(one.kind, &one.verb, &one.target, one.reach, one.recovery);
        }
    }

    fn read_as(&mut self, name: &str, arguments: &[String]) {
        if self.commands.len() < MAX_COMMANDS {
            let words = target::join(arguments);
            self.commands.push(format!("{name} {words}").trim_end().to_owned());
        }
    }

    fn make(&mut self, path: String) {
        if self.makes.len() < MAX_MADE && !self.makes.contains(&path) {
            self.makes.push(path);
        }
    }
}

/// How far something elsewhere reaches: production, if one of these is named like it.
fn remote(texts: &[&str]) -> Reach {
    let is_word = |word: &str| {
        ["prod", "production", "prd", "live"].iter().any(|p| p.eq_ignore_ascii_case(word))
    };
    let named = |text: &&str| text.split(|c: char| !c.is_ascii_alphabetic()).any(is_word);
    if texts.iter().any(named) { Reach::Production } else { Reach::Remote }
}

/// The call that a call carries: a tool that calls tools names the real one in its arguments.
fn carried(arguments: &Map<String, Value>) -> Option<(&str, &Value)> {
    let tool = arguments.get("tool_name")?.as_str()?;
    let keys = ["arguments", "params", "args", "tool_input", "input"];
    let inner = keys.iter().find_map(|key| arguments.get(*key).filter(|v| v.is_object()))?;
    Some((tool, inner))
}

/// Tools whose name, or whose `action`, is the deed.
fn by_name(
    tool: &str,
    words: &Words,
    arguments: &Map<String, Value>,
    here: &dyn Surroundings,
) -> Option<Effects> {
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
        let target = target::of(arguments);
        effects.destroy_by_name(name::last_part(tool), &target);
        if words.destroys_much()
            && let Some(harm) = effects.harms.last_mut()
        {
            harm.reach = Reach::Production;
        }
        // A directory of this machine, where the path is one that a whole tree hangs on.
        let path =
            arguments.get("path").and_then(Value::as_str).filter(|p| p.starts_with(['/', '~']));
        let tree = words.is_folder() || arguments.get("recursive").is_some_and(|v| v == true);
        if let Some(path) = path.filter(|_| tree)
            && let Some((reach, Recovery::None)) = place::loss(here, path, place::Depth::Tree)
        {
            effects.harm(HarmKind::Destroys, name::last_part(tool), path, reach, Recovery::None);
        }
    }
    Some(effects)
}

/// Tools that run a program in another language.
fn by_program(
    words: &Words,
    arguments: &Map<String, Value>,
    here: &dyn Surroundings,
) -> Option<Effects> {
    let language = words.language()?;
    let keys = ["code", "script", "source", "program"];
    let text = keys.iter().find_map(|key| arguments.get(*key)?.as_str())?;
    Some(shell::of_program(language, text, here))
}

/// Tools that send a GraphQL document.
fn by_graphql(arguments: &Map<String, Value>) -> Option<Effects> {
    let keys = ["query", "mutation", "document", "graphql"];
    keys.iter().find_map(|key| graphql::of(arguments.get(*key)?.as_str()?))
}

/// Tools that run a shell command.
fn by_command(
    words: &Words,
    arguments: &Map<String, Value>,
    here: &dyn Surroundings,
) -> Option<Effects> {
    if words.edits() {
        // Editors have a `command` too: `view`, `create`, `str_replace`.
        return (arguments.get("command")?.as_str()? == "view")
            .then(|| Effects::only(Effect::Reads));
    }
    let runs = words.runs_commands();
    let keys = ["command", "cmd", "cli_command", "commands", "script", "code", "chars", "input"];
    let usual = if runs { keys.len() } else { 3 };
    let (key, value) = keys.iter().take(usual).find_map(|key| arguments.get_key_value(*key))?;
    let language = shell::Shell::of(words.is_powershell());
    match value {
        Value::String(text) if text.contains("exec_command(") => {
            let commands = code_mode(text);
            Some(shell::of_lines(&commands, here))
        }
        Value::String(text) => Some(shell::of_script(text, language, here)),
        Value::Array(items) => {
            let words: Vec<&str> = items.iter().map(Value::as_str).collect::<Option<_>>()?;
            Some(match key.as_str() {
                "commands" => shell::of_lines(&words, here),
                _ => shell::of_argv(&words, here),
            })
        }
        _ => None,
    }
}

/// Tools that are named after a program and take its arguments: `kubectl {args: ["delete", …]}`,
/// `mcp__redis__command {command: "FLUSHALL"}`.
fn by_arguments(
    tool: &str,
    words: &Words,
    arguments: &Map<String, Value>,
    here: &dyn Surroundings,
) -> Option<Effects> {
    let program = words.program(tool)?;
    let keys = ["args", "argv", "arguments", "command", "cmd"];
    match keys.iter().find_map(|key| arguments.get(*key))? {
        // What a container is told to run is no command of its manager.
        Value::String(_) if matches!(program, "docker" | "podman" | "kubectl") => None,
        Value::String(text) => {
            let first = text.split_whitespace().next()?.rsplit('/').next()?;
            let full = first == program || first.starts_with(|c: char| !c.is_ascii_alphabetic());
            let script = if full { text.clone() } else { format!("{program} {text}") };
            Some(shell::of_script(&script, shell::Shell::Posix, here))
        }
        Value::Array(items) => {
            let items: Vec<&str> = items.iter().map(Value::as_str).collect::<Option<_>>()?;
            let own = items.first().is_some_and(|first| *first == program);
            let argv = if own { items } else { [&[program], items.as_slice()].concat() };
            Some(shell::of_argv(&argv, here))
        }
        _ => None,
    }
}

/// The commands in a program that calls tools: `tools.exec_command({ cmd: "ls" })`.
fn code_mode(program: &str) -> Vec<&str> {
    let calls = program.split("exec_command(").skip(1).take(50);
    let quoted = calls.filter_map(|call| {
        let at = call.find("cmd")?;
        let rest = &call[at..];
        let open = rest.find(['"', '\'', '`'])?;
        let quote = rest[open..].chars().next()?;
        let text = &rest[open + 1..];
        Some(&text[..text.find(quote).unwrap_or(text.len())])
    });
    quoted.collect()
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
    let mut read = |text: &str| match sql::of(text).or_else(|| sql::of_graph(text)) {
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
