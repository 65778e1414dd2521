//! What agents and their users are told when Deadstop steps in: one way to say it for all doors.
//!
//! A guard's sentence begins with what was done ("stopped: …"). Here it becomes one that names the actor
//! and what was stopped, because its reader may never have heard of Deadstop.

/// A guard's sentence, as agents and their users read it.
pub fn sentence(explain: &str) -> String {
    let begun = [
        ("stopped: ", "stopped this session: "),
        ("blocked: ", "blocked this call: "),
        ("waits for a person: ", "asks a person about this call: "),
        ("warned: ", "warns: "),
    ];
    let found = begun.iter().find_map(|(done, told)| Some((explain.strip_prefix(done)?, *told)));
    let (why, told) = found.unwrap_or((explain, ""));
    let stop = if why.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("Deadstop {told}{why}{stop}")
}

/// The same for a call that is refused, with the advice not to try again.
pub fn refusal(explain: &str) -> String {
    format!("{} Do not retry.", sentence(explain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_the_actor_and_ends_once() {
        for (explain, told) in [
            ("stopped: 5 times (limit 5)", "Deadstop stopped this session: 5 times (limit 5)."),
            ("blocked: no. Ask first.", "Deadstop blocked this call: no. Ask first."),
            ("waits for a person: x", "Deadstop asks a person about this call: x."),
            ("warned: x", "Deadstop warns: x."),
            ("stopped this sub-agent: x", "Deadstop stopped this sub-agent: x."),
        ] {
            assert_eq!(sentence(explain), told);
        }
        assert_eq!(refusal("blocked: x"), "Deadstop blocked this call: x. Do not retry.");
    }
}
