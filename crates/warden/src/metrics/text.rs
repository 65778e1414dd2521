//! Metrics as Prometheus reads them: its text format, and OpenMetrics, which has exemplars.

use std::fmt::Write as _;

use deadstop_core::hex;

use super::family::{Durations, Exemplar, Family, FamilyKind, Series, Value};

/// How metrics are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// The format that an `accept` header asks for: OpenMetrics where it is named.
    pub fn of(accept: &str) -> Format {
        match accept.contains("application/openmetrics-text") {
            true => Format::OpenMetrics,
            false => Format::Text,
        }
    }

    /// Its content type.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Families as text.
pub(super) fn write(families: &[Family], format: Format) -> String {
    let mut text = Writer { text: String::with_capacity(16 << 10), format };
    for family in families {
        text.family(family);
    }
    if format == Format::OpenMetrics {
        text.text.push_str("# EOF\n");
    }
    text.text
}

struct Writer {
    text: String,
    format: Format,
}

impl Writer {
    fn family(&mut self, family: &Family) {
        let (kind, end) = match family.kind {
            FamilyKind::Counter => ("counter", "_total"),
            FamilyKind::Gauge => ("gauge", ""),
            FamilyKind::Histogram => ("histogram", ""),
        };
        // OpenMetrics names a counter without its ending.
        let head = if self.format == Format::Text { end } else { "" };
        let Family { name, help, .. } = family;
        let _ = writeln!(self.text, "# HELP {name}{head} {help}\n# TYPE {name}{head} {kind}");
        for series in &family.series {
            match &series.value {
                Value::Number(number) => self.line(name, end, series, None, number),
                Value::Durations(durations) => self.durations(name, series, durations),
            }
            if !matches!(series.value, Value::Durations(_)) {
                self.text.push('\n');
            }
        }
    }

    /// A line without its end.
    fn line(
        &mut self,
        name: &str,
        end: &str,
        series: &Series,
        le: Option<&str>,
        value: impl std::fmt::Display,
    ) {
        let _ = write!(self.text, "{name}{end}");
        let labels = series.labels.iter().map(|(name, value)| (*name, &**value));
        let mut opened = false;
        for (label, value) in labels.chain(le.map(|le| ("le", le))) {
            self.text.push(if opened { ',' } else { '{' });
            opened = true;
            let _ = write!(self.text, "{label}=\"{}\"", escaped(value));
        }
        if opened {
            self.text.push('}');
        }
        let _ = write!(self.text, " {value}");
    }

    fn durations(&mut self, name: &str, series: &Series, durations: &Durations) {
        let mut total = 0;
        for (bucket, count) in durations.counts.iter().enumerate() {
            total += count;
            let le = match durations.ends.get(bucket) {
                Some(end) => self.end(seconds(*end)),
                None => "+Inf".to_owned(),
            };
            self.line(name, "_bucket", series, Some(&le), total);
            let exemplar = durations.exemplars.get(bucket).and_then(Option::as_ref);
            if let Some(exemplar) = exemplar.filter(|_| self.format == Format::OpenMetrics) {
                self.exemplar(exemplar);
            }
            self.text.push('\n');
        }
        self.line(name, "_sum", series, None, seconds(durations.nanos));
        self.text.push('\n');
        self.line(name, "_count", series, None, total);
        self.text.push('\n');
    }

    /// The upper end of a bucket. OpenMetrics writes whole numbers with a decimal point.
    fn end(&self, end: f64) -> String {
        match self.format {
            Format::Text => end.to_string(),
            Format::OpenMetrics => format!("{end:?}"),
        }
    }

    fn exemplar(&mut self, exemplar: &Exemplar) {
        let Exemplar { trace, span, took, at } = exemplar;
        let (trace, span) = (hex(trace), hex(span));
        let (took, at) = (took.as_secs_f64(), at.0 as f64 / 1000.0);
        let _ = write!(self.text, " # {{trace_id=\"{trace}\",span_id=\"{span}\"}} {took} {at:.3}");
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
