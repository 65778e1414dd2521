//! Secrets that are known by their name: fields of JSON, YAML and forms, variables, headers,
//! options of commands, elements of XML.
//!
//! A quoted value of such a field is believed. A bare one may as well be a type or a variable of
//! some code, so it has to look like a secret, the more so the less its surroundings do.

mod bare;

use super::names::{self, Sort, Word};
use super::place::{Candidate, Class, Ending, Outcome, ends_line, is_redacted, replacement};
use super::quote::Quote;
use super::shapes::is_template;
use super::tokens::{self, looks_random};
use super::view::Written;

/// Units of a value that are judged.
const JUDGED: usize = 256;
/// Units of a name after its telling word.
const LONGEST_SUFFIX: usize = 24;
/// Functions around a literal that leave it what it is.
const WRAPPERS: [&str; 10] =
    ["secretstr", "secret", "from", "some", "str", "bytes", "string", "new", "just", "encode"];
/// Schemes of credentials that are one token.
const SCHEMES: [&str; 9] =
    ["bearer", "basic", "token", "apikey", "api-key", "key", "negotiate", "ntlm", "bot"];
/// Schemes of credentials that are many parameters.
const LONG_SCHEMES: [&str; 5] = ["digest", "hawk", "aws4-hmac-sha256", "oauth", "signature"];

/// A name and what connects it with its value.
struct Field<'a> {
    place: &'a Candidate<'a>,
    sort: Sort,
    kind: &'static str,
    /// Where the name starts.
    name: usize,
    /// The whole name is the telling word.
    is_bare: bool,
    /// What the name is quoted by.
    quote: Option<Quote>,
    link: Link,
    /// Name and value are two fields.
    is_apart: bool,
    /// Blanks before the value or before what links it.
    is_spaced: bool,
    /// Where the link stands.
    link_at: usize,
    /// Where the value starts.
    value: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Colon,
    Equals,
    /// Two elements of a list.
    Comma,
    /// `<name>value</name>`
    Tag,
    /// `--name value`
    Option,
    /// `the name is value`
    Is,
}

/// Judges a place where a telling word stands.
pub(super) fn check(place: &Candidate<'_>, word: &Word) -> Outcome {
    let Some(field) = field(place, word) else { return Outcome::Nothing };
    field.judge()
}

fn field<'a>(place: &'a Candidate<'a>, word: &Word) -> Option<Field<'a>> {
    let after = place.at + word.text.len();
    let tail = place.from(after);
    let run = Class::Dashed.run(&tail[..tail.len().min(LONGEST_SUFFIX)]);
    if run == LONGEST_SUFFIX {
        return None;
    }
    let suffix = tail[..run].trim_ascii_end();
    let dashes = suffix.iter().rev().take_while(|unit| **unit == b'-').count();
    let suffix = &suffix[..run - dashes];
    let back = place.back(place.at);
    let prefix = back.iter().rev().take_while(|unit| Class::Dashed.has(**unit)).count();
    let prefix = without_quote(back, &back[back.len() - prefix..]);
    let kind = names::kind(word, prefix, suffix)?;
    let name = place.at - prefix.len();
    let mut at = after + suffix.len();
    let mut quote = None;
    if let Some(opening) = Quote::before(place.back(name))
        && let Some((closing, length)) = Quote::at(place.from(at))
        && opening == closing
    {
        quote = Some(closing);
        at += length;
        if place.from(at).first() == Some(&b']') {
            at += 1;
        }
    }
    let is_bare = prefix.is_empty() && suffix.is_empty();
    let before = blanks(place.from(at));
    let at = at + before;
    let option = before > 0 && (prefix.starts_with(b"--") || is_netrc(place.back(name)));
    let mut is_apart = false;
    let (link, link_at, length) = match place.from(at) {
        [b':', b':', ..] => return None,
        [b':', b'=', ..] | [b'=', b'>', ..] => (Link::Equals, at, 2),
        [b'=', b'=', b'=', ..] => (Link::Equals, at, 3),
        [b'=', b'=', ..] => (Link::Equals, at, 2),
        [b'=', ..] => (Link::Equals, at, 1),
        [b':', ..] => (Link::Colon, at, 1),
        [b',', ..] if quote.is_some() && is_pair(place, at + 1) => (Link::Comma, at, 1),
        [b'>', ..] if place.before(name) == Some(b'<') => (Link::Tag, at, 1),
        _ if option => (Link::Option, at, 0),
        [b'i', b's', b' ' | b':', ..] if before > 0 => (Link::Is, at, 3),
        _ => {
            is_apart = true;
            separate_value(place, at)?
        }
    };
    let mut value = link_at + length;
    let rest = place.from(value);
    let after = if quote.is_some() {
        rest.iter().take(64).take_while(|unit| unit.is_ascii_whitespace()).count()
    } else {
        blanks(rest)
    };
    value += after;
    let is_spaced = before + after > 0;
    let sort = word.sort;
    Some(Field {
        place,
        sort,
        kind,
        name,
        is_bare,
        quote,
        link,
        is_apart,
        is_spaced,
        link_at,
        value,
    })
}

/// `machine h login bob password …`: the words of a `.netrc` file.
fn is_netrc(back: &[u8]) -> bool {
    let mut words = back.rsplit(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.nth(1) == Some(b"login")
}

/// A name without the letters and digits of an escaped quote before it.
fn without_quote<'a>(back: &[u8], name: &'a [u8]) -> &'a [u8] {
    let before = back.len().checked_sub(name.len() + 1).and_then(|at| back.get(at));
    let quotes: &[&[u8]] = match before {
        Some(b'\\') => &[b"u0022", b"u0027"],
        Some(b'%') => &[b"22", b"27"],
        _ => &[],
    };
    quotes.iter().find_map(|quote| name.strip_prefix(*quote)).unwrap_or(name)
}

/// `["cookie", "…"]`: a header as a pair, not a list of names.
fn is_pair(place: &Candidate<'_>, at: usize) -> bool {
    let at = at + blanks(place.from(at));
    Quote::at(place.from(at)).is_some_and(|(quote, length)| {
        let content = content(place, at + length, quote);
        content.contains(&b'=') || content.contains(&b' ') || looks_random(content)
    })
}

/// `{"name": "PASSWORD", "value": "…"}` and the same in YAML and XML.
fn separate_value(place: &Candidate<'_>, at: usize) -> Option<(Link, usize, usize)> {
    let gap = |unit: &&u8| unit.is_ascii_whitespace() || **unit == b',';
    let mut at = at + place.from(at).iter().take(40).take_while(gap).count();
    let quote = Quote::at(place.from(at));
    at += quote.map_or(0, |(_, length)| length);
    let word = place.from(at).get(..5)?;
    if !word.eq_ignore_ascii_case(b"value") {
        return None;
    }
    at += 5 + quote.map_or(0, |(_, length)| length);
    at += blanks(place.from(at));
    match place.from(at).first() {
        Some(b':') => Some((Link::Colon, at, 1)),
        Some(b'=') => Some((Link::Equals, at, 1)),
        _ => None,
    }
}

impl Field<'_> {
    fn judge(&self) -> Outcome {
        let place = self.place;
        if place.from(self.value).starts_with(b"-----BEGIN") {
            return Outcome::Nothing;
        }
        if self.link != Link::Is
            && let Some((quote, start, many)) = self.literal()
        {
            if self.is_end_of_string(quote, start) {
                return Outcome::Nothing;
            }
            return self.quoted(quote, start, many);
        }
        match self.sort {
            Sort::Authorization => self.credentials(),
            Sort::Cookie => self.cookies(),
            _ => self.bare(),
        }
    }

    /// The quoted value: its quote, where its content starts, and whether it is in an array.
    fn literal(&self) -> Option<(Quote, usize, bool)> {
        let place = self.place;
        let mut at = self.value;
        let mut many = false;
        if self.quote.is_some() && place.from(at).first() == Some(&b'[') {
            let gap = place.from(at + 1).iter().take(64).take_while(|u| u.is_ascii_whitespace());
            at += 1 + gap.count();
            many = true;
        }
        let letters = place.from(at).iter().take(2).take_while(|u| b"bBrRfFuU@$".contains(u));
        for prefix in [0, letters.count()] {
            if let Some((quote, length)) = Quote::at(place.from(at + prefix)) {
                return Some((quote, at + prefix + length, many));
            }
        }
        // `SecretStr("…")`, and `password: str = "…"`.
        let units = place.from(at);
        let named = |unit: &&u8| unit.is_ascii_alphanumeric() || b"_:.&?".contains(unit);
        let name = units.iter().take(40).take_while(named).count();
        let mut next = at + name;
        if name == 0 {
            return None;
        }
        if place.from(next).first() == Some(&b'(') {
            let last = units[..name].rsplit(|unit| b":.&?".contains(unit)).next()?;
            let last = std::str::from_utf8(last).ok()?.to_ascii_lowercase();
            let (quote, length) = Quote::at(place.from(next + 1))?;
            return WRAPPERS.contains(&last.as_str()).then_some((quote, next + 1 + length, false));
        }
        next += blanks(place.from(next));
        if self.link == Link::Colon && place.from(next).first() == Some(&b'=') {
            next += 1 + blanks(place.from(next + 1));
            let (quote, length) = Quote::at(place.from(next))?;
            return Some((quote, next + length, false));
        }
        None
    }

    /// `ask("Password: ")`: the quote after the name does not start a value but ends the string
    /// that the name is in.
    fn is_end_of_string(&self, quote: Quote, start: usize) -> bool {
        if self.quote.is_some() {
            return false;
        }
        let next = self.place.from(start).first();
        Quote::before(self.place.back(self.name)) == Some(quote)
            || next.is_none_or(|unit| unit.is_ascii_whitespace() || b"),;}]+:".contains(unit))
    }

    fn quoted(&self, quote: Quote, start: usize, many: bool) -> Outcome {
        let mut start = start;
        let content = content(self.place, start, quote);
        let mut value = content;
        if self.sort == Sort::Authorization
            && let Some((scheme, _)) = scheme(content)
        {
            start += scheme;
            value = &content[scheme..];
        }
        // A replacement is all there is; the value may have ended with its line.
        if let Some(length) = replacement(value)
            && (length == value.len() || ends_line(self.place.view, start + length, quote))
        {
            return Outcome::Skip(start + length);
        }
        let whole = content.len() < JUDGED;
        if is_key(value) || (whole && (is_template(value) || is_word(value))) {
            return Outcome::Nothing;
        }
        let likely = match self.sort {
            // Answers with probabilities name every token of their text.
            Sort::Token if self.is_bare && !self.is_capital() => {
                let digit = value.iter().any(u8::is_ascii_digit);
                let blank = value.iter().any(u8::is_ascii_whitespace);
                !blank && !is_redacted(value) && value.len() >= 8 && (digit || value.len() >= 20)
            }
            Sort::Cookie if self.quote.is_none() => value.contains(&b'='),
            Sort::Authorization => value.len() >= 4,
            Sort::Password if self.kind_is_directory(value) => false,
            _ => !value.trim_ascii().is_empty(),
        };
        if !likely {
            return Outcome::Nothing;
        }
        let ending = if many { Ending::Elements(quote) } else { Ending::Quoted(quote) };
        Outcome::secret(start, ending, self.kind_of(start))
    }

    /// `PWD=/home/ada` is no password.
    fn kind_is_directory(&self, value: &[u8]) -> bool {
        let word = self.place.from(self.place.at);
        let pwd = word.get(..3).is_some_and(|word| word.eq_ignore_ascii_case(b"pwd"));
        pwd && (value.first().is_some_and(|unit| b"/~.$".contains(unit))
            || value.get(1) == Some(&b':'))
    }

    /// `Authorization: Bearer …` outside of quotes of its own.
    fn credentials(&self) -> Outcome {
        let units = self.place.from(self.value);
        let (start, long) = match scheme(&units[..units.len().min(64)]) {
            Some((length, long)) => (self.value + length, long),
            None => (self.value, false),
        };
        let units = self.place.from(start);
        if let Some(length) = replacement(units) {
            return Outcome::Skip(start + length);
        }
        if units.starts_with(b"-----BEGIN") {
            return Outcome::Nothing;
        }
        if long {
            return Outcome::secret(start, Ending::Line(self.enclosing()), self.kind);
        }
        let value = &units[..Class::Token.run(&units[..units.len().min(JUDGED)])];
        let enough = if start > self.value { 4 } else { 12 };
        let random = start > self.value || value.iter().any(u8::is_ascii_digit);
        if value.len() < enough || !random || is_template(value) || is_word(value) {
            return Outcome::Nothing;
        }
        Outcome::secret(start, self.run(start, Class::Value), self.kind_of(start))
    }

    /// `Cookie: a=b; c=d` outside of quotes of its own.
    fn cookies(&self) -> Outcome {
        let units = self.place.from(self.value);
        if let Some(length) = replacement(units) {
            return Outcome::Skip(self.value + length);
        }
        let first = Class::Env.run(&units[..units.len().min(128)]);
        let pair = units[..first].iter().position(|unit| *unit == b'=').is_some_and(|at| at > 0);
        if !pair || self.link != Link::Colon {
            return Outcome::Nothing;
        }
        Outcome::secret(self.value, Ending::Line(self.enclosing()), self.kind)
    }

    /// The quote of the string that a line of text is in.
    fn enclosing(&self) -> Option<Quote> {
        if let Some(quote) = Quote::before(self.place.back(self.name)) {
            return Some(quote);
        }
        match self.place.before(self.name) {
            None => None,
            Some(b'\n') => match self.place.view.written(self.name - 1) {
                Written::Plain => None,
                Written::Escaped(slashes) => {
                    let depth = u32::from(slashes).max(1).ilog2() as u8;
                    Some(Quote::Mark { mark: b'"', depth })
                }
                Written::Percent => Some(Quote::Text("%22")),
            },
            Some(_) => Some(Quote::Mark { mark: b'"', depth: 0 }),
        }
    }

    fn kind_of(&self, start: usize) -> &'static str {
        let jwt = self.place.from(start).starts_with(b"eyJ");
        match tokens::kind_of(self.place, start) {
            Some(kind) => kind,
            None if jwt => match super::shapes::jwt(&Candidate { at: start, ..*self.place }) {
                Outcome::Secret(found) => found.kind,
                _ => self.kind,
            },
            None => self.kind,
        }
    }
}

/// The units of a quoted value, up to the most that is judged.
fn content<'a>(place: &Candidate<'a>, start: usize, quote: Quote) -> &'a [u8] {
    let units = place.from(start);
    let mut slashes = 0;
    for at in 0..units.len().min(JUDGED) {
        if let Some(own) = quote.closes(&units[at..], slashes) {
            return &units[..at - own];
        }
        slashes = if units[at] == b'\\' { slashes + 1 } else { 0 };
    }
    &units[..units.len().min(JUDGED)]
}

/// The scheme that credentials start with: its length with the blanks after it, and whether many
/// parameters follow.
fn scheme(units: &[u8]) -> Option<(usize, bool)> {
    let word = Class::Dashed.run(units);
    let after = blanks(&units[word..]);
    let name = std::str::from_utf8(&units[..word]).ok()?.to_ascii_lowercase();
    let long = LONG_SCHEMES.contains(&name.as_str());
    (after > 0 && (long || SCHEMES.contains(&name.as_str()))).then_some((word + after, long))
}

/// A private key, which is looked at by itself, or what took its place.
fn is_key(value: &[u8]) -> bool {
    value.starts_with(b"-----BEGIN") || value.starts_with(b"[redacted:private-key]")
}

fn is_word(value: &[u8]) -> bool {
    names::is_word(value)
}

fn blanks(units: &[u8]) -> usize {
    units.iter().take(16).take_while(|unit| matches!(unit, b' ' | b'\t')).count()
}
