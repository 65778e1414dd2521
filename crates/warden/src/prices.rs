//! What a project's models cost where the built-in catalogue does not know, or knows it wrong: own
//! prices, one a model, kept among the project's settings.

use std::collections::BTreeMap;

use deadstop_core::{NanoUsd, Rates};
use deadstop_protocol::policy_views::FieldFault;
use deadstop_protocol::prices::Prices;
use deadstop_store::Setting;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What the names of these settings begin with; the model follows.
const PREFIX: &str = "price:";

/// An own price, in dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OwnPrice {
    /// Input.
    #[schema(minimum = 0, maximum = 1_000_000)]
    pub input_usd: f64,
    /// Output.
    #[schema(minimum = 0, maximum = 1_000_000)]
    pub output_usd: f64,
    /// Input that is read from a cache; null for as much as input.
    #[schema(required, minimum = 0, maximum = 1_000_000)]
    pub cache_read_usd: Option<f64>,
    /// Input that is written to a cache; null for as much as input.
    #[schema(required, minimum = 0, maximum = 1_000_000)]
    pub cache_write_usd: Option<f64>,
}

impl OwnPrice {
    /// As it is charged.
    pub fn rates(&self) -> Result<Rates, Vec<FieldFault>> {
        let mut faults = Vec::new();
        let mut read = |field: &str, dollars: f64| {
            NanoUsd::from_dollars(dollars).unwrap_or_else(|| {
                let hint = "write dollars per million tokens, 0 or more";
                faults.push(FieldFault::invalid(field, hint));
                NanoUsd(0)
            })
        };
        let rates = Rates {
            input: read("input_usd", self.input_usd),
            output: read("output_usd", self.output_usd),
            cache_read: read("cache_read_usd", self.cache_read_usd.unwrap_or(self.input_usd)),
            cache_write: read("cache_write_usd", self.cache_write_usd.unwrap_or(self.input_usd)),
        };
        if faults.is_empty() { Ok(rates) } else { Err(faults) }
    }
}

/// The name of the setting that holds a model's own price.
pub fn setting_name(model: &str) -> String {
    format!("{PREFIX}{}", model.trim().to_lowercase())
}

/// The model whose price a setting holds, if it holds one.
pub fn model_of(setting: &Setting) -> Option<&str> {
    setting.name.strip_prefix(PREFIX)
}

/// The prices of a project: its own on top of the catalogue.
pub fn in_force<'a>(settings: impl IntoIterator<Item = &'a Setting>) -> Prices {
    let mut own = BTreeMap::new();
    for setting in settings {
        let Some(model) = model_of(setting) else { continue };
        let price: Option<OwnPrice> = serde_json::from_str(&setting.value).ok();
        match price.and_then(|price| price.rates().ok()) {
            Some(rates) => drop(own.insert(model.to_owned(), rates)),
            None => tracing::error!(project = setting.project, model, "bad price"),
        }
    }
    Prices::builtin().with_own(own)
}
