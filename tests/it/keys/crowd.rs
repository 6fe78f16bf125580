//! Tests many keys and producers with delayed commits, failures, dead letters and killed workers. No job of a key begins before all
//! jobs of the key that committed earlier have ended.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use queue_core::{Batch, Job as _, JobId, JobRef};
use tests::{Ordered, RUNS, TestDb, WorkerProcess, violations, within};

use sqlx::Connection as _;

/// Numbers of keys, jobs per key, producers, workers and kills, the interval between kills, and the timeout for the remaining jobs.
#[derive(Clone, Copy)]
struct Size {
    keys: u32,
    each: u32,
    producers: u32,
    workers: usize,
    kills: usize,
    between: Duration,
    patience: Duration,
}

const BINARY: &str = env!("CARGO_BIN_EXE_test-worker");

#[tokio::test]
#[ignore = "deep"]
async fn jobs_of_a_key_run_in_commit_order_even_if_workers_crash() {
    crowd(Size {
        keys: 30,
        each: 30,
        producers: 6,
        workers: 3,
        kills: 3,
        between: Duration::from_millis(400),
        patience: Duration::from_mins(1),
    })
    .await;
}

/// Manual test: `cargo test -p tests --test it keys::crowd -- --ignored --nocapture`.
#[tokio::test]
#[ignore = "by hand: takes a minute or two"]
async fn the_same_with_200_keys_200_jobs_each_and_6_workers() {
    crowd(Size {
        keys: 200,
        each: 200,
        producers: 16,
        workers: 6,
        kills: 30,
        between: Duration::from_secs(1),
        patience: Duration::from_mins(8),
    })
    .await;
}

/// Commit order of the jobs, recorded just before each commit, while the transaction still holds the locks on its keys.
#[derive(Default)]
struct Commits {
    next: AtomicU64,
    of_key: Mutex<BTreeMap<u32, Vec<(u64, JobId)>>>,
}

async fn crowd(size: Size) {
    let db = TestDb::new().await;
    db.run(RUNS).await;
    let settings = [("CONCURRENCY", "10")];
    let mut workers: Vec<WorkerProcess> = (0..size.workers).map(|_| WorkerProcess::start(BINARY, &db.url, &settings)).collect();
    let commits = Arc::new(Commits::default());
    let left = Arc::new(Mutex::new((0..size.keys).flat_map(|key| std::iter::repeat_n(key, size.each as usize)).collect::<Vec<_>>()));
    fastrand::shuffle(&mut left.lock().unwrap());
    let producers: Vec<_> =
        (0..size.producers).map(|_| tokio::spawn(produce(db.url.clone(), Arc::clone(&left), Arc::clone(&commits)))).collect();
    let mut killed = 0;
    for place in 0..size.kills {
        tokio::time::sleep(size.between).await;
        let worker = &mut workers[place % size.workers];
        worker.signal("KILL");
        worker.wait();
        db.run(&format!("update queue.worker set expires_at = now() - interval '1 s' where pid = {}", worker.pid())).await;
        *worker = WorkerProcess::start(BINARY, &db.url, &settings);
        killed += 1;
    }
    for producer in producers {
        producer.await.unwrap();
    }
    // Requeue the dead letters that block their keys, as an operator would. Other dead letters stay.
    within(size.patience, "every key has gone on to its end", async || {
        raise(&db).await;
        db.count("select count(*) from queue.blocked").await
            + db.count("select count(*) from queue.jobs where state in ('ready', 'scheduled', 'running')").await
            + db.count("select count(*) from queue.active_key").await
            == 0
    })
    .await;
    drop(workers);
    let mut committed = BTreeMap::new();
    for (key, mut jobs) in std::mem::take(&mut *commits.of_key.lock().unwrap()) {
        jobs.sort_unstable();
        assert_eq!(jobs.len(), size.each as usize);
        committed.insert(key, jobs.into_iter().map(|(_, job)| job).collect::<Vec<_>>());
    }
    let (wrong, lines) = violations(&db.pool, &committed).await.unwrap();
    println!("{} jobs of {} keys, {killed} workers killed, {lines} lines", size.keys * size.each, size.keys);
    assert!(wrong.is_empty(), "{} violations, such as\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
    db.finish().await;
}

/// Enqueues the remaining jobs, a few per transaction. Each transaction stays open for up to 20 ms. Some transactions are rolled back and
/// retried.
async fn produce(url: String, left: Arc<Mutex<Vec<u32>>>, commits: Arc<Commits>) {
    let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
    loop {
        let keys: Vec<u32> = {
            let mut left = left.lock().unwrap();
            let rest = left.len().saturating_sub(fastrand::usize(1..=4));
            left.drain(rest..).collect()
        };
        if keys.is_empty() {
            return;
        }
        loop {
            let mut tx = connection.begin().await.unwrap();
            let ids = enqueue(&mut tx, &keys).await;
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..=20))).await;
            if fastrand::u8(0..10) == 0 {
                tx.rollback().await.unwrap();
                continue;
            }
            let place = commits.next.fetch_add(1, Relaxed);
            tx.commit().await.unwrap();
            let mut of_key = commits.of_key.lock().unwrap();
            for (key, id) in keys.iter().zip(ids) {
                of_key.entry(*key).or_default().push((place, id));
            }
            break;
        }
    }
}

async fn enqueue(tx: &mut sqlx::PgConnection, keys: &[u32]) -> Vec<JobId> {
    let job = |key| Ordered { key, ms: 2, fails: 10, dies: fastrand::u8(0..100) == 0 };
    if let [key] = keys {
        let handle = job(*key).enqueue(tx).key_policy(Ordered::policy(*key)).await.unwrap();
        return vec![handle.id()];
    }
    // A batch locks its keys in a consistent order, so that concurrent producers do not deadlock.
    let mut batch = Batch::new();
    for key in keys {
        batch.add(job(*key)).unwrap().key_policy(Ordered::policy(*key));
    }
    batch.enqueue(tx).await.unwrap()
}

/// Requeues the dead letters that block their keys.
async fn raise(db: &TestDb) {
    let holding: Vec<JobId> = db.all("select d.id from queue.dead d join queue.active_key a on a.id = d.id").await;
    let mut connection = db.pool.acquire().await.unwrap();
    for id in holding {
        JobRef::from_id(id).requeue(&mut connection).await.unwrap();
    }
}
