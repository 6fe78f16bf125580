//! Extension trait with the enqueue methods of payload types.

use super::{Enqueue, EnqueueAll, Statement, Then};
use crate::{
    connect::IntoConnection,
    define::{JobType, NodeOutput},
};

/// Payload type that can be enqueued. Implemented for every [`JobType`]; the attribute [`#[job]`](crate::job) usually implements `JobType`.
///
/// ```no_run
/// # use serde::{Deserialize, Serialize};
/// use queue_core::{Job, job};
///
/// #[job(send_only)]
/// #[derive(Serialize, Deserialize)]
/// struct Email { to: String }
///
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// Email { to: "ada@example.org".into() }.enqueue(pool).await?;
/// let emails = ["bea@example.org", "cid@example.org"].map(|to| Email { to: to.to_owned() });
/// Email::enqueue_all(emails, pool).await?;
/// # Ok(()) }
/// ```
pub trait Job: JobType {
    /// Enqueues this job on a pool, on a connection, or in your transaction. In a transaction, the job exists if and only if the
    /// transaction commits.
    ///
    /// Nothing is enqueued until the builder is awaited. See [`Enqueue`] for the builder's options.
    ///
    /// # Errors
    /// Returns [`Error::AtCapacity`](crate::Error::AtCapacity) if the queue is at its capacity. Returns an error if an option is out of
    /// range, or if the payload cannot be stored exactly, for example because it contains NUL. Also returns an error if the schema is
    /// missing or the database fails. After a database error, your transaction can only be rolled back.
    fn enqueue<'c>(self, on: impl IntoConnection<'c>) -> Enqueue<'c, Self> {
        Enqueue::new(self, on)
    }

    /// Creates a statement with three text parameters that enqueues this job in a transaction of another driver, such as tokio-postgres,
    /// diesel, sea-orm or an older sqlx.
    ///
    /// See [`Statement`] for the options to set before building the statement. The program `examples/drivers` has an example for each
    /// driver.
    fn statement(self) -> Statement<Self> {
        Statement::new(self)
    }

    /// Enqueues any number of jobs of this type from an iterator, in constant memory and in the iterator's order. Jobs of a unique type are
    /// enqueued in chunks of at most 8,192 jobs, and within a chunk in the order of their keys' hashes.
    ///
    /// Nothing is enqueued until the builder is awaited. See [`EnqueueAll`] for the builder's options. Use a [`Batch`](crate::Batch) for
    /// jobs of several types.
    ///
    /// # Errors
    /// Returns the errors of [`enqueue`](Job::enqueue). [`Error::OneOfMany`](crate::Error::OneOfMany) names the invalid job. After an
    /// error no job is enqueued. If you passed a transaction, roll it back.
    fn enqueue_all<'c, I>(jobs: I, on: impl IntoConnection<'c>) -> EnqueueAll<'c, Self>
    where
        I: IntoIterator<Item = Self>,
        I::IntoIter: Send + 'c,
    {
        EnqueueAll::new(jobs.into_iter(), on)
    }

    /// Chains a job that runs once this job has completed. The payload of the next job may contain this job's output. A chain is the
    /// simplest [`Flow`](crate::flow::Flow).
    ///
    /// ```no_run
    /// # use queue_core::{Job as _, flow::NodeOutput, job};
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
    ///     page: NodeOutput<String>,
    /// }
    ///
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
    /// let fetch = Fetch { url: "https://example.org".into() };
    /// let flow = fetch.then(|page| Parse { page }).enqueue(&pool).await?;
    /// # Ok(()) }
    /// ```
    fn then<N: JobType>(self, next: impl FnOnce(NodeOutput<Self::Output>) -> N) -> Then<N> {
        Then::first(self).then(next)
    }
}

impl<T: JobType> Job for T {}
