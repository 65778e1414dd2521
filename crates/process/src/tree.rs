//! The tree: start a command, wait for it, and end everything that came of it.
//!
//! What a platform can see and do is in `sys`; here is the order in which it is done.

use std::collections::HashSet;
use std::io;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal as Raw;

use crate::sys::{Identity, Member, System};

/// How long the end of everything may take before it is called a failure. Only a process stuck
/// in the kernel, or one that we may not signal, lasts that long.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often adopted zombies are buried while the command runs.
const HOUSEKEEPING: Duration = Duration::from_secs(5);

/// Rounds of stopping before the kill. A fork storm freezes in two or three; processes that fork
/// and exit at once never do, and are then killed in flight.
const FREEZING_ROUNDS: usize = 5;

/// Rounds after which what is left is faster than a scan, and is hunted. One round ends
/// everything that holds still, and the next one buries it.
const ROUNDS_BEFORE_HUNT: usize = 2;

/// A running command and every process that it started, directly or not.
///
/// All methods take `&self` and may be called from several threads: one waits while another ends
/// the tree. Dropping a tree ends what is left of it, at once.
#[derive(Debug)]
pub struct Tree {
    id: u32,
    child: Mutex<Child>,
    system: System,
    over: AtomicBool,
}

/// By which means a tree is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// A cgroup of its own and `cgroup.kill`, checked by a walk of the descendants.
    CgroupV2,
    /// Adoption of orphans and a walk of the descendants, with pidfds.
    Subreaper,
    /// What `ps` shows, and process groups: the best on systems other than Linux; it has gaps.
    ProcessGroups,
}

/// What [`Tree::end`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Processes that went by themselves, after the polite signal or before it.
    pub politely: usize,
    /// Processes that had to be killed. In a fork storm, those that were seen.
    pub forcibly: usize,
    /// How.
    pub means: Means,
}

/// A signal that asks a process to do something, and that it may refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// `SIGHUP`: the terminal is gone.
    Hangup,
    /// `SIGINT`: as Ctrl-C does.
    Interrupt,
    /// `SIGQUIT`: as Ctrl-\ does.
    Quit,
    /// `SIGTERM`: please end.
    Terminate,
}

/// The ends of the main child's pipes, where the command asked for pipes.
#[derive(Debug)]
pub struct Pipes {
    /// What we write and it reads.
    pub stdin: Option<ChildStdin>,
    /// What it writes.
    pub stdout: Option<ChildStdout>,
    /// What it complains.
    pub stderr: Option<ChildStderr>,
}

impl Tree {
    /// Starts a command as it is: standard streams, folder and environment are the caller's
    /// choice, and it stays in our process group and session.
    ///
    /// # Errors
    /// If the command can't be started, or if this system has no way to hold its tree (on Linux:
    /// no `/proc` of ours, or no pidfds).
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        Self::launch(command, Means::CgroupV2)
    }

    /// Like [`Tree::spawn`], without trying for a cgroup.
    ///
    /// # Errors
    /// As for [`Tree::spawn`].
    pub fn spawn_without_cgroup(command: &mut Command) -> io::Result<Self> {
        Self::launch(command, Means::Subreaper)
    }

    fn launch(command: &mut Command, best: Means) -> io::Result<Self> {
        let (child, system) = System::launch(command, best)?;
        Ok(Self { id: child.id(), child: Mutex::new(child), system, over: AtomicBool::new(false) })
    }

    /// The process id of the main child. It may be another's once [`Tree::wait`] has returned.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// By which means this tree is held.
    #[must_use]
    pub fn means(&self) -> Means {
        self.system.means()
    }

    /// What a [`crate::Guardian`] must know to end this tree without us.
    pub(crate) fn token(&self) -> String {
        self.system.token()
    }

    /// Takes the ends of the main child's pipes; the second time there are none.
    #[must_use]
    pub fn pipes(&self) -> Pipes {
        let mut child = self.child();
        Pipes {
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
        }
    }

    /// Waits until the main child has ended. Others of the tree may still run: call
    /// [`Tree::end`] afterwards, or drop the tree.
    ///
    /// # Errors
    /// If the system refuses to tell, for example because the host ignores `SIGCHLD`.
    pub fn wait(&self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.wait_timeout(HOUSEKEEPING)? {
                return Ok(status);
            }
            self.sweep()?;
        }
    }

    /// Waits until the main child has ended or the time is up.
    ///
    /// # Errors
    /// As for [`Tree::wait`].
    pub fn wait_timeout(&self, timeout: Duration) -> io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + timeout;
        loop {
            let status = self.try_wait()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if status.is_some() || left.is_zero() {
                return Ok(status);
            }
            self.system.wait_main(left)?;
        }
    }

    /// The main child's status, if it has ended.
    ///
    /// # Errors
    /// As for [`Tree::wait`].
    pub fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        self.child().try_wait()
    }

    /// Sends a signal to every process of the tree, and wakes those that are stopped so that
    /// they can act on it. Returns to how many it went.
    ///
    /// # Errors
    /// If the processes can't be listed.
    pub fn interrupt(&self, signal: Signal) -> io::Result<usize> {
        Ok(self.ask(signal)?.len())
    }

    /// Ends the whole tree: `SIGTERM` to all, up to `grace` for them to go, then the end of
    /// everything. When it returns `Ok`, no process of the tree is left.
    ///
    /// With no grace at all there is no polite signal. A second call, from another thread, cuts
    /// the grace of the first one short: that is how Ctrl-C twice works.
    ///
    /// # Errors
    /// If processes are left after ten seconds of killing, with their ids: they are stuck in the
    /// kernel or belong to another user. It may be called again.
    pub fn end(&self, grace: Duration) -> io::Result<Ended> {
        let mut tally = Tally::default();
        if !grace.is_zero() && !self.over.load(Ordering::Acquire) {
            tally.see(&self.ask(Signal::Terminate)?);
            self.give_time(grace, &mut tally)?;
        }
        self.force(&mut tally)?;
        Ok(tally.result(self.means()))
    }

    /// The processes of the tree that still run, the main child among them.
    #[must_use]
    pub fn survivors(&self) -> Vec<u32> {
        self.sweep()
            .map(|sweep| sweep.living.iter().map(|member| member.identity.pid).collect())
            .unwrap_or_default()
    }

    fn ask(&self, signal: Signal) -> io::Result<Vec<Member>> {
        let members = self.sweep()?.living;
        for member in &members {
            // A process that has gone meanwhile, or that we may not signal, is no reason to stop
            // here: a caller that needs certainty calls `end`, which checks.
            let _ = self.system.send(member, signal.raw());
            let _ = self.system.send(member, Raw::CONT);
        }
        Ok(members)
    }

    fn give_time(&self, grace: Duration, tally: &mut Tally) -> io::Result<()> {
        let deadline = Instant::now() + grace;
        let mut pause = Pause::new(Duration::from_millis(25));
        let mut calm = Calm::default();
        while Instant::now() < deadline {
            let sweep = self.sweep()?;
            tally.see(&sweep.living);
            if calm.after(&sweep) {
                break;
            }
            pause.take(deadline);
        }
        Ok(())
    }

    /// Stops everything, kills it, and looks again, until nothing is there to be seen.
    fn force(&self, tally: &mut Tally) -> io::Result<()> {
        if self.over.load(Ordering::Acquire) {
            return Ok(());
        }
        let deadline = Instant::now() + PATIENCE;
        let mut pause = Pause::new(Duration::from_millis(10));
        let mut calm = Calm::default();
        for round in 0.. {
            let sweep = self.sweep()?;
            if calm.after(&sweep) {
                break;
            }
            tally.kill(&sweep.living);
            self.system.kill_at_once();
            self.freeze(sweep.living, tally)?;
            self.kill(tally)?;
            if round >= ROUNDS_BEFORE_HUNT {
                tally.hunt(self.system.hunt());
            }
            if Instant::now() > deadline {
                return Err(self.failure());
            }
            pause.take(deadline);
        }
        self.over.store(true, Ordering::Release);
        self.system.close();
        Ok(())
    }

    /// Stops processes, and those that they forked meanwhile, so that none can fork while the
    /// others are killed or answer the death of a child with two new ones.
    fn freeze(&self, mut living: Vec<Member>, tally: &mut Tally) -> io::Result<()> {
        let mut stopped = HashSet::new();
        for _ in 0..FREEZING_ROUNDS {
            let mut news = false;
            for member in &living {
                if stopped.insert(member.identity) {
                    news = true;
                    let _ = self.system.send(member, Raw::STOP);
                }
            }
            if !news {
                break;
            }
            living = self.system.members()?;
            tally.kill(&living);
        }
        Ok(())
    }

    fn kill(&self, tally: &mut Tally) -> io::Result<()> {
        let members = self.system.members()?;
        tally.kill(&members);
        for member in &members {
            let _ = self.system.send(member, Raw::KILL);
        }
        Ok(())
    }

    /// Looks at all members and buries the dead among them that are our children.
    fn sweep(&self) -> io::Result<Sweep> {
        let members = self.system.members()?;
        let mut sweep = Sweep { seen: members.len(), living: Vec::new() };
        for member in members {
            if !member.zombie {
                sweep.living.push(member);
            } else if member.identity.pid == self.id {
                // The main child's status is kept for `wait`.
                self.try_wait()?;
            } else if member.parent == std::process::id() {
                self.system.bury(member.identity);
            }
        }
        Ok(sweep)
    }

    fn failure(&self) -> io::Error {
        let left = self.survivors().iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        io::Error::new(
            io::ErrorKind::TimedOut,
            format!(
                "processes {left} could not be ended: they are stuck in the kernel or belong to \
                 another user; end them as that user or as root"
            ),
        )
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // A failure cannot be reported from here.
        let _ = self.force(&mut Tally::default());
        self.system.close();
    }
}

impl Signal {
    fn raw(self) -> Raw {
        match self {
            Self::Hangup => Raw::HUP,
            Self::Interrupt => Raw::INT,
            Self::Quit => Raw::QUIT,
            Self::Terminate => Raw::TERM,
        }
    }
}

/// What one look at the tree showed.
struct Sweep {
    /// Everything, the dead included.
    seen: usize,
    /// What was not dead.
    living: Vec<Member>,
}

/// Two empty looks in a row are calm; one may have missed a process in the middle of a fork.
#[derive(Default)]
struct Calm {
    empty: usize,
}

impl Calm {
    fn after(&mut self, sweep: &Sweep) -> bool {
        self.empty = if sweep.seen == 0 { self.empty + 1 } else { 0 };
        self.empty >= 2
    }
}

/// Who was seen, and who of them was killed.
#[derive(Default)]
struct Tally {
    seen: HashSet<Identity>,
    killed: HashSet<Identity>,
}

impl Tally {
    fn see(&mut self, members: &[Member]) {
        self.seen.extend(members.iter().filter(|m| !m.zombie).map(|m| m.identity));
    }

    fn kill(&mut self, members: &[Member]) {
        self.see(members);
        self.killed.extend(members.iter().filter(|m| !m.zombie).map(|m| m.identity));
    }

    fn hunt(&mut self, killed: HashSet<Identity>) {
        self.seen.extend(&killed);
        self.killed.extend(killed);
    }

    fn result(&self, means: Means) -> Ended {
        let forcibly = self.killed.len();
        Ended { politely: self.seen.len() - forcibly, forcibly, means }
    }
}

/// Ever longer pauses between looks: quick at first, cheap later.
struct Pause {
    next: Duration,
    longest: Duration,
}

impl Pause {
    fn new(longest: Duration) -> Self {
        Self { next: Duration::from_micros(200), longest }
    }

    fn take(&mut self, deadline: Instant) {
        thread::sleep(self.next.min(deadline.saturating_duration_since(Instant::now())));
        self.next = (self.next * 2).min(self.longest);
    }
}
