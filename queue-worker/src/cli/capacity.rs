//! `capacity` command: shows and sets the maximum number of waiting jobs per queue.

use queue_core::Queue;
use serde_json::json;

use super::{
    audit::AuditedTransaction,
    name_check::check_queue,
    open::open_store,
    print,
    problem::Problem,
    settings::Settings,
    values::{ExactArgs, NewCapacity, counted},
};

/// Sets the capacity of `queue` if `new` is given. Prints the capacity of `queue`, or of all queues if `queue` is `None`.
pub(super) async fn capacity(
    settings: &Settings,
    queue: Option<&str>,
    new: Option<NewCapacity>,
    ExactArgs { exact }: ExactArgs,
    as_json: bool,
) -> Result<(), Problem> {
    let (database, store) = open_store(settings).await?;
    // The name is checked first, because setting a capacity makes even a misspelt name known to the store.
    check_queue(&database, store, queue).await?;
    if let (Some(queue), Some(NewCapacity(capacity))) = (queue, new) {
        let mut tx = AuditedTransaction::begin(database.pool(), store).await?;
        Queue::on(&mut tx).store(store).set_capacity(queue, capacity).await?;
        let what = capacity.map_or_else(|| "none".to_owned(), |capacity| capacity.to_string());
        tx.commit("capacity", format!("queue {queue}: {what}"), 0).await?;
    }
    let mut found =
        if exact { database.queue().store(store).capacities_exactly().await? } else { database.queue().store(store).capacities().await? };
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
