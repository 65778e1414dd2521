//! Names that say that what they name is a secret.

/// What sort of secret a name announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// A word of a person's choice.
    Password,
    /// Something that a machine made.
    Key,
    /// As `Key`, but the word has many other uses.
    Token,
    /// A header with a scheme and credentials.
    Authorization,
    /// A header with `name=value` pairs.
    Cookie,
}

/// A word, and what its presence in a name means.
#[derive(Debug)]
pub(super) struct Word {
    pub(super) text: &'static str,
    pub(super) kind: &'static str,
    pub(super) sort: Sort,
}

const fn word(text: &'static str, kind: &'static str, sort: Sort) -> Word {
    Word { text, kind, sort }
}

use Sort::{Authorization, Cookie, Key, Password, Token};

/// All words.
pub(super) const WORDS: &[Word] = &[
    word("password", "password", Password),
    word("passwd", "password", Password),
    word("passwort", "password", Password),
    word("passphrase", "password", Password),
    word("pwd", "password", Password),
    word("_pass", "password", Password),
    word("secret", "secret", Key),
    word("token", "token", Token),
    word("api_key", "api-key", Key),
    word("api-key", "api-key", Key),
    word("apikey", "api-key", Key),
    word("api key", "api-key", Key),
    word("access_key", "access-key", Key),
    word("access-key", "access-key", Key),
    word("accesskey", "access-key", Key),
    word("account_key", "azure-key", Key),
    word("accountkey", "azure-key", Key),
    word("private_key", "private-key", Key),
    word("private-key", "private-key", Key),
    word("privatekey", "private-key", Key),
    word("signing_key", "signing-key", Key),
    word("signing-key", "signing-key", Key),
    word("signingkey", "signing-key", Key),
    word("encryption_key", "encryption-key", Key),
    word("encryptionkey", "encryption-key", Key),
    word("master_key", "encryption-key", Key),
    word("masterkey", "encryption-key", Key),
    word("auth_key", "api-key", Key),
    word("authkey", "api-key", Key),
    word("subscription-key", "api-key", Key),
    word("deadstop-key", "deadstop-key", Key),
    word("authorization", "authorization", Authorization),
    word("cookie", "cookie", Cookie),
];

/// What may follow the word without changing what the name is about.
const SUFFIXES: [&str; 20] = [
    "key",
    "accesskey",
    "keybase",
    "value",
    "string",
    "text",
    "plain",
    "base64",
    "b64",
    "header",
    "prod",
    "production",
    "dev",
    "development",
    "test",
    "staging",
    "live",
    "old",
    "new",
    "current",
];

/// What before `token` makes it a word of a text or a place in a list.
const NOT_CREDENTIALS: [&str; 33] = [
    "page",
    "next",
    "continuation",
    "sync",
    "max",
    "min",
    "num",
    "total",
    "prompt",
    "completion",
    "cancellation",
    "pad",
    "eos",
    "bos",
    "unk",
    "sep",
    "cls",
    "mask",
    "special",
    "stop",
    "per",
    "last",
    "first",
    "prev",
    "previous",
    "top",
    "text",
    "input",
    "output",
    "cached",
    "lookahead",
    "syntax",
    "pagination",
];

/// What before `_pass` makes it a password.
const USERS: [&str; 22] = [
    "db",
    "database",
    "mysql",
    "postgres",
    "postgresql",
    "pg",
    "smtp",
    "mail",
    "email",
    "redis",
    "ftp",
    "user",
    "admin",
    "root",
    "sudo",
    "ssh",
    "rabbitmq",
    "mongo",
    "ldap",
    "http",
    "auth",
    "login",
];

/// Values that are words of a language, not secrets.
const WORDS_OF_LANGUAGE: [&str; 75] = [
    "a",
    "an",
    "and",
    "any",
    "as",
    "auto",
    "basic",
    "bearer",
    "bool",
    "boolean",
    "bytes",
    "can",
    "char",
    "default",
    "disabled",
    "empty",
    "enabled",
    "expired",
    "false",
    "float",
    "for",
    "from",
    "has",
    "hidden",
    "if",
    "in",
    "include",
    "incorrect",
    "int",
    "integer",
    "invalid",
    "is",
    "key",
    "missing",
    "must",
    "my",
    "n/a",
    "new",
    "nil",
    "no",
    "none",
    "not",
    "null",
    "number",
    "object",
    "of",
    "off",
    "omit",
    "on",
    "optional",
    "or",
    "passwd",
    "password",
    "redacted",
    "required",
    "secret",
    "self",
    "should",
    "str",
    "string",
    "text",
    "that",
    "the",
    "this",
    "to",
    "token",
    "true",
    "type",
    "undefined",
    "unknown",
    "value",
    "was",
    "will",
    "wrong",
    "your",
];

/// What a whole name announces: the kind of its secret, or none.
pub(super) fn kind(word: &Word, prefix: &[u8], suffix: &[u8]) -> Option<&'static str> {
    let (prefix, suffix) = (plain(prefix), plain(suffix));
    let numbered = suffix.trim_end_matches(|c: char| c.is_ascii_digit());
    if !numbered.is_empty() && !SUFFIXES.contains(&numbered) {
        return None;
    }
    match word.text {
        "token" if NOT_CREDENTIALS.iter().any(|word| prefix.ends_with(word)) => return None,
        "_pass" if !USERS.iter().any(|user| prefix.ends_with(user)) => return None,
        // The working directory of a shell.
        "pwd" if prefix.is_empty() && suffix.is_empty() => {}
        "pwd" if prefix == "old" => return None,
        "cookie" if !matches!(prefix.as_str(), "" | "set") || !suffix.is_empty() => return None,
        "authorization" if !matches!(suffix.as_str(), "" | "header" | "value") => return None,
        "secret" if suffix == "accesskey" || (prefix.contains("aws") && suffix != "string") => {
            return Some("aws-secret-key");
        }
        "accesskey" | "access_key" if prefix.ends_with("shared") => return Some("azure-key"),
        _ => {}
    }
    Some(word.kind)
}

/// Whether a value is a word of a language.
pub(super) fn is_word(value: &[u8]) -> bool {
    value.len() <= 12
        && std::str::from_utf8(value).is_ok_and(|value| {
            WORDS_OF_LANGUAGE.binary_search(&value.to_ascii_lowercase().as_str()).is_ok()
        })
}

/// A name without case and separators.
fn plain(name: &[u8]) -> String {
    name.iter()
        .filter(|unit| unit.is_ascii_alphanumeric())
        .map(|unit| char::from(unit.to_ascii_lowercase()))
        .collect()
}
