//! The way to a collector: one request after another, each sent again if that may help.

use std::time::Duration;

use deadstop_alerts::Way;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use tokio_util::sync::CancellationToken;

use super::settings::Target;
use crate::door::Lines;

/// How long a collector may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a request is sent again, and how long after the first time; doubled each time.
const AGAIN: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The way to a collector.
pub(super) struct Road {
    target: Target,
    way: Way,
    lines: Lines,
    /// Cancelled when the server stops: then nothing is sent again.
    stop: CancellationToken,
    /// Whether the last request did not arrive.
    failing: bool,
}

impl Road {
    /// No connection yet. Must be called inside a runtime.
    pub(super) fn new(target: Target, way: &Way, stop: &CancellationToken) -> Road {
        let (way, stop) = (way.clone(), stop.clone());
        Road { target, way, lines: Lines::new(), stop, failing: false }
    }

    /// Sends a request. Says in the log that nothing arrives, once for each time that it begins.
    pub(super) async fn send(&mut self, body: bytes::Bytes) -> bool {
        let sent = self.attempts(body).await;
        let failed = sent.is_err();
        if let (Err(why), false) = (sent, std::mem::replace(&mut self.failing, failed)) {
            tracing::warn!("telemetry is not exported: {why}");
        }
        !failed
    }

    async fn attempts(&self, body: bytes::Bytes) -> Result<(), String> {
        let endpoint = &self.target.endpoint;
        let mut pause = FIRST_PAUSE;
        let mut left = AGAIN;
        loop {
            let sent = tokio::time::timeout(PATIENCE, self.once(body.clone())).await;
            let (why, again) = match sent {
                Ok(Ok(status)) if status.is_success() => return Ok(()),
                Ok(Ok(status)) => (
                    format!("{endpoint} answered {status}"),
                    matches!(status.as_u16(), 429 | 502 | 503 | 504),
                ),
                Ok(Err(error)) => (format!("{endpoint}: {error}"), true),
                Err(_) => (format!("{endpoint} did not answer"), true),
            };
            if !again || left == 0 || self.stop.is_cancelled() {
                return Err(why);
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // One more attempt, at once.
                () = self.stop.cancelled() => {}
            }
            (pause, left) = (pause * 2, left - 1);
        }
    }

    async fn once(&self, body: bytes::Bytes) -> Result<StatusCode, String> {
        let Target { endpoint, headers } = &self.target;
        let host = endpoint.authority().map_or("", |host| host.as_str());
        let mut request = Request::post(endpoint.clone())
            .header(header::HOST, host)
            .header(header::CONTENT_TYPE, "application/x-protobuf");
        for (name, value) in headers {
            request = request.header(name, value.reveal());
        }
        let request = request.body(Full::new(body)).map_err(|error| error.to_string())?;
        let sent = self.lines.send(&self.way, request).await;
        let response = sent.map_err(|error| error.to_string())?;
        let status = response.status();
        // The connection is used again once its answer was read.
        let _ = response.into_body().collect().await;
        Ok(status)
    }
}
