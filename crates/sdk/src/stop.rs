//! A signal that tells the code which runs a call to stop, on any thread.
//!
//! No runtime is needed: blocking code asks or waits, a future is woken, and code that can only be
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

/// A signal that is given once, and stays given.
///
/// ```
/// use deadstop_sdk::Session;
/// let session = Session::builder("coder").open()?;
/// let stop = session.stop_signal();
/// assert!(!stop.is_stopped());
/// session.kill("enough");
/// assert!(stop.is_stopped());
/// # Ok::<(), deadstop_sdk::OpenError>(())
/// ```
#[derive(Clone, Default)]
pub struct StopSignal(Arc<Inner>);

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

impl StopSignal {
    /// Whether it was given.
    pub fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }

    /// Waits for it, at most so long. Returns whether it was given.
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

    /// A future that is ready when it was given.
    pub fn stopped(&self) -> Stopped {
        Stopped { stop: self.clone(), watch: None }
    }

    /// Calls a function when it is given, on the thread that gives it; at once if it was given.
    /// Dropping the watch forgets the function.
    ///
    /// ```
    /// use std::sync::{Arc, atomic::{AtomicBool, Ordering}};
    /// let session = deadstop_sdk::Session::builder("coder").open()?;
    /// let seen = Arc::new(AtomicBool::new(false));
    /// let watch = session.stop_signal().on_stop({
    ///     let seen = Arc::clone(&seen);
    ///     move || seen.store(true, Ordering::SeqCst)
    /// });
    /// session.kill("enough");
    /// assert!(seen.load(Ordering::SeqCst));
    /// # drop(watch);
    /// # Ok::<(), deadstop_sdk::OpenError>(())
    /// ```
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

    /// Gives it. Callbacks run on this thread, without any lock; a panic in one is contained.
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

/// Gives a signal when it is dropped: the code that held it has left.
#[derive(Debug)]
pub(crate) struct StopOnDrop(StopSignal);

impl StopOnDrop {
    /// The holder, and the signal.
    pub(crate) fn new() -> (StopOnDrop, StopSignal) {
        let signal = StopSignal::default();
        (StopOnDrop(signal.clone()), signal)
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn quietly(callback: Callback) {
    // No state of ours is half changed while the callback runs.
    let _ = catch_unwind(AssertUnwindSafe(callback));
}

impl fmt::Debug for StopSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopSignal").field("stopped", &self.is_stopped()).finish()
    }
}

/// A callback that waits for a stop signal.
#[derive(Debug)]
pub struct Watch {
    stop: StopSignal,
    number: u64,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let callback = self.stop.waiting().callbacks.remove(&self.number);
        // Dropped without the lock: it may own anything.
        drop(callback);
    }
}

/// Ready when a stop signal was given.
#[derive(Debug)]
pub struct Stopped {
    stop: StopSignal,
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
    fn each_watcher_is_told_once() {
        let (stop, told) = (StopSignal::default(), Arc::new(AtomicU32::new(0)));
        let count = |told: &Arc<AtomicU32>| {
            let told = Arc::clone(told);
            move || {
                told.fetch_add(1, Ordering::SeqCst);
            }
        };
        let _kept = stop.on_stop(count(&told));
        drop(stop.on_stop(count(&told)));
        let _bad = stop.on_stop(|| panic!("a callback that fails"));
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
        let stop = StopSignal::default();
        let waiting = tokio::spawn(stop.stopped());
        tokio::task::yield_now().await;
        stop.stop();
        waiting.await.unwrap();
        stop.stopped().await;
    }
}
