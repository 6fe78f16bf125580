//! Tests bulk enqueues with a hostile search path, in a transaction begun in SQL, and on connections whose enqueue was dropped.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    str::FromStr as _,
    task::Poll,
    time::Duration,
};

use queue_core::Job as _;
use sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, PgConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tests::TestDb;

use super::{MANY, Note, connect, jobs, notes};

/// Returns SQL for a schema whose objects shadow every name in the queue's statements. Each object fails when it is used.
fn hostile() -> String {
    const FAIL: &str = "language plpgsql as $$ begin raise exception 'hijacked'; end $$;";
    const CALLS: &str =
        "now() statement_timestamp() clock_timestamp() next_id() payload_limit() generate_series(int,int) cardinality(pg_catalog.jsonb[])";
    const ELEMENTS: &str = "bigint smallint pg_catalog.jsonb pg_catalog.text pg_catalog.timestamptz";
    let types = "create schema evil; create domain evil.jsonb as pg_catalog.text check (value = 'hijacked');
        create domain evil.text as pg_catalog.text check (value = 'hijacked'); create domain evil.timestamptz as bigint check (value = 0);";
    let operator = format!(
        "create function evil.no(pg_catalog.timestamptz, pg_catalog.timestamptz) returns boolean {FAIL}
        create operator evil.<> (leftarg = pg_catalog.timestamptz, rightarg = pg_catalog.timestamptz, function = evil.no);"
    );
    let tables = ["job", "ready", "scheduled", "lane", "idle"].map(|table| format!("create table evil.{table} (id int);"));
    let calls = CALLS.split(' ').map(|call| format!("create function evil.{call} returns pg_catalog.text {FAIL}"));
    let unnests = ELEMENTS.split(' ').map(|of| format!("create function evil.unnest({of}[]) returns setof {of} {FAIL}"));
    tables.into_iter().chain(calls).chain(unnests).fold(types.to_owned() + &operator, |all, one| all + &one)
}

#[tokio::test]
#[ignore = "deep"]
async fn a_hostile_search_path_has_no_effect() {
    let db = TestDb::new().await;
    db.pool.execute(sqlx::raw_sql(AssertSqlSafe(hostile()))).await.unwrap();
    let options = PgConnectOptions::from_str(&db.url).unwrap().options([("search_path", "evil,pg_catalog")]);
    let pool = PgPoolOptions::new().max_connections(1).connect_with(options.clone()).await.unwrap();
    let mut connection = PgConnection::connect_with(&options).await.unwrap();
    for count in [2, MANY] {
        Note::enqueue_all(notes(count), &pool).await.unwrap();
        Note::enqueue_all(notes(count), &pool).after(Duration::from_mins(1)).await.unwrap();
        Note::enqueue_all(notes(count), &mut connection).await.unwrap();
        Note::enqueue_all(notes(count), &mut connection).after(Duration::from_mins(1)).await.unwrap();
    }
    assert_eq!(jobs(&db).await, 4 * i64::from(MANY + 2));
    db.finish().await;
}

#[tokio::test]
async fn a_transaction_begun_in_sql_is_the_callers_too() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    for count in [2, MANY] {
        connection.execute("begin").await.unwrap();
        Note::enqueue_all(notes(count), &mut connection).await.unwrap();
        connection.execute("rollback").await.unwrap();
        assert_eq!(jobs(&db).await, 0);
    }
    Note::enqueue_all(notes(2), &mut connection).await.unwrap();
    assert_eq!(jobs(&db).await, 2, "outside a transaction they exist immediately");
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
#[ignore = "deep"]
async fn a_dropped_future_leaves_no_transaction_and_no_confusion_behind() {
    let db = TestDb::new().await;
    let pool = PgPoolOptions::new().max_connections(1).test_before_acquire(false).connect(&db.url).await.unwrap();
    let mut connection = connect(&db).await;
    let mut dropped = 0;
    for polls in (1..16).chain([20, 30, 45, 70, 110, 160]) {
        for count in [3, MANY] {
            db.pool.execute("truncate queue.job, queue.ready").await.unwrap();
            let own = dropped_after(polls, async { Note::enqueue_all(notes(count), &pool).await.unwrap() }).await;
            assert_eq!(
                sqlx::query_scalar::<_, i32>("select 41 + $1").bind(1).fetch_one(&pool).await.unwrap(),
                42,
                "the answer to this question"
            );
            pool.execute("create table seen ()").await.unwrap();
            db.pool.execute("drop table seen").await.unwrap();
            let bare = dropped_after(polls, async { Note::enqueue_all(notes(count), &mut connection).await.unwrap() }).await;
            connection.execute("create table seen ()").await.unwrap();
            db.pool.execute("drop table seen").await.unwrap();
            dropped += i32::from(!own) + i32::from(!bare);
            let (least, enqueued) = ((i64::from(own) + i64::from(bare)) * i64::from(count), jobs(&db).await);
            assert!(enqueued >= least && enqueued % i64::from(count) == 0, "{enqueued} of {count} after {polls} polls: all or none");
        }
    }
    assert!(dropped > 25, "only {dropped} were dropped before they were done");
    db.finish().await;
}
