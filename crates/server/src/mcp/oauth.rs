//! OAuth at `/mcp/{server}`: a client signs in at the MCP server's own authorization server, and its token
//! passes to the MCP server as it is.
//!
//! A client checks that the metadata of a protected resource (RFC 9728) is for the address that it
//! talks to, which is Deadstop's. It then asks for a token for that address (RFC 8707), and a server that
//! checks the audience of its tokens would refuse that one. So Deadstop names its own address as the
//! resource, and stands in front of two endpoints of the authorization server (RFC 8414), to write the
//! MCP server's address into the `resource` of the request: the browser is redirected to the authorization
//! endpoint, and the request for a token is passed on. All else (registration, keys, the page on which
//! people sign in) is between the client and the authorization server.
//!
//! An authorization server that says its name in its answer (`iss`, RFC 9207) can have no stand-in:
//! clients compare that name. It is named as it is, and gets Deadstop's address as the `resource`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::Full;
use parking_lot::Mutex;
use serde_json::{Value, json};
use url::{Url, form_urlencoded};

use super::json as document;
use crate::config::McpServer;
use crate::door::{Lines, fetch, plain};

/// Where the metadata of a resource is, before the resource's own path.
pub(super) const RESOURCE: &str = "/.well-known/oauth-protected-resource";
/// The same of an authorization server, by two standards.
const ISSUER: [&str; 2] =
    ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"];
/// The endpoints in front of which Deadstop stands.
const AUTHORIZE: &str = "/oauth/authorize";
const TOKEN: &str = "/oauth/token";
/// How long an authorization server may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is asked of an MCP server's sign-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The metadata of the resource.
    Resource,
    /// The metadata of the authorization server.
    Issuer,
    /// The browser is sent to sign in.
    Authorize,
    /// A code is exchanged for a token, or a token is renewed.
    Token,
}

impl Step {
    /// What a path asks for, and the path of the MCP server that it is about.
    pub(super) fn of(path: &str) -> Option<(Step, &str)> {
        if let Some(about) = path.strip_prefix(RESOURCE) {
            return Some((Step::Resource, about));
        }
        if let Some(about) = ISSUER.iter().find_map(|known| path.strip_prefix(known)) {
            return Some((Step::Issuer, about));
        }
        let authorize = path.strip_suffix(AUTHORIZE).map(|about| (Step::Authorize, about));
        authorize.or_else(|| path.strip_suffix(TOKEN).map(|about| (Step::Token, about)))
    }
}

/// Where servers said that their metadata is.
#[derive(Default)]
pub(super) struct Noted(Mutex<HashMap<String, String>>);

impl Noted {
    /// Writes Deadstop's address into a server's demand to sign in, and keeps the server's own.
    pub(super) fn rewrite(&self, name: &str, headers: &mut HeaderMap, here: &str) {
        let demands = headers.get_all(header::WWW_AUTHENTICATE).into_iter().cloned();
        let demands: Vec<HeaderValue> = demands.collect();
        let found =
            demands.iter().any(|demand| demand.to_str().is_ok_and(|it| member(it).is_some()));
        if !found {
            return;
        }
        headers.remove(header::WWW_AUTHENTICATE);
        for demand in demands {
            let text = demand.to_str().unwrap_or_default();
            let Some((before, theirs, after)) = member(text) else {
                headers.append(header::WWW_AUTHENTICATE, demand);
                continue;
            };
            self.0.lock().insert(name.to_owned(), theirs.to_owned());
            let ours = format!("{before}\"{here}\"{after}");
            if let Ok(ours) = HeaderValue::from_str(&ours) {
                headers.append(header::WWW_AUTHENTICATE, ours);
            }
        }
    }
}

/// The `resource_metadata` of a demand: what is before its value, the value, what is behind it.
fn member(demand: &str) -> Option<(&str, &str, &str)> {
    const NAME: &str = "resource_metadata=";
    let start = demand.to_ascii_lowercase().find(NAME)? + NAME.len();
    let (before, rest) = demand.split_at(start);
    match rest.strip_prefix('"') {
        Some(quoted) => {
            let (value, after) = quoted.split_once('"')?;
            Some((before, value, after))
        }
        None => {
            let end = rest.find([',', ' ']).unwrap_or(rest.len());
            let (value, after) = rest.split_at(end);
            Some((before, value, after))
        }
    }
}

/// Deadstop's own address, as the client wrote it.
pub(super) fn origin(headers: &HeaderMap, behind_proxy: bool) -> Option<String> {
    let host = headers.get(header::HOST)?.to_str().ok()?;
    Some(format!("{}://{host}", if behind_proxy { "https" } else { "http" }))
}

/// One request about an MCP server's sign-in.
pub(super) struct SignIn<'a> {
    pub(super) name: &'a str,
    pub(super) server: &'a McpServer,
    pub(super) lines: &'a Arc<Lines>,
    pub(super) noted: &'a Noted,
    /// Deadstop's own address.
    pub(super) origin: &'a str,
}

/// What is known about a server's sign-in.
struct Known {
    resource: Value,
    /// The authorization server, if Deadstop stands in front of it.
    front: Option<Front>,
}

struct Front {
    metadata: Value,
    authorize: Url,
    token: Uri,
}

/// Why a sign-in cannot go on.
enum Failed {
    /// The server wants none.
    None,
    /// It is not as the standards have it, or does not answer.
    Broken(String),
}

impl SignIn<'_> {
    pub(super) async fn answer(
        &self,
        step: Step,
        about: &str,
        parts: &Parts,
        body: Bytes,
    ) -> Response<Body> {
        match self.step(step, about, parts, body).await {
            Ok(response) => response,
            Err(Failed::None) => {
                plain(StatusCode::NOT_FOUND, "this MCP server has no such metadata")
            }
            Err(Failed::Broken(why)) => {
                let text =
                    format!("the sign-in of the MCP server {} does not work: {why}", self.name);
                plain(StatusCode::BAD_GATEWAY, &text)
            }
        }
    }

    async fn step(
        &self,
        step: Step,
        about: &str,
        parts: &Parts,
        body: Bytes,
    ) -> Result<Response<Body>, Failed> {
        let known = self.known().await?;
        let theirs = known.resource["resource"].as_str().unwrap_or_default().to_owned();
        let issuer = format!("{}/mcp/{}", self.origin, self.name);
        match (step, known.front) {
            (Step::Resource, front) => {
                let mut resource = known.resource;
                resource["resource"] = json!(format!("{}{about}", self.origin));
                // It is signed for the server's own address.
                drop(resource.as_object_mut().and_then(|it| it.remove("signed_metadata")));
                if front.is_some() {
                    resource["authorization_servers"] = json!([issuer]);
                }
                Ok(document(StatusCode::OK, resource.to_string().into_bytes()))
            }
            (_, None) => Err(Failed::None),
            (Step::Issuer, Some(Front { mut metadata, .. })) => {
                metadata["authorization_endpoint"] = json!(format!("{issuer}{AUTHORIZE}"));
                metadata["token_endpoint"] = json!(format!("{issuer}{TOKEN}"));
                metadata["issuer"] = json!(issuer);
                drop(metadata.as_object_mut().and_then(|it| it.remove("signed_metadata")));
                Ok(document(StatusCode::OK, metadata.to_string().into_bytes()))
            }
            (Step::Authorize, Some(Front { mut authorize, .. })) => {
                let asked = parts.uri.query().unwrap_or_default().as_bytes();
                authorize.query_pairs_mut().extend_pairs(pairs(asked, &theirs));
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::FOUND;
                let location = HeaderValue::from_str(authorize.as_str());
                let location = location.map_err(|error| Failed::Broken(error.to_string()))?;
                response.headers_mut().insert(header::LOCATION, location);
                Ok(response)
            }
            (Step::Token, Some(Front { token, .. })) if parts.method == Method::POST => {
                self.token(token, parts, &body, &theirs).await
            }
            (Step::Token, Some(_)) => Err(Failed::None),
        }
    }

    /// Passes a request for a token on, with the MCP server's address as its resource.
    async fn token(
        &self,
        to: Uri,
        parts: &Parts,
        body: &[u8],
        theirs: &str,
    ) -> Result<Response<Body>, Failed> {
        let body = form(pairs(body, theirs));
        let mut request = Request::post(to)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json");
        // How a client says who it is; a key of Deadstop's is none of its business.
        let basic = |value: &&HeaderValue| value.as_bytes().starts_with(b"Basic ");
        if let Some(value) = parts.headers.get(header::AUTHORIZATION).filter(basic) {
            request = request.header(header::AUTHORIZATION, value);
        }
        let request =
            request.body(Full::from(body)).map_err(|error| Failed::Broken(error.to_string()))?;
        let asked = fetch(self.lines, &self.server.way, request, PATIENCE).await;
        let (status, answer) = asked.map_err(Failed::Broken)?;
        let mut response = document(status, answer.to_vec());
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }

    async fn known(&self) -> Result<Known, Failed> {
        let url = Url::parse(&self.server.url.to_string())
            .map_err(|error| Failed::Broken(error.to_string()))?;
        let mut resource = None;
        for place in self.places(&url) {
            resource = self.get(&place).await?;
            if resource.is_some() {
                break;
            }
        }
        let origin = url.origin().ascii_serialization();
        // Servers of 2025-03-26 are their own authorization server, and have no metadata as a resource.
        let old = || json!({ "resource": url.as_str(), "authorization_servers": [origin] });
        let mut resource = match resource {
            Some(resource) => resource,
            None if self.metadata(&origin, &url).await?.is_some() => old(),
            None => return Err(Failed::None),
        };
        if !resource["resource"].is_string() {
            resource["resource"] = json!(url.as_str());
        }
        let issuer = resource["authorization_servers"][0].as_str().unwrap_or(&origin).to_owned();
        let metadata = self.metadata(&issuer, &url).await?;
        let front = metadata.and_then(|metadata| front(metadata, &url));
        Ok(Known { resource, front })
    }

    /// Where a resource's metadata may be: first where the server said, if that is its own address.
    fn places(&self, url: &Url) -> Vec<Url> {
        let said = self.noted.0.lock().get(self.name).and_then(|said| Url::parse(said).ok());
        let said = said.filter(|said| said.origin() == url.origin());
        let path = url.path().trim_end_matches('/');
        let usual = [format!("{RESOURCE}{path}"), RESOURCE.to_owned()];
        let usual = usual.iter().filter_map(|path| url.join(path).ok());
        said.into_iter().chain(usual).collect()
    }

    /// What an authorization server says about itself.
    async fn metadata(&self, issuer: &str, server: &Url) -> Result<Option<Value>, Failed> {
        let Some(issuer) = Url::parse(issuer).ok().filter(|url| may_ask(url, server)) else {
            return Ok(None);
        };
        let path = issuer.path().trim_end_matches('/');
        let [oauth, openid] = ISSUER;
        let places =
            [format!("{oauth}{path}"), format!("{openid}{path}"), format!("{path}{openid}")];
        for place in places {
            let place = issuer.join(&place).map_err(|error| Failed::Broken(error.to_string()))?;
            if let Some(metadata) = self.get(&place).await? {
                return Ok(Some(metadata));
            }
        }
        Ok(None)
    }

    /// A JSON document; `None` if it is not there.
    async fn get(&self, url: &Url) -> Result<Option<Value>, Failed> {
        let request = Request::get(url.as_str()).header(header::ACCEPT, "application/json");
        let request =
            request.body(Full::default()).map_err(|error| Failed::Broken(error.to_string()))?;
        let asked = fetch(self.lines, &self.server.way, request, PATIENCE).await;
        let (status, body) = asked.map_err(|why| Failed::Broken(format!("{url}: {why}")))?;
        if status.is_server_error() {
            return Err(Failed::Broken(format!("{url} answered {status}")));
        }
        let found = serde_json::from_slice(&body).ok().filter(Value::is_object);
        Ok(found.filter(|_| status.is_success()))
    }
}

/// The endpoints in front of which Deadstop stands, if it can.
fn front(metadata: Value, server: &Url) -> Option<Front> {
    if metadata["authorization_response_iss_parameter_supported"] == true {
        return None;
    }
    let endpoint = |name: &str| {
        let url = Url::parse(metadata[name].as_str()?).ok()?;
        may_ask(&url, server).then_some(url)
    };
    let authorize = endpoint("authorization_endpoint")?;
    let token = endpoint("token_endpoint")?.as_str().parse().ok()?;
    Some(Front { authorize, token, metadata })
}

/// Whether an address that a server named may be asked: by TLS, or on the server's own host. Otherwise a
/// server could send Deadstop to what only this machine reaches.
fn may_ask(url: &Url, server: &Url) -> bool {
    let loopback = |url: &Url| {
        let authority = url.host_str().unwrap_or_default();
        crate::net::is_loopback(authority)
    };
    url.scheme() == "https" && !loopback(url)
        || url.host_str() == server.host_str()
        || (loopback(url) && loopback(server))
}

/// Fields as a form has them.
fn form(pairs: Vec<(String, String)>) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// The fields of a form, with the MCP server's address as the resource.
fn pairs(form: &[u8], theirs: &str) -> Vec<(String, String)> {
    let fields = form_urlencoded::parse(form).into_owned();
    let replaced = |(name, value): (String, String)| match name.as_str() {
        "resource" => (name, theirs.to_owned()),
        _ => (name, value),
    };
    fields.map(replaced).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demands_name_the_address_of_deadstop() {
        for (demand, expected, noted) in [
            (
                r#"Bearer realm="a", resource_metadata="https://m/x", error="e""#,
                r#"Bearer realm="a", resource_metadata="HERE", error="e""#,
                Some("https://m/x"),
            ),
            (
                "Bearer Resource_Metadata=https://m/x, a=b",
                "Bearer Resource_Metadata=\"HERE\", a=b",
                Some("https://m/x"),
            ),
            (
                "Bearer resource_metadata=https://m/x",
                "Bearer resource_metadata=\"HERE\"",
                Some("https://m/x"),
            ),
            ("Bearer resource_metadata=\"broken", "Bearer resource_metadata=\"broken", None),
            ("Basic realm=\"a\"", "Basic realm=\"a\"", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::WWW_AUTHENTICATE, demand.parse().unwrap());
            let all = Noted::default();
            all.rewrite("m", &mut headers, "HERE");
            assert_eq!(headers[header::WWW_AUTHENTICATE], expected, "{demand}");
            assert_eq!(all.0.lock().get("m").map(String::as_str), noted, "{demand}");
        }
    }

    #[test]
    fn a_server_does_not_lead_deadstop_to_other_machines_in_clear() {
        for (url, server, may) in [
            ("https://login.example/x", "https://mcp.example/mcp", true),
            ("http://login.example/x", "https://mcp.example/mcp", false),
            ("http://169.254.169.254/", "https://mcp.example/mcp", false),
            ("http://127.0.0.1:4141/api", "https://mcp.example/mcp", false),
            ("https://localhost/api", "https://mcp.example/mcp", false),
            ("http://127.0.0.1:1/", "http://localhost:2/mcp", true),
            ("http://inner:8080/", "http://inner:9090/mcp", true),
        ] {
            let read = |url| Url::parse(url).unwrap();
            assert_eq!(may_ask(&read(url), &read(server)), may, "{url} of {server}");
        }
    }

    #[test]
    fn paths_are_steps() {
        for (path, expected) in [
            (
                "/.well-known/oauth-protected-resource/agent/a/mcp/x",
                Some((Step::Resource, "/agent/a/mcp/x")),
            ),
            ("/.well-known/oauth-authorization-server/mcp/x", Some((Step::Issuer, "/mcp/x"))),
            ("/.well-known/openid-configuration/mcp/x", Some((Step::Issuer, "/mcp/x"))),
            ("/mcp/x/oauth/authorize", Some((Step::Authorize, "/mcp/x"))),
            ("/mcp/x/oauth/token", Some((Step::Token, "/mcp/x"))),
            ("/mcp/x", None),
        ] {
            assert_eq!(Step::of(path), expected, "{path}");
        }
    }
}
