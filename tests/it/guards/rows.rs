//! Tests the limits of history rows and leases, and the constraints of the tables.

use tests::{
    TestDb, operate,
    protocol::{self, claim, flush, register, settle, settle_together},
};

use uuid::Uuid;

use super::{MIDNIGHT, connect, leased};

#[tokio::test]
async fn a_row_of_history_is_of_one_lane_one_day_and_one_span() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let of = operate::ensure_lanes(&mut connection, &[("a", 100), ("b", 100)]).await.unwrap();
    let span = 1_i64 << 33;
    let spans = (MIDNIGHT >> 33 << 33) + 5 * span;
    let mut shift = 0;
    // The jobs of a large lease are written to history in their stored order. The jobs of small leases are sorted first.
    for (whole, half) in [(true, 60), (true, 3), (false, 3)] {
        for (border, of) in [(MIDNIGHT, &of[..1]), (spans, &of[..1]), (spans + span / 2, &of[..])] {
            shift += 1000;
            let ids: Vec<i64> = (-half..half).map(|n| border + n * 4_000 + if n < 0 { -shift } else { shift }).collect();
            // Store the ids of small leases in reverse, because the statements must sort them.
            let lying: Vec<i64> = if half < 60 { ids.iter().rev().copied().collect() } else { ids.clone() };
            let mut lease = leased(&mut connection, &lying, of).await;
            let refused = if whole {
                flush(&mut connection, &[], &[lease.token]).await.unwrap()
            } else {
                lease.jobs.reverse();
                settle(&mut connection, &lease.all("plain")).await.unwrap()
            };
            assert_eq!(refused, []);
            let rows = sqlx::query_scalar::<_, i64>("select count(*) from queue.done_many where first_id = any ($1)").bind(&ids);
            assert_eq!(rows.fetch_one(&mut connection).await.unwrap(), 2, "{whole}, {half}, {border}, {of:?}");
        }
    }
    let wrong = "select count(*) from queue.done_many m cross join lateral unnest(m.ids) u (id) join queue.job j on j.id = u.id
      where j.lane <> m.lane or u.id not between m.first_id and m.last_id or m.first_id >> 33 <> m.last_id >> 33
        or (m.first_id >> 20) / 86400000 <> (m.last_id >> 20) / 86400000 or m.ids <> (select array_agg(i order by i) from unnest(m.ids) i)";
    assert_eq!(db.count(wrong).await, 0);
    db.finish().await;
}

#[tokio::test]
async fn a_large_lease_becomes_a_row_of_history_and_small_ones_share_one() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let of = operate::ensure_lanes(&mut connection, &[("a", 100)]).await.unwrap();
    let mut tokens = vec![Uuid::new_v4()];
    for (begin, jobs) in [(0, 120), (1000, 3), (2000, 3)] {
        let ids: Vec<i64> = (begin..begin + jobs).map(|n| MIDNIGHT + n).collect();
        tokens.push(leased(&mut connection, &ids, &of).await.token);
    }
    assert_eq!(flush(&mut connection, &[], &tokens).await.unwrap(), [(tokens[0], None)], "the forged one alone");
    let rows: Vec<i32> =
        sqlx::query_scalar("select cardinality(ids) from queue.done_many order by first_id").fetch_all(&mut connection).await.unwrap();
    assert_eq!(rows, [120, 6]);
    db.finish().await;
}

#[tokio::test]
async fn the_rest_of_a_lease_keeps_its_order_each_job_with_its_own_attempts_and_crashes() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let of = operate::ensure_lanes(&mut connection, &[("default", 100)]).await.unwrap();
    let lease = leased(&mut connection, &(1..=40).map(|n| MIDNIGHT + n).collect::<Vec<_>>(), &of).await;
    let numbers = "update queue.lease set attempts = (select array_agg(id - $1 order by id) from unnest(ids) id),
      crashes = (select array_agg(100 + id - $1 order by id) from unnest(ids) id)";
    sqlx::query(numbers).bind(MIDNIGHT).execute(&mut connection).await.unwrap();
    let verdicts: Vec<_> = [0, 7, 20, 39].map(|at| lease.one(at, "retry")).to_vec();
    assert_eq!(settle(&mut connection, &verdicts).await.unwrap(), []);
    let left: (Vec<i64>, Vec<i16>, Vec<i16>) =
        sqlx::query_as("select ids, attempts, crashes from queue.lease").fetch_one(&mut connection).await.unwrap();
    let expected: Vec<i16> = (1..=40).filter(|n| ![1, 8, 21, 40].contains(n)).collect();
    assert_eq!(left.0, expected.iter().map(|n| MIDNIGHT + i64::from(*n)).collect::<Vec<_>>());
    assert_eq!((left.1, left.2), (expected.clone(), expected.iter().map(|n| 100 + n).collect()));
    db.finish().await;
}

#[tokio::test]
async fn the_tables_refuse_rows_that_our_statements_never_write() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let refused = [
        ("lane_queue_is_a_name", "insert into queue.lane select queue.lane_id('a b', 'x', 1::smallint, false), 'a b', 'x', 1, false"),
        ("lane_job_type_is_a_name", "insert into queue.lane select queue.lane_id('a', 'x y', 1::smallint, false), 'a', 'x y', 1, false"),
        ("lane_is_its_hash", "insert into queue.lane select 1, 'a', 'x', 1, false"),
        (
            "lane_is_seen_or_leaving",
            "insert into queue.lane (lane, queue, job_type, priority, solo, leaving) select queue.lane_id('a', 'x', 1, false), 'a', 'x', 1, false, '3'",
        ),
        ("ready_claim", "insert into queue.ready (lane, seq, id) values (1, 1, 1), (1, 1, 2)"),
        ("scheduled_due", "insert into queue.scheduled (run_at, id, lane) values ('2026-01-01', 1, 1), ('2026-01-01', 1, 1)"),
        ("scheduled_run_at_in_range", "insert into queue.scheduled (run_at, id, lane) values ('infinity', 1, 1)"),
        ("scheduled_run_at_in_range", "insert into queue.scheduled (run_at, id, lane) values ('1969-12-31', 1, 1)"),
        ("blocked_run_at_in_range", "insert into queue.blocked (key, seq, id, lane, run_at) values (1, 1, 1, 1, 'infinity')"),
        ("blocked_run_at_in_range", "insert into queue.blocked (key, seq, id, lane, run_at) values (1, 1, 1, 1, '1969-12-31')"),
        ("unique_key_until_in_range", "insert into queue.unique_key values (gen_random_uuid(), 1, 'until', 'infinity')"),
        ("retention_in_range", "insert into queue.retention (job_type, history) values ('x', '10000 years')"),
        (
            "lease_holds_something",
            "insert into queue.lease (token, worker, ids, attempts, crashes) select w, w, '{}', '{}', '{}' from gen_random_uuid() w",
        ),
        (
            "lease_arrays_match",
            "insert into queue.lease (token, worker, ids, attempts, crashes) select w, w, '{1}', '{1,1}', '{1}' from gen_random_uuid() w",
        ),
        (
            "lease_pkey",
            "insert into queue.lease (token, worker, ids, attempts, crashes) select w, w, '{1}', '{1}', '{1}' from gen_random_uuid() w, generate_series(1, 2)",
        ),
        ("done_cancelled_has_no_output", "insert into queue.done values (1, now(), 1, 1, true, false, '1')"),
        ("done_cancelled_has_no_output", "insert into queue.done values (1, now(), 1, 1, false, true)"),
        ("expiry_due", "insert into queue.expiry (at, id) values ('2026-01-01', 1), ('2026-01-01', 1)"),
        ("expiry_at_in_range", "insert into queue.expiry (at, id) values ('infinity', 1)"),
        ("done_many_spans_its_ids", "insert into queue.done_many values (1, 3, now(), 1, '{1,2}')"),
        ("done_many_is_close_together", "insert into queue.done_many values (1, 8589934592, now(), 1, '{1,8589934592}')"),
        ("job_default_pkey", "insert into queue.job values (1, 1, 1, '{}'), (1, 1, 1, '{}')"),
        ("done_default_pkey", "insert into queue.done values (1, now(), 1, 1), (1, now(), 1, 1)"),
        (
            "worker_pkey",
            "insert into queue.worker select w, now(), now(), '', '', 1, '', '{}' from gen_random_uuid() w, generate_series(1, 2)",
        ),
        ("idle_pkey", "insert into queue.idle select 'a', w from gen_random_uuid() w, generate_series(1, 2)"),
        ("dead_pkey", "insert into queue.dead values (1, now(), 1, 1, 0, ''), (1, now(), 1, 1, 0, '')"),
        ("progress_pkey", "insert into queue.progress (id, attempt) values (1, 1), (1, 1)"),
        ("progress_fraction_in_range", "insert into queue.progress (id, attempt, fraction) values (1, 1, 1.1)"),
        ("progress_counts_by_name", "insert into queue.progress (id, attempt, counts) values (1, 1, '[]')"),
        ("waiter_pkey", "insert into queue.waiter select w, now() from gen_random_uuid() w, generate_series(1, 2)"),
        ("retention_pkey", "insert into queue.retention (job_type, history) values ('x', '1 h'), ('x', '1 h')"),
        ("retention_job_type_is_a_name", "insert into queue.retention (job_type, history) values ('x y', '1 h')"),
        ("retention_is_positive", "insert into queue.retention (job_type, history) values ('x', '0')"),
        ("capacity_pkey", "insert into queue.capacity (queue, capacity) values ('x', 1), ('x', 1)"),
        ("capacity_queue_is_a_name", "insert into queue.capacity (queue, capacity) values ('x y', 1)"),
        ("child_state_is_an_end", "insert into queue.child (parent, name, id, state) values (1, 'a', 2, 'ready')"),
        ("node_pkey", "insert into queue.node values (1, 'a', 1, '{}', '{}'), (1, 'a', 2, '{}', '{}')"),
        ("node_name_is_bounded", "insert into queue.node values (1, '', 1, '{}', '{}')"),
        ("node_name_is_bounded", "insert into queue.node values (1, repeat('a', 201), 1, '{}', '{}')"),
        ("edge_pkey", "insert into queue.edge values (1, 2, false, 'hold', false), (1, 2, true, 'hold', false)"),
        ("edge_if_dead_is_known", "insert into queue.edge values (1, 2, false, 'weep', false)"),
        ("capacity_is_not_negative", "insert into queue.capacity (queue, capacity) values ('x', -1)"),
    ];
    for (constraint, row) in refused {
        let error = sqlx::raw_sql(row).execute(&mut connection).await.unwrap_err();
        assert!(error.to_string().contains(constraint), "{constraint}: {error}");
    }
    let name: bool = sqlx::query_scalar("select queue.is_name(null)").fetch_one(&mut connection).await.unwrap();
    assert!(!name, "null is no name");
    db.finish().await;
}

#[tokio::test]
async fn a_whole_lease_with_a_job_of_an_unnamed_lane_stays_unchanged() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let of = operate::ensure_lanes(&mut connection, &[("a", 100), ("b", 100)]).await.unwrap();
    let lease = leased(&mut connection, &[MIDNIGHT, MIDNIGHT + 1, MIDNIGHT + 2], &of).await;
    let named = [(MIDNIGHT, of[0]), (MIDNIGHT + 1, of[1])];
    let error = protocol::settle_leases_of(&mut connection, &[lease.token], &named, &[3]).await.unwrap_err();
    assert!(error.to_string().contains("null value in column \"lane\""), "{error}");
    assert_eq!(db.count("select count(*) from queue.lease where cardinality(ids) = 3").await, 1);
    db.finish().await;
}

#[tokio::test]
async fn an_unknown_word_of_a_verdict_leaves_the_entry_alone() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    operate::enqueue(&mut connection, "default", 100, false).await.unwrap();
    let worker = register(&mut connection).await.unwrap();
    let lease = claim(&mut connection, worker, 1).await.unwrap();
    for word in ["forget", "another"] {
        assert_eq!(settle_together(&mut connection, &lease.all(word)).await.unwrap().len(), 1, "{word}");
    }
    assert_eq!(db.count("select count(*) from queue.lease where cardinality(ids) = 1").await, 1);
    db.finish().await;
}
