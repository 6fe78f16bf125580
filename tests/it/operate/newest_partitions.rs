//! Tests that queries for the newest jobs open only the newest day partitions, unless these partitions lack the result.

use sqlx::{Connection as _, PgConnection};
use tests::TestDb;

use super::connect;

/// SQL that creates jobs on ten days. Each day has 150 completed jobs in `done`, 150 completed jobs in `done_many`, 20 dead jobs and five
/// scheduled jobs. One row of `done_many` spans the midnight at which yesterday began.
const FILL: &str = "
  do $$
  declare
    day     date;
    parent  text;
  begin
    for day in select (now() at time zone 'UTC')::date - n from generate_series(1, 11) n loop
      foreach parent in array array['job', 'done', 'done_many', 'failure'] loop
        execute format('create table queue.%I partition of queue.%I for values from (%s) to (%s)', parent || '_' || queue.day_name(day), parent,
          queue.id_at(day::timestamp at time zone 'UTC'), queue.id_at((day + 1)::timestamp at time zone 'UTC'));
      end loop;
    end loop;
  end
  $$;
  insert into queue.lane (lane, queue, job_type, priority, solo) select queue.lane_id('q', 't', 100, false), 'q', 't', 100, false;
  create temporary table made as
    select n, queue.id_at(now() - d * interval '1 day' - n * interval '20 ms') + n as id, queue.lane_id('q', 't', 100, false) as lane
    from generate_series(0, 9) d cross join generate_series(1, 325) n;
  insert into made
    select 200, queue.id_at(((now() at time zone 'UTC')::date - 1)::timestamp at time zone 'UTC') + n * 1048576, queue.lane_id('q', 't', 100, false)
    from generate_series(-3, 3) n;
  insert into queue.job (id, lane, max_attempts, payload) select id, lane, 3, '{\"a\": 1}' from made;
  insert into queue.done (id, finished_at, ran_ms, attempts) select id, now(), 1, 2 from made where n <= 150;
  insert into queue.done_many (first_id, last_id, finished_at, lane, ids)
    select min(id), max(id), now(), lane, array_agg(id order by id) from made where n between 151 and 300 group by lane, id >> 33, n;
  insert into queue.dead (id, died_at, lane, attempts, crashes, error) select id, now(), lane, 3, 0, 'an error' from made where n between 301 and 320;
  insert into queue.scheduled (run_at, id, lane) select now() + interval '1 hour', id, lane from made where n > 320;
  analyze";

/// Runs the statement. Returns the opened day partitions that are older than `days` days, and the result as text.
async fn opened(on: &mut PgConnection, ask: &str, days: i32) -> (Vec<String>, Option<String>) {
    const OPEN: &str = "
      select coalesce(array_agg(distinct c.relname::text), '{}')
      from pg_locks l
      join pg_class c on c.oid = l.relation
      where l.pid = pg_backend_pid() and c.relname ~ '^(job|done|done_many|failure)_[0-9]{8}$'
        and right(c.relname, 8)::date < (now() at time zone 'UTC')::date - $1";
    let mut tx = on.begin().await.unwrap();
    let value = sqlx::query_scalar(sqlx::AssertSqlSafe(ask)).persistent(false).fetch_one(&mut *tx).await.unwrap();
    let opened = sqlx::query_scalar(OPEN).bind(days).fetch_one(&mut *tx).await.unwrap();
    tx.rollback().await.unwrap();
    (opened, value)
}

#[tokio::test]
async fn queries_answered_by_the_newest_days_open_no_other() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    sqlx::raw_sql(FILL).execute(&mut on).await.unwrap();
    let ids = |of: &str| format!("select string_agg(l.id || ' ' || l.state, ',' order by l.id desc) from {of} l");
    let there = |means: &str, most: u32| ids(&format!("(select id, state from queue.jobs where {means} order by id desc limit {most})"));
    let middle = "queue.id_at(now() - interval '5 days')";
    for (arguments, means, days) in [
        (String::new(), "true", Some(1)),
        ("in_state => 'dead', most => 30, ".to_owned(), "state = 'dead'", Some(1)),
        ("in_state => 'completed', looked => 200, ".to_owned(), "state = 'completed'", Some(1)),
        (format!("before => {middle}, "), "id < queue.id_at(now() - interval '5 days')", Some(6)),
        ("in_state => 'scheduled', ".to_owned(), "state = 'scheduled'", None),
        ("most => 1000, ".to_owned(), "true", None),
        (format!("before => {middle}, most => 900, "), "id < queue.id_at(now() - interval '5 days')", None),
    ] {
        let most = if arguments.contains("900") {
            900
        } else if arguments.contains("1000") {
            1000
        } else if arguments.contains("30") {
            30
        } else {
            50
        };
        let (expected, list) = (there(means, most), format!("queue.reader_list({arguments}in_queue => 'q')"));
        let expected = opened(&mut on, &expected, 0).await.1;
        let (others, found) = opened(&mut on, &ids(&list), days.unwrap_or(1)).await;
        assert!(found == expected && found.is_some(), "{list}: {found:?} instead of {expected:?}");
        assert_eq!(others.is_empty(), days.is_some(), "{list} opens {others:?}");
        let (_, whole) = opened(&mut on, &ids(&list.replace("reader_list", "list").replace("in_", "")), 1).await;
        assert_eq!(whole, expected, "{list}, with payloads");
    }
    let payloads = "select count(payload)::text from queue.list(state => 'dead', payload => true, most => 100)";
    assert_eq!(opened(&mut on, payloads, 1).await.1.as_deref(), Some("100"));
    for (counts, is_enough) in [("queue.counts(400, 10)", true), ("queue.counts()", false), ("queue.counts(null)", false)] {
        let (others, _) = opened(&mut on, &format!("select count(*)::text from {counts}"), 1).await;
        assert_eq!(others.is_empty(), is_enough, "{counts} opens {others:?}");
    }
    db.finish().await;
}

#[tokio::test]
async fn the_longest_waiting_jobs_are_found_among_thousands_of_lanes() {
    const FILL: &str = "
      insert into queue.lane (lane, queue, job_type, priority, solo)
        select distinct queue.lane_id('q' || n % 2500, 't' || n % 3, 100, false), 'q' || n % 2500, 't' || n % 3, 100, false from generate_series(1, 4000) n;
      insert into queue.ready (lane, seq, id)
        select l.lane, s.id, s.id
        from (select l.*, row_number() over (order by l.lane) as n from queue.lane l) l
        cross join lateral (select queue.id_at(now() - interval '1 hour' + (l.n * 7919 % 4001 + i * 300) * interval '100 ms') + l.n as id
          from generate_series(0, 3) i) s
        where l.n % 5 > 0;
      insert into queue.job (id, lane, max_attempts, payload) select r.id, r.lane, 3, '{}' from queue.ready r;
      analyze";
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    sqlx::raw_sql(FILL).execute(&mut on).await.unwrap();
    let query = |of: &str| format!("select string_agg(o.queue || ' ' || o.since, ',' order by o.since, o.queue) from {of} o");
    for most in [1, 50, 1000, 2000] {
        let (_, some) = opened(&mut on, &query(&format!("queue.oldest({most})")), 1).await;
        let (_, expected) = opened(&mut on, &query(&format!("(select * from queue.oldest() order by since, queue limit {most})")), 1).await;
        assert!(some == expected && some.is_some(), "{most}: {some:?} instead of {expected:?}");
    }
    db.finish().await;
}
