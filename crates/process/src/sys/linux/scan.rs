//! Reads `/proc`: which processes there are, whose children they are, and since when.

use std::fs;
use std::io;

use crate::sys::{Identity, Member};

/// All processes that we may see. The list is not of one instant: who looks for something that
/// forks has to look again.
pub(super) fn processes() -> io::Result<Vec<Member>> {
    let entries = fs::read_dir("/proc")?;
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(pids.filter_map(process).collect())
}

/// One process, if it is there.
pub(crate) fn process(pid: u32) -> Option<Member> {
    parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The pids of our own children, oldest first, in a fraction of the time that all processes
/// take. The kernel keeps the list by thread, and not every kernel shows it.
pub(super) fn own_children() -> Vec<u32> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Reads `pid (name) state ppid … starttime …`; the name may hold anything, brackets and line
/// ends and broken UTF-8 included.
fn parse(pid: u32, stat: &[u8]) -> Option<Member> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    // Fields 3 and 4 are read; the number of threads is field 20, the start is field 22.
    let threads: u64 = fields.nth(15)?.parse().ok()?;
    let start = fields.nth(1)?.parse().ok()?;
    // The first thread may have ended while others run on: that looks like a zombie and is none.
    let zombie = matches!(state, "Z" | "X") && threads <= 1;
    Some(Member { identity: Identity { pid, start }, parent, zombie })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_lines_are_read_whatever_the_name() {
        let tail = b" S 7 1 1 0 -1 4194304 9 0 0 0 1 2 0 0 20 0 1 0 4711 1 1";
        for name in [&b"sh"[..], b"a) Z 1 (b", b"two words", b"\xff\n)"] {
            let stat = [b"42 (", name, b")", tail].concat();
            let process = parse(42, &stat).unwrap();
            assert_eq!((process.parent, process.identity.start, process.zombie), (7, 4711, false));
        }
        let state = |stat: &str| parse(42, stat.as_bytes()).unwrap().zombie;
        assert!(state("42 (sh) Z 7 1 1 0 -1 4194304 9 0 0 0 1 2 0 0 20 0 1 0 4711 1 1"));
        assert!(!state("42 (sh) Z 7 1 1 0 -1 4194304 9 0 0 0 1 2 0 0 20 0 2 0 4711 1 1"));
        assert!(parse(42, b"42 (sh) S 7").is_none());
        assert!(parse(42, b"").is_none());
    }

    #[test]
    fn we_see_ourselves() {
        let me = process(std::process::id()).unwrap();
        assert!(processes().unwrap().iter().any(|p| p.identity == me.identity));
        assert_eq!(process(0).map(|p| p.parent), None);
    }
}
