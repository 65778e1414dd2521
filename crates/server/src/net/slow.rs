//! Clients that are too slow: a body that trickles in, and an answer that is not read.
//!
//! Both would hold a connection, its memory and its place among the calls in flight for as long as
//! the client likes. A body has a time limit as a whole, and more time as it arrives: a large file over a slow
//! line is no attack. An answer has a pace: while the client's
//! side of the connection is full, some of it must be read within each stretch of time. A model that
//! thinks for minutes is not cut by that: while there is nothing to send, nothing is late.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Bytes that a client must read in each stretch of time in which it keeps us waiting.
const LEAST: usize = 4096;

/// Bytes of a body that earn it another second.
const PACE: u64 = 16 * 1024;

/// A request's body with a time limit, and a second more for each 16 KiB of it. The limit begins when the body is
/// first waited for: most bodies have arrived with the head, and need no timer.
pub(crate) struct Timed<B> {
    body: B,
    limit: Duration,
    began: Option<Instant>,
    over: Option<Pin<Box<Sleep>>>,
    arrived: u64,
}

impl<B> Timed<B> {
    /// A body that must be here within `limit`.
    pub(crate) fn new(body: B, limit: Duration) -> Timed<B> {
        Timed { body, limit, began: None, over: None, arrived: 0 }
    }
}

impl<B> Body for Timed<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            if let Some(bytes) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
                self.arrived += bytes.len() as u64;
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)));
        }
        let began = *self.began.get_or_insert_with(Instant::now);
        let end = began + self.limit + Duration::from_secs(self.arrived / PACE);
        let over = self.over.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)));
        loop {
            ready!(over.as_mut().poll(context));
            if Instant::now() >= end {
                return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
            }
            over.as_mut().reset(end);
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection whose client must read what it is sent.
pub(super) struct Paced<S> {
    stream: S,
    stretch: Duration,
    late: Option<Late>,
    /// Whether the last write found the connection full.
    full: bool,
}

/// A stretch of time in which the client has kept us waiting.
struct Late {
    over: Pin<Box<Sleep>>,
    /// Bytes that went out in it.
    moved: usize,
}

impl<S> Paced<S> {
    pub(super) fn new(stream: S, stretch: Duration) -> Paced<S> {
        Paced { stream, stretch, late: None, full: false }
    }

    /// Notes that the connection is full; fails when the client has read too little for too long.
    fn wait(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.full = true;
        let stretch = self.stretch;
        let late = self
            .late
            .get_or_insert_with(|| Late { over: Box::pin(tokio::time::sleep(stretch)), moved: 0 });
        loop {
            ready!(late.over.as_mut().poll(context));
            if late.moved < LEAST {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            late.moved = 0;
            late.over.as_mut().reset(Instant::now() + stretch);
        }
    }

    /// Notes that something went out. Twice in a row without a full connection in between means that
    /// the client has caught up.
    fn went(&mut self, bytes: usize) {
        if !self.full {
            self.late = None;
        }
        self.full = false;
        if let Some(late) = &mut self.late {
            late.moved += bytes;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(context, bytes) {
            Poll::Ready(Ok(written)) => {
                self.went(written);
                Poll::Ready(Ok(written))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => self.wait(context),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const STRETCH: Duration = Duration::from_secs(60);

    /// Writes 64 KiB to a client that reads so many bytes a second; whether it arrives.
    async fn arrives(each_second: usize) -> bool {
        let (ours, mut theirs) = tokio::io::duplex(1024);
        let reader = tokio::spawn(async move {
            let mut read = vec![0; each_second.max(1)];
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if each_second > 0 && theirs.read_exact(&mut read).await.is_err() {
                    return;
                }
            }
        });
        let mut paced = Paced::new(ours, STRETCH);
        let written = paced.write_all(&vec![7; 64 << 10]).await;
        reader.abort();
        written.is_ok()
    }

    /// A body of 64 chunks, one a second.
    struct Dripping {
        each: usize,
        left: usize,
        next: Pin<Box<Sleep>>,
    }

    impl Body for Dripping {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
            if self.left == 0 {
                return Poll::Ready(None);
            }
            ready!(self.next.as_mut().poll(context));
            self.next.as_mut().reset(Instant::now() + Duration::from_secs(1));
            self.left -= 1;
            Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![7; self.each])))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_trickles_is_late_and_a_large_one_is_not() {
        let arrives = async |each: usize| {
            let next = Box::pin(tokio::time::sleep(Duration::from_secs(1)));
            let body = Dripping { each, left: 64, next };
            Timed::new(body, Duration::from_secs(10)).collect().await.is_ok()
        };
        assert!(!arrives(1).await);
        assert!(!arrives(12 * 1024).await);
        assert!(arrives(16 * 1024).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_cut_and_a_slow_one_is_not() {
        assert!(!arrives(0).await);
        assert!(!arrives(1).await);
        assert!(!arrives(40).await);
        assert!(arrives(100).await);
        assert!(arrives(1024).await);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_not_slowness() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let mut paced = Paced::new(ours, STRETCH);
        for _ in 0..5 {
            // Full for a moment, then nothing to say for an hour.
            let both = tokio::join!(paced.write_all(&[7; 100]), async {
                tokio::time::sleep(Duration::from_secs(50)).await;
                theirs.read_exact(&mut [0; 100]).await
            });
            assert!(both.0.is_ok() && both.1.is_ok());
            tokio::time::sleep(Duration::from_secs(3600)).await;
        }
    }
}
