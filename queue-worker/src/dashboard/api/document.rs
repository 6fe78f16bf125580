//! `OpenAPI` description of the API, served at its own route.

use std::sync::Arc;

use axum::{Extension, Json, Router, routing::get};
use utoipa::openapi::{InfoBuilder, OpenApi, OpenApiBuilder, Server};
use utoipa_axum::router::OpenApiRouter;

use crate::dashboard::request_context::RequestContext;

/// Creates an empty router. Its `OpenAPI` document contains `description`.
pub(super) fn described_router<S: Clone + Send + Sync + 'static>(description: &str) -> OpenApiRouter<S> {
    let info = InfoBuilder::new().title("queue-worker").version("1").description(Some(description));
    OpenApiRouter::with_openapi(OpenApiBuilder::new().info(info.build()).build())
}

/// Adds a route that serves the `OpenAPI` document of `routes`.
pub(super) fn with_description<S: Clone + Send + Sync + 'static>(routes: OpenApiRouter<S>) -> Router<S> {
    let (router, described) = routes.split_for_parts();
    let described = Arc::new(described);
    router.route("/api/v1/openapi.json", get(async move |context| document(&described, context)))
}

/// Returns the `OpenAPI` document. The document's server URL is the base path of the client's request.
fn document(described: &OpenApi, Extension(context): Extension<RequestContext>) -> Json<OpenApi> {
    let base = context.base();
    let mut described = described.clone();
    described.servers = (!base.is_empty()).then(|| vec![Server::new(base)]);
    Json(described)
}
