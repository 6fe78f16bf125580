//! Writing verdicts: everything that came in while the last flush was in the air goes into the next.
//!
//! A settle is tried until the database answers. What it refuses is a lost lease, which is never an error of the job.

use std::{sync::Arc, time::Duration};

use queue_core::{JobId, Store};
use sqlx::{PgConnection, postgres::PgArguments};
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    settlement::Settlement,
    unsettled::{Flush, Unsettled},
};
use crate::{
    error::complain,
    live::{Bell, Link, bounded},
};

/// The most verdicts of one statement.
const MOST: usize = 1000;

/// The most bytes of outputs and errors in one statement, unless one verdict alone has more: a message of a gigabyte is refused by the server,
/// which would be tried again for ever.
const LARGEST: usize = 32 * 1024 * 1024;

/// Between tries while the database is away, with as much again of jitter, so that workers do not return as a herd. The first is quick: most
/// failures are a connection that was cut.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// Settles what comes in until `closing` fires, and then what is in the channel still.
pub(crate) async fn settle_all(
    mut incoming: Receiver<Settlement>,
    mut link: Link,
    store: Store,
    bell: Arc<Bell>,
    closing: CancellationToken,
) {
    let mut received = Vec::new();
    let mut unsettled = Unsettled::default();
    loop {
        if !unsettled.is_empty() {
            // Whatever came in during the last flush, without waiting for more.
            while received.len() < MOST && incoming.try_recv().map(|one| received.push(one)).is_ok() {}
        } else if !receive(&mut incoming, &mut received, &closing).await {
            break;
        }
        // A handler's own transaction has ended these.
        if received.iter().any(|one| one.over && one.ending.has_key()) {
            bell.tell_keys();
        }
        unsettled.extend(received.drain(..));
        let mut flush = unsettled.next_flush();
        let due = flush.verdicts.iter().filter_map(|one| one.ending.wait()).min();
        let released: Vec<i64> = flush.verdicts.iter().filter(|one| one.ending.is_release()).map(|one| one.lane).collect();
        let frees = flush.verdicts.iter().any(|one| one.ending.freed().is_some());
        settle(&mut link, store, &mut flush).await;
        if !released.is_empty() {
            // Without it they are found by a poll.
            let _ = wake_released(&mut link, store, &released).await;
        }
        if frees {
            bell.tell_keys();
        }
        bell.note_over();
        if let Some(wait) = due {
            bell.due_in(wait);
        }
    }
    link.close().await;
}

/// Waits for verdicts; false when there will be none any more.
async fn receive(incoming: &mut Receiver<Settlement>, received: &mut Vec<Settlement>, closing: &CancellationToken) -> bool {
    loop {
        tokio::select! {
            biased;
            count = incoming.recv_many(received, MOST) => return count > 0,
            () = closing.cancelled(), if !incoming.is_closed() => incoming.close(),
        }
    }
}

/// Writes a flush, however often it must be sent.
async fn settle(link: &mut Link, store: Store, flush: &mut Flush) {
    if !flush.whole.is_empty() {
        let mut tries = Tries::default();
        while let Err(error) = send_leases(link, store, &flush.whole).await.map(|lost| tries.report(lost.len())) {
            tries.pause(&error).await;
        }
    }
    if !flush.verdicts.is_empty() {
        settle_verdicts(link, store, &mut flush.verdicts).await;
    }
}

/// Texts that the database cannot take harm only themselves.
async fn settle_verdicts(link: &mut Link, store: Store, verdicts: &mut Vec<Settlement>) {
    let size: usize = verdicts.iter().flat_map(|one| [one.ending.output(), one.ending.error()]).flatten().map(str::len).sum();
    if size > LARGEST && verdicts.len() > 1 {
        let mut rest = verdicts.split_off(verdicts.len() / 2);
        Box::pin(settle_verdicts(link, store, verdicts)).await;
        return Box::pin(settle_verdicts(link, store, &mut rest)).await;
    }
    let mut tries = Tries::default();
    while let Err(error) = send(link, store, verdicts).await.map(|lost| tries.report(lost.len())) {
        if is_about_data(&error) && verdicts.len() > 1 {
            tracing::warn!(jobs = verdicts.len(), error = queue_core::message(&error), "cannot settle together; settling one by one");
            for one in verdicts.drain(..) {
                Box::pin(settle_verdicts(link, store, &mut vec![one])).await;
            }
            return;
        }
        if is_about_data(&error) && redact(verdicts) {
            tracing::warn!(error = queue_core::message(&error), "cannot settle with these texts; leaving them out");
            continue;
        }
        tries.pause(&error).await;
    }
}

/// Leaves out the texts of the first verdict that has any left.
fn redact(verdicts: &mut [Settlement]) -> bool {
    verdicts.iter_mut().any(|one| one.ending.redact())
}

/// How often one statement was sent.
#[derive(Default)]
struct Tries {
    count: u32,
}

impl Tries {
    async fn pause(&mut self, error: &sqlx::Error) {
        let pause = PAUSES[usize::from(self.count > 0)];
        if self.count > 0 {
            complain(error, "cannot settle; trying again");
        }
        self.count += 1;
        tokio::time::sleep(pause.mul_f64(1.0 + fastrand::f64())).await;
    }

    /// After an error the commit may have happened all the same: what is refused at the next try may be what was written at that one.
    fn report(&self, refused: usize) {
        if refused > 0 && self.count == 0 {
            tracing::warn!(refused, "lease lost: verdicts refused, others have these jobs");
        }
    }
}

/// Whether the server refused a value, rather than the statement or the connection.
pub(crate) fn is_about_data(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| ["22", "23", "54"].iter().any(|class| code.starts_with(class)))
}

/// Writes one verdict in a transaction of the caller's; false if it was refused.
pub(crate) async fn settle_within(connection: &mut PgConnection, store: Store, one: &Settlement) -> sqlx::Result<bool> {
    let statement = bind(store.sql(include_str!("../../sql/settle.sql")), std::slice::from_ref(one));
    Ok(bounded(statement.fetch_all(connection)).await?.is_empty())
}

/// Whole leases; returns what was refused.
async fn send_leases(link: &mut Link, store: Store, tokens: &[Uuid]) -> sqlx::Result<Vec<Uuid>> {
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/settle_leases.sql"))).bind(tokens);
    let lost = bounded(statement.fetch_all(link.get().await?)).await;
    link.note(lost)
}

/// Tells others of jobs that went back to these lanes.
async fn wake_released(link: &mut Link, store: Store, lanes: &[i64]) -> sqlx::Result<()> {
    let statement = sqlx::query(store.sql(include_str!("../../sql/wake_released.sql"))).bind(lanes);
    let woken = bounded(statement.execute(link.get().await?)).await;
    link.note(woken).map(drop)
}

type Refused = (Uuid, JobId);

/// One statement; returns what was refused.
async fn send(link: &mut Link, store: Store, verdicts: &[Settlement]) -> sqlx::Result<Vec<Refused>> {
    let statement = bind(store.sql(include_str!("../../sql/settle.sql")), verdicts);
    let lost = bounded(statement.fetch_all(link.get().await?)).await;
    link.note(lost)
}

fn bind<'q>(statement: &'static str, batch: &'q [Settlement]) -> sqlx::query::QueryAs<'q, sqlx::Postgres, Refused, PgArguments> {
    sqlx::query_as(statement)
        .bind(batch.iter().map(|s| s.token).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.id.0).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.ending.word()).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.lane).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.ending.attempt()).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.crashes).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.ending.wait_ms()).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.ending.ran_ms()).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.ending.output()).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.ending.error()).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.ending.freed()).collect::<Vec<_>>())
}
