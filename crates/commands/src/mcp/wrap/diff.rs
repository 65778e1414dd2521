//! What changes, line by line.

/// The lines that go and come, with a line around them; nothing if all is the same.
pub(super) fn lines(before: &str, after: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    // How many lines both have in common, from here to the end.
    let mut common = vec![vec![0usize; new.len() + 1]; old.len() + 1];
    for (i, line) in old.iter().enumerate().rev() {
        for (j, other) in new.iter().enumerate().rev() {
            common[i][j] = match line == other {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut all = Vec::new();
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            all.push((' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if i < old.len() && (j == new.len() || common[i + 1][j] >= common[i][j + 1]) {
            all.push(('-', old[i]));
            i += 1;
        } else {
            all.push(('+', new[j]));
            j += 1;
        }
    }
    let near = |at: usize| {
        all[at.saturating_sub(1)..(at + 2).min(all.len())].iter().any(|(mark, _)| *mark != ' ')
    };
    let shown = all.iter().enumerate().filter(|(at, _)| near(*at));
    shown.map(|(_, (mark, line))| format!("{mark} {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_and_a_line_around_it() {
        assert_eq!(lines("a\nb\nc\nd\ne", "a\nb\nx\nd\ne"), "  b\n- c\n+ x\n  d\n");
        assert_eq!(lines("a", "a"), "");
        assert_eq!(lines("", "a\n"), "+ a\n");
    }
}
