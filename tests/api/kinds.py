"""Secrets of every kind that the redactor knows, made up from a seed.

A secret is written as it would stand in a text; its needles are the parts that must not be found
anywhere. Tokens are known by their shape alone, the others by what stands around them.
"""

import base64
import random
import string

ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"


class Secret:
    """What is written, and what must not be found of it."""

    def __init__(self, kind, text, *needles):
        self.kind, self.text, self.needles = kind, text, needles or (text,)


def some(dice, count, alphabet=ALNUM):
    """Random, with a digit, a capital and a small letter among it, as a generator of keys has it."""
    text = [dice.choice(alphabet) for _ in range(count)]
    if alphabet is ALNUM:
        for at, few in zip(dice.sample(range(count), 3), (string.digits, string.ascii_lowercase, string.ascii_uppercase)):
            text[at] = dice.choice(few)
    return "".join(text)


def card(dice):
    digits = [int(digit) for digit in dice.choice(["4", "51", "52", "55", "6011"])]
    while len(digits) < 15:
        digits.append(dice.randrange(10))
    doubled = [sum(divmod(2 * digit, 10)) if at % 2 == 0 else digit for at, digit in enumerate(digits)]
    digits.append(-sum(doubled) % 10)
    plain = "".join(map(str, digits))
    spaced = " ".join(plain[at:at + 4] for at in range(0, 16, 4))
    return Secret("card", dice.choice([plain, spaced, spaced.replace(" ", "-")]), plain, spaced, spaced.replace(" ", "-"))


def pem(dice):
    lines = [some(dice, 64) for _ in range(dice.randrange(4, 20))]
    name = dice.choice(["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY"])
    return Secret("pem", "\n".join([f"-----BEGIN {name}-----", *lines, f"-----END {name}-----"]), *lines)


def jwt(dice):
    def part(text):
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    payload, signature = part(f'{{"sub":"{some(dice, 20)}"}}'), some(dice, 43)
    header = part('{"alg":"HS256"}')
    return Secret("jwt", f"{header}.{payload}.{signature}", payload[12:], signature)


def aws(dice):
    key, secret = "AKIA" + some(dice, 16, string.ascii_uppercase + "234567"), some(dice, 40)
    text = dice.choice([f"{key},{secret}", f"{key}:{secret}", f"aws_access_key_id={key}\naws_secret_access_key={secret}"])
    return Secret("aws", text, key, secret)


def token(kind, make):
    return kind, lambda dice: Secret(kind, make(dice))


def around(kind, *forms, length=18, alphabet=ALNUM):
    """A value that only its surroundings give away."""
    def make(dice):
        value = some(dice, length, alphabet)
        return Secret(kind, dice.choice(forms).replace("{}", value), value)
    return kind, make


def basic(dice):
    word = some(dice, 16)
    packed = base64.b64encode(f"admin:{word}".encode()).decode()
    return Secret("basic", f"Authorization: Basic {packed}\n", packed, word)


# Known by their shape: these may stand anywhere, also in names.
TOKENS = dict([
    token("openai", lambda d: "sk-" + some(d, 48)),
    token("openai-project", lambda d: d.choice(["sk-proj-", "sk-svcacct-"]) + some(d, 74)),
    token("anthropic", lambda d: "sk-ant-api03-" + some(d, 93)),
    token("google", lambda d: "AIza" + some(d, 35)),
    token("google-oauth", lambda d: "ya29." + some(d, 60)),
    token("google-client", lambda d: "GOCSPX-" + some(d, 28)),
    token("github", lambda d: d.choice(["ghp_", "gho_", "ghs_"]) + some(d, 36)),
    token("github-fine", lambda d: f"github_pat_{some(d, 22)}_{some(d, 59)}"),
    token("gitlab", lambda d: "glpat-" + some(d, 20)),
    token("slack", lambda d: f"xoxb-{some(d, 12, string.digits)}-{some(d, 12, string.digits)}-{some(d, 24)}"),
    token("stripe", lambda d: d.choice(["sk_live_", "rk_live_"]) + some(d, 24)),
    token("sendgrid", lambda d: f"SG.{some(d, 22)}.{some(d, 43)}"),
    token("npm", lambda d: "npm_" + some(d, 36)),
    token("pypi", lambda d: "pypi-AgEIcHlwaS5vcmc" + some(d, 80)),
    token("hugging-face", lambda d: "hf_" + some(d, 34)),
    token("groq", lambda d: "gsk_" + some(d, 52)),
    token("xai", lambda d: "xai-" + some(d, 80)),
    token("replicate", lambda d: "r8_" + some(d, 37)),
    token("vault", lambda d: "hvs." + some(d, 90)),
    token("grafana", lambda d: "glsa_" + some(d, 41)),
    token("docker", lambda d: "dckr_pat_" + some(d, 27)),
    token("linear", lambda d: "lin_api_" + some(d, 40)),
    token("deadstop", lambda d: f"ds_{d.choice('aovm')}_{some(d, 12, HEX)}_{some(d, 43)}"),
    token("twilio-key", lambda d: "SK" + some(d, 32, HEX)),
    ("jwt", jwt),
])

KINDS = TOKENS | dict([
    ("aws", aws),
    ("pem", pem),
    ("card", card),
    ("basic", basic),
    around("twilio", "AC" + 4 * "00112233" + ":{}", "auth_token={}&x=1", length=32, alphabet=HEX),
    around("url-password", "https://bob:{}@example.org/x", "ftp://u:{}@h/"),
    around("database", "postgres://app:{}@db:5432/x", "redis://:{}@cache:6379/0", "mongodb+srv://u:{}@h/x",
           "Server=s;User Id=u;Password={};"),
    around("authorization", "Authorization: Bearer {}\n", '{"Authorization":"Bearer {}","x":1}'),
    around("cookie", "Cookie: sid={}; theme=dark\n", "Set-Cookie: sid={}; Path=/\n"),
    around("api-key", "x-api-key: {}\n", '{"api_key": "{}"}', "api-key: {}\n", "tool --api-key={} x"),
    around("password", "password={}&x=1", '{"password":"{}"}', "DB_PASSWORD={}\n", "my password is {}, ok?",
           "<password>{}</password>", "mysql --password {} -h x", "curl -u admin:{} https://h/"),
    around("secret", '{"client_secret":"{}"}', "export SECRET_KEY={}\n", 'const clientSecret = "{}";'),
    around("token", '{"access_token":"{}"}', "https://h/x?access_token={}&y=1", "- name: API_TOKEN\n  value: {}\n"),
    around("azure", "AccountName=acc;AccountKey={}==;EndpointSuffix=core.windows.net", length=86),
    around("signature", "https://a.blob.core.windows.net/c?sv=2022&sig={}&se=1", length=44),
    around("slack-webhook", "https://hooks.slack.com/services/T00000000/B00000000/{}", length=24),
    around("telegram", "https://api.telegram.org/bot123456789:AA{}/x", length=33),
    # A pattern of the project's own.
    around("own", "the badge ACME-{} opens it", length=16),
])
OWN = {"name": "badge", "regex": "ACME-([A-Za-z0-9]{16})"}


def secrets(seed, count):
    """So many secrets, of every kind in turn."""
    dice = random.Random(seed)
    kinds = list(KINDS.values())
    return [kinds[number % len(kinds)](dice) for number in range(count)]
