//! Names that were looked at and hold no secret. The same few models, providers and tools are named by
//! every call, and looking for secrets in a name costs more than remembering it.

use std::collections::HashSet;

use deadstop_redact::Redactor;
use parking_lot::RwLock;

/// Names that are remembered; when there are more, it begins anew.
const MOST: usize = 1024;
/// Bytes of a name that is remembered.
const LONGEST: usize = 128;

/// Names without a secret, as one redactor sees them.
#[derive(Debug, Default)]
pub(crate) struct Plain(RwLock<HashSet<Box<str>>>);

impl Plain {
    /// A name without its secrets; `None` if it has none.
    pub(crate) fn redact(&self, redactor: &Redactor, name: &str) -> Option<String> {
        if self.0.read().contains(name) {
            return None;
        }
        let redacted = redactor.redact(name);
        if redacted != name {
            return Some(redacted.into_owned());
        }
        if name.len() <= LONGEST {
            let mut names = self.0.write();
            if names.len() >= MOST {
                names.clear();
            }
            names.insert(name.into());
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "sk-proj-a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0";

    #[test]
    fn only_names_without_a_secret_are_remembered() {
        let (plain, redactor) = (Plain::default(), Redactor::default());
        for _ in 0..2 {
            assert_eq!(plain.redact(&redactor, "gpt-4o"), None);
            assert_eq!(plain.redact(&redactor, KEY).as_deref(), Some("[redacted:openai-key]"));
        }
        let names: Vec<String> = plain.0.read().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["gpt-4o"]);
    }

    #[test]
    fn the_memory_is_bounded() {
        let (plain, redactor) = (Plain::default(), Redactor::default());
        for number in 0..3 * MOST {
            plain.redact(&redactor, &format!("tool {number}"));
            assert!(plain.0.read().len() <= MOST);
        }
        plain.redact(&redactor, &"x".repeat(LONGEST + 1));
        assert!(plain.0.read().iter().all(|name| name.len() <= LONGEST));
    }
}
