//! Where a matcher stands in the text, and what it says.

use super::quote::Quote;
use super::view::{View, Written};

/// Units that a matcher may look ahead.
pub(super) const AHEAD: usize = 4096;
/// Units that it may look back.
pub(super) const BACK: usize = 128;
/// What a replacement starts with.
pub(super) const OPENING: &[u8] = b"[redacted:";

/// A place where something that may start a secret was found.
#[derive(Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub(super) view: &'a View,
    /// Where it was found.
    pub(super) at: usize,
    /// Before this nothing can be seen: the text or what follows the last replacement starts here.
    pub(super) floor: usize,
    /// What is before the floor: the end of a replacement, or nothing.
    pub(super) beneath: Option<u8>,
    /// Commands that the line named before the floor: see `shapes::commands`.
    pub(super) commands: u8,
    /// How far can be seen.
    pub(super) end: usize,
}

impl<'a> Candidate<'a> {
    /// The units from one on, as far as can be seen.
    pub(super) fn from(&self, unit: usize) -> &'a [u8] {
        self.view.units().get(unit..self.end).unwrap_or_default()
    }

    /// The units before one, as far as can be seen.
    pub(super) fn back(&self, unit: usize) -> &'a [u8] {
        let floor = self.floor.max(self.at.saturating_sub(BACK)).min(unit);
        self.view.units().get(floor..unit).unwrap_or_default()
    }

    /// Whether all units down to the floor can be seen.
    pub(super) fn sees_floor(&self) -> bool {
        self.floor >= self.at.saturating_sub(BACK)
    }

    /// The unit before one; none at the start of the text.
    pub(super) fn before(&self, unit: usize) -> Option<u8> {
        if unit > self.floor { self.view.units().get(unit - 1).copied() } else { self.beneath }
    }

    /// Whether a word can start here: a letter or digit before it would make it another word.
    pub(super) fn is_fresh(&self, unit: usize) -> bool {
        match self.before(unit) {
            Some(byte) if byte.is_ascii_alphanumeric() => Quote::before(self.back(unit)).is_some(),
            _ => true,
        }
    }

    /// Whether a unit is percent-encoded.
    pub(super) fn is_percent(&self, unit: usize) -> bool {
        self.view.written(unit) == Written::Percent
    }
}

/// How the end of a secret is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It is known.
    At(usize),
    /// With the first unit that is not of this class.
    Run(Class),
    /// With the closing quote.
    Quoted(Quote),
    /// As before, and the same for all further elements of the array.
    Elements(Quote),
    /// With the line, or with this quote.
    Line(Option<Quote>),
    /// With the last line of a private key.
    Pem,
}

/// A secret.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// Where it starts: what is before stays.
    pub(super) start: usize,
    pub(super) ending: Ending,
    pub(super) kind: &'static str,
    /// What the replacement is to be wrapped in, where a bare one would break the text around it.
    pub(super) wrap: Wrap,
}

/// How a replacement is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrap {
    /// `[redacted:kind]`
    Bare,
    /// The same in quotes: it takes the place of a number.
    Quoted(Quote),
    /// `0`: a number among numbers.
    Zero,
}

/// What a matcher says.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// Not a secret.
    Nothing,
    /// Not a secret, nor is anything up to there.
    Skip(usize),
    /// A secret.
    Secret(Found),
}

impl Outcome {
    /// A secret that is replaced as it stands.
    pub(super) fn secret(start: usize, ending: Ending, kind: &'static str) -> Self {
        Self::Secret(Found { start, ending, kind, wrap: Wrap::Bare })
    }
}

/// Sets of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Letters and digits.
    Alnum,
    /// And `_`.
    Word,
    /// And `-`.
    Dashed,
    /// And `.`.
    Dotted,
    /// Base64 of both alphabets, with padding.
    Base64,
    /// Hexadecimal digits.
    Hex,
    /// What a token in a header or a URL may consist of.
    Token,
    /// What an unquoted value may consist of.
    Value,
    /// As `Value`, in an environment file: up to white space or a quote.
    Env,
    /// Up to the next tag.
    Element,
}

impl Class {
    /// Whether a unit belongs to it.
    pub(super) fn has(self, unit: u8) -> bool {
        let alnum = unit.is_ascii_alphanumeric();
        match self {
            Self::Alnum => alnum,
            Self::Word => alnum || unit == b'_',
            Self::Dashed => alnum || matches!(unit, b'_' | b'-'),
            Self::Dotted => alnum || matches!(unit, b'_' | b'-' | b'.'),
            Self::Base64 => alnum || matches!(unit, b'_' | b'-' | b'+' | b'/' | b'='),
            Self::Hex => unit.is_ascii_hexdigit(),
            Self::Token => {
                alnum
                    || matches!(unit, b'_' | b'-' | b'+' | b'/' | b'=' | b'.' | b'~' | b':' | b'|')
            }
            Self::Value => !unit.is_ascii_whitespace() && !b"\"'`\\,;&<>(){}[]|".contains(&unit),
            Self::Env => !unit.is_ascii_whitespace() && !b"\"'`\\".contains(&unit),
            Self::Element => !matches!(unit, b'<' | b'"' | b'\n' | b'\r'),
        }
    }

    /// How many units of a text belong to it before the first that does not.
    pub(super) fn run(self, units: &[u8]) -> usize {
        units.iter().position(|unit| !self.has(*unit)).unwrap_or(units.len())
    }
}

/// Whether a line ends here that a quoted value cannot go beyond.
pub(super) fn ends_line(view: &View, at: usize, quote: Quote) -> bool {
    if !matches!(view.units().get(at), Some(b'\n' | b'\r')) {
        return false;
    }
    match view.written(at) {
        Written::Plain => quote != Quote::Mark { mark: b'`', depth: 0 },
        Written::Percent => false,
        Written::Escaped(slashes) => slashes < quote.newline_slashes(),
    }
}

/// The length of the replacement that a text starts with.
pub(super) fn replacement(units: &[u8]) -> Option<usize> {
    let rest = units.strip_prefix(OPENING)?;
    let name =
        rest.iter().take(64).take_while(|u| u.is_ascii_alphanumeric() || **u == b'-').count();
    (name > 0 && rest.get(name) == Some(&b']')).then_some(OPENING.len() + name + 1)
}

/// Whether a text holds a replacement. Where a value is only guessed to be a secret, one that was
/// looked into already is left at that, so that redacting twice is the same as once.
pub(super) fn is_redacted(units: &[u8]) -> bool {
    memchr::memmem::find(units, OPENING).is_some()
}
