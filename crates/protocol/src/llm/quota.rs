//! What a provider says in the headers of its answer about its own windows: how much is used, and when
//! each begins anew.
//!
//! - Anthropic, subscriptions: `anthropic-ratelimit-unified-5h-utilization` (a share) and `-reset`
//!   (seconds since the epoch); likewise `7d` and others.
//! - Anthropic, API: `anthropic-ratelimit-requests-limit`, `-remaining`, `-reset` (RFC 3339); likewise
//!   `tokens`, `input-tokens`, `output-tokens`.
//! - Codex: `x-codex-primary-used-percent`, `-reset-after-seconds` or `-reset-at`, `-window-minutes`;
//!   likewise `secondary`.
//! - OpenAI and compatible: `x-ratelimit-limit-requests`, `x-ratelimit-remaining-requests`,
//!   `x-ratelimit-reset-requests` (`6m0s`, or seconds); likewise `tokens`.

use deadstop_core::{Quota, Time};
use jiff::Timestamp;

/// Windows that are read from one answer.
const MOST: usize = 8;

/// Reads the windows that an answer reports. `headers` are in lower case.
pub fn read<'h>(
    headers: impl Fn(&str) -> Option<&'h str>,
    names: &[&str],
    now: Time,
) -> Vec<Quota> {
    let mut found = Vec::new();
    for name in names {
        let quota = unified(name, &headers, now)
            .or_else(|| codex(name, &headers, now))
            .or_else(|| counted(name, &headers, now))
            .or_else(|| plain(name, &headers, now));
        if let Some(quota) = quota.filter(|quota| quota.used.is_finite() && quota.resets > now)
            && found.len() < MOST
        {
            found.push(quota);
        }
    }
    found
}

fn number(text: Option<&str>) -> Option<f64> {
    text?.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)
}

fn after(now: Time, seconds: f64) -> Time {
    Time(now.0.saturating_add((seconds * 1000.0) as u64))
}

/// Seconds since the epoch, or an RFC 3339 time.
fn moment(text: &str) -> Option<Time> {
    if let Some(seconds) = number(Some(text)) {
        return Some(Time((seconds * 1000.0) as u64));
    }
    let at = text.trim().parse::<Timestamp>().ok()?;
    u64::try_from(at.as_millisecond()).ok().map(Time)
}

/// `6m0s`, `1.5s`, `20ms`, or plain seconds.
fn span(text: &str) -> Option<f64> {
    if let Some(seconds) = number(Some(text)) {
        return Some(seconds);
    }
    let mut rest = text.trim();
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let value = number(rest.get(..digits))?;
        let unit = rest.get(digits..)?;
        let end = unit.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit.len());
        total += value
            * match unit.get(..end)? {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "d" => 86_400.0,
                _ => return None,
            };
        rest = unit.get(end..)?;
    }
    Some(total)
}

fn unified<'h>(
    name: &str,
    headers: &impl Fn(&str) -> Option<&'h str>,
    _now: Time,
) -> Option<Quota> {
    let window = name.strip_prefix("anthropic-ratelimit-unified-")?.strip_suffix("-utilization")?;
    let reset = headers(&format!("anthropic-ratelimit-unified-{window}-reset"))
        .or_else(|| headers("anthropic-ratelimit-unified-reset"))?;
    Some(Quota { window: window.to_owned(), used: number(headers(name))?, resets: moment(reset)? })
}

fn codex<'h>(name: &str, headers: &impl Fn(&str) -> Option<&'h str>, now: Time) -> Option<Quota> {
    let window = name.strip_prefix("x-codex-")?.strip_suffix("-used-percent")?;
    let header = |end: &str| headers(&format!("x-codex-{window}-{end}"));
    let resets = match number(header("reset-after-seconds")) {
        Some(seconds) => after(now, seconds),
        None => match header("reset-at").and_then(moment) {
            Some(at) => at,
            None => after(now, number(header("window-minutes"))? * 60.0),
        },
    };
    Some(Quota { window: window.to_owned(), used: number(headers(name))? / 100.0, resets })
}

fn share(limit: Option<&str>, remaining: Option<&str>) -> Option<f64> {
    let (limit, remaining) = (number(limit).filter(|limit| *limit > 0.0)?, number(remaining)?);
    Some(1.0 - (remaining / limit).min(1.0))
}

fn counted<'h>(
    name: &str,
    headers: &impl Fn(&str) -> Option<&'h str>,
    _now: Time,
) -> Option<Quota> {
    let window = name.strip_prefix("anthropic-ratelimit-")?.strip_suffix("-remaining")?;
    let header = |end: &str| headers(&format!("anthropic-ratelimit-{window}-{end}"));
    let used = share(header("limit"), headers(name))?;
    Some(Quota { window: window.to_owned(), used, resets: moment(header("reset")?)? })
}

fn plain<'h>(name: &str, headers: &impl Fn(&str) -> Option<&'h str>, now: Time) -> Option<Quota> {
    let window = name.strip_prefix("x-ratelimit-remaining-")?;
    let header = |start: &str| headers(&format!("x-ratelimit-{start}-{window}"));
    let used = share(header("limit"), headers(name))?;
    let reset = header("reset")?;
    // A large number is a moment, a small one a span.
    let resets = match number(Some(reset)).filter(|number| *number > 1e9) {
        Some(seconds) => Time((seconds * 1000.0) as u64),
        None => after(now, span(reset)?),
    };
    Some(Quota { window: window.to_owned(), used, resets })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_800_000_000_000);

    fn check(headers: &[(&str, &str)], expected: &[(&str, f64, u64)]) {
        let find = |name: &str| headers.iter().find(|(own, _)| *own == name).map(|(_, v)| *v);
        let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        let read = read(find, &names, NOW);
        let shown: Vec<_> = read
            .iter()
            .map(|quota| {
                let used = (quota.used * 1000.0).round() / 1000.0;
                (quota.window.as_str(), used, (quota.resets.0 - NOW.0) / 1000)
            })
            .collect();
        assert_eq!(shown, expected, "{headers:?}");
    }

    #[test]
    fn every_form_is_read() {
        check(
            &[
                ("anthropic-ratelimit-unified-status", "allowed"),
                ("anthropic-ratelimit-unified-5h-utilization", "0.42"),
                ("anthropic-ratelimit-unified-5h-reset", "1800003600"),
                ("anthropic-ratelimit-unified-7d-utilization", "0.9"),
                ("anthropic-ratelimit-unified-7d-reset", "1800086400"),
            ],
            &[("5h", 0.42, 3600), ("7d", 0.9, 86_400)],
        );
        check(
            &[
                ("anthropic-ratelimit-tokens-limit", "1000"),
                ("anthropic-ratelimit-tokens-remaining", "250"),
                ("anthropic-ratelimit-tokens-reset", "2027-01-15T08:10:00Z"),
            ],
            &[("tokens", 0.75, 600)],
        );
        check(
            &[
                ("x-codex-primary-used-percent", "12.5"),
                ("x-codex-primary-reset-after-seconds", "900"),
                ("x-codex-secondary-used-percent", "80"),
                ("x-codex-secondary-window-minutes", "10080"),
            ],
            &[("primary", 0.125, 900), ("secondary", 0.8, 604_800)],
        );
        check(
            &[
                ("x-ratelimit-limit-requests", "200"),
                ("x-ratelimit-remaining-requests", "50"),
                ("x-ratelimit-reset-requests", "1h6m0s"),
            ],
            &[("requests", 0.75, 3960)],
        );
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        for headers in [
            &[("anthropic-ratelimit-unified-5h-utilization", "0.42")][..],
            &[
                ("x-codex-primary-used-percent", "many"),
                ("x-codex-primary-reset-after-seconds", "9"),
            ],
            &[("x-ratelimit-remaining-tokens", "5"), ("x-ratelimit-limit-tokens", "0")],
            &[
                ("x-ratelimit-limit-requests", "200"),
                ("x-ratelimit-remaining-requests", "50"),
                ("x-ratelimit-reset-requests", "soon"),
            ],
            &[
                ("anthropic-ratelimit-unified-5h-utilization", "NaN"),
                ("anthropic-ratelimit-unified-5h-reset", "1800003600"),
            ],
        ] {
            check(headers, &[]);
        }
    }
}
