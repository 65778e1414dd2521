//! A connection to a server, in clear or by TLS.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::error::ClientError;
use crate::trust::Trust;

/// Where a server is, read from its URL.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    /// The URL, for people.
    pub(crate) url: String,
    /// What goes into the `Host` header.
    pub(crate) authority: String,
    /// What stands before every path.
    pub(crate) prefix: String,
    host: String,
    port: u16,
    secure: bool,
}

impl Address {
    /// Reads a URL.
    pub(crate) fn parse(url: &str) -> Result<Address, ClientError> {
        let bad = || {
            let text = format!("`{url}` is not the URL of a server: write http://127.0.0.1:4141");
            ClientError::BadServer(text)
        };
        let (scheme, rest) = url.trim().split_once("://").ok_or_else(bad)?;
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(bad()),
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let torn = |part: &str| part.bytes().any(|byte| !byte.is_ascii_graphic());
        if authority.is_empty() || authority.contains(['@', '?', '#']) || torn(rest) {
            return Err(bad());
        }
        let usual = if secure { 443 } else { 80 };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().map_err(|_| bad())?),
            _ => (authority, usual),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() || path.contains(['?', '#']) {
            return Err(bad());
        }
        let prefix = path.trim_end_matches('/').to_owned();
        let authority = authority.to_owned();
        Ok(Address { url: url.to_owned(), authority, prefix, host, port, secure })
    }
}

/// An open connection.
#[derive(Debug)]
pub(crate) enum Connection {
    /// In clear.
    Plain(TcpStream),
    /// By TLS.
    Secure(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Connection {
    /// Opens one.
    pub(crate) fn open(address: &Address, patience: Duration) -> io::Result<Connection> {
        let until = Instant::now() + patience;
        let found = (address.host.as_str(), address.port).to_socket_addrs()?;
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
        for address_of_it in found {
            match TcpStream::connect_timeout(&address_of_it, left(until)?) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return if address.secure {
                        secure(stream, address)
                    } else {
                        Ok(Connection::Plain(stream))
                    };
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Its socket, below TLS.
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Connection::Plain(stream) => stream,
            Connection::Secure(stream) => &stream.sock,
        }
    }

    /// Sets the deadline of every read and write on it.
    pub(crate) fn hurry(&self, until: Instant) -> io::Result<()> {
        let (stream, left) = (self.socket(), left(until)?);
        stream.set_read_timeout(Some(left))?;
        stream.set_write_timeout(Some(left))
    }
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")),
        false => Ok(left),
    }
}

fn secure(stream: TcpStream, address: &Address) -> io::Result<Connection> {
    // A file that cannot be read is left out; the handshake then says which certificates are missing.
    let (trust, _) = Trust::from_environment(|name| std::env::var(name).ok());
    let config = trust.config().map_err(io::Error::other)?;
    let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
    let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
    Ok(Connection::Secure(Box::new(StreamOwned::new(connection, stream))))
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Connection::Plain(stream) => stream.read(buffer),
            Connection::Secure(stream) => stream.read(buffer),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Connection::Plain(stream) => stream.write(buffer),
            Connection::Secure(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Connection::Plain(stream) => stream.flush(),
            Connection::Secure(stream) => stream.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        for (url, expected) in [
            ("http://127.0.0.1:4141", Some(("127.0.0.1", 4141, false, ""))),
            ("https://deadstop.example/", Some(("deadstop.example", 443, true, ""))),
            ("http://[::1]:80/base/", Some(("::1", 80, false, "/base"))),
            ("HTTP://host", Some(("host", 80, false, ""))),
            ("127.0.0.1:4141", None),
            ("ftp://host", None),
            ("http://", None),
            ("http://user:secret@host", None),
            ("http://host:port", None),
            ("http://ho st", None),
            ("http://host/x?y=1", None),
            ("http://host\r\nx: y", None),
        ] {
            let read = Address::parse(url).ok();
            let read =
                read.as_ref().map(|a| (a.host.as_str(), a.port, a.secure, a.prefix.as_str()));
            assert_eq!(read, expected, "{url}");
        }
    }
}
