//! HTTP listener for health checks and metrics, with connection limits.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::json;

use super::checks::{FailedCheck, Health};
#[cfg(feature = "metrics")]
use crate::figures::WorkerMetrics;
use crate::{
    error::Error,
    live::Engine,
    serve::{ServerLimits, bind, bind_when_free, serve},
};

/// Connection limits of the listener. Requests take milliseconds, and there are few clients.
const LIMITS: ServerLimits =
    ServerLimits { connections: 16, idle_timeout: Duration::from_secs(5), max_duration: Some(Duration::from_secs(10)) };

/// State shared by the request handlers of the listener.
#[derive(Clone)]
pub(crate) struct HealthState {
    pub(crate) health: Arc<Health>,
    #[cfg(feature = "metrics")]
    pub(crate) metrics: WorkerMetrics,
}

/// Serves health checks and metrics at `address` until the returned engine is dropped. If another process uses the address, the listener
/// waits in the background until the address is free.
pub(crate) async fn listen(address: SocketAddr, state: HealthState) -> Result<Engine, Error> {
    let engine = Engine::start("queue health").map_err(|error| Error::Thread(error.to_string()))?;
    let bound = engine.handle().spawn(bind(address)).await;
    let listener = bound.map_err(|error| Error::Thread(error.to_string()))?.map_err(|why| Error::Health { address, why })?;
    engine.handle().spawn(async move {
        let listener = match listener {
            Some(listener) => listener,
            None => bind_when_free(address, "health checks").await,
        };
        let address = listener.local_addr().unwrap_or(address);
        tracing::info!(%address, "serving health checks");
        serve(listener, router(state), LIMITS, std::future::pending()).await;
    });
    Ok(engine)
}

fn router(state: HealthState) -> Router {
    let router = Router::new().route("/livez", get(livez)).route("/readyz", get(readyz));
    #[cfg(feature = "metrics")]
    let router = router.route("/metrics", get(metrics));
    router.with_state(state)
}

async fn livez(State(state): State<HealthState>) -> Response {
    respond(&state.health.liveness_failures())
}

async fn readyz(State(state): State<HealthState>) -> Response {
    respond(&state.health.readiness_failures())
}

#[cfg(feature = "metrics")]
async fn metrics(State(state): State<HealthState>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], state.metrics.text().await).into_response()
}

/// Returns a response with status 200 if there are no failed checks, and otherwise with status 503. The body lists the failed checks.
fn respond(reasons: &[FailedCheck]) -> Response {
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, [(header::CACHE_CONTROL, "no-store")], Json(json!({ "ok": reasons.is_empty(), "reasons": reasons }))).into_response()
}
