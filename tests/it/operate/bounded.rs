//! Tests that operators' queries read no more rows if the store is twice as large.
//!
//! Counts table rows and index entries. A row counts as one, regardless of the length of its arrays. Sorts, computations, and the jobs
//! that `unnest` expands from a row of `lease` or `done_many` are not counted. The arrays in these tables are therefore equally long in the
//! small and in the large store. A row contains the jobs of one claim or one settle, so the number of counted rows bounds the number of
//! jobs that a query reads.

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tests::TestDb;

/// SQL that fills a store with more rows of every kind than a query scans, in 200 lanes. The queue `few` and the type `rare` have no jobs.
/// Leases contain jobs of several lanes. The ids of all jobs lie in one span of eight seconds, so that the end of a scan does not depend
/// on the time of the test.
const FILL: &str = "
  insert into queue.lane (lane, queue, job_type, priority, solo)
  select queue.lane_id('q' || n, 't' || n % 10, 100, false), 'q' || n, 't' || n % 10, 100, false from generate_series(1, 200) n
  where not exists (select from queue.lane l where l.queue = 'q' || n);
  create temporary table made as
  select n, b.base - BACK + n * 30000::bigint as id, queue.lane_id('q' || 1 + n % 200, 't' || (1 + n % 200) % 10, 100, false) as lane
  from (select queue.next_id() >> 33 << 33 as base offset 0) b cross join generate_series(1, 260000) n;
  insert into queue.job (id, lane, max_attempts, payload, meta) select id, lane, 3, '{}', '{\"a\": 1}' from made;
  insert into queue.scheduled (run_at, id, lane) select now() + n * interval '1 s', id, lane from made where n <= 60000;
  insert into queue.dead (id, died_at, lane, attempts, crashes, error)
    select id, now(), lane, 3, 0, 'an error' from made where n between 60001 and 90000;
  insert into queue.done (id, finished_at, ran_ms, attempts, cancelled)
    select id, now(), 1, 2, n % 2 = 0 from made where n between 90001 and 100000;
  insert into queue.done_many (first_id, last_id, finished_at, lane, ids)
    select id, id, now(), lane, array[id] from made where n between 100001 and 110000;
  insert into queue.lease (token, worker, ids, attempts, crashes)
    select gen_random_uuid(), gen_random_uuid(), array_agg(id), array_agg(1::smallint), array_agg(0::smallint)
    from made where n between 110001 and 120000 group by n / 100;
  insert into queue.ready (lane, seq, id) select lane, id, id from made where n > 120000;
  drop table made;
  vacuum analyze";

const STATES: [&str; 9] = ["null", "'ready'", "'scheduled'", "'running'", "'blocked'", "'completed'", "'cancelled'", "'expired'", "'dead'"];

const FILTERS: [&str; 9] = [
    "in_queue => null",
    "in_queue => 'few'",
    "in_queue => 'q7'",
    "job_types => '{rare}'",
    "job_types => '{t3}'",
    "in_meta => '{\"b\": 1}'",
    "in_error => 'nowhere'",
    "since => '0'",
    "older_than => '1 day'",
];

const FIGURES: [&str; 7] = [
    "queue.counts()",
    "queue.counts(5000, 50)",
    "queue.oldest(50)",
    "queue.backlog('q7', 500)",
    "queue.depth('q7', 500)",
    "queue.depths('{q1,q2,q3}', 500)",
    "queue.capacities(500)",
];

/// Returns the number of the store's rows and index entries that a query reads.
async fn read_by(on: &mut PgConnection, query: &str) -> i64 {
    const READ: &str = "
      select sum(pg_stat_get_xact_tuples_returned(c.oid))::bigint
      from pg_class c
      where c.relnamespace = 'queue'::regnamespace and c.relkind in ('r', 'i')";
    let mut session = on.begin().await.unwrap();
    let before: i64 = sqlx::query_scalar(READ).fetch_one(&mut *session).await.unwrap();
    sqlx::query(AssertSqlSafe(format!("select count(*) from {query}"))).persistent(false).execute(&mut *session).await.unwrap();
    let after: i64 = sqlx::query_scalar(READ).fetch_one(&mut *session).await.unwrap();
    session.rollback().await.unwrap();
    after - before
}

#[tokio::test]
#[ignore = "deep"]
async fn the_reads_of_lists_and_statistics_do_not_grow_with_the_store() {
    let db = TestDb::new().await;
    let lists = STATES.into_iter().flat_map(|state| FILTERS.map(|filter| format!("queue.reader_list(in_state => {state}, {filter})")));
    let queries: Vec<String> = lists.chain(FIGURES.map(str::to_owned)).collect();
    let mut read = Vec::new();
    // The history of one span of eight seconds is read as a whole, so the second half of the jobs is in another span.
    for back in [9_i64 << 33, 1 << 33] {
        let mut on = PgConnection::connect(&db.url).await.unwrap();
        for statement in FILL.split(';') {
            on.execute(AssertSqlSafe(statement.replace("BACK", &back.to_string()))).await.unwrap();
        }
        let mut of_size = Vec::new();
        for query in &queries {
            of_size.push(read_by(&mut on, query).await);
        }
        read.push(of_size);
    }
    let grown: Vec<String> = queries
        .iter()
        .zip(read[0].iter().zip(&read[1]))
        .filter(|(_, (small, large))| **large > **small * 11 / 10 + 500 || **large > 200_000)
        .map(|(query, (small, large))| format!("{query} reads {small} of the store, and {large} of one that is twice as large"))
        .collect();
    assert!(read[0].iter().all(|read| *read >= 0) && read[0].iter().sum::<i64>() > 1_000_000, "reads are counted");
    assert!(grown.is_empty(), "{}", grown.join("\n"));
    db.finish().await;
}
