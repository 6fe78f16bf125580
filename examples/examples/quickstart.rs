//! Quick start: enqueues mails and a report, and runs a worker that completes the jobs. One mail fails once and is retried.

use queue_core::{Context, Handler, Job, JobResult, Priority, Store, job};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};

#[job(queue = "mail", max_attempts = 5, backoff = fixed("100ms"))]
#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: String,
}

impl Handler for SendEmail {
    async fn run(self, cx: &Context) -> JobResult {
        println!("claimed   job #{} (send_email), attempt {}", cx.id(), cx.attempt());
        if self.to.starts_with("bob") && cx.attempt() == 1 {
            println!("failed    job #{}: to be tried again", cx.id());
            return Err("the mail server is busy".into());
        }
        println!("completed job #{}: mailed {}", cx.id(), self.to);
        Ok(())
    }
}

#[job(queue = "reports")]
#[derive(Serialize, Deserialize)]
struct RenderReport {
    month: u8,
}

impl Handler for RenderReport {
    async fn run(self, cx: &Context) -> JobResult {
        println!("claimed   job #{} (render_report), attempt {}", cx.id(), cx.attempt());
        println!("completed job #{}: the report of month {}", cx.id(), self.month);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();
    println!("migrated  schema `queue`");

    let mut tx = pool.begin().await?;
    let mut jobs = vec![RenderReport { month: 11 }.enqueue(&mut tx).priority(Priority::EXPLICIT).await?.id()];
    for to in ["ada@example.org", "bob@example.org"] {
        jobs.push(SendEmail { to: to.into() }.enqueue(&mut tx).await?.id());
    }
    tx.commit().await?;
    println!("enqueued  jobs #{}, #{} and #{}", jobs[0], jobs[1], jobs[2]);
    examples::run_until_finished(Worker::new(pool.clone()), pool, &jobs).await?;
    for (id, attempts) in jobs.into_iter().zip([1, 1, 2]) {
        let job = examples::find_job(pool, id).await?;
        println!("final     job #{} ({}) is {} after {} attempt(s)", job.id, job.job_type, job.state, job.attempts);
        assert_eq!((job.state.name(), job.attempts), ("completed", attempts));
    }
    Ok(())
}
