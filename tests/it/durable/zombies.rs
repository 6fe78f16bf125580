//! Whoever had a durable job says everything that a holder can say, under the lease that it has lost: each is refused, and changes nothing.

use sqlx::PgConnection;
use tests::{
    TestDb,
    holders::{self, ENDS, SAYINGS},
    protocol::{self, Lease, Said, claim, contents, recover, register, settle, silence},
    signals,
};

use super::db;

/// What became of the job since its first holder lost it.
#[derive(Clone, Copy, Debug)]
enum Since {
    /// It waits.
    Recovered,
    /// Another has it, under another attempt.
    Reclaimed,
    /// Another has it, under the same attempt.
    Released,
    Completed,
    Dead,
    /// It waits for a signal.
    Parked,
    /// It was parked and woken, and another has it under the same attempt.
    Woken,
    /// Another has it after it was begun anew.
    Restarted,
    /// It was requeued after it was completed, and another has it.
    Reopened,
}

use Since::{Completed, Dead, Parked, Reclaimed, Recovered, Released, Reopened, Restarted, Woken};

const AFTERWARDS: [Since; 9] = [Recovered, Reclaimed, Released, Completed, Dead, Parked, Woken, Restarted, Reopened];

/// A job with a signal, a child and a map that is open, and its holder.
async fn held(on: &mut PgConnection) -> Lease {
    sqlx::query("select queue.enqueue('do', '{\"act\": {\"Ok\": \"\"}}')").execute(&mut *on).await.unwrap();
    let worker = register(on).await.unwrap();
    let lease = claim(on, worker, 1).await.unwrap();
    assert_eq!(lease.jobs.len(), 1);
    for what in ["step", "spawn", "chunk"] {
        assert!(holders::say(on, lease.one(0, "complete"), what).await.unwrap(), "{what} by its holder");
    }
    for _ in 0..2 {
        assert!(signals::signal(on, lease.jobs[0].id).await.unwrap());
    }
    sqlx::query("delete from queue.ready").execute(&mut *on).await.unwrap();
    sqlx::query("delete from queue.job where id <> $1").bind(lease.jobs[0].id).execute(&mut *on).await.unwrap();
    silence(on, worker).await.unwrap();
    lease
}

/// The lease is lost.
async fn lose(on: &mut PgConnection, lease: &Lease, since: Since) {
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
        "ready, scheduled, lease, done, done_many, dead, failure, job, worker, parked, step, signal, signal_hint, child, gather, brood,
        gather_part, gather_hint, unique_key";
    for table in tables.split(',') {
        sqlx::query(sqlx::AssertSqlSafe(format!("delete from queue.{}", table.trim()))).execute(&db.pool).await.unwrap();
    }
}

#[tokio::test]
async fn whatever_a_zombie_says_of_a_durable_job_is_refused_and_changes_nothing() {
    let db = db().await;
    let mut on = db.pool.acquire().await.unwrap();
    let mut refused = 0;
    for since in AFTERWARDS {
        let lease = held(&mut on).await;
        lose(&mut on, &lease, since).await;
        let before = contents(&mut on).await.unwrap();
        for what in SAYINGS {
            let said = lease.one(0, "complete");
            assert!(!holders::say(&mut on, said, what).await.unwrap(), "{what} of a job that was {since:?}");
            assert_eq!(contents(&mut on).await.unwrap(), before, "{what} of a job that was {since:?}");
            refused += 1;
        }
        // What had been spawned under the lease is closed by who has the job now.
        assert_eq!(holders::close(&mut on, lease.token, lease.jobs[0].id, "map", 2).await.unwrap(), None);
        assert_eq!(contents(&mut on).await.unwrap(), before);
        empty(&db).await;
    }
    assert_eq!(refused, AFTERWARDS.len() * SAYINGS.len());
    drop(on);
    db.finish().await;
}

/// The same of what is said before: that it is accepted then, or the test above would prove nothing.
#[tokio::test]
async fn whatever_a_holder_says_of_a_durable_job_is_accepted_and_what_ends_the_attempt_once() {
    let db = db().await;
    let mut on = db.pool.acquire().await.unwrap();
    for what in SAYINGS {
        let lease = held(&mut on).await;
        let said = lease.one(0, "complete");
        assert!(holders::say(&mut on, said, what).await.unwrap(), "{what}");
        assert_eq!(holders::say(&mut on, said, what).await.unwrap(), !ENDS.contains(&what), "{what}, once more");
        empty(&db).await;
    }
    drop(on);
    db.finish().await;
}

/// A token names one lease: with that of another job, that is alive, a zombie writes nothing of its own.
#[tokio::test]
async fn a_lease_of_another_job_lets_a_zombie_say_nothing_of_its_own() {
    let db = db().await;
    let mut on = db.pool.acquire().await.unwrap();
    let lost = held(&mut on).await;
    lose(&mut on, &lost, Released).await;
    let alive = held_beside(&mut on).await;
    let before = contents(&mut on).await.unwrap();
    for what in SAYINGS {
        let mixed = Said { token: alive.token, ..lost.one(0, "complete") };
        assert!(!holders::say(&mut on, mixed, what).await.unwrap(), "{what}");
        assert_eq!(contents(&mut on).await.unwrap(), before, "{what}");
    }
    empty(&db).await;
    drop(on);
    db.finish().await;
}

async fn held_beside(on: &mut PgConnection) -> Lease {
    sqlx::query("select queue.enqueue('do', '{\"act\": {\"Ok\": \"\"}}')").execute(&mut *on).await.unwrap();
    let worker = register(on).await.unwrap();
    let lease = protocol::claim(on, worker, 1).await.unwrap();
    assert_eq!(lease.jobs.len(), 1);
    lease
}

/// Each has a lease, and names the other's job, in one statement: both tokens are good, and so are both ids.
#[tokio::test]
async fn two_holders_that_name_each_others_jobs_are_both_refused() {
    let db = db().await;
    let mut on = db.pool.acquire().await.unwrap();
    let (ours, theirs) = (held_beside(&mut on).await, held_beside(&mut on).await);
    let swapped = [Said { token: theirs.token, ..ours.one(0, "snooze") }, Said { token: ours.token, ..theirs.one(0, "snooze") }];
    let before = contents(&mut on).await.unwrap();
    assert_eq!(signals::park_held(&mut on, &swapped).await.unwrap().len(), 2);
    assert_eq!(signals::restart(&mut on, &swapped).await.unwrap().len(), 2);
    assert_eq!(contents(&mut on).await.unwrap(), before);
    empty(&db).await;
    drop(on);
    db.finish().await;
}
