//! Whatever a worker serves, it comes to rest when there is nothing to do: it looks for jobs no more than twice a second. Nor does a job cost more
//! looks for what else is served.

use std::{collections::BTreeMap, time::Duration};

use queue_core::{
    BatchContext, BatchHandler, Context, Durable, Handler, Job as _, JobBatch, JobResult, Store, job,
    operate::{self, Scope},
    schedule::Schedule,
};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
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

/// Features by a bit each.
const FEATURES: [&str; 13] =
    ["batch", "limited", "keyed", "rated", "fair", "ordered", "expiring", "within", "durable", "paused", "unserved", "schedule", "plain"];

/// What looks for jobs, by how it begins. All else is asked for once a second or less, whatever is served.
const LOOKS: [&str; 6] = [
    "-- ready -> lease",
    "-- ready -> ready, in lines",
    "-- The lanes born",
    "-- blocked -> ready",
    "-- scheduled | parked -> ready",
    GLANCE,
];

/// It is made by the clock, whatever jobs there are.
const GLANCE: &str = "-- What could end an idle worker";

/// Of a job, two more than where a worker serves nothing but it, which makes two or three.
const MOST: usize = 5;

fn bit(name: &str) -> u32 {
    1 << FEATURES.iter().position(|known| *known == name).unwrap()
}

/// The features of the mix of this name.
fn mix(name: &str) -> u32 {
    fastrand::Rng::with_seed(name[1..].parse().unwrap()).u32(1..1 << FEATURES.len())
}

fn names(mix: u32) -> String {
    let has = FEATURES.iter().enumerate().filter(|(bit, _)| mix & (1 << bit) != 0).map(|(_, name)| *name);
    has.collect::<Vec<_>>().join(" ")
}

/// What was sent of these, and how often.
fn looks(counted: &Counted) -> BTreeMap<String, usize> {
    let mut sent = counted.take();
    sent.retain(|text, _| LOOKS.iter().any(|look| text.starts_with(look)));
    sent
}

/// Waits until a worker looks for jobs no more than twice a second.
async fn come_to_rest(counted: &Counted, mix: u32) {
    let mut all = Vec::new();
    for _ in 0..60 {
        looks(counted);
        tokio::time::sleep(Duration::from_millis(500)).await;
        let last = looks(counted);
        if last.values().sum::<usize>() <= 1 {
            return;
        }
        all.push(last);
    }
    panic!("{}: it never comes to rest: {all:#?}", names(mix));
}

/// A worker that serves this mix has a job of each type, and then plain ones, one by one. Soon three of nine of these cost no more than they should.
async fn serve(mix: u32) {
    let db = TestDb::new().await;
    let counted = Counted::start(&db.url);
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
        operate::pause(&db.pool, Store::default(), &Scope::queue("paused"), None).await.unwrap();
    }
    if has("unserved") {
        Unserved::default().enqueue(&db.pool).await.unwrap();
    }
    if has("schedule") {
        worker = worker.schedule("hourly", Schedule::every(Duration::from_hours(1)).job(&Plain::default()));
    }
    db.run_while(worker, async {
        let left =
            "select count(*) from queue.jobs where state in ('ready', 'running') and job_type not in ('idle_paused', 'idle_unserved')";
        eventually("all are over", async || db.count(left).await == 0).await;
        // Once a second a worker looks at all its lanes while a snapshot is open on the server, and those of other tests are.
        let few = |each: &[usize]| each.iter().rev().take(9).filter(|looks| **looks <= MOST).count() >= 3;
        let mut each = Vec::new();
        while !few(&each) {
            assert!(each.len() < 40, "{}: looks for each single job: {each:?}", names(mix));
            looks(&counted);
            Plain::default().enqueue(&db.pool).await.unwrap();
            eventually("it is over", async || db.count(left).await == 0).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            each.push(looks(&counted).iter().filter(|(look, _)| !look.starts_with(GLANCE)).map(|(_, count)| count).sum::<usize>());
        }
        come_to_rest(&counted, mix).await;
    })
    .await;
    db.finish().await;
}

macro_rules! tests {
    ($serve:ident: $($name:ident)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                super::serve(super::$serve(stringify!($name))).await;
            }
        )*
    };
}

mod a_worker_comes_to_rest_beside {
    tests!(bit: batch limited keyed rated fair ordered expiring within durable paused unserved schedule plain);
}

/// Seeded by their names, so that each run plays the same fifty.
mod a_worker_comes_to_rest_whatever_it_serves {
    tests!(mix: m00 m01 m02 m03 m04 m05 m06 m07 m08 m09 m10 m11 m12 m13 m14 m15 m16 m17 m18 m19 m20 m21 m22 m23 m24);
    tests!(mix: m25 m26 m27 m28 m29 m30 m31 m32 m33 m34 m35 m36 m37 m38 m39 m40 m41 m42 m43 m44 m45 m46 m47 m48 m49);
}
