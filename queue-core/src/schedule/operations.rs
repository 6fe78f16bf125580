//! Operations on schedules. Each operation calls an SQL function that other languages can call too.

use chrono::{DateTime, Utc};
use sqlx::{Postgres, postgres::PgArguments, query::QueryScalar};

use super::{
    db_error::convert_error,
    spec::{Declaration, Schedule},
};
use crate::{connect::IntoConnection, define::JobId, error::Error, schema::Store};

/// Creates a schedule, or changes the existing schedule of the same name. An unchanged schedule is not written again, so a program may call
/// this function at each start. A paused schedule stays paused.
///
/// # Errors
/// Returns [`Error::Schedule`] if the schedule is invalid, or if workers declare a schedule of the same name. Returns
/// [`Error::InvalidName`] for an invalid name, and [`Error::OutOfRange`] for an option out of range. Returns an error if the database
/// query fails.
pub async fn create(on: impl IntoConnection<'_>, store: Store, name: &str, schedule: &Schedule) -> Result<(), Error> {
    let Declaration { job_type, payload, options } = schedule.declaration(name, store)?;
    let statement =
        sqlx::query(store.sql(include_str!("../../sql/put_schedule.sql"))).bind(name).bind(job_type).bind(payload).bind(options);
    let mut on = on.into_connection();
    statement.execute(&mut *on.acquire().await?).await.map(drop).map_err(|error| convert_error(error, store, name))
}

/// Deletes a schedule. The jobs of the schedule are kept. The tick history is kept as long as the job history.
///
/// # Errors
/// Returns [`Error::NoSchedule`] if the schedule does not exist, and [`Error::Schedule`] if workers declare the schedule. Returns an
/// error if the database query fails.
pub async fn delete(on: impl IntoConnection<'_>, store: Store, name: &str) -> Result<(), Error> {
    let gone = call(on, store, name, sqlx::query_scalar(store.sql(include_str!("../../sql/unschedule.sql")))).await?;
    if gone { Ok(()) } else { Err(Error::NoSchedule { name: name.to_owned() }) }
}

/// Pauses a schedule. The schedule has no ticks until it is resumed, regardless of deployments.
///
/// # Errors
/// Returns [`Error::NoSchedule`] if the schedule does not exist, and an error if the database query fails.
pub async fn pause(on: impl IntoConnection<'_>, store: Store, name: &str) -> Result<(), Error> {
    call::<Option<bool>>(on, store, name, sqlx::query_scalar(store.sql(include_str!("../../sql/pause_schedule.sql")))).await.map(drop)
}

/// Resumes a schedule from its next tick. Ticks during the pause are skipped.
///
/// # Errors
/// Returns [`Error::NoSchedule`] if the schedule does not exist, and an error if the database query fails.
pub async fn resume(on: impl IntoConnection<'_>, store: Store, name: &str) -> Result<(), Error> {
    call::<Option<bool>>(on, store, name, sqlx::query_scalar(store.sql(include_str!("../../sql/resume_schedule.sql")))).await.map(drop)
}

/// Skips the next tick of a schedule and returns it. A skipped tick enqueues no job. Repeated calls before that tick return the same tick.
///
/// # Errors
/// Returns [`Error::NoSchedule`] if the schedule does not exist, and [`Error::Schedule`] if no worker has computed the next tick yet.
/// Returns an error if the database query fails.
pub async fn skip_next(on: impl IntoConnection<'_>, store: Store, name: &str) -> Result<DateTime<Utc>, Error> {
    call(on, store, name, sqlx::query_scalar(store.sql(include_str!("../../sql/skip_schedule.sql")))).await
}

/// Enqueues a job of the schedule immediately and returns its id, regardless of ticks, a pause or the overlap policy.
///
/// # Errors
/// Returns [`Error::NoSchedule`] if the schedule does not exist, and the errors of an enqueue.
pub async fn run_now(on: impl IntoConnection<'_>, store: Store, name: &str) -> Result<JobId, Error> {
    call(on, store, name, sqlx::query_scalar(store.sql(include_str!("../../sql/run_schedule.sql")))).await
}

async fn call<T>(
    on: impl IntoConnection<'_>,
    store: Store,
    name: &str,
    statement: QueryScalar<'_, Postgres, T, PgArguments>,
) -> Result<T, Error>
where
    T: Send + Unpin,
    (T,): for<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow>,
{
    let mut on = on.into_connection();
    statement.bind(name).fetch_one(&mut *on.acquire().await?).await.map_err(|error| convert_error(error, store, name))
}
