//! Ends a tree from outside, after its keeper is gone: the orphans are not ours, so they are found by
//! their mark, by their cgroup and by their parents.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::cgroup::Cgroup;
use super::mark::Mark;
use super::{Entry, scan, send_to};
use crate::sys::{Identity, Member};

/// How long the end may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Rounds of stopping before the kill.
const FREEZING_ROUNDS: usize = 5;

/// What a guardian is told about a tree: the main child, the mark, the cgroup's folder.
pub(super) fn token(entry: &Entry, cgroup: Option<&Cgroup>) -> String {
    let Identity { pid, start } = entry.main;
    let mark = entry.mark.map(Mark::number).unwrap_or_default();
    let folder = cgroup.map(|cgroup| cgroup.folder().display().to_string()).unwrap_or_default();
    format!("{pid} {start} {mark} {folder}")
}

/// Ends everything that belongs to the tree of a token.
pub(crate) fn end_orphans(token: &str) -> io::Result<()> {
    let Some(orphans) = Orphans::read(token) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the token cannot be read"));
    };
    let deadline = Instant::now() + PATIENCE;
    let mut empty = 0;
    // One look may miss a process in the middle of a fork.
    while empty < 2 {
        if let Some(cgroup) = &orphans.cgroup {
            cgroup.kill();
        }
        let found = orphans.freeze()?;
        empty = if found.is_empty() { empty + 1 } else { 0 };
        for member in &found {
            let _ = send_to(member, Signal::KILL);
        }
        if Instant::now() > deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "processes are left"));
        }
        thread::sleep(Duration::from_millis(2));
    }
    if let Some(cgroup) = &orphans.cgroup {
        cgroup.remove();
    }
    Ok(())
}

/// What belongs to a tree whose keeper is gone.
struct Orphans {
    main: Identity,
    mark: Option<Mark>,
    cgroup: Option<Cgroup>,
}

impl Orphans {
    fn read(token: &str) -> Option<Orphans> {
        let mut words = token.splitn(4, ' ');
        let main =
            Identity { pid: words.next()?.parse().ok()?, start: words.next()?.parse().ok()? };
        let mark = Mark::read(words.next()?.parse().ok()?);
        let cgroup = words.next().filter(|folder| !folder.is_empty());
        let cgroup = cgroup.and_then(|folder| Cgroup::at(Path::new(folder)));
        Some(Orphans { main, mark, cgroup })
    }

    /// All that live: the main child, what bears the mark, what is in the cgroup, and everything
    /// below them. A Deadstop inside the tree gives its own processes another mark: they are found
    /// as its children.
    fn members(&self) -> io::Result<Vec<Member>> {
        let (mut members, mut rest): (Vec<Member>, Vec<Member>) =
            scan::processes()?.into_iter().filter(|process| !process.zombie).partition(|process| {
                process.identity == self.main
                    || self.mark.is_some() && Mark::of(process.identity.pid) == self.mark
            });
        let known: HashSet<Identity> = members.iter().map(|member| member.identity).collect();
        let boxed = self.cgroup.as_ref().map(Cgroup::members).unwrap_or_default();
        members.extend(boxed.into_iter().filter(|m| !m.zombie && !known.contains(&m.identity)));
        let mut pids: HashSet<u32> = members.iter().map(|member| member.identity.pid).collect();
        loop {
            let (below, others): (Vec<Member>, Vec<Member>) = rest
                .into_iter()
                .filter(|process| !pids.contains(&process.identity.pid))
                .partition(|process| pids.contains(&process.parent));
            if below.is_empty() {
                return Ok(members);
            }
            pids.extend(below.iter().map(|process| process.identity.pid));
            members.extend(below);
            rest = others;
        }
    }

    /// Stops all of it, so that none forks while the others are killed.
    fn freeze(&self) -> io::Result<Vec<Member>> {
        let mut stopped = HashSet::new();
        let mut members = self.members()?;
        for _ in 0..FREEZING_ROUNDS {
            let before = stopped.len();
            for member in &members {
                if stopped.insert(member.identity) {
                    let _ = send_to(member, Signal::STOP);
                }
            }
            if stopped.len() == before {
                break;
            }
            members = self.members()?;
        }
        Ok(members)
    }
}
