//! Handles to enqueued jobs.

use std::{fmt, marker::PhantomData, ops::Deref};

use crate::{
    connect::JobRef,
    define::{EnqueueOutcome, JobId},
    schema::Store,
};

/// Handle to an enqueued job of a known type. The job exists once the transaction that enqueued the job has committed.
///
/// The handle dereferences to a [`JobRef`], which provides the job's id, its store, and the operations on the job.
///
/// ```no_run
/// # use queue_core::{EnqueueOutcome, Job as _, job};
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Email { to: String }
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// let email = Email { to: "ada@example.org".into() }.enqueue(pool).await?;
/// if email.outcome() == EnqueueOutcome::New {
///     println!("enqueued job {}", email.id());
/// }
/// email.cancel(pool).await?; // a method of `JobRef`
/// # Ok(()) }
/// ```
pub struct JobHandle<J> {
    job: JobRef,
    outcome: EnqueueOutcome,
    job_type: PhantomData<fn() -> J>,
}

impl<J> JobHandle<J> {
    /// Creates a handle to the job with this id in the default store. Checks neither that the job exists nor that its type is `J`.
    pub fn from_id(id: JobId) -> Self {
        Self::enqueued(JobRef::from_id(id), EnqueueOutcome::New)
    }

    pub(super) fn enqueued(job: JobRef, outcome: EnqueueOutcome) -> Self {
        Self { job, outcome, job_type: PhantomData }
    }

    /// Returns a handle to the job with the same id in `store`; see [`JobHandle::from_id`].
    #[must_use]
    pub fn in_store(self, store: Store) -> Self {
        Self { job: self.job.in_store(store), ..self }
    }

    /// Returns the reference to the job, without the job type.
    pub fn job_ref(&self) -> JobRef {
        self.job
    }

    /// Returns the job's id.
    pub fn id(&self) -> JobId {
        self.job.id()
    }

    /// Returns the job's store.
    pub fn store(&self) -> Store {
        self.job.store()
    }

    /// Returns the outcome of the enqueue. The outcome is [`EnqueueOutcome::New`] unless another job held the uniqueness key. For a handle
    /// created from an id, the outcome is unknown, and this method also returns [`EnqueueOutcome::New`].
    pub fn outcome(&self) -> EnqueueOutcome {
        self.outcome
    }
}

impl<J> Deref for JobHandle<J> {
    type Target = JobRef;

    fn deref(&self) -> &JobRef {
        &self.job
    }
}

impl<J> From<JobHandle<J>> for JobRef {
    fn from(handle: JobHandle<J>) -> Self {
        handle.job
    }
}

impl<J> Clone for JobHandle<J> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<J> Copy for JobHandle<J> {}

impl<J> fmt::Debug for JobHandle<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobHandle({})", self.id())
    }
}
