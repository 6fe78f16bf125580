//! What can be done to a job. The acts are SQL functions of the store, for every language alike; here they have their names and their values.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::PgConnection;

use super::refusal::explain;
use crate::{
    connect::JobRef,
    define::{JobId, JobState},
    define::{LONGEST_WAIT, shown},
    error::Error,
    schema::Store,
};

/// What is done to a job.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Act {
    /// A job that waits will not run. One that runs is cancelling from then on: see [`Acted::Cancelling`].
    Cancel,
    /// Ready or scheduled becomes scheduled at this time; one that has passed is due at once.
    Reschedule(DateTime<Utc>),
    /// Postpones a ready or scheduled job by this duration from now, by the database's clock; at most 100 years.
    Snooze(Duration),
    /// Scheduled or parked becomes ready. A durable job looks for itself whether its wait is over, and waits again if it is not.
    RunNow,
    /// Ready or scheduled stays so, with this priority. It is kept over retries and requeues.
    Priority(i16),
    /// Dead, completed or cancelled becomes ready at the end of its lane, with all attempts before it. Its failures are kept, its output is not.
    /// With an ordering key it goes to the end of that; only a dead letter that holds up its key keeps its place there.
    ///
    /// One whose uniqueness key another job has taken is refused: [`Error::KeyTaken`]. Many at a time leaves it as it is.
    Requeue,
    /// As [`Act::Requeue`], also beside the job that has taken its uniqueness key.
    ForceRequeue,
    /// A dead letter is deleted with its payload and history. An ordering key that it held up goes on.
    Discard,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Acted {
    /// It is done.
    Done,
    /// The job was running, and is now cancelling. Its worker fires the handler's [`cancelled`](crate::Context::cancelled) within about a second, and
    /// drops its future after `cancel_grace`. Unless it completes all the same it is cancelled then, and never tried again, even if its process
    /// ends meanwhile.
    Cancelling,
}

/// What an act takes besides jobs.
#[derive(Default)]
struct Values {
    run_at: Option<DateTime<Utc>>,
    wait_ms: Option<f64>,
    priority: Option<i32>,
}

impl Act {
    /// What SQL calls the function for one job: `queue.cancel`.
    fn name(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Reschedule(_) => "reschedule",
            Self::Snooze(_) => "snooze",
            Self::RunNow => "run_now",
            Self::Priority(_) => "set_priority",
            Self::Requeue => "requeue",
            Self::ForceRequeue => "force_requeue",
            Self::Discard => "discard",
        }
    }

    /// What a job is after it, in a word.
    pub fn done(self) -> &'static str {
        match self {
            Self::Cancel => "cancelled",
            Self::Reschedule(_) => "rescheduled",
            Self::Snooze(_) => "snoozed",
            Self::RunNow => "ready",
            Self::Priority(_) => "changed",
            Self::Requeue | Self::ForceRequeue => "requeued",
            Self::Discard => "discarded",
        }
    }

    /// The states in which all jobs of a kind are chosen for it, in the order of the walk, and the same in words. No act makes a job that comes
    /// later. A requeue of all means dead letters only: what was completed is brought back by its id.
    pub(super) fn states(self) -> (&'static [JobState], &'static str) {
        match self {
            // Whoever ends a head before what is blocked behind it lets that go on.
            Self::Cancel => (
                &[JobState::Blocked, JobState::Scheduled, JobState::Parked, JobState::Ready, JobState::Running],
                "blocked, scheduled, parked, ready or running",
            ),
            Self::Reschedule(_) | Self::Snooze(_) | Self::Priority(_) => (&[JobState::Scheduled, JobState::Ready], "scheduled or ready"),
            Self::RunNow => (&[JobState::Scheduled, JobState::Parked], "scheduled or parked"),
            Self::Requeue | Self::ForceRequeue => {
                (&[JobState::Dead], "dead for a requeue of all; name completed, cancelled and expired jobs by their ids")
            }
            Self::Discard => (&[JobState::Dead], "dead"),
        }
    }

    fn values(self) -> Values {
        match self {
            Self::Reschedule(at) => Values { run_at: Some(at), ..Values::default() },
            Self::Snooze(wait) => Values { wait_ms: Some(wait.as_secs_f64() * 1000.0), ..Values::default() },
            Self::Priority(priority) => Values { priority: Some(priority.into()), ..Values::default() },
            Self::Cancel | Self::RunNow | Self::Requeue | Self::ForceRequeue | Self::Discard => Values::default(),
        }
    }

    /// What the database would refuse, said before it is asked.
    pub(super) fn check(self) -> Result<(), Error> {
        match self {
            Self::Reschedule(at) if !(0..=LATEST).contains(&at.timestamp()) => {
                Err(Error::OutOfRange { what: "the time to run at", value: at.to_rfc3339(), range: "within the years 1970 to 9999" })
            }
            Self::Snooze(wait) if wait > LONGEST_WAIT => {
                Err(Error::OutOfRange { what: "the wait of a snooze", value: shown(wait), range: "at most 100 years" })
            }
            _ => Ok(()),
        }
    }

    /// Does it to one job, or says why not.
    pub(super) async fn on_one(self, connection: &mut PgConnection, job: JobRef) -> Result<Acted, Error> {
        self.check()?;
        let Values { run_at, wait_ms, priority } = self.values();
        let statement = sqlx::query_scalar(job.store().sql(include_str!("../../sql/act_on_one.sql")));
        let statement = statement.bind(job.id()).bind(self.name()).bind(run_at).bind(wait_ms).bind(priority);
        let became: String = statement.fetch_one(connection).await.map_err(|error| explain(error, job.store()))?;
        Ok(Acted::of(&became))
    }

    /// Does it to those of `ids` to which it can be done, and says which.
    pub(super) async fn on_all(self, connection: &mut PgConnection, store: Store, ids: &[JobId]) -> sqlx::Result<Vec<Acted>> {
        let Values { run_at, wait_ms, priority } = self.values();
        let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/act_on_all.sql")));
        let statement = statement.bind(ids).bind(self.name()).bind(run_at).bind(wait_ms).bind(priority);
        let became: Vec<String> = statement.fetch_all(connection).await?;
        Ok(became.iter().map(|became| Acted::of(became)).collect())
    }
}

impl Acted {
    /// The function has a word of its own for each act that is done.
    fn of(became: &str) -> Self {
        if became == "cancelling" { Self::Cancelling } else { Self::Done }
    }
}

/// The last second of 9999.
const LATEST: i64 = 253_402_300_799;
