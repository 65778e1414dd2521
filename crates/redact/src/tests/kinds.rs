//! One table a kind: what goes, and what takes its place.

use super::check;

/// 40 characters that look random and are no real secret.
const BODY: &str = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0";

#[test]
fn tokens_go_by_their_prefix() {
    for (prefix, kind) in [
        ("sk-", "openai-key"),
        ("sk-proj-", "openai-key"),
        ("sk-svcacct-", "openai-key"),
        ("sk-ant-api03-", "anthropic-key"),
        ("AIza", "google-api-key"),
        ("ya29.", "google-oauth-token"),
        ("GOCSPX-", "google-client-secret"),
        ("ghp_", "github-token"),
        ("gho_", "github-token"),
        ("ghs_", "github-token"),
        ("github_pat_", "github-token"),
        ("glpat-", "gitlab-token"),
        ("xoxb-", "slack-token"),
        ("xoxp-123456789012-", "slack-token"),
        ("sk_live_", "stripe-key"),
        ("rk_live_", "stripe-key"),
        ("SG.a1B2c3D4e5F6g7H8i9J0kL.", "sendgrid-key"),
        ("npm_", "npm-token"),
        ("pypi-AgEIcHlwaS5vcmc", "pypi-token"),
        ("hf_", "hugging-face-token"),
        ("gsk_", "groq-key"),
        ("xai-", "xai-key"),
        ("r8_", "replicate-token"),
        ("lin_api_", "linear-key"),
        ("ntn_", "notion-token"),
        ("figd_", "figma-token"),
        ("hvs.", "vault-token"),
        ("glsa_", "grafana-token"),
        ("dckr_pat_", "docker-token"),
        ("ds_o_k7_", "deadstop-key"),
        ("ds_a_k7_", "deadstop-key"),
    ] {
        let (secret, gone) = (format!("{prefix}{BODY}"), format!("[redacted:{kind}]"));
        for around in [
            "{}",
            "use {} now",
            "({})",
            "'{}'",
            "key={}&x=1",
            "https://h/{}/x",
            "see {}.",
            "a:{},",
            "{\"a\":\"{}\"}",
            "{\"a\":\"{\\\"b\\\":\\\"{}\\\"}\"}",
            "\\n{}\\n",
            "x%3D{}%26",
            "\\u0022{}\\u0022",
            "<b>{}</b>",
            "`{}`",
            "é{}é",
            "[{}]",
            "|{}|",
        ] {
            check(
                &around.replacen("{}", &secret, 1).replace("{}", ""),
                &around.replacen("{}", &gone, 1).replace("{}", ""),
            );
        }
    }
}

#[test]
fn escapes_hide_nothing() {
    for (input, expected) in [
        (
            r#"{"a":"\u0073k-proj-\u0061bcdefghijklmnop0123456789"}"#,
            r#"{"a":"[redacted:openai-key]"}"#,
        ),
        (
            r#"{"a":"{\"b\":\"\\u0067hp_abcdefghijklmnopqrstuvwxyz0123456789\"}"}"#,
            r#"{"a":"{\"b\":\"[redacted:github-token]\"}"}"#,
        ),
        ("?k=%73k-ant-%61pi03-abcdefghijkl&x", "?k=[redacted:anthropic-key]&x"),
        (r#"{"a":"\u0070assword=hunter2"}"#, r#"{"a":"\u0070assword=[redacted:password]"}"#),
        (r#"{"\u0070assword":"hunter2"}"#, r#"{"\u0070assword":"[redacted:password]"}"#),
    ] {
        check(input, expected);
    }
}

#[test]
fn secrets_of_webhooks() {
    check("x whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw/+= x", "x [redacted:webhook-secret] x");
}

#[test]
fn long_tokens_go_whole() {
    let long = BODY.repeat(2000);
    check(&format!("a sk-proj-{long} b"), "a [redacted:openai-key] b");
    check(&format!("a Bearer {long} b"), "a Bearer [redacted:bearer-token] b");
    check(&format!("{{\"password\":\"{long}\"}}"), "{\"password\":\"[redacted:password]\"}");
    check(&format!("PASSWORD={long}\nA=1"), "PASSWORD=[redacted:password]\nA=1");
    check(&format!("Cookie: a={long}\nA: 1"), "Cookie: [redacted:cookie]\nA: 1");
}

#[test]
fn aws() {
    for (input, expected) in [
        ("AKIAIOSFODNN7EXAMPLE", "[redacted:aws-access-key-id]"),
        (
            "aws_access_key_id = ASIAIOSFODNN7EXAMPLE",
            "aws_access_key_id = [redacted:aws-access-key-id]",
        ),
        (
            "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "aws_secret_access_key = [redacted:aws-secret-key]",
        ),
        (
            r#"{"SecretAccessKey":"wJalrXUtnFEMI\/K7MDENG\/bPxRfiCYEXAMPLEKEY","a":1}"#,
            r#"{"SecretAccessKey":"[redacted:aws-secret-key]","a":1}"#,
        ),
        (
            "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\n",
            "AWS_SECRET_ACCESS_KEY=[redacted:aws-secret-key]\n",
        ),
        (
            "AKIAIOSFODNN7EXAMPLE,wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "[redacted:aws-access-key-id],[redacted:aws-secret-key]",
        ),
        (
            "https://b.s3.amazonaws.com/o?X-Amz-Signature=0123456789abcdef0123456789abcdef&a=b",
            "https://b.s3.amazonaws.com/o?X-Amz-Signature=[redacted:url-signature]&a=b",
        ),
    ] {
        check(input, expected);
    }
}

#[test]
fn azure() {
    let key = "q1W2e3R4t5Y6u7I8o9P0a1S2d3F4g5H6j7K8l9Z0x1C2v3B4n5M6+/==";
    for (input, expected) in [
        (
            format!("AccountName=acc;AccountKey={key};EndpointSuffix=core.windows.net"),
            "AccountName=acc;AccountKey=[redacted:azure-key];EndpointSuffix=core.windows.net",
        ),
        (
            format!("Endpoint=sb://n/;SharedAccessKeyName=Root;SharedAccessKey={key}"),
            "Endpoint=sb://n/;SharedAccessKeyName=Root;SharedAccessKey=[redacted:azure-key]",
        ),
        (
            "https://a.blob.core.windows.net/c?sv=2022&sig=abc%2Bdefghijklmnop%3D&se=1".to_owned(),
            "https://a.blob.core.windows.net/c?sv=2022&sig=[redacted:url-signature]&se=1",
        ),
        (
            r#"{"c":"AccountName=a;AccountKey\u003dq1W2e3R4t5\u002B\/==;X=1"}"#.to_owned(),
            r#"{"c":"AccountName=a;AccountKey\u003d[redacted:azure-key];X=1"}"#,
        ),
    ] {
        check(&input, expected);
    }
}

#[test]
fn jwts() {
    let jwt = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U";
    for (around, expected) in [
        ("{}", "[redacted:jwt]"),
        ("It is {}.", "It is [redacted:jwt]."),
        ("{\"a\":\"{}\"}", "{\"a\":\"[redacted:jwt]\"}"),
        ("Authorization: Bearer {}\n", "Authorization: Bearer [redacted:jwt]\n"),
        ("?t={}&x", "?t=[redacted:jwt]&x"),
        ("\"id_token\": \"{}\"", "\"id_token\": \"[redacted:jwt]\""),
    ] {
        check(&around.replace("{}", jwt), expected);
    }
}

#[test]
fn private_keys() {
    let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";
    let body = |between: &str| vec![line; 25].join(between);
    let pem = |name: &str, between: &str| {
        format!("-----BEGIN {name}-----{between}{}{between}-----END {name}-----", body(between))
    };
    for (input, expected) in [
        (format!("a\n{}\nb", pem("PRIVATE KEY", "\n")), "a\n[redacted:private-key]\nb"),
        (format!("a {} b", pem("RSA PRIVATE KEY", "\r\n")), "a [redacted:private-key] b"),
        (pem("OPENSSH PRIVATE KEY", "\n"), "[redacted:ssh-private-key]"),
        (pem("PGP PRIVATE KEY BLOCK", "\n"), "[redacted:private-key]"),
        (
            format!("{{\"k\":\"{}\\n\"}}", pem("EC PRIVATE KEY", "\\n")),
            "{\"k\":\"[redacted:private-key]\\n\"}",
        ),
        (
            format!(
                "{{\"k\":\"{{\\\"private_key\\\":\\\"{}\\\"}}\"}}",
                pem("PRIVATE KEY", "\\\\n")
            ),
            "{\"k\":\"{\\\"private_key\\\":\\\"[redacted:private-key]\\\"}\"}",
        ),
        (
            format!("     1→{}\n", pem("PRIVATE KEY", "\n     2→")),
            "     1→[redacted:private-key]\n",
        ),
        (format!("> {}\n", pem("PRIVATE KEY", "\n> ")), "> [redacted:private-key]\n"),
        (
            format!("{{\"k\":\"-----BEGIN PRIVATE KEY-----\\n{}\"}}", body("\\n")),
            "{\"k\":\"[redacted:private-key]\"}",
        ),
        (
            format!("[\"-----BEGIN PRIVATE KEY-----\",\"{line}\",\"-----END PRIVATE KEY-----\"]"),
            "[\"[redacted:private-key]\",\"[redacted:private-key]\",\"[redacted:private-key]\"]",
        ),
        (
            format!(
                "\"-----BEGIN PRIVATE KEY-----\\n\" +\n  \"{line}\\n\" +\n  \"-----END PRIVATE KEY-----\";"
            ),
            "\"[redacted:private-key]\" +\n  \"[redacted:private-key]\" +\n  \"[redacted:private-key]\";",
        ),
    ] {
        check(&input, expected);
    }
}

#[test]
fn urls() {
    for (input, expected) in [
        ("https://bob:hunter2@example.org/x", "https://bob:[redacted:url-password]@example.org/x"),
        ("redis://:hunter2@cache:6379/0", "redis://:[redacted:database-password]@cache:6379/0"),
        (
            "postgres://app:p%40ss%2Fw0rd@db:5432/x?sslmode=require",
            "postgres://app:[redacted:database-password]@db:5432/x?sslmode=require",
        ),
        ("mongodb+srv://u:p@ss@h/x", "mongodb+srv://u:[redacted:database-password]@h/x"),
        ("mysql://u:p#a/b?c@h/x", "mysql://u:[redacted:database-password]@h/x"),
        (
            r#"{"url":"https:\/\/bob:hunter2@example.org\/x"}"#,
            r#"{"url":"https:\/\/bob:[redacted:url-password]@example.org\/x"}"#,
        ),
        (
            "?next=https%3A%2F%2Fbob%3Ahunter2%40example.org%2Fx",
            "?next=https%3A%2F%2Fbob%3A[redacted:url-password]%40example.org%2Fx",
        ),
        ("https://h/x?token=abc%26def&y=1", "https://h/x?token=[redacted:token]&y=1"),
        ("https://h/x?access_token=abcd#f", "https://h/x?access_token=[redacted:token]"),
        (
            "u=https%3A%2F%2Fh%3Ftoken%3Dabcd%26y%3D1",
            "u=https%3A%2F%2Fh%3Ftoken%3D[redacted:token]%26y%3D1",
        ),
        (
            "https://hooks.slack.com/services/T00000000/B00000000/abcdefghijklmnopqrstuvwx",
            "https://hooks.slack.com/services/[redacted:slack-webhook]",
        ),
        (
            r#"{"u":"https:\/\/hooks.slack.com\/services\/T00000000\/B00000000\/abcdefghijklm"}"#,
            r#"{"u":"https:\/\/hooks.slack.com\/services\/[redacted:slack-webhook]"}"#,
        ),
        (
            "https://api.telegram.org/bot123456789:AAabcdefghijklmnopqrstuvwxyz0123456/x",
            "https://api.telegram.org/bot123456789:[redacted:telegram-token]/x",
        ),
    ] {
        check(input, expected);
    }
}

#[test]
fn headers() {
    for (input, expected) in [
        ("Authorization: Bearer abc.def-123\n", "Authorization: Bearer [redacted:authorization]\n"),
        (
            "authorization: Basic dXNlcjpwYXNz\r\n",
            "authorization: Basic [redacted:authorization]\r\n",
        ),
        (
            "Proxy-Authorization: Basic dXNlcjpwYXNz",
            "Proxy-Authorization: Basic [redacted:authorization]",
        ),
        (
            r#"{"Authorization":"Bearer abc123","x":1}"#,
            r#"{"Authorization":"Bearer [redacted:authorization]","x":1}"#,
        ),
        (
            r#"curl -H "Authorization: Bearer abc123" https://x"#,
            r#"curl -H "Authorization: Bearer [redacted:authorization]" https://x"#,
        ),
        (
            r#"{"cmd":"curl -H \"Authorization: Bearer abc123\" https:\/\/x"}"#,
            r#"{"cmd":"curl -H \"Authorization: Bearer [redacted:authorization]\" https:\/\/x"}"#,
        ),
        (
            "Authorization: Digest username=\"u\", response=\"6629fae49393a053\"\nA: b",
            "Authorization: Digest [redacted:authorization]\nA: b",
        ),
        ("the token is Basic dXNlcjpwYXNz here", "the token is Basic [redacted:basic-auth] here"),
        ("Cookie: sid=abc; theme=\"dark\"; t=1\nHost: h", "Cookie: [redacted:cookie]\nHost: h"),
        ("Set-Cookie: sid=abc; Path=/; HttpOnly\n", "Set-Cookie: [redacted:cookie]\n"),
        (
            r#"{"raw":"GET / HTTP/1.1\r\nCookie: a=b; c=d\r\nHost: h"}"#,
            r#"{"raw":"GET / HTTP/1.1\r\nCookie: [redacted:cookie]\r\nHost: h"}"#,
        ),
        (r#"{"raw":"A: b\nCookie: a=b; c=d"}"#, r#"{"raw":"A: b\nCookie: [redacted:cookie]"}"#),
        (r#"curl -H 'Cookie: a=b; c="d"' x"#, r#"curl -H 'Cookie: [redacted:cookie]' x"#),
        (
            r#"{"set-cookie":["a=b; Path=/","c=d"],"x":["y"]}"#,
            r#"{"set-cookie":["[redacted:cookie]","[redacted:cookie]"],"x":["y"]}"#,
        ),
        (
            r#"[["cookie","a=b; c=d"],["host","h"]]"#,
            r#"[["cookie","[redacted:cookie]"],["host","h"]]"#,
        ),
        ("x-api-key: abc123def", "x-api-key: [redacted:api-key]"),
        ("api-key: 0123456789abcdef", "api-key: [redacted:api-key]"),
        (r#"{"x-goog-api-key": "abc"}"#, r#"{"x-goog-api-key": "[redacted:api-key]"}"#),
        (r#"headers["x-api-key"] = "abc""#, r#"headers["x-api-key"] = "[redacted:api-key]""#),
        ("x-deadstop-key: something1", "x-deadstop-key: [redacted:deadstop-key]"),
    ] {
        check(input, expected);
    }
}

#[test]
fn fields() {
    for (input, expected) in [
        (r#"{"password":"hunter2"}"#, r#"{"password":"[redacted:password]"}"#),
        (r#"{"Password" : "a\"b\\", "x": 1}"#, r#"{"Password" : "[redacted:password]", "x": 1}"#),
        (
            r#"{"body":"{\"client_secret\":\"a\\\"b\",\"x\":1}"}"#,
            r#"{"body":"{\"client_secret\":\"[redacted:secret]\",\"x\":1}"}"#,
        ),
        (
            r#"{"a":"{\"b\":\"{\\\"passwd\\\":\\\"abc\\\"}\"}"}"#,
            r#"{"a":"{\"b\":\"{\\\"passwd\\\":\\\"[redacted:password]\\\"}\"}"}"#,
        ),
        (
            r#"{"a":"{\u0022api_key\u0022:\u0022abc\u0022}"}"#,
            r#"{"a":"{\u0022api_key\u0022:\u0022[redacted:api-key]\u0022}"}"#,
        ),
        (
            "%7B%22password%22%3A%22hunter2%22%7D",
            "%7B%22password%22%3A%22[redacted:password]%22%7D",
        ),
        (
            "&quot;password&quot;:&quot;hunter2&quot;",
            "&quot;password&quot;:&quot;[redacted:password]&quot;",
        ),
        (r#"{"password":12345678,"x":1}"#, r#"{"password":"[redacted:password]","x":1}"#),
        (r#"{"access_token":"x y z"}"#, r#"{"access_token":"[redacted:token]"}"#),
        (r#"{"refreshToken":"abc"}"#, r#"{"refreshToken":"[redacted:token]"}"#),
        (r#"{"token":"abcdefg1"}"#, r#"{"token":"[redacted:token]"}"#),
        (r#"{"private_key":"abc"}"#, r#"{"private_key":"[redacted:private-key]"}"#),
        (
            r#"{"api_key": "sk-ant-api03-abcdefghijkl"}"#,
            r#"{"api_key": "[redacted:anthropic-key]"}"#,
        ),
        ("{'password': 'hunter2'}", "{'password': '[redacted:password]'}"),
        ("password = \"hunter2\"", "password = \"[redacted:password]\""),
        ("password: str = 'hunter2'", "password: str = '[redacted:password]'"),
        ("const apiKey = `abc`;", "const apiKey = `[redacted:api-key]`;"),
        ("password=SecretStr(\"hunter2\")", "password=SecretStr(\"[redacted:password]\")"),
        ("DB_PASSWORD=hunter&2;x\nA=b", "DB_PASSWORD=[redacted:password]\nA=b"),
        ("export SECRET_KEY=abc\n", "export SECRET_KEY=[redacted:secret]\n"),
        ("DB_PASS=hunter\n", "DB_PASS=[redacted:password]\n"),
        (
            "db:\n  password: hunter\n  user: bob",
            "db:\n  password: [redacted:password]\n  user: bob",
        ),
        (
            "login user=bob password=hunter2 ip=::1",
            "login user=bob password=[redacted:password] ip=::1",
        ),
        ("Server=s;User Id=u;Password=hunter;", "Server=s;User Id=u;Password=[redacted:password];"),
        ("Server=s;Uid=u;Pwd=hunter;", "Server=s;Uid=u;Pwd=[redacted:password];"),
        ("mysql --password hunter2 -h x", "mysql --password [redacted:password] -h x"),
        ("tool --api-key=abc123 x", "tool --api-key=[redacted:api-key] x"),
        ("<password>hunter</password>", "<password>[redacted:password]</password>"),
        (
            "<p name=\"password\" value=\"x\"/>",
            "<p name=\"password\" value=\"[redacted:password]\"/>",
        ),
        (
            r#"{"name":"DB_PASSWORD","value":"x"}"#,
            r#"{"name":"DB_PASSWORD","value":"[redacted:password]"}"#,
        ),
        ("- name: API_TOKEN\n  value: abc123\n", "- name: API_TOKEN\n  value: [redacted:token]\n"),
        (r#"{"note":"password = 'abc"}"#, r#"{"note":"password = '[redacted:password]"}"#),
        ("auth_token=00112233445566778899aabbccddeeff&x", "auth_token=[redacted:token]&x"),
        (
            "TWILIO AC00112233445566778899aabbccddeeff:00112233445566778899aabbccddeeff",
            "TWILIO AC00112233445566778899aabbccddeeff:[redacted:twilio-token]",
        ),
        ("my password is hunter2, ok?", "my password is [redacted:password], ok?"),
        ("the api key: abcd1234efgh", "the api key: [redacted:api-key]"),
        (
            "machine h login bob password hunter2",
            "machine h login bob password [redacted:password]",
        ),
        ("client_secret=abc%2Fdef&a=b", "client_secret=[redacted:secret]&a=b"),
        ("export TOKEN='abc def'", "export TOKEN='[redacted:token]'"),
        ("curl -u admin:hunter2 https://h/", "curl -u admin:[redacted:password] https://h/"),
        ("curl -s --user 'admin:hunter2' h", "curl -s --user 'admin:[redacted:password]' h"),
        ("sshpass -p hunter2 ssh root@h", "sshpass -p [redacted:password] ssh root@h"),
        ("sshpass -phunter2 ssh root@h", "sshpass -p[redacted:password] ssh root@h"),
        ("SK00112233445566778899aabbccddeeff", "[redacted:twilio-key]"),
    ] {
        check(input, expected);
    }
}

/// Found from outside: a password right after its option stayed.
#[test]
fn hole_15_attached_options() {
    for (input, expected) in [
        ("mysql -uroot -phunter2 db", "mysql -uroot -p[redacted:password] db"),
        ("mysql -u root -p'hunter2' db", "mysql -u root -p'[redacted:password]' db"),
        ("/usr/bin/mysqldump -phunter2 db > x", "/usr/bin/mysqldump -p[redacted:password] db > x"),
        (r#"{"cmd":"mysql -phunter2"}"#, r#"{"cmd":"mysql -p[redacted:password]"}"#),
        (r#"["mysql","-phunter2","db"]"#, r#"["mysql","-p[redacted:password]","db"]"#),
        ("mariadb-dump -phunter2 x", "mariadb-dump -p[redacted:password] x"),
        ("curl -uadmin:hunter2 h", "curl -uadmin:[redacted:password] h"),
        ("mongosh -u a -p hunter2 h", "mongosh -u a -p [redacted:password] h"),
        ("docker login -u bob -p hunter2 r.io", "docker login -u bob -p [redacted:password] r.io"),
        ("sqlcmd -S h -U sa -P hunter2", "sqlcmd -S h -U sa -P [redacted:password]"),
        ("sqlcmd -Phunter2", "sqlcmd -P[redacted:password]"),
        ("ldapsearch -x -D cn=a -w hunter2", "ldapsearch -x -D cn=a -w [redacted:password]"),
        ("redis-cli -h h -a hunter2 get x", "redis-cli -h h -a [redacted:password] get x"),
        ("7z x -phunter2 a.7z", "7z x -p[redacted:password] a.7z"),
        ("unzip -P hunter2 a.zip", "unzip -P [redacted:password] a.zip"),
        // Found by fuzzing: the command was out of sight behind a secret of the same line.
        (
            "curl -u a:hunter2 h -u b:hunter3",
            "curl -u a:[redacted:password] h -u b:[redacted:password]",
        ),
        (
            "sshpass -p hunter2 ssh h mysql --password=hunter3 -phunter4 db",
            "sshpass -p [redacted:password] ssh h mysql --password=[redacted:password] -p[redacted:password] db",
        ),
        ("mysql -phunter2 ; cat -pages", "mysql -p[redacted:password] ; cat -pages"),
        ("mysql -phunter2\ncat -pages", "mysql -p[redacted:password]\ncat -pages"),
    ] {
        check(input, expected);
    }
    for stays in [
        "mysql -u root -p db",
        "mysql -P 3306 -h h",
        "mysql -p$PASS db",
        "docker run --name mysql -p3306:3306 mysql:8",
        "cd mysql && mkdir -pv x",
        "psql -p5432 -U bob; ssh -p2222 h; ls -a x; grep -w word",
        "mysql-proxy -phunter2",
    ] {
        check(stays, stays);
    }
}

#[test]
fn cards() {
    for (input, expected) in [
        ("4111111111111111", "[redacted:card]"),
        ("pay 4111 1111 1111 1111 now", "pay [redacted:card] now"),
        ("5500-0000-0000-0004.", "[redacted:card]."),
        ("3782 822463 10005", "[redacted:card]"),
        ("378282246310005", "[redacted:card]"),
        ("6011111111111117", "[redacted:card]"),
        ("30569309025904", "[redacted:card]"),
        ("4111 1111 1111 1111 5500 0000 0000 0004", "[redacted:card] [redacted:card]"),
        (r#"{"card":4111111111111111,"x":1}"#, r#"{"card":"[redacted:card]","x":1}"#),
        (r#"{"card": "4111111111111111"}"#, r#"{"card": "[redacted:card]"}"#),
        (r#"{"a":"{\"n\":4111111111111111}"}"#, r#"{"a":"{\"n\":\"[redacted:card]\"}"}"#),
        ("[4111111111111111, 5500000000000004]", "[0, 0]"),
    ] {
        check(input, expected);
    }
}
