//! A message as a mail.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use lettre::message::header::{ContentType, MessageId};
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{
    AsyncSmtpConnection, AsyncTokioStream, Certificate, CertificateStore, TlsParameters,
};
use lettre::transport::smtp::extension::ClientId;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use url::{Host, Url};

use crate::connect::{Connector, unreachable};
use crate::message::{one_line, shortened};
use crate::target::{mailbox, mailboxes, smtp_url};
use crate::{BadTarget, DeliveryError, Message, Receipt, Secret};

/// Bytes that a mail server may say in all.
const LONGEST_TALK: usize = 64 * 1024;
/// Characters of a subject.
const LONGEST_SUBJECT: usize = 150;

/// Sends a mail.
pub(crate) async fn send(
    connector: &Connector,
    smtp: &Secret,
    from: &str,
    to: &str,
    message: &Message,
) -> Result<Receipt, DeliveryError> {
    let url = smtp_url(smtp.reveal())?;
    let mail = mail(from, to, message)?;
    let host = host(&url)?;
    let mut connection = open(connector, &url, &host).await?;
    if let Some(password) = url.password() {
        let credentials = Credentials::new(decoded(url.username()), decoded(password));
        let known = connection.auth(DEFAULT_MECHANISMS, &credentials).await;
        known.map_err(|error| failed(&host, &error))?;
    }
    let sent = connection.send(mail.envelope(), &mail.formatted()).await;
    let response = sent.map_err(|error| failed(&host, &error))?;
    // It has been taken; how we part changes nothing.
    drop(connection.quit().await);
    let reply: Vec<&str> = response.message().collect();
    let reply = shortened(&one_line(&reply.join(" ")), 200);
    Ok(Receipt { status: response.code().into(), redirects: 0, reply })
}

async fn open(
    connector: &Connector,
    url: &Url,
    host: &Host<String>,
) -> Result<AsyncSmtpConnection, DeliveryError> {
    let hello = ClientId::Domain("deadstop.invalid".to_owned());
    let port = |default| url.port().unwrap_or(default);
    let failed = |error| failed(host, &error);
    match url.scheme() {
        "smtps" => {
            let stream = connector.connect(host, port(465), |_| true).await?;
            let peer = stream.peer_addr().map_err(|error| unreachable(host, &error))?;
            let stream = connector.way.encrypt(stream, &host.to_string()).await;
            let stream = stream.map_err(|error| unreachable(host, &error))?;
            let stream = Bounded::new(stream, peer);
            AsyncSmtpConnection::connect_with_transport(Box::new(stream), &hello)
                .await
                .map_err(failed)
        }
        "smtp+starttls" => {
            let mut connection = plain(connector, host, port(587), |_| true, &hello).await?;
            let mut parameters = TlsParameters::builder(host.to_string())
                .certificate_store(CertificateStore::WebpkiRoots);
            for root in connector.way.trust().further() {
                let root = Certificate::from_der(root.to_vec()).map_err(failed)?;
                parameters = parameters.add_root_certificate(root);
            }
            let parameters = parameters.build_rustls().map_err(failed)?;
            // Fails when the server does not offer it: never in the clear instead.
            connection.starttls(parameters, &hello).await.map_err(failed)?;
            Ok(connection)
        }
        _ => plain(connector, host, port(25), |address| address.is_loopback(), &hello).await,
    }
}

async fn plain(
    connector: &Connector,
    host: &Host<String>,
    port: u16,
    may_connect: impl Fn(IpAddr) -> bool,
    hello: &ClientId,
) -> Result<AsyncSmtpConnection, DeliveryError> {
    let stream: TcpStream = connector.connect(host, port, may_connect).await?;
    let peer = stream.peer_addr().map_err(|error| unreachable(host, &error))?;
    AsyncSmtpConnection::connect_with_transport(Box::new(Bounded::new(stream, peer)), hello)
        .await
        .map_err(|error| failed(host, &error))
}

/// The mail itself. Addresses are parsed and texts have no line ends where a header goes, so that
/// nothing in a message can add a header or a recipient.
fn mail(from: &str, to: &str, message: &Message) -> Result<lettre::Message, DeliveryError> {
    let id: String =
        message.id.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    let mut mail = lettre::Message::builder()
        .from(mailbox(from)?)
        .subject(shortened(&message.title(), LONGEST_SUBJECT))
        .header(MessageId::from(format!("<{id}@deadstop.invalid>")))
        .header(ContentType::TEXT_PLAIN);
    for to in mailboxes(to)? {
        mail = mail.to(to);
    }
    let text = message.text().replace('\r', " ");
    mail.body(text).map_err(|_| DeliveryError::Target(BadTarget::Mailbox(one_line(to))))
}

/// The host of a URL whose scheme the URL standard does not know: it is not parsed as an address.
fn host(url: &Url) -> Result<Host<String>, BadTarget> {
    let text = url.host_str().ok_or(BadTarget::Host)?;
    Host::parse(text).map_err(|_| BadTarget::Host)
}

/// A text without its percent-encoding.
pub(crate) fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let code = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match (first, code.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn failed(host: &Host<String>, error: &lettre::transport::smtp::Error) -> DeliveryError {
    match error.status() {
        Some(code) => DeliveryError::Rejected {
            status: code.into(),
            reply: shortened(&one_line(&error.to_string()), 200),
            retry: error.is_transient(),
            after: None,
        },
        None => unreachable(host, error),
    }
}

/// A stream of which only so much is read.
#[derive(Debug)]
struct Bounded<S> {
    stream: S,
    peer: SocketAddr,
    left: usize,
}

impl<S> Bounded<S> {
    fn new(stream: S, peer: SocketAddr) -> Self {
        Self { stream, peer, left: LONGEST_TALK }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left == 0 {
            return Poll::Ready(Err(io::Error::other("the mail server's answer is too long")));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let read = buffer.filled().len() - before;
        self.left = self.left.saturating_sub(read);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin + std::fmt::Debug> AsyncTokioStream
    for Bounded<S>
{
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}
