//! Test kit: runs a handler without a database, then runs all ready jobs in a transaction that is rolled back. A real project puts this
//! code in a test and enables the feature `testing` of `queue-core` in its dev-dependencies.

use std::time::Duration;

use queue_core::{Context, Handler, Job, JobResult, Store, job, testing};
use queue_worker::Database;
use serde::{Deserialize, Serialize};

/// Job that ships an order and enqueues the customer's notification in the same commit.
#[job(name = "example_ship_order", max_attempts = 2, backoff = fixed("1m"))]
#[derive(Debug, Serialize, Deserialize)]
struct ShipOrder {
    order: u32,
}

#[job(name = "example_tell_customer", output = String)]
#[derive(Debug, Serialize, Deserialize)]
struct TellCustomer {
    order: u32,
}

impl Handler for ShipOrder {
    async fn run(self, cx: &Context) -> JobResult {
        let mut tx = cx.begin().await?;
        TellCustomer { order: self.order }.enqueue(&mut tx).after(Duration::from_hours(1)).await?;
        tx.complete(()).await
    }
}

impl Handler for TellCustomer {
    async fn run(self, cx: &Context) -> JobResult<String> {
        if cx.attempt() == 1 { Err("no answer".into()) } else { Ok(format!("order {} is on its way", self.order)) }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let failed = testing::run(TellCustomer { order: 7 }).await;
    println!("inline: {:?}, then {:?}", failed.error, failed.verdict);
    assert_eq!(testing::run(TellCustomer { order: 7 }).attempt(2).await.output(), "order 7 is on its way");

    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let mut tx = database.pool().begin().await?;
    ShipOrder { order: 7 }.enqueue(&mut tx).await?;
    assert_eq!(testing::drain(&mut tx).pool(database.pool()).await?.completed(), 1);
    testing::assert_enqueued!(&mut tx, TellCustomer { order } if *order == 7);

    assert_eq!(testing::drain(&mut tx).advance(Duration::from_hours(1)).await?.retried(), 1);
    let told = testing::drain(&mut tx).advance(Duration::from_mins(1)).await?.outputs::<TellCustomer>();
    println!("an hour and a minute later: {told:?}");
    assert_eq!(told, ["order 7 is on its way"]);
    Ok(tx.rollback().await?) // leaves nothing behind
}
