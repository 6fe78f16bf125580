//! The listener: a few paths, and a bound on whoever asks for them.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::json;
use tokio::net::TcpListener;

use super::judge::{Health, Reason};
use crate::{
    error::Error,
    live::Engine,
    serve::{Bounds, serve},
};

/// Whoever asks is done in milliseconds, and there are few who do.
const BOUNDS: Bounds = Bounds { connections: 16, silence: Duration::from_secs(5), longest: Some(Duration::from_secs(10)) };

/// Answers at this address until what it returns is dropped.
pub(crate) async fn listen(address: SocketAddr, health: Health) -> Result<Engine, Error> {
    let engine = Engine::start("queue health").map_err(|error| Error::Thread(error.to_string()))?;
    let bound = engine.handle().spawn(TcpListener::bind(address)).await;
    let listener = bound.map_err(|error| Error::Thread(error.to_string()))?.map_err(|why| Error::Health { address, why })?;
    let address = listener.local_addr().unwrap_or(address);
    tracing::info!(%address, "serving health checks: /livez, /readyz");
    engine.handle().spawn(serve(listener, router(health), BOUNDS, std::future::pending()));
    Ok(engine)
}

fn router(health: Health) -> Router {
    Router::new().route("/livez", get(livez)).route("/readyz", get(readyz)).with_state(Arc::new(health))
}

async fn livez(State(health): State<Arc<Health>>) -> Response {
    say(&health.dead())
}

async fn readyz(State(health): State<Arc<Health>>) -> Response {
    say(&health.unready())
}

/// 200, or 503 with the reasons.
fn say(reasons: &[Reason]) -> Response {
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, [(header::CACHE_CONTROL, "no-store")], Json(json!({ "ok": reasons.is_empty(), "reasons": reasons }))).into_response()
}
