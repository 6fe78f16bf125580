//! What is ready under a limit is found, however it came to be so.

use std::time::{Duration, Instant};

use queue_core::{Context, Handler, Job as _, JobResult, JobState, job};
use serde::{Deserialize, Serialize};
use tests::eventually;

use super::{Limited, fresh, span, worker};

#[tokio::test]
async fn what_is_committed_late_under_a_limit_is_found_at_once_by_a_worker_that_sleeps() {
    let db = fresh().await;
    let mut worst = Duration::ZERO;
    db.run_while(worker(&db).poll_interval(Duration::from_millis(20)), async {
        let first = Limited { ms: 0 }.enqueue(&db.pool).await.unwrap().id();
        db.until(first, JobState::Completed).await;
        eventually("it sleeps", async || db.count("select count(*) from queue.idle").await > 0).await;
        for _ in 0..8 {
            let mut tx = db.pool.begin().await.unwrap();
            let late = Limited { ms: 0 }.enqueue(&mut tx).await.unwrap().id();
            let above = Limited { ms: 0 }.enqueue(&db.pool).await.unwrap().id();
            db.until(above, JobState::Completed).await;
            // It looks, finds nothing, and rests.
            tokio::time::sleep(Duration::from_millis(150)).await;
            tx.commit().await.unwrap();
            let committed = Instant::now();
            db.until(late, JobState::Completed).await;
            worst = worst.max(committed.elapsed());
        }
    })
    .await;
    eprintln!("committed late: found within {worst:?}");
    assert!(worst < Duration::from_secs(3), "one waited for {worst:?}");
    db.finish().await;
}

/// Takes turns under a limit, and fails at first.
#[job(name = "limits_fair_retried", send_only, fair = self.tenant, limit(concurrency = 5), max_attempts = 12, backoff = fixed("20ms"))]
#[derive(Serialize, Deserialize)]
struct FairRetried {
    tenant: u32,
}

impl Handler for FairRetried {
    async fn run(self, cx: &Context) -> JobResult {
        span(cx, 0).await?;
        if cx.attempt() < 12 { Err("again".into()) } else { Ok(()) }
    }
}

#[tokio::test]
async fn retries_of_jobs_that_take_turns_under_a_limit_begin_as_soon_as_others() {
    let db = fresh().await;
    db.run_until_idle(worker(&db).register::<FairRetried>()).await;
    let job = FairRetried { tenant: 1 }.enqueue(&db.pool).await.unwrap().id();
    db.run_while(worker(&db).register::<FairRetried>(), db.until(job, JobState::Completed)).await;
    let gaps =
        "select (extract(epoch from began - lag(ended) over (order by n)) * 1000)::float8 as ms from effect_span order by 1 nulls last";
    let gaps: Vec<f64> = sqlx::query_scalar::<_, Option<f64>>(gaps).fetch_all(&db.pool).await.unwrap().into_iter().flatten().collect();
    eprintln!("from a failure to the retry, due after 20 ms: median {:.0} ms, worst {:.0} ms", gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
    assert!(gaps[gaps.len() / 2] < 150.0, "{gaps:?}");
    db.finish().await;
}
