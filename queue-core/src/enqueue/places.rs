//! What every way to write many jobs shares: the rows on their way, where each goes, and what was written.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::{explain, options::EnqueueOptions, row::Row};
use crate::{
    define::{Enqueued, JobId},
    error::Error,
    payload::PayloadError,
    schema::Store,
};

/// Jobs on their way, encoded one by one as they are asked for.
pub(super) type Rows<'a> = Box<dyn Iterator<Item = Result<Row<'a>, Error>> + Send + 'a>;

/// What was written: how many jobs, and their ids in order if they are wanted.
pub(super) struct Written {
    pub(super) count: u64,
    pub(super) ids: Option<Vec<JobId>>,
    /// What came of those that have a key, and of those written with them; none if none has.
    pub(super) outcomes: Vec<Enqueued>,
}

impl Written {
    pub(super) fn add(&mut self, written: &[i64]) {
        self.count += written.len() as u64;
        if let Some(ids) = &mut self.ids {
            ids.extend(written.iter().copied().map(JobId));
        }
    }

    pub(super) fn add_one(&mut self, id: JobId, outcome: Enqueued) {
        self.add(&[id.0]);
        self.outcomes.push(outcome);
    }

    /// How many jobs are new.
    pub(super) fn new_jobs(&self) -> u64 {
        self.count - self.outcomes.iter().filter(|outcome| **outcome != Enqueued::New).count() as u64
    }
}

/// What a store says to the options: asked for once.
pub(super) struct Places<'t> {
    pub(super) store: Store,
    options: &'t [EnqueueOptions],
    /// One for each of the options.
    of_options: Vec<Place>,
    payload_limit: usize,
    /// Whether one of the queues has a capacity.
    has_capacity: bool,
    /// Whether jobs have to go through a door, one by one: the role has no right to the tables.
    pub(super) by_door: bool,
}

/// Where a job goes.
pub(super) struct Place {
    pub(super) lane: i64,
    pub(super) max_attempts: i16,
    pub(super) run_at: Option<DateTime<Utc>>,
}

impl<'t> Places<'t> {
    pub(super) async fn meet(connection: &mut PgConnection, store: Store, options: &'t [EnqueueOptions]) -> Result<Self, Error> {
        let mut lanes: BTreeMap<_, i64> = options.iter().map(|options| (lane_of(options), 0)).collect();
        let row = meet(connection, store, lanes.keys(), false).await?;
        let (met, now, limit): (Option<Vec<i64>>, DateTime<Utc>, i32) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let (has_capacity, by_door) = (row.try_get(3)?, met.is_none());
        lanes.values_mut().zip(met.unwrap_or_default()).for_each(|(lane, met)| *lane = met);
        let place = |options: &EnqueueOptions| Place {
            lane: lanes[&lane_of(options)],
            max_attempts: options.max_attempts,
            run_at: options.run.due(now),
        };
        let payload_limit = usize::try_from(limit).unwrap_or(0);
        Ok(Self { store, options, of_options: options.iter().map(place).collect(), payload_limit, has_capacity, by_door })
    }

    /// Where a row goes, unless its payload is too large: a store may have a lower limit than ours. `index` is the row's.
    pub(super) fn find(&self, row: &Row<'_>, index: u64) -> Result<&Place, Error> {
        let (size, limit) = (row.payload().len(), self.payload_limit);
        if size <= limit {
            return Ok(&self.of_options[row.options]);
        }
        let source = Error::Payload { job_type: self.options_of(row).job_type, source: PayloadError::TooLarge { size, limit } };
        Err(Error::OneOfMany { index: index as usize, source: Box::new(source) })
    }

    /// What is said of a row.
    pub(super) fn options_of(&self, row: &Row<'_>) -> &EnqueueOptions {
        &self.options[row.options]
    }

    /// The ordering key of a row.
    pub(super) fn key_of<'r>(&'r self, row: &'r Row<'_>) -> Option<&'r str> {
        row.key(self.options_of(row))
    }

    /// Whether so many jobs are surely too many for a queue's capacity: then nothing is written.
    pub(super) async fn look(&self, connection: &mut PgConnection, jobs: u64) -> Result<(), Error> {
        if self.has_capacity {
            self.of_queues(&mut *connection, include_str!("../../sql/look_capacity.sql"), jobs).await?;
            // They may have begun to leave meanwhile. Now there is something to write, and from here on they stay.
            let lanes: BTreeSet<_> = self.options.iter().map(lane_of).collect();
            meet(connection, self.store, lanes.iter(), true).await?;
        }
        Ok(())
    }

    /// The last act: takes the capacity for the jobs written, 0 if they have taken it themselves, wakes each queue's sleeping workers, once,
    /// and whoever sees to ordering keys. Jobs that went through a door have done so.
    pub(super) async fn wake(&self, connection: &mut PgConnection, jobs: u64, keyed: bool) -> Result<(), Error> {
        if self.by_door {
            return Ok(());
        }
        if keyed {
            sqlx::query(self.store.sql(include_str!("../../sql/wake_keys.sql"))).execute(&mut *connection).await?;
        }
        self.of_queues(connection, include_str!("../../sql/wake_all.sql"), jobs).await
    }

    /// A statement over the queues and how many of these jobs go to each.
    async fn of_queues(&self, connection: &mut PgConnection, statement: &'static str, jobs: u64) -> Result<(), Error> {
        // Rows have options in common, all of them, or each its own.
        let each = if self.options.len() == 1 { jobs } else { jobs.min(1) };
        let mut queues: BTreeMap<&str, i64> = BTreeMap::new();
        for options in self.options {
            *queues.entry(&*options.queue).or_default() += each as i64;
        }
        let statement = sqlx::query(self.store.sql(statement))
            .bind(queues.keys().copied().collect::<Vec<_>>())
            .bind(queues.values().copied().collect::<Vec<_>>());
        statement.execute(connection).await.map_err(|error| explain(error, self.store))?;
        Ok(())
    }
}

/// Meets lanes, for jobs that are surely written next or may be refused yet.
async fn meet<'l>(
    connection: &mut PgConnection,
    store: Store,
    lanes: impl Iterator<Item = &'l (&'l str, Cow<'static, str>, i16)> + Clone,
    surely: bool,
) -> Result<PgRow, Error> {
    let statement = sqlx::query(store.sql(include_str!("../../sql/meet_lanes.sql")))
        .bind(lanes.clone().map(|(queue, ..)| *queue).collect::<Vec<&str>>())
        .bind(lanes.clone().map(|(_, stored, _)| &**stored).collect::<Vec<&str>>())
        .bind(lanes.map(|(.., priority)| *priority).collect::<Vec<i16>>())
        .bind(surely);
    statement.fetch_one(connection).await.map_err(|error| explain(error, store))
}

/// What makes a lane.
fn lane_of(options: &EnqueueOptions) -> (&str, Cow<'static, str>, i16) {
    (&options.queue, options.stored_type(), options.priority)
}
