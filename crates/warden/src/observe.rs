//! Calls that telemetry tells of: they have run, so what the guards decide holds for the next call, at
//! whatever door that is made.

use std::sync::Arc;

use deadstop_core::{Call, Decision, Digest, Outcome, Time, Trip, Verdict};
use deadstop_redact::excerpt::Excerpt;

use super::backend::Pending;
use super::calls::Numbered;
use super::step::Judged;
use super::{Chain, Said, Warden};

/// What telemetry tells of one call.
pub struct Told {
    /// The telemetry's own id for it: told twice, it counts once.
    pub id: Digest,
    /// The call.
    pub call: Call,
    /// How it ended.
    pub outcome: Outcome,
    /// The model's id for it, if it is a tool call and has one.
    pub call_id: Option<String>,
    /// When it began, as far as that can be believed.
    pub began: Time,
    /// What was asked, for people.
    pub request: Excerpt,
    /// What was answered.
    pub response: Excerpt,
}

/// What became of a call that telemetry told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It was booked, with what the guards say about it.
    Booked(Verdict),
    /// It was known already, from a door or from the same telemetry.
    Known,
    /// The cluster is slow or unreachable: it is booked when that answers.
    Later,
}

impl Warden {
    /// Takes in a call that telemetry tells of.
    pub async fn observe(self: &Arc<Warden>, chain: &Chain, told: Told) -> Taken {
        let Told { id, call, outcome, call_id, began, request, response } = told;
        let number = self.number();
        let (seen, ended) = (call.clone(), outcome.clone());
        let job = move |step: &mut super::step::Step<'_, '_, '_>| step.observe(&seen, &ended, id);
        let pending = self.backend.run_durably(chain, None, job);
        let (warden, chain) = (Arc::clone(self), chain.clone());
        let book = move |judged: Judged<Option<deadstop_core::Observed>>| {
            warden.carry_kills(&chain, judged.killed);
            let Some(observed) = judged.value else { return Taken::Known };
            let mut trips = observed.before;
            trips.extend(observed.after);
            trips.sort_by_key(|trip| std::cmp::Reverse(trip.verdict));
            trips.iter_mut().for_each(mark);
            let verdict = trips.first().map_or(Verdict::Allow, |trip| trip.verdict);
            let decision = Decision { verdict, trips, ..Decision::default() };
            let numbered = Numbered::observed(number, observed.number, began).known_as(call_id);
            let said = Said { request, response };
            warden.book(&chain, &call, numbered, &outcome, &decision, said);
            warden.rooms.settled();
            Taken::Booked(verdict)
        };
        match pending {
            Pending::Now(judged) => book(judged),
            Pending::Later(done) => {
                let booked = tokio::spawn(async move { done.await.map_or(Taken::Later, book) });
                let booked = tokio::time::timeout(self.patience(), booked).await;
                booked.map_or(Taken::Later, |booked| booked.unwrap_or(Taken::Later))
            }
        }
    }
}

/// The end of the sentence of a trip that telemetry gave rise to.
pub const OBSERVED: &str = "; observed through telemetry, after the call had run";

/// People must not take it for a call that was stopped before it ran.
fn mark(trip: &mut Trip) {
    trip.because.push_str(OBSERVED);
}
