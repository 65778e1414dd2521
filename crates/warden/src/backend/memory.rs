//! State in the memory of one node: a step runs under the locks of its chain, root first.

use deadstop_core::{Link, Time, settle};
use deadstop_fleet::Transaction;
use smallvec::SmallVec;

use crate::Chain;
use crate::step::{self, Judged, Step};

/// Runs a step under the chain's locks.
pub(super) fn step<T>(
    chain: &Chain,
    reported_as: Option<&str>,
    now: Time,
    job: impl FnOnce(&mut Step<'_, '_, '_>) -> T,
) -> Judged<T> {
    let (policies, innermost) = (chain.policies(), chain.innermost());
    // Chains are short: none of this needs the allocator.
    let mut states: SmallVec<[_; 6]> =
        chain.scopes().iter().map(|scope| scope.state.lock()).collect();
    let mut conversation = innermost.conversation.lock();
    let mut calls = reported_as.map(|id| (id, innermost.reported.lock()));
    let mut reported = calls.as_mut().and_then(|(id, calls)| calls.take(id));
    let before = innermost.number();
    let (mut number, mut entry) = (before, None);
    let mut links: SmallVec<[Link<'_>; 6]> = states
        .iter_mut()
        .zip(chain.scopes())
        .map(|(state, scope)| Link { name: scope.name(), policy: policies.of(scope.kind()), state })
        .collect();
    let mut transaction = Transaction::local(&mut links, now, &mut number, &mut entry);
    let (judged, traces) =
        step::judge(&chain.project, &mut transaction, &mut conversation, &mut reported, job);
    if let (Some((id, calls)), Some(call)) = (&mut calls, reported)
        && let Some(forgotten) = calls.put(id, call)
        && let Some(ticket) = forgotten.ticket
    {
        settle(&mut links, &forgotten.call, ticket, &step::cancelled(), now);
    }
    drop((links, conversation, calls));
    for (depth, _) in &judged.killed {
        chain.scopes()[*depth].note_kill();
    }
    for (scope, state) in chain.scopes().iter().zip(&states) {
        scope.follow(state);
    }
    if number != before {
        innermost.renumber(number);
    }
    drop(states);
    if !traces.counts.is_empty() {
        for scope in [chain.agent(), chain.session()].into_iter().flatten() {
            scope.tally.lock().add(&traces.counts, scope.kind());
        }
    }
    judged
}
