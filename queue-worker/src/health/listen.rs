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

use super::judge::{Health, Reason};
#[cfg(feature = "metrics")]
use crate::figures::Figures;
use crate::{
    error::Error,
    live::Engine,
    serve::{Bounds, bind, free, serve},
};

/// Whoever asks is done in milliseconds, and there are few who do.
const BOUNDS: Bounds = Bounds { connections: 16, silence: Duration::from_secs(5), longest: Some(Duration::from_secs(10)) };

/// What can be asked for.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) health: Arc<Health>,
    #[cfg(feature = "metrics")]
    pub(crate) figures: Figures,
}

/// Answers at this address until what it returns is dropped. One that another has is waited for, and jobs are done meanwhile.
pub(crate) async fn listen(address: SocketAddr, asked: Asked) -> Result<Engine, Error> {
    let engine = Engine::start("queue health").map_err(|error| Error::Thread(error.to_string()))?;
    let bound = engine.handle().spawn(bind(address)).await;
    let listener = bound.map_err(|error| Error::Thread(error.to_string()))?.map_err(|why| Error::Health { address, why })?;
    engine.handle().spawn(async move {
        let listener = match listener {
            Some(listener) => listener,
            None => free(address, "health checks").await,
        };
        let address = listener.local_addr().unwrap_or(address);
        tracing::info!(%address, "serving health checks");
        serve(listener, router(asked), BOUNDS, std::future::pending()).await;
    });
    Ok(engine)
}

fn router(asked: Asked) -> Router {
    let router = Router::new().route("/livez", get(livez)).route("/readyz", get(readyz));
    #[cfg(feature = "metrics")]
    let router = router.route("/metrics", get(metrics));
    router.with_state(asked)
}

async fn livez(State(asked): State<Asked>) -> Response {
    say(&asked.health.dead())
}

async fn readyz(State(asked): State<Asked>) -> Response {
    say(&asked.health.unready())
}

#[cfg(feature = "metrics")]
async fn metrics(State(asked): State<Asked>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], asked.figures.text().await).into_response()
}

/// 200, or 503 with the reasons.
fn say(reasons: &[Reason]) -> Response {
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, [(header::CACHE_CONTROL, "no-store")], Json(json!({ "ok": reasons.is_empty(), "reasons": reasons }))).into_response()
}
