//! What a deed does, in the words of a person: `crontab -r` removes scheduled jobs, and no "files".
//!
//! Kind and reach alone make poor sentences where a program is well known. The first row that a deed
//! begins with holds; otherwise the sentence is made of kind and reach.

use super::safer::begins;
use super::{Harm, HarmKind, Reach, Recovery};

/// What a deed begins with, and what it does. `{}` stands for how far it reaches.
const BY_DEED: &[(&str, &str)] = &[
    ("crontab -r", "removes all scheduled jobs of a user"),
    ("crontab", "replaces all scheduled jobs of a user"),
    ("atrm", "removes a job that waits for its time"),
    (
        "docker system prune",
        "removes stopped containers, unused images and networks of this machine",
    ),
    ("docker volume", "deletes volumes of this machine with the data in them"),
    ("docker compose down -v", "removes the project's containers and the data in their volumes"),
    (
        "docker-compose compose down -v",
        "removes the project's containers and the data in their volumes",
    ),
    ("docker image", "removes images of this machine"),
    ("docker rmi", "removes images of this machine"),
    ("docker network", "removes networks of containers on this machine"),
    ("docker rm", "removes containers of this machine with all that is only in them"),
    ("docker container", "removes containers of this machine with all that is only in them"),
    ("docker stack", "removes services of the cluster"),
    ("docker service", "stops or removes services of the cluster"),
    ("docker swarm", "takes this machine out of its cluster"),
    ("docker run", "gives a container rights on all of this machine"),
    ("docker", "stops or removes containers of this machine"),
    ("podman system", "removes containers, images and volumes of this machine"),
    ("podman volume", "deletes volumes of this machine with the data in them"),
    ("podman run", "gives a container rights on all of this machine"),
    ("podman", "stops or removes containers of this machine"),
    ("kubectl create clusterrolebinding", "gives the right to do anything in the cluster"),
    ("kubectl run", "gives a container rights on its whole machine"),
    ("kubectl delete namespace", "deletes a namespace of the cluster with all that runs in it"),
    ("kubectl delete ns", "deletes a namespace of the cluster with all that runs in it"),
    ("kubectl delete", "deletes resources of the cluster"),
    ("kubectl drain", "moves everything away from a machine of the cluster"),
    ("kubectl scale", "leaves nothing of a service running in the cluster"),
    ("kubectl", "changes what runs in the cluster"),
    ("helm", "removes or changes what runs in the cluster"),
    ("terraform destroy", "deletes the infrastructure that it manages"),
    ("terraform state", "removes the record of infrastructure that stays behind"),
    ("terraform apply", "changes infrastructure, and no person has seen the plan"),
    ("tofu destroy", "deletes the infrastructure that it manages"),
    ("tofu apply", "changes infrastructure, and no person has seen the plan"),
    ("pulumi destroy", "deletes the infrastructure that it manages"),
    ("pulumi up", "changes infrastructure, and no person has seen the plan"),
    ("cdk destroy", "deletes the infrastructure that it manages"),
    ("vagrant", "deletes a virtual machine with all that is in it"),
    ("virsh", "stops or deletes a virtual machine"),
    ("multipass", "stops or deletes a virtual machine"),
    ("git push --delete", "deletes a branch or a tag on the server"),
    ("git push --force", "replaces commits on the server that others may use"),
    ("git branch", "deletes a branch whose commits may be nowhere else"),
    ("git tag", "deletes tags"),
    ("git reflog", "deletes the record by which lost commits are found again"),
    ("git gc", "deletes commits that no branch holds, at once"),
    ("git prune", "deletes commits that no branch holds, at once"),
    ("git filter", "writes every commit of the repository anew"),
    ("git update-ref", "deletes a branch or a tag"),
    ("git stash", "deletes stashed work"),
    ("git clean", "deletes files that git does not know"),
    ("git worktree", "deletes a working tree with its uncommitted changes"),
    ("drop database", "deletes a database with all that is in it"),
    ("drop schema", "deletes a schema with all of its tables"),
    ("dropdb", "deletes a database with all that is in it"),
    ("drop table", "deletes a table with all of its rows"),
    ("truncate table", "deletes all rows of a table"),
    ("delete table", "deletes rows of a table"),
    ("update table", "changes all rows of a table"),
    ("grant", "gives rights in a database to others"),
    ("redis-cli shutdown", "stops a database"),
    ("redis-cli", "deletes keys of a database"),
    ("mongosh dropdatabase", "deletes a database with all that is in it"),
    ("rails db", "deletes or resets the application's database"),
    ("rake db", "deletes or resets the application's database"),
    ("manage.py", "empties the application's database"),
    ("prisma", "empties the application's database"),
    ("alembic", "takes tables and columns of the application's database back"),
    ("aws s3", "deletes objects in cloud storage"),
    ("gsutil", "deletes objects in cloud storage"),
    ("aws ec2 terminate-instances", "deletes machines in the cloud"),
    ("aws ec2 stop-instances", "stops machines in the cloud"),
    ("gcloud projects delete", "deletes a cloud project with all that is in it"),
    ("az group delete", "deletes a resource group with all that is in it"),
    ("gh repo delete", "deletes a repository on the server"),
    ("gh pr merge", "merges a change past the rules that protect the branch"),
    ("npm publish", "makes a package public, which cannot be taken back"),
    ("cargo publish", "makes a package public, which cannot be taken back"),
    ("npm unpublish", "takes a package from everyone who installs it"),
    ("cargo yank", "takes a version from everyone who builds with it"),
    ("npm owner", "changes who may publish a package"),
    ("systemctl", "stops a service of this machine"),
    ("service", "stops a service of this machine"),
    ("launchctl", "stops or starts a service of this machine"),
    ("shutdown", "turns this machine off, and all that runs on it"),
    ("poweroff", "turns this machine off, and all that runs on it"),
    ("halt", "turns this machine off, and all that runs on it"),
    ("stop-computer", "turns this machine off, and all that runs on it"),
    ("reboot", "restarts this machine, and ends all that runs on it"),
    ("restart-computer", "restarts this machine, and ends all that runs on it"),
    ("kill", "ends processes of this machine that others need"),
    ("pkill", "ends processes of this machine that others need"),
    ("killall", "ends processes of this machine that others need"),
    ("killall5", "ends all processes of this machine"),
    ("ufw", "changes what the firewall of this machine lets in"),
    ("iptables", "changes what the firewall of this machine lets in"),
    ("nft", "changes what the firewall of this machine lets in"),
    ("firewall-cmd", "changes what the firewall of this machine lets in"),
    ("nmcli", "takes this machine off a network"),
    ("ip", "takes this machine off a network"),
    ("ifconfig", "takes this machine off a network"),
    ("userdel", "deletes an account of this machine"),
    ("useradd", "makes an account that may do more than a user"),
    ("usermod", "changes what an account of this machine may do"),
    ("passwd", "changes how an account of this machine logs in"),
    ("visudo", "changes who may act as root"),
    ("setenforce", "turns off a protection of this machine"),
    ("sysctl", "changes a setting of the kernel"),
    ("history", "deletes the record of what was typed"),
    ("forget", "stops the record of what is typed"),
    ("journalctl", "deletes logs of this machine"),
    ("dmesg", "deletes logs of this machine"),
    ("apt", "removes programs of this machine"),
    ("apt-get", "removes programs of this machine"),
    ("dnf", "removes programs of this machine"),
    ("yum", "removes programs of this machine"),
    ("pacman", "removes programs of this machine"),
    ("chmod 000", "takes all rights to files away, in {}"),
    ("chown", "changes who owns files, in {}"),
    ("chgrp", "changes who owns files, in {}"),
    ("mkfs", "deletes everything on a disk"),
    ("wipefs", "deletes everything on a disk"),
    ("diskutil", "deletes everything on a disk"),
    ("dd /dev", "overwrites a disk"),
    ("zfs", "deletes a file system with all that is in it"),
    ("zpool", "deletes file systems with all that is in them"),
    ("lvremove", "deletes a file system with all that is in it"),
    ("restic", "deletes backups"),
    ("borg", "deletes backups"),
    ("security delete-keychain", "deletes a keychain with its passwords"),
    ("gpg", "deletes a private key"),
    ("ssh-keygen over", "replaces a private key"),
    ("defaults", "deletes settings of a program"),
    ("conda env", "deletes a Python environment"),
    ("npm access", "changes who may read or publish a package"),
    ("npm team", "changes who may read or publish a package"),
    ("cargo owner", "changes who may publish a package"),
    ("gem owner", "changes who may publish a package"),
    ("gh ssh-key", "lets a key act for an account"),
    ("git config", "changes what git runs, or whether it checks connections"),
    ("npm config", "turns off a check of connections"),
    ("pip config", "turns off a check of connections"),
    ("claude", "starts an agent that no longer asks"),
    ("codex", "starts an agent that no longer asks"),
    ("gemini", "starts an agent that no longer asks"),
    ("qwen", "starts an agent that no longer asks"),
    ("cursor-agent", "starts an agent that no longer asks"),
    ("copilot", "starts an agent that no longer asks"),
    ("aider", "starts an agent that no longer asks"),
    ("amp", "starts an agent that no longer asks"),
    ("crush", "starts an agent that no longer asks"),
    ("droid", "starts an agent that no longer asks"),
    ("alias", "puts another program under a name that people trust"),
    ("ngrok", "makes this machine reachable from the internet"),
    ("tailscale", "makes this machine reachable from the internet"),
    ("cloudflared", "makes this machine reachable from the internet"),
    ("ssh -r", "lets another machine connect back to this one"),
    ("ssh-copy-id", "lets a key log in to another machine"),
    ("nc shell", "gives a shell of this machine to the network"),
    ("bash shell", "gives a shell of this machine to the network"),
    ("fork bomb", "starts processes until this machine stands still"),
];

/// Runners of a project's own tasks, as the verbs of such deeds have them.
const RUNNERS: &[&str] = &[
    "make", "gmake", "npm", "pnpm", "yarn", "bun", "just", "task", "rake", "invoke", "inv", "run",
];

/// What a harm does, without whether it comes back.
pub(super) fn clause(harm: &Harm) -> String {
    let deed = format!("{} {}", harm.verb, harm.target).to_lowercase();
    let reach = harm.reach.words(harm.kind);
    let shared = harm.kind == HarmKind::RewritesHistory && harm.reach == Reach::Production;
    if harm.kind == HarmKind::Stops && RUNNERS.contains(&harm.verb.as_str()) {
        return "runs a task whose name says that it takes something down".to_owned();
    }
    let known = BY_DEED.iter().find(|(start, _)| begins(&deed, start)).filter(|_| !shared);
    match known {
        Some((_, words)) => {
            let large = harm.reach == Reach::Production && harm.kind.removes();
            let note = if large { " (production, or something as large)" } else { "" };
            words.replace("{}", reach) + note
        }
        None => match (harm.kind, harm.reach, harm.recovery) {
            // What is edited is still there.
            (HarmKind::Destroys, Reach::System, Recovery::Elsewhere) => {
                "changes what the system needs".to_owned()
            }
            (HarmKind::Stops, Reach::System, _) => {
                "stops something that this machine needs".to_owned()
            }
            _ => format!("{} {reach}", harm.kind.does()),
        },
    }
}

/// The beginnings of deeds, in the order in which they are looked at.
#[cfg(test)]
pub(super) fn deeds() -> Vec<&'static str> {
    BY_DEED.iter().map(|(start, _)| *start).collect()
}
