//! Handles of enqueued jobs.

use std::{fmt, marker::PhantomData, ops::Deref};

use crate::{
    connect::JobRef,
    define::{Enqueued, JobId},
    schema::Store,
};

/// Handle of an enqueued job of a known type. The job exists once the transaction in which it was enqueued has committed.
///
/// The handle dereferences to a [`JobRef`], which has the job's id, its store, and the operations on the job.
pub struct JobHandle<J> {
    job: JobRef,
    outcome: Enqueued,
    job_type: PhantomData<fn() -> J>,
}

impl<J> JobHandle<J> {
    /// Creates the handle of a job of the default store from its id. Checks neither that the job exists nor that its type is `J`.
    pub fn from_id(id: JobId) -> Self {
        Self::enqueued(JobRef::from_id(id), Enqueued::New)
    }

    pub(super) fn enqueued(job: JobRef, outcome: Enqueued) -> Self {
        Self { job, outcome, job_type: PhantomData }
    }

    /// Returns the handle of the job with the same id in another store; see [`JobHandle::from_id`].
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

    /// Returns the outcome of the enqueue, which is [`Enqueued::New`] unless the job is unique and another job held its key. The outcome is
    /// unknown for a handle created from an id, for which this returns [`Enqueued::New`].
    pub fn outcome(&self) -> Enqueued {
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
