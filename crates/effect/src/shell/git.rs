//! Git: which of its commands lose work.
//!
//! Git keeps nearly everything, so that few do: overwriting or deleting what others see, and
//! throwing away what was never committed. `--force-with-lease` is how a rebased branch is pushed
//! every day and refuses to lose another's work; it does not count.

use deadstop_core::Effect;

use super::super::target;
use super::Walk;

/// Runs `git` with these arguments.
pub(super) fn run(walk: &mut Walk, arguments: &[String]) {
    let mut rest = arguments;
    let mut place = walk.resolve(".");
    while let Some(word) = rest.first().filter(|word| word.starts_with('-')) {
        let valued =
            matches!(word.as_str(), "-C" | "-c" | "--git-dir" | "--work-tree" | "--namespace");
        if word == "-C"
            && let Some(path) = rest.get(1)
        {
            place = walk.resolve(path);
        }
        if word == "-c"
            && let Some((name, script)) = rest.get(1).and_then(|set| set.split_once("=!"))
            && name.starts_with("alias.")
        {
            walk.script(script);
        }
        rest = rest.get(if valued { 2 } else { 1 }..).unwrap_or(&[]);
    }
    let Some((command, words)) = rest.split_first() else {
        walk.effects.raise(Effect::Reads);
        return;
    };
    let operands: Vec<&String> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let rehearsal = matches!(command.as_str(), "push" | "clean")
        && (long(words, "--dry-run") || short(words, 'n'));
    let lost = match command.as_str() {
        _ if rehearsal => None,
        "push" => push(words, &operands),
        _ if walk.is_throwaway(&place) => None,
        "reset" if long(words, "--hard") => {
            Some(("git reset --hard", operands.first().map_or("HEAD".to_owned(), |r| (*r).clone())))
        }
        "clean" if forced(words) && !short(words, 'X') => {
            let missed: Vec<&&String> =
                operands.iter().filter(|path| !walk.is_throwaway(path)).collect();
            let all = operands.is_empty().then(|| place.clone());
            all.or_else(|| (!missed.is_empty()).then(|| target::join(&missed)))
                .map(|paths| ("git clean", paths))
        }
        "branch" if short(words, 'D') || (forced(words) && deletes(words)) => {
            Some(("git branch -D", target::join(&operands)))
        }
        "reflog" if operands.first().is_some_and(|word| *word == "expire") => {
            let now = words.iter().any(|word| word.starts_with("--expire") && word.contains("now"));
            now.then(|| ("git reflog expire", place.clone()))
        }
        "filter-branch" | "filter-repo" => Some(("git filter-branch", place.clone())),
        "update-ref" if deletes(words) => Some(("git update-ref -d", target::join(&operands))),
        "worktree" if operands.first().is_some_and(|word| *word == "remove") && forced(words) => {
            let path = operands.get(1).map(|path| walk.resolve(path)).unwrap_or_default();
            (!walk.is_throwaway(&path)).then_some(("git worktree remove --force", path))
        }
        "checkout" if forced(words) && operands.is_empty() => {
            Some(("git checkout --force", place.clone()))
        }
        "stash" if operands.first().is_some_and(|word| *word == "clear") => {
            Some(("git stash clear", place.clone()))
        }
        _ => None,
    };
    match lost {
        Some((verb, target)) => walk.effects.destroy(verb, &target),
        None if rehearsal || reads(command, words) => walk.effects.raise(Effect::Reads),
        None => walk.effects.raise(Effect::Changes),
    }
}

fn push(words: &[String], operands: &[&String]) -> Option<(&'static str, String)> {
    let mut refs = operands.iter().skip(1);
    let verb = if deletes(words) || refs.clone().any(|name| name.starts_with(':')) {
        "git push --delete"
    } else if forced(words)
        || long(words, "--mirror")
        || long(words, "--prune")
        || refs.any(|name| name.starts_with('+'))
    {
        "git push --force"
    } else {
        return None;
    };
    Some((verb, target::join(operands)))
}

fn long(words: &[String], name: &str) -> bool {
    words.iter().any(|word| word == name)
}

fn short(words: &[String], letter: char) -> bool {
    words.iter().any(|w| w.starts_with('-') && !w.starts_with("--") && w.contains(letter))
}

fn forced(words: &[String]) -> bool {
    long(words, "--force") || short(words, 'f')
}

fn deletes(words: &[String]) -> bool {
    long(words, "--delete") || short(words, 'd')
}

/// Whether a git command only looks.
fn reads(command: &str, words: &[String]) -> bool {
    let looks = [
        "status",
        "log",
        "diff",
        "show",
        "blame",
        "rev-parse",
        "rev-list",
        "ls-files",
        "ls-tree",
        "ls-remote",
        "cat-file",
        "describe",
        "shortlog",
        "grep",
        "merge-base",
        "for-each-ref",
        "name-rev",
        "show-ref",
        "check-ignore",
        "whatchanged",
        "range-diff",
        "cherry",
        "version",
        "help",
        "var",
        "count-objects",
        "diff-tree",
        "diff-index",
    ];
    if looks.contains(&command) {
        return !words.iter().any(|word| word.starts_with("--output"));
    }
    let first = words.first().map_or("", String::as_str);
    match command {
        "branch" | "tag" => words.iter().all(|word| {
            matches!(
                word.as_str(),
                "-a" | "-r" | "-v" | "-vv" | "-l" | "--list" | "--all" | "--show-current"
            )
        }),
        "remote" => matches!(first, "" | "-v" | "show" | "get-url"),
        "stash" | "worktree" | "reflog" | "submodule" | "notes" => {
            matches!(first, "list" | "show" | "status")
        }
        "config" => matches!(first, "--get" | "--list" | "-l" | "get" | "list" | "--get-all"),
        _ => false,
    }
}
