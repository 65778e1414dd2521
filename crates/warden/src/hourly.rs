//! What the log has warned of: models without a known price, providers whose answers cannot be read. A warning
//! for every call would fill the log, and writing it would cost more than deciding about the call.

use std::collections::HashMap;

use deadstop_core::{Millis, Time};
use parking_lot::Mutex;

/// How long nothing is named again.
const QUIET: Millis = Millis::from_secs(60 * 60);
/// Names that are remembered; when there are more, it begins anew.
const MOST: usize = 256;

/// When each name was warned of last.
#[derive(Debug, Default)]
pub(crate) struct Hourly(Mutex<HashMap<String, Time>>);

impl Hourly {
    /// Whether it is to be named now.
    pub(crate) fn is_due(&self, name: &str, now: Time) -> bool {
        let mut named = self.0.lock();
        if named.get(name).is_some_and(|at| now.since(*at) < QUIET) {
            return false;
        }
        if named.len() >= MOST {
            named.clear();
        }
        named.insert(name.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_warned_of_once_an_hour() {
        let hourly = Hourly::default();
        let hour = QUIET.0;
        for (model, at, expected) in [
            ("a", 0, true),
            ("a", 1, false),
            ("b", 1, true),
            ("a", hour - 1, false),
            ("a", hour, true),
            ("b", hour, false),
            ("a", hour + 1, false),
        ] {
            assert_eq!(hourly.is_due(model, Time(at)), expected, "{model} at {at}");
        }
    }

    #[test]
    fn the_memory_is_bounded() {
        let hourly = Hourly::default();
        for number in 0..3 * MOST {
            assert!(hourly.is_due(&format!("m-{number}"), Time(0)));
        }
        assert!(hourly.0.lock().len() <= MOST);
    }
}
