//! The client against listeners that answer well, badly, late or not at all.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use deadstop_client::{Cancel, Client, ClientError, Key, Patience, Proposal, ProposedCall, Server};
use deadstop_core::Verdict;
use serde_json::json;

/// A listener that gives these answers, one for each request; a connection ends after as many
/// answers as its list has.
fn listener(connections: Vec<Vec<String>>) -> (Server, thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::at(format!("http://{}", listener.local_addr().unwrap()));
    let handle = thread::spawn(move || {
        let mut requests = Vec::new();
        for answers in connections {
            let (mut stream, _) = listener.accept().unwrap();
            for answer in answers {
                requests.push(request(&mut stream));
                stream.write_all(answer.as_bytes()).unwrap();
            }
        }
        requests
    });
    (server, handle)
}

fn request(stream: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).unwrap();
    head + &String::from_utf8(body).unwrap()
}

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

const ALLOWED: &str =
    r#"{"calls":[{"id":"t","allowed":true,"verdict":"allow","trips":[],"incident":null}]}"#;

fn propose(client: &Client) -> Result<Vec<deadstop_client::Decided>, ClientError> {
    let call = ProposedCall {
        id: "t".to_owned(),
        tool: "read".to_owned(),
        arguments: json!({ "path": "a" }),
        ..ProposedCall::default()
    };
    let scope = vec!["sub".to_owned()];
    client.propose("a b", "s/1", &Proposal { calls: vec![call], scope, hold_s: 0 })
}

#[test]
fn a_connection_is_kept_and_one_that_was_closed_is_opened_again() {
    let (mut server, seen) = listener(vec![
        vec![answer("200 OK", ALLOWED), answer("200 OK", ALLOWED)],
        vec![format!(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{}\r\n{:x}\r\n{}\r\n0\r\n\r\n",
            10,
            &ALLOWED[..10],
            ALLOWED.len() - 10,
            &ALLOWED[10..]
        )],
    ]);
    server.key = Some(Key::new("secret-key\n").unwrap());
    server.project = Some("p1".to_owned());
    assert!(!format!("{server:?}").contains("secret"));
    let client = Client::new(&server).unwrap();
    assert!(!format!("{client:?}").contains("secret"));
    for _ in 0..3 {
        let decided = propose(&client).unwrap();
        assert!(decided[0].allowed && decided[0].verdict == Verdict::Allow);
    }
    let seen = seen.join().unwrap();
    assert!(seen[0].starts_with("POST /api/sessions/a%20b/s%2F1/proposal HTTP/1.1\r\n"));
    for part in
        ["x-deadstop-key: secret-key\r\n", "x-deadstop-project: p1\r\n", r#""scope":["sub"]"#]
    {
        assert!(seen.iter().all(|request| request.contains(part)), "{part}: {seen:?}");
    }
}

#[test]
fn what_goes_wrong_is_told_apart() {
    let refusal = r#"{"type":"about:blank","title":"Forbidden","status":403,
        "code":"session_killed_loop_guard","detail":"session s was ended: enough","decision":null}"#;
    let unknown = r#"{"calls":[{"id":"t","allowed":false,"verdict":"ponder"}]}"#;
    for (given, expected) in [
        (answer("403 Forbidden", refusal), "death"),
        (answer("503 Busy", r#"{"status":503,"code":"store_failed","detail":"x"}"#), "refused"),
        (answer("200 OK", r#"{"calls":[]}"#), "malformed"),
        (answer("200 OK", "<html>"), "malformed"),
        (answer("404 Not Found", "no"), "malformed"),
        ("SSH-2.0-OpenSSH\r\n\r\n".to_owned(), "malformed"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{".to_owned(), "not reached"),
        (format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 1_u64 << 40), "malformed"),
        (answer("200 OK", unknown), "block"),
    ] {
        let (server, _seen) = listener(vec![vec![given.clone()]]);
        let got = match propose(&Client::new(&server).unwrap()) {
            Ok(decided) if decided[0].verdict == Verdict::Block => "block",
            Ok(_) => "allowed",
            Err(error) if error.death().is_some() => "death",
            Err(ClientError::Refused(_)) => "refused",
            Err(ClientError::Malformed(_)) => "malformed",
            Err(ClientError::NotReached { .. }) => "not reached",
            Err(_) => "something else",
        };
        assert_eq!(got, expected, "{given}");
    }
}

#[test]
fn a_server_that_does_not_answer_is_given_up_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let brief = Patience { connect: Duration::from_millis(50), answer: Duration::from_millis(50) };
    let client = Client::patient(&Server::at(&url), brief).unwrap();
    assert!(propose(&client).unwrap_err().to_string().ends_with("no answer in time"));
    drop(silent);
    let client = Client::patient(&Server::at(&url), brief).unwrap();
    let refused = propose(&client).unwrap_err();
    assert!(refused.is_not_reached());
    let source = std::error::Error::source(&refused).unwrap().downcast_ref::<std::io::Error>();
    assert_eq!(source.unwrap().kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_request_that_waits_for_a_hung_server_can_be_cancelled() {
    let hung = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", hung.local_addr().unwrap());
    let cancel = Cancel::default();
    let client = Client::new(&Server::at(&url)).unwrap().cancelled_by(&cancel);
    let began = std::time::Instant::now();
    let waiting = thread::spawn({
        let client = client.clone();
        move || propose(&client)
    });
    // The request has arrived, so it waits.
    let (mut stream, _) = hung.accept().unwrap();
    request(&mut stream);
    cancel.cancel();
    assert!(matches!(waiting.join().unwrap(), Err(ClientError::Cancelled)));
    assert!(began.elapsed() < Duration::from_secs(20), "it waited for its patience to end");
    assert!(matches!(propose(&client), Err(ClientError::Cancelled)));
}

/// A span goes along with each request, and what can be none cannot break one.
#[test]
fn a_span_goes_along() {
    let span = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let told = ALLOWED.replace("null}", &format!(r#"null,"traceparent":"{span}"}}"#));
    let (server, seen) = listener(vec![vec![answer("200 OK", &told); 4]]);
    let client = Client::new(&server).unwrap();
    let decided = propose(&client.in_trace(Some(span))).unwrap();
    assert_eq!(decided[0].traceparent.as_deref(), Some(span));
    let long = "0".repeat(100_000);
    for odd in [None, Some("00-a\r\nx-deadstop-key: b"), Some(long.as_str())] {
        propose(&client.in_trace(odd)).unwrap();
    }
    drop(client);
    let seen = seen.join().unwrap();
    assert!(seen[0].contains(&format!("\r\ntraceparent: {span}\r\n")), "{}", seen[0]);
    assert!(seen[1..].iter().all(|asked| !asked.contains("traceparent")), "{seen:?}");
}
