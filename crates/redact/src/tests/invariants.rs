//! What holds for every text.

use proptest::prelude::*;

use super::redact;
use crate::excerpt::{self, Excerpt};
use crate::{BadPattern, Pattern, Redactor};

/// Pieces of texts, secret or not, that meet in any order.
fn fragment() -> impl Strategy<Value = String> {
    let body = "[A-Za-z0-9]{40}";
    prop_oneof![
        body.prop_map(|body| format!("sk-proj-{body}")),
        body.prop_map(|body| format!("ghp_{body}")),
        body.prop_map(|body| format!("-----BEGIN PRIVATE KEY-----\\n{body}\\n")),
        Just("-----END PRIVATE KEY-----".to_owned()),
        "[a-z]{1,9}".prop_map(|word| format!("\"password\":\"{word}\"")),
        "[a-z]{1,9}".prop_map(|word| format!("\\\"password\\\":\\\"{word}\\\"")),
        "[a-z]{1,9}".prop_map(|word| format!("https://u:{word}@h/")),
        Just("4111 1111 1111 1111".to_owned()),
        Just("4111111111111111".to_owned()),
        Just("Cookie: a=b; c=d\n".to_owned()),
        Just("\"set-cookie\": [\"a\", \"b\"]".to_owned()),
        Just("Authorization: Bearer ".to_owned()),
        Just("password=".to_owned()),
        Just("\"token\": ".to_owned()),
        Just("AKIAIOSFODNN7EXAMPLE ".to_owned()),
        Just("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc".to_owned()),
        Just("[redacted:x]".to_owned()),
        "[\\\\\"'{}:,\\n ]{1,4}",
        "\\\\{0,40}[nu\"/]",
        "%[0-9a-f]{0,2}",
        "\\\\u00[0-9a-f]{0,2}",
        ".{0,12}",
        "[a-z ]{0,3000}",
        body.prop_map(|body| body.repeat(150)),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(fragment(), 0..12).prop_map(|parts| parts.concat())
}

fn in_pieces(redactor: &Redactor, text: &str, sizes: &[usize]) -> String {
    let mut stream = redactor.stream();
    let mut out = Vec::new();
    let (mut rest, mut turn) = (text.as_bytes(), 0);
    while !rest.is_empty() {
        let size = sizes[turn % sizes.len()].clamp(1, rest.len());
        out.extend(stream.push(&rest[..size]));
        rest = &rest[size..];
        turn += 1;
    }
    out.extend(stream.finish());
    String::from_utf8(out).unwrap()
}

fn own() -> Redactor {
    let pattern = |name: &str, regex: &str| Pattern { name: name.into(), regex: regex.into() };
    Redactor::with_patterns(&[pattern("vowels", "[aeiou]{3,}"), pattern("word", r"\bx(\w+)\b")])
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn cuts_make_no_difference(
        text in text(),
        sizes in prop::collection::vec(prop_oneof![1..20_usize, 1..6000_usize], 1..6),
    ) {
        let whole = redact(&text);
        prop_assert_eq!(&in_pieces(&Redactor::default(), &text, &sizes), &whole);
        let own = own();
        prop_assert_eq!(in_pieces(&own, &text, &sizes), own.redact(&text).into_owned());
    }

    #[test]
    fn twice_is_once(text in text()) {
        let once = redact(&text);
        prop_assert_eq!(redact(&once), once);
    }

    #[test]
    fn json_stays_json(parts in prop::collection::vec(text(), 1..4), depth in 0..3_usize) {
        let mut document = serde_json::json!({ "password": parts[0], "parts": parts, "n": 4111111111111111_u64 });
        for _ in 0..depth {
            document = serde_json::json!({ "body": document.to_string() });
        }
        let once = redact(&document.to_string());
        prop_assert!(serde_json::from_str::<serde_json::Value>(&once).is_ok(), "{}", once);
    }

    #[test]
    fn no_secret_survives(
        secret in secret(),
        around in 0..SURROUNDINGS.len(),
        depth in 0..3_usize,
        before in "[ -~\n]{0,60}",
        after in "[ -~\n]{0,60}",
    ) {
        let mut text = SURROUNDINGS[around].replace("{}", &secret);
        text = format!("{before}\n{text}\n{after}");
        for _ in 0..depth {
            text = serde_json::json!({ "messages": [{ "role": "user", "content": text }] }).to_string();
        }
        let once = redact(&text);
        let core = &secret[secret.len() - 20..];
        prop_assert!(!once.contains(core), "{} in {}", core, once);
    }
}

/// Where a secret may stand.
const SURROUNDINGS: [&str; 22] = [
    "{}",
    "my key is {}",
    "my key is {}.",
    "(see {})",
    "key={}",
    "X_KEY={}",
    "x: {}",
    "\"{}\"",
    "'{}'",
    "`{}`",
    "{\"a\":\"{}\",\"b\":1}",
    "{\"a\":[\"{}\"]}",
    "https://h/p?k={}&x=1",
    "https://h/{}/x",
    "https://{}@h/x",
    "https://u:{}@h/x",
    "Authorization: Bearer {}",
    "curl -H 'x-api-key: {}' u",
    "<a>{}</a>",
    "{} {}",
    "a,{},b",
    "const K = \"{}\";",
];

fn secret() -> impl Strategy<Value = String> {
    let prefixed = |prefix: &'static str, body: &'static str| {
        body.prop_map(move |body: String| format!("{prefix}{body}"))
    };
    prop_oneof![
        prefixed("sk-", "[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}"),
        prefixed("sk-proj-", "[A-Za-z0-9_-]{30}T3BlbkFJ[A-Za-z0-9_-]{40}[A-Za-z0-9]"),
        prefixed("sk-ant-api03-", "[A-Za-z0-9_-]{93}AA"),
        prefixed("AIza", "[A-Za-z0-9_-]{35}"),
        prefixed("ya29.", "[A-Za-z0-9_-]{60}"),
        prefixed("AKIA", "[A-Z2-7]{16}"),
        prefixed("ghp_", "[A-Za-z0-9]{36}"),
        prefixed("github_pat_", "[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
        prefixed("glpat-", "[A-Za-z0-9_-]{20}"),
        prefixed("xoxb-", "[0-9]{12}-[0-9]{12}-[A-Za-z0-9]{24}"),
        prefixed("sk_live_", "[A-Za-z0-9]{24}"),
        prefixed("SG.", "[A-Za-z0-9_-]{22}\\.[A-Za-z0-9_-]{43}"),
        prefixed("npm_", "[A-Za-z0-9]{36}"),
        prefixed("pypi-AgEIcHlwaS5vcmc", "[A-Za-z0-9_-]{100}"),
        prefixed("hf_", "[A-Za-z]{34}"),
        prefixed("SK", "[0-9a-f]{32}"),
        prefixed("ds_o_k1_", "[A-Za-z0-9_-]{43}"),
        prefixed("eyJhbGciOiJIUzI1NiJ9.eyJ", "[A-Za-z0-9_-]{40}\\.[A-Za-z0-9_-]{43}"),
        prefixed("-----BEGIN PRIVATE KEY-----\n", "[A-Za-z0-9+/]{64}\n[A-Za-z0-9+/]{64}"),
    ]
}

#[test]
fn pathological_texts_take_linear_time() {
    // A matcher that looked at all that follows would take minutes here.
    for unit in [
        "sk-",
        "eyJ",
        "eyJ.",
        "://",
        "://a:",
        "://a:b@",
        "password",
        "password=",
        "\"password\":",
        "\"password\":\"",
        "token:",
        "-----BEGIN",
        "-----BEGIN PRIVATE KEY-----",
        "4",
        "4111 ",
        "\\",
        "\\\"",
        "\\u00",
        "%",
        "%2",
        "Bearer ",
        "Cookie: ",
        "\"set-cookie\":[\"",
        "a.",
        "_",
        "AKIAIOSFODNN7EXAMPLE ",
        "[redacted:",
        "[redacted:x]",
        "sk-sk-a1",
        "basic aaaa",
        "'",
        "\n",
    ] {
        let text = unit.repeat(500_000 / unit.len());
        let once = redact(&text);
        assert!(once.len() <= text.len() * 12);
    }
}

#[test]
fn what_is_held_back_is_bounded() {
    let secret = "x".repeat(100);
    let mut stream = Redactor::default().stream();
    let (mut pushed, mut out) = (0, 0);
    for _ in 0..10_000 {
        out += stream.push(secret.as_bytes()).len();
        pushed += secret.len();
        assert!(pushed - out <= 5_000, "{} held back", pushed - out);
    }
}

#[test]
fn own_patterns() {
    let pattern = |name: &str, regex: &str| [Pattern { name: name.into(), regex: regex.into() }];
    let redactor = Redactor::with_patterns(&pattern("badge", r"(?i)badge[- ](\d{6})")).unwrap();
    assert_eq!(redactor.redact("Badge 123456, sk-1"), "Badge [redacted:badge], sk-1");
    let far = format!("{}badge-654321{}", "ä ".repeat(9_000), " ö".repeat(30_000));
    assert!(!redactor.redact(&far).contains("654321"));
    for (patterns, error) in [
        (pattern("Bad Name", "x"), BadPattern::Name("Bad Name".into())),
        (pattern("a", "x*"), BadPattern::Empty("a".into())),
        (pattern("a", &"x".repeat(1001)), BadPattern::TooBig("a".into())),
        (pattern("a", r"(\w{500}){500}"), BadPattern::TooBig("a".into())),
        (
            pattern("a", "("),
            BadPattern::Syntax { name: "a".into(), reason: "unclosed group".into() },
        ),
    ] {
        assert_eq!(Redactor::with_patterns(&patterns).unwrap_err(), error);
    }
}

proptest! {
    #[test]
    fn a_beginning_is_the_beginning_of_the_whole(text in text(), most in 0_usize..8000) {
        let start = Redactor::default().redact_start(&text, most);
        let whole = redact(&text);
        prop_assert!(whole.starts_with(&start), "{start:?} of {whole:?}");
        prop_assert!(most < text.len() || start == whole);
    }
}

/// What was once told differently the second time.
#[test]
fn twice_is_once_where_it_was_not() {
    let body = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0";
    let begin = format!("-----BEGIN PRIVATE KEY-----\\n{body}\\n");
    for (text, is) in [
        (
            format!("{begin}\"4111 1111 1111 1111-----END PRIVATE KEY-----"),
            "[redacted:private-key]\"[redacted:card]-----END PRIVATE KEY-----",
        ),
        (
            format!("sk-proj-{body}/eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc"),
            "[redacted:openai-key]/[redacted:jwt]",
        ),
        (
            format!(r"password='{begin}\\\\\\\\\\\\\\\\/"),
            r"password='[redacted:private-key]\\\\\\\\\\\\\\\\/",
        ),
        (format!("password='sk-proj-{body}: a=b\n"), "password='[redacted:openai-key]\n"),
    ] {
        let once = redact(&text);
        assert_eq!(once, is);
        assert_eq!(redact(&once), is);
    }
}

/// Half a key was kept at the end of an excerpt, where the redactor could not recognise it.
#[test]
fn a_secret_at_the_end_of_an_excerpt_goes_whole() {
    let body = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0";
    let (begin, end) = ("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----");
    for secret in [
        format!("sk-proj-{body}"),
        format!("eyJhbGciOiJIUzI1NiJ9.{body}.{body}"),
        format!("AKIAIOSFODNN7EXAMPLE,{body}"),
        format!("password={body}"),
        format!("postgres://app:{body}@db:5432/x"),
        format!("{{\"client_secret\":\"{}\"}}", body.repeat(200)),
        format!("{begin}\n{}\n{end}", [body; 40].join("\n")),
    ] {
        for inside in (1..secret.len().min(120)).step_by(7) {
            let mut said = Excerpt::default();
            said.push(&"x".repeat(excerpt::MOST - inside - 1));
            said.push("\n");
            said.push(&secret);
            said.push(&" and more".repeat(2000));
            let kept = Redactor::default().redact_start(said.text(), excerpt::MOST);
            assert!(!kept.contains("a1B2"), "{inside} bytes of {secret}: {kept}");
        }
    }
}
