//! Tests the steps that delete a lane, one step at a time: the rows that each step changes, their number, and the rows that it leaves to
//! other sessions.

use sqlx::{Connection as _, PgConnection};
use tests::{Sql as _, TestDb, eventually, lanes, operate};

use super::{forget, rows};

/// Returns a connection with a short lock timeout.
async fn hasty(db: &TestDb) -> PgConnection {
    let mut on = db.connect().await;
    on.run("set lock_timeout = '2s'").await;
    on
}

/// Creates four lanes, each in its own queue.
async fn four(on: &mut PgConnection) {
    operate::ensure_lanes(on, &[("a", 1), ("b", 1), ("c", 1), ("d", 1)]).await.unwrap();
}

async fn leave(on: &mut PgConnection) -> i64 {
    lanes::leave_lanes(on, -1.0, 100).await.unwrap()
}

/// Returns the transactions that marked lanes as leaving, once no snapshot of another session can see the lanes unmarked.
async fn unseen_marks(on: &mut PgConnection) -> Vec<String> {
    eventually("no session has an old snapshot", async || !lanes::unseen_lanes(on).await.unwrap().is_empty()).await;
    lanes::unseen_lanes(on).await.unwrap()
}

async fn pass(on: &mut PgConnection) {
    let unseen = unseen_marks(on).await;
    lanes::pass_lanes(on, &unseen, 100).await.unwrap();
}

/// Waits until every transaction that may have seen the lanes unmarked has ended.
async fn done_with(on: &mut PgConnection) {
    pass(on).await;
    eventually("those who saw them have ended", async || {
        lanes::pass_lanes(on, &[], 100).await.unwrap();
        let left: i64 = on.one("select count(*) from queue.lane where leaving is not null and above is null").await;
        left == 0
    })
    .await;
}

const LEAVING: &str = "select count(*) from queue.lane where leaving is not null";
const PASSED: &str = "select count(*) from queue.lane where passed is not null";
const ABOVE: &str = "select count(*) from queue.lane where above is not null";
const HOLD: &str = "select from queue.lane where queue = 'a' for update";

#[tokio::test]
async fn lanes_leave_after_the_retention_up_to_the_given_number_except_locked_ones() {
    let db = TestDb::new().await;
    let (mut on, mut holder) = (hasty(&db).await, db.connect().await);
    four(&mut on).await;
    assert_eq!(lanes::leave_lanes(&mut on, 3600.0, 100).await.unwrap(), 0, "it was met just now");
    let mut held = holder.begin().await.unwrap();
    held.run(HOLD).await;
    assert_eq!(lanes::leave_lanes(&mut on, -1.0, 2).await.unwrap(), 2);
    assert_eq!(leave(&mut on).await, 1);
    held.rollback().await.unwrap();
    assert_eq!((leave(&mut on).await, leave(&mut on).await), (1, 0));
    // If two sessions run the step concurrently, only one session gets the lock and marks lanes.
    on.run("delete from queue.lane").await;
    four(&mut on).await;
    let mut first = holder.begin().await.unwrap();
    assert_eq!(leave(&mut first).await, 4);
    assert_eq!(leave(&mut on).await, 0);
    first.commit().await.unwrap();
    on.run("update queue.lane set leaving = '9000000000000' where queue in ('a', 'b')").await;
    on.run("update queue.lane set passed = '9000000000000' where queue in ('b', 'c')").await;
    assert_eq!(leave(&mut on).await, 3, "numbers of another cluster are of no use here");
    assert_eq!(db.count(PASSED).await, 0);
    db.finish().await;
}

#[tokio::test]
async fn lanes_move_on_when_no_snapshot_and_no_transaction_sees_their_earlier_state() {
    let db = TestDb::new().await;
    let (mut on, mut old, mut writer) = (hasty(&db).await, db.connect().await, db.connect().await);
    four(&mut on).await;
    let mut seen = old.begin().await.unwrap();
    seen.run("set transaction isolation level repeatable read").await;
    seen.run("select count(*) from queue.lane").await;
    leave(&mut on).await;
    assert!(lanes::unseen_lanes(&mut on).await.unwrap().is_empty(), "a session has an old snapshot");
    // The session with the old snapshot gets a transaction id that is higher than the id of the transaction that marked the lanes. Its
    // snapshot counts nevertheless.
    seen.run("select pg_current_xact_id()").await;
    assert!(lanes::unseen_lanes(&mut on).await.unwrap().is_empty());
    seen.rollback().await.unwrap();
    let marks = unseen_marks(&mut on).await;
    let mut own = on.begin().await.unwrap();
    own.run("select pg_current_xact_id()").await;
    assert!(lanes::unseen_lanes(&mut own).await.unwrap().is_empty(), "what it writes has a number that was given out before");
    own.rollback().await.unwrap();
    let mut open = writer.begin().await.unwrap();
    open.run("select pg_current_xact_id()").await;
    let mut held = old.begin().await.unwrap();
    held.run(HOLD).await;
    assert_eq!(lanes::pass_lanes(&mut on, &[], 100).await.unwrap(), 0, "only those named");
    assert_eq!(lanes::pass_lanes(&mut on, &marks, 2).await.unwrap(), 2);
    assert_eq!(lanes::pass_lanes(&mut on, &marks, 100).await.unwrap(), 1, "except locked rows");
    held.rollback().await.unwrap();
    {
        let mut first = old.begin().await.unwrap();
        assert_eq!(lanes::pass_lanes(&mut first, &marks, 100).await.unwrap(), 1);
        assert_eq!(lanes::pass_lanes(&mut on, &marks, 100).await.unwrap(), 0, "of two concurrent sessions one has it");
        first.commit().await.unwrap();
    }
    assert_eq!((db.count(PASSED).await, db.count(ABOVE).await), (4, 0), "a session wrote before they moved on");
    assert_eq!(lanes::replaced_lanes(&mut on, 100).await.unwrap() + lanes::walk_lanes(&mut on).await.unwrap(), 0);
    open.commit().await.unwrap();
    eventually("they are done with", async || {
        lanes::pass_lanes(&mut on, &[], 100).await.unwrap();
        db.count(ABOVE).await == 4
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_row_replaced_by_a_new_one_of_its_lane_is_deleted() {
    let db = TestDb::new().await;
    let (mut on, mut holder) = (hasty(&db).await, db.connect().await);
    four(&mut on).await;
    leave(&mut on).await;
    four(&mut on).await;
    assert_eq!((rows(&db, "a").await, db.count(LEAVING).await), (2, 4), "producers do not see what is leaving");
    four(&mut on).await;
    assert_eq!(rows(&db, "a").await, 2, "but what is new");
    assert_eq!(lanes::replaced_lanes(&mut on, 100).await.unwrap(), 0, "a session may have seen it before");
    done_with(&mut on).await;
    on.run("delete from queue.lane where queue = 'd' and leaving is null").await;
    let mut held = holder.begin().await.unwrap();
    held.run(HOLD).await;
    assert_eq!(lanes::replaced_lanes(&mut on, 1).await.unwrap(), 1, "up to the given number");
    assert_eq!(lanes::replaced_lanes(&mut on, 100).await.unwrap(), 1, "except locked rows");
    held.rollback().await.unwrap();
    {
        let mut first = holder.begin().await.unwrap();
        assert_eq!(lanes::replaced_lanes(&mut first, 100).await.unwrap(), 1);
        assert_eq!(lanes::replaced_lanes(&mut on, 100).await.unwrap(), 0, "of two concurrent sessions one has it");
        first.commit().await.unwrap();
    }
    assert_eq!((db.count(LEAVING).await, rows(&db, "d").await), (1, 1), "a lane without a new row keeps what it has");
    // Two rows that are both leaving do not replace each other.
    on.run("insert into queue.lane select * from queue.lane where queue = 'd'").await;
    assert_eq!(lanes::replaced_lanes(&mut on, 100).await.unwrap(), 0);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_lane_without_jobs_is_deleted_and_so_is_its_solo_twin() {
    let db = TestDb::new().await;
    let (mut on, mut holder) = (hasty(&db).await, db.connect().await);
    four(&mut on).await;
    on.run("select queue.ensure_lane(q, 'do', 1, true) from unnest(array['a', 'b']) q").await;
    on.run("insert into queue.job (id, lane, max_attempts, payload) select 7, queue.lane_id('a', 'do', 1, false), 1, '{}'").await;
    on.run("insert into queue.dead (id, died_at, lane, attempts, crashes, error) select 7, now(), lane, 1, 0, '' from queue.job").await;
    leave(&mut on).await;
    assert!(lanes::due_lanes(&mut on, -1.0, 100).await.unwrap().is_empty(), "a session may have seen them before");
    done_with(&mut on).await;
    assert!(lanes::due_lanes(&mut on, 3600.0, 100).await.unwrap().is_empty(), "for how long were they unused?");
    let due = lanes::due_lanes(&mut on, -1.0, 100).await.unwrap();
    assert_eq!(due.len(), 6);
    on.run("update queue.lane set walked = -5 where queue = 'b'").await;
    let last: Vec<i64> = lanes::due_lanes(&mut on, -1.0, 100).await.unwrap().iter().map(|due| due.3).collect();
    assert_eq!(last, [-5, -5, 0, 0, 0, 0], "the least recently scanned first");
    let (end, used) = lanes::walk_jobs(&mut on, 0, i64::MAX, 10).await.unwrap();
    assert_eq!((end, used.len()), (None, 1));
    assert_eq!(lanes::walk_jobs(&mut on, 7, i64::MAX, 10).await.unwrap(), (None, vec![]));
    assert_eq!(lanes::walk_jobs(&mut on, 0, 6, 10).await.unwrap(), (None, vec![]));
    assert_eq!(lanes::walk_jobs(&mut on, 0, i64::MAX, 1).await.unwrap().0, Some(7), "there may be more");
    assert_eq!(lanes::forget_lanes(&mut on, &due, &used, 6).await.unwrap(), 0, "not to the end");
    assert_eq!(db.count("select count(*) from queue.lane where walked = 6").await, 4, "the next scan continues from there");
    let mut others = due.clone();
    for due in &mut others {
        due.1 = "3".to_owned();
    }
    assert_eq!(lanes::forget_lanes(&mut on, &others, &used, 7).await.unwrap(), 0, "only what left then");
    let mut held = holder.begin().await.unwrap();
    held.run("select from queue.lane where queue = 'c' for update").await;
    let named: Vec<_> = due.iter().filter(|due| due.0 == due.2).cloned().collect();
    assert_eq!(lanes::forget_lanes(&mut on, &named[..0], &used, 7).await.unwrap(), 0, "only those named");
    assert_eq!(lanes::forget_lanes(&mut on, &due, &used, 7).await.unwrap(), 3, "except locked rows");
    held.rollback().await.unwrap();
    {
        let mut first = holder.begin().await.unwrap();
        assert_eq!(lanes::forget_lanes(&mut first, &due, &used, 7).await.unwrap(), 1);
        assert_eq!(lanes::forget_lanes(&mut on, &due, &used, 7).await.unwrap(), 0, "of two concurrent sessions one has it");
        first.commit().await.unwrap();
    }
    assert_eq!((rows(&db, "a").await, db.count("select count(*) from queue.lane").await), (2, 2), "of the dead letter, and its twin");
    assert_eq!(db.count("select count(*) from queue.lane where walked = 0").await, 2, "they are scanned from the first job on");
    on.run("delete from queue.dead; delete from queue.job").await;
    eventually("the last lane goes", async || {
        forget(&mut on).await;
        rows(&db, "a").await == 0
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn of_two_leaving_rows_of_a_lane_the_later_one_waits_for_its_own_time() {
    let (db, mut on) = TestDb::with_connection().await;
    four(&mut on).await;
    leave(&mut on).await;
    done_with(&mut on).await;
    let due = lanes::due_lanes(&mut on, -1.0, 100).await.unwrap();
    four(&mut on).await;
    leave(&mut on).await;
    assert_eq!(lanes::forget_lanes(&mut on, &due, &[], i64::MAX).await.unwrap(), 4);
    on.run("update queue.lane set leaving = '3'").await;
    let again: Vec<_> = due.into_iter().map(|due| (due.0, "3".to_owned(), due.2, due.3, due.4)).collect();
    assert_eq!(lanes::forget_lanes(&mut on, &again, &[], i64::MAX).await.unwrap(), 0, "a session may have seen it before");
    assert_eq!(db.count(LEAVING).await, 4);
    db.finish().await;
}
