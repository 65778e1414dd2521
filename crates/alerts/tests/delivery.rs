//! Messages on their way to real listeners on loopback.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod http_listener;
mod smtp_listener;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use deadstop_alerts::{
    DeliveryError, Kind, Message, Resolver, Resolving, Secret, Sender, Settings, Target,
};
use deadstop_client::Trust;
use deadstop_core::Time;
use hmac::{Hmac, KeyInit, Mac};
use http_listener::{HttpListener, Reply};
use smtp_listener::{SmtpListener, Tls};
use tokio_rustls::TlsAcceptor;

const LOOPBACK: [u8; 4] = [127, 0, 0, 1];

/// Knows a few names and counts how often it is asked.
#[derive(Debug, Default)]
struct Names {
    asked: AtomicUsize,
}

impl Resolver for Names {
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Resolving<'a> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        let addresses: &[[u8; 4]] = match name {
            "hook.test" => &[LOOPBACK],
            "inner.test" => &[[127, 0, 0, 2]],
            "both.test" => &[LOOPBACK, [10, 0, 0, 1]],
            "metadata.test" => &[[169, 254, 169, 254]],
            // Another address every time: the trick of those who pass a check by name.
            "rebinding.test" if asked == 0 => &[LOOPBACK],
            "rebinding.test" => &[[127, 0, 0, 2]],
            _ => &[],
        };
        let addresses = addresses.iter().map(|address| SocketAddr::from((*address, port)));
        let addresses: Vec<SocketAddr> = addresses.collect();
        Box::pin(async move { Ok(addresses) })
    }
}

fn sender() -> Sender {
    with_names(&Arc::default(), Duration::from_secs(20))
}

/// For targets that never answer.
fn impatient() -> Sender {
    with_names(&Arc::default(), Duration::from_millis(300))
}

/// Reaches 127.0.0.1, and no other address that is not public.
fn with_names(names: &Arc<Names>, timeout: Duration) -> Sender {
    let settings =
        Settings { allowed: vec![IpAddr::from(LOOPBACK)], timeout, ..Settings::default() };
    Sender::with_resolver(&settings, Arc::<Names>::clone(names)).unwrap()
}

fn webhook(url: &str) -> Target {
    Target::Webhook { url: Secret::new(url), secret: Some(Secret::signing(&[7; 32])) }
}

fn kill() -> Message {
    Message {
        agent: Some("coder".into()),
        session: Some("s1".into()),
        guard: Some("similarity".into()),
        reason: Some("loop_score".into()),
        score: Some(12.5),
        threshold: Some(10.0),
        link: Some("https://deadstop.example/incidents/1".into()),
        ..Message::new(
            "msg-1",
            Kind::Kill,
            "default",
            "stopped: the agent repeats itself (score 12.5 of 10)",
            Time(1_763_194_823_000),
        )
    }
}

#[tokio::test]
async fn a_webhook_tells_agent_score_and_time_and_is_signed() {
    let listener = HttpListener::start(vec![Reply::status(204)]).await;
    let target = webhook(&listener.url("hook.test", "/hook?x=1"));
    let receipt = sender().deliver(&target, &kill()).await.unwrap();
    assert_eq!((receipt.status, receipt.redirects), (204, 0));
    let received = listener.received().remove(0);
    assert_eq!((received.method.as_str(), received.path.as_str()), ("POST", "/hook?x=1"));
    let body: serde_json::Value = serde_json::from_slice(&received.body).unwrap();
    assert_eq!(body["type"], "kill");
    assert_eq!(body["timestamp"], "2025-11-15T08:20:23Z");
    assert_eq!(body["data"]["agent"], "coder");
    assert_eq!(body["data"]["score"], 12.5);
    assert_eq!(body["data"]["threshold"], 10.0);
    assert_eq!(body["data"]["at"], "2025-11-15T08:20:23Z");

    // Checked as a receiver would, from what arrived alone.
    let header = |name| received.headers.get(name).unwrap().to_str().unwrap();
    assert_eq!(header("webhook-id"), "msg-1");
    let signed = [b"msg-1.", header("webhook-timestamp").as_bytes(), b".", &received.body].concat();
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&[7; 32]).unwrap();
    mac.update(&signed);
    let signature = header("webhook-signature").strip_prefix("v1,").unwrap();
    let signature = base64::engine::general_purpose::STANDARD.decode(signature).unwrap();
    mac.verify_slice(&signature).unwrap();
}

#[tokio::test]
async fn slack_gets_text_and_blocks() {
    let listener = HttpListener::start(vec![Reply::status(200)]).await;
    let target = Target::Slack { url: Secret::new(listener.url("127.0.0.1", "/services/T/B/x")) };
    sender().deliver(&target, &kill()).await.unwrap();
    let received = listener.received().remove(0);
    assert!(!received.headers.contains_key("webhook-signature"));
    let body: serde_json::Value = serde_json::from_slice(&received.body).unwrap();
    assert!(body["text"].as_str().unwrap().starts_with("Deadstop: coder stopped (similarity)"));
    assert_eq!(body["blocks"][0]["type"], "header");
}

#[tokio::test]
async fn failures_say_whether_to_try_again() {
    for (reply, retry, after) in [
        (Reply::status(500), true, None),
        (Reply::status(503).header("retry-after", "7"), true, Some(7)),
        (Reply::status(429).header("retry-after", "9999999"), true, Some(24 * 3600)),
        (Reply::status(408), true, None),
        (Reply::status(400), false, None),
        (Reply::status(401).header("retry-after", "7"), false, None),
        (Reply::status(404), false, None),
        (Reply::status(410), false, None),
        (Reply::status(303).header("location", "/"), false, None),
    ] {
        let listener = HttpListener::start(vec![reply]).await;
        let target = webhook(&listener.url("hook.test", "/"));
        let error = sender().deliver(&target, &kill()).await.unwrap_err();
        assert_eq!(error.retry(), retry, "{error}");
        assert_eq!(error.retry_after().map(|after| after.as_secs()), after, "{error}");
    }
    // No server listens there.
    let target = webhook("http://127.0.0.1:9/");
    assert!(sender().deliver(&target, &kill()).await.unwrap_err().retry());
    let target = webhook("http://unknown.test/");
    assert!(sender().deliver(&target, &kill()).await.unwrap_err().retry());
}

#[tokio::test]
async fn what_fails_at_first_succeeds_later_under_the_same_id() {
    let replies = vec![Reply::status(500), Reply::Close, Reply::status(200)];
    let listener = HttpListener::start(replies).await;
    let (sender, target) = (sender(), webhook(&listener.url("hook.test", "/")));
    let mut failures = 0;
    while let Err(error) = sender.deliver(&target, &kill()).await {
        assert!(error.retry(), "{error}");
        failures += 1;
    }
    assert_eq!(failures, 2);
    let ids = listener.received();
    assert!(ids.iter().all(|request| request.headers["webhook-id"] == "msg-1"));
}

#[tokio::test]
async fn nothing_waits_for_ever_and_nothing_is_read_for_ever() {
    let listener = HttpListener::start(vec![Reply::Hang]).await;
    let target = webhook(&listener.url("hook.test", "/"));
    let error = impatient().deliver(&target, &kill()).await.unwrap_err();
    assert!(matches!(error, DeliveryError::Timeout(_)) && error.retry(), "{error}");

    let listener = HttpListener::start(vec![Reply::status(200).body(vec![b'x'; 9_000_000])]).await;
    let target = webhook(&listener.url("hook.test", "/"));
    let receipt = sender().deliver(&target, &kill()).await.unwrap();
    assert!(receipt.reply.len() <= 210);
}

#[tokio::test]
async fn redirects_are_followed_three_times() {
    for (redirects, delivered) in [(1, true), (3, true), (4, false)] {
        let mut replies = vec![Reply::status(307).header("location", "/next"); redirects];
        replies.push(Reply::status(200));
        let listener = HttpListener::start(replies).await;
        let target = webhook(&listener.url("hook.test", "/"));
        match sender().deliver(&target, &kill()).await {
            Ok(receipt) => {
                assert_eq!((usize::from(receipt.redirects), delivered), (redirects, true));
            }
            Err(error) => assert!(!delivered && !error.retry(), "{error}"),
        }
        let received = listener.received();
        assert!(
            received.iter().all(|request| request.method == "POST" && !request.body.is_empty())
        );
    }
}

#[tokio::test]
async fn a_redirect_does_not_lead_inside() {
    for inside in [
        "http://127.0.0.2/",
        "http://127.2/",
        "http://0x7f000002/",
        "http://0177.0.0.2/",
        "http://2130706434/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.2]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[fd00:ec2::254]/",
        "http://inner.test/",
        "http://both.test/",
        "http://metadata.test/",
    ] {
        let listener =
            HttpListener::start(vec![Reply::status(302).header("location", inside)]).await;
        let target = webhook(&listener.url("hook.test", "/"));
        let error = sender().deliver(&target, &kill()).await.unwrap_err();
        assert!(matches!(error, DeliveryError::Forbidden { .. }), "{inside}: {error}");
        assert!(!error.retry());
    }
}

#[tokio::test]
async fn targets_inside_are_refused_in_any_spelling() {
    let sender = Sender::with_resolver(&Settings::default(), Arc::new(Names::default())).unwrap();
    for url in [
        "http://127.0.0.1/",
        "http://localhost.test.:80@127.0.0.1/",
        "http://127.1/",
        "http://0x7f.1/",
        "http://017700000001/",
        "http://2130706433/",
        "http://0/",
        "http://10.1.2.3/",
        "http://192.168.0.1/",
        "http://100.64.0.1/",
        "http://169.254.169.254/",
        "http://①⑥⑨.254.169.254/",
        "http://[::]/",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[2002:a9fe:a9fe::]/",
        "http://[fe80::1]/",
        "http://[fc00::1]/",
        "https://hook.test/",
        "https://both.test/",
        "https://metadata.test/",
    ] {
        for target in [webhook(url), Target::Slack { url: Secret::new(url) }] {
            let error = sender.deliver(&target, &kill()).await.unwrap_err();
            let refused =
                matches!(error, DeliveryError::Forbidden { .. } | DeliveryError::Target(_));
            assert!(refused && !error.retry(), "{url}: {error}");
        }
    }
    for smtp in ["smtps://10.0.0.1", "smtp+starttls://0x7f.1", "smtp://[::1]", "smtp://hook.test"] {
        let error = sender.deliver(&email(smtp), &kill()).await.unwrap_err();
        assert!(matches!(error, DeliveryError::Forbidden { .. }), "{smtp}: {error}");
    }
}

#[tokio::test]
async fn a_name_is_looked_up_once() {
    let listener = HttpListener::start(vec![Reply::status(200)]).await;
    let names = Arc::new(Names::default());
    let target = webhook(&listener.url("rebinding.test", "/"));
    with_names(&names, Duration::from_secs(20)).deliver(&target, &kill()).await.unwrap();
    assert_eq!(names.asked.load(Ordering::SeqCst), 1);
}

fn email(smtp: &str) -> Target {
    Target::Email {
        smtp: Secret::new(smtp),
        from: "Deadstop <deadstop@example.org>".into(),
        to: "a@example.org, Bob <b@example.org>".into(),
    }
}

#[tokio::test]
async fn a_mail_arrives_readable() {
    let listener = SmtpListener::start(&[]).await;
    let target = email(&format!("smtp://user:p%40ss@127.0.0.1:{}", listener.port));
    let receipt = sender().deliver(&target, &kill()).await.unwrap();
    assert_eq!(receipt.status, 250);
    let talk = listener.talk();
    assert!(talk.contains(&"MAIL FROM:<deadstop@example.org>".to_owned()), "{talk:?}");
    assert!(talk.contains(&"RCPT TO:<a@example.org>".to_owned()), "{talk:?}");
    assert!(talk.contains(&"RCPT TO:<b@example.org>".to_owned()), "{talk:?}");
    let mail = talk.join("\n");
    assert!(mail.contains("Subject: Deadstop: coder stopped (similarity)"), "{mail}");
    assert!(mail.contains("stopped: the agent repeats itself (score 12.5 of 10)"), "{mail}");
    assert!(mail.contains("Score:   12.5 of 10.0"), "{mail}");
    assert!(mail.contains("https://deadstop.example/incidents/1"), "{mail}");
}

#[tokio::test]
async fn no_name_adds_a_header_to_a_mail() {
    let listener = SmtpListener::start(&[]).await;
    let target = email(&format!("smtp://127.0.0.1:{}", listener.port));
    let mut message = kill();
    message.id = "x>\r\nBcc: <evil@example.org".into();
    message.agent = Some("x\r\nBcc: evil@example.org\r\n\r\nHello".into());
    message.sentence = "a\r\n.\r\nRCPT TO:<evil@example.org>\r\n".into();
    sender().deliver(&target, &message).await.unwrap();
    let talk = listener.talk();
    assert!(!talk.iter().any(|line| line.starts_with("Bcc")), "{talk:?}");
    assert_eq!(talk.iter().filter(|line| line.starts_with("RCPT TO:<evil")).count(), 1);
    let data = talk.iter().position(|line| line == "DATA").unwrap();
    let evil = talk.iter().position(|line| line.starts_with("RCPT TO:<evil")).unwrap();
    assert!(evil > data, "it is text, not a command");
    for (from, to) in [("a@b.org\r\nBcc: x@y.org", "a@b.org"), ("a@b.org", "a@b.org>\nRCPT TO:<x")]
    {
        let target = Target::Email {
            smtp: Secret::new("smtp://127.0.0.1"),
            from: from.into(),
            to: to.into(),
        };
        assert!(target.validate().is_err());
    }
}

#[tokio::test]
async fn mail_servers_may_say_no_now_or_for_good() {
    for (refusal, retry) in [("RCPT 451 later", true), ("RCPT 550 unknown", false)] {
        let listener = SmtpListener::start(&[refusal]).await;
        let target = email(&format!("smtp://127.0.0.1:{}", listener.port));
        let error = sender().deliver(&target, &kill()).await.unwrap_err();
        assert_eq!(error.retry(), retry, "{error}");
    }
    // One that says nothing, and one that does not stop talking.
    for (sender, behaviour, expected) in
        [(impatient(), "HANG", "no answer"), (sender(), "FLOOD", "too long")]
    {
        let listener = SmtpListener::start(&[behaviour]).await;
        let target = email(&format!("smtp://127.0.0.1:{}", listener.port));
        let error = sender.deliver(&target, &kill()).await.unwrap_err();
        assert!(error.retry() && error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn mail_goes_in_the_clear_to_the_own_machine_only() {
    let settings = Settings { allow_private: true, ..Settings::default() };
    let sender = Sender::with_resolver(&settings, Arc::new(Names::default())).unwrap();
    let error = sender.deliver(&email("smtp://10.0.0.1"), &kill()).await.unwrap_err();
    assert!(matches!(error, DeliveryError::Forbidden { .. }), "{error}");
    // A server that does not offer encryption does not get the mail without.
    let listener = SmtpListener::start(&[]).await;
    let target = email(&format!("smtp+starttls://127.0.0.1:{}", listener.port));
    assert!(sender.deliver(&target, &kill()).await.is_err());
    assert!(!listener.talk().iter().any(|line| line.starts_with("MAIL")));
}

#[test]
fn secrets_are_stored_but_not_shown() {
    for target in [
        webhook("https://h.org/hidden"),
        Target::Slack { url: Secret::new("https://hooks.slack.com/services/hidden") },
        email("smtps://user:hidden@mail.org"),
    ] {
        let shown = format!("{target:?} {}", target.summary());
        assert!(!shown.contains("hidden") && !shown.contains("whsec"), "{shown}");
        let stored = serde_json::to_string(&target).unwrap();
        assert!(stored.contains("hidden"));
        assert_eq!(serde_json::from_str::<Target>(&stored).unwrap(), target);
        target.validate().unwrap();
    }
    for url in ["", "x", "ftp://h/", "http://", "https://u:p@h/", "smtp://h"] {
        assert!(webhook(url).validate().is_err(), "{url}");
    }
}

/// A certificate for `hook.test`, and a server that shows it.
fn certificate() -> (Vec<u8>, TlsAcceptor) {
    let made = rcgen::generate_simple_self_signed(vec!["hook.test".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    (made.cert.der().to_vec(), TlsAcceptor::from(Arc::new(server)))
}

fn trusting(root: &[u8]) -> Sender {
    let mut trust = Trust::default();
    trust.add_der(root.to_vec());
    let settings = Settings { allow_private: true, trust, ..Settings::default() };
    Sender::with_resolver(&settings, Arc::new(Names::default())).unwrap()
}

#[tokio::test]
async fn certificates_are_checked() {
    let (root, tls) = certificate();
    for (sender, host, delivered) in [
        (trusting(&root), "hook.test", true),
        (trusting(&root), "rebinding.test", false),
        (trusting(&certificate().0), "hook.test", false),
        (sender(), "hook.test", false),
    ] {
        let listener = HttpListener::start_with(vec![Reply::status(200)], Some(tls.clone())).await;
        let target = webhook(&listener.secure_url(host, "/"));
        match sender.deliver(&target, &kill()).await {
            Ok(_) => assert!(delivered, "{host}"),
            Err(error) => assert!(!delivered && error.retry(), "{host}: {error}"),
        }
        let listener = SmtpListener::start_with(&[], Tls::AtOnce(tls.clone())).await;
        let target = email(&format!("smtps://u:p@{host}:{}", listener.port));
        assert_eq!(sender.deliver(&target, &kill()).await.is_ok(), delivered, "{host}");
        let listener = SmtpListener::start_with(&[], Tls::OnDemand(tls.clone())).await;
        let target = email(&format!("smtp+starttls://u:p@{host}:{}", listener.port));
        let sent = sender.deliver(&target, &kill()).await;
        assert_eq!(sent.is_ok(), delivered, "{host}: {sent:?}");
        let talk = listener.talk();
        assert_eq!(talk.iter().any(|line| line.starts_with("AUTH")), delivered, "{talk:?}");
    }
}

#[tokio::test]
async fn a_redirect_does_not_lead_out_of_encryption() {
    let (root, tls) = certificate();
    let redirect = Reply::status(308).header("location", "http://hook.test/");
    let listener = HttpListener::start_with(vec![redirect], Some(tls)).await;
    let target = webhook(&listener.secure_url("hook.test", "/"));
    let error = trusting(&root).deliver(&target, &kill()).await.unwrap_err();
    assert!(matches!(error, DeliveryError::Redirect(_)), "{error}");
}
