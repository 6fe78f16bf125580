//! Operations on waiting jobs: list, postpone, run now, and change the priority. The program also requeues dead letters.

use std::time::Duration;

use queue_core::{
    Context, Handler, Job, JobResult, JobState, Store, job,
    operate::{self, Act, Filter},
};
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
    let bills = Bill::enqueue_all((0..10).map(|number| Bill { number }), pool).returning_ids().await?;

    // An operation applies to all jobs that match a filter, in batches, or to a single job. An operation on a job in the wrong state is
    // rejected with an error that names the state.
    let waiting = Filter { queue: Some("bills".into()), ..Filter::default() };
    println!("{} bills wait", operate::count_matching(pool, store, &waiting, Act::Cancel).await?);
    operate::snooze_all(pool, store, &waiting, Duration::from_hours(1)).await?;
    operate::run_now_all(pool, store, &waiting).await?;
    bills[9].set_priority(pool, 150).await?;
    bills[8].cancel(pool).await?;
    let error = bills[8].run_now(pool).await.expect_err("it is cancelled");
    println!("{error}");
    let bills: Vec<_> = bills.iter().map(queue_core::JobHandle::id).collect();
    let worker = || Worker::new(pool.clone());
    examples::run_until_finished(worker().state(Bank { is_closed: true }), pool, &bills).await?;

    // A job that failed permanently is a dead letter until an operator requeues it. This call requeues at most fifty jobs per second.
    let closed = Filter { error: Some("bank is closed".into()), state: Some(JobState::Dead), ..Filter::default() };
    for job in operate::list(pool, store, &closed).await?.jobs {
        println!("job {}: {}", job.id, job.error.unwrap_or_default());
    }
    let again = operate::requeue_all(pool, store, &closed).rate(50.0).await?;
    assert_eq!(again.done, 1);
    examples::run_until_finished(worker().state(Bank { is_closed: false }), pool, &bills).await?;
    assert_eq!(examples::find_job(pool, bills[0]).await?.state, JobState::Completed);
    Ok(())
}
