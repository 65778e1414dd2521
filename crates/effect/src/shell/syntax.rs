//! A script's syntax tree, within bounds.
//!
//! The parser recurses where the script nests, and tries alternatives again at every level, so that
//! a few dozen open brackets would cost seconds or the stack. The nesting is measured first, on the
//! text and then on its tokens; what nests deeper than any sane script is not parsed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use brush_parser::ast::Program;
use brush_parser::{ParserOptions, Token, parse_tokens, uncached_tokenize_str};

/// Of longer scripts only so much is read, up to the end of a line.
const MAX_TEXT: usize = 64 * 1024;

/// Brackets of one kind open at once anywhere in the text, here-documents included.
const MAX_BRACKETS: usize = 40;

/// Substitutions in one text. The tokenizer recurses into each that is open, and which of them a
/// quote, a comment or a here-document leaves open cannot be told without it: so all are counted.
/// In a debug build some 200 of them overflow a stack of 2 MiB.
const MAX_SUBSTITUTIONS: usize = 64;

/// Compound commands open at once.
const MAX_NESTING: usize = 10;

/// `esac)` in one text: the end of a `case` in brackets, or another pattern of it. The parser tries both
/// each time, so that one more doubles its time.
const MAX_ESACS: usize = 4;

/// Parses a script, or gives up.
pub(super) fn parse(text: &str) -> Option<Program> {
    if text.contains('\0')
        || too_many_brackets(text)
        || has_nameless_document(text)
        || has_cut_document(text)
    {
        return None;
    }
    let options = ParserOptions::default();
    // The tokenizer panics over a here-document that a substitution cuts off, as in
    // `$(cat <<E`, `)`, `E`. To us that is one more text that it cannot read.
    let read = || {
        let tokens = uncached_tokenize_str(text, &options.tokenizer_options()).ok()?;
        if !is_tame(&tokens) {
            return None;
        }
        parse_tokens(&tokens, &options).ok()
    };
    catch_unwind(AssertUnwindSafe(read)).ok().flatten()
}

/// The part of a text that is read, up to the end of a line, and the rest.
pub(super) fn beginning(text: &str) -> (&str, &str) {
    if text.len() <= MAX_TEXT {
        return (text, "");
    }
    let start = text.floor_char_boundary(MAX_TEXT);
    let end = text[..start].rfind('\n').unwrap_or(start);
    text.split_at(end)
}

/// Subscripts open at once, `a[b[`: the parser tries each both ways, so that one more doubles its time.
const MAX_SUBSCRIPTS: usize = 6;

fn too_many_brackets(text: &str) -> bool {
    let (mut round, mut curly, mut substitutions) = (0_usize, 0_usize, 0_usize);
    let mut subscripts = 0_usize;
    let mut before = 0;
    text.bytes().any(|byte| {
        match byte {
            b'(' => round += 1,
            b'{' => curly += 1,
            b')' => round = round.saturating_sub(1),
            b'}' => curly = curly.saturating_sub(1),
            b'[' if u8::is_ascii_alphanumeric(&before) || before == b'_' => subscripts += 1,
            b']' => subscripts = subscripts.saturating_sub(1),
            _ => {}
        }
        let opens = match byte {
            b'(' => matches!(before, b'$' | b'<' | b'>'),
            b'{' => before == b'$',
            _ => false,
        };
        substitutions += usize::from(opens);
        before = byte;
        round.max(curly) > MAX_BRACKETS
            || subscripts > MAX_SUBSCRIPTS
            || substitutions > MAX_SUBSTITUTIONS
    })
}

/// Whether a here-document may have an empty word for its end, as in `cat <<''`: looking for that, the
/// tokenizer fills all memory at the end of the text.
fn has_nameless_document(text: &str) -> bool {
    let ends = |c: char| c.is_whitespace() || ";&|<>()`".contains(c);
    text.match_indices("<<").any(|(at, _)| {
        let rest = &text[at + 2..];
        // The second half of `<<<`, which is a text and no document.
        if text[..at].ends_with('<') || rest.starts_with('<') {
            return false;
        }
        let word = rest.strip_prefix('-').unwrap_or(rest).trim_start_matches([' ', '\t']);
        let word = word.split(ends).next().unwrap_or_default();
        word.chars().all(|c| "'\"\\$".contains(c))
    })
}

/// Whether a here-document may stand in a substitution that the end of the text cuts off, as in
/// `$( <<E $(`: looking for its body, the tokenizer fills all memory.
fn has_cut_document(text: &str) -> bool {
    let last =
        text.match_indices("<<").map(|(at, _)| at).filter(|at| !text[at + 2..].starts_with('<'));
    let Some(last) = last.last() else { return false };
    let count = |sign: char| text.bytes().filter(|byte| *byte == sign as u8).count();
    let inside = ["$(", "<(", ">(", "${", "`"].iter().any(|start| text.contains(start));
    let open = count('(') > count(')') || count('{') > count('}') || count('`') % 2 == 1;
    inside && (open || !text[last..].contains('\n'))
}

/// Whether the tokens are safe to hand to the parser.
fn is_tame(tokens: &[Token]) -> bool {
    // Brackets and blocks are counted apart: the `)` of a `case` closes no bracket.
    let (mut brackets, mut blocks, mut repeated) = (0_usize, 0_usize, 0_usize);
    let (mut opened, mut closed) = (0_usize, 0_usize);
    let (mut esacs, mut before) = (0_usize, "");
    for token in tokens {
        esacs += usize::from(before == "esac" && token.to_str() == ")");
        before = token.to_str();
        match token {
            Token::Operator(operator, _) => match operator.as_str() {
                "(" => (brackets, opened) = (brackets + 1, opened + 1),
                ")" => (brackets, closed) = (brackets.saturating_sub(1), closed + 1),
                _ => {}
            },
            Token::Word(word, _) => match word.as_str() {
                "{" | "if" | "while" | "until" | "for" | "case" | "select" => blocks += 1,
                "}" | "fi" | "done" | "esac" => blocks = blocks.saturating_sub(1),
                // The parser takes any run of digits before a `>` for a file descriptor.
                digits if digits.len() > 9 && digits.bytes().all(|b| b.is_ascii_digit()) => {
                    return false;
                }
                _ => {}
            },
        }
        repeated = if matches!(token.to_str(), "!" | "coproc" | "time") { repeated + 1 } else { 0 };
        if brackets + blocks > MAX_NESTING || repeated > MAX_NESTING || esacs > MAX_ESACS {
            return false;
        }
    }
    // An open bracket that never closes cannot parse, and is what costs the most to find out.
    opened <= closed
}
