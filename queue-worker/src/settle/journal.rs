//! Journals steps of durable jobs. Concurrent steps are batched in one statement. A step that is committed with the handler's writes has
//! a separate statement.
//!
//! A step is sent immediately unless a statement is in flight. Steps that arrive while a statement is in flight share the next statement.
//! A step is refused if its lease is lost. While the database is unavailable, steps wait. Steps of ended attempts are also written,
//! because the work of these steps is finished. A step that is rejected, or whose lease is locked, does not affect other steps.

use std::{
    collections::HashSet,
    future::pending,
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::{
    Error, JobId, Store,
    runner::{CommitResult, JournaledStep, OwnedTransaction, StepEntry, WriteResult},
};
use sqlx::{
    PgConnection, PgPool, Postgres, Transaction,
    postgres::PgArguments,
    query::{QueryAs, QueryScalar},
};
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    time::sleep_until,
};
use uuid::Uuid;

use super::{
    handler_tx::{PREPARE_VERDICT, RECONCILE_INTERVAL, RECONCILE_TIMEOUT},
    locked::load_lock_holder_pids,
    send::is_rejection,
};
use crate::{
    error::{is_locked, warn_throttled},
    live::{StoreConnection, bounded, jittered},
};

/// Maximum number of steps per statement.
const MAX_STEPS: usize = 500;

/// Maximum total output size in bytes per statement. A single larger output is sent alone.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Minimum delay before the retry of a failed statement.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Interval at which the journal loop checks whether locked leases have been released.
const LOCK_CHECK_INTERVAL: Duration = Duration::from_millis(500);

const LOCKED: &str = "an open transaction has locked leases of this worker; steps of their jobs wait until it ends, others are journaled; \
    if it is stuck, end it with `select pg_terminate_backend(PID)`";

/// Channel through which attempts send steps to the journal loop.
#[derive(Clone, Debug)]
pub(crate) struct JournalSender(mpsc::UnboundedSender<PendingStep>);

/// Step, with the reply channel of the waiting attempt.
#[derive(Debug)]
pub(crate) struct PendingStep {
    entry: StepEntry,
    reply: oneshot::Sender<WriteResult>,
}

impl JournalSender {
    /// Creates a sender and its receiver. The channel needs no bound, because a running attempt has only a few unwritten steps.
    pub(crate) fn open() -> (Self, mpsc::UnboundedReceiver<PendingStep>) {
        let (sender, incoming) = mpsc::unbounded_channel();
        (Self(sender), incoming)
    }

    pub(super) async fn write(&self, entry: StepEntry) -> WriteResult {
        let (reply, written) = oneshot::channel();
        let ended = || WriteResult::Failed("the worker has ended".to_owned());
        match self.0.send(PendingStep { entry, reply }) {
            Ok(()) => written.await.unwrap_or_else(|_| ended()),
            Err(_) => ended(),
        }
    }
}

/// Journals incoming steps until all senders are dropped.
pub(crate) async fn write_journal(incoming: Arc<Mutex<mpsc::UnboundedReceiver<PendingStep>>>, connection: StoreConnection, store: Store) {
    let mut incoming = incoming.lock().await;
    let mut writer = JournalWriter { connection, store, locked: Vec::new(), next_check: Instant::now() };
    let mut received = Vec::new();
    loop {
        let lock_check = async { if writer.locked.is_empty() { pending().await } else { sleep_until(writer.next_check.into()).await } };
        tokio::select! {
            count = incoming.recv_many(&mut received, MAX_STEPS) => if count == 0 { break },
            () = lock_check => received.extend(writer.take_unlocked().await),
        }
        while !received.is_empty() {
            let mut bytes = 0;
            let fitting = received.iter().take_while(|step| {
                bytes += step.entry.output.as_ref().map_or(0, String::len);
                bytes <= MAX_BYTES
            });
            let count = fitting.count().max(1);
            writer.write(received.drain(..count).collect()).await;
        }
    }
    writer.connection.close().await;
}

/// State of the journal loop. `locked` contains the steps whose leases another session has locked.
struct JournalWriter {
    connection: StoreConnection,
    store: Store,
    locked: Vec<PendingStep>,
    /// Time at which the loop next checks whether locked leases have been released.
    next_check: Instant,
}

impl JournalWriter {
    /// Writes steps in one statement, which is retried until the database responds. Retrying is idempotent.
    ///
    /// Steps of ended attempts are also written, because the work of these steps is finished. All steps are assumed to be new until the
    /// database reports a duplicate.
    async fn write(&mut self, mut steps: Vec<PendingStep>) {
        let locked: HashSet<Uuid> = self.locked.iter().map(PendingStep::token).collect();
        self.locked.extend(steps.extract_if(.., |step| locked.contains(&step.token())));
        let mut are_new = true;
        while !steps.is_empty() {
            match send_steps(&mut self.connection, self.store, &steps, are_new).await {
                Ok(accepted) => return steps.into_iter().for_each(|step| step.reply(&accepted)),
                Err(error) if are_new && is_duplicate(&error) => are_new = false,
                Err(error) if is_locked(&error) && self.defer_locked(&mut steps).await => {}
                Err(error) if is_rejection(&error) && !is_locked(&error) => return Box::pin(self.write_halves(steps, error)).await,
                Err(error) => {
                    warn_throttled(&error, "journaling steps failed; retrying");
                    tokio::time::sleep(jittered(RETRY_DELAY)).await;
                }
            }
        }
    }

    /// Writes the two halves of the steps separately. Repeated halving isolates the step that the server rejects. The attempt of that
    /// step fails.
    async fn write_halves(&mut self, mut steps: Vec<PendingStep>, error: sqlx::Error) {
        if steps.len() > 1 {
            let rest = steps.split_off(steps.len() / 2);
            self.write(steps).await;
            return self.write(rest).await;
        }
        for PendingStep { entry, reply } in steps {
            let error = queue_core::message(&error);
            tracing::warn!(job = %entry.fence.id, step = entry.name, error, "step rejected by the server; its attempt fails");
            let _ = reply.send(WriteResult::Failed(error));
        }
    }

    /// Moves the steps whose leases are locked from `steps` to `locked`. Returns whether a lease is locked.
    async fn defer_locked(&mut self, steps: &mut Vec<PendingStep>) -> bool {
        self.next_check = Instant::now() + LOCK_CHECK_INTERVAL;
        let tokens = steps.iter().map(PendingStep::token).collect();
        let Ok(holders) = load_lock_holder_pids(&mut self.connection, self.store, tokens).await else { return false };
        if let Some((lease, pid)) = holders.iter().next() {
            tracing::warn!(%lease, pid, leases = holders.len(), "{LOCKED}");
        }
        self.locked.extend(steps.extract_if(.., |step| holders.contains_key(&step.token())));
        !holders.is_empty()
    }

    /// Takes the steps whose leases are no longer locked or no longer exist.
    async fn take_unlocked(&mut self) -> Vec<PendingStep> {
        self.next_check = Instant::now() + LOCK_CHECK_INTERVAL;
        let tokens = self.locked.iter().map(PendingStep::token).collect();
        let Ok(holders) = load_lock_holder_pids(&mut self.connection, self.store, tokens).await else { return Vec::new() };
        self.locked.extract_if(.., |step| !holders.contains_key(&step.token())).collect()
    }
}

impl PendingStep {
    fn token(&self) -> Uuid {
        self.entry.fence.token
    }

    fn reply(self, accepted: &HashSet<JournaledStepKey>) {
        let Self { entry, reply } = self;
        let is_accepted = accepted.contains(&(entry.fence.token, entry.fence.id, entry.name));
        // Sending fails only if the attempt no longer waits for the result.
        let _ = reply.send(if is_accepted { WriteResult::Yes } else { WriteResult::Refused });
    }
}

/// Sends one statement and returns the accepted steps. If `are_new` is true, the statement has no `on conflict` clause. It then writes
/// fewer WAL records, but fails if a step is already journaled.
async fn send_steps(
    connection: &mut StoreConnection,
    store: Store,
    steps: &[PendingStep],
    are_new: bool,
) -> sqlx::Result<HashSet<JournaledStepKey>> {
    let pg = connection.get().await?;
    let accepted = if let ([step], true) = (steps, are_new) {
        let transaction = bounded(journal_one(store, &step.entry).fetch_optional(pg)).await;
        transaction
            .map(|transaction| transaction.into_iter().map(|_| (step.token(), step.entry.fence.id, step.entry.name.clone())).collect())
    } else {
        let entries: Vec<&StepEntry> = steps.iter().map(|step| &step.entry).collect();
        bounded(journal_many(store, &entries, are_new).fetch_all(pg)).await.map(|rows| rows.into_iter().collect())
    };
    connection.note(accepted)
}

/// Returns whether the error means that a step is already journaled. This happens if a statement is retried after its response was lost.
fn is_duplicate(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(sqlx::error::DatabaseError::is_unique_violation)
}

/// Lease token, job id and name of an accepted step.
type JournaledStepKey = (Uuid, JobId, String);

/// Builds the query that journals one new step. The query returns the transaction id, or no row if the step was refused.
fn journal_one(store: Store, entry: &StepEntry) -> QueryScalar<'_, Postgres, String, PgArguments> {
    sqlx::query_scalar(store.sql(include_str!("../../sql/journal_one.sql")))
        .bind(entry.fence.token)
        .bind(entry.fence.id)
        .bind(&entry.name)
        .bind(entry.fence.attempt)
        .bind(run_time_ms(entry))
        .bind(wait_ms(entry))
        .bind(entry.output.as_deref())
}

/// Builds the query that journals many steps. The query returns the accepted steps.
fn journal_many<'q>(store: Store, entries: &[&'q StepEntry], are_new: bool) -> QueryAs<'q, Postgres, JournaledStepKey, PgArguments> {
    let rows = || entries.iter();
    let statement = if are_new { include_str!("../../sql/journal_fresh.sql") } else { include_str!("../../sql/journal.sql") };
    sqlx::query_as(store.sql(statement))
        .bind(rows().map(|entry| entry.fence.token).collect::<Vec<_>>())
        .bind(rows().map(|entry| entry.fence.id).collect::<Vec<_>>())
        .bind(rows().map(|entry| entry.name.as_str()).collect::<Vec<_>>())
        .bind(rows().map(|entry| entry.fence.attempt).collect::<Vec<_>>())
        .bind(rows().map(|entry| run_time_ms(entry)).collect::<Vec<_>>())
        .bind(rows().map(|entry| wait_ms(entry)).collect::<Vec<_>>())
        .bind(rows().map(|entry| entry.output.as_deref()).collect::<Vec<_>>())
}

fn run_time_ms(entry: &StepEntry) -> i32 {
    i32::try_from(entry.ran.as_millis()).unwrap_or(i32::MAX)
}

fn wait_ms(entry: &StepEntry) -> Option<f64> {
    entry.wait.map(|wait| wait.as_secs_f64() * 1000.0)
}

/// Loads the steps that a job's earlier attempts have journaled.
pub(crate) async fn load_steps(pool: &PgPool, store: Store, job: JobId) -> Result<Vec<JournaledStep>, Error> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/steps_done.sql"))).bind(job);
    let rows: Vec<(String, i16, Option<String>, Option<f64>)> = bounded(statement.fetch_all(pool)).await?;
    Ok(rows.into_iter().map(|(name, attempt, output, left_ms)| JournaledStep { name, attempt, output, left_ms }).collect())
}

/// Journals a step as the last statement of the handler's transaction, and commits.
pub(super) async fn commit_step((pool, store): (&PgPool, Store), tx: OwnedTransaction, entry: StepEntry) -> CommitResult {
    // Only trials and the test kit use `Lent`, and both have a different backend.
    let OwnedTransaction::Pooled(mut tx) = tx else { return CommitResult::Lost };
    let transaction_id = match write_step(&mut tx, store, &entry).await {
        Ok(Some(id)) => id,
        Ok(None) => return roll_back(tx).await,
        // The commit was not sent, so the transaction is not committed.
        Err(error) => return CommitResult::Undone(Error::Database(error).into()),
    };
    match bounded(tx.commit()).await {
        Ok(()) => CommitResult::Written,
        Err(error) => reconcile_step((pool, store), &entry, &transaction_id, error).await,
    }
}

/// Determines the outcome of a commit whose response was lost.
async fn reconcile_step((pool, store): (&PgPool, Store), entry: &StepEntry, transaction_id: &str, error: sqlx::Error) -> CommitResult {
    let (job, step) = (entry.fence.id, entry.name.as_str());
    tracing::warn!(%job, step, error = queue_core::message(&error), "no answer to the commit of a step; querying its outcome");
    let (mut connection, deadline) = (StoreConnection::new(pool, "reconcile"), Instant::now() + RECONCILE_TIMEOUT);
    loop {
        let committed = load_commit_status(&mut connection, store, entry, transaction_id).await;
        match connection.note(committed) {
            Ok(Some(true)) => break CommitResult::Written,
            Ok(Some(false)) => break CommitResult::Undone(Error::Database(error).into()),
            Ok(None) | Err(_) if Instant::now() > deadline => break CommitResult::Unknown(Error::Database(error).into()),
            Ok(None) | Err(_) => tokio::time::sleep(jittered(RECONCILE_INTERVAL)).await,
        }
    }
}

async fn roll_back(tx: Transaction<'static, Postgres>) -> CommitResult {
    // The transaction is never committed, so even a failed rollback discards the writes.
    let _ = bounded(tx.rollback()).await;
    CommitResult::Lost
}

/// Journals the step as the last statement of the transaction. Returns the transaction id, or `None` if the lease no longer lists the job.
async fn write_step(tx: &mut PgConnection, store: Store, entry: &StepEntry) -> sqlx::Result<Option<String>> {
    sqlx::raw_sql(PREPARE_VERDICT).execute(&mut *tx).await?;
    bounded(journal_one(store, entry).fetch_optional(tx)).await
}

/// Returns whether the transaction was committed. Returns `None` while the outcome is unknown, for example because the transaction is in
/// progress.
async fn load_commit_status(
    connection: &mut StoreConnection,
    store: Store,
    entry: &StepEntry,
    transaction_id: &str,
) -> sqlx::Result<Option<bool>> {
    let fence = entry.fence;
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/step_written.sql")));
    let statement = statement.bind(fence.id).bind(&entry.name).bind(fence.attempt).bind(transaction_id);
    bounded(statement.fetch_one(connection.get().await?)).await
}
