//! The control API: see what runs, stop it, set guards, read what happened.
//!
//! A request passes one gate ([`auth::guard`]) and reaches its handler with a [`auth::Who`]. What
//! handlers take is checked at the edge ([`extract`]); what they refuse is a [`problem::Problem`].
//! The document at `/api/openapi.json` comes from the handlers themselves.

pub(crate) mod auth;
mod check;
mod docs;
mod extract;
mod govern;
mod health;
mod incidents;
mod keys;
mod live;
mod openapi;
mod orders;
pub(crate) mod problem;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use serde_json::Value;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::metrics::Metrics;
use crate::warden::{Project, Warden};
use auth::Auth;
use deadstop_protocol::prices::Prices;
use problem::{Code, Problem};

/// What handlers work with.
pub(crate) struct App {
    pub(crate) warden: Arc<Warden>,
    pub(crate) auth: Arc<Auth>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) prices: Prices,
    document: Value,
}

impl App {
    /// The project of whoever asks.
    pub(crate) async fn project(&self, who: &auth::Who) -> Result<Arc<Project>, Problem> {
        self.warden.project(&who.project).await.map_err(|error| {
            tracing::error!("{error}");
            Problem::new(Code::StoreFailed, "the database failed; see the log")
        })
    }
}

/// All routes, each behind the gate.
pub(crate) fn router(warden: Arc<Warden>, auth: Arc<Auth>, metrics: Arc<Metrics>) -> Router {
    let (routes, document) = handlers().split_for_parts();
    let document = openapi::complete(&document);
    let app = Arc::new(App { warden, auth, metrics, prices: Prices::builtin(), document });
    routes
        .route_layer(from_fn_with_state(Arc::clone(&app), auth::guard))
        .fallback(|| async { Problem::not_found("route") })
        .method_not_allowed_fallback(|| async {
            let detail = "this route exists, but not with this method";
            Problem::new(Code::MethodNotAllowed, detail)
        })
        .with_state(app)
}

/// Whether a path belongs to the API, and not to the gateway.
pub(crate) fn serves(path: &str) -> bool {
    matches!(path, "/" | "/healthz" | "/readyz" | "/metrics") || path.starts_with("/api/")
}

fn handlers() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(openapi::empty())
        .routes(routes!(live::home))
        .routes(routes!(health::alive))
        .routes(routes!(health::ready))
        .routes(routes!(health::metrics))
        .routes(routes!(openapi::document))
        .routes(routes!(openapi::docs))
        .routes(routes!(keys::log_in))
        .routes(routes!(keys::log_out))
        .routes(routes!(keys::whoami))
        .routes(routes!(keys::list, keys::create))
        .routes(routes!(keys::revoke))
        .routes(routes!(live::status))
        .routes(routes!(live::events))
        .routes(routes!(orders::kill))
        .routes(routes!(orders::clear))
        .routes(routes!(orders::reset))
        .routes(routes!(orders::pause))
        .routes(routes!(orders::resume))
        .routes(routes!(incidents::list))
        .routes(routes!(govern::open))
        .routes(routes!(govern::preflight))
        .routes(routes!(govern::propose))
        .routes(routes!(govern::progress))
        .routes(routes!(govern::receipt))
}

#[cfg(test)]
mod tests;
