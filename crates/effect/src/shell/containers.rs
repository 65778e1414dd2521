//! Commands that run in containers: `docker exec box cmd`, `docker run image cmd`, `kubectl run … -- cmd`.
//!
//! What is in a container that is only started for a command comes back with its image. What such a command does to
//! a volume, or to a service elsewhere, does not.

use deadstop_core::{Effect, Reach};

use super::super::Effects;
use super::super::surroundings::Nowhere;
use super::command::after_options;
use super::{Input, Walk};

/// Options of `docker run` that take a value.
const VALUED: &[&str] = &[
    "-v",
    "--volume",
    "--mount",
    "-e",
    "--env",
    "--env-file",
    "--name",
    "-w",
    "--workdir",
    "-u",
    "--user",
    "-p",
    "--publish",
    "--network",
    "--net",
    "-m",
    "--memory",
    "--cpus",
    "-l",
    "--label",
    "-h",
    "--hostname",
    "--entrypoint",
    "--platform",
    "--add-host",
    "--device",
];

impl Walk<'_> {
    /// Runs the command that a container is told to run; false where there is none.
    pub(super) fn contained(&mut self, arguments: &[String], input: &Input) -> bool {
        if let Some(inner) = inside(arguments).or_else(|| with_volumes(arguments)) {
            let inner = inner.to_vec();
            self.somewhere(&inner, input);
            return true;
        }
        let Some(inner) = started(arguments) else { return false };
        let inner = inner.to_vec();
        // What the command does to its own container is forgotten; what it does elsewhere is kept.
        let before = std::mem::replace(&mut self.effects, Effects::only(Effect::Changes));
        self.somewhere(&inner, input);
        let found = std::mem::replace(&mut self.effects, before);
        for one in found.harms {
            if matches!(one.reach, Reach::Remote | Reach::Production) {
                self.effects.harm(one.kind, &one.verb, &one.target, one.reach, one.recovery);
            }
        }
        false
    }

    /// Runs a command where neither our directory nor our files are.
    fn somewhere(&mut self, argv: &[String], input: &Input) {
        let cwd = std::mem::take(&mut self.cwd);
        let here = std::mem::replace(&mut self.here, &Nowhere);
        self.run(argv, input);
        (self.cwd, self.here) = (cwd, here);
    }
}

/// The words behind `run` and its options, the image or the service first.
fn after_run(arguments: &[String]) -> Option<&[String]> {
    let at = arguments.iter().take(6).position(|word| word == "run")?;
    Some(after_options(&arguments[at + 1..], VALUED))
}

/// The command in `docker run -v /srv:/srv image cmd`: what is in the image comes back with it, what is in a volume
/// does not.
fn with_volumes(arguments: &[String]) -> Option<&[String]> {
    let at = arguments.iter().take(3).position(|word| word == "run")?;
    let mounts = |word: &String| {
        matches!(word.as_str(), "-v" | "--volume" | "--mount")
            || ["--volume=", "--mount=", "-v="].iter().any(|start| word.starts_with(start))
    };
    let command = after_run(arguments)?.get(1..)?;
    (arguments[at + 1..].iter().any(mounts) && !command.is_empty()).then_some(command)
}

/// The command in `docker run image cmd`, `docker compose run service cmd`, `kubectl run pod --image=x -- cmd`.
fn started(arguments: &[String]) -> Option<&[String]> {
    let command = match arguments.iter().position(|word| word == "--") {
        Some(dashes) => arguments
            .iter()
            .take(dashes)
            .any(|word| word == "run")
            .then_some(())
            .and(arguments.get(dashes + 1..))?,
        None => after_run(arguments)?.get(1..)?,
    };
    (!command.is_empty()).then_some(command)
}

/// The command in `docker exec box cmd`, `docker compose exec box cmd`, `kubectl exec pod -- cmd`.
fn inside(arguments: &[String]) -> Option<&[String]> {
    let at = arguments.iter().take(8).position(|word| word == "exec")?;
    let before_is_flags =
        arguments[..at].iter().all(|word| word.starts_with('-') || word == "compose");
    let rest = &arguments[at + 1..];
    if let Some(dashes) = rest.iter().position(|word| word == "--") {
        return rest.get(dashes + 1..);
    }
    let rest = after_options(rest, &["-u", "--user", "-w", "--workdir", "-e", "--env", "--index"]);
    (before_is_flags || at <= 4).then(|| rest.get(1..)).flatten()
}
