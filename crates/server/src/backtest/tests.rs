//! A trial reproduces what happened, and tells what another policy would have done.

use super::*;
use deadstop_core::{
    Dollars, Millis, ModelCall, Preset, Rates, ResultFacts, Status, Tokens, ToolCall, Usage,
};
use deadstop_store::CallKind;

/// Chance that can be repeated (splitmix64).
struct Dice(u64);

impl Dice {
    fn to(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % (most + 1)
    }
}

fn tool(name: &str, arguments: u64) -> Call {
    let signature = Digest::of(format!("{name}{arguments}").as_bytes());
    let shape = Digest::of(name.as_bytes());
    Call::Tool(ToolCall { name: name.into(), signature, shape, ..ToolCall::default() })
}

fn brought(what: u64) -> Outcome {
    let result =
        ResultFacts { masked: Digest(what), exact: Digest(what), ..ResultFacts::default() };
    Outcome { result: Some(result), ..Outcome::default() }
}

/// A policy with some limits that random sessions reach.
fn policy(dice: &mut Dice) -> PolicySet {
    let presets = [Preset::Strict, Preset::Balanced, Preset::Observe];
    let mut policies = presets[dice.to(2) as usize].policies();
    if dice.to(2) == 0 {
        policies.session.steps.max_steps = Some(5 + dice.to(15));
    }
    if dice.to(2) == 0 {
        policies.agent.budget.max_cost_usd = Some(Dollars(NanoUsd(1_000_000 * (1 + dice.to(40)))));
    }
    if dice.to(2) == 0 {
        policies.session.access.deny.push(deadstop_core::Pattern::new("drop_*"));
    }
    policies
}

/// Calls as a server decides and stores them.
struct World<'a> {
    policies: &'a PolicySet,
    numbers: Numbers,
    now: Time,
    house: [ScopeState; 3],
    open: Vec<Open>,
}

/// A session of the world.
struct Open {
    agent: usize,
    state: ScopeState,
    running: Vec<(StoredCall, Call, Ticket)>,
    session: Session,
}

impl World<'_> {
    fn chain<T>(&mut self, session: usize, ask: impl FnOnce(&mut [Link<'_>]) -> T) -> T {
        let open = &mut self.open[session];
        let [project, first, second] = &mut self.house;
        let agent = if open.agent == 0 { first } else { second };
        ask(&mut [
            Link { name: "project", state: project, policy: &self.policies.project },
            Link { name: &open.session.agent, state: agent, policy: &self.policies.agent },
            Link {
                name: &open.session.name,
                state: &mut open.state,
                policy: &self.policies.session,
            },
        ])
    }

    fn ask(&mut self, session: usize, call: Call) {
        let now = self.now;
        let id = self.numbers.next(now);
        let admission = self.chain(session, |chain| admit(chain, &call, now));
        let trip = admission.trips.first();
        let row = StoredCall {
            id,
            project: "default".into(),
            agent_number: 1,
            session_number: session as i64,
            nested: None,
            position: 0,
            kind: if call.tool().is_some() { CallKind::Tool } else { CallKind::Model },
            name: call.name().to_owned(),
            server: None,
            at: now,
            duration: None,
            verdict: trip.map_or(Verdict::Allow, |trip| trip.verdict),
            guard: trip.map(|trip| trip.guard),
            reason: trip.map(|trip| trip.reason.clone()),
            status: None,
            usage: Usage::default(),
            cost: NanoUsd(0),
            incident: None,
            facts: Facts::write(&call, &Outcome::default(), 0),
            first: None,
            cause: None,
        };
        match admission.ticket {
            Some(ticket) => self.open[session].running.push((row, call, ticket)),
            None => self.open[session].session.calls.push(row),
        }
    }

    fn end(&mut self, session: usize, which: usize, outcome: &Outcome) {
        let now = self.now;
        let (row, call, ticket) = self.open[session].running.remove(which);
        let decision = self.chain(session, |chain| settle(chain, &call, ticket, outcome, now));
        let trip = decision.trips.first();
        let row = StoredCall {
            duration: Some(Millis(now.0 - row.at.0)),
            verdict: trip.map_or(row.verdict, |trip| trip.verdict),
            guard: trip.map(|trip| trip.guard).or(row.guard),
            reason: trip.map(|trip| trip.reason.clone()).or(row.reason),
            status: Some(outcome.status),
            usage: outcome.usage,
            cost: call.model().map_or(NanoUsd(0), |model| model.rates.cost(&outcome.usage)),
            facts: Facts::write(&call, outcome, self.numbers.next(now)),
            ..row
        };
        self.open[session].session.calls.push(row);
    }
}

/// A random history of some sessions of two agents, which overlap, several calls in a millisecond.
fn history(policies: &PolicySet, dice: &mut Dice) -> Vec<Session> {
    let start = Time(1_800_000_000_000);
    let kinds = [ScopeKind::Project, ScopeKind::Agent, ScopeKind::Agent];
    let house = kinds.map(|kind| ScopeState::new(kind, start));
    let mut world =
        World { policies, numbers: Numbers::new(1), now: start, house, open: Vec::new() };
    for index in 0..=dice.to(3) {
        let agent = dice.to(1) as usize;
        let (name, opened) = (format!("s{index}"), start);
        let session = Session { agent: format!("a{agent}"), name, opened, calls: Vec::new() };
        let state = ScopeState::new(ScopeKind::Session, opened);
        world.open.push(Open { agent, state, running: Vec::new(), session });
    }
    for _ in 0..30 + dice.to(130) {
        world.now = Time(world.now.0 + [0, 1, 500, 5000][dice.to(3) as usize]);
        let session = dice.to(world.open.len() as u64 - 1) as usize;
        let running = world.open[session].running.len() as u64;
        if running > 0 && dice.to(2) > 0 {
            let usage =
                Usage { input: Tokens(100), output: Tokens(dice.to(500)), ..Usage::default() };
            let which = dice.to(running - 1) as usize;
            let is_model = world.open[session].running[which].1.model().is_some();
            let status = if dice.to(5) == 0 { Status::Error } else { Status::Ok };
            let outcome = match is_model {
                true => Outcome { usage, ..Outcome::default() },
                false => Outcome { status, ..brought(dice.to(9) / 8) },
            };
            world.end(session, which, &outcome);
        } else {
            let call = match dice.to(9) {
                0 => tool("drop_table", dice.to(3)),
                1 | 2 => Call::Model(ModelCall {
                    model: "m".into(),
                    rates: Rates {
                        input: NanoUsd(3000),
                        output: NanoUsd(15000),
                        ..Rates::default()
                    },
                    input: Tokens(100),
                    ..ModelCall::default()
                }),
                3..=6 => tool("look", 0),
                _ => tool("write", dice.to(30)),
            };
            world.ask(session, call);
        }
    }
    // What still runs is not stored; so it ends.
    for session in 0..world.open.len() {
        while !world.open[session].running.is_empty() {
            world.end(session, 0, &brought(0));
        }
    }
    let sorted = |mut open: Open| {
        open.session.calls.sort_by_key(|call| call.id);
        open.session
    };
    world.open.into_iter().map(sorted).collect()
}

fn rules(policies: &PolicySet) -> Rules {
    let all = ["a0", "a1"].map(|agent| (agent.to_owned(), policies.clone()));
    Rules { policies: all.into(), cleared: HashMap::new() }
}

#[test]
fn the_policy_in_force_reproduces_what_happened() {
    let (mut refused, mut ended) = (0, 0);
    for seed in 0..1000 {
        let mut dice = Dice(seed);
        let policies = policy(&mut dice);
        let sessions = history(&policies, &mut dice);
        let tried = replay(&rules(&policies), &sessions);
        for (session, tried) in sessions.iter().zip(&tried) {
            assert_eq!(tried.after, tried.before, "seed {seed}, {}", session.name);
            assert_eq!((tried.calls_after, tried.cost_after), (0, NanoUsd(0)), "seed {seed}");
            for call in session.calls.iter().filter(|call| !was_ordered(call)) {
                let known = tried.verdicts.iter().find(|(id, ..)| *id == call.id);
                let told = Some(&(call.id, call.status.is_none(), call.guard));
                assert_eq!(known, told, "seed {seed}, {}: {call:?}", session.name);
            }
            refused += tried.before.refused;
            let stop = tried.before.stop.as_ref();
            ended += usize::from(stop.is_some_and(|stop| stop.verdict == Verdict::Kill));
        }
    }
    assert!(refused > 500 && ended > 100, "the histories are too calm: {refused}, {ended}");
}

/// A session of one agent in which the same tool is called again and again, and stored as `policies`
/// decided.
fn looping(policies: &PolicySet, times: u64, arguments: fn(u64) -> u64) -> Vec<Session> {
    let start = Time(1_800_000_000_000);
    let kinds = [ScopeKind::Project, ScopeKind::Agent, ScopeKind::Agent];
    let house = kinds.map(|kind| ScopeState::new(kind, start));
    let session = Session { agent: "a0".into(), name: "s1".into(), opened: start, calls: vec![] };
    let state = ScopeState::new(ScopeKind::Session, start);
    let open = vec![Open { agent: 0, state, running: Vec::new(), session }];
    let mut world = World { policies, numbers: Numbers::new(1), now: start, house, open };
    for index in 0..times {
        world.now = Time(world.now.0 + 1000);
        world.ask(0, tool("update_row", arguments(index)));
        if !world.open[0].running.is_empty() {
            world.end(0, 0, &brought(arguments(index)));
        }
    }
    world.open.into_iter().map(|open| open.session).collect()
}

#[test]
fn a_loop_would_have_been_stopped_and_what_follows_is_counted() {
    let mut sessions = looping(&Preset::Observe.policies(), 12, |_| 0);
    for call in &mut sessions[0].calls {
        call.cost = NanoUsd(100);
    }
    let at = |tried: &Tried| tried.after.stop.as_ref().map(|stop| (stop.call, stop.guard));
    let strict = &replay(&rules(&Preset::Strict.policies()), &sessions)[0];
    let (stop, guard) = at(strict).unwrap();
    assert_eq!((strict.calls, guard), (12, GuardId::Loop));
    assert_eq!(strict.cost_after, NanoUsd(100 * strict.calls_after as u64));
    assert!(strict.calls_after > 0 && strict.before.stop.is_none(), "{strict:?}");
    let balanced = &replay(&rules(&Preset::Balanced.policies()), &sessions)[0];
    assert!(at(balanced).is_some_and(|(call, _)| call > stop), "{balanced:?}");
    let watched = &replay(&rules(&Preset::Observe.policies()), &sessions)[0];
    assert!(watched.after.stop.is_none() && watched.after.warned > 0);
}

#[test]
fn a_looser_policy_lets_refused_calls_pass() {
    let sessions = looping(&Preset::Strict.policies(), 30, |_| 0);
    let tried = &replay(&rules(&Preset::Observe.policies()), &sessions)[0];
    assert_eq!(tried.calls, 30);
    assert!(tried.before.stop.is_some() && tried.before.refused > 0, "{tried:?}");
    assert!(tried.after.stop.is_none() && tried.after.refused == 0, "{tried:?}");
    // A ladder that is higher goes on counting: the call brings what it brought before.
    let balanced = &replay(&rules(&Preset::Balanced.policies()), &sessions)[0];
    let calls = |fate: &Fate| fate.stop.as_ref().map(|stop| stop.call);
    assert!(calls(&balanced.after) > calls(&balanced.before), "{balanced:?}");
}

#[test]
fn a_healthy_session_passes() {
    let sessions = looping(&Preset::Strict.policies(), 200, |index| index);
    let tried = &replay(&rules(&Preset::Strict.policies()), &sessions)[0];
    assert!(tried.after.stop.is_none(), "{:?}", tried.after.stop);
    assert_eq!((tried.calls, tried.after.refused), (200, 0));
}

#[test]
fn what_a_person_stopped_stays_as_it_was() {
    let mut sessions = looping(&Preset::Observe.policies(), 4, |index| index);
    for call in &mut sessions[0].calls[2..] {
        (call.status, call.verdict, call.guard) = (None, Verdict::Kill, Some(GuardId::Killed));
        call.reason = Some("session_killed".into());
    }
    let tried = &replay(&rules(&Preset::Observe.policies()), &sessions)[0];
    assert_eq!((tried.calls, &tried.before, &tried.after), (2, &Fate::default(), &Fate::default()));
}
