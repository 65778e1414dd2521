//! The messages between nodes, and what each node reads again in case a message was lost.
//!
//! A kill, clear or hold is in force on every node as soon as it is in Redis: every admission
//! checks it there. Messages are for the rest: nodes cut calls in flight at once, read policies,
//! prices and keys again, and show events and approvals. A message may be lost. So each node also
//! reads the scopes in use from Redis every second, and the database every two seconds.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use deadstop_core::{Kill, ScopeKind, ScopeState, Time};
use deadstop_fleet::{Cell, Peer};
use deadstop_store::StoredTool;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::alerts::Alert;

use super::approvals::Asked;
use super::orders::SPREAD;
use super::{Chain, Event, Node, Once, Pending, Scope, ScopeId, Tally, Warden, Word, now};

/// How long a change waits until all nodes have applied it.
const TAKEN_IN: Duration = Duration::from_secs(5);
/// Interval at which the database is read for changes whose message was lost.
const LOOK: Duration = Duration::from_secs(2);
/// Interval at which the node checks whether Redis is reachable.
const WATCH: Duration = Duration::from_millis(200);
/// How far a lookup of recently used scopes reaches back before the last one, because clocks and
/// commits may overlap.
const OVERLAP_MS: u64 = 2000;
/// Scopes that are read in one request.
const AT_ONCE: usize = 100;
/// How far back kills are read from the database.
const BACK_MS: u64 = 60_000;

/// How often a node looks for a tool that another node has just listed, and how long it waits each time.
const LISTED_LOOKS: usize = 5;
const LISTED_WAIT: Duration = Duration::from_millis(50);

/// Called when another node has changed something: reads policies and keys again.
pub type Reload =
    Box<dyn Fn(Option<String>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// A message between nodes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// A scope was killed, cleared, paused or resumed.
    Scope {
        /// Its key.
        key: String,
    },
    /// A session's host said that it is over.
    Finished {
        /// Its key.
        key: String,
        /// When.
        at: Time,
    },
    /// Policies, prices, keys or settings of a project have changed.
    Project {
        /// Its name.
        name: String,
    },
    /// The detectors of an agent's sessions are to be emptied; without an agent, those of all
    /// agents.
    Forget {
        /// The project.
        project: String,
        /// The agent.
        agent: Option<String>,
    },
    /// The outbox is to be written now.
    Flush {},
    /// An event to show.
    Event {
        /// Its project.
        project: String,
        /// The event.
        event: Event,
    },
    /// A call waits for a person.
    Asked(Asked),
    /// A refused call can be allowed once, or was.
    Offered(Box<Once>),
    /// A call that was allowed once was made.
    Used {
        /// The code.
        code: String,
    },
    /// A waiting call was decided.
    Decided {
        /// Its approval id.
        id: String,
        /// The decision.
        word: Word,
    },
}

/// A message with its sender.
#[derive(Debug, Serialize, Deserialize)]
struct Envelope {
    /// The node that sent it.
    from: String,
    /// The receivers confirm under this number that they have applied the message.
    number: Option<i64>,
    message: Message,
}

/// This node's name: that of its machine.
pub(super) fn name() -> String {
    let host = std::env::var("HOSTNAME").ok();
    let host = host.or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    let host: String = host.unwrap_or_default().trim().chars().take(40).collect();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    if host.is_empty() { "node".to_owned() } else { host.chars().map(plain).collect() }
}

impl Warden {
    /// Joins the other nodes.
    pub async fn join(self: &Arc<Warden>) -> Result<(), String> {
        let Some(node) = self.node() else { return Ok(()) };
        node.beat().await.map_err(|error| error.to_string())?;
        tokio::spawn(Arc::clone(node).keep());
        let (sender, mut receiver) = mpsc::unbounded_channel();
        tokio::spawn(listen(Arc::clone(node), sender));
        // The subscription is ready before clients can ask this node anything.
        let _ = tokio::time::timeout(SPREAD, receiver.recv()).await;
        tokio::spawn(obey(Arc::downgrade(self), receiver));
        tokio::spawn(look_around(Arc::downgrade(self)));
        tokio::spawn(watch_over(Arc::downgrade(self)));
        Ok(())
    }

    /// This node, and all nodes with a valid lease, by name; `None` without a cluster.
    pub fn peers(&self) -> Option<(String, Vec<String>)> {
        let node = self.node()?;
        let now = node.now();
        let alive = node.peers().into_iter().filter(|peer| peer.until > now);
        let mut names: Vec<String> = alive.map(|peer| peer.node).collect();
        names.sort_unstable();
        Some((node.me().to_string(), names))
    }

    /// Connects a scope to the shared state, in a cluster.
    pub(super) fn share(&self, scope: &Scope, version: u64) {
        if self.node().is_some() {
            scope.share(version);
        }
    }

    /// From now on the node reads this scope again and corrects its reservations, like all scopes
    /// in use. If several were made at once, this one replaces the others.
    pub(super) fn look_after(&self, scope: &Scope) {
        if let (Some(node), Some(cell)) = (self.node(), scope.cell()) {
            node.know(cell);
        }
    }

    /// Reads from Redis what other nodes know of a scope that is new here.
    pub(super) async fn meet(&self, scope: &Scope) {
        if let (Some(node), Some(cell)) = (self.node(), scope.cell())
            && !cell.is_met()
        {
            // If Redis does not answer, the next request on this scope reports it.
            let _ = node.refresh(std::slice::from_ref(cell)).await;
        }
    }

    /// Reads what other nodes have done to a project's scopes, so that lists shown here are
    /// current.
    pub async fn catch_up(&self, project: &str) {
        let Some(node) = self.node() else { return };
        let Ok(project) = self.project(project).await else { return };
        let Some(root) = project.scope.cell() else { return };
        let since = project.caught_up.load(Ordering::Acquire).saturating_sub(OVERLAP_MS);
        let Ok(touched) = node.touched(root, Time(since)).await else { return };
        let mut scopes = Vec::new();
        for (path, at) in touched.scopes {
            let Some(scope) = self.any_scope(&path).or_else(|| self.find_out(&path)) else {
                continue;
            };
            if scope.used() < at {
                scope.touch(at);
            }
            scopes.push(scope);
        }
        let cells: Vec<Arc<Cell>> = scopes.iter().filter_map(|s| s.cell().cloned()).collect();
        for some in cells.chunks(AT_ONCE) {
            if node.refresh(some).await.is_err() {
                return;
            }
        }
        // Scopes that Redis no longer has are read from the database on their next use; the empty
        // ones made here are dropped.
        scopes.retain(|scope| {
            let known = scope.cell().is_none_or(|cell| cell.is_known());
            if !known {
                self.forget_made_up(scope);
            }
            known
        });
        for scope in &scopes {
            if let Some(agent) = self.live_agent(&project.name, scope.agent()) {
                scope.set_agent_number(agent.number());
            }
        }
        project.caught_up.fetch_max(touched.now.0, Ordering::AcqRel);
    }

    /// A scope that another node has made, by its path.
    fn find_out(&self, path: &str) -> Option<Arc<Scope>> {
        let names: Vec<&str> = path.split('\u{1f}').collect();
        let kind = match names.len() {
            0 | 1 => return None,
            2 => ScopeKind::Agent,
            3 => ScopeKind::Session,
            _ => ScopeKind::Nested,
        };
        let place = ScopeId {
            key: path.to_owned(),
            project: names[0].to_owned(),
            kind,
            agent: names[1].to_owned(),
            name: names[names.len() - 1].to_owned(),
        };
        let state = ScopeState::new(kind, self.time());
        let scope = Arc::new(Scope::new(place, self.number(), state, Tally::default()));
        self.share(&scope, 0);
        let mut scopes = self.scopes.lock();
        if scopes.len() >= super::lookup::MOST_SCOPES {
            self.sweep(&mut scopes);
        }
        let scope = Arc::clone(scopes.entry(path.to_owned()).or_insert(scope));
        drop(scopes);
        self.look_after(&scope);
        Some(scope)
    }

    /// Drops a scope made for a list that Redis no longer has, unless a call uses it by now.
    fn forget_made_up(&self, scope: &Arc<Scope>) {
        let mut scopes = self.scopes.lock();
        // References: the map and the caller.
        if Arc::strong_count(scope) <= 2 {
            scopes.remove(&scope.id.key);
        }
    }

    /// Commits a chain to Redis before its first call, so that all nodes know it.
    pub async fn register(&self, chain: &Chain) {
        if let Some(node) = self.node()
            && !chain.scopes().iter().all(|scope| scope.cell().is_some_and(|cell| cell.is_known()))
        {
            let _ = node.run(chain.cells(), &chain.policies(), None, |_| ()).await;
        }
    }

    /// Sends a message to all nodes, in the background.
    pub fn tell_nodes(&self, message: Message) {
        if self.node().is_some() {
            tokio::spawn(self.telling(message));
        }
    }

    /// Sends a message to all nodes, when the future is polled.
    pub(super) fn telling(&self, message: Message) -> impl Future<Output = ()> + Send + use<> {
        let envelope = self.node().map(|node| (Arc::clone(node), self.envelope(message, None)));
        async move {
            if let Some((node, envelope)) = envelope {
                let _ = node.shared().redis.tell(&envelope).await;
            }
        }
    }

    /// Sends a message to all nodes, and waits until those with a valid lease have applied it.
    pub async fn announce(&self, message: Message) {
        let Some(node) = self.node() else { return };
        let (number, me) = (self.number(), node.me());
        // A node that dies meanwhile is waited for until its lease ends.
        let others = || {
            let now = node.now();
            let alive = |peer: &Peer| *peer.node != *me && peer.until > now;
            node.peers().iter().filter(|peer| alive(peer)).count() as u64
        };
        let envelope = self.envelope(message, Some(number));
        let redis = &node.shared().redis;
        let Ok(listening) = redis.tell(&envelope).await else { return };
        // This node is one of the listeners. Some may have no lease yet.
        let listening = listening.saturating_sub(1);
        if listening.max(others()) == 0 {
            return;
        }
        let until = tokio::time::Instant::now() + TAKEN_IN;
        while tokio::time::Instant::now() < until {
            match redis.taken_in(number).await {
                Ok(count) if count < listening.max(others()) => {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                _ => return,
            }
        }
    }

    fn envelope(&self, message: Message, number: Option<i64>) -> Vec<u8> {
        let from = self.node().map(|node| node.me().to_string()).unwrap_or_default();
        serde_json::to_vec(&Envelope { from, number, message }).unwrap_or_default()
    }

    /// Shows an event to watchers on all nodes. Events of single calls stay on the node that
    /// carries the call.
    pub fn spread(&self, event: Event) {
        if self.node().is_some() && event.what != "call" {
            let project = event.project.clone();
            self.tell_nodes(Message::Event { project, event: event.clone() });
        }
        self.events.tell(event);
    }

    /// Applies the kills of a step: calls in flight are cut on all nodes.
    pub(super) fn carry_kills(
        &self,
        chain: &Chain,
        killed: impl IntoIterator<Item = (usize, Kill)>,
    ) {
        for (depth, kill) in killed {
            let Some(scope) = chain.scopes().get(depth) else { continue };
            scope.note_kill();
            if !kill.drains {
                scope.cut();
            }
            self.killed_by_guard(scope, &kill);
            self.tell_nodes_of(scope);
        }
        let now = now();
        for scope in chain.scopes() {
            // Its agent may have been removed while the call was running: a later use lists it again.
            scope.touch(now);
            self.mark(scope);
        }
    }

    /// Tells all nodes to read a scope again.
    pub(super) fn tell_nodes_of(&self, scope: &Scope) {
        self.tell_nodes(Message::Scope { key: scope.id.key.clone() });
    }

    /// Applies a change on this node before it is in Redis. Without a cluster this is not needed:
    /// there a step is in force when it returns.
    pub(super) fn force(&self, scope: &Scope, change: &dyn Fn(&mut ScopeState, Time)) {
        if let (Some(node), Some(cell)) = (self.node(), scope.cell()) {
            let now = node.now();
            cell.force(|state| change(state, now));
        }
    }

    /// A guard killed a scope on this node's snapshot: commits the kill for all nodes.
    pub(super) fn end_everywhere(&self, scope: &Arc<Scope>, kill: &Kill) {
        if self.node().is_none() {
            return;
        }
        let kill = kill.clone();
        self.change_later(scope, move |state| state.end_as(&kill));
        if let Some(cell) = scope.cell() {
            // The local state is killed already, so without this mark the step would have nothing
            // to commit.
            cell.force(|_| {});
        }
        self.tell_nodes_of(scope);
    }

    /// Changes a scope in the background.
    fn change_later(
        &self,
        scope: &Arc<Scope>,
        mut change: impl FnMut(&mut ScopeState) + Send + 'static,
    ) {
        let done = self.change(scope, move |step| step.state().map(&mut change));
        if let Ok(Pending::Later(done)) = done {
            tokio::spawn(done);
        }
    }

    /// Applies a kill or clear that is in the database and not in Redis.
    fn honour_everywhere(&self, scope: &Arc<Scope>, known: ScopeState) {
        if let Some(cell) = scope.cell() {
            cell.force(|state| _ = state.honour(&known));
        }
        self.change_later(scope, move |state| _ = state.honour(&known));
        self.tell_nodes_of(scope);
    }

    /// Empties the detectors of an agent's sessions on this node.
    pub(super) fn forget_sessions(&self, project: &str, agent: Option<&str>) {
        for below in self.scopes(project) {
            let theirs = agent.is_none_or(|agent| agent == below.agent());
            if theirs && matches!(below.kind(), ScopeKind::Session | ScopeKind::Nested) {
                self.change_later(&below, ScopeState::forget);
                self.mark(&below);
            }
        }
    }

    /// Applies a message of another node.
    async fn hear(&self, node: &Arc<Node>, envelope: Envelope) {
        if *envelope.from == *node.me() {
            return;
        }
        match envelope.message {
            Message::Scope { key } => {
                let scope = self.any_scope(&key);
                if let Some(cell) = scope.as_ref().and_then(|scope| scope.cell()) {
                    let _ = node.refresh(std::slice::from_ref(cell)).await;
                }
            }
            Message::Finished { key, at } => {
                if let Some(scope) = self.any_scope(&key) {
                    scope.finish(at);
                }
            }
            Message::Project { name } => self.read_again(Some(name)).await,
            Message::Forget { project, agent } => {
                self.forget_sessions(&project, agent.as_deref());
            }
            Message::Flush {} => {
                let _ = self.flush().await;
            }
            Message::Event { project, event } => self.events.tell(Event { project, ..event }),
            Message::Asked(asked) => self.approvals.hear(asked, self.time()),
            Message::Offered(once) => self.onces.hear(*once, self.time()),
            Message::Used { code } => self.onces.used(&code),
            Message::Decided { id, word } => self.approvals.decide(&id, &word),
        }
        if let Some(number) = envelope.number {
            let _ = node.shared().redis.take_in(number).await;
        }
    }

    fn any_scope(&self, key: &str) -> Option<Arc<Scope>> {
        if let Some(scope) = self.scopes.lock().get(key) {
            return Some(Arc::clone(scope));
        }
        let projects = self.projects.read();
        let found = projects.values().find(|project| project.scope.id.key == key);
        found.map(|project| Arc::clone(&project.scope))
    }

    /// Waits until everything decided so far, on any node, is on disk.
    pub async fn flush_everywhere(&self) -> Result<(), String> {
        self.announce(Message::Flush {}).await;
        self.flush().await
    }

    /// Reads policies, prices, settings and removed agents again: of one project that was changed, or of all to
    /// find out.
    pub async fn read_again(&self, told: Option<String>) {
        // One at a time: an earlier read must not be applied after a later one.
        let _turn = self.reading.lock().await;
        if let Some(reload) = self.reload.get() {
            reload(told).await;
        }
        if let Err(error) = self.reread_settings().await {
            tracing::warn!("cannot reload the settings; the old ones stay in force: {error}");
        }
    }

    /// Accepts a tool as it is described now; `None` if no node has seen it.
    pub async fn accept_tool(
        &self,
        project: &str,
        server: &str,
        tool: &str,
        who: &str,
    ) -> Option<StoredTool> {
        let looks = if self.node().is_some() { LISTED_LOOKS } else { 0 };
        for _ in 0..looks {
            let found = self.pins.accept(project, server, tool, who);
            if found.is_some() {
                return found;
            }
            // Another node may have listed it a moment ago.
            tokio::time::sleep(LISTED_WAIT).await;
            self.read_again(None).await;
        }
        self.pins.accept(project, server, tool, who)
    }

    /// Sets what to call when another node has changed something.
    pub fn on_change(&self, reload: Reload) {
        let _ = self.reload.set(reload);
    }

    /// Reads from the database what messages may have missed: recent kills, and current policies
    /// and settings.
    async fn look(&self, node: &Arc<Node>) {
        let Some(store) = self.store() else { return };
        let since = Time(now().0.saturating_sub(BACK_MS));
        for kind in [ScopeKind::Project, ScopeKind::Agent, ScopeKind::Session, ScopeKind::Nested] {
            let Ok(stored) = store.killed_since(kind, since).await else { return };
            for stored in stored {
                let Some(scope) = self.any_scope(&stored.key) else { continue };
                let Some(cell) = scope.cell() else { continue };
                let known = super::lookup::state_of(&stored);
                let news = || scope.state.lock().turns() < known.turns();
                if news() {
                    let _ = node.refresh(std::slice::from_ref(cell)).await;
                }
                if news() {
                    self.honour_everywhere(&scope, known);
                }
            }
        }
        self.read_again(None).await;
        for asked in self.approvals.own() {
            // A decision made on another node may not have arrived here.
            if let Ok(Some(word)) = node.shared().redis.word_about(asked.id()).await
                && let Ok(word) = serde_json::from_slice(&word)
            {
                self.approvals.decide(asked.id(), &word);
            } else {
                self.tell_nodes(Message::Asked(asked));
            }
        }
    }
}

/// Receives messages of other nodes; reconnects when the connection breaks.
async fn listen(node: Arc<Node>, sender: mpsc::UnboundedSender<Vec<u8>>) {
    while !sender.is_closed() {
        let told = |message: &[u8]| drop(sender.send(message.to_vec()));
        let _ = node.shared().redis.hear(told).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Applies the messages received.
async fn obey(warden: Weak<Warden>, mut told: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(message) = told.recv().await {
        let Some(warden) = warden.upgrade() else { return };
        let Some(node) = warden.node() else { return };
        if message.is_empty() {
            // After a reconnect, messages may have been missed.
            let _ = node.reread().await;
            warden.look(node).await;
        } else if let Ok(envelope) = serde_json::from_slice::<Envelope>(&message) {
            warden.hear(node, envelope).await;
        }
    }
}

/// Reports when Redis becomes unreachable and when it is back.
async fn watch_over(warden: Weak<Warden>) {
    let mut known = false;
    loop {
        tokio::time::sleep(WATCH).await;
        let Some(warden) = warden.upgrade() else { return };
        let away = warden.node().and_then(|node| node.outage());
        if away.is_some() == known {
            continue;
        }
        known = away.is_some();
        warden.metrics.set_alone(known);
        let (what, text) = match away {
            Some((_, why)) => ("degraded", format!("Redis is unreachable: {why}")),
            None => ("recovered", "Redis is reachable again".to_owned()),
        };
        for project in warden.projects() {
            if known {
                let alert = Alert {
                    kind: deadstop_alerts::Kind::Degraded,
                    agent: None,
                    session: None,
                    trip: None,
                    sentence: text.clone(),
                    incident: None,
                    outage: None,
                };
                warden.alert(&project, &alert);
            }
            warden.events.tell(Event::new(what, &project.name, "", "", text.clone()));
        }
    }
}

/// Reads the database at intervals.
async fn look_around(warden: Weak<Warden>) {
    let mut tick = tokio::time::interval(LOOK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let Some(warden) = warden.upgrade() else { return };
        let Some(node) = warden.node() else { return };
        warden.look(node).await;
    }
}
