//! One command: who really runs, and what it does.
//!
//! `sudo env X=1 timeout 5 bash -c 'rm -rf data'` is an `rm`. Wrappers are taken off, scripts
//! inside arguments are walked, and the program that is left is looked up.

use deadstop_core::{Effect, Harm, HarmKind, Reach, Recovery};

use super::super::{Effects, target};
use super::databases::DATABASES;
use super::rehearsals::rehearses;
use super::{Input, Language, MAX_DEPTH, Walk, deeds, disks, files, git, reads, tools};

/// A program that runs another: its options that take a value, and how many words of its own come
/// before the other program.
struct Wrapper(&'static str, &'static [&'static str], usize);

const WRAPPERS: &[Wrapper] = &[
    Wrapper("sudo", &["-u", "-g", "-h", "-p", "-C", "-r", "-t", "-U", "-D", "-R"], 0),
    Wrapper("doas", &["-u", "-C"], 0),
    Wrapper("env", &["-u", "-C"], 0),
    Wrapper("nohup", &[], 0),
    Wrapper("time", &["-f", "-o"], 0),
    Wrapper("timeout", &["-k", "-s"], 1),
    Wrapper("gtimeout", &["-k", "-s"], 1),
    Wrapper("nice", &["-n"], 0),
    Wrapper("ionice", &["-c", "-n"], 0),
    Wrapper("stdbuf", &["-i", "-o", "-e"], 0),
    Wrapper("setsid", &[], 0),
    Wrapper("command", &[], 0),
    Wrapper("builtin", &[], 0),
    Wrapper("exec", &["-a"], 0),
    Wrapper("caffeinate", &["-t", "-w"], 0),
    Wrapper("unbuffer", &[], 0),
    Wrapper("chroot", &[], 1),
    Wrapper("flock", &["-w", "-E"], 1),
    Wrapper("busybox", &[], 0),
    Wrapper("strace", &["-e", "-o", "-p", "-s"], 0),
    Wrapper("pkexec", &["--user"], 0),
    Wrapper("gosu", &[], 1),
    Wrapper("su-exec", &[], 1),
    Wrapper("runuser", &["-u", "-g", "-G"], 0),
    Wrapper("systemd-run", &["-p", "-u", "--unit", "-E"], 0),
    Wrapper("unshare", &[], 0),
    Wrapper("nsenter", &["-t"], 0),
    Wrapper("taskset", &["-c", "-p"], 0),
    Wrapper("chrt", &[], 1),
    Wrapper("firejail", &[], 0),
    Wrapper("xvfb-run", &["-s", "-n"], 0),
    Wrapper("screen", &["-S", "-t", "-c"], 0),
    Wrapper("npx", &["-p", "--package", "-w"], 0),
    Wrapper("bunx", &[], 0),
    Wrapper("pnpx", &[], 0),
    Wrapper("shx", &[], 0),
    Wrapper("cross-env", &[], 0),
    Wrapper("dotenv", &["-e", "-f"], 0),
];

/// Programs that run another after a word of their own: `poetry run pytest`, and `--` where they
/// have options in between.
const RUNNERS: &[(&str, &str)] = &[
    ("poetry", "run"),
    ("uv", "run"),
    ("pipenv", "run"),
    ("pdm", "run"),
    ("hatch", "run"),
    ("rye", "run"),
    ("conda", "run"),
    ("bundle", "exec"),
    ("pnpm", "exec"),
    ("pnpm", "dlx"),
    ("yarn", "exec"),
    ("yarn", "dlx"),
    ("npm", "exec"),
    ("mise", "exec"),
    ("op", "run"),
    ("doppler", "run"),
    ("infisical", "run"),
    ("dotenvx", "run"),
    ("aws-vault", "exec"),
];

/// Tools that run a script on other machines.
const REMOTES: &[&str] = &[
    "salt",
    "pdsh",
    "pssh",
    "parallel-ssh",
    "clush",
    "dsh",
    "vagrant",
    "heroku",
    "fly",
    "flyctl",
    "gcloud",
    "az",
    "multipass",
    "lxc",
    "incus",
    "limactl",
];

/// Longest script into which the words behind it are put.
const MAX_FILLED: usize = 4096;

/// Longest path of a working directory.
const MAX_PATH: usize = 4096;

/// Names for commands that are remembered.
const MAX_ALIASES: usize = 32;

pub(super) const SHELLS: &[&str] = &["bash", "sh", "zsh", "dash", "ksh", "ash", "fish", "rbash"];

impl Walk<'_> {
    /// Adds what a command with these words does.
    pub(super) fn run(&mut self, argv: &[String], input: &Input) {
        let Some((first, arguments)) = argv.split_first() else {
            return;
        };
        if self.depth >= MAX_DEPTH {
            return self.unreadable(&target::join(argv));
        }
        if first.starts_with("$(") || first.starts_with('`') {
            return self.run_substituted(first, arguments, input);
        }
        if let Some(inner) = first.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'))
            && inner.contains(',')
        {
            // `{rm,-rf,data}` is one word to the eye and three to the shell.
            let words: Vec<String> = inner.split(',').map(str::to_owned).collect();
            return self.run(&[&words, arguments].concat(), input);
        }
        let name = match first.as_str() {
            "$SHELL" | "$BASH" => "bash",
            first => first.rsplit('/').next().unwrap_or(first),
        };
        // Some file systems know one case only, and a name from a variable may be anything.
        let upper = name.bytes().all(|b| b.is_ascii_uppercase()) && !name.is_empty();
        let guessed = name.starts_with('$') && removes_trees(arguments);
        if upper || guessed {
            let name = if guessed { "rm".to_owned() } else { name.to_ascii_lowercase() };
            return self.run(&[&[name], arguments].concat(), input);
        }
        if name == "set" && arguments.first().is_some_and(|word| word == "--") {
            self.variables.set_operands(&arguments[1..]);
        }
        if let Some(at) = self.aliases.iter().position(|(alias, _)| alias == name) {
            // While it is expanded it is a command like any other.
            let (alias, words) = self.aliases.remove(at);
            let rest = arguments.iter().map(|word| format!(" '{}'", word.replace('\'', "'\\''")));
            self.script(&(words.clone() + &rest.collect::<String>()));
            self.aliases.push((alias, words));
            return;
        }
        let asks = |word: &String| matches!(word.as_str(), "--help" | "--version");
        let literal = arguments.iter().any(|word| word == "--");
        if arguments.last().is_some_and(asks) && arguments.len() <= 3 && !literal && !wraps(name) {
            self.effects.raise(Effect::Reads);
            return;
        }
        self.depth += 1;
        self.carried_scripts(arguments);
        self.sets_variables(name, arguments, input);
        self.against_deadstop(name, arguments);
        self.secrets(name, arguments, input);
        self.network_shell(name, arguments);
        self.mounts_root(name, arguments);
        self.copies_over(name, arguments);
        self.interprets(name, arguments, input);
        if first.contains('/') && !(self.is_unwritten(first) && rehearses(name, arguments)) {
            self.runs_file(first);
        }
        self.serves(name, arguments);
        let installed = ["/usr/", "/bin/", "/sbin/", "/opt/", "/snap/", "/nix/"];
        self.own = first.contains('/') && !installed.iter().any(|place| first.starts_with(place));
        if first.starts_with("/etc/init.d/") && arguments.iter().any(|word| word == "stop") {
            self.stops(first, "stop", Reach::System, Recovery::Elsewhere);
        }
        if let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.0 == name) {
            self.unwrap_command(wrapper, arguments, input);
        } else if SHELLS.contains(&name) {
            self.shell(arguments, input);
        } else if !self.runs_others(name, arguments, input) {
            self.program(name, arguments, input);
        }
        self.depth -= 1;
    }

    /// `docker run -v /:/host`: a container that can do anything to this machine.
    fn mounts_root(&mut self, name: &str, arguments: &[String]) {
        let mount = |word: &&String| {
            let volume = word.rsplit('=').next().unwrap_or(word);
            volume.starts_with("/:/")
                || volume.starts_with("/etc:/")
                || word.split(',').any(|part| part.ends_with("source=/") || part.ends_with("src=/"))
        };
        let asks = |word: &String| {
            let bare: String = word.chars().filter(|c| !c.is_whitespace()).take(4096).collect();
            bare.contains(r#""hostPID":true"#) || bare.contains(r#""privileged":true"#)
        };
        if name == "kubectl" && arguments.iter().any(asks) {
            let kind = HarmKind::OpensAccess;
            let verb = "kubectl run --overrides";
            self.effects.harm(kind, verb, "host", Reach::System, Recovery::Elsewhere);
        }
        if !matches!(name, "docker" | "podman") {
            return;
        }
        let has = |flags: &[&str]| arguments.iter().any(|word| flags.contains(&word.as_str()));
        if has(&["--privileged", "--privileged=true"]) && has(&["--pid=host", "nsenter", "chroot"])
        {
            let kind = HarmKind::OpensAccess;
            let verb = format!("{name} run --privileged");
            self.effects.harm(kind, &verb, "host", Reach::System, Recovery::Elsewhere);
        }
        // What a container is given of a home directory's secrets, it can read.
        let folder = arguments.windows(2).find_map(|pair| {
            let given = matches!(pair[0].as_str(), "-v" | "--volume" | "--mount");
            let from = pair[1].split([':', ',']).next()?.trim_start_matches("source=");
            (given && crate::secret::is_hidden_folder(from)).then(|| from.to_owned())
        });
        if let Some(folder) = folder {
            let kind = HarmKind::ReadsSecret;
            let verb = format!("{name} run");
            self.effects.harm(kind, &verb, &folder, Reach::Outside, Recovery::None);
        }
        if let Some(mount) = arguments.iter().find(mount) {
            let kind = HarmKind::OpensAccess;
            let verb = format!("{name} run");
            self.effects.harm(kind, &verb, mount, Reach::System, Recovery::Elsewhere);
        }
    }

    /// Options whose value is a command.
    fn carried_scripts(&mut self, arguments: &[String]) {
        const RUNS: &[&str] = &[
            "ProxyCommand=",
            "LocalCommand=",
            "--info-script=",
            "--new-volume-script=",
            "--checkpoint-action=exec=",
            "--to-command=",
            "--use-compress-program=",
            "--rsh=",
            "--rsync-path=",
            // `aws ssm send-command --parameters commands=…`
            "commands=",
        ];
        for word in arguments.iter().filter(|word| word.contains('=')) {
            let at = RUNS.iter().find_map(|option| Some(word.find(option)? + option.len()));
            if let Some(at) = at {
                // A list of scripts, as JSON has it.
                match serde_json::from_str::<Vec<String>>(&word[at..]) {
                    Ok(scripts) => scripts.iter().take(20).for_each(|script| self.script(script)),
                    Err(_) => self.script(&word[at..]),
                }
            }
        }
    }

    /// `printf -v NAME`, `read NAME <<< text`.
    fn sets_variables(&mut self, name: &str, arguments: &[String], input: &Input) {
        match (name, arguments) {
            ("printf", [flag, variable, rest @ ..]) if flag == "-v" => {
                let argv = [&["printf".to_owned()], rest].concat();
                if let Some(text) = super::output::prints(&argv, input) {
                    self.variables.set(variable, &text);
                }
            }
            ("read", [.., variable]) if !variable.starts_with('-') => {
                if let Some(text) = &input.text {
                    self.variables.set(variable, text.trim_end());
                }
            }
            _ => {}
        }
    }

    /// A command whose name is what another prints: `$(which rm) -rf data`.
    fn run_substituted(&mut self, first: &str, arguments: &[String], input: &Input) {
        self.effects.raise(Effect::Changes);
        let inner = first.trim_start_matches(['$', '(', '`']).trim_end_matches([')', '`']);
        let words: Vec<&str> = inner.split_whitespace().collect();
        let found = match words.as_slice() {
            ["which" | "type" | "whereis" | "echo", .., name] => Some(*name),
            ["command", "-v" | "-V", name] => Some(*name),
            _ => None,
        };
        if let Some(name) = found {
            let argv = [&[name.to_owned()], arguments].concat();
            self.depth += 1;
            self.run(&argv, input);
            self.depth -= 1;
        } else {
            self.runs_substitution(first);
        }
    }

    fn unwrap_command(&mut self, wrapper: &Wrapper, arguments: &[String], input: &Input) {
        if wrapper.0 == "command" && arguments.first().is_some_and(|a| a == "-v" || a == "-V") {
            self.effects.raise(Effect::Reads);
            return;
        }
        if matches!(wrapper.0, "npx" | "bunx" | "pnpx") {
            if let Some(script) = value_of(arguments, &["-c", "--call"]) {
                return self.script(&script);
            }
            self.lets_in(wrapper.0, arguments);
        }
        let mut rest = after_options(arguments, wrapper.1);
        if wrapper.0 == "env"
            && let Some(at) =
                arguments.iter().position(|word| word == "-S" || word == "--split-string")
        {
            return self.script(&arguments[at + 1..].join(" "));
        }
        if wrapper.0 == "env" && arguments.iter().any(|word| word == "-i" || word == "-") {
            // The child knows none of our variables.
            let variables = std::mem::replace(&mut self.variables, super::Variables::new());
            let skip = rest.iter().take_while(|word| *word == "-" || is_assignment(word)).count();
            self.run(&rest[skip..], input);
            self.variables = variables;
            return;
        }
        if matches!(wrapper.0, "env" | "sudo" | "cross-env") {
            while rest.first().is_some_and(|word| is_assignment(word)) {
                rest = &rest[1..];
            }
        }
        let rest = rest.get(wrapper.2..).unwrap_or(&[]);
        if let ("flock", [flag, script, ..]) = (wrapper.0, rest)
            && flag == "-c"
        {
            return self.script(script);
        }
        if let ("taskset", [mask, ..]) = (wrapper.0, rest)
            && mask.starts_with(|c: char| c.is_ascii_digit())
        {
            return self.run(&rest[1..], input);
        }
        let becomes = matches!(rest, [su, account @ ..] if su == "su" && !account.iter().any(|w| w.starts_with("-c") || w == "--command"))
            || matches!(rest, [shell] if SHELLS.contains(&shell.as_str()));
        if wrapper.0 == "sudo"
            && (becomes
                || rest.is_empty() && arguments.iter().any(|w| matches!(w.as_str(), "-i" | "-s")))
        {
            self.becomes_root("sudo", arguments);
        }
        if rest.is_empty() {
            self.effects.raise(if wrapper.0 == "env" { Effect::Reads } else { Effect::Changes });
        }
        self.run(rest, input);
    }

    /// `bash -c script`, or a script on standard input.
    fn shell(&mut self, arguments: &[String], input: &Input) {
        let (options, operands) = shell_options(arguments);
        let inline = options.iter().any(|word| !word.starts_with("--") && word.contains('c'));
        let script = operands.first().filter(|_| inline).cloned();
        // With `-n` a script is checked and not run.
        let checks = |on: char| {
            options
                .iter()
                .any(|word| word.starts_with(on) && !word.starts_with("--") && word.contains('n'))
        };
        if checks('-') && !checks('+') {
            return self.effects.raise(Effect::Reads);
        }
        if let Some(script) = script {
            let script = self.with_operands(script, operands.get(1..).unwrap_or(&[]));
            if !self.runs_substitution(&script) {
                self.script(&script);
            }
            return;
        }
        self.effects.raise(Effect::Changes);
        let reads_input = options
            .iter()
            .any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains('s'));
        match operands.first().filter(|file| !reads_input && file.as_str() != "-") {
            // With a file to run, standard input is only data.
            Some(file) if file.starts_with("/dev/") || file.starts_with("/proc/self") => {
                self.runs_input(file, input);
            }
            Some(file) => self.runs_file(&file.clone()),
            None => self.runs_input("shell", input),
        }
    }

    /// A script with the words behind it: they are `$0`, `$1` and so on inside it, and `"$@"` without the first.
    fn with_operands(&mut self, script: String, operands: &[String]) -> String {
        for (at, word) in operands.iter().take(10).enumerate() {
            self.variables.set(&at.to_string(), word);
        }
        let all = operands.iter().skip(1).take(20);
        let all: Vec<String> =
            all.map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
        match all.is_empty() || script.len() > MAX_FILLED {
            true => script,
            false => script.replacen("\"$@\"", &all.join(" "), 1),
        }
    }

    /// A shell runs what it is fed.
    fn runs_input(&mut self, name: &str, input: &Input) {
        match &input.text {
            Some(script) => self.script(&script.clone()),
            None => self.runs_unread(name, input.taint),
        }
    }

    /// Programs whose arguments are commands themselves.
    fn runs_others(&mut self, name: &str, arguments: &[String], input: &Input) -> bool {
        match name {
            "eval" => {
                let script = arguments.join(" ");
                if !self.runs_substitution(&script) {
                    self.script(&script);
                }
            }
            "watch" => self.script(&after_options(arguments, &["-n"]).join(" ")),
            "trap" => match arguments {
                [script, _, ..] if !script.starts_with('-') => self.script(script),
                _ => self.effects.raise(Effect::Inert),
            },
            "ssh" => {
                let rest = after_options(arguments, SSH_VALUES);
                self.effects.raise(Effect::Reads);
                let words = rest.get(1..).unwrap_or(&[]);
                let words = words.strip_prefix(&["--".to_owned()]).unwrap_or(words);
                let shell = words.first().is_some_and(|name| SHELLS.contains(&name.as_str()));
                match (words, &input.text) {
                    (words, Some(script)) if shell && !words.iter().any(|w| w.ends_with('c')) => {
                        self.elsewhere(script);
                    }
                    (words, _) if !words.is_empty() => self.elsewhere(&words.join(" ")),
                    _ => match &input.text {
                        Some(script) => self.elsewhere(script),
                        None => self.effects.raise(Effect::Changes),
                    },
                }
            }
            "source" | "." => {
                self.effects.raise(Effect::Changes);
                match arguments {
                    [file, ..] if !file.starts_with("/dev/") => self.runs_file(file),
                    _ => self.runs_input("source", input),
                }
            }
            "alias" => {
                for (alias, words) in arguments.iter().filter_map(|word| word.split_once('=')) {
                    self.shadows(alias, words);
                    self.aliases.retain(|(known, _)| known != alias);
                    if self.aliases.len() < MAX_ALIASES {
                        self.aliases.push((alias.to_owned(), words.to_owned()));
                    }
                }
                self.effects.raise(Effect::Reads);
            }
            "at" | "batch" => match &input.text {
                Some(script) => self.script(&script.clone()),
                None => self.effects.raise(Effect::Changes),
            },
            "script" => {
                let runs = |word: &String| word.starts_with('-') && word.ends_with('c');
                let at = arguments.iter().position(runs);
                match at.and_then(|at| arguments.get(at + 1)) {
                    Some(script) => self.script(&script.clone()),
                    None => self.effects.raise(Effect::Changes),
                }
            }
            "tmux" => {
                self.effects.raise(Effect::Changes);
                for script in arguments.iter().skip(1).filter(|word| word.contains(' ')) {
                    self.script(script);
                }
            }
            "vim" | "vi" | "nvim" | "ex" | "ed" | "view" | "emacs" => {
                self.editor(arguments, input);
                return false;
            }
            _ if self.packaged(name, arguments, input) => {}
            "make" | "gmake" => {
                self.recipe(arguments, input);
                return false;
            }
            "sed" | "gsed" => {
                self.sed(arguments);
                return false;
            }
            "ansible" => self.ansible(arguments),
            _ if REMOTES.contains(&name) && self.remote(name, arguments) => return false,
            "awk" | "gawk" | "mawk" | "nawk" => {
                self.awk(arguments);
                return false;
            }
            "su" | "runuser" => match value_of(arguments, &["-c", "--command"]) {
                Some(script) => self.script(&script),
                None => self.effects.raise(Effect::Changes),
            },
            "parallel"
                if arguments.iter().any(|word| word == "--dry-run" || word == "--dryrun") =>
            {
                self.effects.raise(Effect::Reads);
            }
            "xargs" | "parallel" => self.xargs(arguments, input),
            "find" | "fd" | "fdfind" => self.find(arguments),
            "docker" | "podman" | "nerdctl" | "kubectl" | "oc" | "docker-compose" => {
                return self.contained(arguments, input);
            }
            "java" => return self.jar(arguments, input),
            "sftp" | "ftp" | "lftp" | "lftpget" | "ncftp" => {
                self.transfers(name, arguments, input);
            }
            _ if RUNNERS.iter().any(|(runner, _)| *runner == name) => {
                let Some(rest) = after_runner(name, arguments) else { return false };
                self.run(rest, input);
            }
            _ => match Language::of(name) {
                Some(language) => return self.interpreter(language, arguments, input),
                None => return self.windows(name, arguments, input),
            },
        }
        true
    }

    fn program(&mut self, name: &str, arguments: &[String], input: &Input) {
        self.effects.read_as(name, arguments);
        if rehearses(name, arguments) {
            self.effects.raise(Effect::Reads);
            return;
        }
        self.lets_in(name, arguments);
        self.feeds_download(name, arguments, input);
        if let Some(answer) = &input.text {
            self.answers_for_key(name, arguments, answer);
        }
        match name {
            "cd" | "pushd" => self.change_directory(arguments),
            "git" => {
                git::run(self, arguments);
                self.note_made(name, arguments);
            }
            "curl" | "wget" | "http" | "https" | "xh" => self.request(name, arguments),
            "cockroach" if arguments.first().is_none_or(|word| word != "sql") => {
                self.told(name, arguments, input);
                if let Some(harm) = deeds::of(name, arguments, false) {
                    self.effects.absorb(Effects::of_harm(harm));
                }
            }
            name if DATABASES.contains(&name) => self.database(name, arguments, input),
            _ if files::run(self, name, arguments) => {}
            _ if self.power(name, arguments) => {}
            _ if self.host(name, arguments, input) => {}
            _ => match disks::destroys(name, arguments)
                .map(|(verb, target)| {
                    let (reach, recovery) = (Reach::System, Recovery::None);
                    Harm { kind: HarmKind::Destroys, verb, target, reach, recovery }
                })
                .or_else(|| tools::destroys(name, arguments, input))
                .or_else(|| deeds::of(name, arguments, self.own))
            {
                Some(harm) => {
                    let Harm { kind, verb, target, reach, recovery } = harm;
                    // Containers and clusters of this machine: what runs in them stops, which is asked about; what
                    // is lost comes back with little work, so that it is not counted.
                    let removes =
                        ["rm", "rmi", "prune", "delete"].iter().any(|word| verb.contains(word));
                    if kind == HarmKind::Stops && reach == Reach::System && removes {
                        let kind = HarmKind::Destroys;
                        self.effects.harm(
                            kind,
                            &verb,
                            &target,
                            Reach::Directory,
                            Recovery::Elsewhere,
                        );
                    }
                    self.effects.harm(kind, &verb, &target, reach, recovery);
                }
                None => {
                    self.effects.raise(reads::effect(name, arguments));
                    self.note_made(name, arguments);
                    self.tasks(name, arguments);
                    self.told(name, arguments, input);
                }
            },
        }
    }

    fn change_directory(&mut self, arguments: &[String]) {
        self.effects.raise(Effect::Reads);
        match arguments.iter().find(|word| !word.starts_with('-')) {
            Some(path) => {
                let to = self.resolve(path);
                // No system has longer paths: such a `cd` fails.
                if to.len() <= MAX_PATH {
                    self.cwd = to;
                }
            }
            None => self.cwd = if arguments.is_empty() { "~".into() } else { String::new() },
        }
    }

    /// `java -jar acme-cli.jar delete-job x`: the archive is the program.
    fn jar(&mut self, arguments: &[String], input: &Input) -> bool {
        let Some(at) = arguments.iter().position(|word| word == "-jar") else { return false };
        let Some((jar, rest)) = arguments.get(at + 1..).and_then(<[String]>::split_first) else {
            return false;
        };
        let program = jar.strip_suffix(".jar").unwrap_or(jar).to_owned();
        self.run(&[&[program], rest].concat(), input);
        true
    }
}

const SSH_VALUES: &[&str] = &[
    "-i", "-p", "-o", "-l", "-F", "-J", "-L", "-R", "-D", "-b", "-c", "-E", "-m", "-S", "-w", "-W",
];

/// A shell's options, without their values, and the words behind them.
fn shell_options(arguments: &[String]) -> (Vec<&String>, &[String]) {
    let mut options = Vec::new();
    let mut rest = arguments;
    while let Some(word) =
        rest.first().filter(|word| word.starts_with(['-', '+']) && word.len() > 1)
    {
        let short = !word.starts_with("--");
        let valued = matches!(word.as_str(), "--rcfile" | "--init-file")
            || (short && word.ends_with(['o', 'O']));
        options.push(word);
        rest = rest.get(if valued { 2 } else { 1 }..).unwrap_or(&[]);
        if word == "--" {
            break;
        }
    }
    (options, rest)
}

/// The words after the options, given the options that take a value.
pub(super) fn after_options<'a>(words: &'a [String], valued: &[&str]) -> &'a [String] {
    let mut rest = words;
    while let Some(word) = rest.first().filter(|word| word.starts_with('-') && word.len() > 1) {
        let skip = if valued.contains(&word.as_str()) { 2 } else { 1 };
        rest = rest.get(skip..).unwrap_or(&[]);
        if word == "--" {
            break;
        }
    }
    rest
}

/// A command without the wrappers around it.
pub(super) fn unwrapped(words: &[String]) -> &[String] {
    let mut rest = words;
    while let Some(wrapper) = rest.first().and_then(|first| WRAPPERS.iter().find(|w| w.0 == *first))
    {
        let mut inner = after_options(&rest[1..], wrapper.1).get(wrapper.2..).unwrap_or(&[]);
        while inner.first().is_some_and(|word| is_assignment(word)) {
            inner = &inner[1..];
        }
        if inner.is_empty() {
            break;
        }
        rest = inner;
    }
    rest
}

/// `-rf` and a path: what only `rm` is given.
fn removes_trees(arguments: &[String]) -> bool {
    let flags = |word: &String| {
        word.starts_with('-')
            && !word.starts_with("--")
            && word.contains(['r', 'R'])
            && word.contains('f')
    };
    arguments.first().is_some_and(flags) && arguments.len() > 1
}

/// Whether a program runs another, so that `--help` may be the other's.
fn wraps(name: &str) -> bool {
    WRAPPERS.iter().any(|wrapper| wrapper.0 == name) || matches!(name, "find" | "xargs" | "chmod")
}

/// The command that a runner runs.
fn after_runner<'a>(name: &str, arguments: &'a [String]) -> Option<&'a [String]> {
    let (word, rest) = arguments.split_first()?;
    if !RUNNERS.contains(&(name, word.as_str())) {
        return None;
    }
    match rest.iter().position(|word| word == "--") {
        Some(dashes) => rest.get(dashes + 1..),
        None => Some(after_options(rest, &["-n", "--name", "--with", "-p", "--python", "-e"])),
    }
}

/// The value of an option, written as `-X v`, or `--long=v`.
pub(super) fn value_of(words: &[String], names: &[&str]) -> Option<String> {
    words.iter().enumerate().find_map(|(index, word)| {
        if names.contains(&word.as_str()) {
            return words.get(index + 1).cloned();
        }
        let (name, value) = word.split_once('=')?;
        names.contains(&name).then(|| value.to_owned())
    })
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}
