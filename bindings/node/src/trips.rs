//! Trips on their way to observers, which run on Node's thread only.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

use deadstop_sdk::Why;
use napi::bindgen_prelude::Function;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Result, Status};
use serde_json::{Value, json};

/// Trips that are told when no more than this many wait.
const MOST: usize = 1000;

type Wake = ThreadsafeFunction<(), (), (), Status, false, true>;

/// What waits to be told.
pub(crate) struct Trips {
    waiting: Mutex<Vec<Value>>,
    any: AtomicBool,
    home: ThreadId,
    wake: Wake,
}

impl Trips {
    /// The function must not keep the process running, so it is held weakly.
    pub(crate) fn new(wake: &Function<'_, (), ()>) -> Result<Trips> {
        let wake = wake
            .build_threadsafe_function::<()>()
            .weak::<true>()
            .callee_handled::<false>()
            .build()?;
        Ok(Trips {
            waiting: Mutex::default(),
            any: AtomicBool::new(false),
            home: std::thread::current().id(),
            wake,
        })
    }

    pub(crate) fn add(&self, observer: u32, why: &Why) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < MOST {
            waiting.push(json!({ "observer": observer, "why": why }));
        }
        drop(waiting);
        self.any.store(true, Ordering::Release);
        // On Node's own thread the caller looks for them.
        if std::thread::current().id() != self.home {
            self.wake();
        }
    }

    /// Has Node look what is new.
    pub(crate) fn wake(&self) {
        self.wake.call((), ThreadsafeFunctionCallMode::NonBlocking);
    }

    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    pub(crate) fn take(&self) -> Value {
        self.any.store(false, Ordering::Release);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        Value::Array(std::mem::take(&mut *waiting))
    }
}
