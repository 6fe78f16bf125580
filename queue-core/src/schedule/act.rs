//! What is done to schedules. The acts are SQL functions of the store, for every language alike.

use chrono::{DateTime, Utc};
use sqlx::{Postgres, postgres::PgArguments, query::QueryScalar};

use super::{
    refused::explain,
    spec::{Declaration, Schedule},
};
use crate::{connect::IntoConnection, define::JobId, error::Error, schema::Store};

/// Makes a schedule of this name, or changes the one there is. One that is as it was stays as it is, so a program may say it whenever it
/// starts; a pause stays.
///
/// # Errors
/// [`Error::Schedule`]: it is wrong, or workers declare one of this name; [`Error::InvalidName`]; the database's.
pub async fn create(on: impl IntoConnection<'_>, store: Store, name: &str, schedule: &Schedule) -> Result<(), Error> {
    let Declaration { job_type, payload, options } = schedule.declaration(name, store)?;
    let statement =
        sqlx::query(store.sql(include_str!("../../sql/put_schedule.sql"))).bind(name).bind(job_type).bind(payload).bind(options);
    let mut on = on.into_connection();
    statement.execute(&mut *on.acquire().await?).await.map(drop).map_err(|error| explain(error, store, name))
}

/// Takes a schedule away. Its jobs stay, and so does the history of its ticks for a while.
///
/// # Errors
/// [`Error::NoSchedule`]; [`Error::Schedule`] if workers declare it; the database's.
pub async fn delete(on: impl IntoConnection<'_>, store: Store, name: &str) -> Result<(), Error> {
    let gone = ask(on, store, name, sqlx::query_scalar(store.sql(include_str!("../../sql/unschedule.sql")))).await?;
    if gone { Ok(()) } else { Err(Error::NoSchedule { name: name.to_owned() }) }
}

/// It has no ticks until it is resumed, whatever is deployed meanwhile.
///
/// # Errors
/// [`Error::NoSchedule`]; the database's.
pub async fn pause(on: impl IntoConnection<'_>, store: Store, name: &str) -> Result<(), Error> {
    ask::<Option<bool>>(on, store, name, sqlx::query_scalar(store.sql(include_str!("../../sql/pause_schedule.sql")))).await.map(drop)
}

/// Goes on with the next tick; those of the pause are over.
///
/// # Errors
/// [`Error::NoSchedule`]; the database's.
pub async fn resume(on: impl IntoConnection<'_>, store: Store, name: &str) -> Result<(), Error> {
    ask::<Option<bool>>(on, store, name, sqlx::query_scalar(store.sql(include_str!("../../sql/resume_schedule.sql")))).await.map(drop)
}

/// The next tick will have no job; returns it. Said again before that tick, it is the same one.
///
/// # Errors
/// [`Error::NoSchedule`]; [`Error::Schedule`] if no worker has computed the next tick yet; the database's.
pub async fn skip_next(on: impl IntoConnection<'_>, store: Store, name: &str) -> Result<DateTime<Utc>, Error> {
    ask(on, store, name, sqlx::query_scalar(store.sql(include_str!("../../sql/skip_schedule.sql")))).await
}

/// Enqueues a job of the schedule at once, whatever its ticks, its pause and its overlap say; returns the job.
///
/// # Errors
/// [`Error::NoSchedule`]; as an enqueue.
pub async fn run_now(on: impl IntoConnection<'_>, store: Store, name: &str) -> Result<JobId, Error> {
    ask(on, store, name, sqlx::query_scalar(store.sql(include_str!("../../sql/run_schedule.sql")))).await
}

async fn ask<T>(
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
    statement.bind(name).fetch_one(&mut *on.acquire().await?).await.map_err(|error| explain(error, store, name))
}
