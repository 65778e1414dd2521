//! What may stop a call from outside: a kill of one of its scopes, or the server's end.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// The signals that a call in flight listens to. It asks before every chunk of an answer, so it is told
/// to wait once, and afterwards only looks whether one was given.
pub(super) struct Stops {
    signals: Vec<CancellationToken>,
    waits: Vec<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// The task that the signals wake.
    told: Option<Waker>,
}

impl Stops {
    pub(super) fn new(signals: impl IntoIterator<Item = CancellationToken>) -> Stops {
        Stops { signals: signals.into_iter().collect(), waits: Vec::new(), told: None }
    }

    /// Ready when one of the signals was given.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.signals.iter().any(CancellationToken::is_cancelled) {
            return Poll::Ready(());
        }
        let waker = context.waker();
        if self.told.as_ref().is_some_and(|told| told.will_wake(waker)) {
            return Poll::Pending;
        }
        self.told = Some(waker.clone());
        if self.waits.is_empty() {
            let wait = |signal: &CancellationToken| Box::pin(signal.clone().cancelled_owned());
            self.waits = self.signals.iter().map(wait).collect();
        }
        // One that was given since the look above is ready here.
        let given = self.waits.iter_mut().any(|wait| wait.as_mut().poll(context).is_ready());
        if given { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
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
            let signals = [(); 3].map(|()| CancellationToken::new());
            let mut stops = Stops::new(signals.clone());
            let (first, last) = (Arc::<Task>::default(), Arc::<Task>::default());
            for task in [&first, &first, &last, &last] {
                assert!(!poll(&mut stops, task));
            }
            signals[given].cancel();
            assert_eq!([&first, &last].map(|task| task.0.load(Ordering::Relaxed)), [0, 1]);
            assert!(poll(&mut stops, &last) && poll(&mut stops, &first));
        }
    }

    #[test]
    fn a_signal_from_before_counts() {
        let signal = CancellationToken::new();
        let mut stops = Stops::new([CancellationToken::new(), signal.clone()]);
        signal.cancel();
        assert!(poll(&mut stops, &Arc::default()));
    }
}
