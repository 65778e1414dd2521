//! How fast secrets are removed: `cargo run --release -p deadstop-redact --example redact`.
//!
//! Texts as they pass through a gateway, most of them without a secret, in MB/s on one core.

use std::time::Instant;

use deadstop_redact::Redactor;

const SIZE: usize = 8 << 20;
/// Texts that are made to take long: a matcher starts everywhere.
const HOSTILE: [&str; 14] = [
    "sk-",
    "eyJ",
    "eyJaaaaaaaaaa.",
    "://a:",
    "password=",
    "\"password\":",
    "token: a",
    "\\\"",
    "-----BEGIN PRIVATE KEY-----",
    "4111 ",
    "\\u00",
    "Bearer ",
    "basic YTpi",
    "[redacted:x]",
];

fn main() {
    let redactor = Redactor::default();
    let prose = "The agent read the file and found that the request had failed twice, so it tried \
                 another way: first the list of tasks, then the report of the week before. ";
    let code = "    pub fn admit(&mut self, call: &Call, now: Time) -> Result<Verdict, Error> {\n        \
                let state = self.states.get_mut(&call.scope)?;\n        state.steps += 1;\n";
    let message = serde_json::json!({ "role": "user", "content": code.repeat(3) }).to_string();
    let answer = serde_json::json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_731_657_600,
        "model": "m", "choices": [{ "index": 0, "delta": { "content": " word" } }],
        "usage": { "prompt_tokens": 1200, "completion_tokens": 35 },
    });
    let numbers = "[0.0123456,-0.4311,5.25,812,4004,31.5],";
    let secrets = r#"{"password":"hunter2","note":"nothing to see here at all, move on please"},"#;
    for (name, unit) in [
        ("prose", prose),
        ("code", code),
        ("JSON with code in strings", &message),
        ("chunks of an answer", &format!("data: {answer}\n\n")),
        ("lists of numbers", numbers),
        ("a secret every 80 bytes", secrets),
    ] {
        let text = unit.repeat(SIZE / unit.len());
        let started = Instant::now();
        let mut rounds = 0_u32;
        while started.elapsed().as_millis() < 700 {
            std::hint::black_box(redactor.redact(std::hint::black_box(&text)));
            rounds += 1;
        }
        let bytes = f64::from(rounds) * text.len() as f64;
        println!("{name:26} {:5.0} MB/s", bytes / started.elapsed().as_secs_f64() / 1e6);
    }
    println!("hostile texts, 4 and 8 MiB: twice the text must take twice the time");
    for unit in HOSTILE {
        let [half, whole] = [SIZE / 2, SIZE].map(|size| {
            let text = unit.repeat(size / unit.len());
            let once = |_| {
                let started = Instant::now();
                std::hint::black_box(redactor.redact(std::hint::black_box(&text)));
                started.elapsed().as_secs_f64()
            };
            (0..3).map(once).fold(f64::INFINITY, f64::min)
        });
        let speed = SIZE as f64 / whole / 1e6;
        println!("{unit:28} {speed:5.0} MB/s, {:.1} times as long", whole / half);
    }
}
