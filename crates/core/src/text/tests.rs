//! Which texts are the same, and which are not.

use super::*;

fn same(a: &str, b: &str) {
    assert_eq!(TextFacts::of(a).digest, TextFacts::of(b).digest, "{a:?} and {b:?}");
    assert_eq!(TextFacts::of(a).simhash, TextFacts::of(b).simhash, "{a:?} and {b:?}");
}

fn differ(a: &str, b: &str) {
    assert_ne!(TextFacts::of(a).digest, TextFacts::of(b).digest, "{a:?} and {b:?}");
}

#[test]
fn values_are_masked() {
    same("order #12345", "order #7");
    same("took 1.5 s", "took 12 s");
    same("at 2024-01-15T10:30:00Z", "at 2026-11-15T05:06:07.123+02:00");
    same("at 2024-01-15", "at 2026-11-15 05:06");
    same("at 2024-01-15T10:30:00+0200 ok", "at 2024-01-16T10:30:00Z ok");
    same("id 550e8400-e29b-41d4-a716-446655440000", "id 1f3e8400-129b-41d4-b716-44665544abcd");
    same("id 55012400-e29b-41d4-a716-446655440000", "id abc18400-129b-41d4-b716-44665544abcd");
    same("commit 3f2a9c1 done", "commit 99aa0b1cdef done");
    same("token aXk93kQzPq1LmN8s", "token Zz0kQz1PqLmN8sTTx");
    same("wrote /tmp/a8/x.log", "wrote /tmp/other");
    same("see '/var/folders/zz/1' now", "see '/var/folders/q' now");
    same("line3 of file12", "line44 of file9");
    same("a  b\n\tc", "a b c");
}

#[test]
fn words_are_not() {
    differ("delete the file", "create the file");
    differ("a-b", "a b");
    differ("deadbeef", "cafebabe"); // letters only: words, for all we know
    differ("tmp/a", "tmp/b");
    differ("/home/a", "/home/b");
    differ("beef12", "feed12"); // too short for an id
    differ("v1.x", "v1.y");
    differ("line 3b", "line 3c");
    differ("3 apples", "three apples");
    differ("1 2", "1");
    differ("2024-01-15Tx", "2024-01-15Ty");
    differ("the number 5.", "the number 5");
    differ("abcdefgh i", "abcdefghi");
}

#[test]
fn a_timestamp_ends_where_it_ends() {
    for (text, len) in [
        ("2024-01-15", Some(10)),
        ("2024-01-15Z", Some(10)),
        ("2024-01-15T10:30", Some(16)),
        ("2024-01-15 10:30 or so", Some(16)),
        ("2024-01-15T10:30:05", Some(19)),
        ("2024-01-15T10:30:05.25Z", Some(23)),
        ("2024-01-15T10:30:05z", Some(20)),
        ("2024-01-15T10:30:05+02:00", Some(25)),
        ("2024-01-15T10:30:05-0200", Some(24)),
        ("2024-01-15T10:30:05-x", Some(19)),
        ("2024-01-15T1", Some(10)),
        ("2024-1-15", None),
        ("20240115", None),
    ] {
        assert_eq!(timestamp(text.as_bytes()), len, "{text}");
    }
}

/// What follows a value is read: each text has as many words as it is said to have.
#[test]
fn a_value_ends_where_it_ends() {
    for (text, words) in [
        ("550e8400-e29b-41d4-a716-446655440000 is it", 3),
        ("the 550e8400-e29b-41d4-a716-446655440000 is it", 4),
        ("55012400-e29b-41d4-a716-446655440000 is it", 3),
        ("the 55012400-e29b-41d4-a716-446655440000 is it", 4),
        ("12345678 is a number and no id at all, is it", 11),
        ("3f2a9c1d is an id and no uuid at all, is it", 11),
        ("550e8400-e29b-41d4-a716-44665544000x is it", 7),
        ("3f2a9c1 aXk93kQzPq1LmN8s is it", 4),
        ("at 2024-01-15T10:30:05.25Z it was 1.5 or 2. or .5", 9),
        ("in /tmp/a8/x.log it is", 4),
        ("in (/var/folders/zz/1) it is", 4),
        ("/tmp/a", 1),
        ("/tmp", 1),
        ("line3b of file12", 3),
    ] {
        assert_eq!(TextFacts::of(text).words, words, "{text}");
    }
}

#[test]
fn short_texts_are_held_to_more() {
    let facts = TextFacts::of;
    for tiny in ["", "yes", "hi", "go on"] {
        assert!(!facts(tiny).similar(&facts(tiny)), "{tiny:?}");
    }
    assert!(facts("please go on").similar(&facts("please go on")));
    assert!(!facts("please go on").similar(&facts("please go off")));
    assert!(!facts("please go on").similar(&facts("on")));

    let long = "the deployment failed because the database migration could not obtain a lock on \
                the table of customers and gave up after several attempts in a row"
        .repeat(6);
    let reworded = format!("{long} today");
    assert_ne!(facts(&long).digest, facts(&reworded).digest);
    assert!(facts(&long).similar(&facts(&reworded)));
    let other = "a healthy agent reads one file after the other and finds something new in each \
                 of them which it then uses to write the next part of its report";
    assert!(!facts(&long).similar(&facts(other)));
}

/// Below the border texts must be equal, from it on their SimHashes decide.
#[test]
fn the_border_between_short_and_long_is_sharp() {
    let with = |words, digest| TextFacts {
        simhash: 0b0111,
        digest: Digest(digest),
        words,
        bag: 0,
        masked: false,
    };
    let near =
        |words| TextFacts { simhash: 0b0001, digest: Digest(9), words, bag: 0, masked: false };
    let far =
        |words| TextFacts { simhash: 0b0000, digest: Digest(9), words, bag: 0, masked: false };
    assert!(!with(SHORT - 1, 9).similar(&near(SHORT)));
    assert!(with(SHORT - 1, 9).similar(&near(SHORT - 1)));
    assert!(with(SHORT, 1).similar(&near(SHORT)));
    assert!(!with(SHORT, 1).similar(&far(SHORT)));
    assert!(with(TINY, 9).similar(&near(TINY)));
    assert!(!with(TINY - 1, 9).similar(&near(TINY)));
}

#[test]
fn parts_are_apart_and_counts_do_not_overflow() {
    let mut hasher = TextHasher::default();
    hasher.push("one");
    hasher.push("two");
    assert_eq!(hasher.finish(), TextFacts::of("one two"));

    // More features than a byte counts, of which every one is the same: each bit is unanimous.
    let many = "word ".repeat(2000);
    let few = "word ".repeat(300);
    assert_eq!(TextFacts::of(&many).simhash, TextFacts::of(&few).simhash);
    assert_eq!(TextFacts::of(&many).words, 2000);
}

/// The SimHash is the bitwise majority over the features, by a second and slower way.
#[test]
fn simhash_is_the_majority() {
    let words = ["alpha", "be", "gamma", "delta", "extraordinarily", "zeta", "a", "polymorphism"];
    // Around whole groups of features, and around what the counters hold.
    for many in (1..40).chain(240..260).chain(490..510) {
        let text: Vec<String> = (0..many).map(|n| words[n * n % 7].repeat(1 + n / 9 % 3)).collect();
        majority(&text.join(" "));
    }
}

/// The hash of a word, byte by byte.
fn slow_hash(word: &[u8]) -> u64 {
    let mut hash = START ^ word.len() as u64;
    let (chunks, tail) = word.as_chunks::<8>();
    for chunk in chunks {
        hash = chain(hash, u64::from_le_bytes(*chunk));
    }
    let last = tail.iter().rev().fold(0u64, |packed, &b| (packed << 8) | u64::from(b));
    chain(hash, last)
}

fn majority(text: &str) {
    let mut counts = [0i32; 64];
    let mut previous = START;
    for word in text.split(' ') {
        let token = slow_hash(word.as_bytes());
        let feature = mix(chain(previous, token));
        previous = token;
        for (bit, count) in counts.iter_mut().enumerate() {
            *count += if feature >> bit & 1 == 1 { 1 } else { -1 };
        }
    }
    let expected = (0..64).fold(0u64, |hash, bit| hash | u64::from(counts[bit] > 0) << bit);
    assert_eq!(TextFacts::of(text).simhash, expected);
}

/// Digests are part of the stored state: they must not change by accident.
#[test]
fn digests_are_stable() {
    let facts =
        TextFacts::of("The answer, 42, came at 2024-01-15T10:30:00Z from /tmp/x (3f2a9c1).");
    assert_eq!((facts.simhash, facts.digest.0, facts.words), (SIMHASH, DIGEST, 9));
}
const SIMHASH: u64 = 4779253328949253381;
const DIGEST: u64 = 3569595227847676250;

/// Plain words are read eight bytes at once, where so many follow. A short word by itself is not.
fn by_the_word(words: &[String]) {
    let mut alone = TextHasher::default();
    words.iter().for_each(|word| alone.push(word));
    let text = words.join(" ");
    assert_eq!(TextFacts::of(&text), alone.finish(), "{text:?}");
}

#[test]
fn short_words_are_read_like_any_other() {
    for byte in 0..=u8::MAX {
        let found = letters(u64::from_le_bytes([byte, b'z', b'A', b'@', b'[', b'`', b'{', 0]));
        assert_eq!(found, if byte.is_ascii_alphabetic() { 3 } else { 0 }, "{byte}");
        let found = letters(u64::from_le_bytes([b'a', b'Z', b'm', b'M', b'b', b'y', b'q', byte]));
        assert_eq!(found, if byte.is_ascii_alphabetic() { 8 } else { 7 }, "{byte}");
    }
    let near = ["ids", "shah", "tokens", "commits", "userId", "myOwnId", "myOwnID", "request", "i"];
    let words = LABELS.iter().map(|label| String::from_utf8(label.to_vec()).unwrap());
    let long = ["theirRequestId", "requests", "extraordinaryId", "extraordinarilyID"];
    for label in words.chain(near.into_iter().chain(long).map(str::to_owned)) {
        for label in [label.to_uppercase(), label.clone()] {
            let then = |next: &str| {
                by_the_word(&[&label, next, "and so on and on it goes"].map(str::to_owned));
            };
            ["beefed", "beef", "beefedbeef", "x9", "else", ":", "is"].into_iter().for_each(then);
        }
    }
    // Words of hex letters alone are words where no label comes before them.
    for length in 1..20 {
        let hex = &"abcdefABCDEF0".repeat(2)[..length];
        by_the_word(
            &["the", hex, "or", "more", hex, "of", "id", hex, "and so on it goes"]
                .map(str::to_owned),
        );
    }
}

/// The set of words is complete wherever it is asked.
#[test]
fn all_words_of_a_short_text_are_in_its_gist() {
    let words: Vec<String> =
        (0..BAGGED + 9).map(|n| format!("word{}", ["x", "yy", "zzz"][n as usize % 3])).collect();
    let with = |count: u32, last: &str| {
        let words: Vec<&str> = words.iter().map(String::as_str).take(count as usize - 1).collect();
        TextFacts::of(&[&words[..], &[last]].concat().join(" "))
    };
    for count in [2, BAGGED - 1, BAGGED] {
        assert_ne!(with(count, "something").gist(), with(count, "else").gist(), "{count}");
    }
    assert!(with(BAGGED + 1, "else").gist().long);
}

proptest::proptest! {
    #[test]
    fn words_of_any_length_are_read_alike(
        words in proptest::collection::vec("id|Commit|ownId|[a-f]{5,9}|[a-zA-Z]{1,20}|[a-zA-Z0-9@`{éß_,/.]{1,12}", 0..60),
    ) {
        by_the_word(&words);
    }
}
