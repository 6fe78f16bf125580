//! Unique jobs: many requests for the same report create a single job, which has the payload of the last request.

use queue_core::{Context, EnqueueOutcome, Handler, Job, JobResult, OnConflict, Store, job, options::While};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};

/// Report for one customer. At most one job per customer is waiting; a request after the job has started creates another job.
#[job(name = "example_report", unique(fields(customer), while = queued, on_conflict = replace))]
#[derive(Serialize, Deserialize)]
struct Report {
    customer: u32,
    pages: u32,
}

impl Handler for Report {
    async fn run(self, _: &Context) -> JobResult {
        println!("a report of {} pages for customer {}", self.pages, self.customer);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();

    let first = Report { customer: 1, pages: 10 }.enqueue(pool).await?;
    let again = Report { customer: 1, pages: 20 }.enqueue(pool).await?;
    let other = Report { customer: 2, pages: 30 }.enqueue(pool).await?;
    println!("the second asked for job {} and was told: {:?}", again.id(), again.outcome());
    assert_eq!((again.id(), again.outcome()), (first.id(), EnqueueOutcome::Replaced));
    assert_eq!(other.outcome(), EnqueueOutcome::New);

    // An explicit key applies to this enqueue only. The rollback releases the key.
    let mut tx = pool.begin().await?;
    let welcome = || Report { customer: 3, pages: 1 };
    assert_eq!(welcome().enqueue(&mut tx).unique("welcome-3").await?.outcome(), EnqueueOutcome::New);
    tx.rollback().await?;
    let third = welcome().enqueue(pool).unique("welcome-3").unique_while(While::Live).await?;
    let same = welcome().enqueue(pool).unique("welcome-3").on_conflict(OnConflict::Keep).await?;
    assert_eq!((third.outcome(), same.outcome()), (EnqueueOutcome::New, EnqueueOutcome::Kept));

    examples::run_until_finished(Worker::new(pool.clone()), pool, &[first.id(), other.id(), third.id()]).await?;
    let next = Report { customer: 1, pages: 40 }.enqueue(pool).await?;
    assert_eq!(next.outcome(), EnqueueOutcome::New, "the first has finished");
    next.cancel(pool).await?;
    Ok(())
}
