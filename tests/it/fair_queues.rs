//! Tests fair keys. Jobs take turns by key, regardless of the number of waiting jobs per key.

mod operations;
mod attacks;
mod claims;
mod combined;
mod edges;
mod turns;
mod ways;

use queue_core::JobId;
use sqlx::PgConnection;

/// Returns the fair key of a job in a fair queue if the key is in `keys`.
async fn key_of(on: &mut PgConnection, job: JobId, keys: &[&str]) -> Option<String> {
    let found = "select k from queue.ready r join queue.lane l on l.lane = r.lane and l.paired cross join unnest($2) k where r.id = $1 and r.fair_id = queue.fair_id_of(k)";
    sqlx::query_scalar(found).bind(job).bind(keys).fetch_optional(on).await.unwrap()
}
