//! The scenarios that every door must judge alike, run by the engine itself.
//!
//! `tests/conformance/scenarios.json` tells what is asked and what is answered. With `BLESS=1` the
//! answers are written anew from what the engine says; look at the difference before it is kept.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use deadstop_core::{
    Answer, Call, Link, ModelCall, Outcome, Policy, PolicySet, RawPolicy, ScopeKind, ScopeState,
    Status, TextFacts, Ticket, Time, Tokens, Trip, Usage, Verdict, admit, settle,
};
use deadstop_protocol::facts;
use deadstop_protocol::prices::Prices;
use serde_json::{Map, Value};

/// A session as the engine sees it: states by the path of their names.
struct Run {
    policies: PolicySet,
    states: HashMap<Vec<String>, (ScopeState, Policy)>,
    open: HashMap<String, (Vec<String>, Call, Ticket)>,
    prices: Prices,
}

/// The scopes above those that a step names.
const ABOVE: [(&str, ScopeKind); 3] =
    [("default", ScopeKind::Project), ("agent", ScopeKind::Agent), ("s1", ScopeKind::Session)];

impl Run {
    fn chain<T>(&mut self, path: &[String], work: impl FnOnce(&mut [Link<'_>]) -> T) -> T {
        let keys: Vec<Vec<String>> = (1..=path.len()).map(|end| path[..end].to_vec()).collect();
        let mut taken = Vec::new();
        for (depth, key) in keys.iter().enumerate() {
            let kind = ABOVE.get(depth).map_or(ScopeKind::Nested, |(_, kind)| *kind);
            let fresh = || (ScopeState::new(kind, Time(0)), self.policies.of(kind).clone());
            taken.push(self.states.remove(key).unwrap_or_else(fresh));
        }
        let links = path.iter().zip(&mut taken);
        let mut links: Vec<Link<'_>> =
            links.map(|(name, (state, policy))| Link { name, state, policy }).collect();
        let done = work(&mut links);
        drop(links);
        self.states.extend(keys.into_iter().zip(taken));
        done
    }

    fn step(&mut self, step: &Value) -> Map<String, Value> {
        let mut path: Vec<String> = ABOVE.map(|(name, _)| name.to_owned()).to_vec();
        for name in step["scope"].as_array().into_iter().flatten() {
            path.push(name.as_str().unwrap().to_owned());
        }
        let now = Time(step["at"].as_u64().unwrap_or_default());
        let mut told = Map::new();
        if let Some(reason) = step["kill"].as_str() {
            self.chain(&path[..3], |links| links[2].state.kill("a person", reason, now));
        } else if step["limits"].is_object() {
            self.limit(&path, &step["limits"]);
        } else if let Some(id) = step["end"].as_str() {
            let (path, call, ticket) = self.open.remove(id).unwrap();
            let verdict = self.settle(&path, &call, ticket, step, now);
            told.insert("then".into(), verdict.to_string().into());
        } else {
            let call = self.call(step);
            let admission = self.chain(&path, |links| admit(links, &call, now));
            told.insert("expect".into(), said(&admission.trips).into());
            match (admission.ticket, step["open"].as_str()) {
                (Some(ticket), Some(id)) => {
                    self.open.insert(id.to_owned(), (path, call, ticket));
                }
                (Some(ticket), None) => {
                    let verdict = self.settle(&path, &call, ticket, step, now);
                    told.insert("then".into(), verdict.to_string().into());
                }
                (None, _) => {}
            }
        }
        told
    }

    /// Limits of a scope are its part of a policy.
    fn limit(&mut self, path: &[String], limits: &Value) {
        self.chain(path, |_| ());
        let policy = &mut self.states.get_mut(path).unwrap().1;
        for (name, limit) in limits.as_object().unwrap() {
            let limit = limit.as_u64();
            match name.as_str() {
                "max_steps" => policy.steps.max_steps = limit,
                "input_token_limit" => policy.tokens.input_token_limit = limit.map(Tokens),
                other => panic!("no limit {other}"),
            }
        }
    }

    fn call(&self, step: &Value) -> Call {
        if let Some(name) = step["tool"].as_str() {
            let mut call = facts::tool_call(name, &step["arguments"]);
            call.server = step["server"].as_str().map(str::to_owned).or(call.server);
            return Call::Tool(call);
        }
        let model = step["model"].as_str().unwrap();
        Call::Model(ModelCall {
            model: model.to_owned(),
            server: None,
            rates: self.prices.price(model).rates,
            input: Tokens(step["input_tokens"].as_u64().unwrap_or_default()),
            max_output: step["max_output_tokens"].as_u64().map(Tokens),
            prompt: step["prompt"].as_str().map(TextFacts::of),
            from_person: step["from_person"].as_bool().unwrap_or_default(),
            compacted: false,
        })
    }

    fn settle(
        &mut self,
        path: &[String],
        call: &Call,
        ticket: Ticket,
        step: &Value,
        now: Time,
    ) -> Verdict {
        let tokens = |name: &str| Tokens(step["usage"][name].as_u64().unwrap_or_default());
        let text = step["answer"].as_str().filter(|text| !text.is_empty()).map(TextFacts::of);
        let outcome = Outcome {
            status: match step["status"].as_str().unwrap_or("ok") {
                "ok" => Status::Ok,
                "error" => Status::Error,
                "fault" => Status::Fault,
                _ => Status::Cancelled,
            },
            usage: Usage { input: tokens("input"), output: tokens("output"), ..Usage::default() },
            result: step["result"].as_str().map(facts::result),
            answer: call.model().map(|_| Answer { text, calls: None }),
        };
        self.chain(path, |links| settle(links, call, ticket, &outcome, now)).verdict
    }
}

/// The verdict with the guard and the reason that decided.
fn said(trips: &[Trip]) -> String {
    match trips.first() {
        None => "allow".to_owned(),
        Some(trip) => format!("{} {}/{}", trip.verdict, trip.guard, trip.reason),
    }
}

#[test]
fn the_engine_says_what_the_scenarios_say() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let file = folder.join("../../tests/conformance/scenarios.json");
    let mut all: Vec<Value> = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let bless = std::env::var_os("BLESS").is_some();
    let mut wrong = Vec::new();
    for scenario in &mut all {
        let raw: RawPolicy = serde_json::from_value(scenario["policy"].clone()).unwrap();
        let mut run = Run {
            policies: raw.resolve().unwrap(),
            states: HashMap::new(),
            open: HashMap::new(),
            prices: Prices::builtin(),
        };
        let name = scenario["name"].as_str().unwrap().to_owned();
        for (number, step) in scenario["steps"].as_array_mut().unwrap().iter_mut().enumerate() {
            let told = run.step(step);
            let known: Map<String, Value> = ["expect", "then"]
                .iter()
                .filter_map(|key| Some(((*key).to_owned(), step.get(*key)?.clone())))
                .collect();
            if bless {
                let step = step.as_object_mut().unwrap();
                step.remove("then");
                step.extend(told);
            } else if known != told {
                wrong.push(format!("{name}, step {number}: {told:?} instead of {known:?}"));
            }
        }
    }
    if bless {
        fs::write(&file, written(&all)).unwrap();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(all.len() >= 40, "there are scenarios");
}

/// The scenarios as they are kept: a line a step.
fn written(all: &[Value]) -> String {
    let scenario = |scenario: &Value| {
        let part = |key: &str| scenario.get(key).map(|value| format!("  \"{key}\": {value},\n"));
        let steps = scenario["steps"].as_array().unwrap().iter();
        let steps: Vec<String> = steps.map(|step| format!("    {step}")).collect();
        let head: String = ["name", "needs", "policy"].into_iter().filter_map(part).collect();
        format!(" {{\n{head}  \"steps\": [\n{}\n  ]\n }}", steps.join(",\n"))
    };
    let all: Vec<String> = all.iter().map(scenario).collect();
    format!("[\n{}\n]\n", all.join(",\n"))
}
