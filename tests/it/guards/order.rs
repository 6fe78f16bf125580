//! Tests that the order of a lane, of jobs released together, and of locks does not depend on the physical order of rows.

use queue_core::{JobId, Store};
use sqlx::{Connection as _, PgConnection};
use tests::{
    TestDb, eventually, operate,
    protocol::{self, claim, register, settle},
};

use super::{connect, enqueue};

/// Returns a connection whose plans read tables in physical order.
pub(super) async fn without_indexes(db: &TestDb) -> PgConnection {
    let mut connection = connect(db).await;
    let plans = "set enable_indexscan = off; set enable_bitmapscan = off; set enable_indexonlyscan = off; set enable_tidscan = on";
    sqlx::raw_sql(plans).execute(&mut connection).await.unwrap();
    connection
}

/// Reverses the physical order of a table's rows.
pub(super) async fn turn(on: &mut PgConnection, table: &str, order: &str) {
    let text = format!(
        "create temporary table turned as select * from queue.{table}; delete from queue.{table};
         insert into queue.{table} select * from turned order by {order} desc; drop table turned"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(on).await.unwrap();
}

#[tokio::test]
async fn the_order_of_a_lane_is_not_that_of_its_rows() {
    let db = TestDb::new().await;
    let mut connection = without_indexes(&db).await;
    let jobs = enqueue(&mut connection, &["default"; 4]).await;
    turn(&mut connection, "ready", "seq").await;
    let worker = register(&mut connection).await.unwrap();
    let lease = claim(&mut connection, worker, 3).await.unwrap();
    assert_eq!(lease.ids(), jobs[..3]);
    let listed: Vec<JobId> = sqlx::query_scalar("select ids from queue.lease").fetch_one(&mut connection).await.unwrap();
    assert_eq!(listed, jobs[..3], "by id, as a row of history has them");
    db.finish().await;
}

#[tokio::test]
async fn jobs_are_queued_in_the_given_order_when_the_sequence_of_ids_wraps() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let lane = operate::ensure_lanes(&mut connection, &[("default", 100)]).await.unwrap()[0];
    let begin_again = "select setval('queue.id_seq', 1048576 - 1000)";
    let keyed = Store::default().sql(include_str!("../../../queue-core/sql/insert_with.sql"));
    for _ in 0..3 {
        sqlx::raw_sql(begin_again).execute(&mut connection).await.unwrap();
        let ids = operate::insert_all(&mut connection, &vec![(lane, false); 2000]).await.unwrap();
        assert!(ids.is_sorted(), "without keys");
        sqlx::raw_sql(begin_again).execute(&mut connection).await.unwrap();
        let insert = sqlx::query_scalar(keyed).bind(vec![serde_json::json!({}); 2000]).bind(vec![lane; 2000]).bind(vec![3_i16; 2000]);
        let insert = insert.bind(vec![None::<chrono::DateTime<chrono::Utc>>; 2000]).bind(vec![None::<serde_json::Value>; 2000]);
        let insert = insert.bind(vec![None::<chrono::DateTime<chrono::Utc>>; 2000]);
        let ids: Vec<JobId> = insert.fetch_one(&mut connection).await.unwrap();
        assert!(ids.is_sorted(), "where some may have keys");
    }
    db.finish().await;
}

#[tokio::test]
async fn the_earliest_due_job_is_promoted_first_in_any_order_of_rows() {
    let db = TestDb::new().await;
    let mut connection = without_indexes(&db).await;
    let lane = operate::ensure_lanes(&mut connection, &[("default", 100)]).await.unwrap()[0];
    let jobs = operate::insert_all(&mut connection, &[(lane, true); 4]).await.unwrap();
    for (minutes, job) in (1..).zip(&jobs) {
        let due = sqlx::query("update queue.scheduled set run_at = now() - $1 * interval '1 minute' where id = $2");
        due.bind(f64::from(minutes)).bind(job).execute(&mut connection).await.unwrap();
    }
    turn(&mut connection, "scheduled", "run_at").await;
    assert_eq!(operate::promote(&mut connection, 3).await.unwrap(), 3);
    let places: Vec<JobId> = sqlx::query_scalar("select id from queue.ready order by seq").fetch_all(&mut connection).await.unwrap();
    assert_eq!(places, [jobs[3], jobs[2], jobs[1]], "the one due last waits");
    db.finish().await;
}

#[tokio::test]
async fn jobs_released_together_are_queued_in_the_order_of_their_ids() {
    let db = TestDb::new().await;
    let mut connection = without_indexes(&db).await;
    let jobs = enqueue(&mut connection, &["default"; 6]).await;
    let worker = register(&mut connection).await.unwrap();
    let lease = claim(&mut connection, worker, 10).await.unwrap();
    let verdicts: Vec<_> = (0..3).map(|at| lease.one(at, "dead")).collect();
    assert_eq!(settle(&mut connection, &verdicts).await.unwrap(), []);
    turn(&mut connection, "dead", "id").await;
    operate::requeue(&mut connection, &jobs).await.unwrap();
    let backwards = "update queue.lease set ids = (select array_agg(id order by id desc) from unnest(ids) id)";
    sqlx::query(backwards).execute(&mut connection).await.unwrap();
    protocol::silence(&mut connection, worker).await.unwrap();
    assert_eq!(protocol::recover(&mut connection).await.unwrap(), 3);
    let order = "select array_agg(id order by seq) from queue.ready group by lane order by min(id)";
    let places: Vec<Vec<JobId>> = sqlx::query_scalar(order).fetch_all(&mut connection).await.unwrap();
    assert_eq!(places, [&jobs[..3], &jobs[3..]]);
    db.finish().await;
}

/// Checks that `act` locks rows in order. Another session locks the second of two rows, which is first in physical order. A statement
/// that locks in order holds the lock on the first row while it waits for the second.
pub(super) async fn locks_in_order(db: &TestDb, rows: &'static str, act: impl AsyncFnOnce(&mut PgConnection)) {
    let (mut holder, mut watch, mut waiter) = (connect(db).await, connect(db).await, without_indexes(db).await);
    let mut held = holder.begin().await.unwrap();
    let last = format!("{rows} desc limit 1 for update");
    sqlx::raw_sql(sqlx::AssertSqlSafe(last)).execute(&mut *held).await.unwrap();
    let free = format!("select count(*) from ({rows} for update skip locked) free");
    let waiting = async {
        eventually("it waits", async || {
            db.count("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'").await == 1
        })
        .await;
        let free: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(free)).fetch_one(&mut watch).await.unwrap();
        held.rollback().await.unwrap();
        free
    };
    let ((), free) = tokio::join!(act(&mut waiter), waiting);
    assert_eq!(free, 0, "it has locked the first, and waits for the second");
}

#[tokio::test]
async fn leases_are_locked_in_the_order_of_their_tokens() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    enqueue(&mut connection, &["default"; 2]).await;
    let worker = register(&mut connection).await.unwrap();
    let leases = [claim(&mut connection, worker, 1).await.unwrap(), claim(&mut connection, worker, 1).await.unwrap()];
    turn(&mut connection, "lease", "token").await;
    let verdicts = leases.map(|lease| lease.one(0, "retry"));
    locks_in_order(&db, "select from queue.lease order by token", async |on| assert_eq!(settle(on, &verdicts).await.unwrap(), [])).await;
    db.finish().await;
}

#[tokio::test]
async fn bulk_ids_ascend_even_where_their_sequence_wraps() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let lane = operate::ensure_lanes(&mut connection, &[("default", 100)]).await.unwrap()[0];
    for _ in 0..20 {
        let near = "select setval('queue.id_seq', ((nextval('queue.id_seq') >> 20) + 1 << 20) - 10), pg_sleep(0.002)";
        sqlx::query(near).execute(&mut connection).await.unwrap();
        let jobs = operate::insert_all(&mut connection, &[(lane, false); 20]).await.unwrap();
        assert!(jobs.is_sorted(), "{jobs:?}");
    }
    db.finish().await;
}
