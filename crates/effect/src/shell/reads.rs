//! Commands that only look, and commands that do nothing at all.

use deadstop_core::Effect;

/// What a command does that destroys nothing.
pub(super) fn effect(name: &str, arguments: &[String]) -> Effect {
    if INERT.contains(&name) {
        return Effect::Inert;
    }
    let has = |options: &[&str]| arguments.iter().any(|word| options.contains(&word.as_str()));
    let begins = |start: &str| arguments.iter().any(|word| word.starts_with(start));
    let words: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
    let first = words.first().copied().unwrap_or("");
    let second = words.get(1).copied().unwrap_or("");
    let looks = match name {
        "sed" | "gsed" => !begins("-i") && !begins("--in-place"),
        "sort" => !begins("-o") && !begins("--output"),
        "yq" => !has(&["-i", "--inplace"]),
        "awk" | "gawk" | "mawk" => !arguments
            .iter()
            .any(|word| word.contains('>') && word.contains('"') || word.contains("system(")),
        "uniq" => words.len() < 2,
        "xxd" => !has(&["-r"]),
        "go" => matches!(first, "version" | "env" | "list" | "doc"),
        "cargo" => matches!(first, "tree" | "metadata" | "search"),
        "npm" | "pnpm" | "yarn" => matches!(first, "ls" | "list" | "view" | "outdated" | "why"),
        "pip" | "pip3" => matches!(first, "list" | "show" | "freeze"),
        "gh" if first == "api" => {
            !has(&["-X", "--method", "-f", "-F", "--field", "--raw-field", "--input"])
        }
        "gh" | "glab" => matches!(second, "view" | "list" | "status" | "diff" | "checks"),
        "kubectl" | "oc" => {
            matches!(first, "get" | "describe" | "logs" | "top" | "explain" | "version")
        }
        "helm" => matches!(first, "list" | "ls" | "status" | "get" | "history" | "show"),
        "docker" | "podman" => {
            matches!(first, "ps" | "images" | "logs" | "inspect" | "stats" | "version" | "info")
        }
        "terraform" | "tofu" => matches!(first, "show" | "output" | "validate" | "version"),
        "aws" => {
            ["describe-", "list-", "get-"].iter().any(|start| second.starts_with(start))
                || (first, second) == ("s3", "ls")
        }
        "gcloud" | "az" => words.iter().any(|word| matches!(*word, "list" | "describe" | "show")),
        "systemctl" => matches!(first, "status" | "list-units" | "is-active" | "show"),
        _ => LOOKS.contains(&name),
    };
    if looks { Effect::Reads } else { Effect::Changes }
}

/// Whether a program only looks, or does nothing, whatever it is given.
pub(super) fn looks(name: &str) -> bool {
    INERT.contains(&name) || LOOKS.contains(&name)
}

/// What a request does that is not a DELETE.
pub(super) fn request(name: &str, method: &str, arguments: &[String]) -> Effect {
    let looks = method.is_empty()
        || ["get", "head", "options"].iter().any(|m| m.eq_ignore_ascii_case(method))
        || (matches!(name, "http" | "xh") && method.contains(['/', '.', ':']));
    let sends = arguments.iter().enumerate().any(|(index, word)| {
        let saves = matches!(word.as_str(), "-o" | "--output")
            && arguments.get(index + 1).is_none_or(|to| to != "/dev/null" && to != "-");
        let data = [
            "-d",
            "--data",
            "-F",
            "--form",
            "-T",
            "--upload-file",
            "--json",
            "-O",
            "--remote-name",
        ];
        saves || data.contains(&word.as_str()) || word.starts_with("--data")
    });
    // wget saves what it gets; curl and httpie print it.
    if looks && !sends && name != "wget" { Effect::Reads } else { Effect::Changes }
}

const INERT: &[&str] = &[
    "echo", "printf", "sleep", "true", "false", ":", "date", "pwd", "whoami", "set", "unset",
    "shopt", "break", "continue", "exit", "return", "shift", "wait", "read", "local", "clear",
    "test", "[",
];

const LOOKS: &[&str] = &[
    "ls",
    "cat",
    "head",
    "tail",
    "grep",
    "egrep",
    "fgrep",
    "rg",
    "ag",
    "wc",
    "stat",
    "file",
    "which",
    "type",
    "whereis",
    "printenv",
    "ps",
    "df",
    "du",
    "jq",
    "cut",
    "tr",
    "diff",
    "cmp",
    "comm",
    "tree",
    "less",
    "more",
    "nl",
    "tac",
    "rev",
    "column",
    "fold",
    "paste",
    "join",
    "strings",
    "od",
    "hexdump",
    "md5sum",
    "sha1sum",
    "sha256sum",
    "shasum",
    "md5",
    "cksum",
    "basename",
    "dirname",
    "realpath",
    "readlink",
    "id",
    "groups",
    "uname",
    "hostname",
    "uptime",
    "free",
    "lsof",
    "netstat",
    "ss",
    "man",
    "help",
    "history",
    "ldd",
    "nm",
    "objdump",
    "readelf",
    "expr",
    "seq",
    "bc",
    "lscpu",
    "lsblk",
    "locale",
    "tty",
    "getent",
    "dig",
    "nslookup",
    "host",
    "ping",
    "pgrep",
    "nproc",
    "arch",
    "cal",
    "popd",
    "dirs",
    "jobs",
    "alias",
    "zcat",
    "zgrep",
    "bat",
    "eza",
    "exa",
    "tokei",
    "cloc",
    "base64",
    "sw_vers",
];
