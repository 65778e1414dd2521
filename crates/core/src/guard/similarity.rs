//! *similarity*: the score of the kill switch, over what is new in each request.
//!
//! Each model request leaves an entry in a window: a sketch of what was new in its prompt, of the
//! model's text, and the digest of the tool calls it asked for. When an answer is in, it is held
//! against the entries before it:
//!
//! `score = similar prompts × 1.0 + similar responses × 2.0 + repeated tool calls × 1.5`
//!
//! **Catches** agents that ask and are told the same over and over, also when numbers, ids and
//! times change. **Lets pass** long histories (only what is new counts), the list of tools that is
//! offered with every request, and short texts: see [`crate::text`]. **Trips** when the score
//! *exceeds* the threshold; the agent is then inactive until an operator switches it on, or only
//! the session ends, where the policy says so. **Recovers** with an empty window.
//!
//! **Where**: `[agent.similarity]`, which is what the agent's kill switch sets, has one window for
//! all requests of the agent, in whichever session they were made. `[similarity]` has a window for
//! each session, of the requests that are made in its innermost scope. Openings of conversations
//! without a name are compared in the agent's window only. There a person's tiny opening ("hi") leaves
//! no entry, so that many users who say "hi" to one agent do not add up.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::call::{Digest, ModelCall};
use crate::gauge::{Dial, Gauge};
use crate::guard::{End, Lesson, Seat};
use crate::scope::{ScopeKind, ScopeState};
use crate::settings::{BadSetting, in_range, settings};
use crate::text::{Sketch, TextFacts};
use crate::trip::{Action, Ends, GuardId, Measure, Signal, Trip};

settings! {
    /// The similarity kill switch.
    SimilaritySettings / RawSimilarity {
        /// Whether to look at all.
        enabled: bool = false,
        /// Requests to look back on.
        window_size: u32 = 20,
        /// The score that must be exceeded.
        threshold: f64 = 10.0,
        /// What a similar prompt counts.
        prompt_weight: f64 = 1.0,
        /// What a similar response counts.
        response_weight: f64 = 2.0,
        /// What a repeated tool call counts.
        tool_call_weight: f64 = 1.5,
        /// What to do when the score exceeds the threshold.
        action: Action = Action::Terminate,
        /// Which scope a stop ends.
        ends: Ends = Ends::Agent,
    }
}

impl SimilaritySettings {
    /// Tight budget control: window 10, threshold 5.0.
    pub fn tight() -> Self {
        SimilaritySettings { enabled: true, window_size: 10, threshold: 5.0, ..Self::default() }
    }

    /// The page's default: window 20, threshold 10.0.
    pub fn balanced() -> Self {
        SimilaritySettings { enabled: true, ..Self::default() }
    }

    /// Tolerant: window 50, threshold 20.0.
    pub fn tolerant() -> Self {
        SimilaritySettings { enabled: true, window_size: 50, threshold: 20.0, ..Self::default() }
    }

    /// The ready-made ones, the tightest first.
    pub fn presets() -> [(&'static str, SimilaritySettings); 3] {
        [("tight", Self::tight()), ("balanced", Self::balanced()), ("tolerant", Self::tolerant())]
    }

    /// The parts of the score.
    fn signals(&self, counts: &Counts) -> [Signal; 3] {
        [
            ("similar_prompts", counts.prompts, self.prompt_weight),
            ("similar_responses", counts.responses, self.response_weight),
            ("repeated_tool_calls", counts.tool_calls, self.tool_call_weight),
        ]
        .map(|(name, count, weight)| Signal { name: name.to_owned(), count, weight })
    }

    pub(crate) fn validate(&self) -> Result<(), BadSetting> {
        in_range("similarity.window_size", self.window_size.into(), 1..=1000)?;
        for (field, value) in [
            ("threshold", self.threshold),
            ("prompt_weight", self.prompt_weight),
            ("response_weight", self.response_weight),
            ("tool_call_weight", self.tool_call_weight),
        ] {
            let least = if field == "threshold" { f64::MIN_POSITIVE } else { 0.0 };
            if !(value.is_finite() && value >= least) {
                return Err(BadSetting::new(
                    &format!("similarity.{field}"),
                    format!("{value} cannot be used in a score"),
                    "write a positive number, such as 10.0",
                ));
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Entry {
    number: u64,
    /// The scope that made the call; 0 in that scope's own window.
    place: u32,
    prompt: Sketch,
    response: Sketch,
    calls: Option<Digest>,
}

/// The last requests, oldest first; the one that was judged last is at the end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Window(VecDeque<Entry>);

#[derive(Debug, Default, PartialEq)]
struct Counts {
    prompts: u32,
    responses: u32,
    tool_calls: u32,
    /// The similar calls of the scope that made the newest one.
    numbers: Vec<u64>,
}

impl Window {
    fn push(&mut self, entry: Entry, size: usize) {
        // The newest entry is judged against a full window before it.
        while self.0.len() > size {
            self.0.pop_front();
        }
        self.0.push_back(entry);
    }

    /// How the newest entry compares with those before it.
    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        let mut before = self.0.iter();
        let Some(newest) = before.next_back() else { return counts };
        for entry in before {
            let prompt = entry.prompt.similar(newest.prompt);
            let response = entry.response.similar(newest.response);
            let calls = entry.calls.is_some() && entry.calls == newest.calls;
            counts.prompts += u32::from(prompt);
            counts.responses += u32::from(response);
            counts.tool_calls += u32::from(calls);
            if (prompt || response || calls) && entry.place == newest.place {
                counts.numbers.push(entry.number);
            }
        }
        counts
    }
}

fn score(signals: &[Signal]) -> f64 {
    signals.iter().map(|signal| f64::from(signal.count) * signal.weight).sum()
}

/// Whether requests are looked at in a scope: where they are made, and in the agent's.
fn looks(settings: &SimilaritySettings, scope: &ScopeState, innermost: bool) -> bool {
    settings.enabled && (innermost || scope.kind == ScopeKind::Agent)
}

/// Whether a request leaves no entry in the window of an agent: a person's "hi" that opens a
/// conversation.
fn left_out(call: &ModelCall, end: &End<'_>, innermost: bool) -> bool {
    let tiny = call.prompt.is_none_or(|text| text.dynamic() == Sketch::Tiny);
    let opens = call.opening || end.ticket.number == 1;
    !innermost && call.from_person && tiny && opens
}

pub(crate) struct Guard;

impl super::Guard for Guard {
    fn settle(&self, lesson: &mut Lesson<'_>, end: &End<'_>) {
        let settings = &lesson.policy.similarity;
        let Some(call) = end.call.model() else { return };
        if !looks(settings, lesson.scope, lesson.innermost) || left_out(call, end, lesson.innermost)
        {
            return;
        }
        let answer = end.outcome.answer.unwrap_or_default();
        let sketch = |text: Option<TextFacts>| match text {
            Some(text) if !(lesson.innermost && call.opening) => text.dynamic(),
            _ => Sketch::Tiny,
        };
        let entry = Entry {
            number: end.ticket.number,
            place: if lesson.innermost { 0 } else { end.place.short() },
            prompt: sketch(call.prompt),
            response: sketch(answer.text),
            calls: answer.calls,
        };
        lesson.scope.window.push(entry, settings.window_size as usize);
    }

    fn verify(&self, seat: &Seat<'_>, end: &End<'_>) -> Option<Trip> {
        let settings = &seat.policy.similarity;
        let call = seat.call.model()?;
        if !looks(settings, seat.scope, seat.innermost) || left_out(call, end, seat.innermost) {
            return None;
        }
        let counts = seat.scope.window.counts();
        let signals = settings.signals(&counts);
        let score = score(&signals);
        if score <= settings.threshold {
            return None;
        }
        let mut trip = seat.trip(GuardId::Similarity, "kill_switch", settings.action);
        trip.ends = settings.ends;
        trip.measured = Measure::Score(score);
        trip.limit = Measure::Score(settings.threshold);
        trip.because = format!(
            "loop score {score:.1} of {:.1} in the last {} requests: {} similar prompts, {} similar \
             responses, {} repeated tool calls",
            settings.threshold,
            settings.window_size,
            counts.prompts,
            counts.responses,
            counts.tool_calls
        );
        trip.evidence = counts.numbers;
        trip.signals = signals.into();
        trip.window = Some(settings.window_size);
        Some(trip)
    }

    fn gauges(&self, dial: &Dial<'_>) -> Vec<Gauge> {
        let settings = &dial.policy.similarity;
        if !settings.enabled {
            return Vec::new();
        }
        let signals = settings.signals(&dial.scope.window.counts());
        let score = Measure::Score(score(&signals));
        let limit = Measure::Score(settings.threshold);
        let gauge = Gauge::new(GuardId::Similarity, "score", score, limit);
        vec![Gauge { signals: signals.into(), ..gauge }]
    }
}
