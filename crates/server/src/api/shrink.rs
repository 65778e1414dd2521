//! Answers are compressed for clients that take gzip: lists of sessions shrink to a tenth.
//!
//! Streams pass as they are: events must not wait for a compressor.

use std::io::Write as _;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::Body as _;

use super::problem::{Code, Problem};

/// Shorter answers fit into one packet as they are.
const SHORTEST: u64 = 1024;

/// Compresses an answer of known length.
pub(crate) async fn shrink(request: Request, next: Next) -> Response {
    let taken = takes_gzip(request.headers());
    let mut response = next.run(request).await;
    if response.headers().contains_key(header::CONTENT_TYPE) {
        response.headers_mut().append(header::VARY, HeaderValue::from_static("accept-encoding"));
    }
    let long = response.body().size_hint().exact().is_some_and(|size| size >= SHORTEST);
    let encoded = response.headers().contains_key(header::CONTENT_ENCODING);
    if !taken || !long || encoded {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let packed = match to_bytes(body, usize::MAX).await {
        Ok(bytes) => pack(&bytes),
        Err(error) => return Problem::new(Code::Internal, error.to_string()).into_response(),
    };
    match packed {
        Ok(packed) => {
            parts.headers.remove(header::CONTENT_LENGTH);
            parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            Response::from_parts(parts, Body::from(packed))
        }
        Err(error) => Problem::new(Code::Internal, error.to_string()).into_response(),
    }
}

fn pack(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Whether a client takes gzip: it names it, and not with a weight of zero.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let asked = headers.get_all(header::ACCEPT_ENCODING);
    let mut names = asked.iter().filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(','));
    names.any(|name| {
        let mut parts = name.split(';').map(str::trim);
        let gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok());
        gzip && weight.is_none_or(|weight| weight > 0.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_taken_where_it_is_named() {
        for (asked, expected) in [
            ("gzip, deflate, br", true),
            ("br, GZIP;q=0.5", true),
            ("identity", false),
            ("gzip;q=0", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(asked));
            assert_eq!(takes_gzip(&headers), expected, "{asked}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }
}
