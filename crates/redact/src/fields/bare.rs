//! Values without quotes: where they stand decides how much they must look like a secret.

use super::{Field, JUDGED, Link, is_word};
use crate::names::Sort;
use crate::place::{AHEAD, BACK, Class, Ending, Found, Outcome, Wrap, replacement};
use crate::shapes::is_template;

/// Where a value without quotes stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// `NAME=value` on a line of its own.
    Variable,
    /// `name: value` on a line of its own.
    Line,
    /// Of a URL or a connection string.
    Parameter,
    /// ` name=value ` among others.
    Log,
    /// `<name>value</name>`
    Element,
    /// `--name value`
    Option,
    /// Anywhere else.
    Code,
}

impl Field<'_> {
    /// A value without quotes.
    pub(super) fn bare(&self) -> Outcome {
        let place = self.place;
        if let Some(length) = replacement(place.from(self.value)) {
            return Outcome::Skip(self.value + length);
        }
        let mut style = self.style();
        let class = match style {
            Style::Variable if !place.is_percent(self.link_at) => Class::Env,
            Style::Element => Class::Element,
            _ => Class::Value,
        };
        let ending = self.run(self.value, class);
        let value = match ending {
            Ending::At(end) => place.from(self.value).get(..end - self.value),
            _ => place.from(self.value).get(..JUDGED),
        };
        let value = value.unwrap_or_default();
        let next = place.from(self.value + value.len()).first().copied();
        if next == Some(b'&') && style == Style::Log {
            style = Style::Parameter;
        }
        let wrap = match self.number_in_json(value, next) {
            Some(wrap) => wrap,
            None if self.quote.is_some() && value.iter().all(|u| b"0123456789.-".contains(u)) => {
                return Outcome::Nothing;
            }
            None => {
                let after = place.from(self.value + value.len());
                let called = match style {
                    Style::Element => !after.starts_with(b"</") && value.len() < JUDGED,
                    _ => matches!(next, Some(b'(' | b'[' | b'{' | b'<')),
                };
                if called || !self.is_likely(style, value) {
                    return Outcome::Nothing;
                }
                Wrap::Bare
            }
        };
        let kind = self.kind_of(self.value);
        Outcome::Secret(Found { start: self.value, ending, kind, wrap })
    }

    /// A password that was written as a JSON number is replaced by a quoted string: it stays JSON.
    fn number_in_json(&self, value: &[u8], next: Option<u8>) -> Option<Wrap> {
        let quote = self.quote.filter(|_| self.link == Link::Colon)?;
        let number = value.len() >= 4 && value.iter().all(u8::is_ascii_digit);
        let ends = next.is_none_or(|unit| b",}] \r\n\t".contains(&unit));
        (number && ends && self.sort == Sort::Password).then_some(Wrap::Quoted(quote))
    }

    fn style(&self) -> Style {
        let place = self.place;
        let before = place.before(self.name);
        let tight = self.link == Link::Equals && !self.is_spaced;
        match (self.link, before) {
            (Link::Tag, _) => return Style::Element,
            (Link::Option, _) => return Style::Option,
            _ if self.is_apart => return Style::Line,
            (Link::Equals, Some(b'?' | b'&' | b';')) => return Style::Parameter,
            _ => {}
        }
        let back = place.back(self.name);
        let line = back.iter().rposition(|unit| matches!(unit, b'\n' | b'\r'));
        let indent = &back[line.map_or(0, |line| line + 1)..];
        let known = line.is_some() || (place.beneath.is_none() && place.at <= place.floor + BACK);
        let indent = indent.trim_ascii();
        let starts = known
            && (indent.is_empty()
                || [&b"export"[..], b"-", b"ENV", b"set", b"$env:"].contains(&indent));
        match self.link {
            Link::Equals if tight && starts && self.quote.is_none() && self.is_capital() => {
                Style::Variable
            }
            Link::Colon if starts => Style::Line,
            Link::Equals if tight && !matches!(before, Some(b'(' | b',')) => {
                let list = back.trim_ascii_end().last() == Some(&b',');
                if list { Style::Code } else { Style::Log }
            }
            _ => Style::Code,
        }
    }

    /// Whether the name is written as those of variables of the environment are.
    pub(super) fn is_capital(&self) -> bool {
        let name = self.place.from(self.place.at);
        name.iter().take_while(|unit| Class::Word.has(**unit)).all(|u| !u.is_ascii_lowercase())
    }

    fn is_likely(&self, style: Style, value: &[u8]) -> bool {
        if value.is_empty() || is_template(value) || is_word(value) || value.starts_with(b"$") {
            return false;
        }
        if self.kind_is_directory(value) {
            return false;
        }
        let length = value.len();
        let digit = value.iter().any(u8::is_ascii_digit);
        let special = value.iter().any(|u| !u.is_ascii_alphanumeric() && !b"_-.:".contains(u));
        let password = self.sort == Sort::Password;
        match style {
            Style::Parameter | Style::Element => true,
            Style::Variable => length >= 3,
            Style::Line if password => length >= 3 && !is_path(value),
            Style::Line => (digit && length >= 6) || length >= 20,
            Style::Log if password => length >= 3 && !is_path(value),
            Style::Log => ((digit && length >= 6) || length >= 20) && !is_path(value),
            Style::Option if password => (digit || special) && length >= 3,
            Style::Option => digit && length >= 6,
            Style::Code if password => (digit || special) && length >= 6 && !is_path(value),
            Style::Code => digit && length >= 8 && !is_path(value),
        }
    }

    /// The end of a run; percent-encoded separators belong to it unless what links it with its
    /// name is percent-encoded too.
    pub(super) fn run(&self, start: usize, class: Class) -> Ending {
        let inner = !self.place.is_percent(self.link_at);
        let units = self.place.from(start);
        let end = units.iter().enumerate().position(|(at, unit)| {
            !(class.has(*unit) || (inner && self.place.is_percent(start + at)))
        });
        match end {
            Some(end) => Ending::At(start + end),
            None if start + units.len() < self.place.at + AHEAD => Ending::At(start + units.len()),
            None => Ending::Run(class),
        }
    }
}

/// `self.config.token1`: names with dots between them.
fn is_path(value: &[u8]) -> bool {
    let parts = value.split(|unit| *unit == b'.');
    value.contains(&b'.')
        && parts.clone().all(|part| {
            part.first().is_some_and(|unit| unit.is_ascii_alphabetic() || *unit == b'_')
                && part.len() < 24
                && part.iter().all(|unit| unit.is_ascii_alphanumeric() || *unit == b'_')
        })
}
