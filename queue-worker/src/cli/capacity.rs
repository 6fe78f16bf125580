//! `capacity`: how many jobs may wait in a queue.

use queue_core::operate;
use serde_json::json;

use super::{
    known_queue::check_queue,
    noted::Noted,
    open::open_store,
    print,
    problem::Problem,
    settings::Settings,
    values::{Exact, NewCapacity, counted},
};

/// Gives a queue a capacity, if one is named, and shows those that have one.
pub(super) async fn capacity(
    settings: &Settings,
    queue: Option<&str>,
    new: Option<NewCapacity>,
    Exact { exact }: Exact,
    as_json: bool,
) -> Result<(), Problem> {
    let (database, store) = open_store(settings).await?;
    // Before it has a capacity, by which it would be known.
    check_queue(&database, store, queue).await?;
    if let (Some(queue), Some(NewCapacity(capacity))) = (queue, new) {
        let mut noted = Noted::begin(database.pool(), store).await?;
        operate::set_capacity(&mut *noted, store, queue, capacity).await?;
        let what = capacity.map_or_else(|| "none".to_owned(), |capacity| capacity.to_string());
        noted.commit("capacity", format!("queue {queue}: {what}"), 0).await?;
    }
    let mut found = if exact {
        operate::capacities_exactly(database.pool(), store).await?
    } else {
        operate::capacities(database.pool(), store).await?
    };
    database.close().await;
    found.retain(|found| queue.is_none_or(|queue| found.queue == queue));
    if as_json {
        return print::json(&json!({ "capacities": found }));
    }
    match (queue, found.as_slice()) {
        (Some(queue), []) => print::lines(&format!("the queue {queue} has no capacity")),
        (None, []) => print::lines("no queue has a capacity"),
        (_, found) => {
            let rows = found.iter().map(|found| [found.queue.clone(), found.capacity.to_string(), counted(found.waiting, found.partial)]);
            print::lines(&print::table(["queue", "capacity", "waiting"], rows))
        }
    }
}
