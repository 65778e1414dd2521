//! Models without a known price that the log has named. A warning for every call would fill the log, and
//! writing it would cost more than deciding about the call.

use std::collections::HashMap;

use deadstop_core::{Millis, Time};
use parking_lot::Mutex;

/// How long a model is not named again.
const QUIET: Millis = Millis::from_secs(60 * 60);
/// Models that are remembered; when there are more, it begins anew.
const MOST: usize = 256;

/// When each model was named last.
#[derive(Debug, Default)]
pub(crate) struct Unpriced(Mutex<HashMap<String, Time>>);

impl Unpriced {
    /// Whether a model is to be named now.
    pub(crate) fn is_due(&self, model: &str, now: Time) -> bool {
        let mut named = self.0.lock();
        if named.get(model).is_some_and(|at| now.since(*at) < QUIET) {
            return false;
        }
        if named.len() >= MOST {
            named.clear();
        }
        named.insert(model.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_named_once_an_hour() {
        let unpriced = Unpriced::default();
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
            assert_eq!(unpriced.is_due(model, Time(at)), expected, "{model} at {at}");
        }
    }

    #[test]
    fn the_memory_is_bounded() {
        let unpriced = Unpriced::default();
        for number in 0..3 * MOST {
            assert!(unpriced.is_due(&format!("m-{number}"), Time(0)));
        }
        assert!(unpriced.0.lock().len() <= MOST);
    }
}
