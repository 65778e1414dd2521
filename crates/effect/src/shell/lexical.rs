//! Scripts that the parser gives up on: read statement by statement, then word by word.
//!
//! Bash runs a script line by line, so that a line which it can read has been run before it finds
//! the one that it cannot. What the parser refuses is therefore cut into statements, and each is
//! read for itself.

use super::{Input, Walk, syntax};

/// Statements of one script that are read one by one.
const MAX_STATEMENTS: usize = 400;

/// Words that destroy, for texts that cannot be read.
const DESTRUCTIVE: &[&str] = &[
    "rm",
    "rmdir",
    "unlink",
    "shred",
    "dd",
    "mkfs",
    "wipefs",
    "fdisk",
    "parted",
    "truncate",
    "drop",
    "delete",
    "destroy",
    "purge",
    "wipe",
    "erase",
    "rmtree",
    "remove-item",
    "killall",
    "pkill",
    "shutdown",
    "reboot",
    "iptables",
    "userdel",
];

/// A word of a text that destroys, if one does.
pub(super) fn destructive_word(text: &str) -> Option<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
    let known = |word: &&str| DESTRUCTIVE.iter().any(|known| known.eq_ignore_ascii_case(word));
    words.take(20_000).find(known)
}

impl Walk<'_> {
    /// Reads a script that does not parse as a whole.
    pub(super) fn lexically(&mut self, text: &str) {
        self.effects.raise(deadstop_core::Effect::Changes);
        let before = self.effects.harms.len();
        self.bomb_in_text(text);
        let mut unread = false;
        for statement in statements(text).into_iter().take(MAX_STATEMENTS) {
            let statement = statement.trim();
            if statement.is_empty() || statement.starts_with('#') {
                continue;
            }
            // What did not parse as a whole does not parse alone.
            let parsed = (statement.len() < text.trim().len()).then(|| syntax::parse(statement));
            match parsed.flatten() {
                Some(program) => {
                    for list in &program.complete_commands {
                        self.list(list);
                    }
                }
                None => {
                    unread = true;
                    self.by_words(statement);
                }
            }
        }
        if unread && self.effects.harms.len() == before {
            self.unreadable(text);
        }
    }

    /// A statement that does not parse: its words, without quotes and brackets.
    fn by_words(&mut self, statement: &str) {
        const KEYWORDS: &[&str] = &["then", "do", "else", "if", "while", "until", "!", "{", "("];
        for part in statement.split([';', '|', '&', '\n', '(', ')', '{', '}', '`']).take(100) {
            let words = part
                .split_whitespace()
                .map(|word| word.trim_matches(['"', '\'', '$']).replace(['"', '\'', '\\'], ""))
                .skip_while(|word| KEYWORDS.contains(&word.as_str()));
            let argv: Vec<String> = words.filter(|word| !word.is_empty()).take(200).collect();
            if !argv.is_empty() {
                self.run(&argv, &Input::default());
            }
        }
    }
}

/// A text cut at new lines and `;` that stand outside quotes and brackets; a quote that never
/// closes ends with its line.
fn statements(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut start, mut quote, mut depth) = (0, None::<u8>, 0_usize);
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        match (quote, byte) {
            (_, b'\\') => at += 1,
            (Some(open), byte) if byte == open => quote = None,
            (None, b'\'' | b'"' | b'`') if closes(&bytes[at + 1..], byte) => quote = Some(byte),
            (None, b'(' | b'{') => depth += 1,
            (None, b')' | b'}') => depth = depth.saturating_sub(1),
            (None, b'\n') => {
                found.push(&text[start..at]);
                (start, depth) = (at + 1, 0);
            }
            (None, b';') if depth == 0 => {
                found.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    found.push(&text[start.min(text.len())..]);
    found
}

/// Whether a quote closes within what a person would write in one: bounded, so that many open
/// quotes cost no more than a few.
fn closes(rest: &[u8], quote: u8) -> bool {
    rest.iter().take(2000).any(|byte| *byte == quote)
}
