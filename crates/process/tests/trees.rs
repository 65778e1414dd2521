//! Real trees of processes, ended for real, and searched for in `/proc` afterwards.

#[cfg(all(test, target_os = "linux"))]
mod nasty;

#[cfg(all(test, target_os = "linux"))]
mod trees {
    use std::fs;
    use std::io;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::thread;
    use std::time::{Duration, Instant};

    use deadstop_process::{Means, Signal, Tree, outside};

    use crate::nasty::run::{Run, bearers, until};
    use crate::nasty::{KINDS, remains};

    const BOTH: [Means; 2] = [Means::CgroupV2, Means::Subreaper];
    const LONG: Duration = Duration::from_secs(20);

    /// Ends trees of a kind, by both means and with and without grace, and looks for survivors.
    fn check(name: &str) -> io::Result<()> {
        for kind in KINDS.into_iter().filter(|kind| kind.name == name) {
            for means in BOTH {
                for grace in [Duration::ZERO, Duration::from_millis(50)] {
                    let run = kind.start(means)?;
                    let ended = run.tree.end(grace)?;
                    assert_eq!(remains(&run), [], "{name}, {ended:?}");
                    assert_eq!(run.tree.survivors(), [], "{name}, {ended:?}");
                    assert!(ended.politely + ended.forcibly > 0);
                    assert!(run.tree.try_wait()?.is_some());
                }
            }
        }
        Ok(())
    }

    #[test]
    fn sessions_of_their_own_do_not_escape() -> io::Result<()> {
        check("setsid")
    }

    #[test]
    fn daemons_do_not_escape() -> io::Result<()> {
        check("double fork")
    }

    #[test]
    fn ignoring_the_signal_does_not_help() -> io::Result<()> {
        check("SIGTERM ignored")
    }

    #[test]
    fn fork_storms_end() -> io::Result<()> {
        check("fork storm")
    }

    #[test]
    fn output_floods_end() -> io::Result<()> {
        check("output flood")
    }

    #[test]
    fn what_outlives_the_main_child_ends() -> io::Result<()> {
        check("orphan")
    }

    #[test]
    fn what_forks_and_exits_at_once_is_caught() -> io::Result<()> {
        check("comet")
    }

    #[test]
    fn stopped_processes_end() -> io::Result<()> {
        check("stopped")
    }

    #[test]
    fn a_command_that_ends_by_itself_gives_its_code_and_leaves_nothing() {
        for means in BOTH {
            let run = Run::script("exit 7", means).unwrap();
            assert_eq!(run.tree.wait().unwrap().code(), Some(7));
            assert_eq!(run.tree.wait().unwrap().code(), Some(7));
            let ended = run.tree.end(LONG).unwrap();
            assert_eq!((ended.politely, ended.forcibly), (0, 0));
            let run = Run::script("kill -9 $$", means).unwrap();
            assert_eq!(run.tree.wait().unwrap().signal(), Some(9));
        }
    }

    #[test]
    fn who_goes_within_the_grace_is_not_killed() {
        for means in BOTH {
            let run = Run::script(
                r#"trap 'echo done > "$2.out"; exit 0' TERM; echo 1 >> "$2"; while :; do sleep 0.01; done"#,
                means,
            )
            .unwrap();
            run.lines(1).unwrap();
            let start = Instant::now();
            let ended = run.tree.end(LONG).unwrap();
            assert!(start.elapsed() < LONG);
            assert_eq!(ended.forcibly, 0);
            assert_eq!(run.tree.wait().unwrap().code(), Some(0));
            assert_eq!(fs::read_to_string(run.file("lines.out")).unwrap(), "done\n");
        }
    }

    #[test]
    fn a_second_end_cuts_the_grace_short() {
        let kind = KINDS.into_iter().find(|kind| kind.name == "SIGTERM ignored").unwrap();
        let run = kind.start(Means::Subreaper).unwrap();
        let start = Instant::now();
        thread::scope(|scope| {
            let first = scope.spawn(|| run.tree.end(LONG));
            run.tree.end(Duration::ZERO).unwrap();
            first.join().unwrap().unwrap();
        });
        assert!(start.elapsed() < LONG);
        assert_eq!(bearers(&run.marker), []);
    }

    #[test]
    fn one_thread_waits_while_another_ends() {
        let run = Run::script("echo 1 >> \"$2\"; exec sleep 60", Means::CgroupV2).unwrap();
        run.lines(1).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| run.tree.wait());
            // Not SIGINT: shells make processes in the background ignore it, and so the tests.
            assert_eq!(run.tree.interrupt(Signal::Terminate).unwrap(), 1);
            assert_eq!(waiting.join().unwrap().unwrap().signal(), Some(15));
        });
    }

    #[test]
    fn a_dropped_tree_is_ended() {
        for means in BOTH {
            let run = KINDS[0].start(means).unwrap();
            let marker = run.marker.clone();
            assert!(!bearers(&marker).is_empty());
            drop(run);
            assert_eq!(bearers(&marker), []);
        }
    }

    #[test]
    fn children_and_trees_of_others_are_left_alone() {
        let sleeper = || outside(|| Command::new("sleep").arg("60").spawn()).unwrap();
        for means in BOTH {
            let mut before = sleeper();
            let other = KINDS[1].start(means).unwrap();
            let run = KINDS[1].start(means).unwrap();
            let mut after = sleeper();
            run.tree.end(Duration::ZERO).unwrap();
            assert_eq!(bearers(&run.marker), []);
            assert!(before.try_wait().unwrap().is_none());
            assert!(after.try_wait().unwrap().is_none());
            assert!(bearers(&other.marker).len() >= 2);
            for mut child in [before, after] {
                child.kill().unwrap();
                assert_eq!(child.wait().unwrap().signal(), Some(9));
            }
        }
    }

    #[test]
    fn a_command_that_is_not_there_is_an_error() {
        assert!(Tree::spawn(&mut Command::new("/nowhere/to/be/found")).is_err());
    }

    #[test]
    fn pipes_are_the_callers() {
        let mut command = Command::new("cat");
        let tree = Tree::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
        let pipes = tree.pipes();
        std::io::Write::write_all(&mut pipes.stdin.unwrap(), b"hello").unwrap();
        assert_eq!(std::io::read_to_string(pipes.stdout.unwrap()).unwrap(), "hello");
        assert!(tree.wait().unwrap().success());
        assert!(tree.pipes().stdin.is_none());
    }

    #[test]
    fn no_zombies_and_no_cgroups_are_left() {
        let run = KINDS[1].start(Means::CgroupV2).unwrap();
        let folder = run.tree.id();
        let cgroup = fs::read_to_string(format!("/proc/{folder}/cgroup")).unwrap_or_default();
        run.tree.end(Duration::ZERO).unwrap();
        if run.tree.means() == Means::CgroupV2 {
            let name = cgroup.lines().find_map(|line| line.strip_prefix("0::")).unwrap();
            for top in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
                assert!(!fs::exists(format!("{top}{name}")).unwrap());
            }
        }
        until(|| run.tree.survivors().is_empty()).unwrap();
    }
}
