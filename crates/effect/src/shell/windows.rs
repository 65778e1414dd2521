//! The commands of Windows that delete, for agents that live there.

use deadstop_core::Effect;

use super::super::target;
use super::{Input, Walk};

impl Walk {
    /// Runs a command of Windows; false if it is none.
    pub(super) fn windows(&mut self, name: &str, arguments: &[String], input: &Input) -> bool {
        let switch = |wanted: &str| arguments.iter().any(|word| word.eq_ignore_ascii_case(wanted));
        let name = name.strip_suffix(".exe").unwrap_or(name).to_ascii_lowercase();
        match name.as_str() {
            "cmd" if switch("/c") || switch("/k") => {
                let at = arguments.iter().position(|word| word.starts_with('/'));
                let rest = arguments.get(at.map_or(0, |at| at + 1)..).unwrap_or(&[]);
                self.script(&rest.join(" "));
            }
            "powershell" | "pwsh" => {
                let at = arguments.iter().position(|word| {
                    ["-command", "-c"].iter().any(|flag| word.eq_ignore_ascii_case(flag))
                });
                match at {
                    Some(at) => self.script(&arguments[at + 1..].join(" ")),
                    None => self.effects.raise(Effect::Changes),
                }
            }
            "rd" | "rmdir" if switch("/s") => self.lose(&name, arguments, input),
            "del" | "erase" if arguments.iter().any(|word| !is_switch(word)) => {
                self.lose(&name, arguments, input);
            }
            "remove-item" | "ri" | "clear-content" | "clear-disk" | "format-volume"
            | "remove-partition" => {
                let rehearsal = arguments.iter().any(|word| word.eq_ignore_ascii_case("-whatif"));
                if rehearsal {
                    self.effects.raise(Effect::Reads);
                } else {
                    self.lose(&name, arguments, input);
                }
            }
            _ => return false,
        }
        true
    }

    fn lose(&mut self, verb: &str, arguments: &[String], input: &Input) {
        self.effects.raise(Effect::Changes);
        let paths: Vec<&String> = arguments.iter().filter(|word| !is_switch(word)).collect();
        if paths.is_empty() {
            if !self.are_throwaway(&input.from) {
                self.effects.destroy(verb, &target::join(&input.from));
            }
            return;
        }
        let missed: Vec<String> = paths
            .iter()
            .filter(|path| !self.is_throwaway(path))
            .map(|path| self.resolve(path))
            .collect();
        if !missed.is_empty() {
            self.effects.destroy(verb, &target::join(&missed));
        }
    }
}

/// `/q`, `-Recurse`.
fn is_switch(word: &str) -> bool {
    word.starts_with('-') || (word.starts_with('/') && word.len() <= 3 && !word.ends_with('/'))
}
