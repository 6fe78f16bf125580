//! What figures cost, and what they leave out: for whoever asks for them every few seconds.

use queue_core::{
    Job as _, Store,
    operate::{self, Backlog},
};
use queue_worker::Database;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tests::{Do, TestDb};

use super::{connect, enqueue, ok};

async fn run(connection: &mut PgConnection, statement: &str) {
    connection.execute(sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))).await.unwrap();
}

/// Of these jobs, which are alike, some were worked off; how long ago depends.
const FILL: &str = "
  insert into queue.lane (lane, queue, job_type, priority, solo)
    select queue.lane_id('default', 'do', 100::smallint, false), 'default', 'do', 100, false from generate_series(1, 2);
  create temporary table made as select n, queue.next_id() as id from generate_series(1, 90000) n;
  insert into queue.job (id, lane, max_attempts, payload)
    select id, queue.lane_id('default', 'do', 100::smallint, false), 3, '{}' from made;
  insert into queue.ready (lane, seq, id) select queue.lane_id('default', 'do', 100::smallint, false), id, id from made;
";
const DRAIN: &str = "
  with taken as (
    delete from queue.ready where seq in (select seq from queue.ready order by seq limit 60000) returning id, lane
  )
  insert into queue.done_many (first_id, last_id, finished_at, lane, ids)
  select min(id), max(id), now(), lane, array_agg(id order by id)
  from (select id, lane, row_number() over (order by id) / 500 as batch from taken) t
  group by lane, id >> 33, batch;
";

/// How many entries of the index that claims go by a function reads, dead ones too.
async fn read_by(connection: &mut PgConnection, function: &str) -> i64 {
    // Counts of this session that are not yet with the others.
    async fn read(connection: &mut PgConnection) -> i64 {
        let read = "select pg_stat_get_xact_tuples_returned('queue.ready_claim'::regclass)";
        sqlx::query_scalar(read).fetch_one(connection).await.unwrap()
    }
    run(connection, "begin").await;
    let before = read(connection).await;
    run(connection, function).await;
    let after = read(connection).await;
    run(connection, "rollback").await;
    after - before
}

#[tokio::test]
async fn figures_of_a_queue_cost_no_more_for_a_million_jobs_and_a_held_snapshot() {
    let db = TestDb::new().await;
    let (mut connection, mut other) = (connect(&db).await, connect(&db).await);
    run(&mut connection, FILL).await;
    run(&mut other, "begin isolation level repeatable read; select from queue.ready limit 1").await;
    run(&mut connection, DRAIN).await;
    for (function, most) in [
        ("select * from queue.backlog('default', 1000)", 1010),
        ("select * from queue.oldest()", 510),
        ("select queue.depth('default', 1000)", 1000),
    ] {
        let read = read_by(&mut connection, function).await;
        assert!((1..=most).contains(&read), "{function} reads {read} entries");
    }
    let Backlog { ready, partial, since, waited, .. } = operate::backlog(&db.pool, Store::default(), "default", 1000).await.unwrap();
    assert_eq!((ready, partial), (1000, true));
    let oldest = operate::oldest(&db.pool, Store::default()).await.unwrap();
    let first = "select (extract(epoch from queue.enqueued_at(min(seq))) * 1000)::bigint from queue.ready";
    assert_eq!((since.unwrap().timestamp_millis(), oldest[0].since), (db.count(first).await, since.unwrap()));
    assert!(waited.unwrap() <= oldest[0].waited);
    run(&mut other, "rollback").await;
    db.finish().await;
}

#[tokio::test]
async fn where_nobody_works_every_ready_job_is_seen() {
    let db = TestDb::new().await;
    let (mut connection, store) = (connect(&db).await, Store::default());
    let none = operate::backlog(&mut connection, store, "default", 10).await.unwrap();
    assert_eq!((none.ready, none.partial, none.since, none.waited), (0, false, None, None));
    enqueue(&db, ok()).await;
    let first = operate::backlog(&mut connection, store, "default", 10).await.unwrap().since;
    for _ in 0..2 {
        enqueue(&db, ok()).await;
    }
    // Another queue's is not counted.
    Do { act: ok() }.enqueue(&db.pool).queue("mail").await.unwrap();
    let last: i64 =
        sqlx::query_scalar("select max(id) from queue.job where lane = (select min(lane) from queue.lane where queue = 'default')")
            .fetch_one(&mut connection)
            .await
            .unwrap();
    // That a job from behind is over says nothing of those before it if it was cancelled, or some time ago.
    for how in [
        "insert into queue.done (id, finished_at, ran_ms, attempts, cancelled) values ($1, now(), 0, 0, true)",
        "insert into queue.done (id, finished_at, ran_ms, attempts) values ($1, now() - interval '11 s', 0, 2)",
        "insert into queue.done_many (first_id, last_id, finished_at, lane, ids)
           select $1, $1, now() - interval '11 s', j.lane, array[$1] from queue.job j where j.id = $1",
    ] {
        let mut tx = connection.begin().await.unwrap();
        sqlx::query("delete from queue.ready where id = $1").bind(last).execute(&mut *tx).await.unwrap();
        sqlx::query(how).bind(last).execute(&mut *tx).await.unwrap();
        let seen = operate::backlog(&mut tx, store, "default", 10).await.unwrap();
        assert_eq!((seen.ready, seen.partial, seen.since), (2, false, first), "{how}");
        assert_eq!(operate::oldest(&mut tx, store).await.unwrap()[0].since, first.unwrap());
        tx.rollback().await.unwrap();
    }
    let seen = operate::backlog(&mut connection, store, "default", 3).await.unwrap();
    assert_eq!((seen.ready, seen.partial), (3, false), "as many as are counted are not more");
    db.finish().await;
}

#[tokio::test]
async fn figures_are_planned_once_a_connection() {
    let db = TestDb::new().await;
    let (mut connection, store) = (connect(&db).await, Store::default());
    for _ in 0..2 {
        operate::counts(&mut connection, store).await.unwrap();
        operate::oldest(&mut connection, store).await.unwrap();
        operate::workers(&mut connection, store).await.unwrap();
        operate::capacities(&mut connection, store).await.unwrap();
        operate::backlog(&mut connection, store, "default", 10).await.unwrap();
    }
    for function in ["counts", "oldest", "workers", "capacities", "backlog"] {
        let named: i64 = sqlx::query_scalar("select count(*) from pg_prepared_statements where statement like $1")
            .bind(format!("%from queue.{function}(%"))
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(named, 1, "{function}");
    }
    db.finish().await;
}

#[tokio::test]
async fn no_connection_compiles_its_statements_and_no_figure_is_compiled_for_others() {
    let db = TestDb::new().await;
    let database = Database::connect(&db.url).await.unwrap();
    let jit: String = sqlx::query_scalar("select current_setting('jit')").fetch_one(database.pool()).await.unwrap();
    assert_eq!(jit, "off", "of the pool that is shared");
    database.close().await;
    let compiled = "select count(*) from pg_proc p where p.pronamespace = 'queue'::regnamespace
      and p.proname in ('counts', 'oldest', 'backlog', 'passed', 'depth') and not 'jit=off' = any (coalesce(p.proconfig, '{}'))";
    assert_eq!(db.count(compiled).await, 0);
    db.finish().await;
}
