//! Operations on one job. [`Operation`] describes each operation.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::operation::{Operation, OperationOutcome};
use crate::{
    connect::{IntoConnection, JobRef},
    error::Error,
    results::{QueueConnection, QueueJob},
};

/// Operations on one job. Each operation is a single statement on the given connection, in the job's own store. If a claim or another
/// session changes the job first, the operation is checked against the resulting state. If an operation fails inside the caller's
/// transaction, the transaction can only be rolled back.
impl JobRef {
    /// Applies the operation to the job.
    ///
    /// # Errors
    /// Returns [`Error::NotFound`] if the job does not exist, and [`Error::WrongState`] if the job's state does not allow the operation.
    /// Returns [`Error::Locked`] if another transaction has locked the job, and [`Error::KeyTaken`] if another job holds the uniqueness
    /// key of a job to be requeued. Returns [`Error::OutOfRange`] for a time outside the years 1970 to 9999, or a snooze of more than 100
    /// years. Returns an error if the database query fails.
    pub async fn apply(&self, on: impl IntoConnection<'_>, operation: Operation) -> Result<OperationOutcome, Error> {
        let mut on = on.into_connection();
        operation.apply_to_one(&mut *on.acquire().await?, *self).await
    }

    /// Cancels the job. A waiting job will not run, and the next job of its ordering key can start. A running job is marked for
    /// cancellation; see [`OperationOutcome::Cancelling`].
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::apply`].
    pub async fn cancel(&self, on: impl IntoConnection<'_>) -> Result<OperationOutcome, Error> {
        self.apply(on, Operation::Cancel).await
    }

    /// Sets the due time of a ready or scheduled job to `at`, which can be earlier or later than the previous due time.
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::apply`].
    pub async fn reschedule(&self, on: impl IntoConnection<'_>, at: DateTime<Utc>) -> Result<(), Error> {
        self.apply(on, Operation::Reschedule(at)).await.map(drop)
    }

    /// Postpones a ready or scheduled job. The job becomes due `wait` after the current time of the database clock.
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::apply`], including [`Error::OutOfRange`] for a `wait` of more than 100 years.
    pub async fn snooze(&self, on: impl IntoConnection<'_>, wait: Duration) -> Result<(), Error> {
        self.apply(on, Operation::Snooze(wait)).await.map(drop)
    }

    /// Makes a scheduled or parked job ready now; see [`Operation::RunNow`].
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::apply`].
    pub async fn run_now(&self, on: impl IntoConnection<'_>) -> Result<(), Error> {
        self.apply(on, Operation::RunNow).await.map(drop)
    }

    /// Sets the priority of a ready or scheduled job. Jobs of higher priority run first.
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::apply`].
    pub async fn set_priority(&self, on: impl IntoConnection<'_>, priority: i16) -> Result<(), Error> {
        self.apply(on, Operation::Priority(priority)).await.map(drop)
    }

    /// Requeues a dead, completed, cancelled or expired job, unless another job holds its uniqueness key; see [`Operation::Requeue`].
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::apply`].
    pub async fn requeue(&self, on: impl IntoConnection<'_>) -> Result<(), Error> {
        self.apply(on, Operation::Requeue).await.map(drop)
    }

    /// Deletes a dead letter with its payload and history.
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::apply`].
    pub async fn discard(&self, on: impl IntoConnection<'_>) -> Result<(), Error> {
        self.apply(on, Operation::Discard).await.map(drop)
    }
}

/// Operations on one job, on the queue's connection. The methods of [`JobRef`] with the same names describe the operations.
impl<C: QueueConnection> QueueJob<'_, C> {
    /// Applies the operation to the job; see [`JobRef::apply`].
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::apply`], like all operations on one job.
    pub async fn apply(&self, operation: Operation) -> Result<OperationOutcome, Error> {
        self.job_ref().apply(self.queue.lend().await, operation).await
    }

    /// Cancels the job; see [`JobRef::cancel`].
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::cancel`].
    pub async fn cancel(&self) -> Result<OperationOutcome, Error> {
        self.apply(Operation::Cancel).await
    }

    /// Sets the due time of the job; see [`JobRef::reschedule`].
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::reschedule`].
    pub async fn reschedule(&self, at: DateTime<Utc>) -> Result<(), Error> {
        self.apply(Operation::Reschedule(at)).await.map(drop)
    }

    /// Postpones the job; see [`JobRef::snooze`].
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::snooze`].
    pub async fn snooze(&self, wait: Duration) -> Result<(), Error> {
        self.apply(Operation::Snooze(wait)).await.map(drop)
    }

    /// Makes the job ready now; see [`JobRef::run_now`].
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::run_now`].
    pub async fn run_now(&self) -> Result<(), Error> {
        self.apply(Operation::RunNow).await.map(drop)
    }

    /// Sets the priority of the job; see [`JobRef::set_priority`].
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::set_priority`].
    pub async fn set_priority(&self, priority: i16) -> Result<(), Error> {
        self.apply(Operation::Priority(priority)).await.map(drop)
    }

    /// Requeues the job; see [`JobRef::requeue`].
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::requeue`].
    pub async fn requeue(&self) -> Result<(), Error> {
        self.apply(Operation::Requeue).await.map(drop)
    }

    /// Deletes the dead letter; see [`JobRef::discard`].
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::discard`].
    pub async fn discard(&self) -> Result<(), Error> {
        self.apply(Operation::Discard).await.map(drop)
    }
}
