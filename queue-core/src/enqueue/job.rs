//! Extension trait with the enqueue methods of payload types.

use super::{Enqueue, EnqueueAll, Statement, Then};
use crate::{
    connect::IntoConnection,
    define::{JobType, Of},
};

/// Payload type that can be enqueued. Implemented for every [`JobType`], which [`#[job]`](crate::job) usually implements.
pub trait Job: JobType {
    /// Enqueues this job on a pool, on a connection, or in your transaction. In a transaction, the job exists if and only if it commits.
    ///
    /// Nothing is enqueued until the builder is awaited; see [`Enqueue`] for the options that can be set before.
    ///
    /// # Errors
    /// The payload cannot be stored exactly (NUL, NaN, too large, too deep), an option is out of range, the queue is at its capacity
    /// ([`Error::AtCapacity`](crate::Error::AtCapacity)), the schema is missing, or the database failed. After a database error the surrounding
    /// transaction can only be rolled back.
    fn enqueue<'c>(self, on: impl IntoConnection<'c>) -> Enqueue<'c, Self> {
        Enqueue::new(self, on)
    }

    /// Returns this job's enqueue as a statement with three text parameters, for a transaction of another driver: tokio-postgres, diesel,
    /// sea-orm, an older sqlx.
    ///
    /// See [`Statement`] for the options that can be set before it is built, and the program `examples/drivers` for each of these drivers.
    fn statement(self) -> Statement<Self> {
        Statement::new(self)
    }

    /// Enqueues any number of jobs of this type from an iterator, in constant memory and in the iterator's order.
    ///
    /// Nothing is enqueued until the builder is awaited; see [`EnqueueAll`] for the options that can be set before. Use a [`Batch`](crate::Batch)
    /// for jobs of several types.
    ///
    /// # Errors
    /// As [`enqueue`](Job::enqueue); [`Error::OneOfMany`](crate::Error::OneOfMany) names the job at fault. No job is enqueued then, provided that
    /// you roll back a transaction of yours.
    fn enqueue_all<'c, I>(jobs: I, on: impl IntoConnection<'c>) -> EnqueueAll<'c, Self>
    where
        I: IntoIterator<Item = Self>,
        I::IntoIter: Send + 'c,
    {
        EnqueueAll::new(jobs.into_iter(), on)
    }

    /// Chains a job that runs once this one has completed, and whose payload may contain this job's output: the simplest [`Flow`](crate::Flow).
    ///
    /// ```no_run
    /// # use queue_core::{Job as _, Of, job};
    /// # use serde::{Serialize, Deserialize};
    /// #[job(send_only, output = String)]
    /// #[derive(Serialize, Deserialize)]
    /// struct Fetch {
    ///     url: String,
    /// }
    ///
    /// #[job(send_only)]
    /// #[derive(Serialize, Deserialize)]
    /// struct Parse {
    ///     page: Of<String>,
    /// }
    ///
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
    /// let fetch = Fetch { url: "https://example.org".into() };
    /// let flow = fetch.then(|page| Parse { page }).enqueue(&pool).await?;
    /// # Ok(()) }
    /// ```
    fn then<N: JobType>(self, next: impl FnOnce(Of<Self::Output>) -> N) -> Then<N> {
        Then::first(self).then(next)
    }
}

impl<T: JobType> Job for T {}
