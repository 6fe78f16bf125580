//! Writes jobs by `COPY`: reserves a block of ids, streams the encoded payloads into `job` under these ids, then copies the entries of
//! the jobs into `ready` and `scheduled`.
//!
//! The blocks of ids are large, so that few `COPY` statements are needed. Every third `COPY` over TCP waits for 40 ms, because its last
//! message is small and `sqlx` does not disable Nagle's algorithm. Dropping the future during a `COPY` interrupts the protocol exchange,
//! so the owner of the connection must close the connection.

use std::iter::Peekable;

use sqlx::PgConnection;

use super::{
    places::{BulkResult, EnqueueRows, LanePlace, LanePlaces},
    row::EnqueueRow,
    store_error,
};
use crate::error::Error;

/// Statement that copies payloads under reserved ids. The jobs' entries in `ready` and `scheduled` are copied in the same transaction, so
/// a rollback removes payloads and entries.
const JOB: &str = "copy queue.job (id, lane, max_attempts, payload) from stdin with (format binary)";

/// Statement that copies the entries of ready jobs, in the order of their ids.
const READY: &str = "copy queue.ready (lane, seq, id) from stdin with (format binary)";

/// Statement that copies the entries of scheduled jobs.
const SCHEDULED: &str = "copy queue.scheduled (run_at, id, lane) from stdin with (format binary)";

/// Maximum number of ids per reservation.
const MAX_BLOCK: usize = 262_144;

/// Minimum number of ids per reservation. Also used if the number of remaining rows is unknown.
const MIN_BLOCK: usize = 8192;

/// Number of buffered bytes at which the buffer is sent to the server.
const BUFFER_SIZE: usize = 64 * 1024;

/// Writes the rows before the first row that the copied columns cannot hold. Returns that row and all later rows.
pub(super) async fn write<'r>(
    connection: &mut PgConnection,
    places: &LanePlaces<'_>,
    rows: EnqueueRows<'r>,
    written: &mut BulkResult,
) -> Result<EnqueueRows<'r>, Error> {
    let mut rows = rows.peekable();
    while rows.peek().is_some_and(is_plain) {
        let expected = rows.size_hint().0.clamp(MIN_BLOCK, MAX_BLOCK);
        let mut ids = reserve(connection, places, expected).await?;
        let to = copy_jobs(connection, places, &ids, &mut rows, written.count).await?;
        ids.truncate(to.len());
        copy_entries(connection, places, &ids, &to).await.map_err(|error| store_error(error, places.store))?;
        written.add(&ids);
    }
    Ok(Box::new(rows))
}

/// Returns whether the copied columns can hold the row. Also returns `true` for an error, which the caller reports when it takes the row.
fn is_plain(row: &Result<EnqueueRow<'_>, Error>) -> bool {
    row.as_ref().map_or(true, EnqueueRow::is_plain)
}

/// Reserves ids and returns them in ascending order. The ids are sorted because jobs are claimed in id order. An id ends with a sequence
/// number, which may restart at 0 between two ids of the same millisecond.
async fn reserve(connection: &mut PgConnection, places: &LanePlaces<'_>, count: usize) -> Result<Vec<i64>, Error> {
    let reserve = sqlx::query_scalar(places.store.sql(include_str!("../../sql/reserve_ids.sql"))).bind(count as i32);
    let mut ids: Vec<i64> = reserve.fetch_one(connection).await.map_err(|error| store_error(error, places.store))?;
    ids.sort_unstable();
    Ok(ids)
}

/// Copies payloads until the next row is not plain, or no rows or ids remain. Returns the lane and the start time of each copied job.
async fn copy_jobs<'p>(
    connection: &mut PgConnection,
    places: &'p LanePlaces<'_>,
    ids: &[i64],
    rows: &mut Peekable<EnqueueRows<'_>>,
    index: u64,
) -> Result<Vec<&'p LanePlace>, Error> {
    let to_error = |error| store_error(error, places.store);
    let mut copy = CopyStream::begin(connection, places.store.sql(JOB)).await.map_err(to_error)?;
    let mut to = Vec::with_capacity(ids.len());
    // The loop iterates over the ids, so that it takes no row once the ids are used up.
    for (&id, index) in ids.iter().zip(index..) {
        let Some(row) = rows.next_if(is_plain) else { break };
        let found = row.and_then(|row| places.find(&row, index).map(|place| (row, place)));
        let (row, place) = match found {
            Ok(found) => found,
            Err(error) => {
                copy.abort().await.map_err(to_error)?;
                return Err(error);
            }
        };
        copy.row(4).bigint(id).bigint(place.lane).smallint(place.max_attempts).jsonb(row.payload());
        to.push(place);
        copy.send_full().await.map_err(to_error)?;
    }
    copy.finish().await.map_err(to_error)?;
    Ok(to)
}

/// Copies the entries of ready jobs, then the entries of scheduled jobs.
async fn copy_entries(connection: &mut PgConnection, places: &LanePlaces<'_>, ids: &[i64], to: &[&LanePlace]) -> sqlx::Result<()> {
    let mut copy = CopyStream::begin(connection, places.store.sql(READY)).await?;
    let mut scheduled = Vec::new();
    for (&id, place) in ids.iter().zip(to) {
        match place.run_at {
            None => drop(copy.row(3).bigint(place.lane).bigint(id).bigint(id)),
            Some(run_at) => scheduled.push((run_at, id, place.lane)),
        }
        copy.send_full().await?;
    }
    copy.finish().await?;
    if scheduled.is_empty() {
        return Ok(());
    }
    let mut copy = CopyStream::begin(connection, places.store.sql(SCHEDULED)).await?;
    for (run_at, id, lane) in scheduled {
        copy.row(3).timestamptz(run_at).bigint(id).bigint(lane);
        copy.send_full().await?;
    }
    copy.finish().await
}

/// `COPY` in progress, in binary format.
struct CopyStream<'c> {
    copy: sqlx::postgres::PgCopyIn<&'c mut PgConnection>,
    buffer: Vec<u8>,
}

impl<'c> CopyStream<'c> {
    async fn begin(connection: &'c mut PgConnection, statement: &'static str) -> sqlx::Result<Self> {
        let mut buffer = Vec::with_capacity(BUFFER_SIZE + 1024);
        buffer.extend_from_slice(b"PGCOPY\n\xff\r\n\0");
        buffer.extend_from_slice(&[0; 8]); // no flags, no more header
        Ok(Self { copy: connection.copy_in_raw(statement).await?, buffer })
    }

    /// Begins a row with `columns` columns.
    fn row(&mut self, columns: i16) -> &mut Self {
        self.buffer.extend_from_slice(&columns.to_be_bytes());
        self
    }

    fn bigint(&mut self, value: i64) -> &mut Self {
        self.column(8, &value.to_be_bytes())
    }

    fn smallint(&mut self, value: i16) -> &mut Self {
        self.column(2, &value.to_be_bytes())
    }

    /// Writes JSON text, preceded by the version byte of the jsonb format.
    fn jsonb(&mut self, text: &str) -> &mut Self {
        self.column(text.len() + 1, &[1]).buffer.extend_from_slice(text.as_bytes());
        self
    }

    /// Writes a time as microseconds since the year 2000.
    fn timestamptz(&mut self, time: chrono::DateTime<chrono::Utc>) -> &mut Self {
        const YEAR_2000: i64 = 946_684_800_000_000;
        self.bigint(time.timestamp_micros() - YEAR_2000)
    }

    fn column(&mut self, size: usize, bytes: &[u8]) -> &mut Self {
        self.buffer.extend_from_slice(&(size as i32).to_be_bytes());
        self.buffer.extend_from_slice(bytes);
        self
    }

    /// Sends the buffered rows if the buffer is full.
    async fn send_full(&mut self) -> sqlx::Result<()> {
        if self.buffer.len() >= BUFFER_SIZE {
            self.copy.send(&*self.buffer).await?;
            self.buffer.clear();
        }
        Ok(())
    }

    async fn finish(mut self) -> sqlx::Result<()> {
        self.buffer.extend_from_slice(&(-1_i16).to_be_bytes());
        self.copy.send(self.buffer).await?;
        self.copy.finish().await.map(drop)
    }

    async fn abort(self) -> sqlx::Result<()> {
        self.copy.abort("a payload cannot be stored").await
    }
}
