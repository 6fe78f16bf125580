//! How a handler's own transaction ends: the job's verdict as its last statement, the commit, and what that came to if its answer was lost.
//!
//! The statement is the settle loop's own, and so is its fence: a lease that no longer lists the job refuses it, and then all is rolled back.
//! Runs in a task of its own, which no timeout drops half-way.

use std::{sync::Arc, time::Instant};

use async_trait::async_trait;
use queue_core::{
    Error, JobId, Store,
    runner::{
        Backend, ChildEntry, ChildLook, ChunkEntry, CloseEntry, CommitResult, Ending, Fence, GatherLook, Heard, JournaledStep, LogEntry,
        OwnTransaction, SignalEntry, StepEntry, Written,
    },
};
use sqlx::{PgConnection, PgPool, Postgres, Transaction};

use super::{
    children, gathers,
    journal::{JournalSender, end_step, steps_done},
    logs::LogSender,
    own::{ASK_FOR, KEEP, PAUSE},
    receive::AskSender,
    send::{is_about_data, settle_within},
    settlement::Settlement,
};
use crate::live::{Link, bounded, jittered};

/// Under a stricter isolation, every settle beside this one in the same lease would be a conflict.
const BEGIN: &str = "begin isolation level read committed read write";

/// What attempts ask of the database.
#[derive(Clone, Debug)]
pub(crate) struct DatabaseBackend {
    pub(crate) pool: PgPool,
    pub(crate) store: Store,
    pub(crate) logs: LogSender,
    pub(crate) journal: JournalSender,
    pub(crate) signals: AskSender,
}

#[async_trait]
impl Backend for DatabaseBackend {
    async fn begin(&self, _: JobId) -> Result<OwnTransaction, Error> {
        Ok(OwnTransaction::Pooled(self.pool.begin_with(BEGIN).await?))
    }

    async fn commit(self: Arc<Self>, tx: OwnTransaction, fence: Fence, ending: Ending) -> CommitResult {
        match tx {
            OwnTransaction::Pooled(tx) => self.end(tx, fence, ending).await,
            // Only tests lend transactions, and they have a backend of their own.
            OwnTransaction::Lent(_) => CommitResult::Lost,
        }
    }

    async fn checkpoint(&self, job: JobId) -> Result<Option<String>, Error> {
        let statement = sqlx::query_scalar(self.store.sql(include_str!("../../sql/checkpoint.sql"))).bind(job);
        let found: Option<Option<String>> = statement.fetch_optional(&self.pool).await?;
        Ok(found.flatten())
    }

    async fn steps(&self, job: JobId) -> Result<Vec<JournaledStep>, Error> {
        steps_done(&self.pool, self.store, job).await
    }

    async fn journal(&self, entry: StepEntry) -> Written {
        self.journal.write(entry).await
    }

    async fn commit_step(self: Arc<Self>, tx: OwnTransaction, entry: StepEntry) -> CommitResult {
        end_step((&self.pool, self.store), tx, entry).await
    }

    async fn receive(&self, ask: SignalEntry) -> Heard {
        self.signals.ask(ask).await
    }

    async fn spawn(&self, child: ChildEntry) -> sqlx::Result<Option<JobId>> {
        children::enqueue(&self.pool, self.store, &child).await
    }

    async fn child(&self, parent: JobId, step: &str) -> sqlx::Result<Option<ChildLook>> {
        children::look(&self.pool, self.store, parent, step).await
    }

    async fn gather(&self, parent: JobId, step: &str, chunks: bool) -> sqlx::Result<Option<GatherLook>> {
        gathers::look(&self.pool, self.store, parent, step, chunks).await
    }

    async fn begin_chunk(&self, job: JobId) -> Result<Option<OwnTransaction>, Error> {
        self.begin(job).await.map(Some)
    }

    async fn add_chunk(&self, tx: Option<OwnTransaction>, entry: ChunkEntry) -> sqlx::Result<Option<bool>> {
        match tx {
            Some(OwnTransaction::Pooled(tx)) => gathers::add_chunk(tx, self.store, entry).await,
            // Only tests lend transactions, and they have a backend of their own.
            Some(OwnTransaction::Lent(_)) | None => Ok(None),
        }
    }

    async fn close_gather(&self, entry: CloseEntry) -> sqlx::Result<Option<bool>> {
        gathers::close(&self.pool, self.store, &entry).await
    }

    async fn parts(&self, parent: JobId, step: &str, chunk: i32) -> sqlx::Result<Vec<ChildLook>> {
        gathers::parts(&self.pool, self.store, parent, step, chunk).await
    }

    async fn keep_log(&self, entry: LogEntry, may_wait: bool) {
        self.logs.keep(entry, may_wait).await;
    }
}

impl DatabaseBackend {
    async fn end(&self, mut tx: Transaction<'static, Postgres>, fence: Fence, ending: Ending) -> CommitResult {
        match write(&mut tx, self.store, Settlement::within(fence, ending)).await {
            Ok(true) => {}
            Ok(false) => {
                // Whether it succeeds or not, nothing of it stays.
                let _ = bounded(tx.rollback()).await;
                return CommitResult::Lost;
            }
            // The commit was not sent, so it will not happen.
            Err(error) => return undone(error),
        }
        match bounded(tx.commit()).await {
            Ok(()) => CommitResult::Written,
            Err(error) => self.reconcile(fence, error).await,
        }
    }

    /// Finds out whether a commit happened whose answer did not come.
    async fn reconcile(&self, fence: Fence, error: sqlx::Error) -> CommitResult {
        tracing::warn!(job = %fence.id, error = queue_core::message(&error), "no answer to a handler's commit; asking what it came to");
        let (mut link, until) = (Link::new(&self.pool, "reconcile"), Instant::now() + ASK_FOR);
        loop {
            let found = find(&mut link, self.store, fence).await;
            match link.note(found) {
                Ok(Place::Lease) => break undone(error),
                Ok(Place::History) => break CommitResult::Written,
                Ok(Place::Elsewhere) => break CommitResult::Lost,
                Err(_) if Instant::now() > until => break CommitResult::Unknown(Error::Database(error).into()),
                Err(_) => tokio::time::sleep(jittered(PAUSE)).await,
            }
        }
    }
}

fn undone(error: sqlx::Error) -> CommitResult {
    CommitResult::Undone(Error::Database(error).into())
}

/// The last statement; false if the lease does not have the job any more.
async fn write(tx: &mut PgConnection, store: Store, mut one: Settlement) -> sqlx::Result<bool> {
    sqlx::raw_sql(KEEP).execute(&mut *tx).await?;
    loop {
        match settle_within(tx, store, &one).await {
            Err(error) if is_about_data(&error) && one.ending.redact() => {
                tracing::warn!(job = %one.id, error = queue_core::message(&error), "cannot settle with this text; leaving it out");
                bounded(sqlx::raw_sql("rollback to savepoint queue_verdict").execute(&mut *tx)).await?;
            }
            other => return other,
        }
    }
}

/// Where a job is whose commit is in doubt.
enum Place {
    /// In its lease: it was not committed, and cannot be any more.
    Lease,
    /// In history, by this attempt: it was committed.
    History,
    /// With others: it was not committed, and recovered since.
    Elsewhere,
}

/// Two statements, for the second is to see what the first waited for: the verdict holds the lease's lock until its commit is over.
async fn find(link: &mut Link, store: Store, fence: Fence) -> sqlx::Result<Place> {
    let held = sqlx::query(store.sql(include_str!("../../sql/still_held.sql"))).bind(fence.token).bind(fence.id);
    if bounded(held.fetch_optional(link.get().await?)).await?.is_some() {
        return Ok(Place::Lease);
    }
    let ended = sqlx::query_scalar(store.sql(include_str!("../../sql/ended.sql")));
    let ended = ended.bind(fence.id).bind(fence.attempt).bind(fence.crashes);
    let ended: bool = bounded(ended.fetch_one(link.get().await?)).await?;
    Ok(if ended { Place::History } else { Place::Elsewhere })
}
