//! Tests jobs that expire while the verdicts of other jobs are rejected.

use std::time::{Duration, Instant};

use queue_core::{Job as _, JobState};
use sqlx::AssertSqlSafe;
use tests::{Act, Do, TestDb, WorkerProcess};

use super::delete_entries;

const WORKER: &str = env!("CARGO_BIN_EXE_test-worker");

#[tokio::test]
#[ignore = "deep"]
async fn jobs_that_expire_beside_a_refused_verdict_are_not_reported_as_lost_leases() {
    let db = TestDb::new().await;
    let slow = Do { act: Act::Slowly(1000, Box::new(Act::Ok("slow".into()))) }.enqueue(&db.pool).await.unwrap().id();
    let refused = Do { act: Act::Ok("refused".into()) }.enqueue(&db.pool).await.unwrap().id();
    let late = Do { act: Act::Ok("late".into()) }.enqueue(&db.pool).expires_in(Duration::from_millis(500)).await.unwrap().id();
    delete_entries(&db).await;
    // The first verdict is delayed, so that the other jobs are settled together.
    let trigger = format!(
        "create function public.delay() returns trigger language plpgsql as $$ begin
           if new.id = {slow} then perform pg_sleep(2); end if;
           if new.id = {refused} then raise exception 'as told' using errcode = '23514'; end if;
           return new;
         end $$;
         create trigger delay before insert on queue.done for each row execute function public.delay()"
    );
    sqlx::raw_sql(AssertSqlSafe(trigger)).execute(&db.pool).await.unwrap();
    let since = Instant::now();
    let worker = WorkerProcess::start_logged(WORKER, &db.url, &[("CONCURRENCY", "1")]);
    for (job, state) in [(slow, JobState::Completed), (late, JobState::Expired), (refused, JobState::Dead)] {
        db.until(job, state).await;
    }
    let log = worker.log_since(since);
    assert!(log.iter().any(|line| line.contains("verdict rejected by the server")), "{log:?}");
    assert!(!log.iter().any(|line| line.contains("lease lost")), "{log:?}");
    drop(worker);
    db.finish().await;
}
