//! Changes in the text of a configuration: found by reading it, made in place.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde_json::value::RawValue;
use serde_json::{Value, json};

/// How servers go through us.
#[derive(Debug, Clone, Default)]
pub(super) struct Way {
    /// This program.
    pub(super) program: String,
    pub(super) agent: Option<String>,
    pub(super) gateway: Option<String>,
    /// Only these; all, if there are none.
    pub(super) only: Vec<String>,
}

/// What becomes of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// Its command goes through us.
    Wrapped(String),
    /// Its URL goes through the gateway, which has to know where it really is.
    Routed { server: String, url: String },
    /// It is as it was before.
    Unwrapped(String),
    /// It is left as it is, and this is why.
    Left { server: String, why: String },
}

impl Change {
    pub(super) fn text(&self) -> String {
        match self {
            Change::Wrapped(server) => format!("{server}: goes through deadstop now"),
            Change::Routed { server, url } => format!(
                "{server}: goes through the gateway now; it must be in deadstop.toml:\n  \
                 [mcp.servers.{server}]\n  url = {}",
                json!(url)
            ),
            Change::Unwrapped(server) => format!("{server}: as it was"),
            Change::Left { server, why } => format!("{server}: left as it is: {why}"),
        }
    }

    pub(super) fn json(&self) -> Value {
        match self {
            Change::Wrapped(server) => json!({ "server": server, "done": "wrapped" }),
            Change::Routed { server, url } => {
                json!({ "server": server, "done": "routed", "url": url })
            }
            Change::Unwrapped(server) => json!({ "server": server, "done": "unwrapped" }),
            Change::Left { server, why } => json!({ "server": server, "done": "left", "why": why }),
        }
    }
}

/// A text that is no configuration.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem(pub(super) String);

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Members of an object, each where it stands.
type Members<'a> = BTreeMap<String, &'a RawValue>;

/// A part of the text, and what comes in its place.
struct Edit {
    from: usize,
    to: usize,
    text: String,
}

/// A server in the configuration.
struct Server<'a> {
    name: String,
    raw: &'a RawValue,
    members: Members<'a>,
}

impl Server<'_> {
    fn text(&self, member: &str) -> Option<String> {
        serde_json::from_str(self.members.get(member)?.get()).ok()
    }

    fn args(&self) -> Option<Vec<String>> {
        match self.members.get("args") {
            Some(raw) => serde_json::from_str(raw.get()).ok(),
            None => Some(Vec::new()),
        }
    }

    /// Its command where that is a list with the arguments in it, as OpenCode has it.
    fn list(&self) -> Option<Vec<String>> {
        let words: Vec<String> = serde_json::from_str(self.members.get("command")?.get()).ok()?;
        (!words.is_empty()).then_some(words)
    }

    /// The command that stands behind us, if we are in front of it.
    fn behind(&self) -> Option<Vec<String>> {
        let words = match self.list() {
            Some(words) => words,
            None => [vec![self.text("command")?], self.args()?].concat(),
        };
        behind(&words)
    }
}

/// The command that stands behind us in a command line, if we are in front of it.
pub(super) fn behind(words: &[String]) -> Option<Vec<String>> {
    let (command, args) = words.split_first()?;
    let ours = Path::new(command).file_stem().is_some_and(|stem| stem == "deadstop");
    if !ours || args.first().map(String::as_str) != Some("mcp") {
        return None;
    }
    let at = args.iter().position(|arg| arg == "--")?;
    Some(args[at + 1..].to_vec()).filter(|command| !command.is_empty())
}

/// Our arguments for a server with this command line.
pub(super) fn in_front(way: &Way, server: &str, words: &[String]) -> Vec<String> {
    let mut ours: Vec<String> = ["mcp", "--server", server].map(str::to_owned).to_vec();
    if let Some(agent) = &way.agent {
        ours.extend(["--agent".to_owned(), agent.clone()]);
    }
    ours.push("--".to_owned());
    ours.extend(words.iter().cloned());
    ours
}

/// Puts us in front of every server.
pub(super) fn wrap(text: &str, way: &Way) -> Result<(String, Vec<Change>), Problem> {
    let plain = plain(text);
    rewrite(text, &plain, way, |server, text| {
        let name = server.name.clone();
        let left = |why: &str| (None, Change::Left { server: name.clone(), why: why.to_owned() });
        if server.behind().is_some() {
            return left("it goes through deadstop already");
        }
        if let Some(command) = server.text("command") {
            let Some(args) = server.args() else {
                return left("its `args` is not a list of strings");
            };
            let ours = in_front(way, &name, &[vec![command], args].concat());
            return (Some(command_edits(text, server, &way.program, &ours)), Change::Wrapped(name));
        }
        if let Some(words) = server.list() {
            let line = [vec![way.program.clone()], in_front(way, &name, &words)].concat();
            return (Some(edit(text, server, "command", &json!(line))), Change::Wrapped(name));
        }
        let Some(url) = server.text("url").or_else(|| server.text("httpUrl")) else {
            return left("it has neither a `command` nor a `url`");
        };
        let Some(gateway) = &way.gateway else {
            return left("it has a URL: put it into deadstop.toml, and use --gateway");
        };
        if url.starts_with(gateway.as_str()) {
            return left("it goes through the gateway already");
        }
        if server.text("type").as_deref() == Some("sse") {
            return left("it speaks the old protocol of two endpoints, which the gateway does not");
        }
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
            return left("its name cannot stand in a URL: use letters, digits, - and _");
        }
        let member = if server.members.contains_key("url") { "url" } else { "httpUrl" };
        let edits = edit(text, server, member, &json!(format!("{gateway}/mcp/{name}")));
        (Some(edits), Change::Routed { server: name, url })
    })
}

/// Takes us out again. `old` is the text before we were put in: where it is the same but for us, it
/// is given back as it was.
pub(super) fn unwrap(
    text: &str,
    way: &Way,
    old: Option<&str>,
) -> Result<(String, Vec<Change>), Problem> {
    let (plainly, earlier) = (plain(text), old.map(plain));
    let before = match earlier.as_deref().map(servers) {
        Some(Ok(servers)) => servers,
        _ => Vec::new(),
    };
    let done = rewrite(text, &plainly, way, |server, text| {
        let name = server.name.clone();
        if let Some(command) = server.behind().filter(|_| server.list().is_some()) {
            let edits = edit(text, server, "command", &json!(command));
            return (Some(edits), Change::Unwrapped(name));
        }
        if let Some(mut command) = server.behind() {
            let args = command.split_off(1);
            let edits = command_edits(text, server, &command[0], &args);
            return (Some(edits), Change::Unwrapped(name));
        }
        let was = before.iter().find(|old| old.name == name);
        for member in ["url", "httpUrl"] {
            let (now, was) = (server.text(member), was.and_then(|old| old.text(member)));
            let routed = now.as_ref().is_some_and(|url| url.ends_with(&format!("/mcp/{name}")));
            if let Some(was) = was.filter(|was| routed && now.as_ref() != Some(was)) {
                return (Some(edit(text, server, member, &json!(was))), Change::Unwrapped(name));
            }
        }
        (None, Change::Left { server: name, why: "it does not go through deadstop".to_owned() })
    })?;
    let same = |one: &str, other: &str| {
        let value =
            |text: &str| serde_json::from_str::<Value>(&plain(text)).ok().map(without_empty_args);
        value(one) == value(other)
    };
    match old {
        Some(old) if way.only.is_empty() && same(&done.0, old) => Ok((old.to_owned(), done.1)),
        _ => Ok(done),
    }
}

/// No `args` are as good as empty ones.
fn without_empty_args(mut value: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|key, value| !(key == "args" && *value == json!([])));
                map.values_mut().for_each(walk);
            }
            Value::Array(items) => items.iter_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut value);
    value
}

/// `plain` is the text as JSON, byte for byte as long. What is found there is changed in the text itself.
fn rewrite<'a>(
    text: &str,
    plain: &'a str,
    way: &Way,
    mut decide: impl FnMut(&Server<'a>, &'a str) -> (Option<Vec<Edit>>, Change),
) -> Result<(String, Vec<Change>), Problem> {
    let (mut edits, mut changes) = (Vec::new(), Vec::new());
    for server in servers(plain)? {
        if !way.only.is_empty() && !way.only.contains(&server.name) {
            continue;
        }
        let (edit, change) = decide(&server, plain);
        edits.extend(edit.into_iter().flatten());
        changes.push(change);
    }
    // From the end, so that what comes before stays where it is.
    edits.sort_by_key(|edit: &Edit| std::cmp::Reverse(edit.from));
    let mut new = text.to_owned();
    for Edit { from, to, text } in edits {
        new.replace_range(from..to, &text);
    }
    Ok((new, changes))
}

fn command_edits(text: &str, server: &Server<'_>, command: &str, args: &[String]) -> Vec<Edit> {
    let mut edits = edit(text, server, "command", &json!(command));
    let words: Vec<String> = args.iter().map(|arg| json!(arg).to_string()).collect();
    let list = format!("[{}]", words.join(", "));
    match server.members.contains_key("args") {
        true => edits.extend(place(text, server, "args").map(|(from, to)| Edit {
            from,
            to,
            text: list,
        })),
        false => edits.extend(place(text, server, "command").map(|(_, to)| Edit {
            from: to,
            to,
            text: format!(", \"args\": {list}"),
        })),
    }
    edits
}

fn edit(text: &str, server: &Server<'_>, member: &str, value: &Value) -> Vec<Edit> {
    let found = place(text, server, member);
    found.map(|(from, to)| Edit { from, to, text: value.to_string() }).into_iter().collect()
}

/// Where the value of a member stands.
fn place(text: &str, server: &Server<'_>, member: &str) -> Option<(usize, usize)> {
    let raw = server.members.get(member)?.get();
    let from = (raw.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    text.get(from..from + raw.len())?;
    Some((from, from + raw.len()))
}

/// A text with spaces in place of comments and of commas before a closing bracket, which many clients
/// allow: JSON of the same length.
fn plain(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = bytes.to_vec();
    let (mut at, mut comma) = (0, None);
    while let Some(&byte) = bytes.get(at) {
        let rest = &bytes[at..];
        let skipped = match byte {
            b'"' => {
                let mut end = 1;
                while let Some(&byte) = rest.get(end).filter(|byte| **byte != b'"') {
                    end += if byte == b'\\' { 2 } else { 1 };
                }
                comma = None;
                end + 1
            }
            b'/' if rest.starts_with(b"//") => {
                let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                plain[at..at + end].fill(b' ');
                end
            }
            b'/' if rest.starts_with(b"/*") => {
                let end = rest.windows(2).skip(2).position(|two| two == b"*/");
                let end = end.map_or(rest.len(), |end| end + 4);
                // Line ends stay, so that an error names the right line.
                plain[at..at + end]
                    .iter_mut()
                    .filter(|byte| **byte != b'\n')
                    .for_each(|byte| *byte = b' ');
                end
            }
            b',' => {
                comma = Some(at);
                1
            }
            b']' | b'}' => {
                if let Some(comma) = comma.take() {
                    plain[comma] = b' ';
                }
                1
            }
            byte => {
                comma = comma.filter(|_| byte.is_ascii_whitespace());
                1
            }
        };
        at += skipped;
    }
    String::from_utf8(plain).unwrap_or_else(|_| text.to_owned())
}

/// All servers of a configuration. Some clients have them for each project; VS Code, Zed and OpenCode call
/// them otherwise.
fn servers(text: &str) -> Result<Vec<Server<'_>>, Problem> {
    let problem = |error: serde_json::Error| Problem(format!("not JSON: {error}"));
    let whole: &RawValue = serde_json::from_str(text).map_err(problem)?;
    let mut found = Vec::new();
    find(whole, "", 0, &mut found);
    found.sort_by_key(|server| server.raw.get().as_ptr() as usize);
    Ok(found)
}

fn find<'a>(raw: &'a RawValue, key: &str, depth: usize, found: &mut Vec<Server<'a>>) {
    let Ok(members) = serde_json::from_str::<Members<'a>>(raw.get()) else { return };
    let is_list = match key {
        "mcpServers" | "context_servers" => true,
        "servers" => depth <= 2,
        // In VS Code's settings the servers stand one step further in.
        "mcp" => depth == 1 && !members.contains_key("servers"),
        _ => false,
    };
    for (name, raw) in members {
        match is_list {
            true => {
                if let Ok(members) = serde_json::from_str::<Members<'a>>(raw.get()) {
                    found.push(Server { name, raw, members });
                }
            }
            false if depth < 4 => find(raw, &name, depth + 1, found),
            false => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{
  "theme":   "dark",
  "mcpServers": {
    "files": { "command": "npx", "args": ["-y", "server-filesystem", "/srv"],
               "env": {"KEY": "1"} },
    "bare": {"command": "/opt/se rver"},
    "web": { "type": "http", "url": "https://mcp.example/mcp" },
    "odd": { "x": 1 }
  },
  "projects": { "/home/a": { "mcpServers": { "sub": { "command": "sub", "args": [] } } } }
}
"#;

    fn way() -> Way {
        Way { program: "/usr/bin/deadstop".into(), ..Way::default() }
    }

    #[test]
    fn there_and_back() {
        for gateway in [None, Some("http://127.0.0.1:4141".to_owned())] {
            let way = Way { gateway: gateway.clone(), ..way() };
            let (wrapped, changes) = wrap(TEXT, &way).unwrap();
            let value: Value = serde_json::from_str(&wrapped).unwrap();
            let files = &value["mcpServers"]["files"];
            assert_eq!(files["command"], "/usr/bin/deadstop");
            let args = ["mcp", "--server", "files", "--", "npx", "-y", "server-filesystem", "/srv"];
            assert_eq!(files["args"], json!(args));
            assert_eq!(files["env"]["KEY"], "1");
            assert_eq!(
                value["mcpServers"]["bare"]["args"],
                json!(["mcp", "--server", "bare", "--", "/opt/se rver"])
            );
            assert_eq!(value["projects"]["/home/a"]["mcpServers"]["sub"]["args"][4], "sub");
            let url = &value["mcpServers"]["web"]["url"];
            assert_eq!(url == "http://127.0.0.1:4141/mcp/web", gateway.is_some(), "{url}");
            assert!(wrapped.starts_with("{\n  \"theme\":   \"dark\",\n"), "{wrapped}");
            assert_eq!(changes.len(), 5);
            // Once more changes nothing, and back gives what was.
            let (again, _) = wrap(&wrapped, &way).unwrap();
            assert_eq!(again, wrapped);
            let (back, _) = unwrap(&wrapped, &way, Some(TEXT)).unwrap();
            assert_eq!(back, TEXT);
            // Also where the rest has changed meanwhile.
            let changed = wrapped.replace("dark", "light");
            let (back, _) = unwrap(&changed, &way, Some(TEXT)).unwrap();
            let (back, was): (Value, Value) =
                (serde_json::from_str(&back).unwrap(), serde_json::from_str(TEXT).unwrap());
            assert_eq!(back["theme"], "light");
            assert_eq!(without_empty_args(back["mcpServers"].clone()), was["mcpServers"]);
        }
    }

    #[test]
    fn some_only_and_agents() {
        let way = Way { only: vec!["files".into()], agent: Some("coder".into()), ..way() };
        let (wrapped, changes) = wrap(TEXT, &way).unwrap();
        assert_eq!(changes, [Change::Wrapped("files".into())]);
        let value: Value = serde_json::from_str(&wrapped).unwrap();
        assert_eq!(value["mcpServers"]["files"]["args"][3], "--agent");
        assert_eq!(value["mcpServers"]["bare"]["command"], "/opt/se rver");
        let (back, _) = unwrap(&wrapped, &way, None).unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(&back).unwrap(),
            serde_json::from_str::<Value>(TEXT).unwrap()
        );
    }

    #[test]
    fn comments_and_the_words_of_other_clients() {
        let text = r#"{
  // "mcpServers": {}, and a comma that most clients allow
  "servers": { "a": { "command": "x//y", /* why */ "args": ["/*", "-y",], }, },
  "mcp": { "own": { "type": "local", "command": ["npx", "-y", "z"], "enabled": true } },
  "context_servers": { "zed": { "command": "w", "args": [] } },
}
"#;
        let (wrapped, changes) = wrap(text, &way()).unwrap();
        assert_eq!(changes.len(), 3, "{changes:?}");
        assert!(
            wrapped.contains("// \"mcpServers\": {}, and a comma") && wrapped.contains("/* why */")
        );
        let value: Value = serde_json::from_str(&plain(&wrapped)).unwrap();
        let front = ["mcp", "--server", "a", "--", "x//y", "/*", "-y"];
        assert_eq!(value["servers"]["a"]["args"], json!(front));
        let list = ["/usr/bin/deadstop", "mcp", "--server", "own", "--", "npx", "-y", "z"];
        assert_eq!(value["mcp"]["own"]["command"], json!(list));
        assert_eq!(value["context_servers"]["zed"]["command"], "/usr/bin/deadstop");
        assert_eq!(wrap(&wrapped, &way()).unwrap().0, wrapped);
        assert_eq!(unwrap(&wrapped, &way(), Some(text)).unwrap().0, text);
        let without = unwrap(&wrapped, &way(), None).unwrap().0;
        let value: Value = serde_json::from_str(&plain(&without)).unwrap();
        assert_eq!(value["mcp"]["own"]["command"], json!(["npx", "-y", "z"]));
    }

    #[test]
    fn mistakes() {
        assert!(wrap("{ // no\n x }", &way()).unwrap_err().to_string().contains("line 2"));
        assert_eq!(wrap("{}", &way()).unwrap().1, []);
        let vs_code = r#"{"servers":{"a":{"command":"x"}}}"#;
        assert_eq!(wrap(vs_code, &way()).unwrap().1, [Change::Wrapped("a".into())]);
    }
}
