//! State in Redis, shared by many nodes: a step runs on copies and is committed if no other node
//! changed the chain meanwhile.
//!
//! A session's conversation and counters travel with its record ([`Attachment`]). Calls that the node
//! admitted while Redis was unreachable are remembered in the scope's own memory instead, and booked
//! when Redis is back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use deadstop_core::share::Held;
use deadstop_core::{
    Admission, Call, Decision, FailMode, NanoUsd, Outcome, Progress, ScopeKind, ScopeState, Ticket,
    Time, Tokens, Usage,
};
use deadstop_fleet::{
    Beat, Cell, Commit, Fleet, Owner, Redis, Reply, Shared, Touched, Transaction, Unreachable,
};
use deadstop_store::Store;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use tokio::sync::{Notify, oneshot};

use super::{Commits, Pending, memory};
use crate::calls::{Found, Terms, admission};
use crate::conversation::Conversation;
use crate::lookup::state_of;
use crate::reported::Reported;
use crate::step::{self, Counts, Judged, Step, Traces, cancelled};
use crate::{BOOKED, Chain, Project, Running};

/// Output tokens that are reserved ahead of what a stream has used, so that not every event asks.
const SLICE: u64 = 256;

/// A node of the cluster.
pub(crate) type Node = Fleet<Stores>;

/// What nodes share: Redis for live state, the database for what lasts.
pub(crate) struct Stores {
    pub redis: Redis,
    pub store: Store,
}

impl Shared for Stores {
    async fn commit(&self, commit: &Commit) -> Result<Reply, Unreachable> {
        self.redis.commit(commit).await
    }

    async fn touched(&self, tag: &str, since: Time) -> Result<Touched, Unreachable> {
        self.redis.touched(tag, since).await
    }

    async fn beat(&self, node: &str, ms: u64) -> Result<Beat, Unreachable> {
        self.redis.beat(node, ms).await
    }

    async fn recall(&self, scope: &str) -> Result<Option<ScopeState>, Unreachable> {
        let stored = self.store.scope(scope).await;
        let stored = stored.map_err(|error| Unreachable::not_sent(error.to_string()))?;
        Ok(stored.map(|stored| state_of(&stored)))
    }
}

/// What travels with a scope's record.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Attachment {
    pub conversation: Conversation,
    pub loops: u64,
    pub incidents: u64,
    pub tags: std::collections::BTreeSet<String>,
}

impl Attachment {
    pub(crate) fn read(bytes: &[u8]) -> Attachment {
        postcard::from_bytes(bytes).unwrap_or_default()
    }

    fn write(&self) -> Vec<u8> {
        postcard::to_extend(self, Vec::new()).unwrap_or_default()
    }
}

/// Runs a step in a transaction: unpacks what travels with the chain, and packs what the step changed.
fn in_transaction<T>(
    project: &Project,
    transaction: &mut Transaction<'_, '_>,
    job: impl FnOnce(&mut Step<'_, '_, '_>) -> T,
) -> Judged<T> {
    let mut attached = Attachment::read(transaction.attachment());
    let mut reported = transaction.entry.as_deref().and_then(Reported::read);
    let (judged, traces) =
        step::judge(project, transaction, &mut attached.conversation, &mut reported, job);
    let Traces { conversation_changed, fresh, counts } = traces;
    if fresh {
        attached = Attachment { conversation: attached.conversation, ..Attachment::default() };
    }
    if conversation_changed || fresh {
        *transaction.attachment() = attached.write();
    }
    if let Some(reported) = reported {
        // Written only if it differs: see `Batch::commit`.
        *transaction.entry = Some(reported.write());
    }
    if !counts.is_empty() {
        count(transaction, &counts);
    }
    judged
}

/// Counts what tripped: for the agent with its counters, for the session in what travels with its record.
fn count(transaction: &mut Transaction<'_, '_>, counts: &Counts) {
    let at = |kind| transaction.links.iter().position(|link| link.state.kind() == kind);
    let (agent, session) = (at(ScopeKind::Agent), at(ScopeKind::Session));
    if let Some(depth) = agent {
        let mut attached = Attachment::read(&transaction.attachments[depth]);
        let (loops, incidents) = counts.of_agent(&mut attached.conversation.counted);
        transaction.note(depth, loops, incidents);
        // All nodes use this record: it is written once for each outage, not for each call.
        if counts.is_shared() {
            transaction.attachments[depth] = attached.write();
        }
    }
    if let Some(depth) = session {
        let mut attached = Attachment::read(&transaction.attachments[depth]);
        let (loops, incidents) = counts.of_session();
        attached.loops += loops;
        attached.incidents += incidents;
        attached.tags.extend(counts.tags.iter().map(|tag| (*tag).to_owned()));
        transaction.attachments[depth] = attached.write();
    }
}

/// Runs a step that must not be lost.
pub(super) fn run_durably<T: Send + 'static>(
    node: &Arc<Node>,
    chain: &Chain,
    reported_as: Option<&str>,
    mut job: impl FnMut(&mut Step<'_, '_, '_>) -> T + Send + 'static,
) -> Pending<Judged<T>> {
    let (project, policies) = (Arc::clone(&chain.project), chain.policies());
    let entry = reported_as.map(|id| chain.innermost().entry_key(id));
    let done = node.run_durably(chain.cells(), &policies, entry, move |transaction| {
        in_transaction(&project, transaction, |step| job(step))
    });
    Pending::Later(done)
}

/// Decides about a call for all nodes.
pub(super) async fn admit(
    node: &Arc<Node>,
    chain: &Chain,
    call: &Call,
    terms: &Terms,
    number: i64,
) -> Result<Judged<Found>, Unreachable> {
    let entry = terms.reported_as().map(|id| chain.innermost().entry_key(id));
    let (project, policies) = (Arc::clone(&chain.project), chain.policies());
    let (asked, wanted) = (call.clone(), terms.clone());
    let (here, caller) = (Arc::clone(node), Caller::default());
    let gone = Arc::clone(&caller.gone);
    let cells: SmallVec<[Arc<Cell>; 6]> = chain.cells().collect();
    let ran = async move {
        here.run(cells, &policies, entry, move |transaction| {
            if gone.load(Ordering::Acquire) {
                // The client has left: nothing is admitted for it.
                return Judged { value: Found::Stale, killed: SmallVec::new() };
            }
            in_transaction(&project, transaction, |step| admission(step, &asked, &wanted, number))
        })
        .await
    };
    let abandoned = terms.is_carried().then(|| Abandoned::new(node, chain, call));
    let known = until_known(ran, abandoned).await;
    drop(caller);
    known
}

/// Decides about a call on what this node last knew. A known kill is honoured always, and so is
/// every limit as far as this node knows it. `None` if the policy does not permit it: because it says
/// so, because there were enough of these calls, or because a `ceiling` would be passed when several
/// nodes each spend what is left.
pub(super) fn admit_offline(node: &Arc<Node>, chain: &Chain, call: &Call) -> Option<Judged<Found>> {
    let policies = chain.policies();
    let cells: Vec<Arc<Cell>> = chain.cells().collect();
    let judged = node.offline(&cells, &policies, |transaction| {
        in_transaction(&chain.project, transaction, |step| step.admit(call, &Owner::Offline))
    });
    let policy = &policies.session;
    let few = || {
        let cell = chain.agent().and_then(|scope| scope.cell());
        cell.is_none_or(|cell| node.count_offline(cell) <= policy.offline_calls)
    };
    if let Some(ticket) = &judged.value.ticket {
        let costs = ticket.reserved().cost.0 > 0;
        let exact = || cells.iter().any(|cell| policies.of(cell.kind()).limits_exactly());
        if policy.fail_mode == FailMode::Closed || (costs && exact()) || !few() {
            return None;
        }
    }
    let Judged { value, killed } = judged;
    let value = Found::Decided { admission: Box::new(value), owner: Owner::Offline };
    Some(Judged { value, killed })
}

/// A slice of the limit that a stream has taken, and the request for more.
#[derive(Debug, Default)]
pub(crate) struct Slice {
    latest: Option<Ticket>,
    /// The refusal, if it may not go on.
    refused: Option<Decision>,
    asked: bool,
    /// Notified when the request is decided.
    decided: Arc<Notify>,
}

/// How much to ask for: a slice ahead if there is room for it. A stream is not stopped for tokens
/// that were only asked for ahead.
fn ahead(transaction: &Transaction<'_, '_>, call: &Call, held: Tokens, output: Tokens) -> Tokens {
    let wanted = Tokens(output.0.div_ceil(SLICE) * SLICE);
    let more = wanted - held;
    let usage = Usage { output: more, ..Usage::default() };
    let cost = call.model().map_or(NanoUsd(0), |call| call.rates.cost(&usage));
    let fits = transaction.links.iter().all(|link| {
        let (bounds, totals) = (link.policy.bounds_of(link.state), link.state.totals(link.policy));
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

/// Decides on this node's copy whether a call may go on, and asks for more of the limit in the
/// background, a slice ahead.
pub(super) fn progress(
    node: &Arc<Node>,
    chain: &Chain,
    call: &Call,
    running: &mut Running,
    new: Progress<'_>,
) -> Judged<Decision> {
    let slice = Arc::clone(running.slice.get_or_insert_default());
    {
        let mut slice = slice.lock();
        if let Some(latest) = &slice.latest {
            running.ticket.hold_as(latest);
        }
        if let Some(refused) = slice.refused.take() {
            return Judged { value: refused, killed: SmallVec::new() };
        }
    }
    let held = running.ticket.reserved().output;
    let within = Progress { output: new.output.min(held), ..new };
    let (ticket, owner) = (&mut running.ticket, &Owner::Offline);
    let judged =
        memory::step(chain, None, node.now(), |step| step.progress(call, ticket, owner, within));
    if !judged.value.trips.is_empty() {
        // Decided on a copy: the shared counters must hear of it.
        let trips = judged.value.trips.clone();
        spawn(run_durably(node, chain, None, move |step| step.count(&trips)));
    }
    let offline = running.is_offline();
    if new.output > held && judged.value.allowed() && !offline && !slice.lock().asked {
        slice.lock().asked = true;
        ask_for_more(node, chain, call, running, new.output, slice);
    }
    judged
}

fn spawn<T: Send + 'static>(pending: Pending<T>) {
    tokio::spawn(async move { drop(pending.known().await) });
}

fn ask_for_more(
    node: &Arc<Node>,
    chain: &Chain,
    call: &Call,
    running: &Running,
    output: Tokens,
    slice: Arc<Mutex<Slice>>,
) {
    let (base, call, policies) = (running.ticket.bare(), call.clone(), chain.policies());
    let (owner, project) = (running.owner.clone(), Arc::clone(&chain.project));
    let shared = Arc::clone(&slice);
    let done = node.run_durably(chain.cells(), &policies, None, move |transaction| {
        let mut ticket = base.clone();
        let wanted = ahead(transaction, &call, ticket.reserved().output, output);
        let new = Progress { output: wanted, text: "" };
        let judged = in_transaction(&project, transaction, |step| {
            step.progress(&call, &mut ticket, &owner, new)
        });
        let mut slice = shared.lock();
        slice.latest = Some(ticket);
        // Set before the scope's end is known, so that the stream that is cut hears what did it.
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

/// What to wait for until the request for more is decided; `None` if there is none.
pub(super) fn undecided(running: &Running) -> Option<impl Future<Output = ()> + Send + use<>> {
    let slice = running.slice.clone().filter(|slice| slice.lock().asked)?;
    Some(async move {
        let decided = Arc::clone(&slice.lock().decided);
        let notified = decided.notified();
        if slice.lock().asked {
            let _ = tokio::time::timeout(BOOKED, notified).await;
        }
    })
}

/// Ends a call for all nodes.
pub(super) fn settle(
    node: &Arc<Node>,
    chain: &Chain,
    call: &Call,
    running: Running,
    end: (&Outcome, Commits),
) -> Pending<Judged<Decision>> {
    let (outcome, commits) = (end.0.clone(), end.1);
    let (call, ticket) = (call.clone(), running.ticket.bare());
    let Running { slice, owner, .. } = running;
    let job = move |step: &mut Step<'_, '_, '_>| {
        let mut ticket = ticket.clone();
        if let Some(latest) = slice.as_ref().and_then(|slice| slice.lock().latest.clone()) {
            ticket.hold_as(&latest);
        }
        step.settle(&call, ticket, &owner, &outcome)
    };
    match commits {
        Commits::Now => run_durably(node, chain, None, job),
        Commits::WithNext => {
            let (project, policies) = (Arc::clone(&chain.project), chain.policies());
            let done = node.run_with_next(chain.cells(), &policies, move |transaction| {
                in_transaction(&project, transaction, |step| job(step))
            });
            Pending::Later(done)
        }
    }
}

/// What a call has reserved by now.
pub(super) fn held(running: &Running) -> Held {
    let latest =
        running.slice.as_ref().and_then(|slice| Some(slice.lock().latest.as_ref()?.held()));
    latest.unwrap_or_else(|| running.ticket.held())
}

/// Tells a step whether its client is still there.
#[derive(Default)]
struct Caller {
    gone: Arc<AtomicBool>,
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Release);
    }
}

/// Waits for a decision. If the client leaves meanwhile, the decision is still heard: a call that was
/// admitted all the same is ended at once.
async fn until_known(
    asking: impl Future<Output = Result<Judged<Found>, Unreachable>> + Send + 'static,
    abandoned: Option<Abandoned>,
) -> Result<Judged<Found>, Unreachable> {
    let (answer, waiting) = oneshot::channel();
    tokio::spawn(async move {
        let decided = Some(asking.await);
        drop(answer.send(Undelivered { decided, abandoned }));
    });
    match waiting.await {
        Ok(undelivered) => undelivered.deliver(),
        Err(_) => Err(ends()),
    }
}

fn ends() -> Unreachable {
    Unreachable::not_sent("this node is shutting down")
}

/// A decision on its way to the client that asked. If it is dropped on the way, the call is ended.
struct Undelivered {
    decided: Option<Result<Judged<Found>, Unreachable>>,
    abandoned: Option<Abandoned>,
}

impl Undelivered {
    fn deliver(mut self) -> Result<Judged<Found>, Unreachable> {
        self.decided.take().unwrap_or_else(|| Err(ends()))
    }
}

impl Drop for Undelivered {
    fn drop(&mut self) {
        if let (Some(abandoned), Some(Ok(judged))) = (self.abandoned.take(), self.decided.take())
            && let Found::Decided { admission, owner } = judged.value
            && let Admission { ticket: Some(ticket), .. } = *admission
        {
            abandoned.settle(&ticket, owner);
        }
    }
}

/// A call whose client may leave before it hears the decision.
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
        let (call, ticket) = (self.call, ticket.bare());
        spawn(run_durably(&self.node, &self.chain, None, move |step| {
            step.settle(&call, ticket.clone(), &owner, &cancelled())
        }));
    }
}
