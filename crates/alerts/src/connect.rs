//! The way to a target: resolve its name once, check every address, connect to one of those.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use url::Host;

use crate::DeliveryError;
use crate::address::is_public;

/// Addresses of one host that are tried.
const MOST_ADDRESSES: usize = 8;

/// Turns names into addresses.
pub trait Resolver: fmt::Debug + Send + Sync {
    /// All addresses of a name.
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Resolving<'a>;
}

/// Addresses on their way.
pub type Resolving<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'a>>;

/// Asks the operating system.
#[derive(Debug)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Resolving<'a> {
        Box::pin(async move { Ok(tokio::net::lookup_host((name, port)).await?.collect()) })
    }
}

/// Connects.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    pub(crate) resolver: Arc<dyn Resolver>,
    pub(crate) allow_private: bool,
    pub(crate) allowed: Vec<IpAddr>,
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) roots: Vec<Vec<u8>>,
}

impl Connector {
    /// A connection to a host, at an address that was checked. Whether plain text may go there is
    /// asked of the address, too.
    pub(crate) async fn connect(
        &self,
        host: &Host<String>,
        port: u16,
        may_connect: impl Fn(IpAddr) -> bool,
    ) -> Result<TcpStream, DeliveryError> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let addresses = self.addresses(host, port).await?;
        for address in &addresses {
            // All of them, before the first is touched.
            let address = address.ip();
            if !may_connect(address) || !self.may_reach(address) {
                return Err(DeliveryError::Forbidden { host: host.to_string(), address });
            }
        }
        for address in addresses.into_iter().take(MOST_ADDRESSES) {
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    // Always equal for a direct connection; this check matters if a proxy is
                    // ever put in between.
                    let peer = stream.peer_addr().map_err(|error| unreachable(host, &error))?;
                    if peer.ip() != address.ip() {
                        let address = peer.ip();
                        return Err(DeliveryError::Forbidden { host: host.to_string(), address });
                    }
                    stream.set_nodelay(true).map_err(|error| unreachable(host, &error))?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(unreachable(host, &last))
    }

    /// TLS over a connection; the host's name is what its certificate must say.
    pub(crate) async fn encrypt(
        &self,
        host: &Host<String>,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, DeliveryError> {
        let name = match host {
            Host::Domain(name) => {
                ServerName::try_from(name.clone()).map_err(|error| unreachable(host, &error))?
            }
            Host::Ipv4(address) => ServerName::IpAddress(IpAddr::V4(*address).into()),
            Host::Ipv6(address) => ServerName::IpAddress(IpAddr::V6(*address).into()),
        };
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        connector.connect(name, stream).await.map_err(|error| unreachable(host, &error))
    }

    fn may_reach(&self, address: IpAddr) -> bool {
        self.allow_private || is_public(address) || self.allowed.contains(&address.to_canonical())
    }

    async fn addresses(
        &self,
        host: &Host<String>,
        port: u16,
    ) -> Result<Vec<SocketAddr>, DeliveryError> {
        match host {
            Host::Ipv4(address) => Ok(vec![SocketAddr::new(IpAddr::V4(*address), port)]),
            Host::Ipv6(address) => Ok(vec![SocketAddr::new(IpAddr::V6(*address), port)]),
            Host::Domain(name) => {
                let found = self.resolver.resolve(name, port).await;
                found.map_err(|error| unreachable(host, &error))
            }
        }
    }
}

pub(crate) fn unreachable(host: &Host<String>, error: &dyn std::error::Error) -> DeliveryError {
    let mut reason = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        reason = format!("{reason}: {deeper}");
        cause = deeper.source();
    }
    DeliveryError::Unreachable { host: host.to_string(), reason }
}

/// TLS as everywhere in Deadstop: rustls with ring, and the roots of the web.
pub(crate) fn tls(further: &[Vec<u8>]) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for root in further {
        roots.add(CertificateDer::from(root.clone()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
