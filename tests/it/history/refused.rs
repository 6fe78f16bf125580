//! Tests verdicts that cannot be written until other workers have taken over the jobs. Each completion is counted once.

use std::time::Duration;

use queue_core::{Job as _, JobState};
use sqlx::Executor as _;
use tests::{Act, Do, TestDb, WorkerProcess, effects, within};

use super::together;

/// Statements that simulate a disk that is full only for rows of completed jobs.
const FULL: &str =
    "create function full_disk() returns trigger language plpgsql as $$ begin raise exception using errcode = '53100'; end $$;
  create trigger full_disk before insert on queue.done for each row execute function full_disk();
  create trigger full_disk before insert on queue.done_many for each row execute function full_disk()";

/// Statement that ends the simulation. Dropping the triggers instead would require a lock that conflicts with verdicts.
const ROOM: &str = "create or replace function full_disk() returns trigger language plpgsql as 'begin return new; end'";

#[tokio::test]
#[ignore = "deep"]
async fn verdicts_refused_after_an_outage_longer_than_a_lease_are_counted_once() {
    let db = TestDb::new().await;
    db.pool.execute(FULL).await.unwrap();
    let start = || WorkerProcess::start(env!("CARGO_BIN_EXE_test-worker"), &db.url, &[("TTL_MS", "3000"), ("QUEUE_LOG", "off")]);
    let mut first = start();
    let job = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).await.unwrap().id();
    within(Duration::from_secs(30), "it has run", async || effects(&db.pool, job).await.unwrap() == 1).await;
    // The outage lasts longer than the lease, so the worker counts a verdict that is finally rejected as a lost lease.
    tokio::time::sleep(Duration::from_secs(4)).await;
    // Without its registration, the worker loses its lease, so another worker runs the job again. The first worker keeps retrying its
    // verdict until the disk has room.
    db.pool.execute("delete from queue.worker").await.unwrap();
    let mut second = start();
    within(Duration::from_mins(2), "it has run again", async || effects(&db.pool, job).await.unwrap() == 2).await;
    db.pool.execute(ROOM).await.unwrap();
    within(Duration::from_mins(2), "it is completed", async || db.state(job).await == Some(JobState::Completed)).await;
    for worker in [&mut first, &mut second] {
        worker.signal("TERM");
        assert_eq!(worker.wait(), Some(0));
    }
    let sum = together(&db).await.unwrap();
    assert_eq!((sum.completed, sum.lease_lost, sum.crashed), (1, 1, 1));
    db.finish().await;
}
