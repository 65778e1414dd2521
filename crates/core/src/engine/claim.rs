//! Claims: what a call sets aside before it runs, and takes more of while it streams.
//!
//! Under `expected` a claim is what calls of the session usually use; under `ceiling` it is the most
//! that the call can use, so that no limit is ever passed.

use super::Ticket;
use crate::call::{Call, ModelCall, Rates, Usage};
use crate::guard::Seat;
use crate::guard::ending::Limits;
use crate::ledger::{Reservation, Reserved, output_cost};
use crate::scope::Link;
use crate::trip::{GuardId, Measure, Trip, Verdict};
use crate::units::{NanoUsd, Tokens};

/// What a call is about to reserve, and the longest answer it may give where that is a ceiling.
pub(super) fn claim(chain: &[Link<'_>], call: &Call) -> (Reserved, Option<Tokens>) {
    let call = match call {
        Call::Tool(call) => {
            let cost = tool_price(chain, &call.name);
            return (Reserved { cost, ..Reserved::default() }, None);
        }
        Call::Model(call) => call,
    };
    let strict = |link: &Link<'_>| link.policy.budget.reservation == Reservation::Ceiling;
    let ceiling = chain.iter().any(strict);
    let mut rates = call.rates;
    if ceiling {
        // Some providers bill a prompt that goes into their cache higher than one that does not.
        rates.input = rates.input.max(rates.cache_write);
    }
    let (input, prompt) = prompt(chain, call, &rates, ceiling);
    let room = affordable(chain, input, prompt, &rates);
    let most = match ceiling {
        true => call.max_output.or_else(|| room.map(|room| share(chain, call, room))),
        false => None,
    };
    let output = most.unwrap_or_else(|| {
        let ledger = chain.last().map(|link| &link.state.ledger);
        let expected = ledger.map_or(Tokens(0), |l| l.expected_output(call.max_output));
        // An answer is not expected to be longer than what is left for it: the stream will tell.
        room.map_or(expected, |room| expected.min(room))
    });
    let output = output.max(Tokens(u64::from(!call.lookup)));
    let cost = prompt + output_cost(&rates, output);
    (Reserved { input, output, cost }, most.map(|_| output))
}

/// What a prompt will come to: tokens that limits count, and money. An estimate is corrected by
/// what the session's bills have shown, but not under `ceiling`, which must never be passed.
fn prompt(chain: &[Link<'_>], call: &ModelCall, rates: &Rates, ceiling: bool) -> (Tokens, NanoUsd) {
    let cost = rates.cost(&Usage { input: call.input, ..Usage::default() });
    let measured = chain.iter().rev().map(|link| &link.state.measured).find(|known| known.knows());
    match measured.filter(|_| call.estimated && !ceiling) {
        Some(known) => (known.tokens(call.input), known.cost(cost)),
        None => (call.input, cost),
    }
}

/// Tokens that a stream's ceiling is raised ahead of it, and the least that a call reserves.
const AHEAD: Tokens = Tokens(256);

/// What a call without a maximum of its own reserves under `ceiling`: the longest answer that its
/// model can give, but no more than a share of what is left, so that others fit beside it.
fn share(chain: &[Link<'_>], call: &ModelCall, room: Tokens) -> Tokens {
    let strict = chain.iter().filter(|l| l.policy.budget.reservation == Reservation::Ceiling);
    let share = strict.map(|link| link.policy.budget.ceiling_share).fold(1.0, f64::min);
    let part = Tokens((room.0 as f64 * share) as u64).max(AHEAD).min(room);
    call.longest_output.map_or(part, |longest| part.min(longest))
}

/// Takes another share for a stream that is about to reach its ceiling, where the request sets no
/// maximum itself and there is room.
pub(super) fn raise_ceiling(
    chain: &mut [Link<'_>],
    call: &Call,
    ticket: &mut Ticket,
    output: Tokens,
) {
    let (Some(ceiling), Call::Model(call)) = (ticket.ceiling, call) else { return };
    let wanted = output + AHEAD;
    if call.max_output.is_some() || wanted <= ceiling {
        return;
    }
    let Some(room) = affordable(chain, Tokens(0), NanoUsd(0), &call.rates) else { return };
    let more = share(chain, call, room).max(wanted - ceiling).min(room);
    if more == Tokens(0) {
        return;
    }
    let more =
        Reserved { output: more, cost: output_cost(&call.rates, more), ..Reserved::default() };
    hold(chain, ticket, more);
    ticket.ceiling = Some(ceiling + more.output);
}

/// The longest answer that every limit of the chain has room for; `None` if nothing limits it.
fn affordable(chain: &[Link<'_>], input: Tokens, prompt: NanoUsd, rates: &Rates) -> Option<Tokens> {
    let by_tokens = chain.iter().filter_map(|link| {
        let ledger = &link.state.ledger;
        let limit = Limits::of(link.policy, link.state).output()?;
        Some(limit - ledger.spent.output - ledger.reserved.output)
    });
    let by_total = chain.iter().filter_map(|link| {
        let (spent, held) = (&link.state.ledger.spent, &link.state.ledger.reserved);
        let limit = Limits::of(link.policy, link.state).total()?;
        Some(limit - spent.input - spent.output - held.input - held.output - input)
    });
    let by_money = chain.iter().filter_map(|link| {
        let limit = Limits::of(link.policy, link.state).cost()?;
        let left = limit - link.state.ledger.committed() - prompt;
        let tokens = u128::from(left.0) * 1_000_000 / u128::from(rates.output.0.max(1));
        Some(Tokens(u64::try_from(tokens).unwrap_or(u64::MAX)))
    });
    by_tokens.chain(by_total).chain(by_money).min()
}

/// What one call of a tool costs, by the innermost policy that has a price for it.
pub(super) fn tool_price(chain: &[Link<'_>], tool: &str) -> NanoUsd {
    let price = chain.iter().rev().find_map(|link| link.policy.budget.tool_price(tool));
    price.unwrap_or_default()
}

/// Takes more for an answer that has outgrown what was set aside for it.
pub(super) fn extend(chain: &mut [Link<'_>], call: &Call, ticket: &mut Ticket, output: Tokens) {
    let more = output - ticket.reserved.output;
    let cost = call.model().map_or(NanoUsd(0), |call| output_cost(&call.rates, more));
    hold(chain, ticket, Reserved { input: Tokens(0), output: more, cost });
}

/// Sets more aside for a call that runs.
fn hold(chain: &mut [Link<'_>], ticket: &mut Ticket, more: Reserved) {
    for link in chain.iter_mut() {
        link.state.ledger.reserve(more);
    }
    ticket.reserved.output += more.output;
    ticket.reserved.cost += more.cost;
}

/// An answer that is longer than its request allowed: under `ceiling` it may not go on.
pub(super) fn beyond_ceiling(seat: &Seat<'_>, held: Tokens) -> Option<Trip> {
    let budget = &seat.policy.budget;
    if budget.reservation != Reservation::Ceiling {
        return None;
    }
    let mut trip = seat.trip(GuardId::Budget, "reservation_exceeded", budget.action);
    // Nothing ends because an answer was long: the bill decides about the scope.
    trip.verdict = trip.verdict.min(Verdict::Block);
    trip.measured = Measure::Tokens(seat.reserved.output);
    trip.limit = Measure::Tokens(held);
    trip.because = format!("the answer went over the {held} that were set aside for it");
    Some(trip)
}
