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

/// What waits to be told, and whether something was stopped.
pub(crate) struct Trips {
    waiting: Mutex<Vec<Value>>,
    any: AtomicBool,
    home: ThreadId,
    wake: Option<Wake>,
}

impl Trips {
    /// The function is what other threads call. It must not keep the process running, so it is held weakly.
    pub(crate) fn new(wake: Option<Function<'_, (), ()>>) -> Result<Trips> {
        let wake = match wake {
            Some(wake) => Some(
                wake.build_threadsafe_function::<()>()
                    .weak::<true>()
                    .callee_handled::<false>()
                    .build()?,
            ),
            None => None,
        };
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
        self.wake();
    }

    /// Has Node look what is new. On Node's own thread the caller looks, by the flags that it gets.
    pub(crate) fn wake(&self) {
        self.any.store(true, Ordering::Release);
        if let Some(wake) = &self.wake
            && std::thread::current().id() != self.home
        {
            wake.call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
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
