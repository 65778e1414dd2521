//! The safer way: what to do in place of a harmful call, so that a refusal helps the work along.
//!
//! A program that keeps a copy, shows first what would go, or undoes its own deed is named where
//! there is one. Otherwise the advice follows from the kind of harm and how far it reaches.

use super::{Harm, HarmKind, Reach};

/// What a deed begins with, and what to do in its place. The first match holds.
const BY_DEED: &[(&str, &str)] = &[
    ("git stash", "keep a copy first: `git stash show -p > stash.patch`"),
    ("git clean", "look first with `git clean -n`, or keep the files with `git stash push -u`"),
    ("git branch", "keep its commits under another name first: `git branch -m NAME old-NAME`"),
    ("git filter", "rewrite a fresh clone, and let a person compare and push it"),
    (
        "crontab",
        "keep a copy with `crontab -l > crontab.txt`, and remove one line with `crontab -e`",
    ),
    ("docker", "look first with `docker system df -v`, back up volumes, and remove by name"),
    ("podman", "look first with `podman system df -v`, back up volumes, and remove by name"),
    ("kubectl", "look first with `--dry-run=server`, and scale to zero before you delete"),
    ("helm", "look first with `helm get all NAME`; `helm rollback` undoes an upgrade"),
    ("terraform", "write a plan with `terraform plan -out=FILE`, and let a person apply it"),
    ("tofu", "write a plan with `tofu plan -out=FILE`, and let a person apply it"),
    ("pulumi", "show the change with `pulumi preview`, and let a person run it"),
    ("drop database", "dump the database first, and let a person drop it"),
    ("dropdb", "dump the database first, and let a person drop it"),
    ("drop table", "rename the table, and let a person drop it once nothing misses it"),
    ("truncate table", "copy the table first, or delete rows by a condition in a transaction"),
    ("delete table", "name the rows with WHERE, and count them in a transaction before COMMIT"),
    ("update table", "name the rows with WHERE, and count them in a transaction before COMMIT"),
    (
        "redis-cli",
        "look first with `redis-cli --scan --pattern`, save a copy, and delete keys by name",
    ),
    ("aws s3", "list the objects first, turn versioning on, and remove them by name"),
    ("gsutil", "list the objects first, turn versioning on, and remove them by name"),
    ("gh repo delete", "archive it with `gh repo archive`, which can be undone"),
    ("npm unpublish", "mark the version with `npm deprecate`, which can be undone"),
    ("cargo yank", "publish a fixed version first; `cargo yank --undo` takes a yank back"),
    ("mkfs", "work on an image file in the workspace"),
    ("dd", "write to an image file in the workspace"),
    ("userdel", "lock the account with `usermod --lock`, which can be undone"),
    ("iptables", "save the rules with `iptables-save`, and change one rule"),
    ("ufw", "look with `ufw status numbered`, and change one rule"),
];

/// What to do in place of a call.
pub(super) fn way(harm: &Harm) -> &'static str {
    let deed = format!("{} {}", harm.verb, harm.target).to_lowercase();
    let named = || BY_DEED.iter().find(|(start, _)| begins(&deed, start)).map(|(_, way)| *way);
    match harm.kind {
        HarmKind::Destroys
        | HarmKind::DiscardsWork
        | HarmKind::RewritesHistory
        | HarmKind::Stops
        | HarmKind::OpensAccess => named().unwrap_or_else(|| by_kind(harm)),
        _ => by_kind(harm),
    }
}

/// Whether a deed begins with these words. `mkfs.ext4` begins with `mkfs`, `ddrescue` does not with
/// `dd`.
fn begins(deed: &str, start: &str) -> bool {
    let joined = |next: char| next.is_alphanumeric() || next == '-' || next == '_';
    deed.strip_prefix(start).is_some_and(|rest| !rest.starts_with(joined))
}

/// What to do where no program of the deed is known.
fn by_kind(harm: &Harm) -> &'static str {
    match (harm.kind, harm.reach) {
        (HarmKind::Destroys, Reach::Remote | Reach::Production) => {
            "look first with a read-only command or `--dry-run`, make a backup, and let a person \
             run it"
        }
        (HarmKind::Destroys, Reach::Home | Reach::System) => {
            "name the exact files inside the workspace, or move them to a trash directory"
        }
        (HarmKind::Destroys, _) => "delete by name, move to a trash directory, or commit first",
        (HarmKind::DiscardsWork, _) => "run `git stash push -u` first, then nothing is lost",
        (HarmKind::RewritesHistory, _) => {
            "push to a new branch, or use `--force-with-lease` on a branch of your own"
        }
        (HarmKind::Stops, Reach::Remote | Reach::Production) => {
            "look first with a read-only command or `--dry-run`, and let a person run it"
        }
        (HarmKind::Stops, _) => "stop one process or service by its own name, and say why",
        (HarmKind::ReadsSecret, _) => {
            "use the secret through the program that needs it, without printing it"
        }
        (HarmKind::SendsSecret, _) => "send named files without secrets, after a person has agreed",
        (HarmKind::RunsDownload, _) => "save the script, read it, and run the copy you have read",
        (HarmKind::OpensAccess, _) => "give the one permission that is needed to the one file",
        (HarmKind::DisablesDeadstop, _) => "ask the person who set Deadstop up to change it",
        (HarmKind::Unreadable, _) => "write the command plainly, one step at a time",
    }
}
