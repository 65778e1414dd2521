//! The dashboard, inside the program: one page, its scripts and styles, no third-party resources.
//!
//! Every address of the page answers the same `index.html`; its script shows what the address names.
//! What carries a hash in its name may be kept for ever, the page itself never. A policy keeps the
//! browser from running anything that is not one of these files, whatever an agent has said.

use std::io::Read;

use axum::body::Body;
use deadstop_core::hex;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use rust_embed::{EmbeddedFile, RustEmbed};

/// What Vite built, by a link to its folder: read from there in a debug build, inside the program in
/// a release. A package of this crate carries the files themselves.
#[derive(RustEmbed)]
#[folder = "page"]
#[allow_missing = true]
struct Files;

/// The page's own addresses, by their first part; what comes after is for its script to read.
const PLACES: [&str; 11] = [
    "",
    "agents",
    "sessions",
    "requests",
    "incidents",
    "approvals",
    "costs",
    "alerts",
    "audit",
    "settings",
    "sign-in",
];
/// Files whose names change with their content.
const ASSETS: &str = "assets";
/// Files that browsers look for by name.
const NAMED: [&str; 2] = ["favicon.svg", "favicon.ico"];

/// Only our own files, and nothing written into the page. The one policy for trusted types is the
/// one that Svelte makes its templates with.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types svelte-trusted-html";
const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];
/// A name with a hash in it never stands for anything else.
const FOR_EVER: &str = "public, max-age=31536000, immutable";
/// The page is asked for again each time, so that an update is seen.
const ASK_AGAIN: &str = "no-cache";

/// What a debug build shows that has no page.
const NOTICE: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Deadstop</title>\
    <h1>Deadstop is running, without its page</h1>\
    <p>This is a debug build and the page was not built. Run <code>make page</code> and load this \
    again, or see <a href=\"/api/docs\">what the API can do</a>.</p></html>";

/// Whether a request is for the page, and not for the gateway.
pub(crate) fn serves(method: &Method, path: &str) -> bool {
    let path = path.strip_prefix('/').unwrap_or(path);
    let first = path.split('/').next().unwrap_or_default();
    let ours = first == ASSETS || PLACES.contains(&first) || NAMED.contains(&path);
    ours && matches!(*method, Method::GET | Method::HEAD)
}

/// Answers a browser that asks for an address which neither the page nor the gateway has: the page
/// says so. Other clients get the gateway's answer.
pub(crate) fn lost<B>(request: &Request<B>) -> Option<Response<Body>> {
    let accepted = request.headers().get(header::ACCEPT)?.to_str().ok()?;
    let browses = *request.method() == Method::GET && accepted.contains("text/html");
    browses.then(|| {
        let whole = Request::builder().uri("/").body(()).unwrap_or_default();
        let mut response = answer(&whole);
        *response.status_mut() = StatusCode::NOT_FOUND;
        response
    })
}

/// Answers a request for the page.
pub(crate) fn answer<B>(request: &Request<B>) -> Response<Body> {
    let path = request.uri().path().trim_start_matches('/');
    let is_place = path.split('/').next().is_some_and(|first| PLACES.contains(&first));
    let name = if is_place { "index.html" } else { path };
    let mut response = match (find(name, request), is_place) {
        (Some(response), _) => response,
        (None, true) => made(StatusCode::OK, "text/html; charset=utf-8", NOTICE.as_bytes()),
        (None, false) => made(
            StatusCode::NOT_FOUND,
            "text/plain; charset=utf-8",
            &b"there is no such file\n"[..],
        ),
    };
    let kept = path.starts_with(ASSETS) && response.status() != StatusCode::NOT_FOUND;
    let cache = HeaderValue::from_static(if kept { FOR_EVER } else { ASK_AGAIN });
    response.headers_mut().insert(header::CACHE_CONTROL, cache);
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    if request.method() == Method::HEAD {
        *response.body_mut() = Body::empty();
    }
    response
}

/// A file: packed if the browser takes that. Scripts and styles are in the program in their packed
/// form only, so they are unpacked for the few clients that do not.
fn find<B>(name: &str, request: &Request<B>) -> Option<Response<Body>> {
    // The files of a release are known by name; the folder of a debug build has ways out and in again.
    if name.split('/').any(|part| part == "..") {
        return None;
    }
    let (plain, packed) = (Files::get(name), Files::get(&format!("{name}.gz")));
    let tag = tag(plain.as_ref().or(packed.as_ref())?);
    if request.headers().get(header::IF_NONE_MATCH).is_some_and(|seen| *seen == tag) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response.headers_mut().insert(header::ETAG, tag);
        return Some(response);
    }
    let accepted = request.headers().get(header::ACCEPT_ENCODING).and_then(|v| v.to_str().ok());
    let unpacks =
        accepted.is_some_and(|kinds| kinds.split(',').any(|kind| kind.trim().starts_with("gzip")));
    let (data, encoding) = match (plain, packed) {
        (_, Some(packed)) if unpacks => (packed.data, Some("gzip")),
        (Some(plain), _) => (plain.data, None),
        (None, packed) => (unpacked(&packed?.data)?.into(), None),
    };
    let mut response = made(StatusCode::OK, kind(name), data);
    let headers = response.headers_mut();
    headers.insert(header::ETAG, tag);
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if let Some(encoding) = encoding {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    Some(response)
}

fn unpacked(packed: &[u8]) -> Option<Vec<u8>> {
    let mut data = Vec::new();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut data).ok()?;
    Some(data)
}

fn tag(file: &EmbeddedFile) -> HeaderValue {
    let hash = file.metadata.sha256_hash();
    HeaderValue::try_from(format!("\"{}\"", hex(&hash[..12])))
        .unwrap_or(HeaderValue::from_static("\"?\""))
}

fn made(
    status: StatusCode,
    kind: &'static str,
    body: impl Into<std::borrow::Cow<'static, [u8]>>,
) -> Response<Body> {
    let body = match body.into() {
        std::borrow::Cow::Borrowed(bytes) => Body::from(bytes),
        std::borrow::Cow::Owned(bytes) => Body::from(bytes),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// The few kinds of files that the page is made of.
fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(path: &str) -> Response<Body> {
        answer(&Request::builder().uri(path).body(()).unwrap())
    }

    #[test]
    fn the_page_has_its_places_and_the_gateway_the_rest() {
        for (method, path, expected) in [
            ("GET", "/", true),
            ("HEAD", "/", true),
            ("GET", "/agents", true),
            ("GET", "/agents/my%20bot/guards", true),
            ("GET", "/sessions/a/s%2F1", true),
            ("GET", "/assets/index-abc.js", true),
            ("GET", "/favicon.svg", true),
            ("POST", "/", false),
            ("POST", "/sessions/v1/messages", false),
            ("GET", "/agent/a/openai/v1/models", false),
            ("GET", "/openai/v1/models", false),
            ("GET", "/favicon.svg/x", false),
        ] {
            let method: Method = method.parse().unwrap();
            assert_eq!(serves(&method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn places_are_asked_for_again_and_never_run_what_is_not_ours() {
        for path in ["/", "/agents/x/guards", "/settings"] {
            let response = ask(path);
            assert_eq!(response.status(), StatusCode::OK, "{path}");
            let header = |name: HeaderName| response.headers()[name].to_str().unwrap().to_owned();
            assert_eq!(header(header::CACHE_CONTROL), ASK_AGAIN);
            assert_eq!(header(header::X_CONTENT_TYPE_OPTIONS), "nosniff");
            assert_eq!(header(header::REFERRER_POLICY), "no-referrer");
            let policy = header(header::CONTENT_SECURITY_POLICY);
            assert!(
                policy.contains("default-src 'none'") && !policy.contains("unsafe"),
                "{policy}"
            );
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_not_the_page() {
        for path in ["/assets/gone.js", "/assets/", "/assets/../index.html", "/favicon.ico"] {
            let response = ask(path);
            assert_eq!(response.status(), StatusCode::NOT_FOUND, "{path}");
            assert_eq!(response.headers()[header::CACHE_CONTROL], ASK_AGAIN, "{path}");
        }
    }

    #[test]
    fn a_browser_that_is_lost_gets_the_page_and_a_client_does_not() {
        for (method, accept, expected) in [
            ("GET", "text/html,application/xhtml+xml,*/*;q=0.8", true),
            ("GET", "application/json", false),
            ("GET", "*/*", false),
            ("POST", "text/html", false),
        ] {
            let request = Request::builder().method(method).uri("/nope");
            let request = request.header(header::ACCEPT, accept).body(()).unwrap();
            let answered = lost(&request);
            assert_eq!(answered.is_some(), expected, "{method} {accept}");
            if let Some(response) = answered {
                assert_eq!(response.status(), StatusCode::NOT_FOUND);
                let kind = response.headers()[header::CONTENT_TYPE].to_str().unwrap();
                assert!(kind.starts_with("text/html"), "{kind}");
                assert!(response.headers().contains_key(header::CONTENT_SECURITY_POLICY));
            }
        }
    }

    #[tokio::test]
    async fn a_built_page_is_packed_and_kept() {
        let packed = Files::iter().find(|name| name.ends_with(".js.gz"));
        let Some(name) = packed.as_deref().and_then(|name| name.strip_suffix(".gz")) else {
            return;
        };
        let request = Request::builder()
            .uri(format!("/{name}"))
            .header(header::ACCEPT_ENCODING, "br, gzip;q=0.5")
            .body(())
            .unwrap();
        let response = answer(&request);
        assert_eq!(response.headers()[header::CACHE_CONTROL], FOR_EVER);
        assert_eq!(response.headers()[header::CONTENT_ENCODING], "gzip");
        assert!(response.headers()[header::CONTENT_TYPE].to_str().unwrap().contains("javascript"));
        let tag = response.headers()[header::ETAG].clone();
        let again = Request::builder()
            .uri(format!("/{name}"))
            .header(header::IF_NONE_MATCH, tag)
            .body(())
            .unwrap();
        assert_eq!(answer(&again).status(), StatusCode::NOT_MODIFIED);

        // A client that takes no packed files gets the script itself.
        let plain = ask(&format!("/{name}"));
        assert!(!plain.headers().contains_key(header::CONTENT_ENCODING));
        let plain = axum::body::to_bytes(plain.into_body(), usize::MAX).await.unwrap();
        let small = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert_eq!(unpacked(&small).unwrap(), plain);
        assert!(small.len() < plain.len());
    }
}
