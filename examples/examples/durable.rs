//! Durable job that fails halfway. Its next attempt continues at the failed step and does not repeat completed steps. The job also waits
//! for a person's approval. During the wait, the job is parked and holds no resources.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use queue_core::{Handler, Job as _, JobResult, JobState, Store, durable::Durable, job, operate::SignalOutcome, sqlx};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};

/// Job that charges the card for an order, books the receipt, sleeps, waits for approval, and notifies the customer.
#[job(name = "example_ship_in_steps", durable, max_attempts = 3, backoff = fixed("10ms"), output = String)]
#[derive(Serialize, Deserialize)]
struct Ship {
    order: i64,
}

static CHARGES: AtomicUsize = AtomicUsize::new(0);
static MAILS: AtomicUsize = AtomicUsize::new(0);

/// Calls a simulated external service that accepts an idempotency key.
async fn charge(order: i64, key: String) -> Result<String, std::io::Error> {
    tokio::task::yield_now().await;
    CHARGES.fetch_add(1, Relaxed);
    Ok(format!("receipt of order {order} under {}", key.rsplit('-').next().unwrap_or_default()))
}

/// Notifies the customer. The first call fails.
async fn tell() -> Result<(), std::io::Error> {
    tokio::task::yield_now().await;
    if MAILS.fetch_add(1, Relaxed) == 0 { Err(std::io::Error::other("the mail server is away")) } else { Ok(()) }
}

impl Handler for Ship {
    async fn run(self, cx: &Durable) -> JobResult<String> {
        println!("attempt {}", cx.attempt());
        let receipt = cx.step("charge", charge(self.order, cx.key("charge"))).await?;
        let book = async |tx: &mut sqlx::PgConnection| {
            let book = sqlx::query("insert into bookings (receipt) values ($1)").bind(&receipt);
            book.execute(tx).await.map(|done| done.rows_affected())
        };
        cx.step_tx("book", book).await?;
        cx.sleep("a moment", Duration::from_millis(1500)).await;
        let by: Option<String> = cx.receive("approved").timeout(Duration::from_hours(72)).await;
        let Some(by) = by else { return Ok("nobody has approved it within three days".to_owned()) };
        cx.step("tell", tell()).await?;
        Ok(format!("{receipt}, approved by {by}"))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();
    let queue = database.queue();
    sqlx::raw_sql("create table if not exists bookings (receipt text); truncate bookings").execute(pool).await?;

    let job = Ship { order: 7 }.enqueue(pool).await?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = tokio::spawn(Worker::new(pool.clone()).register::<Ship>().run(async { drop(stopped.await) }));
    while job.status(pool).await?.state != JobState::Parked {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut tx = pool.begin().await?;
    assert_eq!(job.signal(&mut tx, "approved", "Ada").await?, SignalOutcome::Sent); // with the other writes of the transaction
    tx.commit().await?;
    println!("{}", job.wait(&queue).await?);
    for step in queue.job(job.id()).steps().await? {
        println!("{}: attempt {}", step.name, step.attempt);
    }
    let _ = stop.send(());
    worker.await??;

    let booked: i64 = sqlx::query_scalar("select count(*) from bookings").fetch_one(pool).await?;
    assert_eq!((CHARGES.load(Relaxed), booked, MAILS.load(Relaxed)), (1, 1, 2), "charged once, booked once, notified at the second try");
    Ok(())
}
