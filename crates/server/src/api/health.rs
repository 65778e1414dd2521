//! Whether the server is alive, whether it can do its work, and its counters.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::App;
use super::auth::Who;
use deadstop_warden::metrics::Format;
use deadstop_warden::now;

/// Whether the server can do its work.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Readiness {
    /// Whether it can.
    ready: bool,
    /// `ok`, `failed`, or `none` for a server that keeps nothing.
    store: &'static str,
    /// Whether it works without its database, as the policies' fail mode says.
    degraded: bool,
    /// Records that wait to be written.
    queue_depth: i64,
    /// What is wrong, in words; null if nothing is.
    #[schema(required)]
    detail: Option<String>,
}

/// Whether the server is alive.
#[utoipa::path(
    get, path = "/healthz", tag = "server",
    responses((status = 200, description = "It is", body = String, content_type = "text/plain"))
)]
pub(crate) async fn alive() -> &'static str {
    "ok\n"
}

/// Whether the server can do its work.
#[utoipa::path(
    get, path = "/readyz", tag = "server",
    responses(
        (status = 200, description = "It can", body = Readiness),
        (status = 503, description = "It cannot; `detail` says why", body = Readiness),
    )
)]
pub(crate) async fn ready(State(app): State<Arc<App>>) -> Response {
    let degraded = app.metrics.degraded();
    let (store, detail) = match app.warden.store() {
        None => ("none", None),
        Some(store) => match store.health().await {
            Ok(()) => match app.warden.outage() {
                None => ("ok", None),
                Some(outage) => {
                    let since = now().0.saturating_sub(outage.since.0) / 1000;
                    let trouble = outage.name();
                    let text =
                        format!("the database has been unusable for {since} seconds ({trouble})");
                    ("failed", Some(text))
                }
            },
            Err(error) => {
                tracing::warn!("{error}");
                let trouble = error.trouble().map_or("broken", deadstop_store::Trouble::name);
                ("failed", Some(format!("the database does not answer ({trouble})")))
            }
        },
    };
    // A node that cannot reach the cluster gets no calls while other nodes may be able to.
    let detail = detail.or_else(|| {
        let (since, why) = app.warden.unreachable()?;
        let since = app.warden.time().0.saturating_sub(since.0) / 1000;
        Some(format!("Redis has been unreachable for {since} seconds ({why})"))
    });
    app.metrics.queue_depth(app.warden.queue_depth());
    let body = Readiness {
        ready: detail.is_none(),
        store,
        degraded,
        queue_depth: app.metrics.waiting(),
        detail,
    };
    let status = if body.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(body)).into_response()
}

/// Counters for Prometheus. Series with agents and models are those of the caller's project. OpenMetrics,
/// with exemplars, where the client accepts it.
#[utoipa::path(
    get, path = "/metrics", tag = "server",
    responses((status = 200, description = "Prometheus' text format", body = String, content_type = "text/plain"))
)]
pub(crate) async fn metrics(State(app): State<Arc<App>>, who: Who, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::of(accept.unwrap_or_default());
    let text = app.warden.metrics_text(&who.project, format);
    ([(header::CONTENT_TYPE, format.content_type())], text).into_response()
}
