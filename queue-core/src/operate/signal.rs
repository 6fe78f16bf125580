//! Sends signals to durable jobs, and lists the signals that a job has not received yet.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::FromRow;

use super::rejection::explain;
use crate::{
    connect::{IntoConnection, JobRef},
    error::Error,
    payload,
    results::{QueueConnection, QueueJob},
};

/// Maximum length of a signal's name, in bytes.
const MAX_NAME_BYTES: usize = 200;

/// Outcome of sending a signal, which depends on the state of the job.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool, job: queue_core::JobRef) -> Result<(), queue_core::Error> {
/// use queue_core::operate::SignalOutcome;
///
/// match job.signal(pool, "approved", &"Ada").await? {
///     SignalOutcome::Sent => println!("sent"),
///     SignalOutcome::Over => println!("the job has already finished"),
///     _ => println!("the job does not exist"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a finished job receives no signals"]
#[non_exhaustive]
pub enum SignalOutcome {
    /// The signal is sent when the transaction commits.
    Sent,
    /// The job has finished and receives no more signals.
    Over,
    /// The job does not exist, or its enqueue is not committed yet.
    Absent,
}

/// Signal that a job has not received yet.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool, job: queue_core::JobId) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// for signal in Queue::new(pool).job(job).signals().await? {
///     println!("{} was sent at {}", signal.name, signal.at);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct JobSignal {
    /// Name of the signal.
    pub name: String,
    /// Time the signal was sent, according to the database clock.
    pub at: DateTime<Utc>,
}

impl JobRef {
    /// Sends a signal to a durable job, which receives it with [`Durable::receive`](crate::durable::Durable::receive). The signal is sent
    /// when the caller's transaction commits. A job that is waiting for the signal then continues. Any other durable job receives the
    /// signal when it calls `receive`. Sending a signal never waits for a lock. Signals with the same name are received in the order in
    /// which they were sent.
    ///
    /// The database does not know which types are durable. A signal to a job that is not durable is stored, never received, and deleted
    /// with the job.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool, job: queue_core::JobRef) -> Result<(), queue_core::Error> {
    /// use queue_core::operate::SignalOutcome;
    ///
    /// let mut tx = pool.begin().await?;
    /// let sent = job.signal(&mut tx, "approved", &"Ada").await?;
    /// assert_eq!(sent, SignalOutcome::Sent);
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::OutOfRange`] for a name that is not 1 to 200 bytes long or contains control characters. Returns [`Error::Signal`]
    /// for a payload that exceeds 256 KiB or that jsonb cannot represent exactly. Returns an error if the database query fails.
    pub async fn signal<T: Serialize + ?Sized + Sync>(
        &self,
        on: impl IntoConnection<'_>,
        name: &str,
        payload: &T,
    ) -> Result<SignalOutcome, Error> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
            let range = "1 to 200 bytes without control characters";
            return Err(Error::OutOfRange { what: "the name of a signal", value: name.escape_default().take(300).collect(), range });
        }
        let text = payload::encode(payload, payload::DEFAULT_LIMIT).map_err(|source| Error::Signal { job: self.id(), source })?;
        let mut on = on.into_connection();
        let statement = sqlx::query_scalar::<_, String>(self.store().sql(include_str!("../../sql/signal.sql")));
        let statement = statement.bind(self.id()).bind(name).bind((text != "null").then_some(text));
        let outcome = statement.fetch_one(&mut *on.acquire().await?).await.map_err(|error| explain(error, self.store()))?;
        Ok(match outcome.as_str() {
            "sent" => SignalOutcome::Sent,
            "over" => SignalOutcome::Over,
            _ => SignalOutcome::Absent,
        })
    }
}

impl<C: QueueConnection> QueueJob<'_, C> {
    /// Sends a signal to the durable job; see [`JobRef::signal`].
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::signal`].
    pub async fn signal<T: Serialize + ?Sized + Sync>(&self, name: &str, payload: &T) -> Result<SignalOutcome, Error> {
        self.job_ref().signal(self.queue.lend().await, name, payload).await
    }

    /// Returns the first thousand signals that the job has not received yet, in arrival order. Payloads are not included.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool, job: queue_core::JobId) -> Result<(), queue_core::Error> {
    /// use queue_core::Queue;
    ///
    /// for signal in Queue::new(&pool).job(job).signals().await? {
    ///     println!("{}: {}", signal.at, signal.name);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Returns an error if the database query fails.
    pub async fn signals(&self) -> Result<Vec<JobSignal>, Error> {
        let statement = sqlx::query_as(self.queue.store.sql(include_str!("../../sql/signals.sql"))).bind(self.id);
        statement.fetch_all(&mut *self.queue.connection().await?).await.map_err(|error| explain(error, self.queue.store))
    }
}
