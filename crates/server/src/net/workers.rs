//! One thread and one runtime per core, each with its own connections to upstreams.
//!
//! A call lives on one thread from its first byte to its last: reading, deciding, sending on and
//! passing back wake no other thread. That is worth more here than stealing work from a busy
//! neighbour, since no step of a call takes long.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::door::Lines;

/// The threads.
pub(super) struct Workers {
    workers: Vec<Worker>,
    next: AtomicUsize,
}

/// One of them.
pub(super) struct Worker {
    pub(super) handle: Handle,
    pub(super) lines: Arc<Lines>,
    /// The thread ends when this is dropped.
    _stop: oneshot::Sender<()>,
}

impl Workers {
    /// Starts a thread per core.
    pub(super) fn start() -> std::io::Result<Workers> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers: std::io::Result<Vec<Worker>> = (0..cores).map(|_| Worker::start()).collect();
        Ok(Workers { workers: workers?, next: AtomicUsize::new(0) })
    }

    /// Each in its turn.
    pub(super) fn next(&self) -> &Worker {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        &self.workers[next % self.workers.len()]
    }
}

impl Worker {
    fn start() -> std::io::Result<Worker> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let lines = {
            let _inside = runtime.enter();
            Arc::new(Lines::new())
        };
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::Builder::new().name("deadstop-calls".into()).spawn(move || {
            // Ends with an error when the other half is dropped, which is what is waited for.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Worker { handle, lines, _stop: stop })
    }
}
