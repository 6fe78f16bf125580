//! Writes jobs with uniqueness keys, a chunk a statement, each job by itself: whether its key is held is seen only when it is its turn.

use sqlx::{PgConnection, Row as _};

use super::{
    explain,
    insert::{JsonText, LockedKeys, fill},
    places::{Places, Rows, Written},
    row::Row,
};
use crate::{
    define::{Enqueued, JobId},
    error::Error,
};

/// Writes `first` and then all the rows.
pub(super) async fn write<'a>(
    connection: &mut PgConnection,
    places: &Places<'_>,
    first: Vec<Row<'a>>,
    mut rows: Rows<'a>,
    written: &mut Written,
    keys: &mut LockedKeys,
) -> Result<(), Error> {
    let mut chunk = first;
    while !chunk.is_empty() {
        keys.lock(connection, places, &chunk).await?;
        let (done, next) = tokio::join!(insert(connection, places, &chunk, written.count), fill(&mut rows));
        for (id, outcome) in done? {
            written.add_one(id, outcome);
        }
        chunk = next?;
    }
    Ok(())
}

async fn insert(
    connection: &mut PgConnection,
    places: &Places<'_>,
    chunk: &[Row<'_>],
    index: u64,
) -> Result<Vec<(JobId, Enqueued)>, Error> {
    for (row, index) in chunk.iter().zip(index..) {
        places.find(row, index)?;
    }
    let options: Vec<_> = chunk.iter().map(|row| row.carried(places.options_of(row))).collect::<Result<_, _>>()?;
    let rows = sqlx::query(places.store.sql(include_str!("../../sql/enqueue_each.sql")))
        .bind(chunk.iter().map(|row| places.options_of(row).job_type).collect::<Vec<_>>())
        .bind(chunk.iter().map(|row| JsonText(row.payload())).collect::<Vec<_>>())
        .bind(options.iter().map(|options| JsonText(options)).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
        .map_err(|error| explain(error, places.store))?;
    rows.iter().map(|row| Ok((row.try_get(0)?, Enqueued::from_sql(row.try_get(1)?)))).collect()
}
