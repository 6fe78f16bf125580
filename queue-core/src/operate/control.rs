//! What a producer may still do to a job it enqueued: by its handle, on any connection. The acts are SQL functions of the store, which every
//! language can call; see `docs/OPERATIONS.md`.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::{connect::IntoConnection, enqueue::JobHandle, error::Error, schema::Connection, schema::Store};

/// Acts on one job of the default store. Each is a statement on the connection that is given; after an error in a transaction of yours, that
/// can only be rolled back.
impl<J> JobHandle<J> {
    /// Cancels the job; true if it waited and will not run. False if it runs: its handler's [`cancelled`](crate::Context::cancelled) fires
    /// within about a second, and unless it completes all the same the job is cancelled then.
    ///
    /// # Errors
    /// [`Error::Refused`] when it is over, unknown, or of a transactional type and running; the database's.
    pub async fn cancel(&self, on: impl IntoConnection<'_>) -> Result<bool, Error> {
        let statement = sqlx::query_scalar(Store::default().sql(include_str!("../../sql/cancel_one.sql"))).bind(self.id());
        let became: Result<String, sqlx::Error> = match on.into_connection() {
            Connection::Pool(pool) => statement.fetch_one(pool).await,
            Connection::One(connection) => statement.fetch_one(connection).await,
        };
        became.map(|became| became == "cancelled").map_err(refused)
    }

    /// Puts the job off until this time, or lets it be due earlier, if it is ready or scheduled.
    ///
    /// # Errors
    /// [`Error::Refused`] in any other state; the database's.
    pub async fn reschedule(&self, on: impl IntoConnection<'_>, at: DateTime<Utc>) -> Result<(), Error> {
        let statement = sqlx::query(Store::default().sql(include_str!("../../sql/reschedule_one.sql")));
        send(statement.bind(self.id()).bind(at), on).await
    }

    /// Puts the job off for so long from now, by the database's clock, if it is ready or scheduled. At most a thousand years.
    ///
    /// # Errors
    /// As [`JobHandle::reschedule`].
    pub async fn snooze(&self, on: impl IntoConnection<'_>, wait: Duration) -> Result<(), Error> {
        let statement = sqlx::query(Store::default().sql(include_str!("../../sql/snooze_one.sql")));
        send(statement.bind(self.id()).bind(wait.min(LONGEST).as_secs_f64()), on).await
    }

    /// Makes the job ready now, if it is scheduled.
    ///
    /// # Errors
    /// [`Error::Refused`] in any other state; the database's.
    pub async fn run_now(&self, on: impl IntoConnection<'_>) -> Result<(), Error> {
        send(sqlx::query(Store::default().sql(include_str!("../../sql/run_now_one.sql"))).bind(self.id()), on).await
    }

    /// Gives the job another priority, if it is ready or scheduled; higher runs first.
    ///
    /// # Errors
    /// [`Error::Refused`] in any other state; the database's.
    pub async fn set_priority(&self, on: impl IntoConnection<'_>, priority: i16) -> Result<(), Error> {
        let statement = sqlx::query(Store::default().sql(include_str!("../../sql/set_priority_one.sql")));
        send(statement.bind(self.id()).bind(i32::from(priority)), on).await
    }
}

/// A thousand years.
const LONGEST: Duration = Duration::from_hours(1000 * 365 * 24);

async fn send(
    statement: sqlx::query::Query<'_, sqlx::Postgres, sqlx::postgres::PgArguments>,
    on: impl IntoConnection<'_>,
) -> Result<(), Error> {
    let sent = match on.into_connection() {
        Connection::Pool(pool) => statement.execute(pool).await,
        Connection::One(connection) => statement.execute(connection).await,
    };
    sent.map(drop).map_err(refused)
}

/// The functions refuse with a SQLSTATE for "no such job", one for "not in this state" and one for "locked by another transaction".
fn refused(error: sqlx::Error) -> Error {
    match error.as_database_error() {
        Some(db) if db.code().is_some_and(|code| ["P0002", "55000", "55P03"].contains(&&*code)) => {
            Error::Refused { why: db.message().to_owned() }
        }
        _ => Error::Database(error),
    }
}
