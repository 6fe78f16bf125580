//! Writes jobs by INSERT, a chunk a statement, each while the next one is encoded. Safe on any connection, and to be dropped at any point.

use sqlx::{
    Encode, PgConnection, Postgres, Type,
    encode::IsNull,
    error::BoxDynError,
    postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo},
    types::Json,
};

use super::{
    explain,
    places::{Place, Places, Rows, Written},
    row::Row,
};
use crate::error::Error;

/// A chunk has at most so many rows: more gain nothing.
pub(super) const CHUNK: usize = 8192;

/// A chunk ends after so many bytes of payloads, if that comes first.
const CHUNK_BYTES: usize = 2 * 1024 * 1024;

/// So many rows are encoded before others get their turn.
const STRIDE: usize = 64;

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
        let (ids, next) = tokio::join!(insert(connection, places, &chunk, written.count), fill(&mut rows));
        written.add(&ids?);
        chunk = next?;
    }
    Ok(())
}

/// The next chunk; empty at the end.
pub(super) async fn fill<'a>(rows: &mut Rows<'a>) -> Result<Vec<Row<'a>>, Error> {
    let mut chunk = Vec::new();
    let mut bytes = 0;
    while chunk.len() < CHUNK && bytes < CHUNK_BYTES {
        let Some(row) = rows.next().transpose()? else { break };
        bytes += row.size();
        chunk.push(row);
        if chunk.len().is_multiple_of(STRIDE) {
            tokio::task::yield_now().await;
        }
    }
    Ok(chunk)
}

/// Which ordering keys this enqueue has locked: those of its first chunk, or all at once if more chunks may follow, for locking in several
/// steps may end in a deadlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockedKeys {
    None,
    OfOneChunk,
    All,
}

impl LockedKeys {
    pub(super) async fn lock(&mut self, connection: &mut PgConnection, places: &Places<'_>, chunk: &[Row<'_>]) -> Result<(), Error> {
        if *self == Self::All || chunk.iter().all(|row| places.key_of(row).is_none()) {
            return Ok(());
        }
        let is_last = chunk.len() < CHUNK && chunk.iter().map(Row::size).sum::<usize>() < CHUNK_BYTES;
        *self = if is_last && *self == Self::None { Self::OfOneChunk } else { Self::All };
        let keyed: Vec<&Row<'_>> = chunk.iter().filter(|row| places.key_of(row).is_some() && *self != Self::All).collect();
        sqlx::query(places.store.sql(include_str!("../../sql/lock_keys.sql")))
            .bind(keyed.iter().map(|row| &*places.options_of(row).queue).collect::<Vec<_>>())
            .bind(keyed.iter().map(|row| places.key_of(row)).collect::<Vec<_>>())
            .bind(*self == Self::All)
            .execute(connection)
            .await
            .map_err(|error| explain(error, places.store))?;
        Ok(())
    }
}

async fn insert(connection: &mut PgConnection, places: &Places<'_>, chunk: &[Row<'_>], index: u64) -> Result<Vec<i64>, Error> {
    let to: Vec<&Place> = chunk.iter().zip(index..).map(|(row, index)| places.find(row, index)).collect::<Result<_, _>>()?;
    let carries = chunk.iter().any(|row| !row.is_plain());
    let statement = if carries { include_str!("../../sql/insert_with.sql") } else { include_str!("../../sql/insert_all.sql") };
    let mut query = sqlx::query_scalar(places.store.sql(statement))
        .bind(chunk.iter().map(|row| JsonText(row.payload())).collect::<Vec<_>>())
        .bind(to.iter().map(|place| place.lane).collect::<Vec<_>>())
        .bind(to.iter().map(|place| place.max_attempts).collect::<Vec<_>>())
        .bind(to.iter().map(|place| place.run_at).collect::<Vec<_>>());
    if carries {
        query = query
            .bind(chunk.iter().map(|row| row.carried_if_any().map(JsonText)).collect::<Vec<_>>())
            .bind(to.iter().map(|place| place.expires_at).collect::<Vec<_>>());
    }
    query.fetch_one(connection).await.map_err(|error| explain(error, places.store))
}

/// Text of JSON as a jsonb parameter, as it is.
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
        buffer.push(1); // the version of the format
        buffer.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }
}
