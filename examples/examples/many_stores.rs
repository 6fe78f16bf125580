//! Many stores: each tenant is placed in one of several stores, and one worker serves all stores. A tenant is moved while its jobs run.

use std::time::Duration;

use queue_core::{
    Context, Handler, Job, JobResult, JobState, Store, job, migrate,
    stores::{MoveState, StoreJob, Stores},
};
use queue_worker::{Database, StoresWorker};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

#[job(name = "example_invoice")]
#[derive(Serialize, Deserialize)]
struct Invoice {
    number: u32,
}

impl Handler for Invoice {
    async fn run(self, cx: &Context) -> JobResult {
        println!("invoice {} is job {}", self.number, cx.id());
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    let pool = database.pool();

    // The home schema records the store of each tenant. Each store is a schema; in this example all stores are in one database.
    let stores = Stores::new(pool, Store::new("example_homes")?).database("main", pool)?;
    stores.migrate().await?;
    for name in ["example_a", "example_b"] {
        migrate(pool, Store::new(name)?).await?;
        stores.add(name, "main", Store::new(name)?).await?;
    }

    let (stop, stopped) = oneshot::channel::<()>();
    let worker = StoresWorker::new(stores.roster(), |_, worker| worker.register::<Invoice>()).slots(20);
    let worker = tokio::spawn(worker.run(async {
        let _ = stopped.await;
    }));

    // A tenant is placed in a store at its first use. The tenant's jobs are enqueued in that store, in the caller's transaction.
    let acme = stores.of("acme").await?;
    let mut tx = acme.begin().await?;
    let first = Invoice { number: 1 }.enqueue(&mut tx).await?.id();
    tx.commit().await?;
    let from = acme.member().name().to_owned();

    // Once `go_on` has fenced the old store, all producers enqueue into the other store.
    let to = if from == "example_a" { "example_b" } else { "example_a" };
    stores.move_tenant("acme", to).await?;
    while stores.go_on("acme").await? != MoveState::Over {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut tx = acme.begin().await?;
    let second = Invoice { number: 2 }.enqueue(&mut tx).await?.id();
    tx.commit().await?;

    for job in [StoreJob::new(&from, first)?, StoreJob::new(to, second)?] {
        while stores.roster().find(&job).await?.state != JobState::Completed {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        println!("{job} is completed");
    }
    for of in stores.roster().counts().await {
        println!("{}: {} completed", of.member.name(), of.answer?.of(JobState::Completed));
    }

    drop(stop);
    worker.await??;
    sqlx::raw_sql("drop schema example_homes, example_a, example_b cascade").execute(pool).await?;
    Ok(())
}
