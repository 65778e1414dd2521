//! The way through a text: from anchor to anchor, and through the secrets.
//!
//! Whatever the pieces in which a text arrives, a decision is made only when as much of the text
//! after it is there as any decision may look at. So the result does not depend on the pieces, and
//! what is held back is bounded. A secret itself is not held back: once its start is known, it is
//! passed over as it comes, however long it is.

use super::anchors::Anchors;
use super::own::{Own, OwnMatches};
use super::pem::{self, Step};
use super::place::{AHEAD, BACK, Candidate, Class, Ending, Found, Outcome, Wrap, ends_line};
use super::quote::{self, Quote};
use super::shapes;
use super::view::View;

/// Units that may be forgotten before it is worth moving the rest.
const WORTH_FORGETTING: usize = 64 * 1024;
/// Units of an array that are seen at the end of an element.
const ELEMENT_AHEAD: usize = 96;

/// Where a redacted text goes.
pub(super) trait Sink {
    /// Bytes that stay as they are, and how many came before them.
    fn keep(&mut self, at: usize, bytes: &[u8]);
    /// A text that takes the place of bytes that are left out, and how many came before those.
    fn put(&mut self, at: usize, text: &str);
}

/// One text on its way.
#[derive(Debug, Default)]
pub(super) struct Engine {
    view: View,
    /// Units before this are decided.
    at: usize,
    /// Units before this have left.
    left: usize,
    /// See [`Candidate`].
    floor: usize,
    beneath: Option<u8>,
    commands: u8,
    within: Option<Within>,
    own: OwnMatches,
    finished: bool,
    /// Bytes that are no longer in the view.
    forgotten: usize,
}

/// A secret that is being passed over.
#[derive(Debug)]
struct Within {
    ending: Ending,
    kind: &'static str,
    /// Backslashes right before.
    slashes: usize,
}

impl Engine {
    /// Takes the next piece.
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        anchors: &Anchors,
        own: &[Own],
        sink: &mut impl Sink,
    ) {
        self.view.push(bytes);
        self.run(anchors, own, sink);
        let dead = self.left.min(self.at.saturating_sub(BACK + 8)).min(self.own.needed());
        if dead > WORTH_FORGETTING {
            self.forgotten += self.view.place(dead);
            self.view.forget(dead);
            self.own.forget(dead);
            self.at -= dead;
            self.left -= dead;
            if self.floor < dead {
                self.beneath = Some(0xff);
            }
            self.floor = self.floor.saturating_sub(dead);
        }
    }

    /// Lets go of what was held back.
    pub(super) fn finish(&mut self, anchors: &Anchors, own: &[Own], sink: &mut impl Sink) {
        self.finished = true;
        self.view.finish();
        self.run(anchors, own, sink);
    }

    fn run(&mut self, anchors: &Anchors, own: &[Own], sink: &mut impl Sink) {
        let total = self.view.units().len();
        let seen = if self.finished { total } else { total.saturating_sub(AHEAD) };
        let limit = seen.min(self.own.look(own, self.view.units(), self.finished));
        loop {
            if self.within.is_some() {
                if !self.pass(sink) {
                    return;
                }
                continue;
            }
            let anchor = anchors.next(self.view.units(), self.at, limit);
            let start = anchor.map_or(limit, |(start, _)| start);
            if let Some((from, to, name)) = self.own.next(self.left, start) {
                self.remember_commands(self.floor, from);
                self.keep_to(from, sink);
                sink.put(self.bytes_left(), &label(&own[name].name));
                self.resume(to);
                continue;
            }
            let Some((start, anchor)) = anchor else { break };
            let place = Candidate {
                view: &self.view,
                at: start,
                floor: self.floor,
                beneath: self.beneath,
                commands: self.commands,
                end: total.min(start + AHEAD),
            };
            match anchors.judge(anchor, &place) {
                Outcome::Nothing => self.at = start + 1,
                Outcome::Skip(to) => self.at = to.max(start + 1),
                Outcome::Secret(found) => {
                    let second = match found.ending {
                        Ending::At(end) if found.kind == "aws-access-key-id" => {
                            shapes::aws_secret(&place, end)
                        }
                        _ => None,
                    };
                    self.begin(&found, sink);
                    if let Some((from, to)) = second {
                        self.remember_commands(self.floor, from);
                        self.keep_to(from, sink);
                        sink.put(self.bytes_left(), "[redacted:aws-secret-key]");
                        self.resume(to);
                    }
                }
            }
        }
        // A matcher may have said that nothing is beyond the limit either; own patterns may differ.
        self.at = self.at.max(limit);
        self.keep_to(limit, sink);
    }

    fn begin(&mut self, found: &Found, sink: &mut impl Sink) {
        self.remember_commands(self.floor, found.start);
        self.keep_to(found.start, sink);
        let at = self.bytes_left();
        match found.wrap {
            Wrap::Bare => sink.put(at, &label(found.kind)),
            Wrap::Quoted(quote) => {
                let quote = quote.text();
                sink.put(at, &format!("{quote}{}{quote}", label(found.kind)));
            }
            Wrap::Zero => sink.put(at, "0"),
        }
        self.resume(found.start);
        match found.ending {
            Ending::At(end) => self.resume(end),
            ending => self.within = Some(Within { ending, kind: found.kind, slashes: 0 }),
        }
    }

    /// Passes over a secret, as far as the text is there. Says whether its end was found.
    fn pass(&mut self, sink: &mut impl Sink) -> bool {
        let Some(mut within) = self.within.take() else { return true };
        let ended = match within.ending {
            Ending::At(_) => true,
            Ending::Run(class) => self.pass_run(class),
            Ending::Quoted(quote) => self.pass_quoted(quote, &mut within),
            Ending::Elements(quote) => self.pass_elements(quote, &mut within, sink),
            Ending::Line(quote) => self.pass_line(quote, &mut within),
            Ending::Pem => self.pass_pem(&within, sink),
        };
        if !ended {
            self.left = self.at;
            self.within = Some(within);
            if self.finished {
                self.within = None;
                self.resume(self.view.units().len());
                return true;
            }
            return false;
        }
        self.resume(self.at);
        true
    }

    fn pass_run(&mut self, class: Class) -> bool {
        let rest = self.view.units().get(self.at..).unwrap_or_default();
        let run = class.run(rest);
        let ended = run < rest.len();
        self.at += run;
        ended
    }

    fn pass_quoted(&mut self, quote: Quote, within: &mut Within) -> bool {
        let ahead = if matches!(within.ending, Ending::Elements(_)) {
            ELEMENT_AHEAD + 2 * quote::LONGEST
        } else {
            quote::LONGEST
        };
        while let Some(rest) = self.view.units().get(self.at..)
            && let Some(unit) = rest.first()
            && (self.finished || rest.len() >= ahead)
        {
            if let Some(own) = quote.closes(rest, within.slashes) {
                // Its backslashes were passed over already.
                self.at -= own;
                return true;
            }
            if ends_line(&self.view, self.at, quote) {
                return true;
            }
            within.slashes = if *unit == b'\\' { within.slashes + 1 } else { 0 };
            self.at += 1;
        }
        false
    }

    fn pass_elements(&mut self, quote: Quote, within: &mut Within, sink: &mut impl Sink) -> bool {
        while self.pass_quoted(quote, within) {
            let rest = self.view.units().get(self.at..).unwrap_or_default();
            let Some(next) = next_element(rest, quote) else { return true };
            self.left = self.at;
            self.remember_commands(self.at, self.at + next);
            self.keep_to(self.at + next, sink);
            sink.put(self.bytes_left(), &label(within.kind));
            self.resume(self.at + next);
            within.slashes = 0;
        }
        false
    }

    fn pass_line(&mut self, quote: Option<Quote>, within: &mut Within) -> bool {
        while let Some(rest) = self.view.units().get(self.at..)
            && let Some(unit) = rest.first()
            && (self.finished || rest.len() >= quote::LONGEST)
        {
            if let Some(own) = quote.and_then(|quote| quote.closes(rest, within.slashes)) {
                // Its backslashes were passed over already.
                self.at -= own;
                return true;
            }
            if matches!(unit, b'\n' | b'\r') {
                return true;
            }
            within.slashes = if *unit == b'\\' { within.slashes + 1 } else { 0 };
            self.at += 1;
        }
        false
    }

    fn pass_pem(&mut self, within: &Within, sink: &mut impl Sink) -> bool {
        while let Some(rest) = self.view.units().get(self.at..)
            && (self.finished || rest.len() >= pem::AHEAD)
        {
            match pem::step(rest) {
                Step::Pass(0) => return false,
                Step::Pass(units) => self.at += units,
                Step::Gap(units) => {
                    self.left = self.at;
                    self.remember_commands(self.at, self.at + units);
                    self.keep_to(self.at + units, sink);
                    sink.put(self.bytes_left(), &label(within.kind));
                    self.resume(self.at + units);
                }
                Step::End(units) => {
                    self.at += units;
                    return true;
                }
            }
        }
        false
    }

    fn keep_to(&mut self, unit: usize, sink: &mut impl Sink) {
        if unit > self.left {
            sink.keep(self.bytes_left(), self.view.raw(self.left, unit));
            self.left = unit;
        }
    }

    /// Bytes of the text that have left.
    fn bytes_left(&self) -> usize {
        self.forgotten + self.view.place(self.left)
    }

    /// Notes which commands the line names whose next part is a secret: options behind the secret are
    /// theirs, too. Of the units `from..to`, which are kept.
    fn remember_commands(&mut self, from: usize, to: usize) {
        let seen = from.max(to.saturating_sub(BACK));
        let units = self.view.units().get(seen..to).unwrap_or_default();
        let (named, reaches) = shapes::commands(units);
        let beneath = if reaches && seen == from { self.commands } else { 0 };
        self.commands = named | beneath;
    }

    /// Goes on after a replacement.
    fn resume(&mut self, unit: usize) {
        self.at = unit;
        self.left = unit;
        self.floor = unit;
        self.beneath = Some(b']');
    }
}

/// The text that takes a secret's place.
pub(super) fn label(kind: &str) -> String {
    format!("[redacted:{kind}]")
}

/// Units from a closing quote to the content of the next element.
fn next_element(units: &[u8], quote: Quote) -> Option<usize> {
    let text = quote.text();
    let rest = units.strip_prefix(text.as_bytes())?;
    let rest = &rest[..rest.len().min(ELEMENT_AHEAD)];
    let gap = rest.iter().take_while(|u| u.is_ascii_whitespace() || **u == b',').count();
    rest[..gap].contains(&b',').then_some(())?;
    rest[gap..].starts_with(text.as_bytes()).then_some(gap + 2 * text.len())
}
