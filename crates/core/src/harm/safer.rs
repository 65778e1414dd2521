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
    ("git reflog", "let a person do it, after `git fsck --lost-found` has shown what would go"),
    ("git gc", "leave out `--prune=now`: git keeps such commits for two weeks"),
    ("git prune", "leave it to `git gc`, which keeps such commits for two weeks"),
    ("git update-ref", "keep the commits under another name first: `git branch NAME COMMIT`"),
    ("git push --delete", "tag the commits first, or let a person delete it on the server"),
    ("drop schema", "dump the schema first, and let a person drop it"),
    ("rails db", "dump the database first, or work on the test database: `RAILS_ENV=test`"),
    ("manage.py", "dump the data first with `manage.py dumpdata`, and let a person run it"),
    ("prisma", "look first with `prisma migrate status`, and dump the database"),
    ("alembic", "look first with `alembic downgrade --sql`, and dump the database"),
    ("zfs", "look first with `zfs destroy -nv`, and take a snapshot that stays"),
    ("virsh", "save it first with `virsh save`, or take a snapshot"),
    ("vagrant", "stop it with `vagrant halt`, which can be undone"),
    ("restic", "look first with `--dry-run`, and let a person run it"),
    ("borg", "look first with `--dry-run`, and let a person run it"),
    ("history", "leave the record as it is; it shows a person what was done"),
    ("forget", "leave the record as it is; it shows a person what was done"),
    ("journalctl", "leave the logs as they are, or let a person set `SystemMaxUse`"),
    ("npm publish", "look first with `npm publish --dry-run`, and let a person publish it"),
    ("cargo publish", "look first with `cargo publish --dry-run`, and let a person publish it"),
    ("gpg", "export the key first, and let a person delete it"),
    ("defaults", "keep a copy first: `defaults export DOMAIN FILE`"),
    ("conda env", "keep a list first: `conda env export > environment.yml`"),
    ("atrm", "look first with `at -c JOB`, and let a person remove it"),
    ("systemctl", "look with `systemctl status`, and let a person stop it"),
    ("apt", "look first with `--simulate`, and let a person remove it"),
    ("apt-get", "look first with `--simulate`, and let a person remove it"),
    ("ngrok", "serve it on 127.0.0.1, and let a person share it"),
    ("ssh-keygen", "write the new key to another file: `ssh-keygen -f FILE`"),
    ("claude", ASKS),
    ("codex", ASKS),
    ("gemini", ASKS),
    ("qwen", ASKS),
    ("cursor-agent", ASKS),
    ("copilot", ASKS),
    ("aider", ASKS),
    ("amp", ASKS),
    ("crush", ASKS),
    ("droid", ASKS),
    ("mkfs", "work on an image file in the workspace"),
    ("dd", "write to an image file in the workspace"),
    ("userdel", "lock the account with `usermod --lock`, which can be undone"),
    ("iptables", "save the rules with `iptables-save`, and change one rule"),
    ("ufw", "look with `ufw status numbered`, and change one rule"),
];

/// The way for an agent that is started without any questions.
const ASKS: &str = "start it with the permissions that it needs, and let it ask for the rest";

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
pub(super) fn begins(deed: &str, start: &str) -> bool {
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

/// The beginnings of deeds, in the order in which they are looked at.
#[cfg(test)]
pub(super) fn deeds() -> Vec<&'static str> {
    BY_DEED.iter().map(|(start, _)| *start).collect()
}
