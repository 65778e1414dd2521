//! A mail server of a few lines that remembers what it was told.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

pub(crate) struct SmtpListener {
    pub(crate) port: u16,
    talk: Arc<Mutex<Vec<String>>>,
}

impl SmtpListener {
    /// Serves one connection. It refuses what it is told to, such as `RCPT 550 unknown`; `HANG` and
    /// `FLOOD` are about its greeting.
    pub(crate) async fn start(refusals: &[&'static str]) -> Self {
        Self::start_with(refusals, Tls::Never).await
    }

    /// The same with TLS.
    pub(crate) async fn start_with(refusals: &[&'static str], tls: Tls) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let talk = Arc::new(Mutex::new(Vec::new()));
        let (seen, refusals) = (Arc::clone(&talk), refusals.to_vec());
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            // The client may leave at any time.
            drop(accept(stream, &refusals, tls, &seen).await);
        });
        Self { port, talk }
    }

    /// All lines from the client.
    pub(crate) fn talk(&self) -> Vec<String> {
        self.talk.lock().unwrap().clone()
    }
}

/// When the connection is encrypted.
pub(crate) enum Tls {
    Never,
    AtOnce(TlsAcceptor),
    OnDemand(TlsAcceptor),
}

async fn accept(
    mut stream: TcpStream,
    refusals: &[&'static str],
    tls: Tls,
    seen: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    match tls {
        Tls::Never => serve(stream, "AUTH PLAIN LOGIN", refusals, seen).await,
        Tls::AtOnce(tls) => serve(tls.accept(stream).await?, "AUTH PLAIN", refusals, seen).await,
        Tls::OnDemand(tls) => {
            serve(&mut stream, "STARTTLS", refusals, seen).await?;
            serve(tls.accept(stream).await?, "AUTH PLAIN", &["GREETING"], seen).await
        }
    }
}

/// Talks until the client leaves or asks for encryption.
async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    offer: &str,
    refusals: &[&'static str],
    seen: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    if refusals.contains(&"HANG") {
        return std::future::pending().await;
    }
    while refusals.contains(&"FLOOD") {
        stream.write_all(&[b'x'; 4096]).await?;
    }
    if !refusals.contains(&"GREETING") {
        stream.write_all(b"220 ready\r\n").await?;
        stream.flush().await?;
    }
    let mut in_data = false;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let line = line.trim_end_matches(['\r', '\n']).to_owned();
        seen.lock().unwrap().push(line.clone());
        let word = line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
        let refusal = refusals.iter().find_map(|refusal| refusal.strip_prefix(word.as_str()));
        let hello = format!("250-here\r\n250 {offer}");
        let reply = match (in_data, word.as_str()) {
            (true, ".") => {
                in_data = false;
                "250 taken"
            }
            (true, _) => continue,
            (false, _) if refusal.is_some() && !word.is_empty() => refusal.unwrap().trim(),
            (false, "EHLO") => &hello,
            (false, "AUTH") => "235 welcome",
            (false, "DATA") => {
                in_data = true;
                "354 go on"
            }
            (false, "QUIT") => "221 bye",
            (false, _) => "250 fine",
        };
        stream.write_all(format!("{reply}\r\n").as_bytes()).await?;
        stream.flush().await?;
        if word == "STARTTLS" {
            return Ok(());
        }
    }
}
