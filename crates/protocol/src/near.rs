//! Names that a mistyped name may stand for.

/// How many letters a name that is suggested may differ in.
const NEAR: usize = 3;
/// Names that are suggested at most.
const MOST: usize = 3;

/// The known names that are nearest to one, the nearest first.
///
/// ```
/// use deadstop_protocol::near::nearest;
/// assert_eq!(nearest("crwaler", ["writer", "crawler"]), ["crawler"]);
/// ```
pub fn nearest<N: Into<String>>(name: &str, known: impl IntoIterator<Item = N>) -> Vec<String> {
    let mut near: Vec<(usize, String)> = known
        .into_iter()
        .map(Into::into)
        .map(|known: String| (distance(name, &known), known))
        .filter(|(distance, _)| *distance <= NEAR)
        .collect();
    near.sort();
    near.dedup();
    near.truncate(MOST);
    near.into_iter().map(|(_, known)| known).collect()
}

/// How many letters must be changed, added or taken away, or swapped with the next one.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![(0..=other.len()).collect::<Vec<usize>>()];
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let change = rows[i][j] + usize::from(a != b);
            let mut least = change.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_near_by_their_letters() {
        for (one, other, expected) in
            [("crwaler", "crawler", 1), ("a", "a", 0), ("", "ab", 2), ("bot", "boat", 1)]
        {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
    }
}
