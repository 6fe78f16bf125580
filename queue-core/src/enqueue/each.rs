//! Writes jobs through an SQL function, which enqueues the jobs of a chunk one by one. Used for unique jobs, because a job may have the
//! same uniqueness key as an earlier job of the chunk. Also used for roles without privileges on the tables.

use sqlx::{PgConnection, Row as _};

use super::{
    insert::{JsonText, LockedKeys, next_chunk},
    places::{BulkResult, EnqueueRows, LanePlaces},
    row::EnqueueRow,
    store_error,
};
use crate::{
    define::{EnqueueOutcome, JobId},
    error::Error,
};

/// Writes the chunk `first`, then the remaining rows.
pub(super) async fn write<'a>(
    connection: &mut PgConnection,
    places: &LanePlaces<'_>,
    first: Vec<EnqueueRow<'a>>,
    mut rows: EnqueueRows<'a>,
    written: &mut BulkResult,
    keys: &mut LockedKeys,
) -> Result<(), Error> {
    let mut chunk = first;
    while !chunk.is_empty() {
        keys.lock(connection, places, &chunk).await?;
        let (done, next) = tokio::join!(insert(connection, places, &chunk, written.count), next_chunk(&mut rows));
        for (id, outcome) in done? {
            written.add_one(id, outcome);
        }
        chunk = next?;
    }
    Ok(())
}

async fn insert(
    connection: &mut PgConnection,
    places: &LanePlaces<'_>,
    chunk: &[EnqueueRow<'_>],
    index: u64,
) -> Result<Vec<(JobId, EnqueueOutcome)>, Error> {
    for (row, index) in chunk.iter().zip(index..) {
        places.find(row, index)?;
    }
    let options: Vec<_> = chunk.iter().map(|row| row.options_json(places.options_of(row))).collect::<Result<_, _>>()?;
    let rows = sqlx::query(places.store.sql(include_str!("../../sql/enqueue_each.sql")))
        .bind(chunk.iter().map(|row| places.options_of(row).job_type).collect::<Vec<_>>())
        .bind(chunk.iter().map(|row| JsonText(row.payload())).collect::<Vec<_>>())
        .bind(options.iter().map(|options| JsonText(options)).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
        .map_err(|error| store_error(error, places.store))?;
    rows.iter().map(|row| Ok((row.try_get(0)?, EnqueueOutcome::from_sql(row.try_get(1)?)))).collect()
}
