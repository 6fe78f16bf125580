//! Measures the throughput of a Citus node, compared with plain PostgreSQL.

use std::time::{Duration, Instant};

use queue_core::Job as _;
use tests::{TestDb, within};

use super::{
    cluster,
    kinds::{Echo, worker},
    pool,
};

/// Number of jobs that are enqueued in one call, in addition to the single enqueues.
const JOBS: i64 = 8_000;

/// Returns the number of single enqueues per second, and the number of job runs per second.
async fn rates(db: &TestDb, url: &str) -> (f64, f64) {
    let on = pool(url);
    let began = Instant::now();
    let producers = (0..4).map(|_| {
        let on = on.clone();
        tokio::spawn(async move {
            for n in 0..500 {
                Echo { n }.enqueue(&on).await.unwrap();
            }
        })
    });
    for producer in producers.collect::<Vec<_>>() {
        producer.await.unwrap();
    }
    let enqueued = 2000.0 / began.elapsed().as_secs_f64();
    Echo::enqueue_all((0..JOBS).map(|n| Echo { n }), &on).await.unwrap();
    let began = Instant::now();
    let ran = db
        .run_while(worker(&on).concurrency(200), async {
            within(Duration::from_mins(1), "all ran", async || db.count("select count(*) from queue.ready").await == 0).await;
            within(Duration::from_mins(1), "all are settled", async || db.count("select count(*) from queue.lease").await == 0).await;
            (JOBS as f64 + 2000.0) / began.elapsed().as_secs_f64()
        })
        .await;
    on.close().await;
    (enqueued, ran)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_reaches_two_fifths_of_the_throughput_of_plain_postgresql() {
    let (mut plain, mut node, mut any) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..2 {
        let Some(db) = cluster("the rate of a node").await else { return };
        let beside = TestDb::new().await;
        plain.push(rates(&beside, &beside.url).await);
        let owner = super::owner(&db).await;
        node.push(rates(&db, &owner).await);
        beside.finish().await;
        db.finish().await;
        let db = TestDb::on_citus().await.unwrap();
        any.push(rates(&db, &db.url).await);
        db.finish().await;
    }
    let best = |all: &[(f64, f64)]| all.iter().fold((0.0_f64, 0.0_f64), |best, rate| (best.0.max(rate.0), best.1.max(rate.1)));
    let (plain, node, any) = (best(&plain), best(&node), best(&any));
    eprintln!("enqueued one by one, and run, a second: plain {plain:?}, its node {node:?}, the coordinator {any:?}");
    assert!(node.0 >= 0.4 * plain.0 && node.1 >= 0.4 * plain.1, "{node:?} of {plain:?}");
}
