//! A provider that the tests of several programs share: it answers whatever it is asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A provider that answers each call with a tool call.
pub(crate) struct Provider {
    pub(crate) port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Provider {
    /// `arguments` gets the number of the call in place of `#`.
    pub(crate) fn start(arguments: &'static str) -> Provider {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = Arc::clone(&seen);
                thread::spawn(move || serve(stream, arguments, &seen));
            }
        });
        Provider { port, heads }
    }

    /// Method, path and headers of every request.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

fn serve(stream: TcpStream, arguments: &str, seen: &Mutex<Vec<String>>) {
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if !reader.read_line(&mut head).is_ok_and(|read| read > 0) {
                return;
            }
        }
        let head = head.to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        reader.read_exact(&mut body).unwrap();
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.push(head);
            seen.len()
        };
        let arguments = arguments.replace('#', &number.to_string()).replace('"', "\\\"");
        let answer = format!(
            r#"{{"id":"x","object":"chat.completion","model":"gpt-4o","choices":[{{"index":0,
            "finish_reason":"tool_calls","message":{{"role":"assistant","content":null,
            "tool_calls":[{{"id":"call-{number}","type":"function","function":
            {{"name":"look_up","arguments":"{arguments}"}}}}]}}}}],
            "usage":{{"prompt_tokens":1000,"completion_tokens":1000,"total_tokens":2000}}}}"#
        );
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ";
        let sent = write!(writer, "{head}{}\r\n\r\n{answer}", answer.len());
        if sent.and_then(|()| writer.flush()).is_err() {
            return;
        }
    }
}
