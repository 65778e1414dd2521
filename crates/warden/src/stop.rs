//! What may stop a call from outside: a kill of one of its scopes, or the server's end.
//!
//! A call asks before every chunk of its answer, so asking only loads a flag of each signal. The call leaves
//! its waker with them once. All calls of a project share its signal, on every thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use smallvec::SmallVec;

/// Seats that stay allocated once no call waits any more.
const SPARE: usize = 64;

/// A signal that is given once, to all calls that wait for it.
#[derive(Debug, Default)]
pub struct Stop {
    given: AtomicBool,
    waiting: Mutex<Waiting>,
}

/// The wakers of waiting calls, each in a seat of its own. Free seats form a list.
#[derive(Debug, Default)]
struct Waiting {
    seats: Vec<Seat>,
    /// The first free seat; the next new one if none is free.
    free: usize,
    taken: usize,
}

#[derive(Debug)]
enum Seat {
    Taken(Waker),
    /// Free, with the next free one.
    Free(usize),
}

impl Stop {
    /// Gives the signal, for good.
    pub fn give(&self) {
        let mut waiting = self.waiting.lock();
        self.given.store(true, Ordering::Release);
        let seats = std::mem::take(&mut waiting.seats);
        drop(waiting);
        for seat in seats {
            if let Seat::Taken(waker) = seat {
                waker.wake();
            }
        }
    }

    /// Whether it was given.
    pub fn is_given(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }

    /// Takes a seat for a waker; `None` if the signal was given.
    fn join(&self, waker: Waker) -> Option<usize> {
        let mut waiting = self.waiting.lock();
        if self.is_given() {
            return None;
        }
        let Waiting { seats, free, taken } = &mut *waiting;
        let at = *free;
        match seats.get_mut(at) {
            Some(seat) => {
                *free = match std::mem::replace(seat, Seat::Taken(waker)) {
                    Seat::Free(next) => next,
                    Seat::Taken(_) => at + 1,
                };
            }
            None => {
                seats.push(Seat::Taken(waker));
                *free = seats.len();
            }
        }
        *taken += 1;
        Some(at)
    }

    /// Leaves a seat. After the signal was given there are none.
    fn leave(&self, at: usize) {
        let mut waiting = self.waiting.lock();
        if self.is_given() {
            return;
        }
        let Waiting { seats, free, taken } = &mut *waiting;
        let Some(seat) = seats.get_mut(at) else { return };
        let left = std::mem::replace(seat, Seat::Free(*free));
        (*free, *taken) = (at, *taken - 1);
        if *taken == 0 && seats.len() > SPARE {
            *waiting = Waiting::default();
        }
        drop(waiting);
        // The last handle to a task frees it, which needs no lock.
        drop(left);
    }
}

/// The signals that a call in flight listens to.
#[derive(Debug)]
pub struct Stops {
    signals: SmallVec<[Arc<Stop>; 5]>,
    /// Its seat at each of them, once it was told to wait.
    seats: SmallVec<[usize; 5]>,
    /// The task that the signals wake.
    told: Option<Waker>,
}

impl Stops {
    /// All of these signals.
    pub fn new(signals: impl IntoIterator<Item = Arc<Stop>>) -> Stops {
        Stops { signals: signals.into_iter().collect(), seats: SmallVec::new(), told: None }
    }

    /// The same signals and another one.
    #[must_use]
    pub fn and(mut self, signal: Arc<Stop>) -> Stops {
        self.leave();
        self.told = None;
        self.signals.push(signal);
        self
    }

    /// Whether one of the signals was given.
    pub fn is_given(&self) -> bool {
        self.signals.iter().any(|signal| signal.is_given())
    }

    /// Ready when one of the signals was given.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_given() {
            return Poll::Ready(());
        }
        let waker = context.waker();
        if self.told.as_ref().is_some_and(|told| told.will_wake(waker)) {
            return Poll::Pending;
        }
        self.leave();
        self.told = Some(waker.clone());
        for signal in &self.signals {
            // One that was given since the look above is ready here.
            let Some(seat) = signal.join(waker.clone()) else { return Poll::Ready(()) };
            self.seats.push(seat);
        }
        Poll::Pending
    }

    /// Waits until one of the signals was given.
    pub async fn given(&mut self) {
        std::future::poll_fn(|context| self.poll(context)).await;
    }

    fn leave(&mut self) {
        for (signal, seat) in self.signals.iter().zip(self.seats.drain(..)) {
            signal.leave(seat);
        }
    }
}

impl Drop for Stops {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Task>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll(stops: &mut Stops, task: &Arc<Task>) -> bool {
        let waker = Waker::from(Arc::clone(task));
        stops.poll(&mut Context::from_waker(&waker)).is_ready()
    }

    #[test]
    fn any_signal_wakes_the_task_that_asked_last() {
        for given in 0..3 {
            let signals = [(); 3].map(|()| Arc::<Stop>::default());
            let mut stops = Stops::new(signals.clone());
            let (first, last) = (Arc::<Task>::default(), Arc::<Task>::default());
            for task in [&first, &first, &last, &last] {
                assert!(!poll(&mut stops, task));
            }
            signals[given].give();
            assert_eq!([&first, &last].map(|task| task.0.load(Ordering::Relaxed)), [0, 1]);
            assert!(poll(&mut stops, &last) && poll(&mut stops, &first));
        }
    }

    #[test]
    fn a_signal_from_before_counts() {
        let signal = Arc::<Stop>::default();
        let mut stops = Stops::new([Arc::default(), Arc::clone(&signal)]);
        signal.give();
        assert!(stops.is_given() && poll(&mut stops, &Arc::default()));
    }

    #[test]
    fn calls_come_and_go_and_only_those_that_wait_are_woken() {
        let (signal, task) = (Arc::<Stop>::default(), Arc::<Task>::default());
        let call = || {
            let mut stops = Stops::new([Arc::clone(&signal)]);
            assert!(!poll(&mut stops, &task));
            stops
        };
        let mut calls: Vec<Stops> = (0..2 * SPARE).map(|_| call()).collect();
        // Every second one leaves, and some come after that.
        let mut at = 0;
        calls.retain(|_| {
            at += 1;
            at % 2 == 0
        });
        calls.extend((0..10).map(|_| call()));
        let seats = signal.waiting.lock().seats.len();
        assert_eq!(seats, 2 * SPARE, "a seat that was left is taken again");
        signal.give();
        assert_eq!(task.0.load(Ordering::Relaxed), SPARE + 10);
        assert!(calls.iter().all(Stops::is_given));
        drop(calls);
        let late = Stops::new([Arc::clone(&signal)]);
        assert!(late.is_given());
    }

    #[test]
    fn seats_are_freed_when_all_calls_have_left() {
        let (signal, task) = (Arc::<Stop>::default(), Arc::<Task>::default());
        let mut calls: Vec<Stops> =
            (0..3 * SPARE).map(|_| Stops::new([Arc::clone(&signal)])).collect();
        for stops in &mut calls {
            assert!(!poll(stops, &task));
        }
        drop(calls);
        assert_eq!(signal.waiting.lock().seats.capacity(), 0);
        assert_eq!(Arc::strong_count(&task), 1, "no waker is kept");
    }
}
