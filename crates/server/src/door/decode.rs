//! Decompresses the copy of a body that is read. The bytes that pass on stay compressed.
//!
//! A few kilobytes can unpack to gigabytes, so every decoder writes into a [`Room`] of a given size.
//! A body that needs more room is not read, and a body that is not read does not pass.

use std::borrow::Cow;
use std::io::Write;

use bytes::Bytes;
use deadstop_protocol::buffer::append;
use http::{HeaderMap, header};

/// Largest body that is unpacked as a whole.
pub(crate) const MOST: usize = 32 << 20;
/// What any piece of a packed body may unpack to, and how much more for each of its bytes.
const PIECE: usize = 4 << 20;
const PER_BYTE: usize = 16;
/// What may be unpacked and not passed on yet.
const MOST_FRESH: usize = 16 << 20;

/// Why a packed answer is not passed on.
pub(crate) const TOO_LARGE: &str = "the packed answer unpacks to more than Deadstop reads \
    (32 MiB in all, 4 MiB and 16 times its size per piece); ask for it without compression";
/// Why an answer is not passed on that cannot be unpacked: its client may know how to.
pub(crate) const UNREADABLE: &str = "the answer is packed in a way that Deadstop does not read (it reads gzip, \
    deflate, br and zstd, one at a time); ask for it without compression";
/// Why a packed request is not passed on.
pub(crate) const REQUEST_TOO_LARGE: &str =
    "the packed request unpacks to more than 32 MiB; send it without compression, or send less";

/// Why a request is not passed on that cannot be unpacked: its provider may know how to.
pub(crate) const REQUEST_UNREADABLE: &str = "the request is packed in a way that Deadstop does not read (it reads gzip, deflate, br and zstd, one at a \
    time); send it without compression";

/// Undoes an encoding, piece by piece.
pub(crate) enum Decoder {
    /// Nothing to undo.
    Identity,
    /// gzip: a stream of it can be given an end of ours.
    Gzip {
        unpack: Box<flate2::write::MultiGzDecoder<Room>>,
        /// The checksum of what was passed on.
        sum: flate2::Crc,
        /// What was unpacked and not passed on yet.
        fresh: Vec<u8>,
    },
    /// Another encoding that we read.
    Packed(Box<dyn Unpack>),
    /// An encoding that we do not know, or a stream that is broken: nothing is read any more.
    Unreadable,
    /// A body that unpacks to more than it may.
    TooLarge,
}

/// Why nothing was unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The bytes are not what the header says.
    Broken,
    /// They unpack to more than there is room for.
    TooLarge,
}

/// A decoder's output buffer with a fixed limit.
#[derive(Default)]
pub(crate) struct Room {
    bytes: Vec<u8>,
    left: usize,
    full: bool,
}

impl Write for Room {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes.len() > self.left {
            self.full = true;
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.left -= bytes.len();
        let most = self.bytes.len() + bytes.len() + self.left;
        append(&mut self.bytes, bytes, most);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A decoder that writes into a room.
pub(crate) trait Unpack: Write + Send {
    fn room(&mut self) -> &mut Room;
}

/// Unpacks the next bytes, up to a size.
fn unpack_piece(unpack: &mut dyn Unpack, bytes: &[u8], most: usize) -> Result<Vec<u8>, Fault> {
    unpack.room().left = most;
    let written = unpack.write_all(bytes).and_then(|()| unpack.flush());
    let room = unpack.room();
    match written {
        Ok(()) => Ok(std::mem::take(&mut room.bytes)),
        Err(_) if room.full => Err(Fault::TooLarge),
        Err(_) => Err(Fault::Broken),
    }
}

impl Decoder {
    /// The decoder for a message with these headers.
    pub(crate) fn new(headers: &HeaderMap) -> Decoder {
        let encodings: Vec<Vec<u8>> = headers
            .get_all(header::CONTENT_ENCODING)
            .iter()
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .map(|name| name.trim_ascii().to_ascii_lowercase())
            .filter(|name| !matches!(name.as_slice(), b"" | b"identity"))
            .collect();
        let encoding = match encodings.as_slice() {
            [] => None,
            [one] => Some(one.as_slice()),
            // Packed several times.
            _ => return Decoder::Unreadable,
        };
        match encoding {
            None => Decoder::Identity,
            Some(b"gzip" | b"x-gzip") => {
                let unpack = Box::new(flate2::write::MultiGzDecoder::new(Room::default()));
                Decoder::Gzip { unpack, sum: flate2::Crc::new(), fresh: Vec::new() }
            }
            Some(b"deflate") => {
                Decoder::Packed(Box::new(Deflate::Unknown(Vec::new(), Room::default())))
            }
            Some(b"br") => {
                Decoder::Packed(Box::new(brotli::DecompressorWriter::new(Room::default(), 4096)))
            }
            Some(b"zstd") => match zstd() {
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

    /// Whether it is packed in a way that is not read: a client may read it all the same.
    pub(crate) fn is_unreadable(&self) -> bool {
        matches!(self, Decoder::Unreadable)
    }

    /// Whether the body unpacks to more than it may: it must not pass.
    pub(crate) fn is_too_large(&self) -> bool {
        matches!(self, Decoder::TooLarge)
    }

    /// The next bytes in clear.
    pub(crate) fn feed<'b>(&mut self, bytes: &'b [u8]) -> Cow<'b, [u8]> {
        let most = PIECE + PER_BYTE * bytes.len();
        let unpacked = match self {
            Decoder::Identity => return Cow::Borrowed(bytes),
            Decoder::Unreadable | Decoder::TooLarge => return Cow::Borrowed(&[]),
            Decoder::Gzip { unpack, fresh, .. } => {
                let most = most.min(MOST_FRESH.saturating_sub(fresh.len()));
                let unpacked = unpack_piece(&mut **unpack, bytes, most);
                if let Ok(clear) = &unpacked {
                    fresh.extend_from_slice(clear);
                }
                unpacked
            }
            Decoder::Packed(unpack) => unpack_piece(&mut **unpack, bytes, most),
        };
        match unpacked {
            Ok(clear) => Cow::Owned(clear),
            Err(fault) => {
                *self = match fault {
                    Fault::Broken => Decoder::Unreadable,
                    Fault::TooLarge => Decoder::TooLarge,
                };
                Cow::Borrowed(&[])
            }
        }
    }
}

/// A decoder with the largest window that RFC 9659 allows for HTTP: 8 MiB.
fn zstd() -> std::io::Result<zstd::stream::write::Decoder<'static, Room>> {
    let mut decoder = zstd::stream::write::Decoder::new(Room::default())?;
    decoder.window_log_max(23)?;
    Ok(decoder)
}

impl Decoder {
    /// How many decompressed bytes are not passed on yet, where that matters.
    pub(crate) fn fresh(&self) -> usize {
        if let Decoder::Gzip { fresh, .. } = self { fresh.len() } else { 0 }
    }

    /// So many of them are passed on. The others do not count in the checksum.
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

/// The last bytes of what was passed on last; `None` of fewer. They tell whether a packed stream was flushed there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tail(Option<[u8; FLUSHED.len()]>);

impl Tail {
    /// The end of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Tail {
        Tail(bytes.last_chunk().copied())
    }

    fn is_flushed(self) -> bool {
        self.0 == Some(FLUSHED)
    }
}

impl Decoder {
    /// Last words of ours, in the message's own encoding, and its proper end; `passed` is the end of what was
    /// passed on last. `None` where that cannot be done.
    ///
    /// A gzip stream that was flushed stands at the edge of a byte, so that a block of our own, not
    /// compressed, and the checksum of everything can follow.
    pub(crate) fn last_words(&mut self, words: &[u8], passed: Tail) -> Option<Vec<u8>> {
        match self {
            Decoder::Identity => Some(words.to_vec()),
            Decoder::Gzip { sum, .. } if passed.is_flushed() => {
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
            Decoder::Gzip { .. } | Decoder::Packed(_) | Decoder::Unreadable | Decoder::TooLarge => {
                None
            }
        }
    }
}

/// A whole body in clear; `None` if it is not packed.
pub(crate) fn whole(headers: &HeaderMap, body: &Bytes) -> Result<Option<Vec<u8>>, Fault> {
    whole_up_to(headers, body, MOST)
}

/// The same for a body that may unpack to so many bytes.
pub(crate) fn whole_up_to(
    headers: &HeaderMap,
    body: &Bytes,
    most: usize,
) -> Result<Option<Vec<u8>>, Fault> {
    match Decoder::new(headers) {
        Decoder::Identity => Ok(None),
        Decoder::Unreadable if body.is_empty() => Ok(None),
        Decoder::Unreadable => Err(Fault::Broken),
        Decoder::TooLarge => Err(Fault::TooLarge),
        Decoder::Gzip { mut unpack, .. } => unpack_piece(&mut *unpack, body, most).map(Some),
        Decoder::Packed(mut unpack) => unpack_piece(&mut *unpack, body, most).map(Some),
    }
}

impl Unpack for flate2::write::MultiGzDecoder<Room> {
    fn room(&mut self) -> &mut Room {
        self.get_mut()
    }
}

/// `deflate` with the zlib header, as the standard has it, or without, as some servers send it. The first two
/// bytes tell.
enum Deflate {
    Unknown(Vec<u8>, Room),
    Zlib(flate2::write::ZlibDecoder<Room>),
    Raw(flate2::write::DeflateDecoder<Room>),
}

impl Write for Deflate {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Deflate::Zlib(zlib) => zlib.write(bytes),
            Deflate::Raw(raw) => raw.write(bytes),
            Deflate::Unknown(first, room) => {
                first.extend_from_slice(bytes);
                let [one, two, ..] = **first else { return Ok(bytes.len()) };
                let is_zlib = one & 0xf == 8
                    && one >> 4 <= 7
                    && u16::from_be_bytes([one, two]).is_multiple_of(31);
                let (first, room) = (std::mem::take(first), std::mem::take(room));
                *self = match is_zlib {
                    true => Deflate::Zlib(flate2::write::ZlibDecoder::new(room)),
                    false => Deflate::Raw(flate2::write::DeflateDecoder::new(room)),
                };
                self.write_all(&first).map(|()| bytes.len())
            }
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Deflate::Unknown(..) => Ok(()),
            Deflate::Zlib(zlib) => zlib.flush(),
            Deflate::Raw(raw) => raw.flush(),
        }
    }
}

impl Unpack for Deflate {
    fn room(&mut self) -> &mut Room {
        match self {
            Deflate::Unknown(_, room) => room,
            Deflate::Zlib(zlib) => zlib.get_mut(),
            Deflate::Raw(raw) => raw.get_mut(),
        }
    }
}

impl Unpack for brotli::DecompressorWriter<Room> {
    fn room(&mut self) -> &mut Room {
        self.get_mut()
    }
}

impl Unpack for zstd::stream::write::Decoder<'static, Room> {
    fn room(&mut self) -> &mut Room {
        self.get_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(encoding: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let encoding = encoding.strip_prefix("raw ").unwrap_or(encoding);
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
            "raw deflate" => {
                let mut e =
                    flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
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
        for encoding in ["gzip", "deflate", "raw deflate", "br", "zstd", "identity"] {
            let bytes = packed(encoding, &clear);
            for size in [1, 7, 1000, usize::MAX] {
                let mut decoder = Decoder::new(&headers(encoding));
                let mut read = Vec::new();
                for piece in bytes.chunks(size.min(bytes.len())) {
                    read.extend_from_slice(&decoder.feed(piece));
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
        assert_eq!(decoder.feed(&sent), &b"data: one\n\n"[..]);
        decoder.passed(decoder.fresh());
        assert_eq!(decoder.last_words(b"data: cut\n\n", Tail::of(b"in the middle")), None);
        // What was read and not passed on is not in the checksum.
        encoder.write_all(b"data: two\n\n").unwrap();
        encoder.flush().unwrap();
        let more = Bytes::copy_from_slice(&encoder.get_ref()[sent.len()..]);
        assert_eq!(decoder.feed(&more), &b"data: two\n\n"[..]);
        sent.extend(decoder.last_words(b"data: cut\n\n", Tail::of(&sent)).unwrap());
        let mut clear = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&sent[..]), &mut clear)
            .unwrap();
        assert_eq!(clear, "data: one\n\ndata: cut\n\n");
        assert_eq!(Decoder::new(&headers("br")).last_words(b"x", Tail::of(&FLUSHED)), None);
    }

    #[test]
    fn what_cannot_be_read_is_left_alone() {
        let mut broken = Decoder::new(&headers("gzip"));
        assert!(broken.feed(b"this is not gzip at all").is_empty());
        assert!(matches!(broken, Decoder::Unreadable));
        assert!(matches!(Decoder::new(&headers("compress")), Decoder::Unreadable));
        assert!(Decoder::new(&HeaderMap::new()).is_identity());
        assert_eq!(whole(&headers("identity"), &Bytes::from_static(b"x")), Ok(None));
        let body = Bytes::from(packed("gzip", b"hello"));
        assert_eq!(whole(&headers("gzip"), &body), Ok(Some(b"hello".to_vec())));
    }

    #[test]
    fn hole_04_bombs_are_not_unpacked() {
        let zeros = vec![b' '; MOST + 1];
        for encoding in ["gzip", "deflate", "raw deflate", "br", "zstd"] {
            let bomb = Bytes::from(packed(encoding, &zeros));
            assert_eq!(whole(&headers(encoding), &bomb), Err(Fault::TooLarge), "{encoding}");
            let mut decoder = Decoder::new(&headers(encoding));
            assert!(decoder.feed(&bomb).is_empty(), "{encoding}");
            assert!(decoder.is_too_large(), "{encoding}");
            // What fits is read.
            let fits = Bytes::from(packed(encoding, &zeros[..PIECE]));
            assert_eq!(Decoder::new(&headers(encoding)).feed(&fits).len(), PIECE, "{encoding}");
        }
    }
}
