//! Content encodings, at both ends.

use std::io::Write;

/// The encodings that are in use.
pub(crate) const ENCODINGS: [&str; 5] = ["identity", "gzip", "deflate", "br", "zstd"];

/// Packs pieces so that each can be unpacked when it arrives, as servers do with streams.
pub(crate) fn pack(encoding: &str, pieces: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let fast = flate2::Compression::fast();
    match encoding {
        "gzip" => each(flate2::write::GzEncoder::new(Vec::new(), fast), pieces, |e| {
            std::mem::take(e.get_mut())
        })
        .finish(|e| e.finish().unwrap()),
        "deflate" => each(flate2::write::ZlibEncoder::new(Vec::new(), fast), pieces, |e| {
            std::mem::take(e.get_mut())
        })
        .finish(|e| e.finish().unwrap()),
        "br" => each(brotli::CompressorWriter::new(Vec::new(), 4096, 4, 20), pieces, |e| {
            std::mem::take(e.get_mut())
        })
        .finish(brotli::CompressorWriter::into_inner),
        "zstd" => {
            let encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
            each(encoder, pieces, |e| std::mem::take(e.get_mut())).finish(|e| e.finish().unwrap())
        }
        _ => pieces.to_vec(),
    }
}

/// Unpacks as much as there is; what is cut off or wrong ends it.
pub(crate) fn unpack(encoding: &str, bytes: &[u8]) -> Vec<u8> {
    match encoding {
        "gzip" => {
            let mut decoder = flate2::write::MultiGzDecoder::new(Vec::new());
            feed(&mut decoder, bytes);
            std::mem::take(decoder.get_mut())
        }
        "deflate" => {
            let mut decoder = flate2::write::ZlibDecoder::new(Vec::new());
            feed(&mut decoder, bytes);
            std::mem::take(decoder.get_mut())
        }
        "br" => {
            let mut decoder = brotli::DecompressorWriter::new(Vec::new(), 4096);
            feed(&mut decoder, bytes);
            std::mem::take(decoder.get_mut())
        }
        "zstd" => {
            let mut decoder = zstd::stream::write::Decoder::new(Vec::new()).unwrap();
            feed(&mut decoder, bytes);
            std::mem::take(decoder.get_mut())
        }
        _ => bytes.to_vec(),
    }
}

fn feed(decoder: &mut impl Write, bytes: &[u8]) {
    for byte in bytes {
        if decoder.write_all(&[*byte]).and_then(|()| decoder.flush()).is_err() {
            return;
        }
    }
}

struct Packed<E> {
    encoder: E,
    pieces: Vec<Vec<u8>>,
}

fn each<E: Write>(mut encoder: E, pieces: &[Vec<u8>], take: fn(&mut E) -> Vec<u8>) -> Packed<E> {
    let mut packed = Vec::new();
    for piece in pieces {
        encoder.write_all(piece).unwrap();
        encoder.flush().unwrap();
        packed.push(take(&mut encoder));
    }
    Packed { encoder, pieces: packed }
}

impl<E> Packed<E> {
    fn finish(mut self, finish: impl FnOnce(E) -> Vec<u8>) -> Vec<Vec<u8>> {
        self.pieces.push(finish(self.encoder));
        self.pieces
    }
}
