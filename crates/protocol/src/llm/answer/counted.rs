//! What a bill counts beside plain tokens: which model answered at which tier, what of the tokens
//! were sound or pictures, how long the cache keeps them, and how often was searched.

use serde_json::Value;

/// What an answer tells about its bill. Parts of tokens are parts of the totals in its usage.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counted {
    /// The model that answered.
    pub model: Option<String>,
    /// The service tier that it was served at: `flex`, `priority`, `batch`.
    pub tier: Option<String>,
    /// Of the tokens written to a cache, those that it keeps for an hour.
    pub cache_write_1h: u64,
    /// Of the input, tokens of sound.
    pub audio_input: u64,
    /// Of the input read from a cache, tokens of sound.
    pub audio_cached: u64,
    /// Of the output, tokens of sound.
    pub audio_output: u64,
    /// Of the input, tokens of pictures.
    pub image_input: u64,
    /// Of the output, tokens of pictures.
    pub image_output: u64,
    /// Searches of the web.
    pub searches: u64,
    /// Searches of stored files.
    pub file_searches: u64,
}

/// Bytes of a name beyond which it is none.
const LONGEST: usize = 200;

impl Counted {
    /// Whether nothing but the model is known: then tokens are all there is to bill.
    pub fn is_plain(&self) -> bool {
        let Counted { model: _, tier, cache_write_1h, searches, file_searches, .. } = self;
        let Counted { audio_input, audio_cached, audio_output, image_input, image_output, .. } =
            self;
        let sound = audio_input + audio_cached + audio_output;
        let more = cache_write_1h + searches + file_searches + sound + image_input + image_output;
        tier.is_none() && more == 0
    }

    /// The model that answered; the last one told counts.
    pub(super) fn named(&mut self, model: &str) {
        if !model.is_empty() && model.len() <= LONGEST && self.model.as_deref() != Some(model) {
            self.model = Some(model.to_owned());
        }
    }

    /// The tier that it was served at. What providers call their usual one is none.
    pub(super) fn served(&mut self, tier: &str) {
        let tier = tier.trim().to_ascii_lowercase();
        let usual = matches!(tier.as_str(), "" | "auto" | "default" | "standard" | "on_demand");
        if !usual && tier.len() <= LONGEST {
            self.tier = Some(tier);
        }
    }

    /// OpenAI's details of input and output.
    pub(super) fn openai(&mut self, input: Option<&Value>, output: Option<&Value>) {
        let of = |details: Option<&Value>, name: &str| details.map_or(0, |d| number(&d[name]));
        let cached = input.map_or(&Value::Null, |input| &input["cached_tokens_details"]);
        self.audio_input = self.audio_input.max(of(input, "audio_tokens"));
        self.image_input = self.image_input.max(of(input, "image_tokens"));
        self.audio_cached = self.audio_cached.max(number(&cached["audio_tokens"]));
        self.audio_output = self.audio_output.max(of(output, "audio_tokens"));
        self.image_output = self.image_output.max(of(output, "image_tokens"));
    }

    /// Anthropic's details: lifetimes of what was cached, tools that it ran itself.
    pub(super) fn anthropic(&mut self, cache: Option<&Value>, tools: Option<&Value>) {
        if let Some(cache) = cache {
            self.cache_write_1h =
                self.cache_write_1h.max(number(&cache["ephemeral_1h_input_tokens"]));
        }
        if let Some(tools) = tools {
            self.searches = self.searches.max(number(&tools["web_search_requests"]));
        }
    }

    /// Gemini's details: tokens by what they are.
    pub(super) fn gemini(&mut self, input: Option<&Value>, output: Option<&Value>) {
        let of = |details: Option<&Value>, wanted: &str| {
            let list = details.and_then(Value::as_array).into_iter().flatten();
            let fits = list.filter(|one| {
                one["modality"].as_str().is_some_and(|is| is.eq_ignore_ascii_case(wanted))
            });
            fits.map(|one| number(&one["tokenCount"])).sum::<u64>()
        };
        self.audio_input = self.audio_input.max(of(input, "AUDIO"));
        self.image_input = self.image_input.max(of(input, "IMAGE"));
        self.audio_output = self.audio_output.max(of(output, "AUDIO"));
        self.image_output = self.image_output.max(of(output, "IMAGE"));
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}
