//! The machine and what it lets in: accounts, the network, the kernel, what starts by itself, devices that hang
//! on it, and packages that are made public.

use deadstop_core::{HarmKind, Reach, Recovery};

use super::command::value_of;
use super::tools::operands;
use super::{Input, Walk};
use crate::target;

/// What a command does to the machine.
type Deed = (HarmKind, Reach);

const STOPS: Option<Deed> = Some((HarmKind::Stops, Reach::System));
const OPENS: Option<Deed> = Some((HarmKind::OpensAccess, Reach::Outside));
const SHARES: Option<Deed> = Some((HarmKind::OpensAccess, Reach::Remote));
const RUINS: Option<Deed> = Some((HarmKind::Destroys, Reach::System));

impl Walk<'_> {
    /// Runs a command about the machine itself; false when it is none. All of this takes work to bring back.
    pub(super) fn host(&mut self, name: &str, arguments: &[String], input: &Input) -> bool {
        let words = operands(arguments);
        let found = accounts(name, arguments, &words)
            .or_else(|| network(name, arguments, &words, input))
            .or_else(|| started(name, arguments, &words))
            .or_else(|| devices(name, arguments, &words))
            .or_else(|| published(name, arguments, &words));
        if let Some((kind, reach)) = found {
            let what = target::join(arguments);
            self.effects.harm(kind, name, &what, reach, Recovery::Elsewhere);
        }
        found.is_some()
    }

    /// A shell that is told to forget what it ran: `unset HISTFILE`, `HISTSIZE=0`, `set +o history`.
    pub(super) fn forgets(&mut self, argv: &[String], assignments: &[(String, String)]) {
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        let unset =
            matches!(words.as_slice(), ["unset", names @ ..] if names.contains(&"HISTFILE"));
        let off = matches!(words.as_slice(), ["set", "+o", "history"]);
        let lost = assignments.iter().any(|(name, value)| match name.as_str() {
            "HISTFILE" => value == "/dev/null" || value.is_empty(),
            "HISTSIZE" | "HISTFILESIZE" => value == "0",
            _ => false,
        });
        let loads = assignments.iter().any(|(name, value)| {
            matches!(name.as_str(), "LD_PRELOAD" | "DYLD_INSERT_LIBRARIES")
                && value.starts_with("/tmp/")
        });
        if unset || off || lost {
            let kind = HarmKind::Destroys;
            self.effects.harm(
                kind,
                "forget",
                "the history of commands",
                Reach::Remote,
                Recovery::Elsewhere,
            );
        }
        if loads {
            self.becomes_root("LD_PRELOAD", argv);
        }
    }

    /// A shell of another account, which runs the commands that follow.
    pub(super) fn becomes_root(&mut self, name: &str, arguments: &[String]) {
        let what = target::join(arguments);
        let kind = HarmKind::OpensAccess;
        self.effects.harm(kind, name, &what, Reach::Outside, Recovery::Elsewhere);
    }
}

/// Who may log in, and with which rights.
fn accounts(name: &str, arguments: &[String], words: &[&str]) -> Option<Deed> {
    let has = |flags: &[&str]| arguments.iter().any(|word| flags.contains(&word.as_str()));
    match name {
        "useradd" | "adduser" | "usermod" | "groupmod" | "gpasswd" | "chsh" | "passwd"
            if !words.is_empty() =>
        {
            OPENS
        }
        "vipw" | "vigr" | "pwunconv" | "grpunconv" | "pwconv" => OPENS,
        "setcap" if !words.is_empty() => Some((HarmKind::OpensAccess, Reach::System)),
        "dseditgroup" | "sysadminctl" if !words.is_empty() || arguments.len() > 1 => OPENS,
        "net" if matches!(words, ["user" | "localgroup", ..]) && has(&["/add", "/ADD"]) => OPENS,
        "ssh-add" if has(&["-D", "-d"]) => STOPS,
        "pdbedit" if has(&["-x", "--delete"]) => STOPS,
        "ssh-copy-id" if !words.is_empty() => SHARES,
        "aa-teardown" | "aa-disable" | "aa-complain" => OPENS,
        "apparmor_parser" if has(&["-R", "--remove"]) => OPENS,
        "setenforce" => (!matches!(words, ["1" | "Enforcing" | "enforcing"]))
            .then_some((HarmKind::OpensAccess, Reach::System)),
        "auditctl" if arguments.windows(2).any(|pair| pair[0] == "-e" && pair[1] == "0") => OPENS,
        _ => None,
    }
}

/// How the machine reaches others, and others the machine.
fn network(name: &str, arguments: &[String], words: &[&str], input: &Input) -> Option<Deed> {
    let has = |flags: &[&str]| arguments.iter().any(|word| flags.contains(&word.as_str()));
    let says = |verbs: &[&str]| words.iter().take(4).any(|word| verbs.contains(word));
    match name {
        "route" if says(&["del", "delete", "flush"]) => STOPS,
        "tc" if says(&["add", "del", "delete", "replace", "change"]) => STOPS,
        "nmcli" if says(&["off", "down", "delete", "del", "disconnect"]) => STOPS,
        "networksetup" if says(&["off"]) || arguments.iter().any(|w| w.starts_with("-remove")) => {
            STOPS
        }
        "wg-quick" | "ifdown" if says(&["down"]) || name == "ifdown" => STOPS,
        "tailscale" if says(&["logout", "down"]) => STOPS,
        "resolvectl" if says(&["revert"]) => STOPS,
        "sysctl" if words.iter().any(|word| word.contains('=')) => OPENS,
        "ufw" if says(&["allow"]) && says(&["any"]) && words.len() <= 3 => OPENS,
        "iptables" | "ip6tables"
            if has(&["-I", "-A"])
                && has(&["INPUT"])
                && has(&["ACCEPT"])
                && !has(&["-s", "-p", "-i", "-m", "--dport"]) =>
        {
            OPENS
        }
        "npm" | "pnpm" | "yarn" | "pip" | "pip3"
            if matches!(words, ["config", "set", key, url, ..]
                if (key.contains("registry") || key.contains("index-url")) && url.starts_with("http://")) =>
        {
            OPENS
        }
        "net" if matches!(words, ["stop", _, ..]) => STOPS,
        "ngrok" if says(&["tcp", "http", "tls", "start"]) => SHARES,
        "cloudflared" if says(&["tunnel"]) && has(&["--url"]) => SHARES,
        "nginx" if has(&["-s"]) && says(&["stop", "quit"]) => STOPS,
        "apachectl" | "apache2ctl" | "pg_ctl" if says(&["stop", "graceful-stop"]) => STOPS,
        "pg_resetwal" if !words.is_empty() => RUINS,
        "pg_ctlcluster" if says(&["stop"]) => STOPS,
        "nc" | "ncat" | "netcat" | "telnet" | "socat"
            if input.text.as_deref().is_some_and(|text| {
                let text = text.trim().to_ascii_lowercase();
                ["flush_all", "flushall", "flushdb", "shutdown", "disable server", "config set"]
                    .iter()
                    .any(|order| text.starts_with(order))
            }) =>
        {
            Some((HarmKind::Destroys, Reach::Remote))
        }
        "nsupdate" if input.text.as_deref().is_none_or(|text| text.contains("delete")) => {
            Some((HarmKind::Destroys, Reach::Remote))
        }
        _ => None,
    }
}

/// What runs from now on without being asked.
fn started(name: &str, arguments: &[String], words: &[&str]) -> Option<Deed> {
    match name {
        "launchctl" if matches!(words, ["load" | "bootstrap" | "enable" | "submit", ..]) => OPENS,
        "systemctl" if matches!(words, ["enable" | "link", unit, ..] if unit.contains('/')) => {
            OPENS
        }
        "schtasks" if arguments.iter().any(|word| word.eq_ignore_ascii_case("/create")) => OPENS,
        "sc" if matches!(words, ["create", ..]) => OPENS,
        "reg" if matches!(words, ["add" | "ADD", key, ..] if key.ends_with("Run") || key.ends_with("RunOnce")) => {
            OPENS
        }
        "mount"
            if (arguments.iter().any(|word| word == "--bind" || word == "tmpfs"))
                && words.last().is_some_and(|to| {
                    ["/etc", "/usr", "/bin", "/boot", "/home", "/var"]
                        .iter()
                        .any(|start| to.starts_with(start))
                }) =>
        {
            STOPS
        }
        "chkconfig" | "update-rc.d"
            if words.iter().any(|word| matches!(*word, "off" | "remove" | "disable" | "--del")) =>
        {
            STOPS
        }
        "pm2" if matches!(words, ["kill", ..] | ["delete" | "del" | "stop", "all", ..]) => STOPS,
        "sv" if matches!(words, ["down" | "exit" | "stop" | "force-stop", ..]) => STOPS,
        "sc" if matches!(words, ["stop" | "config", ..]) => STOPS,
        "brew"
            if matches!(words, ["services", "stop", ..])
                && arguments.iter().any(|word| word == "--all") =>
        {
            STOPS
        }
        "kexec" if arguments.iter().any(|word| matches!(word.as_str(), "-e" | "--exec")) => STOPS,
        _ => None,
    }
}

/// Phones and boards that are written afresh or emptied.
fn devices(name: &str, arguments: &[String], words: &[&str]) -> Option<Deed> {
    let has = |flags: &[&str]| arguments.iter().any(|word| flags.contains(&word.as_str()));
    let says = |verbs: &[&str]| words.iter().take(3).any(|word| verbs.contains(word));
    match name {
        "adb" if says(&["uninstall", "reboot", "sideload", "disable-verity"]) => STOPS,
        "adb" if says(&["shell"]) && (says(&["wipe", "pm"]) && !says(&["list"])) => RUINS,
        "fastboot"
            if says(&["flash", "erase", "format", "flashall", "oem", "flashing", "update"])
                || has(&["-w"]) =>
        {
            RUINS
        }
        "heimdall" if says(&["flash", "repartition"]) => RUINS,
        "esptool" | "esptool.py"
            if says(&["erase_flash", "erase_region", "write_flash", "erase-flash"]) =>
        {
            RUINS
        }
        "avrdude" if has(&["-e"]) => RUINS,
        "dfu-util" if has(&["-D", "--download"]) => RUINS,
        "flashrom" if has(&["-w", "-E", "--write", "--erase"]) => RUINS,
        "fwupdmgr" | "fwupdtool" if says(&["install", "update", "downgrade"]) => RUINS,
        "nvram" if !words.is_empty() && !has(&["-p"]) => RUINS,
        "cfgutil" | "ideviceinstaller" if says(&["erase", "uninstall"]) || has(&["-U"]) => RUINS,
        _ => None,
    }
}

/// Packages that go public: what has been fetched by others cannot be taken back.
fn published(name: &str, arguments: &[String], words: &[&str]) -> Option<Deed> {
    let publishes = match name {
        "npm" | "pnpm" | "bun" | "cargo" | "poetry" | "uv" | "hatch" | "flit" | "vsce" | "ovsx"
        | "expo" | "lerna" => words.first() == Some(&"publish"),
        "yarn" => matches!(words, ["publish", ..] | ["npm", "publish", ..]),
        "dart" | "flutter" => matches!(words, ["pub", "publish", ..]),
        "gem" => words.first() == Some(&"push"),
        "twine" => words.first() == Some(&"upload"),
        "dotnet" => matches!(words, ["nuget", "push", ..]),
        "mvn" => words.contains(&"deploy"),
        _ => false,
    };
    let local = value_of(arguments, &["--registry", "--repository-url", "--index"])
        .is_some_and(|to| to.contains("localhost") || to.contains("127.0.0.1"));
    if publishes && !local { SHARES } else { None }
}
