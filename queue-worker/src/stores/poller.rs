//! Polls the stores in a database, and requests workers for stores that have pending work but no worker. One statement polls many stores,
//! several times a second.

use std::{sync::Arc, time::Duration};

use sqlx::AssertSqlSafe;

use super::{
    database::{POLLER_NUMBER, StoreDatabase},
    store_entry::StoreEntry,
};
use crate::{
    error::{error_message, is_transient, warn_throttled},
    live::{ConnectionFactory, StoreConnection, bounded},
};

/// Interval between polls. Also the approximate maximum delay before a store with a new job gets a worker.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Maximum number of stores per statement. Polling a store locks about twenty tables and indexes for the duration of the statement, and the
/// server limits the number of locks.
const STORES_PER_STATEMENT: usize = 16;

/// Poll result of a store: whether jobs or maintenance are pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PendingWork {
    Nothing,
    Something,
}

/// Polls the stores in a database. Never returns.
pub(super) async fn poll_stores(database: Arc<StoreDatabase>) {
    let mut link = link(&database.factory(POLLER_NUMBER));
    loop {
        let all = database.all();
        if let Err(error) = poll_all(&mut link, &all).await {
            warn_throttled(&error, "cannot poll stores; retrying");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        tokio::time::sleep(POLL_INTERVAL.mul_f64(0.9 + 0.2 * fastrand::f64())).await;
    }
}

/// Returns the connection for polls. Polls wait only briefly for locks.
pub(super) fn link(factory: &ConnectionFactory) -> StoreConnection {
    StoreConnection::new(factory, "stores").prompt().brief()
}

/// Polls stores in stable groups, so that prepared statements can be reused. Polls each failed store separately when its retry is due.
/// Returns an error only if the database itself failed.
async fn poll_all(link: &mut StoreConnection, all: &[Arc<StoreEntry>]) -> sqlx::Result<()> {
    let mut well: Vec<&Arc<StoreEntry>> = all.iter().filter(|entry| !entry.has_failed()).collect();
    well.sort_by(|one, other| (&one.served, one.number).cmp(&(&other.served, other.number)));
    for served in well.chunk_by(|one, other| one.served == other.served) {
        for group in served.chunks(STORES_PER_STATEMENT).filter(|group| !group.iter().all(|entry| entry.is_awake())) {
            match query_work(link, group).await {
                Ok(found) => request_workers(group, &found),
                Err(error) if is_lost(&error) => return Err(error),
                // At least one store in the group failed, so each store is polled separately.
                Err(_) => {
                    for entry in group {
                        poll_one(link, entry).await?;
                    }
                }
            }
        }
    }
    for entry in all.iter().filter(|entry| entry.is_retry_due()) {
        poll_one(link, entry).await?;
    }
    Ok(())
}

async fn poll_one(link: &mut StoreConnection, entry: &Arc<StoreEntry>) -> sqlx::Result<()> {
    match query_work(link, &[entry]).await {
        Ok(found) => {
            entry.record_reachable();
            request_workers(&[entry], &found);
        }
        Err(error) if is_lost(&error) => return Err(error),
        Err(error) => entry.record_unreachable(&error_message(&error)),
    }
    Ok(())
}

/// Returns whether the error affects the whole database rather than a single store.
fn is_lost(error: &sqlx::Error) -> bool {
    let is_locked = error.as_database_error().is_some_and(|error| error.code().is_some_and(|code| code == "55P03" || code == "57014"));
    is_transient(error) && !is_locked
}

fn request_workers(group: &[&Arc<StoreEntry>], found: &[PendingWork]) {
    for (entry, _) in group.iter().zip(found).filter(|(_, work)| **work == PendingWork::Something) {
        entry.request_worker();
    }
}

/// Polls a group of stores that serve the same job types and queues. The results are in the order of the group.
pub(super) async fn query_work(link: &mut StoreConnection, group: &[&Arc<StoreEntry>]) -> sqlx::Result<Vec<PendingWork>> {
    let Some(served) = group.first().map(|first| &first.served) else { return Ok(Vec::new()) };
    let one = |(nth, entry): (usize, &&Arc<StoreEntry>)| {
        let what = entry.member.store().sql(include_str!("../../sql/any_work.sql"));
        format!("select {nth} as nth, s.what from (\n{what}\n) s")
    };
    let text = group.iter().enumerate().map(one).collect::<Vec<_>>().join("\nunion all\n") + "\norder by nth";
    let query = sqlx::query_as(AssertSqlSafe(text)).bind(&served.types).bind(&served.queues);
    let found = bounded(query.fetch_all(link.get().await?)).await;
    let found: Vec<(i32, i32)> = link.note(found)?;
    Ok(found.into_iter().map(|(_, what)| if what == 0 { PendingWork::Nothing } else { PendingWork::Something }).collect())
}
