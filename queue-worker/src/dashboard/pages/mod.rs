//! Pages: what the API answers, for people. Each is whole without scripts.

mod audit;
mod chart;
mod crons;
mod dead;
mod frame;
mod graph;
mod history;
mod job;
mod jobs;
mod limits;
mod live;
mod login;
mod overview;
mod queues;
mod stores;
mod timeline;
mod tree;
mod workers;

use axum::{
    Router,
    response::Response,
    routing::{get, post},
};

use crate::dashboard::{app::Shared, problem::Problem, stores::SharedStores, way::Way};

/// The pages that each page leads to, by address.
pub(super) const LINKS: [(&str, &str); 8] = [
    ("/jobs", "Jobs"),
    ("/dead", "Dead letters"),
    ("/history", "History"),
    ("/queues", "Queues"),
    ("/workers", "Workers"),
    ("/schedules", "Schedules"),
    ("/limits", "Limits"),
    ("/audit", "Audit"),
];

/// Their addresses, within a store.
pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .route("/", get(overview::page))
        .route("/jobs", get(jobs::page))
        .route("/jobs/{id}", get(job::page))
        .route("/live", get(live::stream))
        .route("/dead", get(dead::page))
        .route("/history", get(history::page))
        .route("/queues", get(queues::page))
        .route("/workers", get(workers::page))
        .route("/schedules", get(crons::page))
        .route("/limits", get(limits::page))
        .route("/audit", get(audit::page))
}

/// Those of many stores.
pub(super) fn of_stores() -> Router<SharedStores> {
    Router::new().route("/", get(stores::page))
}

/// The way in and out.
pub(super) fn login<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/login", get(login::page).post(login::log_in)).route("/logout", post(login::log_out))
}

/// What is wrong, as a page.
pub(super) fn failed_page(way: &Way, problem: &Problem) -> Response {
    frame::failed(way, problem)
}
