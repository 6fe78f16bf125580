//! Operations as methods on one job, and as functions on all jobs of a filter. [`Act`] describes the operations.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{
    act::{Act, Acted},
    all::{ActAll, act_all},
    filter::Filter,
};
use crate::{connect::IntoConnection, connect::JobRef, error::Error, schema::Store};

/// Operations on one job. Each operation is a single statement on the given connection, in the job's own store. If a claim or another
/// session changes the job first, the operation is checked against the resulting state. After an error inside the caller's transaction, the
/// transaction can only be rolled back.
impl JobRef {
    /// Applies the operation to the job.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::WrongState`] with the job's state; [`Error::Locked`] if another transaction has locked the job;
    /// [`Error::OutOfRange`] for a time outside the years 1970 to 9999, or a snooze of more than 100 years; database errors.
    pub async fn act(&self, on: impl IntoConnection<'_>, act: Act) -> Result<Acted, Error> {
        let mut on = on.into_connection();
        act.apply_to_one(&mut *on.acquire().await?, *self).await
    }

    /// Cancels the job. A waiting job will not run, and its ordering key continues with the next job. A running job becomes
    /// [`Acted::Cancelling`].
    ///
    /// # Errors
    /// Same as [`JobRef::act`].
    pub async fn cancel(&self, on: impl IntoConnection<'_>) -> Result<Acted, Error> {
        self.act(on, Act::Cancel).await
    }

    /// Schedules a ready or scheduled job for the time `at`, later or earlier than before.
    ///
    /// # Errors
    /// Same as [`JobRef::act`].
    pub async fn reschedule(&self, on: impl IntoConnection<'_>, at: DateTime<Utc>) -> Result<(), Error> {
        self.act(on, Act::Reschedule(at)).await.map(drop)
    }

    /// Postpones a ready or scheduled job until `wait` from now, according to the database clock.
    ///
    /// # Errors
    /// Same as [`JobRef::act`]; [`Error::OutOfRange`] for a `wait` of more than 100 years.
    pub async fn snooze(&self, on: impl IntoConnection<'_>, wait: Duration) -> Result<(), Error> {
        self.act(on, Act::Snooze(wait)).await.map(drop)
    }

    /// Makes a scheduled or parked job ready now: see [`Act::RunNow`].
    ///
    /// # Errors
    /// Same as [`JobRef::act`].
    pub async fn run_now(&self, on: impl IntoConnection<'_>) -> Result<(), Error> {
        self.act(on, Act::RunNow).await.map(drop)
    }

    /// Sets the priority of a ready or scheduled job. Jobs of higher priority run first.
    ///
    /// # Errors
    /// Same as [`JobRef::act`].
    pub async fn set_priority(&self, on: impl IntoConnection<'_>, priority: i16) -> Result<(), Error> {
        self.act(on, Act::Priority(priority)).await.map(drop)
    }

    /// Requeues a dead, completed or cancelled job, unless another job holds its uniqueness key: see [`Act::Requeue`].
    ///
    /// # Errors
    /// Same as [`JobRef::act`].
    pub async fn requeue(&self, on: impl IntoConnection<'_>) -> Result<(), Error> {
        self.act(on, Act::Requeue).await.map(drop)
    }

    /// Deletes a dead letter with its payload and history.
    ///
    /// # Errors
    /// Same as [`JobRef::act`].
    pub async fn discard(&self, on: impl IntoConnection<'_>) -> Result<(), Error> {
        self.act(on, Act::Discard).await.map(drop)
    }
}

/// Cancels every waiting or running job that `filter` selects.
pub fn cancel_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter) -> ActAll<'c> {
    act_all(on, store, filter, Act::Cancel)
}

/// Schedules every ready or scheduled job that `filter` selects for the time `at`, later or earlier than before.
pub fn reschedule_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter, at: DateTime<Utc>) -> ActAll<'c> {
    act_all(on, store, filter, Act::Reschedule(at))
}

/// Postpones every ready or scheduled job that `filter` selects until `wait` from now. A `wait` of more than 100 years is rejected with
/// [`Error::OutOfRange`].
pub fn snooze_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter, wait: Duration) -> ActAll<'c> {
    act_all(on, store, filter, Act::Snooze(wait))
}

/// Makes ready every scheduled or parked job that `filter` selects.
pub fn run_now_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter) -> ActAll<'c> {
    act_all(on, store, filter, Act::RunNow)
}

/// Sets the priority of every ready or scheduled job that `filter` selects, if the job has a different priority.
pub fn set_priority_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter, priority: i16) -> ActAll<'c> {
    act_all(on, store, filter, Act::Priority(priority))
}

/// Requeues every dead letter that `filter` selects, each once. Completed and cancelled jobs can only be requeued by their ids.
pub fn requeue_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter) -> ActAll<'c> {
    act_all(on, store, filter, Act::Requeue)
}

/// Discards every dead letter that `filter` selects.
pub fn discard_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter) -> ActAll<'c> {
    act_all(on, store, filter, Act::Discard)
}
