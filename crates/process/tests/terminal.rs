//! A terminal that a killed program leaves in disorder, put back in order.
//!
//! The stand-in for `deadstop run` is this test program itself, started anew with a
//! pseudo-terminal as its controlling one.

#[cfg(all(test, target_os = "linux"))]
mod terminal {
    use std::fs::{self, File, OpenOptions};
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    use std::process::{Command, Stdio};
    use std::thread;
    use std::time::{Duration, Instant};

    use deadstop_process::{Terminal, Tree};
    use rustix::fs::OFlags;
    use rustix::process::getpgrp;
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, tcgetattr, tcgetpgrp};

    /// Reads a line from the terminal, takes the foreground as a shell with jobs does, goes to
    /// raw mode, hides the cursor, and stays.
    const RUDE: &str = r#"
        read -r line && echo "$line" > "$1.line"
        stty raw -echo; printf '\033[?25l'
        exec perl -MPOSIX -e '
            $SIG{TTOU} = "IGNORE"; setpgrp; open my $tty, "+<", "/dev/tty";
            POSIX::tcsetpgrp(fileno $tty, $$) or die;
            open my $f, ">", "$ARGV[0].rude"; close $f; sleep 60' "$1""#;

    /// Not a test by itself: what the next one runs in a terminal.
    #[test]
    fn inner() {
        let Ok(path) = std::env::var("DEADSTOP_TERMINAL_INNER") else { return };
        let tty = File::open("/dev/tty").unwrap();
        let terminal = Terminal::save().unwrap();
        let tree = Tree::spawn(Command::new("sh").args(["-c", RUDE, "sh", &path])).unwrap();
        wait_for(&format!("{path}.rude"));
        assert_ne!(tcgetpgrp(&tty).unwrap(), getpgrp());
        assert!(!tcgetattr(&tty).unwrap().local_modes.contains(LocalModes::ECHO));
        tree.end(Duration::ZERO).unwrap();
        terminal.restore().unwrap();
        assert_eq!(tcgetpgrp(&tty).unwrap(), getpgrp());
        assert!(tcgetattr(&tty).unwrap().local_modes.contains(LocalModes::ECHO));
        fs::write(format!("{path}.good"), "").unwrap();
    }

    #[test]
    fn a_terminal_is_the_commands_while_it_runs_and_ours_again_after_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t").display().to_string();
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let flags = OFlags::NOCTTY.bits().cast_signed();
        let open = || {
            let mut options = OpenOptions::new();
            Stdio::from(options.read(true).write(true).custom_flags(flags).open(&name).unwrap())
        };
        let mut child = Command::new("setsid")
            .args(["--ctty", "--wait"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "terminal::inner", "--nocapture"])
            .env("DEADSTOP_TERMINAL_INNER", &path)
            .stdin(open())
            .stdout(open())
            .stderr(open())
            .spawn()
            .unwrap();
        let mut master = File::from(master);
        std::io::Write::write_all(&mut master, b"typed\n").unwrap();
        let reading = thread::spawn(move || {
            // The end of a terminal is an error, after all that was written to it.
            let mut shown = Vec::new();
            let _ = master.read_to_end(&mut shown);
            String::from_utf8_lossy(&shown).into_owned()
        });
        let status = child.wait().unwrap();
        let shown = reading.join().unwrap();
        assert!(status.success() && fs::exists(format!("{path}.good")).unwrap(), "{shown}");
        assert_eq!(fs::read_to_string(format!("{path}.line")).unwrap(), "typed\n");
        assert!(shown.rfind("\u{1b}[?25h") > shown.rfind("\u{1b}[?25l"), "{shown:?}");
    }

    fn wait_for(file: &str) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !fs::exists(file).unwrap_or(false) {
            assert!(Instant::now() < deadline, "{file} never came");
            thread::sleep(Duration::from_millis(2));
        }
    }
}
