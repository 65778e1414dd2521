//! A call that a door sees and that telemetry tells of as well counts once, in whatever order.

#[cfg(test)]
mod twice {
    use deadstop_core::*;
    use proptest::prelude::*;

    const PRICED: &str = r#"{ "preset": "observe", "budget": { "tool_prices": { "*": 0.01 } } }"#;

    struct World {
        state: ScopeState,
        policy: Policy,
    }

    impl World {
        fn new(policy: &str) -> World {
            let raw: RawPolicy = serde_json::from_str(policy).unwrap();
            let policy = raw.resolve().unwrap().session;
            World { state: ScopeState::new(ScopeKind::Session, Time(0)), policy }
        }

        fn chain(&mut self) -> [Link<'_>; 1] {
            [Link { name: "s", state: &mut self.state, policy: &self.policy }]
        }

        fn door(&mut self, call: &Call, outcome: &Outcome, now: Time) {
            let ticket = admit(&mut self.chain(), call, now).ticket.unwrap();
            settle(&mut self.chain(), call, ticket, outcome, now);
        }

        fn telemetry(&mut self, call: &Call, outcome: &Outcome, n: usize, now: Time) -> bool {
            let report = Digest::of(format!("span {n}").as_bytes());
            observe(&mut self.chain(), call, outcome, report, now).is_some()
        }

        fn spent(&self) -> f64 {
            self.state.ledger().spent.cost.dollars()
        }
    }

    fn tool(name: &str, id: Option<usize>) -> (Call, Outcome) {
        let call = Call::Tool(ToolCall { name: name.into(), ..ToolCall::default() });
        let id = id.and_then(|id| CallId::of(&format!("toolu_{id}")));
        (call, Outcome { id, result: Some(ResultFacts::of("done")), ..Outcome::default() })
    }

    fn model(output: u64) -> (Call, Outcome) {
        let call = Call::Model(ModelCall { rates: Rates::FALLBACK, ..ModelCall::default() });
        let usage = Usage { input: Tokens(100), output: Tokens(output), ..Usage::default() };
        (call, Outcome { usage, ..Outcome::default() })
    }

    /// Who tells of a call.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum By {
        Door,
        Telemetry,
        /// The exporter sends it a second time.
        Again,
    }

    fn told(calls: usize) -> impl Strategy<Value = Vec<(usize, By)>> {
        let all = (0..calls).flat_map(|n| [(n, By::Door), (n, By::Telemetry), (n, By::Again)]);
        Just(all.collect::<Vec<_>>()).prop_shuffle()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Ids tell calls apart, also those that only one of both sees.
        #[test]
        fn calls_with_ids_count_once(order in told(8), doors in any::<u8>(), reports in any::<u8>()) {
            let mut world = World::new(PRICED);
            let (doors, reports) = (usize::from(doors), usize::from(reports));
            for (at, (n, by)) in order.into_iter().enumerate() {
                let ((call, outcome), now) = (tool("query", Some(n)), Time(at as u64 * 1000));
                match by {
                    By::Door if doors >> n & 1 == 1 => world.door(&call, &outcome, now),
                    By::Telemetry | By::Again if reports >> n & 1 == 1 => {
                        world.telemetry(&call, &outcome, n, now);
                    }
                    _ => {}
                }
            }
            let seen = (doors | reports).count_ones();
            prop_assert!((world.spent() - f64::from(seen) * 0.01).abs() < 1e-9, "{}", world.spent());
        }

        /// Without ids, each call of one side is the same as one call of the other at most.
        #[test]
        fn calls_without_ids_count_once(order in told(8), tokens in prop::collection::vec(1_u64..4, 8)) {
            let mut world = World::new(PRICED);
            for (at, (n, by)) in order.into_iter().enumerate() {
                let ((call, outcome), now) = (model(tokens[n]), Time(at as u64 * 1000));
                match by {
                    By::Door => world.door(&call, &outcome, now),
                    By::Telemetry | By::Again => {
                        world.telemetry(&call, &outcome, n, now);
                    }
                }
            }
            let cost: NanoUsd =
                tokens.iter().fold(NanoUsd(0), |sum, output| {
                    let (Call::Model(call), outcome) = model(*output) else { return sum };
                    sum + call.rates.cost(&outcome.usage)
                });
            prop_assert_eq!(world.state.ledger().spent.cost, cost);
        }
    }

    #[test]
    fn a_loop_that_only_telemetry_tells_of_ends_its_session() {
        let mut world = World::new(r#"{ "preset": "strict" }"#);
        let failing = |id| {
            let (call, outcome) = tool("query", Some(id));
            (call, Outcome { status: Status::Error, ..outcome })
        };
        let ended = (0..20).find(|n| {
            let (call, outcome) = failing(*n);
            assert!(world.telemetry(&call, &outcome, *n, Time(*n as u64 * 1000)));
            world.state.killed().is_some()
        });
        assert!(ended.is_some_and(|n| n < 10), "{ended:?}");
        let (call, _) = failing(99);
        let next = admit(&mut world.chain(), &call, Time(60_000));
        assert_eq!((next.verdict, next.ticket), (Verdict::Kill, None), "the next call at a door");
        // What still runs is paid for.
        let (call, outcome) = model(50);
        let before = world.spent();
        assert!(world.telemetry(&call, &outcome, 100, Time(61_000)));
        assert!(world.spent() > before);
    }
}
