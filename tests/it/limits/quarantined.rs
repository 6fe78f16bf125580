//! Tests quarantined jobs under limits. A job that another crash would turn into a dead letter runs alone. While such jobs are waiting,
//! no worker polls in a busy loop.

use std::{fs, time::Duration};

use queue_core::{Job as _, JobId, JobState, options::Limit};
use sqlx::Connection as _;
use tests::{Act, Do, Sql as _, TestDb, WorkerProcess, eventually};

use super::{BEGUN, UNTIL_GO, Unlimited, begun, fresh, set, worker};

/// Statement that quarantines both ready jobs, as if the first job had crashed once and the second job twice.
const SUSPECTED: &str = "with taken as (delete from queue.ready returning id)
    insert into queue.ready (lane, seq, id, crashes)
    select queue.ensure_lane('default', 'unlimited', 100::smallint, true), queue.next_id(), id, (row_number() over (order by id))::smallint
    from taken";

/// Creates two quarantined jobs while another job is running. The first job has crashed once, the second job twice. The caller makes sure
/// that the first job cannot be claimed, so a claim takes the second job.
async fn suspects(db: &TestDb, keys: [&str; 2]) -> [JobId; 2] {
    Unlimited { ms: UNTIL_GO }.enqueue(&db.pool).fair("a").await.unwrap();
    db.until_count(BEGUN, 1).await;
    let mut tx = db.pool.begin().await.unwrap();
    let first = Unlimited { ms: 0 }.enqueue(&mut tx).fair(keys[0]).await.unwrap().id();
    let last = Unlimited { ms: 0 }.enqueue(&mut tx).fair(keys[1]).await.unwrap().id();
    tx.run(SUSPECTED).await;
    tx.run("select queue.wake('default')").await;
    tx.commit().await.unwrap();
    [first, last]
}

async fn has_begun(db: &TestDb, job: JobId) -> bool {
    db.count(&begun(&format!("job = {job}"))).await > 0
}

/// Returns the number of non-empty claims under limits.
async fn took(db: &TestDb) -> i64 {
    db.count("select case when is_called then last_value else 0 end from queue.permit_seq").await
}

/// Checks that the job is claimed and released while other jobs are running, and then runs alone. `end` ends the other jobs.
async fn runs_alone(db: &TestDb, job: JobId, before: i64, end: impl AsyncFnOnce()) {
    eventually("it is claimed", async || took(db).await > before).await;
    eventually("it is begun or given back", async || has_begun(db, job).await || db.state(job).await == Some(JobState::Ready)).await;
    assert!(!has_begun(db, job).await, "one that ended two processes began beside another");
    end().await;
    db.run("create table go ()").await;
    db.until(job, JobState::Completed).await;
    let beside = format!(
        "select count(*) from effect_span s join effect_span o on o.job <> s.job and o.began < s.ended and o.ended > s.began where s.job = {job}"
    );
    assert_eq!(db.count(&beside).await, 0, "it ran beside another");
}

/// The first job cannot be claimed, because its key has no permit or because another session has locked the job.
#[tokio::test]
async fn a_quarantined_job_of_several_crashes_behind_an_unclaimable_one_runs_beside_no_other() {
    for (limit, is_held) in [(Limit::new().concurrency(1).keyed(), false), (Limit::new().concurrency(5), true)] {
        let db = fresh().await;
        set(&db, "type:unlimited", limit).await;
        let mut holder = db.connect().await;
        db.run_while(worker(&db), async {
            let before = took(&db).await + 1;
            let [first, last] = suspects(&db, ["a", "b"]).await;
            let mut open = holder.begin().await.unwrap();
            if is_held {
                open.run(&format!("select from queue.ready where id = {first} for update")).await;
            }
            runs_alone(&db, last, before, async || open.rollback().await.unwrap()).await;
            db.until(first, JobState::Completed).await;
        })
        .await;
        db.finish().await;
    }
}

/// Returns the CPU time of a process, with a resolution of 10 ms.
fn cpu(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<u64> = stat.rsplit_once(") ").unwrap().1.split(' ').skip(11).take(2).map(|ticks| ticks.parse().unwrap()).collect();
    Duration::from_millis(10 * fields.iter().sum::<u64>())
}

#[tokio::test]
#[ignore = "deep"]
async fn a_worker_that_waits_to_try_a_quarantined_job_does_not_spin_for_due_limits() {
    const QUEUES: [&str; 4] = ["one", "two", "three", "four"];
    let db = TestDb::new().await;
    let process = WorkerProcess::start(env!("CARGO_BIN_EXE_test-worker"), &db.url, &[]);
    // In each queue, one job is running and two jobs are waiting, so the worker tries each limit once a second.
    for queue in QUEUES {
        set(&db, &format!("queue:{queue}"), Limit::new().concurrency(1)).await;
        for _ in 0..3 {
            Do { act: Act::Sleep(4900) }.enqueue(&db.pool).queue(queue).await.unwrap();
        }
    }
    db.until_count("select count(*) from effect", 4).await;
    db.until_count("select count(*) from queue.limiter where has_waiters", 4).await;
    let mut tx = db.pool.begin().await.unwrap();
    let suspect = Do::ok().enqueue(&mut tx).await.unwrap().id();
    let suspected = format!(
        "with taken as (delete from queue.ready where id = {suspect} returning id)
         insert into queue.ready (lane, seq, id, crashes)
         select queue.ensure_lane('default', 'do', 100::smallint, true), queue.next_id(), id, 2 from taken;
         select queue.wake('default')"
    );
    tx.run(&suspected).await;
    tx.commit().await.unwrap();
    // The worker claims no jobs until the running jobs have ended. During this time, its next claims under the limits become due.
    let before = cpu(process.pid());
    eventually("the first of them have finished", async || db.rows_of(&["done", "done_many"]).await > 0).await;
    let spent = cpu(process.pid()).saturating_sub(before);
    assert!(spent < Duration::from_secs(1), "it had a processor for {spent:?}");
    drop(process);
    db.finish().await;
}
