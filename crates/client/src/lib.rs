//! A small blocking client of the govern API: for hooks, SDKs and stdio wrappers, which start often
//! and must not wait for a runtime.
//!
//! ```no_run
//! use deadstop_client::{Client, ProposedCall, Server};
//! use serde_json::json;
//! let client = Client::new(&Server::from_env()?)?;
//! let arguments = json!({ "asset_id": "fact_sales" });
//! let call = ProposedCall { id: "t1", tool: "delete_asset", server: None, arguments: &arguments, harms: None };
//! let decided = client.propose("janitor", "s1", &[], &[call])?;
//! assert!(decided[0].allowed);
//! # Ok::<(), deadstop_client::ClientError>(())
//! ```

mod answer;
mod error;
mod http;
mod line;
mod server;

use std::time::Duration;

use deadstop_core::Harm;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use answer::{Approval, Decided, Opened, Problem, Spoken};
pub use error::ClientError;
pub use server::{Key, Server, USUAL};

use http::Pool;

/// How long the parts of a request may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Until the server is reached.
    pub connect: Duration,
    /// Until its answer is there, all of it.
    pub answer: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { connect: Duration::from_secs(5), answer: Duration::from_secs(30) }
    }
}

/// A tool call that is about to be made.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ProposedCall<'a> {
    /// The caller's id for it; saying it twice is saying it once.
    pub id: &'a str,
    /// The tool.
    pub tool: &'a str,
    /// The server that it runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<&'a str>,
    /// Its arguments.
    pub arguments: &'a Value,
    /// What harm it would do, where the caller has looked at the machine that it runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub harms: Option<&'a [Harm]>,
}

/// A model call that is about to be made.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Preflight<'a> {
    /// The caller's id for it.
    pub id: &'a str,
    /// The model.
    pub model: &'a str,
    /// The provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<&'a str>,
    /// Tokens of the prompt, as far as they are known.
    pub input_tokens: u64,
    /// The most tokens that the answer may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// What is new in the prompt since the last call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<&'a str>,
    /// Whether a person has said it.
    pub from_person: bool,
}

/// How far a call is.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Report<'a> {
    /// The caller's id for it.
    pub id: &'a str,
    /// Tokens of the answer so far.
    pub output_tokens: u64,
    /// What was said since the last report.
    pub text: &'a str,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Receipt<'a> {
    /// The caller's id for it.
    pub id: &'a str,
    /// How it ended.
    pub status: Ended,
    /// The tokens that it used.
    pub usage: Used,
    /// A model's answer, or a tool's result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<&'a str>,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// It did what it should.
    #[default]
    Ok,
    /// It was answered with an error.
    Error,
    /// It was not answered.
    Fault,
    /// It was cut off.
    Cancelled,
}

/// Tokens that a call used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Used {
    /// Of the prompt, without those of the cache.
    pub input: u64,
    /// Of the answer.
    pub output: u64,
    /// Read from the provider's cache.
    pub cache_read: u64,
    /// Written to it.
    pub cache_write: u64,
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

/// Talks to one server, over connections that stay open. Several threads may share it.
#[derive(Debug)]
pub struct Client {
    pool: Pool,
}

impl Client {
    /// A client for a server. Nothing is sent yet.
    pub fn new(server: &Server) -> Result<Client, ClientError> {
        Client::patient(server, Patience::default())
    }

    /// A client that waits no longer than this.
    pub fn patient(server: &Server, patience: Patience) -> Result<Client, ClientError> {
        Ok(Client { pool: Pool::new(server, patience)? })
    }

    /// Opens a session, or finds out that it is dead. Without a name the server makes one up;
    /// `said` is what a person has just said to it.
    pub fn open(
        &self,
        agent: &str,
        session: Option<&str>,
        said: Option<&str>,
    ) -> Result<Opened, ClientError> {
        let mut body = json!({ "agent": agent });
        if let Some(session) = session {
            body["session"] = session.into();
        }
        if let Some(said) = said {
            body["said"] = said.into();
        }
        self.post("/api/sessions", &body)
    }

    /// May this model call be made?
    pub fn preflight(
        &self,
        agent: &str,
        session: &str,
        scope: &[String],
        call: &Preflight<'_>,
    ) -> Result<Decided, ClientError> {
        self.decide(agent, session, "preflight", &within(scope, call))
    }

    /// May these tool calls be made? Each is decided by itself.
    pub fn propose(
        &self,
        agent: &str,
        session: &str,
        scope: &[String],
        calls: &[ProposedCall<'_>],
    ) -> Result<Vec<Decided>, ClientError> {
        #[derive(serde::Deserialize)]
        struct All {
            calls: Vec<Decided>,
        }
        let body = json!({ "calls": calls, "scope": scope });
        let All { calls: decided } = self.post(&path(agent, session, "proposal"), &body)?;
        match decided.len() == calls.len() {
            true => Ok(decided),
            false => Err(ClientError::Malformed("it decided about other calls".to_owned())),
        }
    }

    /// May this call go on?
    pub fn progress(
        &self,
        agent: &str,
        session: &str,
        scope: &[String],
        report: &Report<'_>,
    ) -> Result<Decided, ClientError> {
        self.decide(agent, session, "progress", &within(scope, report))
    }

    /// This call has ended. What it cost is on disk when this is answered.
    pub fn receipt(
        &self,
        agent: &str,
        session: &str,
        scope: &[String],
        receipt: &Receipt<'_>,
    ) -> Result<Decided, ClientError> {
        self.decide(agent, session, "receipt", &within(scope, receipt))
    }

    /// Any other question: JSON in, JSON out.
    pub fn get(&self, path: &str) -> Result<Value, ClientError> {
        read(&self.pool.send("GET", path, None)?)
    }

    /// Any other order.
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, ClientError> {
        read(&self.pool.send("POST", path, Some(body.to_string().as_bytes()))?)
    }

    /// Sends anything anywhere, and gives back whatever comes.
    pub fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Raw, ClientError> {
        let body = body.map(Value::to_string);
        let reply = self.pool.send(method, path, body.as_deref().map(str::as_bytes))?;
        let http::Reply { status, body, date } = reply;
        Ok(Raw { status, body: String::from_utf8_lossy(&body).into_owned(), date })
    }

    /// A refusal that says what was decided is an answer, not an error.
    fn decide(
        &self,
        agent: &str,
        session: &str,
        what: &str,
        body: &Value,
    ) -> Result<Decided, ClientError> {
        match self.post(&path(agent, session, what), body) {
            Err(ClientError::Refused(problem)) if problem.decision.is_some() => {
                problem.decision.ok_or_else(|| ClientError::Malformed("no decision".to_owned()))
            }
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
    match serde_json::from_slice::<Problem>(&reply.body) {
        Ok(problem) => Err(ClientError::Refused(Box::new(problem))),
        Err(_) => Err(ClientError::Malformed(format!("it answered with status {}", reply.status))),
    }
}

fn within(scope: &[String], body: &impl Serialize) -> Value {
    let mut body = serde_json::to_value(body).unwrap_or_default();
    body["scope"] = scope.into();
    body
}

fn path(agent: &str, session: &str, what: &str) -> String {
    format!("/api/sessions/{}/{}/{what}", escaped(agent), escaped(session))
}

/// A name as a part of a path.
pub fn escaped(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => out.push(byte as char),
            // Dots alone would be taken for a way up.
            b'.' if name.bytes().any(|other| other != b'.') => out.push('.'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
