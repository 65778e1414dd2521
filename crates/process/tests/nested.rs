//! A Deadstop inside a Deadstop's tree.
//!
//! A program of its own, because what a dead inner one leaves goes to the last tree of the
//! process that adopts it, and here that is to be the only one.

#[cfg(all(test, target_os = "linux"))]
#[path = "nasty/run.rs"]
mod run;

#[cfg(all(test, target_os = "linux"))]
mod nested {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::time::Duration;

    use deadstop_process::{Means, Tree};

    use crate::run::{Run, bearers};

    /// Not a test by itself: what the next test runs in a process of its own, a Deadstop in a
    /// Deadstop, which is then killed with its own tree still running.
    #[test]
    fn inner() {
        if let Ok(file) = std::env::var("DEADSTOP_NASTY_INNER") {
            let marker = std::env::var("DEADSTOP_NASTY").unwrap();
            let script = r#"setsid env -i sh -c 'echo 1 >> "$2"; sleep 60; :' sh "$1" "$2""#;
            let tree = Tree::spawn_without_cgroup(
                Command::new("sh").args(["-c", script, "sh", &marker, &file]),
            );
            tree.unwrap().wait().unwrap();
        }
    }

    #[test]
    fn a_tree_within_a_tree_is_ended_even_if_its_keeper_was_killed() {
        let exe = std::env::current_exe().unwrap();
        for means in [Means::CgroupV2, Means::Subreaper] {
            let script =
                format!("DEADSTOP_NASTY_INNER=\"$2\" exec {} --exact nested::inner", exe.display());
            let run = Run::script(&script, means).unwrap();
            run.lines(1).unwrap();
            let id = run.tree.id().to_string();
            Command::new("kill").args(["-9", &id]).status().unwrap();
            assert_eq!(run.tree.wait().unwrap().signal(), Some(9));
            assert!(!bearers(&run.marker).is_empty());
            assert!(run.tree.end(Duration::ZERO).unwrap().forcibly > 0);
            assert_eq!(bearers(&run.marker), []);
        }
    }
}
