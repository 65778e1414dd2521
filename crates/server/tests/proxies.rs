//! Upstreams behind proxies and private CAs: what the proxy is asked, what the upstream gets, and what
//! an agent is told when there is no way.

use std::net::SocketAddr;
use std::sync::Arc;

use deadstop_alerts::{Proxies, Way};
use deadstop_client::Trust;
use parking_lot::Mutex;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::support::{Gate, Got, Said, Speech, soon};

/// The password that the proxy wants, in base64 with its user.
const BASIC: &str = "Basic bWU6czNjcmV0";

/// A proxy that leads all of its clients to the same place, and notes what they ask it.
struct Proxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    async fn start(to: SocketAddr, locked: bool) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // A client that goes away ends its connection with an error.
                tokio::spawn(serve(client, to, locked, Arc::clone(&noted)));
            }
        });
        Proxy { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock())
    }
}

async fn serve(
    mut client: TcpStream,
    to: SocketAddr,
    locked: bool,
    noted: Arc<Mutex<Vec<String>>>,
) -> std::io::Result<()> {
    let mut head = vec![client.read_u8().await?];
    if head[0] == 5 {
        // SOCKS: methods, then a name.
        let mut methods = vec![0; usize::from(client.read_u8().await?)];
        client.read_exact(&mut methods).await?;
        client.write_all(&[5, 0]).await?;
        let mut start = [0; 5];
        client.read_exact(&mut start).await?;
        let mut name = vec![0; usize::from(start[4])];
        client.read_exact(&mut name).await?;
        let port = client.read_u16().await?;
        noted.lock().push(format!("SOCKS {}:{port}", String::from_utf8_lossy(&name)));
        client.write_all(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 80]).await?;
        copy_bidirectional(&mut client, &mut TcpStream::connect(to).await?).await?;
        return Ok(());
    }
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let first = text.lines().next().unwrap_or_default().to_owned();
    let known = text.to_lowercase().contains(&BASIC.to_lowercase());
    let tunnels = first.starts_with("CONNECT");
    let refused = first.contains("denied.test");
    noted.lock().push(first);
    let answer = match () {
        () if locked && !known => "407 Proxy Authentication Required",
        () if refused => "403 Forbidden by policy",
        () if tunnels => "200 Connection established",
        () => "",
    };
    if !answer.is_empty() {
        client
            .write_all(format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n").as_bytes())
            .await?;
        if !answer.starts_with('2') {
            return client.shutdown().await;
        }
    }
    let mut upstream = TcpStream::connect(to).await?;
    if !tunnels {
        upstream.write_all(&head).await?;
    }
    copy_bidirectional(&mut client, &mut upstream).await.map(drop)
}

/// Ends TLS for `api.test` in front of a server, with a certificate of a CA of its own.
async fn encrypted(to: SocketAddr) -> (SocketAddr, Trust) {
    let made = rcgen::generate_simple_self_signed(vec!["api.test".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut client = acceptor.accept(client).await?;
                copy_bidirectional(&mut client, &mut TcpStream::connect(to).await?).await
            });
        }
    });
    // Read from a file, as a user's is.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, made.cert.pem()).unwrap();
    let mut trust = Trust::default();
    trust.add_file(&file).unwrap();
    (address, trust)
}

/// The way that an environment makes.
fn way(variables: &[(&str, String)], trust: Trust) -> Way {
    let proxies = Proxies::from_environment(|name| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    });
    Way::new(proxies.unwrap(), trust).unwrap()
}

/// A gate whose upstream has this address and is reached this way.
async fn gate(url: &str, make: impl AsyncFnOnce(SocketAddr) -> Way) -> Gate {
    let answer = |_: &_| Speech::Chat.reply(false, &Said::text("hello"));
    let upstream = crate::support::Upstream::start(answer).await;
    let made = make(upstream.address).await;
    let own = url.replace("UPSTREAM", &upstream.address.to_string());
    let mut gate = Gate::with(json!({}), answer, |config| {
        let provider = config.providers.get_mut("openai").unwrap();
        (provider.base_url, provider.way) = (own.parse().unwrap(), made);
    })
    .await;
    gate.upstream = upstream;
    gate
}

async fn ask(gate: &Gate) -> Got {
    soon("an answer", gate.ask(&Speech::Chat.says(false, "hi"))).await
}

#[tokio::test]
async fn https_goes_through_a_tunnel_to_a_private_ca() {
    let mut proxy = None;
    let gate = gate("https://api.test", async |upstream| {
        let (secure, trust) = encrypted(upstream).await;
        let started = Proxy::start(secure, true).await;
        let url = format!("http://me:s3cret@{}", started.address);
        proxy = Some(started);
        way(&[("HTTPS_PROXY", url)], trust)
    })
    .await;
    for _ in 0..2 {
        let got = ask(&gate).await;
        assert_eq!(got.status, 200, "{}", got.text());
    }
    // Each core has its own connections; none asks the proxy twice for the same one.
    let asked = proxy.unwrap().asked();
    assert!(asked.iter().all(|line| line == "CONNECT api.test:443 HTTP/1.1"), "{asked:?}");
    assert_eq!(gate.upstream.last().target, "/v1/chat/completions");
    assert_eq!(gate.upstream.last().header("proxy-authorization"), None);
}

#[tokio::test]
async fn plain_http_is_forwarded_with_its_whole_url() {
    let mut proxy = None;
    let gate = gate("http://api.test:8080/below", async |upstream| {
        let started = Proxy::start(upstream, true).await;
        let url = format!("me:s3cret@{}", started.address);
        proxy = Some(started);
        way(&[("http_proxy", url)], Trust::default())
    })
    .await;
    assert_eq!(ask(&gate).await.status, 200);
    let seen = gate.upstream.last();
    assert_eq!(seen.target, "http://api.test:8080/below/v1/chat/completions");
    assert_eq!(seen.header("host"), Some("api.test:8080"));
    assert_eq!(seen.header("proxy-authorization"), Some(BASIC));
    assert_eq!(proxy.unwrap().asked().len(), 1);
}

#[tokio::test]
async fn socks_resolves_names_at_the_proxy() {
    let mut proxy = None;
    let gate = gate("http://api.test:8080", async |upstream| {
        let started = Proxy::start(upstream, false).await;
        let url = format!("socks5h://{}", started.address);
        proxy = Some(started);
        way(&[("ALL_PROXY", url)], Trust::default())
    })
    .await;
    assert_eq!(ask(&gate).await.status, 200);
    assert_eq!(gate.upstream.last().target, "/v1/chat/completions");
    assert_eq!(proxy.unwrap().asked(), ["SOCKS api.test:8080"]);
}

#[tokio::test]
async fn this_machine_is_reached_directly() {
    let mut proxy = None;
    let gate = gate("http://UPSTREAM", async |upstream| {
        let started = Proxy::start(upstream, false).await;
        let url = format!("http://{}", started.address);
        proxy = Some(started);
        way(&[("HTTP_PROXY", url.clone()), ("ALL_PROXY", url)], Trust::default())
    })
    .await;
    assert_eq!(ask(&gate).await.status, 200);
    assert_eq!(proxy.unwrap().asked(), Vec::<String>::new());
}

#[tokio::test]
async fn what_is_wrong_is_named() {
    let secret = "s3cret";
    for (host, locked, trusts, user, says) in [
        (
            "api.test",
            false,
            false,
            "",
            "signed by a CA that is not trusted here; if that is a private",
        ),
        ("other.test", false, true, "", "other.test: invalid peer certificate"),
        (
            "denied.test",
            false,
            true,
            "",
            "refuses denied.test:443: 403 Forbidden by policy; allow it",
        ),
        (
            "api.test",
            true,
            true,
            "",
            "does not accept these credentials, or wants some: write its URL",
        ),
        ("api.test", true, true, "other:s3cret@", "does not accept these credentials"),
    ] {
        let gate = gate(&format!("https://{host}"), async |upstream| {
            let (secure, trust) = encrypted(upstream).await;
            let proxy = Proxy::start(secure, locked).await;
            let trust = if trusts { trust } else { Trust::default() };
            way(&[("https_proxy", format!("http://{user}{}", proxy.address))], trust)
        })
        .await;
        let got = ask(&gate).await;
        assert!(got.status == 502 && got.text().contains(says), "{host}: {}", got.text());
        assert!(!got.text().contains(secret), "{}", got.text());
        assert_eq!(gate.upstream.requests(), 0);
    }
    // A proxy that forwards, and one that is gone.
    for (locked, there, says) in
        [(true, true, "does not accept these credentials"), (false, false, "cannot be reached: ")]
    {
        let gate = gate("http://api.test", async |upstream| {
            let proxy = Proxy::start(upstream, locked).await.address;
            let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
            let address = if there { proxy } else { gone };
            way(&[("HTTP_PROXY", format!("http://u:{secret}@{address}"))], Trust::default())
        })
        .await;
        let got = ask(&gate).await;
        assert!(got.status == 502 && got.text().contains(says), "{}", got.text());
        assert!(got.text().contains("(HTTP_PROXY)") && !got.text().contains(secret));
    }
}
