//! A job as others refer to it: by its id, in its store.

use std::fmt;

use crate::{define::JobId, schema::Store};

/// A job of any type: its id, and the store that it is in. What can be asked of a job, or done to it, without knowing its type, is done by this.
///
/// A [`JobHandle`](crate::JobHandle) is one as well, of which the type is known. It is not checked that there is such a job.
///
/// ```
/// use queue_core::{JobId, JobRef, Store};
///
/// # fn main() -> Result<(), queue_core::Error> {
/// let job = JobRef::from_id(JobId(7));
/// let of_billing = job.in_store(Store::new("billing")?);
/// assert_ne!(job, of_billing);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct JobRef {
    id: JobId,
    store: Store,
}

impl JobRef {
    /// The job with this id in the default store.
    pub fn from_id(id: JobId) -> Self {
        Self { id, store: Store::default() }
    }

    /// The job with this id in that store.
    #[must_use]
    pub fn in_store(self, store: Store) -> Self {
        Self { store, ..self }
    }

    /// The job's id.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// The store that the job is in.
    pub fn store(&self) -> Store {
        self.store
    }
}

impl fmt::Debug for JobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobRef({} in {})", self.id, self.store.schema())
    }
}
