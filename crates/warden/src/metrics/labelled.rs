//! Series that name an agent or a model. Callers choose these names, so their number is bounded, and a
//! project is shown its own only.
//!
//! Each project has room for [`MOST`] names; what comes later is counted under [`OTHER`]. So a client
//! that makes names up neither fills the memory nor the operator's Prometheus.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use deadstop_core::{GuardId, Verdict};
use parking_lot::{Mutex, RwLock};

use super::family::{Exemplar, Family};
use super::histogram::{ANSWERS, Histogram};

/// Names of a project that have series of their own.
const MOST: usize = 100;
/// Projects that have such series; the server-wide ones count all.
const MOST_PROJECTS: usize = 200;
/// The name of all others.
const OTHER: &str = "_other";
/// A longer name is among the others.
const LONGEST: usize = 128;

/// How an upstream has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// With a status.
    Status(u16),
    /// Not in time.
    Timeout,
    /// Not at all.
    Unreachable,
    /// The client went away or a stop came first.
    Cancelled,
}

impl Reply {
    const ALL: [&str; 9] =
        ["1xx", "2xx", "3xx", "4xx", "429", "5xx", "timeout", "unreachable", "cancelled"];

    fn number(self) -> usize {
        match self {
            Reply::Status(429) => 4,
            Reply::Status(..200) => 0,
            Reply::Status(..300) => 1,
            Reply::Status(..400) => 2,
            Reply::Status(..500) => 3,
            Reply::Status(_) => 5,
            Reply::Timeout => 6,
            Reply::Unreachable => 7,
            Reply::Cancelled => 8,
        }
    }
}

/// One model of one provider, as it answers a project.
#[derive(Debug)]
pub struct Upstream {
    answers: [AtomicU64; Reply::ALL.len()],
    durations: Histogram,
    first: Histogram,
}

impl Upstream {
    fn new() -> Upstream {
        let (durations, first) = (Histogram::new(ANSWERS), Histogram::new(ANSWERS));
        Upstream { answers: Default::default(), durations, first }
    }

    /// Counts an answer, and how long all of it took.
    pub fn answered(&self, how: Reply, exemplar: Exemplar) {
        if let Some(count) = self.answers.get(how.number()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.durations.count_in(exemplar);
    }

    /// Counts how long the first piece of a stream took.
    pub fn began(&self, exemplar: Exemplar) {
        self.first.count_in(exemplar);
    }
}

/// By provider, then by model: found without copying either name.
type Models = HashMap<String, HashMap<String, Arc<Upstream>>>;
type Trips = BTreeMap<String, BTreeMap<(GuardId, Verdict), u64>>;

/// The series of all projects.
#[derive(Debug, Default)]
pub struct Labelled {
    models: RwLock<HashMap<String, Models>>,
    trips: Mutex<HashMap<String, Trips>>,
}

impl Labelled {
    /// A provider's model. The provider's name comes from the configuration, the model's from the caller.
    pub fn upstream(&self, project: &str, provider: &str, model: &str) -> Arc<Upstream> {
        let known = |models: &Models| models.get(provider)?.get(model).cloned();
        if let Some(found) = self.models.read().get(project).and_then(known) {
            return found;
        }
        let mut projects = self.models.write();
        if projects.len() >= MOST_PROJECTS && !projects.contains_key(project) {
            return Arc::new(Upstream::new());
        }
        let models = projects.entry(project.to_owned()).or_default();
        // Another call may have made it meanwhile.
        if let Some(found) = known(models) {
            return found;
        }
        let all: usize = models.values().map(HashMap::len).sum();
        let own = all < MOST && model.len() <= LONGEST;
        let of_provider = models.entry(provider.to_owned()).or_default();
        let model = if own { model } else { OTHER };
        Arc::clone(of_provider.entry(model.to_owned()).or_insert_with(|| Arc::new(Upstream::new())))
    }

    /// Counts a trip at an agent.
    pub fn trip(&self, project: &str, agent: &str, guard: GuardId, verdict: Verdict) {
        let mut projects = self.trips.lock();
        if projects.len() >= MOST_PROJECTS && !projects.contains_key(project) {
            return;
        }
        let agents = projects.entry(project.to_owned()).or_default();
        let own = agents.contains_key(agent) || (agents.len() < MOST && agent.len() <= LONGEST);
        let agent = if own { agent } else { OTHER };
        let counts = agents.entry(agent.to_owned()).or_default();
        *counts.entry((guard, verdict)).or_default() += 1;
    }

    /// The series of one project, or of all.
    pub(super) fn families(&self, project: Option<&str>) -> Vec<Family> {
        let upstreams = self.upstreams(project);
        vec![
            self.trips_of(project),
            answers_of(&upstreams),
            durations_of(&upstreams, Stage::Whole),
            durations_of(&upstreams, Stage::First),
        ]
    }

    fn trips_of(&self, wanted: Option<&str>) -> Family {
        let mut family =
            Family::counter("deadstop_agent_verdicts", "Trips by agent, guard and verdict.");
        let projects = self.trips.lock();
        let shown = projects.iter().filter(|(name, _)| is_shown(name, wanted));
        let agents = shown.flat_map(|(project, agents)| agents.iter().map(move |it| (project, it)));
        for (project, (agent, counts)) in agents {
            for ((guard, verdict), count) in counts {
                let (guard, verdict) = (guard.name(), verdict.to_string());
                let labels = [
                    ("project", &**project),
                    ("agent", agent),
                    ("guard", guard),
                    ("verdict", &*verdict),
                ];
                family.push(&labels, *count);
            }
        }
        family
    }

    fn upstreams(&self, wanted: Option<&str>) -> Upstreams {
        let projects = self.models.read();
        let shown = projects.iter().filter(|(name, _)| is_shown(name, wanted));
        let models = shown.flat_map(|(project, models)| {
            models.iter().flat_map(move |(provider, models)| {
                models.iter().map(move |(model, upstream)| {
                    ([project, provider, model].map(String::clone), Arc::clone(upstream))
                })
            })
        });
        models.collect()
    }
}

/// By project, provider and model.
type Upstreams = BTreeMap<[String; 3], Arc<Upstream>>;

fn is_shown(project: &str, wanted: Option<&str>) -> bool {
    wanted.is_none_or(|wanted| wanted == project)
}

fn answers_of(upstreams: &Upstreams) -> Family {
    let help = "Answers of providers by model and status.";
    let mut family = Family::counter("deadstop_upstream_answers", help);
    for ([project, provider, model], upstream) in upstreams {
        for (status, count) in Reply::ALL.iter().zip(&upstream.answers) {
            let count = count.load(Ordering::Relaxed);
            let labels = [
                ("project", &**project),
                ("provider", &**provider),
                ("model", &**model),
                ("status", status),
            ];
            if count > 0 {
                family.push(&labels, count);
            }
        }
    }
    family
}

fn durations_of(upstreams: &Upstreams, stage: Stage) -> Family {
    let mut family = match stage {
        Stage::Whole => Family::histogram(
            "deadstop_upstream_duration_seconds",
            "How long providers take until the end of an answer.",
        ),
        Stage::First => Family::histogram(
            "deadstop_upstream_first_token_seconds",
            "How long providers take until the first piece of a streamed answer.",
        ),
    };
    for ([project, provider, model], upstream) in upstreams {
        let durations = match stage {
            Stage::Whole => upstream.durations.read(),
            Stage::First => upstream.first.read(),
        };
        let labels = [("project", &**project), ("provider", &**provider), ("model", &**model)];
        if durations.counts.iter().any(|count| *count > 0) {
            family.push(&labels, durations);
        }
    }
    family
}

/// Which part of an answer is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Whole,
    First,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_callers_make_up_do_not_fill_the_memory() {
        let labelled = Labelled::default();
        for number in 0..10_000 {
            labelled.trip("p", &format!("agent-{number}"), GuardId::Loop, Verdict::Kill);
            labelled.upstream("p", "openai", &format!("model-{number}"));
        }
        labelled.trip("p", "agent-5", GuardId::Loop, Verdict::Kill);
        let trips = labelled.trips_of(Some("p")).series;
        assert_eq!(trips.len(), MOST + 1);
        let all: f64 = trips
            .iter()
            .map(|series| match series.value {
                super::super::family::Value::Number(number) => number,
                _ => 0.0,
            })
            .sum();
        assert!((all - 10_001.0).abs() < 0.5, "none is lost: {all}");
        assert_eq!(labelled.upstreams(Some("p")).len(), MOST + 1);
        assert!(labelled.trips_of(Some("q")).series.is_empty(), "a project sees its own");
        for number in 0..1000 {
            labelled.trip(&format!("project-{number}"), "a", GuardId::Loop, Verdict::Warn);
        }
        assert_eq!(labelled.trips.lock().len(), MOST_PROJECTS);
    }
}
