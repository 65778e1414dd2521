//! Telemetry out: calls that ended or were refused, as spans, over OTLP/HTTP.
//!
//! A call never waits for this: it is put into a bounded queue, and what does not fit is counted and
//! left out. Prompts and answers are not exported; names are redacted as they are for the database.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use deadstop_core::{Measure, Status};
use deadstop_otlp::names::deadstop as ours;
use deadstop_otlp::span::{self, Finished, What};
use deadstop_store::CallKind;
use deadstop_warden::metrics::Metrics;
use deadstop_warden::{Exported, Warden};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::config::{BadConfig, Secret};
use crate::door::Lines;

/// Spans that wait.
const QUEUE: usize = 8192;
/// Spans of one request.
const BATCH: usize = 512;
/// How long a span waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// How long a collector may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a request is sent again, and how long after the first time; doubled each time.
const AGAIN: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// `[telemetry]` as it was typed.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawTelemetry {
    /// Where spans go: `http://collector:4318`.
    pub otlp_endpoint: Option<String>,
    /// Headers that are sent along.
    pub headers: BTreeMap<String, String>,
    /// The same, each by the environment variable that holds its value.
    pub headers_env: BTreeMap<String, String>,
    /// What the spans say about where they come from, besides `service.name`.
    pub resource: BTreeMap<String, String>,
}

/// Where telemetry goes.
#[derive(Debug, Clone)]
pub struct Telemetry {
    endpoint: http::Uri,
    headers: Vec<(String, Secret)>,
    resource: Vec<(String, String)>,
    /// The share of sessions whose calls are exported.
    share: f64,
}

impl RawTelemetry {
    /// What was typed, or else what OpenTelemetry's own variables say; `None` if neither names an
    /// endpoint.
    pub(crate) fn resolve(
        self,
        environment: &impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Telemetry>, BadConfig> {
        let set = |name: &str| environment(name).filter(|value| !value.is_empty());
        let bad = |problem: String| BadConfig::Telemetry(problem);
        if set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let base = self.otlp_endpoint.or_else(|| set("OTEL_EXPORTER_OTLP_ENDPOINT"));
        let Some(endpoint) = set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
            .or_else(|| base.map(|base| format!("{}/v1/traces", base.trim_end_matches('/'))))
        else {
            return Ok(None);
        };
        let protocol = set("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
            .or_else(|| set("OTEL_EXPORTER_OTLP_PROTOCOL"))
            .unwrap_or_else(|| "http/protobuf".to_owned());
        if protocol != "http/protobuf" {
            return Err(bad(format!(
                "OTEL_EXPORTER_OTLP_PROTOCOL is {protocol}, and spans are sent as http/protobuf only: \
                 set that, with the collector's HTTP port (4318 as a rule)"
            )));
        }
        let uri = crate::config::address(&endpoint).ok_or_else(|| {
            bad(format!("`{endpoint}` is not a URL; write one such as http://collector:4318"))
        })?;
        let mut headers: Vec<(String, Secret)> =
            self.headers.into_iter().map(|(name, value)| (name, Secret::new(value))).collect();
        for (name, variable) in self.headers_env {
            let value = set(&variable)
                .ok_or_else(|| bad(format!("the environment has no {variable}; set it")))?;
            headers.push((name, Secret::new(value)));
        }
        let more = set("OTEL_EXPORTER_OTLP_TRACES_HEADERS")
            .or_else(|| set("OTEL_EXPORTER_OTLP_HEADERS"))
            .unwrap_or_default();
        headers.extend(pairs(&more).map(|(name, value)| (name, Secret::new(value))));
        for (name, value) in &headers {
            let fine = name.parse::<http::HeaderName>().is_ok()
                && http::HeaderValue::from_str(value.reveal()).is_ok();
            if !fine {
                return Err(bad(format!("`{name}` cannot be sent as a header")));
            }
        }
        let mut resource: Vec<(String, String)> = self.resource.into_iter().collect();
        resource.extend(pairs(&set("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default()));
        let service = set("OTEL_SERVICE_NAME");
        if service.is_some() || !resource.iter().any(|(name, _)| name == "service.name") {
            resource.retain(|(name, _)| name != "service.name");
            let name = service.unwrap_or_else(|| "deadstop".to_owned());
            resource.push(("service.name".to_owned(), name));
        }
        let share =
            share(set("OTEL_TRACES_SAMPLER").as_deref(), set("OTEL_TRACES_SAMPLER_ARG").as_deref())
                .map_err(bad)?;
        Ok(Some(Telemetry { endpoint: uri, headers, resource, share }))
    }
}

/// `a=1,b=2`, as OpenTelemetry writes lists in variables.
fn pairs(text: &str) -> impl Iterator<Item = (String, String)> {
    let decode = |text: &str| {
        percent_encoding::percent_decode_str(text.trim()).decode_utf8_lossy().into_owned()
    };
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(move |(name, value)| (decode(name), decode(value))).collect::<Vec<_>>().into_iter()
}

fn share(sampler: Option<&str>, argument: Option<&str>) -> Result<f64, String> {
    match sampler {
        None | Some("always_on" | "parentbased_always_on") => Ok(1.0),
        Some("always_off" | "parentbased_always_off") => Ok(0.0),
        Some("traceidratio" | "parentbased_traceidratio") => {
            let argument = argument.unwrap_or("1");
            let share = argument.parse().ok().filter(|share| (0.0..=1.0).contains(share));
            share.ok_or(format!("OTEL_TRACES_SAMPLER_ARG is `{argument}`; write 0 to 1"))
        }
        Some(other) => Err(format!(
            "OTEL_TRACES_SAMPLER is `{other}`; write always_on, always_off or traceidratio"
        )),
    }
}

/// Begins to export the calls of a warden.
pub(crate) fn start(telemetry: Telemetry, warden: &Arc<Warden>) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    warden.export_to(sender);
    let metrics = Arc::clone(&warden.metrics);
    tokio::spawn(run(telemetry, receiver, metrics));
}

async fn run(telemetry: Telemetry, mut queue: mpsc::Receiver<Exported>, metrics: Arc<Metrics>) {
    let lines = Lines::new();
    let mut failing = false;
    loop {
        let Some(first) = queue.recv().await else { return };
        let mut calls = vec![first];
        let until = Instant::now() + GATHER;
        while calls.len() < BATCH {
            match tokio::time::timeout_at(until, queue.recv()).await {
                Ok(Some(call)) => calls.push(call),
                Ok(None) | Err(_) => break,
            }
        }
        let spans: Vec<Finished> =
            calls.iter().filter(|call| telemetry.samples(call)).map(finished).collect();
        if spans.is_empty() {
            continue;
        }
        let body = span::encode(&spans, &telemetry.resource, env!("CARGO_PKG_VERSION"));
        let count = spans.len() as u64;
        match telemetry.send(&lines, body.into()).await {
            Ok(()) => {
                metrics.exported(count);
                failing = false;
            }
            Err(why) => {
                metrics.not_exported(count);
                // Once for each time that it begins.
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!("telemetry is not exported: {why}");
                }
            }
        }
    }
}

impl Telemetry {
    /// Whether a call is exported. All calls of one session are, or none.
    fn samples(&self, call: &Exported) -> bool {
        let place = format!("{}/{}", call.row.project, call.row.session_number);
        let at = deadstop_core::Digest::of(place.as_bytes()).0 as f64 / u64::MAX as f64;
        at < self.share || self.share >= 1.0
    }

    async fn send(&self, lines: &Lines, body: bytes::Bytes) -> Result<(), String> {
        let mut pause = FIRST_PAUSE;
        let mut left = AGAIN;
        loop {
            let sent = tokio::time::timeout(PATIENCE, self.once(lines, body.clone())).await;
            let (why, again) = match sent {
                Ok(Ok(status)) if status.is_success() => return Ok(()),
                Ok(Ok(status)) => (
                    format!("{} answered {status}", self.endpoint),
                    matches!(status.as_u16(), 429 | 502 | 503 | 504),
                ),
                Ok(Err(error)) => (format!("{}: {error}", self.endpoint), true),
                Err(_) => (format!("{} did not answer", self.endpoint), true),
            };
            if !again || left == 0 {
                return Err(why);
            }
            tokio::time::sleep(pause).await;
            (pause, left) = (pause * 2, left - 1);
        }
    }

    async fn once(&self, lines: &Lines, body: bytes::Bytes) -> Result<StatusCode, String> {
        let host = self.endpoint.authority().map_or("", |host| host.as_str());
        let mut request = Request::post(self.endpoint.clone())
            .header(header::HOST, host)
            .header(header::CONTENT_TYPE, "application/x-protobuf");
        for (name, value) in &self.headers {
            request = request.header(name, value.reveal());
        }
        let request = request.body(Full::new(body)).map_err(|error| error.to_string())?;
        let response = lines.send(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        // The connection is used again once its answer was read.
        let _ = response.into_body().collect().await;
        Ok(status)
    }
}

/// A call as a span tells of it.
fn finished(call: &Exported) -> Finished {
    let Exported { row, agent, session, trip } = call;
    let mut decided = vec![(ours::VERDICT, row.verdict.to_string())];
    if let Some(trip) = trip {
        decided.push((ours::GUARD, trip.guard.name().to_owned()));
        decided.push((ours::REASON, trip.reason.clone()));
        for (name, measure) in [(ours::MEASURED, trip.measured), (ours::LIMIT, trip.limit)] {
            if measure != Measure::None {
                decided.push((name, measure.to_string()));
            }
        }
    }
    decided.extend(row.incident.clone().map(|incident| (ours::INCIDENT, incident)));
    let failed = match row.status {
        Some(Status::Ok | Status::Cancelled) => None,
        Some(Status::Error) => Some("it was answered with an error".to_owned()),
        Some(Status::Fault) => Some("it was not answered".to_owned()),
        None => Some(trip.as_ref().map_or("refused".to_owned(), |trip| trip.explain())),
    };
    let what = match row.kind {
        CallKind::Model => {
            What::Model { provider: row.server.clone(), model: row.name.clone(), usage: row.usage }
        }
        CallKind::Tool => What::Tool { name: row.name.clone(), server: row.server.clone() },
    };
    Finished {
        project: row.project.clone(),
        agent: agent.clone(),
        session: session.clone(),
        session_number: row.session_number,
        call: row.id,
        what,
        began_ms: row.at.0,
        ended_ms: row.at.0.saturating_add(row.duration.map_or(0, |took| took.0)),
        failed,
        cost_usd: row.cost.dollars(),
        decided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(typed: RawTelemetry, set: &[(&str, &str)]) -> Result<Option<Telemetry>, String> {
        let environment = |name: &str| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        typed.resolve(&environment).map_err(|error| error.to_string())
    }

    #[test]
    fn the_variables_of_opentelemetry_are_read() {
        let none = resolve(RawTelemetry::default(), &[]).unwrap();
        assert!(none.is_none(), "nothing is sent unless an endpoint is named");
        let found = resolve(
            RawTelemetry::default(),
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/"),
                ("OTEL_EXPORTER_OTLP_HEADERS", "x-team=a%20b,authorization=Bearer k"),
                ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=prod,service.name=x"),
                ("OTEL_SERVICE_NAME", "guard"),
                ("OTEL_TRACES_SAMPLER", "traceidratio"),
                ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ],
        );
        let found = found.unwrap().unwrap();
        assert_eq!(found.endpoint, "http://collector:4318/v1/traces");
        assert_eq!(found.headers[0].1.reveal(), "a b");
        assert_eq!(
            found.resource,
            [
                ("deployment.environment".to_owned(), "prod".to_owned()),
                ("service.name".to_owned(), "guard".to_owned()),
            ]
        );
        assert!((found.share - 0.25).abs() < 1e-9);
        let traces = [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://host/custom")];
        let found = resolve(RawTelemetry::default(), &traces).unwrap().unwrap();
        assert_eq!(found.endpoint, "https://host/custom");
        let off = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"), ("OTEL_SDK_DISABLED", "true")];
        assert!(resolve(RawTelemetry::default(), &off).unwrap().is_none());
    }

    #[test]
    fn what_cannot_be_is_named() {
        let typed = |endpoint: &str| RawTelemetry {
            otlp_endpoint: Some(endpoint.to_owned()),
            ..RawTelemetry::default()
        };
        let protocol = [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
        for (found, says) in [
            (resolve(typed("collector"), &[]), "is not a URL"),
            (resolve(typed("http://c:4317"), &protocol), "http/protobuf only"),
            (resolve(typed("http://c"), &[("OTEL_TRACES_SAMPLER", "magic")]), "write always_on"),
        ] {
            let said = found.unwrap_err();
            assert!(said.starts_with("telemetry: ") && said.contains(says), "{said}");
        }
    }
}
