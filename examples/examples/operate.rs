//! Operations on waiting jobs: list, postpone, run now, and change the priority. The program also requeues dead letters.

use std::time::Duration;

use queue_core::{Context, Handler, Job, JobResult, JobState, Store, job};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};

#[job(name = "example_bill", queue = "bills", max_attempts = 1, retain = "30d")]
#[derive(Serialize, Deserialize)]
struct Bill {
    number: u32,
}

impl Handler for Bill {
    async fn run(self, cx: &Context) -> JobResult {
        println!("bill {}", self.number);
        if self.number == 0 && cx.state::<Bank>().is_closed { Err("the bank is closed".into()) } else { Ok(()) }
    }
}

struct Bank {
    is_closed: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    let (store, pool) = (Store::default(), database.pool());
    database.migrate(store).await?;
    let queue = database.queue();
    let bills = Bill::enqueue_all((0..10).map(|number| Bill { number }), pool).returning_ids().await?;

    // An operation applies to a single job or, in batches, to all jobs that match a filter. If a single job is in the wrong state, the
    // operation is rejected with an error that names the state.
    println!("{} bills wait", queue.jobs().queue("bills").cancel().count().await?);
    queue.jobs().queue("bills").snooze(Duration::from_hours(1)).await?;
    queue.jobs().queue("bills").run_now().await?;
    queue.job(bills[9].id()).set_priority(150).await?;
    queue.job(bills[8].id()).cancel().await?;
    let error = queue.job(bills[8].id()).run_now().await.expect_err("it is cancelled");
    println!("{error}");
    let bills: Vec<_> = bills.iter().map(queue_core::JobHandle::id).collect();
    let worker = || Worker::new(pool.clone());
    examples::run_until_finished(worker().state(Bank { is_closed: true }), pool, &bills).await?;

    // A job that failed permanently is a dead letter until an operator requeues it. The requeue below is limited to fifty jobs per
    // second.
    let closed = queue.jobs().of_type::<Bill>().error("bank is closed").state(JobState::Dead);
    for job in closed.clone().list().await?.jobs {
        println!("job {}: {}", job.id, job.error.unwrap_or_default());
    }
    let again = closed.requeue().rate(50.0).await?;
    assert_eq!(again.done, 1);
    examples::run_until_finished(worker().state(Bank { is_closed: false }), pool, &bills).await?;
    assert_eq!(examples::find_job(pool, bills[0]).await?.state, JobState::Completed);
    Ok(())
}
