//! How long an upstream takes: until the first piece of a stream, for metrics and for the stored call
//! alike, and until the end, for metrics.

use std::sync::Arc;
use std::time::Instant;

use deadstop_core::Millis;
use deadstop_warden::metrics::family::Exemplar;
use deadstop_warden::metrics::{Reply, Upstream};
use deadstop_warden::now;
use deadstop_warden::trace::CallSpan;

/// A request that was sent on. It is counted when it is dropped, whatever ended it.
pub(super) struct Watch {
    upstream: Arc<Upstream>,
    place: CallSpan,
    sent: Instant,
    /// Whether the answer is a stream that has not begun.
    waits: bool,
    how: Reply,
}

impl Watch {
    pub(super) fn new(upstream: Arc<Upstream>, place: CallSpan) -> Watch {
        let (sent, how) = (Instant::now(), Reply::Cancelled);
        Watch { upstream, place, sent, waits: false, how }
    }

    /// The upstream has answered.
    pub(super) fn answers(&mut self, how: Reply) {
        self.how = how;
    }

    /// The answer comes as a stream, which has not begun.
    pub(super) fn streams(&mut self) {
        self.waits = true;
    }

    /// A piece of the answer is there. Of the first piece of a stream it tells how long that took, to
    /// store it with the call.
    pub(super) fn begins(&mut self) -> Option<Millis> {
        if !std::mem::take(&mut self.waits) {
            return None;
        }
        let exemplar = self.exemplar();
        let took = Millis(u64::try_from(exemplar.took.as_millis()).unwrap_or(u64::MAX));
        self.upstream.began(exemplar);
        Some(took)
    }

    fn exemplar(&self) -> Exemplar {
        let CallSpan { trace, span, .. } = self.place;
        Exemplar { trace, span, took: self.sent.elapsed(), at: now() }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.upstream.answered(self.how, self.exemplar());
    }
}
