//! The same for a configuration in TOML, as Codex has it: `[mcp_servers.NAME]` with `command` and `args`.

use super::edit::{Change, Problem, Way, behind, in_front};

/// Puts us in front of every server, or takes us out again.
pub(super) fn rewrite(text: &str, way: &Way, undo: bool) -> Result<(String, Vec<Change>), Problem> {
    let mut doc: toml_edit::DocumentMut = text
        .parse()
        .map_err(|error: toml_edit::TomlError| Problem(format!("not TOML: {error}")))?;
    let mut changes = Vec::new();
    let servers = doc.get_mut("mcp_servers").and_then(toml_edit::Item::as_table_like_mut);
    for (name, server) in servers.into_iter().flat_map(|servers| servers.iter_mut()) {
        let name = name.get().to_owned();
        if !way.only.is_empty() && !way.only.contains(&name) {
            continue;
        }
        let left = |why: &str| Change::Left { server: name.clone(), why: why.to_owned() };
        let Some(server) = server.as_table_like_mut() else { continue };
        let Some(words) = words(server) else {
            changes.push(left("it has no `command`: only servers on stdio go through deadstop"));
            continue;
        };
        let (line, change) = match (behind(&words), undo) {
            (Some(command), true) => (command, Change::Unwrapped(name.clone())),
            (Some(_), false) => {
                changes.push(left("it goes through deadstop already"));
                continue;
            }
            (None, true) => {
                changes.push(left("it does not go through deadstop"));
                continue;
            }
            (None, false) => {
                let line = [vec![way.program.clone()], in_front(way, &name, &words)].concat();
                (line, Change::Wrapped(name.clone()))
            }
        };
        let Some((command, args)) = line.split_first() else { continue };
        set(server, "command", command.as_str().into());
        if !args.is_empty() || server.contains_key("args") {
            set(server, "args", args.iter().collect::<toml_edit::Array>().into());
        }
        changes.push(change);
    }
    Ok((doc.to_string(), changes))
}

/// Sets a value and keeps what stands around it.
fn set(server: &mut dyn toml_edit::TableLike, key: &str, mut value: toml_edit::Value) {
    if let Some(old) = server.get(key).and_then(toml_edit::Item::as_value) {
        *value.decor_mut() = old.decor().clone();
    }
    server.insert(key, toml_edit::Item::Value(value));
}

/// A server's command line.
fn words(server: &dyn toml_edit::TableLike) -> Option<Vec<String>> {
    let command = server.get("command")?.as_str()?.to_owned();
    let args = server.get("args").and_then(toml_edit::Item::as_array);
    let args = args.into_iter().flatten().filter_map(|word| word.as_str().map(str::to_owned));
    Some(std::iter::once(command).chain(args).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let text = "model = \"gpt-5\" # mine\n\n[mcp_servers.files]\ncommand = \"npx\" # why\nargs = [\"-y\", \"x\"]\n\n\
                    [mcp_servers.web]\nurl = \"https://mcp.example\"\n";
        let way = Way { program: "/usr/bin/deadstop".into(), ..Way::default() };
        let (wrapped, changes) = rewrite(text, &way, false).unwrap();
        assert!(
            matches!(&changes[..], [Change::Wrapped(name), Change::Left { .. }] if name == "files")
        );
        let line = "args = [\"mcp\", \"--server\", \"files\", \"--\", \"npx\", \"-y\", \"x\"]";
        assert!(wrapped.contains(line) && wrapped.contains("# why"), "{wrapped}");
        assert_eq!(rewrite(&wrapped, &way, false).unwrap().0, wrapped);
        assert_eq!(rewrite(&wrapped, &way, true).unwrap().0, text);
        assert!(rewrite("a = ", &way, false).is_err());
    }
}
