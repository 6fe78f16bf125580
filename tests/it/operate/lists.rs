//! Tests lists in a large store. For every filter, the pages list each matching job exactly once, newest first.

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tests::TestDb;

use super::connect;

/// SQL that fills a store with enough ready jobs that the table is not scanned completely, and with newer jobs in every other state. Half
/// of the jobs are in one lane. Every hundredth ready job, every ready job of one small lane, and thousands of ready jobs in the large
/// lane have positions that differ from their ids.
const FILL: &str = "
  insert into queue.lane (lane, queue, job_type, priority, solo)
    select queue.lane_id('q' || n, 't' || n % 3, 100::smallint, false), 'q' || n, 't' || n % 3, 100, false from generate_series(0, 149) n;
  create temporary table made as
    select n, ((extract(epoch from now()) * 1000)::bigint - 200000 + n << 20) + n as id,
      queue.lane_id('q' || l.q, 't' || l.q % 3, 100::smallint, false) as lane,
      case when n <= 150000 then 'ready' else (array['scheduled', 'dead', 'done', 'cancelled', 'plain', 'blocked', 'ready'])[1 + n % 7] end as entry
    from generate_series(1, 159000) n
    cross join lateral (select case when n % 2 = 0 then 0 when n % 700 = 1 then 149 else 1 + n / 2 % 148 end as q) l;
  insert into queue.job (id, lane, max_attempts, payload, key, meta)
    select id, lane, 3, '{}', case when entry = 'blocked' then lane end, case when n % 40 = 0 then '{\"tag\": \"blue\"}'::jsonb end from made;
  insert into queue.ready (lane, seq, id)
    select lane, case when n % 100 = 7 or n % 700 = 1 then ((id >> 20) + 170000) << 20 | n else id end, id from made where entry = 'ready';
  insert into queue.scheduled (run_at, id, lane) select now() + interval '1 h', id, lane from made where entry = 'scheduled';
  insert into queue.blocked (key, seq, id, lane) select lane, id, id, lane from made where entry = 'blocked';
  insert into queue.dead (id, died_at, lane, attempts, crashes, error) select id, now(), lane, 3, 0, 'kind ' || n % 11 from made where entry = 'dead';
  insert into queue.done (id, finished_at, ran_ms, attempts, cancelled)
    select id, now(), 1, 2, entry = 'cancelled' from made where entry in ('done', 'cancelled');
  insert into queue.done_many (first_id, last_id, finished_at, lane, ids)
    select min(id), max(id), now(), lane, array_agg(id order by id) from made where entry = 'plain' group by lane, id >> 33;
  -- Released quarantined jobs have their id as position, in the paired lane of their lane.
  insert into queue.lane (lane, queue, job_type, priority, solo)
    select queue.lane_id('q' || n, 't' || n % 3, 100::smallint, true), 'q' || n, 't' || n % 3, 100, true from generate_series(0, 2) n;
  update queue.ready r set lane = queue.lane_id('q0', 't0', 100::smallint, true)
    where r.seq = r.id and r.lane = queue.lane_id('q0', 't0', 100::smallint, false) and (r.id & 1048575) % 5000 < 2;
  -- More jobs of a lane are moved than a scan skips.
  update queue.ready r set seq = ((r.seq >> 20) + 400000) << 20 | (r.seq & 1048575)
    where r.seq = r.id and r.lane = queue.lane_id('q0', 't0', 100::smallint, false) and (r.id & 1048575) between 90000 and 98000;
  analyze;
";

/// Filters, each with the equivalent condition on the view `queue.jobs`.
const QUERIES: [(&str, &str); 16] = [
    ("", "true"),
    ("state => 'ready'", "state = 'ready'"),
    ("state => 'ready', queue => 'q3'", "state = 'ready' and queue = 'q3'"),
    ("state => 'ready', queue => 'q0'", "state = 'ready' and queue = 'q0'"),
    ("state => 'ready', queue => 'q149'", "state = 'ready' and queue = 'q149'"),
    ("state => 'ready', meta => '{\"tag\": \"blue\"}'", "state = 'ready' and meta @> '{\"tag\": \"blue\"}'"),
    ("queue => 'q3'", "queue = 'q3'"),
    ("queue => 'none'", "false"),
    ("job_types => '{t1}'", "job_type = 't1'"),
    ("state => 'scheduled', queue => 'q0'", "state = 'scheduled' and queue = 'q0'"),
    ("state => 'dead', error => 'kind 7'", "state = 'dead' and strpos(error, 'kind 7') > 0"),
    ("state => 'dead', queue => 'q2'", "state = 'dead' and queue = 'q2'"),
    ("state => 'cancelled', queue => 'q0'", "state = 'cancelled' and queue = 'q0'"),
    ("state => 'completed', job_types => '{t0}'", "state = 'completed' and job_type = 't0'"),
    ("state => 'blocked', queue => 'q0'", "state = 'blocked' and queue = 'q0'"),
    ("meta => '{\"tag\": \"blue\"}'", "meta @> '{\"tag\": \"blue\"}'"),
];

/// Returns up to fifteen pages of a list, starting below the job `before`, and whether the list ended.
async fn pages(connection: &mut PgConnection, arguments: &str, mut before: i64, most: i32, scanned: i32) -> (Vec<i64>, bool) {
    let mut found = Vec::new();
    let comma = if arguments.is_empty() { "" } else { ", " };
    let sql = format!("select horizon, id from queue.list({arguments}{comma}before => $1, most => {most}, looked => {scanned})");
    for _ in 0..15 {
        let rows: Vec<(Option<i64>, Option<i64>)> =
            sqlx::query_as(AssertSqlSafe(sql.as_str())).bind(before).persistent(false).fetch_all(&mut *connection).await.unwrap();
        let ids: Vec<i64> = rows.iter().filter_map(|row| row.1).collect();
        assert!(ids.len() <= most as usize);
        let next = if ids.len() == most as usize { ids.last().copied() } else { rows[0].0 };
        found.extend(ids);
        let Some(next) = next else { return (found, true) };
        assert!(next < before, "{arguments}: a page continues");
        before = next;
    }
    (found, false)
}

#[tokio::test]
#[ignore = "deep"]
async fn a_list_of_a_large_store_shows_every_job_once_and_the_newest_first() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let mut tx = connection.begin().await.unwrap();
    sqlx::raw_sql(FILL).execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    let large: bool =
        sqlx::query_scalar("select pg_relation_size('queue.ready'::regclass) > 8388608").fetch_one(&mut connection).await.unwrap();
    assert!(large, "it is not read whole");
    let seen = "create temporary table seen as select id, state, queue, job_type, error, meta from queue.jobs";
    sqlx::raw_sql(seen).execute(&mut connection).await.unwrap();
    for (arguments, means) in QUERIES {
        let sql = format!("select id from seen where {means} order by id desc");
        let there: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&mut connection).await.unwrap();
        assert!(there.len() > 3 || means == "false", "{arguments}: {}", there.len());
        let middle = there.get(there.len() / 2).copied().unwrap_or_default();
        for (before, most, scanned) in [(i64::MAX, 1000, 5000), (i64::MAX, 70, 40), (middle, 300, 500)] {
            let there = &there[there.partition_point(|id| *id >= before)..];
            let (found, are_all) = pages(&mut connection, arguments, before, most, scanned).await;
            assert!(found == there[..found.len()], "{arguments}, {most} of {scanned}: each once, in order");
            assert!(!are_all || found.len() == there.len(), "{arguments}, {most} of {scanned}: {} of {}", found.len(), there.len());
            assert!(are_all || scanned < 5000 || found.len() > 100, "{arguments}, {most} of {scanned}: no more than {}", found.len());
        }
    }
    db.finish().await;
}
