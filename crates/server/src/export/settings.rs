//! Where telemetry goes: what was typed under `[telemetry]`, or else OpenTelemetry's own variables.

use std::collections::BTreeMap;
use std::time::Duration;

use deadstop_warden::trace::Sampler;
use serde::Deserialize;

use crate::config::{BadConfig, Secret};

/// `[telemetry]` as it was typed.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawTelemetry {
    /// Where telemetry goes: `http://collector:4318`.
    pub otlp_endpoint: Option<String>,
    /// Headers that are sent along.
    pub headers: BTreeMap<String, String>,
    /// The same, each by the environment variable that holds its value.
    pub headers_env: BTreeMap<String, String>,
    /// What the spans say about where they come from, besides `service.name`.
    pub resource: BTreeMap<String, String>,
    /// Whether spans have what was asked and answered, redacted.
    pub texts: bool,
}

/// Where telemetry goes.
#[derive(Debug, Clone)]
pub struct Telemetry {
    /// Where each signal goes, if it is sent.
    pub(super) traces: Option<Target>,
    pub(super) metrics: Option<Target>,
    pub(super) logs: Option<Target>,
    /// How often metrics are sent.
    pub(super) interval: Duration,
    pub(super) resource: Vec<(String, String)>,
    /// Which calls are exported.
    pub(super) sampler: Sampler,
    /// Whether spans have what was asked and answered.
    pub(super) texts: bool,
}

/// Where a signal goes.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) endpoint: http::Uri,
    pub(super) headers: Vec<(String, Secret)>,
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
        let mut typed: Vec<(String, Secret)> =
            self.headers.into_iter().map(|(name, value)| (name, Secret::new(value))).collect();
        for (name, variable) in self.headers_env {
            let value = set(&variable)
                .ok_or_else(|| bad(format!("the environment has no {variable}; set it")))?;
            typed.push((name, Secret::new(value)));
        }
        let base = self.otlp_endpoint.or_else(|| set("OTEL_EXPORTER_OTLP_ENDPOINT"));
        let target = |signal: &str| target(signal, base.as_deref(), &typed, &set).map_err(bad);
        let (traces, metrics, logs) = (target("traces")?, target("metrics")?, target("logs")?);
        if traces.is_none() && metrics.is_none() && logs.is_none() {
            return Ok(None);
        }
        let interval = set("OTEL_METRIC_EXPORT_INTERVAL").unwrap_or_else(|| "60000".to_owned());
        let interval = interval.parse().ok().filter(|millis| *millis > 0).ok_or_else(|| {
            bad(format!("OTEL_METRIC_EXPORT_INTERVAL is `{interval}`; write milliseconds"))
        })?;
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
        let follows =
            set("OTEL_TRACES_SAMPLER").is_none_or(|sampler| sampler.starts_with("parentbased"));
        let interval = Duration::from_millis(interval);
        let texts = self.texts
            || set("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT").is_some_and(|said| {
                let said = said.to_ascii_lowercase();
                matches!(said.as_str(), "true" | "span_only" | "span_and_event")
            });
        let sampler = Sampler { share, follows };
        Ok(Some(Telemetry { traces, metrics, logs, interval, resource, sampler, texts }))
    }
}

/// Where a signal goes; `None` if it is not sent.
fn target(
    signal: &str,
    base: Option<&str>,
    typed: &[(String, Secret)],
    set: &impl Fn(&str) -> Option<String>,
) -> Result<Option<Target>, String> {
    let upper = signal.to_uppercase();
    // The variable that says it, and what it says: the signal's own, or else the common one.
    let own = |what: &str| {
        let names =
            [format!("OTEL_EXPORTER_OTLP_{upper}_{what}"), format!("OTEL_EXPORTER_OTLP_{what}")];
        names.into_iter().find_map(|name| set(&name).map(|value| (name, value)))
    };
    if set(&format!("OTEL_{upper}_EXPORTER")).is_some_and(|exporter| exporter == "none") {
        return Ok(None);
    }
    let special = set(&format!("OTEL_EXPORTER_OTLP_{upper}_ENDPOINT"));
    let usual = || base.map(|base| format!("{}/v1/{signal}", base.trim_end_matches('/')));
    let Some(endpoint) = special.or_else(usual) else { return Ok(None) };
    if let Some((variable, protocol)) = own("PROTOCOL").filter(|(_, said)| said != "http/protobuf")
    {
        return Err(format!(
            "{variable} is {protocol}, and telemetry is sent as http/protobuf only: \
             set that, with the collector's HTTP port (4318 as a rule)"
        ));
    }
    let endpoint = crate::config::address(&endpoint).ok_or_else(|| {
        format!("`{endpoint}` is not a URL; write one such as http://collector:4318")
    })?;
    let mut headers = typed.to_vec();
    let more = own("HEADERS").map(|(_, headers)| headers).unwrap_or_default();
    headers.extend(pairs(&more).map(|(name, value)| (name, Secret::new(value))));
    for (name, value) in &headers {
        let fine = name.parse::<http::HeaderName>().is_ok()
            && http::HeaderValue::from_str(value.reveal()).is_ok();
        if !fine {
            return Err(format!("`{name}` cannot be sent as a header"));
        }
    }
    Ok(Some(Target { endpoint, headers }))
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
        assert!(none.is_none(), "nothing is sent without an endpoint");
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
        assert_eq!(found.traces.as_ref().unwrap().endpoint, "http://collector:4318/v1/traces");
        assert_eq!(found.traces.as_ref().unwrap().headers[0].1.reveal(), "a b");
        assert_eq!(
            found.resource,
            [
                ("deployment.environment".to_owned(), "prod".to_owned()),
                ("service.name".to_owned(), "guard".to_owned()),
            ]
        );
        assert!((found.sampler.share - 0.25).abs() < 1e-9);
        let traces = [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://host/custom")];
        let found = resolve(RawTelemetry::default(), &traces).unwrap().unwrap();
        assert_eq!(found.traces.unwrap().endpoint, "https://host/custom");
        assert!(found.metrics.is_none() && found.logs.is_none(), "only what was named");
        let none =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"), ("OTEL_LOGS_EXPORTER", "none")];
        let found = resolve(RawTelemetry::default(), &none).unwrap().unwrap();
        assert_eq!(found.metrics.unwrap().endpoint, "http://c:4318/v1/metrics");
        assert!(found.logs.is_none());
        let off = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"), ("OTEL_SDK_DISABLED", "true")];
        assert!(resolve(RawTelemetry::default(), &off).unwrap().is_none());
    }

    /// Each signal may have its own address and headers; those replace the common ones.
    #[test]
    fn a_signal_may_have_settings_of_its_own() {
        let found = resolve(
            RawTelemetry::default(),
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://common:4318"),
                ("OTEL_EXPORTER_OTLP_HEADERS", "x-team=blue"),
                ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:1/in"),
                ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-team=red"),
                ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/protobuf"),
                ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://logs:2/in"),
                ("OTEL_METRICS_EXPORTER", "otlp"),
                ("OTEL_METRIC_EXPORT_INTERVAL", "1500"),
            ],
        );
        let found = found.unwrap().unwrap();
        let said = |target: &Option<Target>| {
            let target = target.as_ref().unwrap();
            let headers =
                target.headers.iter().map(|(name, value)| format!("{name}={}", value.reveal()));
            (target.endpoint.to_string(), headers.collect::<Vec<_>>().join(","))
        };
        let expected = |endpoint: &str, headers: &str| (endpoint.to_owned(), headers.to_owned());
        assert_eq!(said(&found.traces), expected("http://traces:1/in", "x-team=red"));
        assert_eq!(said(&found.logs), expected("http://logs:2/in", "x-team=blue"));
        assert_eq!(said(&found.metrics), expected("http://common:4318/v1/metrics", "x-team=blue"));
        assert_eq!(found.interval, Duration::from_millis(1500));
    }

    /// Texts are left out unless the file or the variable of OpenTelemetry's instrumentations asks for them.
    #[test]
    fn texts_are_sent_where_that_is_asked_for() {
        let typed = |texts| RawTelemetry {
            otlp_endpoint: Some("http://c:4318".to_owned()),
            texts,
            ..RawTelemetry::default()
        };
        let name = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";
        let said = |texts, set: &[(&str, &str)]| resolve(typed(texts), set).unwrap().unwrap().texts;
        assert!(!said(false, &[]) && !said(false, &[(name, "no_content")]));
        assert!(!said(false, &[(name, "event_only")]), "there are no such events");
        assert!(said(true, &[]) && said(false, &[(name, "True")]));
        assert!(said(false, &[(name, "SPAN_ONLY")]));
    }

    /// The file comes first, so that a variable of the machine does not redirect what an operator set.
    #[test]
    fn what_was_typed_comes_before_variables() {
        let typed = RawTelemetry {
            otlp_endpoint: Some("http://typed:4318".to_owned()),
            resource: BTreeMap::from([("service.name".to_owned(), "gate".to_owned())]),
            headers_env: BTreeMap::from([("authorization".to_owned(), "TOKEN".to_owned())]),
            ..RawTelemetry::default()
        };
        let set = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://other:4318"), ("TOKEN", "Bearer k")];
        let found = resolve(typed.clone(), &set).unwrap().unwrap();
        let traces = found.traces.unwrap();
        assert_eq!(traces.endpoint, "http://typed:4318/v1/traces");
        assert_eq!(traces.headers[0].1.reveal(), "Bearer k");
        assert_eq!(found.resource, [("service.name".to_owned(), "gate".to_owned())]);
        let said = resolve(typed, &[]).unwrap_err();
        assert!(said.contains("the environment has no TOKEN"), "{said}");
    }

    #[test]
    fn samplers_are_those_of_opentelemetry() {
        for (sampler, argument, share, follows) in [
            (None, None, 1.0, true),
            (Some("always_on"), None, 1.0, false),
            (Some("always_off"), None, 0.0, false),
            (Some("parentbased_always_off"), None, 0.0, true),
            (Some("traceidratio"), None, 1.0, false),
            (Some("traceidratio"), Some("0.5"), 0.5, false),
            (Some("parentbased_traceidratio"), Some("0"), 0.0, true),
        ] {
            let mut set = vec![("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")];
            set.extend(sampler.map(|sampler| ("OTEL_TRACES_SAMPLER", sampler)));
            set.extend(argument.map(|argument| ("OTEL_TRACES_SAMPLER_ARG", argument)));
            let found = resolve(RawTelemetry::default(), &set).unwrap().unwrap();
            assert_eq!(
                (found.sampler.share, found.sampler.follows),
                (share, follows),
                "{sampler:?} {argument:?}"
            );
        }
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
            (
                resolve(typed("http://c"), &[("OTEL_METRIC_EXPORT_INTERVAL", "soon")]),
                "write milliseconds",
            ),
            (resolve(typed("http://c"), &[("OTEL_TRACES_SAMPLER", "magic")]), "write always_on"),
            (
                resolve(
                    typed("http://c"),
                    &[("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")],
                ),
                "write 0 to 1",
            ),
            (
                resolve(typed("http://c"), &[("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "http/json")]),
                "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL is http/json",
            ),
            (
                resolve(typed("http://c"), &[("OTEL_EXPORTER_OTLP_HEADERS", "a b=c")]),
                "cannot be sent as a header",
            ),
        ] {
            let said = found.unwrap_err();
            assert!(said.starts_with("telemetry: ") && said.contains(says), "{said}");
        }
    }
}
