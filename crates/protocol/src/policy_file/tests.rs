//! Bad files in three formats, and files that read back as what was written.

use deadstop_core::{Mode, Pattern, Preset, Rule};
use proptest::prelude::*;

use super::*;

/// What is wrong with a text, as people see it.
fn complaint(text: &str, file: &str) -> (String, Option<String>) {
    let error = parse(text, file).expect_err(text);
    (error.to_string(), error.hint)
}

fn check(texts: [&str; 3], places: [&str; 3], problem: &str, hint: &str) {
    for ((text, place), ending) in texts.into_iter().zip(places).zip(["toml", "yaml", "json"]) {
        let file = format!("p.{ending}");
        let expected = format!("{file}:{place}: {problem}");
        assert_eq!(complaint(text, &file), (expected, Some(hint.to_owned())), "{text}");
    }
}

#[test]
fn unknown_keys_are_named_with_the_nearest_known_one() {
    check(
        [
            "preset = \"strict\"\n\n[budget]\nmax_cost = 5\n",
            "# mine\npreset: strict\nbudget:\n  max_cost: 5\n",
            "{\n  \"preset\": \"strict\",\n  \"budget\": { \"max_cost\": 5 }\n}",
        ],
        ["4:1", "4:3", "3:15"],
        "unknown key `max_cost` in `budget`",
        "did you mean `max_cost_usd`?",
    );
    check(
        [
            "[agent.lop]\nthreshold = 3\n",
            "agent:\n  lop: {threshold: 3}\n",
            r#"{"agent":{"lop":{}}}"#,
        ],
        ["1:8", "2:3", "1:11"],
        "unknown key `lop` in `agent`",
        "did you mean `loop`?",
    );
    check(
        ["[time]\ncolour = 3\n", "time:\n  colour: 3\n", "{\"time\":\n {\"colour\": 3}}"],
        ["2:1", "2:3", "2:3"],
        "unknown key `colour` in `time`",
        "known here: `max_wall_time_seconds`, `action`",
    );
    check(
        [
            "[[access.rules]]\ntool = \"a\"\nargument = \"b\"\nabov = 1\n",
            "access:\n  rules:\n    - tool: a\n      argument: b\n      abov: 1\n",
            "{\"access\": {\"rules\": [\n{\"tool\": \"a\", \"argument\": \"b\",\n\"abov\": 1}]}}",
        ],
        ["4:1", "5:7", "3:1"],
        "unknown key `abov` in `access.rules[0]`",
        "did you mean `above`?",
    );
    let (problem, hint) = complaint("zzz = 1", "p.toml");
    assert_eq!(problem, "p.toml:1:1: unknown key `zzz`");
    assert!(
        hint.unwrap().starts_with("known here: `preset`, `mode`, `fail_mode`, `ask_timeout_s`")
    );
}

#[test]
fn wrong_types_point_at_the_value() {
    check(
        [
            "[steps]\nmax_steps = \"ten\"\n",
            "steps:\n  max_steps: ten\n",
            "{\"steps\":\n{\"max_steps\": \"ten\"}}",
        ],
        ["2:13", "2:14", "2:15"],
        "`steps.max_steps` must be a whole number of 0 or more, not the text \"ten\"",
        "write the number alone: no quotes, no unit",
    );
    check(
        [
            "[loop]\nthreshold = -1\n",
            "loop:\n  threshold: -1\n",
            "{\"loop\":\n{\"threshold\": -1}}",
        ],
        ["2:13", "2:14", "2:15"],
        "`loop.threshold` must be a whole number from 0 to 4294967295, not -1",
        "write a number that fits",
    );
    check(
        [
            "[loop]\nthreshold = 2.0\n",
            "loop:\n  threshold: 2.0\n",
            "{\"loop\":\n{\"threshold\": 2.0}}",
        ],
        ["2:13", "2:14", "2:15"],
        "`loop.threshold` must be a whole number from 0 to 4294967295, not 2.0",
        "write a number that fits",
    );
    check(
        ["[loop]\nenabled = 1\n", "loop:\n  enabled: 1\n", "{\"loop\":\n{\"enabled\": 1}}"],
        ["2:11", "2:12", "2:13"],
        "`loop.enabled` must be true or false, not 1",
        "write true or false, without quotes",
    );
    check(
        ["budget = 5\n", "budget: 5\n", "{\"budget\": 5}"],
        ["1:10", "1:9", "1:12"],
        "`budget` must be a section, not 5",
        "give it settings of its own, each with a name and a value",
    );
    check(
        ["[access]\ndeny = \"rm\"\n", "access:\n  deny: rm\n", "{\"access\":\n{\"deny\": \"rm\"}}"],
        ["2:8", "2:9", "2:10"],
        "`access.deny` must be a list, not the text \"rm\"",
        "put square brackets around it, as in [\"delete_*\", \"drop_*\"]",
    );
    check(
        [
            "[access]\ndeny = [\"a\", 7]\n",
            "access:\n  deny: [a, 7]\n",
            "{\"access\":\n{\"deny\": [\"a\", 7]}}",
        ],
        ["2:14", "2:13", "2:16"],
        "`access.deny[1]` must be a text, not 7",
        "put it in quotes",
    );
    check(
        [
            "[budget]\nmax_cost_usd = \"$5\"\n",
            "budget:\n  max_cost_usd: $5\n",
            "{\"budget\":\n{\"max_cost_usd\": \"$5\"}}",
        ],
        ["2:16", "2:17", "2:18"],
        "`budget.max_cost_usd` must be an amount of dollars, such as 2.50, not the text \"$5\"",
        "write the number alone: no quotes, no unit",
    );
    check(
        ["mode = \"enforced\"\n", "mode: enforced\n", "{\"mode\": \"enforced\"}"],
        ["1:8", "1:7", "1:10"],
        "`mode` cannot be `enforced`",
        "did you mean `enforce`?",
    );
    check(
        ["[loop]\naction = 7\n", "loop:\n  action: 7\n", "{\"loop\":\n{\"action\": 7}}"],
        ["2:10", "2:11", "2:12"],
        "`loop.action` cannot be 7",
        "write one of `warn`, `steer`, `ask`, `block`, `kill`, `terminate`",
    );
    check(
        [
            "[[access.rules]]\ntool = \"a\"\nabove = 1\n",
            "access:\n  rules:\n    - tool: a\n      above: 1\n",
            "{\"access\": {\"rules\": [\n{\"tool\": \"a\", \"above\": 1}]}}",
        ],
        ["1:1", "3:7", "2:1"],
        "`access.rules[0]` lacks `argument`",
        "add `argument`",
    );
}

#[test]
fn settings_that_cannot_be_are_found_where_they_were_typed() {
    check(
        [
            "[budget]\nsoft_alert_threshold_usd = 10\nmax_cost_usd = 5\n",
            "budget:\n  soft_alert_threshold_usd: 10\n  max_cost_usd: 5\n",
            "{\"budget\": {\n \"soft_alert_threshold_usd\": 10,\n \"max_cost_usd\": 5}}",
        ],
        ["2:1", "2:3", "2:2"],
        "`budget.soft_alert_threshold_usd`: the soft alert ($10.00) is not below the hard limit ($5.00)",
        "set it below max_cost_usd, so that the warning comes before the stop",
    );
    check(
        [
            "destructive.window_s = 0",
            "destructive: {window_s: 0}",
            "{\"destructive\":{\"window_s\":0}}",
        ],
        ["1:13", "1:15", "1:17"],
        "`destructive.window_s`: 0 is not between 1 and 31536000",
        "write a whole number from 1 to 31536000",
    );
    check(
        [
            "[agent]\nkill_switch = { window_size = 0 }",
            "agent:\n  kill_switch:\n    window_size: 0",
            "{\"agent\":{\"kill_switch\":{\n\"window_size\":0}}}",
        ],
        ["2:17", "3:5", "2:1"],
        "`agent.kill_switch.window_size`: 0 is not between 1 and 1000",
        "write a whole number from 1 to 1000",
    );
    check(
        [
            "[session_limits]\nmax_cost_per_session = 0\n",
            "session_limits:\n  max_cost_per_session: 0\n",
            "{\"session_limits\":\n{\"max_cost_per_session\": 0}}",
        ],
        ["2:1", "2:3", "2:2"],
        "`session_limits.max_cost_per_session`: a budget of 0 stops every call",
        "leave it out for no limit, or kill the agent to stop it",
    );
    check(
        [
            "[circuit_breaker]\ncooldown_seconds = 0\n",
            "circuit_breaker:\n  cooldown_seconds: 0\n",
            "{\"circuit_breaker\":\n{\"cooldown_seconds\": 0}}",
        ],
        ["2:1", "2:3", "2:2"],
        "`circuit_breaker.cooldown_seconds`: 0 is not between 1 and 31536000",
        "write a whole number from 1 to 31536000",
    );
    check(
        [
            "[[access.rules]]\ntool = \"a\"\nargument = \"b\"\nabove = 1\n[[access.rules]]\ntool = \"a\"\nargument = \"b\"\n",
            "access:\n  rules:\n    - {tool: a, argument: b, above: 1}\n    - {tool: a, argument: b}\n",
            "{\"access\": {\"rules\": [{\"tool\": \"a\", \"argument\": \"b\", \"above\": 1},\n {\"tool\": \"a\", \"argument\": \"b\"}]}}",
        ],
        ["5:1", "4:7", "2:2"],
        "`access.rules[1]`: the rule has no condition",
        "add `matches`, `above` or `below`, or name the tool under `deny`",
    );
    check(
        [
            "[nested]\npreset = \"strict\"\n",
            "nested:\n  preset: strict\n",
            "{\"nested\":\n{\"preset\": \"strict\"}}",
        ],
        ["2:1", "2:3", "2:2"],
        "`nested.preset`: `preset` cannot stand inside `nested`",
        "move it to the top of the policy",
    );
}

#[test]
fn a_setting_is_found_in_each_of_its_places() {
    for (text, path, place) in [
        ("[loop_detection]\nthreshold = 1", "loop_detection.threshold", "2:1"),
        ("[loop]\nmax_steps = 0", "loop.max_steps", "2:1"),
        ("[session_limits]\nmax_tool_calls = 0", "session_limits.max_tool_calls", "2:1"),
        ("[session_limits]\nmax_steps = 9\n[steps]\nmax_steps = 0", "steps.max_steps", "4:1"),
        ("[session_limits]\nmax_steps = 9\n[loop]\nmax_steps = 0", "loop.max_steps", "4:1"),
        ("[budget]\nmax_wall_time_seconds = 0", "budget.max_wall_time_seconds", "2:1"),
        (
            "[session_limits.circuit_breaker]\nconsecutive_errors = 0",
            "session_limits.circuit_breaker.consecutive_errors",
            "2:1",
        ),
        (
            "[breaker]\ncooldown_seconds = 9\n[agent.breaker]\ncooldown_seconds = 0",
            "agent.breaker.cooldown_seconds",
            "4:1",
        ),
        ("[project.breaker]\ncooldown_seconds = 0", "project.breaker.cooldown_seconds", "2:1"),
        (
            "agent.session_limits.max_cost_per_session = 0",
            "agent.session_limits.max_cost_per_session",
            "1:22",
        ),
    ] {
        let (problem, _) = complaint(text, "p.toml");
        assert!(problem.starts_with(&format!("p.toml:{place}: `{path}`: ")), "{text}: {problem}");
    }
}

#[test]
fn no_line_is_better_than_a_wrong_one() {
    let tree = tree::from_yaml("budget:\n  max_cost_usd: ~\naccess: 5\n").unwrap();
    for path in ["budget.max_cost_usd", "steps.max_steps", "access.rules[0]", "budget.x.y", ""] {
        assert_eq!(locate::find(&tree, path), None, "{path}");
    }
    let error = Fault::bad_setting(
        deadstop_core::BadSetting {
            path: "a.b".into(),
            problem: "bad".into(),
            hint: "good".into(),
        },
        None,
    );
    assert_eq!((error.at(""), error.problem().as_str()), (None, "`a.b`: bad"));
}

#[test]
fn nothing_stands_there_twice() {
    let hint = "keep one of them; a key and its other name are one setting";
    check(
        [
            "[loop]\nthreshold = 3\n[loop_detection]\nthreshold = 4\n",
            "loop: {threshold: 3}\nloop_detection: {threshold: 4}\n",
            "{\"loop\": {},\n \"loop_detection\": {}}",
        ],
        ["3:2", "2:1", "2:2"],
        "`loop` stands there twice",
        hint,
    );
    for (file, text, problem) in [
        (
            "p.yaml",
            "loop:\n  threshold: 3\n  threshold: 4\n",
            "p.yaml:3:3: `threshold` stands there twice",
        ),
        (
            "p.json",
            "{\"loop\": {\"threshold\": 3,\n\"threshold\": 4}}",
            "p.json:2:1: `threshold` stands there twice in `loop`",
        ),
        (
            "p.toml",
            "[loop]\nthreshold = 3\nthreshold = 4\n",
            "p.toml:3:1: `threshold` stands there twice",
        ),
    ] {
        assert_eq!(complaint(text, file).0, problem);
    }
}

#[test]
fn what_is_not_the_format_says_which_format_it_was_read_as() {
    for (file, text, expected) in [
        ("p.toml", "mode = \"enforce\"\nloop: 3\n", "p.toml:2:7: key with no value, expected `=`"),
        ("p.yaml", "mode: enforce\nloop: [3\n", "p.yaml:2:7: unclosed bracket '['"),
        (
            "p.yaml",
            "mode: enforce\n---\nmode: enforce\n",
            "p.yaml:3:1: a policy is one document, but here a second one starts",
        ),
        ("p.json", "{\"mode\": \"enforce\",\n}", "p.json:2:1: trailing comma"),
        ("p.json", "{\"mode\": \"enforce\"} x", "p.json:1:21: trailing characters"),
    ] {
        let (problem, hint) = complaint(text, file);
        assert_eq!(problem, expected);
        let format = file[2..].to_uppercase();
        let read = format!("the file is read as {format}; its name may end in another format's");
        assert_eq!(hint, Some(read));
    }
    for (file, text, expected) in [
        ("p.json", "[]", "p.json:1:1: the policy must be a section, not a list"),
        (
            "p.toml",
            "access.rules = [{ tool = \"a\", argument = \"b\", above = nan }]",
            "p.toml:1:55: `access.rules[0].above` cannot be nan",
        ),
        ("p.toml", "budget = [5]", "p.toml:1:10: `budget` must be a section, not a list"),
        ("p.json", "null", "p.json:1:1: the policy must be a section, not nothing"),
        ("p.yaml", "hello", "p.yaml:1:1: the policy must be a section, not the text \"hello\""),
        (
            "p.toml",
            "steps.max_steps = 99999999999999999999",
            "p.toml:1:19: `steps.max_steps` cannot be 99999999999999999999",
        ),
        (
            "p.toml",
            "similarity.threshold = inf",
            "p.toml:1:24: `similarity.threshold` cannot be inf",
        ),
        ("p.toml", "mode = 2026-01-01", "p.toml:1:8: `mode` cannot be a date"),
        (
            "p.toml",
            "access.deny = [2026-01-01]",
            "p.toml:1:16: `access.deny[0]` must be a text, not a date",
        ),
        (
            "p.toml",
            "budget.max_cost_usd = -1",
            "p.toml:1:23: `budget.max_cost_usd`: an amount of dollars must be 0 or more",
        ),
        ("p.toml", "# für\n\"ü\" = { \"é\" = 1 }\nmode = 1", "p.toml:2:1: unknown key `ü`"),
        (
            "p.json",
            "{\"budget\": {\"tool_prices\": {\"ü\": \"x\"}}}",
            "p.json:1:34: `budget.tool_prices.ü` must be an amount of dollars, such as 2.50, not the text \"x\"",
        ),
    ] {
        assert_eq!(complaint(text, file).0, expected);
    }
}

#[test]
fn an_empty_file_is_the_balanced_preset() {
    let balanced = Preset::Balanced.policies();
    for (file, text) in [
        ("p.toml", ""),
        ("p.yaml", " \n"),
        ("p.json", ""),
        ("-", "\u{feff}"),
        ("p.toml", "# nothing\n"),
        ("p.yaml", "# nothing\n"),
        ("p.json", "{}"),
        ("p.yaml", "loop:\nagent: ~\n"),
        ("p.json", "\u{feff}{\"loop\": null}"),
    ] {
        assert_eq!(parse(text, file), Ok(balanced.clone()), "{file} {text:?}");
    }
}

#[test]
fn formats_are_told_apart() {
    for (file, text, expected) in [
        ("a.TOML", "{", Format::Toml),
        ("a.b.yaml", "", Format::Yaml),
        ("a.json", "a = 1", Format::Json),
        ("policy", "", Format::Toml),
        ("policy", "# a: b\n\npreset = \"strict\"", Format::Toml),
        ("policy", "[loop]\n", Format::Toml),
        ("policy", "[\"a:b\"]\n", Format::Toml),
        ("policy", "preset: strict", Format::Yaml),
        ("policy", "---\n# x\n", Format::Yaml),
        ("policy", "\n  {\"a\": 1}", Format::Json),
        ("policy.txt", "budget:\n  per: day\n", Format::Yaml),
    ] {
        assert_eq!(Format::of(file, text), expected, "{file} {text:?}");
    }
}

#[test]
fn a_policy_cannot_grow_without_end() {
    let large = " ".repeat(MAX_BYTES + 1);
    assert_eq!(
        complaint(&large, "p.toml").0,
        "p.toml: more than 1048576 bytes are too many for a policy"
    );

    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let alias = format!("*a{}", level - 1);
        let aliases = vec![alias; 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    let error = parse(&bomb, "p.yaml").unwrap_err();
    assert!(
        error.line.is_some() && error.problem.contains("too many values, levels or aliases"),
        "{error}"
    );

    for deep in ["[".repeat(100_000), "{\"agent\":".repeat(100_000), "- ".repeat(100_000)] {
        for file in ["p.toml", "p.yaml", "p.json"] {
            assert!(parse(&deep, file).is_err());
        }
    }
    // Long blocks of comments are fine.
    let comments = "# comment\n".repeat(1000);
    assert!(
        parse(&format!("{comments}mode: enforce\nloop:\n{comments}  threshold: 3\n"), "p.yaml")
            .is_ok()
    );
}

#[test]
fn yaml_anchors_and_merges_work() {
    let text =
        "loop: &l {threshold: 3, action: block}\nagent:\n  loop:\n    <<: *l\n    enabled: true\n";
    let policies = parse(text, "p.yaml").unwrap();
    assert_eq!((policies.agent.loops.threshold, policies.agent.loops.enabled), (3, true));
}

#[test]
fn the_three_formats_mean_the_same() {
    let toml = "preset = \"strict\"\nmode = \"shadow\"\n[budget]\nmax_cost_usd = 2.5\ntool_prices = { \"web*\" = 1 }\n[access]\ndeny = [\"rm\"]\n[agent.breaker]\ncooldown_seconds = 5\n";
    let yaml = "preset: strict\nmode: shadow\nbudget:\n  max_cost_usd: 2.5\n  tool_prices: {web*: 1}\naccess:\n  deny:\n  - rm\nagent: {breaker: {cooldown_seconds: 5}}\n";
    let json = r#"{"preset":"strict","mode":"shadow","budget":{"max_cost_usd":2.5,"tool_prices":{"web*":1}},
        "access":{"deny":["\u0072m"]},"agent":{"breaker":{"cooldown_seconds":5}}}"#;
    let expected = parse(toml, "p.toml").unwrap();
    assert_eq!(expected.session.mode, Mode::LogOnly);
    assert_eq!(expected.agent.breaker.cooldown_seconds.0, 5);
    assert_eq!(parse(yaml, "p.yaml").unwrap(), expected);
    assert_eq!(parse(json, "p.json").unwrap(), expected);
    check_round_trip(&expected);
}

fn check_round_trip(policies: &PolicySet) {
    let toml = to_toml(policies);
    assert_eq!(parse(&toml, "p.toml").as_ref(), Ok(policies), "{toml}");
    let json = to_json(policies).to_string();
    assert_eq!(parse(&json, "p.json").as_ref(), Ok(policies), "{json}");
}

#[test]
fn what_is_in_force_reads_back_as_the_same() {
    for preset in Preset::ALL {
        let mut policies = preset.policies();
        check_round_trip(&policies);
        let json = to_json(&policies).to_string();
        assert_eq!(parse(&json, "p.yaml").as_ref(), Ok(&policies), "{json}");
        policies.session.access.rules = vec![Rule {
            action: None,
            tool: Pattern::new("*\"sql\"'''\\"),
            argument: Pattern::new("a\nb\t\u{7f}\u{1}é"),
            matches: Some(Pattern::new("")),
            above: Some(1e300),
            below: Some(-0.25),
        }];
        policies.nested.destructive.enabled = true;
        policies.project.mode = Mode::LogOnly;
        policies.session.steps.max_steps = Some(u64::MAX);
        check_round_trip(&policies);
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "[\\[\\]{}\"':=,.#&*<\\-\\n\\\\ a-f0-9ü]{0,60}") {
        for file in ["p.toml", "p.yaml", "p.json", "p"] {
            if let Err(error) = parse(&text, file) {
                prop_assert!(error.line.is_none_or(|line| line <= text.lines().count() + 1));
            }
        }
    }

    #[test]
    fn names_and_amounts_read_back(
        name in any::<String>(),
        cents in 1u32..100_000_000,
        target in any::<String>(),
        steps in 1u64..,
    ) {
        let mut policies = Preset::Balanced.policies();
        let amount = deadstop_core::Dollars(deadstop_core::NanoUsd(u64::from(cents) * 10_000_000));
        policies.project.budget.max_cost_usd = Some(amount);
        policies.agent.budget.tool_prices.insert(Pattern::new(name), amount);
        policies.nested.destructive.exempt_targets = vec![Pattern::new(target)];
        policies.session.steps.max_steps = Some(steps);
        let toml = to_toml(&policies);
        prop_assert_eq!(parse(&toml, "p.toml"), Ok(policies));
    }
}

/// Removes the `#` in front of every setting, as a user would.
fn uncommented(text: &str) -> String {
    let setting = |rest: &&str| rest.starts_with(|c: char| c.is_ascii_lowercase());
    let line =
        |line: &str| line.strip_prefix('#').filter(setting).unwrap_or(line).to_owned() + "\n";
    text.lines().map(line).collect()
}

#[test]
fn the_starter_file_is_the_preset_with_and_without_comments() {
    for preset in Preset::ALL {
        let text = template(preset);
        assert_eq!(parse(&text, "p.toml"), Ok(preset.policies()), "{text}");
        let all = uncommented(&text);
        assert_ne!(all, text);
        assert_eq!(parse(&all, "p.toml"), Ok(preset.policies()), "{all}");
        assert!(text.lines().all(|line| line.len() <= 120), "{text}");
    }
}

#[test]
fn every_setting_of_core_is_explained() {
    let json = serde_json::to_value(Preset::Balanced.policies().session).unwrap();
    let policy = json.as_object().unwrap();
    let mut sections: Vec<&str> = write::SECTIONS.iter().map(|section| section.name).collect();
    sections.push("mode");
    sections.push("fail_mode");
    sections.push("ask_timeout_s");
    sections.push("offline_calls");
    sections.sort_unstable();
    let mut expected: Vec<&str> = policy.keys().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(sections, expected);
    for section in &write::SECTIONS {
        let mut keys: Vec<&str> = section.keys.iter().map(|key| key.name).collect();
        keys.sort_unstable();
        let settings = policy[section.name].as_object().unwrap();
        let mut expected: Vec<&str> = settings.keys().map(String::as_str).collect();
        expected.sort_unstable();
        assert_eq!(keys, expected, "{}", section.name);
    }
}

/// All mistakes of a text, as people see them.
fn complaints(text: &str, file: &str) -> Vec<String> {
    let errors = parse_all(text, file).expect_err(text);
    assert!(errors.iter().all(|error| error.hint.is_some()), "{errors:?}");
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn all_mistakes_are_named_at_once() {
    let text = "\
mode = \"enforse\"
[budget]
max_cost_used = 5
max_cost_usd = -1
[loop]
threshold = \"many\"
[[access.rules]]
tool = \"a\"
argument = \"b\"
abov = 1
[[access.rules]]
tool = \"c\"
argument = \"d\"
colour = 2
[destructive]
window_s = 0
";
    assert_eq!(
        complaints(text, "p.toml"),
        [
            "p.toml:1:8: `mode` cannot be `enforse`",
            "p.toml:3:1: unknown key `max_cost_used` in `budget`",
            "p.toml:4:16: `budget.max_cost_usd`: an amount of dollars must be 0 or more",
            "p.toml:6:13: `loop.threshold` must be a whole number from 0 to 4294967295, not the text \"many\"",
            "p.toml:10:1: unknown key `abov` in `access.rules[0]`",
            "p.toml:14:1: unknown key `colour` in `access.rules[1]`",
            "p.toml:16:1: `destructive.window_s`: 0 is not between 1 and 31536000",
        ]
    );
    let yaml = "mode: enforse\nbudget:\n  max_cost_used: 5\nsteps:\n  max_steps: ten\n";
    assert_eq!(complaints(yaml, "p.yaml").len(), 3);
    let json =
        r#"{"mode": "enforse", "budget": {"max_cost_used": 5}, "steps": {"max_steps": "ten"}}"#;
    assert_eq!(complaints(json, "p.json").len(), 3);
}

#[test]
fn the_first_of_all_mistakes_is_the_one_that_is_found_alone() {
    for (text, file) in [
        ("budget = 5\n", "p.toml"),
        ("zzz: 1\n", "p.yaml"),
        ("{\"destructive\": {\"window_s\": 0}}", "p.json"),
        ("mode = ", "p.toml"),
    ] {
        assert_eq!(complaints(text, file), [complaint(text, file).0], "{text}");
    }
    assert_eq!(parse_all("", "p.toml").unwrap(), parse("", "p.toml").unwrap());
}
