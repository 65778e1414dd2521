//! Times as people read them: the date here, and how long ago.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde_json::Value;

use crate::ui;

/// Milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The date and time here, and how long ago that is; nothing for nothing.
pub(crate) fn ago(ms: &Value) -> String {
    let Some(at) = ms.as_u64() else { return String::new() };
    let now = now();
    match now.checked_sub(at) {
        Some(age) => format!("{} ({} ago)", at_local(at), length(age)),
        None => format!("{} (in {})", at_local(at), length(at - now)),
    }
}

/// The same for the column of a table. A terminal has no room for both: it gets how long ago something of
/// the last day was, and the date of everything else. A pipe gets both, for programs.
pub(crate) fn brief(ms: &Value) -> String {
    let Some(at) = ms.as_u64() else { return String::new() };
    if ui::width().is_none() {
        return ago(ms);
    }
    let now = now();
    match (now.checked_sub(at), at.saturating_sub(now)) {
        (Some(0..1000), _) => "now".to_owned(),
        (Some(age @ 0..DAY_MS), _) => format!("{} ago", length(age)),
        (None, left @ 0..DAY_MS) => format!("in {}", length(left)),
        _ => at_local(at).chars().take(MINUTES).collect(),
    }
}

const DAY_MS: u64 = 86_400_000;

/// The letters of a date and a time to the minute.
const MINUTES: usize = "2026-11-15 09:30".len();

/// The date and time here.
pub(crate) fn local(ms: &Value) -> String {
    ms.as_u64().map(at_local).unwrap_or_default()
}

fn at_local(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let Some(at) = at else { return ms.to_string() };
    at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// A length of time in its largest unit.
pub(crate) fn length(ms: u64) -> String {
    match ms / 1000 {
        0 => format!("{ms}ms"),
        s @ 1..=119 => format!("{s}s"),
        s @ 120..=7199 => format!("{}m", s / 60),
        s @ 7200..=172_799 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

/// Reads `30m` as so long ago, `2026-11-15` and `2026-11-15 09:30` as times here. Gives
/// milliseconds since 1970.
pub(crate) fn moment(text: &str) -> Result<u64, String> {
    if let Ok(ago) = duration(text) {
        let ago = u64::try_from(ago.as_millis()).unwrap_or(u64::MAX);
        return Ok(now().saturating_sub(ago));
    }
    let text = text.trim();
    let there = text.parse::<Timestamp>().ok();
    let here = || {
        let civil: DateTime = text.parse().ok()?;
        civil.to_zoned(TimeZone::system()).ok().map(|here| here.timestamp())
    };
    let midnight = || {
        let date: Date = text.parse().ok()?;
        date.to_zoned(TimeZone::system()).ok().map(|here: Zoned| here.timestamp())
    };
    let at =
        there.or_else(here).or_else(midnight).and_then(|at| at.as_millisecond().try_into().ok());
    at.ok_or_else(|| format!("`{text}` is no time; write 30m, 2d, 2026-11-15 or 2026-11-15T09:30"))
}

/// Reads `30m`, `1h30m`, `500ms`, and seconds where no unit is named.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a length of time; write 90s, 30m or 1h30m");
    let mut rest = text.trim();
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let seconds = match unit {
            "ms" => 0.001,
            "" | "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(wrong()),
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = after.trim_start();
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, expected) in [
            ("90", Some(90_000)),
            ("90s", Some(90_000)),
            ("30m", Some(1_800_000)),
            ("1h30m", Some(5_400_000)),
            ("1h 30min", Some(5_400_000)),
            ("1.5h", Some(5_400_000)),
            ("250ms", Some(250)),
            ("1d", Some(86_400_000)),
            ("0", Some(0)),
            ("", None),
            ("m", None),
            ("30 parsecs", None),
            ("-5", None),
            ("1e9h", None),
            ("99999999999999999999999d", None),
        ] {
            let read = duration(text).ok().map(|time| time.as_millis());
            assert_eq!(read, expected, "{text}");
        }
    }

    #[test]
    fn ages_have_one_unit() {
        for (ms, expected) in [
            (0, "0ms"),
            (999, "999ms"),
            (1000, "1s"),
            (119_999, "119s"),
            (120_000, "2m"),
            (7_199_999, "119m"),
            (7_200_000, "2h"),
            (172_800_000, "2d"),
        ] {
            assert_eq!(length(ms), expected);
        }
    }

    #[test]
    fn moments_are_ages_or_dates() {
        let an_hour_ago = moment("1h").unwrap();
        assert!(now() - an_hour_ago >= 3_600_000);
        assert_eq!(moment("1970-01-02T00:00:00Z"), Ok(86_400_000));
        assert!(moment("2026-11-15").unwrap() < moment("2026-11-15T09:30").unwrap());
        assert!(moment("2026-11-15 09:30").is_ok());
        for text in ["", "soon", "2026-13-01", "1890-01-01"] {
            assert!(moment(text).is_err(), "{text}");
        }
    }
}
