//! Pages: what the API answers, for people. Each is whole without scripts.

mod frame;
mod job;
mod jobs;
mod login;
mod overview;
mod tree;

use axum::{Router, response::Response, routing::get};

use crate::dashboard::{app::Shared, problem::Problem};

/// Their addresses.
pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .route("/", get(overview::page))
        .route("/jobs", get(jobs::page))
        .route("/jobs/{id}", get(job::page))
        .route("/login", get(login::page).post(login::log_in))
        .route("/logout", axum::routing::post(login::log_out))
}

/// What is wrong, as a page.
pub(super) fn failed_page(base: &str, problem: &Problem) -> Response {
    frame::failed(base, problem)
}
