//! Types shared by all bulk writes: the rows to write, the lane and the times of each row, and the result of the write.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::{options::EnqueueOptions, row::EnqueueRow, store_error};
use crate::{
    define::{EnqueueOutcome, JobId},
    error::Error,
    payload::PayloadError,
    schema::Store,
};

/// Iterator over the rows to write. Each row is encoded on demand.
pub(super) type EnqueueRows<'a> = Box<dyn Iterator<Item = Result<EnqueueRow<'a>, Error>> + Send + 'a>;

/// Result of a bulk write: the number of rows and, if requested, the id of each row's job, in the order of the rows.
pub(super) struct BulkResult {
    pub(super) count: u64,
    pub(super) ids: Option<Vec<JobId>>,
    /// Outcome of each job. Empty unless the jobs were enqueued one by one; see the module `each`.
    pub(super) outcomes: Vec<EnqueueOutcome>,
}

impl BulkResult {
    pub(super) fn add(&mut self, written: &[i64]) {
        self.count += written.len() as u64;
        if let Some(ids) = &mut self.ids {
            ids.extend(written.iter().copied().map(JobId));
        }
    }

    pub(super) fn add_one(&mut self, id: JobId, outcome: EnqueueOutcome) {
        self.add(&[id.0]);
        self.outcomes.push(outcome);
    }

    /// Returns the number of jobs that were created.
    pub(super) fn new_jobs(&self) -> u64 {
        self.count - self.outcomes.iter().filter(|outcome| **outcome != EnqueueOutcome::New).count() as u64
    }
}

/// Lanes, start and expiry times, and payload size limit of an enqueue. Loaded once per enqueue.
pub(super) struct LanePlaces<'t> {
    pub(super) store: Store,
    options: &'t [EnqueueOptions],
    /// Lane and times for each entry of `options`.
    by_options: Vec<LanePlace>,
    payload_limit: usize,
    /// Whether at least one of the enqueue's queues has a capacity.
    has_capacity: bool,
    /// Whether jobs must be enqueued one by one through SQL functions, because the role has no privileges on the tables.
    pub(super) through_functions: bool,
}

/// Lane and times of a job.
pub(super) struct LanePlace {
    pub(super) lane: i64,
    pub(super) max_attempts: i16,
    pub(super) run_at: Option<DateTime<Utc>>,
    pub(super) expires_at: Option<DateTime<Utc>>,
}

impl<'t> LanePlaces<'t> {
    pub(super) async fn load(connection: &mut PgConnection, store: Store, options: &'t [EnqueueOptions]) -> Result<Self, Error> {
        let mut lanes: BTreeMap<_, i64> = options.iter().map(|options| (lane_of(options), 0)).collect();
        let row = find_or_create_lanes(connection, store, lanes.keys(), false).await?;
        let (met, now, limit): (Option<Vec<i64>>, DateTime<Utc>, i32) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let (has_capacity, through_functions) = (row.try_get(3)?, met.is_none());
        lanes.values_mut().zip(met.unwrap_or_default()).for_each(|(lane, met)| *lane = met);
        let place = |options: &EnqueueOptions| {
            let run_at = options.run.due(now);
            let expires_at = options.expires.resolve(run_at, now)?;
            Ok(LanePlace { lane: lanes[&lane_of(options)], max_attempts: options.max_attempts, run_at, expires_at })
        };
        let payload_limit = usize::try_from(limit).unwrap_or(0);
        let by_options = options.iter().map(place).collect::<Result<_, Error>>()?;
        Ok(Self { store, options, by_options, payload_limit, has_capacity, through_functions })
    }

    /// Returns the lane and times of a row. Fails if the payload exceeds the store's size limit, which may be lower than the limit of
    /// this crate. `index` is the index of the row in the enqueue.
    pub(super) fn find(&self, row: &EnqueueRow<'_>, index: u64) -> Result<&LanePlace, Error> {
        let (size, limit) = (row.payload().len(), self.payload_limit);
        if size <= limit {
            return Ok(&self.by_options[row.options]);
        }
        let source = Error::Payload { job_type: self.options_of(row).job_type, source: PayloadError::TooLarge { size, limit } };
        Err(Error::OneOfMany { index: index as usize, source: Box::new(source) })
    }

    /// Returns the options of a row.
    pub(super) fn options_of(&self, row: &EnqueueRow<'_>) -> &EnqueueOptions {
        &self.options[row.options]
    }

    /// Returns the ordering key of a row.
    pub(super) fn key_of<'r>(&'r self, row: &'r EnqueueRow<'_>) -> Option<&'r str> {
        row.key(self.options_of(row))
    }

    /// Fails if `jobs` jobs would certainly exceed the capacity of a queue. `jobs` is the minimum number of jobs in the enqueue. Called
    /// before any job is written.
    pub(super) async fn check_capacity(&self, connection: &mut PgConnection, jobs: u64) -> Result<(), Error> {
        if self.has_capacity {
            self.execute_per_queue(&mut *connection, include_str!("../../sql/check_capacity.sql"), jobs).await?;
            // Workers may have started to remove the lanes since `load` found them. This query assigns an id to the transaction, so the
            // lanes are not removed before the jobs are written.
            let lanes: BTreeSet<_> = self.options.iter().map(lane_of).collect();
            find_or_create_lanes(connection, self.store, lanes.iter(), true).await?;
        }
        Ok(())
    }

    /// Finishes a bulk enqueue. Takes capacity for `jobs` jobs; `jobs` is 0 if the capacity has already been taken. Notifies idle workers
    /// once per queue. If `keyed` is set, also notifies them that jobs with ordering keys may be able to run. Does nothing if
    /// `through_functions` is set, because the SQL functions have already taken the capacity and notified the workers.
    pub(super) async fn finish(&self, connection: &mut PgConnection, jobs: u64, keyed: bool) -> Result<(), Error> {
        if self.through_functions {
            return Ok(());
        }
        if keyed {
            sqlx::query(self.store.sql(include_str!("../../sql/wake_keys.sql"))).execute(&mut *connection).await?;
        }
        self.execute_per_queue(connection, include_str!("../../sql/wake_all.sql"), jobs).await
    }

    /// Runs a statement with the queues and the number of jobs per queue as parameters.
    async fn execute_per_queue(&self, connection: &mut PgConnection, statement: &'static str, jobs: u64) -> Result<(), Error> {
        // Either all rows share one entry of the options, or each row has its own entry.
        let each = if self.options.len() == 1 { jobs } else { jobs.min(1) };
        let mut queues: BTreeMap<&str, i64> = BTreeMap::new();
        for options in self.options {
            *queues.entry(&*options.queue).or_default() += each as i64;
        }
        let statement = sqlx::query(self.store.sql(statement))
            .bind(queues.keys().copied().collect::<Vec<_>>())
            .bind(queues.values().copied().collect::<Vec<_>>());
        statement.execute(connection).await.map_err(|error| store_error(error, self.store))?;
        Ok(())
    }
}

/// Finds or creates lanes. `writes_next` is true if the caller writes jobs to the lanes next, and false if the enqueue may still be
/// rejected. If `writes_next` is true or no queue has a capacity, the query assigns an id to the transaction, so the lanes are not removed
/// before the jobs are written.
async fn find_or_create_lanes<'l>(
    connection: &mut PgConnection,
    store: Store,
    lanes: impl Iterator<Item = &'l (&'l str, Cow<'static, str>, i16)> + Clone,
    writes_next: bool,
) -> Result<PgRow, Error> {
    let statement = sqlx::query(store.sql(include_str!("../../sql/ensure_lanes.sql")))
        .bind(lanes.clone().map(|(queue, ..)| *queue).collect::<Vec<&str>>())
        .bind(lanes.clone().map(|(_, stored, _)| &**stored).collect::<Vec<&str>>())
        .bind(lanes.map(|(.., priority)| *priority).collect::<Vec<i16>>())
        .bind(writes_next);
    statement.fetch_one(connection).await.map_err(|error| store_error(error, store))
}

/// Returns the columns that identify a lane.
fn lane_of(options: &EnqueueOptions) -> (&str, Cow<'static, str>, i16) {
    (&options.queue, options.stored_type(), options.priority)
}
