//! A message as a signed POST, after the Standard Webhooks convention.
//!
//! The signature covers the id, the time of sending and the body, so that a receiver can detect a
//! changed or replayed message.

use std::convert::Infallible;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::json;
use sha2::Sha256;
use tokio::io::{AsyncRead, AsyncWrite};
use url::{Host, Position, Url};

use crate::connect::{Connector, unreachable};
use crate::message::{moment, one_line, shortened};
use crate::proxy::Proxy;
use crate::target::web_url;
use crate::{BadTarget, DeliveryError, Message, Receipt, Secret};

/// Redirects that are followed.
const MOST_REDIRECTS: u8 = 3;
/// Bytes of an answer that are read.
const LONGEST_ANSWER: usize = 16 * 1024;
/// Characters of it that are kept.
const LONGEST_REPLY: usize = 200;
/// The longest wait that a target may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// The signature of a body: `v1,` and HMAC-SHA256 in base64.
///
/// A secret that starts with `whsec_` is base64, as the convention has it; any other is taken as
/// it is.
///
/// ```
/// use deadstop_alerts::{Secret, sign};
/// let secret = Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
/// assert!(sign(&secret, "msg_1", 1_614_265_330, b"{}").starts_with("v1,"));
/// ```
pub fn sign(secret: &Secret, id: &str, seconds: u64, body: &[u8]) -> String {
    let text = secret.reveal();
    let key = match text.strip_prefix("whsec_").map(|base64| STANDARD.decode(base64)) {
        Some(Ok(key)) => key,
        _ => text.as_bytes().to_vec(),
    };
    // HMAC takes keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&key) else { return String::new() };
    mac.update(format!("{id}.{seconds}.").as_bytes());
    mac.update(body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

/// The body of a webhook.
fn body(message: &Message) -> serde_json::Value {
    let mut data = json!(message);
    if let Some(fields) = data.as_object_mut() {
        for name in ["at", "first_seen", "last_seen"] {
            let time = fields.get(name).and_then(serde_json::Value::as_u64);
            let time = time.map(|time| moment(deadstop_core::Time(time)));
            fields.insert(name.to_owned(), json!(time));
        }
    }
    json!({ "type": message.kind.name(), "timestamp": moment(message.at), "data": data })
}

/// What is posted.
pub(crate) struct Post {
    headers: HeaderMap,
    body: Bytes,
    redirects: u8,
}

impl Post {
    /// A webhook of ours.
    pub(crate) fn signed(message: &Message, secret: Option<&Secret>, seconds: u64) -> Self {
        let body = Bytes::from(body(message).to_string());
        let id: String = one_line(&message.id).chars().filter(char::is_ascii_graphic).collect();
        let mut headers = HeaderMap::new();
        let signature = secret.map(|secret| sign(secret, &id, seconds, &body));
        for (name, value) in [
            ("webhook-id", Some(id)),
            ("webhook-timestamp", Some(seconds.to_string())),
            ("webhook-signature", signature),
        ] {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
                headers.insert(name, value);
            }
        }
        Self { headers, body, redirects: MOST_REDIRECTS }
    }

    /// A message to Slack, which never redirects.
    pub(crate) fn slack(message: &Message) -> Self {
        let body = Bytes::from(crate::slack::body(message).to_string());
        Self { headers: HeaderMap::new(), body, redirects: 0 }
    }

    /// Sends it, and follows redirects.
    pub(crate) async fn send(
        &self,
        connector: &Connector,
        url: &str,
    ) -> Result<Receipt, DeliveryError> {
        let mut url = web_url(url)?;
        let mut redirects = 0;
        loop {
            let answer = self.once(connector, &url).await?;
            if !is_redirect(answer.status) {
                return answer.receipt(redirects);
            }
            if redirects == self.redirects {
                return Err(DeliveryError::Redirect("there were too many"));
            }
            redirects += 1;
            url = redirected(&url, answer.location.as_deref())?;
        }
    }

    async fn once(&self, connector: &Connector, url: &Url) -> Result<Fetched, DeliveryError> {
        let host = url.host().ok_or(BadTarget::Host)?.to_owned();
        let port = url.port_or_known_default().ok_or(BadTarget::Host)?;
        let secure = url.scheme() == "https";
        let (stream, forwarder) = connector.reach(&host, port, secure).await?;
        let request = self.request(url, forwarder.as_deref())?;
        let answer = exchange(&host, stream, request).await?;
        match forwarder.filter(|_| answer.status == StatusCode::PROXY_AUTHENTICATION_REQUIRED) {
            Some(proxy) => Err(unreachable(&host, &proxy.wants_credentials())),
            None => Ok(answer),
        }
    }

    fn request(
        &self,
        url: &Url,
        forwarder: Option<&Proxy>,
    ) -> Result<Request<Full<Bytes>>, DeliveryError> {
        let mut path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        if forwarder.is_some() {
            path = url[..Position::AfterQuery].to_owned();
        }
        let host = match (url.host_str(), url.port()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (Some(host), None) => host.to_owned(),
            (None, _) => return Err(BadTarget::Host.into()),
        };
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::HOST, host)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, concat!("deadstop/", env!("CARGO_PKG_VERSION")))
            .header(header::CONNECTION, "close")
            .body(Full::new(self.body.clone()))
            .map_err(|_| BadTarget::Url)?;
        request.headers_mut().extend(self.headers.clone());
        let authorization = forwarder.and_then(Proxy::authorization);
        if let Some(Ok(value)) = authorization.map(|value| HeaderValue::from_str(&value)) {
            request.headers_mut().insert(header::PROXY_AUTHORIZATION, value);
        }
        Ok(request)
    }
}

/// What came back.
struct Fetched {
    status: StatusCode,
    location: Option<String>,
    after: Option<Duration>,
    reply: String,
}

impl Fetched {
    fn receipt(self, redirects: u8) -> Result<Receipt, DeliveryError> {
        let status = self.status.as_u16();
        if self.status.is_success() {
            return Ok(Receipt { status, redirects, reply: self.reply });
        }
        let retry = matches!(status, 408 | 425 | 429 | 500..=599);
        let after = self.after.filter(|_| retry);
        Err(DeliveryError::Rejected { status, reply: self.reply, retry, after })
    }
}

/// Where a redirect leads.
fn redirected(from: &Url, location: Option<&str>) -> Result<Url, DeliveryError> {
    let to = location.ok_or(DeliveryError::Redirect("it names no address"))?;
    let to = from.join(to).map_err(|_| DeliveryError::Redirect("it leads to no URL"))?;
    let to = web_url(to.as_str()).map_err(|_| DeliveryError::Redirect("it leads to no web URL"))?;
    if from.scheme() == "https" && to.scheme() == "http" {
        return Err(DeliveryError::Redirect("it leads from https to http"));
    }
    Ok(to)
}

/// 303 is none: it asks for a GET, and a GET does not deliver the message.
fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 307 | 308)
}

async fn exchange(
    host: &Host<String>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<Fetched, DeliveryError> {
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(64 * 1024)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| unreachable(host, &error))?;
    // The connection lives no longer than the exchange: it is dropped with it, at a time-out too.
    let exchange = async {
        let response = sender.send_request(request).await?;
        Ok::<_, hyper::Error>(read(response).await)
    };
    let answer = tokio::select! {
        answer = exchange => answer,
        // When the other side closes first, what it sent before is still to be read.
        never = async { drop(connection.await); std::future::pending::<Infallible>().await } => {
            match never {}
        }
    };
    answer.map_err(|error| unreachable(host, &error))
}

async fn read(response: Response<Incoming>) -> Fetched {
    let (parts, body) = response.into_parts();
    let text = |name| parts.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let location = text(header::LOCATION).map(str::to_owned);
    let after = text(header::RETRY_AFTER)
        .and_then(|value| value.trim().parse().ok())
        .map(|seconds| Duration::from_secs(seconds).min(LONGEST_WAIT));
    // The status decides; an answer that is too long or breaks off only loses its text.
    let mut body = Limited::new(body, LONGEST_ANSWER);
    let mut bytes = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(data) = frame.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    let reply = shortened(one_line(&String::from_utf8_lossy(&bytes)).trim(), LONGEST_REPLY);
    Fetched { status: parts.status, location, after, reply }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_that_of_the_convention() {
        // The example that the convention's own libraries are tested with.
        let secret = Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let body = br#"{"test": 2432232314}"#;
        let signature = sign(&secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn redirects_lead_to_the_web_and_never_from_https_to_http() {
        for (from, location, to) in [
            ("https://a.org/x", "/y", Some("https://a.org/y")),
            ("https://a.org/x", "https://b.org/", Some("https://b.org/")),
            ("http://a.org/x", "https://b.org/", Some("https://b.org/")),
            ("http://a.org/x", "//0x7f.1/", Some("http://127.0.0.1/")),
            ("https://a.org/x", "http://a.org/y", None),
            ("https://a.org/x", "ftp://a.org/y", None),
            ("https://a.org/x", "file:///etc/passwd", None),
            ("https://a.org/x", "https://u:p@a.org/", None),
            ("https://a.org/x", "https://", None),
        ] {
            let found = redirected(&Url::parse(from).unwrap(), Some(location)).ok();
            assert_eq!(found.as_ref().map(Url::as_str), to, "{from} to {location}");
        }
        assert!(redirected(&Url::parse("https://a.org").unwrap(), None).is_err());
    }
}
