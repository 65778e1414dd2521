//! Tools that manage things elsewhere: clouds, clusters, containers, databases, repositories.
//!
//! Mostly a table: a program, and the words that must follow in this order for something to be
//! gone. Options between them do not matter, what comes after is the target.

use super::super::{http, target};
use super::command::value_of;

/// What such a command destroys: the deed and the target.
pub(super) fn destroys(
    name: &str,
    arguments: &[String],
    fed: Option<&str>,
) -> Option<(String, String)> {
    match name {
        "aws" => return aws(arguments),
        "terraform" | "tofu" | "terragrunt" => return terraform(name, arguments),
        "gcloud" | "az" | "doctl" | "hcloud" | "linode-cli" | "neonctl" | "eksctl" | "ibmcloud"
        | "oci" => {
            return cloud(name, arguments);
        }
        "redis-cli" | "valkey-cli" => return redis(name, arguments, fed),
        "mongo" | "mongosh" => return mongo(name, arguments, fed),
        "docker" | "podman" | "docker-compose" if is_down_with_volumes(arguments) => {
            return Some((format!("{name} compose down -v"), String::new()));
        }
        "gh" | "glab" if arguments.first().is_some_and(|word| word == "api") => {
            let method = value_of(arguments, &["-X", "--method"])?;
            let address = arguments.iter().skip(1).find(|word| word.contains('/'))?;
            return method
                .eq_ignore_ascii_case("delete")
                .then(|| (format!("{name} api DELETE"), address.clone()));
        }
        _ => {}
    }
    let words = operands(arguments);
    DEEDS.iter().filter(|deed| deed.0 == name).find_map(|Deed(_, needed)| {
        let matches = words.len() >= needed.len()
            && needed
                .iter()
                .zip(&words)
                .all(|(choices, word)| choices.split('|').any(|c| c == *word));
        let verb = || format!("{name} {}", words[..needed.len()].join(" ")).trim_end().to_owned();
        let target = target::join(words.get(needed.len()..).unwrap_or(&[]));
        let named = || {
            value_of(arguments, &["-a", "--app", "--name", "--stack"])
                .filter(|n| !n.starts_with('-'))
        };
        matches
            .then(|| (verb(), if target.is_empty() { named().unwrap_or_default() } else { target }))
    })
}

/// A program and the words that must follow, each a choice.
struct Deed(&'static str, &'static [&'static str]);

const DEEDS: &[Deed] = &[
    Deed("kubectl", &["delete"]),
    Deed("oc", &["delete"]),
    Deed("helm", &["uninstall|delete|del|un"]),
    Deed("docker", &["rm|rmi"]),
    Deed("docker", &["container|image|network", "rm"]),
    Deed("docker", &["volume", "rm|prune"]),
    Deed("docker", &["system", "prune"]),
    Deed("podman", &["rm|rmi"]),
    Deed("podman", &["volume", "rm|prune"]),
    Deed("podman", &["system", "prune|reset"]),
    Deed("pulumi", &["destroy|down"]),
    Deed("cdk", &["destroy"]),
    Deed("serverless", &["remove"]),
    Deed("sls", &["remove"]),
    Deed("vagrant", &["destroy"]),
    Deed("fly", &["destroy"]),
    Deed("flyctl", &["destroy"]),
    Deed("fly", &["apps|volumes|machine|machines|postgres", "destroy"]),
    Deed("flyctl", &["apps|volumes|machine|machines|postgres", "destroy"]),
    Deed("heroku", &["apps:destroy|pg:reset|addons:destroy"]),
    Deed("vercel", &["remove|rm"]),
    Deed("netlify", &["sites:delete"]),
    Deed("firebase", &["firestore:delete|projects:delete|database:remove|functions:delete"]),
    Deed("wrangler", &["delete"]),
    Deed("wrangler", &["d1|r2|kv|queues", "delete"]),
    Deed("gsutil", &["rm|rb"]),
    Deed("bq", &["rm"]),
    Deed("s3cmd", &["del|rm|rb"]),
    Deed("mc", &["rm|rb"]),
    Deed("rclone", &["delete|purge|deletefile"]),
    Deed("gh", &["repo|release|secret|gist|issue|variable", "delete"]),
    Deed("glab", &["repo|release|issue", "delete"]),
    Deed("npm", &["unpublish"]),
    Deed("dropdb", &[]),
    Deed("dropuser", &[]),
    Deed("mysqladmin", &["drop"]),
    Deed("zfs", &["destroy"]),
    Deed("zpool", &["destroy"]),
    Deed("lvremove", &[]),
    Deed("vgremove", &[]),
    Deed("etcdctl", &["del"]),
    Deed("diskutil", &["eraseDisk|eraseVolume|apfs"]),
];

/// The words that are not options. The value of an option cannot be told from an operand without
/// knowing every tool, so that it is left in; it only makes the target more exact.
fn operands(arguments: &[String]) -> Vec<&str> {
    let mut rest = arguments.iter().map(String::as_str).peekable();
    let mut words = Vec::new();
    while let Some(word) = rest.next() {
        if VALUED.contains(&word) {
            rest.next();
        } else if !word.starts_with('-') {
            words.push(word);
        }
    }
    words
}

/// Options that come before the deed and take a value.
const VALUED: &[&str] = &[
    "-n",
    "--namespace",
    "--context",
    "--kubeconfig",
    "--profile",
    "--region",
    "--project",
    "-H",
    "--host",
    "--kube-context",
    "-R",
    "--repo",
    "-a",
    "--app",
    "-h",
    "-p",
    "-U",
    "--stack",
    "--cluster",
];

fn aws(arguments: &[String]) -> Option<(String, String)> {
    let words = operands(arguments);
    let (service, deed) = (words.first()?, words.get(1)?);
    let goes = match *service {
        "s3" => matches!(*deed, "rm" | "rb"),
        // Taking a message off a queue is how a queue is used.
        "sqs" => deed.starts_with("delete-queue") || *deed == "purge-queue",
        _ => deed.starts_with("delete-") || deed.starts_with("terminate-"),
    };
    goes.then(|| (format!("aws {service} {deed}"), target::join(&words[2..])))
}

fn terraform(name: &str, arguments: &[String]) -> Option<(String, String)> {
    let words = operands(arguments);
    let command = words.iter().find(|word| !matches!(**word, "run-all" | "run"))?;
    let destroys = *command == "destroy"
        || (*command == "apply"
            && arguments.iter().any(|word| word == "-destroy" || word == "--destroy"));
    if !destroys {
        return None;
    }
    let scope =
        arguments.iter().filter_map(|word| word.trim_start_matches('-').strip_prefix("target="));
    let place = arguments.iter().filter_map(|word| word.strip_prefix("-chdir="));
    Some((format!("{name} destroy"), target::join(&place.chain(scope).collect::<Vec<_>>())))
}

fn cloud(name: &str, arguments: &[String]) -> Option<(String, String)> {
    let words = operands(arguments);
    let at = words
        .iter()
        .take(6)
        .position(|word| matches!(*word, "delete" | "destroy" | "purge" | "rm"))?;
    let named = value_of(arguments, &["--name"]);
    let rest = words.get(at + 1..).unwrap_or(&[]);
    let target = if rest.is_empty() { named.unwrap_or_default() } else { target::join(rest) };
    Some((format!("{name} {}", words[..=at].join(" ")), target))
}

fn redis(name: &str, arguments: &[String], fed: Option<&str>) -> Option<(String, String)> {
    let said =
        arguments.iter().map(String::as_str).chain(fed.into_iter().flat_map(str::split_whitespace));
    let flush = said
        .map(str::to_ascii_uppercase)
        .find(|word| matches!(word.as_str(), "FLUSHALL" | "FLUSHDB"))?;
    let host = value_of(arguments, &["-h", "-u"]).unwrap_or_default();
    Some((format!("{name} {flush}"), http::place(&host)))
}

fn mongo(name: &str, arguments: &[String], fed: Option<&str>) -> Option<(String, String)> {
    let script = value_of(arguments, &["--eval"]).or_else(|| fed.map(str::to_owned))?;
    let deeds = ["dropDatabase(", "deleteMany(", "deleteOne(", ".drop(", ".remove("];
    let deed = deeds.iter().find(|deed| script.contains(*deed))?;
    Some((format!("{name} {}", deed.trim_matches(['.', '('])), target::clip(script.trim())))
}

fn is_down_with_volumes(arguments: &[String]) -> bool {
    let words = operands(arguments);
    let down = words.iter().take(3).any(|word| *word == "down");
    down && arguments.iter().any(|word| matches!(word.as_str(), "-v" | "--volumes"))
}
