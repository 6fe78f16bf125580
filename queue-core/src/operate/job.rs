//! Methods for operations on one job, and functions for operations on all jobs that a filter selects. [`Act`] describes each operation.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{
    act::{Act, OperationOutcome},
    all::{ActAll, act_all},
    filter::Filter,
};
use crate::{connect::IntoConnection, connect::JobRef, error::Error, schema::Store};

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
    pub async fn act(&self, on: impl IntoConnection<'_>, act: Act) -> Result<OperationOutcome, Error> {
        let mut on = on.into_connection();
        act.apply_to_one(&mut *on.acquire().await?, *self).await
    }

    /// Cancels the job. A waiting job will not run, and the next job of its ordering key can start. A running job is marked for
    /// cancellation; see [`OperationOutcome::Cancelling`].
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::act`].
    pub async fn cancel(&self, on: impl IntoConnection<'_>) -> Result<OperationOutcome, Error> {
        self.act(on, Act::Cancel).await
    }

    /// Sets the due time of a ready or scheduled job to `at`, which can be earlier or later than the previous due time.
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::act`].
    pub async fn reschedule(&self, on: impl IntoConnection<'_>, at: DateTime<Utc>) -> Result<(), Error> {
        self.act(on, Act::Reschedule(at)).await.map(drop)
    }

    /// Postpones a ready or scheduled job. The job becomes due `wait` after the current time of the database clock.
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::act`], including [`Error::OutOfRange`] for a `wait` of more than 100 years.
    pub async fn snooze(&self, on: impl IntoConnection<'_>, wait: Duration) -> Result<(), Error> {
        self.act(on, Act::Snooze(wait)).await.map(drop)
    }

    /// Makes a scheduled or parked job ready now; see [`Act::RunNow`].
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::act`].
    pub async fn run_now(&self, on: impl IntoConnection<'_>) -> Result<(), Error> {
        self.act(on, Act::RunNow).await.map(drop)
    }

    /// Sets the priority of a ready or scheduled job. Jobs of higher priority run first.
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::act`].
    pub async fn set_priority(&self, on: impl IntoConnection<'_>, priority: i16) -> Result<(), Error> {
        self.act(on, Act::Priority(priority)).await.map(drop)
    }

    /// Requeues a dead, completed or cancelled job, unless another job holds its uniqueness key; see [`Act::Requeue`].
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::act`].
    pub async fn requeue(&self, on: impl IntoConnection<'_>) -> Result<(), Error> {
        self.act(on, Act::Requeue).await.map(drop)
    }

    /// Deletes a dead letter with its payload and history.
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::act`].
    pub async fn discard(&self, on: impl IntoConnection<'_>) -> Result<(), Error> {
        self.act(on, Act::Discard).await.map(drop)
    }
}

/// Cancels every waiting or running job that `filter` selects.
pub fn cancel_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter) -> ActAll<'c> {
    act_all(on, store, filter, Act::Cancel)
}

/// Sets the due time of every ready or scheduled job that `filter` selects to `at`, which can be earlier or later than the previous due
/// time.
pub fn reschedule_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter, at: DateTime<Utc>) -> ActAll<'c> {
    act_all(on, store, filter, Act::Reschedule(at))
}

/// Postpones every ready or scheduled job that `filter` selects. The jobs become due `wait` after the current time of the database clock.
/// A `wait` of more than 100 years is rejected with [`Error::OutOfRange`].
pub fn snooze_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter, wait: Duration) -> ActAll<'c> {
    act_all(on, store, filter, Act::Snooze(wait))
}

/// Moves every scheduled or parked job that `filter` selects to the state ready.
pub fn run_now_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter) -> ActAll<'c> {
    act_all(on, store, filter, Act::RunNow)
}

/// Sets the priority of every ready or scheduled job that `filter` selects. Jobs that already have this priority are skipped.
pub fn set_priority_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter, priority: i16) -> ActAll<'c> {
    act_all(on, store, filter, Act::Priority(priority))
}

/// Requeues every dead letter that `filter` selects. A requeued job that becomes a dead letter again during the operation is not requeued
/// again. Completed and cancelled jobs can only be requeued by id.
pub fn requeue_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter) -> ActAll<'c> {
    act_all(on, store, filter, Act::Requeue)
}

/// Discards every dead letter that `filter` selects.
pub fn discard_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter) -> ActAll<'c> {
    act_all(on, store, filter, Act::Discard)
}
