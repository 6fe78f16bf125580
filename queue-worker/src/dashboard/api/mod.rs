//! The JSON API, and what the pages show: whatever is looked at or done is looked at or done here, over `queue_core::operate`.

mod asked;
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
mod redacted;
mod schedules;
mod stores;

use axum::Router;
use utoipa_axum::routes;

use self::document::{described, titled};
pub(super) use self::{
    asked::{AskedJobs, MOST},
    audit::AskedAudit,
    body::Asked,
    durable::parent_of,
    flows::is_node,
    history::{AskedHistory, figures},
    jobs::{Button, buttons, job_id, listed, logs_of, looked_at},
    overview::{Overview, busiest_and_oldest, gather},
    stores::of_stores,
};
use crate::dashboard::app::Shared;

/// Its routes, each with its description.
pub(super) fn routes() -> Router<Shared> {
    let routes = titled(
        "Looks at a store of jobs, and acts on it. Ids are strings. Times are by the database's clock. An act is a POST with a JSON body.",
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
        .routes(routes!(many::on_their_way))
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
    described(routes)
}
