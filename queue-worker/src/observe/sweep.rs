//! All jobs that a filter means, in batches: what is done to them, or only how many there are.
//!
//! A walk takes jobs that were there when it began, each once. Ended half-way, what was done stays done, and the same walk goes on from there.

use queue_core::{JobId, JobState, Store};
use serde::Serialize;
use sqlx::PgConnection;

use super::{control::Control, look::Filter};
use crate::error::Error;

/// How many jobs were changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Swept {
    /// To how many it was done.
    pub done: u64,
    /// How many run and were asked to end.
    pub asked: u64,
}

/// Does this to every job of the filter, in batches of 1000, each a transaction of its own. Jobs that are claimed or held by others
/// meanwhile are left as they are and not counted. The filter's `limit` and `before` are not looked at.
///
/// # Errors
/// [`Error::Config`] for a state in which this cannot be done; [`queue_core::Error::InvalidName`]; the database's.
pub async fn control_all(connection: &mut PgConnection, store: Store, filter: &Filter, control: Control) -> Result<Swept, Error> {
    let mut walk = Walk::begin(connection, store, filter, control).await?;
    let mut swept = Swept::default();
    while let Some(ids) = walk.next(connection, store, filter).await? {
        let (done, asked) = control.apply(connection, store, &ids).await?;
        swept.done += done.len() as u64;
        swept.asked += asked.len() as u64;
    }
    Ok(swept)
}

/// To how many jobs [`control_all`] would do it now.
///
/// # Errors
/// As [`control_all`].
pub async fn count_waiting(connection: &mut PgConnection, store: Store, filter: &Filter, control: Control) -> Result<u64, Error> {
    let mut walk = Walk::begin(connection, store, filter, control).await?;
    let mut found = 0;
    while let Some(ids) = walk.next(connection, store, filter).await? {
        found += ids.len() as u64;
    }
    Ok(found)
}

/// How many dead letters the filter means now.
///
/// # Errors
/// [`queue_core::Error::InvalidName`]; the database's.
pub async fn count_dead(connection: &mut PgConnection, store: Store, filter: &Filter) -> Result<u64, Error> {
    filter.check()?;
    let (mut found, mut after) = (0, None);
    while let Some(ids) = dead_letters(connection, store, filter, &mut after, BATCH).await? {
        found += ids.len() as u64;
    }
    Ok(found)
}

/// The most jobs of one statement.
pub(super) const BATCH: i64 = 1000;

/// Where a walk is.
struct Walk {
    /// The states left, the current one first.
    states: Vec<JobState>,
    /// Jobs with this priority are as they should be.
    but: Option<i16>,
    /// What was enqueued later is not met.
    below: i64,
    /// The lane and place of the last ready job, the key and place of the last blocked one, the id of the last one otherwise.
    place: (i64, i64),
    id: i64,
}

const FIRST: (i64, i64) = (i64::MIN, i64::MIN);

impl Walk {
    async fn begin(connection: &mut PgConnection, store: Store, filter: &Filter, control: Control) -> Result<Self, Error> {
        filter.check()?;
        let mut states = control.states().to_vec();
        states.retain(|state| filter.state.is_none_or(|wanted| wanted == *state));
        if let (Some(state), true) = (filter.state, states.is_empty()) {
            return Err(Error::Config { key: "state", value: state.to_string(), range: control.words().0 });
        }
        let below = sqlx::query_scalar(store.sql(include_str!("../../../queue-core/sql/started.sql")))
            .persistent(false)
            .fetch_one(connection)
            .await?;
        let but = if let Control::Priority(priority) = control { Some(priority) } else { None };
        Ok(Self { states, but, below, place: FIRST, id: i64::MIN })
    }

    /// The next jobs; `None` after the last.
    async fn next(&mut self, connection: &mut PgConnection, store: Store, filter: &Filter) -> sqlx::Result<Option<Vec<JobId>>> {
        while let Some(state) = self.states.first() {
            let ids = match state {
                JobState::Blocked => self.blocked(connection, store, filter).await?,
                JobState::Ready => self.ready(connection, store, filter).await?,
                JobState::Scheduled => self.scheduled(connection, store, filter).await?,
                _ => self.running(connection, store, filter).await?,
            };
            if let Some(last) = ids.last() {
                self.id = last.0;
                return Ok(Some(ids));
            }
            self.states.remove(0);
            (self.place, self.id) = (FIRST, i64::MIN);
        }
        Ok(None)
    }

    async fn blocked(&mut self, connection: &mut PgConnection, store: Store, filter: &Filter) -> sqlx::Result<Vec<JobId>> {
        let statement = sqlx::query_as(store.sql(include_str!("../../../queue-core/sql/choose_blocked.sql")))
            .bind(&filter.queue)
            .bind(filter.job_types())
            .bind(self.below)
            .bind(filter.age_seconds())
            .bind(&filter.error)
            .bind(self.place.0)
            .bind(self.place.1)
            .bind(BATCH)
            .bind(filter.since_seconds())
            .bind(None::<serde_json::Value>);
        let found: Vec<(i64, i64, JobId)> = statement.persistent(false).fetch_all(connection).await?;
        Ok(self.pass(&found))
    }

    async fn ready(&mut self, connection: &mut PgConnection, store: Store, filter: &Filter) -> sqlx::Result<Vec<JobId>> {
        let statement = sqlx::query_as(store.sql(include_str!("../../../queue-core/sql/choose_ready.sql")))
            .bind(&filter.queue)
            .bind(filter.job_types())
            .bind(self.below)
            .bind(filter.age_seconds())
            .bind(&filter.error)
            .bind(self.but)
            .bind(self.place.0)
            .bind(self.place.1)
            .bind(BATCH)
            .bind(filter.since_seconds())
            .bind(None::<serde_json::Value>);
        let found: Vec<(i64, i64, JobId)> = statement.persistent(false).fetch_all(connection).await?;
        Ok(self.pass(&found))
    }

    /// Goes past these.
    fn pass(&mut self, found: &[(i64, i64, JobId)]) -> Vec<JobId> {
        if let Some((line, seq, _)) = found.last() {
            self.place = (*line, *seq);
        }
        found.iter().map(|(.., id)| *id).collect()
    }

    async fn scheduled(&mut self, connection: &mut PgConnection, store: Store, filter: &Filter) -> sqlx::Result<Vec<JobId>> {
        let statement = sqlx::query_scalar(store.sql(include_str!("../../../queue-core/sql/choose_scheduled.sql")))
            .bind(&filter.queue)
            .bind(filter.job_types())
            .bind(self.below)
            .bind(filter.age_seconds())
            .bind(&filter.error)
            .bind(self.but)
            .bind(self.id)
            .bind(BATCH)
            .bind(filter.since_seconds())
            .bind(None::<serde_json::Value>);
        statement.persistent(false).fetch_all(connection).await
    }

    async fn running(&mut self, connection: &mut PgConnection, store: Store, filter: &Filter) -> sqlx::Result<Vec<JobId>> {
        let statement = sqlx::query_scalar(store.sql(include_str!("../../../queue-core/sql/choose_running.sql")))
            .bind(&filter.queue)
            .bind(filter.job_types())
            .bind(self.below)
            .bind(filter.age_seconds())
            .bind(&filter.error)
            .bind(self.id)
            .bind(BATCH)
            .bind(filter.since_seconds())
            .bind(None::<serde_json::Value>);
        statement.persistent(false).fetch_all(connection).await
    }
}

/// The next dead letters; `None` after the last. Ids only grow from call to call, so that a job that dies again is not met again.
pub(super) async fn dead_letters(
    connection: &mut PgConnection,
    store: Store,
    filter: &Filter,
    after: &mut Option<JobId>,
    most: i64,
) -> Result<Option<Vec<JobId>>, Error> {
    let statement = sqlx::query_scalar(store.sql(include_str!("../../../queue-core/sql/dead_letters.sql")))
        .bind(&filter.queue)
        .bind(filter.job_types())
        .bind(after.map_or(0, |id| id.0))
        .bind(most)
        .bind(filter.age_seconds())
        .bind(filter.since_seconds())
        .bind(&filter.error)
        .bind(None::<serde_json::Value>);
    let ids: Vec<JobId> = statement.persistent(false).fetch_all(connection).await?;
    *after = ids.last().copied();
    Ok(after.map(|_| ids))
}
