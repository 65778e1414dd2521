//! Sub-agents of a session, and windows of providers.

use super::*;
use crate::guard::quota::Quota;
use crate::settings::Share;

/// A session with sub-agents by these names, one inside the other where a path says so.
fn world(change: impl FnOnce(&mut Policy)) -> World {
    let names = ["x1", "x2", "x3", "x4", "y"];
    let world = World::default().with("p", Policy::none()).with("s", policy(change));
    names.into_iter().fold(world, |world, name| world.with(name, Policy::none()))
}

fn check(change: impl FnOnce(&mut Policy), steps: &[(&str, u64, Option<&str>)]) {
    let mut world = world(change);
    for (path, second, expected) in steps {
        let admission = world.admit(path, &tool("ls"), second * 1000);
        let reason = admission.trips.first().map(|trip| trip.reason.as_str());
        assert_eq!(reason, *expected, "{path} at {second} s");
        assert_eq!(admission.ticket.is_some(), expected.is_none(), "{path} at {second} s");
    }
}

#[test]
fn sub_agents_are_counted_in_all() {
    check(
        |p| p.swarm.max_agents = Some(2),
        &[
            ("p/s", 1, None),
            ("p/s/x1", 1, None),
            ("p/s/x2", 1, None),
            ("p/s/x3", 1, Some("max_agents")),
            ("p/s/x1", 2, None),
            ("p/s/x4", 500, Some("max_agents")),
            ("p/s", 501, None),
        ],
    );
}

#[test]
fn sub_agents_are_counted_side_by_side() {
    check(
        |p| p.swarm.max_parallel = Some(2),
        &[
            ("p/s/x1", 1, None),
            ("p/s/x2", 2, None),
            ("p/s/x3", 3, Some("max_parallel")),
            ("p/s/x2", 50, None),
            // The first one was quiet for a minute.
            ("p/s/x3", 65, None),
            ("p/s/x1", 66, Some("max_parallel")),
        ],
    );
}

#[test]
fn sub_agents_are_counted_below_each_other() {
    check(
        |p| p.swarm.max_depth = Some(1),
        &[("p/s/x1", 1, None), ("p/s/x1/y", 2, Some("max_depth")), ("p/s/x2", 3, None)],
    );
    // A sub-agent below another one makes two.
    check(
        |p| p.swarm.max_agents = Some(2),
        &[("p/s/x1/y", 1, None), ("p/s/x1", 2, None), ("p/s/x2", 3, Some("max_agents"))],
    );
}

#[test]
fn new_sub_agents_are_counted_by_the_minute() {
    check(
        |p| p.swarm.max_spawns_per_minute = Some(2),
        &[
            ("p/s/x1", 1, None),
            ("p/s/x2", 2, None),
            ("p/s/x3", 3, Some("spawns_per_minute")),
            ("p/s/x1", 4, None),
            ("p/s/x3", 70, None),
        ],
    );
}

fn spawns(task: &str) -> Call {
    let signature = Digest::of(task.as_bytes());
    Call::Tool(ToolCall { name: "Task".into(), signature, spawns: true, ..ToolCall::default() })
}

#[test]
fn a_call_that_starts_a_sub_agent_counts_before_the_sub_agent_does() {
    let mut world = world(|p| p.swarm.max_agents = Some(2));
    let first = world.start("p/s", &spawns("one"), 1);
    world.start("p/s", &spawns("two"), 2);
    let refused = world.admit("p/s", &spawns("three"), 3);
    assert_eq!(refused.trips[0].reason, "max_agents");
    // Those that were announced show themselves, and are not counted again.
    world.start("p/s/x1", &tool("ls"), 4);
    world.start("p/s/x2", &tool("ls"), 5);
    assert_eq!(world.admit("p/s/x3", &tool("ls"), 6).verdict, Verdict::Block);
    world.settle("p/s", &spawns("one"), first, &Outcome::default());
    assert_eq!(world.admit("p/s", &spawns("three"), 7).verdict, Verdict::Block);
}

#[test]
fn a_sub_agent_that_never_shows_itself_is_at_work_until_its_call_ends() {
    let mut world = world(|p| p.swarm.max_parallel = Some(1));
    let ticket = world.start("p/s", &spawns("one"), 1);
    // It works for minutes.
    assert_eq!(world.admit("p/s", &spawns("two"), 300_000).trips[0].reason, "max_parallel");
    world.settle("p/s", &spawns("one"), ticket, &Outcome::default());
    assert_eq!(world.admit("p/s", &spawns("two"), 300_001).verdict, Verdict::Allow);
    // A call that was never settled counts for ten minutes.
    assert_eq!(world.admit("p/s", &spawns("three"), 800_000).verdict, Verdict::Block);
    assert_eq!(world.admit("p/s", &spawns("three"), 901_000).verdict, Verdict::Allow);
}

#[test]
fn a_sub_agent_that_starts_another_is_one_deeper() {
    let mut world = world(|p| p.swarm.max_depth = Some(1));
    assert_eq!(world.admit("p/s", &spawns("one"), 1).verdict, Verdict::Allow);
    let refused = world.admit("p/s/x1", &spawns("two"), 2);
    assert_eq!((refused.verdict, &*refused.trips[0].reason), (Verdict::Block, "max_depth"));
}

#[test]
fn a_sub_agent_counts_from_its_beginning_to_its_end() {
    let mut session = ScopeState::new(ScopeKind::Session, Time(0));
    let limited = policy(|p| (p.swarm.max_parallel, p.swarm.max_agents) = (Some(1), Some(3)));
    let none = Policy::none();
    let mut at = |name: &str, now: u64, ends: bool| {
        let mut state = ScopeState::new(ScopeKind::Nested, Time(0));
        let mut chain = [
            Link { name: "s", state: &mut session, policy: &limited },
            Link { name, state: &mut state, policy: &none },
        ];
        if ends {
            end(&mut chain, Time(now));
            return None;
        }
        begin(&mut chain, Time(now)).trips.first().map(|trip| trip.reason.clone())
    };
    assert_eq!(at("a", 1000, false), None);
    assert_eq!(at("b", 2000, false).as_deref(), Some("max_parallel"));
    at("a", 3000, true);
    assert_eq!(at("b", 4000, false), None, "the first one has ended");
    assert_eq!(at("a", 5000, false).as_deref(), Some("max_parallel"), "it begins again");
    at("b", 6000, true);
    assert_eq!(at("c", 7000, false), None);
    at("c", 8000, true);
    assert_eq!(at("d", 9000, false).as_deref(), Some("max_agents"));
    session.kill("ada", "enough", Time(9500));
    let mut chain = [Link { name: "s", state: &mut session, policy: &limited }];
    assert_eq!(begin(&mut chain, Time(9600)).verdict, Verdict::Kill);
}

#[test]
fn a_refused_sub_agent_is_no_strike_and_the_state_stays_small() {
    let mut world = world(|p| {
        p.swarm.max_agents = Some(1);
        p.strikes.enabled = true;
        p.strikes.consecutive_blocks = 2;
    });
    world.start("p/s/x1", &tool("ls"), 1);
    for now in 2..9 {
        assert_eq!(world.admit("p/s/x2", &tool("ls"), now).verdict, Verdict::Block);
    }
    assert_eq!(world.killed(), Vec::<&str>::new());

    let mut session = ScopeState::new(ScopeKind::Session, Time(0));
    let (none, limited) = (Policy::none(), policy(|p| p.swarm.max_agents = Some(10_000)));
    for n in 0..500u64 {
        let name = format!("sub{n}");
        let mut below = ScopeState::new(ScopeKind::Nested, Time(0));
        let mut chain = [
            Link { name: "s", state: &mut session, policy: &limited },
            Link { name: &name, state: &mut below, policy: &none },
        ];
        assert!(admit(&mut chain, &tool("ls"), Time(n * 1000)).ticket.is_some());
        let mut chain = [Link { name: "s", state: &mut session, policy: &limited }];
        assert!(admit(&mut chain, &spawns(&name), Time(n * 1000)).ticket.is_some());
        assert!(admit(&mut chain, &spawns(&name), Time(n * 1000)).ticket.is_some());
    }
    assert!(session.to_blob().len() < 1200, "{}", session.to_blob().len());
    assert_eq!(ScopeState::from_blob(&session.to_blob()), Ok(session));
}

fn asked(server: &str) -> Call {
    Call::Model(ModelCall {
        server: Some(server.into()),
        max_output: Some(Tokens(1)),
        ..ModelCall::default()
    })
}

/// An answer of a provider that says how much of a window is used, and how long it lasts.
fn told(used: f64, window: &str, seconds: u64) -> Outcome {
    let resets = Time(2000 + seconds * 1000);
    Outcome { quota: vec![Quota { window: window.into(), used, resets }], ..Outcome::default() }
}

#[test]
fn a_window_that_is_used_up_to_its_share_refuses_until_it_begins_anew() {
    let limited = policy(|p| p.quota.max_used = Share::percent(80));
    let mut world = World::only("p/a/s", 1, &limited);
    let mut say = |outcome: &Outcome| {
        let ticket = world.start("p/a/s", &asked("anthropic"), 1);
        world.settle("p/a/s", &asked("anthropic"), ticket, outcome)
    };
    assert_eq!(say(&told(0.5, "5h", 3600)).verdict, Verdict::Allow);
    // A window of a minute is a rate limit, not a quota.
    say(&told(1.0, "requests", 60));
    say(&told(0.8, "5h", 3600));
    let refused = world.admit("p/a/s", &asked("anthropic"), 3000);
    let trip = refused.decisive().unwrap();
    assert_eq!((refused.verdict, trip.guard), (Verdict::Block, GuardId::Quota));
    assert!(
        trip.because.contains("80% of the window 5h at anthropic is used (limit 80%)"),
        "{trip:?}"
    );
    assert_eq!(trip.refusal_kind().status(), 429);
    assert!(world.admit("p/a/s", &asked("openai"), 3000).ticket.is_some(), "another provider");
    assert!(world.admit("p/a/s", &tool("ls"), 3000).ticket.is_some(), "tools go on");
    assert!(world.admit("p/a/s", &asked("anthropic"), 3_700_000).ticket.is_some(), "a new window");
}

#[test]
fn the_windows_of_an_agent_are_shown_until_they_begin_anew() {
    let (mut agent, none) = (ScopeState::new(ScopeKind::Agent, Time(0)), Policy::none());
    let long = "x".repeat(300);
    for (server, outcome) in [
        ("anthropic", told(0.25, "5h", 3600)),
        ("anthropic", told(0.61, "7d", 500_000)),
        (&*long, told(0.9, &long, 7200)),
    ] {
        let mut chain = [Link { name: "a", state: &mut agent, policy: &none }];
        let ticket = admit(&mut chain, &asked(server), Time(1)).ticket.unwrap();
        settle(&mut chain, &asked(server), ticket, &outcome, Time(2000));
    }
    let shown = |now: u64| -> Vec<(String, String, f64)> {
        let all = agent.quotas(Time(now)).into_iter();
        all.map(|found| (found.provider, found.quota.window, found.quota.used)).collect()
    };
    let own = |provider: &str, window: &str, used| (provider.to_owned(), window.to_owned(), used);
    let week = own("anthropic", "7d", 0.61);
    let bounded = own(&long[..24], &long[..24], 0.9);
    assert_eq!(shown(3000), [bounded.clone(), week.clone(), own("anthropic", "5h", 0.25)]);
    assert_eq!(shown(4_000_000), [bounded, week.clone()]);
    assert_eq!(shown(8_000_000), [week]);
}

#[test]
fn the_action_is_what_is_done_then() {
    for (action, verdict) in [(Action::Warn, Verdict::Warn), (Action::Terminate, Verdict::Kill)] {
        let mut world = world(|p| (p.swarm.max_agents, p.swarm.action) = (Some(1), action));
        world.start("p/s/x1", &tool("ls"), 1);
        assert_eq!(world.admit("p/s/x2", &tool("ls"), 2).verdict, verdict);

        let limited = policy(|p| (p.quota.max_used, p.quota.action) = (Share::percent(80), action));
        let mut world = World::only("p/a/s", 1, &limited);
        let ticket = world.start("p/a/s", &asked("anthropic"), 1);
        world.settle("p/a/s", &asked("anthropic"), ticket, &told(0.9, "5h", 3600));
        assert_eq!(world.admit("p/a/s", &asked("anthropic"), 3000).verdict, verdict);
    }
}
