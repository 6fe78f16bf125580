//! Tests the SQL statements for child jobs: their fencing and their notifications.

use queue_core::{JobId, JobState};
use sqlx::{Connection as _, PgConnection};
use tests::{
    Sql as _, TestDb,
    children::{add_end_hints, consume_end_hints},
    complete, die,
};
use uuid::Uuid;

use super::{
    super::signals::races::{leased, wake},
    db, db_by_hand,
};

const SPAWN: &str = include_str!("../../../../queue-worker/sql/spawn.sql");
const PRUNE: &str = include_str!("../../../../queue-worker/sql/prune_children.sql");
const JOIN: &str = include_str!("../../../../queue-worker/sql/child_outcome.sql");

async fn try_spawn(on: &mut PgConnection, (token, parent): (Uuid, JobId), name: &str, options: &str) -> sqlx::Result<Option<JobId>> {
    let statement = sqlx::query_scalar(SPAWN).bind(token).bind(parent).bind(1_i16).bind(name).bind("child");
    statement.bind(r#"{"number": 1, "act": "Complete"}"#).bind(options).fetch_one(on).await
}

async fn spawn(on: &mut PgConnection, mine: (Uuid, JobId), name: &str) -> Option<JobId> {
    try_spawn(on, mine, name, "{}").await.unwrap()
}

/// Reports the ends of `jobs`. Returns the number of children whose end was reported for the first time.
async fn report_child_ends(on: &mut PgConnection, jobs: &[JobId]) -> i64 {
    let query = "select count(state) from queue.child";
    let before: i64 = on.one(query).await;
    add_end_hints(on, jobs).await.unwrap();
    consume_end_hints(on).await.unwrap();
    on.one::<i64>(query).await - before
}

/// Returns the final state of a child as reported to its parent, or `None` if no end was reported.
async fn state(on: &mut PgConnection, parent: JobId, name: &str) -> Option<String> {
    let row: (JobId, Option<String>) = sqlx::query_as(JOIN).bind(parent).bind(name).fetch_one(on).await.unwrap();
    row.1
}

/// Parks the job `job`, which then waits to join its child `child`.
async fn park(db: &TestDb, job: JobId, child: &str) {
    let statement = "with gone as (delete from queue.lease where $1 = any (ids) returning lane)
        insert into queue.parked (id, lane, attempts, crashes, since, names) select $1, lane, 0, 0, now(), array[$2] from gone";
    sqlx::query(statement).bind(job).bind(format!("{child} (join)")).execute(&db.pool).await.unwrap();
}

async fn forget(db: &TestDb) {
    db.run("delete from queue.lease; delete from queue.ready; delete from queue.parked; delete from queue.child; delete from queue.job")
        .await;
}

#[tokio::test]
async fn a_name_spawns_one_child_and_a_cancelling_job_spawns_none() {
    let (db, mut on) = db_by_hand().await;
    let (ours, token) = leased(&db).await;
    let mine = (token, ours.id());
    let first = spawn(&mut on, mine, "a").await;
    assert!(first.is_some() && first == spawn(&mut on, mine, "a").await, "repeated, after a lost reply");
    assert_ne!(spawn(&mut on, mine, "b").await, first);
    assert_eq!(db.count("select count(*) from queue.step where attempt = 1 and output ? 'child'").await, 2);
    // A spawn that conflicts with a uniqueness key is rejected as a whole: it writes neither a child nor a step.
    let held = r#"{"unique_key": "k", "queue": "other"}"#;
    try_spawn(&mut on, mine, "c", held).await.unwrap();
    let error = try_spawn(&mut on, mine, "d", held).await.unwrap_err().to_string();
    assert!(error.contains("holds its uniqueness key"), "{error}");
    assert_eq!(db.count("select (select count(*) from queue.step) + (select count(*) from queue.child)").await, 6);
    db.run("update queue.lease set cancelling = ids").await;
    assert_eq!(spawn(&mut on, mine, "e").await, None);
    drop(on);
    forget(&db).await;
    db.finish().await;
}

#[tokio::test]
async fn two_identical_spawns_create_one_child_and_one_that_is_rolled_back_none() {
    let db = db().await;
    let (mut one, mut other) = (db.pool.acquire().await.unwrap(), db.pool.acquire().await.unwrap());
    let (job, token) = leased(&db).await;
    for end in ["rollback", "commit"] {
        one.run("begin").await;
        let first = spawn(&mut one, (token, job.id()), end).await;
        let mut on = db.connect().await;
        let again = tokio::spawn(async move { spawn(&mut on, (token, job.id()), end).await });
        db.until_waiting(1).await;
        one.run(end).await;
        let second = again.await.unwrap();
        assert_eq!(second == first, end == "commit", "{first:?} {second:?}");
        assert!(second.is_some());
    }
    // A spawn waits for an uncommitted cancellation of its parent and is rejected after the cancellation has committed.
    one.run("begin").await;
    sqlx::query("select queue.cancel_running_all($1)").bind([job.id()]).execute(&mut *one).await.unwrap();
    let late = tokio::spawn(async move { spawn(&mut other, (token, job.id()), "late").await });
    db.until_waiting(1).await;
    one.run("commit").await;
    assert_eq!(late.await.unwrap(), None);
    consume_end_hints(&mut one).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.child where state = 'cancelled'").await, 2, "those that it had are cancelled");
    drop(one);
    db.run("delete from queue.lease; delete from queue.child; delete from queue.done; delete from queue.job").await;
    db.finish().await;
}

#[tokio::test]
async fn only_a_finished_child_is_reported_once_and_only_its_own_parent_is_woken() {
    let (db, mut on) = db_by_hand().await;
    let ((ours, token), (theirs, other)) = (leased(&db).await, leased(&db).await);
    let mine = spawn(&mut on, (token, ours.id()), "a").await.unwrap();
    let alien = spawn(&mut on, (other, theirs.id()), "a").await.unwrap();
    park(&db, ours.id(), "a").await;
    park(&db, theirs.id(), "a").await;
    assert_eq!((report_child_ends(&mut on, &[mine, alien]).await, wake(&mut on).await), (0, 0), "neither has finished");
    complete(&mut on, mine, "'7'").await;
    assert_eq!(report_child_ends(&mut on, &[alien]).await, 0);
    assert_eq!((report_child_ends(&mut on, &[mine, alien]).await, report_child_ends(&mut on, &[mine]).await), (1, 0), "it reports once");
    assert_eq!((state(&mut on, ours.id(), "a").await.as_deref(), state(&mut on, theirs.id(), "a").await), (Some("completed"), None));
    assert_eq!(wake(&mut on).await, 1);
    assert_eq!((db.state(ours.id()).await, db.state(theirs.id()).await), (Some(JobState::Ready), Some(JobState::Parked)));
    drop(on);
    db.run("delete from queue.done").await;
    forget(&db).await;
    db.finish().await;
}

#[tokio::test]
async fn an_unreported_end_is_found_and_children_are_deleted_with_their_parents() {
    let (db, mut on) = db_by_hand().await;
    let ((ours, token), (gone, other)) = (leased(&db).await, leased(&db).await);
    let child = spawn(&mut on, (token, ours.id()), "a").await.unwrap();
    spawn(&mut on, (token, ours.id()), "b").await.unwrap();
    spawn(&mut on, (other, gone.id()), "a").await.unwrap();
    park(&db, ours.id(), "a").await;
    die(&mut on, child).await;
    on.run(&format!("delete from queue.job where id = {0}", gone.id())).await;
    let mut holding = db.connect().await;
    let mut held = holding.begin().await.unwrap();
    held.run(&format!("select from queue.child where parent = {0} for update", gone.id())).await;
    let last: Option<JobId> = sqlx::query_scalar(PRUNE).bind(JobId(0)).bind(100).fetch_one(&mut *on).await.unwrap();
    assert_eq!((last, db.count("select count(*) from queue.child").await), (Some(gone.id()), 3), "it does not wait");
    assert_eq!(consume_end_hints(&mut on).await.unwrap(), 1);
    assert_eq!(state(&mut on, ours.id(), "a").await.as_deref(), Some("dead"));
    assert_eq!(state(&mut on, ours.id(), "b").await, None);
    assert_eq!(wake(&mut on).await, 1);
    held.rollback().await.unwrap();
    sqlx::query(PRUNE).bind(JobId(0)).bind(100).execute(&mut *on).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.child").await, 2);
    drop((on, holding));
    db.run("delete from queue.dead").await;
    forget(&db).await;
    db.finish().await;
}
