//! Tools that manage things elsewhere: clouds, clusters, containers, databases, repositories.
//!
//! Mostly a table: a program, and the words that must follow in this order for something to be
//! gone. Options between them do not matter, what comes after is the target.

mod stores;
mod table;

use deadstop_core::{Harm, HarmKind, Reach, Recovery};

use super::super::name::Words;
use super::super::{graphql, remote, target};
use super::Input;
use super::command::value_of;
use stores::{mongo, query, redis};
use table::{DEEDS, Deed};

/// What such a command does, if it does harm.
pub(super) fn destroys(name: &str, arguments: &[String], input: &Input) -> Option<Harm> {
    // The same commands under another name.
    let name = if matches!(name, "nerdctl" | "finch") { "docker" } else { name };
    // `yes | terraform apply`: what the tool asks is answered before it is read.
    let agreed = input.from.first().is_some_and(|first| first == "yes")
        || input.text.as_deref().is_some_and(|text| matches!(text.trim(), "yes" | "y"));
    let answered;
    let arguments = if agreed && PLANS.contains(&name) {
        answered = [arguments, &["--auto-approve".to_owned()]].concat();
        answered.as_slice()
    } else {
        arguments
    };
    if let Some(harm) = softly(name, arguments) {
        return Some(harm);
    }
    let (verb, target) = gone(name, arguments, input)?;
    let all = target::join(arguments);
    let mut reach = remote(&[&verb, &target, &all]);
    let words = operands(arguments);
    let namespace = matches!(words.get(1), Some(&("namespace" | "ns" | "namespaces")));
    let everything = arguments.iter().any(|word| word == "--all" || word == "--all-namespaces");
    let whole = match name {
        "kubectl" | "oc" | "k" => namespace || everything,
        "terraform" | "tofu" | "terragrunt" | "pulumi" | "cdk" => {
            verb.ends_with("destroy") && !all.contains("target")
        }
        "gh" | "glab" => words.first() == Some(&"repo"),
        _ => false,
    };
    if whole {
        reach = Reach::Production;
    }
    // What is kept on this machine is not on another.
    if reach == Reach::Remote && OWN.contains(&name) {
        reach = Reach::Outside;
    }
    Some(Harm { kind: HarmKind::Destroys, verb, target, reach, recovery: Recovery::None })
}

/// Tools of which the things that they remove are on this machine.
const OWN: &[&str] = &[
    "crontab",
    "atrm",
    "docker",
    "docker-compose",
    "podman",
    "vagrant",
    "virsh",
    "multipass",
    "zfs",
    "zpool",
    "diskutil",
    "security",
    "defaults",
    "keytool",
    "conda",
    "trash-empty",
    "rustup",
    "meteor",
];

/// Tools that show a plan and ask before they carry it out.
const PLANS: &[&str] = &["terraform", "tofu", "terragrunt", "pulumi", "cdk", "cdktf"];

/// Commands that stop something, open a door, or remove what takes work to bring back.
fn softly(name: &str, arguments: &[String]) -> Option<Harm> {
    use HarmKind::{Destroys, OpensAccess, Stops};
    let words = operands(arguments);
    let first = words.first().copied().unwrap_or_default();
    let second = words.get(1).copied().unwrap_or_default();
    let all = target::join(arguments);
    let anywhere = |pair: &[String]| {
        pair[0].contains("source") && matches!(pair[1].as_str(), "*" | "Internet")
    };
    let public = ["0.0.0.0/0", "allUsers", "public-read", "::/0"].iter().any(|w| all.contains(w))
        || (all.contains("Allow") && arguments.windows(2).any(anywhere));
    let many = all.contains("ps -") || all.contains("-aq") || all.contains("images -");
    let (kind, reach) = match (name, first) {
        ("aws" | "gcloud" | "az" | "gsutil", _) if public && !first.is_empty() => {
            (OpensAccess, Reach::Remote)
        }
        ("aws", "iam")
            if (all.contains("AdministratorAccess") || allows_everything(&all))
                && !second.starts_with("detach-") =>
        {
            (OpensAccess, Reach::Remote)
        }
        // The right to do anything.
        ("az", "role")
            if second == "assignment" && words.get(2) == Some(&"create") && grants_owner(&all) =>
        {
            (OpensAccess, Reach::Remote)
        }
        ("gcloud", _) if all.contains("add-iam-policy-binding") && grants_owner(&all) => {
            (OpensAccess, Reach::Remote)
        }
        ("kubectl" | "oc" | "k", "create")
            if second == "clusterrolebinding" && all.contains("cluster-admin") =>
        {
            (OpensAccess, Reach::Remote)
        }
        // Who may do what, and who may read what.
        ("aws", _) if AWS_OPENS.iter().any(|start| second.starts_with(start)) => {
            (OpensAccess, Reach::Remote)
        }
        ("aws", _) if AWS_EMPTIES.iter().any(|option| all.contains(option)) => {
            (Stops, Reach::Remote)
        }
        ("aws", "organizations") if matches!(second, "leave-organization" | "close-account") => {
            (Stops, Reach::Remote)
        }
        // What is to expire is deleted later.
        ("aws", _) if second.starts_with("put-bucket-lifecycle") => (Destroys, Reach::Remote),
        ("gsutil", "lifecycle") if second == "set" => (Destroys, Reach::Remote),
        // History is written anew.
        ("bfg" | "git-filter-repo", _) if !arguments.is_empty() => {
            (HarmKind::RewritesHistory, Reach::Workspace)
        }
        ("svn", "delete" | "rm" | "remove" | "del") if all.contains("://") => {
            (Destroys, Reach::Remote)
        }
        ("migrate", _) if words.iter().any(|word| matches!(*word, "down" | "drop")) => {
            (Destroys, Reach::Remote)
        }
        ("hasura", "migrate") if arguments.iter().any(|word| word.starts_with("--down")) => {
            (Destroys, Reach::Remote)
        }
        ("mix", "ecto.rollback") if all.contains("--all") => (Destroys, Reach::Remote),
        ("dbt", "run" | "build") if all.contains("--full-refresh") => (Stops, Reach::Remote),
        ("octodns-sync", _) if all.contains("--doit") => (Stops, Reach::Remote),
        ("argocd", "app") if second == "sync" && all.contains("--prune") => (Stops, Reach::Remote),
        ("aws", "s3") if second == "mv" && all.contains("--recursive") => (Destroys, Reach::Remote),
        // What is to be is not shown before it is made so.
        (
            "terraform" | "tofu" | "terragrunt" | "pulumi" | "cdk" | "cdktf",
            "apply" | "up" | "deploy" | "run-all",
        ) if !arguments.iter().any(|word| matches!(word.as_str(), "-destroy" | "--destroy"))
            && !all.contains("replace=")
            && (UNSEEN.iter().any(|option| arguments.iter().any(|word| word == option))
                || all.contains("require-approval never")
                || all.contains("require-approval=never")) =>
        {
            (Stops, Reach::Remote)
        }
        ("kubectl" | "oc" | "k", "edit" | "rollout")
            if (first == "edit" || second == "restart") && remote(&[&all]) == Reach::Production =>
        {
            (Stops, Reach::Production)
        }
        ("helm", "repo") if second == "remove" => return None,
        ("docker" | "podman", "image" | "machine" | "pod" | "node" | "context")
            if words.iter().any(|w| matches!(*w, "prune" | "rm" | "remove")) =>
        {
            (Stops, Reach::System)
        }
        ("docker", "service") if second == "scale" && all.contains("=0") => (Stops, Reach::Remote),
        ("docker" | "docker-compose", _)
            if words.iter().take(6).any(|w| *w == "kill") && all.contains("compose") =>
        {
            (Stops, Reach::System)
        }
        ("docker" | "docker-compose", _)
            if all.contains("down")
                && all.contains("--rmi")
                && !is_down_with_volumes(arguments) =>
        {
            (Stops, Reach::System)
        }
        ("redis-cli" | "valkey-cli", _)
            if words.iter().any(|w| {
                w.eq_ignore_ascii_case("debug") || w.eq_ignore_ascii_case("replicaof")
            }) || all.to_ascii_lowercase().contains("config set") =>
        {
            (Stops, Reach::Remote)
        }
        ("redis-cli" | "valkey-cli", _)
            if all.to_ascii_lowercase().contains("cluster reset")
                || all.to_ascii_lowercase().contains("script flush")
                || arguments.iter().any(|word| word == "del-node") =>
        {
            (Stops, Reach::Remote)
        }
        // Money that is sent does not come back.
        ("stripe", "refunds" | "payouts" | "transfers") if second == "create" => {
            (Stops, Reach::Remote)
        }
        ("qemu-img", "snapshot") if arguments.iter().any(|word| word == "-d") => {
            (Destroys, Reach::System)
        }
        ("salt-key", _) if arguments.iter().any(|word| matches!(word.as_str(), "-D" | "-d")) => {
            (Stops, Reach::Remote)
        }
        ("rabbitmqctl", "stop" | "stop_app" | "shutdown" | "force_reset") => (Stops, Reach::Remote),
        (kafka, _)
            if kafka.starts_with("kafka-")
                && (all.contains("reset-offsets") && all.contains("--execute")
                    || kafka.starts_with("kafka-acls") && all.contains("--remove")
                    || all.contains("--delete-config")
                    || all.contains("unclean")
                    || kafka.starts_with("kafka-delete-records")
                    || all.contains("--alter") && all.contains("retention.ms")) =>
        {
            (Destroys, Reach::Remote)
        }
        ("fly" | "flyctl", "scale") if words.contains(&"0") => (Stops, Reach::Remote),
        ("wal-g" | "pgbackrest" | "barman", _) if words.iter().any(|w| w.contains("delete")) => {
            (Destroys, Reach::Remote)
        }
        ("rclone", "move" | "moveto" | "dedupe" | "cleanup") => (Destroys, Reach::Remote),
        ("rails" | "rake", task)
            if task.starts_with("db:") && RAILS_BACK.iter().any(|t| task.starts_with(t)) =>
        {
            (Destroys, Reach::Remote)
        }
        ("php" | "artisan" | "symfony" | "drush" | "wp", _)
            if words.iter().take(3).any(|w| {
                w.ends_with(":drop")
                    || w.ends_with(":rollback")
                    || w.ends_with("-drop")
                    || w.ends_with(":empty")
            }) =>
        {
            (Destroys, Reach::Remote)
        }
        ("dotnet", "ef")
            if second == "database"
                && words.get(2) == Some(&"update")
                && words.get(3) == Some(&"0") =>
        {
            (Destroys, Reach::Remote)
        }
        ("dotnet" | "nuget", "nuget" | "delete") if words.contains(&"delete") => {
            (Destroys, Reach::Remote)
        }
        ("gradle" | "gradlew" | "mvn", _)
            if words.iter().any(|w| w.to_ascii_lowercase().replace(':', "") == "flywayclean") =>
        {
            (Destroys, Reach::Remote)
        }
        ("docker-machine" | "multipass" | "limactl" | "colima" | "orb" | "orbctl", _)
            if words.iter().take(2).any(|w| matches!(*w, "rm" | "delete" | "purge")) =>
        {
            (Destroys, Reach::System)
        }
        ("gcloud", "iam") if all.contains("keys create") => (OpensAccess, Reach::Remote),
        ("docker" | "podman", "container" | "network") if second == "prune" => {
            (Stops, Reach::System)
        }
        (
            "talosctl" | "firebase" | "django-admin" | "liquibase" | "consul",
            "reset" | "hosting:disable" | "flush" | "leave",
        )
        | ("liquibase", "rollback" | "rollback-count" | "rollback-to-date" | "rollbackCount")
        | ("conda" | "mamba", "remove")
            if name != "conda" && name != "mamba"
                || arguments.iter().any(|word| word == "--all") =>
        {
            (Destroys, Reach::Remote)
        }
        ("hdfs" | "hadoop", "dfs" | "fs")
            if arguments.iter().any(|word| word.starts_with("-rm") || word == "-expunge") =>
        {
            (Destroys, Reach::Remote)
        }
        ("kadmin" | "kadmin.local", _) if all.contains("delprinc") => (Destroys, Reach::Remote),
        ("gh", "gist")
            if second == "create"
                && words.iter().skip(2).any(|word| crate::secret::is_secret(word)) =>
        {
            (OpensAccess, Reach::Remote)
        }
        ("aws", _) if AWS_STOPS.iter().any(|start| second.starts_with(start)) => {
            (Stops, Reach::Remote)
        }
        (name, _)
            if CLOUDS.contains(&name) && words.iter().take(5).any(|w| CLOUD_STOPS.contains(w)) =>
        {
            (Stops, Reach::Remote)
        }
        (name, _)
            // A local database that is reset stands in the table.
            if CLOUDS.contains(&name)
                && name != "supabase"
                && looked(&words).is_none()
                && words
                    .iter()
                    .take(5)
                    .any(|w| matches!(*w, "reset" | "rebuild" | "reinstall")) =>
        {
            (Stops, Reach::Remote)
        }
        ("kubectl" | "oc" | "k", "drain" | "cordon") => (Stops, Reach::Remote),
        ("kubectl" | "oc" | "k", "scale")
            if value_of(arguments, &["--replicas"]).is_some_and(|count| count == "0") =>
        {
            (Stops, Reach::Remote)
        }
        ("kubectl" | "oc" | "k", "rollout") if second == "undo" => (Stops, Reach::Remote),
        ("kubectl" | "oc" | "k", "taint") if all.contains("NoExecute") => (Stops, Reach::Remote),
        ("kubectl" | "oc" | "k", "patch")
            if all.split_whitespace().collect::<String>().contains(r#""replicas":0"#) =>
        {
            (Stops, Reach::Remote)
        }
        ("kubectl" | "oc" | "k", "auth") if all.contains("--remove-extra") => {
            (Stops, Reach::Remote)
        }
        ("oc", "adm") if second == "drain" => (Stops, Reach::Remote),
        // What keeps a thing from being deleted before its parts are.
        ("kubectl" | "oc" | "k", "patch") if all.contains("finalizers") => {
            (Destroys, Reach::Remote)
        }
        ("kubectl" | "oc" | "k", "apply") if arguments.iter().any(|word| word == "--prune") => {
            (Destroys, Reach::Remote)
        }
        ("helm", "rollback") | ("terraform" | "tofu", "force-unlock" | "taint") => {
            (Stops, Reach::Remote)
        }
        ("ansible-playbook", _)
            if ["state=absent", "destroy", "teardown", "uninstall"]
                .iter()
                .any(|w| all.contains(w))
                && !arguments.iter().any(|word| word == "--check" || word == "-C") =>
        {
            (Destroys, Reach::Remote)
        }
        ("kubectl" | "oc" | "k", "delete") if matches!(second, "pod" | "pods" | "po" | "job") => {
            (Destroys, Reach::Remote)
        }
        ("crontab", _) if arguments.iter().any(|word| word == "-r") => return None,
        ("crontab", file) if !file.is_empty() || arguments.iter().any(|word| word == "-") => {
            (Destroys, Reach::System)
        }
        ("gpg", _) if all.contains("--delete-secret") => (Destroys, Reach::System),
        ("docker" | "podman", "rm" | "rmi" | "stop" | "kill") if many => (Destroys, Reach::System),
        // By force, also what runs or is used.
        ("docker" | "podman", "rm" | "rmi")
            if arguments.iter().skip(1).any(|word| {
                word == "--force"
                    || word == "--volumes"
                    || word
                        .strip_prefix('-')
                        .is_some_and(|w| w.contains(['f', 'v', 'a']) && !w.starts_with('-'))
            }) =>
        {
            (Stops, Reach::System)
        }
        ("docker" | "podman", "rm" | "rmi") => (Destroys, Reach::Directory),
        ("docker" | "podman", "container" | "image" | "network")
            if matches!(second, "rm" | "prune" | "remove") =>
        {
            (Destroys, Reach::Directory)
        }
        ("docker" | "podman", "system") if matches!(second, "prune" | "reset") => {
            let volumes = arguments.iter().any(|w| w == "--volumes") || second == "reset";
            if volumes {
                return None;
            }
            (Destroys, Reach::System)
        }
        ("docker" | "docker-compose", "compose" | "rm")
            if words.contains(&"rm")
                && arguments.iter().any(|word| {
                    word.starts_with('-') && !word.starts_with("--") && word.contains('v')
                }) =>
        {
            (Stops, Reach::System)
        }
        ("docker" | "docker-compose", "compose" | "rm") if words.contains(&"rm") => {
            (Destroys, Reach::Directory)
        }
        ("docker", "swarm") if second == "leave" => (Stops, Reach::Remote),
        ("kind" | "k3d" | "minikube", "delete" | "cluster") if words.contains(&"delete") => {
            (Stops, Reach::System)
        }
        ("cargo", "yank") | ("gem", "yank") | ("npm" | "pnpm", "deprecate") => {
            (Destroys, Reach::Remote)
        }
        ("gh", "repo") if matches!(second, "archive" | "edit") && all.contains("archive") => {
            (Stops, Reach::Remote)
        }
        ("gh", "repo")
            if second == "edit" && all.contains("visibility") && all.contains("public") =>
        {
            (OpensAccess, Reach::Remote)
        }
        ("gh", "workflow") if second == "disable" => (Stops, Reach::Remote),
        ("heroku", "ps:scale") if all.contains("=0") => (Stops, Reach::Remote),
        ("heroku", "maintenance:on" | "ps:stop" | "ps:kill") => (Stops, Reach::Remote),
        ("redis-cli" | "valkey-cli", _)
            if words.iter().any(|w| w.eq_ignore_ascii_case("shutdown")) =>
        {
            (Stops, Reach::Remote)
        }
        _ => return None,
    };
    let reach = match (kind, reach) {
        (Destroys, Reach::Remote) => remote(&[&all]),
        (_, reach) => reach,
    };
    let used = if second.is_empty() { 1 } else { 2 };
    let verb = format!("{name} {}", words[..used.min(words.len())].join(" "));
    let target = target::join(words.get(used..).unwrap_or(&[]));
    Some(Harm { kind, verb, target, reach, recovery: Recovery::Elsewhere })
}

/// A policy that allows all actions.
fn allows_everything(text: &str) -> bool {
    let bare: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    bare.contains(r#""Action":"*""#) && bare.contains(r#""Allow""#)
}

fn grants_owner(text: &str) -> bool {
    text.split_whitespace().any(|word| {
        matches!(word.rsplit(['/', '=']).next(), Some("Owner" | "owner" | "Contributor" | "editor"))
    })
}

/// How commands of `aws` begin that give rights.
const AWS_OPENS: &[&str] = &[
    "put-bucket-policy",
    "put-bucket-acl",
    "put-user-policy",
    "put-role-policy",
    "put-group-policy",
    "attach-user-policy",
    "attach-role-policy",
    "attach-group-policy",
    "update-assume-role-policy",
    "create-access-key",
    "create-login-profile",
    "update-login-profile",
    "put-public-access-block",
    "modify-snapshot-attribute",
    "modify-image-attribute",
];

/// Options of `aws` that leave nothing running, or nothing kept.
const AWS_EMPTIES: &[&str] = &[
    "--desired-count 0",
    "--desired-capacity 0",
    "Status=Suspended",
    "--no-deletion-protection",
    "--no-disable-api-termination",
    "--reserved-concurrent-executions 0",
];

/// Options with which a plan is carried out unseen.
const UNSEEN: &[&str] = &[
    "-auto-approve",
    "--auto-approve",
    "-auto-approve=true",
    "--auto-approve=true",
    "-y",
    "--yes",
    "--skip-preview",
];

/// Tasks of Rails that take a database back or load it anew.
const RAILS_BACK: &[&str] = &[
    "db:rollback",
    "db:schema:load",
    "db:structure:load",
    "db:migrate:down",
    "db:migrate:reset",
    "db:truncate",
];

/// How commands of `aws` begin that stop something or lock people out.
const AWS_STOPS: &[&str] = &[
    "stop-",
    "reboot-",
    "disable-",
    "revoke-",
    "detach-",
    "disassociate-",
    "release-",
    "cancel-",
    "unsubscribe",
];

/// Tools of clouds, whose commands are a path of nouns with a verb in it.
const CLOUDS: &[&str] = &[
    "gcloud",
    "az",
    "doctl",
    "hcloud",
    "linode-cli",
    "neonctl",
    "eksctl",
    "ibmcloud",
    "oci",
    "fly",
    "flyctl",
    "wrangler",
    "scw",
    "vultr-cli",
    "b2",
    "civo",
    "exo",
    "ovhcloud",
    "koyeb",
    "upsun",
    "platform",
    "render",
    "openstack",
    "govc",
    "juju",
    "cf",
    "kops",
    "turso",
    "pscale",
    "supabase",
    "confluent",
    "databricks",
    "rabbitmqadmin",
    "incus",
    "lxc",
    "multipass",
    "nhost",
    "hasura",
    "talosctl",
    "pct",
    "qm",
    "stripe",
    "auth0",
    "sentry-cli",
    "vault",
    "crictl",
    "ctr",
];

/// Verbs of theirs that stop something.
const CLOUD_STOPS: &[&str] = &["stop", "deallocate", "suspend", "shutdown"];

/// What such a command destroys: the deed and the target.
fn gone(name: &str, arguments: &[String], input: &Input) -> Option<(String, String)> {
    let fed = input.text.as_deref();
    match name {
        "aws" => return aws(arguments),
        "terraform" | "tofu" | "terragrunt" => return terraform(name, arguments),
        "mysqladmin" if operands(arguments).contains(&"drop") => {
            let words = operands(arguments);
            let target = words.iter().skip_while(|word| **word != "drop").nth(1);
            return Some((
                "mysqladmin drop".to_owned(),
                target.copied().unwrap_or_default().into(),
            ));
        }
        "pg_restore" | "mongorestore" | "gsutil" | "azcopy" | "s3cmd" | "mc"
            if replaces(name, arguments) =>
        {
            let to = operands(arguments).last().copied().unwrap_or_default().to_owned();
            return Some((format!("{name} with deletion"), to));
        }
        "redis-cli" | "valkey-cli" => return redis(name, arguments, input),
        "mongo" | "mongosh" => return mongo(name, arguments, fed),
        "docker" | "podman" | "docker-compose" if is_down_with_volumes(arguments) => {
            return Some((format!("{name} compose down -v"), String::new()));
        }
        "gh" if arguments.iter().take(2).eq(["api", "graphql"].iter()) => {
            let query = arguments.iter().find_map(|word| word.strip_prefix("query="))?;
            let deed = graphql::of(query)?.harms.into_iter().next()?;
            return Some((format!("gh api {}", deed.verb), deed.target));
        }
        "grpcurl" => {
            let method = arguments.iter().rev().find(|word| word.contains('/'))?;
            let gone = Words::of(method).destroys();
            return gone.then(|| ("grpcurl".to_owned(), method.clone()));
        }
        "bq" if arguments.first().is_some_and(|word| word == "query") => return query(arguments),
        "wrangler" if arguments.iter().any(|word| word == "execute") => return query(arguments),
        "crontab" => {
            let all = arguments.iter().any(|word| word == "-r");
            let user = value_of(arguments, &["-u"]).unwrap_or_default();
            return all.then(|| ("crontab -r".to_owned(), user));
        }
        "rclone" if arguments.first().is_some_and(|word| word == "sync") => {
            let to = operands(arguments).last().copied().unwrap_or_default().to_owned();
            return Some(("rclone sync".to_owned(), to));
        }
        "kubectl" | "oc" | "k" if operands(arguments).first() == Some(&"replace") => {
            let forced = arguments.iter().any(|word| word == "--force");
            return forced.then(|| (format!("{name} replace --force"), String::new()));
        }
        "nomad" => {
            let purged = arguments.iter().any(|w| w.trim_start_matches('-') == "purge");
            return purged.then(|| ("nomad purge".to_owned(), target::join(&operands(arguments))));
        }
        "python" | "python3" if arguments.first().is_some_and(|w| w.ends_with("manage.py")) => {
            let command = arguments.get(1).map_or("", String::as_str);
            let gone = matches!(command, "flush" | "reset_db" | "sqlflush")
                || (command == "migrate" && arguments.last().is_some_and(|word| word == "zero"));
            return gone.then(|| (format!("manage.py {command}"), String::new()));
        }
        kafka if kafka.starts_with("kafka-") && arguments.iter().any(|w| w == "--delete") => {
            let topic = value_of(arguments, &["--topic", "--group"]).unwrap_or_default();
            let tool = kafka.trim_end_matches(".sh");
            return Some((format!("{tool} --delete"), topic));
        }
        "prisma" => {
            let words = operands(arguments);
            let gone = words.iter().take(2).eq(["migrate", "reset"].iter())
                || arguments.iter().any(|w| w == "--force-reset" || w == "--accept-data-loss");
            return gone.then(|| ("prisma reset".to_owned(), String::new()));
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
    let listed = DEEDS.iter().filter(|deed| deed.0 == name).find_map(|Deed(_, needed)| {
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
    });
    listed.or_else(|| CLOUDS.contains(&name).then(|| cloud(name, arguments)).flatten())
}

/// Copies and restores that first remove what is there.
fn replaces(name: &str, arguments: &[String]) -> bool {
    let has = |words: &[&str]| arguments.iter().any(|word| words.contains(&word.as_str()));
    match name {
        "pg_restore" => has(&["-c", "--clean"]),
        "mongorestore" => has(&["--drop"]),
        "gsutil" => has(&["rsync"]) && has(&["-d"]),
        "azcopy" => has(&["--delete-destination=true", "--delete-destination"]),
        "s3cmd" => has(&["--delete-removed"]),
        "mc" => has(&["mirror"]) && has(&["--remove"]),
        _ => false,
    }
}

/// The words that are not options. The value of an option cannot be told from an operand without
/// knowing every tool, so that it is left in; it only makes the target more exact.
pub(super) fn operands(arguments: &[String]) -> Vec<&str> {
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
        "route53" if *deed == "change-resource-record-sets" => {
            arguments.iter().any(|word| word.contains("\"DELETE\"") || word.contains("=DELETE"))
        }
        "s3" if *deed == "sync" => arguments.iter().any(|word| word == "--delete"),
        "s3" => matches!(*deed, "rm" | "rb"),
        // Taking a message off a queue is how a queue is used.
        "sqs" => deed.starts_with("delete-queue") || *deed == "purge-queue",
        "kms" if *deed == "schedule-key-deletion" => true,
        _ => {
            ["delete-", "terminate-", "purge-", "remove-", "deregister-"]
                .iter()
                .any(|start| deed.starts_with(start))
                || deed.contains("-delete-")
        }
    };
    goes.then(|| (format!("aws {service} {deed}"), target::join(&words[2..])))
}

fn terraform(name: &str, arguments: &[String]) -> Option<(String, String)> {
    let words = operands(arguments);
    let command = words.iter().find(|word| !matches!(**word, "run-all" | "run"))?;
    let next = words.iter().skip_while(|word| *word != command).nth(1).copied();
    if matches!((*command, next), ("state", Some("rm" | "push")) | ("workspace", Some("delete"))) {
        return Some((format!("{name} {command} {}", next.unwrap_or_default()), {
            target::join(words.get(2..).unwrap_or(&[]))
        }));
    }
    let replaced = arguments.iter().find_map(|word| {
        word.trim_start_matches('-').strip_prefix("replace=").filter(|_| *command == "apply")
    });
    if let Some(replaced) = replaced {
        return Some((format!("{name} apply -replace"), replaced.to_owned()));
    }
    let destroys = matches!(*command, "destroy" | "destroy-all")
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

/// Where a command of a cloud's tool says that it only looks: `users search -q delete`.
fn looked(words: &[&str]) -> Option<usize> {
    let looks = ["search", "list", "ls", "get", "show", "describe", "find", "inspect"];
    words.iter().take(5).position(|word| looks.contains(word))
}

fn cloud(name: &str, arguments: &[String]) -> Option<(String, String)> {
    let words = operands(arguments);
    let at = words.iter().take(6).position(|word| {
        matches!(*word, "delete" | "destroy" | "purge" | "rm" | "remove" | "terminate" | "rb")
            || word.starts_with("delete-")
            || [":delete", "-delete", ":destroy", ":remove"].iter().any(|end| word.ends_with(end))
    })?;
    if looked(&words).is_some_and(|before| before < at) {
        return None;
    }
    let named = value_of(arguments, &["--name"]);
    let rest = words.get(at + 1..).unwrap_or(&[]);
    let target = if rest.is_empty() { named.unwrap_or_default() } else { target::join(rest) };
    Some((format!("{name} {}", words[..=at].join(" ")), target))
}

fn is_down_with_volumes(arguments: &[String]) -> bool {
    let words = operands(arguments);
    let down = words.iter().take(3).any(|word| *word == "down");
    down && arguments.iter().any(|word| matches!(word.as_str(), "-v" | "--volumes"))
}
