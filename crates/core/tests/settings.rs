//! No setting without effect: for every setting of every kind of scope, changing it changes what is
//! decided, or switching it on there is refused with a hint.
//!
//! The settings are read off the policy itself, so that a new one fails here until it has a row in
//! [`rows`]. All calls of [`day`] are judged under both values; what is compared is who decided what, and
//! which scopes were ended.

#[cfg(test)]
mod support;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use deadstop_core::*;
    use serde_json::{Value, json};

    use crate::support::*;

    const KINDS: [ScopeKind; 4] =
        [ScopeKind::Project, ScopeKind::Agent, ScopeKind::Session, ScopeKind::Nested];
    const SESSIONS: [&str; 12] =
        ["s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12"];

    /// What a setting is shown with: what else must be set, and two values that differ in effect.
    struct Row {
        setting: &'static str,
        with: Value,
        values: [Value; 2],
    }

    fn row(setting: &'static str, with: Value, one: Value, other: Value) -> Row {
        Row { setting, with, values: [one, other] }
    }

    /// Sub-agents and windows of providers need calls that [`day`] does not have.
    const SWARMS: &str = "crates/core/src/engine/tests/swarming.rs";

    /// Settings that the engine carries for others, or that need other calls: where they are shown.
    const ELSEWHERE: [(&str, &str); 11] = [
        ("fail_mode", "crates/server/tests/outage/disk.rs"),
        ("ask_timeout_s", "crates/server/tests/control/approvals.rs"),
        ("offline_calls", "crates/server/tests/fleet/faults.rs"),
        ("budget.wait_s", "crates/server/tests/blame.rs"),
        ("swarm.max_agents", SWARMS),
        ("swarm.max_parallel", SWARMS),
        ("swarm.max_depth", SWARMS),
        ("swarm.max_spawns_per_minute", SWARMS),
        ("swarm.action", SWARMS),
        ("quota.max_used", SWARMS),
        ("quota.action", SWARMS),
    ];

    /// A row for every setting, the default first where it can be.
    fn rows() -> Vec<Row> {
        let none = || json!({});
        let on = || json!({ "enabled": true });
        let ended = || json!({ "enabled": true, "action": "terminate", "threshold": 3 });
        let ladder = || json!({ "enabled": true, "steer_at": 3, "block_at": 6, "end_at": 9 });
        let scored = || json!({ "enabled": true, "threshold": 5.0 });
        let limited = || json!({ "max_cost_usd": 0.5 });
        let stepping = || json!({ "beside": { "steps": { "max_steps": 5 } } });
        let counted = || json!({ "consecutive_blocks": 3, "consecutive_errors": 3 });
        vec![
            row(
                "mode",
                json!({ "steps": { "max_steps": 2 } }),
                json!("enforce"),
                json!("log-only"),
            ),
            row("access.allow", none(), json!([]), json!(["ls"])),
            row("access.deny", none(), json!([]), json!(["rm"])),
            row("access.ask", none(), json!([]), json!(["rm"])),
            row(
                "access.rules",
                none(),
                json!([]),
                json!([{ "tool": "pay", "argument": "amount", "above": 10 }]),
            ),
            row("access.action", json!({ "deny": ["rm"] }), json!("block"), json!("terminate")),
            row("access.pin_tools", none(), json!("off"), json!("block")),
            row("steps.max_steps", none(), json!(1000), json!(3)),
            row("steps.max_model_calls", none(), json!(1000), json!(3)),
            row("steps.action", json!({ "max_steps": 3 }), json!("terminate"), json!("warn")),
            row("tokens.input_token_limit", none(), json!(1_000_000), json!(300)),
            row("tokens.output_token_limit", none(), json!(1_000_000), json!(120)),
            row("tokens.total_token_limit", none(), json!(1_000_000), json!(400)),
            row(
                "tokens.action",
                json!({ "input_token_limit": 300 }),
                json!("terminate"),
                json!("warn"),
            ),
            row("budget.max_cost_usd", none(), json!(9000.0), json!(0.5)),
            row(
                "budget.soft_alert_threshold_usd",
                json!({ "max_cost_usd": 9000.0 }),
                json!(8000.0),
                json!(0.5),
            ),
            row("budget.per", limited(), json!("total"), json!("hour")),
            row(
                "budget.reservation",
                json!({ "max_cost_usd": 1.0 }),
                json!("expected"),
                json!("ceiling"),
            ),
            row(
                "budget.ceiling_share",
                json!({ "max_cost_usd": 20.0, "reservation": "ceiling" }),
                json!(0.125),
                json!(1.0),
            ),
            row("budget.tool_prices", limited(), json!({}), json!({ "*": 0.25 })),
            row("budget.action", limited(), json!("terminate"), json!("warn")),
            row("ending.wrap_up_at", stepping(), json!("90%"), json!("40%")),
            row("ending.reserve_for_answer", stepping(), json!("off"), json!("40%")),
            row("time.max_wall_time_seconds", none(), json!(1_000_000), json!(60)),
            row(
                "time.action",
                json!({ "max_wall_time_seconds": 60 }),
                json!("terminate"),
                json!("warn"),
            ),
            row("velocity.max_usd_per_minute", none(), json!(9000.0), json!(0.3)),
            row("velocity.max_tokens_per_minute", none(), json!(1_000_000), json!(300)),
            row(
                "velocity.action",
                json!({ "max_tokens_per_minute": 300 }),
                json!("block"),
                json!("warn"),
            ),
            row(
                "loop.enabled",
                json!({ "threshold": 3, "action": "block" }),
                json!(false),
                json!(true),
            ),
            row(
                "loop.threshold",
                json!({ "enabled": true, "action": "block" }),
                json!(5),
                json!(3),
            ),
            row(
                "loop.action",
                json!({ "enabled": true, "threshold": 3 }),
                json!("warn"),
                json!("block"),
            ),
            row(
                "loop.steer_at",
                json!({ "enabled": true, "block_at": 6, "end_at": "off" }),
                json!("off"),
                json!(3),
            ),
            row(
                "loop.block_at",
                json!({ "enabled": true, "steer_at": 2, "end_at": "off" }),
                json!("off"),
                json!(4),
            ),
            row(
                "loop.end_at",
                json!({ "enabled": true, "steer_at": 2, "block_at": "off" }),
                json!("off"),
                json!(4),
            ),
            row("loop.ends", ended(), json!("session"), json!("agent")),
            row("loop.max_wait_s", ladder(), json!(1800), json!(60)),
            row("loop.tools", ladder(), json!({}), json!({ "*": { "ignore": true } })),
            row("similarity.enabled", json!({ "threshold": 5.0 }), json!(false), json!(true)),
            row("similarity.window_size", scored(), json!(20), json!(2)),
            row("similarity.threshold", on(), json!(1000.0), json!(5.0)),
            row("similarity.prompt_weight", scored(), json!(1.0), json!(0.0)),
            row("similarity.response_weight", scored(), json!(2.0), json!(0.0)),
            row("similarity.tool_call_weight", scored(), json!(1.5), json!(0.0)),
            row("similarity.action", scored(), json!("terminate"), json!("warn")),
            row("similarity.ends", scored(), json!("agent"), json!("session")),
            row("text_loop.enabled", json!({ "action": "block" }), json!(false), json!(true)),
            row(
                "text_loop.max_repeated_answers",
                json!({ "enabled": true, "action": "block" }),
                json!(5),
                json!(3),
            ),
            row("text_loop.action", on(), json!("warn"), json!("terminate")),
            row(
                "text_loop.steer_at",
                json!({ "enabled": true, "end_at": 9 }),
                json!("off"),
                json!(3),
            ),
            row(
                "text_loop.end_at",
                json!({ "enabled": true, "steer_at": 3 }),
                json!("off"),
                json!(5),
            ),
            row(
                "text_loop.ends",
                json!({ "enabled": true, "action": "terminate" }),
                json!("session"),
                json!("agent"),
            ),
            row("destructive.enabled", none(), json!(false), json!(true)),
            row("destructive.max_deletes", on(), json!(3), json!(2)),
            row(
                "destructive.max_same_target",
                json!({ "enabled": true, "max_deletes": 100 }),
                json!(3),
                json!(2),
            ),
            row("destructive.window_s", on(), json!(60), json!(1)),
            row("destructive.exempt_targets", on(), json!([]), json!(["*"])),
            row("destructive.action", on(), json!("terminate"), json!("warn")),
            row("destructive.ends", on(), json!("session"), json!("agent")),
            row("harm.enabled", none(), json!(false), json!(true)),
            row("harm.catastrophic", on(), json!("ask"), json!("block")),
            row("harm.serious", on(), json!("ask"), json!("block")),
            row("harm.recoverable", on(), json!("allow"), json!("block")),
            row("harm.unknown", on(), json!("allow"), json!("block")),
            row("harm.secrets", on(), json!("warn"), json!("block")),
            row("harm.unreadable", on(), json!("warn"), json!("block")),
            row("harm.allow", on(), json!([]), json!(["*"])),
            row("breaker.enabled", json!({}), json!(false), json!(true)),
            row("breaker.open_after_failures", on(), json!(5), json!(2)),
            row("breaker.cooldown_seconds", on(), json!(30), json!(1)),
            row("breaker.half_open_max_calls", on(), json!(3), json!(1)),
            row("breaker.action", on(), json!("block"), json!("warn")),
            row("strikes.enabled", counted(), json!(false), json!(true)),
            row("strikes.consecutive_blocks", on(), json!(5), json!(2)),
            row("strikes.consecutive_errors", on(), json!(3), json!(2)),
            row("strikes.provider_errors", on(), json!(false), json!(true)),
            row("strikes.action", on(), json!("terminate"), json!("warn")),
        ]
    }

    /// Every guard off and no limit set, in every scope.
    fn quiet() -> Value {
        let off = json!({ "enabled": false });
        let scope = || {
            json!({
                "access": { "pin_tools": "off" }, "loop": off, "similarity": off, "text_loop": off,
                "destructive": off, "harm": off, "breaker": off, "strikes": off,
            })
        };
        let mut all = scope();
        // A blocked tool, so that strikes have something to count.
        all["access"]["deny"] = json!(["forbidden"]);
        for kind in ["project", "agent", "nested"] {
            all[kind] = scope();
        }
        all
    }

    /// Lays settings over others, part by part.
    fn lay(over: &mut Value, parts: &Value) {
        match (over, parts) {
            (Value::Object(over), Value::Object(parts)) => {
                for (name, part) in parts {
                    lay(over.entry(name.clone()).or_insert(Value::Null), part);
                }
            }
            (over, part) => *over = part.clone(),
        }
    }

    /// A policy in which one scope has a setting.
    fn typed(kind: ScopeKind, row: &Row, value: &Value) -> Result<PolicySet, BadSetting> {
        let mut own = json!({});
        match row.setting.split_once('.') {
            Some((section, field)) => {
                own[section] = row.with.clone();
                // What other sections must say stands under `beside`.
                if let Some(part) = own[section].as_object_mut()
                    && let Some(beside) = part.remove("beside")
                {
                    lay(&mut own, &beside);
                }
                own[section][field] = value.clone();
            }
            None => {
                own = row.with.clone();
                own[row.setting] = value.clone();
            }
        }
        let mut all = quiet();
        // Typed for sessions, it is the agent's.
        if row.setting.starts_with("breaker.") && kind == ScopeKind::Session {
            all["agent"] = Value::Null;
        }
        match kind {
            ScopeKind::Session => lay(&mut all, &own),
            ScopeKind::Nested => lay(&mut all["nested"], &own),
            kind => lay(&mut all[kind.name()], &own),
        }
        serde_json::from_value::<RawPolicy>(all).unwrap().resolve()
    }

    /// Runs calls in a world and writes down what was decided.
    struct Day {
        world: World,
        path: String,
        told: Vec<String>,
    }

    impl Day {
        fn new(policies: &PolicySet, kind: ScopeKind) -> Day {
            let mut world = World::default()
                .with(ScopeKind::Project, "acme", policies.project.clone())
                .with(ScopeKind::Agent, "coder", policies.agent.clone());
            for name in SESSIONS {
                world = world.with(ScopeKind::Session, name, policies.session.clone());
            }
            if kind == ScopeKind::Nested {
                world = world.with(ScopeKind::Nested, "crew", policies.nested.clone());
            }
            let path =
                if kind == ScopeKind::Nested { "acme/coder/s1/crew" } else { "acme/coder/s1" };
            Day { world, path: path.to_owned(), told: Vec::new() }
        }

        fn tell(&mut self, trips: &[Trip]) {
            let of = |trip: &Trip| {
                format!("{:?} {} {:?} {:?}", trip.guard, trip.reason, trip.verdict, trip.ends)
            };
            self.told.push(trips.iter().map(of).collect::<Vec<_>>().join(", "));
        }

        fn run(&mut self, call: &Call, outcome: &Outcome, second: u64) {
            let trips = self.world.run(&self.path, call, outcome, at(second));
            self.tell(&trips);
        }

        fn run_in(&mut self, session: &str, call: &Call, outcome: &Outcome, second: u64) {
            let path = format!("acme/coder/{session}");
            let trips = self.world.run(&path, call, outcome, at(second));
            self.tell(&trips);
        }

        fn stream(&mut self, call: &Call, pieces: &[(u64, &str)], outcome: &Outcome, second: u64) {
            let admission = self.world.admit(&self.path, call, at(second));
            self.tell(&admission.trips);
            let Some(mut ticket) = admission.ticket else { return };
            for (output, text) in pieces {
                let so_far = Progress { output: Tokens(*output), text };
                let found = self.world.progress(&self.path, call, &mut ticket, so_far, at(second));
                self.tell(&found.trips);
            }
            let found = self.world.settle(&self.path, call, ticket, outcome, at(second));
            self.tell(&found.trips);
        }

        fn ended(mut self) -> Vec<String> {
            for name in ["acme", "coder", "s1"] {
                let killed = self.world.state(name).killed().is_some();
                self.told.push(format!("{name} {killed}"));
            }
            self.told
        }
    }

    /// Calls of every sort, each part in a world of its own.
    const DAY: [fn(&mut Day); 15] = [
        tools,
        repeats,
        waits,
        spread,
        spends,
        hours,
        parallel,
        fails,
        deletes,
        harms,
        prompts,
        only_prompts,
        only_answers,
        only_calls,
        answers,
    ];

    /// Whether a policy decides otherwise than another one somewhere in the day.
    fn differs(one: &PolicySet, other: &PolicySet, kind: ScopeKind) -> bool {
        DAY.into_iter().any(|part| {
            let [one, other] = [one, other].map(|policies| {
                let mut day = Day::new(policies, kind);
                part(&mut day);
                day.ended()
            });
            one != other
        })
    }

    fn fine() -> Outcome {
        result(Status::Ok, "fine")
    }

    fn changed(call: Call, change: impl Fn(&mut ToolCall)) -> Call {
        match call {
            Call::Tool(mut tool) => {
                change(&mut tool);
                Call::Tool(tool)
            }
            model @ Call::Model(_) => model,
        }
    }

    fn tools(day: &mut Day) {
        for (n, name) in ["ls", "rm", "cat", "mv", "forbidden"].into_iter().enumerate() {
            day.run(&tool(name, &n.to_string()), &result(Status::Ok, name), n as u64);
        }
        let pay = changed(tool("pay", "20"), |call| {
            call.arguments = vec![Argument { path: "amount".into(), value: "20".into() }];
        });
        day.run(&pay, &fine(), 6);
        day.run(&changed(tool("swap", ""), |call| call.changed = true), &fine(), 7);
        for n in 0..6 {
            day.run(&tool("forbidden", &n.to_string()), &fine(), 10 + n);
        }
    }

    fn repeats(day: &mut Day) {
        for n in 0..12 {
            day.run(&tool("build", "x"), &result(Status::Error, "it failed"), n);
        }
    }

    fn waits(day: &mut Day) {
        let look = harmless(Effect::Reads, "get_job", "7");
        let mut running = result(Status::Ok, "running");
        if let Some(result) = &mut running.result {
            result.pending = true;
        }
        for n in 0..14 {
            day.run(&look, &running, n * 60);
        }
    }

    /// The same change fails in one session after the other.
    fn spread(day: &mut Day) {
        for round in 0..4u64 {
            for (n, session) in SESSIONS.into_iter().enumerate() {
                let now = round * 100 + n as u64;
                day.run_in(session, &tool("deploy", "x"), &result(Status::Error, "it failed"), now);
            }
        }
    }

    fn spends(day: &mut Day) {
        for n in 0..8 {
            day.run(&model(100, Some(50)), &used(100, 50), n);
        }
        day.stream(&model(10, Some(5)), &[(100, ""), (400, "")], &used(10, 400), 9);
    }

    fn hours(day: &mut Day) {
        for n in 0..6 {
            day.run(&model(100, Some(50)), &used(100, 150), n * 3600);
            day.run(&tool("ls", &n.to_string()), &fine(), n * 3600 + 1);
        }
    }

    /// Calls that run side by side, with and without a maximum of their own.
    fn parallel(day: &mut Day) {
        let call =
            Call::Model(ModelCall { longest_output: Some(Tokens(50_000)), ..request(10, None) });
        let mut tickets = Vec::new();
        for _ in 0..6 {
            let path = day.path.clone();
            let admission = day.world.admit(&path, &call, at(0));
            day.tell(&admission.trips);
            tickets.extend(admission.ticket);
        }
        for ticket in tickets {
            let path = day.path.clone();
            let found = day.world.settle(&path, &call, ticket, &used(10, 20), at(1));
            day.tell(&found.trips);
        }
    }

    fn fails(day: &mut Day) {
        let fetch = |n: u64| {
            changed(tool("fetch", &n.to_string()), |call| call.server = Some("files".into()))
        };
        let fault = Outcome { status: Status::Fault, ..Outcome::default() };
        for n in 0..7 {
            day.run(&fetch(n), &fault, n);
        }
        // While it is open, when it may be tried again, and long after.
        for second in [10, 12, 40, 45] {
            day.run(&fetch(second), &fault, second);
        }
        for second in [200, 201, 202, 203] {
            let path = day.path.clone();
            let admission = day.world.admit(&path, &fetch(second), at(second));
            day.tell(&admission.trips);
        }
        let ask = Call::Model(ModelCall { server: Some("openai".into()), ..request(1, None) });
        for n in 0..6 {
            let failed = Outcome::failed(Failure::provider(How::Status(503)));
            day.run_in("s2", &ask, &failed, 300 + n * 100);
        }
    }

    fn deletes(day: &mut Day) {
        for n in 0..6 {
            day.run(&delete("delete_asset", "asset_id=fact_sales"), &fine(), n * 4);
        }
        for n in 0..6 {
            let target = format!("asset_id={n}");
            day.run_in("s2", &delete("delete_asset", &target), &fine(), 500 + n * 4);
        }
    }

    fn harms(day: &mut Day) {
        use HarmKind as Kind;
        for (n, (kind, reach, recovery)) in [
            (Kind::Destroys, Reach::Production, Recovery::None),
            (Kind::Destroys, Reach::Remote, Recovery::None),
            (Kind::Destroys, Reach::Remote, Recovery::Elsewhere),
            (Kind::Destroys, Reach::Remote, Recovery::Unknown),
            (Kind::ReadsSecret, Reach::Item, Recovery::Unknown),
            (Kind::Unreadable, Reach::Item, Recovery::Unknown),
        ]
        .into_iter()
        .enumerate()
        {
            let call = changed(tool("sh", &n.to_string()), |call| {
                let (verb, target) = ("do".to_owned(), format!("thing {n}"));
                call.harms = vec![Harm { kind, verb, target, reach, recovery }];
            });
            day.run(&call, &fine(), n as u64 * 100);
        }
    }

    fn prompts(day: &mut Day) {
        let text = |n: u64| {
            format!(
                "Look at order {n} of the customer again and tell me what you find in there now"
            )
        };
        let said =
            "I have looked at the order again, and there is nothing new that I could tell you";
        for n in 0..12 {
            day.run(&says(&text(n), false), &answer(said), n);
        }
    }

    /// Twelve words of which no two texts share many.
    fn words(n: u64) -> String {
        let word = |m: u64| Digest::of(format!("{n} {m}").as_bytes());
        let letters = |digest: Digest| {
            let text = format!("{digest:?}");
            let bytes = text.bytes().filter(u8::is_ascii_alphanumeric);
            bytes.map(|byte| char::from(b'a' + byte % 26)).rev().take(9).collect::<String>()
        };
        (0..12).map(|m| letters(word(m))).collect::<Vec<_>>().join(" ")
    }

    fn only_prompts(day: &mut Day) {
        for n in 0..14 {
            let text = format!("Look at order {n} of the customer again and tell me what you find");
            day.run(&says(&text, false), &answer(&words(n)), n);
        }
    }

    fn only_answers(day: &mut Day) {
        for n in 0..14 {
            let text = "I have looked at the order again, and there is nothing new to tell you";
            day.run(&says(&words(n), false), &answer(text), n);
        }
    }

    fn only_calls(day: &mut Day) {
        for n in 0..14 {
            let mut asks = answer(&words(n));
            if let Some(answer) = &mut asks.answer {
                answer.calls = Some(Digest::of(b"look 1"));
            }
            day.run(&says(&words(n + 100), false), &asks, n);
        }
    }

    fn answers(day: &mut Day) {
        for n in 0..12 {
            day.run(&says("go on", false), &answer("I am still working on it, please wait"), n);
        }
        let chant = "I will try again. ".repeat(200);
        for n in 0..4 {
            let call = says("what is the weather like", true);
            day.stream(&call, &[(1, &chant)], &answer(&chant), 100 + n);
        }
    }

    /// Every setting there is, by its name in policies.
    fn settings() -> BTreeSet<String> {
        let policy = serde_json::to_value(Policy::none()).unwrap();
        let mut names = BTreeSet::new();
        for (name, value) in policy.as_object().unwrap() {
            match value.as_object() {
                Some(section) => names.extend(section.keys().map(|key| format!("{name}.{key}"))),
                None => _ = names.insert(name.clone()),
            }
        }
        names
    }

    #[test]
    fn every_setting_has_a_row() {
        let rows = rows();
        let shown = rows.iter().map(|row| row.setting.to_owned());
        let elsewhere = ELSEWHERE.iter().map(|(name, _)| (*name).to_owned());
        let known: BTreeSet<_> = shown.chain(elsewhere).collect();
        assert_eq!(known.len(), rows.len() + ELSEWHERE.len(), "each has one row");
        assert_eq!(known, settings());
        for (name, file) in ELSEWHERE {
            let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
            let text = std::fs::read_to_string(format!("{root}{file}")).unwrap_or_default();
            let name = name.rsplit('.').next().unwrap();
            assert!(text.contains(name), "{file} shows {name}");
        }
    }

    #[test]
    fn every_setting_has_an_effect_in_every_scope_or_is_refused_there() {
        let mut idle = Vec::new();
        for row in rows() {
            for kind in KINDS {
                let [one, other] = row.values.each_ref().map(|value| typed(kind, &row, value));
                let (one, other) = match (one, other) {
                    (Ok(one), Ok(other)) => (one, other),
                    (Err(bad), _) | (_, Err(bad)) => {
                        let refused = bad.problem.contains("has no effect") && !bad.hint.is_empty();
                        assert!(refused, "{kind:?} {}: {bad} ({})", row.setting, bad.hint);
                        continue;
                    }
                };
                if !differs(&one, &other, kind) {
                    idle.push(format!("{kind:?} {}", row.setting));
                }
            }
        }
        assert_eq!(idle, [""; 0], "settings that are taken and do nothing");
    }
}
