//! Tests heartbeats, and jobs whose worker process has crashed. These jobs are quarantined and run apart from other jobs.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    time::Duration,
};

use queue_core::{Context, Handler, Job as _, JobId, JobResult, JobState, Store, job};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, PgConnection};
use tests::{
    Act, Do, TestDb, WorkerProcess, effects, eventually,
    protocol::{claim, recover, register, settle, silence},
};

/// Claims `jobs` with a new worker, simulates a crash of its process, and recovers the jobs.
async fn crash(connection: &mut PgConnection, jobs: &[JobId]) {
    let worker = register(connection).await.unwrap();
    assert_eq!(claim(connection, worker, 1000).await.unwrap().ids(), jobs);
    silence(connection, worker).await.unwrap();
    assert_eq!(recover(connection).await.unwrap(), i64::try_from(jobs.len()).unwrap());
}

async fn enqueue(db: &TestDb, act: Act) -> JobId {
    Do { act }.enqueue(&db.pool).await.unwrap().id()
}

#[tokio::test]
async fn a_recovered_job_is_alone_in_a_solo_lane_with_its_crash_and_its_attempt() {
    let db = TestDb::new().await;
    let mut connection = PgConnection::connect(&db.url).await.unwrap();
    let jobs = [enqueue(&db, Act::Panic).await, Do { act: Act::Panic }.enqueue(&db.pool).priority(7).queue("mail").await.unwrap().id()];
    crash(&mut connection, &jobs[..1].iter().chain(&jobs[1..]).copied().collect::<Vec<_>>()).await;
    let waiting: Vec<(JobId, bool, String, String, i16, i16, i16)> = sqlx::query_as(
        "select r.id, l.solo, l.queue, l.job_type, l.priority, r.attempts, r.crashes
         from queue.ready r join queue.lane l on l.lane = r.lane order by r.id",
    )
    .fetch_all(&db.pool)
    .await
    .unwrap();
    let row = |id, queue: &str, priority| (id, true, queue.to_owned(), "do".to_owned(), priority, 1, 1);
    assert_eq!(waiting, [row(jobs[0], "default", 100), row(jobs[1], "mail", 7)]);
    db.finish().await;
}

#[tokio::test]
async fn f50_the_third_crash_makes_a_dead_letter_with_its_failures() {
    let db = TestDb::new().await;
    let mut connection = PgConnection::connect(&db.url).await.unwrap();
    let job = enqueue(&db, Act::Panic).await;
    for crashes in 1..=3 {
        assert_eq!(db.state(job).await, Some(JobState::Ready), "before crash {crashes}");
        crash(&mut connection, &[job]).await;
    }
    let dead: (i16, i16, String) =
        sqlx::query_as("select attempts, crashes, error from queue.dead where id = $1").bind(job).fetch_one(&db.pool).await.unwrap();
    assert_eq!(dead, (3, 3, "the process ended during the attempt, 3 times".to_owned()));
    let history: Vec<(i16, String)> = sqlx::query_as("select attempt, error from queue.failure where id = $1 order by attempt")
        .bind(job)
        .fetch_all(&db.pool)
        .await
        .unwrap();
    assert_eq!(history, [1, 2, 3].map(|attempt| (attempt, "the process ended during the attempt".to_owned())));
    assert_eq!(db.count("select count(*) from queue.ready").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn crashes_still_count_after_failures_and_releases() {
    let db = TestDb::new().await;
    let mut connection = PgConnection::connect(&db.url).await.unwrap();
    let job = enqueue(&db, Act::Panic).await;
    crash(&mut connection, &[job]).await;
    let worker = register(&mut connection).await.unwrap();
    for verdict in ["release", "retry"] {
        let lease = claim(&mut connection, worker, 1).await.unwrap();
        assert_eq!((lease.jobs[0].attempts, lease.jobs[0].crashes), (2, 1), "before the {verdict}");
        assert_eq!(settle(&mut connection, &lease.all(verdict)).await.unwrap(), []);
    }
    let left: (i16, i16, bool) =
        sqlx::query_as("select s.attempts, s.crashes, l.solo from queue.scheduled s join queue.lane l on l.lane = s.lane")
            .fetch_one(&db.pool)
            .await
            .unwrap();
    assert_eq!(left, (2, 1, true), "still under suspicion");
    db.finish().await;
}

/// Job that detects whether other jobs are running at the same time.
#[job(timeout = "5s")]
#[derive(Serialize, Deserialize)]
struct Beside {
    suspect: bool,
}

static QUARANTINED: AtomicUsize = AtomicUsize::new(0);
static OTHERS: AtomicUsize = AtomicUsize::new(0);
/// Numbers of ordinary jobs, and of other quarantined jobs, seen running next to a quarantined job.
static DISTURBED: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

impl Handler for Beside {
    async fn run(self, _: &Context) -> JobResult {
        let kind = if self.suspect { &QUARANTINED } else { &OTHERS };
        kind.fetch_add(1, SeqCst);
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(3)).await;
            if self.suspect {
                DISTURBED[0].fetch_add(OTHERS.load(SeqCst), SeqCst);
                DISTURBED[1].fetch_add(QUARANTINED.load(SeqCst) - 1, SeqCst);
            }
        }
        kind.fetch_sub(1, SeqCst);
        Ok(())
    }
}

#[tokio::test]
#[ignore = "deep"]
async fn f50_quarantined_jobs_of_one_crash_run_together_and_those_of_two_alone_in_their_process() {
    for (crashes, together) in [(1, true), (2, false)] {
        let db = TestDb::new().await;
        let mut connection = PgConnection::connect(&db.url).await.unwrap();
        let mut suspects = Vec::new();
        for _ in 0..5 {
            suspects.push(Beside { suspect: true }.enqueue(&db.pool).await.unwrap().id());
        }
        crash(&mut connection, &suspects).await;
        sqlx::query("update queue.ready set crashes = $1").bind(crashes).execute(&db.pool).await.unwrap();
        let worker = Worker::new(db.pool.clone()).register::<Beside>().concurrency(10);
        db.run_while(worker, async {
            for _ in 0..150 {
                Beside { suspect: false }.enqueue(&db.pool).await.unwrap();
            }
            eventually("all are completed", async || db.count("select count(*) from queue.jobs where state = 'completed'").await == 155)
                .await;
        })
        .await;
        let [others, suspects] = DISTURBED.each_ref().map(|count| count.swap(0, SeqCst));
        assert_eq!((others, suspects > 0), (0, together), "{crashes}");
        assert_eq!(db.count("select count(*) from queue.failure").await, 5, "one crash each, and no more");
        db.finish().await;
    }
}

#[tokio::test]
async fn f50_a_quarantined_job_of_two_crashes_splits_the_group_of_those_with_one() {
    let db = TestDb::new().await;
    let mut connection = PgConnection::connect(&db.url).await.unwrap();
    let mut jobs = Vec::new();
    for _ in 0..7 {
        jobs.push(enqueue(&db, Act::Ok(String::new())).await);
    }
    crash(&mut connection, &jobs).await;
    sqlx::query("update queue.ready set crashes = 2 where id = $1").bind(jobs[3]).execute(&db.pool).await.unwrap();
    db.run_until_idle(db.worker()).await;
    let leases: i64 = db.count("select count(distinct finished_at) from queue.done").await;
    assert!(leases >= 3, "those before it, it, and those after it: {leases}");
    assert_eq!(db.count("select count(*) from queue.done where attempts = 2").await, 7);
    db.finish().await;
}

#[tokio::test]
async fn f50_a_quarantined_job_begins_only_once_the_verdict_of_the_previous_one_is_written() {
    let db = TestDb::new().await;
    let mut connection = PgConnection::connect(&db.url).await.unwrap();
    let (first, second) = (enqueue(&db, Act::Ok("1".into())).await, enqueue(&db, Act::Ok("2".into())).await);
    let poison = enqueue(&db, Act::AbortImmediately).await;
    crash(&mut connection, &[first, second, poison]).await;
    sqlx::query("update queue.ready set crashes = 2").execute(&mut connection).await.unwrap();

    // Completions are blocked until this transaction ends, as if the disk were slow.
    let mut slow = connection.begin().await.unwrap();
    sqlx::query("lock table queue.done in share mode").execute(&mut *slow).await.unwrap();
    let mut process = WorkerProcess::start(env!("CARGO_BIN_EXE_test-worker"), &db.url, &[]);
    eventually("the first has begun", async || effects(&db.pool, first).await.unwrap() == 1).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(effects(&db.pool, second).await.unwrap(), 0, "the verdict of the first is not written yet");
    assert!(!process.has_ended());
    slow.rollback().await.unwrap();

    eventually("the third has ended its process", async || process.has_ended()).await;
    assert_eq!(db.state(first).await, Some(JobState::Completed));
    assert_eq!(db.state(second).await, Some(JobState::Completed));
    assert_eq!(db.state(poison).await, Some(JobState::Running));
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_briefly_locked_heartbeat_row_does_no_harm() {
    let db = TestDb::new().await;
    let job = enqueue(&db, Act::Sleep(2500)).await;
    let mut connection = PgConnection::connect(&db.url).await.unwrap();
    db.run_while(db.worker().lease_ttl(Duration::from_secs(3)), async {
        db.until(job, JobState::Running).await;
        let mut locked = connection.begin().await.unwrap();
        sqlx::query("select from queue.worker for update").execute(&mut *locked).await.unwrap();
        tokio::time::sleep(Duration::from_millis(900)).await;
        locked.rollback().await.unwrap();
        db.until(job, JobState::Completed).await;
        assert_eq!(db.count("select count(*) from queue.worker").await, 1, "the same identity");
    })
    .await;
    assert_eq!(effects(&db.pool, job).await.unwrap(), 1);
    assert_eq!(db.count("select count(*) from queue.failure").await, 0);
    db.finish().await;
}

/// Job whose first attempt waits for its cancellation and records it.
#[job(timeout = "8s")]
#[derive(Serialize, Deserialize)]
struct WaitsForStop;

static STOP_REQUESTED: AtomicBool = AtomicBool::new(false);

impl Handler for WaitsForStop {
    async fn run(self, cx: &Context) -> JobResult {
        if cx.attempt() == 1 {
            cx.cancelled().cancelled().await;
            STOP_REQUESTED.store(true, SeqCst);
        }
        Ok(())
    }
}

#[tokio::test]
async fn f33_a_worker_that_cannot_send_heartbeats_drops_its_jobs_and_starts_again() {
    let db = TestDb::new().await;
    let job = WaitsForStop.enqueue(&db.pool).await.unwrap().id();
    let mut connection = PgConnection::connect(&db.url).await.unwrap();
    let worker = Worker::new(db.pool.clone()).register::<WaitsForStop>().lease_ttl(Duration::from_secs(1)).grace(Duration::from_secs(1));
    db.run_while(worker, async {
        db.until(job, JobState::Running).await;
        let mut locked = connection.begin().await.unwrap();
        sqlx::query("select from queue.worker for update").execute(&mut *locked).await.unwrap();
        eventually("its handler is cancelled", async || STOP_REQUESTED.load(SeqCst)).await;
        db.until(job, JobState::Completed).await;
        assert_eq!(
            db.count("select count(*) from queue.worker where expires_at > now()").await,
            1,
            "a new identity, while the row is still locked"
        );
        assert_eq!(db.count("select count(*) from queue.worker").await, 2);
        locked.rollback().await.unwrap();
    })
    .await;
    assert_eq!(db.count("select count(*) from queue.done where attempts = 2").await, 1, "its result after the cancellation does not count");
    db.finish().await;
}

#[tokio::test]
async fn a_worker_that_retires_with_leased_jobs_is_recovered_immediately() {
    let db = TestDb::new().await;
    let mut connection = PgConnection::connect(&db.url).await.unwrap();
    enqueue(&db, Act::Ok(String::new())).await;
    let worker = register(&mut connection).await.unwrap();
    assert_eq!(claim(&mut connection, worker, 1).await.unwrap().jobs.len(), 1);
    sqlx::query(Store::default().sql(include_str!("../../queue-worker/sql/retire.sql")))
        .bind(worker)
        .execute(&mut connection)
        .await
        .unwrap();
    assert_eq!(recover(&mut connection).await.unwrap(), 1);
    db.finish().await;
}

#[tokio::test]
async fn a_silent_worker_is_deleted_after_an_hour_unless_it_holds_jobs() {
    let db = TestDb::new().await;
    let mut connection = PgConnection::connect(&db.url).await.unwrap();
    enqueue(&db, Act::Ok(String::new())).await;
    let (holder, empty, fresh) =
        (register(&mut connection).await.unwrap(), register(&mut connection).await.unwrap(), register(&mut connection).await.unwrap());
    assert_eq!(claim(&mut connection, holder, 1).await.unwrap().jobs.len(), 1);
    sqlx::query("insert into queue.idle (queue, worker) select '*', id from queue.worker").execute(&mut connection).await.unwrap();
    let long_ago = "update queue.worker set expires_at = now() - interval '61 minutes' where id <> $1";
    sqlx::query(long_ago).bind(fresh).execute(&mut connection).await.unwrap();
    tests::operate::prune_workers(&mut connection).await.unwrap();
    let left: Vec<uuid::Uuid> = sqlx::query_scalar("select id from queue.worker").fetch_all(&mut connection).await.unwrap();
    assert!(left.contains(&holder) && left.contains(&fresh) && !left.contains(&empty), "{left:?}");
    let idle: Vec<uuid::Uuid> = sqlx::query_scalar("select worker from queue.idle").fetch_all(&mut connection).await.unwrap();
    assert_eq!(idle, [fresh], "no notification is due for deleted ones");
    db.finish().await;
}

#[tokio::test]
async fn a_silent_worker_is_in_no_list_once_its_jobs_were_recovered_and_registers_again() {
    let db = TestDb::new().await;
    let mut connection = PgConnection::connect(&db.url).await.unwrap();
    let job = enqueue(&db, Act::Ok(String::new())).await;
    let holder = register(&mut connection).await.unwrap();
    assert_eq!(claim(&mut connection, holder, 1).await.unwrap().jobs.len(), 1);
    sqlx::query("insert into queue.idle (queue, worker) values ('mail', $1)").bind(holder).execute(&mut connection).await.unwrap();
    let (empty, silent) = (register(&mut connection).await.unwrap(), "select id from queue.worker where expires_at < now()");
    for worker in [holder, empty] {
        silence(&mut connection, worker).await.unwrap();
    }
    db.run_while(db.worker(), async {
        db.until(job, JobState::Completed).await;
        db.until_count("select count(*) from queue.workers() w where not w.alive", 1).await;
    })
    .await;
    let left: Vec<uuid::Uuid> = sqlx::query_scalar(silent).fetch_all(&mut connection).await.unwrap();
    assert_eq!(left, [empty], "who held nothing is shown for an hour");
    assert_eq!(db.count("select count(*) from queue.idle where queue = 'mail'").await, 0, "no notification is due for it");
    assert!(!tests::protocol::beat(&mut connection, holder).await.unwrap(), "it starts again when it comes back");
    db.finish().await;
}
