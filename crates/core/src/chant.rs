//! Chanting: the same words again and again inside one answer, found while it streams.
//!
//! The end of the answer so far is kept, normalised (white space folded, digits masked), and from
//! time to time asked whether it is periodic. Work and memory per byte are constant, and it does
//! not matter where the stream was cut into pieces.
//!
//! Much that is periodic is healthy: rulers in tables, zeros in a hex dump, rows of a form. So a
//! chant must go on for long ([`LEAST`] bytes and [`ROUNDS`] rounds), and a round must have words
//! in it; inside a code fence it must fill the whole memory. One short word must be said
//! [`WORD_ROUNDS`] times. Rows of figures are no chant: see [`is_data`].

/// Bytes of the answer that are kept.
const KEPT: usize = 6144;
/// A chant is at least this long.
const LEAST: usize = 1500;
/// And goes round at least this often.
const ROUNDS: usize = 8;
/// A round that is one short word goes round at least this often.
const WORD_ROUNDS: usize = 1000;
/// The end is looked at once for every so many new bytes.
const STRIDE: usize = 256;
/// Bytes at the end that must have been said before for a longer look.
const PROBE: usize = 16;

/// Bytes that are looked at together.
const BLOCK: usize = 16;

/// Characters of a round that is quoted.
const LONGEST_QUOTE: usize = 120;
/// Letters of a word that is quoted.
const LONGEST_WORD: usize = 24;

/// Digits are one digit, white space is one kind of space.
static FOLD: [u8; 256] = {
    let mut table = [0u8; 256];
    let mut b = 0;
    while b < 256 {
        table[b] = match b as u8 {
            b'0'..=b'9' => b'0',
            0..=b' ' => b' ',
            other => other,
        };
        b += 1;
    }
    table
};

/// Reads one answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Chant {
    tail: Vec<u8>,
    since_look: usize,
    ticks: u8,
    fenced: bool,
}

/// A chant that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// How often it went round, as far as memory goes.
    pub(crate) rounds: usize,
    /// What it said, if that is short.
    pub(crate) words: String,
}

impl Chant {
    /// Reads the next piece; tells when the answer has become a chant.
    pub(crate) fn push(&mut self, piece: &str) -> Option<Found> {
        let mut rest = piece.as_bytes();
        if self.tail.is_empty() {
            self.tail.reserve(rest.len().min(KEPT));
        }
        while !rest.is_empty() {
            let (stride, after) = rest.split_at(rest.len().min(STRIDE - self.since_look));
            self.read(stride);
            rest = after;
            if self.since_look == STRIDE {
                self.since_look = 0;
                if let Some(found) = self.look() {
                    return Some(found);
                }
            }
        }
        None
    }

    /// Reads at most a stride. Every byte of every answer comes through here: plain text is kept as it is, in blocks,
    /// and the rest is read byte by byte.
    fn read(&mut self, bytes: &[u8]) {
        let mut folded = [0u8; STRIDE];
        let (mut at, mut length) = (0, 0);
        let mut last = self.tail.last().copied().unwrap_or_default();
        while at < bytes.len() {
            let plain = plain_blocks(bytes, at);
            if plain > 0 {
                folded[length..length + plain].copy_from_slice(&bytes[at..at + plain]);
                (at, length, last, self.ticks) =
                    (at + plain, length + plain, bytes[at + plain - 1], 0);
            }
            // The first byte is held against the byte before it, which is not here.
            let odd = if at == 0 { 1 } else { BLOCK.min(bytes.len() - at) };
            for &byte in &bytes[at..at + odd] {
                if byte == b'`' {
                    self.ticks = self.ticks.saturating_add(1);
                    self.fenced ^= self.ticks == 3;
                } else {
                    self.ticks = 0;
                }
                let fold = FOLD[byte as usize];
                // `10` and `9` are both one number, and any white space is one gap.
                let again = fold == last && matches!(fold, b' ' | b'0');
                folded[length] = fold;
                length += usize::from(!again);
                last = fold;
            }
            at += odd;
        }
        if self.tail.len() + length > 2 * KEPT {
            let old = self.tail.len() + length - KEPT;
            self.tail.drain(..old.min(self.tail.len()));
        }
        self.tail.extend_from_slice(&folded[..length]);
        self.since_look += bytes.len();
    }

    fn look(&self) -> Option<Found> {
        let tail = &self.tail[self.tail.len().saturating_sub(KEPT)..];
        if tail.len() < LEAST {
            return None;
        }
        // Cheap and nearly always enough: what ends the answer was not said shortly before.
        let (before, end) = tail.split_last_chunk::<PROBE>()?;
        let nearby = &tail[before.len().saturating_sub(KEPT / ROUNDS)..tail.len() - 1];
        if !contains(nearby, end) {
            return None;
        }
        let (period, length) = periodic_end(tail)?;
        let least = if self.fenced { KEPT } else { LEAST };
        if length < least.max(period * ROUNDS) {
            return None;
        }
        let round = &tail[tail.len() - period..];
        let says = has_words(round) || (length / period >= WORD_ROUNDS && has_word(round));
        (says && !is_data(round)).then(|| Found { rounds: length / period, words: readable(round) })
    }
}

/// How many bytes from here on are kept as they are, in whole blocks: no digit, tick or control character, and no
/// second white space in a row.
fn plain_blocks(bytes: &[u8], from: usize) -> usize {
    let Some(before) = from.checked_sub(1) else { return 0 };
    let (bytes, before) = (bytes[from..].chunks_exact(BLOCK), bytes[before..].chunks_exact(BLOCK));
    let is_plain = |(block, before): &(&[u8], &[u8])| {
        !block.iter().zip(*before).fold(false, |odd, (&byte, &before)| {
            let digit = byte.wrapping_sub(b'0') < 10;
            odd | digit | (byte < b' ') | (byte == b'`') | ((byte == b' ') & (before <= b' '))
        })
    };
    bytes.zip(before).take_while(is_plain).count() * BLOCK
}

/// Whether a text contains a probe.
///
/// Most texts do not. So three bytes of the probe are looked for in many places at once, and only where they stand
/// the whole probe is.
fn contains(text: &[u8], probe: &[u8; PROBE]) -> bool {
    let (first, middle, last) = (probe[0], probe[PROBE / 2], probe[PROBE - 1]);
    let places = text.len().saturating_sub(PROBE - 1);
    let blocks = places / BLOCK * BLOCK;
    for at in (0..blocks).step_by(BLOCK) {
        let bytes = |from: usize| text[from..].first_chunk::<BLOCK>();
        let (Some(a), Some(b), Some(c)) = (bytes(at), bytes(at + PROBE / 2), bytes(at + PROBE - 1))
        else {
            break;
        };
        let fits = (0..BLOCK).fold(0u8, |fits, i| {
            fits | u8::from((a[i] == first) & (b[i] == middle) & (c[i] == last))
        });
        if fits != 0
            && text[at..at + BLOCK + PROBE - 1].windows(PROBE).any(|window| window == probe)
        {
            return true;
        }
    }
    text[blocks..].windows(PROBE).any(|window| window == probe)
}

/// The period that reaches furthest back from the end, and how far: by the failure function of
/// Knuth, Morris and Pratt over the reversed text.
fn periodic_end(text: &[u8]) -> Option<(usize, usize)> {
    let at = |i: usize| text[text.len() - 1 - i];
    let mut border = vec![0usize; text.len()];
    let mut best: Option<(usize, usize)> = None;
    let mut k = 0;
    for i in 1..text.len() {
        while k > 0 && at(i) != at(k) {
            k = border[k - 1];
        }
        if at(i) == at(k) {
            k += 1;
        }
        border[i] = k;
        let (length, period) = (i + 1, i + 1 - k);
        if length >= period * ROUNDS && best.is_none_or(|(_, longest)| length > longest) {
            best = Some((period, length));
        }
    }
    best
}

/// A round as a person would quote it: from the beginning of a sentence, or of a word. Empty for a
/// round that is too long to be quoted whole, or that has more than words in it: the redactor would
/// not recognise half a secret, or one whose digits are masked.
fn readable(round: &[u8]) -> String {
    let after_stop =
        |i: usize| matches!(round[i], b'.' | b'!' | b'?' | b':') && round.get(i + 1) == Some(&b' ');
    let start = (0..round.len())
        .find(|&i| after_stop(i))
        .map(|i| i + 2)
        .or_else(|| round.iter().position(|b| *b == b' ').map(|i| i + 1))
        .unwrap_or(0);
    let turned = [&round[start..], &round[..start]].concat();
    let quote = String::from_utf8_lossy(&turned).trim().to_owned();
    let short = quote.chars().count() <= LONGEST_QUOTE;
    if short && round.split(|b| !b.is_ascii_alphanumeric()).all(is_word) {
        quote
    } else {
        String::new()
    }
}

/// Whether letters and digits in a row are a word or a number, and not a key or an id.
fn is_word(run: &[u8]) -> bool {
    let digits = run.iter().filter(|b| b.is_ascii_digit()).count();
    run.len() <= LONGEST_WORD && (digits == 0 || digits == run.len())
}

/// Whether a round says something: two words of two letters or more, or one of a script without
/// spaces. Rulers, zeros and braces do not.
fn has_words(round: &[u8]) -> bool {
    let letter = |b: &u8| b.is_ascii_alphabetic() || *b >= 0x80;
    let words = round.split(|b| !letter(b)).filter(|word| word.len() >= 2);
    let (count, letters) = words.fold((0, 0), |(n, l), word| (n + 1, l + word.len()));
    count >= 2 || (count == 1 && letters >= 6)
}

/// Whether a round has a word of two letters at all. Bytes in hex (`ff`) are none.
fn has_word(round: &[u8]) -> bool {
    let letter = |b: &u8| b.is_ascii_alphabetic() || *b >= 0x80;
    let hex = |word: &[u8]| word.len() == 2 && word.iter().all(u8::is_ascii_hexdigit);
    round.split(|b| !letter(b)).any(|word| word.len() >= 2 && !hex(word))
}

/// Whether a round is a row of figures, all of which look alike once their digits are masked: at
/// least two numbers and no more words than numbers, or the cells of a table with a number in one.
fn is_data(round: &[u8]) -> bool {
    // A round may begin inside a word or a number.
    let start = round.iter().position(|b| !b.is_ascii_alphanumeric() && *b < 0x80 && *b != b'.');
    let (head, rest) = round.split_at(start.unwrap_or(0));
    let round = &[rest, head].concat();
    let letter = |b: &u8| b.is_ascii_alphabetic() || *b >= 0x80;
    let words = round.split(|b| !letter(b)).filter(|word| word.len() >= 2).count();
    let numbers = round.split(|b| !matches!(b, b'0' | b'.')).filter(|run| run.contains(&b'0'));
    let (numbers, bars) = (numbers.count(), round.iter().filter(|b| **b == b'|').count());
    (numbers >= 2 && numbers >= words) || (numbers >= 1 && bars >= 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(answer: &str, expected: bool) {
        let whole = Chant::default().push(answer).is_some();
        assert_eq!(whole, expected, "{}…", answer.chars().take(60).collect::<String>());
        let mut pieces = Chant::default();
        let chars: Vec<char> = answer.chars().collect();
        let found = chars.chunks(3).any(|c| pieces.push(&c.iter().collect::<String>()).is_some());
        assert_eq!(found, expected, "in pieces");
    }

    #[test]
    fn chants_are_found() {
        check(&"I will try again. ".repeat(200), true);
        check(&"Sorry!Sorry!".repeat(300), true);
        let numbered: String = (0..400).map(|n| format!("Attempt {n}: still failing\n")).collect();
        check(&numbered, true);
        let long = "a sentence that is rather long and says quite a lot before it starts over, \
                    and goes on about this and that until it ends. ";
        check(&long.repeat(20), true);
        let prose: String = (0..300)
            .map(|n| {
                format!("word{} ", char::from(97 + n as u8 % 26).to_string().repeat(1 + n % 7))
            })
            .collect();
        check(&(prose + &"over and over ".repeat(300)), true);
        check(&"それはできません。".repeat(100), true);
    }

    #[test]
    fn one_word_is_a_chant_in_the_end() {
        for word in ["yes ", "no\n", "ok, ", "hello "] {
            check(&word.repeat(3000), true);
            check(&word.repeat(300), false);
        }
        check(&"ff ".repeat(3000), false);
    }

    #[test]
    fn tables_of_figures_are_no_chant() {
        let noise = |n: u32| n.wrapping_mul(2_654_435_761) >> 16;
        let table = |row: &dyn Fn(u32) -> String| (0..300).map(row).collect::<String>();
        check(&table(&|n| format!("| {n} | {} | {}.5 |\n", noise(n), noise(n + 1) % 100)), false);
        check(&table(&|n| format!("{n}, {}, {}.25\n", noise(n), noise(n + 7) % 1000)), false);
        check(&table(&|n| format!("row {n}: value {}\n", noise(n))), false);
        check(&table(&|n| format!("| order {n} | paid in full | {}.00 |\n", noise(n))), false);
        check(&table(&|n| format!("2024-01-15 10:30 {} {}\n", noise(n), n)), false);
        // One number among words counts the attempts.
        check(&table(&|n| format!("Attempt {n}: it is still failing\n")), true);
    }

    #[test]
    fn healthy_text_is_not() {
        check("", false);
        check(&"I will try again. ".repeat(20), false);
        check(&"-".repeat(5000), false);
        check(&"| --- | --- |\n".repeat(400), false);
        check(&"0x00, ".repeat(2000), false);
        check(&"  \n".repeat(4000), false);
        let listed: String = (0..500)
            .map(|n| {
                format!(
                    "- item {}{}\n",
                    char::from(97 + (n % 26) as u8),
                    char::from(97 + (n / 26) as u8)
                )
            })
            .collect();
        check(&listed, false);
        // A table in code may be as regular as it likes, up to a point.
        check(&format!("```\n{}```", "    case foo: return bar;\n".repeat(100)), false);
        check(&format!("```\n{}", "    case foo: return bar;\n".repeat(400)), true);
        // The fence is closed: what follows is held to the normal measure.
        check(&format!("```\nx\n```\n{}", "case foo: return bar;\n".repeat(100)), true);
    }

    #[test]
    fn tells_what_was_chanted() {
        let found = Chant::default().push(&"no way out, ".repeat(300)).unwrap();
        assert_eq!(found.words, "way out, no");
        let found = Chant::default().push(&"Sorry about that. I try again. ".repeat(90)).unwrap();
        assert_eq!(found.words, "Sorry about that. I try again.");
        let found = Chant::default().push(&"endless".repeat(900)).unwrap();
        assert_eq!(found.words.len(), 7);
        assert!(found.rounds >= 100, "{}", found.rounds);
        // What may be a secret is not quoted: with masked digits the redactor would not see it.
        for chant in
            ["I try r8_j7UBs2hEMflGGJ1hN again. ", &format!("again {} ", "abc ".repeat(40))]
        {
            assert_eq!(Chant::default().push(&chant.repeat(200)).unwrap().words, "");
        }
    }

    /// Three ticks in a row open a fence and three more close it; any other number is just text.
    #[test]
    fn fences_are_counted() {
        for (text, fenced) in [
            ("", false),
            ("a", false),
            ("``", false),
            ("``a`", false),
            ("```", true),
            ("````", true),
            ("```a", true),
            ("``` and ``", true),
            ("``` and ```", false),
            ("``` ``` ```", true),
        ] {
            let mut chant = Chant::default();
            chant.push(text);
            assert_eq!(chant.fenced, fenced, "{text}");
        }
    }

    #[test]
    fn text_is_folded_before_it_is_kept() {
        let mut chant = Chant::default();
        chant.push("a  b\n\tc 12 3x--é11 22");
        assert_eq!(chant.tail, "a b c 0 0x--é0 0".as_bytes());
    }

    /// Blocks are read like single bytes.
    #[test]
    fn plain_text_is_kept_like_any_other() {
        let texts = [
            "plain words without anything that is folded, and on they go ".repeat(20),
            "two  spaces, a\ttab, and 3 or 42 numbers ```and a fence``` now and then ".repeat(20),
            "a line\n and the next one, which begins with a space\n".repeat(20),
            "wörds with létters that take two bytes each, é ".repeat(20),
            " ".repeat(700) + &"x".repeat(700),
        ];
        for text in texts {
            for from in (0..40).filter(|from| text.is_char_boundary(*from)) {
                let (mut whole, mut single) = (Chant::default(), Chant::default());
                let text = &text[from..];
                assert_eq!(
                    whole.push(text),
                    text.chars().find_map(|c| single.push(&c.to_string()))
                );
                assert_eq!(whole, single, "{text}");
            }
        }
    }

    #[test]
    fn a_probe_is_found_wherever_it_stands() {
        let probe = b"0123456789abcdef";
        for length in [0, 15, 16, 17, 31, 32, 47, 48, 100] {
            for at in 0..length {
                let mut text = vec![b'0'; length];
                let end = length.min(at + PROBE);
                text[at..end].copy_from_slice(&probe[..end - at]);
                assert_eq!(contains(&text, probe), at + PROBE <= length, "{at} of {length}");
                // All that is looked for first is there, and the rest is not.
                if let Some(byte) = text.get_mut(at + 3) {
                    *byte = b'#';
                    assert!(!contains(&text, probe));
                }
            }
        }
    }

    /// The end is looked at every 256 bytes, and needs 1500 that are kept.
    #[test]
    fn a_chant_is_as_long_as_it_must_be() {
        let chanted = |spaces: usize, bytes: usize| {
            let words = "I will try again. ".repeat(90);
            Chant::default().push(&(" ".repeat(spaces) + &words[..bytes]))
        };
        // White space at the beginning is folded into one.
        assert_eq!(chanted(37, 1499).unwrap().rounds, 1500 / 18);
        assert_eq!(chanted(38, 1498), None, "1,499 bytes are kept");
        assert_eq!(chanted(36, 1499), None, "1,535 bytes were read");
    }

    #[test]
    fn a_round_must_say_something() {
        for (round, says) in [
            ("", false),
            ("-", false),
            ("a b c d e f g", false),
            ("abcde, ", false),
            ("abcdef, ", true),
            ("ab, cd", true),
            ("ab, c", false),
            ("ab, cdef", true),
            ("止め", true),
            ("止", false),
        ] {
            assert_eq!(has_words(round.as_bytes()), says, "{round}");
        }
    }

    /// The period that reaches furthest back, by trying them all.
    #[test]
    fn the_period_is_found_in_any_text() {
        let slow = |text: &[u8]| {
            let has_period = |end: &[u8], p: usize| end.iter().zip(&end[p..]).all(|(a, b)| a == b);
            (2..=text.len()).rev().find_map(|length| {
                let end = &text[text.len() - length..];
                let period = (1..=length).find(|&p| has_period(end, p))?;
                (length >= period * ROUNDS).then_some((period, length))
            })
        };
        for seed in 0..600u32 {
            // A few letters of noise, then a round that is repeated, whole or not.
            let letter = |n: u32| {
                let noise = (seed * 31 + n).wrapping_mul(2_654_435_761) >> 20;
                b'a' + (noise % 2) as u8
            };
            let period = 1 + seed % 7;
            let noise = (0..seed % 11).map(letter);
            let round = (0..(seed % 80)).map(|n| letter(100 + n % period));
            let text: Vec<u8> = noise.chain(round).collect();
            assert_eq!(periodic_end(&text), slow(&text), "{}", String::from_utf8_lossy(&text));
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut chant = Chant::default();
        for n in 0..40_000u32 {
            let word = char::from(97 + (n.wrapping_mul(2_654_435_761) >> 24) as u8 % 26);
            assert!(chant.push(&format!("{word}{} ", n % 7)).is_none());
        }
        assert!(chant.tail.len() <= 2 * KEPT);
    }
}
