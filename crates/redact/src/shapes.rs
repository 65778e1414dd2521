//! Secrets that are known by their shape: JSON web tokens, passwords in URLs, credentials after a
//! scheme's name, signatures in URLs, chat bot tokens, Deadstop's own keys, private keys.

use super::place::{AHEAD, Candidate, Class, Ending, Outcome, is_redacted};
use super::quote::Quote;
use super::tokens::{ending, looks_random};

/// Units of a user's name, and of a password, in a URL.
const LONGEST_PART: usize = 1024;
/// Schemes whose URL says where a database is.
const DATABASES: [&str; 14] = [
    "postgres",
    "postgresql",
    "mysql",
    "mariadb",
    "mongodb",
    "srv",
    "redis",
    "rediss",
    "amqp",
    "amqps",
    "sqlserver",
    "mssql",
    "clickhouse",
    "cassandra",
];

/// `eyJ…`: three parts with dots between them, the first of which is JSON.
pub(super) fn jwt(place: &Candidate<'_>) -> Outcome {
    let at = place.at;
    // In the middle of something longer, as far as it can be seen.
    let joined = matches!(place.before(at), Some(b'-' | b'_' | b'+' | b'/'))
        && place
            .back(at)
            .last_chunk::<8>()
            .is_some_and(|it| it.iter().all(|u| Class::Base64.has(*u)));
    if !place.is_fresh(at) || !place.from(at).starts_with(b"eyJ") || joined {
        return Outcome::Nothing;
    }
    let header = Class::Dashed.run(place.from(at));
    let payload = at + header + 1;
    if header < 10 || place.from(at + header).first() != Some(&b'.') {
        return Outcome::Nothing;
    }
    let run = Class::Dashed.run(&place.from(payload)[..place.from(payload).len().min(64)]);
    // An encrypted one that needs no key has an empty second part.
    if run < 4 && !place.from(payload).starts_with(b".") {
        return Outcome::Nothing;
    }
    Outcome::secret(at, ending(place, at, Class::Dotted), "jwt")
}

/// `://user:password@host`.
pub(super) fn url(place: &Candidate<'_>) -> Outcome {
    let start = place.at + 3;
    let encoded = place.is_percent(place.at);
    let units = place.from(start);
    let stops = |at: usize, unit: u8| {
        let ends = unit.is_ascii_whitespace() || b"\"'`<>\\".contains(&unit);
        ends && (encoded || !place.is_percent(start + at))
    };
    let separates =
        |at: usize, unit: u8| b"/?#".contains(&unit) && (encoded || !place.is_percent(start + at));
    let mut colon = None;
    let mut found = None;
    for (at, unit) in units.iter().copied().enumerate().take(2 * LONGEST_PART) {
        if stops(at, unit) {
            break;
        }
        match (unit, colon) {
            (b':', None) => colon = Some(at),
            (b'@', Some(_)) if encoded || !place.is_percent(start + at) => found = Some(at),
            (_, Some(colon)) if separates(at, unit) => {
                // A port, or a password that was not percent-encoded?
                let port = units[colon + 1..at].iter().all(u8::is_ascii_digit);
                if found.is_some() || port || at - colon > 64 {
                    break;
                }
            }
            (_, None) if separates(at, unit) => break,
            _ => {}
        }
    }
    let (Some(colon), Some(end)) = (colon, found) else { return Outcome::Nothing };
    let password = &units[colon + 1..end];
    if password.is_empty() || is_template(password) {
        return Outcome::Nothing;
    }
    let (from, end) = (start + colon + 1, start + end);
    if is_redacted(password) {
        return Outcome::Skip(end);
    }
    let scheme = place.back(place.at);
    let name = scheme.len() - scheme.iter().rev().take_while(|u| u.is_ascii_alphanumeric()).count();
    let kind = match std::str::from_utf8(&scheme[name..]) {
        Ok(scheme) if DATABASES.contains(&scheme.to_ascii_lowercase().as_str()) => {
            "database-password"
        }
        _ => "url-password",
    };
    Outcome::secret(from, Ending::At(end), kind)
}

/// `Bearer` and a token, wherever it stands.
pub(super) fn bearer(place: &Candidate<'_>) -> Outcome {
    let Some(start) = after_blanks(place, place.at + 6) else { return Outcome::Nothing };
    let units = place.from(start);
    let judged = &units[..Class::Token.run(&units[..units.len().min(64)])];
    let likely = judged.len() >= 16 && judged.iter().any(u8::is_ascii_digit);
    if !place.is_fresh(place.at) || !likely {
        return Outcome::Nothing;
    }
    let kind = super::tokens::kind_of(place, start).unwrap_or("bearer-token");
    Outcome::secret(start, ending(place, start, Class::Token), kind)
}

/// `Basic` and a user's name with a password in base64.
pub(super) fn basic(place: &Candidate<'_>) -> Outcome {
    let Some(start) = after_blanks(place, place.at + 5) else { return Outcome::Nothing };
    let units = place.from(start);
    let run = Class::Base64.run(&units[..units.len().min(AHEAD / 2)]);
    let named = decoded(&units[..run.min(256)]);
    if !place.is_fresh(place.at) || run < 6 || !named.contains(&b':') || !named.is_ascii() {
        return Outcome::Nothing;
    }
    Outcome::secret(start, ending(place, start, Class::Base64), "basic-auth")
}

/// How a command takes a password.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// Right after the option's letter: what follows a blank is something else.
    Attached,
    /// There, or as the next word.
    Either,
    /// The same, after a user's name and a colon.
    User,
}

/// Options with which commands take passwords. `login` is that of docker, podman, helm and az.
const OPTIONS: [(u8, Takes, &[&str]); 6] = [
    (b'u', Takes::User, &["curl"]),
    (
        b'p',
        Takes::Attached,
        &[
            "mysql",
            "mysqldump",
            "mysqladmin",
            "mysqlimport",
            "mysqlcheck",
            "mysqlsh",
            "mariadb",
            "mariadb-dump",
            "mariadb-admin",
            "7z",
            "7za",
            "7zz",
            "rar",
            "unrar",
        ],
    ),
    (
        b'p',
        Takes::Either,
        &["sshpass", "login", "mongo", "mongosh", "mongodump", "mongorestore", "mongoexport"],
    ),
    (b'P', Takes::Either, &["sqlcmd", "bcp", "zip", "unzip"]),
    (b'w', Takes::Either, &["ldapsearch", "ldapadd", "ldapmodify", "ldapdelete", "ldapwhoami"]),
    (b'a', Takes::Either, &["redis-cli"]),
];

/// `curl -u user:password`, `sshpass -p password`, `mysql -ppassword` and the like.
pub(super) fn argument(place: &Candidate<'_>) -> Outcome {
    let long = place.from(place.at).starts_with(b"--");
    let letter = place.from(place.at).get(if long { 2 } else { 1 }).copied().unwrap_or(0);
    let starts = place.before(place.at).is_none_or(|unit| {
        unit.is_ascii_whitespace() || matches!(unit, b'"' | b'\'' | b'`' | b'\\')
    });
    let Some(takes) = taken_by(place, letter).filter(|_| starts) else { return Outcome::Nothing };
    let after = place.at + if long { "--user".len() } else { 2 };
    let apart = place.from(after).first().is_some_and(u8::is_ascii_whitespace);
    let start = match (apart, takes) {
        (true, Takes::Attached) => None,
        (true, _) => after_blanks(place, after),
        (false, _) => Some(after),
    };
    let Some(mut start) = start else { return Outcome::Nothing };
    start += Quote::at(place.from(start)).map_or(0, |(_, length)| length);
    let units = place.from(start);
    let mut value = &units[..Class::Env.run(&units[..units.len().min(256)])];
    if takes == Takes::User {
        let Some(colon) = value.iter().position(|unit| *unit == b':') else {
            return Outcome::Nothing;
        };
        start += colon + 1;
        value = &value[colon + 1..];
    }
    if value.is_empty() || value.starts_with(b"$") || is_template(value) || is_redacted(value) {
        return Outcome::Nothing;
    }
    // `docker run --name mysql -p3306:3306`.
    if value.contains(&b':') && value.iter().all(|u| u.is_ascii_digit() || *u == b':') {
        return Outcome::Nothing;
    }
    Outcome::secret(start, Ending::At(start + value.len()), "password")
}

/// How the command before an option takes a password with it, if it does.
fn taken_by(place: &Candidate<'_>, letter: u8) -> Option<Takes> {
    let (commands, reaches) = commands(place.back(place.at));
    let beneath = if reaches && place.sees_floor() { place.commands } else { 0 };
    let named = commands | beneath;
    let mut options = OPTIONS.iter().enumerate();
    let found = options.find(|(n, (own, _, _))| *own == letter && named & (1 << n) != 0);
    found.map(|(_, (_, takes, _))| *takes)
}

/// Which of [`OPTIONS`] have a command in the last line of these units, as bits, and whether that line
/// begins before them.
pub(super) fn commands(units: &[u8]) -> (u8, bool) {
    let ends = |unit: &u8| matches!(unit, b'\n' | b'\r' | b';' | b'|' | b'&');
    let line = units.rsplit(ends).next().unwrap_or_default();
    let within = |unit: &u8| !matches!(unit, b'-' | b'_' | b'.') && !unit.is_ascii_alphanumeric();
    let named = |command: &&str| line.split(within).any(|word| word == command.as_bytes());
    let bit = |(n, (_, _, commands)): (usize, &(u8, Takes, &[&str]))| {
        u8::from(commands.iter().any(named)) << n
    };
    let found = OPTIONS.iter().enumerate().map(bit).fold(0, |all, bit| all | bit);
    (found, line.len() == units.len())
}

/// `sig=`, as in links that carry their own permission.
pub(super) fn signature(place: &Candidate<'_>) -> Outcome {
    let name = Class::Dashed.run(place.from(place.at));
    let start = place.at + name + 1;
    let units = place.from(start);
    let run = units.iter().take(64).take_while(|unit| Class::Base64.has(**unit)).count();
    let parameter = matches!(place.before(place.at), Some(b'?' | b'&' | b';' | b'-'));
    if !parameter || place.from(start - 1).first() != Some(&b'=') || run < 16 {
        return Outcome::Nothing;
    }
    Outcome::secret(start, ending(place, start, Class::Base64), "url-signature")
}

/// A bot's number, a colon and its token, as Telegram has them.
pub(super) fn telegram(place: &Candidate<'_>) -> Outcome {
    let digits = place.back(place.at).iter().rev().take_while(|u| u.is_ascii_digit()).count();
    let units = place.from(place.at + 1);
    let run = Class::Dashed.run(&units[..units.len().min(64)]);
    if !(8..=11).contains(&digits) || !(33..=36).contains(&run) || !units.starts_with(b"AA") {
        return Outcome::Nothing;
    }
    Outcome::secret(place.at + 1, Ending::At(place.at + 1 + run), "telegram-token")
}

/// `ds_o_<id>_<secret>`.
pub(super) fn deadstop(place: &Candidate<'_>) -> Outcome {
    let units = place.from(place.at);
    let [b'd', b's', b'_', b'a'..=b'z', b'_', rest @ ..] = units else { return Outcome::Nothing };
    let id = Class::Alnum.run(&rest[..rest.len().min(64)]);
    let secret = rest.get(id + 1..).unwrap_or_default();
    let run = Class::Dashed.run(&secret[..secret.len().min(64)]);
    if !place.is_fresh(place.at) || id == 0 || rest.get(id) != Some(&b'_') || run < 16 {
        return Outcome::Nothing;
    }
    Outcome::secret(place.at, ending(place, place.at, Class::Dashed), "deadstop-key")
}

/// An account's number, a colon and its token, as Twilio has them.
pub(super) fn twilio(place: &Candidate<'_>) -> Outcome {
    let units = place.from(place.at);
    let Some(token) = units.get(35..67) else { return Outcome::Nothing };
    let account = units.starts_with(b"AC") && units[2..34].iter().all(u8::is_ascii_hexdigit);
    let whole = units.get(67).is_none_or(|unit| !Class::Word.has(*unit));
    let is_token = token.iter().all(u8::is_ascii_hexdigit) && whole && units[34] == b':';
    if !place.is_fresh(place.at) || !account || !is_token {
        return Outcome::Nothing;
    }
    Outcome::secret(place.at + 35, Ending::At(place.at + 67), "twilio-token")
}

/// The secret that stands next to the id of a key of AWS: forty characters after a separator.
pub(super) fn aws_secret(place: &Candidate<'_>, id_end: usize) -> Option<(usize, usize)> {
    let units = place.from(id_end);
    let gap = units.iter().take(6).take_while(|u| b" \t\r\n,;:|/\"'".contains(u)).count();
    let secret = units.get(gap..)?;
    let run = secret
        .iter()
        .take(41)
        .take_while(|u| u.is_ascii_alphanumeric() || matches!(u, b'+' | b'/'))
        .count();
    let body = &secret[..run];
    let mixed = looks_random(body) && body.iter().any(u8::is_ascii_lowercase);
    (gap > 0 && run == 40 && mixed).then_some((id_end + gap, id_end + gap + 40))
}

/// `-----BEGIN … PRIVATE KEY-----`.
pub(super) fn private_key(place: &Candidate<'_>) -> Outcome {
    let units = place.from(place.at);
    let line = &units[..units.len().min(80)];
    let words =
        line[10..].iter().take_while(|u| u.is_ascii_uppercase() || b" 0123456789".contains(u));
    let words = &line[10..10 + words.count()];
    let dashes = line.get(10 + words.len()..).unwrap_or_default();
    let private = memchr::memmem::find(words, b"PRIVATE KEY").is_some();
    if !private || !dashes.starts_with(b"----") {
        return Outcome::Nothing;
    }
    let ssh = memchr::memmem::find(words, b"OPENSSH").is_some();
    Outcome::secret(place.at, Ending::Pem, if ssh { "ssh-private-key" } else { "private-key" })
}

/// Whether a value only says where the real one will be put.
pub(super) fn is_template(value: &[u8]) -> bool {
    let inner = |open: &[u8], close: &[u8]| {
        value.starts_with(open) && value.ends_with(close) && value.len() <= 128
    };
    let variable = value.strip_prefix(b"$").is_some_and(|name| {
        !name.is_empty()
            && name.iter().all(|u| u.is_ascii_uppercase() || u.is_ascii_digit() || *u == b'_')
    });
    let same = value.first().is_some_and(|first| {
        value.len() > 2 && b"*.xX-_#".contains(first) && value.iter().all(|unit| unit == first)
    });
    let masked = value.starts_with("•".as_bytes()) || value == b"..." || value == b"%s";
    variable
        || same
        || masked
        || inner(b"${", b"}")
        || inner(b"{", b"}")
        || inner(b"<", b">")
        || inner(b"$(", b")")
        || inner(b"%(", b")s")
        || inner(b"[", b"]") && value.iter().all(|u| u.is_ascii_uppercase() || b"[]_ -".contains(u))
}

/// The place after one or more blanks.
fn after_blanks(place: &Candidate<'_>, from: usize) -> Option<usize> {
    let blanks = place.from(from).iter().take(8).take_while(|u| b" \t+".contains(u)).count();
    (blanks > 0).then_some(from + blanks)
}

/// What base64 stands for; stops at what is none.
fn decoded(base64: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(base64.len());
    let (mut bits, mut count) = (0_u32, 0);
    for unit in base64 {
        let value = match unit {
            b'A'..=b'Z' => unit - b'A',
            b'a'..=b'z' => unit - b'a' + 26,
            b'0'..=b'9' => unit - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => break,
        };
        bits = (bits << 6 | u32::from(value)) & 0x00ff_ffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
