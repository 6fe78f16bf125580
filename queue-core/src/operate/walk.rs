//! A walk through the jobs that a filter means, each once: those that were there when it began.

use sqlx::{FromRow, PgConnection, Postgres, postgres::PgArguments, postgres::PgRow, query::QueryAs};

use super::{act::Act, filter::Filter, refusal::explain};
use crate::{
    define::{JobId, JobState},
    error::Error,
    schema::Store,
};

/// Where a walk is.
pub(super) struct Walk<'f> {
    store: Store,
    filter: &'f Filter,
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

impl<'f> Walk<'f> {
    pub(super) async fn begin(connection: &mut PgConnection, store: Store, filter: &'f Filter, act: Act) -> Result<Self, Error> {
        filter.check()?;
        act.check()?;
        let (states, range) = act.states();
        let mut states = states.to_vec();
        states.retain(|state| filter.state.is_none_or(|wanted| wanted == *state));
        if let (Some(state), true) = (filter.state, states.is_empty()) {
            return Err(Error::OutOfRange { what: "the state", value: state.to_string(), range });
        }
        let below = sqlx::query_scalar(store.sql(include_str!("../../sql/started.sql")));
        let below = below.fetch_one(connection).await.map_err(|error| explain(error, store))?;
        let but = if let Act::Priority(priority) = act { Some(priority) } else { None };
        Ok(Self { store, filter, states, but, below, place: FIRST, id: i64::MIN })
    }

    /// The next jobs, so many at most; `None` after the last.
    pub(super) async fn next(&mut self, connection: &mut PgConnection, most: i64) -> sqlx::Result<Option<Vec<JobId>>> {
        while let Some(state) = self.states.first() {
            let ids = match state {
                JobState::Blocked => self.blocked(connection, most).await?,
                JobState::Ready => self.ready(connection, most).await?,
                JobState::Scheduled => self.scheduled(connection, most).await?,
                JobState::Parked => self.parked(connection, most).await?,
                JobState::Running => self.running(connection, most).await?,
                JobState::Dead => self.dead(connection, most).await?,
                // History is not walked through: it may be huge.
                JobState::Completed | JobState::Cancelled | JobState::Expired => Vec::new(),
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

    /// A statement with what all of them take: $1 to $8.
    fn choose<O: for<'r> FromRow<'r, PgRow>>(&self, statement: &'static str, most: i64) -> QueryAs<'f, Postgres, O, PgArguments> {
        let Self { store, filter, .. } = *self;
        // Dead letters are met in the order of their ids, which is enough: a clock that was put back hides none of them.
        let below = if self.states.first() == Some(&JobState::Dead) { i64::MAX } else { self.below };
        let statement = sqlx::query_as(store.sql(statement)).bind(&filter.queue).bind(filter.names()).bind(below);
        let statement = statement.bind(filter.age_seconds()).bind(filter.since_seconds());
        // Planned for each call, which is once a thousand jobs: by a plan that was kept since the days were empty, a page of a queue's running jobs, or
        // of jobs with some metadata, took more than 30 s on a connection of a user's; by one made for the call 40 to 130 ms, of 300,000 jobs.
        statement.bind(&filter.error).bind(filter.meta_json()).bind(most).persistent(false)
    }

    async fn blocked(&mut self, connection: &mut PgConnection, most: i64) -> sqlx::Result<Vec<JobId>> {
        let statement = self.choose(include_str!("../../sql/choose_blocked.sql"), most).bind(self.place.0).bind(self.place.1);
        Ok(self.pass(&statement.fetch_all(connection).await?))
    }

    async fn ready(&mut self, connection: &mut PgConnection, most: i64) -> sqlx::Result<Vec<JobId>> {
        let statement = self.choose(include_str!("../../sql/choose_ready.sql"), most).bind(self.place.0).bind(self.place.1).bind(self.but);
        Ok(self.pass(&statement.fetch_all(connection).await?))
    }

    /// Goes past these.
    fn pass(&mut self, found: &[(i64, i64, JobId)]) -> Vec<JobId> {
        if let Some((line, seq, _)) = found.last() {
            self.place = (*line, *seq);
        }
        found.iter().map(|(.., id)| *id).collect()
    }

    async fn scheduled(&self, connection: &mut PgConnection, most: i64) -> sqlx::Result<Vec<JobId>> {
        let statement = self.choose(include_str!("../../sql/choose_scheduled.sql"), most).bind(self.id).bind(self.but);
        Ok(ids(statement.fetch_all(connection).await?))
    }

    async fn parked(&self, connection: &mut PgConnection, most: i64) -> sqlx::Result<Vec<JobId>> {
        let statement = self.choose(include_str!("../../sql/choose_parked.sql"), most).bind(self.id).bind(self.but);
        Ok(ids(statement.fetch_all(connection).await?))
    }

    async fn running(&self, connection: &mut PgConnection, most: i64) -> sqlx::Result<Vec<JobId>> {
        let statement = self.choose(include_str!("../../sql/choose_running.sql"), most).bind(self.id);
        Ok(ids(statement.fetch_all(connection).await?))
    }

    /// Ids only grow from call to call, so that a job that dies again is not met again.
    async fn dead(&self, connection: &mut PgConnection, most: i64) -> sqlx::Result<Vec<JobId>> {
        let statement = self.choose(include_str!("../../sql/choose_dead.sql"), most).bind(self.id);
        Ok(ids(statement.fetch_all(connection).await?))
    }
}

fn ids(rows: Vec<(JobId,)>) -> Vec<JobId> {
    rows.into_iter().map(|(id,)| id).collect()
}
