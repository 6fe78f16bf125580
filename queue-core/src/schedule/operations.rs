//! Operations on schedules. Each change calls an SQL function, which clients in other languages can also call.

use std::fmt;

use chrono::{DateTime, Utc};
use sqlx::{PgPool, Postgres, postgres::PgArguments, query::QueryScalar};

use super::{
    db_error::convert_error,
    record::{ScheduleRecord, TickRecord},
    spec::{Declaration, Schedule},
};
use crate::{
    define::JobId,
    error::Error,
    results::{Queue, QueueConnection},
};

impl<C> Queue<C> {
    /// Returns the operations on the schedule named `name`. Does not check that the schedule exists.
    pub fn schedule<'q>(&'q self, name: &'q str) -> QueueSchedule<'q, C> {
        QueueSchedule { queue: self, name }
    }
}

impl<C: QueueConnection> Queue<C> {
    /// Returns all schedules, sorted by name.
    ///
    /// # Errors
    /// Returns an error if the database query fails.
    pub async fn schedules(&self) -> Result<Vec<ScheduleRecord>, Error> {
        self.query_schedules(None).await
    }

    async fn query_schedules(&self, name: Option<&str>) -> Result<Vec<ScheduleRecord>, Error> {
        let statement = sqlx::query_as(self.store.sql(include_str!("../../sql/schedules.sql"))).bind(name);
        statement
            .fetch_all(&mut *self.connection().await?)
            .await
            .map_err(|error| convert_error(error, self.store, name.unwrap_or_default()))
    }
}

/// Operations on one schedule. Created by [`Queue::schedule`].
///
/// ```no_run
/// # use queue_core::{Context, Handler, JobResult, Queue, job, schedule::Schedule};
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Report;
/// # async fn example(queue: Queue) -> Result<(), queue_core::Error> {
/// let nightly = queue.schedule("nightly");
/// nightly.create(&Schedule::cron("30 4 * * *").job(&Report)).await?;
/// nightly.run_now().await?;
/// println!("next: {:?}", nightly.find().await?.next(3));
/// # Ok(()) }
/// ```
#[must_use = "a handle does nothing by itself"]
pub struct QueueSchedule<'q, C = PgPool> {
    queue: &'q Queue<C>,
    name: &'q str,
}

impl<C: QueueConnection> QueueSchedule<'_, C> {
    /// Creates or changes the schedule. An unchanged schedule is not written again, so a program may call this method at each start. A
    /// paused schedule stays paused.
    ///
    /// # Errors
    /// Returns [`Error::Schedule`] if the schedule is invalid, or if workers declare a schedule of the same name. Returns
    /// [`Error::InvalidName`] for an invalid name, and [`Error::OutOfRange`] for an option out of range. Returns an error if the database
    /// query fails.
    pub async fn create(&self, schedule: &Schedule) -> Result<(), Error> {
        let Declaration { job_type, payload, options } = schedule.declaration(self.name, self.queue.store)?;
        let statement = sqlx::query(self.queue.store.sql(include_str!("../../sql/put_schedule.sql")))
            .bind(self.name)
            .bind(job_type)
            .bind(payload)
            .bind(options);
        statement.execute(&mut *self.queue.connection().await?).await.map(drop).map_err(|error| self.convert(error))
    }

    /// Deletes the schedule. The jobs of the schedule are kept. The tick history is kept as long as the job history.
    ///
    /// # Errors
    /// Returns [`Error::NoSchedule`] if the schedule does not exist, and [`Error::Schedule`] if workers declare the schedule. Returns an
    /// error if the database query fails.
    pub async fn delete(&self) -> Result<(), Error> {
        let gone = self.call(sqlx::query_scalar(self.queue.store.sql(include_str!("../../sql/unschedule.sql")))).await?;
        if gone { Ok(()) } else { Err(Error::NoSchedule { name: self.name.to_owned() }) }
    }

    /// Pauses the schedule. Its ticks enqueue no jobs until the schedule is resumed. A deployment does not resume the schedule.
    ///
    /// # Errors
    /// Returns [`Error::NoSchedule`] if the schedule does not exist, and an error if the database query fails.
    pub async fn pause(&self) -> Result<(), Error> {
        self.call::<Option<bool>>(sqlx::query_scalar(self.queue.store.sql(include_str!("../../sql/pause_schedule.sql")))).await.map(drop)
    }

    /// Resumes the schedule from its next tick. Ticks during the pause are skipped.
    ///
    /// # Errors
    /// Returns [`Error::NoSchedule`] if the schedule does not exist, and an error if the database query fails.
    pub async fn resume(&self) -> Result<(), Error> {
        self.call::<Option<bool>>(sqlx::query_scalar(self.queue.store.sql(include_str!("../../sql/resume_schedule.sql")))).await.map(drop)
    }

    /// Skips the next tick of the schedule, and returns the time of the tick. A skipped tick enqueues no job. Repeated calls before that
    /// tick return the same time.
    ///
    /// # Errors
    /// Returns [`Error::NoSchedule`] if the schedule does not exist, and [`Error::Schedule`] if no worker has computed the next tick yet.
    /// Returns an error if the database query fails.
    pub async fn skip_next(&self) -> Result<DateTime<Utc>, Error> {
        self.call(sqlx::query_scalar(self.queue.store.sql(include_str!("../../sql/skip_schedule.sql")))).await
    }

    /// Enqueues a job of the schedule immediately, regardless of ticks, a pause or the overlap policy. Returns the id of the job.
    ///
    /// # Errors
    /// Returns [`Error::NoSchedule`] if the schedule does not exist, and the errors of an enqueue.
    pub async fn run_now(&self) -> Result<JobId, Error> {
        self.call(sqlx::query_scalar(self.queue.store.sql(include_str!("../../sql/run_schedule.sql")))).await
    }

    /// Returns the schedule.
    ///
    /// # Errors
    /// Returns [`Error::NoSchedule`] if the schedule does not exist, and an error if the database query fails.
    pub async fn find(&self) -> Result<ScheduleRecord, Error> {
        self.queue.query_schedules(Some(self.name)).await?.pop().ok_or_else(|| Error::NoSchedule { name: self.name.to_owned() })
    }

    /// Returns the outcomes of the schedule's last ticks, newest first. Returns at most `most` outcomes. Outcomes are kept as long as the
    /// job history.
    ///
    /// # Errors
    /// Returns an error if the database query fails.
    pub async fn ticks(&self, most: u16) -> Result<Vec<TickRecord>, Error> {
        let statement = sqlx::query_as(self.queue.store.sql(include_str!("../../sql/fires.sql"))).bind(self.name).bind(i64::from(most));
        statement.fetch_all(&mut *self.queue.connection().await?).await.map_err(|error| self.convert(error))
    }

    async fn call<T>(&self, statement: QueryScalar<'_, Postgres, T, PgArguments>) -> Result<T, Error>
    where
        T: Send + Unpin,
        (T,): for<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow>,
    {
        statement.bind(self.name).fetch_one(&mut *self.queue.connection().await?).await.map_err(|error| self.convert(error))
    }

    fn convert(&self, error: sqlx::Error) -> Error {
        convert_error(error, self.queue.store, self.name)
    }
}

impl<C> Clone for QueueSchedule<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for QueueSchedule<'_, C> {}

impl<C> fmt::Debug for QueueSchedule<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueSchedule").field("queue", self.queue).field("name", &self.name).finish()
    }
}
