//! *text loop*: the same thing said again and again, with no tool call to show for it.
//!
//! **Catches** chanting inside one answer while it streams (see [`crate::chant`]), and turns that
//! repeat an earlier answer instead of acting. **Lets pass** texts too short to compare, and
//! answers that come with tool calls: those are the loop guard's business. A person who keeps
//! asking may be told the same twice as often as a machine that only says "continue".
//! **Trips** in the stream, which is cut, or when the answer that completes the row is in.
//! **Recovers** with an answer that says something else, or that calls a tool.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::gauge::{Dial, Gauge};
use crate::guard::{End, Lesson, Seat};
use crate::settings::{BadSetting, in_range, settings};
use crate::text::Sketch;
use crate::trip::{Action, Ends, GuardId, Measure, Trip};

settings! {
    /// When repeated text is a loop.
    TextLoopSettings / RawTextLoop {
        /// Whether to look at all.
        enabled: bool = false,
        /// Answers without a tool call that say the same.
        max_repeated_answers: u32 = 5,
        /// What to do then, and when an answer becomes a chant.
        action: Action = Action::Warn,
        /// Which scope a stop ends.
        ends: Ends = Ends::Session,
    }
}

impl TextLoopSettings {
    pub(crate) fn validate(&self) -> Result<(), BadSetting> {
        let limit = self.max_repeated_answers.into();
        in_range("text_loop.max_repeated_answers", limit, 2..=1000)
    }
}

/// Answers that a new one is compared with: the last few, so that two or three answers said in
/// turn are found as well.
const COMPARED: usize = 3;
/// Things said to the model that are remembered.
const PROMPTS: usize = 4;

/// What was said lately.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Said {
    /// With the number of the call that each one answers.
    answers: VecDeque<(Sketch, u64)>,
    prompts: VecDeque<Sketch>,
    /// Answers in a row that repeat one of those before them.
    repeated: u32,
    /// Those among them that followed something new from a person.
    asked_for: u32,
    first: u64,
}

impl Said {
    fn learn(&mut self, answer: Sketch, prompt: Sketch, number: u64) {
        let new_words = prompt != Sketch::Tiny && !self.prompts.iter().any(|p| p.similar(prompt));
        if new_words {
            remember(&mut self.prompts, prompt, PROMPTS);
        }
        if let Some((_, before)) = self.answers.iter().find(|(said, _)| said.similar(answer)) {
            if self.repeated == 0 {
                self.first = *before;
            }
            self.repeated = self.repeated.saturating_add(1);
            self.asked_for = self.asked_for.saturating_add(u32::from(new_words));
        } else {
            self.repeated = 0;
            self.asked_for = 0;
        }
        remember(&mut self.answers, (answer, number), COMPARED);
    }

    fn act(&mut self) {
        self.answers.clear();
        self.repeated = 0;
        self.asked_for = 0;
    }

    /// Answers that say the same, the first one included; those a person asked for count half.
    fn weight(&self) -> u32 {
        1 + self.repeated - self.asked_for / 2
    }
}

fn remember<T>(seen: &mut VecDeque<T>, new: T, most: usize) {
    if seen.len() == most {
        seen.pop_front();
    }
    seen.push_back(new);
}

/// The trip for an answer that became a chant.
pub(crate) fn chanting(seat: &Seat<'_>, rounds: usize, words: &str) -> Option<Trip> {
    let settings = &seat.policy.text_loop;
    if !settings.enabled || !seat.innermost {
        return None;
    }
    let mut trip = seat.trip(GuardId::TextLoop, "chanting", settings.action);
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
        let settings = &lesson.policy.text_loop;
        let (true, true, Some(call)) = (settings.enabled, lesson.innermost, end.call.model())
        else {
            return;
        };
        let Some(answer) = end.outcome.answer else { return };
        if answer.calls.is_some() {
            lesson.scope.said.act();
        } else if let Some(text) = answer.text {
            let prompt = call.prompt.filter(|_| call.from_person);
            let prompt = prompt.map_or(Sketch::Tiny, |text| text.sketch());
            lesson.scope.said.learn(text.sketch(), prompt, end.ticket.number);
        }
    }

    fn verify(&self, seat: &Seat<'_>, end: &End<'_>) -> Option<Trip> {
        let settings = &seat.policy.text_loop;
        if !settings.enabled || !seat.innermost {
            return None;
        }
        end.outcome.answer?.text?;
        let said = &seat.scope.said;
        if said.repeated == 0 || said.weight() < settings.max_repeated_answers {
            return None;
        }
        let action = match settings.action {
            Action::Block => Action::Warn,
            other => other,
        };
        let mut trip = seat.trip(GuardId::TextLoop, "repeated_answer", action);
        trip.ends = settings.ends;
        trip.measured = Measure::Count(u64::from(said.repeated) + 1);
        trip.limit = Measure::Count(settings.max_repeated_answers.into());
        trip.evidence = vec![said.first, end.ticket.number];
        trip.because = format!(
            "{} answers say the same and none of them calls a tool (limit {})",
            said.repeated + 1,
            settings.max_repeated_answers
        );
        Some(trip)
    }

    fn gauges(&self, dial: &Dial<'_>) -> Vec<Gauge> {
        let settings = &dial.policy.text_loop;
        if !settings.enabled {
            return Vec::new();
        }
        let said = &dial.scope.said;
        let repeated = if said.repeated == 0 { 0 } else { said.weight() };
        let most = settings.max_repeated_answers.into();
        vec![Gauge::count(GuardId::TextLoop, "answers_that_repeat", repeated.into(), most)]
    }
}
