//! Chance that can be repeated: the same seed throws the same dice.

/// A small generator (splitmix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `most`, both included.
    pub(crate) fn to(&mut self, most: usize) -> usize {
        (self.next() % (most as u64 + 1)) as usize
    }

    pub(crate) fn one_in(&mut self, many: u64) -> bool {
        self.next().is_multiple_of(many)
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.to(from.len() - 1)].clone()
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }

    /// Puts headers in another order; values of the same name stay together, in theirs.
    pub(crate) fn shuffle(&mut self, headers: &mut Vec<(String, String)>) {
        let mut groups: Vec<Vec<(String, String)>> = Vec::new();
        for header in headers.drain(..) {
            match groups.last_mut().filter(|group| group[0].0 == header.0) {
                Some(group) => group.push(header),
                None => groups.push(vec![header]),
            }
        }
        for last in (1..groups.len()).rev() {
            let other = self.to(last);
            groups.swap(last, other);
        }
        headers.extend(groups.into_iter().flatten());
    }

    /// Cuts bytes into pieces of one to `longest`.
    pub(crate) fn cut(&mut self, bytes: &[u8], longest: usize) -> Vec<Vec<u8>> {
        let mut rest = bytes;
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at((1 + self.to(longest - 1)).min(rest.len()));
            pieces.push(piece.to_vec());
            rest = after;
        }
        pieces
    }
}
