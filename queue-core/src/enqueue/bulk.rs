//! Writes many jobs, a million in little more memory than ten thousand: by INSERT (`insert`), or by COPY (`copy`), which is a tenth faster.
//!
//! COPY is used for sets of more than one chunk, because of what it costs to begin and end; and on a connection from a pool only. When its
//! future is dropped, `sqlx` loses count of the server's answers, and all that can be done with the connection is to close it; one that
//! was lent by the caller cannot be closed, and its next borrowers would get each other's answers. From the first job with an ordering key on, all
//! go by INSERT.

use super::{
    copy, each, explain,
    insert::{self, LockedKeys},
    options::EnqueueOptions,
    places::{Places, Rows, Written},
    row::Row,
};
use crate::{
    define::Durability,
    error::Error,
    schema::{Connection, Session, Store},
};

/// Enqueues all rows.
pub(super) async fn write_all(
    on: Connection<'_>,
    store: Store,
    durability: Option<Durability>,
    options: &[EnqueueOptions],
    mut rows: Rows<'_>,
    ids_wanted: bool,
) -> Result<Written, Error> {
    let mut written = Written { count: 0, ids: ids_wanted.then(Vec::new), outcomes: Vec::new() };
    let first = insert::fill(&mut rows).await?;
    if first.is_empty() {
        return Ok(written);
    }
    let to_error = |error| explain(error, store);
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

/// Enqueues the first rows and then the others, in the transaction of this session.
pub(super) async fn write_within<'a>(
    session: &mut Session<'_>,
    store: Store,
    options: &[EnqueueOptions],
    (mut first, mut rows): (Vec<Row<'a>>, Rows<'a>),
    written: &mut Written,
) -> Result<(), Error> {
    let unique = options.iter().any(|options| options.unique.is_some());
    let copies = session.is_own() && first.len() == insert::CHUNK;
    let connection = session.connection();
    let places = Places::meet(connection, store, options).await?;
    let mut keys = LockedKeys::None;
    if unique || places.by_door {
        each::write(connection, &places, first, rows, written, &mut keys).await?;
        return places.wake(connection, 0, keys != LockedKeys::None).await;
    }
    places.look(connection, first.len() as u64).await?;
    if copies {
        let all: Rows<'_> = Box::new(first.into_iter().map(Ok).chain(rows));
        rows = copy::write(connection, &places, all, written).await?;
        first = insert::fill(&mut rows).await?;
    }
    insert::write(connection, &places, first, rows, written, &mut keys).await?;
    places.wake(connection, written.count, keys != LockedKeys::None).await
}
