//! References to jobs by id and store.

use std::fmt;

use crate::{define::JobId, schema::Store};

/// Reference to a job of any type. Consists of the job's id and store, and provides the operations that do not depend on the job type.
///
/// A [`JobHandle`](crate::JobHandle) dereferences to a `JobRef`, and adds the job type. Creating a reference does not check that the job
/// exists.
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
    /// Creates a reference to the job with this id in the default store.
    pub fn from_id(id: JobId) -> Self {
        Self { id, store: Store::default() }
    }

    /// Returns a reference to the job with the same id in another store.
    #[must_use]
    pub fn in_store(self, store: Store) -> Self {
        Self { store, ..self }
    }

    /// Returns the job's id.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// Returns the job's store.
    pub fn store(&self) -> Store {
        self.store
    }
}

impl fmt::Debug for JobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobRef({} in {})", self.id, self.store.schema())
    }
}
