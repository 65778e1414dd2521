//! *text loop*: the same thing said again and again, with no tool call to show for it.
//!
//! **Catches** chanting inside one answer while it streams (see [`crate::chant`]), and turns that
//! repeat an earlier answer, in the same or nearly the same words, instead of acting. **Lets pass**
//! texts too short to compare, answers that come with tool calls (those are the loop guard's
//! business), and answers to something new: a classifier may say the same all day. A person who asks
//! the same question again counts a third of a machine that says "continue". Agents that write their
//! calls as text get results as texts: the same answer to the same result counts more.
//! **Trips** in the stream, which is cut, or when the answer that completes the row is in; such an
//! answer is over, so that `block_at` has nothing to refuse and only cuts chants.
//! **Recovers** with an answer that says something else, or that calls a tool.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::gauge::{Dial, Gauge};
use crate::guard::{End, Lesson, Seat};
use crate::ladder::{self, HIGHEST_RUNG, Ladder, Rung};
use crate::scope::ScopeState;
use crate::settings::{BadSetting, in_range, settings};
use crate::text::{Gist, Sketch};
use crate::trip::{Action, Ends, GuardId, Measure, Trip, Verdict};
use crate::units::{Millis, Time};

settings! {
    /// When repeated text is a loop.
    TextLoopSettings / RawTextLoop {
        /// Whether to look at all.
        enabled: bool = false,
        /// Answers without a tool call that say the same.
        max_repeated_answers: u32 = 5,
        /// What to do then, and when an answer becomes a chant. Counts where no rung is set; under
        /// a ladder a chant is cut, and the third one ends the session if `end_at` is set.
        action: Action = Action::Warn,
        /// Repeated answers from which on the model is told.
        steer_at: Rung = Rung::Off,
        /// Repeated answers that end the session.
        end_at: Rung = Rung::Off,
        /// Which scope a stop ends.
        ends: Ends = Ends::Session,
    }
}

impl TextLoopSettings {
    pub(crate) fn validate(&self) -> Result<(), BadSetting> {
        let limit = self.max_repeated_answers.into();
        in_range("text_loop.max_repeated_answers", limit, 2..=HIGHEST_RUNG.into())?;
        let rungs = [("steer_at", self.steer_at), ("block_at", Rung::Off), ("end_at", self.end_at)];
        ladder::validate("text_loop", rungs)
    }

    /// Takes the rungs away, so that threshold and action hold.
    pub fn single_rung(&mut self) {
        (self.steer_at, self.end_at) = (Rung::Off, Rung::Off);
    }

    pub(crate) fn ladder(&self) -> Ladder {
        let ladder = Ladder::new(self.steer_at, Rung::Off, self.end_at);
        if ladder.is_off() {
            Ladder::single(self.max_repeated_answers, self.action)
        } else {
            ladder
        }
    }

    /// What is done about the n-th chant.
    fn on_chant(&self, nth: u32) -> Action {
        let ladder = Ladder::new(self.steer_at, Rung::Off, self.end_at);
        match self.end_at {
            _ if ladder.is_off() => self.action,
            Rung::At(_) if nth >= MOST_CHANTS => Action::Terminate,
            _ => Action::Block,
        }
    }
}

impl RawTextLoop {
    /// Whether a limit or an action was typed and no rung: then those two are all there is.
    pub(crate) fn is_single_rung(&self) -> bool {
        let rung = self.steer_at.or(self.end_at);
        (self.max_repeated_answers.is_some() || self.action.is_some()) && rung.is_none()
    }
}

/// Answers that a new one is compared with: the last few, so that two or three answers said in
/// turn are found as well.
const COMPARED: usize = 3;
/// Things said to the model that are remembered.
const PROMPTS: usize = 4;

/// Chants that are cut, the last one with the end of the session.
const MOST_CHANTS: u32 = 3;
/// What a repeated answer counts, in sixths.
const WHOLE: u32 = 6;
/// What it counts when a person asked the same again.
const ASKED_AGAIN: u32 = 2;
/// What it counts when it answers a result that came before: the same call, with the same result. Six of those end a
/// session under `strict`, as the loop guard does with calls that it can see.
const SAME_RESULT: u32 = 10;
/// A person needs this long at least to ask again; what asks sooner is a program.
const PERSON_TAKES: Millis = Millis(3000);
/// Words in common, in percent, of two answers that say the same.
const SAME_WORDS: u32 = 60;

/// What was said lately.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Said {
    answers: VecDeque<Answered>,
    prompts: VecDeque<Sketch>,
    /// Answers in a row that repeat one of those before them.
    repeated: u32,
    /// What they count, in sixths.
    sixths: u32,
    first: u64,
    /// Answers that became a chant.
    chants: u32,
    /// When the last answer was in.
    ended: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Answered {
    sketch: Sketch,
    gist: Gist,
    /// The number of the call that it answers.
    number: u64,
}

impl Answered {
    fn repeats(&self, other: &Answered) -> bool {
        self.sketch.similar(other.sketch)
            || (self.sketch != Sketch::Tiny && self.gist.near(other.gist, SAME_WORDS))
    }
}

impl Said {
    fn learn(&mut self, answer: Answered, prompt: Sketch, by: Speaker) {
        let from_user = by != Speaker::Tool;
        let known = prompt == Sketch::Tiny || self.prompts.iter().any(|p| p.similar(prompt));
        if !known {
            remember(&mut self.prompts, prompt, PROMPTS);
        }
        if let Some(before) = self.answers.iter().find(|said| said.repeats(&answer)) {
            if self.repeated == 0 {
                self.first = before.number;
            }
            self.repeated = self.repeated.saturating_add(1);
            self.sixths = self.sixths.saturating_add(match by {
                _ if !known && from_user => 0,
                _ if !known => WHOLE / 2,
                Speaker::Person if prompt != Sketch::Tiny => ASKED_AGAIN,
                Speaker::Tool if prompt != Sketch::Tiny => SAME_RESULT,
                _ => WHOLE,
            });
        } else {
            self.repeated = 0;
            self.sixths = 0;
        }
        remember(&mut self.answers, answer, COMPARED);
    }

    /// Begins anew: the agent acts, or its context was compacted.
    pub(crate) fn act(&mut self) {
        self.answers.clear();
        self.repeated = 0;
        self.sixths = 0;
    }

    /// Answers that say the same, the first one included.
    fn weight(&self) -> u32 {
        if self.repeated == 0 { 0 } else { 1 + self.sixths / WHOLE }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speaker {
    /// A user who takes the time of a person.
    Person,
    /// A user who does not.
    Program,
    /// No user at all: results of tools, or nothing.
    Tool,
}

fn remember<T>(seen: &mut VecDeque<T>, new: T, most: usize) {
    if seen.len() == most {
        seen.pop_front();
    }
    seen.push_back(new);
}

/// An answer has become a chant.
pub(crate) fn chanted(scope: &mut ScopeState) {
    scope.said.chants = scope.said.chants.saturating_add(1);
}

/// The trip for an answer that became a chant.
pub(crate) fn chanting(seat: &Seat<'_>, rounds: usize, words: &str) -> Option<Trip> {
    let settings = &seat.policy.text_loop;
    if !settings.enabled || !seat.innermost {
        return None;
    }
    let mut trip =
        seat.trip(GuardId::TextLoop, "chanting", settings.on_chant(seat.scope.said.chants));
    trip.ends = settings.ends;
    trip.measured = Measure::Count(rounds as u64);
    trip.because = match words {
        "" => format!("the answer says the same {rounds} times over"),
        words => format!("the answer says the same {rounds} times over: \"{words}\""),
    };
    Some(trip)
}

pub(crate) struct Guard;

impl super::Guard for Guard {
    fn settle(&self, lesson: &mut Lesson<'_>, end: &End<'_>) {
        if !lesson.policy.text_loop.enabled || !lesson.innermost {
            return;
        }
        let Some(call) = end.call.model() else {
            lesson.scope.said.act();
            return;
        };
        let Some(answer) = end.outcome.answer else { return };
        if answer.calls.is_some() {
            lesson.scope.said.act();
        } else if let Some(text) = answer.text.filter(|_| !call.opening) {
            let said = &mut lesson.scope.said;
            let pause = end.ticket.admitted.since(said.ended);
            let by = match call.from_person {
                true if pause >= PERSON_TAKES => Speaker::Person,
                true => Speaker::Program,
                false => Speaker::Tool,
            };
            let prompt = call.prompt.map_or(Sketch::Tiny, |text| text.sketch());
            let (sketch, gist) = (text.sketch(), text.gist());
            said.learn(Answered { sketch, gist, number: end.ticket.number }, prompt, by);
        }
        lesson.scope.said.ended = end.now;
    }

    fn verify(&self, seat: &Seat<'_>, end: &End<'_>) -> Option<Trip> {
        let settings = &seat.policy.text_loop;
        if !settings.enabled || !seat.innermost {
            return None;
        }
        let answer = end.outcome.answer?;
        let opening = end.call.model().is_some_and(|call| call.opening);
        let (Some(_), None, false) = (answer.text, answer.calls, opening) else { return None };
        let said = &seat.scope.said;
        let step = settings.ladder().step_after(said.weight(), 1)?;
        let (count, weight) = (said.repeated + 1, said.weight());
        let mut trip = seat.trip(GuardId::TextLoop, "repeated_answer", Action::Warn);
        trip.verdict = step.verdict;
        trip.ends = settings.ends;
        trip.measured = Measure::Count(count.into());
        trip.limit = Measure::Count(step.at.into());
        trip.evidence = vec![said.first, end.ticket.number];
        trip.because = if weight > count {
            format!(
                "{count} answers say the same, to results that are the same: they count as {weight} \
                 (limit {})",
                step.at
            )
        } else {
            format!(
                "{count} answers say the same and none of them calls a tool (limit {})",
                step.at
            )
        };
        trip.streak = Some(said.first);
        trip.advice = (step.verdict >= Verdict::Steer).then(|| {
            format!(
                "Your last {count} answers say the same, and none of them called a tool. Do \
                 something different: use a tool, ask the user a question, or finish."
            )
        });
        Some(trip)
    }

    fn gauges(&self, dial: &Dial<'_>) -> Vec<Gauge> {
        let settings = &dial.policy.text_loop;
        if !settings.enabled {
            return Vec::new();
        }
        let repeated = dial.scope.said.weight();
        let Some(most) = settings.ladder().limit(repeated, 1) else { return Vec::new() };
        vec![Gauge::count(GuardId::TextLoop, "answers_that_repeat", repeated.into(), most.into())]
    }
}
