//! Orders of operators: a change of one scope that holds on every node and is on disk before it is
//! acknowledged.

use std::sync::Arc;
use std::time::Duration;

use deadstop_core::{ScopeKind, ScopeState, Time};

use crate::backend::Pending;
use crate::step::{Judged, Step};
use crate::{Chain, Scope, Warden};

/// How long an order waits for its commit.
pub(crate) const SPREAD: Duration = Duration::from_secs(3);

/// The kind of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Kills the scope.
    Kill,
    /// Lifts a kill.
    Clear,
    /// A fresh start under the same name.
    Reset,
    /// Pauses the scope.
    Pause,
    /// Lifts a pause.
    Resume,
    /// Raises the limits of a session, and lifts the end that one of them brought.
    TopUp,
}

impl What {
    /// The name of the order.
    pub fn name(self) -> &'static str {
        match self {
            What::Kill => "kill",
            What::Clear => "clear",
            What::Reset => "reset",
            What::Pause => "pause",
            What::Resume => "resume",
            What::TopUp => "top_up",
        }
    }

    /// The past participle of the order.
    pub fn done(self) -> &'static str {
        match self {
            What::Kill => "killed",
            What::Clear => "cleared",
            What::Reset => "reset",
            What::Pause => "paused",
            What::Resume => "resumed",
            What::TopUp => "topped up",
        }
    }
}

/// An operator's order.
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    /// Who gave it.
    pub who: &'a str,
    /// Its kind.
    pub what: What,
    /// Why.
    pub reason: &'a str,
}

impl Order<'_> {
    /// The order as a sentence, once it is carried out.
    pub(crate) fn text(&self) -> String {
        format!("{} by {}: {}", self.what.done(), self.who, self.reason)
    }
}

impl Warden {
    /// The chain from the project down to a scope.
    pub(crate) fn chain_to(&self, scope: &Arc<Scope>) -> Result<Chain, String> {
        let project = self.projects.read().get(&scope.id.project).cloned();
        let project = project.ok_or_else(|| format!("there is no project {}", scope.id.project))?;
        let mut chain = Chain::new(project);
        if matches!(scope.kind(), ScopeKind::Session | ScopeKind::Nested)
            && let Some(agent) = self.live_agent(&scope.id.project, scope.agent())
        {
            chain.push(agent);
        }
        if scope.kind() != ScopeKind::Project {
            chain.push(Arc::clone(scope));
        }
        Ok(chain)
    }

    /// Changes one scope in a durable step.
    pub(crate) fn change<T: Send + 'static>(
        &self,
        scope: &Arc<Scope>,
        job: impl FnMut(&mut Step<'_, '_, '_>) -> T + Send + 'static,
    ) -> Result<Pending<Judged<T>>, String> {
        Ok(self.backend.run_durably(&self.chain_to(scope)?, None, job))
    }

    /// Applies an operator's order to a scope. Returns when the change and its audit entry are on
    /// disk and all nodes obey it.
    pub async fn order(
        &self,
        scope: &Arc<Scope>,
        order: Order<'_>,
        change: impl Fn(&mut ScopeState, Time) + Send + Sync + 'static,
    ) -> Result<(), String> {
        let change = Arc::new(change);
        // Only a kill or pause is applied here before the commit. A clear applied early could lift
        // a kill that this node has not seen.
        let stops = matches!(order.what, What::Kill | What::Pause);
        if order.what == What::Kill {
            scope.note_kill();
        }
        let unreachable = self.backend.unreachable().is_some();
        if unreachable && stops {
            self.force(scope, &*change);
        }
        let (work, fresh) =
            (Arc::clone(&change), (order.what == What::Reset).then(|| self.number()));
        let done = self.change(scope, move |step| {
            let now = step.now();
            if let Some(state) = step.state() {
                work(state, now);
            }
            if let Some(number) = fresh {
                step.renumber(number);
            }
        })?;
        let spread = in_time(done).await;
        if spread.is_err() && !unreachable && stops {
            self.force(scope, &*change);
        }
        if order.what == What::Reset {
            scope.forget_reported();
        }
        if order.what == What::TopUp {
            *scope.ended_by.lock() = None;
        }
        scope.tell_changed();
        self.tell_nodes_of(scope);
        self.ordered(scope, &order);
        self.mark(scope);
        let written = self.flush().await;
        // After a failover Redis may lack this order, and a node that read the database before this
        // write would not know it either. An empty step writes it to Redis again if it is missing.
        let kept = match (&spread, &written) {
            (Ok(()), Ok(())) => in_time(self.change(scope, |_| ())?).await,
            _ => Ok(()),
        };
        self.tell_of(scope, order.what.done(), order.text());
        spread.and(written).and(kept)
    }

    /// A fresh start under the same name for a killed session and its nested scopes. History stays
    /// with the old row number.
    pub async fn reset(&self, scope: &Arc<Scope>, order: Order<'_>) -> Result<(), String> {
        let below = format!("{}\u{1f}", scope.id.key);
        let mut nested = self.scopes(&scope.id.project);
        nested.retain(|nested| nested.id.key.starts_with(&below));
        // The old state is written before its row becomes that of the new session.
        self.mark(scope);
        self.flush().await?;
        let mut spread = Ok(());
        for nested in &nested {
            let fresh = self.number();
            let done = self.change(nested, move |step| {
                let now = step.now();
                if let Some(state) = step.state() {
                    state.reset(now);
                }
                step.renumber(fresh);
            })?;
            spread = in_time(done).await.and(spread);
            nested.forget_reported();
            nested.tell_changed();
            self.tell_nodes_of(nested);
            self.mark(nested);
        }
        self.order(scope, order, ScopeState::reset).await.and(spread)
    }
}

/// The result of a step, with a time limit.
pub(crate) async fn in_time<T>(done: Pending<Judged<T>>) -> Result<T, String> {
    match tokio::time::timeout(SPREAD, done.known()).await {
        Ok(Ok(judged)) => Ok(judged.value),
        Ok(Err(unreachable)) => Err(unreachable.why),
        Err(_) => Err(format!("Redis did not answer within {} s", SPREAD.as_secs())),
    }
}
