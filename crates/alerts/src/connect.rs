//! The way to a target: resolve its name once, check every address, connect to one of those.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use tokio::net::TcpStream;
use url::Host;

use crate::DeliveryError;
use crate::address::is_public;
use crate::proxy::Proxy;
use crate::way::{Goal, Stream, Way};

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
    pub(crate) way: Way,
}

impl Connector {
    /// A connection on which a web server can be spoken to, and the proxy that forwards requests to it,
    /// if one does.
    pub(crate) async fn reach(
        &self,
        host: &Host<String>,
        port: u16,
        secure: bool,
    ) -> Result<(Stream, Option<Arc<Proxy>>), DeliveryError> {
        let name = host.to_string();
        let goal = Goal { secure, host: &name, port };
        let proxy = self.way.proxy(goal);
        let stream = match proxy {
            None => self.connect(host, port, |_| true).await?,
            Some(proxy) => {
                self.check(host, port).await?;
                TcpStream::connect(proxy.place()).await.map_err(|error| {
                    let reason = format!("the proxy {proxy} cannot be reached: {error}");
                    DeliveryError::Unreachable { host: host.to_string(), reason }
                })?
            }
        };
        let stream = self.way.open(stream, proxy.map(Arc::as_ref), goal).await;
        let stream = stream.map_err(|error| unreachable(host, &error))?;
        Ok((stream, proxy.filter(|proxy| proxy.forwards(goal)).cloned()))
    }

    /// Whether a proxy may be asked for a host. A name that cannot be resolved here is left to the
    /// proxy: behind many a proxy there is no other DNS.
    async fn check(&self, host: &Host<String>, port: u16) -> Result<(), DeliveryError> {
        for address in self.addresses(host, port).await.unwrap_or_default() {
            let address = address.ip();
            if !self.may_reach(address) {
                return Err(DeliveryError::Forbidden { host: host.to_string(), address });
            }
        }
        Ok(())
    }

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
                    // A connection without a proxy ends where it was to; this holds it to that.
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
