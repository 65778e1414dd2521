//! Commands that only show what they would do: `--dry-run` under its many names, and tools that act only
//! once they are told to.

use super::command::after_options;

/// Long options, without hyphens and in lower case, that rehearse whatever the program.
const ANYWHERE: &[&str] =
    &["dryrun", "whatif", "simulate", "justprint", "noact", "assumeno", "previewonly", "whyrun"];

/// Programs, the word that comes first (any, where it is empty), and the letters of an option that rehearses.
const SHORT: &[(&str, &str, &[char])] = &[
    ("apt", "", &['s']),
    ("apt-get", "", &['s']),
    ("aptitude", "", &['s']),
    ("apk", "", &['s']),
    ("emerge", "", &['p']),
    ("pacman", "", &['p']),
    ("zypper", "", &['D']),
    ("zfs", "destroy", &['n']),
    ("gsutil", "rsync", &['n']),
    ("rclone", "", &['n']),
    ("restic", "", &['n']),
    ("borg", "", &['n']),
    ("s3cmd", "", &['n']),
    ("brew", "", &['n']),
    ("ansible", "", &['C']),
    ("chef-client", "", &['W']),
    ("sgdisk", "", &['P']),
    ("wipefs", "", &['n']),
    ("fstrim", "", &['n']),
    ("logrotate", "", &['d']),
    ("stow", "", &['n']),
];

/// Long options that rehearse with one program only.
const OWN: &[(&str, &[&str])] = &[
    ("rpm", &["--test"]),
    ("ansible", &["--check"]),
    ("puppet", &["--noop"]),
    ("emerge", &["--pretend"]),
    ("sgdisk", &["--pretend"]),
    ("pacman", &["--print"]),
    ("mc", &["--fake"]),
    ("certbot", &["--test-cert"]),
    ("alembic", &["--sql"]),
    ("lvremove", &["--test", "-t"]),
    ("vgremove", &["--test", "-t"]),
    ("pvremove", &["--test", "-t"]),
    ("lvreduce", &["--test", "-t"]),
];

/// Tools of which some commands show a preview until an option says that they are meant.
const UNTIL_TOLD: &[(&str, &[&str], &[&str])] = &[
    ("kops", &["delete", "update", "rolling-update"], &["--yes", "-y"]),
    ("octodns-sync", &[], &["--doit"]),
];

/// Whether a command only shows what it would do, or how it is used.
pub(super) fn rehearses(name: &str, arguments: &[String]) -> bool {
    let options: Vec<&String> = arguments.iter().take_while(|word| *word != "--").collect();
    let ends = [options.first(), options.last()];
    // In between, `--help` may be the value of another option.
    let helps = |word: &String| word == "--help" || (word == "-help" && speaks_go(name));
    ends.into_iter().flatten().any(|word| helps(word))
        || options.iter().any(|word| is_rehearsal(word))
        || by_letter(name, &options)
        || OWN.iter().any(|(program, names)| {
            *program == name && options.iter().any(|word| names.contains(&word.as_str()))
        })
        || UNTIL_TOLD.iter().any(|(program, verbs, told)| {
            let first = after_options(arguments, &[]).first().map_or("", String::as_str);
            *program == name
                && (verbs.is_empty() || verbs.contains(&first))
                && !options.iter().any(|word| told.contains(&word.as_str()))
        })
}

/// Tools whose long options have one hyphen.
fn speaks_go(name: &str) -> bool {
    matches!(name, "terraform" | "tofu" | "packer" | "consul" | "vault" | "nomad" | "boundary")
}

/// `--dry-run`, `--dryRun`, `-WhatIf`, `--simulate=true`.
fn is_rehearsal(word: &str) -> bool {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    let bare = name.trim_start_matches('-');
    let long = name.starts_with("--") || name.eq_ignore_ascii_case("-whatif");
    if !long || bare.len() > 16 {
        return false;
    }
    let bare: String =
        bare.chars().filter(|c| !matches!(c, '-' | '_')).map(|c| c.to_ascii_lowercase()).collect();
    // Kubernetes has a word for no rehearsal at all.
    ANYWHERE.contains(&bare.as_str()) && !matches!(value, "none" | "false" | "0")
}

fn by_letter(name: &str, options: &[&String]) -> bool {
    let Some((_, verb, letters)) = SHORT.iter().find(|(program, ..)| *program == name) else {
        return false;
    };
    let follows = verb.is_empty() || options.iter().any(|word| word == verb);
    follows
        && options.iter().any(|word| {
            let cluster = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
            cluster.is_some_and(|rest| {
                rest.len() <= 4
                    && rest.bytes().all(|b| b.is_ascii_alphabetic())
                    && rest.contains(*letters)
            })
        })
}
