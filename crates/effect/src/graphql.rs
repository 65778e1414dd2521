//! GraphQL: the fields that a mutation asks for are calls, named like tools.

use deadstop_core::Effect;

use super::name::Words;
use super::{Effects, target};

/// Longer documents are not read.
const MAX_TEXT: usize = 64 * 1024;

/// What a document would do, or `None` if it is not GraphQL.
pub(super) fn of(text: &str) -> Option<Effects> {
    let text = uncommented(text)?;
    let text = text.trim_start();
    if text.starts_with('{') || starts_with_word(text, "query") {
        let asks = text.contains('{') && text.trim_end().ends_with('}');
        return asks.then(|| Effects::only(Effect::Reads));
    }
    if !starts_with_word(text, "mutation") {
        return None;
    }
    let mut effects = Effects::only(Effect::Changes);
    for field in fields(text) {
        if Words::of(&field.name).destroys() {
            effects.destroy_by_name(&field.name, &target::clip(&field.given));
        }
    }
    Some(effects)
}

fn starts_with_word(text: &str, word: &str) -> bool {
    let rest = text.strip_prefix(word);
    rest.is_some_and(|rest| rest.starts_with(|c: char| !c.is_alphanumeric() && c != '_'))
}

fn uncommented(text: &str) -> Option<String> {
    if text.len() > MAX_TEXT {
        return None;
    }
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    Some(lines.collect::<Vec<_>>().join("\n"))
}

/// A field of the outermost selection.
#[derive(Default)]
struct Field {
    name: String,
    given: String,
}

/// The fields that stand in the first braces, without what they are asked for in turn.
fn fields(text: &str) -> Vec<Field> {
    let mut found: Vec<Field> = Vec::new();
    let (mut braces, mut brackets, mut quoted) = (0_usize, 0_usize, false);
    let mut word = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let top = braces == 1 && brackets == 0;
        if quoted {
            match c {
                '\\' => {
                    chars.next();
                }
                '"' => quoted = false,
                _ => {}
            }
        } else if top && (c.is_alphanumeric() || c == '_') {
            word.push(c);
            continue;
        } else {
            // Before a colon stands an alias.
            if top && !word.is_empty() && c != ':' {
                found.push(Field { name: std::mem::take(&mut word), ..Field::default() });
            }
            word.clear();
            match c {
                // Braces among arguments are objects.
                '{' if brackets == 0 => braces += 1,
                '}' if brackets == 0 => braces = braces.saturating_sub(1),
                '(' => brackets += 1,
                ')' => brackets = brackets.saturating_sub(1),
                '"' => quoted = true,
                _ => {}
            }
        }
        if braces == 1
            && brackets > 0
            && c != '('
            && let Some(field) = found.last_mut()
        {
            field.given.push(c);
        }
        if braces == 0 && !found.is_empty() {
            break;
        }
    }
    found
}
