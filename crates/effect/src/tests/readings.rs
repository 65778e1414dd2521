//! Readings in full: what a call does, each harm with its severity, kind, reach and recovery, what it makes,
//! and how it was read. `readings.txt` holds them; `UPDATE_SNAPSHOTS=1` writes them anew, to be read over.
//!
//! `sh` and `sql` are asked with the text alone, `call` is a tool with JSON arguments. `here` is a command, and
//! `file` a tool, on the made-up machine below; `temp` is a command on the one that is below `/tmp`.

use serde_json::{Value, json};

use crate::{Effects, Kept, Sight, Surroundings, of, of_in};

/// A machine with a project, as far as readings need one: where home is, and the project below it.
struct Machine {
    home: &'static str,
    project: &'static str,
}

const MACHINE: Machine = Machine { home: "/home/ann", project: "/home/ann/app" };

/// One on which everything is below a temporary directory, as in tests.
const SCRATCH: Machine = Machine { home: "/tmp/ann", project: "/tmp/ann/app" };

/// What is where: the path, what it is, and what git knows about it.
fn things() -> Vec<(&'static str, Sight, Kept)> {
    let link = |to: &str| Sight::Link(to.to_owned());
    vec![
        ("/", Sight::Directory, Kept::Unknown),
        ("/etc", Sight::Directory, Kept::Unknown),
        ("/etc/hosts", Sight::File, Kept::Unknown),
        ("/srv", Sight::Directory, Kept::Unknown),
        ("/srv/data", Sight::Directory, Kept::Unknown),
        ("/tmp/old", Sight::File, Kept::Unknown),
        ("/home/ann", Sight::Directory, Kept::Unknown),
        ("/home/ann/notes.txt", Sight::File, Kept::Unknown),
        ("/home/ann/other", Sight::Directory, Kept::Unknown),
        ("/home/ann/app", Sight::Directory, Kept::Changed),
        ("/home/ann/app/src", Sight::Directory, Kept::Clean),
        ("/home/ann/app/src/lib.rs", Sight::File, Kept::Clean),
        ("/home/ann/app/src/more.rs", Sight::File, Kept::Clean),
        ("/home/ann/app/ignored", Sight::Directory, Kept::Ignored),
        ("/home/ann/app/draft.md", Sight::File, Kept::Untracked),
        ("/home/ann/app/changed.rs", Sight::File, Kept::Changed),
        ("/home/ann/app/deleted.md", Sight::Missing, Kept::Changed),
        ("/home/ann/app/data", Sight::Directory, Kept::Untracked),
        ("/home/ann/app/data/a.csv", Sight::File, Kept::Untracked),
        ("/home/ann/app/data/b.csv", Sight::File, Kept::Clean),
        ("/home/ann/app/scratch.txt", Sight::File, Kept::Untracked),
        ("/home/ann/app/link", link("/srv/data"), Kept::Clean),
        ("/home/ann/app/.claude/settings.json", Sight::File, Kept::Clean),
        ("/home/ann/clean", Sight::Directory, Kept::Clean),
    ]
}

impl Surroundings for Machine {
    fn cwd(&self) -> Option<&str> {
        Some(self.project)
    }

    fn home(&self) -> Option<&str> {
        Some(self.home)
    }

    fn workspace(&self) -> Option<&str> {
        Some(self.project)
    }

    fn real(&self, path: &str) -> String {
        // A directory of the project that is really the home directory.
        path.replace("/home/ann/app/sneaky", self.home)
    }

    fn look(&self, path: &str) -> Sight {
        let path = path.replace(self.home, MACHINE.home);
        let known = things().into_iter().find(|(known, ..)| *known == path);
        known.map_or(Sight::Missing, |(_, sight, _)| sight)
    }

    fn glob(&self, pattern: &str) -> Option<Vec<String>> {
        let (folder, last) = pattern.rsplit_once('/')?;
        if last.starts_with("many") {
            return None;
        }
        let fits = |path: &str| {
            let below = path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
            below.is_some_and(|name| !name.contains('/') && crate::fits(last, name))
        };
        let found = things().into_iter().filter(|(path, ..)| fits(path));
        Some(found.map(|(path, ..)| path.to_owned()).collect())
    }

    fn kept(&self, path: &str) -> Kept {
        let path = path.replace(self.home, MACHINE.home);
        let known = things().into_iter().find(|(known, ..)| *known == path);
        known.map_or(Kept::Unknown, |(.., kept)| kept)
    }

    fn created(&self, path: &str) -> bool {
        path == "/home/ann/app/scratch.txt"
    }
}

fn asked(line: &str) -> Effects {
    let (kind, text) = line.split_once(' ').unwrap_or((line, ""));
    let text = text.replace('⏎', "\n");
    let (tool, arguments) = match kind {
        "sh" | "here" | "temp" => ("Bash".to_owned(), json!({ "command": text })),
        "sql" => ("run_sql".to_owned(), json!({ "sql": text })),
        "call" | "file" => {
            let (tool, arguments) = text.split_once(' ').unwrap_or((&text, "{}"));
            let arguments = serde_json::from_str(arguments);
            (tool.to_owned(), arguments.unwrap_or_else(|error| panic!("{line}: {error}")))
        }
        other => panic!("{other} is no way to ask: {line}"),
    };
    match kind {
        "here" | "file" => of_in(&tool, &arguments, &MACHINE),
        "temp" => of_in(&tool, &arguments, &SCRATCH),
        _ => of(&tool, &arguments),
    }
}

/// A reading, a line for each fact. How it was read is told where that is not how it was asked.
fn told(asked: &str, effects: &Effects) -> String {
    let asked = asked.split_once(' ').map_or("", |(_, text)| text);
    let word = |value: Result<Value, _>| match value {
        Ok(Value::String(word)) => word,
        other => panic!("{other:?} is no word"),
    };
    let line = |text: String| text.replace('\n', "⏎");
    let mut lines =
        vec![format!("    {}", word(serde_json::to_value(effects.effect)).to_ascii_lowercase())];
    for harm in &effects.harms {
        let kind = word(serde_json::to_value(harm.kind));
        let reach = word(serde_json::to_value(harm.reach));
        let recovery = word(serde_json::to_value(harm.recovery));
        let severity = harm.severity().name();
        lines.push(line(format!("    {severity}: {kind} {reach} {recovery}: {}", harm.deed())));
    }
    lines.extend(effects.makes.iter().map(|path| line(format!("    makes {path}"))));
    if effects.commands.len() != 1 || line(effects.commands[0].clone()) != asked {
        lines.extend(effects.commands.iter().map(|text| line(format!("    runs {text}"))));
    }
    lines.join("\n")
}

#[test]
fn readings_are_as_they_were_read_over() {
    let kept = include_str!("readings.txt");
    let mut anew = String::new();
    for line in kept.lines().filter(|line| !line.starts_with("    ")) {
        anew.push_str(line);
        anew.push('\n');
        if !line.is_empty() && !line.starts_with('#') {
            anew.push_str(&told(line, &asked(line)));
            anew.push('\n');
        }
    }
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/readings.txt");
        std::fs::write(file, &anew).unwrap_or_else(|error| panic!("{file}: {error}"));
        return;
    }
    let mut asked = "";
    for (kept, now) in kept.lines().zip(anew.lines()) {
        if !kept.starts_with("    ") {
            asked = kept;
        }
        assert_eq!(kept, now, "{asked}");
    }
    assert_eq!(kept.lines().count(), anew.lines().count());
}
