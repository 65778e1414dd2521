//! Grants: given and revoked by operators, used up by calls. Each change has an audit entry.

use std::sync::Arc;

use deadstop_core::{Grant, ScopeState, Ticket, TooManyGrants};
use deadstop_store::AuditEvent;
use serde_json::json;

use super::orders::in_time;
use super::record::subject;
use super::{Chain, Scope, Warden, now};

impl Warden {
    /// Gives a scope a grant; it is on disk when this returns.
    pub async fn give(
        &self,
        scope: &Arc<Scope>,
        grant: Grant,
    ) -> Result<Result<(), String>, TooManyGrants> {
        let given = grant.clone();
        let give = move |state: &mut ScopeState| state.give(given.clone(), given.given);
        match self.change_scope(scope, give).await {
            Ok(given) => given?,
            Err(error) => return Ok(Err(error)),
        }
        self.mark(scope);
        let (by, why) = (grant.by.clone(), grant.because.clone());
        self.granted(scope, "grant.give", &by, &why, &grant);
        let written = self.flush().await;
        let text = format!("granted by {by}: {} deletes ({why})", grant.deletes);
        self.tell_of(scope, "grant", text);
        Ok(written)
    }

    /// Revokes a grant; `None` if there is none with that number.
    pub async fn revoke_grant(
        &self,
        scope: &Arc<Scope>,
        id: u64,
        by: &str,
        reason: &str,
    ) -> Option<(Grant, Result<(), String>)> {
        let grant = self.change_scope(scope, move |state| state.revoke(id)).await.ok()??;
        self.mark(scope);
        self.granted(scope, "grant.revoke", by, reason, &grant);
        let written = self.flush().await;
        let text = format!("grant revoked by {by}: {reason}");
        self.tell_of(scope, "grant", text);
        Some((grant, written))
    }

    /// Changes a scope's state; returns when all nodes obey the change.
    async fn change_scope<T: Send + 'static>(
        &self,
        scope: &Arc<Scope>,
        mut change: impl FnMut(&mut ScopeState) -> T + Send + 'static,
    ) -> Result<T, String> {
        let done = self.change(scope, move |step| step.state().map(&mut change))?;
        let value = in_time(done).await?;
        self.tell_nodes_of(scope);
        value.ok_or_else(|| "there is no such scope".to_owned())
    }

    /// Notes that a call used a grant; the audit records when it is used up.
    pub(super) fn note_grant(&self, chain: &Chain, ticket: &Ticket) {
        let Some((grant, depth)) = ticket.granted().filter(|(grant, _)| grant.left == 0) else {
            return;
        };
        let Some(scope) = chain.scopes().get(depth) else { return };
        self.granted(scope, "grant.used_up", "deadstop", &grant.because, grant);
        self.tell_of(scope, "grant", format!("the grant of {} is used up", grant.by));
    }

    fn granted(&self, scope: &Scope, action: &str, who: &str, reason: &str, grant: &Grant) {
        let detail = json!({
            "grant": grant.id.to_string(),
            "deletes": grant.deletes,
            "left": grant.left,
            "tool": grant.tool,
            "target": grant.target,
            "expires_ms": grant.expires.0,
        });
        self.outbox.lock().audit.push(AuditEvent {
            number: self.number(),
            project: scope.id.project.clone(),
            at: now(),
            who: who.to_owned(),
            action: action.to_owned(),
            subject: subject(scope),
            reason: reason.to_owned(),
            detail: detail.to_string(),
        });
    }
}
