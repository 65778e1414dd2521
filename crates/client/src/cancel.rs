//! Ends a request that waits for a server, from another thread.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Cancels the requests of a [`Client`](crate::Client). It works once: later requests fail as well.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    cancelled: bool,
    /// The socket of the request that waits.
    socket: Option<TcpStream>,
}

impl Cancel {
    /// Cancels: a request that waits fails at once.
    pub fn cancel(&self) {
        let mut waiting = self.waiting();
        waiting.cancelled = true;
        if let Some(socket) = waiting.socket.take() {
            // It may have been closed meanwhile, which is just as well.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Whether it was used.
    pub fn is_cancelled(&self) -> bool {
        self.waiting().cancelled
    }

    /// A request begins to wait on this socket.
    pub(crate) fn watch(&self, socket: &TcpStream) -> io::Result<()> {
        // A client that is never cancelled has no second owner of its `Cancel`: no need to look.
        if Arc::strong_count(&self.0) == 1 {
            return Ok(());
        }
        let mut waiting = self.waiting();
        if waiting.cancelled {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "cancelled"));
        }
        waiting.socket = Some(socket.try_clone()?);
        Ok(())
    }

    /// The request has its answer.
    pub(crate) fn forget(&self) {
        self.waiting().socket = None;
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
