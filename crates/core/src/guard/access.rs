//! *access*: which tools may be called, by name and by argument.
//!
//! **Catches** tools on the deny list, tools missing from an allow list, and arguments that a rule
//! forbids. **Lets pass** model calls, and every tool when nothing is listed. **Trips** before the
//! loop guards look at the call: it is cheaper, and a call that was never allowed says nothing
//! about looping. **Recovers** with the next call that is allowed.
//!
//! Patterns are names with `*` for any characters; case does not matter, since an agent that may
//! not `delete_user` may not `Delete_User` either. Deny wins over allow and over ask: a tool that
//! stands under `ask` waits for a person, whatever is done with those that are denied. A tool of an
//! MCP server goes by two names, its own and the one that clients give it (`mcp__server__tool`).

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
        /// Tools that may be called once a person has approved the call.
        ask: Vec<Pattern> = Vec::new(),
        /// Tools that may not be called with certain arguments.
        rules: Vec<Rule> = Vec::new(),
        /// What to do with a call that is not allowed.
        action: Action = Action::Block,
        /// What to do with a tool whose server describes it otherwise than at first.
        pin_tools: Pin = Pin::Off,
    }
}

/// What to do with a tool whose server describes it otherwise than when it was first seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pin {
    /// Nothing.
    #[default]
    Off,
    /// Say so.
    Warn,
    /// Refuse its calls until a person has accepted the change.
    Block,
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
    /// What to do then, if it is not what is done with all calls that are not allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
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
    /// Whether a tool of this name is refused whatever its arguments are: there is no use in
    /// offering it.
    pub fn hides(&self, name: &str, server: Option<&str>) -> bool {
        self.action != Action::Warn && refused_by_name(self, name, server).is_some()
    }

    /// Whether tools that have changed are refused, and so not to be seen.
    pub fn pins_hide(&self) -> bool {
        self.pin_tools == Pin::Block
    }

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
    let access = &seat.policy.access;
    let found = [denied(access, call), changed(access, call)].into_iter().flatten();
    let strictest = found.reduce(|one, two| match two.action.verdict() > one.action.verdict() {
        true => two,
        false => one,
    });
    let Denied { reason, because, action } = strictest?;
    let mut trip = seat.trip(GuardId::Access, reason, action);
    trip.because = because;
    Some(trip)
}

struct Denied {
    reason: &'static str,
    because: String,
    action: Action,
}

impl Denied {
    fn new(reason: &'static str, because: String, action: Action) -> Option<Denied> {
        Some(Denied { reason, because, action })
    }
}

fn changed(access: &AccessSettings, call: &ToolCall) -> Option<Denied> {
    let action = match access.pin_tools {
        Pin::Warn => Action::Warn,
        Pin::Block => Action::Block,
        Pin::Off => return None,
    };
    if !call.changed {
        return None;
    }
    let because = match call.added {
        true => format!("{} was added after the tools of its server were first seen", call.name),
        false => format!("{} is described otherwise than when it was first seen", call.name),
    };
    Denied::new("tool_changed", because, action)
}

/// Whether a pattern means a tool, under either of its names. Some agents cut off what stands around a name
/// before they look the tool up.
fn means(name: &str, server: Option<&str>) -> impl Fn(&&Pattern) -> bool {
    let around = |c: char| {
        c.is_whitespace()
            || c.is_control()
            || matches!(c, '\u{200b}' | '\u{feff}' | '"' | '\'' | '`')
    };
    let name = name.trim_matches(around);
    let qualified = server.map(|server| format!("mcp__{server}__{name}"));
    move |pattern| {
        pattern.matches(name) || qualified.as_deref().is_some_and(|name| pattern.matches(name))
    }
}

fn refused_by_name(access: &AccessSettings, name: &str, server: Option<&str>) -> Option<Denied> {
    let meant = means(name, server);
    if let Some(pattern) = access.deny.iter().find(&meant) {
        let because = format!("{name} is denied by the pattern {pattern}");
        return Denied::new("tool_denied", because, access.action);
    }
    if !access.allow.is_empty() && !access.allow.iter().any(|pattern| meant(&pattern)) {
        let because = format!("{name} is not among the allowed tools");
        return Denied::new("tool_not_allowed", because, access.action);
    }
    None
}

fn denied(access: &AccessSettings, call: &ToolCall) -> Option<Denied> {
    let (name, server) = (&call.name, call.server.as_deref());
    if let Some(refused) = refused_by_name(access, name, server) {
        return Some(refused);
    }
    let meant = means(name, server);
    // Of several rules the strictest holds, among equals the first.
    let broken = access.rules.iter().filter(|rule| meant(&&rule.tool)).filter_map(|rule| {
        let argument = call.arguments.iter().find(|argument| rule.denies(argument))?;
        Some((rule.action.unwrap_or(access.action), argument))
    });
    let strictest = broken.reduce(|one, two| match two.0.verdict() > one.0.verdict() {
        true => two,
        false => one,
    });
    let asks = access.ask.iter().find(&meant);
    match (strictest, asks) {
        (Some((Action::Warn, _)) | None, Some(pattern)) => {
            let because = format!("{name} needs approval by the pattern {pattern}");
            Denied::new("approval_needed", because, Action::Ask)
        }
        (Some((action, argument)), _) => {
            let because = match action {
                Action::Ask => format!("{name} with this {} needs approval", argument.path),
                _ => format!("{name} may not be called with this {}", argument.path),
            };
            Denied::new("argument_denied", because, action)
        }
        (None, None) => None,
    }
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
        assert_eq!(denied(&access, &call).map(|d| d.reason), expected, "{policy} {tool}");
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
        // Found from outside: agents that trim the name ran the tool.
        for name in [" delete_user", "delete_user\n", "\u{200b}delete_user", "`delete_user`"] {
            check(r#"{"deny":["delete_*"]}"#, name, &[], Some("tool_denied"));
        }

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
    fn by_a_person() {
        let ask = r#"{"ask":["delete_*"],"deny":["delete_prod*"],"rules":[
            {"tool":"delete_*","argument":"force","matches":"true"},
            {"tool":"refund","argument":"amount","above":100,"action":"ask"},
            {"tool":"refund","argument":"amount","above":1000,"action":"terminate"}]}"#;
        check(ask, "delete_asset", &[], Some("approval_needed"));
        check(ask, "delete_prod_db", &[], Some("tool_denied"));
        check(ask, "delete_asset", &[("force", "true")], Some("argument_denied"));
        check(ask, "read", &[], None);
        let mut access = AccessSettings::default();
        serde_json::from_str::<RawAccess>(ask).unwrap().over(&mut access);
        for (amount, expected) in
            [("50", None), ("500", Some(Action::Ask)), ("5000", Some(Action::Terminate))]
        {
            let arguments = vec![Argument { path: "amount".into(), value: amount.into() }];
            let call = ToolCall { name: "refund".into(), arguments, ..ToolCall::default() };
            assert_eq!(denied(&access, &call).map(|d| d.action), expected, "{amount}");
        }
    }

    #[test]
    fn tools_of_servers_have_two_names() {
        let access = |policy: &str| {
            let mut access = AccessSettings::default();
            serde_json::from_str::<RawAccess>(policy).unwrap().over(&mut access);
            access
        };
        for (policy, hidden) in [
            ("{}", false),
            (r#"{"deny":["delete"]}"#, true),
            (r#"{"deny":["mcp__files__*"]}"#, true),
            (r#"{"deny":["mcp__other__*"]}"#, false),
            (r#"{"allow":["mcp__files__delete"]}"#, false),
            (r#"{"allow":["mcp__other__*"]}"#, true),
            (r#"{"deny":["delete"],"action":"warn"}"#, false),
        ] {
            assert_eq!(access(policy).hides("delete", Some("files")), hidden, "{policy}");
        }
        assert!(!access(r#"{"deny":["mcp__files__*"]}"#).hides("delete", None));
    }

    #[test]
    fn a_tool_that_is_described_otherwise() {
        for (pin, changed, expected) in [
            ("off", true, None),
            ("warn", false, None),
            ("warn", true, Some(Action::Warn)),
            ("block", true, Some(Action::Block)),
        ] {
            let mut access = AccessSettings::default();
            let raw = format!(r#"{{"pin_tools":"{pin}"}}"#);
            serde_json::from_str::<RawAccess>(&raw).unwrap().over(&mut access);
            let call = ToolCall { name: "t".into(), changed, ..ToolCall::default() };
            assert_eq!(super::changed(&access, &call).map(|found| found.action), expected, "{pin}");
        }
    }

    #[test]
    fn a_rule_without_a_condition_is_a_mistake() {
        let raw = r#"{"rules":[{"tool":"a","argument":"b"}]}"#;
        let mut access = AccessSettings::default();
        serde_json::from_str::<RawAccess>(raw).unwrap().over(&mut access);
        assert_eq!(access.validate().unwrap_err().path, "access.rules[0]");
    }
}
