//! Tests the cost of statistics for monitors that query every few seconds, and the jobs that the statistics omit.

use chrono::{DateTime, Utc};
use queue_core::{
    Job as _, JobRef, JobState, Queue, Store,
    operate::{Backlog, Operation},
};
use queue_worker::Database;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tests::{Do, TestDb};

use super::{connect, enqueue, ok};

async fn run(connection: &mut PgConnection, statement: &str) {
    connection.execute(sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))).await.unwrap();
}

/// SQL that fills a lane with identical jobs.
const FILL: &str = "
  insert into queue.lane (lane, queue, job_type, priority, solo)
    select queue.lane_id('default', 'do', 100::smallint, false), 'default', 'do', 100, false from generate_series(1, 2);
  create temporary table made as select n, queue.next_id() as id from generate_series(1, 150000) n;
  insert into queue.job (id, lane, max_attempts, payload)
    select id, queue.lane_id('default', 'do', 100::smallint, false), 3, '{}' from made;
  insert into queue.ready (lane, seq, id) select queue.lane_id('default', 'do', 100::smallint, false), id, id from made;
";
/// SQL that finishes most of the jobs. The finish times lie in the future, so that they count as recent however long the test runs.
const DRAIN: &str = "
  with taken as (
    delete from queue.ready where seq in (select seq from queue.ready order by seq limit 125000) returning id, lane
  )
  insert into queue.done_many (first_id, last_id, finished_at, lane, ids)
  select min(id), max(id), now() + interval '1 h', lane, array_agg(id order by id)
  from (select id, lane, row_number() over (order by id) / 500 as batch from taken) t
  group by lane, id >> 33, batch;
";

/// SQL that moves the ready jobs with the highest sequence numbers to another lane.
const OTHER: &str = "
  insert into queue.lane (lane, queue, job_type, priority, solo)
    values (queue.lane_id('other', 'do', 100::smallint, false), 'other', 'do', 100, false);
  update queue.ready set lane = queue.lane_id('other', 'do', 100::smallint, false)
    where seq in (select seq from queue.ready order by seq desc limit 15000);
";

/// Publishes the statistics of this connection and waits until the server reports the dead entries.
async fn publish_counts(connection: &mut PgConnection) {
    run(connection, "select pg_stat_force_next_flush()").await;
    tests::eventually("the server knows of the dead entries", async || {
        let dead = "select pg_stat_get_dead_tuples('queue.ready'::regclass)";
        sqlx::query_scalar::<_, i64>(dead).fetch_one(&mut *connection).await.unwrap() > 100_000
    })
    .await;
}

/// Executes a query that calls a function. Returns the number of entries of the claim index that it reads, including dead entries.
async fn read_by(connection: &mut PgConnection, function: &str) -> i64 {
    // Returns the number of index entries that the current transaction has read.
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
#[ignore = "deep"]
async fn statistics_of_a_queue_cost_no_more_for_a_million_jobs_and_a_held_snapshot() {
    let db = TestDb::new().await;
    let (mut connection, mut other) = (connect(&db).await, connect(&db).await);
    run(&mut connection, FILL).await;
    run(&mut other, "begin isolation level repeatable read; select from queue.ready limit 1").await;
    run(&mut connection, DRAIN).await;
    publish_counts(&mut connection).await;
    for (function, most) in [
        ("select * from queue.backlog('default', 1000)", 1010),
        ("select * from queue.oldest()", 510),
        ("select queue.depth('default', 1000)", 1010),
        ("select * from queue.counts()", 20_010),
    ] {
        let read = read_by(&mut connection, function).await;
        assert!((1..=most).contains(&read), "{function} reads {read} entries");
    }
    let counts = Queue::new(&db.pool).counts().await.unwrap();
    let counts: Vec<_> = counts.iter().map(|count| (count.state, count.jobs, count.partial)).collect();
    assert_eq!(counts, [(JobState::Ready, 20_000, true), (JobState::Completed, 125_000, false)]);
    let exactly = Queue::new(&db.pool).counts_exactly().await.unwrap();
    assert_eq!((exactly[0].jobs, exactly[0].partial, exactly[1].jobs, exactly[1].partial), (25_000, false, 125_000, false));
    let Backlog { ready, partial, since, waited, .. } = Queue::new(&db.pool).backlog("default", 1000).await.unwrap();
    assert_eq!((ready, partial), (1000, true));
    let oldest = Queue::new(&db.pool).oldest().await.unwrap();
    assert_eq!((since.unwrap().timestamp_millis(), oldest[0].since), (db.count(FIRST).await, since));
    assert!(waited <= oldest[0].waited && oldest[0].partial);
    what_is_cancelled_or_finished_long_ago_counts_nothing(&mut connection, since.unwrap()).await;
    what_is_in_front_is_not_denied(&db, &mut connection).await;
    few_that_are_left_are_found_by_the_heap(&db, &mut connection).await;
    run(&mut other, "rollback").await;
    db.finish().await;
}

#[tokio::test]
async fn a_backlog_of_many_lanes_is_counted_up_to_the_bound_and_many_queues_completely_on_request() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    run(
        &mut connection,
        "select queue.enqueue('do', '{}', jsonb_build_object('queue', 'wide', 'priority', p))
           from generate_series(1, 40) p, generate_series(1, 50);
         select queue.enqueue('do', '{}', jsonb_build_object('queue', 'q' || q)) from generate_series(1, 12) q, generate_series(1, 3)",
    )
    .await;
    let read = read_by(&mut connection, "select * from queue.backlog('wide', 50)").await;
    assert!((50..=300).contains(&read), "{read} entries of 2,000 for 50");
    let depths = "select array_agg(d.waiting), bool_or(d.partial)
        from queue.depths(array(select 'q' || q from generate_series(1, 12) q), null) d";
    let (jobs, partial): (Vec<i64>, bool) = sqlx::query_as(depths).fetch_one(&db.pool).await.unwrap();
    assert_eq!((jobs, partial), (vec![3; 12], false));
    db.finish().await;
}

/// Query for the enqueue time of the first ready job in milliseconds.
const FIRST: &str = "select (extract(epoch from queue.enqueued_at(min(seq))) * 1000)::bigint from queue.ready";

async fn what_is_cancelled_or_finished_long_ago_counts_nothing(connection: &mut PgConnection, since: DateTime<Utc>) {
    // A cancelled job, or a job that finished some time ago, does not prove that all earlier jobs have finished.
    for how in [
        "insert into queue.done (id, finished_at, ran_ms, attempts, cancelled) values ($1, now(), 0, 0, true)",
        "insert into queue.done (id, finished_at, ran_ms, attempts) values ($1, now() - interval '11 s', 0, 2)",
        "insert into queue.done_many (first_id, last_id, finished_at, lane, ids)
           select $1, $1, now() - interval '11 s', j.lane, array[$1] from queue.job j where j.id = $1",
    ] {
        let mut tx = connection.begin().await.unwrap();
        let last: i64 = sqlx::query_scalar("select max(id) from queue.ready").fetch_one(&mut *tx).await.unwrap();
        sqlx::query("delete from queue.ready where id = $1").bind(last).execute(&mut *tx).await.unwrap();
        sqlx::query(how).bind(last).execute(&mut *tx).await.unwrap();
        let seen = Queue::on(&mut tx).backlog("default", 100_000).await.unwrap();
        assert_eq!((seen.ready, seen.since), (24_999, Some(since)), "{how}");
        assert_eq!(Queue::on(&mut tx).oldest().await.unwrap()[0].since, Some(since));
        tx.rollback().await.unwrap();
    }
}

async fn what_is_in_front_is_not_denied(db: &TestDb, connection: &mut PgConnection) {
    // The statistics omit a job that was released to the front of its lane, and are therefore marked as partial. A full count finds the
    // job.
    run(&mut *connection, "insert into queue.ready (lane, seq, id) select j.lane, j.id, j.id from queue.job j order by j.id limit 1").await;
    let (most, store) = (100_000, Store::default());
    let backlog = Queue::new(&db.pool).store(store).backlog("default", most).await.unwrap();
    let depth: (i64, bool) = sqlx::query_as("select * from queue.depth('default', 100000)").fetch_one(&db.pool).await.unwrap();
    assert_eq!(((backlog.ready, backlog.partial), depth), ((25_000, true), (25_000, true)));
    let all: (i64, bool) = sqlx::query_as("select ready, partial from queue.backlog('default', null)").fetch_one(&db.pool).await.unwrap();
    let depth: (i64, bool) = sqlx::query_as("select * from queue.depth('default', null)").fetch_one(&db.pool).await.unwrap();
    assert_eq!((all, depth), ((25_001, false), (25_001, false)));
    let mut tx = connection.begin().await.unwrap();
    run(&mut tx, OTHER).await;
    let counts: Vec<(i64, bool)> =
        sqlx::query_as("select jobs, partial from queue.counts() where state = 'ready' order by queue").fetch_all(&mut *tx).await.unwrap();
    assert_eq!(counts, [(10_001, true), (15_000, false)], "each within its share, the one with perhaps more in front");
    tx.rollback().await.unwrap();
    // The queue `default` is listed even if its only ready job precedes the place from which the statistics count.
    let mut tx = connection.begin().await.unwrap();
    run(&mut tx, OTHER).await;
    let all =
        "update queue.ready set lane = queue.lane_id('other', 'do', 100::smallint, false) where id > (select min(id) from queue.ready)";
    run(&mut tx, all).await;
    let oldest = Queue::on(&mut tx).store(store).oldest().await.unwrap();
    let default = oldest.iter().find(|oldest| oldest.queue == "default").unwrap();
    assert_eq!((default.since, default.waited, default.partial), (None, None, true));
    let unserved = Queue::on(&mut tx).store(store).unserved().await.unwrap();
    assert_eq!((&*unserved[0].queue, unserved[0].jobs, unserved[0].partial), ("default", 0, true));
    tx.rollback().await.unwrap();
    run(&mut *connection, "delete from queue.ready where id = (select min(id) from queue.ready)").await;
}

async fn few_that_are_left_are_found_by_the_heap(db: &TestDb, connection: &mut PgConnection) {
    let store = Store::default();
    // The remaining jobs of an unserved lane are counted without the index, because reading the index would read every dead entry.
    run(&mut *connection, "delete from queue.job where id in (select id from queue.ready order by id limit 24990)").await;
    run(&mut *connection, "delete from queue.ready where id in (select id from queue.ready order by id limit 24990)").await;
    assert_eq!(read_by(&mut *connection, "select * from queue.counts()").await, 0);
    let counts = Queue::new(&db.pool).store(store).counts().await.unwrap();
    assert_eq!((counts[0].state, counts[0].jobs, counts[0].partial), (JobState::Ready, 10, false));
    // Only a few ready jobs are left, so the floors are exact. The other functions begin at the first job and omit no job.
    for function in ["queue.backlog('default')", "queue.oldest()", "queue.depth('default')", "queue.depths(array['default'])"] {
        let read = read_by(&mut *connection, &format!("select * from {function}")).await;
        assert!((1..=20).contains(&read), "{function} reads {read} entries");
    }
    let read =
        read_by(&mut *connection, &include_str!("../../../queue-core/sql/unserved.sql").replace("$1", "10000").replace("$2", "100")).await;
    assert!((1..=20).contains(&read), "unserved reads {read} entries");
    let Backlog { ready, partial, since, .. } = Queue::new(&db.pool).store(store).backlog("default", 1000).await.unwrap();
    assert_eq!((ready, partial), (10, false));
    let oldest = Queue::new(&db.pool).store(store).oldest().await.unwrap();
    assert_eq!((since.unwrap().timestamp_millis(), oldest[0].since, oldest[0].partial), (db.count(FIRST).await, since, false));
    let unserved = Queue::new(&db.pool).store(store).unserved().await.unwrap();
    assert_eq!((unserved[0].jobs, unserved[0].partial), (10, false));
}

#[tokio::test]
async fn without_workers_every_ready_job_is_counted() {
    let db = TestDb::new().await;
    let (mut connection, store) = (connect(&db).await, Store::default());
    let none = Queue::on(&mut connection).store(store).backlog("default", 10).await.unwrap();
    assert_eq!((none.ready, none.partial, none.since, none.waited), (0, false, None, None));
    enqueue(&db, ok()).await;
    let first = Queue::on(&mut connection).store(store).backlog("default", 10).await.unwrap().since;
    for _ in 0..2 {
        enqueue(&db, ok()).await;
    }
    // A job of another queue is not counted.
    Do { act: ok() }.enqueue(&db.pool).queue("mail").await.unwrap();
    let seen = Queue::on(&mut connection).store(store).backlog("default", 2).await.unwrap();
    assert_eq!((seen.ready, seen.partial, seen.since), (2, true, first));
    let seen = Queue::on(&mut connection).store(store).backlog("default", 3).await.unwrap();
    assert_eq!((seen.ready, seen.partial), (3, false), "as many as are counted are not more");
    db.finish().await;
}

#[tokio::test]
async fn statistics_are_planned_once_per_connection() {
    let db = TestDb::new().await;
    let (mut connection, store) = (connect(&db).await, Store::default());
    let job = enqueue(&db, ok()).await;
    for _ in 0..2 {
        JobRef::from_id(job).find(&mut connection).await.unwrap();
        Queue::on(&mut connection).store(store).queues().await.unwrap();
        Queue::on(&mut connection).store(store).jobs().apply(Operation::Cancel).count().await.unwrap();
        Queue::on(&mut connection).store(store).unserved().await.unwrap();
        Queue::on(&mut connection).store(store).counts().await.unwrap();
        Queue::on(&mut connection).store(store).counts_exactly().await.unwrap();
        Queue::on(&mut connection).store(store).oldest().await.unwrap();
        Queue::on(&mut connection).store(store).workers().await.unwrap();
        Queue::on(&mut connection).store(store).capacities().await.unwrap();
        Queue::on(&mut connection).store(store).backlog("default", 10).await.unwrap();
    }
    let functions = ["find", "counts", "oldest", "workers", "capacities", "backlog"].map(|function| format!("from queue.{function}("));
    let others = ["union\nselect c.queue", "queue.id_at(", "pg_catalog.unnest(c.lanes)"].map(str::to_owned);
    for part in functions.iter().chain(&others) {
        let named: i64 = sqlx::query_scalar("select count(*) from pg_prepared_statements where strpos(statement, $1) > 0")
            .bind(part)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(named, 1, "{part}");
    }
    db.finish().await;
}

/// Functions that read an index of a million jobs set their planner options themselves. A plan that was cached with other options while a
/// day partition was empty would read the whole index.
#[tokio::test]
async fn functions_that_read_jobs_plan_themselves_regardless_of_the_callers_settings() {
    let db = TestDb::new().await;
    let themselves = "select count(*) from pg_proc p join pg_language l on l.oid = p.prolang
      where p.pronamespace = 'queue'::regnamespace and p.proname in ('find', 'lane_floors', 'oldest', 'backlog', 'depths')
        and l.lanname = 'plpgsql' and '{enable_seqscan=off,plan_cache_mode=force_generic_plan,jit=off}' <@ p.proconfig";
    assert_eq!(db.count(themselves).await, 5);
    // These functions are planned per call, so that each call opens only the day partitions that it needs.
    let for_a_call = "select count(*) from pg_proc p where p.pronamespace = 'queue'::regnamespace
      and p.proname in ('counts', 'newest_ready', 'list_page') and '{plan_cache_mode=force_custom_plan,jit=off}' <@ p.proconfig";
    assert_eq!(db.count(for_a_call).await, 3);
    db.finish().await;
}

#[tokio::test]
async fn no_connection_and_no_statistics_function_uses_jit() {
    let db = TestDb::new().await;
    let database = Database::connect(&db.url).await.unwrap();
    let jit: String = sqlx::query_scalar("select current_setting('jit')").fetch_one(database.pool()).await.unwrap();
    assert_eq!(jit, "off", "of the pool that is shared");
    database.close().await;
    let compiled = "select count(*) from pg_proc p where p.pronamespace = 'queue'::regnamespace
      and p.proname in ('counts', 'oldest', 'backlog', 'lane_floors', 'depths', 'find') and not 'jit=off' = any (coalesce(p.proconfig, '{}'))";
    assert_eq!(db.count(compiled).await, 0);
    db.finish().await;
}

#[tokio::test]
async fn counts_are_bounded_for_any_requested_number() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    for _ in 0..2 {
        enqueue(&db, ok()).await;
    }
    for (figure, most) in [
        ("ready, partial from queue.backlog('default', N)", "2147483647"),
        ("waiting, partial from queue.depth('default', N)", "9223372036854775807"),
        (
            "waiting, partial from queue.depths(array_fill('default'::text, array[11]) || '{a,b}', N) where queue = 'default'",
            "9223372036854775807",
        ),
        ("sum(jobs)::bigint, bool_or(partial) from queue.counts(N)", "9223372036854775807"),
    ] {
        let mut ask = async |most: &str| -> sqlx::Result<(i64, bool)> {
            sqlx::query_as(AssertSqlSafe(format!("select {}", figure.replace('N', most)))).fetch_one(&mut on).await
        };
        assert_eq!(ask(most).await.unwrap(), (2, false), "{figure}");
        assert_eq!(ask("null").await.unwrap(), (2, false), "{figure}");
        assert!(ask("0").await.unwrap().1, "{figure}: there are more than none");
        let error = ask("-1").await.unwrap_err();
        assert_eq!(error.as_database_error().and_then(sqlx::error::DatabaseError::code).as_deref(), Some("22023"), "{figure}: {error}");
    }
    db.finish().await;
}
