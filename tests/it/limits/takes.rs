//! What a claim under limits takes of which lanes, and what it counts.

use queue_core::Store;
use sqlx::{Connection as _, Executor as _, PgConnection, Row as _};
use uuid::Uuid;

use super::statements::{claim, connect, with};

/// The lanes of a claim, from where on, which of them stand in lines, how many of each, and how many in all.
struct Lanes<'l>(&'l [i64], &'l [i64], &'l [bool], &'l [i32], i32);

/// What a claim under the limit of the type `t` takes, in the order of ids, and what closed it.
async fn take(on: &mut PgConnection, worker: Uuid, Lanes(lanes, begins, in_lines, mosts, most): Lanes<'_>) -> (Vec<i64>, Option<String>) {
    let gate: i64 = sqlx::query_scalar("select queue.hash('type:t')").fetch_one(&mut *on).await.unwrap();
    let rows = sqlx::query(Store::default().sql(include_str!("../../../queue-worker/sql/claim_limited.sql")))
        .bind(Uuid::new_v4())
        .bind(worker)
        .bind([gate])
        .bind(lanes)
        .bind(begins)
        .bind(in_lines)
        .bind(mosts)
        .bind(most)
        .bind(Vec::<Uuid>::new())
        .bind(0_i64)
        .bind(None::<Vec<i64>>)
        .fetch_all(on)
        .await
        .unwrap();
    let mut ids: Vec<i64> = rows.iter().filter_map(|row| row.get("id")).collect();
    ids.sort_unstable();
    (ids, rows.iter().find_map(|row| row.get("closed")))
}

async fn lane(on: &mut PgConnection, queue: &str) -> i64 {
    sqlx::query_scalar("select queue.lane_id($1, 't', 100, false)").bind(queue).fetch_one(on).await.unwrap()
}

async fn enqueue(on: &mut PgConnection, count: i32, options: &str) -> Vec<i64> {
    let enqueue = "select queue.enqueue('t', '{}', $2::text::jsonb) from generate_series(1, $1)";
    sqlx::query_scalar(enqueue).bind(count).bind(options).fetch_all(on).await.unwrap()
}

#[tokio::test]
async fn of_lanes_it_takes_what_they_say_from_their_floors_on_and_passes_over_what_others_hold() {
    let (db, mut on, worker) = with(0).await;
    let (jobs, others) = (enqueue(&mut on, 6, "{}").await, enqueue(&mut on, 3, "{\"queue\": \"other\"}").await);
    let (first, second) = (lane(&mut on, "default").await, lane(&mut on, "other").await);
    on.execute("select queue.set_limit('type:t', 100)").await.unwrap();
    let mut other = connect(&db.url).await;
    let mut open = other.begin().await.unwrap();
    sqlx::query("select from queue.ready where id = $1 for update").bind(jobs[1]).execute(&mut *open).await.unwrap();
    let (taken, _) = take(&mut on, worker, Lanes(&[first], &[jobs[0] + 1], &[false], &[2], 9)).await;
    assert_eq!(taken, jobs[2..4], "neither what is before the floor nor what others hold, and two of them");
    open.rollback().await.unwrap();
    let (taken, _) = take(&mut on, worker, Lanes(&[first, second], &[0, 0], &[false; 2], &[1, 5], 9)).await;
    assert_eq!(taken, [&jobs[..1], &others[..]].concat(), "one of this lane, all of that");
    // With two permits left, who wants two finds no limit in the way.
    on.execute("select queue.set_limit('type:t', 8)").await.unwrap();
    let (taken, closed) = take(&mut on, worker, Lanes(&[first], &[0], &[false], &[5], 2)).await;
    assert_eq!((taken.as_slice(), closed), (&[jobs[1], jobs[4]][..], None));
    db.finish().await;
}

#[tokio::test]
async fn it_takes_the_first_of_a_lane_however_its_rows_lie() {
    let (db, mut on, worker) = with(0).await;
    let jobs = enqueue(&mut on, 4, "{}").await;
    let lane = lane(&mut on, "default").await;
    on.execute("select queue.set_limit('type:t', 100)").await.unwrap();
    let turned = "create temporary table turned as select * from queue.ready; delete from queue.ready;
      insert into queue.ready select * from turned order by seq desc; drop table turned;
      set enable_seqscan = on; set enable_indexscan = off; set enable_bitmapscan = off; set enable_indexonlyscan = off";
    on.execute(turned).await.unwrap();
    assert_eq!(take(&mut on, worker, Lanes(&[lane], &[0], &[false], &[2], 2)).await.0, jobs[..2]);
    let listed: Vec<i64> = sqlx::query_scalar("select ids from queue.lease").fetch_one(&mut on).await.unwrap();
    assert_eq!(listed, jobs[..2], "a lease lists its jobs by id");
    db.finish().await;
}

#[tokio::test]
async fn of_lines_it_takes_only_what_stands_there_and_of_a_lane_only_what_does_not() {
    let (db, mut on, worker) = with(0).await;
    let (plain, fair) = (enqueue(&mut on, 2, "{}").await, enqueue(&mut on, 4, "{\"fair\": \"a\"}").await);
    let lane = lane(&mut on, "default").await;
    on.execute("select queue.set_limit('type:t', 100)").await.unwrap();
    assert_eq!(take(&mut on, worker, Lanes(&[lane], &[i64::MIN], &[true], &[2], 9)).await.0, fair[..2]);
    assert_eq!(take(&mut on, worker, Lanes(&[lane], &[0], &[false], &[9], 9)).await.0, plain);
    assert_eq!(take(&mut on, worker, Lanes(&[lane], &[i64::MIN], &[true], &[9], 9)).await.0, fair[2..]);
    db.finish().await;
}

/// A lease has jobs of other lanes, too.
#[tokio::test]
async fn a_lease_that_is_read_again_holds_no_more_permits_than_before() {
    let (db, mut on, worker) = with(3).await;
    enqueue(&mut on, 1, "{\"queue\": \"other\"}").await;
    let lease = tests::protocol::claim(&mut on, worker, 9).await.unwrap();
    assert_eq!(lease.ids().len(), 4);
    enqueue(&mut on, 5, "{\"queue\": \"other\"}").await;
    on.execute("select queue.set_limit('queue:other', 3)").await.unwrap();
    on.execute("update queue.worker set paused_seen = 9223372036854775807").await.unwrap();
    let said = claim(&mut on, worker, &["queue:other"], &["other"], 9, &[lease.token]).await.unwrap();
    assert_eq!((said.ids.len(), said.closed.as_deref()), (2, Some("full")), "one of its jobs is of that queue");
    db.finish().await;
}

/// As after a limit was lowered: enough must have left the window, not any.
#[tokio::test]
async fn above_a_rate_it_is_said_when_enough_will_have_left_the_window() {
    let (db, mut on, worker) = with(1).await;
    on.execute("select queue.set_limit('type:t', null, 3, '60 s')").await.unwrap();
    let began = "insert into queue.rate (gate, at_ms, n)
      select queue.hash('type:t'), queue.clock_ms() - ago, 3 from unnest('{30000,10000}'::bigint[]) ago";
    on.execute(began).await.unwrap();
    let said = claim(&mut on, worker, &["type:t"], &["default"], 9, &[]).await.unwrap();
    assert!(said.ids.is_empty() && said.wait_ms.unwrap() > 45_000.0, "{said:?}");
    db.finish().await;
}
