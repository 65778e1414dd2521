//! Secrets that say what they are: they start with a prefix of their issuer's.

use super::place::{AHEAD, Candidate, Class, Ending, Outcome};

/// Units of a token that are looked at before it is believed. More would let a text made of
/// prefixes cost too much.
const JUDGED: usize = 64;

/// A kind of token.
#[derive(Debug)]
pub(super) struct Token {
    /// What it starts with. Case matters.
    pub(super) prefix: &'static str,
    pub(super) kind: &'static str,
    body: Class,
    /// Units that it has after its prefix, at least.
    least: usize,
    proof: Proof,
}

/// What besides its length shows that a body is random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// Nothing: the prefix says enough.
    None,
    /// A digit, and a capital letter or a long stretch without a dash: names in kebab case have
    /// neither.
    Random,
    /// It has exactly the least length.
    Exact,
    /// As before, capitals and digits only.
    ExactCapitals,
}

const fn token(
    prefix: &'static str,
    kind: &'static str,
    body: Class,
    least: usize,
    proof: Proof,
) -> Token {
    Token { prefix, kind, body, least, proof }
}

use Class::{Alnum, Base64, Dashed, Dotted, Hex, Word};
use Proof::{Exact, ExactCapitals, None as Nothing, Random};

/// All of them. Where one prefix starts with another, the longer one counts.
pub(super) const TOKENS: &[Token] = &[
    token("sk-", "openai-key", Dashed, 20, Random),
    token("sk-proj-", "openai-key", Dashed, 16, Random),
    token("sk-svcacct-", "openai-key", Dashed, 16, Random),
    token("sk-admin-", "openai-key", Dashed, 16, Random),
    token("sk-ant-", "anthropic-key", Dashed, 12, Nothing),
    token("sk-or-v1-", "openrouter-key", Hex, 32, Nothing),
    token("AIza", "google-api-key", Dashed, 30, Nothing),
    token("ya29.", "google-oauth-token", Dotted, 20, Nothing),
    token("GOCSPX-", "google-client-secret", Dashed, 20, Nothing),
    token("1//0", "google-refresh-token", Dashed, 30, Random),
    token("AKIA", "aws-access-key-id", Alnum, 16, ExactCapitals),
    token("ASIA", "aws-access-key-id", Alnum, 16, ExactCapitals),
    token("ABIA", "aws-access-key-id", Alnum, 16, ExactCapitals),
    token("ACCA", "aws-access-key-id", Alnum, 16, ExactCapitals),
    token("ghp_", "github-token", Alnum, 30, Nothing),
    token("gho_", "github-token", Alnum, 30, Nothing),
    token("ghu_", "github-token", Alnum, 30, Nothing),
    token("ghs_", "github-token", Alnum, 30, Nothing),
    token("ghr_", "github-token", Alnum, 30, Nothing),
    token("github_pat_", "github-token", Word, 22, Nothing),
    token("glpat-", "gitlab-token", Dotted, 16, Nothing),
    token("gldt-", "gitlab-token", Dotted, 16, Random),
    token("glrt-", "gitlab-token", Dotted, 16, Random),
    token("glptt-", "gitlab-token", Dotted, 16, Random),
    token("gloas-", "gitlab-token", Dotted, 16, Random),
    token("glsoat-", "gitlab-token", Dotted, 16, Random),
    token("glcbt-", "gitlab-token", Dotted, 16, Random),
    token("glagent-", "gitlab-token", Dotted, 16, Random),
    token("xoxa-", "slack-token", Dashed, 10, Nothing),
    token("xoxb-", "slack-token", Dashed, 10, Nothing),
    token("xoxc-", "slack-token", Dashed, 10, Nothing),
    token("xoxd-", "slack-token", Base64, 10, Nothing),
    token("xoxe-", "slack-token", Dashed, 10, Nothing),
    token("xoxe.", "slack-token", Dotted, 10, Nothing),
    token("xoxo-", "slack-token", Dashed, 10, Nothing),
    token("xoxp-", "slack-token", Dashed, 10, Nothing),
    token("xoxr-", "slack-token", Dashed, 10, Nothing),
    token("xoxs-", "slack-token", Dashed, 10, Nothing),
    token("xapp-", "slack-token", Dashed, 16, Random),
    token("sk_live_", "stripe-key", Alnum, 16, Nothing),
    token("rk_live_", "stripe-key", Alnum, 16, Nothing),
    token("sk_test_", "stripe-key", Alnum, 16, Nothing),
    token("rk_test_", "stripe-key", Alnum, 16, Nothing),
    token("whsec_", "webhook-secret", Base64, 16, Nothing),
    token("SG.", "sendgrid-key", Dotted, 32, Random),
    token("npm_", "npm-token", Alnum, 30, Nothing),
    token("pypi-", "pypi-token", Dashed, 32, Random),
    token("hf_", "hugging-face-token", Alnum, 30, Nothing),
    token("api_org_", "hugging-face-token", Alnum, 30, Nothing),
    token("gsk_", "groq-key", Alnum, 30, Nothing),
    token("xai-", "xai-key", Alnum, 30, Nothing),
    token("pplx-", "perplexity-key", Alnum, 30, Nothing),
    token("r8_", "replicate-token", Alnum, 30, Nothing),
    token("tvly-", "tavily-key", Dashed, 20, Random),
    token("dapi", "databricks-token", Hex, 32, Nothing),
    token("dop_v1_", "digitalocean-token", Hex, 32, Nothing),
    token("doo_v1_", "digitalocean-token", Hex, 32, Nothing),
    token("shpat_", "shopify-token", Hex, 32, Nothing),
    token("shpss_", "shopify-token", Hex, 32, Nothing),
    token("lin_api_", "linear-key", Alnum, 30, Nothing),
    token("ntn_", "notion-token", Alnum, 30, Nothing),
    token("figd_", "figma-token", Dashed, 30, Nothing),
    token("sntrys_", "sentry-token", Base64, 30, Nothing),
    token("rubygems_", "rubygems-key", Hex, 40, Nothing),
    token("hvs.", "vault-token", Dashed, 20, Random),
    token("hvb.", "vault-token", Dashed, 20, Random),
    token("glsa_", "grafana-token", Word, 30, Nothing),
    token("dckr_pat_", "docker-token", Dashed, 20, Nothing),
    token("ATATT3", "atlassian-token", Base64, 30, Nothing),
    token("PMAK-", "postman-key", Dashed, 30, Random),
    token("NRAK-", "new-relic-key", Alnum, 20, Nothing),
    token("AGE-SECRET-KEY-1", "age-key", Alnum, 30, Nothing),
    token("hooks.slack.com/services/", "slack-webhook", Token, 16, Nothing),
    token("hooks.slack.com/workflows/", "slack-webhook", Token, 16, Nothing),
    token("hooks.slack.com/triggers/", "slack-webhook", Token, 16, Nothing),
    token("discord.com/api/webhooks/", "discord-webhook", Token, 20, Nothing),
    token("discordapp.com/api/webhooks/", "discord-webhook", Token, 20, Nothing),
    token("webhook.office.com/webhookb2/", "teams-webhook", Token, 20, Nothing),
    token("SK", "twilio-key", Hex, 32, Exact),
];

use Class::Token as TokenClass;
#[expect(non_upper_case_globals, reason = "a class among classes in the table above")]
const Token: Class = TokenClass;

/// The token that a place starts with, if it is one.
pub(super) fn check(place: &Candidate<'_>, token: &Token) -> Outcome {
    let (at, body) = (place.at, place.at + token.prefix.len());
    if !place.is_fresh(at) || !place.from(at).starts_with(token.prefix.as_bytes()) {
        return Outcome::Nothing;
    }
    let units = place.from(body);
    let judged = &units[..units.len().min(JUDGED)];
    let run = token.body.run(judged);
    if run < token.least || !proven(token, &judged[..run], units.get(run).copied()) {
        return Outcome::Nothing;
    }
    // The webhook's address is no secret, what follows is.
    let start = if token.prefix.ends_with('/') { body } else { at };
    Outcome::secret(start, ending(place, body, token.body), token.kind)
}

/// The kind of token that a value starts with.
pub(super) fn kind_of(place: &Candidate<'_>, at: usize) -> Option<&'static str> {
    let units = place.from(at);
    let token = TOKENS
        .iter()
        .filter(|token| units.starts_with(token.prefix.as_bytes()))
        .max_by_key(|token| token.prefix.len())?;
    match check(&Candidate { at, ..*place }, token) {
        Outcome::Secret(found) if found.start == at => Some(found.kind),
        _ => None,
    }
}

/// Where a run ends, without a full stop that belongs to the sentence.
pub(super) fn ending(place: &Candidate<'_>, from: usize, class: Class) -> Ending {
    let units = &place.from(from);
    let run = class.run(units);
    if run >= units.len() && units.len() + (from - place.at) >= AHEAD {
        return Ending::Run(class);
    }
    let stops = units[..run].iter().rev().take_while(|unit| matches!(unit, b'.' | b':' | b'|'));
    Ending::At(from + run - stops.count())
}

fn proven(token: &Token, body: &[u8], next: Option<u8>) -> bool {
    match token.proof {
        Proof::None => true,
        Proof::Random => looks_random(body),
        Proof::Exact | Proof::ExactCapitals => {
            let whole = body.len() == token.least && next.is_none_or(|unit| !Word.has(unit));
            let capitals = body.iter().all(|u| u.is_ascii_uppercase() || u.is_ascii_digit());
            whole && (token.proof == Exact || capitals)
        }
    }
}

/// A digit, and a capital letter or a long stretch without a dash.
pub(super) fn looks_random(body: &[u8]) -> bool {
    let digit = body.iter().any(u8::is_ascii_digit);
    let capital = body.iter().any(u8::is_ascii_uppercase);
    let stretch = body
        .split(|unit| matches!(unit, b'-' | b'_' | b'.'))
        .any(|part| part.len() >= 16 && part.iter().any(u8::is_ascii_digit));
    digit && (capital || stretch)
}
