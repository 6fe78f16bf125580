//! Tests the SQL statements for maps: their fencing and their counts.

use queue_core::{JobId, JobState};
use sqlx::{PgConnection, Row as _};
use tests::{
    Sql as _, TestDb,
    children::{add_end_hints, consume_end_hints},
    eventually,
};
use uuid::Uuid;

use super::{
    super::signals::races::{leased, wake},
    db_by_hand,
};

const ADD: &str = include_str!("../../../../queue-worker/sql/add_chunk.sql");
const CLOSE: &str = include_str!("../../../../queue-worker/sql/close_gather.sql");
const COUNT: &str = include_str!("../../../../queue-worker/sql/count_gathers.sql");
const PRUNE: &str = include_str!("../../../../queue-worker/sql/prune_gathers.sql");
const GATHER_OUTCOME: &str = include_str!("../../../../queue-worker/sql/gather_outcome.sql");
const TOTAL: &str = include_str!("../../../../queue-worker/sql/gather_total.sql");
const PARTS: &str = include_str!("../../../../queue-worker/sql/parts.sql");

/// Enqueues `count` jobs as the batch `chunk` of a map. Rolls back if the batch is rejected.
async fn add(db: &TestDb, (token, parent): (Uuid, JobId), chunk: i32, count: i32, most: Option<i32>) -> (Option<bool>, Vec<JobId>) {
    let mut tx = db.pool.begin().await.unwrap();
    let enqueue = "select queue.enqueue('child', '{\"number\": 1, \"act\": \"Complete\"}') from generate_series(1, $1)";
    let ids: Vec<JobId> = sqlx::query_scalar(enqueue).bind(count).fetch_all(&mut *tx).await.unwrap();
    let first = i64::from(chunk) * 10;
    let statement = sqlx::query_scalar(ADD).bind(token).bind(parent).bind("map").bind(chunk).bind(first).bind(&ids).bind(most);
    let added: Option<bool> = statement.fetch_one(&mut *tx).await.unwrap();
    if added == Some(true) {
        tx.commit().await.unwrap();
    } else {
        tx.rollback().await.unwrap();
    }
    (added, ids)
}

async fn close(on: &mut PgConnection, (token, parent): (Uuid, JobId), total: i64) -> Option<bool> {
    sqlx::query_scalar(CLOSE).bind(token).bind(parent).bind(1_i16).bind("map").bind(total).fetch_one(on).await.unwrap()
}

/// Reports the ends of `jobs`. Returns the number of mapped jobs whose end was processed.
async fn report_map_ends(on: &mut PgConnection, jobs: &[JobId]) -> i64 {
    let parts = "select count(*) from queue.gather_part";
    let before: i64 = on.one(parts).await;
    add_end_hints(on, jobs).await.unwrap();
    consume_end_hints(on).await.unwrap();
    before - on.one::<i64>(parts).await
}

/// Counts finished jobs of maps. Returns the number of mapped jobs that were released to run, and the number of parents to wake.
async fn count(on: &mut PgConnection) -> (i32, i32) {
    let hints = "select count(*) from queue.signal_hint";
    let before: i64 = on.one(hints).await;
    let row = sqlx::query(COUNT).bind(0_i64).bind(100).fetch_one(&mut *on).await.unwrap();
    (row.get("moved"), i32::try_from(on.one::<i64>(hints).await - before).unwrap())
}

async fn query_gather(on: &mut PgConnection, parent: JobId) -> (Option<i64>, i64, i64, i64, i64, i32, i64) {
    sqlx::query_as(GATHER_OUTCOME).bind(parent).bind("map").fetch_one(on).await.unwrap()
}

async fn complete(db: &TestDb, job: JobId) {
    tests::complete(&mut db.pool.acquire().await.unwrap(), job, "'7'").await;
}

async fn park(db: &TestDb, job: JobId) {
    let statement = "with gone as (delete from queue.lease where $1 = any (ids) returning lane)
        insert into queue.parked (id, lane, attempts, crashes, since, names) select $1, lane, 0, 0, now(), array['map (join)'] from gone";
    sqlx::query(statement).bind(job).execute(&db.pool).await.unwrap();
}

async fn forget(db: &TestDb) {
    db.run("delete from queue.lease; delete from queue.ready; delete from queue.parked; delete from queue.done; delete from queue.job")
        .await;
}

#[tokio::test]
async fn a_chunk_is_added_once_and_a_cancelling_job_maps_nothing() {
    let (db, mut on) = db_by_hand().await;
    let (ours, token) = leased(&db).await;
    let mine = (token, ours.id());
    assert_eq!(add(&db, mine, 0, 10, None).await.0, Some(true));
    assert_eq!(add(&db, mine, 0, 10, None).await.0, Some(false), "repeated, after a lost reply");
    assert_eq!(add(&db, mine, 1, 5, None).await.0, Some(true));
    assert_eq!(db.count("select count(*) from queue.jobs where job_type = 'child'").await, 15);
    assert_eq!(query_gather(&mut on, ours.id()).await, (None, 16, 0, 0, 0, 2, 15));
    assert_eq!(close(&mut on, mine, 14).await, Some(false), "another number");
    assert_eq!((close(&mut on, mine, 15).await, close(&mut on, mine, 15).await), (Some(true), Some(true)));
    assert_eq!(query_gather(&mut on, ours.id()).await, (Some(15), 15, 0, 0, 0, 2, 15));
    assert_eq!(db.count("select count(*) from queue.step where attempt = 1 and output = '{\"map\": 15}'").await, 1);
    db.run("update queue.lease set cancelling = ids").await;
    assert_eq!(add(&db, mine, 2, 1, None).await.0, None);
    drop(on);
    forget(&db).await;
    db.finish().await;
}

#[tokio::test]
async fn each_mapped_job_counts_once_when_it_has_finished_and_the_last_wakes_its_own_parent() {
    let (db, mut on) = db_by_hand().await;
    let ((ours, token), (theirs, other)) = (leased(&db).await, leased(&db).await);
    let (_, mine) = add(&db, (token, ours.id()), 0, 3, None).await;
    let (_, alien) = add(&db, (other, theirs.id()), 0, 1, None).await;
    assert_eq!(close(&mut on, (token, ours.id()), 3).await, Some(true));
    assert_eq!(close(&mut on, (other, theirs.id()), 1).await, Some(true));
    park(&db, ours.id()).await;
    park(&db, theirs.id()).await;
    let all = [mine.clone(), alien].concat();
    assert_eq!((report_map_ends(&mut on, &all).await, count(&mut on).await), (0, (0, 0)), "none has finished");
    complete(&db, mine[0]).await;
    assert_eq!(report_map_ends(&mut on, &mine[1..]).await, 0);
    assert_eq!((report_map_ends(&mut on, &all).await, report_map_ends(&mut on, &all).await), (1, 0), "it counts once");
    complete(&db, mine[1]).await;
    assert_eq!((report_map_ends(&mut on, &all).await, count(&mut on).await), (1, (0, 0)));
    assert_eq!(query_gather(&mut on, ours.id()).await, (Some(3), 1, 2, 0, 0, 1, 3));
    assert_eq!(wake(&mut on).await, 0, "never early");
    complete(&db, mine[2]).await;
    assert_eq!((report_map_ends(&mut on, &all).await, count(&mut on).await, wake(&mut on).await), (1, (0, 1), 1));
    assert_eq!((db.state(ours.id()).await, db.state(theirs.id()).await), (Some(JobState::Ready), Some(JobState::Parked)));
    let total: (Option<i64>, i64, i64, i64, i64, i32, i64) =
        sqlx::query_as(TOTAL).bind(ours.id()).bind("map").fetch_one(&mut *on).await.unwrap();
    assert_eq!(total, (Some(3), 0, 3, 0, 0, 0, 0));
    let outputs = sqlx::query(PARTS).bind(ours.id()).bind("map").bind(0).fetch_all(&mut *on).await.unwrap();
    let outputs: Vec<(JobId, Option<String>)> = outputs.iter().map(|row| (row.get("id"), row.get("output"))).collect();
    assert_eq!(outputs, mine.iter().map(|id| (*id, Some("7".to_owned()))).collect::<Vec<_>>());
    drop(on);
    forget(&db).await;
    db.finish().await;
}

#[tokio::test]
async fn a_parent_is_cancelled_with_the_jobs_that_are_released_meanwhile() {
    let (db, mut on) = db_by_hand().await;
    let (job, token) = leased(&db).await;
    let (_, parts) = add(&db, (token, job.id()), 0, 2, Some(1)).await;
    complete(&db, parts[0]).await;
    assert_eq!(report_map_ends(&mut on, &parts).await, 1);
    let mut counts = db.pool.begin().await.unwrap();
    assert_eq!(counts.one::<i32>("select moved from queue.count_gathers(0, 100)").await, 1);
    let commit = async {
        let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        eventually("the cancel waits", async || db.count(waits).await == 1).await;
        counts.commit().await.unwrap();
    };
    let cancel = format!("select queue.cancel_children(array[{}])", job.id());
    tokio::join!(db.run(&cancel), commit);
    assert_eq!(db.state(parts[1]).await, Some(JobState::Cancelled));
    drop(on);
    db.run("delete from queue.gather_part; delete from queue.gather").await;
    forget(&db).await;
    db.finish().await;
}

/// If another session has locked the table of children or flow nodes, the hints for that table are kept for later. Hints of mapped jobs are
/// processed nevertheless.
#[tokio::test]
async fn a_locked_table_of_children_or_nodes_delays_no_count_of_mapped_jobs() {
    let (db, mut on) = db_by_hand().await;
    let (job, token) = leased(&db).await;
    for (chunk, table) in ["child", "node"].into_iter().enumerate() {
        let (_, parts) = add(&db, (token, job.id()), chunk as i32, 2, None).await;
        for mode in ["share", "access exclusive"] {
            let part = parts[usize::from(mode == "share")];
            complete(&db, part).await;
            add_end_hints(&mut on, &[part]).await.unwrap();
            let mut held = db.pool.begin().await.unwrap();
            held.run(&format!("lock table queue.{table} in {mode} mode")).await;
            consume_end_hints(&mut on).await.unwrap();
            assert_eq!(on.one::<i64>(&format!("select count(*) from queue.gather_part where id = {part}")).await, 0, "{table} {mode}");
            held.rollback().await.unwrap();
        }
    }
    drop(on);
    db.run("delete from queue.gather_part; delete from queue.gather").await;
    forget(&db).await;
    db.finish().await;
}

#[tokio::test]
async fn an_unreported_end_of_a_mapped_job_is_found_and_a_wrong_count_is_corrected() {
    let (db, mut on) = db_by_hand().await;
    let (job, token) = leased(&db).await;
    let (_, parts) = add(&db, (token, job.id()), 0, 5, Some(1)).await;
    assert_eq!(close(&mut on, (token, job.id()), 5).await, Some(true));
    park(&db, job.id()).await;
    complete(&db, parts[0]).await;
    let prune =
        async |on: &mut PgConnection| -> Option<JobId> { sqlx::query_scalar(PRUNE).bind(JobId(0)).bind(100).fetch_one(on).await.unwrap() };
    assert_eq!((prune(&mut on).await, query_gather(&mut on, job.id()).await.1), (Some(job.id()), 5), "it moved just now");
    let old = "update queue.gather set at = now() - interval '1 h', need = need + 7";
    db.run(old).await;
    let mut held = db.pool.begin().await.unwrap();
    held.run("select from queue.gather for update").await;
    prune(&mut on).await;
    held.rollback().await.unwrap();
    assert_eq!(query_gather(&mut on, job.id()).await.1, 12, "it does not wait");
    prune(&mut on).await;
    assert_eq!(query_gather(&mut on, job.id()).await.1, 5, "four, and one of whose end there is a hint");
    assert_eq!((consume_end_hints(&mut on).await.unwrap(), count(&mut on).await), (1, (1, 0)));
    assert_eq!((query_gather(&mut on, job.id()).await.1, db.state(parts[1]).await), (4, Some(JobState::Ready)));
    // The parent is also woken if a recount finds no unfinished job.
    for part in &parts[1..] {
        db.run(&format!("with p as (delete from queue.parked where id = {part} returning id, lane) insert into queue.ready (lane, seq, id) select lane, id, id from p")).await;
        complete(&db, *part).await;
    }
    assert_eq!(report_map_ends(&mut on, &parts).await, 4);
    db.run("delete from queue.gather_hint").await;
    db.run(old).await;
    prune(&mut on).await;
    assert_eq!((query_gather(&mut on, job.id()).await.1, wake(&mut on).await), (0, 1));
    drop(on);
    forget(&db).await;
    db.finish().await;
}

#[tokio::test]
async fn a_restarted_parent_counts_no_earlier_end_and_waiting_mapped_jobs_are_released() {
    let (db, mut on) = db_by_hand().await;
    let (job, token) = leased(&db).await;
    let mine = (token, job.id());
    let (_, before) = add(&db, mine, 0, 3, Some(1)).await;
    complete(&db, before[0]).await;
    assert_eq!(report_map_ends(&mut on, &before).await, 1, "which is not counted yet");
    on.run(&format!("select queue.forget_gathers(array[{0}])", job.id())).await;
    for waiting in &before[1..] {
        assert_eq!(db.state(*waiting).await, Some(JobState::Ready), "nothing would release it");
    }
    let (_, parts) = add(&db, mine, 0, 2, Some(1)).await;
    // Insert the row of a mapped job that was added before the parent restarted. Such a row remains if a session that records the job's
    // end rolls back.
    let kept = "insert into queue.gather_part (id, parent, born, nr, name, held) select $1, $2, 1, -1, 'map', true";
    sqlx::query(kept).bind(before[1]).bind(job.id()).execute(&mut *on).await.unwrap();
    let parked = "with gone as (delete from queue.ready where id = $1 returning id, lane)
        insert into queue.parked (id, lane, attempts, crashes, since, names) select id, lane, 0, 0, now(), '{}' from gone";
    sqlx::query(parked).bind(before[1]).execute(&mut *on).await.unwrap();
    db.run("update queue.gather set at = now() - interval '1 h'").await;
    sqlx::query(PRUNE).bind(JobId(0)).bind(100).execute(&mut *on).await.unwrap();
    assert_eq!(query_gather(&mut on, job.id()).await.1, 3, "it is open, and has two parts");
    assert_eq!(count(&mut on).await, (0, 0));
    assert_eq!((query_gather(&mut on, job.id()).await.1, query_gather(&mut on, job.id()).await.2), (3, 0));
    complete(&db, parts[0]).await;
    assert_eq!((report_map_ends(&mut on, &parts).await, count(&mut on).await), (1, (1, 0)));
    assert_eq!((db.state(parts[1]).await, db.state(before[1]).await), (Some(JobState::Ready), Some(JobState::Parked)));
    assert_eq!(query_gather(&mut on, job.id()).await.2, 1);
    drop(on);
    db.run("delete from queue.gather_part; delete from queue.gather").await;
    forget(&db).await;
    db.finish().await;
}
