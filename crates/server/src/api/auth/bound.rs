//! Which agents a key may act as.

use deadstop_core::Pattern;

/// The agents that a caller may be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Bound {
    /// Whichever it names.
    #[default]
    Any,
    /// This one, whatever it names.
    One(String),
    /// One that fits this pattern, and it has to say which.
    Like(Pattern),
}

impl Bound {
    /// What a key's text says: a name, a pattern with `*`, or nothing.
    pub(crate) fn of(text: Option<&str>) -> Bound {
        match text {
            None => Bound::Any,
            Some(text) if Pattern::new(text).is_exact() => Bound::One(text.to_owned()),
            Some(text) => Bound::Like(Pattern::new(text)),
        }
    }

    /// Whether a caller may be this agent.
    pub(crate) fn admits(&self, agent: &str) -> bool {
        match self {
            Bound::Any => true,
            Bound::One(own) => own == agent,
            Bound::Like(pattern) => pattern.matches(agent),
        }
    }

    /// The agent that a call belongs to which names this one, or none; `None` if it may not be made.
    pub(crate) fn resolve(&self, named: Option<String>) -> Option<Option<String>> {
        match self {
            Bound::Any => Some(named),
            Bound::One(own) => Some(Some(own.clone())),
            Bound::Like(pattern) => named.filter(|agent| pattern.matches(agent)).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_a_pattern_or_any() {
        for (text, agent, admits, resolved) in [
            (None, "a", true, Some(Some("a"))),
            (Some("a"), "a", true, Some(Some("a"))),
            (Some("a"), "b", false, Some(Some("a"))),
            (Some("team-*"), "team-1", true, Some(Some("team-1"))),
            (Some("team-*"), "other", false, None),
        ] {
            let bound = Bound::of(text);
            assert_eq!(bound.admits(agent), admits, "{text:?} {agent}");
            let resolved = resolved.map(|agent| agent.map(str::to_owned));
            assert_eq!(bound.resolve(Some(agent.to_owned())), resolved, "{text:?} {agent}");
        }
        assert_eq!(Bound::of(Some("team-*")).resolve(None), None);
        assert_eq!(Bound::of(None).resolve(None), Some(None));
    }
}
