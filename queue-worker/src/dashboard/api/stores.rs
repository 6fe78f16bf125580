//! Route that lists the stores of a roster with their job counts. Each store also has its own API.

use axum::{Json, Router, extract::State};
use utoipa_axum::routes;

use super::document::{described_router, with_description};
use crate::dashboard::{problem::ErrorResponse, store_counts::StoresOverview, stores::StoresState};

/// Returns the route that lists the stores, with its `OpenAPI` description.
pub(in crate::dashboard) fn of_stores() -> Router<StoresState> {
    let routes = described_router(
        "Inspects many job stores. Each has an API of its own, with its own description, below the path that is listed for it.",
    );
    with_description(routes.routes(routes!(stores)))
}

/// Lists the stores with their job counts by state and the paths of their APIs. A store that does not respond is listed with its error.
#[utoipa::path(get, path = "/api/v1/stores", responses((status = 200, body = StoresOverview), (status = "default", body = ErrorResponse)))]
async fn stores(State(stores): State<StoresState>) -> Json<StoresOverview> {
    Json(StoresOverview::clone(&*stores.count().await))
}
