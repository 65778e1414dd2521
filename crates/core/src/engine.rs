//! The engine: a call's three moments, as three functions over a chain of scopes.
//!
//! ```text
//! admit     standing ▸ access ▸ every guard in every scope ▸ reserve in all of them, or in none
//! progress  standing ▸ correct the reservation ▸ limits and chants
//! settle    reservation becomes charge ▸ every guard learns ▸ every guard looks
//! ```
//!
//! Nothing here knows where states live or what time it is. The same states, policies, call and
//! `now` give the same decision, on every node, in a test, in a backtest and in the SDKs.

mod claim;
mod observe;

use serde::{Deserialize, Serialize};

use crate::call::{Call, Digest, Outcome, Status, ToolCall, Usage};
use crate::chant::Chant;
use crate::grant::{Cover, Grant};
use crate::guard::ending::{self, Moment};
use crate::guard::strikes::Blocked;
use crate::guard::{
    Below, DEEPEST, End, GUARDS, Guard, Lesson, Note, Seat, SoFar, access, loops, standing,
    strikes, swarm, text_loop,
};
use crate::ledger::{Learn, Reserved};
use crate::policy::Mode;
use crate::scope::{Link, ScopeKind};
use crate::trip::{Action, Ends, GuardId, Trip, Verdict};
use crate::twice::Mark;
use crate::units::{NanoUsd, Time, Tokens};
pub use observe::{Observed, observe};

use claim::{beyond_ceiling, claim, extend, raise_ceiling, tool_price};

/// The answer to "may it?".
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Decision {
    /// The strictest verdict of all scopes and guards.
    pub verdict: Verdict,
    /// Every guard that fired, strictest first.
    pub trips: Vec<Trip>,
    /// Whether telemetry told of the call before it was settled: it was booked then, and not again.
    pub told: bool,
}

impl Decision {
    /// The trip that decided, if one did.
    pub fn decisive(&self) -> Option<&Trip> {
        self.trips.first()
    }

    /// Whether the call may go ahead.
    pub fn allowed(&self) -> bool {
        self.verdict <= Verdict::Steer
    }
}

/// An admission: the answer, and for an admitted call the ticket to settle it with.
#[derive(Debug, Clone, PartialEq)]
pub struct Admission {
    /// The strictest verdict of all scopes and guards.
    pub verdict: Verdict,
    /// Every guard that fired, strictest first.
    pub trips: Vec<Trip>,
    /// What was reserved; `None` when the call may not run.
    pub ticket: Option<Ticket>,
}

impl Admission {
    /// The trip that decided, if one did.
    pub fn decisive(&self) -> Option<&Trip> {
        self.trips.first()
    }
}

/// A call in flight: what it has reserved in every scope of its chain. It is serialised if another
/// process settles the call than the one that admitted it; only the text so far is left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ticket {
    /// The call's number in its innermost scope, from 1.
    pub number: u64,
    /// When it was admitted.
    pub admitted: Time,
    pub(crate) reserved: Reserved,
    /// Since when the round of trial calls runs that this call is part of, if it is.
    pub(crate) trial: Option<Time>,
    /// The longest answer that may be, where the reservation is a ceiling.
    pub(crate) ceiling: Option<Tokens>,
    #[serde(skip)]
    pub(crate) chant: Option<Box<Chant>>,
    /// Whether all of the answer is there: see [`Ticket::paid`].
    #[serde(skip)]
    paid: bool,
    /// The grant that the call uses, with what is left of it, and the scope that holds it.
    granted: Option<Box<(Grant, usize)>>,
}

impl Ticket {
    /// All of the answer is there, and billed: no limit holds it back any more. The bill decides
    /// about the scope when the call is settled.
    pub fn paid(&mut self) {
        self.paid = true;
    }

    /// What the call has set aside, in each scope of its chain.
    pub fn reserved(&self) -> Reserved {
        self.reserved
    }

    /// The grant that the call uses, with what is left of it, and the scope that holds it.
    pub fn granted(&self) -> Option<(&Grant, usize)> {
        self.granted.as_deref().map(|(grant, depth)| (grant, *depth))
    }
}

/// What a stream has brought since the last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress<'a> {
    /// Output tokens so far, counted from the beginning of the answer.
    pub output: Tokens,
    /// Text that is new.
    pub text: &'a str,
}

/// Decides whether a call may run, and reserves what it may use: in every scope, or in none.
///
/// ```
/// use deadstop_core::*;
/// let policies = Preset::Strict.policies();
/// let mut agent = ScopeState::new(ScopeKind::Agent, Time(0));
/// let mut session = ScopeState::new(ScopeKind::Session, Time(0));
/// let mut chain = [
///     Link { name: "coder", state: &mut agent, policy: &policies.agent },
///     Link { name: "s1", state: &mut session, policy: &policies.session },
/// ];
/// let call = Call::Tool(ToolCall { name: "read_file".into(), ..ToolCall::default() });
/// let admission = admit(&mut chain, &call, Time(1));
/// assert_eq!(admission.verdict, Verdict::Allow);
/// let done = settle(&mut chain, &call, admission.ticket.unwrap(), &Outcome::default(), Time(2));
/// assert_eq!(done.verdict, Verdict::Allow);
///
/// session.kill("ada", "it deletes my mail", Time(3));
/// let mut chain = [
///     Link { name: "coder", state: &mut agent, policy: &policies.agent },
///     Link { name: "s1", state: &mut session, policy: &policies.session },
/// ];
/// assert_eq!(admit(&mut chain, &call, Time(4)).verdict, Verdict::Kill);
/// ```
pub fn admit(chain: &mut [Link<'_>], call: &Call, now: Time) -> Admission {
    decide_admission(chain, call, now, Word::NotAsked)
}

/// Decides about a call that a person has approved after [`admit`] answered [`Verdict::Ask`]: what
/// would be asked about is let pass with a warning, and everything stricter still holds.
///
/// ```
/// use deadstop_core::*;
/// let raw = r#"{ "access": { "ask": ["delete_*"] } }"#;
/// let policy = serde_json::from_str::<RawPolicy>(raw).unwrap().resolve().unwrap().session;
/// let mut session = ScopeState::new(ScopeKind::Session, Time(0));
/// let call = Call::Tool(ToolCall { name: "delete_asset".into(), ..ToolCall::default() });
/// let mut chain = [Link { name: "s1", state: &mut session, policy: &policy }];
/// let asked = admit(&mut chain, &call, Time(1));
/// assert_eq!((asked.verdict, asked.ticket), (Verdict::Ask, None));
/// let approved = admit_approved(&mut chain, &call, Time(2));
/// assert_eq!(approved.verdict, Verdict::Warn);
/// assert!(approved.ticket.is_some());
/// ```
pub fn admit_approved(chain: &mut [Link<'_>], call: &Call, now: Time) -> Admission {
    decide_admission(chain, call, now, Word::Approved)
}

/// Decides about a call whose harm a person has allowed once: what the harm guard would ask about or
/// refuse is reported. Everything else is decided as ever.
///
/// ```
/// use deadstop_core::{admit, admit_allowed, Call, Harm, Link, Preset, Reach, ScopeKind, ScopeState};
/// use deadstop_core::{Time, ToolCall, Verdict};
/// let policies = Preset::Strict.policies();
/// let mut state = ScopeState::new(ScopeKind::Session, Time(0));
/// let mut chain = [Link { name: "s", state: &mut state, policy: &policies.session }];
/// let harm = Harm { reach: Reach::Home, ..Harm::destroys("rm -rf", "~") };
/// let call = Call::Tool(ToolCall { harms: vec![harm], ..ToolCall::default() });
/// assert_eq!(admit(&mut chain, &call, Time(1)).verdict, Verdict::Block);
/// assert_eq!(admit_allowed(&mut chain, &call, Time(2)).verdict, Verdict::Warn);
/// ```
pub fn admit_allowed(chain: &mut [Link<'_>], call: &Call, now: Time) -> Admission {
    decide_admission(chain, call, now, Word::AllowedOnce)
}

/// A sub-agent begins in the innermost scope of a chain, before any call of its own: may it? Only
/// kills and limits on sub-agents decide. If it may not, its calls are refused as well.
///
/// ```
/// use deadstop_core::*;
/// let raw = r#"{ "swarm": { "max_agents": 1 } }"#;
/// let policy = serde_json::from_str::<RawPolicy>(raw).unwrap().resolve().unwrap().session;
/// let mut session = ScopeState::new(ScopeKind::Session, Time(0));
/// let mut start = |name: &str| {
///     let mut state = ScopeState::new(ScopeKind::Nested, Time(0));
///     let mut chain = [
///         Link { name: "s1", state: &mut session, policy: &policy },
///         Link { name, state: &mut state, policy: &policy },
///     ];
///     begin(&mut chain, Time(1)).verdict
/// };
/// assert_eq!((start("a"), start("a"), start("b")), (Verdict::Allow, Verdict::Allow, Verdict::Block));
/// ```
pub fn begin(chain: &mut [Link<'_>], now: Time) -> Decision {
    let call = Call::Tool(ToolCall::default());
    let (reserved, running) = (Reserved::default(), SoFar::default());
    let below = below(chain);
    let view = View { call: &call, reserved, grant: None, below, running, now };
    let mut trips = first(chain, &view, standing::admit);
    if trips.is_empty() {
        trips = first(chain, &view, |seat| swarm::Guard.admit(seat));
        // A start is at most refused: its first call is asked about, or ends the session.
        for trip in &mut trips {
            trip.verdict = trip.verdict.min(Verdict::Block);
            if trip.verdict == Verdict::Ask {
                trip.verdict = Verdict::Block;
            }
        }
    }
    sort(&mut trips);
    let decision = Decision { verdict: worst(&trips), trips, told: false };
    if let (true, Some(below)) = (decision.allowed(), &below) {
        for link in chain.iter_mut().filter(|link| link.state.kind == ScopeKind::Session) {
            swarm::begin(link.state, below, now);
        }
    }
    decision
}

/// The sub-agent of the innermost scope has ended: it no longer counts as at work.
pub fn end(chain: &mut [Link<'_>], now: Time) {
    let Some(below) = below(chain) else { return };
    for link in chain.iter_mut().filter(|link| link.state.kind == ScopeKind::Session) {
        swarm::end(link.state, &below, now);
    }
}

/// Decides about a call of a recorded run, which ran whatever would be said about it now: one that a
/// loop's ladder would refuse has its verdict and its ticket, too, so that the run goes on with what
/// the call really brought. A kill has none. What would be asked about is taken as approved, with
/// the verdict [`Verdict::Ask`].
pub fn admit_recorded(chain: &mut [Link<'_>], call: &Call, now: Time) -> Admission {
    decide_admission(chain, call, now, Word::Recorded)
}

/// Begins periods anew that are over.
fn roll(chain: &mut [Link<'_>], now: Time) {
    for link in chain {
        link.state.ledger.roll(link.policy.budget.per, now);
    }
}

/// What is known about a call apart from itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    NotAsked,
    /// A person has approved it.
    Approved,
    /// A person has allowed its harm once.
    AllowedOnce,
    /// It ran, in a recording.
    Recorded,
}

fn decide_admission(chain: &mut [Link<'_>], call: &Call, now: Time, word: Word) -> Admission {
    roll(chain, now);
    let (reserved, ceiling) = claim(chain, call);
    let cover = Cover::of(chain, call, now);
    let grant = cover.as_ref().map(|cover| &cover.grant);
    let below = below(chain);
    let view = View { call, reserved, grant, below, running: SoFar::default(), now };

    let stopped = first(chain, &view, standing::admit);
    if !stopped.is_empty() {
        return refuse(stopped);
    }
    let mut trips = first(chain, &view, access::admit);
    if worst(&trips) < Verdict::Block {
        view.each(chain, |seat| asked(seat, Moment::Admit, &mut trips, |guard| guard.admit(seat)));
    }
    match word {
        Word::Approved => unasked(&mut trips),
        Word::AllowedOnce => harmless(&mut trips),
        Word::NotAsked | Word::Recorded => {}
    }
    match worst(&trips) {
        Verdict::Allow | Verdict::Warn | Verdict::Steer => {}
        Verdict::Ask | Verdict::Block
            if word == Word::Recorded && refusing(&trips).all(|trip| ends_itself(chain, trip)) => {}
        // Nothing is refused yet, so nothing counts as a strike.
        Verdict::Ask => return refuse(trips),
        Verdict::Block | Verdict::Kill => return blocked(chain, &view, trips),
    }

    let approved = match word {
        Word::Approved | Word::AllowedOnce => true,
        // It ran although a person is asked: the person said yes.
        Word::Recorded => worst(&trips) == Verdict::Ask,
        Word::NotAsked => false,
    };
    let mut ticket = Ticket {
        number: 0,
        admitted: now,
        reserved,
        trial: None,
        ceiling,
        chant: None,
        paid: false,
        granted: None,
    };
    if let Some(cover) = &cover {
        let depth = cover.depth;
        view.each(chain, |seat| {
            if seat.depth == depth {
                let trip = seat.trip(GuardId::Destructive, "granted", Action::Warn);
                trips.push(cover.note(trip));
            }
        });
        ticket.granted = Some(Box::new((cover.grant.clone(), depth)));
    }
    close(chain, &trips, now);
    let last = chain.len().wrapping_sub(1);
    for (depth, link) in chain.iter_mut().enumerate() {
        let scope = &mut *link.state;
        scope.calls += 1;
        ticket.number = scope.calls;
        scope.ledger.in_flight += 1;
        scope.ledger.reserve(reserved);
        if let Some(cover) = cover.as_ref().filter(|cover| cover.depth == depth) {
            scope.grants.spend(cover.grant.id, cover.much);
        }
        let mut note = Note {
            policy: link.policy,
            call,
            ticket: &mut ticket,
            granted: cover.is_some(),
            approved,
            innermost: depth == last,
            below,
            now,
        };
        for guard in GUARDS {
            guard.commit(scope, &mut note);
        }
    }
    sort(&mut trips);
    Admission { verdict: worst(&trips), trips, ticket: Some(ticket) }
}

/// Looks at a call while it runs. Unless the decision is [`Decision::allowed`], cut it off now: a
/// block ends this call, a kill its scope as well.
///
/// The call must still be settled afterwards, as cancelled, with what it has used.
pub fn progress(
    chain: &mut [Link<'_>],
    call: &Call,
    ticket: &mut Ticket,
    progress: Progress<'_>,
    now: Time,
) -> Decision {
    roll(chain, now);
    raise_ceiling(chain, call, ticket, progress.output);
    look(chain, call, ticket, progress, now)
}

/// The same on what the call holds already: it takes no further share of a limit. For a node that
/// judges on a copy and asks the others for more.
#[cfg(feature = "share")]
pub fn progress_held(
    chain: &mut [Link<'_>],
    call: &Call,
    ticket: &mut Ticket,
    progress: Progress<'_>,
    now: Time,
) -> Decision {
    roll(chain, now);
    look(chain, call, ticket, progress, now)
}

/// Looks at a running call in a chain whose periods are those of `now`.
fn look(
    chain: &mut [Link<'_>],
    call: &Call,
    ticket: &mut Ticket,
    progress: Progress<'_>,
    now: Time,
) -> Decision {
    if progress.output > ticket.reserved.output {
        extend(chain, call, ticket, progress.output);
    }
    let running = SoFar { input: ticket.reserved.input, output: progress.output };
    let reserved = ticket.reserved;
    let view = View { call, reserved, grant: None, below: None, running, now };
    let stopped = first(chain, &view, standing::progress);
    if !stopped.is_empty() {
        return decide(chain, stopped, now);
    }
    let mut trips = Vec::new();
    if let Some(ceiling) = ticket.ceiling.filter(|ceiling| progress.output > *ceiling) {
        view.each(chain, |seat| {
            let trip = beyond_ceiling(seat, ceiling);
            trips.extend(trip.map(|trip| enforced(seat, trip, Moment::Progress)));
        });
    }
    if !ticket.paid {
        view.each(chain, |seat| {
            asked(seat, Moment::Progress, &mut trips, |guard| guard.progress(seat));
        });
    }
    let chants = chain.last().is_some_and(|link| link.policy.text_loop.enabled);
    if chants && !progress.text.is_empty() {
        let chant = ticket.chant.get_or_insert_default();
        if let Some(found) = chant.push(progress.text) {
            if let Some(innermost) = chain.last_mut() {
                text_loop::chanted(innermost.state);
            }
            view.each(chain, |seat| {
                let trip = text_loop::chanting(seat, found.rounds, &found.words);
                trips.extend(trip.map(|trip| enforced(seat, trip, Moment::Progress)));
            });
        }
    }
    unasked(&mut trips);
    decide(chain, trips, now)
}

/// The provider has counted the prompt of a running call: sets that aside in place of the estimate.
/// Call it before [`progress`], so that an answer that passes both token limits is told as both.
pub fn prompt_counted(chain: &mut [Link<'_>], call: &Call, ticket: &mut Ticket, input: Tokens) {
    let (Some(model), Reserved { input: estimated, .. }) = (call.model(), ticket.reserved) else {
        return;
    };
    if input == estimated {
        return;
    }
    let cost = |input| model.rates.cost(&Usage { input, ..Usage::default() });
    let counted = Reserved {
        input,
        cost: ticket.reserved.cost - cost(estimated) + cost(input),
        ..ticket.reserved
    };
    for link in chain.iter_mut() {
        link.state.ledger.release(ticket.reserved);
        link.state.ledger.reserve(counted);
    }
    ticket.reserved = counted;
}

/// Ends a call: what it reserved becomes what it used, and the guards learn from its result.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a ticket that was taken cannot be settled a second time"
)]
pub fn settle(
    chain: &mut [Link<'_>],
    call: &Call,
    ticket: Ticket,
    outcome: &Outcome,
    now: Time,
) -> Decision {
    let mark = Mark::of(call, outcome).filter(|_| outcome.status != Status::Cancelled);
    let told = mark.is_some_and(|mark| chain.last_mut().is_some_and(|l| l.state.twice.seen(mark)));
    match told {
        // Telemetry told of it before, and it was booked then.
        true => {
            let nothing = Outcome { status: Status::Cancelled, ..Outcome::default() };
            let decision = ended(chain, call, &ticket, (&nothing, NanoUsd(0)), now);
            Decision { told, ..decision }
        }
        false => {
            let cost = cost_of(chain, call, outcome);
            ended(chain, call, &ticket, (outcome, cost), now)
        }
    }
}

fn cost_of(chain: &[Link<'_>], call: &Call, outcome: &Outcome) -> NanoUsd {
    match call {
        Call::Model(call) => outcome.billed.unwrap_or_else(|| call.rates.cost(&outcome.usage)),
        Call::Tool(call) => tool_price(chain, &call.name),
    }
}

/// Books the end of a call with what it cost.
fn ended(
    chain: &mut [Link<'_>],
    call: &Call,
    ticket: &Ticket,
    (outcome, cost): (&Outcome, NanoUsd),
    now: Time,
) -> Decision {
    let last = chain.len().wrapping_sub(1);
    let learn = if outcome.status == Status::Ok { Learn::Yes } else { Learn::No };
    let tokens = outcome.usage.counted_input() + outcome.usage.output;
    let remembers =
        |tool: &ToolCall| chain.last().is_some_and(|link| link.state.memory.remembers(tool));
    let first_here = !call.tool().is_some_and(remembers);
    let place = Digest::of(chain.last().map_or("", |link| link.name).as_bytes());
    let end = End { call, ticket, outcome, cost, tokens, first_here, place, now };
    for (depth, link) in chain.iter_mut().enumerate() {
        let scope = &mut *link.state;
        scope.ledger.roll(link.policy.budget.per, now);
        scope.ledger.in_flight = scope.ledger.in_flight.saturating_sub(1);
        scope.ledger.release(ticket.reserved);
        scope.ledger.charge(&outcome.usage, cost, learn);
        let own = matches!(scope.kind, ScopeKind::Session | ScopeKind::Nested);
        if let (Call::Model(call), Learn::Yes, true) = (call, learn, own) {
            scope.measured.learn(call, &outcome.usage);
        }
        let innermost = depth == last;
        let mut lesson = Lesson { scope, policy: link.policy, innermost };
        for guard in GUARDS {
            guard.settle(&mut lesson, &end);
        }
    }
    let (reserved, running) = (Reserved::default(), SoFar::default());
    let view = View { call, reserved, grant: None, below: None, running, now };
    let mut trips = Vec::new();
    view.each(chain, |seat| {
        // What is dead already does not die again; its ledger was kept, that is all.
        if seat.scope.kill.is_none() {
            asked(seat, Moment::Settle, &mut trips, |guard| guard.verify(seat, &end));
        }
    });
    unasked(&mut trips);
    decide(chain, trips, now)
}

/// What all guards of a chain are shown of a call.
struct View<'a> {
    call: &'a Call,
    reserved: Reserved,
    grant: Option<&'a Grant>,
    below: Option<Below>,
    running: SoFar,
    now: Time,
}

impl View<'_> {
    fn each(&self, chain: &[Link<'_>], mut look: impl FnMut(&Seat<'_>)) {
        let Some(root) = chain.first() else { return };
        for (depth, link) in chain.iter().enumerate() {
            look(&Seat {
                name: link.name,
                scope: link.state,
                policy: link.policy,
                call: self.call,
                reserved: self.reserved,
                grant: self.grant,
                root: &root.state.ledger,
                depth,
                below: self.below,
                innermost: depth + 1 == chain.len(),
                running: self.running,
                now: self.now,
            });
        }
    }
}

/// The scopes inside a session that a call is made in.
fn below(chain: &[Link<'_>]) -> Option<Below> {
    let mut below = Below { depth: 0, places: [0; DEEPEST] };
    let mut path = Vec::new();
    for link in chain.iter().filter(|link| link.state.kind == ScopeKind::Nested) {
        path.extend_from_slice(link.name.as_bytes());
        path.push(0x1f);
        let at = usize::try_from(below.depth).unwrap_or(usize::MAX).min(DEEPEST - 1);
        below.places[at] = Digest::of(&path).short();
        below.depth += 1;
    }
    (below.depth > 0).then_some(below)
}

/// What one guard says, from the root down.
fn first(
    chain: &[Link<'_>],
    view: &View<'_>,
    guard: impl Fn(&Seat<'_>) -> Option<Trip>,
) -> Vec<Trip> {
    let mut trips = Vec::new();
    view.each(chain, |seat| {
        trips.extend(guard(seat).map(|trip| enforced(seat, trip, Moment::Admit)));
    });
    trips
}

/// What all guards say at one seat, in order.
fn asked(
    seat: &Seat<'_>,
    moment: Moment,
    trips: &mut Vec<Trip>,
    ask: impl Fn(&dyn Guard) -> Option<Trip>,
) {
    for guard in GUARDS {
        if let Some(trip) = ask(guard) {
            trips.push(enforced(seat, trip, moment));
        }
    }
}

/// Carries the mode out (in log-only everything but a person's own word becomes a warning) and puts
/// the evidence in order.
fn enforced(seat: &Seat<'_>, mut trip: Trip, moment: Moment) -> Trip {
    ending::keep_answer(seat, &mut trip, moment);
    let standing = matches!(trip.guard, GuardId::Killed | GuardId::Paused);
    if seat.policy.mode == Mode::LogOnly && !standing {
        trip.verdict = trip.verdict.min(Verdict::Warn);
    }
    // Calls that ran side by side may have ended in another order than they were admitted in.
    trip.evidence.sort_unstable();
    trip
}

/// Turns questions into warnings, for a call that runs already or that a person has approved.
fn unasked(trips: &mut [Trip]) {
    for trip in trips.iter_mut().filter(|trip| trip.verdict == Verdict::Ask) {
        trip.verdict = Verdict::Warn;
    }
}

/// A person has allowed the harm of this call.
fn harmless(trips: &mut [Trip]) {
    let held = |trip: &&mut Trip| {
        trip.guard == GuardId::Harm && matches!(trip.verdict, Verdict::Ask | Verdict::Block)
    };
    for trip in trips.iter_mut().filter(held) {
        trip.verdict = Verdict::Warn;
    }
}

fn worst(trips: &[Trip]) -> Verdict {
    trips.iter().map(|trip| trip.verdict).max().unwrap_or_default()
}

/// Strictest first; among equals the outermost scope and the guard asked first stay in front.
fn sort(trips: &mut [Trip]) {
    trips.sort_by_key(|trip| std::cmp::Reverse(trip.verdict));
}

fn refuse(mut trips: Vec<Trip>) -> Admission {
    sort(&mut trips);
    Admission { verdict: worst(&trips), trips, ticket: None }
}

fn refusing(trips: &[Trip]) -> impl Iterator<Item = &Trip> {
    trips.iter().filter(|trip| trip.verdict == Verdict::Block)
}

/// Whether a refusal is a step of a ladder that has an end: that counts its own refusals, and they
/// are no strikes.
fn ends_itself(chain: &[Link<'_>], trip: &Trip) -> bool {
    let policy = chain.get(trip.context.depth).map(|link| link.policy);
    trip.guard == GuardId::Loop
        && policy.is_some_and(|policy| policy.loops.ladder().has(Verdict::Kill))
}

/// A refusal by a guard. It counts as a strike if it is about what the agent wanted to do, and may
/// be the last one.
fn blocked(chain: &mut [Link<'_>], view: &View<'_>, mut trips: Vec<Trip>) -> Admission {
    // The refused repeat counts, also the one that ends the scope: gauges agree with the sentence.
    let last = chain.len().wrapping_sub(1);
    let stops = |trip: &&Trip| trip.guard == GuardId::Loop && trip.verdict >= Verdict::Block;
    for trip in trips.iter().filter(stops) {
        let depth = trip.context.depth;
        let place = if depth == last {
            loops::ChainPosition::Innermost
        } else {
            loops::ChainPosition::Above
        };
        if let (Some(link), Some(call)) = (chain.get_mut(depth), view.call.tool()) {
            loops::refused(link.state, call, place, view.now);
        }
    }
    if worst(&trips) == Verdict::Block {
        let strike = |trip: &Trip| trip.guard.strikes() && !ends_itself(chain, trip);
        if refusing(&trips).any(strike) {
            for link in chain.iter_mut() {
                link.state.refused(Blocked::of(view.call));
            }
            trips.extend(first(chain, view, strikes::blocked));
        }
    }
    let decision = decide(chain, trips, view.now);
    Admission { verdict: decision.verdict, trips: decision.trips, ticket: None }
}

/// Carries kills out on the scopes they end.
fn decide(chain: &mut [Link<'_>], mut trips: Vec<Trip>, now: Time) -> Decision {
    sort(&mut trips);
    close(chain, &trips, now);
    for trip in trips.iter().filter(|trip| trip.verdict == Verdict::Kill) {
        if trip.guard == GuardId::Killed {
            continue;
        }
        let at = ended_by(chain, trip);
        if let Some(link) = chain.get_mut(at) {
            link.state.end_by(trip, now);
        }
    }
    Decision { verdict: worst(&trips), trips, told: false }
}

/// Begins the last answer where a limit left one.
fn close(chain: &mut [Link<'_>], trips: &[Trip], now: Time) {
    for (depth, link) in chain.iter_mut().enumerate() {
        let mut left = trips.iter().filter(|trip| ending::leaves_answer(trip));
        if let Some(trip) = left.find(|trip| trip.context.depth == depth) {
            ending::close(link.state, trip, now);
        }
    }
}

/// Which scope a trip ends: the one it happened in, or the session or agent above it.
fn ended_by(chain: &[Link<'_>], trip: &Trip) -> usize {
    let wanted = match trip.ends {
        Ends::Scope => return trip.context.depth,
        Ends::Session => ScopeKind::Session,
        Ends::Agent => ScopeKind::Agent,
    };
    let found = chain.iter().position(|link| link.state.kind == wanted);
    // A trip in the agent's own scope that should end a session ends the one that made the call.
    found.unwrap_or(trip.context.depth)
}

#[cfg(test)]
mod tests;
