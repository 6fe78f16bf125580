//! Tests writes under a lost lease, under the lease of another job, or without a lease. Each write is rejected and changes nothing.

use queue_core::JobId;
use sqlx::PgConnection;
use tests::{
    TestDb,
    holders::{self, ENDING_WRITES, HOLDER_WRITES},
    operate,
    protocol::{self, JobVerdict, Lease, VERDICTS, claim, contents, recover, register, settle, silence},
    signals,
};
use uuid::Uuid;

/// Names of the writes of a lease holder that are neither in `HOLDER_WRITES` nor verdicts.
const WRITES: [&str; 6] = ["whole lease", "fresh step", "report", "log", "set aside", "expire"];

/// Returns the names of all writes of a lease holder.
fn writes() -> impl Iterator<Item = &'static str> {
    HOLDER_WRITES.into_iter().chain(WRITES).chain(VERDICTS)
}

/// Runs a write for the job of a verdict. Returns whether the write was accepted.
async fn write(on: &mut PgConnection, job_verdict: JobVerdict, what: &'static str) -> bool {
    let (token, job) = (job_verdict.token, job_verdict.job);
    match what {
        "whole lease" => protocol::settle_leases_of(on, &[token], &[(job.id.0, job.lane)], &[1]).await.unwrap().is_empty(),
        "fresh step" => operate::journal_fresh(on, token, job.id).await.unwrap() == 1,
        "report" => protocol::note(on, token, job, "here").await.unwrap(),
        "log" => operate::write_logs(on, token, job.id).await.unwrap() == 1,
        "set aside" => protocol::park(on, job_verdict).await.unwrap().is_some(),
        "expire" => protocol::expire_held(on, &[job_verdict]).await.unwrap().is_empty(),
        verdict if VERDICTS.contains(&verdict) => settle(on, &[JobVerdict { verdict, ..job_verdict }]).await.unwrap().is_empty(),
        what => holders::write(on, job_verdict, what).await.unwrap(),
    }
}

/// Returns whether the write ends the attempt.
fn ends(what: &str) -> bool {
    ENDING_WRITES.contains(&what) || VERDICTS.contains(&what) || ["whole lease", "set aside", "expire"].contains(&what)
}

/// Checks that the write is rejected and changes nothing.
async fn is_refused(on: &mut PgConnection, verdict: JobVerdict, what: &'static str, why: &str) {
    let logs = "select count(*) from queue.log";
    let logs = async |on: &mut PgConnection| sqlx::query_scalar::<_, i64>(logs).fetch_one(on).await.unwrap();
    let before = (contents(on).await.unwrap(), logs(on).await);
    assert!(!write(on, verdict, what).await, "{what} {why}");
    assert_eq!((contents(on).await.unwrap(), logs(on).await), before, "{what} {why}");
}

/// State of a job after its first holder has lost the lease.
#[derive(Clone, Copy, Debug)]
enum JobChange {
    /// The job is ready again.
    Recovered,
    /// The lease was recovered. Another worker has claimed the job with a new attempt number.
    Reclaimed,
    /// The job was released. Another worker has claimed the job with the same attempt number.
    Released,
    Completed,
    Dead,
    /// The job is waiting for a signal.
    Parked,
    /// The job was parked and woken. Another worker has claimed the job with the same attempt number.
    Woken,
    /// The job was restarted, and another worker holds the job.
    Restarted,
    /// The job was completed and requeued, and another worker holds the job.
    Reopened,
}

use JobChange::{Completed, Dead, Parked, Reclaimed, Recovered, Released, Reopened, Restarted, Woken};

const AFTERWARDS: [JobChange; 9] = [Recovered, Reclaimed, Released, Completed, Dead, Parked, Woken, Restarted, Reopened];

/// Creates a job with two signals, a child and an open map. The job is under a lease of a worker whose heartbeat has expired.
async fn held(on: &mut PgConnection) -> Lease {
    sqlx::query("select queue.enqueue('do', '{\"act\": {\"Ok\": \"\"}}')").execute(&mut *on).await.unwrap();
    let worker = register(on).await.unwrap();
    let lease = claim(on, worker, 1).await.unwrap();
    assert_eq!(lease.jobs.len(), 1);
    for what in ["step", "spawn", "chunk"] {
        assert!(holders::write(on, lease.one(0, "complete"), what).await.unwrap(), "{what} by its holder");
    }
    for _ in 0..2 {
        assert!(signals::signal(on, lease.jobs[0].id).await.unwrap());
    }
    sqlx::query("delete from queue.ready").execute(&mut *on).await.unwrap();
    sqlx::query("delete from queue.job where id not in (select unnest(ids) from queue.lease)").execute(&mut *on).await.unwrap();
    silence(on, worker).await.unwrap();
    lease
}

/// Ends the holder's lease, and brings the job into the state `since`.
async fn lose(on: &mut PgConnection, lease: &Lease, since: JobChange) {
    let all = |verdict| lease.all(verdict);
    match since {
        Recovered | Reclaimed => assert_eq!(recover(on).await.unwrap(), 1),
        Released => assert_eq!(settle(on, &all("release")).await.unwrap(), []),
        Completed | Reopened => assert_eq!(settle(on, &all("complete")).await.unwrap(), []),
        Dead => assert_eq!(settle(on, &all("dead")).await.unwrap(), []),
        Parked | Woken => assert_eq!(signals::park_held(on, &all("snooze")).await.unwrap(), []),
        Restarted => assert_eq!(signals::restart(on, &all("snooze")).await.unwrap(), []),
    }
    if matches!(since, Woken) {
        assert_eq!(signals::wake_parked(on).await.unwrap(), 1);
    }
    if matches!(since, Reopened) {
        sqlx::query("select queue.requeue($1)").bind(lease.jobs[0].id).execute(&mut *on).await.unwrap();
    }
    if matches!(since, Reclaimed | Released | Woken | Restarted | Reopened) {
        let other = register(on).await.unwrap();
        let taken = claim(on, other, 1).await.unwrap();
        assert_eq!(taken.ids(), lease.ids(), "{since:?}");
    }
}

async fn empty(db: &TestDb) {
    let tables =
        "ready, scheduled, lease, done, done_many, dead, failure, job, worker, parked, step, signal, signal_hint, child, gather, map_batch,
        gather_part, gather_hint, end_hint, unique_key, progress, log";
    for table in tables.split(',') {
        sqlx::query(sqlx::AssertSqlSafe(format!("delete from queue.{}", table.trim()))).execute(&db.pool).await.unwrap();
    }
}

#[tokio::test]
async fn a_write_after_the_lease_was_lost_is_refused_and_changes_nothing() {
    let db = TestDb::new().await;
    let mut on = db.pool.acquire().await.unwrap();
    for since in AFTERWARDS {
        let lease = held(&mut on).await;
        lose(&mut on, &lease, since).await;
        for what in writes() {
            is_refused(&mut on, lease.one(0, "complete"), what, &format!("of a job that was {since:?}")).await;
        }
        // The holder of the lost lease cannot close the map that it opened, even with the right name and total.
        let before = contents(&mut on).await.unwrap();
        assert_eq!(holders::close(&mut on, lease.token, lease.jobs[0].id, "map", 2).await.unwrap(), None);
        assert_eq!(contents(&mut on).await.unwrap(), before);
        empty(&db).await;
    }
    drop(on);
    db.finish().await;
}

/// Control test: if the store rejected every write, the other tests would prove nothing.
#[tokio::test]
async fn a_write_of_the_holder_is_accepted_and_one_that_ends_the_attempt_only_once() {
    let db = TestDb::new().await;
    let mut on = db.pool.acquire().await.unwrap();
    for what in writes() {
        let lease = held(&mut on).await;
        let verdict = lease.one(0, "complete");
        assert!(write(&mut on, verdict, what).await, "{what}");
        if ends(what) {
            for again in writes().filter(|again| ends(again)) {
                is_refused(&mut on, verdict, again, &format!("after {what}")).await;
            }
        } else {
            assert!(write(&mut on, verdict, what).await, "{what}, once more");
        }
        empty(&db).await;
    }
    drop(on);
    db.finish().await;
}

/// A token identifies one lease. No write takes effect under the lease of another running job, or without a lease.
#[tokio::test]
async fn a_write_counts_only_under_the_lease_that_has_the_job() {
    let db = TestDb::new().await;
    let mut on = db.pool.acquire().await.unwrap();
    let (ours, theirs) = (held(&mut on).await, held(&mut on).await);
    let settled = held_beside(&mut on, 2).await;
    assert_eq!(settle(&mut on, &[settled.one(1, "retry")]).await.unwrap(), []);
    let under = |token| JobVerdict { token, ..ours.one(0, "complete") };
    let mut waiting = under(ours.token);
    waiting.job.id = operate::enqueue(&mut on, "default", 100, false).await.unwrap();
    for what in writes() {
        is_refused(&mut on, under(Uuid::new_v4()), what, "under no lease").await;
        if what == "whole lease" {
            continue;
        }
        is_refused(&mut on, under(theirs.token), what, "under another lease").await;
        is_refused(&mut on, JobVerdict { token: ours.token, ..theirs.one(0, "complete") }, what, "of a job of another lease").await;
        is_refused(&mut on, waiting, what, "of a job that waits").await;
        is_refused(&mut on, settled.one(1, "complete"), what, "of a job that has left its lease").await;
    }
    empty(&db).await;
    drop(on);
    db.finish().await;
}

/// Runs a write for several jobs in one statement. Returns the jobs for which the write was accepted.
async fn write_all(on: &mut PgConnection, verdicts: &[JobVerdict], what: &str) -> Vec<JobId> {
    let refused = match what {
        "settle" => protocol::settle_together(on, verdicts).await,
        "forget" => protocol::settle_forgotten(on, verdicts).await,
        "expire" => protocol::expire_held(on, verdicts).await,
        "park" => signals::park_held(on, verdicts).await,
        "restart" => signals::restart(on, verdicts).await,
        _ => {
            let reports: Vec<_> = verdicts.iter().map(|one| (one.token, one.job, "here")).collect();
            return protocol::note_all(on, &reports).await.unwrap().into_iter().map(|(_, id)| id).collect();
        }
    };
    let refused = refused.unwrap();
    verdicts.iter().filter(|one| !refused.contains(&(one.token, Some(one.job.id)))).map(|one| one.job.id).collect()
}

/// Two jobs have different leases. One statement writes each job under the lease of the other job, so both tokens and both ids are valid.
#[tokio::test]
async fn of_writes_in_one_statement_only_those_under_the_right_lease_are_accepted() {
    let db = TestDb::new().await;
    let mut on = db.pool.acquire().await.unwrap();
    for what in ["settle", "forget", "expire", "park", "restart", "report"] {
        let (ours, theirs) = (held_beside(&mut on, 2).await, held_beside(&mut on, 1).await);
        let crossed =
            [JobVerdict { token: theirs.token, ..ours.one(0, "complete") }, JobVerdict { token: ours.token, ..theirs.one(0, "complete") }];
        let before = contents(&mut on).await.unwrap();
        assert_eq!(write_all(&mut on, &crossed, what).await, [], "{what}");
        assert_eq!(contents(&mut on).await.unwrap(), before, "{what}");
        let right = ours.one(1, "complete");
        assert_eq!(write_all(&mut on, &[crossed[0], right, crossed[1]], what).await, [right.job.id], "{what}");
        let both = [ours.jobs[0].id, theirs.jobs[0].id];
        let untouched =
            "select (select count(*) from queue.lease where ids && $1) - (select count(*) from queue.progress where id = any ($1))";
        let untouched = sqlx::query_scalar::<_, i64>(untouched).bind(both).fetch_one(&mut *on).await;
        assert_eq!(untouched.unwrap(), 2, "{what}");
        empty(&db).await;
    }
    drop(on);
    db.finish().await;
}

async fn held_beside(on: &mut PgConnection, jobs: i32) -> Lease {
    let enqueue = "select queue.enqueue('do', '{\"act\": {\"Ok\": \"\"}}') from generate_series(1, $1)";
    sqlx::query(enqueue).bind(jobs).execute(&mut *on).await.unwrap();
    let worker = register(on).await.unwrap();
    let lease = protocol::claim(on, worker, jobs).await.unwrap();
    assert_eq!(lease.jobs.len(), usize::try_from(jobs).unwrap());
    lease
}
