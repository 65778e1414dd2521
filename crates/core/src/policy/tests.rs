//! Presets, what may be typed, and what is wrong with what was typed.

use serde_json::{Value, json};

use super::*;
use crate::SimilaritySettings;
use crate::ledger::{Period, Reservation};
use crate::pattern::Pattern;
use crate::settings::{Dollars, Seconds};
use crate::trip::Ends;
use crate::units::{NanoUsd, Tokens};

fn resolve(raw: Value) -> Result<PolicySet, BadSetting> {
    serde_json::from_value::<RawPolicy>(raw).unwrap().resolve()
}

fn valid(raw: Value) -> PolicySet {
    resolve(raw).unwrap()
}

/// No limit and no detector, as it is written.
fn nothing() -> Value {
    json!({
        "mode": "enforce",
        "fail_mode": "open",
        "ask_timeout_s": 300,
        "offline_calls": 1000,
        "access": {
            "allow": [], "deny": [], "ask": [], "rules": [], "action": "block", "pin_tools": "off"
        },
        "steps": { "max_steps": null, "max_model_calls": null, "action": "terminate" },
        "tokens": {
            "input_token_limit": null,
            "output_token_limit": null,
            "total_token_limit": null,
            "action": "terminate",
        },
        "budget": {
            "max_cost_usd": null,
            "soft_alert_threshold_usd": null,
            "per": "total",
            "reservation": "expected",
            "ceiling_share": 0.125,
            "wait_s": 30,
            "tool_prices": {},
            "action": "terminate",
        },
        "time": { "max_wall_time_seconds": null, "action": "terminate" },
        "velocity": {
            "max_usd_per_minute": null,
            "max_tokens_per_minute": null,
            "action": "block",
        },
        "loop": {
            "enabled": false, "threshold": 5, "action": "warn", "ends": "session",
            "steer_at": "off", "block_at": "off", "end_at": "off", "max_wait_s": 1800, "tools": {}
        },
        "similarity": {
            "enabled": false,
            "window_size": 20,
            "threshold": 10.0,
            "prompt_weight": 1.0,
            "response_weight": 2.0,
            "tool_call_weight": 1.5,
            "action": "terminate",
            "ends": "agent",
        },
        "text_loop": {
            "enabled": false,
            "max_repeated_answers": 5,
            "steer_at": "off",
            "end_at": "off",
            "action": "warn",
            "ends": "session",
        },
        "destructive": {
            "enabled": false,
            "max_deletes": 3,
            "max_same_target": 3,
            "window_s": 60,
            "exempt_targets": [],
            "action": "terminate",
            "ends": "session",
        },
        "harm": {
            "enabled": false,
            "catastrophic": "ask",
            "serious": "ask",
            "recoverable": "allow",
            "unknown": "allow",
            "secrets": "warn",
            "unreadable": "warn",
            "allow": [],
        },
        "breaker": {
            "enabled": false,
            "open_after_failures": 5,
            "cooldown_seconds": 30,
            "half_open_max_calls": 3,
            "action": "block",
        },
        "swarm": {
            "max_agents": null,
            "max_parallel": null,
            "max_depth": null,
            "max_spawns_per_minute": null,
            "action": "block",
        },
        "quota": { "max_used": "off", "action": "block" },
        "ending": { "wrap_up_at": "90%", "reserve_for_answer": "off" },
        "strikes": {
            "enabled": false,
            "consecutive_blocks": 5,
            "consecutive_errors": 3,
            "provider_errors": false,
            "action": "terminate",
        },
    })
}

/// The same with some parts written anew.
fn with(mut base: Value, changes: &[(&str, Value)]) -> Value {
    for (pointer, value) in changes {
        *base.pointer_mut(pointer).unwrap() = value.clone();
    }
    base
}

/// The same with every action a warning.
fn warned(mut policy: Value) -> Value {
    for (_, section) in policy.as_object_mut().unwrap() {
        if let Some(action) = section.get_mut("action") {
            *action = json!("warn");
        }
    }
    policy["ending"]["wrap_up_at"] = json!("off");
    for harm in ["catastrophic", "serious", "recoverable", "secrets", "unreadable"] {
        policy["harm"][harm] = json!("warn");
    }
    policy
}

fn check(policy: &Policy, expected: &Value) {
    assert_eq!(&serde_json::to_value(policy).unwrap(), expected);
}

#[test]
fn presets_are_exactly_these() {
    let on = json!(true);
    let noticing = with(
        nothing(),
        &[
            ("/loop/enabled", on.clone()),
            ("/text_loop/enabled", on.clone()),
            ("/destructive/enabled", on.clone()),
            ("/harm/enabled", on.clone()),
            ("/strikes/enabled", on.clone()),
            ("/access/pin_tools", json!("warn")),
        ],
    );
    let balanced = with(
        noticing.clone(),
        &[
            ("/loop/steer_at", json!(3)),
            ("/loop/block_at", json!(5)),
            ("/loop/end_at", json!(10)),
            ("/text_loop/steer_at", json!(3)),
            ("/text_loop/end_at", json!(10)),
        ],
    );
    let stop = json!("terminate");
    let strict = with(
        balanced.clone(),
        &[
            ("/loop/action", stop.clone()),
            ("/loop/end_at", json!(8)),
            ("/text_loop/action", stop.clone()),
            ("/text_loop/end_at", json!(8)),
            ("/access/pin_tools", json!("block")),
            ("/harm/catastrophic", json!("block")),
            ("/harm/serious", json!("block")),
            ("/harm/recoverable", json!("ask")),
            ("/harm/secrets", json!("ask")),
            ("/harm/unreadable", json!("ask")),
        ],
    );
    let observe = warned(with(noticing, &[("/similarity/enabled", on.clone())]));
    let failing =
        with(nothing(), &[("/breaker/enabled", on.clone()), ("/loop/enabled", on.clone())]);
    let breaking = with(failing, &[("/loop/steer_at", json!(5))]);
    let balanced_agent = with(
        breaking.clone(),
        &[
            ("/destructive/enabled", on.clone()),
            ("/destructive/max_deletes", json!(30)),
            ("/destructive/max_same_target", json!(5)),
            ("/destructive/action", json!("block")),
        ],
    );
    let across = with(
        breaking.clone(),
        &[
            ("/destructive/enabled", on),
            ("/destructive/max_deletes", json!(30)),
            ("/destructive/max_same_target", json!(5)),
        ],
    );
    let across = with(across, &[("/loop/block_at", json!(10)), ("/loop/end_at", json!(20))]);
    let off = json!("off");
    let single =
        [("/loop/steer_at", off.clone()), ("/loop/block_at", off.clone()), ("/loop/end_at", off)];
    let across_warned = warned(with(across.clone(), &single));

    check(&Policy::none(), &nothing());
    check(&Policy::balanced(), &balanced);
    check(&Policy::strict(), &strict);
    check(&Policy::observe(), &observe);
    for (preset, session, agent) in [
        (Preset::Observe, observe, across_warned),
        (Preset::Balanced, balanced, balanced_agent),
        (Preset::Strict, strict, across),
    ] {
        let set = preset.policies();
        check(&set.session, &session);
        check(&set.agent, &agent);
        check(&set.project, &nothing());
        assert_eq!(set.nested, set.session.inside());
        assert_eq!(valid(json!({ "preset": preset.name() })), set);
    }
    assert_eq!(valid(json!({})), Preset::Balanced.policies());
}

#[test]
fn presets_have_names() {
    let names = Preset::ALL.map(Preset::name);
    assert_eq!(names, ["observe", "balanced", "strict"]);
    for preset in Preset::ALL {
        assert_eq!(Preset::named(preset.name()), Some(preset));
        assert_eq!(serde_json::to_value(preset).unwrap(), preset.name());
    }
    assert_eq!(Preset::named("Strict"), None);
    assert_eq!(Preset::default(), Preset::Balanced);
}

#[test]
fn patterns_are_looked_for_inside_and_counts_are_kept_above() {
    let session = valid(json!({
        "mode": "log-only",
        "loop": { "threshold": 7 },
        "similarity": { "enabled": true },
        "text_loop": { "max_repeated_answers": 9 },
        "steps": { "max_steps": 3 },
        "budget": { "max_cost_usd": 1 },
    }));
    let inside = session.session.inside();
    assert_eq!(session.nested, inside);
    assert_eq!((inside.mode, inside.loops.threshold), (Mode::LogOnly, 7));
    assert!(inside.loops.enabled && inside.similarity.enabled && inside.text_loop.enabled);
    assert_eq!(inside.text_loop.max_repeated_answers, 9);
    assert_eq!((inside.steps.max_steps, inside.budget.max_cost_usd), (None, None));
    assert!(!inside.destructive.enabled && !inside.strikes.enabled && !inside.breaker.enabled);
}

#[test]
fn each_kind_of_scope_has_its_policy() {
    let set = valid(json!({
        "steps": { "max_steps": 1 },
        "agent": { "steps": { "max_steps": 2 } },
        "project": { "steps": { "max_steps": 3 } },
        "nested": { "steps": { "max_steps": 4 } },
    }));
    for (kind, steps) in [
        (ScopeKind::Session, 1),
        (ScopeKind::Agent, 2),
        (ScopeKind::Project, 3),
        (ScopeKind::Nested, 4),
    ] {
        assert_eq!(set.of(kind).steps.max_steps, Some(steps), "{kind:?}");
    }
    // What is not said stays as the preset has it.
    assert!(set.session.loops.enabled && set.nested.loops.enabled && set.agent.breaker.enabled);
}

#[test]
fn every_setting_can_be_typed() {
    let set = valid(json!({
        "preset": "strict",
        "access": {
            "allow": ["read_*"],
            "deny": ["rm"],
            "rules": [{ "tool": "refund", "argument": "amount", "above": 100 }],
            "action": "terminate",
            "pin_tools": "warn",
        },
        "steps": { "max_steps": 10, "max_model_calls": 20, "action": "block" },
        "tokens": {
            "input_token_limit": 1, "output_token_limit": 2, "total_token_limit": 3,
            "action": "warn",
        },
        "budget": {
            "max_cost_usd": 2.5, "soft_alert_threshold_usd": 2, "per": "day",
            "reservation": "ceiling", "tool_prices": { "search*": 0.01 }, "action": "block",
        },
        "time": { "max_wall_time_seconds": 60, "action": "warn" },
        "velocity": {
            "max_usd_per_minute": 0.5, "max_tokens_per_minute": 1000, "action": "kill",
        },
        "loop": { "enabled": false, "threshold": 2, "action": "block", "ends": "scope" },
        "similarity": {
            "enabled": true, "window_size": 10, "threshold": 5.0, "prompt_weight": 0.5,
            "response_weight": 0.25, "tool_call_weight": 0.0, "action": "warn", "ends": "session",
        },
        "text_loop": { "enabled": false, "max_repeated_answers": 2, "action": "block", "ends": "agent" },
        "destructive": {
            "enabled": false, "max_deletes": 10, "max_same_target": 2, "window_s": 30,
            "exempt_targets": ["/tmp/*"], "action": "block", "ends": "agent",
        },
        "breaker": {
            "enabled": false, "open_after_failures": 1, "cooldown_seconds": 2,
            "half_open_max_calls": 3, "action": "warn",
        },
        "strikes": {
            "enabled": false, "consecutive_blocks": 1, "consecutive_errors": 2, "action": "warn",
        },
    }));
    let policy = &set.session;
    assert_eq!(policy.access.allow, [Pattern::new("read_*")]);
    assert_eq!(policy.access.deny, [Pattern::new("rm")]);
    assert_eq!((policy.access.rules.len(), policy.access.action), (1, Action::Terminate));
    assert_eq!(policy.access.rules[0].above, Some(100.0));
    assert_eq!((policy.steps.max_steps, policy.steps.max_model_calls), (Some(10), Some(20)));
    assert_eq!(policy.steps.action, Action::Block);
    let tokens = &policy.tokens;
    assert_eq!(tokens.input_token_limit, Some(Tokens(1)));
    assert_eq!(tokens.output_token_limit, Some(Tokens(2)));
    assert_eq!((tokens.total_token_limit, tokens.action), (Some(Tokens(3)), Action::Warn));
    let budget = &policy.budget;
    assert_eq!(budget.max_cost_usd, Some(Dollars(NanoUsd(2_500_000_000))));
    assert_eq!(budget.soft_alert_threshold_usd, Some(Dollars(NanoUsd(2_000_000_000))));
    assert_eq!((budget.per, budget.reservation), (Period::Day, Reservation::Ceiling));
    assert_eq!(budget.tool_price("search_web"), Some(NanoUsd(10_000_000)));
    assert_eq!((budget.tool_price("fetch"), budget.action), (None, Action::Block));
    assert_eq!(policy.time.max_wall_time_seconds, Some(Seconds(60)));
    assert_eq!(policy.time.action, Action::Warn);
    let velocity = &policy.velocity;
    assert_eq!(velocity.max_usd_per_minute, Some(Dollars(NanoUsd(500_000_000))));
    assert_eq!(velocity.max_tokens_per_minute, Some(Tokens(1000)));
    assert_eq!(velocity.action, Action::Terminate, "kill is another word for terminate");
    let loops = &policy.loops;
    assert_eq!((loops.enabled, loops.threshold), (false, 2));
    assert_eq!((loops.action, loops.ends), (Action::Block, Ends::Scope));
    let similarity = &policy.similarity;
    assert_eq!((similarity.window_size, similarity.threshold), (10, 5.0));
    assert_eq!((similarity.prompt_weight, similarity.response_weight), (0.5, 0.25));
    assert_eq!((similarity.enabled, similarity.tool_call_weight), (true, 0.0));
    assert_eq!((similarity.action, similarity.ends), (Action::Warn, Ends::Session));
    let text_loop = &policy.text_loop;
    assert_eq!((text_loop.enabled, text_loop.max_repeated_answers), (false, 2));
    assert_eq!((text_loop.action, text_loop.ends), (Action::Block, Ends::Agent));
    let destructive = &policy.destructive;
    assert_eq!((destructive.enabled, destructive.max_deletes), (false, 10));
    assert_eq!((destructive.max_same_target, destructive.window_s), (2, Seconds(30)));
    assert_eq!(destructive.exempt_targets, [Pattern::new("/tmp/*")]);
    assert_eq!((destructive.action, destructive.ends), (Action::Block, Ends::Agent));
    // The breaker is kept per agent, wherever it was typed.
    let breaker = &set.agent.breaker;
    assert_eq!((breaker.enabled, breaker.open_after_failures), (false, 1));
    assert_eq!((breaker.cooldown_seconds, breaker.half_open_max_calls), (Seconds(2), 3));
    assert_eq!(breaker.action, Action::Warn);
    assert_eq!(policy.breaker, Policy::none().breaker);
    let strikes = &policy.strikes;
    assert_eq!((strikes.enabled, strikes.consecutive_blocks), (false, 1));
    assert_eq!((strikes.consecutive_errors, strikes.action), (2, Action::Warn));
}

#[test]
fn similarity_has_the_presets_of_its_page() {
    for (settings, window, threshold) in [
        (SimilaritySettings::tight(), 10, 5.0),
        (SimilaritySettings::balanced(), 20, 10.0),
        (SimilaritySettings::tolerant(), 50, 20.0),
    ] {
        let expected = SimilaritySettings {
            enabled: true,
            window_size: window,
            threshold,
            ..SimilaritySettings::default()
        };
        assert_eq!(settings, expected);
        assert_eq!(settings.validate(), Ok(()));
    }
    assert!(!SimilaritySettings::default().enabled, "off by default");
}

/// The body of the prevention config, as the page of seed E has it.
#[test]
fn seed_e_loads() {
    let set = valid(json!({
        "loop_detection": {
            "enabled": true, "threshold": 3, "action": "terminate", "max_steps": 50,
        },
        "budget": {
            "max_cost_usd": 0.50, "soft_alert_threshold_usd": 0.40, "max_wall_time_seconds": 120,
        },
        "circuit_breaker": {
            "enabled": true, "open_after_failures": 4, "cooldown_seconds": 20,
            "half_open_max_calls": 2,
        },
    }));
    let session = &set.session;
    assert_eq!((session.loops.enabled, session.loops.threshold), (true, 3));
    assert_eq!(session.loops.action, Action::Terminate);
    assert_eq!(session.steps.max_steps, Some(50));
    assert_eq!(session.budget.max_cost_usd, Some(Dollars(NanoUsd(500_000_000))));
    assert_eq!(session.budget.soft_alert_threshold_usd, Some(Dollars(NanoUsd(400_000_000))));
    assert_eq!(session.time.max_wall_time_seconds, Some(Seconds(120)));
    let breaker = &set.agent.breaker;
    assert_eq!((breaker.enabled, breaker.open_after_failures), (true, 4));
    assert_eq!((breaker.cooldown_seconds, breaker.half_open_max_calls), (Seconds(20), 2));
    // Unset limits may be said out loud.
    let unset = json!({
        "loop_detection": { "max_steps": null },
        "budget": { "max_cost_usd": null, "soft_alert_threshold_usd": null,
                    "max_wall_time_seconds": null },
    });
    assert_eq!(valid(unset), Preset::Balanced.policies());
}

#[test]
fn seed_b_loads() {
    let set = valid(json!({
        "mode": "log-only",
        "session_limits": {
            "max_cost_per_session": 2.5,
            "max_tool_calls": 30,
            "circuit_breaker": { "consecutive_blocks": 4, "consecutive_errors": 2 },
        },
    }));
    let session = &set.session;
    assert_eq!(session.mode, Mode::LogOnly);
    assert_eq!(session.budget.max_cost_usd, Some(Dollars(NanoUsd(2_500_000_000))));
    assert_eq!(session.steps.max_steps, Some(30));
    assert!(session.strikes.enabled);
    assert_eq!((session.strikes.consecutive_blocks, session.strikes.consecutive_errors), (4, 2));
    assert_eq!(set.agent.breaker, Preset::Balanced.policies().agent.breaker);

    // In an agent's section as well, where strikes are off until they are asked for.
    let set = valid(json!({
        "agent": { "session_limits": { "circuit_breaker": { "consecutive_blocks": 9 } } },
    }));
    assert!(set.agent.strikes.enabled);
    assert_eq!(
        (set.agent.strikes.consecutive_blocks, set.agent.strikes.consecutive_errors),
        (9, 3)
    );
    let set = valid(json!({ "session_limits": { "max_steps": 7 } }));
    assert_eq!(set.session.steps.max_steps, Some(7));
    assert_eq!(set.session.budget.max_cost_usd, None);
}

/// Seed A's body of the kill switch.
#[test]
fn seed_a_loads() {
    let set = valid(json!({
        "kill_switch": { "enabled": true, "window_size": 10, "threshold": 5.0 },
    }));
    assert_eq!(set.session.similarity, SimilaritySettings::tight());
    assert_eq!(set.nested.similarity, SimilaritySettings::tight());
}

#[test]
fn a_guards_own_section_wins_over_the_pages_place() {
    let set = valid(json!({
        "loop": { "max_steps": 50 },
        "steps": { "max_steps": 40 },
        "budget": { "max_wall_time_seconds": 120, "max_cost_usd": 3 },
        "time": { "max_wall_time_seconds": 100 },
        "session_limits": { "max_steps": 30, "max_cost_per_session": 2 },
    }));
    assert_eq!(set.session.steps.max_steps, Some(40));
    assert_eq!(set.session.time.max_wall_time_seconds, Some(Seconds(100)));
    assert_eq!(set.session.budget.max_cost_usd, Some(Dollars(NanoUsd(3_000_000_000))));
    let set = valid(json!({
        "loop": { "max_steps": 50 },
        "session_limits": { "max_steps": 30 },
    }));
    assert_eq!(set.session.steps.max_steps, Some(50));
}

#[test]
fn the_mode_is_for_all_scopes_unless_one_has_its_own() {
    let modes =
        |set: &PolicySet| [set.session.mode, set.agent.mode, set.project.mode, set.nested.mode];
    use Mode::{Enforce, LogOnly};
    for (raw, expected) in [
        (json!({}), [Enforce; 4]),
        (json!({ "mode": "enforce" }), [Enforce; 4]),
        (json!({ "mode": "log-only" }), [LogOnly; 4]),
        (json!({ "mode": "shadow" }), [LogOnly; 4]),
        (
            json!({ "mode": "log-only", "agent": { "mode": "enforce" } }),
            [LogOnly, Enforce, LogOnly, LogOnly],
        ),
        (json!({ "project": { "mode": "log-only" } }), [Enforce, Enforce, LogOnly, Enforce]),
        (json!({ "nested": { "mode": "log-only" } }), [Enforce, Enforce, Enforce, LogOnly]),
    ] {
        assert_eq!(modes(&valid(raw.clone())), expected, "{raw}");
    }
}

#[test]
fn the_breaker_is_typed_anywhere_and_kept_per_agent() {
    let set = valid(json!({
        "breaker": { "open_after_failures": 9, "cooldown_seconds": 9 },
        "agent": { "breaker": { "open_after_failures": 2 } },
    }));
    assert_eq!(set.agent.breaker.open_after_failures, 2);
    assert_eq!(set.agent.breaker.cooldown_seconds, Seconds(9));
    assert!(!set.session.breaker.enabled);
}

fn check_bad(raw: Value, path: &str, problem: &str, hint: &str) {
    let typed = raw.to_string();
    let bad = resolve(raw).unwrap_err();
    assert_eq!((bad.path.as_str(), bad.problem.as_str()), (path, problem), "{typed}");
    assert_eq!(bad.hint, hint, "{typed}");
    assert_eq!(bad.to_string(), format!("{path}: {problem}"));
}

#[test]
fn whole_numbers_have_their_ranges() {
    let most = u64::MAX;
    for (section, field, low, high) in [
        ("steps", "max_steps", 1, most),
        ("steps", "max_model_calls", 1, most),
        ("tokens", "input_token_limit", 1, most),
        ("tokens", "output_token_limit", 1, most),
        ("tokens", "total_token_limit", 1, most),
        ("time", "max_wall_time_seconds", 1, most / 1000),
        ("velocity", "max_tokens_per_minute", 1, most),
        ("loop", "threshold", 2, 10_000),
        ("similarity", "window_size", 1, 1000),
        ("text_loop", "max_repeated_answers", 2, 10_000),
        ("destructive", "max_deletes", 1, 1000),
        ("destructive", "max_same_target", 1, 1000),
        ("destructive", "window_s", 1, 31_536_000),
        ("strikes", "consecutive_blocks", 1, 1_000_000),
        ("strikes", "consecutive_errors", 1, 1_000_000),
    ] {
        let write = |value: u64| {
            let mut raw = json!({ section: {} });
            raw[section][field] = json!(value);
            raw
        };
        let path = format!("{section}.{field}");
        let hint = format!("write a whole number from {low} to {high}");
        for value in [low, high] {
            assert!(resolve(write(value)).is_ok(), "{path} = {value}");
            assert!(resolve(json!({ "agent": write(value) })).is_ok(), "agent.{path} = {value}");
        }
        for value in [low.checked_sub(1), high.checked_add(1)].into_iter().flatten() {
            let problem = format!("{value} is not between {low} and {high}");
            check_bad(write(value), &path, &problem, &hint);
            for scope in ["agent", "project", "nested"] {
                let raw = json!({ scope: write(value) });
                check_bad(raw, &format!("{scope}.{path}"), &problem, &hint);
            }
        }
    }
}

/// The breaker stands in the agent's section, wherever it was typed.
#[test]
fn a_bad_breaker_is_found() {
    for (field, high) in [
        ("open_after_failures", 1_000_000u64),
        ("cooldown_seconds", 31_536_000),
        ("half_open_max_calls", 1_000_000),
    ] {
        let write = |value: u64| {
            let mut breaker = json!({});
            breaker[field] = json!(value);
            breaker
        };
        for value in [1, high] {
            assert!(resolve(json!({ "breaker": write(value) })).is_ok(), "{field} = {value}");
        }
        for value in [0, high + 1] {
            for raw in [
                json!({ "breaker": write(value) }),
                json!({ "agent": { "circuit_breaker": write(value) } }),
            ] {
                check_bad(
                    raw,
                    &format!("agent.breaker.{field}"),
                    &format!("{value} is not between 1 and {high}"),
                    &format!("write a whole number from 1 to {high}"),
                );
            }
        }
    }
}

#[test]
fn a_budget_must_make_sense() {
    check_bad(
        json!({ "budget": { "max_cost_usd": 0 } }),
        "budget.max_cost_usd",
        "a budget of 0 stops every call",
        "leave it out for no limit, or kill the agent to stop it",
    );
    // Found by reading: an alert at 0 was taken, and could not be crossed any more.
    for limit in [json!(null), json!(1)] {
        check_bad(
            json!({ "budget": { "max_cost_usd": limit, "soft_alert_threshold_usd": 0 } }),
            "budget.soft_alert_threshold_usd",
            "an alert at 0 is crossed before anything is spent",
            "leave it out for no alert, or write the dollars that are worth one",
        );
    }
    let soft_hint = "set it below max_cost_usd, so that the warning comes before the stop";
    check_bad(
        json!({ "budget": { "max_cost_usd": 1, "soft_alert_threshold_usd": 1 } }),
        "budget.soft_alert_threshold_usd",
        "the soft alert ($1.00) is not below the hard limit ($1.00)",
        soft_hint,
    );
    check_bad(
        json!({
            "project": { "budget": { "max_cost_usd": 1, "soft_alert_threshold_usd": 1.5 } },
        }),
        "project.budget.soft_alert_threshold_usd",
        "the soft alert ($1.50) is not below the hard limit ($1.00)",
        soft_hint,
    );
    check_bad(
        json!({
            "session_limits": { "max_cost_per_session": 1 },
            "budget": { "soft_alert_threshold_usd": 2 },
        }),
        "budget.soft_alert_threshold_usd",
        "the soft alert ($2.00) is not below the hard limit ($1.00)",
        soft_hint,
    );
    for fine in [
        json!({ "max_cost_usd": 1, "soft_alert_threshold_usd": 0.99 }),
        json!({ "soft_alert_threshold_usd": 5 }),
        json!({ "max_cost_usd": 0.000000001 }),
    ] {
        assert!(resolve(json!({ "budget": fine })).is_ok(), "{fine}");
    }
    check_bad(
        json!({ "velocity": { "max_usd_per_minute": 0 } }),
        "velocity.max_usd_per_minute",
        "a pace of 0 stops every call",
        "leave it out for no limit, or write the dollars a minute that are fine",
    );
    assert!(resolve(json!({ "velocity": { "max_usd_per_minute": 0.000000001 } })).is_ok());
}

#[test]
fn a_score_needs_numbers_that_can_be_added() {
    let hint = "write a positive number, such as 10.0";
    for (field, value, fine) in [
        ("threshold", 0.0, 0.01),
        ("threshold", -0.01, 1e9),
        ("prompt_weight", -0.01, 0.0),
        ("response_weight", -0.01, 0.0),
        ("tool_call_weight", -0.01, 0.0),
    ] {
        let write = |value: f64| {
            let mut raw = json!({ "similarity": {} });
            raw["similarity"][field] = json!(value);
            raw
        };
        let path = format!("similarity.{field}");
        check_bad(write(value), &path, &format!("{value} cannot be used in a score"), hint);
        assert!(resolve(write(fine)).is_ok(), "{path} = {fine}");
    }
    for value in [f64::NAN, f64::INFINITY] {
        let settings = SimilaritySettings { threshold: value, ..SimilaritySettings::default() };
        assert_eq!(settings.validate().unwrap_err().path, "similarity.threshold");
    }
}

#[test]
fn a_rule_needs_a_condition() {
    let problem = "the rule has no condition";
    let hint = "add `matches`, `above` or `below`, or name the tool under `deny`";
    let good = json!({ "tool": "a", "argument": "b", "matches": "c" });
    let vague = json!({ "tool": "a", "argument": "b" });
    let raw = json!({ "access": { "rules": [good, vague] } });
    check_bad(raw.clone(), "access.rules[1]", problem, hint);
    check_bad(json!({ "nested": raw }), "nested.access.rules[1]", problem, hint);
}

#[test]
fn what_is_said_once_for_all_stands_at_the_top() {
    for scope in ["agent", "project", "nested"] {
        for (key, value) in [
            ("preset", json!("strict")),
            ("agent", json!({})),
            ("project", json!({})),
            ("nested", json!({})),
        ] {
            check_bad(
                json!({ scope: { key: value } }),
                &format!("{scope}.{key}"),
                &format!("`{key}` cannot stand inside `{scope}`"),
                "move it to the top of the policy",
            );
        }
    }
}

#[test]
fn unknown_keys_and_wrong_types_are_errors() {
    for raw in [
        json!({ "lop": {} }),
        json!({ "session": {} }),
        json!({ "loop": { "treshold": 3 } }),
        json!({ "budget": { "max_cost": 3 } }),
        json!({ "steps": { "max_step": 3 } }),
        json!({ "tokens": { "limit": 3 } }),
        json!({ "time": { "seconds": 3 } }),
        json!({ "velocity": { "usd": 3 } }),
        json!({ "similarity": { "window": 3 } }),
        json!({ "text_loop": { "max_steps": 3 } }),
        json!({ "destructive": { "window": 3 } }),
        json!({ "breaker": { "failures": 3 } }),
        json!({ "strikes": { "blocks": 3 } }),
        json!({ "access": { "forbid": [] } }),
        json!({ "access": { "rules": [{ "tool": "a", "argument": "b", "equals": 1 }] } }),
        json!({ "session_limits": { "max_cost": 3 } }),
        json!({ "session_limits": { "circuit_breaker": { "blocks": 3 } } }),
        json!({ "agent": { "lop": {} } }),
        json!({ "preset": "lax" }),
        json!({ "mode": "log_only" }),
        json!({ "loop": { "threshold": "5" } }),
        json!({ "loop": { "threshold": -5 } }),
        json!({ "loop": { "action": "stop" } }),
        json!({ "loop": { "ends": "project" } }),
        json!({ "budget": { "max_cost_usd": -1 } }),
        json!({ "budget": { "per": "week" } }),
        json!({ "destructive": { "window_s": 0.5 } }),
    ] {
        assert!(serde_json::from_value::<RawPolicy>(raw.clone()).is_err(), "{raw}");
    }
}

#[test]
fn a_policy_that_is_written_down_reads_back_the_same() {
    let mut full = Policy::strict();
    full.mode = Mode::LogOnly;
    full.access.deny = vec![Pattern::new("rm*")];
    full.steps.max_steps = Some(4);
    full.steps.max_model_calls = Some(5);
    full.tokens.input_token_limit = Some(Tokens(6));
    full.tokens.total_token_limit = Some(Tokens(7));
    full.budget.max_cost_usd = Some(Dollars(NanoUsd(123_456_789)));
    full.budget.tool_prices = [(Pattern::new("a*"), Dollars(NanoUsd(1)))].into();
    full.budget.per = Period::Hour;
    full.budget.reservation = Reservation::Ceiling;
    full.time.max_wall_time_seconds = Some(Seconds(8));
    full.velocity.max_usd_per_minute = Some(Dollars(NanoUsd(9)));
    full.similarity = SimilaritySettings::tight();
    full.destructive.exempt_targets = vec![Pattern::new("/tmp/*")];
    full.loops.ends = Ends::Agent;
    for policy in [Policy::none(), Policy::balanced(), Policy::strict(), Policy::observe(), full] {
        let written = serde_json::to_string(&policy).unwrap();
        let raw: RawPolicy = serde_json::from_str(&written).unwrap();
        assert_eq!(raw.clone().resolve().unwrap().session, with_own_breaker(&policy), "{written}");
        // Answers are compared in sessions only, and strikes counted there.
        let silent = TextLoopSettings { enabled: false, ..policy.text_loop.clone() };
        let strikes = StrikeSettings { enabled: false, ..policy.strikes.clone() };
        let policy = Policy { text_loop: silent, strikes, ..policy };
        let raw: RawPolicy =
            serde_json::from_str(&serde_json::to_string(&policy).unwrap()).unwrap();
        let inner = RawPolicy { agent: Some(Box::new(raw)), ..RawPolicy::default() };
        assert_eq!(inner.resolve().unwrap().agent, policy, "{written}");
    }
}

/// A session's breaker goes to its agent: what a session keeps is the one that is off.
fn with_own_breaker(policy: &Policy) -> Policy {
    Policy { breaker: Policy::none().breaker, ..policy.clone() }
}

/// Found from outside: `[agent.similarity]` and `[agent.loop]` were taken and did nothing.
#[test]
fn a_detector_works_where_it_is_switched_on_or_is_refused_there() {
    let on = json!({ "enabled": true });
    let set = valid(
        json!({ "agent": { "similarity": on, "loop": { "threshold": 4, "action": "block" } } }),
    );
    assert!(set.agent.similarity.enabled && set.agent.loops.enabled);
    assert_eq!(set.agent.loops.threshold, 4);
    for (scope, section, hint) in [
        (
            "agent",
            "text_loop",
            "write it under `[text_loop]`: answers are compared in each session",
        ),
        (
            "project",
            "text_loop",
            "write it under `[text_loop]`: answers are compared in each session",
        ),
        (
            "project",
            "similarity",
            "write it under `[agent.similarity]`: each agent has its own window",
        ),
        ("agent", "strikes", "write it under `[strikes]`: strikes are counted in each session"),
        (
            "project",
            "breaker",
            "write it under `[breaker]`: a circuit is kept for each agent and server",
        ),
    ] {
        let raw = json!({ scope: { section: on } });
        let problem = format!("`{section}` has no effect in `{scope}`");
        check_bad(raw, &format!("{scope}.{section}.enabled"), &problem, hint);
        valid(json!({ scope: { section: { "enabled": false } } }));
    }
}
