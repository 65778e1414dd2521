//! Token counts in all the shapes that they are recorded in, brought to one.
//!
//! OpenAI counts cached tokens as a part of the prompt's; Anthropic puts the parts beside each
//! other. Taking one for the other counts tokens twice, or not at all.

use deadstop_core::{Tokens, Usage};
use serde::Deserialize;

use super::scalar::Scalar;

/// Tokens used, in any of the shapes they are written in.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Tally<'a> {
    // OpenAI: the cached tokens are a part of the prompt's.
    #[serde(borrow)]
    prompt_tokens: Scalar<'a>,
    completion_tokens: Scalar<'a>,
    prompt_tokens_details: Option<Details<'a>>,
    input_tokens_details: Option<Details<'a>>,
    // Anthropic: the parts stand beside each other.
    input_tokens: Scalar<'a>,
    output_tokens: Scalar<'a>,
    cache_read_input_tokens: Scalar<'a>,
    cache_creation_input_tokens: Scalar<'a>,
    // The short form of trace files, in Anthropic's manner.
    #[serde(rename = "in")]
    short_in: Scalar<'a>,
    #[serde(rename = "out")]
    short_out: Scalar<'a>,
    cache_r: Scalar<'a>,
    cache_w: Scalar<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details<'a> {
    #[serde(borrow)]
    cached_tokens: Scalar<'a>,
}

impl Tally<'_> {
    /// The same in disjoint parts; `None` if it has no figure at all.
    pub(super) fn usage(&self) -> Option<Usage> {
        let first = |fields: [&Scalar<'_>; 3]| fields.iter().find_map(|field| field.tokens());
        let none = Scalar::Nothing;
        let input = first([&self.input_tokens, &self.prompt_tokens, &self.short_in]);
        let output = first([&self.output_tokens, &self.completion_tokens, &self.short_out]);
        let read = first([&self.cache_read_input_tokens, &self.cache_r, &none]);
        let cache_write = first([&self.cache_creation_input_tokens, &self.cache_w, &none]);
        let details = self.prompt_tokens_details.as_ref().or(self.input_tokens_details.as_ref());
        let within = details.and_then(|details| details.cached_tokens.tokens());
        input.or(output).or(read).or(cache_write).or(within)?;
        let zero = Tokens::default();
        // Only OpenAI's cached tokens have to be taken out of the input they are counted in.
        let counted_in = if read.is_some() { zero } else { within.unwrap_or(zero) };
        Some(Usage {
            input: input.unwrap_or(zero) - counted_in,
            output: output.unwrap_or(zero),
            cache_read: read.unwrap_or(counted_in),
            cache_write: cache_write.unwrap_or(zero),
        })
    }
}
