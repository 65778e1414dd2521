//! Grants: given and taken back by operators, used up by calls; each with its entry in the audit.

use std::sync::Arc;

use deadstop_core::{Grant, ScopeState, Ticket, TooManyGrants};
use deadstop_store::AuditEvent;
use serde_json::json;

use super::record::subject;
use super::{Chain, Scope, Warden, now};

impl Warden {
    /// Gives a scope a grant; on disk when this returns.
    pub(crate) async fn give(
        &self,
        scope: &Arc<Scope>,
        grant: Grant,
    ) -> Result<Result<(), String>, TooManyGrants> {
        match self.node() {
            Some(node) => {
                let given = grant.clone();
                let change =
                    move |state: &mut ScopeState, _| state.give(given.clone(), given.given);
                match self.change_everywhere(node, scope, change).await {
                    Ok(given) => given?,
                    Err(error) => return Ok(Err(error)),
                }
            }
            None => scope.state.lock().give(grant.clone(), grant.given)?,
        }
        self.mark(scope);
        let (by, why) = (grant.by.clone(), grant.because.clone());
        self.granted(scope, "grant.give", &by, &why, &grant);
        let written = self.flush().await;
        let text = format!("granted by {by}: {} deletes ({why})", grant.deletes);
        self.tell_of(scope, "grant", text);
        Ok(written)
    }

    /// Takes a grant back; `None` if there is none of that number any more.
    pub(crate) async fn revoke_grant(
        &self,
        scope: &Arc<Scope>,
        id: u64,
        by: &str,
        reason: &str,
    ) -> Option<(Grant, Result<(), String>)> {
        let grant = match self.node() {
            Some(node) => {
                let change = move |state: &mut ScopeState, _| state.revoke(id);
                self.change_everywhere(node, scope, change).await.ok()??
            }
            None => scope.state.lock().revoke(id)?,
        };
        self.mark(scope);
        self.granted(scope, "grant.revoke", by, reason, &grant);
        let written = self.flush().await;
        let text = format!("grant revoked by {by}: {reason}");
        self.tell_of(scope, "grant", text);
        Some((grant, written))
    }

    /// A call has used a grant; the audit hears of it when nothing is left.
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
            project: scope.place.project.clone(),
            at: now(),
            who: who.to_owned(),
            action: action.to_owned(),
            subject: subject(scope),
            reason: reason.to_owned(),
            detail: detail.to_string(),
        });
    }
}
