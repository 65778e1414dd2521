//! Calls of a chat stream as OpenAI's own clients join them.
//!
//! They know no ids: a choice and a call are the element at a place of a list, a place behind the end
//! appends, and all parts of a name and of arguments stand one behind the other. Where ours is another reading
//! of a spoilt stream, what comes of theirs is judged too, if it can be run.

use serde::de::IgnoredAny;

use super::Sink;
use super::lenient::Arguments;

/// Choices, and calls of a choice, that are followed.
const MOST: usize = 256;

/// The calls of all choices.
#[derive(Debug, Clone, Default)]
pub(super) struct Joined(Vec<Calls>);

/// The calls of one choice.
#[derive(Debug, Clone, Default)]
struct Calls {
    list: Vec<Call>,
    /// Calls that clients took for complete before they had arguments, by id and name. Most get theirs later, and
    /// are judged with them; the name of the others may grow.
    early: Vec<(String, String)>,
    /// The one call of the older API.
    lone: Call,
    /// The place at which the last part of a call stood. Clients take that call for complete when a part
    /// of another one comes.
    current: Option<i64>,
    /// A finish reason has come: from then on clients take each call for complete with its next part.
    finished: bool,
}

#[derive(Debug, Clone, Default)]
struct Call {
    id: String,
    name: String,
    arguments: String,
    /// The arguments began as an object: clients add no text to it.
    object: bool,
    /// How long name and arguments were when they were told.
    told: (usize, usize),
}

/// A part of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    /// Its place among the calls; `None` for the one call of the older API.
    pub(super) place: Option<i64>,
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    /// A text, or an object that is no text.
    pub(super) arguments: Option<&'a str>,
}

impl Joined {
    /// Adds a part; gives the bytes that it took.
    pub(super) fn add(&mut self, choice: i64, part: Part<'_>) -> usize {
        let Some(calls) = at(&mut self.0, choice) else { return 0 };
        let call = match part.place {
            Some(place) => at(&mut calls.list, place),
            None => Some(&mut calls.lone),
        };
        let Some(call) = call else { return 0 };
        call.id.push_str(if call.id.is_empty() { part.id } else { "" });
        call.name.push_str(part.name);
        match part.arguments {
            Some(text) if !call.object => call.arguments.push_str(text),
            Some(_) => {}
            None => call.object |= call.arguments.is_empty(),
        }
        part.name.len() + part.arguments.map_or(0, str::len)
    }

    /// An event has brought parts at these places. Whatever is told among `others` is not told again.
    pub(super) fn came(
        &mut self,
        choice: i64,
        places: &[i64],
        others: Others<'_>,
        sink: &mut Sink<'_>,
    ) {
        let Some(calls) = at(&mut self.0, choice) else { return };
        for place in places {
            let before = calls.current.replace(*place);
            let before = before.filter(|before| before != place || calls.finished);
            let Some(call) = before.and_then(|before| known(&mut calls.list, before)) else {
                continue;
            };
            if call.arguments.is_empty() && !call.object {
                let early = (call.id.clone(), call.name.clone());
                if calls.early.len() < MOST && !calls.early.contains(&early) {
                    calls.early.push(early);
                }
            } else {
                call.tell(others, sink);
            }
        }
    }

    /// All calls of a choice, or of all, are complete.
    pub(super) fn tell(&mut self, choice: Option<i64>, others: Others<'_>, sink: &mut Sink<'_>) {
        let all = match choice {
            Some(choice) => at(&mut self.0, choice).map_or(&mut [][..], std::slice::from_mut),
            None => self.0.as_mut_slice(),
        };
        for calls in all {
            calls.finished = true;
            for call in calls.list.iter_mut().chain([&mut calls.lone]) {
                call.tell(others, sink);
            }
            for (id, name) in std::mem::take(&mut calls.early) {
                if !name.is_empty() && !others(&name, None) {
                    sink.call(id, name, Arguments::parse(""));
                }
            }
        }
    }

    /// Nothing continues the calls of this choice.
    pub(super) fn forget(&mut self, choice: i64) {
        if let Some(calls) = known(&mut self.0, choice) {
            *calls = Calls::default();
        }
    }
}

/// Whether a call of this name, and with these arguments, is told anyway.
pub(super) type Others<'a> = &'a dyn Fn(&str, Option<&str>) -> bool;

impl Call {
    fn tell(&mut self, others: Others<'_>, sink: &mut Sink<'_>) {
        let now = (self.name.len(), self.arguments.len());
        if self.name.is_empty() || self.object || std::mem::replace(&mut self.told, now) == now {
            return;
        }
        let arguments = self.arguments.trim();
        // Without arguments yet, only its name can be judged.
        let wanted = Some(arguments).filter(|arguments| !arguments.is_empty());
        let runs = wanted.is_none_or(|text| {
            serde_json::from_str::<IgnoredAny>(text).is_ok()
                || crate::plain::read(text.as_bytes()).is_ok()
        });
        if runs && !others(&self.name, wanted) {
            sink.call(self.id.clone(), self.name.clone(), Arguments::parse(arguments));
        }
    }
}

/// The element at a place, which counts from the end if it is negative.
fn known<T>(list: &mut [T], place: i64) -> Option<&mut T> {
    let length = i64::try_from(list.len()).ok()?;
    let at = if place < 0 { place.checked_add(length)? } else { place };
    list.get_mut(usize::try_from(at).ok()?)
}

/// The element at a place, or a new one at the end.
fn at<T: Default>(list: &mut Vec<T>, place: i64) -> Option<&mut T> {
    if known(list, place).is_some() {
        return known(list, place);
    }
    if list.len() >= MOST {
        return None;
    }
    list.push(T::default());
    list.last_mut()
}
