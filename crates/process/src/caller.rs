//! The program that called us, directly or through shells: found by its name, told something where its
//! user reads, and interrupted as Ctrl-C would.
//!
//! Some coding agents let a hook refuse a tool but not end the turn. Their model then asks again and
//! again. An interrupt is what their user would do.

#[cfg(target_os = "linux")]
use std::os::unix::fs::OpenOptionsExt;

/// A program above us.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    #[cfg(target_os = "linux")]
    member: crate::sys::Member,
}

/// How many processes above us are looked at: a host, its launcher, and shells between.
#[cfg(target_os = "linux")]
const FARTHEST: usize = 8;

#[cfg(target_os = "linux")]
impl Caller {
    /// The nearest process above us whose program, or the script that it runs, has one of these names.
    #[must_use]
    pub fn named(names: &[&str]) -> Option<Self> {
        let mut pid = std::process::id();
        for _ in 0..FARTHEST {
            pid = crate::sys::process(pid)?.parent;
            if pid <= 1 {
                return None;
            }
            if programs(pid).iter().any(|program| names.contains(&program.as_str())) {
                return Some(Self { member: crate::sys::process(pid)? });
            }
        }
        None
    }

    /// Whether Ctrl-C at its terminal would interrupt it. A program that reads keys itself, such as a
    /// full-screen one, takes Ctrl-C as a key: a signal would end it with its terminal in disorder.
    /// Without a terminal there is no key to press.
    #[must_use]
    pub fn takes_interrupts(&self) -> bool {
        use rustix::termios::{LocalModes, tcgetattr};
        [0, 1, 2].iter().all(|number| {
            let file = std::fs::OpenOptions::new()
                .read(true)
                .custom_flags(NOT_OURS)
                .open(self.file(*number));
            let modes = file.ok().and_then(|file| tcgetattr(file).ok());
            modes.is_none_or(|modes| modes.local_modes.contains(LocalModes::ISIG))
        })
    }

    /// Writes a line to where its user reads its messages: its stderr, if that can be opened.
    pub fn tell(&self, line: &str) {
        use std::io::Write;
        let file =
            std::fs::OpenOptions::new().append(true).custom_flags(NOT_OURS).open(self.file(2));
        if let Ok(mut file) = file {
            let _ = file.write_all(format!("{line}\n").as_bytes());
        }
    }

    /// Interrupts it, as Ctrl-C would.
    ///
    /// # Errors
    /// If it belongs to another user.
    pub fn interrupt(&self) -> std::io::Result<()> {
        crate::sys::send_to(&self.member, rustix::process::Signal::INT).map(drop)
    }

    fn file(&self, number: u8) -> String {
        format!("/proc/{}/fd/{number}", self.member.identity.pid)
    }
}

/// A terminal that is opened must not become ours, and a pipe that is full must not hold us.
#[cfg(target_os = "linux")]
const NOT_OURS: i32 =
    (rustix::fs::OFlags::NOCTTY.bits() | rustix::fs::OFlags::NONBLOCK.bits()) as i32;

/// The names of a process: of its program, what it was called as, and the script that an interpreter runs.
#[cfg(target_os = "linux")]
fn programs(pid: u32) -> Vec<String> {
    use std::path::{Path, PathBuf};

    let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = words.split(|byte| *byte == 0).take(2);
    let words = words.map(|word| PathBuf::from(String::from_utf8_lossy(word).into_owned()));
    let name = |path: &Path| {
        let name = path.file_name()?.to_string_lossy().into_owned();
        Some(name.trim_end_matches(".mjs").trim_end_matches(".js").to_owned())
    };
    program.into_iter().chain(words).filter_map(|path| name(&path)).collect()
}

#[cfg(not(target_os = "linux"))]
impl Caller {
    /// Not known on this system.
    #[must_use]
    pub fn named(_names: &[&str]) -> Option<Self> {
        None
    }

    /// Whether an interrupt reaches it.
    #[must_use]
    pub fn takes_interrupts(&self) -> bool {
        false
    }

    /// Says nothing.
    pub fn tell(&self, _line: &str) {}

    /// Does nothing.
    ///
    /// # Errors
    /// None.
    pub fn interrupt(&self) -> std::io::Result<()> {
        Ok(())
    }
}
