//! Jobs that may have ended a process, under limits: one that another crash would convict runs beside no other, and while some are tried nothing spins.

use std::{
    fs,
    time::{Duration, Instant},
};

use queue_core::{Job as _, JobId, JobState, Limit};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tests::{Act, Do, TestDb, WorkerProcess, eventually};

use super::{
    behind::{Waits, waiting},
    fresh, set,
};

/// As after crashes: one of the first job, two of the last.
const SUSPECTED: &str = "with taken as (delete from queue.ready returning id)
    insert into queue.ready (lane, seq, id, crashes)
    select queue.meet_lane('default', 'limits_waits', 100::smallint, true), queue.next_id(), id, (row_number() over (order by id))::smallint
    from taken";

/// With a job that runs, two suspects: of the first, which ended a process once, nothing can be claimed, so a claim brings the second one.
async fn suspects(db: &TestDb, keys: [&str; 2]) -> [JobId; 2] {
    Waits { until_go: true }.enqueue(&db.pool).fair("a").await.unwrap();
    eventually("it runs", async || db.count("select count(*) from effect_span").await == 1).await;
    let mut tx = db.pool.begin().await.unwrap();
    let first = Waits { until_go: false }.enqueue(&mut tx).fair(keys[0]).await.unwrap().id();
    let last = Waits { until_go: false }.enqueue(&mut tx).fair(keys[1]).await.unwrap().id();
    tx.execute(SUSPECTED).await.unwrap();
    tx.execute("select queue.wake('default')").await.unwrap();
    tx.commit().await.unwrap();
    [first, last]
}

async fn begun(db: &TestDb, job: JobId) -> bool {
    db.count(&format!("select count(*) from effect_span where job = {job}")).await > 0
}

/// Claims under limits that took some.
async fn took(db: &TestDb) -> i64 {
    db.count("select case when is_called then last_value else 0 end from queue.permit_seq").await
}

/// It is claimed and given back, for others run; and then it runs alone.
async fn runs_alone(db: &TestDb, job: JobId, before: i64, end: impl AsyncFnOnce()) {
    eventually("it is claimed", async || took(db).await > before).await;
    eventually("it is begun or given back", async || begun(db, job).await || db.state(job).await == Some(JobState::Ready)).await;
    assert!(!begun(db, job).await, "one that ended two processes began beside another");
    end().await;
    db.pool.execute("create table go ()").await.unwrap();
    db.until(job, JobState::Completed).await;
    let beside = format!(
        "select count(*) from effect_span s join effect_span o on o.job <> s.job and o.began < s.ended and o.ended > s.began where s.job = {job}"
    );
    assert_eq!(db.count(&beside).await, 0, "it ran beside another");
}

#[tokio::test]
async fn a_suspect_of_several_crashes_behind_one_whose_key_has_no_room_runs_beside_no_other() {
    let db = fresh().await;
    set(&db, "type:limits_waits", Limit::new().concurrency(1).keyed()).await;
    db.run_while(waiting(&db), async {
        let before = took(&db).await + 1;
        let [first, last] = suspects(&db, ["a", "b"]).await;
        runs_alone(&db, last, before, async || {}).await;
        db.until(first, JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_suspect_of_several_crashes_behind_one_that_somebody_holds_runs_beside_no_other_under_a_limit() {
    let db = fresh().await;
    set(&db, "type:limits_waits", Limit::new().concurrency(5)).await;
    let mut holder = PgConnection::connect(&db.url).await.unwrap();
    db.run_while(waiting(&db), async {
        let before = took(&db).await + 1;
        let [first, last] = suspects(&db, ["a", "b"]).await;
        let mut open = holder.begin().await.unwrap();
        sqlx::query("select from queue.ready where id = $1 for update").bind(first).execute(&mut *open).await.unwrap();
        runs_alone(&db, last, before, async || open.rollback().await.unwrap()).await;
        db.until(first, JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

/// How long a process has had a processor, to a hundredth of a second.
fn cpu(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<u64> = stat.rsplit_once(") ").unwrap().1.split(' ').skip(11).take(2).map(|ticks| ticks.parse().unwrap()).collect();
    Duration::from_millis(10 * fields.iter().sum::<u64>())
}

#[tokio::test]
#[ignore = "deep"]
async fn a_worker_that_waits_to_try_a_suspect_does_not_spin_for_limits_whose_time_has_come() {
    const QUEUES: [&str; 4] = ["one", "two", "three", "four"];
    let db = TestDb::new().await;
    let process = WorkerProcess::start(env!("CARGO_BIN_EXE_test-worker"), &db.url, &[]);
    // In each of these queues one runs, and others wait: each gate is tried once a second.
    for queue in QUEUES {
        set(&db, &format!("queue:{queue}"), Limit::new().concurrency(1)).await;
        for _ in 0..3 {
            Do { act: Act::Sleep(4900) }.enqueue(&db.pool).queue(queue).await.unwrap();
        }
    }
    eventually("one of each runs", async || db.count("select count(*) from effect").await == 4).await;
    eventually("others found no room", async || db.count("select count(*) from queue.gate where wanted").await == 4).await;
    let mut tx = db.pool.begin().await.unwrap();
    let suspect = Do { act: Act::Ok(String::new()) }.enqueue(&mut tx).await.unwrap().id();
    let suspected = "with taken as (delete from queue.ready where id = $1 returning id)
        insert into queue.ready (lane, seq, id, crashes)
        select queue.meet_lane('default', 'do', 100::smallint, true), queue.next_id(), id, 2 from taken";
    sqlx::query(suspected).bind(suspect).execute(&mut *tx).await.unwrap();
    tx.execute("select queue.wake('default')").await.unwrap();
    tx.commit().await.unwrap();
    let (began, before) = (Instant::now(), cpu(process.pid()));
    // So long it claims nothing at all, and the first gates' time comes.
    tokio::time::sleep(Duration::from_millis(1900)).await;
    let (passed, spent) = (began.elapsed(), cpu(process.pid()).saturating_sub(before));
    eprintln!("{spent:?} of a processor in {passed:?}");
    assert!(spent < passed.mul_f64(0.25), "it had a processor for {spent:?} of {passed:?}");
    assert_eq!(db.state(suspect).await, Some(JobState::Ready), "others run, and it waits for them");
    drop(process);
    db.finish().await;
}
