//! Stands beside the command until it is over: its own end, a stop, its time, or a person's signal,
//! whichever comes first; then ends whatever is left of its tree.

use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use deadstop_process::{Ended, Tree};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

use super::watch::News;

/// Two Ctrl-C within this time end everything.
const TWICE: Duration = Duration::from_secs(2);

/// What a person or the system may send us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Hangup,
    Interrupt,
    Quit,
    Terminate,
}

impl Sent {
    const ALL: [Sent; 4] = [Sent::Hangup, Sent::Interrupt, Sent::Quit, Sent::Terminate];

    pub(super) fn number(self) -> u8 {
        match self {
            Sent::Hangup => 1,
            Sent::Interrupt => 2,
            Sent::Quit => 3,
            Sent::Terminate => 15,
        }
    }

    fn kind(self) -> SignalKind {
        SignalKind::from_raw(i32::from(self.number()))
    }
}

/// Signals on their way to us. From the moment this is there, none of them ends us.
pub(super) struct Signals(Vec<(Sent, Signal)>);

impl Signals {
    /// Listens to all that are not ignored already: under `nohup`, or in a script's background, the
    /// command inherits that they are.
    pub(super) fn listen() -> io::Result<Signals> {
        let ignored = ignored();
        let wanted = Sent::ALL.into_iter().filter(|sent| ignored & 1 << (sent.number() - 1) == 0);
        wanted.map(|sent| Ok((sent, signal(sent.kind())?))).collect::<io::Result<_>>().map(Signals)
    }

    async fn next(&mut self) -> Sent {
        std::future::poll_fn(|context| {
            let sent = self.0.iter_mut().find_map(|(sent, signal)| {
                matches!(signal.poll_recv(context), Poll::Ready(Some(()))).then_some(*sent)
            });
            sent.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// Signals that are ignored, as bits, where the system tells.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Why a run was over.
#[derive(Debug)]
pub(super) enum Over {
    /// The command has ended by itself.
    Itself(ExitStatus),
    /// Its session was ended.
    Stopped(String),
    /// It has passed a limit that only we know of.
    Exceeded(String),
    /// Its time was over.
    OutOfTime,
    /// Deadstop itself got a signal; Ctrl-C counts the second time.
    Signal(Sent),
}

/// What was heard meanwhile.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) warnings: Vec<String>,
    pub(super) blocks: Vec<String>,
    pub(super) silence: bool,
}

impl Heard {
    /// Most sentences that are kept of one kind; the last ones tell the most.
    const MOST: usize = 50;

    /// Keeps what was told; gives back an end.
    pub(super) fn take(&mut self, news: News) -> Option<Over> {
        let (list, text) = match news {
            News::Ended(why) => return Some(Over::Stopped(why)),
            News::Exceeded(why) => return Some(Over::Exceeded(why)),
            News::Silence => {
                self.silence = true;
                return None;
            }
            News::Warned(text) => (&mut self.warnings, text),
            News::Blocked(text) => (&mut self.blocks, text),
        };
        if list.last() != Some(&text) {
            list.push(text);
        }
        if list.len() > Self::MOST {
            list.remove(0);
        }
        None
    }
}

/// The command and all that may end it.
pub(super) struct Supervisor {
    tree: Arc<Tree>,
    exit: oneshot::Receiver<io::Result<ExitStatus>>,
    pub(super) signals: Signals,
    pub(super) news: mpsc::UnboundedReceiver<News>,
    pub(super) heard: Heard,
}

impl Supervisor {
    pub(super) fn new(
        tree: Tree,
        signals: Signals,
        news: mpsc::UnboundedReceiver<News>,
    ) -> Supervisor {
        let tree = Arc::new(tree);
        let (tell, exit) = oneshot::channel();
        let waiting = Arc::clone(&tree);
        // A thread of its own: the runtime would wait for it, even if the command never ends.
        thread::spawn(move || tell.send(waiting.wait()));
        Supervisor { tree, exit, signals, news, heard: Heard::default() }
    }

    /// Waits until the run is over, for whatever reason. The tree may still be there.
    pub(super) async fn wait(&mut self, time: Option<Duration>) -> io::Result<Over> {
        let time_is_up = async {
            match time {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(time_is_up);
        let mut last = None;
        loop {
            tokio::select! {
                exit = &mut self.exit => {
                    return match exit {
                        Ok(status) => Ok(Over::Itself(status?)),
                        Err(_) => Err(io::Error::other("the thread that waits for the command has ended")),
                    };
                }
                Some(news) = self.news.recv() => {
                    if let Some(over) = self.heard.take(news) {
                        return Ok(over);
                    }
                }
                () = &mut time_is_up => return Ok(Over::OutOfTime),
                sent = self.signals.next() => match sent {
                    // It came from the keyboard to the command as well, which may do as it likes.
                    Sent::Interrupt | Sent::Quit => {
                        let now = Instant::now();
                        if last.is_some_and(|last| now.duration_since(last) <= TWICE) {
                            return Ok(Over::Signal(sent));
                        }
                        last = Some(now);
                    }
                    Sent::Hangup | Sent::Terminate => return Ok(Over::Signal(sent)),
                },
            }
        }
    }

    /// Ends what is left of the tree; any further signal cuts the grace short.
    pub(super) async fn end(&mut self, grace: Duration) -> io::Result<Ended> {
        let mut ending = end(&self.tree, grace);
        loop {
            tokio::select! {
                ended = &mut ending => {
                    return ended.unwrap_or_else(|_| Err(io::Error::other("the thread that ends the command has failed")));
                }
                _ = self.signals.next() => drop(end(&self.tree, Duration::ZERO)),
                Some(news) = self.news.recv() => {
                    let _ = self.heard.take(news);
                }
            }
        }
    }

    /// Hears what was told but not listened to yet.
    pub(super) fn listen(&mut self) {
        while let Ok(news) = self.news.try_recv() {
            let _ = self.heard.take(news);
        }
    }
}

fn end(tree: &Arc<Tree>, grace: Duration) -> oneshot::Receiver<io::Result<Ended>> {
    let (tell, ended) = oneshot::channel();
    let tree = Arc::clone(tree);
    thread::spawn(move || {
        let _ = tell.send(tree.end(grace));
    });
    ended
}
