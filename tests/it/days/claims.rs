//! Tests claims of jobs that were enqueued long before the other jobs of their lanes.

use queue_core::{Job as _, JobState};
use tests::{Do, TestDb};

use super::make_past_day;

/// Statement that creates forty ready jobs that were enqueued `$1` days ago and have failed once. Each job outputs its number. The
/// metadata contains the same number, so that the output can be checked.
const RETURN_JOBS: &str = "with j as (
    insert into queue.job (id, lane, max_attempts, payload, meta)
    select queue.id_at(now() - $1 * interval '1 day') + n, queue.lane_id('default', 'do', 100::smallint, false), 3,
      jsonb_build_object('act', jsonb_build_object('Ok', n::text)), jsonb_build_object('n', n)
    from generate_series(1, 40) n
    returning id, lane
  )
  insert into queue.ready (lane, seq, id, attempts) select lane, queue.next_id(), id, 1 from j";

#[tokio::test]
async fn jobs_retried_after_days_run_beside_new_ones_and_a_deleted_one_is_reported() {
    let db = TestDb::new().await;
    make_past_day(&db.pool, 3).await;
    db.run_while(db.worker(), async {
        // Run three jobs first, so that claims start at the lane's floor instead of at the beginning of the lane.
        for _ in 0..3 {
            let job = Do::ok().enqueue(&db.pool).await.unwrap();
            db.until(job.id(), JobState::Completed).await;
        }
        let mut tx = db.pool.begin().await.unwrap();
        for days_ago in [3, 9] {
            sqlx::query(RETURN_JOBS).bind(days_ago).execute(&mut *tx).await.unwrap();
        }
        let gone = "insert into queue.ready (lane, seq, id) select lane, queue.next_id(), 17 from queue.ready limit 1";
        sqlx::query(gone).execute(&mut *tx).await.unwrap();
        Do::enqueue_all((0..40).map(|_| Do::ok()), &mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        db.until_count("select count(*) from queue.dead where id = 17 and error like '%missing%'", 1).await;
        db.until_count("select count(*) from queue.ready", 0).await;
        db.until_count("select count(*) from queue.lease", 0).await;
    })
    .await;
    let completed = "select count(*) from queue.jobs where state = 'completed' and attempts = 2 and output #>> '{}' = meta ->> 'n'";
    assert_eq!(db.count(completed).await, 80);
    assert_eq!(db.count("select count(*) from queue.failure where id <> 17").await, 0);
    sqlx::query("delete from queue.dead where id = 17").execute(&db.pool).await.unwrap();
    db.finish().await;
}
