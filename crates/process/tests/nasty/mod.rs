//! Nasty process trees.
//!
//! Each limits itself in number and time (sixty seconds at most), so that a failed test leaves
//! no mess for long.

use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use deadstop_process::Means;

use self::run::{Run, bearers};

pub(crate) mod run;

/// One kind of tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// A shell script. `$1` is the marker, `$2` the file to which each process that matters
    /// writes a line when it is there.
    script: &'static str,
    /// How many lines are waited for before the tree is ended.
    lines: usize,
}

impl Kind {
    /// Starts a tree by the given means and waits until it is all there.
    pub(crate) fn start(self, means: Means) -> io::Result<Run> {
        let run = Run::script(self.script, means)?;
        run.lines(self.lines)?;
        Ok(run)
    }
}

pub(crate) const KINDS: [Kind; 8] = [
    Kind {
        name: "setsid",
        script: r#"
            setsid sh -c 'echo $$ >> "$2"; sleep 60; :' sh "$1" "$2" &
            setsid setsid -f sh -c 'echo $$ >> "$2"; sleep 60; :' sh "$1" "$2"
            echo $$ >> "$2"; wait"#,
        lines: 3,
    },
    Kind {
        // The daemon has another session, another folder, no environment and no open files.
        name: "double fork",
        script: r#"
            perl -MPOSIX=setsid -e '
                fork and exit; setsid; fork and exit; chdir "/"; %ENV = ();
                open STDIN, "<", "/dev/null"; open STDOUT, ">", "/dev/null"; open STDERR, ">&STDOUT";
                exec "/bin/sh", "-c", "echo 1 >> \"\$2\"; sleep 60; :", "sh", @ARGV' "$1" "$2"
            echo $$ >> "$2"; sleep 60; :"#,
        lines: 2,
    },
    Kind {
        name: "SIGTERM ignored",
        script: r#"
            trap '' TERM HUP INT QUIT
            setsid sh -c 'trap "" TERM HUP INT; echo $$ >> "$2"; sleep 60; :' sh "$1" "$2" &
            echo $$ >> "$2"; while sleep 1; do test $((n += 1)) -lt 60 || exit; done"#,
        lines: 2,
    },
    Kind {
        // 63 processes; each bears two children down to depth 5, and new ones when they die,
        // for three seconds.
        name: "fork storm",
        script: r#"exec perl -e '
            $SIG{TERM} = $SIG{INT} = "IGNORE"; my ($mark, $file) = @ARGV; my $end = time + 3;
            sub node { my $depth = shift;
                if (open my $f, ">>", $file) { print $f "$$\n" }
                setpgrp if $depth == 2;
                my $born = 0; my $alive = 0;
                while (time < $end) {
                    while ($depth < 5 and $alive < 2 and $born < 40) {
                        my $pid = fork; last unless defined $pid;
                        if (!$pid) { node($depth + 1); exit }
                        $alive++; $born++;
                    }
                    if ($alive) { wait; $alive-- } else { select undef, undef, undef, 0.05; exit if $depth == 5 and rand() < 0.3 }
                }
            }
            node(0)' "$1" "$2""#,
        lines: 40,
    },
    Kind {
        name: "output flood",
        script: r#"
            yes "$1" & yes "$1" | cat > /dev/null & setsid yes "$1" >&2 &
            echo $$ >> "$2"; exec yes "$1""#,
        lines: 1,
    },
    Kind {
        name: "orphan",
        script: r#"(sh -c 'echo $$ >> "$2"; sleep 60; :' sh "$1" "$2" &); exit 7"#,
        lines: 1,
    },
    Kind {
        // Forks and exits at once, again and again: never where one looks. Ten seconds at most.
        name: "comet",
        script: r#"exec perl -e '
            $SIG{TERM} = "IGNORE"; my $end = time + 10; my $n = 0;
            while (time < $end) {
                if ($n++ % 10 == 0 and open my $f, ">>", $ARGV[1]) { print $f "$n\n" }
                my $pid = fork; exit if $pid; die unless defined $pid;
            }' "$1" "$2""#,
        lines: 1,
    },
    Kind {
        name: "stopped",
        script: r#"
            setsid sh -c 'echo $$ >> "$2"; kill -STOP $$; sleep 60; :' sh "$1" "$2" &
            echo $$ >> "$2"; kill -STOP $$; sleep 60; :"#,
        lines: 2,
    },
];

/// What is still to be seen of a run that was ended: bearers of its marker, or `u32::MAX` for one
/// that is never where one looks but goes on writing lines.
pub(crate) fn remains(run: &Run) -> Vec<u32> {
    let length = || fs::metadata(run.file("lines")).map_or(0, |file| file.len());
    let before = length();
    let mut left = bearers(&run.marker);
    thread::sleep(Duration::from_millis(30));
    if length() != before {
        left.push(u32::MAX);
    }
    left
}
