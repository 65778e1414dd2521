//! How long an upstream takes, for the metrics: until the first piece of a stream, and until the end.

use std::sync::Arc;
use std::time::Instant;

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
    pub(super) fn new(upstream: Arc<Upstream>, place: CallSpan, streams: bool) -> Watch {
        let (sent, how) = (Instant::now(), Reply::Cancelled);
        Watch { upstream, place, sent, waits: streams, how }
    }

    /// The upstream has answered.
    pub(super) fn answers(&mut self, how: Reply) {
        self.how = how;
    }

    /// A piece of the answer is there.
    pub(super) fn begins(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.upstream.began(self.exemplar());
        }
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
