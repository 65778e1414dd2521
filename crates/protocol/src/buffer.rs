//! Buffers for bodies that are read to their end.

/// A buffer that outgrows this gets all of its room at once.
const SMALL: usize = 1 << 20;

/// Appends to a buffer that will hold `most` bytes in the end. Memory that is not written to takes no space, while a
/// buffer that doubles is copied again and again, and each smaller copy stays with the allocator for a while: 31 MiB
/// took 62.
pub fn append(buffer: &mut Vec<u8>, bytes: &[u8], most: usize) {
    let needed = buffer.len() + bytes.len();
    if needed > buffer.capacity() && needed > SMALL {
        buffer.reserve_exact(most.max(needed) - buffer.len());
    }
    buffer.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_buffer_grows_once() {
        let (mut buffer, mut rooms) = (Vec::new(), Vec::new());
        for _ in 0..64 {
            append(&mut buffer, &[7; 100_000], 6_400_000);
            rooms.push(buffer.capacity());
        }
        // Until then it doubles.
        rooms.retain(|room| *room > 2 * SMALL);
        assert!(rooms.iter().all(|room| *room == 6_400_000) && !rooms.is_empty(), "{rooms:?}");
        assert_eq!(buffer.len(), 6_400_000);
        append(&mut buffer, &[7], 1);
        assert_eq!(buffer.len(), 6_400_001, "more than was said is kept as well");
    }
}
