//! Tests counts and their bounds. A count is exact, or reports that there may be more jobs.

use std::process::Command;

use queue_core::{Job as _, JobState, Queue};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Executor as _};
use tests::{Do, TestDb};

use super::ok;

const CLI: &str = env!("CARGO_BIN_EXE_test-cli");

/// SQL that creates four lanes and fills three of them with jobs in every state. Most of the jobs are in the first lane. Some leases
/// contain jobs of one lane, others jobs of several lanes.
const FILL: &str = "
  insert into queue.lane (lane, queue, job_type, priority, solo)
    select queue.lane_id(q, t, 100::smallint, false), q, t, 100, false
    from (values ('a', 'do'), ('a', 'other'), ('b', 'do'), ('c', 'do')) l (q, t);
  create temporary table made as
    select n, queue.next_id() as id, (array['ready', 'scheduled', 'blocked', 'lease', 'leases', 'done', 'cancelled', 'expired', 'plain',
      'dead', 'parked'])[1 + n % 11] as entry,
      (select l.lane from queue.lane l order by l.queue, l.job_type offset case when n % 12 < 8 then 0 when n % 12 < 10 then 1 else 2 end limit 1) as lane
    from generate_series(0, 197) n;
  insert into queue.job (id, lane, max_attempts, payload, key) select id, lane, 3, '{}', case when entry = 'blocked' then lane end from made;
  insert into queue.ready (lane, seq, id) select lane, id, id from made where entry = 'ready';
  insert into queue.scheduled (run_at, id, lane) select now() + interval '1 h', id, lane from made where entry = 'scheduled';
  insert into queue.parked (id, lane, attempts, crashes, since, names) select id, lane, 1, 0, now(), '{go}' from made where entry = 'parked';
  insert into queue.blocked (key, seq, id, lane) select lane, id, id, lane from made where entry = 'blocked';
  insert into queue.lease (token, worker, ids, attempts, crashes, lane)
    select gen_random_uuid(), gen_random_uuid(), array_agg(id), array_agg(1::smallint), array_agg(0::smallint), lane
    from made where entry = 'lease' group by lane
    union all
    select gen_random_uuid(), gen_random_uuid(), array_agg(id), array_agg(1::smallint), array_agg(0::smallint), null
    from made where entry = 'leases' group by n / 27;
  insert into queue.done (id, finished_at, ran_ms, attempts, cancelled, expired)
    select id, now(), 1, 2, entry <> 'done', entry = 'expired' from made where entry in ('done', 'cancelled', 'expired');
  insert into queue.done_many (first_id, last_id, finished_at, lane, ids)
    select min(id), max(id), now(), lane, array_agg(id order by id) from made where entry = 'plain' group by lane, id >> 33, n / 27;
  insert into queue.dead (id, died_at, lane, attempts, crashes, error) select id, now(), lane, 3, 0, 'x' from made where entry = 'dead';
";

#[tokio::test]
#[ignore = "deep"]
async fn a_count_is_exact_or_reports_that_there_may_be_more() {
    let db = TestDb::new().await;
    db.pool.execute(AssertSqlSafe(FILL)).await.unwrap();
    let exact = "select j.queue, j.job_type, j.state, count(*) from queue.jobs j group by 1, 2, 3 order by 1, 2, 3";
    let exact: Vec<(String, String, String, i64)> = sqlx::query_as(exact).fetch_all(&db.pool).await.unwrap();
    assert!(JobState::ALL.iter().all(|state| exact_of(&exact, state.name()) >= 18), "{exact:?}");
    let mut partials = Vec::new();
    for most in (0..=240).map(Some).chain([None]) {
        let counts: Vec<(String, String, String, i64, bool)> =
            sqlx::query_as("select * from queue.counts($1)").bind(most).fetch_all(&db.pool).await.unwrap();
        for (queue, job_type, state, jobs, partial) in &counts {
            let there = exact.iter().find(|count| (&count.0, &count.1, &count.2) == (queue, job_type, state)).map_or(0, |count| count.3);
            let counted = format!("{queue} {job_type} {state}, counted up to {most:?}: {jobs}, of {there}; partial: {partial}");
            assert!(if *partial { *jobs <= there } else { *jobs == there && there > 0 }, "{counted}");
            // In these states, each of the four lanes is counted separately, up to its share of the bound. The shares add up to two and a
            // half times the bound.
            let is_by_lane = ["ready", "scheduled", "blocked", "parked"].contains(&state.as_str());
            let share = most.map_or(i64::MAX, |most| (most * 5 / 2 / 4).clamp(1, most.max(1)));
            assert!(!is_by_lane || *partial != (there <= share || exact_of(&exact, state) <= most.unwrap_or(i64::MAX)), "{counted}");
        }
        for (queue, job_type, state, there) in &exact {
            let is_counted = counts.iter().any(|count| (&count.0, &count.1, &count.2) == (queue, job_type, state));
            assert!(is_counted, "counted up to {most:?}, {queue} {job_type} {state} would be none, and is {there}");
        }
        partials.push(counts.iter().filter(|count| count.4).count());
    }
    assert!(partials[1] > 0 && partials[30] > 0, "{partials:?}");
    assert!(
        partials[216..].iter().all(|partials| *partials == 0),
        "a fourth as many of the 54 that are done, and fewer of all else: {partials:?}"
    );
    db.finish().await;
}

/// Returns the exact number of jobs in this state.
fn exact_of(exact: &[(String, String, String, i64)], state: &str) -> i64 {
    exact.iter().filter(|count| count.2 == state).map(|count| count.3).sum()
}

/// The store has a small and a large lane. The count of the small lane is exact, and the count of the large lane is reported as a lower
/// bound.
#[tokio::test]
#[ignore = "deep"]
async fn stats_report_where_there_may_be_more_and_count_all_on_request() {
    let db = TestDb::new().await;
    Do { act: ok() }.enqueue(&db.pool).queue("small").await.unwrap();
    Do { act: ok() }.enqueue(&db.pool).queue("large").await.unwrap();
    let more = "with made as materialized (select j.lane, queue.next_id() as id from queue.job j cross join generate_series(1, 20000)
        where j.lane = (select min(l.lane) from queue.lane l where l.queue = 'large')),
      jobs as (insert into queue.job (id, lane, max_attempts, payload) select id, lane, 3, '{}' from made)
      insert into queue.ready (lane, seq, id) select lane, id, id from made";
    db.pool.execute(more).await.unwrap();
    Queue::new(&db.pool).set_capacity("large", Some(50_000)).await.unwrap();
    let print = async |arguments: &'static [&'static str]| {
        let url = db.url.clone();
        let run = move || Command::new(CLI).args(arguments).env("DATABASE_URL", url).env("NO_COLOR", "1").output().unwrap();
        let output = tokio::task::spawn_blocking(run).await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let json = async |arguments| serde_json::from_str::<Value>(&print(arguments).await).unwrap();
    let counted = |counts: &Value| {
        let count = |count: &Value| format!("{} {} {}", count["queue"].as_str().unwrap(), count["jobs"], count["partial"]);
        counts.as_array().unwrap().iter().map(count).collect::<Vec<_>>()
    };
    let stats = json(&["stats", "--json"]).await;
    assert_eq!(counted(&stats["counts"]), ["large 5000 true", "small 1 false"]);
    let unserved = stats["unserved"].as_array().unwrap().iter().map(|waits| format!("{} {}", waits["jobs"], waits["partial"]));
    assert_eq!(unserved.collect::<Vec<_>>(), ["10000 true", "1 false"]);
    assert_eq!(counted(&json(&["stats", "--json", "--exact"]).await["counts"]), ["large 20001 false", "small 1 false"]);
    let capacity = async |arguments| {
        let shown = json(arguments).await["capacities"][0].clone();
        format!("{} {} {}", shown["capacity"], shown["waiting"], shown["partial"])
    };
    assert_eq!(capacity(&["capacity", "--json"]).await, "50000 10000 true");
    assert_eq!(capacity(&["capacity", "--json", "--exact"]).await, "50000 20001 false");
    // The text output contains the same counts.
    let has_row = |text: &str, words: &[&str]| text.lines().any(|line| line.split_whitespace().take(words.len()).eq(words.iter().copied()));
    let (stats, exactly) = (print(&["stats"]).await, print(&["stats", "--exact"]).await);
    let rows: [&[&str]; 4] =
        [&["large", "do", "-", "-", "5000+"], &["small", "do", "-", "-", "1"], &["large", "do", "10000+"], &["small", "do", "1"]];
    assert!(rows.iter().all(|row| has_row(&stats, row)), "{stats}");
    assert!(has_row(&exactly, &["large", "do", "-", "-", "20001"]) && has_row(&exactly, &["small", "do", "-", "-", "1"]), "{exactly}");
    let (capacity, exactly) = (print(&["capacity"]).await, print(&["capacity", "--exact"]).await);
    assert!(has_row(&capacity, &["large", "50000", "10000+"]) && has_row(&exactly, &["large", "50000", "20001"]), "{capacity}{exactly}");
    db.finish().await;
}

#[tokio::test]
async fn unserved_jobs_are_counted_up_to_a_bound_and_the_bound_is_reported() {
    let db = TestDb::new().await;
    for queue in (0..12).map(|number| format!("q{number:02}")) {
        for _ in 0..3 {
            Do { act: ok() }.enqueue(&db.pool).queue(queue.as_str()).await.unwrap();
        }
    }
    let unserved = async |most: i64| -> Vec<(i64, bool)> {
        let statement = include_str!("../../../queue-core/sql/unserved.sql");
        let found: Vec<(String, String, i64, bool)> = sqlx::query_as(statement).bind(most).bind(100_i64).fetch_all(&db.pool).await.unwrap();
        found.into_iter().map(|(.., jobs, partial)| (jobs, partial)).collect()
    };
    assert_eq!(unserved(4).await, [(3, false); 12]);
    assert_eq!(unserved(3).await, [(2, true); 12], "of all no more than ten times as many");
    db.finish().await;
}
