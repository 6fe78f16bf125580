//! Tests changes of schedules: recreating, pausing, resuming and deleting a schedule, and skipping a tick. Covers concurrent and rejected
//! changes.

use sqlx::{Connection as _, PgConnection, error::DatabaseError};
use tests::{TestDb, eventually, protocol::register, timetable};

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

async fn run(on: &mut PgConnection, text: &'static str) {
    sqlx::raw_sql(text).execute(on).await.unwrap();
}

/// Runs the statement, which must be rejected. Returns the SQLSTATE and the error message.
async fn refused(on: &mut PgConnection, text: &'static str) -> (String, String) {
    let error = sqlx::raw_sql(text).execute(on).await.unwrap_err();
    let code = error.as_database_error().and_then(DatabaseError::code).unwrap_or_default().into_owned();
    (code, error.to_string())
}

#[tokio::test]
async fn the_table_accepts_no_invalid_schedule() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    timetable::put(&mut on, 60).await.unwrap();
    for (change, constraint) in [
        ("update queue.schedule set name = 'a b'", "schedule_name_is_a_name"),
        ("update queue.schedule set job_type = ''", "schedule_job_type_is_a_name"),
        ("update queue.schedule set cron = '* * * * *'", "schedule_has_one_timing"),
        ("update queue.schedule set every = null", "schedule_has_one_timing"),
        ("update queue.schedule set source = 'nobody'", "schedule_source_is_known"),
    ] {
        let (code, message) = refused(&mut on, change).await;
        assert!(code == "23514" && message.contains(constraint), "{change}: {message}");
    }
    db.finish().await;
}

#[tokio::test]
async fn of_two_concurrent_changes_of_a_schedule_the_second_wins() {
    let db = TestDb::new().await;
    let (mut one, mut other) = (connect(&db).await, connect(&db).await);
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0";
    let grace = "select count(*) from queue.schedule where extract(epoch from grace) = 60";
    timetable::put(&mut other, 60).await.unwrap();
    let mut first = one.begin().await.unwrap();
    timetable::put(&mut first, 7).await.unwrap();
    // The second session waits for the first session, whose change of the same schedule is uncommitted.
    let second = tokio::spawn(async move { timetable::put(&mut other, 60).await.map(|()| other) });
    eventually("it waits", async || db.count(waits).await == 1).await;
    first.commit().await.unwrap();
    let mut other = second.await.unwrap().unwrap();
    assert_eq!(db.count(grace).await, 1);
    // The second session now waits for the deletion by the first session.
    let mut first = one.begin().await.unwrap();
    assert!(timetable::unschedule(&mut first).await.unwrap());
    let second = tokio::spawn(async move { timetable::put(&mut other, 60).await });
    eventually("it waits again", async || db.count(waits).await == 1).await;
    first.commit().await.unwrap();
    second.await.unwrap().unwrap();
    assert_eq!(db.count(grace).await, 1, "it is created again");
    db.finish().await;
}

#[tokio::test]
async fn a_schedule_with_an_error_is_planned_again_by_an_identical_declaration() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    timetable::put(&mut on, 60).await.unwrap();
    run(&mut on, "update queue.schedule set error = 'wrong', next_at = now(), skip_at = now(), since = now() - interval '1 h'").await;
    timetable::put(&mut on, 60).await.unwrap();
    let planned = "select count(*) from queue.schedule
      where error is null and next_at is null and skip_at is null and since > now() - interval '1 minute'";
    assert_eq!(db.count(planned).await, 1);
    db.finish().await;
}

#[tokio::test]
async fn a_missing_schedule_is_neither_paused_nor_resumed_nor_skipped() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    for act in [
        "select queue.pause_schedule('none')",
        "select queue.resume_schedule('none')",
        "select queue.skip_schedule('none')",
        "select queue.run_schedule('none')",
    ] {
        let (code, message) = refused(&mut on, act).await;
        assert!(code == "P0002" && message.contains("there is no schedule \"none\""), "{act}: {message}");
    }
    timetable::put(&mut on, 60).await.unwrap();
    let (code, message) = refused(&mut on, "select queue.skip_schedule('due')").await;
    assert!(code == "55000" && message.contains("is unknown until"), "{message}");
    assert!(timetable::unschedule(&mut on).await.unwrap() && !timetable::unschedule(&mut on).await.unwrap());
    db.finish().await;
}

#[tokio::test]
async fn an_operation_affects_only_the_named_schedule() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    timetable::put(&mut on, 60).await.unwrap();
    run(
        &mut on,
        "select queue.schedule(n, 'do', '{}', '{\"every\": 60}') from unnest('{a,b}'::text[]) n; update queue.schedule set next_at = now()",
    )
    .await;
    let others =
        "select count(*) from queue.schedule where name <> 'due' and next_at is not null and paused_at is null and skip_at is null";
    run(&mut on, "select queue.skip_schedule('due')").await;
    run(&mut on, "select queue.pause_schedule('due')").await;
    assert_eq!(db.count(others).await, 2);
    let mine = "select count(*) from queue.schedule where name = 'due' and paused_at is not null and skip_at is not null";
    assert_eq!(db.count(mine).await, 1);
    run(&mut on, "update queue.schedule set paused_at = now()").await;
    run(&mut on, "select queue.resume_schedule('due')").await;
    assert_eq!(db.count("select count(*) from queue.schedule where name <> 'due' and paused_at is not null").await, 2);
    assert!(timetable::unschedule(&mut on).await.unwrap());
    assert_eq!(db.count("select count(*) from queue.schedule").await, 2);
    db.finish().await;
}

#[tokio::test]
async fn a_pause_begins_once_and_after_its_end_can_begin_again() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    timetable::put(&mut on, 60).await.unwrap();
    run(&mut on, "update queue.schedule set since = now() - interval '1 h', next_at = now() - interval '1 minute'").await;
    run(&mut on, "select queue.resume_schedule('due')").await;
    let as_it_was = "select count(*) from queue.schedule where since < now() - interval '1 minute' and next_at is not null";
    assert_eq!(db.count(as_it_was).await, 1, "it was not paused");
    run(&mut on, "select queue.pause_schedule('due')").await;
    run(&mut on, "update queue.schedule set paused_at = paused_at - interval '1 h'").await;
    run(&mut on, "select queue.pause_schedule('due')").await;
    assert_eq!(db.count("select count(*) from queue.schedule where paused_at < now() - interval '1 minute'").await, 1, "since it began");
    let mut notifications = db.listen("wake").await;
    run(&mut on, "select queue.resume_schedule('due')").await;
    let notification =
        tokio::time::timeout(std::time::Duration::from_secs(30), notifications.recv()).await.expect("no session is notified");
    assert_eq!(notification.unwrap().payload(), "!schedule");
    let resumed = "select count(*) from queue.schedule where since > now() - interval '1 minute' and next_at is null and paused_at is null";
    assert_eq!(db.count(resumed).await, 1, "the ticks of the pause have passed");
    db.finish().await;
}

/// Returns 1 if the schedule that workers have declared matches the condition `what`, otherwise 0.
async fn declared(db: &TestDb, what: &str) -> i64 {
    let count = format!("select count(*) from queue.schedule where name = 'told' and {what}");
    sqlx::query_scalar(sqlx::AssertSqlSafe(count)).fetch_one(&db.pool).await.unwrap()
}

#[tokio::test]
async fn a_schedule_is_withdrawn_once_and_restored_once() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let worker = register(&mut on).await.unwrap();
    assert_eq!(timetable::declare(&mut on, worker, 60).await.unwrap(), 0);
    assert_eq!(timetable::elect(&mut on).await.unwrap(), [("told".to_owned(), "in force".to_owned())]);
    assert_eq!(timetable::elect(&mut on).await.unwrap(), [], "it is in force");
    let (code, _) = refused(&mut on, "select queue.unschedule('told')").await;
    assert_eq!(code, "55000", "workers declare it");

    // While no worker is alive, no schedule is withdrawn.
    run(&mut on, "update queue.worker set expires_at = now() - interval '1 s'").await;
    assert_eq!(timetable::elect(&mut on).await.unwrap(), []);
    assert_eq!(declared(&db, "undeclared_since is null").await, 1);

    register(&mut on).await.unwrap();
    assert_eq!(timetable::elect(&mut on).await.unwrap(), []);
    assert_eq!(declared(&db, "undeclared_since is not null and withdrawn_at is null").await, 1, "a release may be starting");
    run(&mut on, "update queue.schedule set undeclared_since = now() - interval '1 h'").await;
    let mut other = connect(&db).await;
    let mut held = other.begin().await.unwrap();
    sqlx::query("select from queue.schedule for update").execute(&mut *held).await.unwrap();
    assert_eq!(timetable::elect(&mut on).await.unwrap(), [], "another session has it locked, and is not waited for");
    held.rollback().await.unwrap();
    assert_eq!(timetable::elect(&mut on).await.unwrap(), [("told".to_owned(), "withdrawn".to_owned())]);
    run(&mut on, "update queue.schedule set withdrawn_at = now() - interval '1 h'").await;
    assert_eq!(timetable::elect(&mut on).await.unwrap(), [], "once");
    assert_eq!(declared(&db, "withdrawn_at < now() - interval '1 minute'").await, 1);

    // A withdrawn schedule is in force again once a worker declares it.
    run(&mut on, "update queue.declaration set last_seen = now() - interval '30 minutes'").await;
    let worker = register(&mut on).await.unwrap();
    timetable::declare(&mut on, worker, 60).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.declaration where last_seen > now() - interval '1 minute'").await, 1);
    assert_eq!(timetable::elect(&mut on).await.unwrap(), [("told".to_owned(), "in force".to_owned())]);
    assert_eq!(declared(&db, "undeclared_since is null and withdrawn_at is null").await, 1);
    assert_eq!(timetable::elect(&mut on).await.unwrap(), [], "it is in force");

    run(&mut on, "update queue.schedule set withdrawn_at = now(); delete from queue.worker").await;
    assert_eq!(db.count("select queue.unschedule('told')::int::bigint").await, 1, "no worker declares it");
    db.finish().await;
}

#[tokio::test]
async fn a_dynamic_schedule_of_the_same_name_and_definition_is_reported_and_stays() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    run(&mut on, r#"select queue.schedule('told', 'do', '{"act":{"Ok":"done"}}', '{"every": 60, "grace": 60}')"#).await;
    let worker = register(&mut on).await.unwrap();
    timetable::declare(&mut on, worker, 60).await.unwrap();
    let elected = timetable::elect(&mut on).await.unwrap();
    assert!(elected.len() == 1 && elected[0].1.starts_with("refused: "), "{elected:?}");
    assert_eq!(declared(&db, "source = 'dynamic'").await, 1);
    db.finish().await;
}
