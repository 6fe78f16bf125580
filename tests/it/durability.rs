//! Tests which commits wait for their WAL flush. Only jobs with relaxed durability may be lost, and their `synchronous_commit` setting must
//! not affect other commits.

use std::{
    future::{Future, IntoFuture as _, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

use queue_core::{Batch, Error, Job as _, JobState, job, options::Durability};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, Executor as _, PgConnection, PgPool, postgres::PgPoolOptions};
use tests::{
    Act, Do, TestDb,
    protocol::{claim, register, silence},
};

/// Send-only job type with relaxed durability.
#[job(send_only, durability = relaxed)]
#[derive(Serialize, Deserialize, Clone)]
struct Light;

fn quick() -> Do {
    Do { act: Act::Ok(String::new()) }
}

/// SQL that sets `synchronous_commit = on` for the database, and adds a trigger that records the setting and the application name for every
/// job that becomes ready. The trigger is deferred, so it fires just before the commit.
const NOTE: &str = "
create table seen (n serial, setting text, who text);
create function note() returns trigger language plpgsql as $$ begin
  insert into seen (setting, who) values (current_setting('synchronous_commit'), current_setting('application_name'));
  return null;
end $$;
create constraint trigger note after insert on queue.ready deferrable initially deferred for each row execute function note();
do $$ begin execute format('alter database %I set synchronous_commit = on', current_database()); end $$";

/// Creates a database with the setting and the trigger of [`NOTE`].
async fn with_commit_notes() -> TestDb {
    let db = TestDb::new().await;
    connect(&db).await.execute(sqlx::raw_sql(NOTE)).await.unwrap();
    db
}

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

async fn single(db: &TestDb) -> PgPool {
    PgPoolOptions::new().max_connections(1).test_before_acquire(false).connect(&db.url).await.unwrap()
}

/// Returns the distinct `synchronous_commit` settings recorded since the last call.
async fn commit_settings(db: &TestDb) -> Vec<String> {
    let query = "with gone as (delete from seen returning setting) select distinct setting from gone order by 1";
    sqlx::query_scalar(query).fetch_all(&db.pool).await.unwrap()
}

/// Returns the connection's `synchronous_commit` setting, and whether the connection is still in a transaction.
async fn setting(connection: &mut PgConnection) -> String {
    let query =
        "select current_setting('synchronous_commit') || case when now() <> statement_timestamp() then ', in a transaction' else '' end";
    let row = sqlx::Executor::fetch_one(connection, sqlx::raw_sql(query)).await.unwrap();
    sqlx::Row::get(&row, 0)
}

async fn setting_of(pool: &PgPool) -> String {
    setting(&mut pool.acquire().await.unwrap()).await
}

const MANY: usize = 8192 + 10;

#[tokio::test]
async fn a_relaxed_enqueue_does_not_wait_for_the_disk_and_the_next_user_of_the_connection_does() {
    let db = with_commit_notes().await;
    let pool = single(&db).await;
    let mut own = connect(&db).await;
    let mut batch = Batch::new().durability(Durability::Relaxed);
    batch.add(quick()).unwrap();
    for round in 0..5 {
        match round {
            0 => drop(quick().enqueue(&pool).durability(Durability::Relaxed).await.unwrap()),
            1 => drop(Light.enqueue(&pool).await.unwrap()),
            2 => drop(Do::enqueue_all([quick(), quick()], &pool).durability(Durability::Relaxed).await.unwrap()),
            3 => drop(Light::enqueue_all(vec![Light; MANY], &pool).await.unwrap()),
            _ => drop(batch.enqueue(&pool).await.unwrap()),
        }
        assert_eq!(
            (commit_settings(&db).await, setting_of(&pool).await),
            (vec!["off".to_owned()], "on".to_owned()),
            "on a pool, round {round}"
        );
        quick().enqueue(&pool).await.unwrap();
        assert_eq!(commit_settings(&db).await, ["on"], "the next");
        match round {
            0 => drop(quick().enqueue(&mut own).durability(Durability::Relaxed).await.unwrap()),
            1 => drop(Light.enqueue(&mut own).await.unwrap()),
            2 => drop(Do::enqueue_all([quick(), quick()], &mut own).durability(Durability::Relaxed).await.unwrap()),
            3 => drop(Light::enqueue_all(vec![Light; MANY], &mut own).await.unwrap()),
            _ => drop(batch.enqueue(&mut own).await.unwrap()),
        }
        assert_eq!(
            (commit_settings(&db).await, setting(&mut own).await),
            (vec!["off".to_owned()], "on".to_owned()),
            "on a connection, round {round}"
        );
    }
    Light.enqueue(&pool).durability(Durability::Full).await.unwrap();
    Light::enqueue_all([Light], &pool).durability(Durability::Full).await.unwrap();
    assert_eq!(commit_settings(&db).await, ["on"], "an option of the job overrides that of its type");
    db.finish().await;
}

#[tokio::test]
async fn a_batch_waits_for_the_disk_if_one_of_its_types_does() {
    let db = with_commit_notes().await;
    let mut batch = Batch::new();
    batch.add(Light).unwrap();
    batch.enqueue(&db.pool).await.unwrap();
    assert_eq!(commit_settings(&db).await, ["off"]);
    batch.add(quick()).unwrap();
    batch.enqueue(&db.pool).await.unwrap();
    assert_eq!(commit_settings(&db).await, ["on"]);
    db.finish().await;
}

/// Enqueues jobs in the caller's transaction: a single job, several jobs and a batch. Checks that the enqueues leave the transaction's
/// `synchronous_commit` setting at `expected`.
async fn enqueue_all_ways(tx: &mut PgConnection, expected: &str) {
    if expected == "off" {
        tx.execute("set local synchronous_commit = off").await.unwrap();
    }
    let mut batch = Batch::new().durability(Durability::Relaxed);
    batch.add(quick()).unwrap();
    Light.enqueue(&mut *tx).await.unwrap();
    quick().enqueue(&mut *tx).durability(Durability::Relaxed).await.unwrap();
    Light::enqueue_all([Light, Light], &mut *tx).await.unwrap();
    batch.enqueue(&mut *tx).await.unwrap();
    assert_eq!(sqlx::query_scalar::<_, String>("show synchronous_commit").fetch_one(tx).await.unwrap(), expected);
}

#[tokio::test]
async fn a_relaxed_enqueue_leaves_the_durability_of_the_callers_transaction_alone() {
    let db = with_commit_notes().await;
    let mut own = connect(&db).await;
    for (begin, commit) in [("begin", "commit"), ("start transaction", "end")] {
        for expected in ["on", "off"] {
            own.execute(begin).await.unwrap();
            enqueue_all_ways(&mut own, expected).await;
            own.execute(commit).await.unwrap();
            assert_eq!((commit_settings(&db).await, setting(&mut own).await), (vec![expected.to_owned()], "on".to_owned()), "begun in SQL");

            let mut tx = own.begin().await.unwrap();
            enqueue_all_ways(&mut tx, expected).await;
            tx.commit().await.unwrap();
            assert_eq!(
                (commit_settings(&db).await, setting(&mut own).await),
                (vec![expected.to_owned()], "on".to_owned()),
                "begun by the driver"
            );
        }
    }
    db.finish().await;
}

/// Polls the future at most `polls` times and then drops it. Returns whether the future completed.
async fn dropped_after<T>(polls: usize, future: impl Future<Output = T>) -> bool {
    let mut future = pin!(future);
    for _ in 0..polls {
        if poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    false
}

#[tokio::test]
async fn a_dropped_relaxed_enqueue_leaves_no_relaxed_setting() {
    let db = with_commit_notes().await;
    let pool = single(&db).await;
    let mut own = connect(&db).await;
    let mut dropped = 0;
    for polls in (1..12).chain([16, 25, 40, 60]) {
        for many in [false, true] {
            let ended = if many {
                [
                    dropped_after(polls, Light::enqueue_all(vec![Light; MANY], &pool).into_future()).await,
                    dropped_after(polls, Light::enqueue_all(vec![Light; MANY], &mut own).into_future()).await,
                ]
            } else {
                [
                    dropped_after(polls, Light.enqueue(&pool).into_future()).await,
                    dropped_after(polls, Light.enqueue(&mut own).into_future()).await,
                ]
            };
            dropped += ended.iter().filter(|ended| !**ended).count();
            assert_eq!((setting_of(&pool).await, setting(&mut own).await), ("on".to_owned(), "on".to_owned()), "after {polls} polls");
            drop(commit_settings(&db).await);
            quick().enqueue(&pool).await.unwrap();
            quick().enqueue(&mut own).await.unwrap();
            assert_eq!(commit_settings(&db).await, ["on"]);
        }
    }
    assert!(dropped > 20, "only {dropped} were dropped before they were done");
    db.finish().await;
}

#[tokio::test]
async fn a_failed_relaxed_enqueue_leaves_no_relaxed_setting() {
    let db = with_commit_notes().await;
    let pool = single(&db).await;
    let mut own = connect(&db).await;
    let limit = "create or replace function queue.payload_limit() returns integer language sql immutable parallel safe return 1";
    connect(&db).await.execute(limit).await.unwrap();
    for _ in 0..3 {
        for error in [Light.enqueue(&pool).await.unwrap_err(), Light.enqueue(&mut own).await.unwrap_err()] {
            assert!(matches!(error, Error::Database(_)), "{error}");
        }
        assert!(Light::enqueue_all([Light], &pool).await.is_err() && Light::enqueue_all([Light], &mut own).await.is_err());
        assert_eq!((setting_of(&pool).await, setting(&mut own).await), ("on".to_owned(), "on".to_owned()));
    }
    assert_eq!(commit_settings(&db).await, [] as [String; 0]);
    db.finish().await;
}

/// SQL that sets `synchronous_commit = on` for the database, and adds deferred triggers to tables that a worker writes. Each trigger
/// records the setting and the application name of the committing transaction.
const NOTE_WORKER: &str = "
create table seen (who text, setting text, unique (who, setting));
create function note() returns trigger language plpgsql as $$ begin
  insert into public.seen (setting, who) values (current_setting('synchronous_commit'), current_setting('application_name')) on conflict do nothing;
  return null;
end $$;
create constraint trigger note after insert on queue.done deferrable initially deferred for each row execute function note();
create constraint trigger note after insert on queue.lease deferrable initially deferred for each row execute function note();
create constraint trigger note after insert or update on queue.worker deferrable initially deferred for each row execute function note();
create constraint trigger note after insert on queue.failure deferrable initially deferred for each row execute function note();
do $$ begin execute format('alter database %I set synchronous_commit = on', current_database()); end $$";

#[tokio::test]
async fn with_relaxed_durability_verdicts_do_not_wait_for_the_disk_and_heartbeats_and_recoveries_do() {
    for (durability, settles) in [(Durability::Relaxed, "off"), (Durability::Full, "on")] {
        let db = TestDb::new().await;
        let mut own = connect(&db).await;
        own.execute(sqlx::raw_sql(NOTE_WORKER)).await.unwrap();
        let lost = quick().enqueue(&mut own).await.unwrap().id();
        let ghost = register(&mut own).await.unwrap();
        assert_eq!(claim(&mut own, ghost, 1).await.unwrap().ids(), [lost]);
        silence(&mut own, ghost).await.unwrap();
        let job = quick().enqueue(&mut own).await.unwrap().id();
        own.execute("delete from seen").await.unwrap();
        db.run_while(db.worker().durability(durability), async {
            db.until(job, JobState::Completed).await;
            db.until(lost, JobState::Completed).await;
        })
        .await;
        let found: Vec<(String, String)> =
            sqlx::query_as("select who, setting from seen order by who, setting").fetch_all(&db.pool).await.unwrap();
        let expected = [("claim", "off"), ("heartbeat", "on"), ("housekeeping", "on"), ("settle", settles)];
        assert_eq!(found, expected.map(|(who, setting)| (format!("queue-worker {who}"), setting.to_owned())), "{durability:?}");
        db.finish().await;
    }
}
