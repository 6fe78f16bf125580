//! Tests that a store can be moved to another node while the store is in use.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use queue_core::{Context, Handler, Job as _, JobResult, Store, job, runner::locate};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, PgPool};
use tests::{TestDb, within};

use super::{cluster, pool};

/// Job whose handler counts its runs.
#[job(name = "counted")]
#[derive(Serialize, Deserialize)]
pub(super) struct Counted {
    pub(super) n: i64,
}

/// Number of runs per job number, and the time of each run.
type Runs = (Option<HashMap<i64, u32>>, Vec<Instant>);

static RUNS: Mutex<Runs> = Mutex::new((None, Vec::new()));

impl Handler for Counted {
    async fn run(self, _: &Context) -> JobResult {
        let mut runs = RUNS.lock().unwrap();
        *runs.0.get_or_insert_default().entry(self.n).or_default() += 1;
        runs.1.push(Instant::now());
        Ok(())
    }
}

/// Enqueues jobs one after another until `stop` is set. Returns the acknowledged job numbers, the times of the acknowledgements, and the
/// error messages of rejected enqueues.
pub(super) async fn produce(pool: PgPool, store: Store, from: i64, stop: Arc<AtomicBool>) -> (Vec<i64>, Vec<Instant>, Vec<String>) {
    let (mut acknowledged, mut times, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for n in from.. {
        if stop.load(Relaxed) {
            break;
        }
        match (Counted { n }).enqueue(&pool).store(store).await {
            Ok(_) => {
                acknowledged.push(n);
                times.push(Instant::now());
            }
            Err(error) => refused.push(error.to_string()),
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    (acknowledged, times, refused)
}

/// Returns whether the job with number `n` has run.
pub(super) fn ran(n: i64) -> bool {
    RUNS.lock().unwrap().0.as_ref().is_some_and(|runs| runs.contains_key(&n))
}

pub(super) fn longest_gap(times: &[Instant]) -> Duration {
    times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}

pub(super) async fn port(db: &TestDb) -> u16 {
    locate(&mut db.pool.acquire().await.unwrap(), Store::default()).await.unwrap().unwrap().node.port()
}

/// Moves the store to another node. Returns the duration of the move.
async fn move_schema(db: &TestDb, host: &str, port: i32) -> Duration {
    let moving = format!("select citus_schema_move('queue', '{host}', {port})");
    let mut began = Instant::now();
    within(Duration::from_mins(1), "the leftovers of the previous move are removed", async || {
        // Removes the shards that the previous move left behind, because Citus itself may take up to a minute to remove them. The call
        // skips shards that a session has locked, and Citus rejects a move while such shards exist.
        sqlx::raw_sql("call citus_cleanup_orphaned_resources()").execute(&db.pool).await.unwrap();
        began = Instant::now();
        match sqlx::raw_sql(AssertSqlSafe(moving.clone())).execute(&db.pool).await {
            Err(error) if error.to_string().contains("orphaned shard") => false,
            moved => moved.map(|_| true).unwrap(),
        }
    })
    .await;
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_moves_while_in_use() {
    let Some(db) = cluster("a store that moves").await else { return };
    let pools: Vec<PgPool> = db.urls().iter().map(|url| pool(url)).collect();
    let worker = || Worker::new(pools[0].clone()).register::<Counted>().lease_ttl(Duration::from_secs(5)).grace(Duration::from_secs(2));
    db.run_while(worker(), async {
        for round in 0..3 {
            let stop = Arc::new(AtomicBool::new(false));
            let producers: Vec<_> = (0..3)
                .map(|nr| {
                    tokio::spawn(produce(
                        pools[nr].clone(),
                        Store::default(),
                        round * 10_000_000 + i64::try_from(nr).unwrap() * 1_000_000,
                        Arc::clone(&stop),
                    ))
                })
                .collect();
            tokio::time::sleep(Duration::from_secs(2)).await;
            let before = port(&db).await;

            let nodes: Vec<(String, i32)> =
                sqlx::query_as("select nodename::text, nodeport from pg_dist_node where groupid > 0").fetch_all(&db.pool).await.unwrap();

            let (host, to) = nodes.iter().find(|(_, at)| *at != i32::from(before)).unwrap();
            let took = move_schema(&db, host, *to).await;
            eprintln!("round {round}: moved from {before} to {to} in {took:?}");
            tokio::time::sleep(Duration::from_secs(3)).await;
            stop.store(true, Relaxed);
            let mut acknowledged = Vec::new();
            for (nr, producer) in producers.into_iter().enumerate() {
                let (acked, times, refused) = producer.await.unwrap();
                eprintln!(
                    "round {round}: producer at node {nr}: {} enqueued, longest gap {:?}, refused {}: {:?}",
                    acked.len(),
                    longest_gap(&times),
                    refused.len(),
                    refused.iter().max()
                );
                acknowledged.extend(acked);
            }
            within(Duration::from_secs(30), "all ran", async || {
                let runs = RUNS.lock().unwrap();
                acknowledged.iter().all(|n| runs.0.as_ref().is_some_and(|runs| runs.contains_key(n)))
            })
            .await;
            within(Duration::from_secs(30), "all are settled", async || db.count("select count(*) from queue.lease").await == 0).await;
            let (doubled, pause) = {
                let mut runs = RUNS.lock().unwrap();
                let doubled: Vec<i64> = runs.0.take().unwrap().into_iter().filter(|(_, times)| *times > 1).map(|(n, _)| n).collect();
                (doubled, longest_gap(&std::mem::take(&mut runs.1)))
            };
            eprintln!("round {round}: {} acknowledged, {} doubled, longest pause {pause:?}", acknowledged.len(), doubled.len());
            assert!(doubled.is_empty(), "{doubled:?}");
            assert!(pause < Duration::from_secs(3), "{pause:?}");
        }
    })
    .await;
    for pool in pools {
        pool.close().await;
    }
    db.finish().await;
}
