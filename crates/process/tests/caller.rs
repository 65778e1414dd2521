//! The program above us: found, told and interrupted.

#![cfg(target_os = "linux")]

use std::process::{Command, Stdio};

use deadstop_process::Caller;

/// Runs inside the shell that [`a_caller_is_told_and_interrupted`] starts.
#[test]
fn inside() {
    if std::env::var_os("INSIDE").is_none() {
        return;
    }
    assert!(Caller::named(&["no-such-program"]).is_none());
    let caller = Caller::named(&["bash"]).unwrap();
    assert!(caller.takes_interrupts());
    caller.tell("told why");
    caller.interrupt().unwrap();
}

#[test]
fn a_caller_is_told_and_interrupted() {
    let script = "trap 'echo interrupted' INT; \"$0\" --exact inside >/dev/null; echo status $?";
    let done = Command::new("bash")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .env("INSIDE", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (said, told) =
        (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(said.contains("interrupted") && said.contains("status 0"), "{said}{told}");
    assert!(told.contains("told why"), "{said}{told}");
}
