//! Text as the guards see it: normalised, digested, and SimHashed in one pass over the bytes.
//!
//! # What is masked
//! | in the text | counts as | example |
//! |---|---|---|
//! | numbers, also inside words | `<NUM>` | `order #12345` is `order #<NUM>`, `line3` is `line<NUM>` |
//! | ISO dates and times | `<TS>` | `2024-01-15T10:30:00Z` |
//! | UUIDs; hex of 7 or more with a digit; letters and digits that change places often (twice in 6 of hex, three times in 8), or any in 16 or more; after a word such as `id`, anything with a digit and hex letters alone | `<ID>` | `550e8400-e29b-41d4-a716-446655440000`, `7c44eb`, `id: x9` |
//! | paths to temporary files | `<TMP>` | `/tmp/x8a/log`, `/var/folders/…` |
//! | white space | one gap | |
//!
//! # When two texts are similar
//! Their SimHashes differ in fewer than 3 of 64 bits. A SimHash of a few words says little, so
//! short texts are held to more: below [`SHORT`] words both must be equal after masking, and below
//! [`TINY`] words ("yes", "hi", "") nothing is similar to anything. The kill switch alone also
//! compares two words of which one is masked: see [`TextFacts::dynamic`].
//!
//! Looser is [`Gist`]: the words that two texts have in common, for errors in which some words change
//! and for statements that are made in other words. It is only asked where something else speaks for
//! a repetition already.

use serde::{Deserialize, Serialize};

use crate::call::Digest;

/// Texts of fewer words than this never count as similar.
pub const TINY: u32 = 3;
/// Texts of fewer words than this are similar only when they are equal after masking.
pub const SHORT: u32 = 16;
/// Two SimHashes are similar when fewer bits than this differ.
pub const SIMILAR_BITS: u32 = 3;

/// What is kept of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TextFacts {
    /// SimHash over pairs of neighbouring words.
    #[serde(with = "postcard::fixint::le")]
    pub simhash: u64,
    /// Digest of the normalised text, punctuation included.
    pub digest: Digest,
    /// How many words it has.
    pub words: u32,
    /// Its words of four letters and more, as a set: a bit each.
    #[serde(with = "postcard::fixint::le")]
    pub bag: u64,
    /// Whether a number, a time, an id or a temporary path in it was masked.
    #[serde(default)]
    pub masked: bool,
}

impl TextFacts {
    /// Reads a text.
    ///
    /// ```
    /// use deadstop_core::TextFacts;
    /// let a = TextFacts::of("order #12345 failed at 2024-01-15T10:30:00Z");
    /// let b = TextFacts::of("order  #7 failed at 2026-11-15T05:00:01Z");
    /// assert!(a.similar(&b));
    /// assert!(!TextFacts::of("hi").similar(&TextFacts::of("hi")));
    /// ```
    pub fn of(text: &str) -> TextFacts {
        let mut hasher = TextHasher::default();
        hasher.push(text);
        hasher.finish()
    }

    /// Whether two texts say the same thing; see the module's words on short ones.
    pub fn similar(&self, other: &TextFacts) -> bool {
        self.sketch().similar(other.sketch())
    }

    /// The part that is worth remembering.
    pub fn sketch(&self) -> Sketch {
        match self.words {
            0..TINY => Sketch::Tiny,
            TINY..SHORT => Sketch::Short(self.digest),
            _ => Sketch::Long(Digest(self.simhash)),
        }
    }

    /// The same for requests that a template makes: "order #12345" is compared with "order #7",
    /// although it has two words only.
    pub fn dynamic(&self) -> Sketch {
        match (self.words, self.masked) {
            (2..TINY, true) => Sketch::Short(self.digest),
            _ => self.sketch(),
        }
    }

    /// What it is about, for a loose comparison.
    pub fn gist(&self) -> Gist {
        match self.words {
            0..=BAGGED => Gist { bits: (self.bag | (self.bag >> 32)) as u32, long: false },
            _ => Gist { bits: self.simhash as u32, long: true },
        }
    }
}

/// Texts of up to this many words are compared by the words they have in common; a set of 32 bits
/// says little about longer ones, which are compared by half of their SimHash.
const BAGGED: u32 = 40;

/// What a text is about: enough to tell whether another one says nearly the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Gist {
    #[serde(with = "postcard::fixint::le")]
    pub(crate) bits: u32,
    pub(crate) long: bool,
}

impl Gist {
    /// Whether two texts share at least `share` percent of their words, and three words at least;
    /// long ones must differ in a few words only.
    pub fn near(self, other: Gist, share: u32) -> bool {
        if self.long != other.long {
            return false;
        }
        if self.long {
            return (self.bits ^ other.bits).count_ones() <= NEAR_BITS;
        }
        let common = (self.bits & other.bits).count_ones();
        let all = (self.bits | other.bits).count_ones();
        common >= 3 && common * 100 >= all * share
    }
}

/// SimHashes of long texts that differ in a few words only.
const NEAR_BITS: u32 = 4;

/// What a window keeps of a text: just enough to tell whether another one says the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Sketch {
    /// Nothing, or too little to compare.
    #[default]
    Tiny,
    /// A few words, by their digest.
    Short(Digest),
    /// A text, by its SimHash.
    Long(Digest),
}

impl Sketch {
    /// Whether two texts say the same thing.
    pub fn similar(self, other: Sketch) -> bool {
        match (self, other) {
            (Sketch::Short(a), Sketch::Short(b)) => a == b,
            (Sketch::Long(a), Sketch::Long(b)) => (a.0 ^ b.0).count_ones() < SIMILAR_BITS,
            _ => false,
        }
    }
}

/// Reads a text that comes in parts; parts are apart as if by white space.
#[derive(Debug, Clone)]
pub struct TextHasher {
    /// Words that wait until there are eight of them.
    group: [u64; 8],
    /// How often each bit was set, one binary digit a plane: plane `k` holds the digits of weight `2^k`.
    planes: [u64; 8],
    /// Features in group and planes; these are emptied before a counter could overflow.
    pending: u32,
    totals: [u32; 64],
    features: u32,
    previous: u64,
    digest: u64,
    bag: u64,
    /// Words that the bag still takes.
    unbagged: u32,
    masked: bool,
    /// Whether the last word was one that an id follows.
    labelled: bool,
}

impl Default for TextHasher {
    fn default() -> Self {
        TextHasher {
            group: [0; 8],
            planes: [0; 8],
            pending: 0,
            totals: [0; 64],
            features: 0,
            previous: START,
            digest: START,
            bag: 0,
            unbagged: BAGGED,
            masked: false,
            labelled: false,
        }
    }
}

impl TextHasher {
    /// Reads one part.
    pub fn push(&mut self, text: &str) {
        let bytes = text.as_bytes();
        let mut at = 0;
        loop {
            if !self.labelled {
                at = self.plain(bytes, at);
            }
            let Some(&byte) = bytes.get(at) else { break };
            at = match CLASS[byte as usize] {
                SPACE => at + 1,
                MARK => self.mark(bytes, at),
                _ => self.word(bytes, at),
            };
        }
    }

    /// What was read so far.
    pub fn finish(mut self) -> TextFacts {
        self.empty_planes();
        let mut simhash = 0u64;
        for (bit, &count) in self.totals.iter().enumerate() {
            simhash |= u64::from(2 * count > self.features) << bit;
        }
        let TextHasher { features: words, bag, masked, .. } = self;
        TextFacts { simhash, digest: Digest(mix(self.digest)), words, bag, masked }
    }

    /// Reads plain words, which most texts are made of: up to fifteen ASCII letters each, with spaces and
    /// punctuation between them. Returns where something else begins.
    ///
    /// Every byte of every prompt and answer comes through here. So the end of a word is found without a branch
    /// for each letter, which the processor would guess wrongly once a word, and whether an id may follow is
    /// looked up only for the last word.
    fn plain(&mut self, bytes: &[u8], at: usize) -> usize {
        let mut rest = bytes.get(at..).unwrap_or_default();
        let mut last: &[u8] = &[];
        let mut digest = self.digest;
        while let Some(first) = eight(rest) {
            let (length, token, next) = match letters(first) {
                0 => {
                    match CLASS[first as u8 as usize] {
                        SPACE => {}
                        MARK if first as u8 != b'/' => digest = chain(digest, first & 0xff),
                        _ => break,
                    }
                    rest = &rest[1..];
                    continue;
                }
                8 => match longer(rest, first) {
                    Some(longer) => longer,
                    None => break,
                },
                length => {
                    let word = beginning(first, length);
                    if length >= SHORTEST_HEX && is_hex(word, length) {
                        break;
                    }
                    (length, chain(START ^ length as u64, word), byte_at(first, length))
                }
            };
            // The space that mostly follows is passed over with the word.
            let (word, after) = match next {
                b' ' => (&rest[..length], &rest[length + 1..]),
                _ if CLASS[next as usize] & WORD != 0 => break,
                _ => rest.split_at(length),
            };
            (last, rest) = (word, after);
            self.put_into_bag(length, token);
            digest = chain(digest, token);
            self.word_of(token);
        }
        self.digest = digest;
        self.labelled = is_label(last);
        bytes.len() - rest.len()
    }

    /// Punctuation enters the digest only; a slash may open a temporary path.
    fn mark(&mut self, bytes: &[u8], at: usize) -> usize {
        if bytes[at] == b'/' && is_temporary(&bytes[at..]) {
            let rest = &bytes[at..];
            let len = rest.iter().position(|&b| ends_path(b)).unwrap_or(rest.len());
            self.mask(TMP);
            return at + len;
        }
        self.digest = chain(self.digest, u64::from(bytes[at]));
        at + 1
    }

    /// A run of letters and digits, masked where it is a value rather than a word.
    fn word(&mut self, bytes: &[u8], start: usize) -> usize {
        let mut seen = 0u8;
        let mut end = start;
        while let Some(&byte) = bytes.get(end) {
            let class = CLASS[byte as usize];
            if class & WORD == 0 {
                break;
            }
            seen |= class;
            end += 1;
        }
        let run = &bytes[start..end];
        let labelled = std::mem::replace(&mut self.labelled, false);
        if seen & DIGIT == 0 {
            if labelled && seen & OTHER_LETTER == 0 && run.len() >= SHORTEST_HEX {
                self.mask(ID);
                return end;
            }
            self.labelled = is_label(run);
            let token = hash_word(bytes, start, end);
            self.put_into_bag(run.len(), token);
            self.token(token);
            return end;
        }
        let only_digits = seen & (HEX_LETTER | OTHER_LETTER) == 0;
        let hex = seen & OTHER_LETTER == 0;
        if only_digits {
            if let Some(len) = timestamp(&bytes[start..]) {
                self.mask(TS);
                return start + len;
            }
            if run.len() == 8 && is_uuid(&bytes[start..]) {
                self.mask(ID);
                return start + UUID_LEN;
            }
            self.mask(NUM);
            return end + fraction(&bytes[end..]);
        }
        if hex && run.len() == 8 && is_uuid(&bytes[start..]) {
            self.mask(ID);
            return start + UUID_LEN;
        }
        if labelled || (hex && run.len() >= 7) || run.len() >= 16 || is_scrambled(run, hex) {
            self.mask(ID);
        } else {
            self.mixed(run);
        }
        end
    }

    /// `line3b` is `line<NUM>b`: one word whose digits do not matter.
    fn mixed(&mut self, run: &[u8]) {
        let mut hash = START;
        let mut rest = run;
        while let Some(first) = rest.first() {
            let digits = first.is_ascii_digit();
            let len = rest.iter().position(|b| b.is_ascii_digit() != digits).unwrap_or(rest.len());
            let (part, tail) = rest.split_at(len);
            hash = chain(hash, if digits { NUM } else { hash_word(part, 0, len) });
            rest = tail;
        }
        self.mask(hash);
    }

    /// A word that stands for a value.
    fn mask(&mut self, token: u64) {
        self.masked = true;
        self.token(token);
    }

    fn token(&mut self, token: u64) {
        self.digest = chain(self.digest, token);
        self.word_of(token);
    }

    /// Adds a word to the set of words, which is only asked of short texts.
    #[inline]
    fn put_into_bag(&mut self, length: usize, token: u64) {
        if self.unbagged > 0 {
            self.unbagged -= 1;
            self.bag |= u64::from(length > 3) << (mix(token) >> 58);
        }
    }

    /// Adds a word to those that wait.
    #[inline(always)]
    fn word_of(&mut self, token: u64) {
        let place = self.pending as usize % 8;
        self.group[place] = token;
        self.pending += 1;
        if place == 7 {
            self.add_group();
        }
    }

    /// The feature of each word that waits: the pair that it makes with the word before it.
    #[inline]
    fn features(&self) -> [u64; 8] {
        let mut before = self.previous;
        self.group.map(|token| mix(chain(std::mem::replace(&mut before, token), token)))
    }

    /// Adds eight features to the planes: seven adders take them three by three, so that only every
    /// eighth time a carry runs through the higher planes.
    fn add_group(&mut self) {
        let [a, b, c, d, e, f, g, h] = self.features();
        self.previous = self.group[7];
        let [ones, twos, fours, ..] = &mut self.planes;
        let (s, two_a) = sum(*ones, a, b);
        let (s, two_b) = sum(s, c, d);
        let (s, two_c) = sum(s, e, f);
        let (s, two_d) = sum(s, g, h);
        *ones = s;
        let (s, four_a) = sum(*twos, two_a, two_b);
        let (s, four_b) = sum(s, two_c, two_d);
        *twos = s;
        let (s, eight) = sum(*fours, four_a, four_b);
        *fours = s;
        self.carry(3, eight);
        if self.pending == MOST_PENDING {
            self.empty_planes();
        }
    }

    /// Adds bits of a plane's weight.
    fn carry(&mut self, from: usize, mut bits: u64) {
        for plane in &mut self.planes[from..] {
            (*plane, bits) = (*plane ^ bits, *plane & bits);
            if bits == 0 {
                break;
            }
        }
    }

    fn empty_planes(&mut self) {
        let features = self.features();
        for feature in &features[..self.pending as usize % 8] {
            self.carry(0, *feature);
        }
        let digits = (u32::BITS - self.pending.leading_zeros()) as usize;
        for (place, totals) in self.totals.chunks_exact_mut(8).enumerate() {
            // The counts of eight bits, a byte each: none is above `MOST_PENDING`.
            let counts =
                self.planes.iter().take(digits).enumerate().fold(0, |sum, (digit, plane)| {
                    sum + (spread(plane.to_le_bytes()[place]) << digit)
                });
            for (total, count) in totals.iter_mut().zip(counts.to_le_bytes()) {
                *total = total.saturating_add(count.into());
            }
        }
        self.planes = [0; 8];
        self.features = self.features.saturating_add(self.pending);
        self.pending = 0;
    }
}

/// Features that eight planes can count, in whole groups.
const MOST_PENDING: u32 = 248;

/// Three bits at each place, as a sum and a carry.
#[inline]
fn sum(a: u64, b: u64, c: u64) -> (u64, u64) {
    let half = a ^ b;
    (half ^ c, (a & b) | (half & c))
}

const START: u64 = 0x9e37_79b9_7f4a_7c15;
const NUM: u64 = 0x4e55_4d00_0000_0001;
const TS: u64 = 0x5453_0000_0000_0002;
const ID: u64 = 0x4944_0000_0000_0003;
const TMP: u64 = 0x544d_5000_0000_0004;

const SPACE: u8 = 0;
const DIGIT: u8 = 1;
const HEX_LETTER: u8 = 2;
const OTHER_LETTER: u8 = 4;
const MARK: u8 = 8;
const WORD: u8 = DIGIT | HEX_LETTER | OTHER_LETTER;

/// Class of each byte; bytes of multi-byte characters count as letters.
static CLASS: [u8; 256] = {
    let mut table = [MARK; 256];
    let mut b = 0;
    while b < 256 {
        table[b] = match b as u8 {
            0..=b' ' | 0x7f => SPACE,
            b'0'..=b'9' => DIGIT,
            b'a'..=b'f' | b'A'..=b'F' => HEX_LETTER,
            b'g'..=b'z' | b'G'..=b'Z' | 0x80.. => OTHER_LETTER,
            _ => MARK,
        };
        b += 1;
    }
    table
};

#[inline]
fn chain(hash: u64, token: u64) -> u64 {
    (hash.rotate_left(23) ^ token).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

#[inline]
fn mix(mut hash: u64) -> u64 {
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 29)
}

/// The hash of `bytes[start..end]`, eight bytes at a time. What follows the word is read with it and
/// masked, where there is enough.
#[inline]
fn hash_word(bytes: &[u8], start: usize, end: usize) -> u64 {
    let mut hash = START ^ (end - start) as u64;
    let mut at = start;
    while at + 8 <= end {
        hash = chain(hash, eight(&bytes[at..]).unwrap_or(0));
        at += 8;
    }
    let last = match eight(&bytes[at..]) {
        Some(word) => word & ((1 << (8 * (end - at))) - 1),
        None => bytes[at..end].iter().rev().fold(0, |packed, &b| (packed << 8) | u64::from(b)),
    };
    chain(hash, last)
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = ONES << 7;

/// The bits of a byte, a byte each.
#[inline]
fn spread(bits: u8) -> u64 {
    let apart = (u64::from(bits) * ONES) & 0x8040_2010_0804_0201;
    ((apart + (HIGH - ONES)) & HIGH) >> 7
}

/// How many of eight bytes, from the first one on, are ASCII letters.
#[inline]
fn letters(packed: u64) -> usize {
    let lower = (packed | (ONES << 5)) & !HIGH;
    let from_a = lower + ONES * u64::from(0x80 - b'a');
    let past_z = lower + ONES * u64::from(0x80 - b'z' - 1);
    let letters = from_a & !past_z & !packed & HIGH;
    ((letters ^ HIGH).trailing_zeros() / 8) as usize
}

/// The first bytes of eight, fewer than all; the others are zero.
#[inline]
fn beginning(packed: u64, length: usize) -> u64 {
    packed & ((1 << (8 * length)) - 1)
}

/// One of eight bytes.
#[inline]
fn byte_at(packed: u64, at: usize) -> u8 {
    (packed >> (8 * at)) as u8
}

#[inline]
fn eight(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk::<8>().map(|chunk| u64::from_le_bytes(*chunk))
}

/// Letters from which on a word may be a number in hex.
const SHORTEST_HEX: usize = 6;

/// A word of eight to fifteen letters, of which the first eight are given: its length, its hash, and what follows it.
/// `None` for a longer one, and for one of hex letters alone.
#[inline]
fn longer(bytes: &[u8], first: u64) -> Option<(usize, u64, u8)> {
    let second = eight(bytes.get(8..)?)?;
    let more = letters(second);
    if more == 8 || (is_hex(first, 7) && is_hex(second, more)) {
        return None;
    }
    let length = 8 + more;
    let token = chain(chain(START ^ length as u64, first), beginning(second, more));
    Some((length, token, byte_at(second, more)))
}

/// Whether a word has none but hex letters.
#[inline]
fn is_hex(word: u64, length: usize) -> bool {
    let lower = word | (ONES << 5);
    let past_f = lower + ONES * u64::from(0x80 - b'f' - 1);
    beginning(past_f & HIGH, length) == 0
}

/// Whether a word says that an id follows: `ID: 7c44eb`, `commit 3f2a`, `requestId=x9`.
fn is_label(word: &[u8]) -> bool {
    if word.len() <= 6 {
        LABELS.iter().any(|label| word.eq_ignore_ascii_case(label))
    } else {
        word.ends_with(b"Id") || word.ends_with(b"ID")
    }
}

const LABELS: [&[u8]; 8] = [b"id", b"sha", b"pid", b"uuid", b"hash", b"nonce", b"token", b"commit"];

/// Whether letters and digits change places as they do in something random: `x7Gk29qP`, `7c44eb`.
fn is_scrambled(run: &[u8], hex: bool) -> bool {
    let changes = run.windows(2).filter(|w| w[0].is_ascii_digit() != w[1].is_ascii_digit());
    let (least, often) = if hex { (6, 2) } else { (8, 3) };
    run.len() >= least && changes.count() >= often
}

fn is_temporary(path: &[u8]) -> bool {
    path.starts_with(b"/tmp/") || path.starts_with(b"/var/folders/")
}

fn ends_path(byte: u8) -> bool {
    matches!(byte, 0..=b' ' | b'"' | b'\'' | b'`' | b',' | b';' | b':' | b')' | b']' | b'}' | b'>')
}

/// Length of `.5` after an integer, so that `1` and `1.5` are both one number.
fn fraction(rest: &[u8]) -> usize {
    match rest {
        [b'.', digits @ ..] => match digits.iter().take_while(|b| b.is_ascii_digit()).count() {
            0 => 0,
            len => len + 1,
        },
        _ => 0,
    }
}

const UUID_LEN: usize = 36;

fn is_uuid(bytes: &[u8]) -> bool {
    let Some(candidate) = bytes.get(..UUID_LEN) else { return false };
    candidate.iter().enumerate().all(|(i, b)| match i {
        8 | 13 | 18 | 23 => *b == b'-',
        _ => b.is_ascii_hexdigit(),
    })
}

/// Length of an ISO date, with its time and zone if they follow.
fn timestamp(bytes: &[u8]) -> Option<usize> {
    let date = matches_form(bytes, b"dddd-dd-dd")?;
    let time = match bytes.get(date) {
        Some(b'T' | b't' | b' ') => matches_form(&bytes[date + 1..], b"dd:dd"),
        _ => None,
    };
    let Some(time) = time else { return Some(date) };
    let mut end = date + 1 + time;
    if let Some(seconds) = matches_form(&bytes[end..], b":dd") {
        end += seconds;
        end += fraction(&bytes[end..]);
    }
    end += match bytes.get(end) {
        Some(b'Z' | b'z') => 1,
        Some(b'+' | b'-') => matches_form(&bytes[end + 1..], b"dd:dd")
            .or_else(|| matches_form(&bytes[end + 1..], b"dddd"))
            .map_or(0, |zone| zone + 1),
        _ => 0,
    };
    Some(end)
}

/// Whether the bytes begin in this form, where `d` stands for a digit.
fn matches_form(bytes: &[u8], form: &[u8]) -> Option<usize> {
    let candidate = bytes.get(..form.len())?;
    let fits = candidate
        .iter()
        .zip(form)
        .all(|(b, f)| if *f == b'd' { b.is_ascii_digit() } else { b == f });
    fits.then_some(form.len())
}

#[cfg(test)]
mod tests;
