//! Writes jobs with `INSERT`, one statement per chunk. The next chunk is encoded while the database executes the statement. An `INSERT`
//! works on any connection and is cancel safe.

use sqlx::{
    Encode, PgConnection, Postgres, Type,
    encode::IsNull,
    error::BoxDynError,
    postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo},
    types::Json,
};

use super::{
    places::{BulkResult, EnqueueRows, LanePlace, LanePlaces},
    row::EnqueueRow,
    store_error,
};
use crate::error::Error;

/// Maximum number of rows per chunk. A larger chunk would not be faster.
pub(super) const CHUNK: usize = 8192;

/// Payload size in bytes at which a chunk is full. The last row may make the chunk larger.
const CHUNK_BYTES: usize = 2 * 1024 * 1024;

/// Number of rows that are encoded between two yields to other tasks.
const YIELD_INTERVAL: usize = 64;

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
        let (ids, next) = tokio::join!(insert(connection, places, &chunk, written.count), next_chunk(&mut rows));
        written.add(&ids?);
        chunk = next?;
    }
    Ok(())
}

/// Returns the next chunk of rows. The chunk is empty if no rows remain.
pub(super) async fn next_chunk<'a>(rows: &mut EnqueueRows<'a>) -> Result<Vec<EnqueueRow<'a>>, Error> {
    let mut chunk = Vec::new();
    let mut bytes = 0;
    while chunk.len() < CHUNK && bytes < CHUNK_BYTES {
        let Some(row) = rows.next().transpose()? else { break };
        bytes += row.size();
        chunk.push(row);
        if chunk.len().is_multiple_of(YIELD_INTERVAL) {
            tokio::task::yield_now().await;
        }
    }
    Ok(chunk)
}

/// Ordering keys locked by this enqueue. If all rows fit into one chunk, only their keys are locked. If more chunks may follow, all keys
/// of the store are locked, because an enqueue that locks keys chunk by chunk could deadlock with another enqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockedKeys {
    None,
    OfOneChunk,
    All,
}

impl LockedKeys {
    pub(super) async fn lock(
        &mut self,
        connection: &mut PgConnection,
        places: &LanePlaces<'_>,
        chunk: &[EnqueueRow<'_>],
    ) -> Result<(), Error> {
        if *self == Self::All || chunk.iter().all(|row| places.key_of(row).is_none()) {
            return Ok(());
        }
        let is_last = chunk.len() < CHUNK && chunk.iter().map(EnqueueRow::size).sum::<usize>() < CHUNK_BYTES;
        *self = if is_last && *self == Self::None { Self::OfOneChunk } else { Self::All };
        let keyed: Vec<&EnqueueRow<'_>> = chunk.iter().filter(|row| places.key_of(row).is_some() && *self != Self::All).collect();
        sqlx::query(places.store.sql(include_str!("../../sql/lock_keys.sql")))
            .bind(keyed.iter().map(|row| &*places.options_of(row).queue).collect::<Vec<_>>())
            .bind(keyed.iter().map(|row| places.key_of(row)).collect::<Vec<_>>())
            .bind(*self == Self::All)
            .execute(connection)
            .await
            .map_err(|error| store_error(error, places.store))?;
        Ok(())
    }
}

async fn insert(connection: &mut PgConnection, places: &LanePlaces<'_>, chunk: &[EnqueueRow<'_>], index: u64) -> Result<Vec<i64>, Error> {
    let to: Vec<&LanePlace> = chunk.iter().zip(index..).map(|(row, index)| places.find(row, index)).collect::<Result<_, _>>()?;
    let carries = chunk.iter().any(|row| !row.is_plain());
    let statement = if carries { include_str!("../../sql/insert_with.sql") } else { include_str!("../../sql/insert_all.sql") };
    let mut query = sqlx::query_scalar(places.store.sql(statement))
        .bind(chunk.iter().map(|row| JsonText(row.payload())).collect::<Vec<_>>())
        .bind(to.iter().map(|place| place.lane).collect::<Vec<_>>())
        .bind(to.iter().map(|place| place.max_attempts).collect::<Vec<_>>())
        .bind(to.iter().map(|place| place.run_at).collect::<Vec<_>>());
    if carries {
        query = query
            .bind(chunk.iter().map(|row| row.extra_options_json().map(JsonText)).collect::<Vec<_>>())
            .bind(to.iter().map(|place| place.expires_at).collect::<Vec<_>>());
    }
    query.fetch_one(connection).await.map_err(|error| store_error(error, places.store))
}

/// JSON text that is bound as a jsonb parameter without being parsed first.
pub(super) struct JsonText<'a>(pub(super) &'a str);

impl Type<Postgres> for JsonText<'_> {
    fn type_info() -> PgTypeInfo {
        <Json<()> as Type<Postgres>>::type_info()
    }
}

impl PgHasArrayType for JsonText<'_> {
    fn array_type_info() -> PgTypeInfo {
        <Json<()> as PgHasArrayType>::array_type_info()
    }
}

impl Encode<'_, Postgres> for JsonText<'_> {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.push(1); // version of the jsonb format
        buffer.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }
}
