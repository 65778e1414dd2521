//! Words: quotes taken off, known variables put in, commands inside them found.
//!
//! The parser hands words over as they were written. Reading them here, in one pass and without a
//! grammar, keeps the common case (a bare word) free of cost.

use std::cell::Cell;
use std::collections::HashMap;

/// Stands between the values that a loop gives its variable, and splits a word wherever it lands.
const BETWEEN: char = '\u{1f}';

/// What `$(mktemp …)` is taken to print.
const TEMPORARY: &str = "/tmp/mktemp";

/// Longest value that a variable may keep.
const MAX_VALUE: usize = 4096;

/// Longest text that a word may grow to.
const MAX_WORD: usize = 64 * 1024;

/// What variables are known to hold.
#[derive(Clone)]
pub(super) struct Variables(HashMap<String, String>, Cell<u16>);

/// Substitutions of one call of which it is worked out what they print.
const MAX_PRINTED: u16 = 50;

impl Variables {
    pub(super) fn new() -> Variables {
        Variables(HashMap::new(), Cell::new(0))
    }

    /// Whether one more substitution may be worked out; counts it.
    pub(super) fn may_print(&self) -> bool {
        self.1.set(self.1.get().saturating_add(1));
        self.1.get() <= MAX_PRINTED
    }

    pub(super) fn set(&mut self, name: &str, value: &str) {
        if value.len() <= MAX_VALUE {
            self.0.insert(name.to_owned(), value.to_owned());
        }
    }

    /// Sets a loop's variable to all of its values at once.
    pub(super) fn set_each(&mut self, name: &str, values: &[String]) {
        self.set(name, &joined(values));
    }

    /// Sets what `"$@"` stands for, and `$1` and so on.
    pub(super) fn set_operands(&mut self, values: &[String]) {
        self.set("@", &joined(values));
        for (at, value) in values.iter().enumerate().take(9) {
            self.set(&(at + 1).to_string(), value);
        }
    }

    /// The same variables for a substitution, inside which nothing more is worked out: one that
    /// runs itself through a variable would nest without end.
    pub(super) fn inside(&self) -> Variables {
        Variables(self.0.clone(), Cell::new(MAX_PRINTED))
    }

    /// What a variable holds.
    pub(super) fn value(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }

    /// Gives a variable its former value back.
    pub(super) fn put(&mut self, name: &str, value: Option<String>) {
        match value {
            Some(value) => self.set(name, &value),
            None => {
                self.0.remove(name);
            }
        }
    }

    fn get(&self, name: &str) -> Option<&str> {
        match self.0.get(name) {
            Some(value) => Some(value),
            None if name == "IFS" => Some(" "),
            None => None,
        }
    }
}

/// Words as one value that becomes all of them again where it is put in.
pub(super) fn joined(words: &[String]) -> String {
    words.join(&BETWEEN.to_string())
}

/// A word after expansion.
#[derive(Default)]
pub(super) struct Expanded {
    /// The words that it becomes.
    pub(super) fields: Vec<String>,
    /// The scripts that it runs.
    pub(super) scripts: Vec<String>,
}

/// Expands one word.
pub(super) fn expand(raw: &str, variables: &Variables) -> Expanded {
    if raw.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(&b)) {
        return Expanded { fields: vec![raw.to_owned()], scripts: Vec::new() };
    }
    let mut reader =
        Reader { all: raw, rest: raw, variables, out: Expanded::default(), field: None };
    reader.read();
    let Reader { mut out, field, .. } = reader;
    out.fields.extend(field);
    if out.fields.iter().any(|field| field.contains(BETWEEN)) {
        let fields = std::mem::take(&mut out.fields);
        out.fields = fields.iter().flat_map(|f| f.split(BETWEEN)).map(str::to_owned).collect();
    }
    out
}

/// The scripts that a here-document's text runs.
pub(super) fn substitutions(text: &str) -> Vec<String> {
    if !text.contains("$(") && !text.contains('`') {
        return Vec::new();
    }
    let variables = Variables::new();
    let mut reader = Reader {
        all: text,
        rest: text,
        variables: &variables,
        out: Expanded::default(),
        field: None,
    };
    while let Some(c) = reader.next() {
        match c {
            '\\' => {
                reader.next();
            }
            '$' => reader.dollar(Quoted::Yes),
            '`' => reader.backquoted(Quoted::Yes),
            _ => {}
        }
    }
    reader.out.scripts
}

#[derive(Clone, Copy, PartialEq)]
enum Quoted {
    Yes,
    No,
}

struct Reader<'a> {
    all: &'a str,
    rest: &'a str,
    variables: &'a Variables,
    out: Expanded,
    /// The field being built; `None` before its first character.
    field: Option<String>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn push(&mut self, text: &str) {
        let field = self.field.get_or_insert_default();
        if field.len() + text.len() <= MAX_WORD {
            field.push_str(text);
        }
    }

    fn push_char(&mut self, c: char) {
        self.push(c.encode_utf8(&mut [0; 4]));
    }

    fn read(&mut self) {
        while let Some(c) = self.next() {
            match c {
                '\'' => {
                    let text = self.until('\'');
                    self.push(text);
                }
                '"' => self.double_quoted(),
                '\\' => match self.next() {
                    Some('\n') | None => {}
                    Some(c) => self.push_char(c),
                },
                '$' => self.dollar(Quoted::No),
                '`' => self.backquoted(Quoted::No),
                c => self.push_char(c),
            }
        }
    }

    fn double_quoted(&mut self) {
        self.push("");
        while let Some(c) = self.next() {
            match c {
                '"' => return,
                '\\' => match self.next() {
                    Some('\n') | None => {}
                    Some(c @ ('"' | '\\' | '$' | '`')) => self.push_char(c),
                    Some(c) => {
                        self.push("\\");
                        self.push_char(c);
                    }
                },
                '$' => self.dollar(Quoted::Yes),
                '`' => self.backquoted(Quoted::Yes),
                c => self.push_char(c),
            }
        }
    }

    /// What follows a `$`.
    fn dollar(&mut self, quoted: Quoted) {
        if let Some(rest) = self.rest.strip_prefix("((") {
            // Arithmetic; it may hold a substitution, which bash would run too.
            let end = closing(rest, '(', ')').unwrap_or(rest.len());
            self.out.scripts.extend(substitutions(&rest[..end]));
            self.rest = rest.get(end..).unwrap_or("").trim_start_matches(')');
            self.push("0");
        } else if let Some(rest) = self.rest.strip_prefix('(') {
            match closing(rest, '(', ')') {
                Some(end) => {
                    self.rest = &rest[end + 1..];
                    self.run(&rest[..end], quoted);
                }
                // Lost count: better to run nothing than the wrong half.
                None => self.rest = "",
            }
        } else if let Some(rest) = self.rest.strip_prefix('{') {
            let end = closing(rest, '{', '}').unwrap_or(rest.len());
            self.rest = rest.get(end + 1..).unwrap_or("");
            self.parameter(&rest[..end], quoted);
        } else if quoted == Quoted::No && self.rest.starts_with('\'') {
            self.next();
            self.ansi();
        } else if quoted == Quoted::No && self.rest.starts_with('"') {
            self.next();
            self.double_quoted();
        } else {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let end = self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len());
            if end == 0
                && self.rest.starts_with(['@', '*'])
                && let Some(all) = self.variables.get("@").map(str::to_owned)
            {
                self.next();
                return self.push(&all);
            }
            let (name, rest) = self.rest.split_at(end);
            self.rest = rest;
            self.variable(name, quoted);
        }
    }

    fn parameter(&mut self, inner: &str, quoted: Quoted) {
        self.out.scripts.extend(substitutions(inner));
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = inner.find(|c| !is_name(c)).unwrap_or(inner.len());
        let (name, operation) = inner.split_at(end);
        if matches!(operation, "[@]" | "[*]")
            && let Some(all) = self.variables.get(&format!("{name}[@]")).map(str::to_owned)
        {
            return self.push(&all);
        }
        let value = self.variables.get(name).map(str::to_owned);
        let changed = match (operation.split_at_checked(2), &value) {
            (Some((":-" | ":=", default)), None) => Some(unquoted(default)),
            (Some((":+", other)), Some(_)) => Some(unquoted(other)),
            (_, Some(value)) => transformed(value, operation),
            _ => None,
        };
        if let Some(text) = changed {
            return match quoted {
                Quoted::Yes => self.push(&text),
                Quoted::No => self.split(&text),
            };
        }
        self.variable(name, quoted);
    }

    fn variable(&mut self, name: &str, quoted: Quoted) {
        match self.variables.get(name) {
            // What a substitution prints is not known: it stays in one piece.
            Some(value) if value.starts_with("$(") && value.ends_with(')') => {
                let value = value.to_owned();
                self.push(&value);
            }
            Some(value) if quoted == Quoted::No => {
                let value = value.to_owned();
                self.split(&value);
            }
            Some(value) => {
                let value = value.to_owned();
                self.push(&value);
            }
            None => {
                self.push("$");
                self.push(name);
            }
        }
    }

    /// Text that came out of an unquoted expansion ends fields where it has blanks.
    fn split(&mut self, text: &str) {
        let separators = self.variables.get("IFS").unwrap_or(" ").to_owned();
        for c in text.chars() {
            if c.is_whitespace() || separators.contains(c) {
                self.out.fields.extend(self.field.take());
            } else {
                self.push_char(c);
            }
        }
    }

    fn backquoted(&mut self, quoted: Quoted) {
        let inner = self.until('`');
        self.run(&inner.replace("\\`", "`"), quoted);
    }

    /// A command substitution: noted to be run, and shown as it stands, but for those whose output
    /// is plain.
    fn run(&mut self, script: &str, quoted: Quoted) {
        let mut words = script.split_whitespace();
        if let Some(text) = super::printed(script, self.variables) {
            match quoted {
                Quoted::Yes => self.push(&text),
                Quoted::No => self.split(&text),
            }
            self.out.scripts.push(script.to_owned());
            return;
        }
        match words.next() {
            Some("mktemp") => self.push(TEMPORARY),
            Some("cat") if script.trim_start()[3..].trim_start().starts_with("<<") => {
                self.push("$()");
            }
            Some("echo" | "printf") if !script.contains(['|', ';', '&', '>', '$', '`', '%']) => {
                let text: Vec<&str> =
                    words.map(|w| w.trim_matches(['"', '\''])).filter(|w| *w != "-n").collect();
                match quoted {
                    Quoted::Yes => self.push(&text.join(" ")),
                    Quoted::No => self.split(&text.join(" ")),
                }
            }
            _ => {
                self.push("$(");
                self.push(script.trim());
                self.push(")");
            }
        }
        self.out.scripts.push(script.to_owned());
    }

    /// Everything up to a closing quote, which is taken too.
    fn until(&mut self, close: char) -> &'a str {
        let end = self.rest.find(close).unwrap_or(self.rest.len());
        let text = &self.rest[..end];
        self.rest = self.rest.get(end + close.len_utf8()..).unwrap_or("");
        text
    }

    /// `$'…'`, with the escapes that can hide a letter.
    fn ansi(&mut self) {
        self.push("");
        while let Some(c) = self.next() {
            match c {
                '\'' => return,
                '\\' => match self.next() {
                    Some('n') => self.push("\n"),
                    Some('t') => self.push("\t"),
                    Some('x') => self.code(2, 16),
                    Some('u') => self.code(4, 16),
                    Some(c @ '0'..='7') => {
                        let before = self.rest.len() + c.len_utf8();
                        self.rest = &self.all[self.all.len() - before..];
                        self.code(3, 8);
                    }
                    Some(c) => self.push_char(c),
                    None => {}
                },
                c => self.push_char(c),
            }
        }
    }

    fn code(&mut self, digits: usize, radix: u32) {
        let end = self.rest.chars().take(digits).take_while(|c| c.is_digit(radix)).count();
        let (number, rest) = self.rest.split_at(end);
        self.rest = rest;
        let c = u32::from_str_radix(number, radix).ok().and_then(char::from_u32);
        self.push_char(c.unwrap_or('?'));
    }
}

/// A default without the quotes around it.
fn unquoted(text: &str) -> String {
    text.trim_matches(['"', '\'']).to_owned()
}

/// `${x%end}`, `${x#start}`, `${x/from/to}`, where they hold no patterns.
fn transformed(value: &str, operation: &str) -> Option<String> {
    if operation.is_empty() || operation.contains(['*', '?', '[', '$']) {
        return None;
    }
    if let Some(end) = operation.strip_prefix("%%").or(operation.strip_prefix('%')) {
        return Some(value.strip_suffix(end).unwrap_or(value).to_owned());
    }
    if let Some(start) = operation.strip_prefix("##").or(operation.strip_prefix('#')) {
        return Some(value.strip_prefix(start).unwrap_or(value).to_owned());
    }
    if let Some(change) = operation.strip_prefix("//").or(operation.strip_prefix('/')) {
        let (from, to) = change.split_once('/').unwrap_or((change, ""));
        let long = value.len().saturating_mul(to.len().max(1)) > MAX_WORD;
        return (!from.is_empty() && !long).then(|| value.replace(from, to));
    }
    match operation {
        ",," | "," => Some(value.to_lowercase()),
        "^^" => Some(value.to_uppercase()),
        _ => None,
    }
}

/// Where the bracket that is already open closes, quotes respected.
fn closing(text: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 1_usize;
    let mut quote = None;
    let mut base = 0;
    let mut chars = text.char_indices();
    while let Some((offset, c)) = chars.next() {
        let index = base + offset;
        match (quote, c) {
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (None | Some('"'), '\\') => {
                chars.next();
            }
            (None, '\'' | '"') => quote = Some(c),
            (None, '<') if open == '(' => {
                if let Some(end) = here_document(&text[index..]) {
                    chars = text[index + end..].char_indices();
                    base = index + end;
                }
            }
            (None, c) if c == open => depth += 1,
            (None, c) if c == close => {
                depth -= 1;
                if depth == 0 {
                    return Some(index);
                }
            }
            _ => {}
        }
    }
    None
}

/// The length of the here-document that starts this text, if one does: its body is not shell.
fn here_document(text: &str) -> Option<usize> {
    let after = text.strip_prefix("<<").filter(|rest| !rest.starts_with('<'))?;
    let word = after.trim_start_matches('-').trim_start_matches([' ', '\t']);
    let end = word.find([' ', '\t', '\n', ';', '|', '&', ')', '>']).unwrap_or(word.len());
    let delimiter = word[..end].trim_matches(['"', '\'', '\\']);
    let body = text.find('\n')? + 1;
    let mut at = body;
    for line in text[body..].split_inclusive('\n') {
        if line.trim() == delimiter {
            return Some(at + line.trim_end_matches('\n').len());
        }
        at += line.len();
    }
    None
}
