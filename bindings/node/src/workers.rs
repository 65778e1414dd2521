//! Threads for what may wait for a server, so that neither the event loop nor Node's own few
//! threads do. They are made when they are needed and leave when nothing is to be done.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// How long a thread without work stays.
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

/// Runs something on another thread.
pub(crate) fn run(job: impl FnOnce() + Send + 'static) {
    let mut now = work();
    now.jobs.push_back(Box::new(job));
    if now.idle >= now.jobs.len() {
        NEWS.notify_one();
        return;
    }
    drop(now);
    let thread = std::thread::Builder::new().name("deadstop-asks".to_owned());
    if thread.spawn(labour).is_err() {
        // No thread to be had: better late than never.
        let job = work().jobs.pop_front();
        job.into_iter().for_each(|job| job());
    }
}

fn labour() {
    let mut now = work();
    loop {
        if let Some(job) = now.jobs.pop_front() {
            drop(now);
            job();
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
