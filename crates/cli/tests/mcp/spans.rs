//! A call's span on stdio: there are no headers, so the server reads it in the message. Where calls are not
//! exported, each line passes as it came (`fidelity` has thousands of them).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{self, Receiver};

use deadstop_otlp::Format;
use serde_json::{Value, json};

use crate::{Client, call, server, wrapper};

const CHILD: &str = "DEADSTOP_TEST_ECHO";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// Only a server when it is started as one: it answers with the lines that it hears.
#[test]
fn plays_an_echo() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let asked: Value = serde_json::from_str(&line).unwrap();
        let content = json!([{ "type": "text", "text": line }]);
        let answer =
            json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "content": content } });
        writeln!(out, "{answer}").unwrap();
    }
    std::process::exit(0);
}

/// A collector: gives the bodies that it is sent.
fn collector() -> (String, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (told, bodies) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let told = told.clone();
            std::thread::spawn(move || {
                let mut answers = stream.try_clone().unwrap();
                let mut stream = BufReader::new(stream);
                loop {
                    let mut length = 0;
                    let mut is_traces = false;
                    loop {
                        let mut line = String::new();
                        if stream.read_line(&mut line).unwrap_or_default() == 0 {
                            return;
                        }
                        let line = line.trim().to_ascii_lowercase();
                        is_traces |= line.starts_with("post /v1/traces");
                        if let Some(said) = line.strip_prefix("content-length:") {
                            length = said.trim().parse().unwrap();
                        }
                        if line.is_empty() {
                            break;
                        }
                    }
                    let mut body = vec![0; length];
                    stream.read_exact(&mut body).unwrap();
                    if is_traces && told.send(body).is_err() {
                        return;
                    }
                    answers.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
                }
            });
        }
    });
    (url, bodies)
}

/// The line that the server heard.
fn heard(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap()
}

#[test]
fn the_server_reads_our_span_in_the_message() {
    let folder = tempfile::tempdir().unwrap();
    let (url, bodies) = collector();
    let config = format!("[telemetry]\notlp_endpoint = \"{url}\"\n");
    std::fs::write(folder.path().join("deadstop.toml"), config).unwrap();
    let server = server::Server::start(folder.path());
    let program = std::env::current_exe().unwrap().display().to_string();
    let child = [program.as_str(), "--exact", "spans::plays_an_echo", "--nocapture"];
    let mut command = wrapper(folder.path(), Some(&server.url), &child);
    command.env(CHILD, "1");
    let mut client = Client::start(command);
    // What the test program says before it begins.
    for _ in 0..2 {
        client.line();
    }
    let mut expected = Vec::new();

    let plain = call(1, "read", json!({ "path": "a" }));
    client.send(plain.to_string().as_bytes());
    let answer = client.message();
    let mut line: Value = serde_json::from_str(heard(&answer)).unwrap();
    let parent = line["params"]["_meta"]["traceparent"].take();
    expected.push(parent.as_str().unwrap().to_owned());
    line["params"].as_object_mut().unwrap().remove("_meta");
    assert_eq!(line, plain, "nothing else changes");

    let said = format!("00-{TRACE}-{PARENT}-01");
    let mut named = call(2, "read", json!({ "path": "b" }));
    named["params"]["_meta"] = json!({ "traceparent": said, "tracestate": "x=1" });
    client.send(named.to_string().as_bytes());
    let answer = client.message();
    let line: Value = serde_json::from_str(heard(&answer)).unwrap();
    let parent = line["params"]["_meta"]["traceparent"].as_str().unwrap().to_owned();
    assert_eq!(heard(&answer), named.to_string().replace(&said, &parent));
    assert_eq!(&parent[3..35], TRACE);
    expected.push(parent);

    // Its client does not record this trace, so neither do we.
    named["id"] = json!(3);
    named["params"]["_meta"]["traceparent"] = json!(format!("00-{TRACE}-{PARENT}-00"));
    client.send(named.to_string().as_bytes());
    assert_eq!(heard(&client.message()), named.to_string());
    client.close();

    // A span of each call, and its id is the one that the server has heard. Its parent stands in the
    // bytes as it is: nothing else has that id.
    let mut ids = Vec::new();
    let mut bytes = Vec::new();
    while ids.len() < expected.len() {
        let body = bodies.recv_timeout(crate::PATIENCE).unwrap();
        let calls = deadstop_otlp::traces(&body, Format::Protobuf).unwrap().calls;
        ids.extend(calls.into_iter().map(|call| call.id));
        bytes.extend(body);
    }
    let told: Vec<String> = expected.iter().map(|parent| parent[3..52].replace('-', "")).collect();
    assert_eq!(ids, told);
    let around = u64::from_str_radix(PARENT, 16).unwrap().to_be_bytes();
    assert!(bytes.windows(8).any(|part| part == around), "the client's span around ours");
}
