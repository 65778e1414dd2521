//! When to try again.

use deadstop_core::Millis;

/// Tries after which a message is given up: about a day.
pub const MOST_ATTEMPTS: u32 = 30;
/// The first wait.
const FIRST: u64 = 5_000;
/// The longest wait.
const LONGEST: u64 = 3_600_000;

/// How long to wait after so many failed attempts: twice as long each time, up to an hour, of which
/// half is chance, so that what failed together is not tried again together. None when it is time
/// to give up. `jitter` is a random number from 0 to 1.
///
/// ```
/// use deadstop_alerts::backoff;
/// use deadstop_core::Millis;
/// assert_eq!(backoff(1, 0.0), Some(Millis(2_500)));
/// assert_eq!(backoff(1, 1.0), Some(Millis(5_000)));
/// assert_eq!(backoff(99, 0.5), None);
/// ```
pub fn backoff(failed: u32, jitter: f64) -> Option<Millis> {
    if failed >= MOST_ATTEMPTS {
        return None;
    }
    let doublings = failed.saturating_sub(1).min(20);
    let wait = (FIRST << doublings).min(LONGEST);
    let jitter = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 1.0 };
    let half = wait / 2;
    Some(Millis(half + ((wait - half) as f64 * jitter) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_end() {
        let waits: Vec<u64> = (1..MOST_ATTEMPTS).map(|n| backoff(n, 1.0).unwrap().0).collect();
        assert!(waits.is_sorted());
        assert_eq!(waits.last(), Some(&LONGEST));
        let hours = waits.iter().sum::<u64>() / 3_600_000;
        assert!((18..30).contains(&hours), "{hours}");
        for odd in [f64::NAN, -1.0, 7.0, f64::INFINITY] {
            assert!((2_500..=5_000).contains(&backoff(1, odd).unwrap().0));
        }
        assert_eq!(backoff(0, 1.0), Some(Millis(5_000)));
    }
}
