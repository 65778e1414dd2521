//! Where a call stands in a trace: the caller's, if it names one in `traceparent`, or else one for its
//! session.
//!
//! Ids come from the session and the call, not from randomness: every node of a fleet writes the same
//! ones, and a span that is sent again is the same.

use deadstop_core::{Digest, hex};

/// The header of W3C Trace Context that names a span.
pub const TRACEPARENT: &str = "traceparent";
/// The one beside it, for what tracing systems add.
pub const TRACESTATE: &str = "tracestate";

/// The trace that a request belongs to, as its caller says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    /// The trace.
    pub id: [u8; 16],
    /// The caller's span.
    pub parent: [u8; 8],
    /// Whether the caller records it.
    pub sampled: bool,
}

/// A call's own place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallSpan {
    /// The trace.
    pub trace: [u8; 16],
    /// The call's span.
    pub span: [u8; 8],
    /// The span around it.
    pub parent: Option<[u8; 8]>,
}

/// Which calls are exported.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// The share of sessions.
    pub share: f64,
    /// Whether a caller's decision about its trace comes first.
    pub follows: bool,
}

impl Sampler {
    /// Whether a call is exported: as its caller decided about the trace, or else all calls of one
    /// session are, or none.
    pub fn takes(&self, caller: Option<&Trace>, project: &str, session: i64) -> bool {
        match caller {
            Some(caller) if self.follows => caller.sampled,
            _ if self.share >= 1.0 => true,
            _ => {
                let at = Digest::of(format!("{project}/{session}").as_bytes()).0;
                (at as f64 / u64::MAX as f64) < self.share
            }
        }
    }
}

impl Trace {
    /// Reads a `traceparent`; `None` if it is not one.
    pub fn parse(header: &str) -> Option<Trace> {
        let mut parts = header.trim().split('-');
        let (version, id) = (parts.next()?, parts.next()?);
        let (parent, flags) = (parts.next()?, parts.next()?);
        let [version] = bytes::<1>(version)?;
        // Later versions may add parts behind these; ff is not a version.
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        let (id, parent) = (bytes::<16>(id)?, bytes::<8>(parent)?);
        let [flags] = bytes::<1>(flags)?;
        let named = id != [0; 16] && parent != [0; 8];
        named.then_some(Trace { id, parent, sampled: flags & 1 == 1 })
    }
}

impl CallSpan {
    /// The place of a call.
    pub fn of(trace: Option<Trace>, project: &str, session: i64, call: i64) -> CallSpan {
        // A letter, the session's place and the call's number: each digest is of a part of it.
        let mut text = format!("a{project}/{session}/{call}").into_bytes();
        let span = Digest::of(&text[1..]).0.to_be_bytes();
        if let Some(Trace { id, parent, .. }) = trace {
            return CallSpan { trace: id, span, parent: Some(parent) };
        }
        let end = text.iter().rposition(|byte| *byte == b'/').unwrap_or(text.len());
        let mut id = [0; 16];
        for (half, letter) in id.chunks_exact_mut(8).zip(*b"ab") {
            text[0] = letter;
            half.copy_from_slice(&Digest::of(&text[..end]).0.to_be_bytes());
        }
        CallSpan { trace: id, span, parent: None }
    }

    /// The `traceparent` of what this call asks for in turn.
    pub fn header(&self) -> String {
        format!("00-{}-{}-01", hex(&self.trace), hex(&self.span))
    }
}

/// Bytes in lower-case hexadecimal, exactly so many.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let fine = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() != 2 * N || !text.bytes().all(fine) {
        return None;
    }
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_read_as_w3c_says() {
        let (id, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        let read = |text: String| Trace::parse(&text);
        let fine = read(format!("00-{id}-{span}-01")).unwrap();
        assert!(fine.sampled && fine.id[0] == 0x0a && fine.parent[7] == 0x31);
        assert!(!read(format!("00-{id}-{span}-00")).unwrap().sampled);
        assert!(read(format!("cc-{id}-{span}-01-what")).is_some(), "a later version");
        for bad in [
            String::new(),
            format!("ff-{id}-{span}-01"),
            format!("00-{id}-{span}-01-more"),
            format!("00-{}-{span}-01", id.to_uppercase()),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{id}-{}-01", "0".repeat(16)),
            format!("00-{id}-{span}"),
            format!("00-{}é-{span}-01", &id[2..]),
        ] {
            assert_eq!(read(bad.clone()), None, "{bad}");
        }
    }

    /// Every node writes the same ids, whatever its version is.
    #[test]
    fn ids_come_from_these_texts() {
        let id = |text: &str| Digest::of(text.as_bytes()).0.to_be_bytes();
        let place = CallSpan::of(None, "p/q", -7, -12);
        assert_eq!(place.trace, [id("ap/q/-7"), id("bp/q/-7")].concat()[..]);
        assert_eq!(place.span, id("p/q/-7/-12"));
    }

    #[test]
    fn a_sampler_takes_whole_sessions_and_follows_callers() {
        let caller = |sampled| Trace { id: [7; 16], parent: [9; 8], sampled };
        let half = Sampler { share: 0.5, follows: true };
        assert!(
            half.takes(Some(&caller(true)), "p", 1) && !half.takes(Some(&caller(false)), "p", 1)
        );
        let taken = (0..1000).filter(|session| half.takes(None, "p", *session)).count();
        assert!((400..600).contains(&taken), "{taken} of 1000");
        let alone = Sampler { share: 1.0, follows: false };
        assert!(alone.takes(Some(&caller(false)), "p", 1));
        assert!(!Sampler { share: 0.0, ..alone }.takes(Some(&caller(true)), "p", 1));
    }

    #[test]
    fn a_call_stands_in_its_callers_trace_or_in_its_sessions() {
        let (first, second) = (CallSpan::of(None, "p", 1, 2), CallSpan::of(None, "p", 1, 3));
        assert_eq!((first.trace, first.parent), (second.trace, None));
        assert_ne!(first.span, second.span);
        assert_ne!(first.trace, CallSpan::of(None, "p", 2, 2).trace);
        let caller = Trace { id: [7; 16], parent: [9; 8], sampled: true };
        let inside = CallSpan::of(Some(caller), "p", 1, 2);
        assert_eq!((inside.trace, inside.parent), ([7; 16], Some([9; 8])));
        let next = Trace::parse(&inside.header()).unwrap();
        assert_eq!((next.id, next.parent, next.sampled), ([7; 16], inside.span, true));
    }
}
