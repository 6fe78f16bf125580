//! Migrations that build indexes on a store in use: nobody waits for them, and what one run leaves unfinished another finishes.

use std::time::{Duration, Instant};

use queue_core::{
    Error, Job as _, Store, migrate,
    runner::{Migration, migrate_with},
};
use sqlx::{Connection as _, PgConnection};
use tests::{Act, Do, TestDb, eventually};
use tokio::task::JoinHandle;

use super::connect;

/// Of these tests: on a plain table, and on one with a partition a day, both written by every enqueue.
const INDEXES: Migration = Migration::new(
    1000,
    "indexes",
    "-- concurrently\ncreate index concurrently job_by_lane on queue.job (lane, id);\ncreate index concurrently ready_by_job on queue.ready (id);\n",
);

const PATIENCE: Duration = Duration::from_mins(5);

/// Whether both indexes are valid, with all their parts, and nothing else is.
async fn assert_built(db: &TestDb, schema: &str) {
    let of = |what: &str| {
        format!(
            "select count(*) from pg_index i join pg_class c on c.oid = i.indexrelid
             where c.relnamespace = '{schema}'::regnamespace and (c.relname ~ 'ready_by_job|job_by_lane' or c.relname ~ 'lane_id_idx$') and {what}"
        )
    };
    let partitions = format!("select count(*) from pg_inherits where inhparent = '{schema}.job'::regclass");
    assert_eq!(db.count(&of("i.indisvalid")).await, 2 + db.count(&partitions).await);
    assert_eq!(db.count(&of("not i.indisvalid")).await, 0);
    assert_eq!(db.count(&of("c.relname ~ 'broken'")).await, 0);
}

async fn fill(db: &TestDb) {
    for _ in 0..20 {
        Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).await.unwrap();
    }
}

/// Migrates; with the server process that does.
async fn start(db: &TestDb, patience: Duration) -> (JoinHandle<Result<Vec<i32>, Error>>, i32) {
    let mut connection = connect(db).await;
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut connection).await.unwrap();
    (tokio::spawn(async move { migrate_with(&mut connection, Store::default(), &[INDEXES], patience).await }), pid)
}

/// A transaction that has read both tables and goes on.
async fn read(reader: &mut PgConnection, isolation: &str) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("begin isolation level {isolation}"))).execute(&mut *reader).await.unwrap();
    sqlx::query("select (select count(*) from queue.ready), (select count(*) from queue.job)").execute(reader).await.unwrap();
}

/// Enqueues until this statement of the process has been seen to wait for a lock in so many rounds. An enqueue that has to wait for a lock for
/// longer than 100 ms is refused by the server, whose clock counts nothing else.
async fn enqueue_beside(db: &TestDb, pid: i32, statement: &str, rounds: usize) {
    let waiting = format!("select count(*) from pg_stat_activity where pid = {pid} and wait_event_type = 'Lock' and query ~ '{statement}'");
    let mut producer = connect(db).await;
    sqlx::raw_sql("set lock_timeout = '100ms'").execute(&mut producer).await.unwrap();
    eventually(&format!("{statement} waits"), async || db.count(&waiting).await > 0).await;
    let mut seen = 0;
    while seen < rounds {
        let before = db.count(&waiting).await > 0;
        for _ in 0..5 {
            Do { act: Act::Ok(String::new()) }.enqueue(&mut producer).await.expect("no enqueue waits 100 ms for a lock");
        }
        seen += usize::from(before || db.count(&waiting).await > 0);
    }
}

#[tokio::test]
#[ignore = "deep"]
async fn an_index_is_built_behind_slow_readers_and_delays_no_enqueue() {
    let db = TestDb::new().await;
    fill(&db).await;
    let (mut first, mut second) = (connect(&db).await, connect(&db).await);
    read(&mut first, "repeatable read").await;
    let (migrating, pid) = start(&db, PATIENCE).await;

    // The build waits until the reader's snapshot has gone, and nobody waits for the build.
    enqueue_beside(&db, pid, "create index concurrently", 30).await;
    let behind =
        format!("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and pid <> {pid}");
    assert_eq!(db.count(&behind).await, 0);
    assert!(!migrating.is_finished());
    read(&mut second, "read committed").await;
    first.close().await.unwrap();

    // This reader has no snapshot in the way of a build, but a lock in the way of what puts the parts together.
    enqueue_beside(&db, pid, "alter index .* attach", 3).await;
    assert!(!migrating.is_finished());
    second.close().await.unwrap();
    assert_eq!(migrating.await.unwrap().unwrap(), [1000]);
    assert_built(&db, "queue").await;
    db.finish().await;
}

#[tokio::test]
async fn an_index_that_a_run_left_unfinished_is_built_again() {
    let db = TestDb::new().await;
    fill(&db).await;
    let unfinished = "select count(*) from pg_index where not indisvalid and indrelid <> 'queue.job'::regclass";
    let mut reader = connect(&db).await;
    let blocker: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut reader).await.unwrap();
    read(&mut reader, "repeatable read").await;
    // One gives up, one is killed.
    let error = start(&db, Duration::from_millis(300)).await.0.await.unwrap().unwrap_err();
    assert!(matches!(&error, Error::SchemaInUse { .. }) && error.to_string().contains(&blocker.to_string()), "{error}");
    assert_eq!(db.count(unfinished).await, 1);
    let (killed, pid) = start(&db, PATIENCE).await;
    eventually("it goes on where the first ended", async || {
        db.count(&format!("select count(*) from pg_stat_activity where pid = {pid} and wait_event_type = 'Lock'")).await > 0
    })
    .await;
    sqlx::query("select pg_terminate_backend($1)").bind(pid).execute(&db.pool).await.unwrap();
    killed.await.unwrap().unwrap_err();
    assert_eq!(db.count("select count(*) from queue.migration where version = 1000").await, 0);
    migrate::verify(&mut connect(&db).await, Store::default()).await.unwrap();

    reader.close().await.unwrap();
    assert!(db.count(unfinished).await > 0);
    assert_eq!(start(&db, PATIENCE).await.0.await.unwrap().unwrap(), [1000]);
    assert_built(&db, "queue").await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn of_migrations_that_build_indexes_at_once_all_succeed_and_one_says_so() {
    let db = TestDb::new().await;
    fill(&db).await;
    let mut reader = connect(&db).await;
    read(&mut reader, "repeatable read").await;
    let mut all = vec![start(&db, PATIENCE).await];
    let building = "select count(*) from pg_stat_progress_create_index where datname = current_database() and phase ~ 'waiting'";
    eventually("one builds", async || db.count(building).await > 0).await;
    // Those have little patience, and wait all the same until the other has built.
    let patience = Duration::from_secs(3);
    for _ in 0..3 {
        all.push(start(&db, patience).await);
    }
    let began = Instant::now();
    while began.elapsed() < patience + Duration::from_secs(1) {
        for (_, pid) in &all[1..] {
            let waiting = format!("select count(*) from pg_stat_activity where wait_event_type = 'Lock' and pid = {pid}");
            eventually("it waits", async || db.count(&waiting).await > 0).await;
            eventually("and gives way", async || db.count(&waiting).await == 0).await;
        }
    }
    assert!(all.iter().all(|(migrating, _)| !migrating.is_finished()));
    reader.close().await.unwrap();
    let mut applied = Vec::new();
    for (migrating, _) in all {
        applied.extend(migrating.await.unwrap().unwrap());
    }
    assert_eq!(applied, [1000]);
    assert_built(&db, "queue").await;
    db.finish().await;
}

#[tokio::test]
async fn indexes_of_a_fresh_store_are_made_at_once_and_a_connection_keeps_its_settings() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    sqlx::raw_sql("set search_path = mine; set lock_timeout = '7s'; set statement_timeout = '8s'").execute(&mut connection).await.unwrap();
    let fresh = Store::new("fresh").unwrap();
    let applied = migrate_with(&mut connection, fresh, &[INDEXES], Duration::ZERO).await.unwrap();
    assert_eq!(applied.last(), Some(&1000));
    assert_built(&db, "fresh").await;
    let mut tx = connection.begin().await.unwrap();
    assert_eq!(migrate_with(&mut tx, Store::default(), &[INDEXES], Duration::ZERO).await.unwrap(), [1000], "all of it is the caller's");
    tx.rollback().await.unwrap();
    assert_eq!(migrate_with(&mut connection, Store::default(), &[INDEXES], PATIENCE).await.unwrap(), [1000]);
    assert_built(&db, "queue").await;
    let kept = "select current_setting('search_path'), current_setting('lock_timeout'), current_setting('statement_timeout')";
    let kept: (String, String, String) = sqlx::query_as(kept).fetch_one(&mut connection).await.unwrap();
    assert_eq!(kept, ("mine".to_owned(), "7s".to_owned(), "8s".to_owned()));
    db.finish().await;
}
