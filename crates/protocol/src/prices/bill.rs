//! Bills: what an answer has cost, by all that the provider tells about it.

use deadstop_core::{NanoUsd, Rates, Tokens, Usage};
use genai_prices::{Calculator, PriceRequest, UsageKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use super::{PRICED_AT, Price, PriceSource, Prices, prices_too};
use crate::llm::answer::counted::Counted;

/// What an answer has cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bill {
    /// How much.
    pub cost: NanoUsd,
    /// Where its prices come from.
    pub source: PriceSource,
    /// The model that was billed.
    pub model: String,
}

/// A provider's own terms.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Terms {
    /// Whether its models cost nothing: they run on one's own machines.
    pub free: bool,
    /// What the usual prices are multiplied with: 0.8 for a discount of 20 %.
    pub factor: Option<f64>,
    /// Dollars per million tokens of input and of output, by the model's name.
    pub models: BTreeMap<String, (f64, f64)>,
}

impl Terms {
    fn rates(&self, model: &str) -> Option<Rates> {
        let model = model.to_lowercase();
        let fits = self.models.iter().filter(|(name, _)| prices_too(&name.to_lowercase(), &model));
        let (_, (input, output)) = fits.max_by_key(|(name, _)| name.len())?;
        let input = NanoUsd::from_dollars(*input)?;
        let output = NanoUsd::from_dollars(*output)?;
        Some(Rates { input, output, cache_read: input, cache_write: input })
    }

    fn times(&self, cost: NanoUsd) -> NanoUsd {
        match self.factor.filter(|factor| *factor >= 0.0) {
            // Rounded up: nothing that costs becomes free.
            Some(factor) => NanoUsd((cost.0 as f64 * factor).ceil() as u64),
            None => cost,
        }
    }
}

impl Prices {
    /// What a model charges under a provider's terms, to estimate with.
    pub fn price_at(&self, terms: Option<&Terms>, model: &str) -> Price {
        if terms.is_some_and(|terms| terms.free) {
            return Price { rates: Rates::default(), source: PriceSource::Own };
        }
        if let Some(rates) = terms.and_then(|terms| terms.rates(model)) {
            return Price { rates, source: PriceSource::Own };
        }
        let mut price = self.price(model);
        if let Some(terms) = terms {
            let Rates { input, output, cache_read, cache_write } = &mut price.rates;
            [input, output, cache_read, cache_write].into_iter().for_each(|r| *r = terms.times(*r));
        }
        price
    }

    /// What an answer has cost. The model that it names is billed, unless only the one that was
    /// asked for is known.
    pub fn bill(
        &self,
        terms: Option<&Terms>,
        asked: &str,
        usage: &Usage,
        counted: &Counted,
    ) -> Bill {
        let answered = counted.model.as_deref().unwrap_or(asked);
        if terms.is_some_and(|terms| terms.free) {
            let (cost, source) = (NanoUsd(0), PriceSource::Own);
            return Bill { cost, source, model: answered.to_owned() };
        }
        for model in [asked, answered] {
            if let Some(rates) = terms.and_then(|terms| terms.rates(model)) {
                let (cost, source) = (rates.cost(usage), PriceSource::Own);
                return Bill { cost, source, model: model.to_owned() };
            }
        }
        // An own price for what was asked for is meant for it, whatever the provider calls it.
        let order = match self.price(asked).source {
            PriceSource::Own => [asked, answered],
            PriceSource::Catalogue | PriceSource::Fallback => [answered, asked],
        };
        let known = order.into_iter().find(|m| self.price(m).source != PriceSource::Fallback);
        let model = known.unwrap_or(asked);
        let (price, place) = self.found(model);
        let cost = place
            .filter(|entry| prompt(usage) >= entry.by_rates || !counted.is_plain())
            .and_then(|entry| catalogue(entry.provider.as_deref(), &entry.model, usage, counted))
            .unwrap_or_else(|| price.rates.cost(usage));
        let cost = terms.map_or(cost, |terms| terms.times(cost));
        Bill { cost, source: price.source, model: model.to_owned() }
    }
}

/// Tokens of a whole prompt.
fn prompt(usage: &Usage) -> u64 {
    usage.input.0 + usage.cache_read.0 + usage.cache_write.0
}

/// Prompts of fewer tokens are billed by a model's rates as they are by the catalogue: no other tier begins
/// before. 0 if the two differ for small prompts as well.
pub(super) fn by_rates(provider: Option<&str>, model: &str, rates: &Rates) -> u64 {
    let same = |tokens: u64| {
        let part = Tokens(tokens / 4);
        let [plain, read, written] =
            [(4, 0, 0), (2, 2, 0), (1, 2, 1)].map(|(input, read, write)| Usage {
                input: Tokens(part.0 * input),
                output: Tokens(tokens),
                cache_read: Tokens(part.0 * read),
                cache_write: Tokens(part.0 * write),
            });
        [plain, read, written].iter().all(|usage| {
            catalogue(provider, model, usage, &Counted::default())
                .is_none_or(|cost| cost == rates.cost(usage))
        })
    };
    [100_000, 30_000, 10_000, 1_000].into_iter().find(|tokens| same(*tokens)).unwrap_or_default()
}

/// The bill by the catalogue; `None` where it has no price for a part of it.
fn catalogue(
    provider: Option<&str>,
    model: &str,
    usage: &Usage,
    counted: &Counted,
) -> Option<NanoUsd> {
    let input = prompt(usage);
    let amounts = [
        (UsageKey::INPUT_TOKENS, input),
        (UsageKey::CACHE_READ_TOKENS, usage.cache_read.0),
        (UsageKey::CACHE_WRITE_TOKENS, usage.cache_write.0),
        (UsageKey::OUTPUT_TOKENS, usage.output.0),
        (UsageKey::CACHE_WRITE_1H_TOKENS, counted.cache_write_1h.min(usage.cache_write.0)),
        (UsageKey::INPUT_AUDIO_TOKENS, counted.audio_input.min(input)),
        (UsageKey::CACHE_AUDIO_READ_TOKENS, counted.audio_cached.min(usage.cache_read.0)),
        (UsageKey::OUTPUT_AUDIO_TOKENS, counted.audio_output.min(usage.output.0)),
        (UsageKey::INPUT_IMAGE_TOKENS, counted.image_input.min(input)),
        (UsageKey::OUTPUT_IMAGE_TOKENS, counted.image_output.min(usage.output.0)),
        (UsageKey::WEB_SEARCHES, counted.searches),
        (UsageKey::STORAGE_SEARCHES, counted.file_searches),
    ];
    let amounts = amounts.into_iter().filter(|(_, amount)| *amount > 0);
    let amounts = amounts.map(|(key, amount)| (key, amount as f64)).collect();
    let mut request = PriceRequest::new(model, &amounts).with_timestamp(UNIX_EPOCH + PRICED_AT);
    request.provider_id = provider;
    if let Some(tier) = counted.tier.as_deref() {
        let key = if tier == "batch" { "processing" } else { "service_tier" };
        request = request.with_price_context(key, tier);
    }
    let price = Calculator::bundled().calculate(&request).ok()?;
    // A bill is rounded up to the next nano-dollar, but not for the sake of a float's last digit.
    let nanos = (price.total_price * 1e9 - 1e-3).ceil();
    (nanos.is_finite() && nanos >= 0.0).then_some(NanoUsd(nanos as u64))
}

#[cfg(test)]
mod tests;
