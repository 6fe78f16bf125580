//! Writes jobs with uniqueness keys, a chunk a statement, each job by itself: whether its key is held is seen only when it is its turn.

use sqlx::{PgConnection, Row as _};

use super::{
    bulk::{Place, Places, Row, Rows, Written},
    explain,
    insert::{JsonText, Keys, fill},
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
    keys: &mut Keys,
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
    let to: Vec<&Place> = chunk.iter().zip(index..).map(|(row, index)| places.find(row, index)).collect::<Result<_, _>>()?;
    let terms: Vec<_> = chunk.iter().map(|row| places.terms_of(row)).collect();
    let unique: Vec<_> = terms.iter().map(|terms| terms.unique.clone().unwrap_or_default()).collect();
    let rows = sqlx::query(places.store.sql(include_str!("../../sql/enqueue_each.sql")))
        .bind(terms.iter().map(|terms| terms.job_type).collect::<Vec<_>>())
        .bind(chunk.iter().map(|row| JsonText(&row.payload)).collect::<Vec<_>>())
        .bind(terms.iter().map(|terms| &*terms.queue).collect::<Vec<_>>())
        .bind(terms.iter().map(|terms| terms.priority).collect::<Vec<_>>())
        .bind(terms.iter().map(|terms| terms.max_attempts).collect::<Vec<_>>())
        .bind(to.iter().map(|place| place.run_at).collect::<Vec<_>>())
        .bind(chunk.iter().map(|row| row.key.as_deref()).collect::<Vec<_>>())
        .bind(terms.iter().map(|terms| terms.key_policy.name()).collect::<Vec<_>>())
        .bind(chunk.iter().map(|row| row.unique_key.as_deref()).collect::<Vec<_>>())
        .bind(unique.iter().map(|unique| unique.held.unwrap_or_default().to_sql()).collect::<Vec<_>>())
        .bind(unique.iter().map(|unique| unique.on_conflict.unwrap_or_default().to_sql()).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
        .map_err(|error| explain(error, places.store))?;
    rows.iter().map(|row| Ok((row.try_get(0)?, Enqueued::from_sql(row.try_get(1)?)))).collect()
}
