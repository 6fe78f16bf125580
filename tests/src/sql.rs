//! Runs SQL statements of tests on a pool or on a connection. The functions panic with the statement's text if a statement fails.

use queue_core::JobId;
use sqlx::{
    AssertSqlSafe, Connection as _, Decode, Executor as _, PgConnection, Postgres, Type,
    postgres::{PgListener, PgRow},
};

use uuid::Uuid;

use crate::{Act, Do, TestDb, eventually, protocol::register};

/// Rust type of a column value.
pub trait Value: for<'r> Decode<'r, Postgres> + Type<Postgres> + Send + Unpin {}

impl<T: for<'r> Decode<'r, Postgres> + Type<Postgres> + Send + Unpin> Value for T {}

/// Extension trait that runs SQL of a test on a connection or in a transaction.
#[allow(async_fn_in_trait, reason = "the connection is known wherever it is used")]
pub trait Sql {
    /// Runs statements, and panics if one of them fails.
    async fn run(&mut self, statements: &str);

    /// Returns the single value of a query, and panics if the query fails.
    async fn one<T: Value>(&mut self, query: &str) -> T;

    /// Returns the first column of all rows of a query, and panics if the query fails.
    async fn all<T: Value>(&mut self, query: &str) -> Vec<T>;

    /// Returns the rows of a query, and panics if the query fails.
    async fn rows<T: for<'r> sqlx::FromRow<'r, PgRow> + Send + Unpin>(&mut self, query: &str) -> Vec<T>;
}

impl Sql for PgConnection {
    async fn run(&mut self, statements: &str) {
        self.execute(sqlx::raw_sql(AssertSqlSafe(statements.to_owned()))).await.unwrap_or_else(|error| panic!("{statements}: {error}"));
    }

    async fn one<T: Value>(&mut self, query: &str) -> T {
        sqlx::query_scalar(AssertSqlSafe(query.to_owned())).fetch_one(self).await.unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    async fn all<T: Value>(&mut self, query: &str) -> Vec<T> {
        sqlx::query_scalar(AssertSqlSafe(query.to_owned())).fetch_all(self).await.unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    async fn rows<T: for<'r> sqlx::FromRow<'r, PgRow> + Send + Unpin>(&mut self, query: &str) -> Vec<T> {
        sqlx::query_as(AssertSqlSafe(query.to_owned())).fetch_all(self).await.unwrap_or_else(|error| panic!("{query}: {error}"))
    }
}

/// Completes a ready job with `output`, an SQL expression, as a settle does. Sends no notifications.
pub async fn complete(on: &mut PgConnection, job: JobId, output: &str) {
    on.run(&format!(
        "with gone as (delete from queue.ready where id = {job} returning id)
         insert into queue.done (id, finished_at, ran_ms, attempts, output) select id, now(), 1, 1, {output} from gone"
    ))
    .await;
}

/// Turns a ready or parked job into a dead letter, as a settle does. Sends no notifications.
pub async fn die(on: &mut PgConnection, job: JobId) {
    on.run(&format!(
        "with ready as (delete from queue.ready where id = {job} returning id, lane),
           parked as (delete from queue.parked where id = {job} returning id, lane)
         insert into queue.dead (id, died_at, lane, attempts, crashes, error)
         select id, now(), lane, 1, 0, 'by hand' from (table ready union all table parked) gone"
    ))
    .await;
}

impl TestDb {
    /// Opens a connection outside of the pool.
    ///
    /// # Panics
    /// Panics if the server does not respond.
    pub async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap_or_else(|error| panic!("{}: {error}", self.url))
    }

    /// Creates a database, and a connection outside of its pool.
    pub async fn with_connection() -> (Self, PgConnection) {
        let db = Self::new().await;
        let on = db.connect().await;
        (db, on)
    }

    /// Creates a database, and two connections outside of its pool.
    pub async fn with_connections() -> (Self, PgConnection, PgConnection) {
        let (db, one) = Self::with_connection().await;
        let other = db.connect().await;
        (db, one, other)
    }

    /// Creates a database, a connection outside of its pool, and a worker with a lease of one minute.
    ///
    /// # Panics
    /// Panics if the worker cannot be registered.
    pub async fn with_worker() -> (Self, PgConnection, Uuid) {
        let (db, mut on) = Self::with_connection().await;
        let worker = register(&mut on).await.unwrap_or_else(|error| panic!("cannot announce a worker: {error}"));
        (db, on, worker)
    }

    /// Runs statements on a connection of the pool.
    ///
    /// # Panics
    /// Panics if one of the statements fails.
    pub async fn run(&self, statements: &str) {
        let mut on = self.pool.acquire().await.unwrap_or_else(|error| panic!("{statements}: {error}"));
        on.run(statements).await;
    }

    /// Returns the single value of a query.
    ///
    /// # Panics
    /// Panics if the query fails, or returns no row.
    pub async fn one<T: Value>(&self, query: &str) -> T {
        let mut on = self.pool.acquire().await.unwrap_or_else(|error| panic!("{query}: {error}"));
        on.one(query).await
    }

    /// Returns the first column of all rows of a query.
    ///
    /// # Panics
    /// Panics if the query fails.
    pub async fn all<T: Value>(&self, query: &str) -> Vec<T> {
        let mut on = self.pool.acquire().await.unwrap_or_else(|error| panic!("{query}: {error}"));
        on.all(query).await
    }

    /// Waits until a query returns the number `expected`.
    ///
    /// # Panics
    /// Panics if the query fails, or does not return this number within the timeout of [`eventually`].
    pub async fn until_count(&self, query: &str, expected: i64) {
        eventually(&format!("{expected}: {query}"), async || self.count(query).await == expected).await;
    }

    /// Waits until `sessions` sessions of this database are waiting for a lock.
    ///
    /// # Panics
    /// Panics if the sessions do not wait within the timeout of [`eventually`].
    pub async fn until_waiting(&self, sessions: i64) {
        let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        self.until_count(waiting, sessions).await;
    }

    /// Waits until a worker is idle.
    ///
    /// # Panics
    /// Panics if no worker becomes idle within the timeout of [`eventually`].
    pub async fn until_asleep(&self) {
        eventually("a worker sleeps", async || self.count("select count(*) from queue.idle").await > 0).await;
    }

    /// Returns the total number of rows of several tables.
    ///
    /// # Panics
    /// Panics if a table does not exist.
    pub async fn rows_of(&self, tables: &[&str]) -> i64 {
        let counts: Vec<String> = tables.iter().map(|table| format!("(select count(*) from queue.{table})")).collect();
        self.count(&format!("select {}", counts.join(" + "))).await
    }

    /// Moves a ready job into a lease of a worker that does not exist, and sets its crash count to two. The next recovery counts a third
    /// crash.
    ///
    /// # Panics
    /// Panics if the job is not ready.
    pub async fn crash(&self, job: JobId) {
        let silent = "with gone as (delete from queue.ready where id = $1 returning id, lane)
            insert into queue.lease (token, worker, claimed_at, lane, ids, attempts, crashes)
            select gen_random_uuid(), gen_random_uuid(), now() - interval '1 h', lane, array[id], '{1}', '{2}' from gone";
        let left = sqlx::query(silent).bind(job).execute(&self.pool).await.unwrap_or_else(|error| panic!("{silent}: {error}"));
        assert_eq!(left.rows_affected(), 1, "{job} is not ready");
    }

    /// Returns the output of a completed job.
    ///
    /// # Panics
    /// Panics if the job has not completed.
    pub async fn output(&self, job: JobId) -> serde_json::Value {
        self.one(&format!("select output from queue.done where id = {job}")).await
    }

    /// Returns the error of a dead job.
    ///
    /// # Panics
    /// Panics if the job is not dead.
    pub async fn dead_error(&self, job: JobId) -> String {
        self.one(&format!("select error from queue.dead where id = {job}")).await
    }
}

/// Returns the payload of the next notification.
///
/// # Panics
/// Panics if no notification arrives.
pub async fn next_payload(listener: &mut PgListener) -> String {
    let notification = tokio::time::timeout(std::time::Duration::from_secs(30), listener.recv()).await;
    notification.expect("a notification comes").unwrap_or_else(|error| panic!("{error}")).payload().to_owned()
}

impl Do {
    /// Creates a job that completes immediately.
    pub fn ok() -> Self {
        Self { act: Act::Ok(String::new()) }
    }
}
