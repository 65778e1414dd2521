//! A request that has arrived whole: its bytes, how they are read, and what is sent on instead.

use bytes::Bytes;
use deadstop_protocol::llm::Dialect;
use deadstop_protocol::llm::client::Client;
use deadstop_protocol::llm::request::{self, Notes};
use deadstop_protocol::plain;
use deadstop_redact::excerpt::Excerpt;
use http::request::Parts;

use super::route::Route;
use crate::door::decode::{self, Fault};

/// Bytes of a request body that are kept as evidence.
const MOST_BODY: usize = 32 << 10;

/// A request's body and its form.
pub(super) struct Inbound<'a> {
    path: &'a str,
    body: Bytes,
    /// The body unpacked and in UTF-8, if it came otherwise.
    unpacked: Option<Vec<u8>>,
    /// The form that the path names.
    named: Dialect,
    /// The form in which it is read: its content decides where the path does not.
    pub(super) dialect: Dialect,
    /// The program that sent it.
    pub(super) client: Client,
}

/// Why a request is not read.
#[derive(Debug, Clone, Copy)]
pub(super) enum NotRead {
    Packed(Fault),
    /// It has too many parts.
    Crowded,
}

impl<'a> Inbound<'a> {
    /// A body is refused that is too large when it is unpacked, that has too many parts, or that is packed in a way that
    /// Deadstop does not read: its provider may know how to.
    pub(super) fn new(
        parts: &Parts,
        body: Bytes,
        route: &'a Route<'_>,
    ) -> Result<Inbound<'a>, NotRead> {
        let (method, path) = (parts.method.as_str(), route.path.as_str());
        let named = request::dialect(route.provider.api, method, path);
        let unpacked = decode::whole(&parts.headers, &body).map_err(NotRead::Packed)?;
        if plain::is_too_wide(unpacked.as_deref().unwrap_or(&body)) {
            return Err(NotRead::Crowded);
        }
        let narrow = plain::utf8(unpacked.as_deref().unwrap_or(&body));
        let is_json = |text: &Vec<u8>| plain::is_json(text);
        let unpacked = narrow.filter(is_json).or(unpacked);
        let clear = unpacked.as_deref().unwrap_or(&body);
        let dialect = request::dialect_by_body(named, path, clear);
        let headers = parts.headers.iter();
        if request::is_crowded(dialect, clear) {
            return Err(NotRead::Crowded);
        }
        let client = Client::of(
            headers.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?))),
        );
        Ok(Inbound { path, body, unpacked, named, dialect, client })
    }

    fn clear(&self) -> &[u8] {
        self.unpacked.as_deref().unwrap_or(&self.body)
    }

    /// Whether its content alone says that it is a model request.
    pub(super) fn is_guessed(&self) -> bool {
        self.named != self.dialect
    }

    /// What it says; `None` if it cannot be read.
    pub(super) fn open(&self) -> Option<request::Open<'_>> {
        request::open(self.dialect, self.path, self.clear()).ok()
    }

    /// What is kept of it as evidence.
    pub(super) fn evidence(&self) -> Excerpt {
        Excerpt::of_body(self.clear(), MOST_BODY)
    }

    /// The body with a request for the usage chunk, if it lacks one. A compressed body stays as it
    /// is, and so do one that is not in UTF-8 and one for an unknown path, where the upstream may not know the option.
    pub(super) fn with_usage(&self, opened: Option<&request::Open<'_>>) -> Option<Vec<u8>> {
        let changeable = self.unpacked.is_none() && self.named == self.dialect;
        opened.filter(|_| changeable)?.with_usage()
    }

    /// The body with Deadstop's notes to the model, old and new, added to it; `None` if none of them
    /// belongs into this body, or if it is compressed.
    pub(super) fn with_notes(
        &self,
        notes: &mut Notes,
        new: &[(String, String)],
    ) -> Option<Vec<u8>> {
        if self.unpacked.is_some() {
            return None;
        }
        for (id, advice) in new {
            notes.add(id, advice);
        }
        if notes.is_empty() { None } else { self.open()?.with_notes(notes) }
    }

    /// What goes to the upstream: the bytes as they came, unless something was added to them.
    pub(super) fn outbound(self, noted: Option<Vec<u8>>, asked: Option<Vec<u8>>) -> Bytes {
        match (noted, asked) {
            (Some(noted), Some(_)) => request::with_usage(&noted).unwrap_or(noted).into(),
            (Some(noted), None) => noted.into(),
            (None, asked) => asked.map_or(self.body, Bytes::from),
        }
    }
}
