//! Tests a job that lives for a year while its workers are replaced three times a day. Half of the deployments shut the worker down, and
//! the other half kill it.

use std::{convert::Infallible, future::pending, time::Duration};

use queue_core::{Handler, Job as _, JobResult, JobState, durable::Durable, job};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tests::{TestDb, eventually};
use tokio::{runtime::Runtime, sync::oneshot};

use super::{db, journal};

/// Durable job with two steps per third of a day. One attempt journals the step `begun` and is then interrupted. The next attempt runs the
/// step `done` and sleeps until the next third.
#[job(name = "yearly", durable, max_attempts = 3, backoff = fixed("1ms"), output = u32)]
#[derive(Serialize, Deserialize)]
struct Yearly {
    thirds: u32,
}

impl Handler for Yearly {
    async fn run(self, cx: &Durable) -> JobResult<u32> {
        for n in 0..self.thirds {
            if !cx.journaled(("begun", n)) {
                cx.step(("begun", n), async { Ok::<_, Infallible>(()) }).await?;
                pending::<()>().await;
            }
            cx.step_tx(("done", n), async |tx| {
                sqlx::query("insert into done_by (job, what, attempt) values ($1, 'done', $2)")
                    .bind(cx.id())
                    .bind(i64::from(n))
                    .execute(tx)
                    .await
                    .map(drop)
            })
            .await?;
            cx.sleep(("eight hours", n), Duration::from_hours(8)).await;
        }
        Ok(self.thirds)
    }
}

/// Worker in the test process, with a separate runtime and pool.
struct Process {
    runtime: Runtime,
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl Process {
    fn start(url: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let ((stop, stopped), (ends, ended)) = (oneshot::channel::<()>(), oneshot::channel());
        let url = url.to_owned();
        runtime.spawn(async move {
            let pool = PgPool::connect(&url).await.unwrap();
            let worker = Worker::new(pool).register::<Yearly>().lease_ttl(Duration::from_secs(30)).grace(Duration::from_millis(1));
            worker.run(async move { drop(stopped.await) }).await.unwrap();
            let _ = ends.send(());
        });
        Self { runtime, stop, ended }
    }

    /// Shuts the worker down, which releases its jobs.
    async fn leave(self) {
        self.stop.send(()).unwrap();
        self.ended.await.unwrap();
        self.runtime.shutdown_background();
    }

    /// Simulates a kill: all tasks stop immediately, nothing more is written, and the worker's lease expires.
    async fn die(self, db: &TestDb) {
        self.runtime.shutdown_background();
        db.run("update queue.worker set expires_at = now() - interval '1 second'").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep"]
async fn a_job_outlives_the_deploys_of_a_year() {
    // `QUEUE_TEST_DEPLOYS=1095` tests a whole year.
    let deploys: u32 = std::env::var("QUEUE_TEST_DEPLOYS").ok().and_then(|value| value.parse().ok()).unwrap_or(12);
    let db = db().await;
    let job = Yearly { thirds: deploys }.enqueue(&db.pool).await.unwrap().id();
    for n in 0..deploys {
        let process = Process::start(&db.url);
        let begun = format!("select count(*) from queue.step where id = {job} and name = 'begun/{n}'");
        eventually("it has begun the next", async || {
            // Simulate the end of the eight-hour sleep.
            let pass = "update queue.scheduled set run_at = now() where run_at > now();
                update queue.step set until = now() where until > now()";
            db.run(pass).await;
            db.count(&begun).await == 1
        })
        .await;
        if n % 2 == 0 { process.leave().await } else { process.die(&db).await }
    }
    let last = Process::start(&db.url);
    eventually("it has finished", async || {
        db.run("update queue.scheduled set run_at = now(); update queue.step set until = now() where until > now()").await;
        matches!(db.state(job).await, Some(JobState::Completed | JobState::Dead))
    })
    .await;
    last.leave().await;
    assert_eq!(db.state(job).await, Some(JobState::Completed));
    assert_eq!(journal(&db, job).await.len(), 3 * deploys as usize);
    let done = "select count(*) from (select attempt from done_by where what = 'done' group by attempt having count(*) = 1) d";
    assert_eq!(db.count(done).await, i64::from(deploys), "each once");
    db.finish().await;
}
