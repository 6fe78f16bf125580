//! How a handler's own transaction ends: the job's verdict as its last statement, the commit, and what that came to if its answer was lost.
//!
//! The statement is the settle loop's own, and so is its fence: a lease that no longer lists the job refuses it, and then all is rolled back.
//! Runs in a task of its own, which no timeout drops half-way.

use std::{
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::{
    Backoff, Error, Failure, Outcome, verdict,
    worker::{Fence, Ruling, Said, Shared},
};
use sqlx::{PgConnection, Postgres, Transaction};

use crate::{
    connect::{Link, bounded},
    dispatch::{LONGEST_OUTPUT, storable, without_nul},
    settle::{Settlement, is_about_data, settle_within},
};

/// What the handler wrote is to stay. Constraints that it deferred are checked now, under its own settings, so that they count as its failure
/// and not as a lost commit. Then our statement runs under our settings. A server that loses us between the verdict and the commit lets go of
/// the lease soon.
const KEEP: &str = "set constraints all immediate; set local search_path = pg_catalog; set local enable_seqscan = off;
  set local plan_cache_mode = force_generic_plan; set local jit = off; set local lock_timeout = 0; set local statement_timeout = '60s';
  set local idle_in_transaction_session_timeout = '15s'; savepoint queue_verdict";

/// How long a commit whose answer was lost is asked after.
const ASK_FOR: Duration = Duration::from_mins(1);

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(200);

/// See [`queue_core::worker::Commit`].
pub(crate) fn commit(shared: Arc<Shared>, tx: Transaction<'static, Postgres>, said: Said) -> Pin<Box<dyn Future<Output = Ruling> + Send>> {
    Box::pin(end(shared, tx, said))
}

async fn end(shared: Arc<Shared>, mut tx: Transaction<'static, Postgres>, said: Said) -> Ruling {
    if said.output.as_ref().is_some_and(|text| text.len() > LONGEST_OUTPUT) {
        return Ruling::Undone(Failure::terminal(format!("the output is longer than {LONGEST_OUTPUT} bytes; store a reference instead")));
    }
    let fence = said.fence;
    match write(&mut tx, &shared, settlement(said)).await {
        Ok(true) => {}
        Ok(false) => {
            // Whether it succeeds or not, nothing of it stays.
            let _ = bounded(tx.rollback()).await;
            return Ruling::Lost;
        }
        // The commit was not sent, so it will not happen.
        Err(error) => return undone(error),
    }
    match bounded(tx.commit()).await {
        Ok(()) => Ruling::Written,
        Err(error) => reconcile(&shared, fence, error).await,
    }
}

fn undone(error: sqlx::Error) -> Ruling {
    Ruling::Undone(Error::Database(error).into())
}

fn settlement(said: Said) -> Settlement {
    let Fence { token, id, lane, attempt, crashes, keep, key, since } = said.fence;
    let outcome = if said.error.is_some() { Outcome::Terminal } else { Outcome::Ok };
    let number = attempt.unsigned_abs().into();
    Settlement {
        token,
        id,
        lane,
        attempt,
        crashes,
        batch: 1,
        verdict: verdict(outcome, number, number, &Backoff::DEFAULT, 0.0),
        over: false,
        keep,
        key,
        ran: since.elapsed(),
        output: said.output.map(without_nul),
        error: said.error.map(storable),
        held: Arc::default(),
    }
}

/// The last statement; false if the lease does not have the job any more.
async fn write(tx: &mut PgConnection, shared: &Shared, mut one: Settlement) -> sqlx::Result<bool> {
    #[cfg(feature = "mutants")]
    queue_core::mutants::effects_first(tx).await?;
    sqlx::raw_sql(KEEP).execute(&mut *tx).await?;
    loop {
        match settle_within(tx, shared.store, &one).await {
            Err(error) if is_about_data(&error) && one.redact() => {
                tracing::warn!(job = %one.id, error = queue_core::message(&error), "cannot settle with this text; leaving it out");
                bounded(sqlx::raw_sql("rollback to savepoint queue_verdict").execute(&mut *tx)).await?;
            }
            other => return other,
        }
    }
}

/// Finds out whether a commit happened whose answer did not come.
async fn reconcile(shared: &Shared, fence: Fence, error: sqlx::Error) -> Ruling {
    tracing::warn!(job = %fence.id, error = queue_core::message(&error), "no answer to a handler's commit; asking what it came to");
    let (mut link, until) = (Link::new(&shared.pool, "reconcile"), Instant::now() + ASK_FOR);
    loop {
        let found = find(&mut link, shared, fence).await;
        match link.note(found) {
            Ok(Found::Held) => break undone(error),
            Ok(Found::Ended) => break Ruling::Written,
            Ok(Found::Elsewhere) => break Ruling::Lost,
            Err(_) if Instant::now() > until => break Ruling::Unknown(Error::Database(error).into()),
            Err(_) => tokio::time::sleep(PAUSE.mul_f64(1.0 + fastrand::f64())).await,
        }
    }
}

/// Where a job is whose commit is in doubt.
enum Found {
    /// In its lease: it was not committed, and cannot be any more.
    Held,
    /// In history, by this attempt: it was committed.
    Ended,
    /// With others: it was not committed, and recovered since.
    Elsewhere,
}

/// Two statements, for the second is to see what the first waited for: the verdict holds the lease's lock until its commit is over.
async fn find(link: &mut Link, shared: &Shared, fence: Fence) -> sqlx::Result<Found> {
    let held = sqlx::query(shared.store.sql(include_str!("../sql/still_held.sql"))).bind(fence.token).bind(fence.id);
    if bounded(held.fetch_optional(link.get().await?)).await?.is_some() {
        return Ok(Found::Held);
    }
    let ended = sqlx::query_scalar(shared.store.sql(include_str!("../sql/ended.sql")));
    let ended = ended.bind(fence.id).bind(fence.attempt).bind(fence.crashes);
    let ended: bool = bounded(ended.fetch_one(link.get().await?)).await?;
    Ok(if ended { Found::Ended } else { Found::Elsewhere })
}
