//! One attempt of a job here, which nobody counts: no lease, no verdict, and a transaction that cannot be committed.
//!
//! What the handler does through its transaction is rolled back. What it does elsewhere is done; its pool only reads unless it may write.

mod noted;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use queue_core::{
    Error as CoreError, JobId, JobState, Registration, Registry, Store,
    operate::{self, JobRecord},
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

use self::noted::Notes;
pub(crate) use self::noted::Said;
use super::{Worker, complain_of_keyring};
use crate::{
    error::Error,
    settle::{load_child, load_map, load_steps},
};

/// How an attempt is made.
pub(crate) struct Trial {
    /// It is given up after this time.
    pub(crate) patience: Duration,
    /// Whether `cx.pool()` may write: that is not rolled back.
    pub(crate) may_write: bool,
}

/// What came of it.
pub(crate) struct Tried {
    /// What a worker would write; or why that is not known.
    pub(crate) ending: Result<Ending, String>,
    pub(crate) ran: Duration,
    /// What it reported last.
    pub(crate) said: Option<Said>,
    /// What became of its transaction.
    pub(crate) rollback: Rollback,
}

/// What became of the transaction that the handler was lent.
#[derive(Debug)]
pub(crate) enum Rollback {
    /// It was still open, and was rolled back.
    Done,
    /// The handler has ended it by hand, and may have begun another.
    EndedByHand,
    /// Its session is gone: the server rolls it back, and nothing of it can have been committed.
    Lost,
    /// That could not be asked for.
    Unknown(String),
}

/// No commit of it succeeds: it would empty the first table, which the second refers to and would keep. Unlike a deferred constraint, nobody can
/// have that checked sooner.
const NO_COMMIT: &str = "
create temporary table queue_try (n integer primary key) on commit delete rows;
create temporary table queue_try_is_rolled_back (n integer references pg_temp.queue_try) on commit preserve rows;
savepoint queue_attempt";

/// How the transaction is called, and its session.
const NAMES: &str = "select pg_catalog.pg_current_xact_id()::text, pg_catalog.pg_backend_pid()";

/// Whether it is open still: a savepoint keeps failed statements from ending it.
const STATUS: &str = "select pg_catalog.pg_xact_status($1::pg_catalog.xid8)";

const UNDO: &str = "rollback to savepoint queue_attempt";

/// What was written so far is not undone by another beginning.
const KEEP: &str = "release savepoint queue_attempt; savepoint queue_attempt";

/// What a commit would check of the handler's own.
const CHECK: &str = "savepoint queue_check; set constraints all immediate; rollback to savepoint queue_check";

/// What is said of a handler that has ended its transaction: the next one can be committed.
const ENDED_BY_HAND: &str = "the handler has ended its transaction by hand, and what it wrote after that may be kept";

/// So long a handler waits for a transaction that another part of it holds, and we for its end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A handler that was told to end has this long.
const GRACE: Duration = Duration::from_secs(5);

impl Worker {
    /// The type of a job, by the name that it has there; `None` if it is not in this binary, or its keyring is not.
    pub(crate) fn known(&self, name: &str) -> Result<Option<(&'static str, Registration)>, Error> {
        let registry = self.registry.clone().map_or_else(Registry::linked, Ok)?.served(complain_of_keyring)?;
        Ok(registry.names().find(|(known, _)| *known == name).map(|(known, registration)| (known, *registration)))
    }

    /// Runs the job's handler, and rolls back; `stop` tells it to end.
    ///
    /// # Errors
    /// The database's, and a job type whose state is missing.
    pub(crate) async fn try_one(
        self,
        job: &JobRecord,
        known: &(&'static str, Registration),
        trial: Trial,
        stop: impl Future<Output = ()>,
    ) -> Result<Tried, Error> {
        let Self { pool, config, states, registry, middleware, broken, .. } = self;
        if let Some(error) = broken {
            return Err(error.into());
        }
        let registry = registry.map_or_else(Registry::linked, Ok)?;
        registry.check(&states)?;
        let (name, registration) = (known.0, Arc::new(known.1));
        let store = config.store;
        let begins_anew = job.finished_at.is_some() && job.state != JobState::Dead;
        let job = claimed(job, name, &pool, store).await?;
        let lent_from = reading(&pool, 1);
        let mut tx = lent_from.begin_with("begin read write").await?;
        sqlx::raw_sql(NO_COMMIT).execute(&mut *tx).await?;
        let (transaction, session): (String, i32) = sqlx::query_as(NAMES).fetch_one(&mut *tx).await?;
        let lent: LentTransaction = Arc::new(tokio::sync::Mutex::new(tx));
        let ((reports, mut received), handlers) = (ReportSender::open(), Handle::current());
        let backend = Arc::new(TrialBackend {
            begins_anew,
            lent: Arc::clone(&lent),
            pool: pool.clone(),
            store,
            transaction,
            notes: Mutex::default(),
        });
        let beside = if trial.may_write { pool } else { reading(&pool, 5) };
        let (lent_backend, trace, shutting_down) = (Arc::<TrialBackend>::clone(&backend), config.trace, CancellationToken::new());
        let shared =
            Arc::new(Shared { pool: beside, store, states, handlers, backend: lent_backend, reports, middleware, trace, shutting_down });
        let keeping = Arc::clone(&backend);
        let reported = tokio::spawn(async move {
            while let Some(report) = received.recv().await {
                if let Some(entry) = report.take() {
                    keeping.note(&entry);
                    report.complete_write(entry, &WriteResult::Yes);
                }
            }
        });
        let (halt, began) = (Arc::new(Halt::new(config.cancel_grace)), Instant::now());
        // On threads of its own, so that one which never yields holds nobody up.
        let apart = Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(|error| Error::Thread(error.to_string()))?;
        let attempt = apart.spawn(attempt(Arc::clone(&registration), job, Arc::clone(&shared), Arc::clone(&halt)));
        let ended = wait_for(attempt, (&shared, &halt), trial.patience, stop).await;
        let ran = began.elapsed();
        let ending = match ended {
            Some((ended, job)) => backend.ending(ended, &registration, &job, ran).await,
            None => Err("it did not end in time".to_owned()),
        };
        let rollback = backend.rollback().await;
        // Dropped with its connection where the handler still has it: the server rolls back then as well.
        let rolled_back = async { sqlx::raw_sql("rollback").execute(&mut **lent.lock().await).await };
        if !matches!(timeout(GRACE, rolled_back).await, Ok(Ok(_))) {
            // A statement of it waits for something: it ends there, and so does the session.
            let ended = sqlx::query("select pg_catalog.pg_terminate_backend($1)").bind(session).execute(&backend.pool);
            let _ = timeout(GRACE, ended).await;
        }
        reported.abort();
        apart.shutdown_background();
        let said = backend.notes().said.clone();
        Ok(Tried { ending, ran, said, rollback })
    }
}

/// A pool whose transactions only read, unless they begin otherwise.
fn reading(pool: &PgPool, most: u32) -> PgPool {
    let options = (*pool.connect_options()).clone().options([("default_transaction_read_only", "on")]);
    let pool = PgPoolOptions::new().max_connections(most).after_connect(|on, _| {
        Box::pin(async move {
            // A pooler may leave out what a connection is opened with.
            let only_reads = "select pg_catalog.current_setting('default_transaction_read_only') operator(pg_catalog.=) 'on'";
            let only_reads: bool = sqlx::query_scalar(only_reads).fetch_one(on).await?;
            if only_reads { Ok(()) } else { Err(sqlx::Error::Configuration(POOLED.into())) }
        })
    });
    pool.connect_lazy_with(options)
}

/// Why nothing is tried through a pooler that forgets.
const POOLED: &str =
    "`default_transaction_read_only` is not taken from the connection's options, as a pooler may do: connect to the server itself";

/// As a claim would bring it; one that is over as after a requeue.
async fn claimed(job: &JobRecord, name: &'static str, pool: &PgPool, store: Store) -> Result<ClaimedJob, Error> {
    let attempt = if job.finished_at.is_some() { 1 } else { job.attempts.saturating_add(1) };
    Ok(ClaimedJob {
        token: Uuid::nil(),
        id: job.id,
        lane: 0,
        queue: job.queue.as_str().into(),
        claimed_at: operate::now(pool, store).await?,
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

/// Until the attempt ends; told to stop, it has a moment.
async fn wait_for<T>(mut attempt: JoinHandle<T>, of: (&Shared, &Halt), patience: Duration, stop: impl Future<Output = ()>) -> Option<T> {
    let (abort, (shared, halt)) = (attempt.abort_handle(), of);
    let ended = tokio::select! {
        ended = &mut attempt => ended.ok(),
        () = async { tokio::select! { () = stop => {}, () = tokio::time::sleep(patience) => {} } } => {
            shared.shutting_down.cancel();
            halt.stop_request.shut_down();
            if let Ok(ended) = timeout(GRACE, &mut attempt).await {
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

/// Stands in for the store: it keeps what is said, and lends the one transaction.
#[derive(Debug)]
struct TrialBackend {
    begins_anew: bool,
    lent: LentTransaction,
    pool: PgPool,
    store: Store,
    /// The id of the one transaction.
    transaction: String,
    notes: Mutex<Notes>,
}

impl TrialBackend {
    fn note(&self, entry: &ReportEntry) {
        let mut notes = self.notes();
        let before = notes.said.take().and_then(|said| said.checkpoint);
        let checkpoint = entry.checkpoint.clone().or(before);
        notes.said = Some(Said { fraction: entry.fraction, stage: entry.stage.clone(), counts: entry.counts.clone(), checkpoint });
    }

    /// A lock that a panic elsewhere left poisoned is as good as any: nothing is half-written under it.
    fn notes(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a worker would write, after what a commit would check.
    async fn ending(&self, ended: AttemptEnd, registration: &Registration, job: &ClaimedJob, ran: Duration) -> Result<Ending, String> {
        let committed = self.notes().ending.take().filter(|_| ended.is_written());
        let Some(committed) = committed else { return Ok(ended.ending(Some(registration), job, ran, 0.5)) };
        let ended = match self.rollback().await {
            Rollback::Done => return Ok(committed),
            Rollback::EndedByHand => AttemptEnd::failed(ENDED_BY_HAND.to_owned()),
            Rollback::Lost => AttemptEnd::failed("the session of its transaction was lost before the commit".to_owned()),
            Rollback::Unknown(why) => return Err(format!("whether its transaction could be committed is not known: {why}")),
        };
        Ok(ended.ending(Some(registration), job, ran, 0.5))
    }

    /// Whether the transaction is the one that was begun: asked elsewhere, for the handler may have left anything on its connection. Only if it is not,
    /// that connection says who has ended it.
    async fn rollback(&self) -> Rollback {
        let status = sqlx::query_scalar::<_, Option<String>>(STATUS).bind(&self.transaction).fetch_one(&self.pool);
        let status = match timeout(PATIENCE, status).await {
            Ok(status) => status.map_err(|error| queue_core::message(&error)),
            Err(_) => Err("the database does not answer in time".to_owned()),
        };
        // Asked of any: the transaction of a session that is being ended is in progress for a moment yet.
        let answers = timeout(PATIENCE, async { sqlx::raw_sql("select").execute(&mut **self.lent.lock().await).await });
        match (answers.await, status) {
            (Ok(Err(error)), _) if is_lost(&error) => Rollback::Lost,
            (_, Ok(Some(status))) if status == "in progress" => Rollback::Done,
            (_, Err(why)) => Rollback::Unknown(why),
            (Ok(_), Ok(_)) => Rollback::EndedByHand,
            (Err(_), Ok(_)) => Rollback::Unknown("it has ended, and its session does not answer in time".to_owned()),
        }
    }

    async fn check(&self) -> Result<(), sqlx::Error> {
        let checked = async { sqlx::raw_sql(CHECK).execute(&mut **self.lent.lock().await).await.map(drop) };
        timeout(PATIENCE, checked).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }
}

/// Whether the session is gone.
fn is_lost(error: &sqlx::Error) -> bool {
    let ends_it = |code: &str| code.starts_with("57P") || code.starts_with("08") || code.starts_with("25P03");
    error.as_database_error().is_none_or(|error| error.code().is_some_and(|code| ends_it(&code)))
}

#[async_trait]
impl Backend for TrialBackend {
    /// Without what a transaction that was begun before has left there.
    async fn begin(&self, _: JobId) -> Result<OwnedTransaction, CoreError> {
        let lent = timeout(PATIENCE, Arc::clone(&self.lent).lock_owned()).await;
        let mut tx = lent.map_err(|_| CoreError::Database(sqlx::Error::PoolTimedOut))?;
        sqlx::raw_sql(UNDO).execute(&mut **tx).await?;
        Ok(OwnedTransaction::Lent(tx))
    }

    async fn commit(self: Arc<Self>, tx: OwnedTransaction, _: Fence, ending: Ending) -> CommitResult {
        drop(tx);
        match self.check().await {
            Ok(()) => {
                self.notes().ending = Some(ending);
                CommitResult::Written
            }
            Err(error) => CommitResult::Undone(match self.rollback().await {
                Rollback::EndedByHand => ENDED_BY_HAND.into(),
                _ => CoreError::Database(error).into(),
            }),
        }
    }

    async fn checkpoint(&self, job: JobId) -> Result<Option<String>, CoreError> {
        let said = self.notes().said.as_ref().and_then(|said| said.checkpoint.clone());
        if said.is_some() {
            return Ok(said);
        }
        let statement = sqlx::query_scalar::<_, Option<String>>(self.store.sql(include_str!("../../sql/checkpoint.sql"))).bind(job);
        Ok(statement.fetch_optional(&self.pool).await?.flatten())
    }

    /// A durable job is tried from where it is; one that is over anew, as after a requeue.
    async fn steps(&self, job: JobId) -> Result<Vec<JournaledStep>, CoreError> {
        if self.begins_anew {
            return Ok(Vec::new());
        }
        let steps = load_steps(&self.pool, self.store, job).await?;
        for step in &steps {
            self.notes().ends.note(step.name.clone(), step.left_ms.map(|left| left / 1000.0));
        }
        Ok(steps)
    }

    /// It is done, and not kept.
    async fn journal(&self, entry: StepEntry) -> WriteResult {
        self.notes().ends.note(entry.name, entry.wait.map(|wait| wait.as_secs_f64()));
        WriteResult::Yes
    }

    /// What was sent is there, and stays: nothing is received, so a job that waits for a signal ends its trial there, or with the end of its wait.
    async fn receive(&self, ask: SignalEntry) -> ReceiveResult {
        if ask.end.is_some_and(|end| self.notes().ends.is_over(&end)) { ReceiveResult::Over } else { ReceiveResult::Nothing }
    }

    /// What was spawned is looked at; a trial spawns nothing, so it ends there.
    async fn child(&self, parent: JobId, step: &str) -> sqlx::Result<Option<ChildStatus>> {
        load_child(&self.pool, self.store, parent, step).await
    }

    /// As that.
    async fn gather(&self, parent: JobId, step: &str, chunks: bool) -> sqlx::Result<Option<MapProgress>> {
        load_map(&self.pool, self.store, parent, step, chunks).await
    }

    /// What the step wrote stays for what follows, until all is rolled back.
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
