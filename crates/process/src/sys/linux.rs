//! Linux: adoption of orphans, a mark that is inherited, pidfds, and a cgroup where there is one.

mod cgroup;
mod mark;
mod orphans;
mod scan;

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, child_subreaper, getpid,
    pidfd_open, pidfd_send_signal, set_child_subreaper, waitid, waitpid,
};

use self::cgroup::Cgroup;
use self::mark::Mark;
pub(crate) use self::orphans::end_orphans;
pub(crate) use self::scan::process;
use super::{Identity, Member};
use crate::Means;

/// How long one hunt for quick orphans takes.
const HUNT: Duration = Duration::from_millis(5);

/// All trees of this process. The lock also keeps two of them from starting at once, because the
/// mark is set on this process for the moment of the fork.
static TREES: Mutex<Trees> = Mutex::new(Trees { living: Vec::new(), was_reaper: false });

/// What is common to the trees of this process.
#[derive(Debug)]
struct Trees {
    living: Vec<Entry>,
    /// Whether the host adopted orphans before the first tree, and wants to go on with it.
    was_reaper: bool,
}

/// A living tree, as the other trees need to know it.
#[derive(Debug, Clone, Copy)]
struct Entry {
    main: Identity,
    mark: Option<Mark>,
}

/// One tree's hold on its processes.
#[derive(Debug)]
pub(crate) struct System {
    entry: Entry,
    /// Wakes us when the main child ends, and can't mean another process.
    main_fd: OwnedFd,
    /// Our children before this tree. Asked only where the mark can't be had.
    before: HashSet<Identity>,
    cgroup: Option<Cgroup>,
}

impl System {
    pub(crate) fn launch(command: &mut Command, best: Means) -> io::Result<(Child, Self)> {
        check_system()?;
        let cgroup = if best == Means::CgroupV2 { Cgroup::create() } else { None };
        let mut trees = trees();
        let before = own_children()?;
        trees.enter()?;
        let (mark, child) = Mark::around(|| command.spawn());
        let held = child.and_then(|child| hold(child, mark));
        let (child, entry, main_fd) = match held {
            Ok(held) => held,
            Err(error) => {
                trees.leave();
                return Err(error);
            }
        };
        trees.living.push(entry);
        drop(trees);
        let cgroup = cgroup.filter(|cgroup| admit(cgroup, &main_fd, entry.main.pid));
        Ok((child, Self { entry, main_fd, before, cgroup }))
    }

    pub(crate) fn means(&self) -> Means {
        if self.cgroup.is_some() { Means::CgroupV2 } else { Means::Subreaper }
    }

    /// All processes of the tree, including zombies.
    pub(crate) fn members(&self) -> io::Result<Vec<Member>> {
        let me = std::process::id();
        let mut families: HashMap<u32, Vec<Member>> = HashMap::new();
        for process in scan::processes()? {
            families.entry(process.parent).or_default().push(process);
        }
        let mut members = families.remove(&me).unwrap_or_default();
        members.retain(|child| self.owns(child.identity));
        let mut next = 0;
        while let Some(member) = members.get(next) {
            if let Some(children) = families.remove(&member.identity.pid) {
                members.extend(children);
            }
            next += 1;
        }
        if let Some(cgroup) = &self.cgroup {
            let known: HashSet<u32> = members.iter().map(|m| m.identity.pid).collect();
            members
                .extend(cgroup.members().into_iter().filter(|m| !known.contains(&m.identity.pid)));
        }
        Ok(members)
    }

    /// Sends a signal to exactly this process. A process that is gone got none: `false`.
    pub(crate) fn send(&self, member: &Member, signal: Signal) -> io::Result<bool> {
        send_to(member, signal)
    }

    /// What a guardian must know to end this tree without us.
    pub(crate) fn token(&self) -> String {
        orphans::token(&self.entry, self.cgroup.as_ref())
    }

    /// Takes the status of a dead process that we have adopted. It is still there to be waited
    /// for, so its pid can't be another's.
    pub(crate) fn bury(&self, dead: Identity) {
        // Without a pid `waitpid` would mean any child, of whomever.
        if let Some(pid) = pid(dead.pid) {
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }

    /// Ends all at once, if there is a cgroup to do it with.
    pub(crate) fn kill_at_once(&self) {
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill();
        }
    }

    /// Kills orphans as they come to us, for a few milliseconds. A process that forks and exits
    /// at once is gone before a scan of all processes is through; the short list of our own
    /// children is read fast enough to meet it.
    pub(crate) fn hunt(&self) -> HashSet<Identity> {
        let end = Instant::now() + HUNT;
        let mut killed = HashSet::new();
        while Instant::now() < end {
            // The newest are at the end, and the others are mostly dead.
            for child in scan::own_children().into_iter().rev() {
                killed.extend(self.strike(child));
            }
        }
        killed
    }

    /// Kills a child of ours, or buries it, if it bears this tree's mark. The descriptor is
    /// opened before the mark is read, so what bears the mark is what is struck.
    fn strike(&self, child: u32) -> Option<Identity> {
        let fd = pidfd_open(pid(child)?, PidfdFlags::empty()).ok()?;
        let mark = Mark::of(child)?;
        if child == self.entry.main.pid || self.entry.mark != Some(mark) {
            return None;
        }
        let dead = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        match waitid(WaitId::PidFd(fd.as_fd()), dead) {
            Ok(None) => pidfd_send_signal(&fd, Signal::KILL).ok()?,
            _ => return None,
        }
        scan::process(child).map(|process| process.identity)
    }

    /// Waits until the main child ends or the time is up; may return early.
    pub(crate) fn wait_main(&self, timeout: Duration) -> io::Result<()> {
        let timeout = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 });
        match poll(&mut [PollFd::new(&self.main_fd, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives back what the system lent us. Nothing of the tree is left, or nothing can be done.
    pub(crate) fn close(&self) {
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove();
        }
        let mut trees = trees();
        let count = trees.living.len();
        trees.living.retain(|entry| entry.main != self.entry.main);
        if trees.living.len() < count {
            trees.leave();
        }
    }

    /// Whether a child of ours belongs to this tree: it is the main child, or an orphan of it.
    fn owns(&self, child: Identity) -> bool {
        if child == self.entry.main {
            return true;
        }
        let mark = Mark::of(child.pid);
        if mark.is_some() && mark == self.entry.mark {
            return true;
        }
        let others = trees().living.clone();
        let mut others = others.iter().map(|entry| entry.main).filter(|m| *m != self.entry.main);
        match (self.entry.mark, mark) {
            (None, _) => !self.before.contains(&child) && !others.any(|main| main == child),
            // A mark that neither this process nor its own keeper has given is that of a
            // Deadstop inside a tree of ours, which has died and left us its processes, or is
            // just about to start some. It does not say in which tree; the last one takes it.
            (_, Some(mark)) => !mark.is_ours() && !mark.is_inherited() && others.next().is_none(),
            _ => false,
        }
    }
}

/// Runs something while no tree of this process starts: see [`Mark`].
pub(crate) fn outside<T>(work: impl FnOnce() -> T) -> T {
    let _trees = trees();
    work()
}

impl Trees {
    /// Begins to adopt orphans, before the first tree.
    fn enter(&mut self) -> io::Result<()> {
        if self.living.is_empty() {
            self.was_reaper = child_subreaper()?.is_some();
        }
        Ok(set_child_subreaper(Some(getpid()))?)
    }

    /// Stops adopting orphans, after the last tree.
    fn leave(&self) {
        if self.living.is_empty() && !self.was_reaper {
            let _ = set_child_subreaper(None);
        }
    }
}

/// Gets hold of a child that has just started; if that fails, it must not run on.
fn hold(mut child: Child, mark: Option<Mark>) -> io::Result<(Child, Entry, OwnedFd)> {
    let hold = || {
        let process = scan::process(child.id())
            .ok_or_else(|| io::Error::other("the child is not to be seen in /proc"))?;
        let pid = pid(child.id()).ok_or(Errno::SRCH)?;
        let main_fd = pidfd_open(pid, PidfdFlags::empty())?;
        Ok((Entry { main: process.identity, mark }, main_fd))
    };
    match hold() {
        Ok((entry, main_fd)) => Ok((child, entry, main_fd)),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// Sends a signal to exactly this process. A process that is gone got none: `false`.
pub(crate) fn send_to(member: &Member, signal: Signal) -> io::Result<bool> {
    let Some(pid) = pid(member.identity.pid) else { return Ok(false) };
    let sent = pidfd_open(pid, PidfdFlags::empty()).and_then(|fd| {
        // The descriptor now means one process for good. If the pid still shows the start
        // that we know, then it is ours that it means.
        match scan::process(member.identity.pid) {
            Some(now) if now.identity == member.identity => pidfd_send_signal(&fd, signal),
            _ => Err(Errno::SRCH),
        }
    });
    match sent {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Moves a new child to its cgroup. The move takes the kernel milliseconds, in which a quick
/// child would fork outside; so it is stopped for that time, right at the start of its loader,
/// where it has no handlers yet. What it forked in the microseconds before that is outside, but
/// the walk knows it.
fn admit(cgroup: &Cgroup, main_fd: &OwnedFd, main: u32) -> bool {
    let _ = pidfd_send_signal(main_fd, Signal::STOP);
    let admitted = cgroup.admit(main);
    let _ = pidfd_send_signal(main_fd, Signal::CONT);
    admitted
}

/// A tree that can't be held must not start.
fn check_system() -> io::Result<()> {
    let unsupported = |what: &str| io::Error::new(io::ErrorKind::Unsupported, what.to_owned());
    let me = std::fs::read_link("/proc/self").ok();
    if me.is_none_or(|me| me.as_os_str() != std::process::id().to_string().as_str()) {
        return Err(unsupported(
            "/proc does not show this process; mount the proc of its namespace",
        ));
    }
    pidfd_open(getpid(), PidfdFlags::empty())
        .map(drop)
        .map_err(|_| unsupported("no pidfds here; Linux 5.3 or newer is needed"))
}

fn own_children() -> io::Result<HashSet<Identity>> {
    let me = std::process::id();
    Ok(scan::processes()?.iter().filter(|p| p.parent == me).map(|p| p.identity).collect())
}

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

fn trees() -> MutexGuard<'static, Trees> {
    TREES.lock().unwrap_or_else(PoisonError::into_inner)
}
