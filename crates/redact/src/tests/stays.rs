//! What is no secret stays: code, identifiers, hashes, numbers, pictures.

use super::check;

#[track_caller]
fn stays(text: &str) {
    check(text, text);
}

#[test]
fn ordinary_texts() {
    for text in [
        "",
        "The password must be at least 8 characters.",
        "Enter your token to continue, then press the key.",
        "Password: required",
        "Your password is too short; the token is expired; the secret is out",
        "curl -u \"$USER:$PASS\" h; sort -u a:b; mkdir -p a/b2",
        "550e8400-e29b-41d4-a716-446655440000",
        "9a5db21c0ffee0123456789abcdef0123456789a",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "1234567890123456 4111111111111112 1731657600000 1731657600000000000 18446744073709551615",
        "0.4111111111111111 3.14159265358979 -4111111111111111.5",
        "order 4000123412341235 of 2026-11-15",
        "+49 170 1234567, 2026-11-15T08:20:23Z, 12:30:45",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
        "eyJub3QiOiJhIHRva2VuIn0=",
        "risk-based task-oriented-scheduler-with-a-very-long-name-0",
        "sk-learn-compatible-estimators-for-everyone-and-more",
        ".sk-circle-fade-dot-animation-delay-long-name { }",
        "https://example.org:8080/path@2x.png?a=b:c@d",
        "http://localhost:3000/a and mail me@example.org",
        "git@github.com:a/b.git ssh://git@github.com/a/b",
        "https://user@example.org/",
        "postgres://app:${PASSWORD}@db/x postgres://app:<password>@db/x",
        "basic auth is basic stuff and bearer tokens are bearer tokens",
        "Authorization: required",
        "Bearer authentication-scheme-is-required-here",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A\n-----END PUBLIC KEY-----",
        "PWD=/home/bob\nOLDPWD=/tmp\n",
        "npm_config_registry=x npm_lifecycle_event=test",
        "Cookie policy: we use cookies",
        "100% of 20%20 and %zz \\q \\\\ C:\\new\\table",
    ] {
        stays(text);
    }
}

#[test]
fn code() {
    for text in [
        "let token = tokens[1];",
        "let token = self.next_token()?;",
        "password: String,",
        "    pub token: Option<String>,",
        "def login(user: str, password: str) -> Token:",
        "password = os.environ[\"DB_PASSWORD\"]",
        "password = getpass(\"Password: \")",
        "ask(\"Enter your password: \") + x; y = \"z\"",
        "const token = await fetchToken(id);",
        "api_key=api_key, token=None, secret=settings.secret",
        "connect(password=password)",
        "password: ${{ secrets.DB_PASSWORD }}",
        "token: $TOKEN",
        "PASSWORD=$PASSWORD PASSWORD=${PASSWORD}\n",
        "Authorization: Bearer $TOKEN",
        "Authorization: Bearer <token>",
        "headers = {\"Authorization\": f\"Bearer {token}\"}",
        "if token == \"\" { return; }",
        "const NAMES: [&str; 3] = [\"password\", \"secret\", \"token\"];",
        "bcrypt::verify(password::Hash, x)",
        "class TokenBucket { tokens: 5 }",
        "fetch(url, { credentials: 'include' })",
        "<input type=\"password\" name=\"password\">",
        "SELECT token, secret FROM t WHERE password IS NULL",
        "token_count: 12345678, max_tokens = 4096, tokenizer: 'cl100k_base'",
        "secretary: \"Bob Smith 2\"",
        "token: string;",
    ] {
        stays(text);
    }
}

#[test]
fn bodies_of_model_calls() {
    for text in [
        r#"{"usage":{"prompt_tokens":12345678,"completion_tokens":4,"total_tokens":12345682}}"#,
        r#"{"logprobs":{"content":[{"token":" Hello","logprob":-0.31,"bytes":[32,72]}]}}"#,
        r#"{"token":"understanding","top_logprobs":[{"token":"12","logprob":-1}]}"#,
        r#"{"eos_token":"</s>","pad_token":"<pad>","next_page_token":"CAUQAA12345678"}"#,
        r#"{"max_tokens":4096,"tool_choice":"auto","id":"chatcmpl-AbC123dEf456GhI789"}"#,
        r#"{"properties":{"password":{"type":"string"},"token":{"type":"string"}}}"#,
        r#"{"required":["password","token","api_key"]}"#,
        r#"{"token_type":"Bearer","expires_in":3600,"token_endpoint":"https://h/token"}"#,
        r#"{"password":"","token":null,"secret":true,"api_key":"${API_KEY}"}"#,
        r#"{"id":"msg_01XFDUDYJgAACzvnptvVoYEL","tool_use_id":"toolu_01A09q90qw90lq917835lq9"}"#,
    ] {
        stays(text);
    }
}
