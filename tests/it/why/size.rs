//! Measures the duration of a diagnosis with many waiting and many finished jobs.

use std::time::Instant;

use queue_core::{JobId, Queue};
use sqlx::Executor as _;
use tests::TestDb;

/// Statements that fill a store with a million ready jobs in 10,000 queues, two million completed jobs, and a thousand workers. A tenth of
/// the ready jobs is in one queue. Only one worker serves all queues.
const LARGE: &str = "
    insert into queue.lane (lane, queue, job_type, priority, solo)
    select queue.lane_id('q' || q, 'do', 100, false), 'q' || q, 'do', 100, false from generate_series(1, 10000) q;
    insert into queue.lane (lane, queue, job_type, priority, solo)
    select queue.lane_id('q1', 't' || q, 150, false), 'q1', 't' || q, 150, false from generate_series(1, 200) q;
    insert into queue.job (id, lane, max_attempts, payload)
    select queue.next_id(), queue.lane_id('q' || case when n % 10 = 0 then 1 else 1 + n % 10000 end, 'do', 100, false), 3, '{}'
    from generate_series(1, 1000000) n;
    insert into queue.ready (lane, seq, id) select lane, id, id from queue.job;
    insert into queue.done_many (first_id, last_id, finished_at, lane, ids)
    select min(id), max(id), now() - interval '1 s', lane, array_agg(id order by id)
    from (
      select (queue.next_id() >> 33 << 33) + n as id, n / 100 as batch, queue.lane_id('q1', 'do', 100, false) as lane
      from generate_series(1, 2000000) n) d
    group by batch, lane, id >> 33;
    insert into queue.worker (id, expires_at, name, host, pid, version, queues, types)
    select gen_random_uuid(), now() + interval '1 h', 'w', 'h', n, '', case when n = 1 then '{}' else array['other'] end, '{do,t1}'
    from generate_series(1, 1000) n;
    analyze";

/// Run with `cargo test -p tests --test it why::size -- --ignored --nocapture`.
#[tokio::test]
#[ignore = "by hand: measures, and takes a minute"]
async fn an_answer_takes_less_than_a_tenth_of_a_second_in_a_large_store() {
    let db = TestDb::new().await;
    db.pool.execute(sqlx::raw_sql(LARGE)).await.unwrap();
    let mut slowest = 0.0_f64;
    for (which, sql) in [
        ("the last of 100,000 in its lane", "select max(id) from queue.ready where lane = queue.lane_id('q1', 'do', 100, false)"),
        ("one of 90 in its lane", "select max(id) from queue.ready where lane = queue.lane_id('q77', 'do', 100, false)"),
        ("the first of its lane", "select min(id) from queue.ready where lane = queue.lane_id('q1', 'do', 100, false)"),
        ("one that is not there", "select 7::bigint"),
    ] {
        let job = JobId(db.count(sql).await);
        let mut took = Vec::new();
        for _ in 0..7 {
            let began = Instant::now();
            Queue::new(&db.pool).job(job).why().await.unwrap();
            took.push(began.elapsed().as_secs_f64() * 1000.0);
        }
        took.sort_by(f64::total_cmp);
        println!(
            "{which}: {:.1} ms in the middle, {:.1} at most; {:?}",
            took[3],
            took[6],
            Queue::new(&db.pool).job(job).why().await.unwrap().first().message
        );
        slowest = slowest.max(took[3]);
    }
    db.pool.execute("truncate queue.ready; delete from queue.done_many; truncate queue.job").await.unwrap();
    assert!(slowest < 100.0, "{slowest} ms");
    db.finish().await;
}
