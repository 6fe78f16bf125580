//! Walk over the jobs that a filter selects. Each job is visited at most once.

use sqlx::{FromRow, PgConnection, Postgres, postgres::PgArguments, postgres::PgRow, query::QueryAs};

use super::{filter::Filter, operation::Operation, rejection::explain};
use crate::{
    define::{JobId, JobState},
    error::Error,
    schema::Store,
};

/// Walk over the jobs that a filter selects, with its current position.
pub(super) struct Walk<'f> {
    store: Store,
    filter: &'f Filter,
    /// Job states still to be visited, starting with the current state.
    states: Vec<JobState>,
    /// New priority, if the operation sets one. Jobs that already have this priority are skipped.
    skip_priority: Option<i16>,
    /// Exclusive upper bound of the visited ids, except for dead letters. Excludes jobs that were enqueued after the walk began.
    before_id: i64,
    /// Lane and position of the last visited ready job, or key and position of the last visited blocked job. In other states, `id` is the
    /// position of the walk.
    position: (i64, i64),
    id: i64,
}

const START: (i64, i64) = (i64::MIN, i64::MIN);

impl<'f> Walk<'f> {
    pub(super) async fn begin(
        connection: &mut PgConnection,
        store: Store,
        filter: &'f Filter,
        operation: Operation,
    ) -> Result<Self, Error> {
        filter.check()?;
        operation.check()?;
        let (states, range) = operation.states();
        let mut states = states.to_vec();
        states.retain(|state| filter.state.is_none_or(|required| required == *state));
        if let (Some(state), true) = (filter.state, states.is_empty()) {
            return Err(Error::OutOfRange { what: "the state", value: state.to_string(), range });
        }
        let before_id = sqlx::query_scalar(store.sql(include_str!("../../sql/id_horizon.sql")));
        let before_id: i64 = before_id.fetch_one(connection).await.map_err(|error| explain(error, store))?;
        let skip_priority = if let Operation::Priority(priority) = operation { Some(priority) } else { None };
        Ok(Self { store, filter, states, skip_priority, before_id, position: START, id: i64::MIN })
    }

    /// Returns the ids of the next jobs, at most `most` ids. Returns `None` after the last job.
    pub(super) async fn next(&mut self, connection: &mut PgConnection, most: i64) -> sqlx::Result<Option<Vec<JobId>>> {
        while let Some(state) = self.states.first() {
            let ids = match state {
                JobState::Blocked => self.next_blocked(connection, most).await?,
                JobState::Ready => self.next_ready(connection, most).await?,
                JobState::Scheduled => self.next_scheduled(connection, most).await?,
                JobState::Parked => self.next_parked(connection, most).await?,
                JobState::Running => self.next_running(connection, most).await?,
                JobState::Dead => self.next_dead(connection, most).await?,
                // Finished jobs are not visited, because the history may be huge.
                JobState::Completed | JobState::Cancelled | JobState::Expired => Vec::new(),
            };
            if let Some(last) = ids.last() {
                self.id = last.0;
                return Ok(Some(ids));
            }
            self.states.remove(0);
            (self.position, self.id) = (START, i64::MIN);
        }
        Ok(None)
    }

    /// Builds a query with the common parameters $1 to $8 bound.
    fn prepare<O: for<'r> FromRow<'r, PgRow>>(&self, statement: &'static str, most: i64) -> QueryAs<'f, Postgres, O, PgArguments> {
        let Self { store, filter, .. } = *self;
        // Dead letters are visited in id order, so none is visited twice, and this state needs no upper bound. The bound is computed from
        // the database clock. If the clock has been set back, the bound would exclude dead letters with higher ids.
        let before_id = if self.states.first() == Some(&JobState::Dead) { i64::MAX } else { self.before_id };
        let before_id = filter.before.map_or(before_id, |before| before.0.min(before_id));
        let statement = sqlx::query_as(store.sql(statement)).bind(&filter.queue).bind(filter.names()).bind(before_id);
        let statement = statement.bind(filter.age_seconds()).bind(filter.since_seconds());
        // Planned for each call, once per thousand jobs. A caller's connection may have cached a plan while the partitions
        // were empty. With such a plan, a page of a queue's running jobs, or of jobs selected by metadata, took more than 30 s. With a
        // new plan, the page took 40 to 130 ms in a store of 300,000 jobs.
        statement.bind(&filter.error).bind(filter.meta_json()).bind(most).persistent(false)
    }

    async fn next_blocked(&mut self, connection: &mut PgConnection, most: i64) -> sqlx::Result<Vec<JobId>> {
        let statement = self.prepare(include_str!("../../sql/choose_blocked.sql"), most).bind(self.position.0).bind(self.position.1);
        Ok(self.advance(&statement.fetch_all(connection).await?))
    }

    async fn next_ready(&mut self, connection: &mut PgConnection, most: i64) -> sqlx::Result<Vec<JobId>> {
        let statement = self
            .prepare(include_str!("../../sql/choose_ready.sql"), most)
            .bind(self.position.0)
            .bind(self.position.1)
            .bind(self.skip_priority);
        Ok(self.advance(&statement.fetch_all(connection).await?))
    }

    /// Moves the position past the given jobs and returns their ids.
    fn advance(&mut self, found: &[(i64, i64, JobId)]) -> Vec<JobId> {
        if let Some((lane_or_key, seq, _)) = found.last() {
            self.position = (*lane_or_key, *seq);
        }
        found.iter().map(|(.., id)| *id).collect()
    }

    async fn next_scheduled(&self, connection: &mut PgConnection, most: i64) -> sqlx::Result<Vec<JobId>> {
        let statement = self.prepare(include_str!("../../sql/choose_scheduled.sql"), most).bind(self.id).bind(self.skip_priority);
        Ok(ids(statement.fetch_all(connection).await?))
    }

    async fn next_parked(&self, connection: &mut PgConnection, most: i64) -> sqlx::Result<Vec<JobId>> {
        let statement = self.prepare(include_str!("../../sql/choose_parked.sql"), most).bind(self.id).bind(self.skip_priority);
        Ok(ids(statement.fetch_all(connection).await?))
    }

    async fn next_running(&self, connection: &mut PgConnection, most: i64) -> sqlx::Result<Vec<JobId>> {
        let statement = self.prepare(include_str!("../../sql/choose_running.sql"), most).bind(self.id);
        Ok(ids(statement.fetch_all(connection).await?))
    }

    /// Returns the ids of the next dead letters. Ids only increase from call to call. A job that becomes a dead letter again is therefore
    /// not visited again.
    async fn next_dead(&self, connection: &mut PgConnection, most: i64) -> sqlx::Result<Vec<JobId>> {
        let statement = self.prepare(include_str!("../../sql/choose_dead.sql"), most).bind(self.id);
        Ok(ids(statement.fetch_all(connection).await?))
    }
}

fn ids(rows: Vec<(JobId,)>) -> Vec<JobId> {
    rows.into_iter().map(|(id,)| id).collect()
}
