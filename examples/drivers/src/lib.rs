//! Code shared by the example programs: a job type, a database and a worker.

use queue_core::{Context, Handler, JobHandle, JobResult, Store, job};
use queue_worker::{
    Database, Worker,
    embedded::{Embedded, EmbeddedOptions},
};
use serde::{Deserialize, Serialize};

/// Job that confirms an order in the application's own table.
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

/// Migrated database with the application's table `example_orders`.
pub struct Example {
    /// URL with which the example's own driver connects to the database.
    pub url: String,
    database: Database,
    _server: Option<Embedded>,
}

impl Example {
    /// Connects to `DATABASE_URL`, or starts an embedded PostgreSQL if the variable is not set.
    ///
    /// # Errors
    /// Returns an error if the database is unavailable or a statement fails.
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

    /// Checks that `never`, whose transaction was rolled back, does not exist. Then runs a worker until `job` is completed.
    ///
    /// # Errors
    /// Returns an error if the database or the worker fails, or if a job is in an unexpected state.
    pub async fn work(self, never: JobHandle<Confirm>, job: JobHandle<Confirm>) -> anyhow::Result<()> {
        let pool = self.database.pool();
        anyhow::ensure!(never.find(pool).await.is_err(), "a job of a transaction that was rolled back");
        let queue = self.database.queue();
        let mut done = Ok(());
        Worker::new(pool.clone()).run(async { done = job.wait(&queue).await }).await?;
        Ok(done?)
    }
}
