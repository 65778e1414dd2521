//! *harm*: the first call that would do serious harm, not the third.
//!
//! **Catches** what one call would do, by its severity (see [`crate::harm`]): a home directory, a
//! production database, uncommitted work, a secret on its way out, Deadstop itself. **Lets pass**
//! what comes back: caches, files that this session created, files that version control keeps, and
//! what the policy exempts. **Trips** before the call runs. **Recovers** at once: it has no state.

use serde::{Deserialize, Serialize};

use crate::guard::Seat;
use crate::harm::{Harm, HarmKind, Recovery, Severity};
use crate::pattern::Pattern;
use crate::settings::{BadSetting, settings};
use crate::trip::{Action, GuardId, Trip};

/// What a policy wants done about a harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnHarm {
    /// Let it pass, silently.
    Allow,
    /// Let it pass and say so.
    Warn,
    /// Hold the call until a person decides about it.
    Ask,
    /// Refuse the call.
    Block,
    /// Refuse it and end the scope.
    #[serde(alias = "kill")]
    Terminate,
}

settings! {
    /// What to do about harmful calls, by their severity.
    HarmSettings / RawHarm {
        /// Whether to look at all.
        enabled: bool = false,
        /// What to do about catastrophic harm, and about calls that disable Deadstop.
        catastrophic: OnHarm = OnHarm::Ask,
        /// What to do about serious harm that does not come back.
        serious: OnHarm = OnHarm::Ask,
        /// What to do about serious harm that takes work to bring back.
        recoverable: OnHarm = OnHarm::Allow,
        /// What to do about serious harm of which the call does not tell whether it comes back, such
        /// as a tool called `delete_asset`: the destructive guard counts these.
        unknown: OnHarm = OnHarm::Allow,
        /// What to do about secrets that are read or sent, and about fetched code that is run.
        secrets: OnHarm = OnHarm::Warn,
        /// What to do about commands that cannot be read and contain words that destroy.
        unreadable: OnHarm = OnHarm::Warn,
        /// Deeds that are allowed, such as `rm -rf tmp/*`.
        allow: Vec<Pattern> = Vec::new(),
    }
}

/// Most patterns that a policy may list.
const MOST_ALLOWED: usize = 1000;

impl HarmSettings {
    pub(crate) fn validate(&self) -> Result<(), BadSetting> {
        if self.allow.len() <= MOST_ALLOWED {
            return Ok(());
        }
        Err(BadSetting::new(
            "harm.allow",
            format!("{} patterns are more than {MOST_ALLOWED}", self.allow.len()),
            "use `*` to say several of them in one",
        ))
    }

    /// Under `strict`: what balanced asks about is refused, what it lets pass is asked about.
    pub(crate) fn strict() -> HarmSettings {
        HarmSettings {
            enabled: true,
            catastrophic: OnHarm::Block,
            serious: OnHarm::Block,
            recoverable: OnHarm::Ask,
            unknown: OnHarm::Allow,
            secrets: OnHarm::Ask,
            unreadable: OnHarm::Ask,
            allow: Vec::new(),
        }
    }

    /// Turns everything that a preset may stop into a warning.
    pub(crate) fn warn_only(&mut self) {
        for action in [
            &mut self.catastrophic,
            &mut self.serious,
            &mut self.recoverable,
            &mut self.secrets,
            &mut self.unreadable,
        ] {
            *action = OnHarm::Warn;
        }
    }

    /// What the policy wants done about a harm.
    pub fn wants(&self, harm: &Harm) -> OnHarm {
        if self.allows(harm) {
            return OnHarm::Allow;
        }
        match (harm.kind, harm.severity()) {
            (HarmKind::ReadsSecret | HarmKind::SendsSecret | HarmKind::RunsDownload, _) => {
                self.secrets
            }
            (HarmKind::Unreadable, _) => self.unreadable,
            (_, Severity::Catastrophic) => self.catastrophic,
            (_, Severity::Serious) => match harm.recovery {
                Recovery::None => self.serious,
                Recovery::Unknown => self.unknown,
                _ => self.recoverable,
            },
            (_, Severity::Minor | Severity::None) => OnHarm::Allow,
        }
    }

    /// Whether a pattern exempts it. What disables Deadstop is never exempt.
    fn allows(&self, harm: &Harm) -> bool {
        if self.allow.is_empty() || harm.kind == HarmKind::DisablesDeadstop {
            return false;
        }
        let deed = harm.deed();
        self.allow.iter().any(|pattern| pattern.matches(&deed))
    }
}

pub(crate) struct Guard;

impl super::Guard for Guard {
    fn admit(&self, seat: &Seat<'_>) -> Option<Trip> {
        let settings = &seat.policy.harm;
        if !settings.enabled {
            return None;
        }
        let harms = seat.call.tool()?.harms.iter();
        let judged = harms.map(|harm| (settings.wants(harm), harm.severity(), harm));
        let (wants, _, harm) = judged.max_by_key(|(wants, severity, _)| (*wants, *severity))?;
        let action = match wants {
            OnHarm::Allow => return None,
            OnHarm::Warn => Action::Warn,
            OnHarm::Ask => Action::Ask,
            OnHarm::Block => Action::Block,
            OnHarm::Terminate => Action::Terminate,
        };
        let mut trip = seat.trip(GuardId::Harm, reason(harm), action);
        trip.because = format!("{}. Safer: {}", harm.because(), harm.instead());
        Some(trip)
    }
}

/// The stable code of a trip about a harm.
fn reason(harm: &Harm) -> &'static str {
    match (harm.kind, harm.severity()) {
        (HarmKind::ReadsSecret | HarmKind::SendsSecret, _) => "harm_secret",
        (HarmKind::RunsDownload, _) => "harm_download",
        (HarmKind::Unreadable, _) => "harm_unreadable",
        (HarmKind::DisablesDeadstop, _) => "harm_deadstop",
        (_, Severity::Catastrophic) => "harm_catastrophic",
        _ => "harm_serious",
    }
}
