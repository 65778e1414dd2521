//! Programs that carry a command somewhere: to other machines, into an editor, a makefile, a stream
//! editor, or to each of many words.

use deadstop_core::{Effect, HarmKind, Reach, Recovery};

use super::super::place::Depth;
use super::super::surroundings::Nowhere;
use super::super::target;
use super::command::{SHELLS, after_options, unwrapped, value_of};
use super::{Input, Walk};

/// Words that `xargs` is fed, each of which becomes a command.
const MAX_ITEMS: usize = 20;

/// Stands for a file that a search finds.
const FOUND: &str = "$found";

/// Programs that lose what they are given, under `xargs` as much as without it.
const LOSE: &[&str] = &["git", "truncate", "srm", "wipe", "rimraf", "del-cli"];

/// Options of parallel shells that take a value.
const HOSTS: &[&str] =
    &["-h", "-H", "-l", "-w", "-g", "-t", "-p", "-o", "-e", "-x", "-f", "-M", "-u", "-O", "-R"];

impl Walk<'_> {
    /// A script that a tool runs on other machines: `salt '*' cmd.run 'ls'`, `vagrant ssh -c 'ls'`; false
    /// where it runs none.
    pub(super) fn remote(&mut self, name: &str, arguments: &[String]) -> bool {
        let dashes = arguments.iter().position(|word| word == "--");
        let after = |at: usize| arguments.get(at + 1..).unwrap_or(&[]).join(" ");
        let named = ["cmd.run", "cmd.shell", "run-command", "ssh", "run", "shell", "exec"];
        let script = value_of(arguments, &["-c", "-C", "--command", "--commands", "--scripts"])
            .or_else(|| dashes.map(after))
            .or_else(|| match name {
                "pdsh" | "pssh" | "parallel-ssh" | "clush" | "dsh" => {
                    let rest = after_options(arguments, HOSTS);
                    (!rest.is_empty()).then(|| rest.join(" "))
                }
                "salt" => arguments.iter().rev().find(|word| word.contains(' ')).cloned(),
                "heroku" | "multipass" | "lxc" | "incus" | "limactl" => {
                    let at = arguments.iter().position(|word| named.contains(&word.as_str()))?;
                    Some(after(at))
                }
                _ => None,
            });
        if let Some(script) = &script {
            self.elsewhere(script);
        }
        script.is_some()
    }

    /// Commands that an editor is told to run: `vim -c ':!make'`.
    pub(super) fn editor(&mut self, arguments: &[String], input: &Input) {
        let fed: Vec<String> = match &input.text {
            Some(text) => text.lines().take(50).map(|line| format!(":{line}")).collect(),
            None => Vec::new(),
        };
        let mut before = "";
        for word in arguments.iter().take(50).chain(&fed) {
            let order = word.trim_start_matches(['+', ':']);
            let told = order.len() < word.len() || matches!(before, "-c" | "--cmd" | "-ex");
            let script = order.strip_prefix('!').filter(|_| told);
            before = word;
            let called = order.find("system(").map(|at| &order[at + "system(".len()..]);
            if let Some(script) = script {
                self.script(script);
            } else if let Some(script) = called {
                self.script(script.trim_end_matches(')').trim_matches(['"', '\'']));
            }
        }
    }

    /// The recipes of a makefile that `make -f -` is fed.
    pub(super) fn recipe(&mut self, arguments: &[String], input: &Input) {
        let fed = value_of(arguments, &["-f", "--file"])
            .is_some_and(|file| file == "-" || file == "/dev/stdin");
        if !fed {
            return;
        }
        let Some(text) = input.text.as_ref() else {
            return self.runs_unread("make", input.taint);
        };
        for line in text.lines().take(50) {
            // A recipe stands below its target, or behind it.
            let behind = || line.split_once(':').and_then(|(_, rest)| rest.split_once(';'));
            let recipe = line.strip_prefix('\t').or_else(|| behind().map(|(_, recipe)| recipe));
            if let Some(recipe) = recipe {
                self.script(recipe.trim_start().trim_start_matches(['@', '-', '+']));
            }
            for script in line.split("$(shell ").skip(1).take(4) {
                self.script(script.split(')').next().unwrap_or(script));
            }
        }
    }

    /// Commands inside a sed program: `1e command`.
    pub(super) fn sed(&mut self, arguments: &[String]) {
        for program in arguments.iter().filter(|word| !word.starts_with('-')).take(4) {
            for part in program.split([';', '\n', '{']).take(20) {
                let address = |c: char| c.is_ascii_digit() || matches!(c, '$' | ',' | '!' | ' ');
                if let Some(script) = part.trim_start_matches(address).strip_prefix("e ") {
                    self.script(script);
                }
            }
        }
    }

    /// Commands inside an awk program: `system("…")`, `"…" | getline`.
    pub(super) fn awk(&mut self, arguments: &[String]) {
        // awk's own way to another machine, with a shell at this end.
        let to = arguments.iter().find(|word| word.contains("/inet/tcp/"));
        if let Some(program) = to.filter(|word| word.contains("getline")) {
            let kind = HarmKind::OpensAccess;
            self.effects.harm(kind, "awk shell", program, Reach::System, Recovery::None);
        }
        for program in arguments.iter().filter(|word| word.contains("getline")) {
            for part in program.split("getline").take(8) {
                let before = part.trim_end().strip_suffix('|').map(str::trim_end);
                let open = before.and_then(|text| text.strip_suffix('"'));
                if let Some((_, script)) = open.and_then(|text| text.rsplit_once('"')) {
                    self.script(script);
                }
            }
        }
        for program in arguments.iter().filter(|word| word.contains("system(")) {
            for part in program.split("system(").skip(1).take(8) {
                let script =
                    part.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next());
                if let Some(script) = script {
                    self.script(script);
                }
            }
        }
    }

    /// `ansible hosts -m shell -a 'script'`, and files that are to be absent.
    pub(super) fn ansible(&mut self, arguments: &[String]) {
        self.effects.raise(Effect::Changes);
        let module = value_of(arguments, &["-m", "--module-name"]).unwrap_or_default();
        let given = value_of(arguments, &["-a", "--args"]).unwrap_or_default();
        match module.rsplit('.').next().unwrap_or_default() {
            "shell" | "command" | "raw" | "" => self.elsewhere(&given),
            "file" if given.contains("state=absent") => {
                let path = given.split_whitespace().find_map(|word| word.strip_prefix("path="));
                self.effects.destroy("ansible file absent", path.unwrap_or_default());
            }
            module
                if matches!(module, "reboot" | "win_reboot" | "iptables")
                    || given.contains("state=absent")
                    || given.contains("state=stopped") =>
            {
                let verb = format!("ansible {module}");
                self.stops(&verb, &given, Reach::Remote, Recovery::Elsewhere);
            }
            _ => {}
        }
    }

    /// A script on another machine, where neither our directory nor our files are.
    pub(super) fn elsewhere(&mut self, script: &str) {
        let cwd = std::mem::take(&mut self.cwd);
        let made = std::mem::take(&mut self.made);
        let here = std::mem::replace(&mut self.here, &Nowhere);
        self.script(script);
        (self.cwd, self.made, self.here) = (cwd, made, here);
    }

    /// The commands that `xargs` and `parallel` make of words that are known; false where they are not.
    pub(super) fn for_each(&mut self, arguments: &[String], input: &Input) -> bool {
        let valued = ["-n", "-P", "-I", "-L", "-d", "-s", "-E", "-a", "-j"];
        let replaced = value_of(arguments, &["-I", "--replace"]).unwrap_or_else(|| "{}".to_owned());
        let rest = after_options(arguments, &valued);
        let dots = rest.iter().position(|word| word == ":::");
        let (command, items): (&[String], Vec<String>) = match (dots, &input.text) {
            (Some(at), _) => (&rest[..at], rest[at + 1..].to_vec()),
            (None, Some(text)) => (rest, text.split_whitespace().map(str::to_owned).collect()),
            (None, None) => return false,
        };
        if command.is_empty() || items.is_empty() || items.len() > MAX_ITEMS {
            return false;
        }
        // What stands between quotes to `xargs` is a script to the shell that it starts.
        let holds = command.iter().any(|word| word.contains(&replaced));
        let one_by_one = arguments[..arguments.len() - rest.len()].iter().any(|word| {
            ["-n", "-L", "-I", "-i", "--max"].iter().any(|flag| word.starts_with(flag))
        });
        if !holds && !one_by_one && dots.is_none() {
            // All of them at once: options may be among them.
            self.run(&[command, &items].concat(), &Input::default());
            return true;
        }
        for item in items {
            let mut words: Vec<String> =
                command.iter().map(|word| word.replace(&replaced, &item)).collect();
            if !holds {
                words.push(item);
            }
            self.run(&words, &Input::default());
        }
        true
    }

    pub(super) fn xargs(&mut self, arguments: &[String], input: &Input) {
        if self.for_each(arguments, input) {
            return;
        }
        let rest =
            after_options(arguments, &["-n", "-P", "-I", "-L", "-d", "-s", "-E", "-a", "-j"]);
        let rest = unwrapped(rest);
        let first = rest.first().map_or("", String::as_str);
        let name = first.rsplit('/').next().unwrap_or(first);
        self.reads_found(name, &input.from);
        // `rm backups/{}` names as little as `rm {}` does, unless all in that place can be spared.
        let open = |word: &String| word.contains("{}") && !self.is_throwaway(word);
        let given = rest.iter().skip(1).any(|word| {
            !word.starts_with('-') && !matches!(word.as_str(), "{}" | "%" | ":::") && !open(word)
        });
        let inline = SHELLS.contains(&name)
            && rest.iter().any(|word| word.contains("{}") || word.contains('%') || word == "-c")
            && !rest.iter().any(|word| word.starts_with("echo "));
        if inline || (SHELLS.contains(&name) && rest.len() == 1) {
            self.runs_unread("xargs", input.taint);
        }
        if LOSE.contains(&name) && !self.are_throwaway(&input.from) {
            let mut words: Vec<String> =
                rest.iter().map(|word| word.replace("{}", FOUND)).collect();
            if words == rest {
                words.push(FOUND.to_owned());
            }
            let before = std::mem::replace(&mut self.listed, true);
            self.run(&words, &Input::default());
            self.listed = before;
        } else if !matches!(name, "rm" | "unlink" | "shred") || given {
            if rest.is_empty() {
                self.effects.raise(Effect::Reads);
            }
            self.run(rest, input);
        } else if self.are_throwaway(&input.from) {
            self.effects.raise(Effect::Changes);
        } else {
            let words: Vec<&str> = rest.iter().map(String::as_str).filter(|w| *w != "{}").collect();
            let verb = format!("xargs {}", words.join(" "));
            match input.from.first().map(String::as_str) {
                Some("find") => self.lose_found(&verb, &input.from),
                Some("ls") if input.from.iter().skip(1).any(|word| !word.starts_with('-')) => {
                    let files = input.from[1..].to_vec();
                    self.remove(&verb, &files, Depth::Single);
                }
                _ => {
                    let target = target::join(&input.from);
                    let kind = HarmKind::Destroys;
                    self.effects.harm(kind, &verb, &target, Reach::Directory, Recovery::None);
                }
            }
        }
    }
}
