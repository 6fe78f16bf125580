//! What a payload type can do: be enqueued.

use super::{Enqueue, EnqueueAll, Statement, Then};
use crate::{
    connect::IntoConnection,
    define::{JobType, Of},
};

/// A payload type that can be enqueued. Every [`JobType`] is one; that is written by [`#[job]`](crate::job), seldom by hand.
pub trait Job: JobType {
    /// Enqueues this job on a pool, a connection, or in your transaction; in the last case it exists if and only if that commits.
    ///
    /// Nothing happens until the builder is awaited; see [`Enqueue`] for what can be said before that.
    ///
    /// # Errors
    /// The payload cannot be stored exactly (NUL, NaN, too large, too deep), an option is out of range, the queue is at its capacity
    /// ([`Error::AtCapacity`](crate::Error::AtCapacity)), the schema is missing, or the database failed. After a database error the surrounding
    /// transaction can only be rolled back.
    fn enqueue<'c>(self, on: impl IntoConnection<'c>) -> Enqueue<'c, Self> {
        Enqueue::new(self, on)
    }

    /// This job's enqueue as a statement and three texts, for a transaction of another driver: tokio-postgres, diesel, sea-orm, an older sqlx.
    ///
    /// See [`Statement`] for what can be said before it is built, and the program `examples/drivers` for each of these drivers.
    fn statement(self) -> Statement<Self> {
        Statement::new(self)
    }

    /// Enqueues any number of jobs of this type, from an iterator, in constant memory and in the iterator's order.
    ///
    /// Nothing happens until the builder is awaited; see [`EnqueueAll`] for what can be said before that. Jobs of several types go into a
    /// [`Batch`](crate::Batch).
    ///
    /// # Errors
    /// As [`enqueue`](Job::enqueue); [`Error::OneOfMany`](crate::Error::OneOfMany) says which job it is about. No job is enqueued then,
    /// provided that a transaction of yours is rolled back.
    fn enqueue_all<'c, I>(jobs: I, on: impl IntoConnection<'c>) -> EnqueueAll<'c, Self>
    where
        I: IntoIterator<Item = Self>,
        I::IntoIter: Send + 'c,
    {
        EnqueueAll::new(jobs.into_iter(), on)
    }

    /// This job, and another that runs once it has completed, and may have what it returned in its payload: the simplest [`Flow`](crate::Flow).
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
