//! Shows why a worker must not sleep as soon as it has announced its sleep. The same sequence of steps runs once with a plain flag, which
//! misses a job, and once with the product's protocol. Each step is explicit, so nothing depends on timing.

use std::time::Duration;

use queue_core::{Job as _, JobId, JobState};
use queue_worker::{Config, Worker};
use sqlx::{Connection as _, PgConnection, postgres::PgListener};
use tests::{
    Act, Do, TestDb, eventually,
    protocol::{claim, horizon, register, sleep},
};
use uuid::Uuid;

/// Race between a producer and a worker. The producer has checked for sleepers, found none, and still has an open transaction. The worker
/// is about to sleep.
struct Race {
    db: TestDb,
    producer: PgConnection,
    job: JobId,
    connection: PgConnection,
    worker: Uuid,
    listener: PgListener,
}

impl Race {
    async fn begin() -> Self {
        let db = TestDb::new().await;
        // A first job creates the lane, so the worker could claim the producer's job if that job were visible.
        Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).await.unwrap();
        sqlx::raw_sql("truncate queue.job, queue.ready").execute(&db.pool).await.unwrap();
        let listener = db.listen("wake").await;
        let mut connection = PgConnection::connect(&db.url).await.unwrap();
        let worker = register(&mut connection).await.unwrap();
        let mut producer = PgConnection::connect(&db.url).await.unwrap();
        sqlx::raw_sql("begin").execute(&mut producer).await.unwrap();
        let job = Do { act: Act::Ok(String::new()) }.enqueue(&mut producer).await.unwrap().id();
        Self { db, producer, job, connection, worker, listener }
    }

    async fn claims(&mut self) -> Vec<JobId> {
        claim(&mut self.connection, self.worker, 10).await.unwrap().ids()
    }

    async fn announce(&mut self) {
        sleep(&mut self.connection, self.worker, &["*"]).await.unwrap();
    }

    async fn commit(&mut self) {
        sqlx::raw_sql("commit").execute(&mut self.producer).await.unwrap();
    }

    /// Returns whether a notification arrives before a marker that this function sends. Notifications arrive in commit order, so none is
    /// outstanding when the marker arrives.
    async fn is_woken(&mut self) -> bool {
        sqlx::query("select queue.notify('wake', 'the end')").execute(&self.db.pool).await.unwrap();
        let mut woken = false;
        while self.listener.recv().await.unwrap().payload() != "the end" {
            woken = true;
        }
        woken
    }
}

#[tokio::test]
async fn a_plain_flag_misses_a_job_whose_transaction_is_open_while_it_is_set() {
    for checks_again in [false, true] {
        let mut race = Race::begin().await;
        assert_eq!(race.claims().await, []);
        race.announce().await;
        if checks_again {
            assert_eq!(race.claims().await, [], "not committed yet");
        }
        // A worker with a plain flag would be asleep from here on.
        race.commit().await;
        assert!(!race.is_woken().await, "the producer saw no sleeper");
        assert_eq!(race.db.state(race.job).await, Some(JobState::Ready), "the job is ready, and no worker claims it");
        assert_eq!(race.claims().await, [race.job], "until a worker polls");
        Do { act: Act::Ok(String::new()) }.enqueue(&race.db.pool).await.unwrap();
        assert!(race.is_woken().await, "a later producer sees the flag");
        race.db.finish().await;
    }
}

#[tokio::test]
async fn our_flag_does_not_miss_the_job_under_the_same_schedule() {
    let mut race = Race::begin().await;
    assert_eq!(race.claims().await, []);
    race.announce().await;
    let (_, xmax) = horizon(&mut race.connection).await.unwrap();
    assert_eq!(race.claims().await, [], "not committed yet");
    for _ in 0..3 {
        let (xmin, _) = horizon(&mut race.connection).await.unwrap();
        assert!(xmin < xmax, "a producer may have missed the flag: no sleep yet");
    }
    race.commit().await;
    assert!(!race.is_woken().await, "the producer saw no sleeper");
    // The worker also waits for transactions in other databases of the server, so it may not be able to sleep immediately after the
    // commit.
    eventually("all who may have missed it have ended", async || horizon(&mut race.connection).await.unwrap().0 >= xmax).await;
    // The worker probes once more before it sleeps.
    assert_eq!(race.claims().await, [race.job]);
    race.db.finish().await;
}

#[tokio::test]
async fn a_worker_does_not_miss_the_job_under_the_same_schedule() {
    let mut race = Race::begin().await;
    let mut config = Config::default();
    config.poll_interval = Duration::from_hours(1);
    let worker = Worker::new(race.db.pool.clone()).config(config).register::<Do>();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(worker.run(async { drop(stopped.await) }));
    eventually("it has announced its sleep", async || race.db.count("select count(*) from queue.idle").await == 1).await;
    race.commit().await;
    race.db.until(race.job, JobState::Completed).await;
    assert!(!race.is_woken().await, "it was not notified");
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
    race.db.finish().await;
}
