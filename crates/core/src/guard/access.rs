//! *access*: which tools may be called, by name and by argument.
//!
//! **Catches** tools on the deny list, tools missing from an allow list, and arguments that a rule
//! forbids. **Lets pass** model calls, and every tool when nothing is listed. **Trips** before the
//! loop guards look at the call: it is cheaper, and a call that was never allowed says nothing
//! about looping. **Recovers** with the next call that is allowed.
//!
//! Patterns are names with `*` for any characters; case does not matter, since an agent that may
//! not `delete_user` may not `Delete_User` either. Deny wins over allow.

use serde::{Deserialize, Serialize};

use crate::call::{Argument, ToolCall};
use crate::guard::Seat;
use crate::pattern::Pattern;
use crate::settings::{BadSetting, settings};
use crate::trip::{Action, GuardId, Trip};

settings! {
    /// Tools allowed and denied.
    AccessSettings / RawAccess {
        /// If not empty, only tools that match one of these may be called.
        allow: Vec<Pattern> = Vec::new(),
        /// Tools that may not be called.
        deny: Vec<Pattern> = Vec::new(),
        /// Tools that may not be called with certain arguments.
        rules: Vec<Rule> = Vec::new(),
        /// What to do with a call that is not allowed.
        action: Action = Action::Block,
    }
}

/// Denies a tool when one of its arguments is of a kind.
///
/// With several conditions all must hold, for the same argument.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The tools it is about.
    pub tool: Pattern,
    /// The arguments it is about, by path (`path`, `files.*.name`).
    pub argument: Pattern,
    /// Denied when the value matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matches: Option<Pattern>,
    /// Denied when the value is a number above this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<f64>,
    /// Denied when the value is a number below this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<f64>,
}

impl Rule {
    fn denies(&self, argument: &Argument) -> bool {
        let number = || argument.value.trim().parse::<f64>().ok();
        self.argument.matches(&argument.path)
            && self.matches.as_ref().is_none_or(|pattern| pattern.matches(&argument.value))
            && self.above.is_none_or(|limit| number().is_some_and(|n| n > limit))
            && self.below.is_none_or(|limit| number().is_some_and(|n| n < limit))
    }
}

impl AccessSettings {
    pub(crate) fn validate(&self) -> Result<(), BadSetting> {
        let vague = |r: &Rule| r.matches.is_none() && r.above.is_none() && r.below.is_none();
        match self.rules.iter().position(vague) {
            None => Ok(()),
            Some(at) => Err(BadSetting::new(
                &format!("access.rules[{at}]"),
                "the rule has no condition",
                "add `matches`, `above` or `below`, or name the tool under `deny`",
            )),
        }
    }
}

/// Refuses a tool call that is not allowed.
pub(crate) fn admit(seat: &Seat<'_>) -> Option<Trip> {
    let call = seat.call.tool()?;
    let (reason, because) = denied(&seat.policy.access, call)?;
    let mut trip = seat.trip(GuardId::Access, reason, seat.policy.access.action);
    trip.because = because;
    Some(trip)
}

fn denied(access: &AccessSettings, call: &ToolCall) -> Option<(&'static str, String)> {
    let name = &call.name;
    if let Some(pattern) = access.deny.iter().find(|p| p.matches(name)) {
        return Some(("tool_denied", format!("{name} is denied by the pattern {pattern}")));
    }
    if !access.allow.is_empty() && !access.allow.iter().any(|p| p.matches(name)) {
        return Some(("tool_not_allowed", format!("{name} is not among the allowed tools")));
    }
    for rule in access.rules.iter().filter(|rule| rule.tool.matches(name)) {
        if let Some(argument) = call.arguments.iter().find(|argument| rule.denies(argument)) {
            let because = format!("{name} may not be called with this {}", argument.path);
            return Some(("argument_denied", because));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(policy: &str, tool: &str, arguments: &[(&str, &str)], expected: Option<&str>) {
        let mut access = AccessSettings::default();
        serde_json::from_str::<RawAccess>(policy).unwrap().over(&mut access);
        assert_eq!(access.validate(), Ok(()));
        let arguments = arguments
            .iter()
            .map(|(path, value)| Argument { path: (*path).into(), value: (*value).into() })
            .collect();
        let call = ToolCall { name: tool.into(), arguments, ..ToolCall::default() };
        assert_eq!(denied(&access, &call).map(|(r, _)| r), expected, "{policy} {tool}");
    }

    #[test]
    fn by_name_and_by_argument() {
        check("{}", "anything", &[], None);
        check(r#"{"deny":["delete_*"]}"#, "delete_user", &[], Some("tool_denied"));
        check(r#"{"deny":["delete_*"]}"#, "DELETE_USER", &[], Some("tool_denied"));
        check(r#"{"deny":["delete_*"]}"#, "undelete_user", &[], None);
        check(r#"{"allow":["read_*"]}"#, "read_file", &[], None);
        check(r#"{"allow":["read_*"]}"#, "write_file", &[], Some("tool_not_allowed"));
        check(r#"{"allow":["*"],"deny":["rm"]}"#, "rm", &[], Some("tool_denied"));

        let sql = r#"{"rules":[{"tool":"*sql*","argument":"query","matches":"*drop *"}]}"#;
        check(sql, "run_sql", &[("query", "DROP table x")], Some("argument_denied"));
        check(sql, "run_sql", &[("query", "select 1")], None);
        check(sql, "run_sql", &[("note", "drop it")], None);
        check(sql, "search", &[("query", "drop it")], None);

        let refund = r#"{"rules":[{"tool":"refund","argument":"amount","above":100}]}"#;
        check(refund, "refund", &[("amount", "100")], None);
        check(refund, "refund", &[("amount", "100.5")], Some("argument_denied"));
        check(refund, "refund", &[("amount", "lots")], None);
        let low = r#"{"rules":[{"tool":"bid","argument":"amount","below":1}]}"#;
        check(low, "bid", &[("amount", "0.5")], Some("argument_denied"));
        check(low, "bid", &[("amount", "1")], None);
        check(low, "bid", &[("id", "7"), ("amount", "0")], Some("argument_denied"));
    }

    #[test]
    fn a_rule_without_a_condition_is_a_mistake() {
        let raw = r#"{"rules":[{"tool":"a","argument":"b"}]}"#;
        let mut access = AccessSettings::default();
        serde_json::from_str::<RawAccess>(raw).unwrap().over(&mut access);
        assert_eq!(access.validate().unwrap_err().path, "access.rules[0]");
    }
}
