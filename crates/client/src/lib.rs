//! A small blocking client of the govern API: for hooks, SDKs and stdio wrappers, which start often
//! and must not wait for a runtime.
//!
//! It speaks HTTP itself rather than through a library such as `ureq`, because a kill must end a
//! request that waits for a hung server at once: [`Cancel`] shuts the request's socket.
//!
//! ```no_run
//! use deadstop_client::{Client, Proposal, ProposedCall, Server};
//! use serde_json::json;
//! let client = Client::new(&Server::from_env()?)?;
//! let call = ProposedCall {
//!     id: "t1".to_owned(),
//!     tool: "delete_asset".to_owned(),
//!     arguments: json!({ "asset_id": "fact_sales" }),
//!     ..ProposedCall::default()
//! };
//! let proposal = Proposal { calls: vec![call], ..Proposal::default() };
//! let decided = client.propose("janitor", "s1", &proposal)?;
//! assert!(decided[0].allowed);
//! # Ok::<(), deadstop_client::ClientError>(())
//! ```

mod cancel;
mod error;
mod http;
mod line;
mod server;
mod trust;

use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use cancel::Cancel;
pub use deadstop_protocol::govern::{
    Decided, DecidedAll, Ended, Opened, Opening, Preflight, Proposal, ProposedCall, Receipt,
    Refusal, Report, Spoken, Used,
};
pub use error::ClientError;
pub use server::{Key, Server, USUAL};
pub use trust::{BadTrust, Trust, UNTRUSTED, is_untrusted};

use http::Pool;

/// The longest `traceparent`: today's have 55 bytes, and later versions may add to them.
const LONGEST_TRACE: usize = 256;

/// How long the parts of a request may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Until the server is reached.
    pub connect: Duration,
    /// Until its whole answer has arrived.
    pub answer: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { connect: Duration::from_secs(5), answer: Duration::from_secs(30) }
    }
}

/// An answer as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raw {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: String,
    /// The server's clock, as its `date` header says.
    pub date: Option<String>,
}

/// Talks to one server, over connections that stay open. Several threads may share it, and clones
/// share its connections.
#[derive(Debug, Clone)]
pub struct Client {
    pool: Arc<Pool>,
    cancel: Cancel,
    trace: Option<Arc<str>>,
}

impl Client {
    /// A client for a server. Nothing is sent yet.
    pub fn new(server: &Server) -> Result<Client, ClientError> {
        Client::patient(server, Patience::default())
    }

    /// A client that waits no longer than this.
    pub fn patient(server: &Server, patience: Patience) -> Result<Client, ClientError> {
        let pool = Arc::new(Pool::new(server, patience)?);
        Ok(Client { pool, cancel: Cancel::default(), trace: None })
    }

    /// The same client, whose requests end when `cancel` is used.
    ///
    /// ```
    /// use deadstop_client::{Cancel, Client, ClientError, Server};
    /// let cancel = Cancel::default();
    /// let client = Client::new(&Server::at("http://127.0.0.1:1"))?.cancelled_by(&cancel);
    /// cancel.cancel(); // from any thread, also while a request waits
    /// assert!(matches!(client.get("/api/health"), Err(ClientError::Cancelled)));
    /// # Ok::<(), ClientError>(())
    /// ```
    #[must_use]
    pub fn cancelled_by(&self, cancel: &Cancel) -> Client {
        Client { cancel: cancel.clone(), ..self.clone() }
    }

    /// The same client, whose requests are about calls in this span: a `traceparent` of W3C Trace Context. What
    /// can be none is not sent: another program may have made it up, and a header must not break a request.
    #[must_use]
    pub fn in_trace(&self, trace: Option<&str>) -> Client {
        let fits = |trace: &&str| {
            trace.len() <= LONGEST_TRACE && trace.bytes().all(|byte| byte.is_ascii_graphic())
        };
        Client { trace: trace.filter(fits).map(Arc::from), ..self.clone() }
    }

    /// Opens a session, or learns that it is dead. Without a name the server makes one up; `said` is
    /// what a person has just said to it.
    pub fn open(
        &self,
        agent: &str,
        session: Option<&str>,
        said: Option<&str>,
    ) -> Result<Opened, ClientError> {
        self.open_with(&Opening {
            agent: agent.to_owned(),
            session: session.map(str::to_owned),
            said: said.map(str::to_owned),
            ..Opening::default()
        })
    }

    /// Opens a session or a nested scope in it, with all that can be told about it.
    pub fn open_with(&self, opening: &Opening) -> Result<Opened, ClientError> {
        self.post("/api/sessions", opening)
    }

    /// May this model call be made?
    pub fn preflight(
        &self,
        agent: &str,
        session: &str,
        call: &Preflight,
    ) -> Result<Decided, ClientError> {
        self.decide(agent, session, "preflight", call)
    }

    /// May these tool calls be made? Each is decided by itself.
    pub fn propose(
        &self,
        agent: &str,
        session: &str,
        proposal: &Proposal,
    ) -> Result<Vec<Decided>, ClientError> {
        let DecidedAll { calls } = self.post(&path(agent, session, "proposal"), proposal)?;
        match calls.len() == proposal.calls.len() {
            true => Ok(calls),
            false => Err(ClientError::Malformed("it decided about other calls".to_owned())),
        }
    }

    /// May this call go on?
    pub fn progress(
        &self,
        agent: &str,
        session: &str,
        report: &Report,
    ) -> Result<Decided, ClientError> {
        self.decide(agent, session, "progress", report)
    }

    /// This call has ended. If the receipt says `wait`, what it cost is on disk when this returns.
    pub fn receipt(
        &self,
        agent: &str,
        session: &str,
        receipt: &Receipt,
    ) -> Result<Decided, ClientError> {
        self.decide(agent, session, "receipt", receipt)
    }

    /// Any other question: JSON in, JSON out.
    pub fn get(&self, path: &str) -> Result<Value, ClientError> {
        read(&self.ask("GET", path, None)?)
    }

    /// Any other order.
    pub fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).unwrap_or_default();
        read(&self.ask("POST", path, Some(&body))?)
    }

    /// Sends any request, and gives back the answer as it came.
    pub fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Raw, ClientError> {
        let body = body.map(Value::to_string);
        let body = body.as_deref().map(str::as_bytes);
        let reply = self.ask(method, path, body)?;
        let http::Reply { status, body, date } = reply;
        Ok(Raw { status, body: String::from_utf8_lossy(&body).into_owned(), date })
    }

    fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
    ) -> Result<http::Reply, ClientError> {
        let asked = http::Asked { method, path, body, trace: self.trace.as_deref() };
        self.pool.send(asked, &self.cancel)
    }

    /// A refusal that says what was decided is an answer, not an error.
    fn decide(
        &self,
        agent: &str,
        session: &str,
        what: &str,
        body: &impl Serialize,
    ) -> Result<Decided, ClientError> {
        match self.post(&path(agent, session, what), body) {
            Err(ClientError::Refused(mut refusal)) => match refusal.decision.take() {
                Some(decision) => Ok(decision),
                None => Err(ClientError::Refused(refusal)),
            },
            other => other,
        }
    }
}

fn read<T: DeserializeOwned>(reply: &http::Reply) -> Result<T, ClientError> {
    if (200..300).contains(&reply.status) {
        let body: &[u8] = if reply.body.is_empty() { b"null" } else { &reply.body };
        return serde_json::from_slice(body)
            .map_err(|_| ClientError::Malformed("its answer is not of our API".to_owned()));
    }
    match serde_json::from_slice::<Refusal>(&reply.body) {
        Ok(refusal) => Err(ClientError::Refused(Box::new(refusal))),
        Err(_) => Err(ClientError::Malformed(format!("it answered with status {}", reply.status))),
    }
}

fn path(agent: &str, session: &str, what: &str) -> String {
    format!("/api/sessions/{}/{}/{what}", escaped(agent), escaped(session))
}

/// Characters of a name that are not percent-encoded in a path.
const PART: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~').remove(b'.');

/// A name as a part of a path.
///
/// ```
/// use deadstop_client::escaped;
/// assert_eq!(escaped("a b/v1.2"), "a%20b%2Fv1.2");
/// assert_eq!(escaped(".."), "%2E%2E"); // dots alone would lead to the parent folder
/// ```
pub fn escaped(name: &str) -> String {
    match name.bytes().all(|byte| byte == b'.') {
        true => name.replace('.', "%2E"),
        false => utf8_percent_encode(name, PART).to_string(),
    }
}
