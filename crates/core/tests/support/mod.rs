//! A small world of named scopes, and short ways to make calls and outcomes.

#![expect(dead_code, reason = "each test file uses its own part of these helpers")]

use deadstop_core::*;

/// Named scopes, parents before their children; a path such as `acme/coder/s1` picks a chain.
#[derive(Default)]
pub(crate) struct World {
    scopes: Vec<Scope>,
}

struct Scope {
    name: &'static str,
    state: ScopeState,
    policy: Policy,
}

impl World {
    pub(crate) fn with(mut self, kind: ScopeKind, name: &'static str, policy: Policy) -> World {
        self.scopes.push(Scope { name, state: ScopeState::new(kind, Time(0)), policy });
        self
    }

    /// `acme/coder/s1` under these policies.
    pub(crate) fn of(policies: PolicySet) -> World {
        World::default()
            .with(ScopeKind::Project, "acme", policies.project)
            .with(ScopeKind::Agent, "coder", policies.agent)
            .with(ScopeKind::Session, "s1", policies.session)
    }

    /// A single session `s1`.
    pub(crate) fn session(policy: Policy) -> World {
        World::default().with(ScopeKind::Session, "s1", policy)
    }

    pub(crate) fn state(&mut self, name: &str) -> &mut ScopeState {
        let found = self.scopes.iter_mut().find(|scope| scope.name == name);
        &mut found.unwrap().state
    }

    pub(crate) fn chain(&mut self, path: &str) -> Vec<Link<'_>> {
        let names: Vec<&str> = path.split('/').collect();
        let chosen = self.scopes.iter_mut().filter(|scope| names.contains(&scope.name));
        let chain: Vec<Link<'_>> = chosen
            .map(|scope| Link { name: scope.name, state: &mut scope.state, policy: &scope.policy })
            .collect();
        assert_eq!(chain.len(), names.len(), "{path}");
        chain
    }

    pub(crate) fn admit(&mut self, path: &str, call: &Call, now: Time) -> Admission {
        admit(&mut self.chain(path), call, now)
    }

    pub(crate) fn progress(
        &mut self,
        path: &str,
        call: &Call,
        ticket: &mut Ticket,
        so_far: Progress<'_>,
        now: Time,
    ) -> Decision {
        progress(&mut self.chain(path), call, ticket, so_far, now)
    }

    pub(crate) fn settle(
        &mut self,
        path: &str,
        call: &Call,
        ticket: Ticket,
        outcome: &Outcome,
        now: Time,
    ) -> Decision {
        settle(&mut self.chain(path), call, ticket, outcome, now)
    }

    /// Admits a call and, if it may run, settles it at the same moment: the trips of both.
    pub(crate) fn run(
        &mut self,
        path: &str,
        call: &Call,
        outcome: &Outcome,
        now: Time,
    ) -> Vec<Trip> {
        let admission = self.admit(path, call, now);
        let mut trips = admission.trips;
        if let Some(ticket) = admission.ticket {
            trips.extend(self.settle(path, call, ticket, outcome, now).trips);
        }
        trips
    }
}

/// What a test says about a trip: reason, verdict, measured, limit, evidence and sentence.
pub(crate) type Told = (String, Verdict, Measure, Measure, Vec<u64>, String);

pub(crate) fn told(trip: &Trip) -> Told {
    (
        trip.reason.clone(),
        trip.verdict,
        trip.measured,
        trip.limit,
        trip.evidence.clone(),
        trip.explain(),
    )
}

pub(crate) fn reasons(trips: &[Trip]) -> Vec<&str> {
    trips.iter().map(|trip| trip.reason.as_str()).collect()
}

pub(crate) fn at(second: u64) -> Time {
    Time(second * 1000)
}

/// A tool call as `protocol` would describe it: arguments are taken as canonical already.
pub(crate) fn tool(name: &str, arguments: &str) -> Call {
    let whole = format!("{name} {arguments}");
    Call::Tool(ToolCall {
        name: name.to_owned(),
        signature: Digest::of(whole.as_bytes()),
        shape: TextFacts::of(&whole).digest,
        ..ToolCall::default()
    })
}

/// The same, of a tool that only looks or not even that.
pub(crate) fn harmless(effect: Effect, name: &str, arguments: &str) -> Call {
    match tool(name, arguments) {
        Call::Tool(call) => Call::Tool(ToolCall { effect, ..call }),
        model @ Call::Model(_) => model,
    }
}

/// A call that destroys one target.
pub(crate) fn delete(verb: &str, target: &str) -> Call {
    let harms = vec![Harm::destroys(verb.to_owned(), target.to_owned())];
    match tool(verb, target) {
        Call::Tool(call) => Call::Tool(ToolCall { harms, ..call }),
        model @ Call::Model(_) => model,
    }
}

/// A result of a tool, as it was given.
pub(crate) fn result(status: Status, text: &str) -> Outcome {
    Outcome { status, result: Some(ResultFacts::of(text)), ..Outcome::default() }
}

/// A tenth of a cent for a token read, a fifth for one written.
pub(crate) const RATES: Rates = Rates {
    input: NanoUsd(1_000_000_000_000),
    output: NanoUsd(2_000_000_000_000),
    cache_read: NanoUsd(100_000_000_000),
    cache_write: NanoUsd(1_250_000_000_000),
};

/// A request of so many tokens at [`RATES`].
pub(crate) fn request(input: u64, max_output: Option<u64>) -> ModelCall {
    ModelCall {
        model: "gpt".to_owned(),
        rates: RATES,
        input: Tokens(input),
        max_output: max_output.map(Tokens),
        ..ModelCall::default()
    }
}

pub(crate) fn model(input: u64, max_output: Option<u64>) -> Call {
    Call::Model(request(input, max_output))
}

/// A request with this prompt, from a person or not.
pub(crate) fn says(prompt: &str, from_person: bool) -> Call {
    let prompt = Some(TextFacts::of(prompt));
    Call::Model(ModelCall { prompt, from_person, ..request(0, None) })
}

/// An answer of a model.
pub(crate) fn answer(text: &str) -> Outcome {
    let answer = Answer { text: Some(TextFacts::of(text)), calls: None };
    Outcome { answer: Some(answer), ..Outcome::default() }
}

/// What a model call used.
pub(crate) fn used(input: u64, output: u64) -> Outcome {
    let usage = Usage { input: Tokens(input), output: Tokens(output), ..Usage::default() };
    Outcome { usage, ..Outcome::default() }
}

/// A policy from what a person would type.
pub(crate) fn policies(json: &str) -> PolicySet {
    serde_json::from_str::<RawPolicy>(json).unwrap().resolve().unwrap()
}
