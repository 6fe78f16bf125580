//! Many stores: how many jobs are in each. Each has its own API besides.

use axum::{Json, Router, extract::State};
use utoipa_axum::routes;

use super::document::{described, titled};
use crate::dashboard::{counted::StoresOverview, problem::Wrong, stores::SharedStores};

/// Its route, with its description.
pub(in crate::dashboard) fn of_stores() -> Router<SharedStores> {
    let routes =
        titled("Looks at many stores of jobs. Each has an API of its own, with its own description, below the path that is said of it.");
    described(routes.routes(routes!(stores)))
}

/// Each store with how many jobs it has in each state, and where its own API is. A store that fails is one with an error beside the others.
#[utoipa::path(get, path = "/api/v1/stores", responses((status = 200, body = StoresOverview), (status = "default", body = Wrong)))]
async fn stores(State(stores): State<SharedStores>) -> Json<StoresOverview> {
    Json(StoresOverview::clone(&*stores.count().await))
}
