//! Tests how history is pruned by job type, where each type has its own retention. `held::pruned` tests which rows the pruning skips.

use queue_core::{JobId, Store};
use sqlx::{Connection as _, PgConnection};
use tests::TestDb;

use super::connect;

const DONE: &str = "insert into queue.done (id, finished_at, ran_ms, attempts)
  select j.id, now() - $2 * interval '1 hour', 1, 2 from unnest($1::bigint[]) j (id)";
const PLAIN: &str = "insert into queue.done_many (first_id, last_id, finished_at, lane, ids)
  select j.id, j.id, now() - $2 * interval '1 hour', j.lane, array[j.id] from queue.job j where j.id = any ($1) order by j.id";

/// Creates jobs that were enqueued on a day without a partition. Each job finished `hours` hours ago and has a failure.
async fn create_finished(on: &mut PgConnection, entries: &'static str, job_type: &str, hours: i32, count: i32) -> Vec<JobId> {
    let jobs = "with j as (
        insert into queue.job (id, lane, max_attempts, payload)
        select queue.id_at(now() - interval '20 days') + nextval('queue.id_seq'), queue.ensure_lane('default', $1, 100::smallint, false), 3, '{}'
        from generate_series(1, $2) returning id
      ), f as (insert into queue.failure (id, attempt, at, ran_ms, error) select id, 1, now(), 1, 'once' from j)
      select id from j order by id";
    let jobs: Vec<JobId> = sqlx::query_scalar(jobs).bind(job_type).bind(count).fetch_all(&mut *on).await.unwrap();
    sqlx::query(entries).bind(&jobs).bind(hours).execute(on).await.unwrap();
    jobs
}

/// Returns a connection with a short lock timeout.
async fn hasty(db: &TestDb) -> PgConnection {
    let mut on = connect(db).await;
    sqlx::query("set lock_timeout = '2s'").execute(&mut on).await.unwrap();
    on
}

async fn prune(on: &mut PgConnection, statement: &'static str, days: f64, most: i64) -> i64 {
    sqlx::query_scalar(Store::default().sql(statement)).bind(days * 86_400.0).bind(most).fetch_one(on).await.unwrap()
}

/// Returns the jobs that still exist. Checks that exactly these jobs have failures.
async fn remaining_jobs(db: &TestDb) -> Vec<JobId> {
    let left = "select id from queue.job order by id";
    let left: Vec<JobId> = sqlx::query_scalar(left).fetch_all(&db.pool).await.unwrap();
    let failures: Vec<JobId> = sqlx::query_scalar("select id from queue.failure order by id").fetch_all(&db.pool).await.unwrap();
    assert_eq!(failures, left, "the failures of those, and of no others");
    db.check_invariant().await;
    left
}

const PRUNE_KEPT: &str = include_str!("../../../queue-worker/sql/prune_kept.sql");
const PRUNE_EARLY: &str = include_str!("../../../queue-worker/sql/prune_early.sql");

#[tokio::test]
async fn history_without_a_day_is_deleted_by_the_retention_of_its_type() {
    let db = TestDb::new().await;
    let mut on = hasty(&db).await;
    let types = "insert into queue.retention (job_type, history) values ('long', '30 days'), ('brief', '1 hour')";
    sqlx::query(types).execute(&mut on).await.unwrap();
    let mut stay = Vec::new();
    for entries in [DONE, PLAIN] {
        create_finished(&mut on, entries, "do", 240, 1).await;
        stay.extend(create_finished(&mut on, entries, "long", 240, 1).await);
        create_finished(&mut on, entries, "brief", 2, 1).await;
        stay.extend(create_finished(&mut on, entries, "do", 2, 1).await);
        stay.extend(create_finished(&mut on, entries, "brief", 0, 1).await);
    }
    assert_eq!(prune(&mut on, PRUNE_KEPT, 7.0, 100).await, 4);
    assert_eq!(remaining_jobs(&db).await, stay);
    db.finish().await;
}

/// Scans the next two rows for jobs of a type. Returns whether more rows remain, or `None` if the type's retention is not shorter than the
/// store's or another session is scanning.
async fn prune_early(on: &mut PgConnection, job_type: &str) -> Option<bool> {
    let text = Store::default().sql(PRUNE_EARLY);
    sqlx::query_scalar(text).bind(job_type).bind(2_i64).bind(7.0 * 86_400.0).fetch_optional(on).await.unwrap()
}

#[tokio::test]
async fn a_type_with_a_shorter_retention_is_scanned_page_by_page_by_one_session() {
    for entries in [DONE, PLAIN] {
        let db = TestDb::new().await;
        let (mut on, mut holder) = (hasty(&db).await, connect(&db).await);
        let types = "insert into queue.retention (job_type, history) values ('brief', '1 hour'), ('other', '1 hour'), ('long', '30 days')";
        sqlx::query(types).execute(&mut on).await.unwrap();
        let others = create_finished(&mut on, entries, "other", 3, 2).await;
        let gone = create_finished(&mut on, entries, "brief", 3, 3).await;
        let recent = create_finished(&mut on, entries, "brief", 0, 1).await;
        let last = create_finished(&mut on, entries, "brief", 3, 1).await;
        // This job was enqueued just now, so its retention cannot have ended yet. The scan skips the job.
        let fresh: Vec<JobId> = sqlx::query_scalar("select queue.enqueue('brief', '{}')").fetch_all(&mut on).await.unwrap();
        sqlx::query(entries).bind(&fresh).bind(3).execute(&mut on).await.unwrap();
        sqlx::raw_sql("delete from queue.ready").execute(&mut on).await.unwrap();
        sqlx::query("insert into queue.failure select $1, 1, now(), 1, 'once'").bind(fresh[0]).execute(&mut on).await.unwrap();
        let there = |of: &[&[JobId]]| of.concat();

        assert_eq!(prune_early(&mut on, "long").await, None, "its day goes before");
        assert_eq!(prune_early(&mut on, "brief").await, Some(true));
        assert_eq!(remaining_jobs(&db).await, there(&[&others, &gone, &recent, &last, &fresh]), "a page of others");
        let mut held = holder.begin().await.unwrap();
        sqlx::query("select from queue.retention where job_type = 'brief' for update").execute(&mut *held).await.unwrap();
        assert_eq!(prune_early(&mut on, "brief").await, None, "another session scans");
        held.rollback().await.unwrap();
        assert_eq!(prune_early(&mut on, "brief").await, Some(true));
        assert_eq!(remaining_jobs(&db).await, there(&[&others, &gone[2..], &recent, &last, &fresh]));
        assert_eq!(prune_early(&mut on, "brief").await, Some(true));
        assert_eq!(prune_early(&mut on, "brief").await, Some(false));
        assert_eq!(remaining_jobs(&db).await, there(&[&others, &recent, &fresh]));
        assert_eq!(db.count("select pruned_to from queue.retention where job_type = 'other'").await, 0);
        db.finish().await;
    }
}

#[tokio::test]
async fn a_retention_published_twice_is_stored_once_and_for_no_other_type() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let types =
        "insert into queue.retention (job_type, history, pruned_to) values ('a', '2 hours', 7), ('b', '1 hour', 7), ('c', '1 hour', 7)";
    sqlx::query(types).execute(&mut on).await.unwrap();
    let keep = Store::default().sql(include_str!("../../../queue-worker/sql/keep_types.sql"));
    for _ in 0..2 {
        sqlx::query(keep).bind(vec!["a", "b"]).bind([Some(3600.0), None]).execute(&mut on).await.unwrap();
        let retentions = "select string_agg(job_type || ' ' || history || ' ' || pruned_to, ', ' order by job_type) from queue.retention";
        let retentions: String = sqlx::query_scalar(retentions).fetch_one(&mut on).await.unwrap();
        assert_eq!(retentions, "a 01:00:00 7, c 01:00:00 7");
    }
    db.finish().await;
}
