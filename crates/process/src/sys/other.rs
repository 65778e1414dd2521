//! Systems other than Linux, macOS first: what `ps` shows, and plain signals.
//!
//! There is no adoption of orphans here, so a process whose parent has died is followed only if
//! an earlier look has seen it, or if its process group is one that members were seen in. A pid
//! is checked by its start, to the second, just before it is signalled; nothing better exists.

use std::collections::HashSet;
use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpgrp, kill_process};

use super::{Identity, Member};
use crate::Means;

/// One tree's hold on its processes.
#[derive(Debug)]
pub(crate) struct System {
    seen: Mutex<Seen>,
}

/// What earlier looks have shown.
#[derive(Debug, Default)]
struct Seen {
    processes: HashSet<Identity>,
    /// Process groups of members, ours not among them.
    groups: HashSet<i32>,
}

/// A line of `ps`.
#[derive(Debug, PartialEq, Eq)]
struct ProcessRow {
    identity: Identity,
    parent: u32,
    group: i32,
    zombie: bool,
}

impl System {
    pub(crate) fn launch(command: &mut Command, _best: Means) -> io::Result<(Child, Self)> {
        let child = command.spawn()?;
        let mut seen = Seen::default();
        let main = processes()?.into_iter().find(|line| line.identity.pid == child.id());
        seen.processes.extend(main.map(|line| line.identity));
        Ok((child, Self { seen: Mutex::new(seen) }))
    }

    pub(crate) fn means(&self) -> Means {
        Means::ProcessGroups
    }

    /// All processes of the tree that can be told.
    pub(crate) fn members(&self) -> io::Result<Vec<Member>> {
        let mut rest = processes()?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let own_group = getpgrp().as_raw_pid();
        let mut pids = HashSet::new();
        let mut members = Vec::new();
        loop {
            let (found, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|line| {
                seen.processes.contains(&line.identity)
                    || seen.groups.contains(&line.group)
                    || pids.contains(&line.parent)
            });
            if found.is_empty() {
                return Ok(members);
            }
            for line in found {
                pids.insert(line.identity.pid);
                seen.processes.insert(line.identity);
                if line.group != own_group {
                    seen.groups.insert(line.group);
                }
                let ProcessRow { identity, parent, zombie, .. } = line;
                members.push(Member { identity, parent, zombie });
            }
            rest = others;
        }
    }

    /// Sends a signal to a process, if it is still the same. A process that is gone: `false`.
    pub(crate) fn send(&self, member: &Member, signal: Signal) -> io::Result<bool> {
        let pid = i32::try_from(member.identity.pid).ok().and_then(Pid::from_raw);
        let same = ps(&["-p", &member.identity.pid.to_string()])?;
        match pid {
            Some(pid) if same.iter().any(|line| line.identity == member.identity) => {
                kill_process(pid, signal)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// The dead are buried by their parents or by launchd, not by us.
    pub(crate) fn bury(&self, _dead: Identity) {}

    /// There is no such means.
    pub(crate) fn kill_at_once(&self) {}

    /// Nor this one.
    pub(crate) fn hunt(&self) -> HashSet<Identity> {
        HashSet::new()
    }

    /// Waits for a while.
    pub(crate) fn wait_main(&self, timeout: Duration) -> io::Result<()> {
        thread::sleep(timeout.min(Duration::from_millis(20)));
        Ok(())
    }

    /// What a guardian must know to end this tree without us.
    pub(crate) fn token(&self) -> String {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let main = seen.processes.iter().min_by_key(|identity| identity.pid);
        main.map(|Identity { pid, start }| format!("{pid} {start}")).unwrap_or_default()
    }

    /// Nothing was lent.
    pub(crate) fn close(&self) {}
}

/// Runs something while no tree starts. Nothing is at stake here.
pub(crate) fn outside<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Ends the tree of a token, as far as `ps` shows it.
pub(crate) fn end_orphans(token: &str) -> io::Result<()> {
    let mut words = token.split(' ').filter_map(|word| word.parse::<u64>().ok());
    let pid = words.next().and_then(|pid| u32::try_from(pid).ok());
    let (Some(pid), Some(start)) = (pid, words.next()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the token cannot be read"));
    };
    let mut seen = Seen::default();
    seen.processes.insert(Identity { pid, start });
    let system = System { seen: Mutex::new(seen) };
    for _ in 0..100 {
        let living: Vec<_> = system.members()?.into_iter().filter(|m| !m.zombie).collect();
        if living.is_empty() {
            return Ok(());
        }
        for member in &living {
            let _ = system.send(member, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(20));
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "processes are left"))
}

fn processes() -> io::Result<Vec<ProcessRow>> {
    ps(&["-A"])
}

fn ps(which: &[&str]) -> io::Result<Vec<ProcessRow>> {
    let output = Command::new("ps")
        .args(which)
        .args(["-o", "pid=,ppid=,pgid=,state=,lstart="])
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(parse).collect())
}

/// Reads `4711 1 4711 Ss Sun Nov 15 05:53:19 2026`; the start becomes a number that only has to
/// differ when the start does.
fn parse(line: &str) -> Option<ProcessRow> {
    let mut fields = line.split_ascii_whitespace();
    let pid = fields.next()?.parse().ok()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let zombie = fields.next()?.starts_with('Z');
    let start = fields
        .flat_map(str::bytes)
        .fold(0u64, |sum, byte| sum.wrapping_mul(257).wrapping_add(u64::from(byte)));
    Some(ProcessRow { identity: Identity { pid, start }, parent, group, zombie })
}
