//! Tests sleeping workers. A worker misses no job, whenever the job's transaction commits. No producer sends an unnecessary notification.
//!
//! Workers in these tests poll once an hour unless a test sets another interval, so jobs are found through wake-ups.

use std::time::{Duration, Instant};

use queue_core::{Context, Handler, Job as _, JobId, JobResult, JobState, job};
use queue_worker::{Config, Worker};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, PgConnection, postgres::PgListener};
use tests::{Act, Do, TestDb, eventually, within};

const HOUR: Duration = Duration::from_hours(1);

fn polling(db: &TestDb, every: Duration) -> Worker {
    let mut config = Config::default();
    config.poll_interval = every;
    config.grace = Duration::from_secs(2);
    Worker::new(db.pool.clone()).config(config)
}

fn sleeper(db: &TestDb) -> Worker {
    polling(db, HOUR).register::<Do>()
}

async fn asleep(db: &TestDb, workers: i64) {
    eventually("the workers have announced their sleep", async || db.count("select count(*) from queue.idle").await == workers).await;
    eventually("they listen", async || {
        db.count("select count(*) from pg_stat_activity where datname = current_database() and application_name = 'queue-worker listen' and state = 'idle'")
            .await
            == workers
    })
    .await;
    tokio::time::sleep(Duration::from_millis(100)).await;
}

fn quick() -> Do {
    Do { act: Act::Ok(String::new()) }
}

async fn enqueue(db: &TestDb) -> JobId {
    quick().enqueue(&db.pool).await.unwrap().id()
}

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

#[tokio::test]
async fn a_job_committed_late_is_found_by_an_idle_worker() {
    let db = TestDb::new().await;
    db.run_while(sleeper(&db), async {
        asleep(&db, 1).await;
        let mut connection = connect(&db).await;
        let mut late = connection.begin().await.unwrap();
        let first = quick().enqueue(&mut late).await.unwrap().id();
        for _ in 0..5 {
            let other = enqueue(&db).await;
            db.until(other, JobState::Completed).await;
        }
        assert_eq!(db.state(first).await, None);
        late.commit().await.unwrap();
        db.until(first, JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_job_committed_late_is_found_by_a_busy_worker() {
    let db = TestDb::new().await;
    sqlx::query("select queue.enqueue('do', '{\"act\":{\"Sleep\":5}}') from generate_series(1, 3000)").execute(&db.pool).await.unwrap();
    let mut connection = connect(&db).await;
    let mut late = connection.begin().await.unwrap();
    let first = quick().enqueue(&mut late).await.unwrap().id();
    sqlx::query("select queue.enqueue('do', '{\"act\":{\"Sleep\":5}}') from generate_series(1, 20000)").execute(&db.pool).await.unwrap();
    db.run_while(sleeper(&db), async {
        within(Duration::from_mins(1), "the late job's place has been passed", async || {
            db.count("select count(*) from queue.done").await > 4000
        })
        .await;
        late.commit().await.unwrap();
        db.until(first, JobState::Completed).await;
        let waiting = db.count("select count(*) from queue.ready").await;
        assert!(waiting > 0, "the worker was busy all the time");
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn no_job_is_missed_by_a_worker_that_is_falling_asleep() {
    // Each producer's transaction stays open for a moment after the check for sleeping workers, while the worker is about to sleep.
    let db = TestDb::new().await;
    let mut producers = Vec::new();
    for _ in 0..3 {
        producers.push(connect(&db).await);
    }
    db.run_while(sleeper(&db), async {
        for round in 0..120_u64 {
            let mut rounds = Vec::new();
            for (n, mut producer) in producers.drain(..).enumerate() {
                let dice = (round * 7 + n as u64 * 13) % 31;
                rounds.push(tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_micros(dice * 70)).await;
                    let mut tx = producer.begin().await.unwrap();
                    let id = quick().enqueue(&mut tx).await.unwrap().id();
                    tokio::time::sleep(Duration::from_micros((31 - dice) * 100)).await;
                    tx.commit().await.unwrap();
                    (producer, id)
                }));
            }
            let mut jobs = Vec::new();
            for round in rounds {
                let (producer, id) = round.await.unwrap();
                producers.push(producer);
                jobs.push(id);
            }
            for job in jobs {
                db.until(job, JobState::Completed).await;
            }
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn no_job_is_missed_by_a_worker_that_just_began() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    for wait in [0, 5, 20, 60, 150, 400] {
        let mut tx = connection.begin().await.unwrap();
        let job = quick().enqueue(&mut tx).await.unwrap().id();
        db.run_while(sleeper(&db), async {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            tx.commit().await.unwrap();
            db.until(job, JobState::Completed).await;
        })
        .await;
    }
    db.finish().await;
}

/// Sends a marker notification, and returns the notifications since the last call. Notifications arrive in commit order, so the marker
/// arrives last.
async fn received(db: &TestDb, listener: &mut PgListener) -> Vec<String> {
    sqlx::query("select queue.notify('wake', 'probe')").execute(&db.pool).await.unwrap();
    let mut payloads = Vec::new();
    loop {
        match listener.recv().await.unwrap().payload() {
            "probe" => return payloads,
            other => payloads.push(other.to_owned()),
        }
    }
}

#[tokio::test]
async fn producers_notify_only_when_a_worker_of_their_queue_sleeps() {
    let db = TestDb::new().await;
    let mut listener = db.listen("wake").await;
    enqueue(&db).await;
    assert_eq!(received(&db, &mut listener).await, [] as [String; 0], "no worker sleeps");

    let sleeps = "insert into queue.idle (queue, worker) values ($1, gen_random_uuid())";
    sqlx::query(sleeps).bind("mail").execute(&db.pool).await.unwrap();
    enqueue(&db).await;
    assert_eq!(received(&db, &mut listener).await, [] as [String; 0], "no worker of this queue sleeps");
    quick().enqueue(&db.pool).queue("mail").await.unwrap();
    assert_eq!(received(&db, &mut listener).await, ["mail"]);

    sqlx::query(sleeps).bind("*").execute(&db.pool).await.unwrap();
    let mut tx = db.pool.begin().await.unwrap();
    for _ in 0..3 {
        quick().enqueue(&mut tx).await.unwrap();
    }
    assert_eq!(received(&db, &mut listener).await, [] as [String; 0], "not before the commit");
    tx.commit().await.unwrap();
    assert_eq!(received(&db, &mut listener).await, ["default"], "one for all of a transaction");
    let mut tx = db.pool.begin().await.unwrap();
    quick().enqueue(&mut tx).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(received(&db, &mut listener).await, [] as [String; 0], "nothing happened");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_worker_under_load_is_not_notified() {
    let db = TestDb::new().await;
    sqlx::query("select queue.enqueue('do', '{\"act\":{\"Sleep\":1}}') from generate_series(1, 20000)").execute(&db.pool).await.unwrap();
    db.run_while(sleeper(&db), async {
        within(Duration::from_secs(20), "it is busy", async || db.count("select count(*) from queue.done").await > 500).await;
        let mut listener = db.listen("wake").await;
        for _ in 0..20 {
            enqueue(&db).await;
        }
        assert_eq!(received(&db, &mut listener).await, [] as [String; 0]);
        assert_eq!(db.count("select count(*) from queue.idle").await, 0);
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn without_notifications_jobs_are_found_by_polling() {
    let db = TestDb::new().await;
    sqlx::raw_sql(
        "create or replace function queue.wake(queue text) returns void language sql as 'select';
         create function enter(act text, run_at timestamptz) returns bigint language plpgsql as $$
         declare new_id bigint := queue.next_id(); new_lane bigint := queue.ensure_lane('default', 'do', 100::smallint, false);
         begin
           insert into queue.job (id, lane, max_attempts, payload) values (new_id, new_lane, 3, jsonb_build_object('act', act::jsonb));
           if run_at is null then insert into queue.ready (lane, seq, id) values (new_lane, new_id, new_id);
           else insert into queue.scheduled (run_at, id, lane) values (run_at, new_id, new_lane);
           end if;
           return new_id;
         end $$",
    )
    .execute(&db.pool)
    .await
    .unwrap();
    db.run_while(polling(&db, Duration::from_millis(200)).register::<Do>(), async {
        asleep(&db, 1).await;
        for act in [r#"{"Ok":"x"}"#, r#"{"FailUntil":2}"#] {
            for later in [None, Some("now() + interval '300 ms'")] {
                let statement = format!("select enter('{act}', {})", later.unwrap_or("null"));
                let began = Instant::now();
                let job = JobId(db.count(&statement).await);
                db.until(job, JobState::Completed).await;
                assert!(
                    began.elapsed() < Duration::from_secs(8),
                    "found by its poll, not by a rarer scan: {act} took {:?}",
                    began.elapsed()
                );
            }
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn lanes_and_queues_created_after_the_worker_started_are_served() {
    let db = TestDb::new().await;
    db.run_while(sleeper(&db), async {
        for (queue, priority) in [("default", 100), ("default", 3), ("mail", 100), ("mail", -32768), ("a.b:c-d_E", 32767)] {
            asleep(&db, 1).await;
            let job = quick().enqueue(&db.pool).queue(queue).priority(priority).await.unwrap().id();
            db.until(job, JobState::Completed).await;
        }
        // The enqueue that creates the lane of the queue `late` begins before the enqueues that create the other two lanes, and commits
        // after them.
        let mut connection = connect(&db).await;
        let mut late = connection.begin().await.unwrap();
        let first = quick().enqueue(&mut late).queue("late").await.unwrap().id();
        for queue in ["later", "latest"] {
            let job = quick().enqueue(&db.pool).queue(queue).await.unwrap().id();
            db.until(job, JobState::Completed).await;
        }
        late.commit().await.unwrap();
        db.until(first, JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn jobs_in_more_lanes_than_a_worker_probes_one_by_one_are_all_found() {
    let db = TestDb::new().await;
    let everywhere =
        "select queue.enqueue('do', '{\"act\":{\"Ok\":\"\"}}', jsonb_build_object('queue', 'q' || n)) from generate_series(1, 700) n";
    sqlx::query(everywhere).execute(&db.pool).await.unwrap();
    db.run_while(sleeper(&db), async {
        within(Duration::from_secs(20), "all are completed", async || db.count("select count(*) from queue.done").await == 700).await;
        asleep(&db, 1).await;
        let mut connection = connect(&db).await;
        for queue in ["q1", "q350", "q700", "new"] {
            let mut late = connection.begin().await.unwrap();
            let first = quick().enqueue(&mut late).queue(queue).await.unwrap().id();
            let second = quick().enqueue(&db.pool).queue(queue).await.unwrap().id();
            db.until(second, JobState::Completed).await;
            late.commit().await.unwrap();
            db.until(first, JobState::Completed).await;
        }
    })
    .await;
    db.finish().await;
}

async fn deafen(db: &TestDb) -> i64 {
    db.count("select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() and application_name = 'queue-worker listen'").await
}

#[tokio::test]
#[ignore = "deep"]
async fn f37_jobs_are_found_while_the_listener_is_killed_repeatedly() {
    let db = TestDb::new().await;
    let mut killed = 0;
    db.run_while(polling(&db, Duration::from_millis(500)).register::<Do>(), async {
        asleep(&db, 1).await;
        for round in 0..15 {
            if round % 2 == 0 {
                killed += deafen(&db).await;
            }
            let job = enqueue(&db).await;
            db.until(job, JobState::Completed).await;
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    })
    .await;
    assert!(killed >= 2, "the listener was killed {killed} times only");
    db.finish().await;
}

#[tokio::test]
async fn f37_a_worker_polls_immediately_when_it_listens_again() {
    let db = TestDb::new().await;
    db.run_while(sleeper(&db), async {
        for _ in 0..3 {
            asleep(&db, 1).await;
            assert_eq!(deafen(&db).await, 1);
            let job = enqueue(&db).await;
            db.until(job, JobState::Completed).await;
        }
    })
    .await;
    db.finish().await;
}

/// Job type that the workers created by `sleeper` do not serve.
#[job]
#[derive(Serialize, Deserialize)]
struct Another;

impl Handler for Another {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

#[tokio::test]
async fn a_job_promoted_by_a_worker_that_does_not_serve_it_wakes_one_that_does() {
    let db = TestDb::new().await;
    db.run_while(sleeper(&db), async {
        asleep(&db, 1).await;
        // The insert does not notify the sleeping worker. Only the second worker, which starts later, reads when the job is due.
        let statement = "with j as (insert into queue.job (id, lane, max_attempts, payload)
             values (queue.next_id(), queue.ensure_lane('default', 'do', 100::smallint, false), 3, '{\"act\":{\"Ok\":\"x\"}}') returning id, lane)
           insert into queue.scheduled (run_at, id, lane) select now() + interval '1 second', id, lane from j returning id";
        let job = JobId(db.count(statement).await);
        db.run_while(polling(&db, HOUR).register::<Another>(), async {
            asleep(&db, 2).await;
            db.until(job, JobState::Completed).await;
        })
        .await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_recovered_job_wakes_a_worker_that_sleeps() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    db.run_while(polling(&db, HOUR).register::<Another>(), async {
        db.run_while(sleeper(&db), async {
            asleep(&db, 2).await;
            let job = enqueue(&db).await;
            db.until(job, JobState::Completed).await;
            // Another worker holds a second job, and then its heartbeat expires.
            let ghost = tests::protocol::register(&mut connection).await.unwrap();
            let statement = "with j as (insert into queue.job (id, lane, max_attempts, payload)
                 values (queue.next_id(), queue.ensure_lane('default', 'do', 100::smallint, false), 3, '{\"act\":{\"Ok\":\"x\"}}') returning id, lane)
               insert into queue.lease (token, worker, ids, attempts, crashes)
               select gen_random_uuid(), $1, array[id], array[1::smallint], array[0::smallint] from j returning ids[1]";
            let held: JobId = sqlx::query_scalar(statement).bind(ghost).fetch_one(&mut connection).await.unwrap();
            tests::protocol::silence(&mut connection, ghost).await.unwrap();
            db.until(held, JobState::Completed).await;
        })
        .await;
    })
    .await;
    db.finish().await;
}
