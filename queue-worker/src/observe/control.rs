//! What may be done to a job that waits, and to one that runs: called off. The acts are SQL functions of the store, for every language alike.

use std::time::Duration;

use chrono::{DateTime, Utc};
use queue_core::{JobId, JobState, Store};
use serde::Serialize;
use sqlx::PgConnection;

use super::look::record;
use crate::error::Error;

/// What is done to a job.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Control {
    /// One that is ready, scheduled or blocked will not run. Of one that runs, the handler is asked to end: see [`Controlled::Asked`].
    Cancel,
    /// Ready or scheduled becomes scheduled at this time; one that has passed is due at once.
    Reschedule(DateTime<Utc>),
    /// Ready or scheduled becomes scheduled in so long, by the database's clock.
    Snooze(Duration),
    /// Scheduled becomes ready.
    RunNow,
    /// Ready or scheduled stays so, with this priority. It is kept over retries and requeues.
    Priority(i16),
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Controlled {
    /// It is done.
    Done,
    /// The job runs. Its worker fires the handler's [`cancelled`](queue_core::Context::cancelled) within about a second, and drops its future
    /// after `cancel_grace`. Unless it completes all the same it is cancelled then, and never tried again, even if its process ends meanwhile.
    Asked,
}

/// Does this to the job `id`. If a claim or somebody else is quicker, it is refused as of the state that leaves.
///
/// # Errors
/// [`Error::NotFound`]; [`Error::WrongState`] with the state it is in; [`Error::Held`] when an open transaction holds it, as a transactional
/// job's does while it runs; the database's, among them a time outside the years 1970 to 9999.
pub async fn control(connection: &mut PgConnection, store: Store, id: JobId, control: Control) -> Result<Controlled, Error> {
    let mut tries = TRIES;
    loop {
        let (done, asked) = control.apply(connection, store, &[id]).await?;
        if !done.is_empty() {
            return Ok(Controlled::Done);
        }
        if !asked.is_empty() {
            return Ok(Controlled::Asked);
        }
        // It may have come there only after our statement looked, or whoever locks it is about to end.
        let state = record(connection, store, id, false).await?.ok_or(Error::NotFound(id))?.state;
        if !control.states().contains(&state) {
            let (wanted, done) = control.words();
            return Err(Error::WrongState { id, state, wanted, done });
        }
        tries -= 1;
        if tries == 0 {
            return Err(Error::Held { id, state });
        }
        tokio::time::sleep(BREATH).await;
    }
}

/// So often a job may slip from one state to another, both fit, between our statement and our look at it.
const TRIES: usize = 5;

/// Between two tries.
const BREATH: Duration = Duration::from_millis(10);

impl Control {
    /// Does it to those of `ids` that it can be done to; returns them, and those that were asked to end.
    pub(super) async fn apply(self, connection: &mut PgConnection, store: Store, ids: &[JobId]) -> sqlx::Result<(Vec<JobId>, Vec<JobId>)> {
        let statement = match self {
            Self::Cancel => sqlx::query_scalar(store.sql(include_str!("../../../queue-core/sql/cancel_waiting.sql"))).bind(ids),
            Self::Reschedule(at) => sqlx::query_scalar(store.sql(include_str!("../../../queue-core/sql/reschedule.sql")))
                .bind(ids)
                .bind(Some(at))
                .bind(None::<f64>),
            Self::Snooze(wait) => sqlx::query_scalar(store.sql(include_str!("../../../queue-core/sql/reschedule.sql")))
                .bind(ids)
                .bind(None::<DateTime<Utc>>)
                .bind(Some(wait.min(LONGEST).as_secs_f64() * 1000.0)),
            Self::RunNow => sqlx::query_scalar(store.sql(include_str!("../../../queue-core/sql/run_now.sql"))).bind(ids),
            Self::Priority(priority) => {
                sqlx::query_scalar(store.sql(include_str!("../../../queue-core/sql/set_priority.sql"))).bind(ids).bind(i32::from(priority))
            }
        };
        let done: Vec<JobId> = statement.persistent(false).fetch_all(&mut *connection).await?;
        let mut asked = Vec::new();
        if self == Self::Cancel && done.len() < ids.len() {
            let statement = sqlx::query_scalar(store.sql(include_str!("../../../queue-core/sql/cancel_running.sql"))).bind(ids);
            asked = statement.persistent(false).fetch_all(connection).await?;
        }
        Ok((done, asked))
    }

    /// The states in which it can be done, in the order in which a walk through all jobs takes them: none that it makes comes after.
    pub(super) fn states(self) -> &'static [JobState] {
        match self {
            // Whoever ends a head before what is blocked behind it lets that go on.
            Self::Cancel => &[JobState::Blocked, JobState::Scheduled, JobState::Ready, JobState::Running],
            Self::RunNow => &[JobState::Scheduled],
            Self::Reschedule(_) | Self::Snooze(_) | Self::Priority(_) => &[JobState::Scheduled, JobState::Ready],
        }
    }

    /// The same states in words, and the participle.
    pub(super) fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Cancel => ("blocked, scheduled, ready or running", "cancelled"),
            Self::RunNow => ("scheduled", "run now"),
            Self::Reschedule(_) => ("scheduled or ready", "rescheduled"),
            Self::Snooze(_) => ("scheduled or ready", "snoozed"),
            Self::Priority(_) => ("scheduled or ready", "given another priority"),
        }
    }
}

/// Nothing is put off for longer: a thousand years.
const LONGEST: Duration = Duration::from_hours(1000 * 365 * 24);
