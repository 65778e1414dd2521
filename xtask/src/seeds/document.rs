//! The document for readers who come from one of the five products: what each page says, and what
//! Deadstop does.

use std::fmt::Write as _;

use super::{Holds, Page, Statement};

/// The whole document.
pub(super) fn of(pages: &[Page]) -> String {
    let names: Vec<&str> = pages.iter().map(|page| page.product.as_str()).collect();
    let title = match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    };
    let mut text = format!(
        "# If you come from {title}\n\n\
         What the documentation of each product says, statement by statement, and what Deadstop does.\n\
         **Same**: as written there, under the same names unless the second column gives ours.\n\
         **More**: Deadstop does what the page says and goes further.\n\
         **Different**: Deadstop decides otherwise, for the reason given.\n\n\
         This page is made from `tests/seeds/`, which also names the test for each line. \
         Change it there, then run `cargo xtask seeds --write`.\n\n\
         | product | statements | same | more | different | missing |\n\
         |---|---|---|---|---|---|\n"
    );
    for page in pages {
        let _ = writeln!(
            text,
            "| [{}](#{}) | {} | {} | {} | {} | {} |",
            page.product,
            page.product.to_lowercase(),
            page.statements.len(),
            page.count(Holds::AsWritten),
            page.count(Holds::Better),
            page.count(Holds::Different),
            page.count(Holds::Missing),
        );
    }
    for page in pages {
        let _ = write!(
            text,
            "\n## {}\n\n{}.\n\n| what its page says | in Deadstop |\n|---|---|\n",
            page.product, page.about
        );
        for one in &page.statements {
            let _ = writeln!(text, "| {} | {} |", cell(&one.says), cell(&answer(one)));
        }
    }
    text
}

/// What Deadstop does about a statement.
fn answer(one: &Statement) -> String {
    let word = match one.holds {
        Holds::AsWritten => "Same",
        Holds::Better => "**More**",
        Holds::Different => "**Different**",
        Holds::Missing => "**Missing**",
    };
    let told = [one.reason.trim(), one.here.trim()];
    let told: Vec<&str> = told.into_iter().filter(|text| !text.is_empty()).collect();
    if told.is_empty() { word.to_owned() } else { format!("{word}: {}", told.join("; ")) }
}

/// Text in a table's cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_becomes_a_table() {
        let page = |product: &str| {
            serde_json::from_value::<Page>(serde_json::json!({
                "page": "009", "product": product, "about": "Brakes",
                "statements": [
                    { "number": 1, "says": "a|b", "holds": "as_written", "here": "`c`" },
                    { "number": 2, "says": "d", "holds": "better", "reason": "e", "here": "f" },
                    { "number": 3, "says": "g", "holds": "different", "reason": "h" },
                ],
            }))
            .unwrap()
        };
        let text = of(&[page("One"), page("Two"), page("Three")]);
        assert!(text.starts_with("# If you come from One, Two or Three\n"), "{text}");
        assert!(text.contains("| [Two](#two) | 3 | 1 | 1 | 1 | 0 |\n"), "{text}");
        assert!(text.ends_with(
            "\n## Three\n\nBrakes.\n\n| what its page says | in Deadstop |\n|---|---|\n\
             | a\\|b | Same: `c` |\n| d | **More**: e; f |\n| g | **Different**: h |\n"
        ));
    }
}
