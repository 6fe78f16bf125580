//! Tests that no write of a zombie takes effect. A zombie is a former lease holder that sends its writes at any point between the
//! statements of two other workers.

use std::cell::Cell;

use sqlx::{Connection as _, PgConnection};
use tests::{
    TestDb, holders, operate,
    protocol::{self, Lease, VERDICTS, claim, lock_silent, recover, register, silence, take_back},
};
use uuid::Uuid;

use super::{pair::pid, tally::stuck_keys};

/// Writes that a lease holder can send, except verdicts and receives of signals. A receive skips a locked lease instead of waiting for the
/// lock, and is covered by another test.
const OTHER_WRITES: [&str; 10] =
    ["whole", "give back", "record_progress", "step", "step alone", "park", "spawn", "chunk", "close", "restart"];

/// Writes that do not end the attempt.
const NON_FINAL_WRITES: [&str; 6] = ["record_progress", "step", "step alone", "spawn", "chunk", "close"];

/// Sends the write for all jobs of the lease. Returns the number of jobs for which the write was accepted.
async fn send_all(on: &mut PgConnection, lease: &Lease, what: &'static str) -> usize {
    match what {
        "whole" => (1 - protocol::settle_leases(on, &[lease.token]).await.unwrap().len()) * lease.jobs.len(),
        "give back" => usize::try_from(operate::give_back(on, &[lease.token]).await.unwrap()).unwrap(),
        "record_progress" => {
            let reports: Vec<_> = lease.jobs.iter().map(|job| (lease.token, *job, "half")).collect();
            protocol::note_all(on, &reports).await.unwrap().len()
        }
        what if holders::HOLDER_WRITES.contains(&what) => {
            let mut accepted = 0;
            for at in 0..lease.jobs.len() {
                accepted += usize::from(holders::write(on, lease.one(at, "complete"), what).await.unwrap());
            }
            accepted
        }
        verdict => lease.jobs.len() - protocol::settle(on, &lease.all(verdict)).await.unwrap().len(),
    }
}

/// Scene in which worker A has claimed two jobs and its heartbeat has expired. Workers B and C and an observer have connections.
struct ZombieScene {
    db: TestDb,
    a: PgConnection,
    b: PgConnection,
    c: PgConnection,
    watch: PgConnection,
    pids: [i32; 2],
    held: Lease,
}

impl ZombieScene {
    async fn set() -> Self {
        let db = TestDb::new().await;
        let [mut a, mut b, c, watch] = [connect(&db).await, connect(&db).await, connect(&db).await, connect(&db).await];
        let pids = [pid(&mut a).await, pid(&mut b).await];
        let held = Lease { token: Uuid::nil(), jobs: Vec::new() };
        Self { db, a, b, c, watch, pids, held }
    }

    /// Empties the tables and creates two jobs. Worker A claims both jobs, and then its heartbeat expires.
    async fn begin(&mut self) {
        let empty = "truncate queue.ready, queue.scheduled, queue.lease, queue.done, queue.done_many, queue.dead, queue.failure, queue.job,
          queue.worker, queue.progress, queue.parked, queue.step, queue.signal, queue.signal_hint, queue.child, queue.gather, queue.map_batch,
          queue.gather_part, queue.gather_hint, queue.end_hint";
        sqlx::raw_sql(empty).execute(&mut self.watch).await.unwrap();
        for _ in 0..2 {
            operate::enqueue(&mut self.watch, "default", 100, false).await.unwrap();
        }
        self.held = claim_and_expire(&mut self.a).await;
    }

    /// Checks that every job was completed once, on the given attempt, and that each earlier attempt is recorded as a crash.
    async fn completed_at(&mut self, attempt: i16, why: &str) {
        let attempts: Vec<i16> = sqlx::query_scalar("select attempts from queue.done").fetch_all(&mut self.watch).await.unwrap();
        assert_eq!(attempts, [attempt; 2], "{why}");
        let failures: Vec<i16> =
            sqlx::query_scalar("select attempt from queue.failure order by attempt, id").fetch_all(&mut self.watch).await.unwrap();
        assert_eq!(failures, (1..attempt).flat_map(|earlier| [earlier; 2]).collect::<Vec<_>>(), "{why}");
        self.db.check_invariant().await;
        assert_eq!(stuck_keys(&mut self.watch).await.unwrap(), []);
    }

    async fn finish(self) {
        drop([self.a, self.b, self.c, self.watch]);
        self.db.finish().await;
    }
}

async fn connect(db: &TestDb) -> PgConnection {
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    // The lock timeout turns a wait that never ends into an error.
    sqlx::query("set lock_timeout = '20s'").execute(&mut on).await.unwrap();
    on
}

async fn claim_by_another(on: &mut PgConnection) -> Lease {
    let worker = register(on).await.unwrap();
    claim(on, worker, 10).await.unwrap()
}

async fn claim_and_expire(on: &mut PgConnection) -> Lease {
    let worker = register(on).await.unwrap();
    let lease = claim(on, worker, 10).await.unwrap();
    silence(on, worker).await.unwrap();
    lease
}

/// Waits until session `one` waits for session `other`, or until `ended` is set. Returns whether session `one` waits.
async fn waits_for_session(watch: &mut PgConnection, [one, other]: [i32; 2], ended: &Cell<bool>) -> bool {
    while !ended.get() {
        let waits = sqlx::query_scalar("select $2 = any (pg_blocking_pids($1))").bind(one).bind(other);
        if waits.fetch_one(&mut *watch).await.unwrap() {
            return true;
        }
    }
    false
}

fn all_writes() -> impl Iterator<Item = &'static str> {
    VERDICTS.into_iter().chain(OTHER_WRITES)
}

#[tokio::test]
async fn writes_of_a_holder_during_its_recovery_are_refused_permanently() {
    let mut scene = ZombieScene::set().await;
    for what in all_writes() {
        scene.begin().await;
        let ZombieScene { a, b, c, watch, pids, held, .. } = &mut scene;
        let mut recovery = b.begin().await.unwrap();
        let tokens = lock_silent(&mut recovery).await.unwrap();
        assert_eq!(tokens, [held.token]);
        let ended = Cell::new(false);
        let saying = async {
            let accepted = send_all(a, held, what).await;
            ended.set(true);
            accepted
        };
        let going_on = async {
            assert!(waits_for_session(watch, *pids, &ended).await, "`{what}` waits for the recovery");
            take_back(&mut recovery, &tokens).await.unwrap();
            assert!(waits_for_session(watch, *pids, &ended).await, "`{what}` waits for its commit");
            assert_eq!(claim_by_another(c).await.jobs, [], "the jobs are invisible before");
            recovery.commit().await.unwrap();
        };
        let (accepted, ()) = tokio::join!(saying, going_on);
        assert_eq!(accepted, 0, "`{what}` under a lease that was recovered meanwhile");
        let lease = claim_by_another(c).await;
        assert_eq!(lease.ids(), held.ids(), "the third worker holds them now");
        let mut settling = c.begin().await.unwrap();
        assert_eq!(protocol::settle(&mut settling, &[lease.one(0, "complete")]).await.unwrap(), []);
        assert_eq!(send_all(a, held, what).await, 0, "`{what}` during the third worker's verdict");
        settling.commit().await.unwrap();
        assert_eq!(send_all(a, held, what).await, 0, "`{what}` between two verdicts of the third worker");
        assert_eq!(protocol::settle(c, &[lease.one(1, "complete")]).await.unwrap(), []);
        assert_eq!(send_all(a, held, what).await, 0, "`{what}` after both verdicts");
        scene.completed_at(2, what).await;
    }
    scene.finish().await;
}

#[tokio::test]
async fn writes_of_a_holder_take_effect_if_its_recovery_rolls_back() {
    let mut scene = ZombieScene::set().await;
    for what in all_writes() {
        scene.begin().await;
        let ZombieScene { a, b, c, watch, pids, held, .. } = &mut scene;
        let mut recovery = b.begin().await.unwrap();
        let tokens = lock_silent(&mut recovery).await.unwrap();
        take_back(&mut recovery, &tokens).await.unwrap();
        let ended = Cell::new(false);
        let saying = async {
            let accepted = send_all(a, held, what).await;
            ended.set(true);
            accepted
        };
        let going_on = async {
            assert!(waits_for_session(watch, *pids, &ended).await, "`{what}` waits for the recovery");
            recovery.rollback().await.unwrap();
        };
        let (accepted, ()) = tokio::join!(saying, going_on);
        assert_eq!(accepted, 2, "`{what}` under a lease that was not recovered");
        let returned = match what {
            // After `chunk`, the map of each of the two jobs has one ready part and one parked part.
            "release" | "give back" | "restart" | "spawn" | "chunk" => 2,
            _ => 0,
        };
        assert_eq!(claim_by_another(c).await.jobs.len(), returned, "after `{what}`");
        assert_eq!(recover(b).await.unwrap(), if NON_FINAL_WRITES.contains(&what) { 2 } else { 0 }, "after `{what}`");
        scene.db.check_invariant().await;
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_verdict_whose_transaction_was_lost_is_refused_once_others_have_the_job() {
    let mut scene = ZombieScene::set().await;
    for what in all_writes() {
        scene.begin().await;
        let ZombieScene { a, b, c, held, .. } = &mut scene;
        let mut settling = a.begin().await.unwrap();
        assert_eq!(send_all(&mut settling, held, what).await, 2);
        // Both statements of a recovery skip a lease that a verdict has locked.
        assert_eq!(recover(b).await.unwrap(), 0, "`{what}` is in flight");
        assert_eq!(claim_by_another(c).await.jobs, []);
        settling.rollback().await.unwrap();
        assert_eq!(recover(b).await.unwrap(), 2);
        let lease = claim_by_another(c).await;
        assert_eq!(send_all(a, held, what).await, 0, "`{what}` sent again, as after a commit without a reply");
        assert_eq!(protocol::settle(c, &lease.all("complete")).await.unwrap(), []);
        assert_eq!(send_all(a, held, what).await, 0);
        scene.completed_at(2, what).await;
    }
    scene.finish().await;
}

#[tokio::test]
async fn of_three_consecutive_holders_only_the_last_may_write() {
    let mut scene = ZombieScene::set().await;
    for what in all_writes() {
        scene.begin().await;
        let ZombieScene { a, b, c, held, .. } = &mut scene;
        assert_eq!(recover(b).await.unwrap(), 2);
        let second = claim_and_expire(b).await;
        assert_eq!(second.ids(), held.ids());
        // The first holder sends its write while the second holder's lease is recovered. The second holder sends its write while the
        // third holder settles.
        let mut recovery = c.begin().await.unwrap();
        let tokens = lock_silent(&mut recovery).await.unwrap();
        assert_eq!(send_all(a, held, what).await, 0);
        take_back(&mut recovery, &tokens).await.unwrap();
        assert_eq!(send_all(a, held, what).await, 0);
        recovery.commit().await.unwrap();
        let third = claim_by_another(c).await;
        assert_eq!(third.jobs.iter().map(|job| (job.attempts, job.crashes)).collect::<Vec<_>>(), [(3, 2); 2]);
        let mut settling = c.begin().await.unwrap();
        assert_eq!(protocol::settle(&mut settling, &third.all("complete")).await.unwrap(), []);
        assert_eq!([send_all(a, held, what).await, send_all(b, &second, what).await], [0, 0], "`{what}`");
        settling.commit().await.unwrap();
        assert_eq!([send_all(a, held, what).await, send_all(b, &second, what).await], [0, 0], "`{what}`");
        scene.completed_at(3, what).await;
    }
    scene.finish().await;
}

/// Verdicts, each with a statement that blocks it. Another transaction executes the statement, and the inserted row conflicts with the
/// verdict until that transaction is rolled back.
const BLOCKERS: [(&str, &str); 4] = [
    ("complete", "insert into queue.done (id, finished_at, ran_ms, attempts) select max(id), now(), 0, 1 from queue.job"),
    ("cancel", "insert into queue.done (id, finished_at, ran_ms, attempts) select min(id), now(), 0, 1 from queue.job"),
    (
        "dead",
        "insert into queue.dead (id, died_at, lane, attempts, crashes, error) select max(id), now(), max(lane), 1, 0, '' from queue.job",
    ),
    ("release", "insert into queue.ready (lane, seq, id) select max(lane), max(id), max(id) from queue.job"),
];

#[tokio::test]
async fn a_recovery_skips_a_lease_with_a_blocked_verdict() {
    let mut scene = ZombieScene::set().await;
    for (what, row) in BLOCKERS {
        scene.begin().await;
        let ZombieScene { a, b, c, watch, pids, held, .. } = &mut scene;
        // The verdict locks its lease, then waits for the transaction that inserted the conflicting row.
        let mut blocker = b.begin().await.unwrap();
        sqlx::raw_sql(row).execute(&mut *blocker).await.unwrap();
        let ended = Cell::new(false);
        let saying = async {
            let accepted = send_all(a, held, what).await;
            ended.set(true);
            accepted
        };
        let going_on = async {
            assert!(waits_for_session(watch, *pids, &ended).await, "`{what}` waits for the locked row");
            assert_eq!(recover(c).await.unwrap(), 0, "`{what}` has locked its lease");
            assert_eq!(claim_by_another(c).await.jobs, []);
            blocker.rollback().await.unwrap();
        };
        let (accepted, ()) = tokio::join!(saying, going_on);
        assert_eq!(accepted, 2, "`{what}`");
        assert_eq!(recover(&mut scene.c).await.unwrap(), 0);
        scene.db.check_invariant().await;
    }
    scene.finish().await;
}
