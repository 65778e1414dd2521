//! What the tests share: both ends of the gateway, the dialects, and a server between them.

pub(crate) mod both;
pub(crate) mod client;
pub(crate) mod dialect;
pub(crate) mod dice;
pub(crate) mod upstream;
pub(crate) mod wire;

pub(crate) use crate::gate::Gate;
pub(crate) use client::{Ask, Got};
pub(crate) use dialect::{ALL, Said, Speech, Turn};
pub(crate) use dice::Dice;
pub(crate) use upstream::{Reply, Seen, Step, Upstream};

use std::time::Duration;

/// Whether there is time for the long versions.
pub(crate) fn soak() -> bool {
    std::env::var_os("DEADSTOP_SOAK").is_some_and(|value| value != "0")
}

/// `short` in an ordinary run, `long` when there is time.
pub(crate) fn rounds(short: usize, long: usize) -> usize {
    if soak() { long } else { short }
}

/// Tests that load the machine come one after the other, also those in other processes.
pub(crate) async fn heavy() -> std::fs::File {
    let lock = || {
        let file = std::fs::File::create(concat!(env!("CARGO_TARGET_TMPDIR"), "/heavy"))?;
        file.lock()?;
        Ok::<_, std::io::Error>(file)
    };
    tokio::task::spawn_blocking(lock).await.unwrap().unwrap()
}

/// Longer than anything takes that works, on a machine that is busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for something that must come; fails with its name if it does not.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: waited {PATIENCE:?} for nothing"),
    }
}

/// Asks until the answer is yes.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut asked: impl FnMut() -> F) {
    soon(what, async {
        while !asked().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// The value below which `part` of 100 lie, in milliseconds.
pub(crate) fn percentile(times: &mut [Duration], part: usize) -> f64 {
    times.sort();
    let at = (times.len() * part).div_ceil(100).clamp(1, times.len()) - 1;
    times[at].as_secs_f64() * 1000.0
}
