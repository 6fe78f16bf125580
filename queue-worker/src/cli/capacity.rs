//! `capacity`: how many jobs may wait in a queue.

use serde_json::json;

use super::{open_store, print, problem::Problem, settings::Settings, values::Bound};
use crate::observe;

/// Bounds a queue, if one is named, and shows those that are bounded.
pub(super) async fn capacity(settings: &Settings, queue: Option<&str>, bound: Option<Bound>, as_json: bool) -> Result<(), Problem> {
    let store = settings.store()?;
    let database = open_store(settings).await?;
    let mut connection = database.pool().acquire().await?;
    if let (Some(queue), Some(Bound(capacity))) = (queue, bound) {
        observe::set_capacity(&mut connection, store, queue, capacity).await?;
    }
    let mut bounded = observe::capacities(&mut connection, store).await?;
    drop(connection);
    database.close().await;
    bounded.retain(|bounded| queue.is_none_or(|queue| bounded.queue == queue));
    if as_json {
        return print::json(&json!({ "capacities": bounded }));
    }
    match (queue, bounded.as_slice()) {
        (Some(queue), []) => print::lines(&format!("the queue {queue} is not bounded")),
        (None, []) => print::lines("no queue is bounded"),
        (_, bounded) => {
            let rows = bounded.iter().map(|bounded| [bounded.queue.clone(), bounded.capacity.to_string(), bounded.waiting.to_string()]);
            print::lines(&print::table(["queue", "capacity", "waiting"], rows))
        }
    }
}
