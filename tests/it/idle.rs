//! Tests that a worker with any mix of features becomes idle when there is nothing to do. Apart from periodic statements, an idle worker
//! sends at most two statements a second. The features add at most two statements to the cost of a plain job.

use std::time::Duration;

use queue_core::{
    Context, Handler, Job as _, JobResult, JobState, Queue,
    batch::{BatchContext, BatchHandler, JobBatch},
    durable::Durable,
    job,
    operate::Scope,
    schedule::Schedule,
};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::Executor as _;
use tests::{Counted, TestDb, eventually};

macro_rules! jobs {
    ($($name:ident($($option:tt)*);)*) => {
        $(
            #[job(send_only, $($option)*)]
            #[derive(Default, Serialize, Deserialize)]
            struct $name {
                of: String,
            }

            impl Handler for $name {
                async fn run(self, _: &Context) -> JobResult {
                    Ok(())
                }
            }
        )*
    };
}

jobs! {
    Plain(name = "idle_plain");
    Limited(name = "idle_limited", limit(concurrency = 2));
    Keyed(name = "idle_keyed", limit(key = self.of, concurrency = 1));
    Rated(name = "idle_rated", limit(rate = "100/1s"));
    Fair(name = "idle_fair", fair = self.of);
    Ordered(name = "idle_ordered", key = self.of);
    Expiring(name = "idle_expiring", expires = "1h");
    Within(name = "idle_within", transactional);
    Paused(name = "idle_paused");
    Unserved(name = "idle_unserved");
}

#[job(name = "idle_batch", send_only, batch = 10)]
#[derive(Default, Serialize, Deserialize)]
struct Batch {
    of: String,
}

impl BatchHandler for Batch {
    async fn run(_: &mut JobBatch<Self>, _: &BatchContext) -> JobResult {
        Ok(())
    }
}

#[job(name = "idle_durable", send_only, durable)]
#[derive(Default, Serialize, Deserialize)]
struct Long {
    of: String,
}

impl Handler for Long {
    async fn run(self, cx: &Durable) -> JobResult {
        cx.step("one", async { Ok::<_, std::io::Error>(()) }).await
    }
}

/// Features, each represented by one bit of a mix.
const FEATURES: [&str; 13] =
    ["batch", "limited", "keyed", "rated", "fair", "ordered", "expiring", "within", "durable", "paused", "unserved", "schedule", "plain"];

/// Periodic statements, each of which a worker sends at most once a second, regardless of its features and jobs.
const PERIODIC: [&str; 11] = [
    include_str!("../../queue-worker/sql/any_hint.sql"),
    include_str!("../../queue-worker/sql/expired_leases.sql"),
    include_str!("../../queue-worker/sql/own_leases.sql"),
    include_str!("../../queue-worker/sql/heartbeat.sql"),
    include_str!("../../queue-worker/sql/limit_heartbeats.sql"),
    include_str!("../../queue-worker/sql/pauses.sql"),
    include_str!("../../queue-worker/sql/any_schedule.sql"),
    include_str!("../../queue-worker/sql/ticks.sql"),
    include_str!("../../queue-worker/sql/tally.sql"),
    include_str!("../../queue-worker/sql/roll_up.sql"),
    include_str!("../../queue-core/sql/unserved.sql"),
];

/// Statements that do not belong to a job. The first statement is a probe. A worker sends the probe before it sleeps, and while other
/// sessions have open transactions. The second statement is sent after a slow claim. The statements in [`SETTINGS`] change the settings
/// of a shared connection.
const OF_NO_JOB: [&str; 2] = [include_str!("../../queue-worker/sql/probe.sql"), include_str!("../../queue-worker/sql/extent.sql")];
const SETTINGS: [&str; 2] = ["set synchronous_commit", "reset synchronous_commit"];

const PROMOTE: &str = include_str!("../../queue-worker/sql/promote.sql");
const UNBLOCK: &str = include_str!("../../queue-worker/sql/unblock.sql");

/// Maximum number of statements that a job may cost in addition to its cost on a worker without features.
const MORE: usize = 2;

/// Number of most recently measured jobs whose costs are compared with [`MORE`]. While a snapshot is open on the server, for example in
/// another test, a worker scans all its lanes once a second. A statement does not show whether it belongs to a scan of all lanes, so only
/// [`MOST_OF_LAST`] of the jobs must stay within the bound.
const LAST: usize = 9;
const MOST_OF_LAST: usize = 5;

fn bit(name: &str) -> u32 {
    1 << FEATURES.iter().position(|known| *known == name).unwrap()
}

/// Returns the random mix of features that is seeded by the number in a test name, such as `m07`.
fn mix(name: &str) -> u32 {
    fastrand::Rng::with_seed(name[1..].parse().unwrap()).u32(1..1 << FEATURES.len())
}

fn names(mix: u32) -> String {
    let has = FEATURES.iter().enumerate().filter(|(bit, _)| mix & (1 << bit) != 0).map(|(_, name)| *name);
    has.collect::<Vec<_>>().join(" ")
}

/// Returns whether `text`, which may be truncated, is a prefix of one of the statements.
fn is_of(statements: &[&str], text: &str) -> bool {
    statements.iter().any(|statement| statement.starts_with(text))
}

/// Waits until, within half a second, a worker sends each periodic statement at most once, and at most one other statement.
async fn come_to_rest(counted: &Counted, mix: u32) {
    let mut all = Vec::new();
    for _ in 0..60 {
        counted.take();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let sent = counted.take();
        let (clock, others): (Vec<_>, Vec<_>) = sent.iter().partition(|(text, _)| is_of(&PERIODIC, text));
        if clock.iter().all(|(_, count)| **count <= 1) && others.iter().map(|(_, count)| **count).sum::<usize>() <= 1 {
            return;
        }
        all.push(sent);
    }
    panic!("{}: it never comes to rest: {all:#?}", names(mix));
}

/// Runs one plain job. Returns the number of statements until the worker is idle again.
async fn cost(db: &TestDb, counted: &Counted) -> usize {
    Plain::default().enqueue(&db.pool).await.unwrap();
    all_are_over(db).await;
    let is_of_job =
        |text: &str| !is_of(&PERIODIC, text) && !is_of(&OF_NO_JOB, text) && !SETTINGS.iter().any(|setting| text.starts_with(setting));
    let mut cost = 0;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(70)).await;
        let sent = counted.take();
        let more: usize = sent.iter().filter(|(text, _)| is_of_job(text)).map(|(_, count)| count).sum();
        cost += more;
        if more == 0 {
            break;
        }
    }
    cost
}

async fn all_are_over(db: &TestDb) {
    let left = "select count(*) from queue.jobs where state in ('ready', 'running') and job_type not in ('idle_paused', 'idle_unserved')";
    eventually("all have finished", async || db.count(left).await == 0).await;
}

/// Returns the cost of a job on a worker without features: the maximum of three measurements.
async fn cost_alone(db: &TestDb, counted: &Counted) -> usize {
    let worker = Worker::new(counted.pool.clone()).register::<Plain>();
    let costs = async {
        come_to_rest(counted, bit("plain")).await;
        cost(db, counted).await.max(cost(db, counted).await).max(cost(db, counted).await)
    };
    db.run_while(worker, costs).await
}

/// Runs a worker with the features of the mix. The worker first runs one job of each feature, and then plain jobs one by one. Checks that
/// most of the last plain jobs cost at most [`MORE`] statements more than on a worker without features.
async fn serve(mix: u32) {
    let db = TestDb::new().await;
    let counted = Counted::start(&db.url);
    let alone = cost_alone(&db, &counted).await;
    let has = |name: &str| mix & bit(name) != 0;
    let mut worker = Worker::new(counted.pool.clone()).register::<Plain>();
    macro_rules! serve {
        ($($name:literal $job:ident),*) => {
            $(if has($name) {
                worker = worker.register::<$job>();
                $job::default().enqueue(&db.pool).await.unwrap();
            })*
        };
    }
    serve!("limited" Limited, "keyed" Keyed, "rated" Rated, "fair" Fair, "ordered" Ordered, "expiring" Expiring, "within" Within);
    serve!("durable" Long);
    if has("batch") {
        worker = worker.register_batch::<Batch>();
        Batch::default().enqueue(&db.pool).await.unwrap();
    }
    if has("paused") {
        worker = worker.register::<Paused>();
        Paused::default().enqueue(&db.pool).queue("paused").await.unwrap();
        Queue::new(&db.pool).pause(&Scope::queue("paused")).await.unwrap();
    }
    if has("unserved") {
        Unserved::default().enqueue(&db.pool).await.unwrap();
    }
    if has("schedule") {
        worker = worker.schedule("often", Schedule::every(Duration::from_secs(10)).job(&Plain::default()));
    }
    db.run_while(worker, async {
        all_are_over(&db).await;
        let mut costs = Vec::new();
        while costs.iter().rev().take(LAST).filter(|cost| **cost <= alone + MORE).count() < MOST_OF_LAST {
            assert!(costs.len() < 40, "{}: of each single job, where it is {alone} alone: {costs:?}", names(mix));
            costs.push(cost(&db, &counted).await);
        }
        come_to_rest(&counted, mix).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn an_ordering_key_whose_next_job_is_locked_is_polled_a_few_times_a_second() {
    let db = TestDb::new().await;
    let counted = Counted::start(&db.url);
    for _ in 0..2 {
        Ordered::default().enqueue(&db.pool).await.unwrap();
    }
    let mut held = db.pool.begin().await.unwrap();
    held.execute("select from queue.blocked for update").await.unwrap();
    let worker = Worker::new(counted.pool.clone()).register::<Ordered>();
    db.run_while(worker, async {
        all_are_over(&db).await;
        eventually("it polls a few times a second", async || {
            counted.take();
            tokio::time::sleep(Duration::from_millis(500)).await;
            counted.take().iter().filter(|(text, _)| is_of(&[UNBLOCK], text)).map(|(_, count)| count).sum::<usize>() <= 6
        })
        .await;
        assert_eq!(1, db.count("select count(*) from queue.blocked").await);
        held.rollback().await.unwrap();
        db.until_count("select count(*) from queue.blocked", 0).await;
        all_are_over(&db).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_due_job_that_a_session_has_locked_is_polled_a_few_times_a_second() {
    let db = TestDb::new().await;
    let counted = Counted::start(&db.url);
    let locked = Plain::default().enqueue(&db.pool).after(Duration::from_hours(1)).await.unwrap().id();
    let mut held = db.pool.begin().await.unwrap();
    sqlx::query("update queue.scheduled set run_at = now() - interval '1 s'").execute(&db.pool).await.unwrap();
    held.execute("select from queue.scheduled for update").await.unwrap();
    let worker = Worker::new(counted.pool.clone()).register::<Plain>();
    db.run_while(worker, async {
        // The lock on scheduled jobs does not delay ready jobs.
        let other = Plain::default().enqueue(&db.pool).await.unwrap().id();
        db.until(other, JobState::Completed).await;
        eventually("it polls a few times a second", async || {
            counted.take();
            tokio::time::sleep(Duration::from_millis(500)).await;
            counted.take().iter().filter(|(text, _)| is_of(&[PROMOTE], text)).map(|(_, count)| count).sum::<usize>() <= 4
        })
        .await;
        held.rollback().await.unwrap();
        db.until(locked, JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

macro_rules! tests {
    ($serve:ident $attributes:tt: $($name:ident)*) => {
        $(tests!(@ $serve $attributes $name);)*
    };
    (@ $serve:ident [$($attribute:tt)*] $name:ident) => {
        #[tokio::test]
        $($attribute)*
        async fn $name() {
            super::serve(super::$serve(stringify!($name))).await;
        }
    };
}

mod a_worker_becomes_idle_beside {
    tests!(bit []: batch limited keyed rated fair ordered expiring within durable paused unserved schedule plain);
}

/// The mixes are seeded by the test names, so that each run tests the same fifty mixes. The first twelve contain nearly every pair of
/// features; `cargo deep` runs all but the first four.
mod a_worker_becomes_idle_with_any_features {
    tests!(mix []: m00 m01 m02 m03);
    tests!(mix [#[ignore = "deep"]]: m04 m05 m06 m07 m08 m09 m10 m11 m12 m13 m14 m15 m16 m17 m18 m19 m20 m21 m22 m23 m24 m25 m26 m27 m28 m29 m30);
    tests!(mix [#[ignore = "deep"]]: m31 m32 m33 m34 m35 m36 m37 m38 m39 m40 m41 m42 m43 m44 m45 m46 m47 m48 m49);
}
