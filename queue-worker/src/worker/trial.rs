//! Trial attempts of jobs. A trial does not count as an attempt, has no lease and no verdict, and cannot commit its transaction.
//!
//! Changes in the handler's transaction are rolled back. All other effects remain. The handler's pool is read-only unless the trial
//! allows writes.

mod record;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use queue_core::{
    Error as CoreError, JobId, JobState, Queue, Store,
    operate::JobRecord,
    registry::{Registration, Registry},
    runner::{
        AttemptEnd, Backend, ChildStatus, ClaimedJob, CommitResult, Ending, Fence, Halt, JournaledStep, LentTransaction, MapProgress,
        OwnedTransaction, ReceiveResult, ReportEntry, ReportSender, Shared, SignalEntry, StepEntry, WriteResult, run,
    },
};
use sqlx::{PgPool, postgres::PgPoolOptions};
use tokio::{
    runtime::{Builder, Handle},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub(crate) use self::record::Progress;
use self::record::TrialRecord;
use super::{Worker, warn_missing_keyring};
use crate::{
    error::Error,
    settle::{load_child, load_map, load_steps},
};

/// Timeout and permissions of a trial.
pub(crate) struct TrialOptions {
    /// Maximum duration of the attempt.
    pub(crate) limit: Duration,
    /// Whether `cx.pool()` may write. These writes are not rolled back.
    pub(crate) may_write: bool,
}

/// Result of a trial: ending, duration, progress, and the state of the handler's transaction.
pub(crate) struct TrialResult {
    /// Ending that a worker would write, or the reason why the ending is unknown.
    pub(crate) ending: Result<Ending, String>,
    pub(crate) ran: Duration,
    /// Last progress report of the handler. `None` if the handler has reported no progress.
    pub(crate) progress: Option<Progress>,
    /// Final state of the handler's transaction.
    pub(crate) rollback: Rollback,
}

/// State of the handler's transaction at the end of a trial.
#[derive(Debug)]
pub(crate) enum Rollback {
    /// The transaction was open and has been rolled back.
    Done,
    /// The handler has ended the transaction with a statement of its own, and may have begun another transaction.
    EndedByHandler,
    /// The session was lost. The server rolls the transaction back.
    Lost,
    /// The state could not be determined. Contains the reason.
    Unknown(String),
}

/// Statements that make every commit fail. A commit would empty the first table but not the second table, which references the first.
/// PostgreSQL rejects this combination. Unlike a deferred constraint check, this check cannot be triggered early by the handler.
const NO_COMMIT: &str = "
create temporary table queue_try (n integer primary key) on commit delete rows;
create temporary table queue_try_is_rolled_back (n integer references pg_temp.queue_try) on commit preserve rows;
savepoint queue_attempt";

/// Query for the transaction id and the session's process id.
const NAMES: &str = "select pg_catalog.pg_current_xact_id()::text, pg_catalog.pg_backend_pid()";

/// Query for the transaction status.
const STATUS: &str = "select pg_catalog.pg_xact_status($1::pg_catalog.xid8)";

const UNDO: &str = "rollback to savepoint queue_attempt";

/// Statements that move the savepoint, so that previous writes are kept when the handler begins another transaction.
const KEEP: &str = "release savepoint queue_attempt; savepoint queue_attempt";

/// Statements that check the handler's deferred constraints, as a commit would.
const CHECK: &str = "savepoint queue_check; set constraints all immediate; rollback to savepoint queue_check";

/// Error message for a handler that has ended its transaction with a statement of its own. Later transactions of the handler can be
/// committed.
const ENDED_BY_HANDLER: &str = "the handler ended its transaction with a statement of its own, so its later writes may be committed";

/// Timeout for acquiring the transaction while the handler is using it, and for each check of the transaction.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout for a handler to end after a stop request, and for the final rollback.
const STOP_GRACE: Duration = Duration::from_secs(5);

impl Worker {
    /// Returns the registration of the job type with this name or alias. Returns `None` if this binary lacks the job type or its keyring.
    pub(crate) fn find_type(&self, name: &str) -> Result<Option<(&'static str, Registration)>, Error> {
        let registry = self.registry.clone().map_or_else(Registry::linked, Ok)?.served(warn_missing_keyring)?;
        Ok(registry.names().find(|(known, _)| *known == name).map(|(known, registration)| (known, *registration)))
    }

    /// Runs a job's handler and rolls back its transaction. When `stop` completes, the handler receives a stop request.
    ///
    /// # Errors
    /// Returns an error if the database fails, or if state that the job type requires is missing.
    pub(crate) async fn try_one(
        self,
        job: &JobRecord,
        known: &(&'static str, Registration),
        trial: TrialOptions,
        stop: impl Future<Output = ()>,
    ) -> Result<TrialResult, Error> {
        let Self { pool, config, states, registry, middleware, broken, .. } = self;
        if let Some(error) = broken {
            return Err(error.into());
        }
        let registry = registry.map_or_else(Registry::linked, Ok)?;
        registry.check(&states)?;
        let (name, registration) = (known.0, Arc::new(known.1));
        let store = config.store;
        let starts_over = job.finished_at.is_some() && job.state != JobState::Dead;
        let job = claimed_job(job, name, &pool, store).await?;
        let lent_from = read_only_pool(&pool, 1);
        let mut tx = lent_from.begin_with("begin read write").await?;
        sqlx::raw_sql(NO_COMMIT).execute(&mut *tx).await?;
        let (transaction, session): (String, i32) = sqlx::query_as(NAMES).fetch_one(&mut *tx).await?;
        let lent: LentTransaction = Arc::new(tokio::sync::Mutex::new(tx));
        let ((reports, mut received), handlers) = (ReportSender::open(), Handle::current());
        let backend = Arc::new(TrialBackend {
            starts_over,
            lent: Arc::clone(&lent),
            pool: pool.clone(),
            store,
            transaction,
            record: Mutex::default(),
        });
        let pool = if trial.may_write { pool } else { read_only_pool(&pool, 5) };
        let (lent_backend, trace, shutting_down) = (Arc::<TrialBackend>::clone(&backend), config.trace, CancellationToken::new());
        let shared = Arc::new(Shared { pool, store, states, handlers, backend: lent_backend, reports, middleware, trace, shutting_down });
        let recorder = Arc::clone(&backend);
        let reported = tokio::spawn(async move {
            while let Some(report) = received.recv().await {
                if let Some(entry) = report.take() {
                    recorder.record_report(&entry);
                    report.complete_write(entry, &WriteResult::Yes);
                }
            }
        });
        let (halt, began) = (Arc::new(Halt::new(config.cancel_grace)), Instant::now());
        // The attempt has a separate runtime, so that a handler that never yields does not block other tasks.
        let runtime =
            Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(|error| Error::Thread(error.to_string()))?;
        let attempt = runtime.spawn(attempt(Arc::clone(&registration), job, Arc::clone(&shared), Arc::clone(&halt)));
        let ended = wait_for(attempt, (&shared, &halt), trial.limit, stop).await;
        let ran = began.elapsed();
        let ending = match ended {
            Some((ended, job)) => backend.ending(ended, &registration, &job, ran).await,
            None => Err("the handler did not end in time".to_owned()),
        };
        let rollback = backend.rollback().await;
        // If neither the rollback nor terminating the session succeeds, the connection is dropped when the runtime shuts down. The server
        // then rolls the transaction back.
        let rolled_back = async { sqlx::raw_sql("rollback").execute(&mut **lent.lock().await).await };
        if !matches!(timeout(STOP_GRACE, rolled_back).await, Ok(Ok(_))) {
            // The rollback did not succeed, for example because the handler still holds the transaction or a statement in it is blocked.
            // Terminating the session ends the transaction.
            let ended = sqlx::query("select pg_catalog.pg_terminate_backend($1)").bind(session).execute(&backend.pool);
            let _ = timeout(STOP_GRACE, ended).await;
        }
        reported.abort();
        runtime.shutdown_background();
        let progress = backend.record().progress.clone();
        Ok(TrialResult { ending, ran, progress, rollback })
    }
}

/// Returns a pool whose transactions are read-only, unless the handler explicitly begins a read-write transaction.
fn read_only_pool(pool: &PgPool, most: u32) -> PgPool {
    let options = (*pool.connect_options()).clone().options([("default_transaction_read_only", "on")]);
    let pool = PgPoolOptions::new().max_connections(most).after_connect(|on, _| {
        Box::pin(async move {
            // A pooler may ignore the connection's options, so the setting is checked on the server.
            let only_reads = "select pg_catalog.current_setting('default_transaction_read_only') operator(pg_catalog.=) 'on'";
            let only_reads: bool = sqlx::query_scalar(only_reads).fetch_one(on).await?;
            if only_reads { Ok(()) } else { Err(sqlx::Error::Configuration(NOT_READ_ONLY.into())) }
        })
    });
    pool.connect_lazy_with(options)
}

/// Error message if a pooler ignores the connection's options.
const NOT_READ_ONLY: &str = "`default_transaction_read_only` from the connection's options has no effect, probably because of a pooler: connect to the server itself";

/// Builds the job as a claim would return it. A finished job is built as if it had been requeued.
async fn claimed_job(job: &JobRecord, name: &'static str, pool: &PgPool, store: Store) -> Result<ClaimedJob, Error> {
    let attempt = if job.finished_at.is_some() { 1 } else { job.attempts.saturating_add(1) };
    Ok(ClaimedJob {
        token: Uuid::nil(),
        id: job.id,
        lane: 0,
        queue: job.queue.as_str().into(),
        claimed_at: Queue::new(pool).store(store).now().await?,
        attempt,
        crashes: 0,
        max_attempts: job.max_attempts.max(attempt),
        job_type: name,
        version: job.version.unsigned_abs(),
        payload: job.payload.as_ref().map(|payload| payload.get().to_owned()),
        meta: job.meta.as_ref().map(|meta| meta.get().to_owned()),
        system: job.system.as_ref().map(|system| system.get().to_owned()),
        key: None,
        start_deadline: None,
    })
}

async fn attempt(registration: Arc<Registration>, job: ClaimedJob, shared: Arc<Shared>, halt: Arc<Halt>) -> (AttemptEnd, ClaimedJob) {
    let ended = run(&registration, &job, &shared, &halt, drop).await;
    (ended, job)
}

/// Waits for the attempt to end. After a stop request or the timeout `limit`, the attempt has [`STOP_GRACE`] to end.
async fn wait_for<T>(mut attempt: JoinHandle<T>, of: (&Shared, &Halt), limit: Duration, stop: impl Future<Output = ()>) -> Option<T> {
    let (abort, (shared, halt)) = (attempt.abort_handle(), of);
    let ended = tokio::select! {
        ended = &mut attempt => ended.ok(),
        () = async { tokio::select! { () = stop => {}, () = tokio::time::sleep(limit) => {} } } => {
            shared.shutting_down.cancel();
            halt.stop_request.shut_down();
            if let Ok(ended) = timeout(STOP_GRACE, &mut attempt).await {
                ended.ok()
            } else {
                halt.drop.cancel();
                timeout(Duration::from_secs(1), &mut attempt).await.ok().and_then(Result::ok)
            }
        }
    };
    abort.abort();
    ended
}

/// Backend of a trial. Records the handler's reports, and passes the trial's only transaction to the handler.
#[derive(Debug)]
struct TrialBackend {
    starts_over: bool,
    lent: LentTransaction,
    pool: PgPool,
    store: Store,
    /// Id of the transaction that is passed to the handler.
    transaction: String,
    record: Mutex<TrialRecord>,
}

impl TrialBackend {
    fn record_report(&self, entry: &ReportEntry) {
        let mut record = self.record();
        let before = record.progress.take().and_then(|progress| progress.checkpoint);
        let checkpoint = entry.checkpoint.clone().or(before);
        record.progress = Some(Progress { fraction: entry.fraction, stage: entry.stage.clone(), counts: entry.counts.clone(), checkpoint });
    }

    /// Locks the record. A poisoned lock stays usable, because a panic cannot leave the record half-updated.
    fn record(&self) -> std::sync::MutexGuard<'_, TrialRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the ending that a worker would write, or the reason why the ending is unknown. If the handler has committed its ending but
    /// the transaction is no longer open, the ending becomes a failure.
    async fn ending(&self, ended: AttemptEnd, registration: &Registration, job: &ClaimedJob, ran: Duration) -> Result<Ending, String> {
        let committed = self.record().ending.take().filter(|_| ended.is_written());
        let Some(committed) = committed else { return Ok(ended.ending(Some(registration), job, ran, 0.5)) };
        let ended = match self.rollback().await {
            Rollback::Done => return Ok(committed),
            Rollback::EndedByHandler => AttemptEnd::failed(ENDED_BY_HANDLER.to_owned()),
            Rollback::Lost => AttemptEnd::failed("the session of its transaction was lost before the commit".to_owned()),
            Rollback::Unknown(why) => return Err(format!("cannot determine whether its transaction could be committed: {why}")),
        };
        Ok(ended.ending(Some(registration), job, ran, 0.5))
    }

    /// Returns the state of the transaction that was passed to the handler. Another connection queries the transaction status, because the
    /// handler may have left its connection in any state.
    async fn rollback(&self) -> Rollback {
        let status = sqlx::query_scalar::<_, Option<String>>(STATUS).bind(&self.transaction).fetch_one(&self.pool);
        let status = match timeout(TIMEOUT, status).await {
            Ok(status) => status.map_err(|error| queue_core::message(&error)),
            Err(_) => Err("the database did not answer in time".to_owned()),
        };
        // While the server terminates a session, its transaction still counts as in progress. The handler's connection is therefore also
        // probed.
        let answers = timeout(TIMEOUT, async { sqlx::raw_sql("select").execute(&mut **self.lent.lock().await).await });
        match (answers.await, status) {
            (Ok(Err(error)), _) if is_lost(&error) => Rollback::Lost,
            (_, Ok(Some(status))) if status == "in progress" => Rollback::Done,
            (_, Err(why)) => Rollback::Unknown(why),
            (Ok(_), Ok(_)) => Rollback::EndedByHandler,
            (Err(_), Ok(_)) => Rollback::Unknown("the transaction has ended, and its session did not answer in time".to_owned()),
        }
    }

    async fn check(&self) -> Result<(), sqlx::Error> {
        let checked = async { sqlx::raw_sql(CHECK).execute(&mut **self.lent.lock().await).await.map(drop) };
        timeout(TIMEOUT, checked).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }
}

/// Returns whether the error means that the session was lost.
fn is_lost(error: &sqlx::Error) -> bool {
    let ends_it = |code: &str| code.starts_with("57P") || code.starts_with("08") || code.starts_with("25P03");
    error.as_database_error().is_none_or(|error| error.code().is_some_and(|code| ends_it(&code)))
}

#[async_trait]
impl Backend for TrialBackend {
    /// Rolls the trial's transaction back to its savepoint and returns the transaction. The rollback discards writes that the handler has
    /// not committed.
    async fn begin(&self, _: JobId) -> Result<OwnedTransaction, CoreError> {
        let lent = timeout(TIMEOUT, Arc::clone(&self.lent).lock_owned()).await;
        let mut tx = lent.map_err(|_| CoreError::Database(sqlx::Error::PoolTimedOut))?;
        sqlx::raw_sql(UNDO).execute(&mut **tx).await?;
        Ok(OwnedTransaction::Lent(tx))
    }

    async fn commit(self: Arc<Self>, tx: OwnedTransaction, _: Fence, ending: Ending) -> CommitResult {
        drop(tx);
        match self.check().await {
            Ok(()) => {
                self.record().ending = Some(ending);
                CommitResult::Written
            }
            Err(error) => CommitResult::Undone(match self.rollback().await {
                Rollback::EndedByHandler => ENDED_BY_HANDLER.into(),
                _ => CoreError::Database(error).into(),
            }),
        }
    }

    async fn checkpoint(&self, job: JobId) -> Result<Option<String>, CoreError> {
        let checkpoint = self.record().progress.as_ref().and_then(|progress| progress.checkpoint.clone());
        if checkpoint.is_some() {
            return Ok(checkpoint);
        }
        let statement = sqlx::query_scalar::<_, Option<String>>(self.store.sql(include_str!("../../sql/checkpoint.sql"))).bind(job);
        Ok(statement.fetch_optional(&self.pool).await?.flatten())
    }

    /// Returns the journaled steps of an unfinished durable job. Returns no steps for a finished job, which starts from the beginning.
    async fn steps(&self, job: JobId) -> Result<Vec<JournaledStep>, CoreError> {
        if self.starts_over {
            return Ok(Vec::new());
        }
        let steps = load_steps(&self.pool, self.store, job).await?;
        for step in &steps {
            self.record().deadlines.record(step.name.clone(), step.left_ms.map(|left| left / 1000.0));
        }
        Ok(steps)
    }

    /// Reports the step as journaled, but does not store it.
    async fn journal(&self, entry: StepEntry) -> WriteResult {
        self.record().deadlines.record(entry.name, entry.wait.map(|wait| wait.as_secs_f64()));
        WriteResult::Yes
    }

    /// Receives no signals, so that signals stay in the store. A trial ends at the first wait for a signal, unless the wait has timed out.
    async fn receive(&self, entry: SignalEntry) -> ReceiveResult {
        if entry.end.is_some_and(|end| self.record().deadlines.has_passed(&end)) { ReceiveResult::Over } else { ReceiveResult::Nothing }
    }

    /// Loads a child that an earlier attempt has spawned. A trial spawns no children, so it ends at the first missing child.
    async fn child(&self, parent: JobId, step: &str) -> sqlx::Result<Option<ChildStatus>> {
        load_child(&self.pool, self.store, parent, step).await
    }

    /// Loads a map that an earlier attempt has started. A trial spawns no map batches, so it ends at the first missing map.
    async fn gather(&self, parent: JobId, step: &str, chunks: bool) -> sqlx::Result<Option<MapProgress>> {
        load_map(&self.pool, self.store, parent, step, chunks).await
    }

    /// Keeps the step's writes for later steps of the trial. All writes are rolled back when the trial ends.
    async fn commit_step(self: Arc<Self>, tx: OwnedTransaction, _: StepEntry) -> CommitResult {
        drop(tx);
        let kept = async {
            self.check().await?;
            sqlx::raw_sql(KEEP).execute(&mut **self.lent.lock().await).await
        };
        match kept.await {
            Ok(_) => CommitResult::Written,
            Err(error) => CommitResult::Undone(CoreError::Database(error).into()),
        }
    }
}
