//! A holder that was given up, in the middle of two others: whatever it says then, and between whichever statements of theirs, counts for nothing.

use std::cell::Cell;

use sqlx::{Connection as _, PgConnection};
use tests::{
    TestDb, holders, operate,
    protocol::{self, Lease, VERDICTS, claim, lock_silent, recover, register, silence, take_back},
};
use uuid::Uuid;

use super::{pair::pid, tally::standing};

/// What a holder can say of its jobs, besides the verdicts. What it receives is apart: that waits for nobody.
const ELSE: [&str; 10] = ["whole", "give back", "note", "step", "step alone", "park", "spawn", "chunk", "close", "restart"];

/// What does not end the attempt.
const GOES_ON: [&str; 6] = ["note", "step", "step alone", "spawn", "chunk", "close"];

/// Says it of all of them; returns of how many it was accepted.
async fn say(on: &mut PgConnection, lease: &Lease, what: &'static str) -> usize {
    match what {
        "whole" => (1 - protocol::settle_leases(on, &[lease.token]).await.unwrap().len()) * lease.jobs.len(),
        "give back" => usize::try_from(operate::give_back(on, &[lease.token]).await.unwrap()).unwrap(),
        "note" => {
            let said: Vec<_> = lease.jobs.iter().map(|job| (lease.token, *job, "half")).collect();
            protocol::note_all(on, &said).await.unwrap().len()
        }
        what if holders::SAYINGS.contains(&what) => {
            let mut accepted = 0;
            for at in 0..lease.jobs.len() {
                accepted += usize::from(holders::say(on, lease.one(at, "complete"), what).await.unwrap());
            }
            accepted
        }
        verdict => lease.jobs.len() - protocol::settle(on, &lease.all(verdict)).await.unwrap().len(),
    }
}

/// A holds two jobs and is silent; B, C and whoever watches.
struct Scene {
    db: TestDb,
    a: PgConnection,
    b: PgConnection,
    c: PgConnection,
    watch: PgConnection,
    pids: [i32; 2],
    held: Lease,
}

impl Scene {
    async fn set() -> Self {
        let db = TestDb::new().await;
        let [mut a, mut b, c, watch] = [connect(&db).await, connect(&db).await, connect(&db).await, connect(&db).await];
        let pids = [pid(&mut a).await, pid(&mut b).await];
        let held = Lease { token: Uuid::nil(), jobs: Vec::new() };
        Self { db, a, b, c, watch, pids, held }
    }

    /// Two jobs, and nothing else.
    async fn begin(&mut self) {
        let empty = "truncate queue.ready, queue.scheduled, queue.lease, queue.done, queue.done_many, queue.dead, queue.failure, queue.job,
          queue.worker, queue.progress, queue.parked, queue.step, queue.signal, queue.signal_hint, queue.child, queue.gather, queue.brood,
          queue.gather_part, queue.gather_hint, queue.end_hint";
        sqlx::raw_sql(empty).execute(&mut self.watch).await.unwrap();
        for _ in 0..2 {
            operate::enqueue(&mut self.watch, "default", 100, false).await.unwrap();
        }
        self.held = claim_and_fall_silent(&mut self.a).await;
    }

    /// Every job was completed at this attempt, once; and as many attempts ended with their process as there were before it.
    async fn completed_at(&mut self, attempt: i16, why: &str) {
        let attempts: Vec<i16> = sqlx::query_scalar("select attempts from queue.done").fetch_all(&mut self.watch).await.unwrap();
        assert_eq!(attempts, [attempt; 2], "{why}");
        let failures: Vec<i16> =
            sqlx::query_scalar("select attempt from queue.failure order by attempt, id").fetch_all(&mut self.watch).await.unwrap();
        assert_eq!(failures, (1..attempt).flat_map(|earlier| [earlier; 2]).collect::<Vec<_>>(), "{why}");
        self.db.check_invariant().await;
        assert_eq!(standing(&mut self.watch).await.unwrap(), []);
    }

    async fn finish(self) {
        drop([self.a, self.b, self.c, self.watch]);
        self.db.finish().await;
    }
}

async fn connect(db: &TestDb) -> PgConnection {
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    // A wait that nobody ends is an error.
    sqlx::query("set lock_timeout = '20s'").execute(&mut on).await.unwrap();
    on
}

async fn claim_by_another(on: &mut PgConnection) -> Lease {
    let worker = register(on).await.unwrap();
    claim(on, worker, 10).await.unwrap()
}

async fn claim_and_fall_silent(on: &mut PgConnection) -> Lease {
    let worker = register(on).await.unwrap();
    let lease = claim(on, worker, 10).await.unwrap();
    silence(on, worker).await.unwrap();
    lease
}

/// Until the one waits for the other, or has ended without waiting; returns whether it waits.
async fn waits(watch: &mut PgConnection, [one, other]: [i32; 2], ended: &Cell<bool>) -> bool {
    while !ended.get() {
        let waits = sqlx::query_scalar("select $2 = any (pg_blocking_pids($1))").bind(one).bind(other);
        if waits.fetch_one(&mut *watch).await.unwrap() {
            return true;
        }
    }
    false
}

fn whatever() -> impl Iterator<Item = &'static str> {
    VERDICTS.into_iter().chain(ELSE)
}

#[tokio::test]
async fn what_a_holder_says_between_the_two_statements_of_its_recovery_is_refused_then_and_ever_after() {
    let mut scene = Scene::set().await;
    for what in whatever() {
        scene.begin().await;
        let Scene { a, b, c, watch, pids, held, .. } = &mut scene;
        let mut recovery = b.begin().await.unwrap();
        let tokens = lock_silent(&mut recovery).await.unwrap();
        assert_eq!(tokens, [held.token]);
        let ended = Cell::new(false);
        let saying = async {
            let accepted = say(a, held, what).await;
            ended.set(true);
            accepted
        };
        let going_on = async {
            assert!(waits(watch, *pids, &ended).await, "`{what}` waits for the recovery");
            take_back(&mut recovery, &tokens).await.unwrap();
            assert!(waits(watch, *pids, &ended).await, "`{what}` waits for its commit");
            assert_eq!(claim_by_another(c).await.jobs, [], "nobody sees them before");
            recovery.commit().await.unwrap();
        };
        let (accepted, ()) = tokio::join!(saying, going_on);
        assert_eq!(accepted, 0, "`{what}` under a lease that was taken back meanwhile");
        let lease = claim_by_another(c).await;
        assert_eq!(lease.ids(), held.ids(), "the third holds them now");
        let mut settling = c.begin().await.unwrap();
        assert_eq!(protocol::settle(&mut settling, &[lease.one(0, "complete")]).await.unwrap(), []);
        assert_eq!(say(a, held, what).await, 0, "`{what}` in the middle of the third's verdict");
        settling.commit().await.unwrap();
        assert_eq!(say(a, held, what).await, 0, "`{what}` between two verdicts of the third");
        assert_eq!(protocol::settle(c, &[lease.one(1, "complete")]).await.unwrap(), []);
        assert_eq!(say(a, held, what).await, 0, "`{what}` after all");
        scene.completed_at(2, what).await;
    }
    scene.finish().await;
}

#[tokio::test]
async fn what_a_holder_says_stands_if_its_recovery_comes_to_nothing() {
    let mut scene = Scene::set().await;
    for what in whatever() {
        scene.begin().await;
        let Scene { a, b, c, watch, pids, held, .. } = &mut scene;
        let mut recovery = b.begin().await.unwrap();
        let tokens = lock_silent(&mut recovery).await.unwrap();
        take_back(&mut recovery, &tokens).await.unwrap();
        let ended = Cell::new(false);
        let saying = async {
            let accepted = say(a, held, what).await;
            ended.set(true);
            accepted
        };
        let going_on = async {
            assert!(waits(watch, *pids, &ended).await, "`{what}` waits for the recovery");
            recovery.rollback().await.unwrap();
        };
        let (accepted, ()) = tokio::join!(saying, going_on);
        assert_eq!(accepted, 2, "`{what}` under a lease that was not taken back");
        let returned = match what {
            // Of each map one part is let run, and one waits.
            "release" | "give back" | "restart" | "spawn" | "chunk" => 2,
            _ => 0,
        };
        assert_eq!(claim_by_another(c).await.jobs.len(), returned, "after `{what}`");
        assert_eq!(recover(b).await.unwrap(), if GOES_ON.contains(&what) { 2 } else { 0 }, "after `{what}`");
        scene.db.check_invariant().await;
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_verdict_whose_transaction_was_lost_is_refused_once_others_have_the_job() {
    let mut scene = Scene::set().await;
    for what in whatever() {
        scene.begin().await;
        let Scene { a, b, c, held, .. } = &mut scene;
        let mut settling = a.begin().await.unwrap();
        assert_eq!(say(&mut settling, held, what).await, 2);
        // A recovery passes over a lease that a verdict has in hand, in both of its statements.
        assert_eq!(recover(b).await.unwrap(), 0, "`{what}` is under way");
        assert_eq!(claim_by_another(c).await.jobs, []);
        settling.rollback().await.unwrap();
        assert_eq!(recover(b).await.unwrap(), 2);
        let lease = claim_by_another(c).await;
        assert_eq!(say(a, held, what).await, 0, "`{what}` said again, as after a commit that was not answered");
        assert_eq!(protocol::settle(c, &lease.all("complete")).await.unwrap(), []);
        assert_eq!(say(a, held, what).await, 0);
        scene.completed_at(2, what).await;
    }
    scene.finish().await;
}

#[tokio::test]
async fn of_three_holders_in_a_row_only_the_last_is_heard() {
    let mut scene = Scene::set().await;
    for what in whatever() {
        scene.begin().await;
        let Scene { a, b, c, held, .. } = &mut scene;
        assert_eq!(recover(b).await.unwrap(), 2);
        let second = claim_and_fall_silent(b).await;
        assert_eq!(second.ids(), held.ids());
        // The first speaks while the second is being taken back, and the second while the third speaks.
        let mut recovery = c.begin().await.unwrap();
        let tokens = lock_silent(&mut recovery).await.unwrap();
        assert_eq!(say(a, held, what).await, 0);
        take_back(&mut recovery, &tokens).await.unwrap();
        assert_eq!(say(a, held, what).await, 0);
        recovery.commit().await.unwrap();
        let third = claim_by_another(c).await;
        assert_eq!(third.jobs.iter().map(|job| (job.attempts, job.crashes)).collect::<Vec<_>>(), [(3, 2); 2]);
        let mut settling = c.begin().await.unwrap();
        assert_eq!(protocol::settle(&mut settling, &third.all("complete")).await.unwrap(), []);
        assert_eq!([say(a, held, what).await, say(b, &second, what).await], [0, 0], "`{what}`");
        settling.commit().await.unwrap();
        assert_eq!([say(a, held, what).await, say(b, &second, what).await], [0, 0], "`{what}`");
        scene.completed_at(3, what).await;
    }
    scene.finish().await;
}

/// Another's row in the way of the verdict's own, until it is rolled back.
const IN_THE_WAY: [(&str, &str); 4] = [
    ("complete", "insert into queue.done (id, finished_at, ran_ms, attempts) select max(id), now(), 0, 1 from queue.job"),
    ("cancel", "insert into queue.done (id, finished_at, ran_ms, attempts) select min(id), now(), 0, 1 from queue.job"),
    (
        "dead",
        "insert into queue.dead (id, died_at, lane, attempts, crashes, error) select max(id), now(), max(lane), 1, 0, '' from queue.job",
    ),
    ("release", "insert into queue.ready (lane, seq, id) select max(lane), max(id), max(id) from queue.job"),
];

#[tokio::test]
async fn a_recovery_passes_over_a_verdict_that_stands_still_within_its_statement() {
    let mut scene = Scene::set().await;
    for (what, row) in IN_THE_WAY {
        scene.begin().await;
        let Scene { a, b, c, watch, pids, held, .. } = &mut scene;
        // The verdict has its lease, and gets no further.
        let mut in_the_way = b.begin().await.unwrap();
        sqlx::raw_sql(row).execute(&mut *in_the_way).await.unwrap();
        let ended = Cell::new(false);
        let saying = async {
            let accepted = say(a, held, what).await;
            ended.set(true);
            accepted
        };
        let going_on = async {
            assert!(waits(watch, *pids, &ended).await, "`{what}` waits for what is in its way");
            assert_eq!(recover(c).await.unwrap(), 0, "`{what}` has its lease in hand");
            assert_eq!(claim_by_another(c).await.jobs, []);
            in_the_way.rollback().await.unwrap();
        };
        let (accepted, ()) = tokio::join!(saying, going_on);
        assert_eq!(accepted, 2, "`{what}`");
        assert_eq!(recover(&mut scene.c).await.unwrap(), 0);
        scene.db.check_invariant().await;
    }
    scene.finish().await;
}
