//! Writes many jobs by `INSERT` (module `insert`), `COPY` (module `copy`) or SQL functions (module `each`). `COPY` is 10 % faster than
//! `INSERT`. The rows are taken from an iterator in chunks, so a million jobs take little more memory than ten thousand.
//!
//! `COPY` is used only if the first chunk has the maximum number of rows, because starting and ending a `COPY` is expensive. `COPY` also
//! requires a pool connection. If the future of a `COPY` is dropped, `sqlx` loses track of the server's responses, so the connection must
//! be closed. A connection borrowed from the caller cannot be closed, and its later statements would read the responses to earlier
//! statements. The first job that is not plain (see `EnqueueRow::is_plain`) and all later jobs are written by `INSERT`.

use super::{
    copy, each,
    insert::{self, LockedKeys},
    options::EnqueueOptions,
    places::{BulkResult, EnqueueRows, LanePlaces},
    row::EnqueueRow,
    store_error,
};
use crate::{
    define::Durability,
    error::Error,
    schema::{Connection, Session, Store},
};

/// Enqueues all rows in one transaction. If `on` is already in a transaction, the rows are written in that transaction.
pub(super) async fn write_all(
    on: Connection<'_>,
    store: Store,
    durability: Option<Durability>,
    options: &[EnqueueOptions],
    mut rows: EnqueueRows<'_>,
    returns_ids: bool,
) -> Result<BulkResult, Error> {
    let mut written = BulkResult { count: 0, ids: returns_ids.then(Vec::new), outcomes: Vec::new() };
    let first = insert::next_chunk(&mut rows).await?;
    if first.is_empty() {
        return Ok(written);
    }
    let to_error = |error| store_error(error, store);
    let all_relaxed = options.iter().all(|options| options.durability == Durability::Relaxed);
    let durability = durability.unwrap_or(if all_relaxed { Durability::Relaxed } else { Durability::Full });
    let mut session = Session::begin(on, durability).await.map_err(to_error)?;
    match write_within(&mut session, store, options, (first, rows), &mut written).await {
        Ok(()) => session.commit().await.map(|()| written).map_err(to_error),
        Err(error) => {
            session.roll_back().await;
            Err(error)
        }
    }
}

/// Enqueues the chunk `first`, then the remaining rows, in the transaction of `session`.
pub(super) async fn write_within<'a>(
    session: &mut Session<'_>,
    store: Store,
    options: &[EnqueueOptions],
    (mut first, mut rows): (Vec<EnqueueRow<'a>>, EnqueueRows<'a>),
    written: &mut BulkResult,
) -> Result<(), Error> {
    let unique = options.iter().any(|options| options.unique.is_some());
    let copies = session.is_pooled() && first.len() == insert::CHUNK;
    let connection = session.connection();
    let places = LanePlaces::load(connection, store, options).await?;
    let mut keys = LockedKeys::None;
    if unique || places.through_functions {
        each::write(connection, &places, first, rows, written, &mut keys).await?;
        return places.finish(connection, 0, keys != LockedKeys::None).await;
    }
    places.check_capacity(connection, first.len() as u64).await?;
    if copies {
        let all: EnqueueRows<'_> = Box::new(first.into_iter().map(Ok).chain(rows));
        rows = copy::write(connection, &places, all, written).await?;
        first = insert::next_chunk(&mut rows).await?;
    }
    insert::write(connection, &places, first, rows, written, &mut keys).await?;
    places.finish(connection, written.count, keys != LockedKeys::None).await
}
