//! The harm guard where Deadstop runs next to the files: what is really there decides.

#[cfg(test)]
mod harm {
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    use deadstop_core::Verdict;
    use deadstop_gate::{Ask, Gate, Judgement, ScopePath, Setup};
    use serde_json::{Value, json};
    use tempfile::TempDir;

    /// A git project with one committed file, a gate on files, and a session.
    struct World {
        project: TempDir,
        states: TempDir,
        policy: &'static str,
        calls: std::cell::Cell<u32>,
    }

    impl World {
        fn new(policy: &'static str) -> World {
            let project = tempfile::tempdir().unwrap();
            fs::write(project.path().join("kept.md"), "kept\n").unwrap();
            let git = |arguments: &[&str]| {
                let done =
                    Command::new("git").arg("-C").arg(project.path()).args(arguments).status();
                assert!(done.unwrap().success(), "{arguments:?}");
            };
            git(&["init", "-q"]);
            git(&["add", "."]);
            git(&["-c", "user.name=t", "-c", "user.email=t@t.invalid", "commit", "-qm", "start"]);
            let states = tempfile::tempdir().unwrap();
            World { project, states, policy, calls: std::cell::Cell::new(0) }
        }

        fn gate(&self) -> Gate {
            Gate::open(Setup {
                alone: true,
                policy: Some(self.policy.to_owned()),
                folder: Some(self.states.path().to_path_buf()),
                ..Setup::default()
            })
        }

        fn call(&self, tool: &str, arguments: Value) -> Judgement {
            self.calls.set(self.calls.get() + 1);
            self.gate().ask(&Ask {
                place: ScopePath {
                    agent: "coder".into(),
                    session: "s1".into(),
                    ..ScopePath::default()
                },
                id: format!("c{}", self.calls.get()),
                tool: tool.into(),
                server: None,
                arguments,
                cwd: Some(self.project.path().to_path_buf()),
                spawns: false,
                trace: None,
            })
        }

        fn shell(&self, command: &str) -> Judgement {
            self.call("Bash", json!({ "command": command }))
        }

        fn file(&self, name: &str) -> std::path::PathBuf {
            self.project.path().join(name)
        }
    }

    fn write(path: &Path) {
        fs::write(path, "x\n").unwrap();
    }

    /// Found in recorded runs: 13 sessions were ended for removing a file of their own.
    #[test]
    fn a_scratch_file_may_be_removed_as_often_as_it_is_made() {
        let world = World::new("strict");
        for _ in 0..5 {
            let path = world.file("repro.py");
            let made =
                world.call("Write", json!({ "file_path": path.to_str().unwrap(), "content": "x" }));
            assert_eq!(made.verdict, Verdict::Allow, "{made:?}");
            write(&path);
            let removed = world.shell("rm repro.py");
            assert_eq!(removed.verdict, Verdict::Allow, "{removed:?}");
            fs::remove_file(&path).unwrap();
        }
        world.shell("mkdir scratch && touch scratch/a");
        fs::create_dir(world.file("scratch")).unwrap();
        write(&world.file("scratch/a"));
        assert_eq!(world.shell("rm -rf scratch").verdict, Verdict::Allow);
    }

    #[test]
    fn what_git_keeps_passes_and_what_it_does_not_is_held() {
        let world = World::new("strict");
        assert_eq!(world.shell("git checkout -- .").verdict, Verdict::Allow);
        assert_eq!(world.shell("git reset --hard").verdict, Verdict::Allow);
        assert_eq!(world.shell("rm kept.md").verdict, Verdict::Allow);
        assert_eq!(world.shell("rm missing.md").verdict, Verdict::Allow);
        fs::write(world.file("kept.md"), "changed\n").unwrap();
        write(&world.file("notes.md"));
        for command in
            ["git checkout -- .", "git reset --hard", "rm kept.md", "rm notes.md", "git clean -f"]
        {
            world.shell("ls");
            let answer = world.shell(command);
            assert_eq!(answer.verdict, Verdict::Block, "{command}: {answer:?}");
            assert!(answer.why().contains("Safer: "), "{}", answer.why());
        }
    }

    #[test]
    fn links_and_dots_lead_where_they_lead() {
        let world = World::new("balanced");
        std::os::unix::fs::symlink("/usr", world.file("link")).unwrap();
        assert_eq!(world.shell("rm -rf link/lib").verdict, Verdict::Ask);
        assert_eq!(world.shell("rm -rf ../../../../../../../../etc").verdict, Verdict::Ask);
        assert_eq!(world.shell("rm -rf .").verdict, Verdict::Ask);
    }

    #[test]
    fn a_code_lets_exactly_one_call_pass_once() {
        let world = World::new("strict");
        write(&world.file("notes.md"));
        let held = world.shell("rm -rf notes.md");
        assert_eq!(held.verdict, Verdict::Block);
        let why = held.why();
        let code = why.split("deadstop allow ").nth(1).unwrap().trim_end_matches('`').to_owned();
        assert_eq!(code.len(), 6, "{why}");
        // Asked again, it is the same code; and nothing is allowed yet.
        assert!(world.shell("rm -rf notes.md").why().contains(&code));
        assert!(world.gate().allow("NOCODE", "ann", "").is_err());

        world.gate().allow(&code, "ann", "I have a copy").unwrap();
        assert_eq!(world.shell("rm -rf kept.md notes.md").verdict, Verdict::Block);
        let passed = world.shell("rm -rf notes.md");
        assert_eq!(passed.verdict, Verdict::Warn, "{passed:?}");
        assert!(passed.why().contains("allowed once, by ann"));
        assert_eq!(world.shell("rm -rf notes.md").verdict, Verdict::Block);

        let record = world.gate().orders_here().unwrap();
        let told: Vec<(&str, &str)> =
            record.iter().map(|entry| (entry.action.as_str(), entry.who.as_str())).collect();
        assert_eq!(told, [("call.allowed", "ann"), ("call.allow", "ann")]);
    }

    #[test]
    fn deadstop_itself_is_protected() {
        for (policy, verdict) in [("balanced", Verdict::Ask), ("strict", Verdict::Block)] {
            let world = World::new(policy);
            for command in [
                "deadstop uninstall",
                "deadstop clear --agent coder",
                "deadstop agents resume coder",
                "deadstop grant --agent coder",
                "deadstop allow K7F2QX --yes",
                "pkill deadstop",
                "systemctl stop deadstop",
                "rm -f ~/.config/deadstop/deadstop.toml",
                "rm -rf ~/.local/state/deadstop",
                "sed -i '/deadstop/d' ~/.claude/settings.json",
                "echo '{}' > ~/.claude/settings.json",
                "env -u ANTHROPIC_BASE_URL claude",
                "unset OPENAI_BASE_URL",
                "ANTHROPIC_BASE_URL=https://api.anthropic.com claude -p hi",
                "DEADSTOP_SERVER=none claude",
            ] {
                // Five refusals in a row would end the session.
                world.shell("ls");
                let answer = world.shell(command);
                assert_eq!(answer.verdict, verdict, "{policy}: {command}: {answer:?}");
            }
            assert_eq!(world.shell("deadstop status").verdict, Verdict::Allow);
            assert_eq!(world.shell("grep deadstop README.md").verdict, Verdict::Allow);
        }
    }

    /// A long line of `cd` and `git clean` had git started hundreds of times, for more than a second.
    #[test]
    fn git_is_not_started_without_end_for_one_call() {
        use deadstop_gate::Machine;
        use deadstop_protocol::facts::effect::{Kept, Surroundings};
        let world = World::new("balanced");
        let folders: Vec<_> = (0..40).map(|n| world.project.path().join(format!("d{n}"))).collect();
        for folder in &folders {
            fs::create_dir(folder).unwrap();
        }
        let machine = Machine::at(world.project.path(), Vec::new());
        let kept: Vec<Kept> =
            folders.iter().map(|folder| machine.kept(&folder.to_string_lossy())).collect();
        assert_eq!(kept[0], Kept::Clean);
        assert_eq!(kept[39], Kept::Unknown);
        let gone = world.project.path().join("gone/below");
        let machine = Machine::at(world.project.path(), Vec::new());
        assert_eq!(machine.kept(&gone.to_string_lossy()), Kept::Unknown);
    }
}
