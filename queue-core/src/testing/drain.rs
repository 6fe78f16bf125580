//! Runs all ready jobs in the test's open transaction, on one connection and without committing. The code that runs an attempt is the
//! same as in a worker.

use std::{fmt, future::IntoFuture, pin::Pin, sync::Arc, time::Duration};

use sqlx::{PgConnection, PgPool, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{
    Error,
    attempt::{Attempt, AttemptRun, AttemptSetup, no_pool},
    backend::{DROP, SAVE, TestSignal},
    claimed::check,
    connection::DrainConnection,
    finish::finish_one,
};
use crate::{
    attempt::ClaimedJob,
    context::{BatchRunner, JobRunner, JournaledStep, Middleware, Registration, Registry, RegistryError, States},
    define::{JobId, JobType, OrderingKey, RestartPayload, SettlePath, Verdict, stored_type, type_and_version},
    schema::Store,
};

/// Returns a builder that runs all ready jobs, and the jobs that they enqueue, one at a time in the open transaction of `on`. The jobs run
/// when the builder is awaited.
///
/// Jobs run by priority, then in the order in which they became ready. Each verdict is recorded like a worker's verdict, and is visible
/// to later statements of the transaction. A job that has to wait, for example for a retry or a signal, is scheduled or parked. The drain
/// does not wait for such jobs; see [`Drain::advance`]. Jobs of unregistered types are not run. The drain fails if no type is registered.
pub fn drain(on: &mut PgConnection) -> Drain<'_> {
    Drain {
        on,
        pool: None,
        states: States::default(),
        store: Store::default(),
        registry: None,
        registry_error: None,
        most: None,
        by: Duration::ZERO,
        middleware: Vec::new(),
    }
}

/// Moves all due times and expiry times in the default store earlier by the duration `by`. This affects scheduled jobs, retries, snoozes,
/// durable sleeps, timeouts of waits, job expiry, and uniqueness keys held for a duration.
///
/// The database clock does not change. The due time of a job that is enqueued afterwards is therefore computed from the actual time.
///
/// # Errors
/// Returns an error if the database statement fails.
pub async fn advance(on: &mut PgConnection, by: Duration) -> Result<(), Error> {
    shift(on, Store::default(), by).await
}

async fn shift(on: &mut PgConnection, store: Store, by: Duration) -> Result<(), Error> {
    let statement = sqlx::query(store.sql(include_str!("../../testing/advance.sql")));
    statement.bind(by.as_secs_f64() * 1000.0).execute(on).await?;
    Ok(())
}

/// Builder that drains the jobs in a test's transaction. Created by [`drain`].
///
/// ```no_run
/// # async fn example(tx: &mut sqlx::PgConnection, pool: &sqlx::PgPool) -> Result<(), queue_core::testing::Error> {
/// let hour = std::time::Duration::from_secs(3600);
/// let drained = queue_core::testing::drain(tx).pool(pool).advance(hour).at_most(10).await?;
/// assert!(drained.attempts.len() <= 10);
/// # Ok(()) }
/// ```
#[must_use = "nothing runs until this is awaited"]
pub struct Drain<'t> {
    on: &'t mut PgConnection,
    pool: Option<PgPool>,
    states: States,
    store: Store,
    registry: Option<Registry>,
    registry_error: Option<RegistryError>,
    most: Option<usize>,
    by: Duration,
    middleware: Vec<Arc<dyn Middleware>>,
}

/// Default maximum number of attempts of a drain.
const DEFAULT_LIMIT: usize = 10_000;

impl Drain<'_> {
    /// Adds the state returned by `cx.state::<S>()`, like `Worker::state`.
    pub fn state<S: Send + Sync + 'static>(mut self, value: S) -> Self {
        self.states.put(value);
        self
    }

    /// Adds middleware around each handler, like `Worker::middleware`.
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Arc::new(middleware));
        self
    }

    /// Registers the handler `H` with its job type. Without this call, all handlers linked into the test are registered.
    pub fn register<H: JobRunner>(mut self) -> Self {
        if let Err(error) = self.registry.get_or_insert_default().register::<H>() {
            self.registry_error.get_or_insert(error);
        }
        self
    }

    /// Registers the batch handler `H` with its job type, like [`Drain::register`]. Each job of the type runs in a batch of one.
    pub fn register_batch<H: BatchRunner>(mut self) -> Self {
        if let Err(error) = self.registry.get_or_insert_default().register_batch::<H>() {
            self.registry_error.get_or_insert(error);
        }
        self
    }

    /// Sets the pool returned by `cx.pool()`.
    ///
    /// While handlers run, the test's connection is swapped with a connection from this pool. `cx.begin()` and `cx.transaction()` then
    /// return the test's transaction. Statements on `cx.pool()` itself neither see the test's transaction nor are rolled back with it.
    pub fn pool(mut self, pool: &PgPool) -> Self {
        self.pool = Some(pool.clone());
        self
    }

    /// Sets the store to use instead of the default store.
    pub fn store(mut self, store: Store) -> Self {
        self.store = store;
        self
    }

    /// Sets the maximum number of attempts. Remaining jobs are left ready. Without a maximum, the drain fails if another job is ready after
    /// 10,000 attempts.
    pub fn at_most(mut self, most: usize) -> Self {
        self.most = Some(most);
        self
    }

    /// Moves all due times and expiry times earlier by the duration `by` before jobs run; see [`advance`].
    pub fn advance(mut self, by: Duration) -> Self {
        self.by += by;
        self
    }

    async fn run(self) -> Result<DrainResult, Error> {
        let Self { on, pool, states, store, registry, registry_error, most, by, middleware } = self;
        let registry = registry_error.map_or_else(|| registry.map_or_else(Registry::linked, Ok), Err)?;
        if registry.is_empty() {
            return Err(RegistryError::Empty.into());
        }
        if by > Duration::ZERO {
            shift(on, store, by).await?;
        }
        let (mut connection, pool) = match pool {
            Some(pool) => (DrainConnection::lend(on, &pool).await?, pool),
            None => (DrainConnection::keep(on), no_pool().await),
        };
        let (mut attempts, mut expired) = (Vec::new(), Vec::new());
        while most.is_none_or(|most| attempts.len() < most) {
            let Some(taken) = lock_next(&mut *connection.lock(None).await?, store, &registry, &mut expired).await? else { break };
            if most.is_none() && attempts.len() == DEFAULT_LIMIT {
                return Err(Error::Endless { most: DEFAULT_LIMIT });
            }
            // Not reached, because the query selects only jobs of registered types.
            let Some(registration) = registry.get(taken.job.job_type) else { break };
            check(registration, &states)?;
            attempts.push(run_one(&mut connection, taken, registration, (&states, &middleware), &pool, store).await?);
        }
        Ok(DrainResult { attempts, expired })
    }
}

impl<'t> IntoFuture for Drain<'t> {
    type Output = Result<DrainResult, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 't>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for Drain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain").field("most", &self.most).field("by", &self.by).finish_non_exhaustive()
    }
}

/// Result of a drain: its attempts and expired jobs.
///
/// ```no_run
/// # async fn example(tx: &mut sqlx::PgConnection) -> Result<(), queue_core::testing::Error> {
/// let drained = queue_core::testing::drain(tx).await?;
/// assert_eq!((drained.completed(), drained.dead()), (1, 0), "{:?}", drained.errors());
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct DrainResult {
    /// Attempts in the order in which they ran.
    pub attempts: Vec<Attempt>,
    /// Ids of jobs that expired before they started, including jobs of types that are not registered.
    pub expired: Vec<JobId>,
}

impl DrainResult {
    /// Returns the number of attempts that completed their job.
    pub fn completed(&self) -> usize {
        self.attempts.iter().filter(|attempt| attempt.is_completed()).count()
    }

    /// Returns the number of failed attempts whose job is retried.
    pub fn retried(&self) -> usize {
        self.attempts.iter().filter(|attempt| attempt.retried_after().is_some()).count()
    }

    /// Returns the number of attempts that snoozed their job.
    pub fn snoozed(&self) -> usize {
        self.attempts.iter().filter(|attempt| attempt.snoozed_for().is_some()).count()
    }

    /// Returns the number of attempts that parked their job to wait for a signal or for other jobs.
    pub fn parked(&self) -> usize {
        self.attempts.iter().filter(|attempt| matches!(attempt.verdict, Verdict::Park(_))).count()
    }

    /// Returns the number of attempts that restarted their job.
    pub fn restarted(&self) -> usize {
        self.attempts.iter().filter(|attempt| attempt.verdict == Verdict::Restart).count()
    }

    /// Returns the number of attempts that made their job a dead letter.
    pub fn dead(&self) -> usize {
        self.attempts.iter().filter(|attempt| attempt.is_dead()).count()
    }

    /// Returns the attempts of the given job.
    pub fn of(&self, job: JobId) -> impl Iterator<Item = &Attempt> {
        self.attempts.iter().filter(move |attempt| attempt.id == job)
    }

    /// Returns the outputs of the completed jobs of type `T`.
    pub fn outputs<T: JobType>(&self) -> Vec<T::Output> {
        self.attempts.iter().filter_map(Attempt::output_of::<T>).collect()
    }

    /// Returns the errors of failed attempts.
    pub fn errors(&self) -> Vec<&str> {
        self.attempts.iter().filter_map(|attempt| attempt.error.as_deref()).collect()
    }
}

/// Job whose row in `ready` is locked by the test's transaction.
struct DrainJob {
    job: ClaimedJob,
    seq: i64,
    checkpoint: Option<String>,
}

impl DrainJob {
    /// Reads a job from a row, and counts the attempt that is starting, like a claim. The query selects only jobs of registered types.
    fn of(row: &PgRow, registry: &Registry) -> sqlx::Result<Self> {
        let (name, version) = type_and_version(row.try_get("job_type")?);
        let job_type = registry.names().find(|(known, _)| *known == name).map_or("", |(known, _)| known);
        let key: Option<i64> = row.try_get("key")?;
        let system: Option<String> = row.try_get("system")?;
        let job = ClaimedJob {
            token: Uuid::nil(),
            id: row.try_get("id")?,
            lane: row.try_get("lane")?,
            queue: row.try_get::<String, _>("queue")?.into(),
            claimed_at: row.try_get("claimed_at")?,
            attempt: row.try_get::<i16, _>("attempts")?.saturating_add(1),
            crashes: row.try_get("crashes")?,
            max_attempts: row.try_get("max_attempts")?,
            job_type,
            version,
            payload: row.try_get("payload")?,
            meta: row.try_get("meta")?,
            key: OrderingKey::of(key, system.as_deref()),
            system,
            start_deadline: None,
        };
        Ok(Self { job, seq: row.try_get("seq")?, checkpoint: row.try_get("checkpoint")? })
    }
}

async fn lock_next(on: &mut PgConnection, store: Store, registry: &Registry, expired: &mut Vec<JobId>) -> Result<Option<DrainJob>, Error> {
    let late: Vec<JobId> = sqlx::query_scalar(store.sql(include_str!("../../testing/expire.sql"))).fetch_one(&mut *on).await?;
    expired.extend(late);
    sqlx::query(store.sql(include_str!("../../testing/unblock.sql"))).execute(&mut *on).await?;
    sqlx::query(store.sql(include_str!("../../testing/due.sql"))).execute(&mut *on).await?;
    let known = registry.names().flat_map(|(name, known)| (1..=known.options().version).map(move |version| stored_type(name, version)));
    let next = sqlx::query(store.sql(include_str!("../../testing/next.sql"))).bind(known.collect::<Vec<_>>());
    Ok(next.fetch_optional(&mut *on).await?.map(|row| DrainJob::of(&row, registry)).transpose()?)
}

/// Runs one job whose row in `ready` is locked, and records the verdict.
async fn run_one(
    connection: &mut DrainConnection<'_>,
    taken: DrainJob,
    registration: &Registration,
    (states, middleware): (&States, &[Arc<dyn Middleware>]),
    pool: &PgPool,
    store: Store,
) -> Result<Attempt, Error> {
    let DrainJob { job, seq, checkpoint } = taken;
    if registration.options().transactional && connection.lent().is_none() {
        return Err(Error::NeedsPool { job_type: job.job_type.to_owned() });
    }
    let steps =
        if registration.options().durable { load_steps(&mut *connection.lock(None).await?, store, job.id).await? } else { Vec::new() };
    let known = steps.len();
    let signals =
        if registration.options().durable { load_signals(&mut *connection.lock(None).await?, store, job.id).await? } else { Vec::new() };
    sqlx::raw_sql(SAVE).execute(&mut *connection.lock(None).await?).await?;
    let (states, middleware, pool, lent) = (states.clone(), middleware.to_vec(), pool.clone(), connection.lent());
    let setup = AttemptSetup {
        registration,
        job: &job,
        checkpoint,
        steps,
        signals,
        children: None,
        states,
        middleware,
        pool,
        store,
        lent,
        cancel_reason: None,
        points: None,
    };
    let outturn = setup.run().await;
    let mut on = connection.lock(Some(job.id)).await?;
    if !outturn.kept {
        sqlx::raw_sql(DROP).execute(&mut *on).await?;
    }
    journal_steps(&mut on, store, &job, &outturn.attempt.steps[known..]).await?;
    finish_one(store, &job, seq, &outturn.ending).execute(&mut *on).await?;
    if !outturn.received.is_empty() || outturn.ending.path() == SettlePath::Park {
        park(&mut on, store, &job, &outturn).await?;
    }
    if outturn.reported {
        record_reports(&mut on, store, &job, &outturn.attempt).await?;
    }
    if let Some(RestartPayload { stored, payload }) = outturn.ending.restart().filter(|_| outturn.ending.path() == SettlePath::Restart) {
        let restart = sqlx::query(store.sql(include_str!("../../testing/restart.sql")));
        restart.bind(job.id).bind(stored).bind(payload).execute(&mut *on).await?;
    }
    Ok(outturn.attempt)
}

/// Loads the steps journaled by earlier attempts.
async fn load_steps(on: &mut PgConnection, store: Store, job: JobId) -> Result<Vec<JournaledStep>, Error> {
    let statement = sqlx::query_as(store.sql(include_str!("../../testing/steps_done.sql"))).bind(job);
    let rows: Vec<(String, i16, Option<String>, Option<f64>)> = statement.fetch_all(on).await?;
    Ok(rows.into_iter().map(|(name, attempt, output, left_ms)| JournaledStep { name, attempt, output, left_ms }).collect())
}

/// Loads the signals that no earlier attempt has received.
async fn load_signals(on: &mut PgConnection, store: Store, job: JobId) -> Result<Vec<TestSignal>, Error> {
    let statement = sqlx::query_as(store.sql(include_str!("../../testing/signals.sql"))).bind(job);
    let rows: Vec<(i64, String, Option<String>)> = statement.fetch_all(on).await?;
    Ok(rows.into_iter().map(|(seq, name, payload)| TestSignal { seq, name, payload }).collect())
}

/// Deletes the signals that the attempt received. If the job is waiting for further signals, also moves the job from scheduled to parked.
async fn park(on: &mut PgConnection, store: Store, job: &ClaimedJob, outturn: &AttemptRun) -> Result<(), Error> {
    let waits = (outturn.ending.path() == SettlePath::Park).then(|| outturn.ending.signals());
    let until = outturn.ending.wait().map(|wait| wait.as_secs_f64() * 1000.0);
    let park = sqlx::query(store.sql(include_str!("../../testing/park.sql")));
    park.bind(job.id).bind(&outturn.received).bind(waits).bind(until).execute(on).await?;
    Ok(())
}

/// Journals the steps of the attempt, regardless of its outcome.
async fn journal_steps(on: &mut PgConnection, store: Store, job: &ClaimedJob, steps: &[JournaledStep]) -> Result<(), Error> {
    if steps.is_empty() {
        return Ok(());
    }
    let keep = sqlx::query(store.sql(include_str!("../../testing/steps.sql")))
        .bind(job.id)
        .bind(i32::from(job.attempt))
        .bind(steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>())
        .bind(steps.iter().map(|step| step.left_ms).collect::<Vec<_>>())
        .bind(steps.iter().map(|step| step.output.as_deref()).collect::<Vec<_>>());
    keep.execute(on).await?;
    Ok(())
}

/// Records the progress and the checkpoint that the attempt reported.
async fn record_reports(on: &mut PgConnection, store: Store, job: &ClaimedJob, attempt: &Attempt) -> Result<(), Error> {
    // Serialization does not fail for a map from strings to numbers.
    let counts = serde_json::to_string(&attempt.progress.counts).unwrap_or_else(|_| "{}".to_owned());
    let note = sqlx::query(store.sql(include_str!("../../testing/record_progress.sql")))
        .bind(job.id)
        .bind(job.attempt)
        .bind(attempt.progress.fraction)
        .bind(attempt.progress.stage.as_deref())
        .bind(counts)
        .bind(attempt.checkpoint.as_deref());
    note.execute(on).await?;
    Ok(())
}
