//! Tests that workers serve fair queues in turn. No tenant waits for another tenant's backlog.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use queue_core::{Context, Handler, Job as _, JobResult, JobState, job};
use queue_worker::{Config, Worker};
use serde::{Deserialize, Serialize};
use tests::{TestDb, eventually};

/// Tenant and number of each job, in the order in which the jobs ran.
type ServedJobs = Arc<Mutex<Vec<(u32, u32)>>>;

/// Fair job of a tenant, with a duration of `ms` milliseconds.
#[job(name = "fair_served", fair = self.tenant, send_only, state(ServedJobs))]
#[derive(Clone, Serialize, Deserialize)]
struct Serve {
    tenant: u32,
    n: u32,
    ms: u64,
}

impl Handler for Serve {
    async fn run(self, cx: &Context) -> JobResult {
        cx.state::<ServedJobs>().lock().unwrap().push((self.tenant, self.n));
        tokio::time::sleep(Duration::from_millis(self.ms)).await;
        Ok(())
    }
}

fn serve(tenant: u32, n: u32) -> Serve {
    Serve { tenant, n, ms: 0 }
}

fn worker(db: &TestDb, ran: &ServedJobs, concurrency: usize, batch: usize) -> Worker {
    let mut config = Config::default();
    (config.concurrency, config.batch) = (concurrency, batch);
    Worker::new(db.pool.clone()).config(config).register::<Serve>().state(Arc::clone(ran))
}

async fn until_ran(ran: &ServedJobs, count: usize) {
    eventually("all ran", async || ran.lock().unwrap().len() >= count).await;
}

#[tokio::test]
#[ignore = "deep"]
async fn small_tenants_do_not_wait_for_the_backlog_of_a_large_one() {
    let db = TestDb::new().await;
    let ran = ServedJobs::default();
    Serve::enqueue_all((0..2000).map(|n| serve(0, n)), &db.pool).await.unwrap();
    Serve::enqueue_all((1..=20).map(|tenant| serve(tenant, 0)), &db.pool).await.unwrap();
    db.run_while(worker(&db, &ran, 1, 10), until_ran(&ran, 200)).await;
    let ran = ran.lock().unwrap().clone();
    let last = ran.iter().rposition(|(tenant, ..)| *tenant != 0).unwrap();
    assert!(last < 60 && ran.iter().filter(|(tenant, ..)| *tenant != 0).count() == 20, "the last of the small ones was number {last}");
    let large: Vec<u32> = ran.iter().filter(|(tenant, ..)| *tenant == 0).map(|(_, n)| *n).collect();
    assert!(large.is_sorted(), "each fair queue in its order");
    db.finish().await;
}

#[tokio::test]
async fn a_higher_priority_goes_first_and_within_it_fair_queues_take_turns() {
    let db = TestDb::new().await;
    let ran = ServedJobs::default();
    for (priority, tenants) in [(100, 0..5), (150, 5..10)] {
        let jobs = tenants.flat_map(|tenant| (0..4).map(move |n| serve(tenant, n)));
        Serve::enqueue_all(jobs, &db.pool).priority(priority).await.unwrap();
    }
    db.run_while(worker(&db, &ran, 1, 5), until_ran(&ran, 40)).await;
    let ran: Vec<(u32, u32)> = ran.lock().unwrap().iter().map(|(tenant, n)| (*tenant, *n)).collect();
    assert!(ran[..20].iter().all(|(tenant, _)| *tenant >= 5), "{ran:?}");
    for turn in ran.chunks(5) {
        let mut tenants: Vec<u32> = turn.iter().map(|(tenant, _)| *tenant).collect();
        tenants.sort_unstable();
        assert!(tenants.windows(2).all(|pair| pair[0] + 1 == pair[1]), "one each: {ran:?}");
    }
    db.finish().await;
}

/// Job without a fair key.
#[job(name = "fair_plain", send_only, state(ServedJobs))]
#[derive(Serialize, Deserialize)]
struct Plain {
    n: u32,
}

impl Handler for Plain {
    async fn run(self, cx: &Context) -> JobResult {
        cx.state::<ServedJobs>().lock().unwrap().push((u32::MAX, self.n));
        Ok(())
    }
}

#[tokio::test]
async fn plain_and_fair_jobs_of_one_queue_follow_their_priorities_and_starve_no_other() {
    let db = TestDb::new().await;
    let ran = ServedJobs::default();
    Plain::enqueue_all((0..300).map(|n| Plain { n }), &db.pool).await.unwrap();
    Serve::enqueue_all((0..300).map(|n| serve(n % 3, n)), &db.pool).await.unwrap();
    Plain::enqueue_all((0..50).map(|n| Plain { n }), &db.pool).priority(150).await.unwrap();
    Serve::enqueue_all((0..50).map(|n| serve(7, n)), &db.pool).priority(200).await.unwrap();
    Serve::enqueue_all((0..50).map(|n| serve(8, n)), &db.pool).priority(30).await.unwrap();
    db.run_while(worker(&db, &ran, 1, 10).register::<Plain>(), until_ran(&ran, 750)).await;
    let ran: Vec<u32> = ran.lock().unwrap().iter().map(|(tenant, ..)| *tenant).collect();
    // Plain and fair jobs have separate claimers. A claim of up to ten jobs may therefore precede the other claimer's claim of higher
    // priority.
    assert!(ran[..60].iter().filter(|tenant| **tenant == 7).count() == 50, "200 first: {ran:?}");
    assert!(ran[..110].iter().filter(|tenant| **tenant == u32::MAX).count() >= 50, "then 150: {ran:?}");
    assert!(ran[690..].iter().filter(|tenant| **tenant == 8).count() == 50, "30 last: {ran:?}");
    let half = ran[100..400].iter().filter(|tenant| **tenant == u32::MAX).count();
    assert!((60..=240).contains(&half), "of equal priority both have their turns: {half} of 300 plain");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn of_ten_thousand_tenants_each_is_served_as_often_as_any_other() {
    const TENANTS: u32 = 10_000;
    let db = TestDb::new().await;
    let ran = ServedJobs::default();
    let jobs = (0..TENANTS).flat_map(|tenant| (0..if tenant % 100 == 0 { 30 } else { 3 }).map(move |n| serve(tenant, n)));
    Serve::enqueue_all(jobs, &db.pool).await.unwrap();
    let half = 2 * TENANTS as usize;
    db.run_while(worker(&db, &ran, 50, 500), async {
        tests::within(Duration::from_mins(1), "two each ran", async || ran.lock().unwrap().len() >= half).await;
    })
    .await;
    let mut served: HashMap<u32, f64> = (0..TENANTS).map(|tenant| (tenant, 0.0)).collect();
    for (tenant, ..) in &ran.lock().unwrap()[..half] {
        *served.entry(*tenant).or_default() += 1.0;
    }
    let (sum, squares) = served.values().fold((0.0, 0.0), |(sum, squares), n| (sum + n, squares + n * n));
    let jain = sum * sum / (f64::from(TENANTS) * squares);
    assert!(jain >= 0.98, "{jain}");
    db.finish().await;
}

/// Small tenants arrive one after the other while a large tenant has a backlog and occupies all slots.
#[tokio::test]
#[ignore = "deep"]
async fn beside_a_large_tenant_small_ones_wait_at_most_for_their_turn() {
    let db = TestDb::new().await;
    let ran = ServedJobs::default();
    let large = |n: u32| Serve { tenant: 0, n, ms: u64::from(25 + n * 37 % 51) };
    Serve::enqueue_all((0..2000).map(large), &db.pool).await.unwrap();
    db.run_while(worker(&db, &ran, 8, 100), async {
        until_ran(&ran, 20).await;
        for n in 0..20 {
            let before = ran.lock().unwrap().len();
            let job = Serve { tenant: 1 + n % 9, n, ms: 0 }.enqueue(&db.pool).await.unwrap().id();
            db.until(job, JobState::Completed).await;
            let place = ran.lock().unwrap().iter().position(|(tenant, other)| *tenant == 1 + n % 9 && *other == n).unwrap();
            assert!(place - before < 60, "{} of the large one began before it", place - before);
        }
        assert!(db.rows_of(&["ready"]).await > 200, "it had jobs waiting all the time");
        db.run("select queue.cancel_waiting_all(array(select id from queue.ready))").await;
    })
    .await;
    db.finish().await;
}
