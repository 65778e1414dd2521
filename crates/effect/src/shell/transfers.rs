//! Orders to file servers: what `sftp`, `ftp` and `lftp` are told to delete, and what `scp` writes over on another
//! machine.

use deadstop_core::{Effect, HarmKind, Reach, Recovery};

use super::command::value_of;
use super::{Input, Walk};
use crate::target;

/// Orders after which something is gone on the other side.
const DELETES: &[&str] =
    &["rm", "mrm", "rmdir", "mdelete", "mdel", "delete", "del", "dele", "rmd", "glob"];

/// Orders of one call that are read.
const MAX_ORDERS: usize = 50;

impl Walk<'_> {
    /// Orders on standard input or in an option: `lftp -e 'mirror -R --delete; quit'`.
    pub(super) fn transfers(&mut self, name: &str, arguments: &[String], input: &Input) {
        self.effects.raise(Effect::Changes);
        let given = value_of(arguments, &["-e", "-c", "-Q"]);
        let texts = given.iter().chain(input.text.as_ref());
        for order in texts.flat_map(|text| text.split([';', '\n'])).take(MAX_ORDERS) {
            let words: Vec<&str> = order.split_whitespace().collect();
            let deletes = match words.as_slice() {
                ["glob", verb, ..] => DELETES.contains(verb),
                ["mirror", rest @ ..] => rest.iter().any(|word| word.starts_with("--delete")),
                [verb, _, ..] => DELETES.contains(&verb.trim_start_matches('-')),
                _ => false,
            };
            if deletes {
                self.effects.destroy(&format!("{name} {}", words[0]), &target::join(&words[1..]));
            }
        }
    }

    /// `scp file host:/etc/nginx/nginx.conf`: what another machine needs is written over.
    pub(super) fn copies_over(&mut self, name: &str, arguments: &[String]) {
        let Some((_, path)) = arguments.last().and_then(|to| to.split_once(':')) else { return };
        if matches!(name, "scp" | "rsync") && self.is_system_file(path) {
            let kind = HarmKind::OpensAccess;
            let to = target::join(&arguments[arguments.len() - 1..]);
            self.effects.harm(kind, name, &to, Reach::Remote, Recovery::Elsewhere);
        }
    }
}
