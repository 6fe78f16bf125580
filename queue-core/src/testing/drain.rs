//! Every job that is ready, run in the caller's open transaction: what a worker would do, on one connection, with nothing committed.

use std::{fmt, future::IntoFuture, pin::Pin, sync::Arc, time::Duration};

use sqlx::{PgConnection, PgPool, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{
    Error,
    attempt::{Attempt, Outturn, Setup, no_pool},
    backend::{DROP, SAVE, TestSignal},
    connection::DrainConnection,
    finish::finish_one,
    run::check,
};
use crate::{
    attempt::ClaimedJob,
    context::{BatchHandler, Handler, JournaledStep, Middleware, Registration, Registry, RegistryError, States},
    define::{Anew, JobId, JobType, OrderingKey, Verdict, stored_type, type_and_version},
    schema::Store,
};

/// Runs every job that is ready, and what those enqueue, in this open transaction, one after the other: say what differs, then await it.
///
/// Jobs run by priority, then in the order in which they became ready; each verdict is written as a worker would write it, and is seen by what
/// follows in the transaction. A job that is to wait, for a retry say, is scheduled, and the drain does not wait for it: see [`Drain::advance`].
/// Jobs of types that are not registered stay where they are.
pub fn drain(on: &mut PgConnection) -> Drain<'_> {
    Drain {
        on,
        pool: None,
        states: States::default(),
        store: Store::default(),
        registry: None,
        broken: None,
        most: None,
        by: Duration::ZERO,
        middleware: Vec::new(),
    }
}

/// As if so much time had passed for everything that waits: scheduled jobs, retries, snoozes, jobs that expire, and keys of unique jobs
/// that are held for a time.
/// The clock itself stays: what is enqueued afterwards is enqueued now.
///
/// # Errors
/// The database's.
pub async fn advance(on: &mut PgConnection, by: Duration) -> Result<(), Error> {
    shift(on, Store::default(), by).await
}

async fn shift(on: &mut PgConnection, store: Store, by: Duration) -> Result<(), Error> {
    let statement = sqlx::query(store.sql(include_str!("../../testing/advance.sql")));
    statement.bind(by.as_secs_f64() * 1000.0).execute(on).await?;
    Ok(())
}

/// Jobs about to be run in a test's transaction; from [`drain`].
#[must_use = "nothing runs until this is awaited"]
pub struct Drain<'t> {
    on: &'t mut PgConnection,
    pool: Option<PgPool>,
    states: States,
    store: Store,
    registry: Option<Registry>,
    broken: Option<RegistryError>,
    most: Option<usize>,
    by: Duration,
    middleware: Vec<Arc<dyn Middleware>>,
}

/// A drain that was not told otherwise runs no more jobs than this.
const MOST: usize = 10_000;

impl Drain<'_> {
    /// What handlers get with `cx.state::<S>()`, as `Worker::state`.
    pub fn state<S: Send + Sync + 'static>(mut self, value: S) -> Self {
        self.states.put(value);
        self
    }

    /// Runs this around each handler, as `Worker::middleware`.
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Arc::new(middleware));
        self
    }

    /// Runs `T`, and of the types linked into the test only those registered so.
    pub fn register<T: Handler>(mut self) -> Self {
        if let Err(error) = self.registry.get_or_insert_default().register::<T>() {
            self.broken.get_or_insert(error);
        }
        self
    }

    /// As [`Drain::register`], for a type whose handler takes batches. A drain runs each of its jobs in a batch of one.
    pub fn register_batch<T: BatchHandler>(mut self) -> Self {
        if let Err(error) = self.registry.get_or_insert_default().register_batch::<T>() {
            self.broken.get_or_insert(error);
        }
        self
    }

    /// What `cx.pool()` is. One of its connections takes the place of the test's while handlers run, so that `cx.begin()` and
    /// `cx.transaction()` give them the test's transaction. What they do on `cx.pool()` itself does not see the transaction, and is not
    /// rolled back with it.
    pub fn pool(mut self, pool: &PgPool) -> Self {
        self.pool = Some(pool.clone());
        self
    }

    /// Works on this store instead of the default one.
    pub fn store(mut self, store: Store) -> Self {
        self.store = store;
        self
    }

    /// Runs no more than so many jobs, and leaves the others. Without it, 10,000 are an error.
    pub fn at_most(mut self, most: usize) -> Self {
        self.most = Some(most);
        self
    }

    /// Lets so much time pass first: see [`advance`].
    pub fn advance(mut self, by: Duration) -> Self {
        self.by += by;
        self
    }

    async fn run(self) -> Result<Drained, Error> {
        let Self { on, pool, states, store, registry, broken, most, by, middleware } = self;
        if let Some(error) = broken {
            return Err(error.into());
        }
        let registry = registry.map_or_else(Registry::linked, Ok)?;
        if by > Duration::ZERO {
            shift(on, store, by).await?;
        }
        let (mut connection, pool) = match pool {
            Some(pool) => (DrainConnection::lend(on, &pool).await?, pool),
            None => (DrainConnection::keep(on), no_pool().await),
        };
        let (mut attempts, mut expired) = (Vec::new(), Vec::new());
        while most.is_none_or(|most| attempts.len() < most) {
            let Some(taken) = take(&mut *connection.lock(None).await?, store, &registry, &mut expired).await? else { break };
            if most.is_none() && attempts.len() == MOST {
                return Err(Error::Endless { most: MOST });
            }
            // It was asked for by its name.
            let Some(registration) = registry.get(taken.job.job_type) else { break };
            check(registration, &states)?;
            attempts.push(one(&mut connection, taken, registration, (&states, &middleware), &pool, store).await?);
        }
        Ok(Drained { attempts, expired })
    }
}

impl<'t> IntoFuture for Drain<'t> {
    type Output = Result<Drained, Error>;
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

/// What a drain has run, in that order.
#[derive(Debug, Default)]
pub struct Drained {
    /// Every attempt.
    pub attempts: Vec<Attempt>,
    /// The jobs that had not begun in time, and were not run; of whatever type.
    pub expired: Vec<JobId>,
}

impl Drained {
    /// How many attempts completed their job.
    pub fn completed(&self) -> usize {
        self.attempts.iter().filter(|attempt| attempt.is_completed()).count()
    }

    /// How many attempts failed and are tried again.
    pub fn retried(&self) -> usize {
        self.attempts.iter().filter(|attempt| attempt.retried_after().is_some()).count()
    }

    /// How many asked to be called again.
    pub fn snoozed(&self) -> usize {
        self.attempts.iter().filter(|attempt| attempt.snoozed_for().is_some()).count()
    }

    /// How many attempts left their job parked: it waits for a signal.
    pub fn parked(&self) -> usize {
        self.attempts.iter().filter(|attempt| matches!(attempt.verdict, Verdict::Park(_))).count()
    }

    /// How many attempts began their job anew.
    pub fn restarted(&self) -> usize {
        self.attempts.iter().filter(|attempt| attempt.verdict == Verdict::Restart).count()
    }

    /// How many attempts made their job a dead letter.
    pub fn dead(&self) -> usize {
        self.attempts.iter().filter(|attempt| attempt.is_dead()).count()
    }

    /// The attempts of this job.
    pub fn of(&self, job: JobId) -> impl Iterator<Item = &Attempt> {
        self.attempts.iter().filter(move |attempt| attempt.id == job)
    }

    /// What the completed jobs of type `T` returned.
    pub fn outputs<T: JobType>(&self) -> Vec<T::Output> {
        self.attempts.iter().filter_map(Attempt::output_of::<T>).collect()
    }

    /// The errors of attempts that failed.
    pub fn errors(&self) -> Vec<&str> {
        self.attempts.iter().filter_map(|attempt| attempt.error.as_deref()).collect()
    }
}

/// A job whose entry the transaction holds.
struct Taken {
    job: ClaimedJob,
    seq: i64,
    checkpoint: Option<String>,
}

impl Taken {
    /// Counts the attempt that begins, as a claim does. The type was asked for by its name.
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

async fn take(on: &mut PgConnection, store: Store, registry: &Registry, expired: &mut Vec<JobId>) -> Result<Option<Taken>, Error> {
    let late: Vec<JobId> = sqlx::query_scalar(store.sql(include_str!("../../testing/expire.sql"))).fetch_one(&mut *on).await?;
    expired.extend(late);
    sqlx::query(store.sql(include_str!("../../testing/unblock.sql"))).execute(&mut *on).await?;
    sqlx::query(store.sql(include_str!("../../testing/due.sql"))).execute(&mut *on).await?;
    let known = registry.names().flat_map(|(name, known)| (1..=known.options().version).map(move |version| stored_type(name, version)));
    let next = sqlx::query(store.sql(include_str!("../../testing/next.sql"))).bind(known.collect::<Vec<_>>());
    Ok(next.fetch_optional(&mut *on).await?.map(|row| Taken::of(&row, registry)).transpose()?)
}

/// One job, from its lock to its ending.
async fn one(
    connection: &mut DrainConnection<'_>,
    taken: Taken,
    registration: &Registration,
    (states, middleware): (&States, &[Arc<dyn Middleware>]),
    pool: &PgPool,
    store: Store,
) -> Result<Attempt, Error> {
    let Taken { job, seq, checkpoint } = taken;
    if registration.options().transactional && connection.lent().is_none() {
        return Err(Error::NeedsPool { job_type: job.job_type.to_owned() });
    }
    let steps =
        if registration.options().durable { steps_done(&mut *connection.lock(None).await?, store, job.id).await? } else { Vec::new() };
    let known = steps.len();
    let signals =
        if registration.options().durable { signals(&mut *connection.lock(None).await?, store, job.id).await? } else { Vec::new() };
    sqlx::raw_sql(SAVE).execute(&mut *connection.lock(None).await?).await?;
    let (states, middleware, pool, lent) = (states.clone(), middleware.to_vec(), pool.clone(), connection.lent());
    let setup = Setup {
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
        asked: None,
        points: None,
    };
    let outturn = setup.run().await;
    let mut on = connection.lock(Some(job.id)).await?;
    if !outturn.kept {
        sqlx::raw_sql(DROP).execute(&mut *on).await?;
    }
    keep_steps(&mut on, store, &job, &outturn.attempt.steps[known..]).await?;
    finish_one(store, &job, seq, &outturn.ending).execute(&mut *on).await?;
    if !outturn.received.is_empty() || outturn.ending.is_park() {
        park(&mut on, store, &job, &outturn).await?;
    }
    if outturn.reported {
        note(&mut on, store, &job, &outturn.attempt).await?;
    }
    if let Some(Anew { stored, payload }) = outturn.ending.anew().filter(|_| outturn.ending.is_restart()) {
        let restart = sqlx::query(store.sql(include_str!("../../testing/restart.sql")));
        restart.bind(job.id).bind(stored).bind(payload).execute(&mut *on).await?;
    }
    Ok(outturn.attempt)
}

/// What earlier attempts have journaled.
async fn steps_done(on: &mut PgConnection, store: Store, job: JobId) -> Result<Vec<JournaledStep>, Error> {
    let statement = sqlx::query_as(store.sql(include_str!("../../testing/steps_done.sql"))).bind(job);
    let rows: Vec<(String, i16, Option<String>, Option<f64>)> = statement.fetch_all(on).await?;
    Ok(rows.into_iter().map(|(name, attempt, output, left_ms)| JournaledStep { name, attempt, output, left_ms }).collect())
}

/// What was sent, and not received by earlier attempts.
async fn signals(on: &mut PgConnection, store: Store, job: JobId) -> Result<Vec<TestSignal>, Error> {
    let statement = sqlx::query_as(store.sql(include_str!("../../testing/signals.sql"))).bind(job);
    let rows: Vec<(i64, String, Option<String>)> = statement.fetch_all(on).await?;
    Ok(rows.into_iter().map(|(seq, name, payload)| TestSignal { seq, name, payload }).collect())
}

/// Takes back what the attempt received; parks the job, which was put off, if it waits for more.
async fn park(on: &mut PgConnection, store: Store, job: &ClaimedJob, outturn: &Outturn) -> Result<(), Error> {
    let waits = outturn.ending.is_park().then(|| outturn.ending.signals());
    let until = outturn.ending.wait().map(|wait| wait.as_secs_f64() * 1000.0);
    let park = sqlx::query(store.sql(include_str!("../../testing/park.sql")));
    park.bind(job.id).bind(&outturn.received).bind(waits).bind(until).execute(on).await?;
    Ok(())
}

/// Writes what the attempt has journaled, whatever became of it.
async fn keep_steps(on: &mut PgConnection, store: Store, job: &ClaimedJob, steps: &[JournaledStep]) -> Result<(), Error> {
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

/// Writes what the attempt reported.
async fn note(on: &mut PgConnection, store: Store, job: &ClaimedJob, attempt: &Attempt) -> Result<(), Error> {
    // A map of texts to numbers is written without fail.
    let counts = serde_json::to_string(&attempt.progress.counts).unwrap_or_else(|_| "{}".to_owned());
    let note = sqlx::query(store.sql(include_str!("../../testing/note.sql")))
        .bind(job.id)
        .bind(job.attempt)
        .bind(attempt.progress.fraction)
        .bind(attempt.progress.stage.as_deref())
        .bind(counts)
        .bind(attempt.checkpoint.as_deref());
    note.execute(on).await?;
    Ok(())
}
