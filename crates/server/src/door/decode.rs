//! Content encodings, undone for the copy that is read; what passes on stays as it was.

use std::io::Write;

use bytes::Bytes;
use http::{HeaderMap, header};

/// Largest request that is unpacked for reading.
const MOST: usize = 256 << 20;

/// Undoes an encoding, piece by piece.
pub(crate) enum Decoder {
    /// Nothing to undo.
    Identity,
    /// gzip: a stream of it can be given an end of ours.
    Gzip {
        unpack: Box<flate2::write::MultiGzDecoder<Vec<u8>>>,
        /// The checksum of what was passed on.
        sum: flate2::Crc,
        /// What was unpacked and not passed on yet.
        fresh: Vec<u8>,
    },
    /// Another encoding that we read.
    Packed(Box<dyn Unpack>),
    /// An encoding that we do not know, or a stream that is broken: nothing is read any more.
    Unreadable,
}

/// A writer that keeps what it has unpacked.
pub(crate) trait Unpack: Send {
    fn feed(&mut self, bytes: &[u8]) -> std::io::Result<Vec<u8>>;
}

impl Decoder {
    /// The decoder for a message with these headers.
    pub(crate) fn new(headers: &HeaderMap) -> Decoder {
        let encoding = headers.get(header::CONTENT_ENCODING).map(http::HeaderValue::as_bytes);
        match encoding.map(<[u8]>::to_ascii_lowercase).as_deref() {
            None | Some(b"identity" | b"") => Decoder::Identity,
            Some(b"gzip" | b"x-gzip") => {
                let unpack = Box::new(flate2::write::MultiGzDecoder::new(Vec::new()));
                Decoder::Gzip { unpack, sum: flate2::Crc::new(), fresh: Vec::new() }
            }
            Some(b"deflate") => {
                Decoder::Packed(Box::new(flate2::write::ZlibDecoder::new(Vec::new())))
            }
            Some(b"br") => {
                Decoder::Packed(Box::new(brotli::DecompressorWriter::new(Vec::new(), 4096)))
            }
            Some(b"zstd") => match zstd::stream::write::Decoder::new(Vec::new()) {
                Ok(decoder) => Decoder::Packed(Box::new(decoder)),
                Err(_) => Decoder::Unreadable,
            },
            Some(_) => Decoder::Unreadable,
        }
    }

    /// Whether bytes of our own can be added to the message.
    pub(crate) fn is_identity(&self) -> bool {
        matches!(self, Decoder::Identity)
    }

    /// The next bytes in clear.
    pub(crate) fn feed(&mut self, bytes: &Bytes) -> Bytes {
        match self {
            Decoder::Identity => bytes.clone(),
            Decoder::Unreadable => Bytes::new(),
            Decoder::Gzip { unpack, fresh, .. } => match unpack.feed(bytes) {
                Ok(clear) => {
                    fresh.extend_from_slice(&clear);
                    Bytes::from(clear)
                }
                Err(_) => {
                    *self = Decoder::Unreadable;
                    Bytes::new()
                }
            },
            Decoder::Packed(unpack) => match unpack.feed(bytes) {
                Ok(clear) => Bytes::from(clear),
                Err(_) => {
                    *self = Decoder::Unreadable;
                    Bytes::new()
                }
            },
        }
    }
}

impl Decoder {
    /// How much was unpacked and not passed on yet, where that matters.
    pub(crate) fn fresh(&self) -> usize {
        if let Decoder::Gzip { fresh, .. } = self { fresh.len() } else { 0 }
    }

    /// So much of it is passed on. What is not goes without a trace.
    pub(crate) fn passed(&mut self, amount: usize) {
        if let Decoder::Gzip { sum, fresh, .. } = self {
            let passed = amount.min(fresh.len());
            sum.update(&fresh[..passed]);
            fresh.drain(..passed);
        }
    }
}

/// What a server writes when it flushes a packed stream after an event.
const FLUSHED: [u8; 4] = [0, 0, 0xff, 0xff];

impl Decoder {
    /// Last words of ours, in the message's own encoding, and its proper end; `passed` is what was
    /// passed on last. `None` where that cannot be done.
    ///
    /// A gzip stream that was flushed stands at the edge of a byte, so that a block of our own, not
    /// compressed, and the checksum of everything can follow.
    pub(crate) fn last_words(&mut self, words: &[u8], passed: &[u8]) -> Option<Vec<u8>> {
        match self {
            Decoder::Identity => Some(words.to_vec()),
            Decoder::Gzip { sum, .. } if passed.ends_with(&FLUSHED) => {
                let length = u16::try_from(words.len()).ok()?;
                sum.update(words);
                let mut end = vec![1];
                end.extend(length.to_le_bytes());
                end.extend((!length).to_le_bytes());
                end.extend_from_slice(words);
                end.extend(sum.sum().to_le_bytes());
                end.extend(sum.amount().to_le_bytes());
                Some(end)
            }
            Decoder::Gzip { .. } | Decoder::Packed(_) | Decoder::Unreadable => None,
        }
    }
}

/// A whole body in clear, if it was encoded.
pub(crate) fn whole(headers: &HeaderMap, body: &Bytes) -> Option<Vec<u8>> {
    match Decoder::new(headers) {
        Decoder::Identity | Decoder::Unreadable => None,
        Decoder::Gzip { mut unpack, .. } => unpacked(&mut *unpack, body),
        Decoder::Packed(mut unpack) => unpacked(&mut *unpack, body),
    }
}

fn unpacked(unpack: &mut dyn Unpack, body: &Bytes) -> Option<Vec<u8>> {
    let mut clear = Vec::new();
    for piece in body.chunks(64 * 1024) {
        clear.extend(unpack.feed(piece).ok()?);
        if clear.len() > MOST {
            return None;
        }
    }
    Some(clear)
}

impl Unpack for flate2::write::MultiGzDecoder<Vec<u8>> {
    fn feed(&mut self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        self.write_all(bytes)?;
        self.flush()?;
        Ok(std::mem::take(self.get_mut()))
    }
}

impl Unpack for flate2::write::ZlibDecoder<Vec<u8>> {
    fn feed(&mut self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        self.write_all(bytes)?;
        self.flush()?;
        Ok(std::mem::take(self.get_mut()))
    }
}

impl Unpack for brotli::DecompressorWriter<Vec<u8>> {
    fn feed(&mut self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        self.write_all(bytes)?;
        self.flush()?;
        Ok(std::mem::take(self.get_mut()))
    }
}

impl Unpack for zstd::stream::write::Decoder<'static, Vec<u8>> {
    fn feed(&mut self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        self.write_all(bytes)?;
        self.flush()?;
        Ok(std::mem::take(self.get_mut()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(encoding: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
        headers
    }

    fn packed(encoding: &str, clear: &[u8]) -> Vec<u8> {
        match encoding {
            "gzip" => {
                let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                e.write_all(clear).unwrap();
                e.finish().unwrap()
            }
            "deflate" => {
                let mut e =
                    flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
                e.write_all(clear).unwrap();
                e.finish().unwrap()
            }
            "br" => {
                let mut e = brotli::CompressorWriter::new(Vec::new(), 4096, 4, 20);
                e.write_all(clear).unwrap();
                e.into_inner()
            }
            "zstd" => zstd::stream::encode_all(clear, 3).unwrap(),
            _ => clear.to_vec(),
        }
    }

    #[test]
    fn every_encoding_is_read_whatever_the_pieces() {
        let clear: Vec<u8> = (0..5000u32).flat_map(|n| n.to_string().into_bytes()).collect();
        for encoding in ["gzip", "deflate", "br", "zstd", "identity"] {
            let bytes = packed(encoding, &clear);
            for size in [1, 7, 1000, usize::MAX] {
                let mut decoder = Decoder::new(&headers(encoding));
                let mut read = Vec::new();
                for piece in bytes.chunks(size.min(bytes.len())) {
                    read.extend_from_slice(&decoder.feed(&Bytes::copy_from_slice(piece)));
                }
                assert!(read == clear, "{encoding} in pieces of {size}");
            }
        }
    }

    #[test]
    fn a_flushed_gzip_stream_can_be_given_an_end() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(b"data: one\n\n").unwrap();
        encoder.flush().unwrap();
        let mut sent = encoder.get_ref().clone();
        let mut decoder = Decoder::new(&headers("gzip"));
        assert_eq!(decoder.feed(&Bytes::from(sent.clone())), &b"data: one\n\n"[..]);
        decoder.passed(decoder.fresh());
        assert_eq!(decoder.last_words(b"data: cut\n\n", b"in the middle"), None);
        // What was read and not passed on is not in the checksum.
        encoder.write_all(b"data: two\n\n").unwrap();
        encoder.flush().unwrap();
        let more = Bytes::copy_from_slice(&encoder.get_ref()[sent.len()..]);
        assert_eq!(decoder.feed(&more), &b"data: two\n\n"[..]);
        sent.extend(decoder.last_words(b"data: cut\n\n", &sent).unwrap());
        let mut clear = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&sent[..]), &mut clear)
            .unwrap();
        assert_eq!(clear, "data: one\n\ndata: cut\n\n");
        assert_eq!(Decoder::new(&headers("br")).last_words(b"x", &FLUSHED), None);
    }

    #[test]
    fn what_cannot_be_read_is_left_alone() {
        let mut broken = Decoder::new(&headers("gzip"));
        assert_eq!(broken.feed(&Bytes::from_static(b"this is not gzip at all")), Bytes::new());
        assert!(matches!(broken, Decoder::Unreadable));
        assert!(matches!(Decoder::new(&headers("compress")), Decoder::Unreadable));
        assert!(Decoder::new(&HeaderMap::new()).is_identity());
        assert_eq!(whole(&headers("identity"), &Bytes::from_static(b"x")), None);
        let body = Bytes::from(packed("gzip", b"hello"));
        assert_eq!(whole(&headers("gzip"), &body).as_deref(), Some(&b"hello"[..]));
    }
}
