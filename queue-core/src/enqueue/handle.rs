//! What an enqueue returns.

use std::{fmt, marker::PhantomData, ops::Deref};

use crate::{
    connect::JobRef,
    define::{Enqueued, JobId},
    schema::Store,
};

/// A job whose type is known: what an enqueue returns. It exists once the transaction it was enqueued in has committed.
///
/// It is a [`JobRef`], so it knows its id and its store, and can do what that can.
pub struct JobHandle<J> {
    job: JobRef,
    outcome: Enqueued,
    job_type: PhantomData<fn() -> J>,
}

impl<J> JobHandle<J> {
    /// The handle of a job of the default store whose id came from elsewhere. It is not checked that such a job exists, or is a `J`.
    pub fn from_id(id: JobId) -> Self {
        Self::enqueued(JobRef::from_id(id), Enqueued::New)
    }

    pub(super) fn enqueued(job: JobRef, outcome: Enqueued) -> Self {
        Self { job, outcome, job_type: PhantomData }
    }

    /// The job with this id in that store: see [`JobHandle::from_id`].
    #[must_use]
    pub fn in_store(self, store: Store) -> Self {
        Self { job: self.job.in_store(store), ..self }
    }

    /// The same job, whatever its type.
    pub fn job_ref(&self) -> JobRef {
        self.job
    }

    /// The job's id.
    pub fn id(&self) -> JobId {
        self.job.id()
    }

    /// The store that the job is in.
    pub fn store(&self) -> Store {
        self.job.store()
    }

    /// What came of the enqueue: a new job, unless it is unique and another held its key. Of a handle from an id, that is not known: it says new.
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
