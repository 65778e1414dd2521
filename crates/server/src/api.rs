//! The control API: see what runs, stop it, set guards, read what happened.
//!
//! A request passes one gate ([`auth::guard`]) and reaches its handler with a [`auth::Who`]. What
//! handlers take is checked at the edge ([`extract`]); what they refuse is a [`problem::Problem`].
//! The document at `/api/openapi.json` comes from the handlers themselves.

mod agents;
mod alerts;
mod allow;
mod approvals;
pub(crate) mod audit;
pub(crate) mod auth;
mod backtest;
mod calls;
mod check;
mod cluster;
mod costs;
mod docs;
mod extract;
mod follow;
mod gauge;
mod govern;
mod grants;
mod health;
mod incidents;
pub(crate) mod keys;
mod live;
mod mcp;
mod moments;
mod openapi;
mod orders;
mod policies;
mod prices;
pub(crate) mod problem;
mod projects;
mod sessions;
pub(crate) mod settings;
mod shrink;
mod speed;
mod spend;
mod sso;
mod standing;
mod telemetry;
mod top_up;
mod trial;

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use deadstop_core::PolicySet;
use deadstop_store::{AuditEvent, Store, StoreError};
use serde_json::Value;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::anchor::Anchor;
use crate::config::Config;
use auth::{Auth, Who};
use deadstop_warden::metrics::Metrics;
use deadstop_warden::{Project, Reload, Warden, now};
use problem::{Code, Problem};

/// What all handlers share.
pub(crate) struct App {
    pub(crate) warden: Arc<Warden>,
    pub(crate) auth: Arc<Auth>,
    pub(crate) metrics: Arc<Metrics>,
    /// The policies that the server was started with: the default of a project that has none.
    pub(crate) base: PolicySet,
    /// Where the heads of the audit are noted outside the database.
    anchor: Option<Arc<Anchor>>,
    /// Changes of policies come one after the other.
    policy_turn: tokio::sync::Mutex<()>,
    document: Value,
    /// Sessions that an operator steps through.
    reels: crate::replay::Reels,
    /// The OpenID provider that people sign in at.
    sso: Option<crate::sso::Provider>,
    /// Where telemetry is read.
    ingest: telemetry::Ingest,
}

impl App {
    /// Where things are kept.
    fn store(&self) -> Result<&Store, Problem> {
        self.warden.store().ok_or_else(|| {
            let detail = "this server keeps nothing; start it with a data folder or a database";
            Problem::new(Code::NoStore, detail)
        })
    }

    /// The caller's project.
    async fn project(&self, who: &Who) -> Result<Arc<Project>, Problem> {
        Ok(self.warden.project(&who.project).await?)
    }

    /// An entry for the audit of the caller's project.
    fn event(
        &self,
        who: &Who,
        action: &str,
        subject: &str,
        reason: &str,
        detail: &Value,
    ) -> AuditEvent {
        self.event_in(&who.project, who, action, subject, reason, detail)
    }

    /// An entry for the audit of a project.
    fn event_in(
        &self,
        project: &str,
        who: &Who,
        action: &str,
        subject: &str,
        reason: &str,
        detail: &Value,
    ) -> AuditEvent {
        let at = now();
        AuditEvent {
            number: self.warden.store().map_or(0, |store| store.number(at)),
            project: project.to_owned(),
            at,
            who: who.signed(None),
            action: action.to_owned(),
            subject: subject.to_owned(),
            reason: self.warden.redacted(project, reason),
            detail: self.warden.redacted(project, &detail.to_string()),
        }
    }

    /// A person's words as they may be kept: people paste secrets, too.
    fn redacted(&self, who: &Who, text: &str) -> String {
        self.warden.redacted(&who.project, text)
    }
}

/// Loads the policies from the store before the first request comes.
pub(crate) async fn prepare(warden: &Warden, base: &PolicySet) -> Result<(), StoreError> {
    let Some(store) = warden.store() else { return Ok(()) };
    store.ensure_project(auth::DEFAULT_PROJECT, now()).await?;
    policies::load(store, base, warden).await
}

/// What is read again when another node has changed something.
pub(crate) fn reload(warden: &Arc<Warden>, auth: &Arc<Auth>, base: &PolicySet) -> Reload {
    let (warden, auth, base) = (Arc::downgrade(warden), Arc::clone(auth), base.clone());
    Box::new(move |told: Option<String>| {
        let (warden, auth, base) = (warden.clone(), Arc::clone(&auth), base.clone());
        Box::pin(async move {
            // The regular re-read keeps the cached keys. They expire by themselves, and operators
            // need them to give orders while the database is away.
            if told.is_some() {
                auth.forget();
            }
            let Some(warden) = warden.upgrade() else { return };
            let Some(store) = warden.store() else { return };
            if let Err(error) = policies::load(store, &base, &warden).await {
                tracing::warn!("policies could not be read again: {error}");
            }
            let all = || warden.projects().iter().map(|project| project.name.clone()).collect();
            for project in told.map_or_else(all, |told| vec![told]) {
                if let Err(error) = warden.reload_targets(&project).await {
                    tracing::warn!("targets of alerts could not be read again: {error}");
                }
                if let Err(error) = warden.reload_mutes(&project).await {
                    tracing::warn!("mutes of incidents could not be read again: {error}");
                }
            }
            if let Err(error) = warden.reread_tools().await {
                tracing::warn!("tools of MCP servers could not be read again: {error}");
            }
        })
    })
}

/// All routes, each behind the gate.
pub(crate) fn router(
    warden: &Arc<Warden>,
    auth: Arc<Auth>,
    metrics: Arc<Metrics>,
    config: &Config,
) -> Router {
    let (routes, document) = handlers().split_for_parts();
    let document = openapi::complete(&document);
    let policy_turn = tokio::sync::Mutex::new(());
    let app = Arc::new(App {
        warden: Arc::clone(warden),
        auth,
        metrics,
        base: config.policies.clone(),
        anchor: config.anchor.clone(),
        policy_turn,
        document,
        reels: crate::replay::Reels::default(),
        ingest: telemetry::Ingest::here(),
        sso: config
            .sso
            .clone()
            .map(|sso| crate::sso::Provider::new(sso, config.ways.usual.clone())),
    });
    routes
        .route_layer(from_fn_with_state(Arc::clone(&app), auth::guard))
        .fallback(|| async { Problem::not_found("route") })
        .method_not_allowed_fallback(|| async {
            let detail = "this route exists, but not with this method";
            Problem::new(Code::MethodNotAllowed, detail)
        })
        .layer(from_fn(shrink::shrink))
        .with_state(app)
}

/// Whether a path belongs to the API, and not to the gateway.
pub(crate) fn serves(path: &str) -> bool {
    let ours = ["/healthz", "/readyz", "/metrics", "/v1/traces", "/v1/logs", "/v1/metrics"];
    ours.contains(&path) || path.starts_with("/api/")
}

fn handlers() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(openapi::empty())
        .routes(routes!(govern::preflight))
        .routes(routes!(govern::propose))
        .routes(routes!(govern::progress))
        .routes(routes!(govern::receipt))
        .routes(routes!(follow::follow))
        .routes(routes!(telemetry::traces))
        .routes(routes!(telemetry::logs))
        .routes(routes!(telemetry::metrics))
        .routes(routes!(health::alive))
        .routes(routes!(health::ready))
        .routes(routes!(health::metrics))
        .routes(routes!(openapi::document))
        .routes(routes!(openapi::docs))
        .routes(routes!(keys::log_in))
        .routes(routes!(keys::log_out))
        .routes(routes!(sso::about))
        .routes(routes!(sso::sign_in))
        .routes(routes!(sso::callback))
        .routes(routes!(keys::whoami))
        .routes(routes!(keys::list, keys::create))
        .routes(routes!(keys::revoke))
        .routes(routes!(projects::list, projects::create))
        .routes(routes!(live::status))
        .routes(routes!(live::events))
        .routes(routes!(mcp::tools, mcp::seen))
        .routes(routes!(mcp::accept))
        .routes(routes!(orders::kill))
        .routes(routes!(orders::clear))
        .routes(routes!(orders::reset))
        .routes(routes!(orders::pause))
        .routes(routes!(orders::resume))
        .routes(routes!(agents::list))
        .routes(routes!(agents::get, agents::change, agents::remove))
        .routes(routes!(sessions::list, govern::open))
        .routes(routes!(sessions::get))
        .routes(routes!(calls::timeline))
        .routes(routes!(moments::state))
        .routes(routes!(sessions::kill))
        .routes(routes!(sessions::pause))
        .routes(routes!(sessions::resume))
        .routes(routes!(sessions::reset))
        .routes(routes!(calls::list))
        .routes(routes!(calls::get))
        .routes(routes!(incidents::list))
        .routes(routes!(incidents::groups))
        .routes(routes!(incidents::get))
        .routes(routes!(incidents::acknowledge))
        .routes(routes!(incidents::act))
        .routes(routes!(incidents::mutes))
        .routes(routes!(incidents::exceptions_for))
        .routes(routes!(incidents::false_alarm))
        .routes(routes!(costs::list))
        .routes(routes!(spend::series))
        .routes(routes!(speed::speed))
        .routes(routes!(speed::activity))
        .routes(routes!(agents::health))
        .routes(routes!(backtest::backtest))
        .routes(routes!(settings::get, settings::put))
        .routes(routes!(top_up::top_up))
        .routes(routes!(grants::of_agent, grants::give_agent))
        .routes(routes!(grants::revoke_agent))
        .routes(routes!(grants::of_session, grants::give_session))
        .routes(routes!(grants::revoke_session))
        .routes(routes!(approvals::list))
        .routes(routes!(approvals::get))
        .routes(routes!(approvals::approve))
        .routes(routes!(approvals::deny))
        .routes(routes!(allow::list))
        .routes(routes!(allow::get, allow::allow))
        .routes(routes!(trial::check))
        .routes(routes!(prices::list))
        .routes(routes!(prices::get, prices::put, prices::delete))
        .merge(policy_handlers())
        .routes(routes!(audit::list))
        .routes(routes!(audit::verify))
        .routes(routes!(audit::export))
        .routes(routes!(alerts::list, alerts::create))
        .routes(routes!(alerts::get, alerts::put, alerts::delete))
        .routes(routes!(alerts::test))
        .routes(routes!(alerts::deliveries))
}

fn policy_handlers() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(policies::list))
        .routes(routes!(policies::get_default, policies::put_default, policies::delete_default))
        .routes(routes!(policies::default_versions))
        .routes(routes!(policies::default_version))
        .routes(routes!(policies::default_diff))
        .routes(routes!(policies::restore_default))
        .routes(routes!(policies::get_agent, policies::put_agent, policies::delete_agent))
        .routes(routes!(policies::agent_versions))
        .routes(routes!(policies::agent_version))
        .routes(routes!(policies::agent_diff))
        .routes(routes!(policies::restore_agent))
        .routes(routes!(
            policies::get_prevention,
            policies::put_prevention,
            policies::delete_prevention
        ))
        .routes(routes!(policies::get_project_prevention, policies::put_project_prevention))
        .routes(routes!(policies::get_kill_switch, policies::put_kill_switch))
        .routes(routes!(policies::presets))
}

#[cfg(test)]
mod tests;
