//! Code shared by the example programs: a job type, a database and a worker.

use queue_core::{Context, Handler, JobHandle, JobResult, Store, Waiter, job};
use queue_worker::{
    Database, Worker,
    embedded::{Embedded, EmbeddedOptions},
};
use serde::{Deserialize, Serialize};

/// Confirms an order in the application's own table.
#[job(name = "example_confirm")]
#[derive(Serialize, Deserialize)]
pub struct Confirm {
    pub order: i64,
}

impl Handler for Confirm {
    async fn run(self, _: &Context) -> JobResult {
        println!("order {} is confirmed", self.order);
        Ok(())
    }
}

/// Migrated database with a table of the application, `example_orders`.
pub struct Example {
    /// Database URL, for the connections of other drivers.
    pub url: String,
    database: Database,
    _server: Option<Embedded>,
}

impl Example {
    /// Connects to `DATABASE_URL`, or starts an embedded PostgreSQL.
    ///
    /// # Errors
    /// Database errors.
    pub async fn start() -> anyhow::Result<Self> {
        let (url, server) = match std::env::var("DATABASE_URL") {
            Ok(url) => (url, None),
            Err(_) => {
                let server = Embedded::start(EmbeddedOptions::default())?;
                (server.url().to_owned(), Some(server))
            }
        };
        let database = Database::connect(&url).await?;
        database.migrate(Store::default()).await?;
        let table = "create table if not exists example_orders (number bigint primary key); truncate example_orders";
        queue_core::sqlx::raw_sql(table).execute(database.pool()).await?;
        Ok(Self { url, database, _server: server })
    }

    /// Runs a worker until `job` is completed. Then checks that `never`, whose transaction was rolled back, does not exist.
    ///
    /// # Errors
    /// Errors of the database or the worker, or an unexpected state.
    pub async fn work(self, never: JobHandle<Confirm>, job: JobHandle<Confirm>) -> anyhow::Result<()> {
        let pool = self.database.pool();
        anyhow::ensure!(never.find(pool).await.is_err(), "a job of a transaction that was rolled back");
        let waiter = Waiter::start(pool);
        let mut done = Ok(());
        Worker::new(pool.clone()).run(async { done = job.wait(&waiter).await }).await?;
        Ok(done?)
    }
}
