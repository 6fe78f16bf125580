//! Tests pauses: jobs in a paused scope do not start. Jobs that are already running and jobs outside of the scope continue.

mod attacks;
mod meanwhile;
mod statements;

use std::time::{Duration, Instant};

use queue_core::{Context, Handler, Job as _, JobId, JobResult, JobState, Queue, job, operate::Scope};
use queue_worker::{Config, Worker};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, PgConnection};
use tests::{Act, Do, TestDb, Within, effects, eventually};

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

async fn enqueue(db: &TestDb, queue: &str, act: Act) -> JobId {
    Do { act }.enqueue(&db.pool).queue(queue).await.unwrap().id()
}

fn quick() -> Act {
    Act::Ok(String::new())
}

async fn pause(db: &TestDb, scope: &Scope) -> i64 {
    Queue::new(&db.pool).pause_with_reason(scope, Some("a test")).await.unwrap()
}

/// Pauses the scope. Returns once every live worker has acknowledged the pause.
async fn pause_and_wait(db: &TestDb, scope: &Scope) {
    pause(db, scope).await;
    stopped(db, scope).await;
}

async fn stopped(db: &TestDb, scope: &Scope) {
    let waited = tokio::time::timeout(Duration::from_secs(30), Queue::new(&db.pool).until_paused(scope)).await;
    assert!(waited.expect("every worker acknowledges the pause").unwrap(), "it is paused");
}

async fn resume(db: &TestDb, scope: &Scope) {
    assert!(Queue::new(&db.pool).resume(scope).await.unwrap());
}

/// Waits until `workers` workers are registered and alive.
async fn announced(db: &TestDb, workers: i64) {
    eventually("workers are announced", async || db.count("select count(*) from queue.worker where expires_at > now()").await == workers)
        .await;
}

/// Returns a worker that finds jobs by notifications only.
fn deaf_to_time(db: &TestDb) -> Worker {
    let mut config = Config::default();
    config.poll_interval = Duration::from_hours(1);
    Worker::new(db.pool.clone()).config(config).register::<Do>().register::<Within>()
}

#[tokio::test]
async fn a_new_worker_starts_no_paused_job_and_notices_a_resume_immediately() {
    let db = TestDb::new().await;
    let mail = Scope::queue("mail");
    pause(&db, &mail).await;
    let mut waiting = Vec::new();
    for _ in 0..20 {
        waiting.push(enqueue(&db, "mail", quick()).await);
    }
    let other = enqueue(&db, "other", quick()).await;
    db.run_while(deaf_to_time(&db), async {
        db.until(other, JobState::Completed).await;
        stopped(&db, &mail).await;
        announced(&db, 1).await;
        // Each of the next enqueues notifies the worker, which must still not start the jobs of the paused queue.
        waiting.push(enqueue(&db, "mail", quick()).await);
        let other = enqueue(&db, "other", quick()).await;
        db.until(other, JobState::Completed).await;
        assert_eq!(db.count("select count(*) from queue.ready where attempts = 0").await, 21);
        assert_eq!(db.count("select count(*) from effect").await, 2, "of the other queue");
        let began = Instant::now();
        resume(&db, &mail).await;
        for job in &waiting {
            db.until(*job, JobState::Completed).await;
        }
        eprintln!("resumed after {:?}", began.elapsed());
        let began = Instant::now();
        pause_and_wait(&db, &mail).await;
        eprintln!("paused after {:?}", began.elapsed());
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn without_any_notification_a_pause_and_its_end_are_seen_within_seconds() {
    let db = TestDb::new().await;
    db.run_while(db.worker(), async {
        announced(&db, 1).await;
        let quietly = "insert into queue.paused (queue, job_type, id) values ('mail', '*', nextval('queue.pause_seq'))";
        sqlx::query(quietly).execute(&db.pool).await.unwrap();
        stopped(&db, &Scope::queue("mail")).await;
        let job = enqueue(&db, "mail", quick()).await;
        let other = enqueue(&db, "other", quick()).await;
        db.until(other, JobState::Completed).await;
        assert_eq!(db.state(job).await, Some(JobState::Ready));
        sqlx::query("delete from queue.paused").execute(&db.pool).await.unwrap();
        db.until(job, JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn claimed_jobs_that_have_not_begun_are_released_uncharged_and_running_ones_end() {
    let db = TestDb::new().await;
    for _ in 0..300 {
        enqueue(&db, "mail", quick()).await;
    }
    let slow = Act::UntilCancelled(Box::new(Act::Fail("never asked".into())));
    let mut last = Vec::new();
    for _ in 0..200 {
        last.push(enqueue(&db, "mail", slow.clone()).await);
    }
    let mut config = Config::default();
    (config.concurrency, config.grace) = (1, Duration::ZERO);
    let worker = Worker::new(db.pool.clone()).config(config).register::<Do>();
    db.run_while(worker, async {
        // From the quick jobs, the worker has learned that the jobs of this queue are short. It therefore claims many slow jobs in
        // advance.
        eventually("a slow one runs", async || db.count("select count(*) from effect").await == 301).await;
        let ahead = db.count("select coalesce(sum(cardinality(ids)), 0) from queue.lease").await;
        assert!(ahead > 1, "only {ahead} were claimed");
        pause_and_wait(&db, &Scope::queue("mail")).await;
        eventually("the others are back", async || {
            db.count("select coalesce(sum(cardinality(ids)), 0) from queue.lease").await == 1
                && db.count("select count(*) from queue.ready").await == 199
        })
        .await;
        assert_eq!(db.count("select count(*) from queue.ready where attempts <> 0 or crashes <> 0").await, 0, "uncharged");
        assert_eq!(db.count("select count(*) from effect").await, 301, "none of them has begun");
        let running: Vec<i64> = sqlx::query_scalar("select unnest(ids) from queue.lease").fetch_all(&db.pool).await.unwrap();
        queue_core::JobRef::from_id(JobId(running[0])).cancel(&db.pool).await.unwrap();
        db.until(JobId(running[0]), JobState::Cancelled).await;
        assert_eq!(db.count("select count(*) from effect").await, 301, "nor does one when its slot is free");
    })
    .await;
    db.finish().await;
}

/// Job type with two stored names. A pause can use either name.
#[job(send_only, name = "paused_now", aliases = ["paused_before"])]
#[derive(Serialize, Deserialize)]
struct Renamed {}

impl Handler for Renamed {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

#[tokio::test]
async fn a_type_is_paused_in_every_queue_and_under_every_name() {
    let db = TestDb::new().await;
    let scope = Scope::job_type("paused_now");
    pause(&db, &scope).await;
    let mut paused = Vec::new();
    for (name, queue) in [("paused_now", "a"), ("paused_before", "a"), ("paused_now", "b")] {
        let enqueue = "select queue.enqueue($1, '{}', jsonb_build_object('queue', $2::text))";
        paused.push(sqlx::query_scalar::<_, JobId>(enqueue).bind(name).bind(queue).fetch_one(&db.pool).await.unwrap());
    }
    let others = [enqueue(&db, "a", quick()).await, enqueue(&db, "b", quick()).await];
    db.run_while(db.worker().register::<Renamed>(), async {
        for job in others {
            db.until(job, JobState::Completed).await;
        }
        stopped(&db, &scope).await;
        for job in &paused {
            assert_eq!(db.state(*job).await, Some(JobState::Ready));
        }
        // A second pause covers the type in one queue only. It stays in effect when the pause of the whole type ends.
        let in_a = Scope { queue: Some("a".into()), job_type: Some("paused_before".into()) };
        pause(&db, &in_a).await;
        resume(&db, &scope).await;
        db.until(paused[2], JobState::Completed).await;
        stopped(&db, &in_a).await;
        for job in &paused[..2] {
            assert_eq!(db.state(*job).await, Some(JobState::Ready));
        }
        resume(&db, &in_a).await;
        for job in &paused {
            db.until(*job, JobState::Completed).await;
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_pause_of_everything_includes_jobs_that_become_ready_meanwhile() {
    let db = TestDb::new().await;
    db.run_while(db.worker().register::<Within>(), async {
        let first = enqueue(&db, "first", quick()).await;
        db.until(first, JobState::Completed).await;
        pause_and_wait(&db, &Scope::EVERYTHING).await;
        let mut jobs = vec![enqueue(&db, "first", quick()).await, enqueue(&db, "born-now", quick()).await];
        jobs.push(Within { how: "plain".into() }.enqueue(&db.pool).await.unwrap().id());
        let due = Do { act: quick() }.enqueue(&db.pool).after(Duration::from_millis(50)).await.unwrap().id();
        db.until(due, JobState::Ready).await;
        jobs.push(due);
        for job in &jobs {
            assert_eq!(db.state(*job).await, Some(JobState::Ready));
        }
        assert_eq!(db.count("select count(*) from effect").await, 1);
        resume(&db, &Scope::EVERYTHING).await;
        for job in jobs {
            db.until(job, JobState::Completed).await;
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn transactional_jobs_are_paused_and_the_one_that_runs_ends() {
    let db = TestDb::new().await;
    let hold = async || Within { how: "hold".into() }.enqueue(&db.pool).await.unwrap().id();
    let first = hold().await;
    let scope = Scope::job_type("within");
    db.run_while(db.worker().register::<Within>(), async {
        let query = "select count(*) from pg_stat_activity where datname = current_database() and query like '%/* effect */'";
        eventually("its handler has begun", async || db.count(query).await > 0).await;
        pause_and_wait(&db, &scope).await;
        let second = hold().await;
        let other = enqueue(&db, "default", quick()).await;
        db.until(other, JobState::Completed).await;
        sqlx::query("create table go ()").execute(&db.pool).await.unwrap();
        db.until(first, JobState::Completed).await;
        assert_eq!((db.state(second).await, effects(&db.pool, second).await.unwrap()), (Some(JobState::Ready), 0));
        resume(&db, &scope).await;
        db.until(second, JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_quarantined_job_waits_for_the_end_of_the_pause_and_blocks_no_other() {
    let db = TestDb::new().await;
    let suspects = [enqueue(&db, "mail", quick()).await, enqueue(&db, "mail", quick()).await];
    sqlx::query("update queue.ready set crashes = 1, attempts = 1, lane = queue.ensure_lane('mail', 'do', 100::smallint, true)")
        .execute(&db.pool)
        .await
        .unwrap();
    let mail = Scope::queue("mail");
    pause(&db, &mail).await;
    db.run_while(db.worker(), async {
        let other = enqueue(&db, "other", quick()).await;
        db.until(other, JobState::Completed).await;
        stopped(&db, &mail).await;
        db.until_idle(20.0).await;
        for job in suspects {
            assert_eq!((db.state(job).await, effects(&db.pool, job).await.unwrap()), (Some(JobState::Ready), 0));
        }
        resume(&db, &mail).await;
        for job in suspects {
            db.until(job, JobState::Completed).await;
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn ready_jobs_that_are_paused_do_not_keep_an_idle_worker_busy() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    db.run_while(db.worker().register::<Within>(), async {
        let first = enqueue(&db, "other", quick()).await;
        db.until(first, JobState::Completed).await;
        eventually("it sleeps", async || db.count("select count(*) from queue.idle").await == 1).await;
        db.until_idle(20.0).await;
        let mail = Scope::queue("mail");
        pause_and_wait(&db, &mail).await;
        // In the first round, all jobs are in one lane. In the second round, there are more lanes than a worker queries individually.
        for (jobs, lanes) in [(100_000, 1), (1000, 300)] {
            let fill = "with j as (
                insert into queue.job (id, lane, max_attempts, payload)
                select queue.next_id(), queue.ensure_lane('mail', 'do', (n % $2)::smallint, false), 3, '{\"act\":{\"Ok\":\"\"}}' from generate_series(1, $1) n
                returning id, lane)
              insert into queue.ready (lane, seq, id, attempts, crashes) select lane, id, id, 0, 0 from j";
            sqlx::query(fill).bind(jobs).bind(lanes).execute(&mut on).await.unwrap();
            sqlx::query("select queue.wake('mail')").execute(&mut on).await.unwrap();
            let other = enqueue(&db, "other", quick()).await;
            db.until(other, JobState::Completed).await;
            db.until_idle(20.0).await;
        }
        assert_eq!(db.count("select count(*) from queue.ready").await, 101_000);
        sqlx::query("truncate queue.ready").execute(&mut on).await.unwrap();
        sqlx::query("delete from queue.job where id not in (select unnest(ids) from queue.done_many union all select id from queue.done)")
            .execute(&mut on)
            .await
            .unwrap();
        resume(&db, &mail).await;
        let last = enqueue(&db, "mail", quick()).await;
        eventually("the next one runs", async || db.state(last).await == Some(JobState::Completed)).await;
    })
    .await;
    db.finish().await;
}
