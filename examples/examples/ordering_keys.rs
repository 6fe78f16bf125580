//! Ordering keys: the jobs of one account run one at a time, in commit order, even after failures. Jobs of different accounts run
//! concurrently.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use queue_core::{Context, Handler, Job, JobResult, Store, job};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};

#[job(name = "example_book", key = self.account, backoff = fixed("20ms"))]
#[derive(Serialize, Deserialize)]
struct Book {
    account: u32,
    amount: i32,
}

/// Booked amounts by account.
type Books = Arc<Mutex<HashMap<u32, Vec<i32>>>>;

impl Handler for Book {
    async fn run(self, cx: &Context) -> JobResult {
        if self.amount == 1 && cx.attempt() == 1 {
            return Err("not yet: the others of the account wait".into());
        }
        cx.state::<Books>().lock().expect("no handler panics").entry(self.account).or_default().push(self.amount);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let (pool, books) = (database.pool(), Books::default());

    let mut jobs = Vec::new();
    for amount in 0..10 {
        for account in [7, 8] {
            jobs.push(Book { account, amount }.enqueue(pool).await?.id());
        }
    }
    assert_eq!(examples::find_job(pool, jobs[2]).await?.state.name(), "blocked");

    examples::run_until_finished(Worker::new(pool.clone()).state(Arc::clone(&books)), pool, &jobs).await?;
    let books = books.lock().expect("no handler panics");
    println!("{books:?}");
    assert!([7, 8].iter().all(|account| books[account] == (0..10).collect::<Vec<_>>()));
    Ok(())
}
