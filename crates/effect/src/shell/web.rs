//! Requests that a command line sends: which of them delete something, and which fetch a secret.

use deadstop_core::{Effect, HarmKind, Reach, Recovery};

use super::super::name::{Deed, Words};
use super::super::{http, remote};
use super::command::value_of;
use super::{Walk, reads};

impl Walk<'_> {
    /// `curl`, `wget` and the like.
    pub(super) fn request(&mut self, name: &str, arguments: &[String]) {
        let method = value_of(arguments, &["-X", "--request", "--method"])
            .or_else(|| arguments.iter().find_map(|word| short_method(word)))
            .or_else(|| {
                let at = arguments.iter().position(|word| {
                    word.starts_with('-') && !word.starts_with("--") && word.ends_with('X')
                })?;
                arguments.get(at + 1).cloned()
            })
            .or_else(|| {
                let first = arguments.iter().find(|word| !word.starts_with('-'));
                first.filter(|_| matches!(name, "http" | "https" | "xh")).cloned()
            })
            .unwrap_or_default();
        let overridden = arguments.iter().any(|word| {
            let word = word.to_ascii_lowercase();
            word.starts_with("x-http-method") && word.trim_end().ends_with("delete")
        });
        let by_query = arguments.iter().any(|word| word.contains("/_delete_by_query"));
        if let Some(host) = arguments.iter().find(|word| {
            word.contains("169.254.169.254") || word.contains("metadata.google.internal")
        }) {
            let kind = HarmKind::ReadsSecret;
            self.effects.harm(kind, name, host, Reach::Outside, Recovery::None);
        }
        if let Some(url) = tells_to_delete(&method, arguments).filter(|_| !by_query) {
            let (verb, place) = (format!("{name} {method}"), http::place(&url));
            let reach = remote(&[&place]);
            self.effects.harm(
                HarmKind::Destroys,
                verb.trim_end(),
                &place,
                reach,
                Recovery::Elsewhere,
            );
            return;
        }
        if !method.eq_ignore_ascii_case("delete") && !overridden && !by_query {
            self.effects.raise(reads::request(name, &method, arguments));
            return;
        }
        let url = arguments.iter().find(|word| word.contains("://")).or_else(|| {
            arguments
                .iter()
                .rev()
                .find(|word| !word.starts_with('-') && word.contains(['.', '/', ':']))
        });
        let url = url.map_or("", String::as_str);
        // Of all of an index or a store, as search engines name it, even a local one is not spared.
        let all = url.ends_with("/_all") || url.ends_with("/*") || by_query;
        if http::is_local(url) && !all {
            self.effects.raise(Effect::Changes);
        } else {
            self.effects.destroy("DELETE", &http::place(url));
        }
    }
}

/// The address of a request that tells a service to delete something, by its path or by an action that is sent:
/// `POST /api/users/purge`.
fn tells_to_delete(method: &str, arguments: &[String]) -> Option<String> {
    let sends = arguments
        .iter()
        .any(|word| word.starts_with("-d") || word.starts_with("--data") || word == "--json");
    let changes = ["post", "put", "patch"].iter().any(|m| m.eq_ignore_ascii_case(method));
    let unnamed = sends && method.is_empty();
    if !changes && !unnamed {
        return None;
    }
    let url = arguments.iter().find(|word| word.contains("://"))?;
    if http::is_local(url) {
        return None;
    }
    let path = url.split("://").nth(1)?.split(['?', '#']).next()?;
    let mut segments = path.split('/').skip(1).take(12).collect::<Vec<_>>();
    let ends = segments.split_off(segments.len().saturating_sub(2));
    // `POST …/delete` is how many services delete one thing.
    let one = ["delete", "remove", "revoke", "uninstall", "rm", "del"];
    let all = |part: &&str| {
        part.len() <= 48 && !one.contains(part) && Words::of(part).deed() == Some(Deed::Destroys)
    };
    let by_path = ends.iter().any(all);
    let action = |word: &String| {
        let bare: String = word.chars().filter(|c| !c.is_whitespace()).take(2048).collect();
        ["delete", "destroy", "drop", "purge", "wipe", "terminate"].iter().any(|verb| {
            bare.contains(&format!("\"action\":\"{verb}\""))
                || bare.contains(&format!("action={verb}"))
        })
    };
    (by_path || arguments.iter().any(action)).then(|| url.clone())
}

/// The method in `-XDELETE` or `-sXDELETE`.
fn short_method(word: &str) -> Option<String> {
    let letters = word.strip_prefix('-').filter(|letters| !letters.starts_with('-'))?;
    let (flags, method) = letters.split_once('X')?;
    let is_method = !method.is_empty() && method.bytes().all(|b| b.is_ascii_alphabetic());
    (is_method && flags.bytes().all(|b| b.is_ascii_alphabetic())).then(|| method.to_owned())
}
