//! Tests fair queues together with other features of a job type: limits and batches.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use queue_core::{
    Context, Handler, Job as _, JobResult,
    batch::{BatchContext, BatchHandler, JobBatch},
    job,
};
use queue_worker::{Config, Worker};
use serde::{Deserialize, Serialize};
use tests::{TestDb, eventually};

/// Record of the jobs that ran.
#[derive(Clone, Default)]
struct RanJobs {
    /// Tenants in the order their jobs ran.
    order: Arc<Mutex<Vec<u32>>>,
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl RanJobs {
    fn ran(&self) -> usize {
        self.order.lock().unwrap().len()
    }

    /// Returns the difference between the largest and the smallest number of jobs per tenant among the first `first` jobs that ran.
    fn spread(&self, first: usize, tenants: u32) -> usize {
        let order = self.order.lock().unwrap();
        let of = |tenant| order[..first].iter().filter(|other| **other == tenant).count();
        let counts: Vec<usize> = (0..tenants).map(of).collect();
        counts.iter().max().unwrap() - counts.iter().min().unwrap()
    }
}

/// Fair job under a limit.
#[job(name = "fair_limited", fair = self.tenant, limit(concurrency = 3), send_only, state(RanJobs))]
#[derive(Serialize, Deserialize)]
struct Limited {
    tenant: u32,
}

impl Handler for Limited {
    async fn run(self, cx: &Context) -> JobResult {
        let seen = cx.state::<RanJobs>();
        let now = seen.running.fetch_add(1, SeqCst) + 1;
        seen.most.fetch_max(now, SeqCst);
        seen.order.lock().unwrap().push(self.tenant);
        tokio::time::sleep(Duration::from_millis(2)).await;
        seen.running.fetch_sub(1, SeqCst);
        Ok(())
    }
}

#[tokio::test]
#[ignore = "deep"]
async fn jobs_under_a_limit_take_turns_within_the_limit() {
    let db = TestDb::new().await;
    let seen = RanJobs::default();
    Limited::enqueue_all((0..300).map(|n| Limited { tenant: if n < 200 { 0 } else { n % 5 } }), &db.pool).await.unwrap();
    let mut config = Config::default();
    config.concurrency = 20;
    let one = |seen: &RanJobs| Worker::new(db.pool.clone()).config(config.clone()).register::<Limited>().state(seen.clone());
    db.run_while(one(&seen), async {
        db.run_while(one(&seen), eventually("all ran", async || seen.ran() == 300)).await;
    })
    .await;
    assert!(seen.most.load(SeqCst) <= 3, "no more than the limit lets, over both workers");
    // The spread may exceed zero, because each worker takes turns independently and queued jobs fill slots of both workers.
    assert!(seen.spread(60, 5) <= 12, "{:?}", seen.order.lock().unwrap());
    db.finish().await;
}

/// Fair batch job.
#[job(name = "fair_batched", fair = self.tenant, batch = 10, send_only, state(RanJobs))]
#[derive(Serialize, Deserialize)]
struct Batched {
    tenant: u32,
}

impl BatchHandler for Batched {
    async fn run(batch: &mut JobBatch<Self>, cx: &BatchContext) -> JobResult {
        cx.state::<RanJobs>().order.lock().unwrap().extend(batch.iter().map(|job| job.payload().tenant));
        Ok(())
    }
}

#[tokio::test]
async fn batches_consist_of_jobs_in_turn_order() {
    let db = TestDb::new().await;
    let seen = RanJobs::default();
    Batched::enqueue_all((0..300).map(|n| Batched { tenant: if n < 200 { 0 } else { n % 5 } }), &db.pool).await.unwrap();
    let mut config = Config::default();
    (config.concurrency, config.batch) = (1, 10);
    let worker = Worker::new(db.pool.clone()).config(config).register_batch::<Batched>().state(seen.clone());
    db.run_while(worker, eventually("all ran", async || seen.ran() == 300)).await;
    assert!(seen.spread(50, 5) <= 2, "{:?}", seen.order.lock().unwrap());
    db.finish().await;
}

/// Defines job types without a fair key. Each type has a separate lane.
macro_rules! plain {
    ($($name:ident),*) => {$(
        #[job(send_only, state(RanJobs))]
        #[derive(Serialize, Deserialize)]
        struct $name;

        impl Handler for $name {
            async fn run(self, cx: &Context) -> JobResult {
                cx.state::<RanJobs>().order.lock().unwrap().push(0);
                Ok(())
            }
        }
    )*};
}

plain!(FairPlainOne, FairPlainTwo, FairPlainThree, FairPlainFour, FairPlainFive);

/// Fair job without other features.
#[job(name = "fair_turning", fair = self.tenant, send_only, state(RanJobs))]
#[derive(Serialize, Deserialize)]
struct Turning {
    tenant: u32,
}

impl Handler for Turning {
    async fn run(self, cx: &Context) -> JobResult {
        cx.state::<RanJobs>().order.lock().unwrap().push(self.tenant);
        Ok(())
    }
}

/// Regression test for a lane order that rotates between two claims of a pass, so that the second claim begins after the fair lanes.
#[tokio::test]
async fn beside_lanes_of_the_same_priority_fair_ones_are_claimed_from_whenever_there_is_a_slot() {
    let db = TestDb::new().await;
    let seen = RanJobs::default();
    let mut config = Config::default();
    // The poll interval is too long for any job to be found by a poll.
    (config.concurrency, config.poll_interval) = (1, Duration::from_mins(1));
    let worker = Worker::new(db.pool.clone()).config(config).state(seen.clone()).register::<Turning>();
    let worker = worker.register::<FairPlainOne>().register::<FairPlainTwo>().register::<FairPlainThree>();
    let worker = worker.register::<FairPlainFour>().register::<FairPlainFive>();
    for job_type in ["one", "two", "three", "four", "five"] {
        db.run(&format!("select queue.enqueue('fair_plain_{job_type}', 'null')")).await;
    }
    db.run_while(worker, async {
        eventually("all lanes are known", async || seen.ran() == 5).await;
        Turning::enqueue_all((0..20).map(|n| Turning { tenant: n % 2 }), &db.pool).await.unwrap();
        eventually("all ran, one after the other", async || seen.ran() == 25).await;
    })
    .await;
    db.finish().await;
}
