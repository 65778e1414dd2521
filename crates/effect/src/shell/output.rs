//! What a command prints, where that can be read off it: what is echoed, decoded or turned round
//! on its way into a shell is a script like any other.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Input;

/// What a command prints, given what it is fed.
pub(super) fn prints(argv: &[String], input: &Input) -> Option<String> {
    let (name, words) = argv.split_first()?;
    let fed = || input.text.clone();
    let flags = || words.iter().filter(|word| word.starts_with('-'));
    match name.rsplit('/').next().unwrap_or(name) {
        "echo" => {
            let is_flag = |w: &&String| matches!(w.as_str(), "-n" | "-e" | "-ne" | "-en" | "-E");
            let escapes = words.iter().take_while(is_flag).any(|word| word.contains('e'));
            let words: Vec<&str> = words.iter().skip_while(is_flag).map(String::as_str).collect();
            let text = words.join(" ");
            Some(if escapes { unescaped(&text, 4) } else { text.replace("\\n", "\n") })
        }
        "printf" => {
            let (format, values) = words.split_first()?;
            if format.contains("%q") {
                return None;
            }
            Some(formatted(&unescaped(format, 3), values))
        }
        "cat" if words.is_empty() || words == ["-"] => fed(),
        "tee" => fed(),
        "tac" | "sort" | "uniq" if words.is_empty() => fed(),
        "base64" | "gbase64" => {
            let decodes = flags().any(|flag| {
                matches!(flag.as_str(), "-d" | "-D" | "--decode" | "-di" | "-id" | "-d-")
            });
            let text: String = fed()?.split_whitespace().collect();
            let plain = STANDARD.decode(text).ok().filter(|_| decodes)?;
            String::from_utf8(plain).ok()
        }
        "xxd" if flags().any(|flag| flag.contains('r')) && flags().any(|f| f.contains('p')) => {
            unhexed(&fed()?)
        }
        "tr" => {
            let [from, to] = words else { return None };
            translated(&fed()?, from, to)
        }
        // A program that prints one text and does nothing else.
        "python" | "python3" | "node" | "perl" | "ruby" | "php" => literal(words),
        "rev" => Some(fed()?.lines().map(|l| l.chars().rev().collect::<String>() + "\n").collect()),
        _ => None,
    }
}

/// What a program on the command line prints, where it prints one text that stands in it: `print("ls")`.
fn literal(words: &[String]) -> Option<String> {
    const PRINTS: [&str; 6] =
        ["print(", "console.log(", "print ", "puts ", "echo ", "process.stdout.write("];
    let [flag, program] = words else { return None };
    if !matches!(flag.as_str(), "-c" | "-e" | "-r" | "-E") {
        return None;
    }
    let rest = PRINTS.iter().find_map(|start| program.trim().strip_prefix(start))?;
    let rest = rest.trim_end_matches([')', ';', ' ']);
    let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let text = rest.get(1..)?.strip_suffix(quote)?;
    (!text.contains([quote, '\\'])).then(|| text.to_owned())
}

/// An encoded text, read: base64 or hex of plain text.
pub(super) fn plain(text: &str) -> Option<String> {
    let hex = text.len() >= 8 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let read = match hex {
        true => unhexed(text),
        false => STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok()),
    };
    read.filter(|plain| plain.len() >= 4 && !plain.contains('\0'))
}

/// What `tr` makes of a text: each character of one set becomes the one at its place in the other.
fn translated(text: &str, from: &str, to: &str) -> Option<String> {
    if from.starts_with('-') || from.contains('[') || text.len() > MAX_TRANSLATED {
        return None;
    }
    let (from, to) = (set(from)?, set(to)?);
    let last = *to.last()?;
    let change = |c: char| match from.iter().position(|known| *known == c) {
        Some(at) => to.get(at).copied().unwrap_or(last),
        None => c,
    };
    Some(text.chars().map(change).collect())
}

/// Longest text that is translated.
const MAX_TRANSLATED: usize = 4096;

/// The characters of a set: `a-z`, `A-Za-z`, `n-za-m`.
fn set(text: &str) -> Option<Vec<char>> {
    let chars: Vec<char> = text.chars().take(256).collect();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(first) = chars.get(at) {
        match (chars.get(at + 1), chars.get(at + 2)) {
            (Some('-'), Some(last)) if first.is_ascii() && last.is_ascii() => {
                found.extend(*first..=*last);
                at += 3;
            }
            _ => {
                found.push(*first);
                at += 1;
            }
        }
    }
    (!found.is_empty()).then_some(found)
}

/// A format with its values put in, one after the other.
fn formatted(format: &str, values: &[String]) -> String {
    let mut values = values.iter();
    let mut out = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let mut after = rest[at + 1..].chars();
        match after.next() {
            Some('%') => out.push('%'),
            Some('b') => {
                out.push_str(&unescaped(values.next().map_or("", String::as_str), 4));
            }
            Some('s' | 'd' | 'q') => {
                out.push_str(values.next().map_or("", String::as_str));
            }
            Some(other) => out.extend(['%', other]),
            None => out.push('%'),
        }
        rest = after.as_str();
    }
    out.push_str(rest);
    for value in values {
        out.push(' ');
        out.push_str(value);
    }
    out
}

/// `\n`, `\x72` and `\162` as the characters that they stand for.
fn unescaped(text: &str, octal: u32) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let (radix, most) = match chars.peek() {
            Some('n') => {
                chars.next();
                out.push('\n');
                continue;
            }
            Some('t') => {
                chars.next();
                out.push('\t');
                continue;
            }
            Some('x') => {
                chars.next();
                (16, 2)
            }
            Some('u') => {
                chars.next();
                (16, 4)
            }
            Some('0'..='7') => (8, octal),
            _ => {
                out.push('\\');
                continue;
            }
        };
        let mut number = 0;
        for _ in 0..most {
            let Some(digit) = chars.peek().and_then(|c| c.to_digit(radix)) else { break };
            number = number * radix + digit;
            chars.next();
        }
        // A byte has no more than eight bits.
        let number = if radix == 8 { number & 0xff } else { number };
        out.push(char::from_u32(number).unwrap_or('?'));
    }
    out
}

fn unhexed(text: &str) -> Option<String> {
    // A variable that is not known has no digits to read.
    let plain: String = text.split_whitespace().collect();
    let digits: Vec<u32> = plain.chars().map(|c| c.to_digit(16)).collect::<Option<_>>()?;
    let bytes = digits.chunks_exact(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect();
    String::from_utf8(bytes).ok()
}
