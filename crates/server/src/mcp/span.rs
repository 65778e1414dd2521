//! Our span on its way to an MCP server, whose own spans belong below it.
//!
//! The client says in `_meta` in which span it sent a call, or in a header. Where calls are exported, the
//! server reads our span there. The header is always set; a body changes only where its client named a
//! span in it.

use bytes::Bytes;
use deadstop_protocol::mcp::{self, Message, Unnamed};
use deadstop_warden::trace::{TRACEPARENT, TRACESTATE, Trace};
use http::{HeaderMap, HeaderValue, header};

use super::flight::Flight;

/// What the server is told about spans.
#[derive(Default)]
pub(super) struct Spans {
    /// The body, where it changes.
    body: Option<Bytes>,
    /// `traceparent`, where a request is one call.
    parent: Option<HeaderValue>,
    /// `tracestate`, where the headers that came are not about this trace.
    state: Option<Option<HeaderValue>>,
}

/// The trace that a message names itself.
pub(super) fn own(message: &Message<'_>) -> Option<Trace> {
    Trace::parse(&mcp::in_trace(message)?.parent)
}

impl Spans {
    /// The spans of the calls in a request, in their order. `body` is `None` where it is packed.
    pub(super) fn of(messages: &[Message<'_>], flights: &[Flight], body: Option<&[u8]>) -> Spans {
        let calls = messages.iter().filter(|message| message.asks_for(mcp::CALL)).zip(flights);
        let spans: Vec<(&Message<'_>, String)> = calls
            .filter_map(|(message, flight)| Some((message, flight.span()?.header())))
            .collect();
        let named: Vec<(&Message<'_>, &str)> =
            spans.iter().map(|(message, span)| (*message, span.as_str())).collect();
        let traced = body.and_then(|body| mcp::traced(body, &named, Unnamed::Stays));
        let mut all = Spans { body: traced.map(Bytes::from), ..Spans::default() };
        let ([(message, span)], [flight]) = (&named[..], flights) else { return all };
        all.parent = HeaderValue::from_str(span).ok();
        // `tracestate` goes with the `traceparent` beside it. If that names another trace, or none, it is
        // not about our span.
        if own(message).is_some() {
            let state = mcp::in_trace(message).and_then(|said| said.state);
            all.state = Some(state.and_then(|state| HeaderValue::from_str(&state).ok()));
        } else if !flight.is_in_a_trace() {
            all.state = Some(None);
        }
        all
    }

    /// The body to send.
    pub(super) fn body(&self, came: &Bytes) -> Bytes {
        self.body.as_ref().unwrap_or(came).clone()
    }

    /// Puts them into the headers of a request.
    pub(super) fn put_into(self, headers: &mut HeaderMap) {
        if let Some(body) = self.body.filter(|_| headers.contains_key(header::CONTENT_LENGTH)) {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        if let Some(parent) = self.parent {
            headers.insert(TRACEPARENT, parent);
        }
        match self.state {
            Some(Some(state)) => drop(headers.insert(TRACESTATE, state)),
            Some(None) => drop(headers.remove(TRACESTATE)),
            None => {}
        }
    }
}
