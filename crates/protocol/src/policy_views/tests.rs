//! The pages' own bodies, and everything that can be wrong with one.

use deadstop_core::{Action, Dollars, NanoUsd, Policy, PolicySet, Preset, RawPolicy, Seconds};
use serde_json::{Value, json};

use super::*;

/// The body of the page, word for word.
fn page() -> Value {
    json!({
        "loop_detection": {
            "enabled": true, "threshold": 3, "action": "terminate", "max_steps": 50
        },
        "budget": {
            "max_cost_usd": 0.50, "soft_alert_threshold_usd": 0.40, "max_wall_time_seconds": 120
        },
        "circuit_breaker": {
            "enabled": true, "open_after_failures": 5, "cooldown_seconds": 30,
            "half_open_max_calls": 3
        }
    })
}

/// A body with one place changed; `null` removes nothing, it is a value.
fn with(mut body: Value, path: &str, value: Value) -> Value {
    let (parent, name) = path.rsplit_once('.').map_or(("", path), |(parent, name)| (parent, name));
    let parent = parent.split('.').filter(|step| !step.is_empty());
    let place = parent.fold(&mut body, |inner, step| &mut inner[step]);
    place[name] = value;
    body
}

fn without(mut body: Value, path: &str) -> Value {
    let (parent, name) = path.rsplit_once('.').map_or(("", path), |(parent, name)| (parent, name));
    let parent = parent.split('.').filter(|step| !step.is_empty());
    let place = parent.fold(&mut body, |inner, step| &mut inner[step]);
    place.as_object_mut().unwrap().remove(name).unwrap();
    body
}

fn told(faults: &[FieldFault]) -> Vec<String> {
    let word = |problem| serde_json::to_value(problem).unwrap().as_str().unwrap().to_owned();
    faults.iter().map(|fault| format!("{} {}", word(fault.problem), fault.field)).collect()
}

fn policies(raw: Value) -> PolicySet {
    serde_json::from_value::<RawPolicy>(raw).unwrap().resolve().unwrap()
}

#[test]
fn the_pages_body_reads_and_is_shown_as_it_was_sent() {
    let config = PreventionConfig::read(&page()).unwrap();
    assert_eq!(serde_json::to_value(&config).unwrap(), page());
    let mut set = Preset::Balanced.policies();
    config.write(&mut set);
    assert_eq!(PreventionConfig::of(&set), config);
    assert_eq!(set.session.loops.action, Action::Terminate);
    assert_eq!(set.nested.loops, set.session.loops);
    assert_eq!(set.session.steps.max_steps, Some(50));
    assert_eq!(set.session.budget.max_cost_usd, Some(Dollars(NanoUsd(500_000_000))));
    assert_eq!(set.session.time.max_wall_time_seconds, Some(Seconds(120)));
    assert_eq!(set.agent.breaker.open_after_failures, 5);
}

#[test]
fn a_view_leaves_everything_else_alone() {
    let before = policies(json!({
        "preset": "observe",
        "budget": { "per": "day", "max_cost_usd": 9 },
        "steps": { "max_model_calls": 7 },
        "similarity": { "window_size": 9, "prompt_weight": 3.0 },
        "agent": { "budget": { "max_cost_usd": 90 } },
        "nested": { "loop": { "threshold": 9 } },
    }));
    let mut after = before.clone();
    PreventionConfig::read(&page()).unwrap().write(&mut after);
    KillSwitch { enabled: false, window_size: 33, threshold: 4.5 }.write(&mut after);
    let paths: Vec<_> =
        diff(&write_policy(&before, Whose::Project), &write_policy(&after, Whose::Project))
            .into_iter()
            .map(|change| change.path)
            .collect();
    // The kill switch is the agent's: sessions and what is inside them leave it to the agent.
    let expected = [
        "agent.similarity.threshold",
        "agent.similarity.window_size",
        "budget.max_cost_usd",
        "budget.soft_alert_threshold_usd",
        "loop.action",
        "loop.threshold",
        "nested.similarity.enabled",
        "similarity.enabled",
        "steps.max_steps",
        "time.max_wall_time_seconds",
    ];
    assert_eq!(paths, expected);
}

#[test]
fn nothing_set_is_null() {
    let mut set = Preset::Balanced.policies();
    PreventionConfig::read(&page()).unwrap().write(&mut set);
    let mut none = page();
    for path in [
        "loop_detection.max_steps",
        "budget.max_cost_usd",
        "budget.soft_alert_threshold_usd",
        "budget.max_wall_time_seconds",
    ] {
        none = with(none, path, Value::Null);
    }
    PreventionConfig::read(&none).unwrap().write(&mut set);
    assert_eq!(set.session.budget, Policy::balanced().budget);
    assert_eq!(set.session.steps, Policy::balanced().steps);
    assert_eq!(set.session.time, Policy::balanced().time);
    assert_eq!(serde_json::to_value(PreventionConfig::of(&set)).unwrap(), none);
}

#[test]
fn every_fault_of_a_prevention_config_is_named() {
    for (body, expected) in [
        (json!([]), vec!["invalid "]),
        (json!({}), vec!["missing loop_detection", "missing budget", "missing circuit_breaker"]),
        (with(page(), "budget", json!(5)), vec!["invalid budget"]),
        (without(page(), "budget.max_cost_usd"), vec!["missing budget.max_cost_usd"]),
        (with(page(), "agent_name", json!(7)), vec!["invalid agent_name"]),
        (with(page(), "is_agent_override", json!("a")), vec!["invalid is_agent_override"]),
        (with(page(), "agent", json!("a")), vec!["unknown agent"]),
        (
            with(without(page(), "circuit_breaker.enabled"), "budget.max_cost", json!(5)),
            vec!["unknown budget.max_cost", "missing circuit_breaker.enabled"],
        ),
        (
            with(
                with(page(), "loop_detection.threshold", json!(1)),
                "budget.max_cost_usd",
                json!(0),
            ),
            vec!["invalid loop_detection.threshold", "invalid budget.max_cost_usd"],
        ),
        (
            with(page(), "loop_detection.threshold", json!(10_001)),
            vec!["invalid loop_detection.threshold"],
        ),
        (
            with(page(), "loop_detection.threshold", json!(5.0)),
            vec!["invalid loop_detection.threshold"],
        ),
        (
            with(page(), "loop_detection.action", json!("kill")),
            vec!["invalid loop_detection.action"],
        ),
        (
            with(page(), "loop_detection.enabled", json!("yes")),
            vec!["invalid loop_detection.enabled"],
        ),
        (
            with(page(), "loop_detection.enabled", json!(null)),
            vec!["invalid loop_detection.enabled"],
        ),
        (
            with(page(), "loop_detection.max_steps", json!(0)),
            vec!["invalid loop_detection.max_steps"],
        ),
        (
            with(page(), "loop_detection.max_steps", json!(1u64 << 31)),
            vec!["invalid loop_detection.max_steps"],
        ),
        (with(page(), "budget.max_cost_usd", json!(-1)), vec!["invalid budget.max_cost_usd"]),
        (with(page(), "budget.max_cost_usd", json!(10_000)), vec!["invalid budget.max_cost_usd"]),
        (
            with(page(), "budget.max_cost_usd", json!(0.5000001)),
            vec!["invalid budget.max_cost_usd"],
        ),
        (
            with(page(), "budget.soft_alert_threshold_usd", json!(0.5)),
            vec!["invalid budget.soft_alert_threshold_usd"],
        ),
        (
            with(page(), "budget.max_wall_time_seconds", json!(1.5)),
            vec!["invalid budget.max_wall_time_seconds"],
        ),
        (
            with(page(), "circuit_breaker.cooldown_seconds", json!(0)),
            vec!["invalid circuit_breaker.cooldown_seconds"],
        ),
        (
            with(page(), "circuit_breaker.half_open_max_calls", json!(null)),
            vec!["invalid circuit_breaker.half_open_max_calls"],
        ),
    ] {
        let faults = PreventionConfig::read(&body).unwrap_err();
        assert_eq!(told(&faults), expected, "{body}");
    }
    let bad = with(page(), "budget.soft_alert_threshold_usd", json!(0.6));
    let detail = PreventionConfig::read(&bad).unwrap_err().remove(0).detail;
    assert!(detail.contains("is not below the hard limit"), "{detail}");
}

#[test]
fn every_fault_of_a_kill_switch_is_named() {
    let fine = json!({ "enabled": true, "window_size": 20, "threshold": 10 });
    assert_eq!(KillSwitch::read(&fine).unwrap().threshold, 10.0);
    for (body, expected) in [
        (json!(null), vec!["invalid "]),
        (json!({}), vec!["missing enabled", "missing window_size", "missing threshold"]),
        (with(fine.clone(), "window_size", json!(0)), vec!["invalid window_size"]),
        (with(fine.clone(), "window_size", json!(-1)), vec!["invalid window_size"]),
        (with(fine.clone(), "window_size", json!(1001)), vec!["invalid window_size"]),
        (with(fine.clone(), "threshold", json!(-0.5)), vec!["invalid threshold"]),
        (with(fine.clone(), "threshold", json!("10")), vec!["invalid threshold"]),
        (with(fine, "weight", json!(1)), vec!["unknown weight"]),
    ] {
        assert_eq!(told(&KillSwitch::read(&body).unwrap_err()), expected, "{body}");
    }
}

#[test]
fn a_whole_policy_survives_being_sent() {
    for preset in Preset::ALL {
        let mut set = preset.policies();
        PreventionConfig::read(&page()).unwrap().write(&mut set);
        let body = write_policy(&set, Whose::Project);
        assert_eq!(read_policy(&body, Whose::Project).unwrap(), set);
        assert_eq!(stored_policy(&body).unwrap(), set);
    }
}

#[test]
fn every_fault_of_a_whole_policy_is_named() {
    let fine = || write_policy(&Preset::Balanced.policies(), Whose::Project);
    for (body, expected) in [
        (json!("strict"), vec!["invalid "]),
        (without(fine(), "loop"), vec!["missing loop"]),
        (without(fine(), "agent.breaker.action"), vec!["missing agent.breaker.action"]),
        (
            with(without(fine(), "mode"), "loop.treshold", json!(5)),
            vec!["unknown loop.treshold", "missing mode"],
        ),
        // A page's own name is for files; a body has one name for each setting.
        (with(fine(), "loop_detection", json!({})), vec!["unknown loop_detection"]),
        (
            with(with(fine(), "loop.threshold", json!(1)), "nested.time.action", json!("stop")),
            vec!["invalid loop.threshold", "invalid nested.time.action"],
        ),
        (with(fine(), "preset", json!("lax")), vec!["invalid preset"]),
        (
            with(
                with(fine(), "agent.budget.max_cost_usd", json!(1)),
                "agent.budget.soft_alert_threshold_usd",
                json!(2),
            ),
            vec!["invalid agent.budget"],
        ),
        (
            with(fine(), "access.rules", json!([{ "tool": "x", "no": 1 }])),
            vec!["invalid access.rules"],
        ),
    ] {
        let mut faults = told(&read_policy(&body, Whose::Project).unwrap_err());
        faults.sort_by_key(|fault| !fault.starts_with("unknown"));
        assert_eq!(faults, expected, "{body}");
    }
}

#[test]
fn an_agents_document_is_complete_or_null() {
    let default = Preset::Balanced.policies();
    let own = write_policy(&Preset::Strict.policies(), Whose::Agent);
    let switch = json!({ "enabled": true, "window_size": 10, "threshold": 5.0 });
    for (body, expected) in [
        (json!({}), vec!["missing policy", "missing kill_switch"]),
        (
            json!({ "policy": write_policy(&default, Whose::Project), "kill_switch": null }),
            vec!["unknown policy.project"],
        ),
        (
            json!({ "policy": without(own.clone(), "loop.ends"), "kill_switch": { "enabled": 1 } }),
            vec![
                "missing policy.loop.ends",
                "missing kill_switch.window_size",
                "missing kill_switch.threshold",
                "invalid kill_switch.enabled",
            ],
        ),
    ] {
        assert_eq!(told(&AgentDocument::read(&body).unwrap_err()), expected, "{body}");
    }
    for (policy, kill_switch) in [
        (own.clone(), switch.clone()),
        (own, Value::Null),
        (Value::Null, switch),
        (Value::Null, Value::Null),
    ] {
        let body = json!({ "policy": policy, "kill_switch": kill_switch });
        let document = AgentDocument::read(&body).unwrap();
        assert_eq!(document.to_json(), body);
        let stored = AgentDocument::stored(&body.to_string()).unwrap();
        assert_eq!(effective(&default, &stored), effective(&default, &document));
    }
    assert!(AgentDocument::stored("{\"policy\":{\"later\":1}}").is_err());
}

#[test]
fn an_agent_has_its_own_policy_or_the_default_and_its_switch_on_top() {
    let default = policies(json!({
        "budget": { "max_cost_usd": 5 },
        "project": { "budget": { "max_cost_usd": 100 } },
    }));
    let nothing = AgentDocument::default();
    assert!(nothing.is_empty());
    assert_eq!(effective(&default, &nothing), default);

    let switch = KillSwitch { enabled: true, window_size: 10, threshold: 5.0 };
    let only_switch = AgentDocument { kill_switch: Some(switch), ..nothing };
    let set = effective(&default, &only_switch);
    assert_eq!(KillSwitch::of(&set), switch);
    assert_eq!(PreventionConfig::of(&set), PreventionConfig::of(&default));
    // What the page does not name keeps the policy's own value.
    assert_eq!(set.session.similarity.response_weight, 2.0);

    let own = AgentDocument { policy: Some(Preset::Strict.policies()), ..only_switch };
    let set = effective(&default, &own);
    assert_eq!(set.session.budget.max_cost_usd, None, "nothing is merged");
    assert_eq!(set.session.loops.action, Action::Terminate);
    assert_eq!(KillSwitch::of(&set), switch);
    assert_eq!(set.project, default.project, "the project is not the agent's to limit");
}

#[test]
fn a_difference_is_told_setting_by_setting() {
    for (before, after, expected) in [
        (json!(null), json!(null), vec![]),
        (json!({ "a": [1, 2] }), json!({ "a": [2, 1] }), vec![("a", json!([1, 2]), json!([2, 1]))]),
        (json!({ "a": null }), json!({ "a": { "b": 1 } }), vec![("a.b", json!(null), json!(1))]),
        (json!({ "a": { "b": 1 } }), json!({}), vec![("a.b", json!(1), json!(null))]),
        (
            json!({ "a": 1, "c": 2 }),
            json!({ "b": 1, "c": 3 }),
            vec![
                ("a", json!(1), json!(null)),
                ("b", json!(null), json!(1)),
                ("c", json!(2), json!(3)),
            ],
        ),
    ] {
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(path, before, after)| Change { path: path.to_owned(), before, after })
            .collect();
        assert_eq!(diff(&before, &after), expected);
    }
}

/// An earlier version took these although they had no effect; its documents are still read.
#[test]
fn what_had_no_effect_is_left_out_of_a_stored_policy() {
    let policies = Preset::Strict.policies();
    let mut document = write_policy(&policies, Whose::Project);
    document["agent"]["strikes"]["enabled"] = json!(true);
    document["agent"]["loop"]["max_wait_s"] = json!(60);
    assert!(read_policy(&document, Whose::Project).is_err());
    assert_eq!(stored_policy(&document), Ok(policies));
}
