//! What models charge: the operator's own table, then a catalogue, then a cautious guess.
//!
//! The catalogue is the data inside the `genai-prices` crate, so that no price is looked up over
//! the network and two nodes of one version agree. An unknown model is charged
//! [`Rates::FALLBACK`] and not nothing: a name with a typo in it must not switch a budget off.
//!
//! # Which price
//! - Prices are those of [`Dated::date`], at noon UTC. This crate reads no clock, so a price that
//!   the catalogue announces for later comes with the release that knows it has begun.
//! - [`Prices::price`] gives the standard price for a short prompt, to estimate with. What an answer
//!   really costs is [`Prices::bill`]: by the model that the answer names, with the tier of long
//!   prompts, the service tier, the lifetime of what was cached, sound, pictures and searches.
//!   Where cache rates are missing, the input rate stands in.
//! - A provider's own terms ([`Terms`]) come before all of that: free, a factor, own prices.
//! - A price of nothing is only believed if the name ends in `:free`. The catalogue also has
//!   zeros where a provider charges by the hour, the page or the seat.
//!
//! # Which name
//! A name is tried as it is, with its first part as the provider (`openai/gpt-4o`), and without
//! the parts in front (`models/gemini-2.5-pro`); then the same again with the last part after a
//! `-`, `:`, `@` or `_` left out, so that the longest name that is known wins. Cloud regions
//! (`us.anthropic.claude-…`) are the catalogue's business first, and left out if it does not know.

mod bill;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use deadstop_core::{NanoUsd, Rates, Tokens};
use genai_prices::{Calculator, PriceRequest, UsageKey};

/// Names come from outside, so there may be any number of them: so many are remembered.
const REMEMBERED: usize = 1024;

/// Longest name of a model; the rest of a longer one is ignored.
const MAX_NAME: usize = 256;

/// How many parts of a name are left out, at each end, before it counts as unknown.
const MAX_TRIMS: usize = 8;

/// Noon of [`Dated::date`]. Around noon UTC no provider in the catalogue has a discount or a
/// surcharge for the time of day.
const PRICED_AT: Duration = Duration::from_secs(1_793_361_600);

/// The providers that a name without one is looked for at, after the one that it suggests.
const PROVIDERS: [&str; 3] = ["openai", "aws", "openrouter"];

/// A price, and where it was found.
type Known = (Price, Option<CatalogueEntry>);

/// What models charge.
#[derive(Debug)]
pub struct Prices {
    /// Lower case, the longest name first.
    own: Vec<(String, Rates)>,
    known: RwLock<HashMap<Box<str>, Known>>,
}

/// A model in the catalogue.
#[derive(Debug)]
struct Entry {
    /// Under which provider and name the catalogue knows it.
    provider: Option<String>,
    model: String,
    /// For prompts of fewer tokens the rates alone are the bill. To look the model up for every bill takes longer
    /// than all guards together.
    by_rates: u64,
}

type CatalogueEntry = Arc<Entry>;

/// What a model charges, and who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// The prices per million tokens.
    pub rates: Rates,
    /// Where they come from.
    pub source: PriceSource,
}

/// Where a price comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PriceSource {
    /// The operator's own table.
    Own,
    /// The built-in catalogue.
    Catalogue,
    /// The model is unknown: [`Rates::FALLBACK`]. Warn with [`fallback_warning`].
    Fallback,
}

/// Which catalogue is built in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dated {
    /// Where it comes from.
    pub source: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The day whose prices are used.
    pub date: &'static str,
}

impl Prices {
    /// The built-in catalogue alone. It is unpacked at once, which takes some tens of
    /// milliseconds, so that no call has to wait for it later.
    ///
    /// ```
    /// use deadstop_core::NanoUsd;
    /// use deadstop_protocol::prices::{PriceSource, Prices};
    ///
    /// let price = Prices::builtin().price("gpt-4o");
    /// assert_eq!(price.source, PriceSource::Catalogue);
    /// assert_eq!(price.rates.input, NanoUsd(2_500_000_000)); // $2.50
    /// ```
    pub fn builtin() -> Prices {
        let _ = Calculator::bundled();
        Prices { own: Vec::new(), known: RwLock::default() }
    }

    /// Puts the operator's own prices on top. A name also prices the models whose names go on
    /// after it (`gpt-4o` also `gpt-4o-mini` and `azure/gpt-4o`, not `gpt-4omni`), unless a longer
    /// name in the table does. Between two entries of one name, the later counts.
    pub fn with_own(self, own: impl IntoIterator<Item = (String, Rates)>) -> Prices {
        let mut table = self.own;
        for (name, rates) in own {
            let name = name.trim().to_lowercase();
            table.retain(|(known, _)| *known != name);
            table.push((name, rates));
        }
        table.retain(|(name, _)| !name.is_empty());
        table.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        Prices { own: table, known: RwLock::default() }
    }

    /// What a model charges. Cheap for a name that was asked for before.
    pub fn price(&self, model: &str) -> Price {
        self.found(model).0
    }

    fn found(&self, model: &str) -> (Price, Option<CatalogueEntry>) {
        let model = &model[..model.floor_char_boundary(MAX_NAME)];
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(model) {
            return found.clone();
        }
        drop(known);
        let found = self.look_up(&model.trim().to_lowercase());
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(model.into(), found.clone());
        found
    }

    /// Which catalogue is built in, for a person who wonders about a price.
    pub fn dated(&self) -> Dated {
        Dated { source: "genai-prices", version: "0.2.1", date: "2026-10-30" }
    }

    fn look_up(&self, model: &str) -> (Price, Option<CatalogueEntry>) {
        if let Some((_, rates)) = self.own.iter().find(|(name, _)| prices_too(name, model)) {
            return (Price { rates: *rates, source: PriceSource::Own }, None);
        }
        match in_catalogue(model) {
            Some((rates, place)) => (Price { rates, source: PriceSource::Catalogue }, Some(place)),
            None => (Price { rates: Rates::FALLBACK, source: PriceSource::Fallback }, None),
        }
    }
}

pub use bill::{Bill, Terms};

impl Default for Prices {
    fn default() -> Prices {
        Prices::builtin()
    }
}

/// The longest answer that a model can give, for families whose providers name it. Others may
/// write as long as they like.
pub fn longest_output(model: &str) -> Option<Tokens> {
    const FAMILIES: [(&str, u64); 9] = [
        ("gpt-4o", 16_384),
        ("gpt-4.1", 32_768),
        ("gpt-4-turbo", 4_096),
        ("gpt-3.5-turbo", 4_096),
        ("gpt-5", 128_000),
        ("o1", 100_000),
        ("o3", 100_000),
        ("o4-mini", 100_000),
        ("gemini-2.5", 65_536),
    ];
    let name = model.rsplit('/').next().unwrap_or(model);
    let fits = FAMILIES.iter().filter(|(family, _)| name.starts_with(family));
    fits.max_by_key(|(family, _)| family.len()).map(|(_, most)| Tokens(*most))
}

/// What to log when a model was charged at [`Rates::FALLBACK`].
///
/// ```
/// use deadstop_core::NanoUsd;
/// use deadstop_protocol::prices::fallback_warning;
///
/// assert_eq!(
///     fallback_warning("my-custom-model", NanoUsd(4_200_000)),
///     "budget.unknown_model_cost_estimated model_id=my-custom-model \
///      estimated_cost_usd=0.004200 \
///      hint=\"Add this model to pricing_table= to get accurate cost tracking\""
/// );
/// ```
pub fn fallback_warning(model: &str, estimated: NanoUsd) -> String {
    let model = &model[..model.floor_char_boundary(MAX_NAME)];
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '=');
    // A name from outside must not be able to write a second line or a field of its own.
    let model = match model {
        "" => "\"\"".to_owned(),
        name if name.chars().all(plain) => name.to_owned(),
        name => format!("{name:?}"),
    };
    let micros = estimated.0.saturating_add(500) / 1000;
    format!(
        "budget.unknown_model_cost_estimated model_id={model} estimated_cost_usd={}.{:06} \
         hint=\"Add this model to pricing_table= to get accurate cost tracking\"",
        micros / 1_000_000,
        micros % 1_000_000
    )
}

/// Whether an own name prices a model: it is the beginning of the model's name, with or without
/// the provider in front, and ends where a part of it ends.
fn prices_too(name: &str, model: &str) -> bool {
    let starts = std::iter::once(0).chain(model.match_indices('/').map(|(at, _)| at + 1));
    starts
        .filter_map(|start| model[start..].strip_prefix(name))
        .any(|rest| rest.is_empty() || rest.starts_with(SEPARATORS) || name.ends_with(SEPARATORS))
}

const SEPARATORS: [char; 5] = ['-', ':', '@', '_', '/'];

/// The rates of the longest beginning of a name that the catalogue knows.
fn in_catalogue(model: &str) -> Option<(Rates, CatalogueEntry)> {
    let mut name = model;
    for _ in 0..=MAX_TRIMS {
        if let Some(found) = exactly(name) {
            return Some(found);
        }
        let (shorter, last) = name.split_at(name.rfind(SEPARATORS)?);
        if last.starts_with('/') {
            // What is in front of a slash is the provider, which alone is no model.
            return None;
        }
        name = shorter;
    }
    None
}

/// The rates for a name without anything left out at its end.
fn exactly(name: &str) -> Option<(Rates, CatalogueEntry)> {
    let mut rest = name;
    for _ in 0..MAX_TRIMS {
        let Some((provider, model)) = rest.split_once('/') else { break };
        if let Some(found) = found_at(Some(provider), model).or_else(|| anywhere(rest)) {
            return Some(found);
        }
        rest = model;
    }
    // `us.anthropic.claude-…`: the region and the maker, as Amazon writes them.
    let makers = rest.rsplit_once('.').filter(|(front, _)| front.ends_with("anthropic"));
    anywhere(rest).or_else(|| makers.and_then(|(_, model)| anywhere(model)))
}

fn anywhere(name: &str) -> Option<(Rates, CatalogueEntry)> {
    found_at(None, name).or_else(|| PROVIDERS.iter().find_map(|p| found_at(Some(p), name)))
}

fn found_at(provider: Option<&str>, model: &str) -> Option<(Rates, CatalogueEntry)> {
    let rates = rates_at(provider, model)?;
    let (provider, model) = (provider.map(str::to_owned), model.to_owned());
    let by_rates = bill::by_rates(provider.as_deref(), &model, &rates);
    Some((rates, Arc::new(Entry { provider, model, by_rates })))
}

fn rates_at(provider: Option<&str>, model: &str) -> Option<Rates> {
    if model.is_empty() {
        return None;
    }
    let (input, output) =
        cost(provider, model, &[UsageKey::INPUT_TOKENS, UsageKey::OUTPUT_TOKENS])?;
    let cached = |kind| {
        let cost = cost(provider, model, &[UsageKey::INPUT_TOKENS, kind]);
        cost.map_or(input, |(cached, _)| cached)
    };
    let rates = Rates {
        input,
        output,
        cache_read: cached(UsageKey::CACHE_READ_TOKENS),
        cache_write: cached(UsageKey::CACHE_WRITE_TOKENS),
    };
    let charges = input > NanoUsd(0) || output > NanoUsd(0);
    (charges || model.ends_with(":free")).then_some(rates)
}

/// What a million tokens of each of these kinds cost, as input and as output. They are priced by
/// the thousand, which is too few to reach the tier of long prompts.
fn cost(provider: Option<&str>, model: &str, kinds: &[UsageKey]) -> Option<(NanoUsd, NanoUsd)> {
    const SAMPLE: f64 = 1000.0;
    let usage = kinds.iter().map(|kind| (kind.clone(), SAMPLE)).collect();
    let at: SystemTime = UNIX_EPOCH + PRICED_AT;
    let mut request = PriceRequest::new(model, &usage).with_timestamp(at);
    request.provider_id = provider;
    let price = Calculator::bundled().calculate(&request).ok()?;
    let per_million = |dollars: f64| NanoUsd::from_dollars(dollars * (1e6 / SAMPLE));
    Some((per_million(price.input_price)?, per_million(price.output_price)?))
}

#[cfg(test)]
mod tests;
