//! Operations as methods and functions: on one job, and on all jobs of a filter. [`Act`] has their meaning.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{
    act::{Act, Acted},
    all::{ActAll, act_all},
    filter::Filter,
};
use crate::{connect::IntoConnection, connect::JobRef, error::Error, schema::Store};

/// Operations on one job. Each is one statement on the given connection, in the job's own store. If a claim or another session is faster,
/// the operation is checked against the resulting state. After an error inside a transaction of the caller, the transaction can only be
/// rolled back.
impl JobRef {
    /// Applies the operation to the job.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::WrongState`] with the job's state; [`Error::Locked`] if another transaction has it locked;
    /// [`Error::OutOfRange`] for a time outside the years 1970 to 9999, or a snooze of more than 100 years; database errors.
    pub async fn act(&self, on: impl IntoConnection<'_>, act: Act) -> Result<Acted, Error> {
        let mut on = on.into_connection();
        act.apply_to_one(&mut *on.acquire().await?, *self).await
    }

    /// Cancels the job. A waiting job will not run, and its ordering key continues without it. A running job becomes [`Acted::Cancelling`].
    ///
    /// # Errors
    /// As [`JobRef::act`].
    pub async fn cancel(&self, on: impl IntoConnection<'_>) -> Result<Acted, Error> {
        self.act(on, Act::Cancel).await
    }

    /// Schedules a ready or scheduled job for this time, later or earlier than before.
    ///
    /// # Errors
    /// As [`JobRef::act`].
    pub async fn reschedule(&self, on: impl IntoConnection<'_>, at: DateTime<Utc>) -> Result<(), Error> {
        self.act(on, Act::Reschedule(at)).await.map(drop)
    }

    /// Postpones a ready or scheduled job by this duration from now, by the database's clock.
    ///
    /// # Errors
    /// As [`JobRef::act`]; [`Error::OutOfRange`] for more than 100 years.
    pub async fn snooze(&self, on: impl IntoConnection<'_>, wait: Duration) -> Result<(), Error> {
        self.act(on, Act::Snooze(wait)).await.map(drop)
    }

    /// Makes a scheduled or parked job ready now: see [`Act::RunNow`].
    ///
    /// # Errors
    /// As [`JobRef::act`].
    pub async fn run_now(&self, on: impl IntoConnection<'_>) -> Result<(), Error> {
        self.act(on, Act::RunNow).await.map(drop)
    }

    /// Sets the priority of a ready or scheduled job; higher runs first.
    ///
    /// # Errors
    /// As [`JobRef::act`].
    pub async fn set_priority(&self, on: impl IntoConnection<'_>, priority: i16) -> Result<(), Error> {
        self.act(on, Act::Priority(priority)).await.map(drop)
    }

    /// Requeues a dead, completed or cancelled job, unless another job holds its uniqueness key: see [`Act::Requeue`].
    ///
    /// # Errors
    /// As [`JobRef::act`].
    pub async fn requeue(&self, on: impl IntoConnection<'_>) -> Result<(), Error> {
        self.act(on, Act::Requeue).await.map(drop)
    }

    /// Deletes a dead letter with its payload and history.
    ///
    /// # Errors
    /// As [`JobRef::act`].
    pub async fn discard(&self, on: impl IntoConnection<'_>) -> Result<(), Error> {
        self.act(on, Act::Discard).await.map(drop)
    }
}

/// Cancels every waiting or running job of the filter.
pub fn cancel_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter) -> ActAll<'c> {
    act_all(on, store, filter, Act::Cancel)
}

/// Schedules every ready or scheduled job of the filter for this time, later or earlier than before.
pub fn reschedule_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter, at: DateTime<Utc>) -> ActAll<'c> {
    act_all(on, store, filter, Act::Reschedule(at))
}

/// Postpones every ready or scheduled job of the filter by this duration from now. More than 100 years is [`Error::OutOfRange`].
pub fn snooze_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter, wait: Duration) -> ActAll<'c> {
    act_all(on, store, filter, Act::Snooze(wait))
}

/// Makes every scheduled or parked job of the filter ready.
pub fn run_now_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter) -> ActAll<'c> {
    act_all(on, store, filter, Act::RunNow)
}

/// Sets the priority of every ready or scheduled job of the filter that has a different one.
pub fn set_priority_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter, priority: i16) -> ActAll<'c> {
    act_all(on, store, filter, Act::Priority(priority))
}

/// Requeues every dead letter of the filter, each once. Completed and cancelled jobs are requeued by their ids only.
pub fn requeue_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter) -> ActAll<'c> {
    act_all(on, store, filter, Act::Requeue)
}

/// Discards every dead letter of the filter.
pub fn discard_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter) -> ActAll<'c> {
    act_all(on, store, filter, Act::Discard)
}
