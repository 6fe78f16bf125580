//! Writes jobs by COPY: a block of ids is reserved, payloads stream into `job` under them as they are encoded, then the entries follow.
//!
//! Blocks are long, because over TCP every third COPY waits for 40 ms: `sqlx` leaves Nagle's algorithm on, and the last message is small.
//! A future that is dropped here leaves the connection in the middle of the protocol; whoever owns it must close it.

use std::iter::Peekable;

use sqlx::PgConnection;

use super::{
    explain,
    places::{Place, Places, Rows, Written},
    row::Row,
};
use crate::error::Error;

/// Payloads under reserved ids. In one transaction with their entries: rolled back, nothing is left.
const JOB: &str = "copy queue.job (id, lane, max_attempts, payload) from stdin with (format binary)";

/// Entries of jobs to run now, in the order of their ids.
const READY: &str = "copy queue.ready (lane, seq, id) from stdin with (format binary)";

/// Entries of jobs to run later.
const SCHEDULED: &str = "copy queue.scheduled (run_at, id, lane) from stdin with (format binary)";

/// The most ids that are reserved at a time.
const LONGEST_BLOCK: usize = 262_144;

/// As many are reserved when it is not known how many rows there will be.
const BLOCK: usize = 8192;

/// So many bytes are sent at a time.
const PIECE: usize = 64 * 1024;

/// Writes the rows up to the first that is not plain; returns the others.
pub(super) async fn write<'r>(
    connection: &mut PgConnection,
    places: &Places<'_>,
    rows: Rows<'r>,
    written: &mut Written,
) -> Result<Rows<'r>, Error> {
    let mut rows = rows.peekable();
    while rows.peek().is_some_and(is_plain) {
        let expected = rows.size_hint().0.clamp(BLOCK, LONGEST_BLOCK);
        let mut ids = reserve(connection, places, expected).await?;
        let to = copy_jobs(connection, places, &ids, &mut rows, written.count).await?;
        ids.truncate(to.len());
        copy_entries(connection, places, &ids, &to).await.map_err(|error| explain(error, places.store))?;
        written.add(&ids);
    }
    Ok(Box::new(rows))
}

/// Whether a row fits the columns that are copied. What went wrong before it was a row is told by whoever takes it.
fn is_plain(row: &Result<Row<'_>, Error>) -> bool {
    row.as_ref().map_or(true, Row::is_plain)
}

/// So many ids, in order: their sequence begins again at 0 every so often, within a millisecond, and the order given is the order of claims.
async fn reserve(connection: &mut PgConnection, places: &Places<'_>, count: usize) -> Result<Vec<i64>, Error> {
    let reserve = sqlx::query_scalar(places.store.sql(include_str!("../../sql/reserve_ids.sql"))).bind(count as i32);
    let mut ids: Vec<i64> = reserve.fetch_one(connection).await.map_err(|error| explain(error, places.store))?;
    ids.sort_unstable();
    Ok(ids)
}

/// Copies payloads until the rows or the ids are used up; returns the places of the jobs that were copied.
async fn copy_jobs<'p>(
    connection: &mut PgConnection,
    places: &'p Places<'_>,
    ids: &[i64],
    rows: &mut Peekable<Rows<'_>>,
    index: u64,
) -> Result<Vec<&'p Place>, Error> {
    let to_error = |error| explain(error, places.store);
    let mut copy = Copy::begin(connection, places.store.sql(JOB)).await.map_err(to_error)?;
    let mut to = Vec::with_capacity(ids.len());
    // The ids come first: a row that was taken must not be lost for want of one.
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

/// Copies the entries of jobs: those to run now, then those to run later.
async fn copy_entries(connection: &mut PgConnection, places: &Places<'_>, ids: &[i64], to: &[&Place]) -> sqlx::Result<()> {
    let mut copy = Copy::begin(connection, places.store.sql(READY)).await?;
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
    let mut copy = Copy::begin(connection, places.store.sql(SCHEDULED)).await?;
    for (run_at, id, lane) in scheduled {
        copy.row(3).timestamptz(run_at).bigint(id).bigint(lane);
        copy.send_full().await?;
    }
    copy.finish().await
}

/// A COPY in binary format, under way.
struct Copy<'c> {
    copy: sqlx::postgres::PgCopyIn<&'c mut PgConnection>,
    piece: Vec<u8>,
}

impl<'c> Copy<'c> {
    async fn begin(connection: &'c mut PgConnection, statement: &'static str) -> sqlx::Result<Self> {
        let mut piece = Vec::with_capacity(PIECE + 1024);
        piece.extend_from_slice(b"PGCOPY\n\xff\r\n\0");
        piece.extend_from_slice(&[0; 8]); // no flags, no more header
        Ok(Self { copy: connection.copy_in_raw(statement).await?, piece })
    }

    /// Begins a row of so many columns.
    fn row(&mut self, columns: i16) -> &mut Self {
        self.piece.extend_from_slice(&columns.to_be_bytes());
        self
    }

    fn bigint(&mut self, value: i64) -> &mut Self {
        self.column(8, &value.to_be_bytes())
    }

    fn smallint(&mut self, value: i16) -> &mut Self {
        self.column(2, &value.to_be_bytes())
    }

    /// Text of JSON, after the version of the format.
    fn jsonb(&mut self, text: &str) -> &mut Self {
        self.column(text.len() + 1, &[1]).piece.extend_from_slice(text.as_bytes());
        self
    }

    /// Microseconds since 2000.
    fn timestamptz(&mut self, time: chrono::DateTime<chrono::Utc>) -> &mut Self {
        const YEAR_2000: i64 = 946_684_800_000_000;
        self.bigint(time.timestamp_micros() - YEAR_2000)
    }

    fn column(&mut self, size: usize, bytes: &[u8]) -> &mut Self {
        self.piece.extend_from_slice(&(size as i32).to_be_bytes());
        self.piece.extend_from_slice(bytes);
        self
    }

    /// Sends the rows so far, if they fill a piece.
    async fn send_full(&mut self) -> sqlx::Result<()> {
        if self.piece.len() >= PIECE {
            self.copy.send(&*self.piece).await?;
            self.piece.clear();
        }
        Ok(())
    }

    async fn finish(mut self) -> sqlx::Result<()> {
        self.piece.extend_from_slice(&(-1_i16).to_be_bytes());
        self.copy.send(self.piece).await?;
        self.copy.finish().await.map(drop)
    }

    async fn abort(self) -> sqlx::Result<()> {
        self.copy.abort("a payload cannot be stored").await
    }
}
