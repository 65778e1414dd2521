//! What nodes tell each other, and what each looks up by itself in case nobody told.
//!
//! Kills, clears and holds are true everywhere from the moment in which they are in the shared state:
//! every admission checks that. Messages are for the rest: calls in flight are cut at once, policies,
//! prices and keys are read again, events and questions are shown on every node. A message may be
//! lost, so each node also reads again, every second what it has in use, and every few seconds what
//! the database says.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use deadstop_core::{Kill, ScopeKind, ScopeState, Time};
use deadstop_fleet::{Cell, Peer};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::alerts::Alert;

use super::approvals::Asked;
use super::{Chain, Event, Node, Pending, Place, SPREAD, Scope, Tally, Warden, Word, now};

/// How long a change waits until all nodes have taken it in.
const TAKEN_IN: Duration = Duration::from_secs(5);
/// How often the database is asked what nobody may have told.
const LOOK: Duration = Duration::from_secs(2);
/// How often it is looked whether what nodes share is there.
const WATCH: Duration = Duration::from_millis(200);
/// How far back it is looked for what was touched before: clocks and steps may overlap.
const OVERLAP_MS: u64 = 2000;
/// Scopes that are read in one step.
const AT_ONCE: usize = 100;
/// How far back it is looked for kills.
const BACK_MS: u64 = 60_000;

/// What is done when another node has changed something: policies, keys and all that is read again.
pub type Reload =
    Box<dyn Fn(Option<String>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// What nodes tell each other.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// A scope was ended, cleared, held or released.
    Scope {
        /// Its key.
        key: String,
    },
    /// Policies, prices, keys or settings of a project have changed.
    Project {
        /// Its name.
        name: String,
    },
    /// What tripped the guards of an agent's sessions is to be forgotten; of all agents, without one.
    Forget {
        /// The project.
        project: String,
        /// The agent.
        agent: Option<String>,
    },
    /// What waits to be written is to be written.
    Flush {},
    /// Something happened.
    Event {
        /// In this project.
        project: String,
        /// What.
        event: Event,
    },
    /// A call waits for a person.
    Asked(Asked),
    /// A person has decided about one.
    Decided {
        /// Which.
        id: String,
        /// What was said.
        word: Word,
    },
}

/// A message on its way.
#[derive(Debug, Serialize, Deserialize)]
struct Letter {
    /// Who sends it.
    from: String,
    /// Whoever has taken it in says so under this number.
    number: Option<i64>,
    message: Message,
}

/// What this node is called: by its machine.
pub(super) fn name() -> String {
    let host = std::env::var("HOSTNAME").ok();
    let host = host.or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    let host: String = host.unwrap_or_default().trim().chars().take(40).collect();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    if host.is_empty() { "node".to_owned() } else { host.chars().map(plain).collect() }
}

impl Warden {
    /// Begins to live among other nodes.
    pub async fn join(self: &Arc<Warden>) -> Result<(), String> {
        let Some(node) = self.node() else { return Ok(()) };
        node.beat().await.map_err(|away| away.to_string())?;
        tokio::spawn(Arc::clone(node).keep());
        let (sender, mut receiver) = mpsc::unbounded_channel();
        tokio::spawn(listen(Arc::clone(node), sender));
        // It hears the others before anybody can ask it something.
        let _ = tokio::time::timeout(SPREAD, receiver.recv()).await;
        tokio::spawn(obey(Arc::downgrade(self), receiver));
        tokio::spawn(look_around(Arc::downgrade(self)));
        tokio::spawn(watch_over(Arc::downgrade(self)));
        Ok(())
    }

    /// Whether there may be other nodes.
    pub fn is_clustered(&self) -> bool {
        self.node().is_some()
    }

    /// This node, and all nodes that gave signs of life lately, by name; `None` on a server that is
    /// alone.
    pub fn peers(&self) -> Option<(String, Vec<String>)> {
        let node = self.node()?;
        let now = node.now();
        let alive = node.peers().into_iter().filter(|peer| peer.until > now);
        let mut names: Vec<String> = alive.map(|peer| peer.node).collect();
        names.sort_unstable();
        Some((node.me().to_string(), names))
    }

    /// Shares a scope with other nodes, where there are any.
    pub(super) fn share(&self, scope: &Scope, version: u64) {
        if self.node().is_some() {
            scope.share(version);
        }
    }

    /// From now on a scope is read again and healed with all others in use. Of several that were made at
    /// once, this is the one that stays.
    pub(super) fn look_after(&self, scope: &Scope) {
        if let (Some(node), Some(cell)) = (self.node(), scope.cell()) {
            node.know(cell);
        }
    }

    /// Learns what others know of a scope that is new here.
    pub(super) async fn meet(&self, scope: &Scope) {
        if let (Some(node), Some(cell)) = (self.node(), scope.cell())
            && !cell.is_met()
        {
            // If nobody answers, whoever asks next hears of it.
            let _ = node.refresh(std::slice::from_ref(cell)).await;
        }
    }

    /// Learns what other nodes have done to a project's scopes, so that what is shown here is true.
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
        // What Redis has let go of is read from the database by whoever uses it, and not made up here.
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

    /// When a scope was used last, on whichever node; nothing if there is one only, or if nobody can be
    /// asked.
    pub(super) async fn used_anywhere(&self, project: &str, key: &str) -> Option<Time> {
        let node = self.node().filter(|node| node.outage().is_none())?;
        node.shared().redis.used(project, key).await.ok().flatten()
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
        let place = Place {
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
        if scopes.len() >= super::MOST_SCOPES {
            self.sweep(&mut scopes);
        }
        let scope = Arc::clone(scopes.entry(path.to_owned()).or_insert(scope));
        drop(scopes);
        self.look_after(&scope);
        Some(scope)
    }

    /// Lets a scope go again of which nobody knows anything, unless somebody uses it by now.
    fn forget_made_up(&self, scope: &Arc<Scope>) {
        let mut scopes = self.scopes.lock();
        // Held by the map and by whoever asks.
        if Arc::strong_count(scope) <= 2 {
            scopes.remove(&scope.place.key);
        }
    }

    /// Makes a chain known to all nodes, before anything is called in it.
    pub async fn register(&self, chain: &Chain) {
        if let Some(node) = self.node()
            && !chain.scopes().iter().all(|scope| scope.cell().is_some_and(|cell| cell.is_known()))
        {
            let _ = node.run(chain.cells(), &chain.policies(), None, |_| ()).await;
        }
    }

    /// Tells all nodes something, without waiting.
    pub fn tell_nodes(&self, message: Message) {
        if self.node().is_some() {
            tokio::spawn(self.telling(message));
        }
    }

    /// Tells all nodes something, when it is waited for.
    pub(super) fn telling(&self, message: Message) -> impl Future<Output = ()> + Send + use<> {
        let letter = self.node().map(|node| (Arc::clone(node), self.letter(message, None)));
        async move {
            if let Some((node, letter)) = letter {
                let _ = node.shared().redis.tell(&letter).await;
            }
        }
    }

    /// Tells all nodes something, and waits until those that live have taken it in.
    pub async fn announce(&self, message: Message) {
        let Some(node) = self.node() else { return };
        let (number, me) = (self.number(), node.me());
        // One that dies meanwhile is waited for until its lease is over.
        let others = || {
            let now = node.now();
            let alive = |peer: &Peer| *peer.node != *me && peer.until > now;
            node.peers().iter().filter(|peer| alive(peer)).count() as u64
        };
        let letter = self.letter(message, Some(number));
        let redis = &node.shared().redis;
        let Ok(listening) = redis.tell(&letter).await else { return };
        // One of them is this one. Some are too young to be known by a sign of life.
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

    fn letter(&self, message: Message, number: Option<i64>) -> Vec<u8> {
        let from = self.node().map(|node| node.me().to_string()).unwrap_or_default();
        serde_json::to_vec(&Letter { from, number, message }).unwrap_or_default()
    }

    /// Tells whoever watches, on whichever node. Single calls are told where they are made.
    pub fn spread(&self, event: Event) {
        if self.node().is_some() && event.what != "call" {
            let project = event.project.clone();
            self.tell_nodes(Message::Event { project, event: event.clone() });
        }
        self.events.tell(event);
    }

    /// Carries out what a step has ended: calls in flight are cut, here and on other nodes.
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
        for scope in chain.scopes() {
            self.mark(scope);
        }
    }

    /// Tells all nodes that a scope is another one now.
    pub(super) fn tell_nodes_of(&self, scope: &Scope) {
        self.tell_nodes(Message::Scope { key: scope.place.key.clone() });
    }

    /// Puts a change into force on this node at once, before all nodes know it. One node alone needs no
    /// such thing: there a step is in force when it is done.
    pub(super) fn force(&self, scope: &Scope, change: &dyn Fn(&mut ScopeState, Time)) {
        if let (Some(node), Some(cell)) = (self.node(), scope.cell()) {
            let now = node.now();
            cell.force(|state| change(state, now));
        }
    }

    /// A guard stopped a scope on this node's copy: all nodes must know.
    pub(super) fn end_everywhere(&self, scope: &Arc<Scope>, kill: &Kill) {
        if self.node().is_none() {
            return;
        }
        let kill = kill.clone();
        self.change_later(scope, move |state| state.end_as(&kill));
        if let Some(cell) = scope.cell() {
            // The copy is dead already; the step must find that worth writing.
            cell.force(|_| {});
        }
        self.tell_nodes_of(scope);
    }

    /// Changes a scope without waiting for it.
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

    /// The database knows of a kill that the shared state does not show.
    fn honour_everywhere(&self, scope: &Arc<Scope>, known: ScopeState) {
        if let Some(cell) = scope.cell() {
            cell.force(|state| _ = state.honour(&known));
        }
        self.change_later(scope, move |state| _ = state.honour(&known));
        self.tell_nodes_of(scope);
    }

    /// Empties the detectors of sessions that this node knows.
    pub(super) fn forget_sessions(&self, project: &str, agent: Option<&str>) {
        for below in self.scopes(project) {
            let theirs = agent.is_none_or(|agent| agent == below.agent());
            if theirs && matches!(below.kind(), ScopeKind::Session | ScopeKind::Nested) {
                self.change_later(&below, ScopeState::forget);
                self.mark(&below);
            }
        }
    }

    /// Takes in what another node has told.
    async fn hear(&self, node: &Arc<Node>, letter: Letter) {
        if *letter.from == *node.me() {
            return;
        }
        match letter.message {
            Message::Scope { key } => {
                let scope = self.any_scope(&key);
                if let Some(cell) = scope.as_ref().and_then(|scope| scope.cell()) {
                    let _ = node.refresh(std::slice::from_ref(cell)).await;
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
            Message::Decided { id, word } => self.approvals.decide(&id, &word),
        }
        if let Some(number) = letter.number {
            let _ = node.shared().redis.take_in(number).await;
        }
    }

    fn any_scope(&self, key: &str) -> Option<Arc<Scope>> {
        if let Some(scope) = self.scopes.lock().get(key) {
            return Some(Arc::clone(scope));
        }
        let projects = self.projects.read();
        let found = projects.values().find(|project| project.scope.place.key == key);
        found.map(|project| Arc::clone(&project.scope))
    }

    /// Waits until everything that was decided so far, on any node, is on disk.
    pub async fn flush_everywhere(&self) -> Result<(), String> {
        self.announce(Message::Flush {}).await;
        self.flush().await
    }

    /// Reads again what is in force: because something was changed in a project, or to see whether
    /// something was.
    pub async fn read_again(&self, told: Option<String>) {
        // One after the other: what was read first must not be put into force last.
        let _turn = self.reading.lock().await;
        if let Some(reload) = self.reload.get() {
            reload(told).await;
        }
        if let Err(error) = self.reread_settings().await {
            tracing::warn!("settings could not be read again: {error}");
        }
    }

    /// What is to be done when another node has changed something.
    pub fn on_change(&self, reload: Reload) {
        let _ = self.reload.set(reload);
    }

    /// Asks the database for what nobody may have told: who was killed lately, and what is in force.
    async fn look(&self, node: &Arc<Node>) {
        let Some(store) = self.store() else { return };
        let since = Time(now().0.saturating_sub(BACK_MS));
        for kind in [ScopeKind::Project, ScopeKind::Agent, ScopeKind::Session, ScopeKind::Nested] {
            let Ok(stored) = store.killed_since(kind, since).await else { return };
            for stored in stored {
                let Some(scope) = self.any_scope(&stored.key) else { continue };
                let Some(cell) = scope.cell() else { continue };
                let known = super::state_of(&stored);
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
            // Somebody may have decided without this node having heard of it.
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

/// Hears what nodes tell, whatever breaks in between.
async fn listen(node: Arc<Node>, sender: mpsc::UnboundedSender<Vec<u8>>) {
    while !sender.is_closed() {
        let told = |message: &[u8]| drop(sender.send(message.to_vec()));
        let _ = node.shared().redis.hear(told).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Takes in what is told.
async fn obey(warden: Weak<Warden>, mut told: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(message) = told.recv().await {
        let Some(warden) = warden.upgrade() else { return };
        let Some(node) = warden.node() else { return };
        if message.is_empty() {
            // Whoever has just come in again may have missed something.
            let _ = node.reread().await;
            warden.look(node).await;
        } else if let Ok(letter) = serde_json::from_slice::<Letter>(&message) {
            warden.hear(node, letter).await;
        }
    }
}

/// Says when what nodes share goes away and when it is back.
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
            Some((_, why)) => ("degraded", format!("the state that nodes share is away: {why}")),
            None => ("recovered", "the state that nodes share is back".to_owned()),
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
                };
                warden.alert(&project, &alert);
            }
            warden.events.tell(Event::new(what, &project.name, "", "", text.clone()));
        }
    }
}

/// Looks by itself, now and then.
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
