//! Each act by its name: on one job, and on all that a filter means. See [`Act`] for what each does.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{
    act::{Act, Acted},
    all::{ActAll, act_all},
    filter::Filter,
};
use crate::{connect::IntoConnection, connect::JobRef, error::Error, schema::Store};

/// What can be done to one job. Each is a statement on the connection that is given, in the job's own store; if a claim or somebody else is
/// quicker, it is refused as of the state that leaves. After an error in a transaction of yours, that can only be rolled back.
impl JobRef {
    /// Does this to the job.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::WrongState`] with the state it is in; [`Error::Locked`] when another transaction has it
    /// locked; [`Error::OutOfRange`] for a time outside the years 1970 to 9999, or a snooze of more than 100 years; the database's.
    pub async fn act(&self, on: impl IntoConnection<'_>, act: Act) -> Result<Acted, Error> {
        let mut on = on.into_connection();
        act.on_one(&mut *on.acquire().await?, *self).await
    }

    /// Cancels the job: one that waits will not run, and its ordering key goes on without it; one that runs is [`Acted::Cancelling`].
    ///
    /// # Errors
    /// As [`JobRef::act`].
    pub async fn cancel(&self, on: impl IntoConnection<'_>) -> Result<Acted, Error> {
        self.act(on, Act::Cancel).await
    }

    /// Puts the job off until this time, or lets it be due earlier, if it is ready or scheduled.
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

    /// Makes the job ready now, if it is scheduled or parked: see [`Act::RunNow`].
    ///
    /// # Errors
    /// As [`JobRef::act`].
    pub async fn run_now(&self, on: impl IntoConnection<'_>) -> Result<(), Error> {
        self.act(on, Act::RunNow).await.map(drop)
    }

    /// Gives the job another priority, if it is ready or scheduled; higher runs first.
    ///
    /// # Errors
    /// As [`JobRef::act`].
    pub async fn set_priority(&self, on: impl IntoConnection<'_>, priority: i16) -> Result<(), Error> {
        self.act(on, Act::Priority(priority)).await.map(drop)
    }

    /// Brings the job back if it is dead, completed or cancelled, and no other job has taken its uniqueness key: see [`Act::Requeue`].
    ///
    /// # Errors
    /// As [`JobRef::act`].
    pub async fn requeue(&self, on: impl IntoConnection<'_>) -> Result<(), Error> {
        self.act(on, Act::Requeue).await.map(drop)
    }

    /// Deletes the job if it is dead, with its payload and history. Nothing of it is left.
    ///
    /// # Errors
    /// As [`JobRef::act`].
    pub async fn discard(&self, on: impl IntoConnection<'_>) -> Result<(), Error> {
        self.act(on, Act::Discard).await.map(drop)
    }
}

/// Cancels every job of the filter that waits or runs.
pub fn cancel_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter) -> ActAll<'c> {
    act_all(on, store, filter, Act::Cancel)
}

/// Puts off until this time every job of the filter that is ready or scheduled, or lets it be due earlier.
pub fn reschedule_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter, at: DateTime<Utc>) -> ActAll<'c> {
    act_all(on, store, filter, Act::Reschedule(at))
}

/// Postpones every ready or scheduled job of the filter by this duration from now. More than 100 years is [`Error::OutOfRange`].
pub fn snooze_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter, wait: Duration) -> ActAll<'c> {
    act_all(on, store, filter, Act::Snooze(wait))
}

/// Makes every job of the filter ready that is scheduled or parked.
pub fn run_now_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter) -> ActAll<'c> {
    act_all(on, store, filter, Act::RunNow)
}

/// Gives another priority to every job of the filter that is ready or scheduled and has not got it yet.
pub fn set_priority_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter, priority: i16) -> ActAll<'c> {
    act_all(on, store, filter, Act::Priority(priority))
}

/// Requeues every dead letter of the filter, each once. Jobs that are completed or cancelled are brought back by their ids only.
pub fn requeue_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter) -> ActAll<'c> {
    act_all(on, store, filter, Act::Requeue)
}

/// Discards every dead letter of the filter.
pub fn discard_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter) -> ActAll<'c> {
    act_all(on, store, filter, Act::Discard)
}
