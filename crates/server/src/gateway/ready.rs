//! Bytes that may go to the client, in the chunks in which they came.

use std::collections::VecDeque;

use bytes::Bytes;
use http_body::Frame;

/// Bytes that leave as one chunk at most, where several wait.
const JOINED: usize = 4 << 10;

/// The next bytes that leave. Small chunks that wait together leave as one: a connection spends as much
/// on a small chunk as on a large one.
pub(super) fn next(ready: &mut VecDeque<Frame<Bytes>>) -> Option<Frame<Bytes>> {
    let mut size = 0;
    let small = ready.iter().take_while(|frame| {
        size += frame.data_ref().map_or(JOINED + 1, Bytes::len);
        size <= JOINED
    });
    let count = small.count();
    if count < 2 {
        return ready.pop_front();
    }
    let mut joined = Vec::with_capacity(JOINED);
    for bytes in ready.drain(..count).filter_map(|frame| frame.into_data().ok()) {
        joined.extend_from_slice(&bytes);
    }
    Some(Frame::data(Bytes::from(joined)))
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    /// Chunks of these sizes, each of a letter of its own, and the sizes in which they leave.
    fn check(chunks: &[usize], expected: &[usize]) {
        let letters = (b'a'..=b'z').cycle();
        let chunks: Vec<Vec<u8>> =
            chunks.iter().zip(letters).map(|(size, letter)| vec![letter; *size]).collect();
        let mut ready: VecDeque<_> =
            chunks.iter().map(|chunk| Frame::data(Bytes::from(chunk.clone()))).collect();
        let mut left: Vec<Bytes> = Vec::new();
        while let Some(frame) = next(&mut ready) {
            left.push(frame.into_data().unwrap());
        }
        assert_eq!(left.iter().map(Bytes::len).collect::<Vec<_>>(), expected, "{chunks:?}");
        assert_eq!(left.concat(), chunks.concat());
    }

    #[test]
    fn small_chunks_leave_together_and_no_byte_changes() {
        check(&[], &[]);
        check(&[7], &[7]);
        check(&[1, 2, 3], &[6]);
        check(&[JOINED, 1], &[JOINED, 1]);
        check(&[JOINED + 1, 1, 2], &[JOINED + 1, 3]);
        check(&[JOINED - 1, 1, 2, 3], &[JOINED, 5]);
        check(&[1, JOINED + 1, 2], &[1, JOINED + 1, 2]);
    }

    #[test]
    fn trailers_stay_behind_what_they_follow() {
        let mut ready = VecDeque::from([
            Frame::data(Bytes::from_static(b"a")),
            Frame::data(Bytes::from_static(b"b")),
            Frame::trailers(HeaderMap::new()),
        ]);
        assert_eq!(next(&mut ready).and_then(|frame| frame.into_data().ok()).unwrap(), "ab");
        assert!(next(&mut ready).is_some_and(|frame| frame.is_trailers()));
        assert!(next(&mut ready).is_none());
    }
}
