//! HTML pages of the dashboard, which show the data of the JSON API. Every page works without scripts.

mod audit;
mod chart;
mod schedules;
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

use crate::dashboard::{app::AppState, problem::Problem, request_context::RequestContext, stores::StoresState};

/// Paths and labels of the navigation links.
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

/// Returns the routes of a store's pages.
pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/", get(overview::page))
        .route("/jobs", get(jobs::page))
        .route("/jobs/{id}", get(job::page))
        .route("/live", get(live::stream))
        .route("/dead", get(dead::page))
        .route("/history", get(history::page))
        .route("/queues", get(queues::page))
        .route("/workers", get(workers::page))
        .route("/schedules", get(schedules::page))
        .route("/limits", get(limits::page))
        .route("/audit", get(audit::page))
}

/// Returns the routes of the pages that cover all stores of a roster.
pub(super) fn of_stores() -> Router<StoresState> {
    Router::new().route("/", get(stores::page))
}

/// Returns the routes for login and logout.
pub(super) fn login<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/login", get(login::page).post(login::log_in)).route("/logout", post(login::log_out))
}

/// Renders an error as an HTML page.
pub(super) fn failed_page(context: &RequestContext, problem: &Problem) -> Response {
    frame::failed(context, problem)
}
