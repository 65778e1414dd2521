//! Threads for work that may wait for a server, so that an async executor does not.
//!
//! No runtime is needed: threads are started when they are needed, stay for a while and leave when
//! there is nothing to do.

use std::any::Any;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// How long an idle thread stays.
const STAYS: Duration = Duration::from_secs(10);

struct Work {
    jobs: VecDeque<Job>,
    idle: usize,
}

static WORK: Mutex<Work> = Mutex::new(Work { jobs: VecDeque::new(), idle: 0 });
static NEWS: Condvar = Condvar::new();

fn work() -> MutexGuard<'static, Work> {
    WORK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a job on another thread. The caller does not learn when it is done.
///
/// ```
/// let (done, wait) = std::sync::mpsc::channel();
/// deadstop_sdk::blocking::spawn(move || done.send(7).unwrap());
/// assert_eq!(wait.recv(), Ok(7));
/// ```
pub fn spawn(job: impl FnOnce() + Send + 'static) {
    let mut now = work();
    now.jobs.push_back(Box::new(job));
    if now.idle >= now.jobs.len() {
        NEWS.notify_one();
        return;
    }
    drop(now);
    let thread = std::thread::Builder::new().name("deadstop-asks".to_owned());
    if thread.spawn(labour).is_err() {
        // The system has no thread left: the caller's own does the work.
        let job = work().jobs.pop_front();
        job.into_iter().for_each(|job| job());
    }
}

/// Runs work on another thread; await what comes of it. Dropping the future does not stop the work.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// assert_eq!(deadstop_sdk::blocking::run(|| 6 * 7).await, 42);
/// # }
/// ```
pub fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Blocking<T> {
    let slot = Arc::new(Mutex::new(Slot::Waiting(None)));
    let filled = Arc::clone(&slot);
    spawn(move || {
        // A panic reaches the task that awaits the result.
        let done = catch_unwind(AssertUnwindSafe(work));
        let mut slot = filled.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *slot, Slot::Done(done));
        drop(slot);
        if let Slot::Waiting(Some(waker)) = before {
            waker.wake();
        }
    });
    Blocking { slot }
}

/// Work on another thread.
#[must_use = "what comes of the work is learned by awaiting it"]
pub struct Blocking<T> {
    slot: Arc<Mutex<Slot<T>>>,
}

enum Slot<T> {
    Waiting(Option<Waker>),
    Done(Result<T, Box<dyn Any + Send>>),
}

impl<T> std::fmt::Debug for Blocking<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Blocking")
    }
}

impl<T> Future for Blocking<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = Slot::Waiting(Some(context.waker().clone()));
        match std::mem::replace(&mut *slot, waiting) {
            Slot::Waiting(_) => Poll::Pending,
            Slot::Done(Ok(done)) => Poll::Ready(done),
            Slot::Done(Err(panic)) => resume_unwind(panic),
        }
    }
}

fn labour() {
    let mut now = work();
    loop {
        if let Some(job) = now.jobs.pop_front() {
            drop(now);
            // A job that panics does not take the thread with it.
            let _ = catch_unwind(AssertUnwindSafe(job));
            now = work();
            continue;
        }
        now.idle += 1;
        let (back, waited) = NEWS.wait_timeout(now, STAYS).unwrap_or_else(PoisonError::into_inner);
        now = back;
        now.idle -= 1;
        if waited.timed_out() && now.jobs.is_empty() {
            return;
        }
    }
}
