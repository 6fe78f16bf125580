//! Tests jobs with an expiry time: a job that has not started by then does not run.

mod attacks;
mod operations;
mod sweeps;
mod refused;
mod statements;
mod ways;

use std::time::Duration;

use queue_core::{Context, Handler, Job as _, JobHandle, JobId, JobResult, JobState, Queue, job, operate, wait::WaitError};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, PgConnection};
use tests::{Act, Do, TestDb, effects, eventually, operate as steps};

const HOUR: Duration = Duration::from_hours(1);

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

/// Enqueues a job that expires in an hour.
async fn enqueue(db: &TestDb, act: Act) -> JobHandle<Do> {
    Do { act }.enqueue(&db.pool).expires_in(HOUR).await.unwrap()
}

async fn ok(db: &TestDb) -> JobId {
    enqueue(db, Act::Ok(String::new())).await.id()
}

/// Moves the expiry times of the jobs and of their expiry entries into the past.
async fn expire_now(db: &TestDb, jobs: &[JobId]) {
    let back = "with m as (update queue.job set system = queue.with_expiry(system, clock_timestamp() - interval '1 s') where id = any ($1))
      update queue.expiry set at = clock_timestamp() - (1 + random()) * interval '1 s' where id = any ($1)";
    sqlx::query(back).bind(jobs).execute(&db.pool).await.unwrap();
}

/// Deletes all expiry entries, so that no sweep finds expired jobs.
async fn delete_entries(db: &TestDb) {
    sqlx::query("delete from queue.expiry").execute(&db.pool).await.unwrap();
}

async fn stored_expiry(db: &TestDb, job: JobId) -> Option<String> {
    let query = "select system ->> 'expires_at' from queue.job where id = $1";
    sqlx::query_scalar(query).bind(job).fetch_one(&db.pool).await.unwrap()
}

async fn count_entries(db: &TestDb, job: JobId) -> i64 {
    sqlx::query_scalar("select count(*) from queue.expiry where id = $1").bind(job).fetch_one(&db.pool).await.unwrap()
}

#[tokio::test]
async fn a_job_that_has_not_begun_in_time_does_not_run_and_waiters_are_notified() {
    let db = TestDb::new().await;
    let (job, other) = (enqueue(&db, Act::Ok("done".into())).await, enqueue(&db, Act::Ok("in time".into())).await);
    expire_now(&db, &[job.id()]).await;
    let waits = async { tokio::join!(job.wait(&db.queue()), other.wait(&db.queue())) };
    let (expired, done) = db.run_while(db.worker(), waits).await;
    let refusal = expired.unwrap_err();
    assert!(matches!(refusal, WaitError::Expired { job: id } if id == job.id()), "{refusal}");
    assert!(refusal.to_string().contains("expired"), "{refusal}");
    assert_eq!(done.unwrap(), "in time");
    assert_eq!(effects(&db.pool, job.id()).await.unwrap(), 0);

    let found = job.job_ref().find(&db.pool).await.unwrap();
    assert_eq!((found.state, found.attempts, found.crashes), (JobState::Expired, 0, 0));
    let filter = operate::Filter { state: Some(JobState::Expired), ..operate::Filter::default() };
    let page = Queue::new(&db.pool).jobs().matching(&filter).list().await.unwrap();
    assert_eq!(page.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [job.id()]);
    let cancelled = operate::Filter { state: Some(JobState::Cancelled), ..operate::Filter::default() };
    assert!(Queue::new(&db.pool).jobs().matching(&cancelled).list().await.unwrap().jobs.is_empty(), "it was not cancelled");
    let counts = Queue::new(&db.pool).counts().await.unwrap();
    let of = |state| counts.iter().filter(|count| count.state == state).map(|count| count.jobs).sum::<i64>();
    assert_eq!((of(JobState::Expired), of(JobState::Cancelled), of(JobState::Completed)), (1, 0, 1));
    let (state, error): (String, Option<String>) =
        sqlx::query_as("select state, error from queue.wait($1, '1 min')").bind(job.id()).fetch_one(&db.pool).await.unwrap();
    assert_eq!((state.as_str(), error), ("expired", None));
    db.finish().await;
}

#[tokio::test]
async fn a_job_past_its_time_does_not_begin_even_before_a_sweep() {
    let db = TestDb::new().await;
    let mut jobs = Vec::new();
    for _ in 0..50 {
        jobs.push(ok(&db).await);
    }
    let keyed = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).key("k").expires_in(HOUR).await.unwrap().id();
    let behind = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).key("k").await.unwrap().id();
    jobs.push(keyed);
    expire_now(&db, &jobs).await;
    delete_entries(&db).await;
    let in_time = ok(&db).await;
    db.run_while(
        db.worker(),
        eventually("all have finished", async || {
            db.count("select count(*) from queue.jobs where state in ('ready', 'running', 'blocked')").await == 0
        }),
    )
    .await;
    assert_eq!(db.count("select count(*) from queue.jobs where state = 'expired' and attempts = 0").await, 51);
    assert_eq!(db.count("select count(*) from effect").await, 2);
    for job in [in_time, behind] {
        assert_eq!(db.state(job).await, Some(JobState::Completed), "unexpired jobs begin, and a key continues");
    }
    db.finish().await;
}

/// Transactional job that expires an hour after its due time.
#[job(name = "expires_within", transactional, expires = "1h")]
#[derive(Serialize, Deserialize)]
struct ExpiresWithin;

impl Handler for ExpiresWithin {
    async fn run(self, cx: &Context) -> JobResult {
        let mut tx = cx.transaction().await;
        sqlx::query("insert into effect (job) values ($1)").bind(cx.id()).execute(&mut *tx).await?;
        Ok(())
    }
}

#[tokio::test]
async fn a_transactional_job_past_its_time_does_not_begin() {
    let db = TestDb::new().await;
    let (job, in_time) = (ExpiresWithin.enqueue(&db.pool).await.unwrap(), ExpiresWithin.enqueue(&db.pool).await.unwrap());
    expire_now(&db, &[job.id()]).await;
    delete_entries(&db).await;
    let worker = Worker::new(db.pool.clone()).register::<ExpiresWithin>();
    let (expired, done) = db.run_while(worker, async { tokio::join!(job.wait(&db.queue()), in_time.wait(&db.queue())) }).await;
    assert!(matches!(expired, Err(WaitError::Expired { .. })), "{expired:?}");
    done.unwrap();
    let effects: Vec<JobId> = sqlx::query_scalar("select job from effect").fetch_all(&db.pool).await.unwrap();
    assert_eq!(effects, [in_time.id()]);
    db.finish().await;
}

#[tokio::test]
async fn a_job_that_had_begun_in_time_continues_and_a_released_one_had_not_begun() {
    let db = TestDb::new().await;
    let put_off = Act::First(Box::new(Act::RetryIn(HOUR.as_millis() as u64 / 2)), Box::new(Act::Ok(String::new())));
    let (retried, snoozed) = (enqueue(&db, put_off).await, enqueue(&db, Act::Snooze(HOUR.as_millis() as u64, 9)).await);
    let first = async || effects(&db.pool, retried.id()).await.unwrap() > 0 && effects(&db.pool, snoozed.id()).await.unwrap() > 0;
    let waits = eventually("both are put off", async || first().await && db.count("select count(*) from queue.scheduled").await == 2);
    db.run_while(db.worker(), waits).await;
    expire_now(&db, &[retried.id(), snoozed.id()]).await;
    sqlx::query("update queue.scheduled set run_at = now() where id = $1").bind(retried.id()).execute(&db.pool).await.unwrap();
    let (done, expired) = db.run_while(db.worker(), async { tokio::join!(retried.wait(&db.queue()), snoozed.wait(&db.queue())) }).await;
    done.unwrap();
    assert!(matches!(expired, Err(WaitError::Expired { .. })), "{expired:?}");
    assert_eq!(count_entries(&db, retried.id()).await, 0, "it is no longer checked");
    db.finish().await;
}

#[tokio::test]
async fn a_job_whose_process_ended_had_begun() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let job = ok(&db).await;
    let dies = tests::protocol::register(&mut on).await.unwrap();
    assert_eq!(tests::protocol::claim(&mut on, dies, 1).await.unwrap().ids(), [job]);
    tests::protocol::silence(&mut on, dies).await.unwrap();
    tests::protocol::recover(&mut on).await.unwrap();
    expire_now(&db, &[job]).await;
    assert_eq!(steps::expire_due(&mut on).await.unwrap(), 0);
    db.run_while(db.worker(), db.until(job, JobState::Completed)).await;
    assert_eq!(effects(&db.pool, job).await.unwrap(), 1);
    db.finish().await;
}
