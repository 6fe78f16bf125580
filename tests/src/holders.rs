//! Runs writes of a worker that holds a durable job under a lease: steps, parks, signals, children, maps and restarts. The product's own
//! statements run one at a time on the caller's connection.

use queue_core::JobId;
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use crate::{
    children, operate,
    protocol::{JobVerdict, sql},
    signals,
};

/// Names of all writes that [`write`](fn@write) runs. The write `receive` requires a signal named `go`.
pub const HOLDER_WRITES: [&str; 8] = ["step", "step alone", "park", "receive", "spawn", "chunk", "close", "restart"];

/// Names of the writes that end the attempt.
pub const ENDING_WRITES: [&str; 2] = ["park", "restart"];

/// Runs a write for the job of a verdict. Returns whether the write was accepted.
pub async fn write(connection: &mut PgConnection, verdict: JobVerdict, what: &str) -> sqlx::Result<bool> {
    let (token, job) = (verdict.token, verdict.job.id);
    Ok(match what {
        "step" => operate::journal(connection, token, job).await? == 1,
        "step alone" => operate::journal_one(connection, token, job).await? == 1,
        "park" => signals::park_held(connection, &[verdict]).await?.is_empty(),
        "receive" => signals::receive(connection, token, job).await?,
        "spawn" => children::spawn(connection, token, job).await?,
        "chunk" => chunk(connection, token, job, "map").await? == Some(true),
        "close" => close(connection, token, job, &Uuid::new_v4().to_string(), 0).await? == Some(true),
        _ => signals::restart(connection, &[verdict]).await?.is_empty(),
    })
}

/// Enqueues two jobs as the next chunk of a map in which one job may run at a time. Rolls back if the chunk is rejected.
pub async fn chunk(connection: &mut PgConnection, token: Uuid, parent: JobId, map: &str) -> sqlx::Result<Option<bool>> {
    let mut tx = connection.begin().await?;
    let added = chunk_within(&mut tx, token, parent, map).await?;
    if added == Some(true) {
        tx.commit().await?;
    } else {
        tx.rollback().await?;
    }
    Ok(added)
}

/// Enqueues a chunk like [`chunk`], in the caller's transaction. The caller must roll back if the chunk is rejected.
pub async fn chunk_within(on: &mut PgConnection, token: Uuid, parent: JobId, map: &str) -> sqlx::Result<Option<bool>> {
    const NEXT: &str = "select coalesce(max(chunk) + 1, 0) from queue.map_batch where parent = $1 and name = $2";
    let next: i32 = sqlx::query_scalar(NEXT).bind(parent).bind(map).fetch_one(&mut *on).await?;
    let lane = operate::ensure_lanes(on, &[("default", 100)]).await?[0];
    let ids = operate::insert_all(on, &[(lane, false); 2]).await?;
    let add = sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/add_chunk.sql"))).bind(token).bind(parent).bind(map);
    add.bind(next).bind(i64::from(next) * 2).bind(ids).bind(1).fetch_one(on).await
}

/// Closes a map with `total` jobs.
pub async fn close(connection: &mut PgConnection, token: Uuid, parent: JobId, map: &str, total: i64) -> sqlx::Result<Option<bool>> {
    let close = sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/close_gather.sql"))).bind(token).bind(parent).bind(1_i16);
    close.bind(map).bind(total).fetch_one(connection).await
}
