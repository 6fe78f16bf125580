//! Tests the statements that claim jobs, settle jobs and recover leases. Races between a settle and a recovery are tested in both orders.
//! The module `zombies` tests late writes.

use std::time::Duration;

use queue_core::{Job as _, JobId, JobState};
use sqlx::{Connection as _, PgConnection};
use tests::{
    Act, Do, TestDb, eventually,
    protocol::{Lease, VERDICTS, beat, claim, contents, flush, lock_silent, recover, register, settle, silence, take_back},
};
use uuid::Uuid;

/// Creates a database with `jobs` jobs claimed by one worker.
async fn claimed(jobs: usize) -> (TestDb, PgConnection, Uuid, Lease) {
    let db = TestDb::new().await;
    enqueue(&db, jobs).await;
    let mut connection = connect(&db).await;
    let worker = register(&mut connection).await.unwrap();
    let lease = claim(&mut connection, worker, 1000).await.unwrap();
    assert_eq!(lease.jobs.len(), jobs);
    (db, connection, worker, lease)
}

async fn enqueue(db: &TestDb, jobs: usize) -> Vec<JobId> {
    let mut ids = Vec::new();
    for _ in 0..jobs {
        ids.push(Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).await.unwrap().id());
    }
    ids
}

/// Connects with a lock timeout, so that an unexpected wait for a lock fails.
async fn connect(db: &TestDb) -> PgConnection {
    let mut connection = PgConnection::connect(&db.url).await.unwrap();
    sqlx::query("set lock_timeout = '5s'").execute(&mut connection).await.unwrap();
    connection
}

#[tokio::test]
async fn of_two_verdicts_on_one_job_in_one_settle_one_counts() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let worker = register(&mut connection).await.unwrap();
    for first in VERDICTS {
        for second in VERDICTS {
            let jobs = enqueue(&db, 2).await;
            let lease = claim(&mut connection, worker, 100).await.unwrap();
            let verdicts = [lease.one(0, first), lease.one(1, "snooze"), lease.one(0, second)];
            // The verdict `forget` has a separate statement, which runs first. The other verdict for the same job is then rejected.
            let refused = if (first == "forget") == (second == "forget") { vec![] } else { vec![(lease.token, Some(jobs[0]))] };
            assert_eq!(settle(&mut connection, &verdicts).await.unwrap(), refused, "{first}, {second}");
            db.check_invariant().await;
            let failures = format!("select count(*) from queue.failure where id = {}", jobs[0]);
            assert!(db.count(&failures).await <= 1, "{first}, {second}");
            let released = "with gone as (delete from queue.ready returning id) delete from queue.job where id in (select id from gone)";
            sqlx::query(released).execute(&mut connection).await.unwrap();
        }
    }
    db.finish().await;
}

#[tokio::test]
async fn unsettled_jobs_stay_in_the_lease_and_the_last_verdict_ends_it() {
    let (db, mut connection, worker, lease) = claimed(5).await;
    assert_eq!(settle(&mut connection, &[lease.one(1, "retry"), lease.one(3, "complete")]).await.unwrap(), []);
    let left: (Vec<JobId>, Vec<i16>, Vec<i16>, Uuid) =
        sqlx::query_as("select ids, attempts, crashes, worker from queue.lease").fetch_one(&mut connection).await.unwrap();
    assert_eq!(left, ([0, 2, 4].map(|n| lease.jobs[n].id).to_vec(), vec![1; 3], vec![0; 3], worker));
    db.check_invariant().await;
    assert_eq!(settle(&mut connection, &[0, 2, 4].map(|n| lease.one(n, "complete"))).await.unwrap(), []);
    assert_eq!(db.count("select count(*) from queue.lease").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn released_and_snoozed_jobs_are_charged_no_attempt_and_others_are() {
    let (db, mut connection, _, lease) = claimed(3).await;
    let verdicts = [lease.one(0, "release"), lease.one(1, "snooze"), lease.one(2, "retry")];
    assert_eq!(settle(&mut connection, &verdicts).await.unwrap(), []);
    let attempts: Vec<i16> =
        sqlx::query_scalar("select attempts::smallint from queue.jobs order by id").fetch_all(&mut connection).await.unwrap();
    assert_eq!(attempts, [0, 0, 1]);
    assert_eq!(db.count("select count(*) from queue.failure").await, 1, "only the retry failed");
    db.finish().await;
}

#[tokio::test]
async fn a_whole_lease_is_settled_by_its_token_alone_once() {
    let (db, mut connection, worker, lease) = claimed(4).await;
    let before = contents(&mut connection).await.unwrap();
    let forged = Uuid::new_v4();
    assert_eq!(flush(&mut connection, &[], &[forged]).await.unwrap(), [(forged, None)]);
    assert_eq!(contents(&mut connection).await.unwrap(), before);
    assert_eq!(flush(&mut connection, &[], &[lease.token]).await.unwrap(), []);
    for id in lease.ids() {
        assert_eq!(db.state(id).await, Some(JobState::Completed));
    }
    let before = contents(&mut connection).await.unwrap();
    assert_eq!(flush(&mut connection, &lease.all("retry"), &[lease.token]).await.unwrap().len(), 5, "four verdicts and a whole lease");
    assert_eq!(contents(&mut connection).await.unwrap(), before);

    enqueue(&db, 3).await;
    let lost = claim(&mut connection, worker, 3).await.unwrap();
    silence(&mut connection, worker).await.unwrap();
    assert_eq!(recover(&mut connection).await.unwrap(), 3);
    let before = contents(&mut connection).await.unwrap();
    assert_eq!(flush(&mut connection, &[], &[lost.token]).await.unwrap(), [(lost.token, None)]);
    assert_eq!(contents(&mut connection).await.unwrap(), before);
    db.finish().await;
}

#[tokio::test]
async fn the_rest_of_a_lease_can_be_settled_as_a_whole() {
    let (db, mut connection, worker, lease) = claimed(4).await;
    assert_eq!(settle(&mut connection, &[lease.one(1, "dead"), lease.one(3, "plain")]).await.unwrap(), []);
    enqueue(&db, 2).await;
    let other = claim(&mut connection, worker, 2).await.unwrap();
    assert_eq!(flush(&mut connection, &[other.one(0, "retry")], &[lease.token]).await.unwrap(), []);
    let states = [JobState::Completed, JobState::Dead, JobState::Completed, JobState::Completed];
    for (id, state) in lease.ids().into_iter().zip(states) {
        assert_eq!(db.state(id).await, Some(state));
    }
    assert_eq!(db.state(other.jobs[0].id).await, Some(JobState::Scheduled));
    assert_eq!(db.state(other.jobs[1].id).await, Some(JobState::Running));
    db.finish().await;
}

#[tokio::test]
async fn recovery_skips_a_lease_that_is_being_settled() {
    let (db, mut recoverer, worker, lease) = claimed(3).await;
    silence(&mut recoverer, worker).await.unwrap();
    let mut settler = connect(&db).await;
    let mut settling = settler.begin().await.unwrap();
    assert_eq!(settle(&mut settling, &[lease.one(0, "plain")]).await.unwrap(), []);
    assert_eq!(recover(&mut recoverer).await.unwrap(), 0, "it neither waits nor takes");
    settling.commit().await.unwrap();
    assert_eq!(recover(&mut recoverer).await.unwrap(), 2);
    assert_eq!(db.state(lease.jobs[0].id).await, Some(JobState::Completed));
    db.finish().await;
}

#[tokio::test]
async fn recovery_takes_back_jobs_of_a_settle_that_was_rolled_back() {
    let (db, mut recoverer, worker, lease) = claimed(2).await;
    silence(&mut recoverer, worker).await.unwrap();
    let mut settler = connect(&db).await;
    let mut settling = settler.begin().await.unwrap();
    assert_eq!(settle(&mut settling, &lease.all("complete")).await.unwrap(), []);
    settling.rollback().await.unwrap();
    assert_eq!(recover(&mut recoverer).await.unwrap(), 2);
    db.finish().await;
}

/// Settles a lease while a recovery holds the lock on the lease. With `whole`, the lease is settled by its token instead of by verdicts.
/// With `commit`, the recovery commits; otherwise it rolls back.
async fn settle_behind_a_recovery(whole: bool, commit: bool) {
    let (db, mut recoverer, worker, lease) = claimed(3).await;
    silence(&mut recoverer, worker).await.unwrap();
    let mut recovering = recoverer.begin().await.unwrap();
    assert_eq!(lock_silent(&mut recovering).await.unwrap(), [lease.token]);
    let mut settler = connect(&db).await;
    let (verdicts, tokens) = if whole { (Vec::new(), vec![lease.token]) } else { (lease.all("plain"), Vec::new()) };
    let settling = tokio::spawn(async move { flush(&mut settler, &verdicts, &tokens).await });
    eventually("the settle waits for the recovery", async || {
        db.count("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'").await == 1
    })
    .await;
    if commit {
        assert_eq!(take_back(&mut recovering, &[lease.token]).await.unwrap(), [("default".to_owned(), 3)]);
        recovering.commit().await.unwrap();
        assert_eq!(settling.await.unwrap().unwrap().len(), if whole { 1 } else { 3 }, "all refused");
        assert_eq!(db.count("select count(*) from queue.jobs where state = 'completed'").await, 0);
        assert_eq!(db.count("select count(*) from queue.ready").await, 3);
    } else {
        recovering.rollback().await.unwrap();
        assert_eq!(settling.await.unwrap().unwrap(), []);
        assert_eq!(db.count("select count(*) from queue.jobs where state = 'completed'").await, 3);
    }
    db.finish().await;
}

#[tokio::test]
async fn a_settle_that_waits_for_a_recovery_is_refused() {
    for whole in [false, true] {
        settle_behind_a_recovery(whole, true).await;
    }
}

#[tokio::test]
async fn a_settle_that_waits_for_a_recovery_that_fails_counts() {
    for whole in [false, true] {
        settle_behind_a_recovery(whole, false).await;
    }
}

#[tokio::test]
#[ignore = "deep"]
async fn concurrent_settles_and_recoveries_never_bring_back_a_completed_job() {
    let db = TestDb::new().await;
    let (mut settler, mut other) = (connect(&db).await, connect(&db).await);
    let (mut both, rounds) = (0, 150);
    for round in 0..rounds {
        let jobs = enqueue(&db, 4).await;
        let worker = register(&mut settler).await.unwrap();
        let lease = claim(&mut settler, worker, 4).await.unwrap();
        assert_eq!(lease.ids(), jobs, "all earlier jobs have finished");
        silence(&mut settler, worker).await.unwrap();
        let late = Duration::from_micros(round % 15 * 100);
        let part = [lease.one(0, "complete"), lease.one(2, "complete")];
        let (refused, recovered) = tokio::join!(settle(&mut settler, &part), async {
            tokio::time::sleep(late).await;
            recover(&mut other).await
        });
        let (refused, mut recovered) = (refused.unwrap().len(), recovered.unwrap());
        both += i32::from(refused == 0 && recovered == 2);
        recovered += recover(&mut other).await.unwrap();
        assert_eq!(recovered, if refused == 0 { 2 } else { 4 }, "round {round}: either the settle counts or the recovery takes all");
        db.check_invariant().await;
        let worker = register(&mut settler).await.unwrap();
        let again = claim(&mut settler, worker, 4).await.unwrap();
        assert_eq!(settle(&mut settler, &again.all("plain")).await.unwrap(), []);
    }
    assert!(both > 0, "no recovery came right after its settle in {rounds} rounds");
    db.finish().await;
}

#[tokio::test]
async fn two_concurrent_recoveries_take_each_lease_once() {
    let (db, mut connection, worker, _) = claimed(1).await;
    for _ in 0..30 {
        enqueue(&db, 1).await;
        claim(&mut connection, worker, 1).await.unwrap();
    }
    silence(&mut connection, worker).await.unwrap();
    let mut others = [connect(&db).await, connect(&db).await, connect(&db).await];
    let [a, b, c] = &mut others;
    let (a, b, c) = tokio::join!(recover(a), recover(b), recover(c));
    assert_eq!(a.unwrap() + b.unwrap() + c.unwrap() + recover(&mut connection).await.unwrap(), 31);
    assert_eq!(db.count("select count(*) from queue.ready where crashes = 1").await, 31);
    db.finish().await;
}

#[tokio::test]
async fn a_silent_or_unknown_worker_claims_nothing() {
    let db = TestDb::new().await;
    enqueue(&db, 3).await;
    let mut connection = connect(&db).await;
    let worker = register(&mut connection).await.unwrap();
    silence(&mut connection, worker).await.unwrap();
    let before = contents(&mut connection).await.unwrap();
    assert!(claim(&mut connection, worker, 10).await.unwrap().jobs.is_empty());
    assert!(claim(&mut connection, Uuid::new_v4(), 10).await.unwrap().jobs.is_empty());
    assert_eq!(contents(&mut connection).await.unwrap(), before);
    db.finish().await;
}

#[tokio::test]
async fn a_silent_worker_cannot_renew_its_lease() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let worker = register(&mut connection).await.unwrap();
    assert!(beat(&mut connection, worker).await.unwrap());
    silence(&mut connection, worker).await.unwrap();
    assert!(!beat(&mut connection, worker).await.unwrap());
    assert!(!beat(&mut connection, Uuid::new_v4()).await.unwrap());
    assert_eq!(db.count("select count(*) from queue.worker where expires_at > now()").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn concurrent_claims_never_share_a_job() {
    let db = TestDb::new().await;
    sqlx::query("select queue.enqueue('do', '{}') from generate_series(1, 2000)").execute(&db.pool).await.unwrap();
    let mut claims = Vec::new();
    for _ in 0..6 {
        let mut connection = connect(&db).await;
        claims.push(tokio::spawn(async move {
            let worker = register(&mut connection).await.unwrap();
            let mut taken = Vec::new();
            loop {
                let lease = claim(&mut connection, worker, 23).await.unwrap();
                if lease.jobs.is_empty() {
                    return taken;
                }
                taken.extend(lease.ids());
            }
        }));
    }
    let mut taken = Vec::new();
    for claim in claims {
        taken.extend(claim.await.unwrap());
    }
    taken.sort_unstable();
    let all = taken.len();
    taken.dedup();
    assert_eq!((all, taken.len()), (2000, 2000));
    db.finish().await;
}

#[tokio::test]
async fn a_claim_skips_jobs_that_another_is_taking() {
    let db = TestDb::new().await;
    let jobs = enqueue(&db, 4).await;
    let (mut first, mut second) = (connect(&db).await, connect(&db).await);
    let (worker, other) = (register(&mut first).await.unwrap(), register(&mut second).await.unwrap());
    let mut claiming = first.begin().await.unwrap();
    assert_eq!(claim(&mut claiming, worker, 2).await.unwrap().ids(), jobs[..2]);
    assert_eq!(claim(&mut second, other, 10).await.unwrap().ids(), jobs[2..]);
    claiming.rollback().await.unwrap();
    assert_eq!(claim(&mut second, other, 10).await.unwrap().ids(), jobs[..2], "a lost claim is a ready job");
    db.finish().await;
}
