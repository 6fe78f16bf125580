//! Approval by a person: the job sends a request and is parked until the decision arrives. After a timeout the job sends a request to the
//! next person. After the last timeout the job completes without a decision.

use std::time::Duration;

use queue_core::{Handler, Job as _, JobHandle, JobResult, Store, durable::Durable, job, operate::SignalOutcome};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

#[derive(Serialize, Deserialize)]
enum Decision {
    Approved { by: String },
    Rejected { why: String },
}

#[job(name = "example_expense", durable, output = String)]
#[derive(Serialize, Deserialize)]
struct Expense {
    amount: u32,
    /// Maximum wait for each decision, for example three days in production.
    patience: Duration,
}

impl Handler for Expense {
    async fn run(self, cx: &Durable) -> JobResult<String> {
        for (round, who) in ["the manager", "the director"].into_iter().enumerate() {
            cx.step(("ask", round), ask(who, self.amount)).await?;
            // Each wait is identified by the signal's name and the index of the approver.
            let decision: Option<Decision> = cx.receive(("decision", round)).timeout(self.patience).await;
            match decision {
                Some(Decision::Approved { by }) => {
                    cx.step("pay", pay(self.amount, cx.key("pay"))).await?;
                    return Ok(format!("{} paid, approved by {by}", self.amount));
                }
                Some(Decision::Rejected { why }) => return Ok(format!("rejected: {why}")),
                None => {} // the next approver
            }
        }
        Ok("nobody has decided".to_owned())
    }
}

/// Sends a decision to the job. A web server would do this in the transaction of its other writes.
async fn decide(job: JobHandle<Expense>, decision: &Decision, pool: &PgPool) -> anyhow::Result<()> {
    let mut tx = pool.begin().await?;
    anyhow::ensure!(job.signal(&mut tx, "decision", decision).await? == SignalOutcome::Sent, "it is over already");
    Ok(tx.commit().await?)
}

async fn ask(who: &str, amount: u32) -> Result<(), std::io::Error> {
    tokio::task::yield_now().await;
    println!("{who} is asked to approve {amount}");
    Ok(())
}

async fn pay(amount: u32, key: String) -> Result<String, std::io::Error> {
    tokio::task::yield_now().await;
    Ok(format!("{amount} under {key}"))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();
    let queue = database.queue();
    let stop = CancellationToken::new();
    let worker = tokio::spawn(Worker::new(pool.clone()).register::<Expense>().run(stop.clone().cancelled_owned()));

    let (long, short) = (Duration::from_hours(72), Duration::from_millis(1200));
    let good = Expense { amount: 7, patience: long }.enqueue(pool).await?;
    let bad = Expense { amount: 700, patience: long }.enqueue(pool).await?;
    let late = Expense { amount: 70, patience: short }.enqueue(pool).await?;
    decide(good, &Decision::Approved { by: "Ada".to_owned() }, pool).await?;
    decide(bad, &Decision::Rejected { why: "too much".to_owned() }, pool).await?;
    for (job, said) in [(good, "7 paid, approved by Ada"), (bad, "rejected: too much"), (late, "nobody has decided")] {
        let came = job.wait(&queue).timeout(Duration::from_secs(30)).await?;
        println!("{came}");
        assert_eq!(came, said);
    }
    assert!(decide(good, &Decision::Rejected { why: "too late".to_owned() }, pool).await.is_err());
    stop.cancel();
    Ok(worker.await??)
}
