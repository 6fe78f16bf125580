//! SQL statement and parameters that enqueue a job, for execution by any database driver.

use std::{borrow::Cow, fmt, marker::PhantomData};

use super::{
    JobHandle,
    hooks::call_hooks,
    options::{EnqueueOptions, option_methods},
    row::{EncodedJob, EnqueueRow},
};
use crate::{
    connect::JobRef,
    define::{EnqueueOutcome, JobId, JobType},
    error::Error,
    schema::Store,
    trace,
};

/// Builder for an enqueue statement that any database driver can execute. Created by [`Job::statement`](crate::Job::statement). Override
/// options of the job type with the methods below, then call [`build`](Self::build).
///
/// With tokio-postgres:
///
/// ```ignore
/// let enqueue = SendEmail { to: "ada@example.org".into() }.statement().after(Duration::from_secs(60)).build()?;
/// let [job_type, payload, options] = enqueue.parameters();
/// let row = tx.query_one(enqueue.sql(), &[&job_type, &payload, &options]).await?;
/// let job = enqueue.handle(row.get(0), row.get(1));
/// ```
#[must_use = "nothing is enqueued until what it builds is sent"]
pub struct Statement<J> {
    job: J,
    store: Store,
    options: EnqueueOptions,
}

/// SQL statement that enqueues a job, and the parameters of the statement. Created by [`Statement::build`].
///
/// If the statement is sent in a transaction, the job exists if and only if the transaction commits. Each execution enqueues another job.
///
/// ```no_run
/// # use queue_core::{Job as _, job};
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Email { to: String }
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// let enqueue = Email { to: "ada@example.org".into() }.statement().build()?;
/// let [job_type, payload, options] = enqueue.parameters();
/// let query = sqlx::query_as(enqueue.sql()).bind(job_type).bind(payload).bind(options);
/// let (id, outcome): (i64, String) = query.fetch_one(pool).await?;
/// println!("enqueued job {}", enqueue.handle(id, &outcome).id());
/// # Ok(()) }
/// ```
#[must_use = "nothing is enqueued until it is sent"]
pub struct Rendered<J> {
    sql: &'static str,
    parameters: [String; 3],
    store: Store,
    job_type: PhantomData<fn() -> J>,
}

impl<J: JobType> Statement<J> {
    pub(super) fn new(job: J) -> Self {
        Self { job, store: Store::default(), options: EnqueueOptions::for_type::<J>() }
    }

    option_methods!((mut self) -> Self, self);

    /// Sets the store into which the job is enqueued, instead of the default store.
    pub fn store(mut self, store: Store) -> Self {
        self.store = store;
        self
    }

    /// Builds the statement. Calls the hooks of [`on_enqueue`](crate::middleware::on_enqueue) and adds the current trace context to the
    /// job.
    ///
    /// # Errors
    /// Returns the errors of [`Job::enqueue`](crate::Job::enqueue), except database errors, which the driver returns on execution. If the
    /// queue is at its capacity, the execution fails with the SQLSTATE `QCAPA`.
    pub fn build(mut self) -> Result<Rendered<J>, Error> {
        call_hooks(&mut self.options);
        let span = trace::enqueue_span(Some(&self.options.queue), Some(self.options.job_type));
        self.options.add_trace(trace::current_context(&span).as_ref());
        self.options.check()?;
        let row = EnqueueRow::for_store(self.store, Cow::Owned(EncodedJob::encode(&self.job)?), &self.options, 0)?;
        let options_json = row.options_json(&self.options)?.into_owned();
        Ok(Rendered {
            sql: self.store.sql(include_str!("../../sql/enqueue_text.sql")),
            parameters: [self.options.job_type.to_owned(), row.payload().to_owned(), options_json],
            store: self.store,
            job_type: PhantomData,
        })
    }

    fn options_mut(&mut self) -> &mut EnqueueOptions {
        &mut self.options
    }
}

impl<J> Rendered<J> {
    /// Returns the SQL text with the parameters `$1` to `$3`. The text is the same for all jobs of a store. The statement returns one row:
    /// the id of the job as `bigint`, and the outcome of the enqueue as `text`.
    #[must_use]
    pub fn sql(&self) -> &'static str {
        self.sql
    }

    /// Returns the values of `$1` to `$3`, all of type `text`: the name of the job type, and the payload and options as JSON.
    #[must_use]
    pub fn parameters(&self) -> [&str; 3] {
        self.parameters.each_ref().map(String::as_str)
    }

    /// Returns the handle to the job. `id` and `outcome` are the columns of the row that the statement returned.
    pub fn handle(&self, id: i64, outcome: &str) -> JobHandle<J> {
        JobHandle::enqueued(JobRef::from_id(JobId(id)).in_store(self.store), EnqueueOutcome::from_sql(outcome))
    }
}

/// Omits the payload because it may be secret.
impl<J> fmt::Debug for Rendered<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rendered").field("sql", &self.sql).field("job_type", &self.parameters[0]).finish_non_exhaustive()
    }
}

impl<J> fmt::Debug for Statement<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Statement").field("options", &self.options).finish_non_exhaustive()
    }
}
