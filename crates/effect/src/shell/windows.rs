//! The commands of Windows: `cmd`, PowerShell and what they delete, stop or fetch.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use deadstop_core::{Effect, HarmKind, Reach, Recovery};

use super::super::place::Depth;
use super::super::surroundings::Nowhere;
use super::super::target;
use super::{Input, Taint, Walk};

/// Statements of one PowerShell script that are read.
const MAX_STATEMENTS: usize = 400;

/// Cmdlets that remove something from the session only.
const LOCAL: &[&str] = &[
    "remove-variable",
    "remove-module",
    "remove-job",
    "remove-event",
    "remove-alias",
    "remove-psdrive",
    "remove-pssession",
    "remove-psbreakpoint",
    "remove-typedata",
    "disable-psbreakpoint",
    "unregister-event",
    "reset-capability",
];

/// Verbs of cmdlets that take something away.
const UNDOES: &[&str] = &[
    "disable-",
    "uninstall-",
    "unregister-",
    "revoke-",
    "reset-",
    "dismount-",
    "suspend-",
    "unpublish-",
];

/// Processes without which Windows does not work.
const VITAL: &[&str] =
    &["explorer", "lsass", "csrss", "winlogon", "svchost", "services", "smss", "wininit"];

impl Walk<'_> {
    /// Runs a command of Windows; false if it is none.
    pub(super) fn windows(&mut self, name: &str, arguments: &[String], input: &Input) -> bool {
        let switch = |wanted: &str| arguments.iter().any(|word| word.eq_ignore_ascii_case(wanted));
        let name = name.strip_suffix(".exe").unwrap_or(name).to_ascii_lowercase();
        match name.as_str() {
            "cmd" if switch("/c") || switch("/k") => {
                let at = arguments.iter().position(|word| word.starts_with('/'));
                let rest = arguments.get(at.map_or(0, |at| at + 1)..).unwrap_or(&[]);
                self.powershell(&rest.join(" "));
            }
            "powershell" | "pwsh" => self.powershell_program(arguments, input),
            "iex" | "invoke-expression" => {
                self.effects.raise(Effect::Changes);
                let text = arguments.join(" ");
                let lower = text.to_ascii_lowercase();
                let fetches =
                    ["iwr", "irm", "invoke-webrequest", "invoke-restmethod", "downloadstring"]
                        .iter()
                        .any(|word| lower.contains(word));
                let taint = if fetches { Taint::Fetched } else { input.taint };
                self.runs_unread("Invoke-Expression", taint);
                self.powershell(text.trim_matches(['"', '\'', '(', ')']));
            }
            "rd" | "rmdir" if switch("/s") => {
                self.lose_windows(&name, arguments, input, Depth::Tree);
            }
            "del" | "erase" if arguments.iter().any(|word| !is_switch(word)) => {
                let depth = if switch("/s") { Depth::Tree } else { Depth::Single };
                self.lose_windows(&name, arguments, input, depth);
            }
            "remove-item" | "ri" | "clear-content" | "clc" => {
                if switch("-whatif") {
                    self.effects.raise(Effect::Reads);
                } else {
                    // `rd /s` stands here too, as `cmd` has it.
                    let recurses =
                        |w: &String| w.len() > 1 && "-recurse".starts_with(&w.to_ascii_lowercase());
                    let tree = switch("/s") || arguments.iter().any(recurses);
                    let depth = if tree { Depth::Tree } else { Depth::Single };
                    self.lose_windows(&name, arguments, input, depth);
                }
            }
            "clear-disk" | "format-volume" | "remove-partition" | "initialize-disk"
            | "diskpart" | "remove-volume" | "clear-eventlog" | "clear-recyclebin"
            | "remove-computer" | "remove-localuser" => {
                let kind = HarmKind::Destroys;
                let what = target::join(arguments);
                if !switch("-whatif") {
                    self.effects.harm(kind, &name, &what, Reach::System, Recovery::None);
                }
            }
            // Other cmdlets by their verb: `Disable-…`, `Uninstall-…`.
            cmdlet
                if UNDOES.iter().any(|verb| cmdlet.starts_with(verb))
                    && !LOCAL.contains(&cmdlet) =>
            {
                if !switch("-whatif") {
                    self.stops(&name, &target::join(arguments), Reach::System, Recovery::Elsewhere);
                }
            }
            "new-localuser"
            | "add-localgroupmember"
            | "set-netfirewallprofile"
            | "add-mppreference" => {
                let kind = HarmKind::OpensAccess;
                let what = target::join(arguments);
                self.effects.harm(kind, &name, &what, Reach::System, Recovery::Elsewhere);
            }
            "stop-computer" | "restart-computer" | "stop-service" | "disable-netadapter" => {
                self.stops(&name, &target::join(arguments), Reach::System, Recovery::Elsewhere);
            }
            // Fed by a list of all processes, or by a pattern that fits all.
            "stop-process" | "taskkill"
                if arguments.iter().any(|word| {
                    let word = word.trim_matches(['"', '\'']).to_ascii_lowercase();
                    word == "*" || VITAL.contains(&word.trim_end_matches(".exe"))
                }) || (input.from.len() == 1
                    && matches!(
                        input.from[0].to_ascii_lowercase().as_str(),
                        "get-process" | "gps" | "ps"
                    )) =>
            {
                self.stops(&name, "all processes", Reach::System, Recovery::None);
            }
            "set-executionpolicy" | "set-mppreference" | "netsh" => {
                let open = ["unrestricted", "bypass", "-disablerealtimemonitoring", "off", "reset"];
                if open.iter().any(|word| switch(word)) {
                    let kind = HarmKind::OpensAccess;
                    let what = target::join(arguments);
                    self.effects.harm(kind, &name, &what, Reach::System, Recovery::Elsewhere);
                } else {
                    self.effects.raise(Effect::Changes);
                }
            }
            "takeown" | "icacls" | "cacls" if arguments.iter().any(|w| w.starts_with('/')) => {
                let kind = HarmKind::OpensAccess;
                let what = target::join(arguments);
                self.effects.harm(kind, &name, &what, Reach::System, Recovery::Elsewhere);
            }
            "cipher" if arguments.iter().any(|w| w.to_ascii_lowercase().starts_with("/w")) => {
                let kind = HarmKind::Destroys;
                let what = target::join(arguments);
                self.effects.harm(kind, "cipher /w", &what, Reach::System, Recovery::None);
            }
            "reg" if arguments.first().is_some_and(|w| w.eq_ignore_ascii_case("delete")) => {
                let kind = HarmKind::Destroys;
                let what = target::join(&arguments[1..]);
                self.effects.harm(kind, "reg delete", &what, Reach::System, Recovery::None);
            }
            "remove-itemproperty" => {
                let kind = HarmKind::Destroys;
                let what = target::join(arguments);
                self.effects.harm(kind, &name, &what, Reach::System, Recovery::None);
            }
            // Modules of clouds and directories: `Remove-AzResourceGroup`, `Remove-ADUser`.
            cmdlet if is_removal(cmdlet, arguments) => {
                if !switch("-whatif") {
                    self.effects.destroy(&name, &target::join(arguments));
                }
            }
            "robocopy" if switch("/mir") || switch("/purge") => {
                let kind = HarmKind::Destroys;
                let what = target::join(arguments);
                self.effects.harm(kind, "robocopy /MIR", &what, Reach::Outside, Recovery::None);
            }
            "fsutil" if switch("deletejournal") || switch("setzerodata") => {
                let kind = HarmKind::Destroys;
                let what = target::join(arguments);
                self.effects.harm(kind, "fsutil", &what, Reach::System, Recovery::Elsewhere);
            }
            "mshta" | "rundll32" | "regsvr32"
                if arguments
                    .iter()
                    .any(|word| word.contains("://") || word.starts_with("javascript:")) =>
            {
                self.runs_unread(&name, Taint::Fetched);
            }
            "certutil" | "bitsadmin" if arguments.iter().any(|word| word.contains("://")) => {
                self.runs_unread(&name, Taint::Fetched);
            }
            "sdelete" => self.lose_windows(&name, arguments, input, Depth::Tree),
            _ => return false,
        }
        true
    }

    /// `powershell -Command …`, `-EncodedCommand …`, or a script on standard input.
    fn powershell_program(&mut self, arguments: &[String], input: &Input) {
        self.effects.raise(Effect::Changes);
        let option = |word: &str| word.trim_start_matches(['-', '/']).to_ascii_lowercase();
        let at = |full: &str, least: usize| {
            arguments.iter().position(|word| {
                let name = option(word);
                word.starts_with(['-', '/']) && name.len() >= least && full.starts_with(&name)
            })
        };
        if let Some(at) = at("encodedcommand", 1).or_else(|| at("ec", 2)) {
            return match arguments.get(at + 1).and_then(|text| decoded(text)) {
                Some(script) => {
                    self.powershell(&script);
                    // It cannot be read by eye.
                    let kind = HarmKind::Unreadable;
                    let what = target::clip(&script);
                    let reach = Reach::Outside;
                    self.effects.harm(kind, "EncodedCommand", &what, reach, Recovery::Unknown);
                }
                None if arguments.get(at + 1).is_some_and(|w| w.starts_with('-')) => {}
                None => self.runs_unread("EncodedCommand", Taint::Decoded),
            };
        }
        if let Some(at) = at("command", 1) {
            let script = arguments[at + 1..].join(" ");
            if script.trim() == "-" {
                return self.runs_unread("powershell", input.taint);
            }
            return self.powershell(&script);
        }
        match arguments.iter().find(|word| !word.starts_with('-')) {
            Some(word) if word.contains(' ') || !word.contains('.') => {
                self.powershell(&word.clone());
            }
            Some(_) => {}
            None => match &input.text {
                Some(script) => self.powershell(&script.clone()),
                None => self.runs_unread("powershell", input.taint),
            },
        }
    }

    /// Reads a PowerShell script: statements, pipes, words. Quotes are its own, a backslash is a
    /// letter.
    pub(super) fn powershell(&mut self, script: &str) {
        if self.depth >= super::MAX_DEPTH || self.budget < script.len() {
            return self.unreadable(script);
        }
        self.budget -= script.len();
        self.effects.raise(Effect::Changes);
        self.depth += 1;
        let lower = script.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        if has(&["iex", "invoke-expression"])
            && has(&["downloadstring", "webclient", "iwr ", "irm ", "invoke-webrequest"])
        {
            self.runs_unread("Invoke-Expression", Taint::Fetched);
        }
        for statement in statements(script).into_iter().take(MAX_STATEMENTS) {
            let mut input = Input::default();
            for argv in statement {
                let Some(first) = argv.first() else { continue };
                let lower = first.to_ascii_lowercase();
                let fetches = matches!(
                    lower.as_str(),
                    "iwr" | "irm" | "invoke-webrequest" | "invoke-restmethod" | "curl" | "wget"
                ) || argv.iter().any(|word| word.contains("DownloadString"));
                let aliased = match lower.as_str() {
                    "rm" | "rmdir" | "del" | "erase" | "rd" | "ri" => "remove-item".to_owned(),
                    "cat" | "type" | "gc" | "get-content" => "cat".to_owned(),
                    "kill" | "spps" => "stop-process".to_owned(),
                    "invoke-restmethod" | "invoke-webrequest" => lower.clone(),
                    _ => first.clone(),
                };
                let argv = [&[aliased], &argv[1..]].concat();
                self.run(&argv, &input);
                let taint = if fetches { Taint::Fetched } else { Taint::None };
                let from = if input.from.is_empty() { argv } else { input.from };
                input = Input { text: None, from, taint };
            }
        }
        self.depth -= 1;
    }

    fn lose_windows(&mut self, verb: &str, arguments: &[String], input: &Input, depth: Depth) {
        self.effects.raise(Effect::Changes);
        let mut skip = false;
        let mut paths: Vec<&String> = Vec::new();
        for word in arguments {
            let value = std::mem::take(&mut skip);
            if is_switch(word) {
                let name = word.to_ascii_lowercase();
                skip = matches!(
                    name.as_str(),
                    "-filter" | "-include" | "-exclude" | "-erroraction" | "-ea"
                );
            } else if !value {
                paths.push(word);
            }
        }
        if paths.is_empty() {
            if !self.are_throwaway(&input.from) {
                let kind = HarmKind::Destroys;
                let what = target::join(&input.from);
                self.effects.harm(kind, verb, &what, Reach::Directory, Recovery::None);
            }
            return;
        }
        let paths: Vec<String> =
            paths.iter().flat_map(|path| path.split(',')).map(str::to_owned).collect();
        for path in paths.iter().filter(|path| !path.is_empty()) {
            let path = &match path.strip_prefix(".\\") {
                Some(rest) => rest.replace('\\', "/"),
                None => path.clone(),
            };
            // A drive of Windows: where this runs elsewhere, its files cannot be looked at.
            if is_on_drive(path) && self.here.cwd().is_some_and(|cwd| cwd.starts_with('/')) {
                let here = std::mem::replace(&mut self.here, &Nowhere);
                self.lose(verb, path, depth);
                self.here = here;
                continue;
            }
            self.lose(verb, path, depth);
        }
    }
}

/// `C:\\data`, `d:/data`.
fn is_on_drive(path: &str) -> bool {
    let bytes = path.as_bytes();
    bytes.len() > 2 && bytes[0].is_ascii_alphabetic() && bytes[1] == b':'
}

/// Whether a script starts with a command of PowerShell: a verb, a dash, a noun, or a name that only it has.
pub(super) fn is_cmdlet(script: &str) -> bool {
    let first = script.split_whitespace().next().unwrap_or_default();
    if matches!(
        first,
        "gci" | "ri" | "iwr" | "irm" | "iex" | "gps" | "spps" | "rmdir" | "rd" | "del" | "erase"
    ) {
        let words = script.split_whitespace().skip(1).take(20);
        let own = |word: &str| {
            matches!(
                word.to_ascii_lowercase().as_str(),
                "/s" | "/q" | "/f" | "-recurse" | "-force" | "-fo"
            ) || word.contains(":\\")
        };
        return matches!(first, "iex" | "iwr" | "irm") || words.into_iter().any(own);
    }
    let Some((verb, noun)) = first.split_once('-') else { return false };
    let is_word = |word: &str| {
        word.len() > 1
            && word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    is_word(verb) && is_word(noun)
}

/// The text of an encoded command: base64 of UTF-16.
fn decoded(text: &str) -> Option<String> {
    let bytes = STANDARD.decode(text.trim()).ok()?;
    let units: Vec<u16> =
        bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    let wide = String::from_utf16(&units).ok().filter(|text| text.is_ascii());
    wide.or_else(|| String::from_utf8(bytes).ok()).filter(|text| !text.is_empty())
}

/// A script cut into statements, those into the commands of a pipe, and those into words.
fn statements(script: &str) -> Vec<Vec<Vec<String>>> {
    let mut all = vec![vec![Vec::new()]];
    let (mut word, mut quote) = (String::new(), None::<char>);
    let end = |word: &mut String, all: &mut Vec<Vec<Vec<String>>>| {
        if !word.is_empty()
            && let Some(argv) = all.last_mut().and_then(|pipe| pipe.last_mut())
        {
            argv.push(std::mem::take(word));
        }
    };
    for c in script.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => quote = Some(c),
            (None, ';' | '\n' | '{' | '}' | '(' | ')' | '&') => {
                end(&mut word, &mut all);
                all.push(vec![Vec::new()]);
            }
            (None, '|') => {
                end(&mut word, &mut all);
                if let Some(pipe) = all.last_mut() {
                    pipe.push(Vec::new());
                }
            }
            (None, c) if c.is_whitespace() => end(&mut word, &mut all),
            (None, c) => word.push(c),
        }
    }
    end(&mut word, &mut all);
    all
}

/// Whether a cmdlet removes something elsewhere. Programs may be called `remove-background`, but take no `-Name`.
fn is_removal(cmdlet: &str, arguments: &[String]) -> bool {
    let option = |word: &String| {
        word.strip_prefix('-')
            .is_some_and(|name| name.starts_with(|c: char| c.is_ascii_uppercase()))
    };
    cmdlet.starts_with("remove-") && !LOCAL.contains(&cmdlet) && arguments.iter().any(option)
}

/// `/q`, `-Recurse`.
fn is_switch(word: &str) -> bool {
    word.starts_with('-') || (word.starts_with('/') && word.len() <= 3 && !word.ends_with('/'))
}
