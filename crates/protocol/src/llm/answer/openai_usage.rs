//! Usage as OpenAI counts it, brought into disjoint parts; and as others count it in its name.

use deadstop_core::{Tokens, Usage};
use serde::Deserialize;
use serde_json::Value;

use super::counted::Counted;
use super::lenient::{Count, count, tree};

/// Usage as OpenAI counts it, in chat (`prompt_…`) and in responses (`input_…`).
#[derive(Deserialize)]
pub(super) struct OpenAiUsage {
    prompt_tokens: Option<Count>,
    completion_tokens: Option<Count>,
    input_tokens: Option<Count>,
    output_tokens: Option<Count>,
    total_tokens: Option<Count>,
    prompt_cache_hit_tokens: Option<Count>,
    #[serde(default, deserialize_with = "tree")]
    prompt_tokens_details: Option<Value>,
    #[serde(default, deserialize_with = "tree")]
    input_tokens_details: Option<Value>,
    #[serde(default, deserialize_with = "tree")]
    completion_tokens_details: Option<Value>,
    #[serde(default, deserialize_with = "tree")]
    output_tokens_details: Option<Value>,
}

impl OpenAiUsage {
    /// In disjoint parts: cached tokens are a part of the prompt's, reasoning is a part of the
    /// answer's.
    pub(super) fn disjoint(&self) -> Usage {
        let prompt = count(self.prompt_tokens.or(self.input_tokens));
        let mut output = count(self.completion_tokens.or(self.output_tokens));
        let details = self.prompt_tokens_details.as_ref().or(self.input_tokens_details.as_ref());
        let detail = |details: Option<&Value>, name: &str| details.and_then(|d| d[name].as_u64());
        let cached = detail(details, "cached_tokens").or(self.prompt_cache_hit_tokens.map(|n| n.0));
        let cache_read = cached.unwrap_or(0).min(prompt);
        let cache_write =
            detail(details, "cache_write_tokens").unwrap_or(0).min(prompt - cache_read);
        // xAI and Gemini's compatible API count reasoning beside the answer; the total shows it.
        let reasoning = detail(self.completion_tokens_details.as_ref(), "reasoning_tokens");
        let beside = output.saturating_add(reasoning.unwrap_or(0));
        if count(self.total_tokens) == prompt.saturating_add(beside) {
            output = beside;
        }
        Usage {
            input: Tokens(prompt - cache_read - cache_write),
            output: Tokens(output),
            cache_read: Tokens(cache_read),
            cache_write: Tokens(cache_write),
        }
    }

    /// Tells what of it is sound or pictures.
    pub(super) fn details(&self, counted: &mut Counted) {
        let input = self.prompt_tokens_details.as_ref().or(self.input_tokens_details.as_ref());
        let output =
            self.completion_tokens_details.as_ref().or(self.output_tokens_details.as_ref());
        counted.openai(input, output);
    }

    /// Whether the answer's tokens are among the figures.
    pub(super) fn has_output(&self) -> bool {
        self.completion_tokens.is_some() || self.output_tokens.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn usage_is_split_into_disjoint_parts() {
        let check = |usage: Value, expected: [u64; 4]| {
            let read: OpenAiUsage = serde_json::from_value(usage.clone()).unwrap();
            let read = read.disjoint();
            let parts = [read.input, read.output, read.cache_read, read.cache_write];
            assert_eq!(parts.map(|tokens| tokens.0), expected, "{usage}");
        };
        check(
            json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}),
            [10, 5, 0, 0],
        );
        check(
            json!({"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150,
                   "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 0},
                   "completion_tokens_details": {"reasoning_tokens": 40}}),
            [36, 50, 64, 0],
        );
        // OpenRouter: writes to a cache are part of the prompt as well.
        check(
            json!({"prompt_tokens": 100, "completion_tokens": 5,
                   "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30}}),
            [10, 5, 60, 30],
        );
        // DeepSeek's own field.
        check(
            json!({"prompt_tokens": 20, "completion_tokens": 5, "prompt_cache_hit_tokens": 16}),
            [4, 5, 16, 0],
        );
        // xAI: reasoning is beside the completion, which only the total shows.
        check(
            json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 115,
                   "completion_tokens_details": {"reasoning_tokens": 100}}),
            [10, 105, 0, 0],
        );
        check(
            json!({"input_tokens": 30, "output_tokens": 7,
                   "input_tokens_details": {"cached_tokens": 10}}),
            [20, 7, 10, 0],
        );
        // Nonsense does not wrap around.
        check(
            json!({"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 9}}),
            [0, 0, 1, 0],
        );
    }
}
