//! What holds for any policies and any sequence of events.

#[cfg(test)]
mod support;

#[cfg(test)]
mod properties {
    use deadstop_core::*;
    use proptest::option::weighted;
    use proptest::prelude::*;
    use proptest::sample::select;

    use crate::support::*;

    /// Few cases by default, since these tests run often; `PROPTEST_CASES` asks for more.
    fn config(cases: u32) -> ProptestConfig {
        match std::env::var_os("PROPTEST_CASES") {
            Some(_) => ProptestConfig { failure_persistence: None, ..ProptestConfig::default() },
            None => {
                ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
            }
        }
    }

    const PATHS: [&str; 6] = ["p", "p/a", "p/a/s", "p/a/s/n", "p/a/s/m", "p/a/t"];
    const NAMES: [(ScopeKind, &str); 6] = [
        (ScopeKind::Project, "p"),
        (ScopeKind::Agent, "a"),
        (ScopeKind::Session, "s"),
        (ScopeKind::Nested, "n"),
        (ScopeKind::Nested, "m"),
        (ScopeKind::Session, "t"),
    ];

    fn world(policies: &[Policy]) -> World {
        let scopes = NAMES.into_iter().zip(policies);
        scopes.fold(World::default(), |world, ((kind, name), policy)| {
            world.with(kind, name, policy.clone())
        })
    }

    fn an_action() -> impl Strategy<Value = Action> {
        select(vec![Action::Warn, Action::Steer, Action::Block, Action::Terminate])
    }

    fn an_end() -> impl Strategy<Value = Ends> {
        select(vec![Ends::Scope, Ends::Session, Ends::Agent])
    }

    fn dollars(most: u64) -> impl Strategy<Value = Option<Dollars>> {
        weighted(0.4, (1..=most).prop_map(|cents| Dollars(NanoUsd(cents * 10_000_000))))
    }

    fn tokens(most: u64) -> impl Strategy<Value = Option<Tokens>> {
        weighted(0.3, (1..=most).prop_map(Tokens))
    }

    prop_compose! {
        fn limits()(
            mode in select(vec![Mode::Enforce, Mode::Enforce, Mode::Enforce, Mode::LogOnly]),
            deny in weighted(0.2, Just(Pattern::new("write"))),
            steps in (weighted(0.3, 1..30u64), weighted(0.3, 1..30u64), an_action()),
            token in (tokens(9000), tokens(9000), tokens(9000), an_action()),
            money in (dollars(900), dollars(90), an_action()),
            ceiling in any::<bool>(),
            per in select(vec![Period::Total, Period::Hour, Period::Day]),
            time in (weighted(0.2, 1..300u64), an_action()),
            pace in (dollars(500), tokens(9000), an_action()),
        ) -> Policy {
            let mut policy = Policy::none();
            policy.mode = mode;
            policy.access.deny = deny.into_iter().collect();
            (policy.steps.max_steps, policy.steps.max_model_calls, policy.steps.action) = steps;
            policy.tokens = TokenSettings {
                input_token_limit: token.0,
                output_token_limit: token.1,
                total_token_limit: token.2,
                action: token.3,
            };
            policy.budget.max_cost_usd = money.0;
            policy.budget.soft_alert_threshold_usd = money.1;
            policy.budget.action = money.2;
            policy.budget.per = per;
            if ceiling {
                policy.budget.reservation = Reservation::Ceiling;
            }
            policy.budget.tool_prices =
                [(Pattern::new("r*"), Dollars(NanoUsd(10_000_000)))].into();
            policy.time.max_wall_time_seconds = time.0.map(Seconds);
            policy.time.action = time.1;
            policy.velocity = VelocitySettings {
                max_usd_per_minute: pace.0,
                max_tokens_per_minute: pace.1,
                action: pace.2,
            };
            policy
        }
    }

    fn rung(on: bool, at: u32) -> Rung {
        if on { Rung::At(at) } else { Rung::Off }
    }

    prop_compose! {
        fn a_policy()(
            mut policy in limits(),
            loops in (any::<bool>(), 2..=16u32, an_action(), an_end(), any::<bool>()),
            similarity in (any::<bool>(), 1..30u32, 0.1..20.0f64, an_action(), an_end()),
            text in (any::<bool>(), 2..8u32, an_action(), an_end(), any::<bool>()),
            destructive in (any::<bool>(), 1..9u32, 1..9u32, 1..90u64, an_action(), an_end()),
            breaker in (any::<bool>(), 1..6u32, 1..60u64, 1..4u32, an_action()),
            strikes in (any::<bool>(), 1..8u32, 1..5u32, an_action(), any::<bool>()),
        ) -> Policy {
            policy.loops = LoopSettings {
                enabled: loops.0,
                threshold: loops.1,
                action: loops.2,
                ends: loops.3,
                steer_at: rung(loops.4, 2),
                block_at: rung(loops.4, 4),
                end_at: rung(loops.4, 7),
                ..LoopSettings::default()
            };
            policy.similarity = SimilaritySettings {
                enabled: similarity.0,
                window_size: similarity.1,
                threshold: similarity.2,
                action: similarity.3,
                ends: similarity.4,
                ..SimilaritySettings::default()
            };
            policy.text_loop = TextLoopSettings {
                enabled: text.0,
                max_repeated_answers: text.1,
                action: text.2,
                ends: text.3,
                steer_at: rung(text.4, 2),
                end_at: rung(text.4, 4),
            };
            policy.destructive = DestructiveSettings {
                enabled: destructive.0,
                max_deletes: destructive.1,
                max_same_target: destructive.2,
                window_s: Seconds(destructive.3),
                exempt_targets: Vec::new(),
                action: destructive.4,
                ends: destructive.5,
            };
            policy.breaker = BreakerSettings {
                enabled: breaker.0,
                open_after_failures: breaker.1,
                cooldown_seconds: Seconds(breaker.2),
                half_open_max_calls: breaker.3,
                action: breaker.4,
            };
            policy.strikes = StrikeSettings {
                enabled: strikes.0,
                consecutive_blocks: strikes.1,
                consecutive_errors: strikes.2,
                action: strikes.3,
                provider_errors: strikes.4,
            };
            policy
        }
    }

    /// A few texts, so that some are the same, some alike and some neither.
    fn a_text() -> impl Strategy<Value = &'static str> {
        select(vec![
            "",
            "yes",
            "attempt 1 failed again",
            "attempt 2 failed again",
            "a longer text that is said by a person who has a good deal of time and uses it to say \
             this and that and the other",
            "über das Öl — 12 ünïcödé",
        ])
    }

    fn a_size() -> impl Strategy<Value = u64> {
        prop_oneof![8 => 0..3000u64, 1 => Just(0), 1 => Just(u64::MAX)]
    }

    prop_compose! {
        fn a_model_call()(
            input in a_size(),
            max_output in weighted(0.5, a_size()),
            prompt in weighted(0.7, a_text()),
            (from_person, estimated, retry, lookup) in any::<(bool, bool, bool, bool)>(),
            server in weighted(0.3, select(vec!["x", "y"])),
        ) -> Call {
            Call::Model(ModelCall {
                prompt: prompt.map(TextFacts::of),
                from_person,
                estimated,
                retry,
                lookup,
                server: server.map(str::to_owned),
                ..request(input, max_output)
            })
        }
    }

    prop_compose! {
        fn a_tool_call()(
            name in select(vec!["read", "write", "rm", "think"]),
            arguments in select(vec!["", "a", "b", "id=1", "id=2", "id=3"]),
            effect in select(vec![Effect::Inert, Effect::Reads, Effect::Changes]),
            targets in prop::collection::vec(select(vec!["", "a", "b", "c"]), 0..6),
            server in weighted(0.5, select(vec!["x", "y", "z"])),
        ) -> Call {
            let Call::Tool(call) = tool(name, arguments) else { unreachable!() };
            let destroy = |target: &str| Harm::destroys(name, target);
            let harms = if name == "rm" { targets.into_iter().map(destroy).collect() } else { vec![] };
            Call::Tool(ToolCall { effect, harms, server: server.map(str::to_owned), ..call })
        }
    }

    fn a_call() -> impl Strategy<Value = Call> {
        prop_oneof![a_model_call(), a_tool_call()]
    }

    prop_compose! {
        fn an_outcome()(
            status in select(vec![
                Status::Ok, Status::Ok, Status::Ok, Status::Error, Status::Fault, Status::Cancelled,
            ]),
            input in a_size(),
            output in a_size(),
            cache in (0..3000u64, 0..3000u64),
            brings in weighted(0.9, a_text()),
            says in weighted(0.7, a_text()),
            calls in weighted(0.3, 0..3u64),
            http in weighted(0.3, select(vec![401u16, 429, 503])),
            billed in weighted(0.2, a_size()),
        ) -> Outcome {
            let usage = Usage {
                input: Tokens(input),
                output: Tokens(output),
                cache_read: Tokens(cache.0),
                cache_write: Tokens(cache.1),
            };
            let answer = Answer { text: says.map(TextFacts::of), calls: calls.map(Digest) };
            Outcome {
                usage,
                answer: Some(answer),
                result: brings.and_then(|text| result(status, text).result),
                status,
                failure: http.and_then(Failure::of_status),
                billed: billed.map(NanoUsd),
                ..Outcome::default()
            }
        }
    }

    #[derive(Debug, Clone)]
    enum Event {
        Admit(usize, Call),
        Progress(usize, u64, &'static str),
        Settle(usize, Outcome),
        Kill(usize),
        Clear(usize),
        Reset(usize),
        Pause(usize),
        Resume(usize),
        Stored(usize),
        Wait(u64),
    }

    fn an_event() -> impl Strategy<Value = Event> {
        let some = || 0..NAMES.len();
        prop_oneof![
            12 => (some(), a_call()).prop_map(|(path, call)| Event::Admit(path, call)),
            4 => (0..9usize, a_size(), a_text()).prop_map(|(n, o, text)| Event::Progress(n, o, text)),
            10 => (0..9usize, an_outcome()).prop_map(|(n, outcome)| Event::Settle(n, outcome)),
            1 => some().prop_map(Event::Kill),
            2 => some().prop_map(Event::Clear),
            2 => some().prop_map(Event::Reset),
            1 => some().prop_map(Event::Pause),
            1 => some().prop_map(Event::Resume),
            2 => some().prop_map(Event::Stored),
            5 => prop_oneof![0..30_000u64, Just(7_200_000), Just(u64::MAX)].prop_map(Event::Wait),
        ]
    }

    /// A call that runs.
    struct Running {
        path: &'static str,
        call: Call,
        ticket: Ticket,
    }

    /// Plays events, checks what must hold after each, and tells all that was decided.
    fn play(policies: &[Policy], events: &[Event]) -> (Vec<String>, Vec<Vec<u8>>) {
        let mut world = world(policies);
        let mut running: Vec<Running> = Vec::new();
        let mut said = Vec::new();
        let mut now = Time(1_700_000_000_000);
        for event in events {
            match event {
                Event::Wait(ms) => now = now + Millis(*ms),
                Event::Admit(path, call) => {
                    let path = PATHS[*path];
                    let dead = path.split('/').any(|name| world.state(name).killed().is_some());
                    let held = path.split('/').any(|name| world.state(name).paused().is_some());
                    let admission = world.admit(path, call, now);
                    assert_eq!(admission.ticket.is_some(), admission.verdict <= Verdict::Steer);
                    assert!(!dead || admission.verdict == Verdict::Kill, "dead, and it runs");
                    assert!(!held || admission.ticket.is_none(), "held, and it runs");
                    sorted(&admission.trips, admission.verdict);
                    said.push(format!("{:?} {:?}", admission.verdict, admission.trips));
                    if let Some(ticket) = admission.ticket {
                        running.push(Running { path, call: call.clone(), ticket });
                    }
                }
                Event::Progress(n, output, text) => {
                    let Some(one) = running.get_mut(*n) else { continue };
                    let stopped = one
                        .path
                        .split('/')
                        .any(|name| world.state(name).killed().is_some_and(|kill| !kill.drains));
                    let so_far = Progress { output: Tokens(*output), text };
                    let decision =
                        world.progress(one.path, &one.call, &mut one.ticket, so_far, now);
                    assert!(
                        !stopped || decision.verdict == Verdict::Kill,
                        "stopped, and it runs on"
                    );
                    sorted(&decision.trips, decision.verdict);
                    said.push(format!("{decision:?}"));
                }
                Event::Settle(n, outcome) => {
                    if *n >= running.len() {
                        continue;
                    }
                    let one = running.swap_remove(*n);
                    let decision = world.settle(one.path, &one.call, one.ticket, outcome, now);
                    sorted(&decision.trips, decision.verdict);
                    said.push(format!("{decision:?}"));
                }
                Event::Kill(n) => world.state(NAMES[*n].1).kill("ada", "stop", now),
                Event::Clear(n) => {
                    let (kind, name) = NAMES[*n];
                    let can = matches!(kind, ScopeKind::Project | ScopeKind::Agent);
                    assert_eq!(world.state(name).clear().is_ok(), can);
                }
                Event::Reset(n) => world.state(NAMES[*n].1).reset(now),
                Event::Pause(n) => world.state(NAMES[*n].1).pause("ada", "wait", now),
                Event::Resume(n) => world.state(NAMES[*n].1).resume(),
                Event::Stored(n) => {
                    let state = world.state(NAMES[*n].1);
                    let read = ScopeState::from_blob(&state.to_blob()).unwrap();
                    assert_eq!(&read, state);
                    *state = read;
                }
            }
        }
        // A reset in between forgets what was reserved; otherwise all of it comes back.
        let forgetful = events.iter().any(|event| matches!(event, Event::Reset(_)));
        for one in running {
            world.settle(one.path, &one.call, one.ticket, &Outcome::default(), now);
        }
        let blobs = NAMES.map(|(_, name)| {
            let state = world.state(name);
            if !forgetful {
                assert_eq!(state.ledger().reserved, Reserved::default(), "{name}");
                assert_eq!(state.ledger().in_flight, 0, "{name}");
            }
            state.to_blob()
        });
        (said, blobs.into())
    }

    fn sorted(trips: &[Trip], verdict: Verdict) {
        assert!(trips.is_sorted_by(|a, b| a.verdict >= b.verdict));
        assert_eq!(trips.first().map_or(Verdict::Allow, |trip| trip.verdict), verdict);
        for trip in trips {
            assert!(!trip.because.is_empty() && !trip.reason.is_empty());
            assert!(trip.evidence.is_sorted() && trip.evidence.len() <= 1000);
        }
    }

    /// Requests within their means: what is used never goes over what was reserved.
    fn an_affordable_call() -> impl Strategy<Value = Call> {
        let tool = select(vec!["read", "write", "rm"]).prop_map(|name| tool(name, ""));
        let model = (0..200u64, weighted(0.7, 0..400u64)).prop_map(|(i, o)| model(i, o));
        prop_oneof![3 => model, 1 => tool]
    }

    proptest! {
        #![proptest_config(config(64))]

        /// No panic, sorted trips, dead scopes admit nothing, stored states read back the same,
        /// reservations return to nothing; and all of it happens twice in the same way.
        #[test]
        fn the_same_events_give_the_same_verdicts(
            policies in prop::collection::vec(a_policy(), 6),
            events in prop::collection::vec(an_event(), 0..80),
        ) {
            let (said, blobs) = play(&policies, &events);
            let (again, blobs_again) = play(&policies, &events);
            prop_assert_eq!(said, again);
            prop_assert_eq!(blobs, blobs_again);
        }

        #[test]
        fn ceiling_is_never_passed(
            mut policies in prop::collection::vec(limits(), 6),
            steps in prop::collection::vec(
                (0..6usize, an_affordable_call(), 0..=100u64, any::<bool>(), 0..9usize),
                1..80,
            ),
        ) {
            for policy in &mut policies {
                policy.mode = Mode::Enforce;
                policy.budget.reservation = Reservation::Ceiling;
                policy.budget.per = Period::Total;
                policy.time.max_wall_time_seconds = None;
                for action in [&mut policy.budget.action, &mut policy.tokens.action] {
                    let mild = matches!(*action, Action::Warn | Action::Steer);
                    *action = if mild { Action::Block } else { *action };
                }
            }
            let mut world = world(&policies);
            let mut running: Vec<(Running, u64)> = Vec::new();
            for (path, call, part, ends, which) in steps {
                let path = PATHS[path];
                if let Some(ticket) = world.admit(path, &call, Time(1)).ticket {
                    running.push((Running { path, call, ticket }, part));
                }
                if ends && which < running.len() {
                    let (one, part) = running.swap_remove(which);
                    let held = one.ticket.reserved();
                    let outcome = used(held.input.0, held.output.0 * part / 100);
                    world.settle(one.path, &one.call, one.ticket, &outcome, Time(1));
                }
                for ((_, name), policy) in NAMES.iter().zip(&policies) {
                    let ledger = world.state(name).ledger();
                    let (spent, held) = (ledger.spent, ledger.reserved);
                    if let Some(limit) = policy.budget.max_cost_usd {
                        prop_assert!(spent.cost + held.cost <= limit.0, "{name}");
                    }
                    if let Some(limit) = policy.tokens.input_token_limit {
                        prop_assert!(spent.input + held.input <= limit, "{name}");
                    }
                    if let Some(limit) = policy.tokens.output_token_limit {
                        prop_assert!(spent.output + held.output <= limit, "{name}");
                    }
                    if let Some(limit) = policy.tokens.total_token_limit {
                        let all = spent.input + spent.output + held.input + held.output;
                        prop_assert!(all <= limit, "{name}");
                    }
                    if let Some(limit) = policy.steps.max_steps
                        && !matches!(policy.steps.action, Action::Warn | Action::Steer)
                    {
                        prop_assert!(spent.steps <= limit, "{name}");
                    }
                }
            }
        }

        #[test]
        fn bytes_that_are_no_state_are_errors(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            version in any::<u8>(),
            cut in 0..10_000usize,
        ) {
            let mut world = busy_world();
            let mut blob = world.state("s").to_blob();
            prop_assert_eq!(&ScopeState::from_blob(&blob).unwrap(), world.state("s"));
            blob[0] = version;
            blob.truncate(1 + cut % (blob.len() - 1));
            match (version, ScopeState::from_blob(&blob)) {
                // Of an older version the head alone is read, if it is whole.
                (1..STATE_VERSION, Ok(read)) => {
                    prop_assert_eq!(read.killed(), world.state("s").killed());
                }
                (1..=STATE_VERSION, read) => prop_assert_eq!(read, Err(BadBlob::Damaged)),
                (other, read) => prop_assert_eq!(read, Err(BadBlob::Version(other))),
            }
            // Whatever it is, it is an answer and no panic.
            let _ = ScopeState::from_blob(&bytes);
            let _ = ScopeState::from_blob(&[&[STATE_VERSION], bytes.as_slice()].concat());
        }
    }

    proptest! {
        #![proptest_config(config(8))]

        /// 300 calls in a session with all detectors on, as long as they go on.
        #[test]
        fn a_session_stays_under_four_kibibytes(
            calls in prop::collection::vec((a_call(), an_outcome(), 0..5000u64), 300),
        ) {
            let mut policy = Policy::strict();
            policy.similarity.enabled = true;
            policy.mode = Mode::LogOnly;
            let mut agent = Policy { breaker: BreakerSettings::default(), ..Policy::none() };
            agent.mode = Mode::LogOnly;
            let mut world = World::default()
                .with(ScopeKind::Agent, "a", agent)
                .with(ScopeKind::Session, "s", policy);
            let mut now = Time(1_700_000_000_000);
            for (call, outcome, wait) in calls {
                now = now + Millis(wait);
                world.run("a/s", &call, &outcome, now);
                let (agent, session) = (world.state("a").to_blob(), world.state("s").to_blob());
                prop_assert!(session.len() < 4096, "{}", session.len());
                prop_assert!(agent.len() < 4096, "{}", agent.len());
            }
            prop_assert_eq!(world.state("s").calls(), 300);
            world.state("s").kill("operator", "it went on for three hundred calls", now);
            prop_assert!(world.state("s").to_blob().len() < 4096);
        }
    }

    /// A session that has something in every part of its state.
    fn busy_world() -> World {
        let mut policy = Policy::strict();
        policy.similarity.enabled = true;
        policy.mode = Mode::LogOnly;
        let mut world = World::default().with(ScopeKind::Session, "s", policy);
        for n in 0..9 {
            let text = format!("the same text number {n} again");
            world.run("s", &says(&text, true), &answer(&text), at(n));
            world.run("s", &delete("rm", "x"), &result(Status::Fault, &text), at(n));
        }
        world.state("s").pause("ada", "hold on", at(10));
        world.state("s").kill("ada", "enough", at(11));
        world
    }

    #[test]
    fn states_that_cannot_be_read_say_so() {
        for (blob, expected, text) in [
            (vec![], BadBlob::Empty, "the state is empty"),
            (
                vec![STATE_VERSION],
                BadBlob::Damaged,
                "the state is damaged: delete it to start the scope afresh",
            ),
            (
                vec![STATE_VERSION + 1, 0, 0],
                BadBlob::Version(STATE_VERSION + 1),
                "the state has version 7, this engine reads 6: upgrade this node",
            ),
        ] {
            let bad = ScopeState::from_blob(&blob).unwrap_err();
            assert_eq!((bad, bad.to_string().as_str()), (expected, text));
        }
        let fresh = ScopeState::new(ScopeKind::Session, at(1));
        let mut blob = fresh.to_blob();
        assert_eq!(blob[0], STATE_VERSION);
        assert_eq!(ScopeState::from_blob(&blob), Ok(fresh));
        // Found by reading: what stood behind a state was not noticed.
        blob.push(0);
        assert_eq!(ScopeState::from_blob(&blob), Err(BadBlob::Damaged));
    }

    /// Found by reading: names of tools and targets went into the reason of a kill as they were.
    #[test]
    fn a_session_stays_under_four_kibibytes_whatever_its_tools_are_called() {
        let mut policy = Policy::strict();
        policy.similarity.enabled = true;
        let mut world = World::default().with(ScopeKind::Session, "s", policy);
        let now = |n: u64| Time(1_700_000_000_000 + n);
        for n in 0..300u64 {
            let word: String =
                (0..4).map(|i| char::from(b'a' + ((n >> (i * 4)) % 16) as u8)).collect();
            let question = says(&format!("{word} is the question"), true);
            world.run("s", &question, &answer(&format!("{word} is the answer")), now(n));
            world.run("s", &tool("run", &word), &result(Status::Ok, &word), now(n));
        }
        assert!(world.state("s").killed().is_none());
        let long = "💥".repeat(2000);
        for n in 300..303 {
            world.run("s", &delete(&long, &long), &result(Status::Ok, ""), now(n));
        }
        assert!(world.state("s").killed().is_some());
        let len = world.state("s").to_blob().len();
        assert!(len < 4096, "{len}");
    }
}
