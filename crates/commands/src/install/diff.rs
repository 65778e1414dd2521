//! The difference between two texts, for people: lines that go, lines that come, a few around them.

use crate::ui;

/// Lines around a change that are shown.
const AROUND: usize = 2;
/// Lines beyond which two texts are not compared line by line.
const MOST: usize = 4000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum DiffLine<'t> {
    Same(&'t str),
    Gone(&'t str),
    New(&'t str),
}

/// The difference as text.
pub(super) fn diff(before: &str, after: &str) -> String {
    let lines = compare(before, after);
    let near = |at: usize| {
        let from = at.saturating_sub(AROUND);
        let to = (at + AROUND + 1).min(lines.len());
        lines[from..to].iter().any(|line| !matches!(line, DiffLine::Same(_)))
    };
    let colour = ui::colour();
    let mut out = String::new();
    let mut skipped = false;
    for (at, line) in lines.iter().enumerate() {
        if !near(at) {
            skipped = true;
            continue;
        }
        if std::mem::take(&mut skipped) {
            out.push_str("    …\n");
        }
        let (mark, text, shade) = match line {
            DiffLine::Same(text) => (' ', text, ""),
            DiffLine::Gone(text) => ('-', text, "\u{1b}[31m"),
            DiffLine::New(text) => ('+', text, "\u{1b}[32m"),
        };
        let text = ui::printable(text);
        match colour && !shade.is_empty() {
            true => out.push_str(&format!("  {shade}{mark} {text}\u{1b}[0m\n")),
            false => out.push_str(&format!("  {mark} {text}\n")),
        }
    }
    out
}

fn compare<'t>(before: &'t str, after: &'t str) -> Vec<DiffLine<'t>> {
    let (old, new): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - head;
    let pairs = old.iter().rev().zip(new.iter().rev()).take(rest);
    let tail = pairs.take_while(|(a, b)| a == b).count();
    let (middle_old, middle_new) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);

    let mut lines: Vec<_> = old[..head].iter().map(|line| DiffLine::Same(line)).collect();
    lines.extend(middle(middle_old, middle_new));
    lines.extend(old[old.len() - tail..].iter().map(|line| DiffLine::Same(line)));
    lines
}

/// The longest common run of lines, by the table of lengths.
fn middle<'t>(old: &[&'t str], new: &[&'t str]) -> Vec<DiffLine<'t>> {
    if old.len() > MOST || new.len() > MOST {
        let gone = old.iter().map(|line| DiffLine::Gone(line));
        return gone.chain(new.iter().map(|line| DiffLine::New(line))).collect();
    }
    let mut longest = vec![vec![0_u32; new.len() + 1]; old.len() + 1];
    for (i, a) in old.iter().enumerate().rev() {
        for (j, b) in new.iter().enumerate().rev() {
            longest[i][j] = match a == b {
                true => longest[i + 1][j + 1] + 1,
                false => longest[i + 1][j].max(longest[i][j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut lines = Vec::new();
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            lines.push(DiffLine::Same(old[i]));
            (i, j) = (i + 1, j + 1);
        } else if i < old.len() && (j == new.len() || longest[i + 1][j] >= longest[i][j + 1]) {
            lines.push(DiffLine::Gone(old[i]));
            i += 1;
        } else {
            lines.push(DiffLine::New(new[j]));
            j += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_and_comes_is_shown_with_a_little_around_it() {
        let before = "a\nb\nc\nd\ne\nf\ng\nh\n";
        let after = "a\nb\nc\nX\nd\ne\nf\ng\n";
        assert_eq!(
            diff(before, after),
            "    …\n    b\n    c\n  + X\n    d\n    e\n    f\n    g\n  - h\n"
        );
        assert_eq!(diff("", "a\n"), "  + a\n");
        assert_eq!(diff("same\n", "same\n"), "");
    }
}
