//! The client for a server's API, which every command uses: a key, a project, JSON both ways, and a
//! refusal that says what to do next.

use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use deadstop_server::{OPERATOR_HEADER, OperatorToken};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use crate::operator;
use crate::remote::filled;
use crate::ui::{Hinted, printable};

/// How long a server may take to be reached.
const REACHED: Duration = Duration::from_secs(10);
/// Seconds that a server may take to answer, unless `DEADSTOP_TIMEOUT` says otherwise.
const ANSWERED: u64 = 60;
/// The header that carries a key.
const KEY: HeaderName = HeaderName::from_static("x-deadstop-key");
/// The header that names a project.
const PROJECT: HeaderName = HeaderName::from_static("x-deadstop-project");

/// Talks to one server.
pub(crate) struct Client {
    base: String,
    key: Option<HeaderValue>,
    project: Option<HeaderValue>,
    patience: Duration,
    http: hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Client {
    /// A client for the server at this URL.
    pub(crate) fn new(server: &str) -> anyhow::Result<Client> {
        let base = server.trim_end_matches('/').to_owned();
        let uri: Option<Uri> = base.parse().ok();
        let scheme = uri.as_ref().and_then(Uri::scheme_str);
        if !matches!(scheme, Some("http" | "https")) {
            return Err(Hinted::error(
                format!("`{server}` is not the URL of a server"),
                "write it as http://127.0.0.1:4141",
            ));
        }
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(REACHED));
        let connector = HttpsConnectorBuilder::new()
            .with_webpki_roots()
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new());
        let patience = Duration::from_secs(patience()?);
        Ok(Client { base, key: None, project: None, patience, http: http.build(connector) })
    }

    /// Shows this key with every request.
    pub(crate) fn with_key(mut self, key: &str) -> anyhow::Result<Client> {
        let mut value =
            HeaderValue::from_str(key.trim()).ok().with_context(|| "the key is torn")?;
        value.set_sensitive(true);
        self.key = Some(value);
        Ok(self)
    }

    /// Asks about this project.
    pub(crate) fn with_project(mut self, project: &str) -> anyhow::Result<Client> {
        let value = HeaderValue::from_bytes(project.as_bytes()).ok();
        self.project = Some(value.with_context(|| "that is not a valid project name")?);
        Ok(self)
    }

    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.ask(Method::GET, path, None, None).await
    }

    /// The same for what may not be there.
    pub(crate) async fn find(&self, path: &str) -> anyhow::Result<Option<Value>> {
        let response = self.send(Method::GET, path, None, None).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        self.read(accepted(&self.base, response, path).await?).await.map(Some)
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.ask(Method::POST, path, Some(body), None).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.ask(Method::PATCH, path, Some(body), None).await
    }

    /// Replaces what is there, or what is there at this version, by something else.
    pub(crate) async fn put(
        &self,
        path: &str,
        body: &Value,
        version: Option<i64>,
    ) -> anyhow::Result<Value> {
        self.ask(Method::PUT, path, Some(body), version).await
    }

    pub(crate) async fn delete(&self, path: &str) -> anyhow::Result<Value> {
        self.ask(Method::DELETE, path, None, None).await
    }

    /// Server-sent events, one JSON value each.
    pub(crate) async fn events(&self, path: &str) -> anyhow::Result<Events> {
        let response = self.send(Method::GET, path, None, None).await?;
        let response = accepted(&self.base, response, path).await?;
        Ok(Events { body: response.into_body(), rest: Vec::new() })
    }

    /// A long answer, piece by piece.
    pub(crate) async fn pieces(&self, path: &str) -> anyhow::Result<Pieces> {
        let response = self.send(Method::GET, path, None, None).await?;
        Ok(Pieces(accepted(&self.base, response, path).await?.into_body()))
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        version: Option<i64>,
    ) -> anyhow::Result<Value> {
        let response = self.send(method.clone(), path, body, version).await?;
        let response = match accepted(&self.base, response, path).await {
            Err(error) if Hinted::is_for_operator(&error) && self.is_near() => {
                let token = operator::token()?;
                let response = self.send_as(Some(&token), method, path, body, version).await?;
                accepted(&self.base, response, path).await?
            }
            other => other?,
        };
        self.read(response).await
    }

    /// Whether the server is on this machine: the operator's token goes nowhere else.
    fn is_near(&self) -> bool {
        self.base.parse::<Uri>().is_ok_and(|uri| is_near(&uri))
    }

    async fn read(&self, response: Response<Incoming>) -> anyhow::Result<Value> {
        let body = self.in_time(response.into_body().collect()).await?;
        let body = body.context("the server broke off")?.to_bytes();
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).map_err(|_| not_deadstop(&self.base, None))
    }

    /// Waits for a server, but not for one that hangs.
    async fn in_time<T>(&self, answer: impl Future<Output = T>) -> anyhow::Result<T> {
        tokio::time::timeout(self.patience, answer).await.map_err(|_| {
            let seconds = self.patience.as_secs();
            Hinted::error(
                format!("the server at {} did not answer within {seconds} s", self.base),
                "an order may have been carried out all the same; `deadstop ready` says whether the \
                 server can do its work, and DEADSTOP_TIMEOUT=SECONDS waits longer",
            )
        })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        version: Option<i64>,
    ) -> anyhow::Result<Response<Incoming>> {
        self.send_as(None, method, path, body, version).await
    }

    /// The same with the operator's token, which is shown only where a server asks for it.
    async fn send_as(
        &self,
        operator: Option<&OperatorToken>,
        method: Method,
        path: &str,
        body: Option<&Value>,
        version: Option<i64>,
    ) -> anyhow::Result<Response<Incoming>> {
        let text = body.map(Value::to_string).unwrap_or_default();
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(text)))?;
        let headers = request.headers_mut();
        let known = [(KEY, &self.key), (PROJECT, &self.project)];
        for (name, value) in known.into_iter().filter_map(|(n, v)| Some((n, v.clone()?))) {
            headers.insert(name, value);
        }
        if let Some(token) = operator {
            let mut value = HeaderValue::from_str(token.reveal())?;
            value.set_sensitive(true);
            headers.insert(OPERATOR_HEADER, value);
        }
        if let Some(version) = version {
            headers.insert("if-match", HeaderValue::from_str(&format!("\"{version}\""))?);
        }
        self.in_time(self.http.request(request)).await?.map_err(|error| {
            Hinted::away(
                format!("no server answers at {}: {}", self.base, root(&error)),
                "start one with `deadstop serve`, or name another with --server",
            )
        })
    }
}

/// The innermost cause of a failed request: the layers above it only say that there was one.
fn root(error: &(dyn std::error::Error + 'static)) -> String {
    let innermost = std::iter::successors(Some(error), |error| error.source()).last();
    let innermost = innermost.unwrap_or(error);
    let refused = innermost
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused);
    if refused { "connection refused".to_owned() } else { innermost.to_string() }
}

/// How many seconds a server may take to answer.
fn patience() -> anyhow::Result<u64> {
    let Some(wanted) = filled("DEADSTOP_TIMEOUT") else { return Ok(ANSWERED) };
    wanted.trim().parse().ok().filter(|seconds| *seconds > 0).ok_or_else(|| {
        let problem = format!("DEADSTOP_TIMEOUT is `{}`", printable(&wanted));
        Hinted::error(problem, "write whole seconds, such as 60")
    })
}

/// Whether an address is on this machine.
pub(crate) fn is_near(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Text as a part of a path, or as a parameter.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            other => out += &format!("%{other:02X}"),
        }
    }
    out
}

/// The answer, unless it is a refusal.
async fn accepted(
    base: &str,
    response: Response<Incoming>,
    path: &str,
) -> anyhow::Result<Response<Incoming>> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = response.into_body().collect().await.context("the server broke off")?.to_bytes();
    let value: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    // A refusal of ours is an object. What another program says is a page of its own.
    if !value.is_object() && !body.is_empty() {
        return Err(not_deadstop(base, Some(status)));
    }
    let detail = match value["detail"].as_str() {
        Some(detail) => detail.to_owned(),
        None => String::from_utf8_lossy(&body).chars().take(500).collect(),
    };
    let reason = status.canonical_reason().unwrap_or("Refused");
    let problem = format!("{reason}: {}", printable(&detail));
    let code = value["code"].as_str().unwrap_or_default();
    let hint = hint(status, code, &detail, path);
    match code {
        "operator_required" => Err(Hinted::for_operator(problem, hint)),
        "session_final" => Err(Hinted::stopped(problem, hint)),
        // `scope_killed`, and `session_killed…` with the guard that did it.
        _ if code.contains("_killed") => Err(Hinted::stopped(problem, hint)),
        _ if status == StatusCode::NOT_FOUND => Err(Hinted::missing(problem, hint)),
        _ => Err(Hinted::error(problem, hint)),
    }
}

/// The error that another program listens where a server was expected.
fn not_deadstop(base: &str, status: Option<StatusCode>) -> anyhow::Error {
    let status = status.map(|status| format!(" ({status})")).unwrap_or_default();
    Hinted::foreign(
        format!("another program answers at {base}, not Deadstop{status}"),
        "check --server and DEADSTOP_SERVER; `deadstop serve --listen 127.0.0.1:4142` takes another \
         port",
    )
}

/// What to do about a refusal.
fn hint(status: StatusCode, code: &str, detail: &str, path: &str) -> &'static str {
    match code {
        "key_required" => "bring a key: in DEADSTOP_KEY, or in a file with --key-file",
        "bad_key" => {
            "check DEADSTOP_KEY or --key-file; on the server's machine, `deadstop keys create \
             --data DIR` makes another"
        }
        "operator_required" => "run this as the user that runs the server, in a terminal",
        "forbidden" => "use a key with that role, or ask an admin for one",
        "not_found" if detail.starts_with("there is no project") => {
            "check --project and DEADSTOP_PROJECT; without them it is `default`"
        }
        "not_found" if detail.ends_with("project") => {
            "a key decides the project; leave --project out, or use a key of that project"
        }
        "not_found" => hint_to_look(path),
        "no_session" => "`deadstop sessions` lists them",
        "version_mismatch" => "look at it again with `deadstop policy get`, then decide",
        "first_key_admin" => "deadstop keys create --role admin --name NAME",
        "last_admin_key" => "deadstop keys create --role admin --name NAME",
        "already_decided" => "`deadstop audit` says who decided, and why",
        "too_many_grants" => "`deadstop grants` lists them, and takes them back",
        "session_final" => "`deadstop resume` gives the session a fresh start",
        "invalid_query" | "invalid_body" => "--help says what is expected",
        _ if status.is_server_error() => "see the server's log",
        _ => "see `deadstop status` for what runs",
    }
}

/// Where names can be looked up that nothing was found under.
fn hint_to_look(path: &str) -> &'static str {
    let places = [
        (
            "/api/policies/agents",
            "`deadstop agents` and `deadstop policy versions` list what there is",
        ),
        ("/api/policies", "`deadstop policy versions` lists them"),
        ("/api/agents", "`deadstop agents` lists them"),
        ("/api/sessions", "`deadstop sessions` lists them"),
        ("/api/approvals", "`deadstop approvals` lists those that wait"),
        ("/api/incidents", "`deadstop incidents` lists them"),
        ("/api/keys", "`deadstop keys list` lists those in force"),
        ("/api/alerts", "`deadstop alerts` lists them"),
    ];
    let place = places.into_iter().find(|(prefix, _)| path.starts_with(prefix));
    place.map_or("the server may be older than this program", |(_, hint)| hint)
}

/// The pieces of a long answer.
pub(crate) struct Pieces(Incoming);

impl Pieces {
    /// The next piece; `None` at the end.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<Bytes>> {
        while let Some(frame) = self.0.frame().await {
            if let Ok(bytes) = frame.context("the server broke off")?.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

/// A stream of events.
pub(crate) struct Events {
    body: Incoming,
    rest: Vec<u8>,
}

impl Events {
    /// The next event; `None` when the stream has ended.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        loop {
            if let Some(end) = self.rest.windows(2).position(|w| w == b"\n\n") {
                let event: Vec<u8> = self.rest.drain(..end + 2).collect();
                let text = String::from_utf8_lossy(&event);
                let data = text.lines().find_map(|line| line.strip_prefix("data: "));
                if let Some(value) = data.and_then(|data| serde_json::from_str(data).ok()) {
                    return Ok(Some(value));
                }
                continue;
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(bytes) = frame.context("the server broke off")?.into_data() {
                        self.rest.extend_from_slice(&bytes);
                    }
                }
            }
        }
    }
}
