//! Fingerprints: which incidents are alike, and whether those are muted.
//!
//! A mute silences alerts. The guard still refuses, and the incident is still recorded.

use std::collections::HashMap;
use std::sync::Arc;

use deadstop_core::{Call, GuardId, Time, Trip};
use deadstop_store::{Fingerprint, Mute, StoreError};

use crate::{Project, Warden};

/// The longest name of a tool that tells incidents apart.
const LONGEST: usize = 200;

/// What is muted in a project.
pub(crate) type Mutes = HashMap<Fingerprint, Mute>;

/// What a trip is about: the tool, where the guard judges one tool; otherwise its code for why. A
/// round of several calls has no single tool, and a limit is not about the call that met it.
pub(crate) fn about(trip: &Trip, call: &Call) -> String {
    let mixed = matches!(trip.reason.as_str(), "ping_pong" | "cycle" | "no_progress");
    let name = match (trip.guard, call.tool()) {
        (GuardId::Loop, Some(tool)) if !mixed => Some(tool.name.as_str()),
        (GuardId::Destructive | GuardId::Harm | GuardId::Access, Some(tool)) => {
            Some(tool.name.as_str())
        }
        (GuardId::Breaker, Some(tool)) => tool.server.as_deref(),
        (GuardId::Breaker, None) => call.model().and_then(|call| call.server.as_deref()),
        _ => None,
    };
    name.unwrap_or(&trip.reason).chars().take(LONGEST).collect()
}

impl Project {
    /// Whether incidents of an agent that are alike are muted.
    pub fn is_muted(&self, agent: &str, trip: &Trip, call: &Call, now: Time) -> bool {
        let mutes = Arc::clone(&self.mutes.read());
        if mutes.is_empty() {
            return false;
        }
        let fingerprint = Fingerprint {
            agent: agent.to_owned(),
            guard: trip.guard.name().to_owned(),
            about: about(trip, call),
        };
        mutes.get(&fingerprint).is_some_and(|mute| mute.holds(now))
    }
}

impl Warden {
    /// Reads the mutes of a project again.
    pub async fn reload_mutes(&self, project: &str) -> Result<(), StoreError> {
        let Some(store) = &self.store else { return Ok(()) };
        let mutes = store.mutes(project).await?;
        let mutes = mutes.into_iter().map(|mute| (mute.fingerprint.clone(), mute)).collect();
        *self.project(project).await?.mutes.write() = Arc::new(mutes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deadstop_core::{Link, ModelCall, Policy, ScopeKind, ScopeState, ToolCall, admit};

    fn trip(guard: GuardId, reason: &str) -> Trip {
        let mut session = ScopeState::new(ScopeKind::Session, Time(0));
        let mut policy = Policy::none();
        policy.steps.max_steps = Some(0);
        let mut chain = [Link { name: "s", state: &mut session, policy: &policy }];
        let refused = admit(&mut chain, &Call::Tool(ToolCall::default()), Time(1));
        Trip { guard, reason: reason.to_owned(), ..refused.trips[0].clone() }
    }

    #[test]
    fn what_is_about_a_tool_has_its_name() {
        let tool = |name: &str| {
            let server = Some("files".to_owned());
            Call::Tool(ToolCall { name: name.to_owned(), server, ..ToolCall::default() })
        };
        let model = Call::Model(ModelCall { server: Some("openai".into()), ..Default::default() });
        for (guard, reason, call, expected) in [
            (GuardId::Loop, "repetition", tool("get_build"), "get_build"),
            (GuardId::Loop, "ping_pong", tool("get_build"), "ping_pong"),
            (GuardId::Harm, "critical", tool("rm"), "rm"),
            (GuardId::Steps, "max_steps", tool("rm"), "max_steps"),
            (GuardId::Breaker, "open", tool("rm"), "files"),
            (GuardId::Breaker, "open", model.clone(), "openai"),
            (GuardId::Budget, "cost", model.clone(), "cost"),
        ] {
            assert_eq!(about(&trip(guard, reason), &call), expected, "{guard} {reason}");
        }
        let long = about(&trip(GuardId::Loop, "repetition"), &tool(&"ä".repeat(500)));
        assert_eq!(long.chars().count(), LONGEST);
    }
}
