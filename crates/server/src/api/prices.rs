//! Prices of models: the project's own, and those of the catalogue for what it has used.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use deadstop_core::Rates;
use deadstop_protocol::prices::{Price, PriceSource};
use deadstop_store::{CostBy, CostFilter, Setting, Store};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::auth::Who;
use super::extract::{Asked, At, Body, Name, Strict};
use super::problem::{Code, Problem};
use deadstop_warden::prices::{OwnPrice, in_force, model_of, setting_name};
use deadstop_warden::{Project, now};

impl Strict for OwnPrice {}

/// What a model costs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PriceLine {
    /// The model.
    model: String,
    /// Where the price comes from: `own`, `catalogue`, or `fallback` if the model is unknown.
    source: &'static str,
    /// Dollars per million tokens of input.
    input_usd: f64,
    /// Of output.
    output_usd: f64,
    /// Of input that is read from a cache.
    cache_read_usd: f64,
    /// Of input that is written to a cache.
    cache_write_usd: f64,
    /// When an own price was set.
    #[schema(required)]
    changed_ms: Option<u64>,
    /// By whom.
    #[schema(required)]
    who: Option<String>,
    /// Calls of it so far; 0 if it was never used.
    calls: u64,
    /// Dollars that they came to, at the prices of their time.
    cost_usd: f64,
}

impl PriceLine {
    fn of(model: &str, price: Price) -> PriceLine {
        let Rates { input, output, cache_read, cache_write } = price.rates;
        PriceLine {
            model: model.to_owned(),
            source: match price.source {
                PriceSource::Own => "own",
                PriceSource::Catalogue => "catalogue",
                PriceSource::Fallback => "fallback",
            },
            input_usd: input.dollars(),
            output_usd: output.dollars(),
            cache_read_usd: cache_read.dollars(),
            cache_write_usd: cache_write.dollars(),
            changed_ms: None,
            who: None,
            calls: 0,
            cost_usd: 0.0,
        }
    }
}

/// What models cost in this project.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PriceList {
    /// Own prices and models that were used: unknown prices first, then own ones.
    items: Vec<PriceLine>,
    /// Where the catalogue comes from.
    catalogue: String,
    /// The day whose prices it has.
    catalogue_date: String,
}

/// Which prices.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct PricesAsked {
    /// Only what this model costs, whether it was used or not.
    #[param(max_length = 200)]
    model: Option<String>,
}

/// Prices: own ones, and those of the models that were used.
#[utoipa::path(
    get, path = "/api/prices", tag = "prices", params(PricesAsked),
    responses((status = 200, description = "In force", body = PriceList))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    who: Who,
    Asked(asked): Asked<PricesAsked>,
) -> Result<Json<PriceList>, Problem> {
    let (store, project) = (app.store()?, app.project(&who).await?);
    let prices = project.prices();
    let mut lines: BTreeMap<String, PriceLine> = BTreeMap::new();
    for setting in own(store, &who.project).await? {
        let Some(model) = model_of(&setting) else { continue };
        let mut line = PriceLine::of(model, prices.price(model));
        (line.changed_ms, line.who) = (Some(setting.changed.0), Some(setting.who.clone()));
        lines.insert(model.to_owned(), line);
    }
    let filter = CostFilter::default();
    for used in store.costs(&who.project, CostBy::Model, &filter).await? {
        // A tool has no price of its own: what has no tokens was not priced.
        if used.usage.input.0 == 0 {
            continue;
        }
        let known = lines.entry(used.of.to_lowercase());
        let line = known.or_insert_with(|| PriceLine::of(&used.of, prices.price(&used.of)));
        line.calls += used.calls;
        line.cost_usd += used.cost.dollars();
    }
    let mut items: Vec<PriceLine> = lines.into_values().collect();
    let rank = |line: &PriceLine| match line.source {
        "fallback" => 0,
        "own" => 1,
        _ => 2,
    };
    items.sort_by_key(rank);
    if let Some(model) = asked.model {
        items.retain(|line| line.model.eq_ignore_ascii_case(model.trim()));
        if items.is_empty() {
            items.push(PriceLine::of(model.trim(), prices.price(&model)));
        }
    }
    let dated = prices.dated();
    Ok(Json(PriceList {
        items,
        catalogue: format!("{} {}", dated.source, dated.version),
        catalogue_date: dated.date.to_owned(),
    }))
}

/// An own price.
#[utoipa::path(
    get, path = "/api/prices/{name}", tag = "prices",
    params(("name" = String, Path, description = "The model")),
    responses((status = 200, description = "In force", body = PriceLine))
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    who: Who,
    At(Name(model)): At<Name>,
) -> Result<Json<PriceLine>, Problem> {
    let project = app.project(&who).await?;
    let line = line(app.store()?, &project, &model).await?;
    if line.changed_ms.is_none() {
        return Err(Problem::not_found("own price"));
    }
    Ok(Json(line))
}

/// Sets an own price: in force for the next call of the model, and of those whose names go on after
/// this one.
#[utoipa::path(
    put, path = "/api/prices/{name}", tag = "prices", request_body = OwnPrice,
    params(("name" = String, Path, description = "The model")),
    responses((status = 200, description = "In force", body = PriceLine))
)]
pub(crate) async fn put(
    State(app): State<Arc<App>>,
    who: Who,
    At(Name(model)): At<Name>,
    Body(price): Body<OwnPrice>,
) -> Result<Json<PriceLine>, Problem> {
    price.rates().map_err(|faults| Problem::fields(Code::InvalidBody, faults))?;
    let (store, project) = (app.store()?, app.project(&who).await?);
    if project.redact_name(&model) != model {
        let detail = "this model's name looks like a secret, which would be kept; nothing was set";
        return Err(Problem::new(Code::InvalidBody, detail));
    }
    let value = serde_json::to_value(price).unwrap_or_default();
    let event = app.event(&who, "price.set", &model, "", &value);
    let setting = Setting {
        project: who.project.clone(),
        name: setting_name(&model),
        value: value.to_string(),
        changed: now(),
        who: event.who.clone(),
    };
    store.put_setting(&setting, Some(&event)).await?;
    reload(&app, &who, &project).await?;
    Ok(Json(line(store, &project, &model).await?))
}

/// Goes back to the catalogue's price.
#[utoipa::path(
    delete, path = "/api/prices/{name}", tag = "prices",
    params(("name" = String, Path, description = "The model")),
    responses((status = 200, description = "In force", body = PriceLine))
)]
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    who: Who,
    At(Name(model)): At<Name>,
) -> Result<Json<PriceLine>, Problem> {
    let (store, project) = (app.store()?, app.project(&who).await?);
    let name = setting_name(&model);
    if store.setting(&who.project, &name).await?.is_none() {
        return Err(Problem::not_found("own price"));
    }
    let event = app.event(&who, "price.reset", &model, "", &Value::Null);
    store.delete_setting(&who.project, &name, Some(&event)).await?;
    reload(&app, &who, &project).await?;
    Ok(Json(line(store, &project, &model).await?))
}

/// The settings of a project that are prices.
async fn own(store: &Store, project: &str) -> Result<Vec<Setting>, Problem> {
    let all = store.settings().await?;
    let priced = |setting: &Setting| setting.project == project && model_of(setting).is_some();
    Ok(all.into_iter().filter(priced).collect())
}

async fn reload(app: &App, who: &Who, project: &Project) -> Result<(), Problem> {
    // Changes come one after the other, so that the last one to be written is the one in force.
    let _turn = app.policy_turn.lock().await;
    project.set_prices(in_force(&own(app.store()?, &who.project).await?));
    app.warden.announce_project(&who.project).await;
    app.warden.tell_change(&who.project, "", "a price was changed".to_owned());
    Ok(())
}

async fn line(store: &Store, project: &Project, model: &str) -> Result<PriceLine, Problem> {
    let mut line = PriceLine::of(model, project.prices().price(model));
    if let Some(setting) = store.setting(&project.name, &setting_name(model)).await? {
        (line.changed_ms, line.who) = (Some(setting.changed.0), Some(setting.who));
    }
    Ok(line)
}
