//! `OpenAPI` description of the API, served at its own route.

use std::sync::Arc;

use axum::{Extension, Json, Router, routing::get};
use serde_json::{Value, json};
use utoipa::openapi::{InfoBuilder, OpenApiBuilder};
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
    let mut described = serde_json::to_value(described).expect("a document has only string keys");
    remove_examples(&mut described);
    let described = Arc::new(described);
    router.route("/api/v1/openapi.json", get(async move |context| document(&described, context)))
}

/// Truncates each description at its first code block. The descriptions are generated from doc comments, which may contain Rust examples.
fn remove_examples(described: &mut Value) {
    match described {
        Value::Object(fields) => {
            if let Some(Value::String(description)) = fields.get_mut("description")
                && let Some(at) = description.find("```")
            {
                description.truncate(description[..at].trim_end().len());
            }
            fields.values_mut().for_each(remove_examples);
        }
        Value::Array(elements) => elements.iter_mut().for_each(remove_examples),
        _ => {}
    }
}

/// Returns the `OpenAPI` document. The document's server URL is the base path of the client's request.
fn document(described: &Value, Extension(context): Extension<RequestContext>) -> Json<Value> {
    let base = context.base();
    let mut described = described.clone();
    if !base.is_empty() {
        described["servers"] = json!([{ "url": base }]);
    }
    Json(described)
}
