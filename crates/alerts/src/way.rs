//! A way out: directly or through a proxy, in clear or by TLS. Alerts and the doors of the server use
//! the same.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::sync::Arc;

use deadstop_client::{BadTrust, Trust, UNTRUSTED, is_untrusted};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::proxy::{Proxies, Proxy, Speech, authority, bare};

/// The longest head of a proxy's answer.
const LONGEST_HEAD: usize = 16 * 1024;

/// Bytes in both directions, by whatever means.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// A connection on which a target can be spoken to.
pub type Stream = Box<dyn Duplex>;

/// Which target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Goal<'a> {
    /// Whether it is spoken to by TLS.
    pub secure: bool,
    /// Its host; an IPv6 address may have brackets.
    pub host: &'a str,
    /// Its port.
    pub port: u16,
}

impl Goal<'_> {
    fn authority(&self) -> String {
        authority(self.host, self.port)
    }
}

/// Why there is no way to a target. No text holds a password.
#[derive(Debug, thiserror::Error)]
pub enum NoWay {
    /// The proxy says no.
    #[error(
        "the proxy {proxy} refuses {goal}: {answer}; allow it there, or name the host in NO_PROXY"
    )]
    Refused {
        /// The proxy.
        proxy: String,
        /// Host and port that were asked for.
        goal: String,
        /// What it answered.
        answer: String,
    },
    /// The proxy wants to know who asks.
    #[error(
        "the proxy {0} does not accept these credentials, or wants some: write its URL as \
         http://USER:PASSWORD@HOST:PORT"
    )]
    Credentials(String),
    /// The proxy does not speak as one.
    #[error("the proxy {proxy} broke off: {why}")]
    Broken {
        /// The proxy.
        proxy: String,
        /// What happened.
        why: String,
    },
    /// TLS was not agreed on.
    #[error("{host}: {why}")]
    Tls {
        /// The other side.
        host: String,
        /// What happened, and what to do.
        why: String,
    },
}

/// A way out. Clones are the same way, and two ways differ even if they lead alike, so that their
/// connections are kept apart.
#[derive(Clone)]
pub struct Way(Arc<Inside>);

struct Inside {
    proxies: Proxies,
    tls: Arc<ClientConfig>,
    trust: Trust,
}

impl PartialEq for Way {
    fn eq(&self, other: &Way) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Way {}

impl Hash for Way {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Way").field(&self.0.proxies).finish()
    }
}

impl Way {
    /// A way through these proxies, on which these certificates are trusted.
    pub fn new(proxies: Proxies, trust: Trust) -> Result<Way, BadTrust> {
        let tls = trust.config()?;
        Ok(Way(Arc::new(Inside { proxies, tls, trust })))
    }

    /// The proxy to connect to in place of the target; `None` is the direct way.
    pub fn proxy(&self, goal: Goal<'_>) -> Option<&Arc<Proxy>> {
        self.0.proxies.find(goal.secure, goal.host, goal.port)
    }

    /// The certificates that are trusted.
    pub(crate) fn trust(&self) -> &Trust {
        &self.0.trust
    }

    /// Makes of a connection to the target, or to the proxy that leads there, one on which the target
    /// can be spoken to. Where the proxy forwards requests ([`Proxy::forwards`]) it is one to the proxy.
    pub async fn open(
        &self,
        connection: impl Duplex + 'static,
        proxy: Option<&Proxy>,
        goal: Goal<'_>,
    ) -> Result<Stream, NoWay> {
        let mut stream: Stream = Box::new(connection);
        if let Some(proxy) = proxy {
            if proxy.speech == Speech::Https {
                stream = Box::new(self.encrypt(stream, &proxy.host).await?);
            }
            let broken = |error: io::Error| NoWay::Broken {
                proxy: proxy.to_string(),
                why: error.to_string(),
            };
            match proxy.speech {
                Speech::Socks => socks(&mut stream, proxy, goal, broken).await?,
                Speech::Http | Speech::Https if proxy.forwards(goal) => return Ok(stream),
                Speech::Http | Speech::Https => tunnel(&mut stream, proxy, goal, broken).await?,
            }
        }
        match goal.secure {
            true => Ok(Box::new(self.encrypt(stream, goal.host).await?)),
            false => Ok(stream),
        }
    }

    /// TLS over a connection; the host's name is what its certificate must say.
    pub(crate) async fn encrypt<S: Duplex>(
        &self,
        stream: S,
        host: &str,
    ) -> Result<TlsStream<S>, NoWay> {
        let failed = |why: String| NoWay::Tls { host: host.to_owned(), why };
        let name = ServerName::try_from(bare(host).to_owned())
            .map_err(|_| failed("no certificate can exist for this name".to_owned()))?;
        let connector = TlsConnector::from(Arc::clone(&self.0.tls));
        connector.connect(name, stream).await.map_err(|error| match is_untrusted(&error) {
            true => failed(format!("{UNTRUSTED}, or as ca_file in deadstop.toml")),
            false => failed(error.to_string()),
        })
    }
}

impl Proxy {
    /// Whether it takes requests for the target as they are, with the whole URL in their first line.
    /// Otherwise it passes bytes.
    pub fn forwards(&self, goal: Goal<'_>) -> bool {
        !goal.secure && self.speech != Speech::Socks
    }

    /// It answered a forwarded request with 407.
    pub fn wants_credentials(&self) -> NoWay {
        NoWay::Credentials(self.to_string())
    }

    fn refused(&self, goal: Goal<'_>, answer: String) -> NoWay {
        NoWay::Refused { proxy: self.to_string(), goal: goal.authority(), answer }
    }
}

/// Asks an HTTP proxy for a connection to the target.
async fn tunnel(
    stream: &mut Stream,
    proxy: &Proxy,
    goal: Goal<'_>,
    broken: impl Fn(io::Error) -> NoWay,
) -> Result<(), NoWay> {
    let place = goal.authority();
    let mut asked = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n");
    if let Some(authorization) = proxy.authorization() {
        asked += &format!("Proxy-Authorization: {authorization}\r\n");
    }
    asked += "\r\n";
    stream.write_all(asked.as_bytes()).await.map_err(&broken)?;
    stream.flush().await.map_err(&broken)?;
    // Byte by byte: what follows the head is the target's. The kernel has the rest.
    let mut head = Vec::with_capacity(256);
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == LONGEST_HEAD {
            return Err(broken(io::Error::other("its answer is too long")));
        }
        head.push(stream.read_u8().await.map_err(&broken)?);
    }
    let first = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let first = String::from_utf8_lossy(first).into_owned();
    let mut words = first.splitn(2, ' ');
    let (version, status) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if !version.starts_with("HTTP/1.") {
        return Err(broken(io::Error::other("it does not answer as an HTTP proxy")));
    }
    match status.split(' ').next().unwrap_or_default() {
        "407" => Err(proxy.wants_credentials()),
        code if code.len() == 3 && code.starts_with('2') => Ok(()),
        _ => Err(proxy.refused(goal, status.trim().to_owned())),
    }
}

/// The same in SOCKS 5 (RFC 1928, and 1929 for the password). The proxy resolves the name.
async fn socks(
    stream: &mut Stream,
    proxy: &Proxy,
    goal: Goal<'_>,
    broken: impl Fn(io::Error) -> NoWay,
) -> Result<(), NoWay> {
    const VERSION: u8 = 5;
    const PASSWORD: u8 = 2;
    let too_long = || broken(io::Error::other("a name or password is longer than 255 bytes"));
    let counted = |text: &str| {
        let length = u8::try_from(text.len()).map_err(|_| too_long())?;
        Ok::<_, NoWay>([&[length], text.as_bytes()].concat())
    };
    let greeting: &[u8] = match proxy.credentials {
        Some(_) => &[VERSION, 2, 0, PASSWORD],
        None => &[VERSION, 1, 0],
    };
    stream.write_all(greeting).await.map_err(&broken)?;
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen).await.map_err(&broken)?;
    match (chosen, &proxy.credentials) {
        ([VERSION, 0], _) => {}
        ([VERSION, PASSWORD], Some((user, password))) => {
            let shown = [vec![1], counted(user)?, counted(password)?].concat();
            stream.write_all(&shown).await.map_err(&broken)?;
            stream.read_exact(&mut chosen).await.map_err(&broken)?;
            if chosen[1] != 0 {
                return Err(proxy.wants_credentials());
            }
        }
        ([VERSION, _], _) => return Err(proxy.wants_credentials()),
        _ => return Err(broken(io::Error::other("it does not answer as a SOCKS 5 proxy"))),
    }
    let name = [vec![3], counted(bare(goal.host))?].concat();
    let asked = [&[VERSION, 1, 0], name.as_slice(), &goal.port.to_be_bytes()].concat();
    stream.write_all(&asked).await.map_err(&broken)?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await.map_err(&broken)?;
    if answer[1] != 0 {
        return Err(proxy.refused(goal, format!("SOCKS error {}", answer[1])));
    }
    // The address that it is bound to, and its port.
    let length = match answer[3] {
        1 => 4,
        4 => 16,
        _ => usize::from(stream.read_u8().await.map_err(&broken)?),
    };
    let mut rest = vec![0; length + 2];
    stream.read_exact(&mut rest).await.map(drop).map_err(&broken)
}
