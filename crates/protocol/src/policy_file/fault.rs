//! What is wrong with a file, as data; made sentences at the end, when path and place are known.

use std::fmt;

use deadstop_core::BadSetting;
use serde::de::{self, Expected, Unexpected};

use super::locate::Found;
use super::tree::{At, Spot};
use super::{Format, MAX_BYTES};

/// A complaint on its way up through the tree, which gathers place and path as it goes.
#[derive(Debug)]
pub(super) struct Fault {
    spot: Option<Spot>,
    path: String,
    what: What,
}

#[derive(Debug)]
enum What {
    UnknownKey { key: String, known: &'static [&'static str] },
    UnknownWord { word: String, shown: String, known: &'static [&'static str] },
    Wrong { found: String, expected: String },
    Twice(String),
    Missing(&'static str),
    Number(String),
    BadSetting(BadSetting),
    Syntax(String),
    TooLarge,
    Other(String),
}

impl Fault {
    fn new(what: What, spot: Option<Spot>) -> Fault {
        Fault { spot, path: String::new(), what }
    }

    /// The text is not in the format.
    pub(super) fn syntax(message: String, spot: Option<Spot>) -> Fault {
        Fault::new(What::Syntax(message), spot)
    }

    /// A key stands there twice.
    pub(super) fn twice(key: String, spot: Option<Spot>) -> Fault {
        Fault::new(What::Twice(key), spot)
    }

    /// A number that no setting can hold.
    pub(super) fn number(text: &str, spot: Spot) -> Fault {
        Fault::new(What::Number(shortened(text)), Some(spot))
    }

    /// Something else where one of these words should be.
    pub(super) fn no_word(found: Unexpected<'_>, known: &'static [&'static str]) -> Fault {
        let what = What::UnknownWord { word: String::new(), shown: shown(found), known };
        Fault::new(what, None)
    }

    /// More text than a policy may have.
    pub(super) fn too_large() -> Fault {
        Fault::new(What::TooLarge, None)
    }

    /// A setting that was read and cannot be, named as it was typed if that was found.
    pub(super) fn bad_setting(mut bad: BadSetting, found: Option<Found>) -> Fault {
        let spot = found.as_ref().map(|found| found.spot);
        if let Some(found) = found {
            bad.path = found.path;
        }
        Fault::new(What::BadSetting(bad), spot)
    }

    /// The same, one step further out.
    pub(super) fn inside(mut self, step: &str) -> Fault {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{step}{dot}{}", self.path);
        self
    }

    /// The same, here unless a closer place is known.
    pub(super) fn at_least(mut self, spot: Spot) -> Fault {
        self.spot.get_or_insert(spot);
        self
    }

    /// Where it is, if known.
    pub(super) fn spot(&self) -> Option<Spot> {
        self.spot
    }

    /// Whether it is about a value that could be read, and that cannot be in force: alone, or
    /// together with others.
    pub(super) fn is_setting(&self) -> bool {
        matches!(self.what, What::BadSetting(_))
    }

    /// The line and column, if known.
    pub(super) fn at(&self, text: &str) -> Option<At> {
        self.spot.map(|spot| spot.at(text))
    }

    /// The sentence about what is wrong.
    pub(super) fn problem(&self) -> String {
        let path = match self.path.as_str() {
            "" => "the policy".to_owned(),
            path => format!("`{path}`"),
        };
        let within = if self.path.is_empty() { String::new() } else { format!(" in {path}") };
        match &self.what {
            What::UnknownKey { key, .. } => format!("unknown key `{key}`{within}"),
            What::UnknownWord { shown, .. } => format!("{path} cannot be {shown}"),
            What::Wrong { found, expected } => format!("{path} must be {expected}, not {found}"),
            What::Twice(key) => format!("`{key}` stands there twice{within}"),
            What::Missing(key) => format!("{path} lacks `{key}`"),
            What::Number(number) => format!("{path} cannot be {number}"),
            What::BadSetting(bad) => format!("`{}`: {}", bad.path, bad.problem),
            What::Syntax(message) => message.clone(),
            What::TooLarge => format!("more than {MAX_BYTES} bytes are too many for a policy"),
            What::Other(message) => format!("{path}: {message}"),
        }
    }

    /// What to do about it.
    pub(super) fn hint(&self, format: Format) -> String {
        match &self.what {
            What::UnknownKey { key, known } => match nearest(key, known) {
                Some(known) => format!("did you mean `{known}`?"),
                None => format!("known here: {}", listed(known)),
            },
            What::UnknownWord { word, known, .. } => match nearest(word, known) {
                Some(known) => format!("did you mean `{known}`?"),
                None => format!("write one of {}", listed(known)),
            },
            What::Wrong { found, expected } => how_to_write(expected, found).to_owned(),
            What::Twice(_) => {
                "keep one of them; a key and its other name are one setting".to_owned()
            }
            What::Missing(key) => format!("add `{key}`"),
            What::Number(_) => "write a smaller number".to_owned(),
            What::BadSetting(bad) => bad.hint.clone(),
            What::Syntax(_) => {
                format!(
                    "the file is read as {}; its name may end in another format's",
                    format.name()
                )
            }
            What::TooLarge => "check that this is the right file".to_owned(),
            What::Other(_) => "`deadstop policy show` lists every setting with a value".to_owned(),
        }
    }
}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Fault {
        Fault::new(What::Other(message.to_string()), None)
    }
    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Fault {
        let what = What::Wrong { found: shown(found), expected: plainly(&expected.to_string()) };
        Fault::new(what, None)
    }
    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Fault {
        Fault::invalid_type(found, expected)
    }
    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Fault {
        let word = shortened(word);
        Fault::new(What::UnknownWord { shown: format!("`{word}`"), word, known }, None)
    }
    fn unknown_field(key: &str, known: &'static [&'static str]) -> Fault {
        Fault::new(What::UnknownKey { key: shortened(key), known }, None)
    }
    fn missing_field(key: &'static str) -> Fault {
        Fault::new(What::Missing(key), None)
    }
    fn duplicate_field(key: &'static str) -> Fault {
        Fault::twice(key.to_owned(), None)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem())
    }
}

impl std::error::Error for Fault {}

const SECTION: &str = "a section";
const LIST: &str = "a list";
const TEXT: &str = "a text";
const SWITCH: &str = "true or false";

/// Serde's names of types in words.
fn plainly(expected: &str) -> String {
    match expected {
        "u64" => "a whole number of 0 or more",
        "u32" => "a whole number from 0 to 4294967295",
        "f64" => "a number",
        "a boolean" => SWITCH,
        "a string" => TEXT,
        "a sequence" => LIST,
        "a map" => SECTION,
        other if other.starts_with("struct ") => SECTION,
        other => other,
    }
    .to_owned()
}

fn shown(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => value.to_string(),
        Unexpected::Unsigned(value) => value.to_string(),
        Unexpected::Signed(value) => value.to_string(),
        Unexpected::Float(value) => format!("{value:?}"),
        Unexpected::Str(text) => format!("the text \"{}\"", shortened(text)),
        Unexpected::Unit | Unexpected::Option => "nothing".to_owned(),
        Unexpected::Seq => LIST.to_owned(),
        Unexpected::Map => SECTION.to_owned(),
        other => other.to_string(),
    }
}

fn how_to_write(expected: &str, found: &str) -> &'static str {
    match expected {
        SECTION => "give it settings of its own, each with a name and a value",
        LIST => "put square brackets around it, as in [\"delete_*\", \"drop_*\"]",
        TEXT => "put it in quotes",
        SWITCH => "write true or false, without quotes",
        _ if found.starts_with("the text") => "write the number alone: no quotes, no unit",
        _ => "write a number that fits",
    }
}

/// Text from a file may be of any length; a complaint is one line.
fn shortened(text: &str) -> String {
    const LONGEST: usize = 60;
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let mut short: String = text.chars().take(LONGEST).map(clean).collect();
    if text.chars().nth(LONGEST).is_some() {
        short.push('…');
    }
    short
}

fn listed(known: &[&str]) -> String {
    known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The known name that was probably meant: at most a third of it is different.
fn nearest<'a>(typed: &str, known: &[&'a str]) -> Option<&'a str> {
    let typed = typed.to_lowercase();
    let distances = known.iter().map(|name| (distance(&typed, name), *name));
    let (distance, name) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= name.len().max(typed.len()) / 3).then_some(name)
}

/// Letters to insert, remove or replace to make one word of the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (b, cell) in other.iter().zip(row.iter_mut().skip(1)) {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = *cell;
            left = replaced.min(*cell + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}
