//! What reading a stream costs. Run with `--release -- --nocapture speed` to see figures that mean
//! something; the bound that is checked leaves room for a debug build on a busy machine.

use std::time::{Duration, Instant};

use super::*;

/// The best of many runs over a stream in parts of one event each.
fn measure(name: &str, dialect: Dialect, hide_usage: bool, events: &[String]) -> Duration {
    let once = || {
        let mut reader = Reader::new(dialect, Form::Events, hide_usage);
        let mut pieces = Vec::new();
        let start = Instant::now();
        for event in events {
            reader.push(event.as_bytes(), &mut pieces);
            pieces.clear();
        }
        reader.finish(&mut pieces);
        start.elapsed()
    };
    let mut runs: Vec<Duration> = (0..100).map(|_| once()).collect();
    runs.sort_unstable();
    let bytes: usize = events.iter().map(String::len).sum();
    let (best, median) = (runs[0], runs[runs.len() / 2]);
    eprintln!("{name}: {} events, {bytes} bytes: best {best:?}, median {median:?}", events.len());
    best
}

#[test]
fn two_hundred_events_are_cheap() {
    let chat = |at: usize| {
        format!(
            "data: {{\"id\":\"chatcmpl-CQx7Zr3nY5dD1v2wHk\",\"object\":\"chat.completion.chunk\",\"created\":1760000000,\"model\":\"gpt-4o-2024-08-06\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_cbf1785567\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" word{at}\"}},\"logprobs\":null,\"finish_reason\":null}}],\"usage\":null,\"obfuscation\":\"aB3dE5\"}}\n\n"
        )
    };
    let responses = |at: usize| {
        format!(
            "event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\"sequence_number\":{at},\"item_id\":\"msg_68e0f0a1b2c3d4e5f60718293a4b5c6d\",\"output_index\":0,\"content_index\":0,\"delta\":\" word{at}\",\"logprobs\":[],\"obfuscation\":\"aB3dE5\"}}\n\n"
        )
    };
    let anthropic = |at: usize| {
        format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\" word{at}\"}}}}\n\n"
        )
    };
    let gemini = |at: usize| {
        format!(
            "data: {{\"candidates\": [{{\"content\": {{\"parts\": [{{\"text\": \" word{at}\"}}],\"role\": \"model\"}},\"index\": 0}}],\"usageMetadata\": {{\"promptTokenCount\": 8,\"candidatesTokenCount\": {at},\"totalTokenCount\": 900,\"promptTokensDetails\": [{{\"modality\": \"TEXT\",\"tokenCount\": 8}}],\"thoughtsTokenCount\": 700}},\"modelVersion\": \"gemini-2.5-flash\",\"responseId\": \"o1LlaPmfLsqb\"}}\r\n\r\n"
        )
    };
    let streams: [(&str, Dialect, bool, Vec<String>); 5] = [
        ("chat", Dialect::OpenAiChat, false, (0..200).map(chat).collect()),
        ("chat, usage hidden", Dialect::OpenAiChat, true, (0..200).map(chat).collect()),
        ("responses", Dialect::OpenAiResponses, false, (0..200).map(responses).collect()),
        ("anthropic", Dialect::Anthropic, false, (0..200).map(anthropic).collect()),
        ("gemini", Dialect::Gemini, false, (0..200).map(gemini).collect()),
    ];
    let bound = Duration::from_micros(if cfg!(debug_assertions) { 15_000 } else { 300 });
    let best = streams.map(|(name, dialect, hide_usage, events)| {
        (name, measure(name, dialect, hide_usage, &events))
    });
    for (name, best) in best {
        assert!(best < bound, "{name}: {best:?}");
    }
}
