//! A stop that whoever runs a call can see, wait for, or be told of, on any thread.
//!
//! No runtime is needed: a blocking call asks or waits, a future is woken, and whoever can only be
//! interrupted from outside (a socket, another language's task) leaves a callback.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

type Callback = Box<dyn FnOnce() + Send>;

/// A stop that comes once, and stays.
///
/// ```
/// use deadstop_sdk::Session;
/// let session = Session::builder("coder").open()?;
/// let stop = session.stop();
/// assert!(!stop.is_stopped());
/// session.kill("enough");
/// assert!(stop.is_stopped());
/// # Ok::<(), deadstop_sdk::OpenError>(())
/// ```
#[derive(Clone, Default)]
pub struct Stop(Arc<Inner>);

#[derive(Default)]
struct Inner {
    stopped: AtomicBool,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    next: u64,
    callbacks: BTreeMap<u64, Callback>,
}

impl Stop {
    /// Whether it has come.
    pub fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }

    /// Waits for it, at most so long; whether it has come.
    pub fn wait(&self, most: Duration) -> bool {
        let until = Instant::now() + most;
        let mut waiting = self.waiting();
        while !self.is_stopped() {
            let Some(left) = until.checked_duration_since(Instant::now()) else { return false };
            let woken = self.0.changed.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Done when it has come.
    pub fn stopped(&self) -> Stopped {
        Stopped { stop: self.clone(), watch: None }
    }

    /// Has a function called when it comes, on the thread that stops; at once if it has come. Who
    /// drops the watch is not called any more.
    #[must_use = "a watch that is dropped is not called"]
    pub fn on_stop(&self, callback: impl FnOnce() + Send + 'static) -> Watch {
        let mut waiting = self.waiting();
        let number = waiting.next;
        waiting.next += 1;
        if self.is_stopped() {
            drop(waiting);
            quietly(Box::new(callback));
        } else {
            waiting.callbacks.insert(number, Box::new(callback));
        }
        Watch { stop: self.clone(), number }
    }

    /// Stops. Callbacks run on this thread, without any lock; one that panics hurts nobody.
    pub(crate) fn stop(&self) {
        let mut waiting = self.waiting();
        if self.0.stopped.swap(true, Ordering::AcqRel) {
            return;
        }
        let callbacks = std::mem::take(&mut waiting.callbacks);
        drop(waiting);
        self.0.changed.notify_all();
        callbacks.into_values().for_each(quietly);
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn quietly(callback: Callback) {
    // Nothing of ours is half changed while somebody else's code runs.
    let _ = catch_unwind(AssertUnwindSafe(callback));
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stop").field("stopped", &self.is_stopped()).finish()
    }
}

/// A callback that waits for a stop.
#[derive(Debug)]
pub struct Watch {
    stop: Stop,
    number: u64,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let callback = self.stop.waiting().callbacks.remove(&self.number);
        // Dropped without the lock: it may own anything.
        drop(callback);
    }
}

/// Done when a stop has come.
#[derive(Debug)]
pub struct Stopped {
    stop: Stop,
    watch: Option<Watch>,
}

impl Future for Stopped {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if !self.stop.is_stopped() {
            let waker = context.waker().clone();
            self.watch = Some(self.stop.on_stop(move || waker.wake()));
        }
        match self.stop.is_stopped() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn everybody_who_waits_is_told_once() {
        let (stop, told) = (Stop::default(), Arc::new(AtomicU32::new(0)));
        let count = |told: &Arc<AtomicU32>| {
            let told = Arc::clone(told);
            move || {
                told.fetch_add(1, Ordering::SeqCst);
            }
        };
        let _kept = stop.on_stop(count(&told));
        drop(stop.on_stop(count(&told)));
        let _bad = stop.on_stop(|| panic!("a callback of somebody else"));
        let waiting = std::thread::spawn({
            let stop = stop.clone();
            move || stop.wait(Duration::from_secs(60))
        });
        assert!(!stop.wait(Duration::ZERO));
        stop.stop();
        stop.stop();
        assert!(waiting.join().unwrap());
        assert_eq!(told.load(Ordering::SeqCst), 1);
        let _late = stop.on_stop(count(&told));
        assert_eq!(told.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_future_is_woken() {
        let stop = Stop::default();
        let waiting = tokio::spawn(stop.stopped());
        tokio::task::yield_now().await;
        stop.stop();
        waiting.await.unwrap();
        stop.stopped().await;
    }
}
