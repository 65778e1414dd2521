//! The warden of a node among many: the same decisions, made on copies that are swapped in.
//!
//! What one node keeps in memory between two requests of a session (which messages it knows, which
//! tool calls wait for their results, which tags it has) goes with the session's record, since the
//! next request may come to any node.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadstop_core::{
    Admission, Call, Context, Decision, Digest, Ends, FailMode, GuardId, Kill, Measure, Millis,
    NanoUsd, Outcome, Progress, ScopeKind, ScopeState, Status, Ticket, Time, Tokens, ToolCall,
    Trip, Usage, Verdict, progress,
};
use deadstop_fleet::{Away, Beat, Cell, Commit, Desk, Fleet, Owner, Redis, Reply, Shared, Touched};
use deadstop_protocol::llm::request::Seen as SeenBefore;
use deadstop_redact::excerpt::Excerpt;
use deadstop_store::Store;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use tokio::sync::{Notify, oneshot};

use super::calls::Numbered;
use super::scope::MOST_PENDING;
use super::{Approval, BOOKED, Chain, Project, Refused, Running, Said, Warden};

/// Output that is set aside ahead of what a stream has brought, so that not every event asks.
const SLICE: u64 = 256;

/// A node.
pub(crate) type Node = Fleet<Stores>;

/// What nodes share: Redis for what lives, the database for what lasts.
pub(crate) struct Stores {
    pub(crate) redis: Redis,
    pub(crate) store: Store,
}

impl Shared for Stores {
    async fn commit(&self, commit: &Commit) -> Result<Reply, Away> {
        self.redis.commit(commit).await
    }

    async fn touched(&self, tag: &str, since: Time) -> Result<Touched, Away> {
        self.redis.touched(tag, since).await
    }

    async fn beat(&self, node: &str, ms: u64) -> Result<Beat, Away> {
        self.redis.beat(node, ms).await
    }

    async fn recall(&self, scope: &str) -> Result<Option<ScopeState>, Away> {
        let stored = self.store.scope(scope).await;
        let stored = stored.map_err(|error| Away::before(error.to_string()))?;
        Ok(stored.map(|stored| super::state_of(&stored)))
    }
}

/// What goes with a session's state.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Page {
    /// What the last request held.
    pub(crate) seen: SeenBefore,
    /// The words that it was opened with.
    pub(crate) opening: Option<Digest>,
    /// Tool calls that wait for their results.
    pending: VecDeque<Waiting>,
    pub(crate) loops: u64,
    pub(crate) incidents: u64,
    pub(crate) tags: BTreeSet<String>,
}

/// A tool call that the model asked for and whose result is not in yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Waiting {
    id: String,
    number: i64,
    call: Call,
    ticket: Ticket,
    /// What was said about it when it was let pass, as JSON.
    warned: Option<String>,
}

impl Page {
    pub(crate) fn read(bytes: &[u8]) -> Page {
        postcard::from_bytes(bytes).unwrap_or_default()
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        postcard::to_extend(self, Vec::new()).unwrap_or_default()
    }

    /// Whether words open the conversation: the first ones, or the same ones once more.
    pub(crate) fn opens_with(&mut self, words: Digest) -> bool {
        *self.opening.get_or_insert(words) == words
    }

    fn answered(&mut self, id: &str, name: Option<&str>) -> Option<Waiting> {
        let by_id = |p: &Waiting| !id.is_empty() && p.id == id;
        let by_name = |p: &Waiting| p.id.is_empty() && name == Some(p.call.name());
        let at = self.pending.iter().position(|p| by_id(p) || by_name(p))?;
        self.pending.remove(at)
    }
}

/// A call as it is kept with others: what it was called with stays here.
pub(crate) fn without_arguments(call: &Call) -> Call {
    match call {
        Call::Tool(tool) if !tool.arguments.is_empty() => {
            Call::Tool(ToolCall { arguments: Vec::new(), ..tool.clone() })
        }
        other => other.clone(),
    }
}

/// What a request found, and what it leaves behind for the next one.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) before: (SeenBefore, Option<Digest>),
    pub(crate) after: (SeenBefore, Option<Digest>),
}

/// How a call is asked for.
#[derive(Clone, Default)]
pub(crate) struct Wish {
    /// A person has approved it.
    pub(crate) approval: Option<Arc<Approval>>,
    /// It waits in its conversation for a result, under this id.
    pub(crate) waits_as: Option<String>,
    /// It is reported by a client, under this id.
    pub(crate) reported_as: Option<String>,
    /// The request that it comes with.
    pub(crate) turn: Option<Turn>,
}

/// What came of it.
pub(crate) enum Wished {
    /// It may run, or may not.
    Decided(Result<(Running, Vec<Trip>), Refused>),
    /// The conversation has gone on elsewhere: what is new in the request is something else.
    Stale,
    /// The client asked before: what it was told.
    Known(Vec<u8>),
}

/// A slice of the limit that a stream has taken, and perhaps more that it has asked for.
#[derive(Debug, Default)]
pub(crate) struct Slice {
    latest: Option<Ticket>,
    /// What was said about it, if it may not go on.
    refused: Option<Decision>,
    asked: bool,
    /// Told when what was asked for is decided.
    decided: Arc<Notify>,
}

/// How much to ask for: a slice ahead, if there is room for it, so that not every event asks; nobody
/// is stopped for what was only asked for ahead.
fn ahead(desk: &Desk<'_, '_>, call: &Call, held: Tokens, output: Tokens) -> Tokens {
    let wanted = Tokens(output.0.div_ceil(SLICE) * SLICE);
    let more = wanted - held;
    let usage = Usage { output: more, ..Usage::default() };
    let cost = call.model().map_or(NanoUsd(0), |call| call.rates.cost(&usage));
    let fits = desk.links.iter().all(|link| {
        let (bounds, totals) = (link.policy.bounds(), link.state.totals(link.policy));
        let within = |used: u64, held: i64, more: u64, bound: Option<u64>| {
            bound.is_none_or(|bound| used.saturating_add_signed(held) + more <= bound)
        };
        let (spent, held) = (totals.spent, totals.held);
        within(spent.output.0, held.output, more.0, bounds.output)
            && within(
                spent.input.0 + spent.output.0,
                held.input + held.output,
                more.0,
                bounds.tokens,
            )
            && within(totals.period_cost.0, held.cost, cost.0, bounds.cost)
            && !link.policy.limits_pace()
    });
    if fits { wanted } else { output }
}

/// A decision, with the scopes that it has ended.
struct Judged<T> {
    value: T,
    killed: Vec<(usize, Kill)>,
}

/// Does something at the desk, and says which scopes it has ended. Guards may quote what was said,
/// and a kill is kept for as long as its scope is: it is reworded here.
fn judge<T>(
    project: &Project,
    desk: &mut Desk<'_, '_>,
    work: impl FnOnce(&mut Desk<'_, '_>) -> T,
) -> Judged<T> {
    let alive: Vec<bool> = desk.links.iter().map(|link| link.state.killed().is_none()).collect();
    let value = work(desk);
    let mut killed = Vec::new();
    for (depth, alive) in alive.into_iter().enumerate() {
        let state = &mut *desk.links[depth].state;
        if let Some(kill) = state.killed().filter(|_| alive) {
            let because = project.redact_reason(&kill.because);
            state.reword(&because);
        }
        if let Some(kill) = state.killed().filter(|_| alive) {
            killed.push((depth, kill.clone()));
        }
    }
    Judged { value, killed }
}

/// Counts what tripped: for the agent with its counters, for the session on its page.
fn tally(desk: &mut Desk<'_, '_>, trips: &[Trip]) {
    let at = |kind| desk.links.iter().position(|link| link.state.kind() == kind);
    let (agent, session) = (at(ScopeKind::Agent), at(ScopeKind::Session));
    for trip in trips {
        if trip.guard == GuardId::Killed || matches!(trip.verdict, Verdict::Allow | Verdict::Ask) {
            continue;
        }
        let stops = trip.verdict >= Verdict::Block && trip.guard != GuardId::Paused;
        let tag = trip.guard.tag(trip.verdict);
        let looped = u64::from(tag == "loop_detected");
        if let Some(depth) = agent {
            desk.note(depth, looped, u64::from(stops));
        }
        if let Some(depth) = session {
            let mut page = Page::read(&desk.pages[depth]);
            page.loops += looped;
            page.incidents += u64::from(stops);
            page.tags.insert(tag.to_owned());
            desk.pages[depth] = page.write();
        }
    }
}

/// A tool call waits in its conversation for its result; the oldest of too many is given up.
fn wait_for(
    desk: &mut Desk<'_, '_>,
    number: i64,
    id: &str,
    call: &Call,
    ticket: &Ticket,
    warned: Option<&Trip>,
) {
    let mut page = Page::read(desk.page());
    page.pending.push_back(Waiting {
        id: id.to_owned(),
        number,
        call: without_arguments(call),
        ticket: ticket.bare(),
        warned: warned.and_then(|trip| serde_json::to_string(trip).ok()),
    });
    let too_many = page.pending.len().saturating_sub(MOST_PENDING);
    let given_up: Vec<Waiting> = page.pending.drain(..too_many).collect();
    *desk.page() = page.write();
    let outcome = Outcome { status: Status::Cancelled, ..Outcome::default() };
    for old in given_up {
        desk.settle(&old.call, old.ticket, &Owner::Anybody, &outcome);
    }
}

impl Warden {
    /// The node of a fleet that this is, if it is one.
    pub(crate) fn node(&self) -> Option<&Arc<Node>> {
        self.fleet.get()
    }

    /// May this call run, as far as all nodes are concerned?
    pub(crate) async fn wish(
        &self,
        node: &Arc<Node>,
        chain: &Chain,
        call: &Call,
        request: &Excerpt,
        wish: Wish,
    ) -> Wished {
        let begun = std::time::Instant::now();
        let letter = wish.reported_as.as_ref().map(|id| chain.innermost().letter_key(id));
        let number = self.number();
        let (project, asked, wanted) = (Arc::clone(&chain.project), call.clone(), wish.clone());
        let policies = chain.policies();
        let carried = wish.waits_as.is_none() && wish.reported_as.is_none();
        let (here, waits) = (Arc::clone(node), Waits::default());
        let gone = Arc::clone(&waits.gone);
        let cells: SmallVec<[Arc<Cell>; 6]> = chain.cells().collect();
        let ran = async move {
            let done = here.run(cells, &policies, letter, move |desk| {
                if gone.load(Ordering::Acquire) {
                    // Nobody is admitted who has gone away.
                    return Judged { value: Found::Stale, killed: Vec::new() };
                }
                if let Some(letter) = desk.letter.clone() {
                    return Judged { value: Found::Letter(letter), killed: Vec::new() };
                }
                let mut page = Page::read(desk.page());
                if let Some(turn) = &wanted.turn {
                    if (&page.seen, &page.opening) != (&turn.before.0, &turn.before.1) {
                        return Judged { value: Found::Stale, killed: Vec::new() };
                    }
                    (page.seen, page.opening) = turn.after.clone();
                    *desk.page() = page.write();
                }
                let owner = match (&wanted.waits_as, &wanted.reported_as) {
                    (None, None) => desk.me(),
                    _ => Owner::Anybody,
                };
                let judged = judge(&project, desk, |desk| {
                    let mut admission = match &wanted.approval {
                        Some(_) => desk.admit_approved(&asked, &owner),
                        None => desk.admit(&asked, &owner),
                    };
                    if let Some(approval) = &wanted.approval {
                        approval.sign(&mut admission.trips);
                    }
                    tally(desk, &admission.trips);
                    let waits =
                        |trip: &Trip| trip.guard == GuardId::Paused || trip.verdict == Verdict::Ask;
                    if let (true, Some(turn)) =
                        (admission.trips.first().is_some_and(waits), &wanted.turn)
                    {
                        // It comes again as it is, once somebody has decided.
                        let mut page = Page::read(desk.page());
                        (page.seen, page.opening) = turn.before.clone();
                        *desk.page() = page.write();
                    }
                    if let (Some(ticket), Some(id)) = (&admission.ticket, &wanted.waits_as) {
                        let warned = admission.trips.first();
                        wait_for(desk, number, id, &asked, ticket, warned);
                    }
                    admission
                });
                if let (Some(ticket), Some(_)) = (&judged.value.ticket, &wanted.reported_as) {
                    let reported = Told::of(number, &asked, ticket, &judged.value.trips);
                    *desk.letter = Some(reported.write());
                }
                Judged {
                    value: Found::Admission(Box::new((judged.value, owner))),
                    killed: judged.killed,
                }
            });
            done.await
        };
        let abandoned = carried.then(|| Abandoned::new(node, chain, call));
        let known = until_known(ran, abandoned).await;
        drop(waits);
        let judged = match known {
            Ok(judged) => judged,
            Err(away) => return Wished::Decided(self.unasked(node, chain, call, request, away)),
        };
        self.metrics.decided(begun.elapsed());
        self.carry_kills(chain, judged.killed);
        let (admission, owner) = match judged.value {
            Found::Letter(letter) => return Wished::Known(letter),
            Found::Stale => return Wished::Stale,
            Found::Admission(found) => *found,
        };
        Wished::Decided(self.admitted(chain, call, request, admission, number, Some(owner)))
    }

    /// Nobody can be asked: what the policy says of that. A kill that is known is honoured always,
    /// and so is every limit as far as this node knows.
    fn unasked(
        &self,
        node: &Arc<Node>,
        chain: &Chain,
        call: &Call,
        request: &Excerpt,
        away: Away,
    ) -> Result<(Running, Vec<Trip>), Refused> {
        let policies = chain.policies();
        let cells: Vec<Arc<Cell>> = chain.cells().collect();
        let project = Arc::clone(&chain.project);
        let judged = node.unasked(&cells, &policies, |desk| {
            judge(&project, desk, |desk| desk.admit(call, &Owner::Unasked))
        });
        let policy = &policies.session;
        let few = || {
            let cell = chain.agent().and_then(|scope| scope.cell());
            cell.is_none_or(|cell| node.count_unasked(cell) <= policy.offline_calls)
        };
        if judged.value.ticket.is_some() && (policy.fail_mode == FailMode::Closed || !few()) {
            self.metrics.refused_unasked();
            return Err(Refused { away: Some(away.why), ..Refused::default() });
        }
        self.metrics.let_pass_unasked();
        let owner = Some(Owner::Unasked);
        self.admitted(chain, call, request, judged.value, self.number(), owner)
    }

    /// Tool results have come in: the calls they answer are over. Gives what the guards have to say.
    pub(crate) async fn results_in(
        self: &Arc<Warden>,
        node: &Arc<Node>,
        chain: &Chain,
        results: Vec<(String, Option<String>, Outcome, String)>,
    ) -> Vec<Trip> {
        let (project, policies) = (Arc::clone(&chain.project), chain.policies());
        let ran = node.insist(chain.cells(), &policies, None, move |desk| {
            let mut killed = Vec::new();
            let mut ended = Vec::new();
            for (id, name, outcome, text) in &results {
                let mut page = Page::read(desk.page());
                let Some(waiting) = page.answered(id, name.as_deref()) else { continue };
                *desk.page() = page.write();
                let ticket = waiting.ticket.clone();
                let judged = judge(&project, desk, |desk| {
                    let call = &waiting.call;
                    let decision = desk.settle(call, ticket, &Owner::Anybody, outcome);
                    tally(desk, &decision.trips);
                    decision
                });
                killed.extend(judged.killed);
                ended.push((waiting, judged.value, outcome.clone(), text.clone()));
            }
            Judged { value: ended, killed }
        });
        let (warden, chain) = (Arc::clone(self), chain.clone());
        let booked = tokio::spawn(async move {
            let Ok(judged) = ran.await else { return Vec::new() };
            warden.carry_kills(&chain, judged.killed);
            let mut trips = Vec::new();
            for (waiting, decision, outcome, text) in judged.value {
                let mut said = Said::default();
                said.response.push(&text);
                let Waiting { number, call, ticket, warned, .. } = waiting;
                let warned = warned.and_then(|trip| serde_json::from_str(&trip).ok());
                let call_of = Numbered::of(number, &ticket, warned);
                warden.book(&chain, &call, call_of, &outcome, &decision, said);
                trips.extend(decision.trips);
            }
            trips
        });
        // Nobody waits for a store that is away: what came of them is booked when it is back.
        let patience = if node.away().is_some() { Duration::ZERO } else { BOOKED };
        match tokio::time::timeout(patience, booked).await {
            Ok(trips) => trips.unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }

    /// Tool calls that nobody will answer, by their numbers, are over.
    pub(crate) fn take_back(
        self: &Arc<Warden>,
        node: &Arc<Node>,
        chain: &Chain,
        numbers: Vec<u64>,
    ) {
        let policies = chain.policies();
        let done = node.insist(chain.cells(), &policies, None, move |desk| {
            let mut page = Page::read(desk.page());
            let (taken, left) = std::mem::take(&mut page.pending)
                .into_iter()
                .partition::<VecDeque<_>, _>(|waiting| numbers.contains(&waiting.ticket.number));
            page.pending = left;
            *desk.page() = page.write();
            let outcome = Outcome { status: Status::Cancelled, ..Outcome::default() };
            for waiting in taken {
                desk.settle(&waiting.call, waiting.ticket, &Owner::Anybody, &outcome);
            }
        });
        tokio::spawn(done);
    }

    /// May this call go on? Decided on what this node has; more of a limit is asked for in the
    /// background, a slice ahead.
    pub(crate) fn progress_here(
        &self,
        node: &Arc<Node>,
        chain: &Chain,
        call: &Call,
        running: &mut Running,
        new: Progress<'_>,
    ) -> Decision {
        let slice = Arc::clone(running.slice.get_or_insert_default());
        {
            let mut slice = slice.lock();
            if let Some(latest) = &slice.latest {
                running.ticket.hold_as(latest);
            }
            if let Some(refused) = slice.refused.take() {
                return refused;
            }
        }
        let held = running.ticket.reserved().output;
        let within = Progress { output: new.output.min(held), ..new };
        let ticket = &mut running.ticket;
        let decision = self.decide(chain, |links, now| progress(links, call, ticket, within, now));
        let unasked = running.owner == Some(Owner::Unasked);
        if new.output > held && decision.allowed() && !unasked && !slice.lock().asked {
            slice.lock().asked = true;
            self.ask_for_more(node, chain, call, running, new.output, slice);
        }
        decision
    }

    /// What to wait for until it is decided whether a call may have what it has taken; nothing if
    /// that is decided, or if nobody answers.
    pub(crate) fn undecided(
        &self,
        running: &Running,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let slice = running.slice.clone().filter(|slice| slice.lock().asked)?;
        self.node().filter(|node| node.away().is_none())?;
        Some(async move {
            let decided = Arc::clone(&slice.lock().decided);
            let notified = decided.notified();
            if slice.lock().asked {
                let _ = tokio::time::timeout(BOOKED, notified).await;
            }
        })
    }

    fn ask_for_more(
        &self,
        node: &Arc<Node>,
        chain: &Chain,
        call: &Call,
        running: &Running,
        output: Tokens,
        slice: Arc<Mutex<Slice>>,
    ) {
        let (base, call, policies) = (running.ticket.bare(), call.clone(), chain.policies());
        let owner = running.owner.clone().unwrap_or(Owner::Anybody);
        let project = Arc::clone(&chain.project);
        let shared = Arc::clone(&slice);
        let done = node.insist(chain.cells(), &policies, None, move |desk| {
            let mut ticket = base.clone();
            let wanted = ahead(desk, &call, ticket.reserved().output, output);
            let new = Progress { output: wanted, text: "" };
            let judged =
                judge(&project, desk, |desk| desk.progress(&call, &mut ticket, &owner, new));
            let mut slice = shared.lock();
            slice.latest = Some(ticket);
            // Known before the scope's end is: whoever is cut off hears what did it.
            slice.refused = (!judged.value.allowed()).then(|| judged.value.clone());
            drop(slice);
            judged
        });
        tokio::spawn(async move {
            let _ = done.await;
            let mut slice = slice.lock();
            slice.asked = false;
            slice.decided.notify_waiters();
        });
    }

    /// This call has ended, as far as all nodes are concerned. Its place among the others is taken
    /// at once; this waits until it is done.
    pub(crate) fn settle_everywhere(
        &self,
        node: &Arc<Node>,
        chain: &Chain,
        call: &Call,
        running: &Running,
        outcome: &Outcome,
    ) -> impl Future<Output = Result<(Decision, Vec<(usize, Kill)>), Away>> + Send + use<> {
        let (project, policies) = (Arc::clone(&chain.project), chain.policies());
        let (call, outcome, slice) = (call.clone(), outcome.clone(), running.slice.clone());
        let ticket = running.ticket.bare();
        let owner = running.owner.clone().unwrap_or(Owner::Anybody);
        let done = node.insist(chain.cells(), &policies, None, move |desk| {
            let mut ticket = ticket.clone();
            if let Some(latest) = slice.as_ref().and_then(|slice| slice.lock().latest.clone()) {
                ticket.hold_as(&latest);
            }
            judge(&project, desk, |desk| {
                let decision = desk.settle(&call, ticket, &owner, &outcome);
                tally(desk, &decision.trips);
                decision
            })
        });
        async move { done.await.map(|judged| (judged.value, judged.killed)) }
    }

    /// Does something to a call that a client reports itself, under its id; nothing if there is none.
    pub(crate) async fn reported<T: Send + 'static>(
        &self,
        node: &Arc<Node>,
        chain: &Chain,
        id: &str,
        mut job: impl FnMut(&mut Desk<'_, '_>, &mut Told) -> T + Send + 'static,
    ) -> Result<Option<(T, Told)>, Away> {
        let (project, policies) = (Arc::clone(&chain.project), chain.policies());
        let letter = Some(chain.innermost().letter_key(id));
        let done = node.insist(chain.cells(), &policies, letter, move |desk| {
            let mut told = Told::read(desk.letter.as_deref()?)?;
            let judged = judge(&project, desk, |desk| job(desk, &mut told));
            *desk.letter = Some(told.write());
            Some((judged, told))
        });
        let Some((judged, told)) = done.await? else { return Ok(None) };
        self.carry_kills(chain, judged.killed);
        Ok(Some((judged.value, told)))
    }

    /// Counts what tripped, at a desk.
    pub(crate) fn tally_at(desk: &mut Desk<'_, '_>, trips: &[Trip]) {
        tally(desk, trips);
    }

    /// What an agent is told whose call nobody could be asked about.
    pub(crate) fn nobody_to_ask(&self, chain: &Chain, why: &str) -> Trip {
        let scope = chain.innermost();
        Trip {
            guard: GuardId::Access,
            reason: "shared_state_away".to_owned(),
            verdict: Verdict::Block,
            ends: Ends::Scope,
            drains: false,
            measured: Measure::None,
            limit: Measure::None,
            evidence: Vec::new(),
            signals: Vec::new(),
            window: None,
            because: format!("nobody could be asked whether it may run ({why})"),
            context: Context {
                who: scope.name().to_owned(),
                kind: scope.kind(),
                depth: chain.scopes().len() - 1,
                input: Tokens(0),
                output: Tokens(0),
                elapsed: Millis(0),
                accumulated_input: Tokens(0),
                accumulated_output: Tokens(0),
            },
        }
    }

    /// The time by which decisions are made.
    pub(crate) fn time(&self) -> Time {
        self.node().map_or_else(super::now, |node| node.now())
    }

    /// Carries out what a decision has ended. Others are told, so that they cut what is in flight.
    pub(crate) fn carry_kills(&self, chain: &Chain, killed: Vec<(usize, Kill)>) {
        for (depth, kill) in killed {
            let Some(scope) = chain.scopes().get(depth) else { continue };
            scope.note_kill();
            if !kill.drains {
                scope.cut();
            }
            self.killed_by_guard(scope, &kill);
            self.tell_nodes_of(scope);
        }
        for scope in chain.scopes() {
            self.mark(scope);
        }
    }
}

/// Whether somebody still waits for what comes of a question.
#[derive(Default)]
struct Waits {
    gone: Arc<AtomicBool>,
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Release);
    }
}

/// What came of a question. It is heard out even if nobody waits for it any more, because the client
/// has gone: a call that is let pass all the same is over at once.
async fn until_known(
    asking: impl Future<Output = Result<Judged<Found>, Away>> + Send + 'static,
    abandoned: Option<Abandoned>,
) -> Result<Judged<Found>, Away> {
    let (answer, waiting) = oneshot::channel();
    tokio::spawn(async move {
        let said = Some(asking.await);
        drop(answer.send(Unheard { said, abandoned }));
    });
    match waiting.await {
        Ok(unheard) => unheard.hear(),
        Err(_) => Err(gone()),
    }
}

fn gone() -> Away {
    Away::before("this node ends")
}

/// What came of a question, on its way to whoever asked: wherever it is dropped, nobody has heard it.
struct Unheard {
    said: Option<Result<Judged<Found>, Away>>,
    abandoned: Option<Abandoned>,
}

impl Unheard {
    fn hear(mut self) -> Result<Judged<Found>, Away> {
        self.said.take().unwrap_or_else(|| Err(gone()))
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        if let (Some(abandoned), Some(Ok(judged))) = (self.abandoned.take(), self.said.take())
            && let Found::Admission(found) = judged.value
            && let (Admission { ticket: Some(ticket), .. }, owner) = *found
        {
            abandoned.settle(&ticket, owner);
        }
    }
}

/// A call whose client may go away while it is asked for.
struct Abandoned {
    node: Arc<Node>,
    chain: Chain,
    call: Call,
}

impl Abandoned {
    fn new(node: &Arc<Node>, chain: &Chain, call: &Call) -> Abandoned {
        Abandoned { node: Arc::clone(node), chain: chain.clone(), call: call.clone() }
    }

    fn settle(self, ticket: &Ticket, owner: Owner) {
        let (call, policies) = (self.call, self.chain.policies());
        let ticket = ticket.bare();
        drop(self.node.insist(self.chain.cells(), &policies, None, move |desk| {
            let outcome = Outcome { status: Status::Cancelled, ..Outcome::default() };
            desk.settle(&call, ticket.clone(), &owner, &outcome);
        }));
    }
}

/// What was found when a call was asked for.
enum Found {
    Letter(Vec<u8>),
    Stale,
    Admission(Box<(Admission, Owner)>),
}

/// A call that a client reports itself, as all nodes know it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) number: i64,
    pub(crate) call: Call,
    pub(crate) ticket: Option<Ticket>,
    /// What was said about it, as JSON.
    trips: String,
    /// What was answered to its receipt, as JSON.
    pub(crate) receipt: Option<(u16, String)>,
}

impl Told {
    fn of(number: i64, call: &Call, ticket: &Ticket, trips: &[Trip]) -> Told {
        let call = without_arguments(call);
        let trips = serde_json::to_string(trips).unwrap_or_default();
        Told { number, call, ticket: Some(ticket.bare()), trips, receipt: None }
    }

    /// What was said about it when it was let pass.
    pub(crate) fn trips(&self) -> Vec<Trip> {
        serde_json::from_str(&self.trips).unwrap_or_default()
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Told> {
        postcard::from_bytes(bytes).ok()
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        postcard::to_extend(self, Vec::new()).unwrap_or_default()
    }
}
