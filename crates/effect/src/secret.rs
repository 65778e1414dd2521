//! Files that hold secrets, told by their names.

/// Whether a path names a file that holds a secret.
pub(super) fn is_secret(path: &str) -> bool {
    let path = path.trim_matches(['"', '\'', ' ']);
    if path.is_empty() || path.len() > 4096 {
        return false;
    }
    let lower = path.to_ascii_lowercase().replace('\\', "/");
    let mut parts = lower.rsplit('/');
    let name = parts.next().unwrap_or_default();
    let folder = parts.next().unwrap_or_default();
    if is_sample(&lower) {
        return false;
    }
    NAMES.contains(&name)
        || is_environment(name)
        || is_key(name)
        || ENDS.iter().any(|end| {
            lower.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
        })
        || INSIDE.iter().any(|part| lower.contains(part))
        || (folder == ".ssh" && is_private(name))
        || (lower.starts_with("/proc/") && matches!(name, "environ" | "mem"))
        || (BROWSED.contains(&name) && BROWSERS.iter().any(|browser| lower.contains(browser)))
        || (name == ".npmrc" && is_at_home(&lower))
}

/// Whether a file stands directly in a home directory.
fn is_at_home(path: &str) -> bool {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let user = folder.strip_prefix("/home/").or(folder.strip_prefix("/users/"));
    matches!(folder, "~" | "$home" | "${home}" | "/root")
        || user.is_some_and(|user| !user.is_empty() && !user.contains('/'))
}

/// Whether a path names a directory of secrets that a person keeps at home: `~/.ssh`.
pub(super) fn is_hidden_folder(path: &str) -> bool {
    let last = path.trim_end_matches(['/', '*']).rsplit('/').next().unwrap_or(path);
    last.starts_with('.') && is_secret_folder(path)
}

/// Whether a path names a directory that holds secrets.
pub(super) fn is_secret_folder(path: &str) -> bool {
    let path = path.trim_matches(['"', '\'']).trim_end_matches('/');
    let path = path.strip_suffix("/*").unwrap_or(path);
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    FOLDERS.contains(&name.as_str())
}

/// Files that show what a secret looks like, and keys that tests are made with.
fn is_sample(path: &str) -> bool {
    ["/fixtures/", "/testdata/", "/test-data/", "/examples/", "/__tests__/", "/mocks/"]
        .iter()
        .any(|part| path.contains(part) || path.starts_with(&part[1..]))
}

/// `.env`, `.env.production`, `prod.env`; not `.env.example`, not `.envrc`.
fn is_environment(name: &str) -> bool {
    const SAMPLES: &[&str] =
        &["example", "sample", "template", "dist", "defaults", "default", "schema", "tpl", "md"];
    if let Some(rest) = name.strip_prefix(".env") {
        let kind = rest.trim_start_matches(['.', '-', '_']);
        let is_kind = rest.is_empty() || rest.starts_with(['.', '*', '?', '[']);
        return is_kind && !kind.split('.').any(|part| SAMPLES.contains(&part));
    }
    name.len() > 4 && name.ends_with(".env") && !SAMPLES.iter().any(|word| name.contains(word))
}

/// Private keys by their ending.
fn is_key(name: &str) -> bool {
    let Some((stem, ending)) = name.rsplit_once('.') else {
        return false;
    };
    match ending {
        "key" | "p12" | "pfx" | "jks" | "keystore" | "ppk" | "kdbx" => !stem.contains("pub"),
        "pem" => {
            !["cert", "chain", "pub", "bundle", "cacert"].iter().any(|word| stem.contains(word))
                && stem != "ca"
        }
        _ => false,
    }
}

/// What in `.ssh` is for one's own eyes.
fn is_private(name: &str) -> bool {
    let public = ["config", "known_hosts", "authorized_keys", "readme", "environment", "rc"];
    !name.is_empty()
        && !name.contains(".pub")
        && !public.iter().any(|start| name.starts_with(start))
}

const NAMES: &[&str] = &[
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_ed25519_sk",
    "id_ecdsa_sk",
    ".netrc",
    "_netrc",
    ".pgpass",
    ".my.cnf",
    ".git-credentials",
    ".boto",
    ".htpasswd",
    ".vault-token",
    "secring.gpg",
    "login.keychain-db",
    "login.keychain",
    "key4.db",
    "logins.json",
    "wallet.dat",
    ".pypirc",
    ".dockercfg",
    "service-account.json",
    "serviceaccount.json",
    "client_secret.json",
    "credentials.json",
    "secrets.json",
    "secrets.yml",
    "secrets.yaml",
    "master.key",
    ".s3cfg",
    ".bash_history",
    ".zsh_history",
    ".psql_history",
    ".mysql_history",
];

/// Ends of paths.
const ENDS: &[&str] = &[
    ".aws/credentials",
    ".docker/config.json",
    ".config/gh/hosts.yml",
    ".config/hub",
    ".config/glab-cli/config.yml",
    ".kube/config",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".config/gcloud/credentials.db",
    ".config/gcloud/access_tokens.db",
    ".config/gcloud/application_default_credentials.json",
    ".azure/accesstokens.json",
    ".azure/msal_token_cache.json",
    ".terraform.d/credentials.tfrc.json",
    ".claude/.credentials.json",
    ".codex/auth.json",
    "deadstop/operator-token",
    "etc/shadow",
    "etc/gshadow",
    "etc/master.passwd",
    "chrome/default/login data",
    "chrome/default/cookies",
];

/// What a browser keeps about its user.
const BROWSED: &[&str] =
    &["cookies", "cookies.sqlite", "login data", "web data", "logins.json", "key4.db"];

/// Parts of the paths of browsers.
const BROWSERS: &[&str] =
    &["chrome", "chromium", "brave", "firefox", "mozilla", "edge", "safari", "opera", "vivaldi"];

/// Parts of paths.
const INSIDE: &[&str] = &[
    "library/keychains/",
    "/.gnupg/private-keys",
    ".password-store/",
    "share/keyrings/",
    "/run/secrets/",
    "serviceaccount/token",
];

const FOLDERS: &[&str] = &[
    ".ssh",
    ".aws",
    ".gnupg",
    ".kube",
    ".azure",
    "certs",
    "secrets",
    "private",
    "keys",
    "credentials",
    "keychains",
    ".password-store",
    "gcloud",
];
