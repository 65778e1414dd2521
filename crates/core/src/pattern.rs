//! Names with `*` in them, as people write them in policies.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A text with `*` for any characters, also none; case of ASCII letters does not matter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern(String);

impl Pattern {
    /// A pattern from its text.
    ///
    /// ```
    /// use deadstop_core::Pattern;
    /// assert!(Pattern::new("delete_*").matches("Delete_Asset"));
    /// assert!(!Pattern::new("delete_*").matches("undelete_asset"));
    /// ```
    pub fn new(text: impl Into<String>) -> Pattern {
        Pattern(text.into())
    }

    /// Whether it stands for one text only.
    pub fn is_exact(&self) -> bool {
        !self.0.contains('*')
    }

    /// Whether a target fits, as a whole or by its value alone: `tmp_*` fits `asset_id=tmp_0`.
    ///
    /// ```
    /// use deadstop_core::Pattern;
    /// assert!(Pattern::new("tmp_*").matches_target("asset_id=tmp_0"));
    /// assert!(Pattern::new("asset_id=*").matches_target("asset_id=tmp_0"));
    /// assert!(!Pattern::new("tmp_*").matches_target("asset_id=prod_tmp_0"));
    /// ```
    pub fn matches_target(&self, target: &str) -> bool {
        let named = |name: &str| name.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c));
        let value = target.split_once('=').filter(|(name, _)| named(name)).map(|(_, value)| value);
        self.matches(target) || value.is_some_and(|value| self.matches(value))
    }

    /// Whether the whole of `text` fits.
    pub fn matches(&self, text: &str) -> bool {
        let (pattern, text) = (self.0.as_bytes(), text.as_bytes());
        let (mut p, mut t) = (0, 0);
        // Where to go on after the last star, should the way taken turn out to be wrong.
        let mut retry = None;
        while t < text.len() {
            match pattern.get(p) {
                Some(b'*') => {
                    retry = Some((p, t));
                    p += 1;
                }
                Some(c) if c.eq_ignore_ascii_case(&text[t]) => {
                    p += 1;
                    t += 1;
                }
                _ => match retry {
                    Some((star, from)) => {
                        retry = Some((star, from + 1));
                        p = star + 1;
                        t = from + 1;
                    }
                    None => return false,
                },
            }
        }
        pattern[p..].iter().all(|c| *c == b'*')
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("a*", "a", true),
            ("a*c", "abc", true),
            ("a*c", "abcd", false),
            ("a*c", "acbc", true),
            ("*b*", "abc", true),
            ("*b*", "ac", false),
            ("**a**", "a", true),
            ("a*b*c", "a-b-b-c", true),
            ("abc", "ABC", true),
            ("abc", "ab", false),
            ("ab", "abc", false),
            ("*ü", "für ü", true),
        ] {
            assert_eq!(Pattern::new(pattern).matches(text), expected, "{pattern} on {text}");
        }
        assert_eq!(Pattern::new("a*").to_string(), "a*");
    }
}
