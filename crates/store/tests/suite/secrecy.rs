//! A PostgreSQL that takes nothing but TLS, as those of a cloud do.

use deadstop_store::Store;
use sqlx::{Connection, PgConnection};

use crate::place::{script, start};

/// A certificate of our own and its key, as files.
fn certificate() -> tempfile::TempDir {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    folder
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_tls_only() {
    let (ours, theirs) = (certificate(), certificate());
    let ours_at = ours.path().to_str().unwrap();
    let (folder, address) = start(&[&std::process::id().to_string(), ours_at]);
    let address = address.replace("127.0.0.1", "localhost");
    let with = |mode: &str| format!("{address}?{mode}");
    let trusting = |folder: &tempfile::TempDir| {
        let root = folder.path().join("cert.pem");
        with(&format!("sslmode=verify-full&sslrootcert={}", root.display()))
    };

    for address in [with("sslmode=require"), trusting(&ours), address.clone()] {
        let store = Store::connect(&address).await.unwrap();
        assert!(store.projects().await.unwrap().is_empty(), "{address}");
        let mut connection = PgConnection::connect(&address).await.unwrap();
        let secret = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        let secret: bool = sqlx::query_scalar(secret).fetch_one(&mut connection).await.unwrap();
        assert!(secret, "{address}");
    }

    for (address, why) in [
        (with("sslmode=disable"), "no encryption"),
        (with("sslmode=verify-full"), "UnknownIssuer"),
        (trusting(&theirs), "certificate"),
        // The certificate is another name's.
        (trusting(&ours).replace("localhost", "127.0.0.1"), "not valid for name"),
    ] {
        let said = Store::connect(&address).await.unwrap_err();
        let all = std::iter::successors(std::error::Error::source(&said), |e| e.source());
        let said = all.fold(said.to_string(), |said, next| format!("{said}: {next}"));
        assert!(said.contains(why), "{address}: {said}");
    }
    script(&["stop", &folder]);
}
