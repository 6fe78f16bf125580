//! The description of an API, by `OpenAPI`.

use std::sync::Arc;

use axum::{Extension, Json, Router, routing::get};
use utoipa::openapi::{InfoBuilder, OpenApi, OpenApiBuilder, Server};
use utoipa_axum::router::OpenApiRouter;

use crate::dashboard::way::Way;

/// Nothing yet, that does this.
pub(super) fn titled<S: Clone + Send + Sync + 'static>(description: &str) -> OpenApiRouter<S> {
    let info = InfoBuilder::new().title("queue-worker").version("1").description(Some(description));
    OpenApiRouter::with_openapi(OpenApiBuilder::new().info(info.build()).build())
}

/// The routes, and their description.
pub(super) fn described<S: Clone + Send + Sync + 'static>(routes: OpenApiRouter<S>) -> Router<S> {
    let (router, described) = routes.split_for_parts();
    let described = Arc::new(described);
    router.route("/api/v1/openapi.json", get(async move |way| document(&described, way)))
}

/// As it is from where it is asked for.
fn document(described: &OpenApi, Extension(way): Extension<Way>) -> Json<OpenApi> {
    let base = way.base();
    let mut described = described.clone();
    described.servers = (!base.is_empty()).then(|| vec![Server::new(base)]);
    Json(described)
}
