//! The tool calls that our reader sees in answers, for comparison with what clients see.
//!
//! A line of stdin is `{"dialect": "chat", "form": "text/event-stream", "cut": 7, "body": "…"}`: the body has a
//! character for each byte, and is read in pieces of `cut` bytes, as events or as one document. Each is answered with a line: `{"calls": [{"name",
//! "arguments"}]}`.

use std::io::{BufRead, Write};

use deadstop_protocol::llm::answer::{Form, Reader};
use deadstop_protocol::llm::{Dialect, Piece};
use serde_json::{Value, json};

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let asked: Value = serde_json::from_str(&line?).unwrap_or_default();
        let body = asked["body"].as_str().unwrap_or_default();
        let body: Vec<u8> = body.chars().map(|c| u8::try_from(c).unwrap_or(b'?')).collect();
        let dialect = match asked["dialect"].as_str() {
            Some("responses") => Dialect::OpenAiResponses,
            Some("anthropic") => Dialect::Anthropic,
            Some("gemini") => Dialect::Gemini,
            _ => Dialect::OpenAiChat,
        };
        let cut = usize::try_from(asked["cut"].as_u64().unwrap_or(1 << 20)).unwrap_or(1).max(1);
        let form = match asked["form"].as_str() {
            Some("application/json") => Form::Json,
            _ => Form::Events,
        };
        let calls = calls(dialect, form, &body, cut);
        writeln!(out, "{}", json!({ "calls": calls }))?;
        out.flush()?;
    }
    Ok(())
}

fn calls(dialect: Dialect, form: Form, body: &[u8], cut: usize) -> Vec<Value> {
    let mut reader = Reader::new(dialect, form, false);
    reader.hold_calls();
    let mut pieces = Vec::new();
    for part in body.chunks(cut) {
        reader.push(part, &mut pieces);
    }
    reader.finish(&mut pieces);
    let call = |piece: Piece| match piece {
        Piece::ToolCall { name, arguments, .. } => {
            Some(json!({ "name": name, "arguments": arguments }))
        }
        _ => None,
    };
    pieces.into_iter().filter_map(call).collect()
}
