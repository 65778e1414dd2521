//! Commands that stand where no command is expected: in variables that a program reads, in a package's
//! scripts, in an option of a runner.

use super::command::value_of;
use super::{Input, Walk};

/// Variables whose value some program runs.
const RUN: &[&str] = &[
    "GIT_SSH_COMMAND",
    "GIT_SSH",
    "GIT_EDITOR",
    "GIT_SEQUENCE_EDITOR",
    "GIT_PAGER",
    "GIT_ASKPASS",
    "GIT_PROXY_COMMAND",
    "GIT_EXTERNAL_DIFF",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "MANPAGER",
    "LESSOPEN",
    "LESSCLOSE",
    "BROWSER",
    "RSYNC_RSH",
    "PROMPT_COMMAND",
    "BASH_ENV",
];

/// Scripts of one call that are read.
const MAX_SCRIPTS: usize = 8;

impl Walk<'_> {
    /// `GIT_SSH_COMMAND='sh -c …' git fetch`: what a variable has git, an editor or a pager run.
    pub(super) fn runs_variables(&mut self, assignments: &[(String, String)]) {
        let told = assignments.iter().filter(|(name, _)| RUN.contains(&name.as_str()));
        for (name, value) in told.take(MAX_SCRIPTS) {
            match value.trim_start_matches('|') {
                script if script.contains(' ') => self.script(script),
                file if name == "BASH_ENV" || file.contains('/') => self.runs_file(file),
                _ => {}
            }
        }
    }

    /// `npm pkg set scripts.x='…'`, `npm exec -c '…'`, `just --command …`; false where it is none of these.
    pub(super) fn packaged(&mut self, name: &str, arguments: &[String], input: &Input) -> bool {
        let words: Vec<&str> =
            arguments.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
        match (name, words.as_slice()) {
            ("npm" | "pnpm" | "yarn", ["pkg", "set", set @ ..]) => {
                let scripts = set.iter().filter(|word| word.starts_with("scripts."));
                for (_, script) in scripts.filter_map(|word| word.split_once('=')).take(MAX_SCRIPTS)
                {
                    self.script(script);
                }
                false
            }
            ("npm" | "pnpm", ["exec" | "x", ..]) => {
                match value_of(arguments, &["-c", "--call", "--shell-mode"]) {
                    Some(script) => self.script(&script),
                    None => return false,
                }
                true
            }
            ("just", _) => {
                let at = arguments.iter().position(|word| word == "--command" || word == "-c");
                match at.and_then(|at| arguments.get(at + 1..)) {
                    Some(command) => self.run(command, input),
                    None => return false,
                }
                true
            }
            _ => false,
        }
    }
}
