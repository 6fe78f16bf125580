//! JSON API of the dashboard, based on `queue_core::operate`. The HTML pages load their data through the same functions.

mod job_query;
mod audit;
mod body;
mod dead;
mod document;
mod durable;
mod flows;
mod history;
mod jobs;
mod limits;
mod many;
mod overview;
mod queues;
mod redaction;
mod schedules;
mod stores;

use axum::Router;
use utoipa_axum::routes;

use self::document::{described_router, with_description};
pub(super) use self::{
    audit::AuditQuery,
    body::QueryParams,
    durable::parent_of,
    flows::is_node,
    history::{HistoryQuery, load_history},
    job_query::{JobQuery, MAX_PAGE_JOBS},
    jobs::{Button, buttons, job_id, list_page, load_job, load_logs},
    overview::{Overview, busiest_and_oldest, load_overview, load_trends},
    stores::of_stores,
};
use crate::dashboard::app::AppState;

/// Returns all API routes of a store with their `OpenAPI` descriptions.
pub(super) fn routes() -> Router<AppState> {
    let routes = described_router(
        "Inspects and operates a job store. Ids are strings. Times are by the database's clock. Operations are POST requests with a JSON body.",
    );
    let routes = routes
        .routes(routes!(overview::overview))
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::in_line))
        .routes(routes!(jobs::find))
        .routes(routes!(jobs::why))
        .routes(routes!(jobs::logs))
        .routes(routes!(durable::steps))
        .routes(routes!(durable::children))
        .routes(routes!(durable::gathers))
        .routes(routes!(durable::signals))
        .routes(routes!(durable::signal))
        .routes(routes!(flows::flow))
        .routes(routes!(flows::cancel))
        .routes(routes!(jobs::act))
        .routes(routes!(history::history))
        .routes(routes!(many::count))
        .routes(routes!(many::act))
        .routes(routes!(dead::groups))
        .routes(routes!(many::count_group))
        .routes(routes!(many::act_on_group))
        .routes(routes!(many::list_running))
        .routes(routes!(many::stop))
        .routes(routes!(queues::queues))
        .routes(routes!(queues::workers))
        .routes(routes!(queues::pause))
        .routes(routes!(queues::resume))
        .routes(routes!(queues::set_capacity))
        .routes(routes!(schedules::list))
        .routes(routes!(schedules::fires))
        .routes(routes!(schedules::act))
        .routes(routes!(limits::list))
        .routes(routes!(limits::keys))
        .routes(routes!(limits::set))
        .routes(routes!(limits::unset))
        .routes(routes!(audit::list));
    with_description(routes)
}
