//! A cgroup of version 2 below our own, for one tree: `cgroup.kill` ends all in it at once.
//!
//! Version 2 may be mounted at `/sys/fs/cgroup` or below it, and what looks like it may be a
//! tmpfs that takes every write and does nothing. So nothing is believed: the folder must be of
//! the right file system, the kernel must have made `cgroup.kill` in it, and the child must be
//! seen in it. If any of this fails there is no cgroup, and the walk of descendants has to do.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::statfs;

use super::scan;
use crate::sys::Member;

/// `CGROUP2_SUPER_MAGIC` of `linux/magic.h`.
const CGROUP2: u32 = 0x6367_7270;

static COUNT: AtomicU64 = AtomicU64::new(0);

/// A cgroup that we made. It is removed when it is dropped, if nothing is in it.
#[derive(Debug)]
pub(super) struct Cgroup {
    folder: PathBuf,
    /// Its name in `/proc/<pid>/cgroup`.
    name: String,
}

impl Cgroup {
    /// Makes an empty cgroup, if that is possible here.
    pub(super) fn create() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let own = own_name(&fs::read_to_string("/proc/self/cgroup").ok()?)?.to_owned();
        let parent = folder_of(&mounts, &own)?;
        if !is_cgroup2(&parent) {
            return None;
        }
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let leaf = format!("deadstop-{}-{count}", std::process::id());
        let folder = parent.join(&leaf);
        fs::create_dir(&folder).ok()?;
        let cgroup = Self { folder, name: format!("{}/{leaf}", own.trim_end_matches('/')) };
        (is_cgroup2(&cgroup.folder) && cgroup.folder.join("cgroup.kill").exists()).then_some(cgroup)
    }

    /// A cgroup that another process has made for a tree.
    pub(super) fn at(folder: &Path) -> Option<Self> {
        let leaf = folder.file_name()?.to_str()?;
        if !leaf.starts_with("deadstop-") || !is_cgroup2(folder) {
            return None;
        }
        let own = own_name(&fs::read_to_string("/proc/self/cgroup").ok()?)?.to_owned();
        Some(Self {
            folder: folder.to_owned(),
            name: format!("{}/{leaf}", own.trim_end_matches('/')),
        })
    }

    /// Where it is.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Moves a process in, and looks whether it is really there.
    pub(super) fn admit(&self, pid: u32) -> bool {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string()).is_ok() && self.holds(pid)
    }

    /// Kills everything in it and below it. Whether it did is for the walk to see.
    pub(super) fn kill(&self) {
        let _ = fs::write(self.folder.join("cgroup.kill"), "1");
    }

    /// All processes in it and below it.
    pub(super) fn members(&self) -> Vec<Member> {
        let mut members = Vec::new();
        for folder in folders(&self.folder) {
            let pids = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            let processes =
                pids.lines().filter_map(|pid| pid.parse().ok()).filter_map(scan::process);
            // A pid may have become another's since it was listed; that one is not in here.
            members.extend(processes.filter(|process| self.holds(process.identity.pid)));
        }
        members
    }

    /// Removes it. The dead take a moment to leave.
    pub(super) fn remove(&self) {
        for _ in 0..50 {
            for folder in folders(&self.folder).iter().rev() {
                let _ = fs::remove_dir(folder);
            }
            if !self.folder.exists() {
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn holds(&self, pid: u32) -> bool {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        own_name(&text)
            .and_then(|name| name.strip_prefix(&self.name))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

fn is_cgroup2(folder: &Path) -> bool {
    statfs(folder).is_ok_and(|found| u32::try_from(found.f_type) == Ok(CGROUP2))
}

/// The name of the version 2 cgroup in the text of `/proc/<pid>/cgroup`.
fn own_name(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

/// Where a cgroup's folder is, by the text of `/proc/self/mountinfo`.
fn folder_of(mounts: &str, name: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        if kind.split(' ').next()? != "cgroup2" {
            return None;
        }
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        // A mount may show only a part of the hierarchy, and that part need not hold ours.
        let below = name.strip_prefix(root.trim_end_matches('/'))?;
        if below.split('/').any(|part| part == "..")
            || !(below.is_empty() || below.starts_with('/'))
        {
            return None;
        }
        Some(Path::new(&unescape(point)).join(below.trim_start_matches('/')))
    })
}

/// Mount points have spaces and their like as octal escapes; no cgroup mount needs the others.
fn unescape(point: &str) -> String {
    point.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
}

/// A folder and all folders below it, parents first.
fn folders(top: &Path) -> Vec<PathBuf> {
    let mut all = vec![top.to_owned()];
    let mut next = 0;
    while let Some(folder) = all.get(next) {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let below: Vec<_> = entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect();
        all.extend(below);
        next += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_folder_is_found_wherever_version_two_is_mounted() {
        let check = |mount: &str, name: &str, expected: Option<&str>| {
            let mounts = format!("22 27 0:21 / /proc rw - proc proc rw\n{mount}\n");
            assert_eq!(folder_of(&mounts, name), expected.map(PathBuf::from), "{mount} {name}");
        };
        let unified = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
        check(unified, "/", Some("/sys/fs/cgroup/unified/"));
        check(unified, "/a/b", Some("/sys/fs/cgroup/unified/a/b"));
        check(unified, "/../other", None);
        let shared = "41 31 0:38 / /sys/fs/cgroup rw shared:9 master:3 - cgroup2 none rw";
        check(shared, "/user.slice", Some("/sys/fs/cgroup/user.slice"));
        let part = "41 31 0:38 /box /cg\\040here rw - cgroup2 none rw";
        check(part, "/box/a", Some("/cg here/a"));
        check(part, "/boxes", None);
        check(part, "/", None);
        check("41 31 0:38 / /sys/fs/cgroup rw - cgroup cgroup rw,cpu", "/", None);
    }

    #[test]
    fn only_the_line_of_version_two_counts() {
        assert_eq!(own_name("9:name=systemd:/x\n0::/y\n"), Some("/y"));
        assert_eq!(own_name("9:name=systemd:/x\n"), None);
    }

    #[test]
    fn a_folder_of_another_kind_is_no_cgroup() {
        assert!(!is_cgroup2(Path::new("/proc")));
        assert!(!is_cgroup2(Path::new("/nowhere")));
    }
}
